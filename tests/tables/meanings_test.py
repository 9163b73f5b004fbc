"""Tests that a table is the same data set, however it is stored."""

import datetime
import gzip
import json

import numpy as np
import pytest

from dpjax.data import drafts
from dpjax.data import schema_files
from dpjax.data import series
from dpjax.data import user_tables
from dpjax.tables import reader
from dpjax.tables.formats import FileError
from dpjax.tables.formats import Format

pytestmark = pytest.mark.every(1)

_SCHEMA = schema_files.of_parts(
  label='y', classes=['0', '1'], bounds={'x': (0.0, 10.0)},
  categories={'place': ['a', 'b']})
_X = [2.5, np.nan, 30.0, -np.inf, 5.0]
_PLACE = ['a', 'b', None, 'c', 'a']
_Y = [0, 1, 1, 0, 1]
_CSV = 'x,place,y\n2.5,a,0\nNA,b,1\n30.0,,1\n-inf,c,0\n5.0,a,1\n'


def _kept(kind, tmp_path):
  """Returns the same five records in memory or in a file."""
  columns = {'x': _X, 'place': _PLACE, 'y': _Y}
  if kind in ('csv', 'csv.gz', 'tsv'):
    path = tmp_path / f'own.{kind}'
    text = _CSV.encode()
    path.write_bytes(gzip.compress(text) if kind == 'csv.gz' else text)
    return path
  if kind == 'lists':
    return columns
  if kind == 'numpy':
    return {name: np.array(column) for name, column in columns.items()}
  if kind == 'pandas':
    return pytest.importorskip('pandas').DataFrame(columns)
  if kind == 'polars':
    return pytest.importorskip('polars').DataFrame(columns)
  table = pytest.importorskip('pyarrow').table(columns)
  if kind == 'arrow':
    return table
  from pyarrow import parquet
  if kind == 'parquet of categories':
    table = table.set_column(1, 'place', table['place'].dictionary_encode())
  parquet.write_table(table, tmp_path / 'own.parquet')
  return tmp_path / 'own.parquet'


@pytest.mark.parametrize('kind', [
  'csv', 'csv.gz', 'parquet', 'parquet of categories', 'lists', 'numpy',
  'pandas', 'polars', 'arrow'])
def test_training_reads_the_same_wherever_a_table_is_kept(kind, tmp_path):
  kept = _kept(kind, tmp_path)
  data = (user_tables.load(str(kept), _SCHEMA) if hasattr(kept, 'suffix') else
          user_tables.of_columns(kept, _SCHEMA))
  np.testing.assert_array_equal(data.x, [
    [-0.5, 0, 1, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1], [-1, 0, 0, 0, 1],
    [0, 0, 1, 0, 0]])
  np.testing.assert_array_equal(data.y, _Y)


def test_a_matrix_needs_the_names_of_its_columns():
  form = Format(header=('x', 'y'))
  table = reader.of_columns(np.array([[1.0, 0], [2, 1]]), form=form)
  assert table.numbers('y').tolist() == [0, 1]
  with pytest.raises(ValueError, match='of 3 columns needs as many names'):
    reader.of_columns(np.ones((2, 3)), form=form)
  with pytest.raises(ValueError, match='equal lengths, got 1, 2'):
    reader.of_columns({'x': [1], 'y': [1, 2]})


@pytest.mark.parametrize('field, value', [
  ('1.5', 1.5), ('"1.5"', 1.5), (' 1.5 ', 1.5), (' "1.5"', 1.5), ('NA', None),
  (' NA ', None), ('""', None), ('', None), ('1e400', np.inf),
  ('-Infinity', -np.inf), ('nan', None), ('NAN', ValueError),
  ('1.234,50', ValueError), ('"1.234,50"', ValueError), ('1_0', ValueError),
  ('0x10', ValueError), ('"1.5"0', ValueError), ('"1.5\n"', 1.5),
  ('١', ValueError), ('1.5,2', ValueError)])
@pytest.mark.parametrize('end', ['\n', '\r\n', '\n\n'])
def test_a_field_means_the_same_to_every_command(field, value, end, tmp_path):
  """A field is a number, missing or refused alike for every command."""
  path = tmp_path / 'own.csv'
  path.write_bytes(end.join(
    ['\ufeffx,y', '0,0', f'{field},1', '']).encode())
  schema = schema_files.of_parts(label='y', classes=['0', '1'],
                                 bounds={'x': (0.0, 2.0)}, categories={})

  def released():
    with open(path, 'rb') as file:
      return list(reader.read(str(path), file, 'x', numeric=True))

  runs = (released, lambda: user_tables.load(str(path), schema),
          lambda: series.read(path, 'x', lower=0, upper=2))
  if value is ValueError:
    for run in runs:
      with pytest.raises(FileError):
        run()
    return
  fields, data, study = (run() for run in runs)
  assert fields[1] == value or float(fields[1]) == value or (
    float(fields[1]) > 1e300 and value == np.inf)
  clipped = None if value is None else min(max(value, 0), 2)
  np.testing.assert_array_equal(
    data.x[1], [0, 1] if value is None else [clipped - 1, 0])
  assert study.values.tolist() == [0] + ([] if value is None else [clipped])
  kind = drafts.draft(path, label='y').schema['columns']['x']
  assert (kind['kind'] == 'numeric') == (value is None or np.isfinite(value))


