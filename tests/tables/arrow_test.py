"""Tests that the fast CSV reader agrees with the line-wise one on any file."""

import gzip
import io
import itertools
import math
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from dpjax.tables import arrow
from dpjax.tables import columns
from dpjax.tables import reader
from dpjax.tables.formats import FileError
from dpjax.tables.formats import Format

pyarrow = pytest.importorskip('pyarrow')
pytestmark = pytest.mark.every(1)

_FIELDS = st.sampled_from([
  '1', '-2.50', '+.5', '7.', '1e400', '-1E-3', 'inf', '-Infinity', 'nan', 'NaN',
  '', ' ', ' NA ', 'NA', '?', 'a', 'é', '\u00a0 5', '5\t', '\x0c5', '1_0', '0x1',
  '1.234,50', '"1.234,50"', '"1,5"', '1,5', '1;5', '"a;b"', '1 000', "1'000",
  '"a,b"', '"a""b"', '""', '""""', 'a"b', '"a"b', '"open', ' "x"', '"x" ',
  '"two\nlines"', '"two\r\nlines"', '\x85', '\u2028', '\x1c', '\0', '١',
  '2020-01-31', '9' * 120, '0.' + '3' * 250, '1e' + '9' * 20])
_ENDS = st.sampled_from(['\n'] * 8 + ['\r\n', '\r', '\n\n', '\r\n\r\n', '\n \n'])
_FORMS = st.builds(
  Format, separator=st.sampled_from([',', ',', ',', ';', '\t', ' ', '§']),
  encoding=st.sampled_from(['utf-8', 'utf-8', 'latin-1', 'cp1252']),
  header=st.sampled_from([(), (), ('x', 'y'), ('x',)]),
  decimal=st.sampled_from(['.', '.', ',']),
  thousands=st.sampled_from(['', '', "'", ' ']),
  dates=st.sampled_from(['', '', 'ymd']),
  missing_tokens=st.sampled_from([('NA', 'nan'), (), ('a', '1', '?')]),
  unparsed=st.sampled_from(['refuse', 'missing']),
  bad_lines=st.sampled_from(['refuse', 'missing']))


@st.composite
def _files(draw):
  """Draws a form, and a file that may or may not follow it."""
  form = draw(_FORMS)
  end = draw(_ENDS)
  width = len(form.header) or draw(st.integers(1, 3))
  parts = [draw(st.sampled_from(['', '', '', '\ufeff', '\n', '"']))]
  if not form.header:
    parts += [form.separator.join(['x', ' y', '"z"'][:width]), end]
  rows = draw(st.lists(st.lists(_FIELDS, min_size=width, max_size=width),
                       max_size=6))
  for row in rows:
    if draw(st.integers(0, 30)) == 0:
      row = row[1:] + row[:draw(st.integers(0, 2))]
    parts += [form.separator.join(row), draw(_ENDS) if draw(
      st.integers(0, 9)) == 0 else end]
  text = ''.join(parts)
  text = text[:len(text) - draw(st.integers(0, 2))]
  encoding = draw(st.sampled_from([form.encoding] * 9 + ['latin-1']))
  return form, text.encode(encoding, errors='replace')


def _line_by_line():
  return mock.patch.object(arrow, 'content', lambda *_, **__: None)


def _outcome(run):
  """Returns the value of a function, or its error."""
  try:
    return run()
  except ValueError as error:
    return type(error), getattr(error, 'reason', None), str(error)


def _fields(content, path, names, **options):
  with_types = [field if isinstance(field, tuple) else (field,) for field in
                reader.read(path, io.BytesIO(content), *names, **options)]
  # Decimals are compared as text: 1.0 and 1.00 are equal, but not the same.
  return [tuple(map(repr, row)) for row in with_types]


@pytest.mark.every(2)
@hypothesis.given(file=_files(), packed=st.booleans(), gaps=st.booleans(),
                  names=st.sampled_from([('x',), ('x', 'y'), (), ('y', 'x')]))
@hypothesis.settings(max_examples=600, deadline=None, derandomize=True)
def test_the_fields_of_any_file_are_those_of_the_careful_reader(
    file, packed, gaps, names):
  form, content = file
  path = 'a.csv.gz' if packed else 'a.csv'
  content = gzip.compress(content) if packed else content
  for numeric in (False, True):
    run = lambda: _fields(content, path, names, form=form, gaps=gaps,
                          numeric=numeric and bool(names))
    fast = _outcome(run)
    with _line_by_line():
      assert fast == _outcome(run)


