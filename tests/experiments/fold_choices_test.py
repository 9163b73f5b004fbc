"""These tests check that hyperparameters are chosen on folds and stored."""

import json
import types

import pytest

from dpjax.cli import flags  # Defines absl flags of the same names.
from dpjax.runs import configuration
from experiments import fold_choices

_RATES = (0.5, 0.125, 2.0)


def _cell(method):
  return fold_choices.Cell(
      method, configuration.TrainingConfig(
          dataset='breast_cancer', method='dp_sgd', seed=3, num_steps=2),
      [dict(learning_rate=rate) for rate in _RATES])


@pytest.fixture
def seen(monkeypatch):
  """Replaces training by a formula; returns the configurations."""
  configs = []

  def train(batch, *, dataset):
    assert dataset.name == 'breast_cancer'
    configs.extend(batch)
    return [types.SimpleNamespace(test_accuracy=-abs(
        each.learning_rate - 0.25)) for each in batch]

  monkeypatch.setattr(fold_choices.training, 'train', train)
  return configs


def test_the_best_candidate_on_the_fold_is_chosen(seen, tmp_path):
  path = tmp_path / 'chosen.json'
  args = fold_choices.parse(['name', f'--output={path}'], description='',
                            output=tmp_path / 'other.json')
  assert fold_choices.main([_cell('dp_sgd')], args) == 0
  chosen = fold_choices.read(path)
  assert fold_choices.fields(chosen, 'breast_cancer', 'dp_sgd') == dict(
      learning_rate=0.125)
  scores = [each['score']
            for each in chosen['breast_cancer']['dp_sgd']['candidates']]
  assert scores == [-0.25, -0.125, -1.75]
  # Runs are scored on a part of the training records.
  assert {(each.fold, each.num_folds, each.seed) for each in seen} == {
      (0, 5, 3)}
  assert path.read_text() == fold_choices.render(chosen)


def test_a_repeated_command_does_what_is_missing(seen, tmp_path):
  path = tmp_path / 'chosen.json'
  path.write_text(json.dumps({'breast_cancer': {'dp_sgd': {
      'fields': {'learning_rate': 7.0}}}}))
  args = fold_choices.parse(['name'], description='', output=path)
  fold_choices.main([_cell('dp_sgd'), _cell('lip_dp_sgd')], args)
  chosen = fold_choices.read(path)
  assert len(seen) == len(_RATES)
  assert [fold_choices.fields(chosen, 'breast_cancer', method)
          for method in ('dp_sgd', 'lip_dp_sgd', 'sgd')] == [
              dict(learning_rate=7.0), dict(learning_rate=0.125), {}]
  assert fold_choices.read(tmp_path / 'nothing.json') == {}


def test_the_command_line_wins_over_absl_flags_of_the_same_name(tmp_path):
  assert flags.DATA_DIR.name == 'data_dir'
  args = fold_choices.parse(['name', '--data_dir=here'], description='',
                            output=tmp_path / 'other.json')
  assert (args.data_dir, args.output) == ('here', str(tmp_path / 'other.json'))
