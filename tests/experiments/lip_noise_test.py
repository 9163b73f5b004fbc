"""These tests check the ways to draw batches and noise that are compared."""

import math

import pytest

from dpjax.runs import configuration
from dpjax.runs import training
from experiments import fold_choices
from experiments import records
from experiments import verdicts
from experiments.lip_noise import choosing
from experiments.lip_noise import report
from experiments.lip_noise import run
from experiments.lip_noise import sweep


@pytest.fixture(name='rows', scope='module')
def _rows(smoke_rows):
  return smoke_rows('lip_noise')


def _plans(schedule, method):
  return {setting.noise: training.make_plan(configuration.resolve(
      run.config(setting), num_available=39_074))
          for setting in sweep.SETTINGS if setting.seed == 0 and (
              setting.schedule, setting.method) == (schedule, method)}


@pytest.mark.parametrize('schedule', ['one_pass', 'twenty_passes'])
def test_ways_are_those_of_the_plan(schedule):
  """All have the same steps, batches and epsilon; only one correlates."""
  plans = _plans(schedule, 'lip_dp_sgd')
  assert plans.keys() == sweep.NOISE.keys()
  wanted = sweep.SCHEDULES[schedule]
  for name, plan in plans.items():
    assert plan.num_steps == wanted.num_steps
    assert plan.sampler.batch_size == 38_800 / wanted.num_groups
    assert (plan.strategy is not None) == (name == 'banded')
    assert plan.epsilon(38_800**-1.1) == pytest.approx(1.0, rel=2e-3)
  # A record takes part as often; without sampling, each step needs more noise.
  passes = wanted.num_steps / wanted.num_groups
  assert plans['cyclic'].noise_multiplier == pytest.approx(
      math.sqrt(passes) * _one_release(), rel=1e-3)
  assert plans['poisson'].noise_multiplier < plans['cyclic'].noise_multiplier
  # A column of the strategy has norm 1, and bands of two steps do not meet.
  assert plans['banded'].noise_multiplier == pytest.approx(
      plans['cyclic'].noise_multiplier, rel=1e-3)


def _one_release():
  """Returns the noise multiplier of a single Gaussian release."""
  one = next(each for each in sweep.SETTINGS if (
      each.schedule, each.noise) == ('one_pass', 'cyclic'))
  return training.make_plan(configuration.resolve(
      run.config(one), num_available=39_074)).noise_multiplier


def test_every_way_chooses_among_the_same_candidates():
  cells = choosing.cells()
  assert len(cells) == 2 * 2 * 4 == len({cell.method for cell in cells})
  assert len({tuple(map(str, cell.candidates)) for cell in cells}) == 1
  for cell in cells:
    # Groups are whole, on a fold as well, and the split is not tested on.
    assert cell.config.num_examples % 400 == 0
    assert cell.config.split_seed not in range(sweep.NUM_SEEDS)
    assert configuration.resolve(cell.config, num_available=31_259)
  chosen = {'adult': {cells[0].method: {'fields': {'learning_rate': 7.0}}}}
  rates = [run.config(setting, chosen=chosen).learning_rate
           for setting in sweep.SETTINGS if setting.seed == 0]
  assert sorted(set(rates)) == [3.0, 7.0] and rates.count(7.0) == 1


def test_committed_choices_are_the_best_of_their_candidates():
  for cells in fold_choices.read(run.CHOSEN).values():
    assert len(cells) == 16
    for cell in cells.values():
      best = max(each['score'] for each in cell['candidates'])
      assert dict(fields=cell['fields'], score=best) in cell['candidates']


def test_rows_tell_the_truth(rows):
  assert len({row.id for row in rows}) == len(sweep.SMOKE) == 16
  for row in rows:
    assert row.epsilon_valid and 0.99 <= row.epsilon <= 1 + 1e-6
    assert row.n == 400
  text = report.table(rows)
  assert text.count('| smoke ') == 8


def _made(way, accuracies):
  return [
      records.Row(
          experiment='lip_noise', seed=seed, metric='test_accuracy',
          id=f'lip_noise/schedule=twenty_passes,dataset=adult,'
             f'method=lip_dp_sgd,noise={way},epsilon=1,num_examples=400,'
             f'seed={seed}', value=value, n=400, epsilon_requested=1.0,
          epsilon=1.0, epsilon_valid=True, delta=1e-5,
          adjacency='add_or_remove_one', accountant='pld', method='lip_dp_sgd',
          dataset='adult', wall_s=1.0)
      for seed, value in enumerate(accuracies)]


def test_ways_are_compared_by_seed():
  rows = _made('cyclic', [.80, .70, .75]) + _made('banded', [.83, .74, .78]) + (
      _made('poisson', [.83, .74, .79]))
  said = {v.claim: v for v in verdicts.check(report.verdict(rows))}
  start = 'Lip-DP-SGD, twenty_passes: banded noise and batches are more accurate'
  gain = said[f'{start} than cyclic ones']
  assert gain.verdict == verdicts.AGREES and gain.ours.startswith('0.0333')
  assert said[f'{start} than poisson ones'].verdict == verdicts.DIFFERS
  missing = [v for v in said.values() if v.verdict == verdicts.NOT_RUN]
  assert len(missing) == len(said) - 2
