"""Whether a folder holds the run that is asked for."""

import dataclasses
import json

import pytest

from experiments import summary
from experiments import configuration

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
  """All of its noise came from its seed."""
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
