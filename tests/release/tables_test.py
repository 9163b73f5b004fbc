"""Columns of files: CSV and Parquet, and what is refused."""

import decimal
import io
import sys

import pytest

from dpjax.release import tables

pytestmark = pytest.mark.every(1)


def _read(text, *columns, path='a.csv', **kwargs):
  data = text if isinstance(text, bytes) else text.encode()
  return list(tables.read(path, io.BytesIO(data), *(columns or ['x']),
                          numeric=True, **kwargs))


def _walk(text, path):
  data = text if isinstance(text, bytes) else text.encode()
  return list(tables.read(path, io.BytesIO(data), numeric=False))


def test_csv_fields():
  assert _read('x,y\n1,2\n"a,b",3\n , 4\n\n5,6\n') == ['1', 'a,b', '', '5']
  assert _read('\ufeffx\n1\n') == ['1']
  assert _read('y; x\n1;2\n', separator=';') == ['2']
  assert _read('x,y\r\n1,2\r\n') == ['1']
  assert _read('x\n"two\nlines"\n') == ['two\nlines']
  assert _read('x,y\n1, 2 \n3,\n', 'y', 'x') == [('2', '1'), ('', '3')]
  assert _walk('x,y\n1,2\n3,4\n', 'a.csv') == [None, None]
  assert _read('x\n') == []


def test_the_file_stays_open_and_fields_are_streamed():
  file = io.BytesIO(b'x,y\n' + b'1,2\n' * 100_000)
  fields = tables.read('a.csv', file, 'x', numeric=True)
  assert next(fields) == '1'
  assert file.tell() < 50_000
  fields.close()
  assert not file.closed


@pytest.mark.parametrize('text, kwargs, message', [
  ('y,z\n1,2\n', {}, "no column 'x'; there are y, z"),
  ('x,x\n1,2\n', {}, "several columns 'x'"),
  ('', {}, "no column 'x'"),
  ('x,y\n1\n', {}, 'line 2 has 1 fields, the header 2'),
  ('x\n"a\n', {}, 'line 2: unexpected end'),
  (b'x\n\xff\n', {}, 'utf-8'),
  ('x\n1\n', {'path': 'a.txt'}, 'input must be one of .csv, .parquet'),
  ('x\n1\n', {'separator': '--'}, 'separator must be one character'),
  ('no', {'path': 'a.parquet'}, 'no Parquet file'),
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
  data = _parquet({'x': [1.5, None, float('inf')], 'y': ['a', 'b', None],
                   'z': [decimal.Decimal('1.10'), None, None],
                   'w': [True, False, None]})
  assert _read(data, path='a.parquet') == [1.5, None, float('inf')]
  assert _read(data, 'z', path='a.parquet') == [decimal.Decimal('1.10'),
                                                None, None]
  assert _read(data, 'w', path='a.PARQUET') == [True, False, None]
  assert _read(data, 'x', 'y', path='a.parquet') == [
      (1.5, 'a'), (None, 'b'), (float('inf'), None)]
  assert _walk(data, 'a.parquet') == [None] * 3
  assert list(tables.read('a.parquet', io.BytesIO(data), 'y',
                          numeric=False)) == ['a', 'b', None]
  with pytest.raises(ValueError, match="column 'y' is string, not numeric"):
    _read(data, 'y', path='a.parquet')
  with pytest.raises(ValueError, match="no column 'v'; there are x, y, z, w"):
    _read(data, 'v', path='a.parquet')


def test_parquet_needs_its_extra(monkeypatch):
  monkeypatch.setitem(sys.modules, 'pyarrow', None)
  with pytest.raises(ImportError, match='pip install'):
    _read(b'', path='a.parquet')
