"""Tests that records on disk are encoded as whole files in memory are."""

import datetime
import decimal
import json
import os

import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest

from dpjax.data import images
from dpjax.data import streamed
from dpjax.data import tfds_records
from dpjax.data import user_tables
from tests.data import tfds_records_test as prepared

_SIZE = 90
_COLUMNS = {
    'age': {'kind': 'numeric', 'lower': 18, 'upper': 90},
    'pay': {'kind': 'numeric', 'lower': 1, 'upper': 1e6, 'scale': 'log'},
    'price': {'kind': 'numeric', 'lower': -5, 'upper': 5},
    'code': {'kind': 'categorical', 'categories': ['1', '2', '30']},
    'member': {'kind': 'categorical', 'categories': ['True', 'False']},
    'member_again': {'kind': 'numeric', 'lower': 0, 'upper': 1},
    'city': {'kind': 'categorical', 'categories': ['Lille', 'Lyon']},
    'day': {'kind': 'numeric', 'lower': 0, 'upper': 20000},
    'outcome': {'kind': 'label', 'classes': ['0', '1']}}
_SCHEMA = json.dumps({'public': True, 'columns': _COLUMNS, 'dates': 'ymd'})


def _seventh(number):
  return (decimal.Decimal(number) / 7).quantize(decimal.Decimal('1e-20'))


def _table(first=0, size=_SIZE):
  """Returns records with every kind of field that is hard to read."""
  rows = range(first, first + size)
  odd = [np.nan, np.inf, -np.inf, None, -0.0, 1e308, 5e-324]
  cities = ['Lille', ' Lyon ', None, '', 'nan', 'é', 'Paris']
  return pa.table({
      'unused': pa.array([f'u{i}' for i in rows]),
      'outcome': pa.array([i % 2 for i in rows], pa.int8()),
      'age': pa.array([None if i % 9 == 0 else i for i in rows], pa.int64()),
      'pay': pa.array([odd[i % 7] if i % 3 == 0 else i * 1.7 for i in rows]),
      'price': pa.array([None if i % 8 == 0 else _seventh(i)
                         for i in rows], pa.decimal128(30, 20)),
      'code': pa.array([None if i % 11 == 0 else i % 31 for i in rows],
                       pa.uint16()),
      'member': pa.array([None if i % 5 == 0 else i % 2 == 0 for i in rows]),
      'member_again': pa.array([i % 3 == 0 for i in rows]),
      'city': pa.array([cities[i % 7] for i in rows]).dictionary_encode(),
      'day': pa.array([None if i % 6 == 0 else
                       datetime.date(1970 + i % 60, 1, 1 + i % 28)
                       for i in rows])})


@pytest.fixture
def folder(tmp_path):
  """Three files, one of them empty, in groups of 7 records."""
  for name, first, size in (('a', 0, 40), ('b', 40, 0), ('c', 40, 50)):
    parquet.write_table(_table().slice(first, size),
                        tmp_path / f'{name}.parquet', row_group_size=7)
  return tmp_path


def _whole(tmp_path):
  path = tmp_path / 'whole.whole.parquet'
  parquet.write_table(_table(), path)
  return path, user_tables.load(str(path), _SCHEMA)


def _same(loaded, data, numbers):
  np.testing.assert_array_equal(
      loaded['x'].view(np.uint32), np.asarray(data.x)[numbers].view(np.uint32))
  np.testing.assert_array_equal(loaded['y'], np.asarray(data.y)[numbers],
                                strict=True)


@pytest.mark.parametrize('numbers', [
    range(_SIZE), [89, 0, 41, 40, 39], [3], [5, 5]])
def test_records_have_the_bits_of_the_whole_file(folder, numbers):
  numbers = np.array(numbers)
  data = streamed.open_table(f'{folder}/?.parquet', _SCHEMA)
  path, whole = _whole(folder)
  assert data.num_records == _SIZE and data.num_classes == 2
  assert data.record_shape == (len(whole.feature_names),)
  assert len(set(np.asarray(whole.x).ravel().tolist())) > 100
  _same(data.load(numbers), whole, numbers)
  _same(streamed.open_table(str(path), _SCHEMA).load(numbers), whole, numbers)
  below = streamed.open_table('?.parquet', _SCHEMA, data_dir=folder)
  _same(below.load(numbers), whole, numbers)


