"""Tests of records that are read by number, from all kinds of data."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest

from dpjax.train import sources

_SIZE = 40
_X = np.random.default_rng(0).normal(size=(_SIZE, 3)).astype(np.float32)
_Y = np.arange(_SIZE, dtype=np.int32)
_SMAPS = pathlib.Path('/proc/self/smaps')
_NUMBERS = np.array([39, 0, 7, 7])


class _Images:
  """Records by number, as a data set of PyTorch has them."""

  def __len__(self):
    return _SIZE

  def __getitem__(self, place):
    assert type(place) is int and 0 <= place < _SIZE
    return {'x': _X[place], 'y': int(_Y[place]), 'name': 'image'}


class _Several(_Images):
  """Several records at once, as data sources of Grain have them."""

  def __getitem__(self, place):
    raise AssertionError('read one by one')

  def __getitems__(self, places):
    return [_Images.__getitem__(self, place) for place in places]


def _check(source):
  assert len(source) == source.num_records == _SIZE
  for numbers in (_NUMBERS, _NUMBERS[:1], np.arange(_SIZE, dtype=np.int32)):
    loaded = source.load(numbers)
    assert set(loaded) == {'x', 'y'}
    assert all(isinstance(leaf, np.ndarray) for leaf in loaded.values())
    np.testing.assert_array_equal(loaded['x'], _X[numbers], strict=True)
    np.testing.assert_array_equal(loaded['y'], _Y[numbers])


def _by_number(numbers):
  return {'x': _X[numbers], 'y': _Y[numbers]}


def _mapped(folder):
  np.save(folder / 'x.npy', _X)
  return {'x': np.load(folder / 'x.npy', mmap_mode='r'), 'y': _Y}


def _table():
  return pa.table({'x': pa.FixedSizeListArray.from_arrays(_X.ravel(), 3),
                   'y': _Y, 'name': ['image'] * _SIZE})


def _parquet(folder):
  parquet.write_table(_table(), folder / 'images.parquet', row_group_size=9)
  return folder


_KINDS = {
    'arrays': lambda folder: {'x': _X, 'y': _Y},
    'arrays of JAX': lambda folder: {'x': jnp.asarray(_X), 'y': _Y},
    'arrays mapped into memory': _mapped,
    'a list of records': lambda folder: [_Images()[i] for i in range(_SIZE)],
    'records by number': lambda folder: _Images(),
    'several records by number': lambda folder: _Several(),
    'Parquet files': _parquet,
    'an Arrow table': lambda folder: _table(),
}


@pytest.mark.skipif(not _SMAPS.exists(), reason='needs Linux')
@pytest.mark.parametrize('part', [lambda x: x, lambda x: x[2:, :2]])
def test_the_system_is_told_that_files_are_read_at_random(tmp_path, part):
  x = np.lib.format.open_memmap(tmp_path / 'own.npy', 'w+', np.float32, (9, 3))

  def flags():
    maps = _SMAPS.read_text().split('own.npy')[1]
    return maps[maps.index('VmFlags:'):].split('\n')[0].split()

  assert 'rr' not in flags()
  assert len(sources.source(part(x))) == len(part(x))
  assert 'rr' in flags()


@pytest.mark.parametrize('kind', _KINDS)
def test_records_are_those_with_the_numbers(kind, tmp_path):
  _check(sources.source(_KINDS[kind](tmp_path), columns=['x', 'y']))


def test_a_function_and_its_number_of_records():
  _check(sources.source(_by_number, num_records=_SIZE))
  with pytest.raises(ValueError, match='needs num_records'):
    sources.source(_by_number)
  with pytest.raises(ValueError, match='num_records is for functions'):
    sources.source(_X, num_records=_SIZE)


def test_trees_keep_their_structure():
  source = sources.source((_X, {'y': [_Y]}))
  x, rest = source.load(_NUMBERS)
  np.testing.assert_array_equal(x, _X[_NUMBERS])
  np.testing.assert_array_equal(rest['y'][0], _Y[_NUMBERS])


@pytest.mark.parametrize('processes', [
    False, pytest.param(True, marks=pytest.mark.slow)])
def test_workers_load_the_same_records(processes, tmp_path):
  _check(sources.source(_parquet(tmp_path), columns=['x', 'y'], workers=3,
                        processes=processes))


def test_processes_refuse_what_cannot_be_sent_to_them():
  with pytest.raises(ValueError, match='processes need records that can be pick'
                     'led'):
    sources.source(lambda numbers: _X[numbers], num_records=_SIZE,
                   processes=True)


def test_data_sources_of_array_record(tmp_path):
  """The files of TensorFlow Datasets and Grain, whose records are bytes."""
  module = pytest.importorskip('array_record.python.array_record_module')
  reading = pytest.importorskip('array_record.python.array_record_data_source')
  path = str(tmp_path / 'records.array_record')
  writer = module.ArrayRecordWriter(path, 'group_size:1')
  for row in _X:
    writer.write(row.tobytes())
  writer.close()
  data = reading.ArrayRecordDataSource([path])
  assert hasattr(data, '__getitems__') and len(data) == _SIZE
  with pytest.raises(ValueError, match='decode them'):
    sources.source(data)

  def decoded(numbers):
    return np.stack([np.frombuffer(record, np.float32)
                     for record in data.__getitems__(numbers.tolist())])

  source = sources.source(decoded, num_records=len(data))
  np.testing.assert_array_equal(source.load(_NUMBERS), _X[_NUMBERS])


# -- Refusals.


class _Loader:
  """Batches in an order of its own, as a DataLoader has them."""

  def __len__(self):
    return _SIZE

  def __iter__(self):
    return iter(())


def _named(name, package, base):
  kind = type(name, (base,), {'__module__': f'{package}.data'})
  return type('Mine', (kind,), {})()


@pytest.mark.parametrize('stream, name', [
    (_Loader(), '_Loader'), (iter([1, 2]), 'list_iterator'),
    ((i for i in range(3)), 'generator'), ({1, 2}, 'set'),
    (_named('IterableDataset', 'torch', _Images), 'Mine'),
    (_named('DatasetV2', 'tensorflow', _Images), 'Mine'),
    (_named('IterDataset', 'grain', _Images), 'Mine')])
def test_streams_are_refused_with_the_reason(stream, name):
  with pytest.raises(ValueError, match=f'data of type {name} come in an order '
                     'of their own, not that of a sampler.*by number'):
    sources.source(stream)


def test_batches_are_no_records():
  with pytest.raises(ValueError, match='type Mine are batches, not records'):
    sources.source(_named('PyDataset', 'keras', _Images))


@pytest.mark.parametrize('records, problem', [
    (_Images(), r"records\['name'\] are not numbers of one shape, but of type "
     'text: leave them out'),
    ([b'secret'], 'of type bytes'), ([], 'number of records must be'),
    ({'train': _Images(), 'test': _Images()}, 'train and test, choose one'),
    ((_X, _Y[:-1]), 'one row for each record, got 39, 40 rows'),
    (np.float32(3), 'got 0'), ([{}], 'at least one field'),
    ([{'x': _X[0]}, {'x': _X[0][:2]}], None),
    ([{'x': _X[0]}, {'y': _X[0]}], None),
    ([{'x': np.float32(1)}, {'x': np.float64(987654321)}], None)])
def test_refused_records(records, problem):
  """Shapes and types of later records are found when they are read."""
  if problem is None:
    source = sources.source(records)
    with pytest.raises(ValueError, match='must have|different shapes') as error:
      source.load(np.array([1]))
      raise AssertionError
    assert '987654321' not in str(error.value)
    with pytest.raises(ValueError, match='must have|different shapes'):
      source.load(np.array([0, 1]))
    return
  with pytest.raises(ValueError, match=problem) as error:
    sources.source(records)
  assert 'secret' not in str(error.value)


def test_refused_columns_and_sizes():
  with pytest.raises(ValueError, match="column must be one of name, x, y; got"):
    sources.source(_Images(), columns=['z'])
  with pytest.raises(ValueError, match='columns are for records with named'):
    sources.source(_X, columns=['x'])
  with pytest.raises(ValueError, match=r'2\^31 - 1 are supported'):
    sources.source(_by_number, num_records=2**31)
  for changed in (dict(read_ahead=0), dict(workers=0)):
    with pytest.raises(ValueError, match='must be an integer >= 1'):
      sources.source(_X, **changed)


def test_a_function_must_return_what_it_was_asked_for():
  with pytest.raises(ValueError, match='1 records were asked for'):
    sources.source(lambda numbers: _X, num_records=_SIZE)
  source = sources.source(lambda numbers: _X[:1], num_records=_SIZE)
  with pytest.raises(ValueError, match='4 records were asked for'):
    source.load(_NUMBERS)


def test_sources_are_no_trees():
  """So that JAX does not take one apart."""
  source = sources.source(_X)
  assert jax.tree.leaves(source) == [source]
