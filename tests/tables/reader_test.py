"""Tests columns of CSV and Parquet files, and refusals."""

import decimal
import gzip
import io
import sys
import tracemalloc

import pytest

from dpjax import unpacking
from dpjax.tables import arrow
from dpjax.tables import formats
from dpjax.tables import lines
from dpjax.tables import reader
from dpjax.tables.formats import FileError
from dpjax.tables.formats import Format

pytestmark = pytest.mark.every(1)

Decimal = decimal.Decimal


def _bytes(text):
  return text if isinstance(text, bytes) else text.encode()


def _read(text, *columns, path='a.csv', gaps=True, numeric=True, **declared):
  """Returns fields of columns as text, with numbers as they are written."""
  fields = reader.read(path, io.BytesIO(_bytes(text)), *(columns or ['x']),
                       numeric=numeric, gaps=gaps, form=Format(**declared))
  return [str(field) if isinstance(field, Decimal) else field
          for field in fields]


def _walk(text, path):
  return list(reader.read(path, io.BytesIO(_bytes(text)), numeric=False))


def test_csv_fields():
  assert _read('x,y\n1,2\n , 4\n\n-5.50,6\nNA,0\n') == ['1', None, '-5.50',
                                                        None]
  assert _read('x,y\n1,2\n"a,b",3\n , 4\n', numeric=False) == ['1', 'a,b', '']
  assert _read('\ufeffx\n1\n') == ['1']
  assert _read('y; x\n1;2\n', separator=';') == ['2']
  assert _read('x,y\r\n1,2\r\n') == ['1']
  assert _read('x\n"two\nlines"\n', numeric=False) == ['two\nlines']
  assert [(y, str(x)) for x, y in reader.read(
      'a.csv', io.BytesIO(b'x,y\n1, 2 \n3,\n'), 'x', 'y', numeric=True)] == [
          ('2', '1'), ('', '3')]
  assert _walk('x,y\n1,2\n3,4\n', 'a.csv') == [None, None]
  assert _read('x\n') == [] and _walk('x\n', 'a.csv') == []


def test_the_file_stays_open_and_large_ones_are_streamed(monkeypatch):
  monkeypatch.setattr(arrow, 'MOST_BYTES', 300)
  for name, pack in (('a.csv', bytes), ('a.csv.gz', gzip.compress)):
    file = io.BytesIO(pack(b'x,y\n' + b'1,2\n' * 100_000))
    fields = reader.read(name, file, 'x', numeric=True)
    assert next(fields) == 1
    assert file.tell() < 50_000
    fields.close()
    assert not file.closed


@pytest.mark.parametrize('text, declared, wanted', [
  ('"12,345.67"', {'thousands': ','}, '12345.67'),
  ('"1 234,5"', {'thousands': ' ', 'decimal': ','}, '1234.5'),
  ('"1\u00a0234\u202f567,5"', {'thousands': ' ', 'decimal': ','}, '1234567.5'),
  ('"-1.234,5e2"', {'thousands': '.', 'decimal': ','}, '-1.2345E+5'),
  ("1'234.5", {'thousands': "'"}, '1234.5'),
  ('"0,5"', {'decimal': ','}, '0.5'), ('12.5', {'thousands': ','}, '12.5'),
  ('-99', {'missing_tokens': ('-99',)}, None), ('', {'missing_tokens': ()},
                                                None),
  ('none', {'unparsed': 'missing'}, None), ('NA', {}, None),
])
def test_numbers_are_read_as_declared(text, declared, wanted):
  assert _read(f'x\n{text}\n"7"\n' if text else 'x,y\n,1\n7,1\n',
               **declared) == [wanted, '7']


