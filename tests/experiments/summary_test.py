"""These tests check whether a folder holds the run asked for."""

import dataclasses
import json
import os

import numpy as np
import pytest

from dpjax.runs import canaries
from dpjax.runs import configuration
from dpjax.runs import environment
from dpjax.runs import summary
from dpjax.runs import training
from dpjax.typing import Batch

_CONFIG = configuration.TrainingConfig(dataset='breast_cancer', method='dp_sgd')


def _folder(tmp_path, **changes):
  config = dataclasses.asdict(_CONFIG) | dict(num_steps=100) | changes
  config = {name: value for name, value in config.items() if value != 'drop'}
  (tmp_path / summary.NAME).write_text(json.dumps({'config': config}))
  return tmp_path


def test_a_run_is_found_by_what_is_asked_for(tmp_path):
  assert summary.find(tmp_path, _CONFIG) is None
  folder = _folder(tmp_path)
  assert summary.find(folder, _CONFIG)['config']['num_steps'] == 100
  with pytest.raises(ValueError, match='num_steps = 100, now 50'):
    summary.find(folder, dataclasses.replace(_CONFIG, num_steps=50))


def test_a_run_from_before_there_were_folds_is_found(tmp_path):
  folder = _folder(tmp_path, fold='drop', num_folds='drop', split_seed='drop')
  assert summary.find(folder, _CONFIG) is not None
  with pytest.raises(ValueError, match='fold = None, now 2'):
    summary.find(folder, dataclasses.replace(_CONFIG, fold=2))


def test_a_run_from_before_there_were_keys_of_the_system_is_no_release(
    tmp_path):
  """A run whose noise came from its seed is not taken as a release."""
  folder = _folder(tmp_path, noise_seed='drop', seed=3)
  seeded = dataclasses.replace(_CONFIG, seed=3, noise_seed=3)
  assert summary.find(folder, seeded) is not None
  with pytest.raises(ValueError, match='noise_seed = 3, now None'):
    summary.find(folder, dataclasses.replace(_CONFIG, seed=3))
  folder = _folder(tmp_path)
  assert summary.find(folder, _CONFIG) is not None
  with pytest.raises(ValueError, match='noise_seed = None, now 0'):
    summary.find(folder, dataclasses.replace(_CONFIG, noise_seed=0))


def test_a_run_of_a_fold_is_not_one_on_all_records(tmp_path):
  with pytest.raises(ValueError, match='fold = 2, now None'):
    summary.find(_folder(tmp_path, fold=2), _CONFIG)


def _result(included):
  """Returns a run with canaries; coins decide how many records count as 0."""
  config = configuration.resolve(dataclasses.replace(
      _CONFIG, num_canaries=4, accountant='rdp', num_steps=3), num_available=90)
  return training.TrainingResult(
      config=config, plan=training.make_plan(config), num_train=90, num_test=9,
      params={'kernel': np.ones(3)}, test_accuracy=0.75, epsilon=1.0,
      epsilon_valid=True, joint_noise_multiplier=2.0, l2_sensitivity=(1.0,),
      num_nonfinite=3 * int(np.sum(~included)), compile_seconds=1.0,
      train_seconds=1.0, canaries=canaries.Canaries(
          Batch(np.zeros((4, 2)), np.zeros(4, np.int32)), included))


@pytest.mark.parametrize('mask', [0o022, 0o000])
def test_what_may_be_published_does_not_depend_on_coins(mask, tmp_path):
  """Published files do not depend on coins; only the owner reads the rest."""
  here = environment.Environment('cpu', '1', 'c0', {'jax': '1'})
  before = os.umask(mask)
  try:
    for name, coins in (('few', [1, 0, 0, 0]), ('many', [1, 1, 1, 0])):
      result = _result(np.array(coins, bool))
      (tmp_path / name).mkdir()
      # An older version, or somebody else, may have left this file.
      (tmp_path / name / summary.DIAGNOSTICS).write_text('{}')
      summary.write(tmp_path / name, summary.summarize(result, here), result)
  finally:
    os.umask(before)
  few, many = ({path.name: path for path in (tmp_path / name).iterdir()}
               for name in ('few', 'many'))
  public = {summary.NAME, summary.PARAMS}
  assert few.keys() == many.keys() == public | {
      summary.DIAGNOSTICS, summary.CANARIES}
  for name in few:
    assert (few[name].read_bytes() == many[name].read_bytes()) == (
        name in public), name
    assert few[name].stat().st_mode & 0o777 == (
        0o666 & ~mask if name in public else 0o600)
  assert json.loads(few[summary.DIAGNOSTICS].read_text()) == {
      'num_nonfinite': 9}
  short = ' '.join(json.loads(few[summary.NAME].read_text())['falls_short'])
  assert 'test_accuracy' in short and 'train_seconds' in short


def test_the_launcher_names_what_must_not_be_published():
  line = summary.not_to_publish([_CONFIG])
  assert summary.DIAGNOSTICS in line and summary.CANARIES not in line
  with_canaries = dataclasses.replace(_CONFIG, num_canaries=4)
  line = summary.not_to_publish([_CONFIG, with_canaries])
  assert summary.DIAGNOSTICS in line and summary.CANARIES in line
