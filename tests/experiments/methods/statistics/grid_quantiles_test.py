"""These tests check the distribution and privacy of grid quantiles."""

import math

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import selection
from dpjax.stats.quantile_methods import records
from experiments.methods.statistics import grid_quantiles as grid
from tests.stats.quantile_methods import pairs

GRID = (0.0, 0.2, 0.25, 0.6, 1.0)
MANY = (0.0, 0.1, *np.linspace(0.5, 0.9, 60).tolist(), 1.0)
MECHANISMS = {'exponential': selection.ExponentialMechanism,
              'permute_and_flip': selection.PermuteAndFlip}


def log_probs(asked, data):
  """Returns log-probabilities of candidates, from weights and the rule."""
  rule = MECHANISMS[asked.rule](epsilon=1.0, sensitivity=0.5,
                                adjacency=asked.adjacency)
  assert rule.rate == 1.0
  with jax.enable_x64(True):
    weights = jax.jit(grid.log_weights)(
        records.padded(data, asked.lower, asked.upper),
        *(values[0] for values in asked.parameters[:2]),
        asked.parameters.candidates)
    return rule.log_probs(weights)


@pytest.mark.every(2)
def test_costs_are_those_of_the_definition():
  data = np.array([0.0, 0.2, 0.2, 0.2, 0.7, 1.0, 1.0])
  with jax.enable_x64(True):
    costs = -np.asarray(grid.log_weights(
        records.padded(data, 0.0, 1.0), np.float64(0.3), np.float64(1.0),
        np.array(GRID)))
  want = [max(0.0, np.sum(data < g) - 2.1, 2.1 - np.sum(data <= g))
          for g in GRID]
  np.testing.assert_allclose(costs, want, atol=1e-12)
  assert costs[1] == 0.0


# One record moves from the left of all candidates to the right. One candidate
# loses what the many others gain.
STEEP = (np.array([0.0, 0.4, 0.4, 0.4]), np.array([1.0, 0.4, 0.4, 0.4]))


def some_pairs(adjacency):
  rng = np.random.default_rng(2)
  yield STEEP if adjacency is pairs.REPLACE else (STEEP[0], STEEP[0][1:])
  for _ in range(40):
    first = rng.choice(MANY, rng.integers(1, 8))
    second = np.append(first, rng.choice(MANY))
    yield first, second[adjacency is pairs.REPLACE:]


@pytest.mark.sound
@pytest.mark.parametrize('rule', grid.RULES)
@pytest.mark.parametrize('adjacency', [pairs.REPLACE, pairs.ADD])
def test_no_pair_loses_more_than_epsilon_and_one_loses_most_of_it(
    rule, adjacency):
  losses = []
  for at, both in enumerate(some_pairs(adjacency)):
    asked = grid.GridQuantiles(
        probs=((0.25, 0.5, 0.8)[(at + 1) % 3],), epsilon=1.0, lower=0.0,
        upper=1.0, adjacency=adjacency, candidates=MANY[1:], rule=rule)
    first, second = (log_probs(asked, data) for data in both)
    losses.append(np.max(np.abs(first - second)))
  assert max(losses) <= 1 + 1e-6
  assert losses[0] > 0.9


@pytest.mark.every(3)
@pytest.mark.parametrize('rule', grid.RULES)
def test_draws_have_the_law(rule):
  data = np.array([0.0, 0.2, 0.2, 0.2, 0.7, 1.0, 1.0])
  asked = grid.GridQuantiles(
      probs=(0.8,), epsilon=1.0, lower=0.0, upper=1.0,
      adjacency=pairs.REPLACE, candidates=GRID, rule=rule)
  answers = pairs.answers(asked, data, 4000)[:, 0]
  counts = np.array([np.sum(answers == candidate) for candidate in GRID])
  expected = 4000 * np.exp(log_probs(asked, data))
  assert counts.sum() == 4000
  assert stats.chisquare(counts, expected * 4000 / expected.sum()
                         ).pvalue > 1e-4


def test_scores_of_many_records_are_exact():
  # A float32 would round the ranks of the far candidates to tens.
  with jax.enable_x64(True):
    data = records.Records(np.array([0.5]), np.int32(2**30), np.float64(0.0),
                           np.float64(1.0))
    log_weights = np.asarray(grid.log_weights(data, np.float64(0.5),
                                              np.float64(1.0),
                                              np.array([0.0, 1.0])))
  assert log_weights.tolist() == [-2.0**29, 1.0 - 2.0**29]


@pytest.mark.every(2)
def test_bad_candidates_are_refused():
  kwargs = dict(probs=(0.5,), epsilon=1.0, lower=0.0, upper=1.0,
                adjacency=pairs.REPLACE)
  for candidates in ((), (0.5, 0.5), (math.nan, 0.5), (0.2, 0.1)):
    with pytest.raises(ValueError, match='increasing sequence'):
      grid.GridQuantiles(candidates=candidates, **kwargs)
  with pytest.raises(ValueError, match='candidates must lie between'):
    grid.GridQuantiles(candidates=(0.5, 1.5), **kwargs)
  with pytest.raises(ValueError, match='rule must be one of'):
    grid.GridQuantiles(candidates=(0.5,), rule='best', **kwargs)