@pytest.mark.parametrize('text, declared, advice', [
  ('"12,345.67"', {}, 'other decimal or'),
  ('"1 234,5"', {}, 'other decimal or'), ('"1,5"', {}, 'other decimal or'),
  ('1.234.567', {}, 'other decimal or'),
  ('"1,23,456"', {'thousands': ','}, 'other decimal or'),
  ('"1,2345"', {'thousands': ','}, 'other decimal or'),
  ('1.5', {'decimal': ','}, 'other decimal or'),
  ('1.5', {'decimal': ',', 'thousands': '.'}, 'other decimal or'),
  ('$5', {}, 'remove units'), ('5 %', {}, 'remove units'),
  ('€12', {}, 'remove units'), ('2024-01-31', {}, 'the order of dates'),
  ('31.12.2024', {}, 'the order of dates'), ('1/2/99', {}, 'the order of dates'),
  ('n/a', {}, 'declare decimal'),
  ('NA', {'missing_tokens': ('-',)}, 'not a number'),
  ('1_0', {}, 'not a number'), ('a' * 10_000, {}, "'a{40}...' is not a number"),
  ('"12\n,5"', {}, 'line 3'),
])
def test_what_is_no_number_is_refused_with_its_line(text, declared, advice):
  """A text that is no number is refused with its line,
  never taken as missing."""
  with pytest.raises(FileError, match=advice) as error:
    _read(f'x\n{text}\n', **declared)
  assert error.value.reason == 'number'
  line = 2 + text.count('\n')
  assert f"a.csv line {line}, column 'x'" in str(error.value)
  assert len(str(error.value)) < 250
  with pytest.raises(FileError, match=r'line 4, .*\(or declare missing\)'):
    _read('x,y\n1,2\n2,2\n?,2\n', gaps=False)


# Name -> (bytes, outcome, outcome where each line stands by itself). An outcome
# is fields of x, a refusal's reason, or a message on public facts.
_ROWS = 'x,y\n1,a\n2,b\n'
_HOSTILE = {
  'empty': ('', 'is empty', 'is empty'),
  'header only': ('x,y\n', [], []),
  'no line end': ('x,y\n1,a', ['1'], ['1']),
  'blank lines': ('x,y\n\n1,a\n\r\n\n2,b\n\n', ['1', '2'], ['1', '2']),
  'byte order mark': (b'\xef\xbb\xbf' + _ROWS.encode(), ['1', '2'],
                      ['1', '2']),
  'mixed line ends': ('x,y\r\n1,a\r2,b\n3,c', ['1', '2', '3'],
                      ['1', '2', '3']),
  'old line ends': (_ROWS.replace('\n', '\r'), ['1', '2'], ['1', '2']),
  'utf-16': (_ROWS.encode('utf-16'), 'encoding', 'encoding'),
  'utf-16 without mark': (_ROWS.encode('utf-16-le'), 'looks like UTF-16',
                          'looks like UTF-16'),
  'latin-1': ('x,y\n1,caf\xe9\n2,b\n'.encode('latin-1'), 'encoding',
              [None, '2']),
  'bytes of no text': (b'x,y\n1,a\n\xff\xfe\x00,b\n3,c\n', 'encoding',
                       ['1', None, '3']),
  'nul bytes': ('x,y\n1\0,a\n2,b\0\n', 'number', 'number'),
  'a quotation mark too many': ('x,y\n1,"a\n2,b\n3,c\n', 'quoting',
                                [None, '2', '3']),
  'text after a quotation': ('x,y\n"1"0,a\n2,b\n', 'quoting', [None, '2']),
  'a quoted line break': ('x,y\n1,"a\nb"\n2,b\n', ['1', '2'],
                          [None, None, '2']),
  'too few fields': ('x,y\n1\n2,b\n', 'fields', [None, '2']),
  'too many fields': ('x,y\n1,a,\n2,b\n', 'fields', [None, '2']),
  'another separator': (_ROWS.replace(',', ';'), 'separator a semi',
                        'separator a semi'),
  'twice the name': ('x,x\n1,2\n', "2 columns 'x'", '2 columns'),
  'another case': ('X,y\n1,2\n', "no column 'x'", "no column 'x'"),
  'a long number': (f'x,y\n{"7" * 100_000},a\n2,b\n',
                    ['7' * 200 + 'E+99800', '2'],
                    None),
  'a longer field': (f'x,y\n{"7" * 200_000},a\n2,b\n', 'length', [None, '2']),
  'a long line': ('x,y\n1,' + 'a,' * 600_000 + '\n2,b\n', 'length',
                  [None, '2']),
  'one line alone': ('x' * 2_000_000, 'length', 'length'),
  'a huge exponent': ('x,y\n1e99999999999999999999,a\n-inf,b\n',
                      ['1E+99999999999999999', '-Infinity'], None),
  'a date': ('x,y\n2024-01-31,a\n', 'number', 'number'),
  'spreadsheet errors': ('x,y\n#N/A,a\n', 'number', 'number'),
  'a formula': ('x,y\n=1+1,a\n', 'number', 'number'),
}


