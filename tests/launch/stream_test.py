"""These tests train by `launch.train` on Parquet files that stay on disk."""

import json

import jax
import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest

from dpjax.cli import errors
from dpjax.cli import train
from dpjax.data import streamed
from dpjax.data import user_tables
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import run_data
from dpjax.runs import run_keys
from dpjax.runs import summary as summaries
from dpjax.runs import training
from dpjax.train import checkpoint
from dpjax.train import loop
from dpjax.train import sharding
from tests.data import tfds_records_test as prepared
from tests.launch import resume_test as resuming
from tests.launch.own_data_test import _call

_SIZE = 1300
_WORDS = ('--label=outcome', '--classes=no|yes', '--bounds=age=18:90',
          '--categories=sex=F|M', '--num_steps=40', '--batch_size=30',
          '--width=4', '--epsilon=2', '--accountant=rdp')
_RESEARCH = (*_WORDS, '--noise_seed=3', '--checkpoint_seconds=1e-6')


def _table(first, size, flip=None):
  rows = range(first, first + size)
  return pa.table({
      'sex': ['FMX'[i % 3] for i in rows],
      'age': pa.array([None if i % 20 == 0 else 10 + (7 * i) % 90
                       for i in rows], pa.int64()),
      'outcome': ['yes' if ((7 * i) % 90 > 45) ^ (i == flip) else 'no'
                  for i in rows]})


@pytest.fixture(name='folder')
def _folder(tmp_path):
  """Three files, with groups of 100 records."""
  folder = tmp_path / 'visits'
  folder.mkdir()
  for place, first in enumerate((0, 500, 1000)):
    parquet.write_table(_table(first, min(500, _SIZE - first)),
                        folder / f'{place}.parquet', row_group_size=100)
  return folder


def _config(folder, **changes):
  return configuration.TrainingConfig(**dict(
      dataset=f'{folder}/*.parquet', stream=True, method='dp_sgd', num_steps=6,
      batch_size=30.0, max_batch_size=16, width=4, epsilon=2.0, noise_seed=3,
      accountant='rdp', schema=json.dumps({'public': True, 'columns': {
          'age': {'kind': 'numeric', 'lower': 18, 'upper': 90},
          'sex': {'kind': 'categorical', 'categories': ['F', 'M']},
          'outcome': {'kind': 'label', 'classes': ['no', 'yes']}}})) | changes)


@pytest.mark.slow
@pytest.mark.parametrize('method, changes', [
    ('dp_sgd', {}), ('dp_sgd', dict(noise='lattice_gaussian', fold=1)),
    ('dp_sgd_adaptive', dict(average='ema')), ('sgd', dict(num_examples=300)),
    ('lip_dp_sgd', dict(split_seed=5))])
def test_a_streamed_run_has_the_parameters_of_arrays(folder, tmp_path, method,
                                                     changes):
  config = _config(folder, method=method, **changes)
  # Some of the runs on two devices.
  result, = training.train([config], mesh=(
      sharding.data_mesh(2) if method == 'dp_sgd_adaptive' else None))
  path = tmp_path / 'whole.whole.parquet'
  parquet.write_table(_table(0, _SIZE), path)
  whole = user_tables.load(str(path), config.schema)
  resolved, split = result.config, run_data.split(
      result.config, building.open_streamed(config))
  model = building.make_model(resolved, whole)
  rows = split.train(np.arange(split.num_train)).astype(np.int32)
  fitted = loop.fit(
      run_keys.run_key(resolved)[None], plans=[result.plan], model=model,
      init_keys=run_keys.init_key(resolved)[None],
      method=building.make_method(resolved, model, whole),
      optimizer=building.make_optimizer(resolved), records=whole.records,
      rows=rows[None], allocation=resolved.allocation,
      averaging=building.make_averaging(resolved))
  state = fitted.state
  params = state.average.mean if 'average' in changes else state.params
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b[0], 1e-3, 1e-4),
               result.params, jax.tree.map(np.asarray, params))
  test = np.flatnonzero(split.is_test(np.arange(_SIZE)))
  right = np.asarray(model.apply(result.params, whole.x[test])).argmax(
      -1) == np.asarray(whole.y)[test]
  assert result.num_test == len(test) and result.num_train == len(rows)
  assert abs(result.test_accuracy - right.mean()) < 1e-6


@pytest.mark.every(4)
@pytest.mark.parametrize('words', [
    ('--dataset=FOLDER/',), ('--dataset=FOLDER/*.par*',),
    ('--dataset=FOLDER/0.parquet', '--stream')])
