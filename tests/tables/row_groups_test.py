"""Tests that records of Parquet files and Arrow tables are read by number."""

import pickle

import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest

from dpjax.tables import row_groups

_SIZE = 60


def _table(first=0, size=_SIZE):
  numbers = np.arange(first, first + size)
  values = np.stack([numbers, numbers + 0.5], 1)
  return pa.table({
      'number': pa.array(numbers, pa.int32()),
      'even': pa.array(numbers % 2 == 0),
      'value': pa.array([None if n % 10 == 7 else n / 4 for n in numbers],
                        pa.float32()),
      'pair': pa.FixedSizeListArray.from_arrays(values.ravel(), 2),
      'list': pa.array(values.tolist(), pa.list_(pa.float64())),
      'name': pa.array([f'n{n}' for n in numbers])})


_NUMERIC = ('number', 'even', 'value', 'pair', 'list')


@pytest.fixture
def folder(tmp_path):
  """Two files, with groups of 7 records, and a shorter one at their ends."""
  for place in (0, 1):
    parquet.write_table(_table(30 * place, 30), tmp_path / f'{place}.parquet',
                        row_group_size=7)
  return tmp_path


def _check(records, numbers):
  assert len(records) == _SIZE
  loaded = records.load(numbers)
  assert set(loaded) == set(_NUMERIC)
  values = np.where(numbers % 10 == 7, np.nan, numbers / 4).astype(np.float32)
  pairs = np.stack([numbers, numbers + 0.5], 1)
  for name, expected in (
      ('number', numbers.astype(np.int32)), ('even', numbers % 2 == 0),
      ('value', values), ('pair', pairs), ('list', pairs)):
    np.testing.assert_array_equal(loaded[name], expected, strict=True)


@pytest.mark.parametrize('numbers', [
    [0], [59, 0], [6, 7, 27, 28, 29, 30, 31], range(_SIZE), [5, 5, 5]])
def test_records_are_those_with_the_numbers(folder, numbers):
  numbers = np.array(numbers)
  for path in (folder, folder / '*.parquet', str(folder)):
    _check(row_groups.ParquetRecords(path, _NUMERIC), numbers)
  whole = pa.concat_tables([_table(0, 11), _table(11, 49)])
  _check(row_groups.ArrowRecords(whole, _NUMERIC), numbers)
  _check(row_groups.ArrowRecords(_table(-5, 70).slice(5, 60), _NUMERIC),
         numbers)


def test_few_groups_are_kept(folder, monkeypatch):
  monkeypatch.setattr(row_groups, 'KEPT_GROUPS', 3)
  records = row_groups.ParquetRecords(folder, ['number'])
  for number in (0, 8, 15, 22, 59, 8):
    assert records.load(np.array([number]))['number'].tolist() == [number]
    assert len(records._kept) <= 3
  # The last ones that were asked for are left.
  assert list(records._kept) == [3, 9, 1]
  assert records.group(1).column_names == ['number']


def test_metadata_of_few_files_are_kept(folder, monkeypatch):
  monkeypatch.setattr(row_groups, 'KEPT_FILES', 1)
  monkeypatch.setattr(row_groups, 'KEPT_GROUPS', 1)
  parquet.write_table(_table().slice(0, 0), folder / '00.parquet')  # No records.
  parquet.write_table(_table().slice(0, 0), folder / '2.parquet')
  records = row_groups.ParquetRecords(folder, _NUMERIC)
  for numbers in ([3, 40, 5], range(_SIZE), [59]):
    _check(records, np.array(numbers))
    assert list(records._kept_metadata) == [2]
  assert records.where(29) == (str(folder / '0.parquet'), 29)
  assert records.where(30) == (str(folder / '1.parquet'), 0)
  assert records.where(59) == (str(folder / '1.parquet'), 29)


def test_a_copy_in_another_process_reads_the_same(folder):
  records = pickle.loads(pickle.dumps(
      row_groups.ParquetRecords(folder, _NUMERIC)))
  _check(records, np.array([3, 40]))


@pytest.mark.parametrize('columns, problem', [
    (None, "column 'name' is string, not numbers"),
    (['numbr'], 'column must be one of even, list'), ([], 'no columns')])
def test_refused_columns(folder, columns, problem):
  with pytest.raises(ValueError, match=problem):
    row_groups.ParquetRecords(folder, columns)


@pytest.mark.parametrize('values, problem', [
    (pa.array([1, None]), 'missing values'),
    (pa.array([[1.0], [1.0, 2.0]]), 'different lengths'),
    (pa.array([[1.0], None]), 'missing values'),
    (pa.array([[1], [None]]), 'missing values')])
def test_refused_records(values, problem):
  records = row_groups.ArrowRecords(pa.table({'x': values}))
  with pytest.raises(ValueError, match=problem):
    records.load(np.arange(2))


def test_lists_of_two_groups_must_have_one_length():
  records = row_groups.ArrowRecords(pa.concat_tables([
      pa.table({'x': [[1.0]]}), pa.table({'x': [[1.0, 2.0]]})]))
  assert records.load(np.array([1]))['x'].shape == (1, 2)
  with pytest.raises(ValueError, match='different lengths'):
    records.load(np.arange(2))


def test_refused_files(folder, tmp_path):
  with pytest.raises(ValueError, match='no Parquet file'):
    row_groups.ParquetRecords(tmp_path / 'none' / '*.parquet')
  parquet.write_table(pa.table({'other': [1]}), folder / '2.parquet')
  with pytest.raises(ValueError, match='2.parquet has other columns'):
    row_groups.ParquetRecords(folder)
  with pytest.raises(ValueError, match='no records'):
    row_groups.ArrowRecords(_table().slice(0, 0), ['number'])
  (folder / '2.parquet').write_bytes(b'no table')
  with pytest.raises(ValueError, match='is damaged'):
    row_groups.ParquetRecords(folder)