@pytest.mark.parametrize('name', _HOSTILE)
def test_hostile_files_have_a_stated_outcome(name):
  text, outcome, alone = _HOSTILE[name]
  for wanted, declared in ((outcome, {}),
                           (outcome if alone is None else alone,
                            {'bad_lines': 'missing'})):
    if isinstance(wanted, list):
      fields = _read(text, **declared)
      assert [each and Decimal(each) for each in fields] == [
          each and Decimal(each) for each in wanted]
      assert len(_read(text, 'y', numeric=False, **declared)) == len(wanted)
      continue
    with pytest.raises(ValueError, match='.' if wanted in formats.REFUSALS else
                       wanted) as error:
      _read(text, **declared)
    assert getattr(error.value, 'reason', wanted) == wanted
    assert '\n' not in str(error.value) and len(str(error.value)) < 300
    assert str(error.value).startswith('a.csv')


def test_each_line_alone_is_one_record():
  """Changing one line changes one field, so neighbours stay neighbours."""
  lines = ['1,a', '2,b', '3,c']
  for bad in ('"', '4,"', '"4,d', ',,,', '', '4', '\udcff,d', '4,d\0', 'a' * 9):
    changed = '\n'.join(['x,y', lines[0], bad, lines[2]])
    fields = _read(changed.encode(errors='surrogateescape'),
                  bad_lines='missing', unparsed='missing')
    assert (fields[0], fields[-1]) == ('1', '3')
    assert len(fields) == 3 - (not bad)


def test_every_refusal_has_a_file_and_a_declaration_that_allows_it():
  """With all declarations, records are refused only for damage and bombs."""
  total = {'bad_lines': 'missing', 'unparsed': 'missing'}
  seen = {'missing', 'damaged', 'expanded', 'changed'}
  for text, outcome, _ in _HOSTILE.values():
    if isinstance(outcome, str) and outcome in formats.REFUSALS:
      seen.add(outcome)
      if _bytes(text).startswith(b'x,y\n'):  # The header is public.
        _read(text, **total)
  assert seen == set(formats.REFUSALS)
  with pytest.raises(FileError, match='damaged gzip') as error:
    _read(gzip.compress(b'x\n1\n' * 9_999)[:-9], path='a.csv.gz', **total)
  assert error.value.reason == 'damaged'


def test_files_without_a_header():
  assert _read('1,a\n2,b\n', header=('x', 'y')) == ['1', '2']
  assert _read('', header=('x', 'y')) == []
  with pytest.raises(FileError, match='line 2 has 1 fields, the header 2'):
    _read('1,a\n2\n', header=('x', 'y'))


def test_latin_1_and_gzip_are_read():
  text = 'x,y\n1,caf\xe9\n'.encode('latin-1')
  assert _read(text, 'y', numeric=False, encoding='latin-1') == ['caf\xe9']
  assert _read(gzip.compress(b'x\n1\n'), path='A.CSV.GZ') == ['1']
  with pytest.raises(FileError, match='a.csv line 2 is not text in utf-8: .*'
                                      'declare its encoding, latin-1 say'):
    _read(text)


@pytest.mark.parametrize('text, kwargs, message', [
  ('y,z\n1,2\n', {}, "no column 'x'; there are y, z"),
  ('x\n1\n', {'path': 'a.txt'}, 'input must be one of .csv, .csv.gz, .parquet'),
  ('no', {'path': 'a.parquet'}, 'not a Parquet file'),
])
def test_refusals(text, kwargs, message):
  if 'parquet' in kwargs.get('path', ''):
    pytest.importorskip('pyarrow')
  with pytest.raises(ValueError, match=message):
    _read(text, **kwargs)


def _parquet(columns):
  pyarrow = pytest.importorskip('pyarrow')
  from pyarrow import parquet
  file = io.BytesIO()
  parquet.write_table(pyarrow.table(columns), file)
  return file.getvalue()