def test_programs_stream_folders_patterns_and_files(folder, tmp_path, words):
  words = [word.replace('FOLDER', str(folder)) for word in words]
  status, out, err = _call(train, (
      *words, *_WORDS, f'--output_dir={tmp_path / "run"}'))
  assert status == 0 and 'at most (2, ' in out and 'count as public' in err
  summary = summaries.read(tmp_path / 'run')
  assert f'--dataset={summary["dataset"]}' == words[0]
  assert summary['config']['stream'] is True
  size = 500 if len(words) == 2 else _SIZE
  assert (summary['n'], summary['num_test']) == (size * 4 // 5, size // 5)
  assert 0 < summary['epsilon'] <= 2 and summary['epsilon_valid']
  assert summary['test_accuracy'] > 0.6
  assert not (tmp_path / 'run' / 'checkpoints').exists()


@pytest.mark.slow
def test_killed_and_resumed_gives_the_bits_of_one_go(folder, tmp_path,
                                                     monkeypatch):
  words = (f'--dataset={folder}/*.parquet', *_RESEARCH, '--seed=0,1')
  resuming._call(*words, f'--output_dir={tmp_path / "whole"}')
  killed = (*words, f'--output_dir={tmp_path / "killed"}')
  resuming._call_killed(monkeypatch, checkpoint, '_save', 25, *killed)
  out = resuming._call(*killed)
  assert '1 of 2 runs are finished already' in out and 'resuming at' in out
  resuming._assert_as_whole(tmp_path / 'killed', tmp_path / 'whole')


@pytest.mark.slow
@pytest.mark.parametrize('seeded', [True, False])
def test_changed_files_are_not_continued(folder, tmp_path, monkeypatch, seeded):
  """One changed label, in a file of the same size, refuses to resume."""
  words = (f'--dataset={folder}', *(_RESEARCH if seeded else (
      *_WORDS, '--checkpoint_seconds=1e-6')), f'--output_dir={tmp_path / "run"}')
  resuming._call_killed(monkeypatch, checkpoint, '_save', 3, *words)
  parquet.write_table(_table(500, 500, flip=777), folder / '1.parquet',
                      row_group_size=100)
  status, _, err = _call(train, words)
  assert status == errors.BAD_INPUT
  assert 'is of another configuration: other records on disk' in err
  assert not (tmp_path / 'run' / 'summary.json').exists()
  parquet.write_table(_table(500, 500), folder / '1.parquet',
                      row_group_size=100)
  assert 'resuming at' in resuming._call(*words)


def test_secret_keys_are_bound_to_all_records(folder):
  config = configuration.resolve(
      _config(folder, noise_seed=None), num_available=1040)
  keys = run_keys.new_keys(1)
  drawn = []
  for flip in (None, None, 777):
    parquet.write_table(_table(500, 500, flip), folder / '1.parquet')
    data = building.open_streamed(config)
    drawn.append(jax.random.key_data(
        run_keys.draw([config], keys, data.digest())).tolist())
  assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.every(1)
@pytest.mark.parametrize('words, message', [
    (('--dataset=FOLDER/survey.csv', '--stream'),
     'survey.csv is text, which has no records by number'),
    (('--dataset=FOLDER/*.csv',), 'convert it to Parquet'),
    (('--dataset=FOLDER', '--num_canaries=5'), 'num_canaries must be 0'),
    (('--dataset=FOLDER/none/*.parquet',), 'no Parquet file is at'),
    (('--dataset=FOLDER', '--bounds=ages=18:90'), 'did you mean'),
    (('--dataset=FOLDER', '--classes=no|maybe'),
     "0.parquet record 8, column 'outcome': label must be one of no, maybe"),
    (('--dataset=FOLDER', '--num_examples=1041'), 'must be at most 1040'),
])
def test_refusals_spend_nothing(folder, tmp_path, words, message):
  (folder / 'survey.csv').write_text('age\n1\n')
  status, out, err = _call(train, (*_WORDS, *(
      word.replace('FOLDER', str(folder)) for word in words),
      f'--output_dir={tmp_path / "run"}'))
  assert status == errors.BAD_INPUT and message in err, err
  assert 'at most (2' not in out and not (tmp_path / 'run').exists()


@pytest.mark.slow
def test_images_of_tfds_keep_their_split(tmp_path):
  shape = (12, 10, 1)
  prepared.Tiny.shape = shape
  prepared.PARTS[shape] = prepared.containers.Parts(
      prepared._part(60, shape), prepared._part(30, shape))
  prepared.Tiny(data_dir=tmp_path,
                file_format='array_record').download_and_prepare()
  # Opened first: `_call` forgets the flags of packages that it imports.
  config = configuration.resolve(configuration.TrainingConfig(
      dataset='tfds:tiny', stream=True, method='dp_sgd'), num_available=60)
  data = building.open_streamed(config, data_dir=tmp_path)
  split = run_data.split(config, data)
  assert np.flatnonzero(split.is_test(np.arange(90))).tolist() == list(
      range(60, 90))
  assert sorted(split.train(np.arange(60)).tolist()) == list(range(60))
  status, out, err = _call(train, (
      '--dataset=tfds:tiny', f'--data_dir={tmp_path}', '--epsilon=2',
      '--num_steps=3', '--batch_size=10', '--num_examples=50', '--width=4',
      '--channels=2', '--depth=1', '--downsample=2', '--noise_seed=1',
      f'--output_dir={tmp_path / "run"}'))
  assert status == 0 and 'at most (2, ' in out, err
  summary = summaries.read(tmp_path / 'run')
  assert summary['dataset'] == 'tfds:tiny' and summary['config']['stream']
  assert (summary['n'], summary['num_test']) == (50, 30)
  with np.load(tmp_path / 'run' / 'params.npz') as params:
    assert (3, 3, 1, 2) in {params[name].shape for name in params}


def test_named_data_sets_are_not_streamed(folder):
  named = lambda name, **changes: configuration.check(
      configuration.TrainingConfig(dataset=name, method='dp_sgd', **changes))
  with pytest.raises(ValueError, match='adult is kept in memory'):
    named('adult', stream=True)
  with pytest.raises(ValueError, match='tfds:mnist is read from disk: stream'):
    named('tfds:mnist')
  named('tfds:mnist', stream=True)
  config = _config(folder)
  with pytest.raises(ValueError, match='trained one at a time'):
    training.train([config, config])
  assert isinstance(building.open_streamed(config), streamed.StreamedDataset)