def _whole(path, form):
  """Returns all columns of a file: texts, numbers or errors, and places."""
  table = reader.table(path, form)
  rows = []
  for column in table.columns:
    texts, codes = columns.texts(column)
    numbers = _outcome(lambda: columns.reals(
      column, form, gaps=True, where=table.where).tolist())
    rows.append(([texts[code] for code in codes], repr(numbers)))
  return (table.header, table.num_records, rows,
          [table.place(record) for record in range(table.num_records)])


@hypothesis.given(file=_files())
@hypothesis.settings(
  max_examples=300, deadline=None, derandomize=True,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_the_table_of_any_file_is_that_of_the_careful_reader(file, tmp_path):
  form, content = file
  path = tmp_path / 'a.csv'
  path.write_bytes(content)
  fast = _outcome(lambda: _whole(path, form))
  with _line_by_line():
    assert fast == _outcome(lambda: _whole(path, form))


def _split(content, form=Format(), width=2):
  return arrow.split(content.encode() if isinstance(content, str) else content,
                     form, width, range(width))


@pytest.mark.parametrize('content', [
  'x,y\n1,2\n', 'x,y\r\n1,2\r\n', '\ufeffx,y\n1,2', 'x,y\n"a,b","c""d"\n',
  'x,y\n\n1,2\n\n', '"x","y"\n"",""\n', 'x,y\n é ,2\n'])
def test_ordinary_files_are_read_fast(content):
  assert _split(content).num_rows == 1


@pytest.mark.parametrize('content', [
  'x,y\n1,"a\nb"\n', 'x,y\n1, "a"\n', 'x,y\n1,"a"b\n', 'x,y\n1,a"b"\n',
  'x,y\n1,"a\n2,b\n', 'x,y\r1,2\r', 'x,y\n1\n', 'x,y\n1,2,3\n', 'x,y\n1,\0\n',
  b'x,y\n1,\xff\n', '\nx,y\n1,2\n', 'x,y\n', 'x,y\n1,' + 'a' * 2**17,
  'x,y\n1,2\r\r\n'])
def test_files_of_doubtful_meaning_are_left_to_the_careful_reader(content):
  assert _split(content) is None


def test_every_short_text_is_the_same_number():
  """Every text of up to four number characters is read as the same number."""
  form = Format(missing_tokens=())
  alphabet = '07.eE+-_ inf'
  texts = [''.join(text) for size in (1, 2, 3, 4)
           for text in itertools.product(alphabet, repeat=size)]
  accepted = 0
  for text in texts:
    fast = arrow.numbers(pyarrow.chunked_array([[text]]), form)
    if fast is None:
      continue
    accepted += 1
    value = columns.reals([text.strip()], form, gaps=True, where=str)
    np.testing.assert_array_equal(fast, value)
    assert math.copysign(1, fast[0]) == math.copysign(1, value[0])
  assert accepted > 200


@pytest.mark.every(2)
@hypothesis.given(st.lists(st.one_of(
  st.floats().map(repr), st.decimals(allow_nan=False).map(str),
  st.from_regex(r'[+-]?[0-9]{0,30}[.]?[0-9]{0,30}(e[+-]?[0-9]{1,4})?',
                fullmatch=True)), max_size=20))
@hypothesis.settings(max_examples=300, deadline=None, derandomize=True)
def test_numbers_are_the_nearest_floats(texts):
  form = Format(missing_tokens=())
  fast = arrow.numbers(pyarrow.chunked_array([texts], pyarrow.string()), form)
  if fast is not None:
    np.testing.assert_array_equal(
      fast, columns.reals(texts, form, gaps=True, where=str))


def test_a_fault_far_down_has_its_line_and_nothing_is_read_twice():
  """A late fault is reported with its line, and no batch is read twice."""
  rows = [f'{i},{i % 7}' for i in range(300_000)]
  rows[250_000] = 'many,1'
  content = '\n'.join(['x,y', *rows]).encode()
  fields = reader.read('a.csv', io.BytesIO(content), 'x', numeric=True)
  seen = []
  with pytest.raises(FileError, match="a.csv line 250002, column 'x': 'many'"):
    for field in fields:
      seen.append(field)
  assert seen == list(range(250_000))
  fields = list(reader.read(
    'a.csv', io.BytesIO(content), 'x', numeric=True,
    form=Format(unparsed='missing')))
  assert fields == [*range(250_000), None, *range(250_001, 300_000)]


def test_without_pyarrow_csv_is_read_all_the_same(monkeypatch, tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('x,y\n1,a\nNA,b\n')
  monkeypatch.setitem(__import__('sys').modules, 'pyarrow', None)
  table = reader.table(path)
  np.testing.assert_array_equal(table.numbers('x'), [1, np.nan])
  assert table.texts('y').texts == ['a', 'b']