def test_the_digest_reads_all_records_and_nothing_else(folder, monkeypatch):
  monkeypatch.setattr(streamed, '_BLOCK', 32)
  path = f'{folder}/?.parquet'
  digest = streamed.open_table(path, _SCHEMA).digest()
  # Other groups and an unused column change nothing; one field does.
  table = _table(0, 40)
  parquet.write_table(
      table.set_column(0, 'unused', pa.array(['other'] * 40)),
      folder / 'a.parquet')
  assert streamed.open_table(path, _SCHEMA).digest() == digest
  member = table.column('member_again').to_pylist()
  member[39] = not member[39]
  place = table.column_names.index('member_again')
  parquet.write_table(table.set_column(place, 'member_again', pa.array(member)),
                      folder / 'a.parquet')
  assert streamed.open_table(path, _SCHEMA).digest() != digest


def test_faults_name_file_and_record(folder):
  table = _table(40, 50)
  place = table.column_names.index('outcome')
  values = table.column('outcome').to_pylist()
  values[22] = 7
  parquet.write_table(table.set_column(place, 'outcome', pa.array(
      values, pa.int8())), folder / 'c.parquet', row_group_size=7)
  with pytest.raises(ValueError) as in_memory:
    user_tables.load(str(folder / 'c.parquet'), _SCHEMA)
  assert 'c.parquet record 23, column \'outcome\'' in str(in_memory.value)
  data = streamed.open_table(str(folder), _SCHEMA)
  data.load(np.arange(62))
  for read in (data.digest, lambda: data.load(np.array([62, 3]))):
    with pytest.raises(ValueError) as on_disk:
      read()
    assert str(on_disk.value) == str(in_memory.value)


def test_text_is_never_a_number(tmp_path):
  path = tmp_path / 'a.parquet'
  parquet.write_table(pa.table({'age': ['1', '2'], 'y': [0, 1]}), path)
  schema = json.dumps({'public': True, 'columns': {
      'age': _COLUMNS['age'], 'y': _COLUMNS['outcome']}})
  for read in (user_tables.load, lambda *words: streamed.open_table(
      *words).digest()):
    with pytest.raises(ValueError, match="'age' is string, not numeric"):
      read(str(path), schema)


def test_columns_and_files_that_are_not_there(folder):
  path = f'{folder}/a.parquet'
  schema = _SCHEMA.replace('"age"', '"ages"')
  for read in (user_tables.load, streamed.open_table):
    with pytest.raises(ValueError, match="no column 'ages'; there are .*did y"):
      read(path, schema)
  with pytest.raises(FileNotFoundError, match=(
      'no Parquet file is at none/.* or /.*none')):
    streamed.open_table('none/*.parquet', _SCHEMA, data_dir=folder)
  (folder / 'a.parquet').write_bytes(b'no table')
  with pytest.raises(ValueError, match='a.parquet is not a Parquet file, or'):
    streamed.open_table(path, _SCHEMA)


def test_a_file_that_changes_after_it_was_opened_is_refused(folder):
  path = folder / 'a.parquet'
  content, status = path.read_bytes(), path.stat()
  data = streamed.open_table(str(path), _SCHEMA)
  path.write_bytes(content)
  os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
  with pytest.raises(ValueError, match='a.parquet was changed after it was op'):
    data.load(np.arange(3))
  # Damage that leaves no trace is an error of one line.
  path.write_bytes(bytes(len(content)))
  os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
  with pytest.raises(ValueError, match='a.parquet is not .* damaged') as error:
    data.load(np.arange(3))
  assert '\n' not in str(error.value)