def test_parquet_fields():
  data = _parquet({'x': [1.5, None, float('inf'), float('nan')],
                   'y': ['a', 'b', None, 'c'],
                   'z': [decimal.Decimal('1.10'), None, None, None],
                   'w': [True, False, None, None], 't': [b'a', None, b'', b''],
                   'n': [None] * 4})
  read = lambda *columns, **kwargs: list(reader.read(
      'a.PARQUET', io.BytesIO(data), *columns, **{'numeric': True, **kwargs}))
  assert read('x') == [Decimal('1.5'), None, Decimal('inf'), None]
  assert read('z') == [Decimal('1.10'), None, None, None]
  assert read('w') == [1, 0, None, None] and read('n') == [None] * 4
  assert read('x', 'y')[:2] == [(Decimal('1.5'), 'a'), (None, 'b')]
  assert _walk(data, 'a.parquet') == [None] * 4
  assert read('y', numeric=False) == ['a', 'b', None, 'c']
  with pytest.raises(ValueError, match="column 'y' is string, not numeric"):
    read('y')
  with pytest.raises(ValueError, match='is binary, neither text nor numeric'):
    read('x', 't')
  with pytest.raises(ValueError, match="no column 'v'; there are x, y, z, w"):
    read('v')
  with pytest.raises(FileError, match="record 2, column 'x': a number is miss"):
    read('x', gaps=False)
  for cut in (data[:-20], data[:4] + b'\xff' * 60 + data[64:]):
    with pytest.raises(FileError, match='not a Parquet file, or is damaged'):
      list(reader.read('a.parquet', io.BytesIO(cut), 'x', numeric=True))


def test_parquet_needs_its_extra(monkeypatch):
  monkeypatch.setitem(sys.modules, 'pyarrow', None)
  with pytest.raises(ImportError, match='pip install'):
    _read(b'', path='a.parquet')


def test_a_record_of_many_lines_does_not_fill_memory(monkeypatch):
  """A record whose lines keep reopening a quote is refused
  before filling memory."""
  monkeypatch.setattr(lines, 'LONGEST_LINE', 1000)
  text = 'x,y\n1,"' + 'a\n","' * 400 + '"\n2,b\n'
  with pytest.raises(FileError, match='line 202 is in a record of more th'):
    _read(text)
  # Many records of several lines are read as before.
  text = 'x,y\n' + '1,"a\n\nb"\n' * 400
  assert _read(text) == ['1'] * 400


@pytest.mark.parametrize('declared', [{}, {'bad_lines': 'missing'}])
@pytest.mark.parametrize('line', [b'1\n', b'\n', bytes(500) + b'\n'])
def test_what_is_packed_far_too_well_is_refused(line, declared, monkeypatch):
  monkeypatch.setattr(unpacking, 'LEAST_LIMIT', 2**12)
  content = b'x\n' + line * (20_000 // len(line))
  packed = gzip.compress(content)
  assert len(packed) < 150
  with pytest.raises(FileError, match='a.csv.gz unpacks .* unpack it') as error:
    _read(packed, path='a.csv.gz', numeric=False, **declared)
  assert error.value.reason == 'expanded'
  assert formats.REFUSALS['expanded'].instead == ''
  # It is not refused for its content: unpacked, the same bytes are read.
  _read(content, numeric=False, **declared)


def test_what_is_packed_well_is_read(monkeypatch):
  """A well-compressed table is read beyond the least limit."""
  monkeypatch.setattr(unpacking, 'LEAST_LIMIT', 2**10)
  values = [str(i * i) for i in range(20_000)]
  packed = gzip.compress('\n'.join(['x', *values]).encode())
  assert _read(packed, path='a.csv.gz') == values
  # Some programs write several gzip members.
  parts = gzip.compress(b'x\n1\n') + gzip.compress(b'2\n')
  assert _read(parts, path='a.csv.gz') == ['1', '2']


def test_a_bomb_takes_no_memory(monkeypatch):
  """A bomb of 20 MiB is unpacked to 16 MiB, in small parts."""
  monkeypatch.setattr(unpacking, 'LEAST_LIMIT', 2**24)
  packed = gzip.compress(b'x\n') + gzip.compress(bytes(2**20)) * 20
  tracemalloc.start()
  try:
    with pytest.raises(FileError, match='than 16777216 bytes'):
      _read(packed, path='a.csv.gz', numeric=False, bad_lines='missing')
    peak = tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
  assert peak < 2**23


def test_a_parquet_file_of_far_too_many_records_is_refused(monkeypatch):
  packed = _parquet({'x': [1] * 200_000})
  assert len(packed) < 2000
  assert len(_walk(packed, 'a.parquet')) == 200_000
  monkeypatch.setattr(unpacking, 'LEAST_LIMIT', 2**16)
  for columns in ((), ('x',)):
    with pytest.raises(FileError, match='a.parquet unpacks to more') as error:
      list(reader.read('a.parquet', io.BytesIO(packed), *columns,
                       numeric=bool(columns)))
    assert error.value.reason == 'expanded'
