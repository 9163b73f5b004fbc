"""These tests check the stated cost of a choice from a sweep."""

import math

from dpjax.privacy import accounting
from dpjax.privacy.notions import ApproxDP
from experiments import choosing
from experiments import records


def _row(number, **changes):
  return records.Row(**{**dict(
      id=f'toy/seed={number}', seed=number, metric='accuracy', value=.5, n=100,
      epsilon_requested=1.0, epsilon=1.0, epsilon_valid=True, delta=1e-6,
      adjacency='add_or_remove_one', accountant='pld', method='dp_sgd',
      dataset='adult'), **changes})


def test_the_cost_is_that_of_all_runs():
  """Metrics of one run are one run; the bound is above optimal composition."""
  rows = [_row(number, metric=metric, epsilon=.1) for number in range(40)
          for metric in ('accuracy', 'loss')]
  line, = choosing.lines(rows)
  assert 'adult: the choice of the best of these 40 private runs' in line
  words = line.split()
  epsilon, delta = (float(words[words.index(name, words.index('cost')) + 1])
                    for name in ('epsilon', 'delta'))
  assert math.isclose(delta, 8e-5, rel_tol=.01)
  best = accounting.optimal_composition(
      [ApproxDP(epsilon=.1, delta=1e-6)] * 40, delta=8e-5)
  assert math.isclose(epsilon, best, rel_tol=.01) and epsilon < 3.5


def test_runs_that_are_not_private_have_no_price():
  rows = [_row(0), _row(1, epsilon=math.inf), _row(2, epsilon_valid=False)]
  assert not choosing.lines(rows)
  assert not choosing.lines([_row(0), _row(0, metric='loss')])
  assert not choosing.lines([_row(0), _row(1, dataset='other')])
  assert len(choosing.lines([*rows, _row(3)])) == 1


def test_few_runs_cost_the_sum():
  line, = choosing.lines([_row(0, epsilon=.5), _row(1, epsilon=.25)])
  assert 'cost epsilon 0.75 at delta 2e-06' in line