def test_folders_and_patterns_are_several_files(folder):
  assert streamed.stays_on_disk(str(folder))
  assert streamed.stays_on_disk(f'{folder}/*.parquet')
  assert not streamed.stays_on_disk(f'{folder}/a.parquet')
  assert streamed.stays_on_disk('[ab].parquet', data_dir=folder)
  (folder / '[ab].parquet').touch()
  assert not streamed.stays_on_disk('[ab].parquet', data_dir=folder)
  assert streamed.stays_on_disk('tfds:mnist')
  # The name of a data set may also be that of a folder.
  (folder / 'adult').mkdir()
  assert not streamed.stays_on_disk('adult', data_dir=folder)
  for name in ('a.csv', 'a/*.TSV.GZ'):
    with pytest.raises(ValueError, match=r'is text.*convert it to Parquet'):
      streamed.check_format(name)
  streamed.check_format('a.parquet')


@pytest.mark.slow
@pytest.mark.parametrize('downsample, low', [(1, -1.0), (2, 0.0)])
def test_images_have_the_bits_of_those_in_memory(tmp_path, downsample, low):
  prepared.Tiny.shape = (6, 4, 3)
  prepared.PARTS[6, 4, 3] = prepared.containers.Parts(
      prepared._part(11, (6, 4, 3)), prepared._part(3, (6, 4, 3)))
  prepared.Tiny(data_dir=tmp_path,
                file_format='array_record').download_and_prepare()
  folder = tfds_records.find('tiny', data_dir=tmp_path)
  whole = images.downsample(images.ImageDataset(
      'tiny', *tfds_records.read(folder), tuple('abcd'), 255), downsample)
  expected = whole._replace(low=low).records
  data = streamed.open_images('tfds:tiny', data_dir=tmp_path,
                              downsample=downsample, low=low)
  assert (data.num_records, data.num_test, data.num_classes) == (14, 3, 4)
  assert data.record_shape == whole.image_shape
  numbers = np.array([13, 0, 10, 11, 5, 5])
  loaded = data.load(numbers)
  np.testing.assert_array_equal(
      loaded['x'], np.asarray(expected.x)[numbers], strict=True)
  assert loaded['y'].tolist() == np.asarray(expected.y)[numbers].tolist()
  assert loaded['y'].dtype == np.int32
  with pytest.raises(ValueError, match='downsample must divide the sides 6 and'):
    streamed.open_images('tfds:tiny', data_dir=tmp_path, downsample=4)


def test_images_of_other_shapes_and_labels_are_refused(tmp_path, monkeypatch):
  """Even of shapes that NumPy would repeat to the first one."""
  labels = np.array([0, 1, 1, 2, -1])

  class Opened:
    num_classes = 2

    def __init__(self, folder):
      del folder
      self.train, self.test = (tfds_records.Part(5, lambda numbers, c=channels: (
          prepared.containers.Images(
              np.zeros([len(numbers), 4, 4, c], np.uint8),
              labels[list(numbers)]))) for channels in (3, 1))

  monkeypatch.setattr(tfds_records, 'find', lambda name, data_dir: tmp_path)
  monkeypatch.setattr(tfds_records, 'Opened', Opened)
  data = streamed.open_images('tfds:x', data_dir=tmp_path)
  assert data.load(np.array([2]))['x'].shape == (1, 4, 4, 3)
  with pytest.raises(ValueError, match='has images of several shapes'):
    data.load(np.array([2, 5]))
  for number in (3, 4):
    with pytest.raises(ValueError, match='has labels that are no classes'):
      data.load(np.array([0, number]))


def test_images_that_are_not_there(tmp_path):
  with pytest.raises(FileNotFoundError, match='no ArrayRecord files of tfds:x '):
    streamed.open_images('tfds:x', data_dir=tmp_path)
  (tmp_path / 'x' / '1.0.0').mkdir(parents=True)
  (tmp_path / 'x' / '1.0.0' / 'x-train.array_record-00000-of-00001').touch()
  with pytest.raises(ValueError, match='1.0.0 is not a readable TFDS folder'):
    streamed.open_images('tfds:x', data_dir=tmp_path)