def test_a_number_with_declared_marks_is_one_in_every_command(tmp_path):
  path = tmp_path / 'own.csv'
  path.write_text('x;y\n1.234,50;a\n-;b\n')
  form = Format(separator=';', decimal=',', thousands='.',
                missing_tokens=('-',))
  with open(path, 'rb') as file:
    assert list(reader.read(str(path), file, 'x', numeric=True, form=form)) == [
      pytest.approx(1234.5), None]
  draft = drafts.draft(path, label='y', form=form).schema
  assert draft['decimal'] == ',' and draft['thousands'] == '.'
  schema = schema_files.canonical(
    json.dumps({**draft, 'public': True}))
  assert '"decimal": ","' in schema and 'encoding' not in schema
  data = user_tables.load(str(path), schema)
  assert data.x[:, 1].tolist() == [0, 1]
  assert series.read(path, 'x', lower=0, upper=2000, form=form
                     ).values.tolist() == [1234.5]


def test_a_draft_says_which_columns_it_leaves_out(tmp_path):
  path = tmp_path / 'own.csv'
  rows = [f'{i},name{i},?,{i % 2}' for i in range(60)]
  path.write_text('\n'.join([',name,empty,y', *rows]) + '\n')
  draft = drafts.draft(path, label='y')
  assert list(draft.schema['columns']) == ['y']
  assert draft.left_out == {
    '': 'it has no name in the header',
    'name': 'it has 60 different texts, more than 50, some of which are not '
            'numbers', 'empty': 'all its fields are missing'}


def test_text_of_a_parquet_file_is_no_number(tmp_path):
  pyarrow = pytest.importorskip('pyarrow')
  from pyarrow import parquet
  path = tmp_path / 'own.parquet'
  parquet.write_table(pyarrow.table({'x': ['1'], 'day': pyarrow.array(
    [0], pyarrow.date32())}), path)
  table = reader.table(path)
  with pytest.raises(ValueError, match="column 'x' is string, not numeric"):
    table.numbers('x')
  with pytest.raises(ValueError, match='neither text nor numeric'):
    table.texts('day')


@pytest.mark.parametrize('order, text', [
  ('ymd', '1970-1-31'), ('ymd', '1970/01/31'), ('dmy', '31.1.1970'),
  ('mdy', '1/31/1970')])
def test_dates_are_days_if_that_is_declared(order, text, tmp_path):
  path = tmp_path / 'own.csv'
  path.write_text(f'x,y\n{text},0\nNA,1\n12,1\n')
  form = Format(dates=order)
  with open(path, 'rb') as file:
    fields = list(reader.read(str(path), file, 'x', numeric=True, form=form))
  assert fields == [30, None, 12]
  np.testing.assert_array_equal(
    reader.table(path, form).numbers('x'), [30, np.nan, 12])
  with pytest.raises(FileError, match='declare the order of dates'):
    reader.table(path).numbers('x')


@pytest.mark.parametrize('text', [
  '1970-13-01', '1970-02-30', '70-01-01', '1970-01/01', '1970-01-01 10:00',
  '0000-01-01', '1970-01-0001', '31-01-1970'])
def test_what_is_no_date_is_refused(text):
  assert Format(dates='ymd').number(text) is None


def test_dates_of_parquet_files_and_frames_are_days(tmp_path):
  pyarrow = pytest.importorskip('pyarrow')
  from pyarrow import parquet
  days = [datetime.date(1970, 1, 3), None]
  path = tmp_path / 'own.parquet'
  parquet.write_table(pyarrow.table({'x': days}), path)
  form = Format(dates='ymd')
  for table in (reader.table(path, form), reader.of_columns(
      {'x': days}, form=form), reader.of_columns(
          {'x': np.array(days, 'M8[D]')}, form=form)):
    np.testing.assert_array_equal(table.numbers('x'), [2, np.nan])
  with open(path, 'rb') as file:
    assert list(reader.read(str(path), file, 'x', numeric=True, form=form)) == [
      2, None]
  with pytest.raises(ValueError, match='date32.day., not numeric'):
    reader.table(path).numbers('x')
  with pytest.raises(ValueError, match='convert it to days or seconds'):
    reader.of_columns({'x': np.array(days, 'M8[ns]')})
