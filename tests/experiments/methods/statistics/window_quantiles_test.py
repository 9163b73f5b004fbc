"""These tests check cost, distribution and privacy of window quantiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import records
from experiments.methods.statistics import window_quantiles as window
from tests.stats.quantile_methods import pairs

PROBS = (0.3,)


@jax.jit
def _distribution(data, radius, prob, rate):
  ends, below, up_to = window.intervals(data, radius)
  target = prob * data.count.astype(jnp.float64)
  return ends, -rate * window.cost(below, up_to, target)


def distribution(data, lower, upper, *, radius, prob, rate):
  """Returns (ends, log-density up to a constant), computed by the module."""
  with jax.enable_x64(True):
    return map(np.asarray, _distribution(
        records.padded(data, lower, upper),
        *map(np.float64, (radius, prob, rate))))


def test_costs_are_distances_to_ranks_of_the_window():
  rng = np.random.default_rng(0)
  for _ in range(30):
    data = rng.integers(0, 6, rng.integers(1, 7)) / 5
    radius, prob = rng.choice([0.0, 0.01, 0.3]), rng.uniform(0.1, 0.9)
    ends, log_rates = distribution(data, 0.0, 1.0, radius=radius, prob=prob,
                                   rate=1.0)
    for point in pairs.midpoints(ends):
      low = np.sum(data < point - radius)
      high = np.sum(data <= point + radius)
      want = max(0.0, low - prob * data.size, prob * data.size - high)
      got = -log_rates[np.searchsorted(ends, point) - 1]
      assert got == pytest.approx(want, abs=1e-12), (data, radius, point)


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', [pairs.REPLACE, pairs.ADD])
def test_no_pair_loses_more_than_epsilon_and_one_loses_all_of_it(adjacency):
  rng = np.random.default_rng(1)
  most = 0.0
  for lower, upper, *both in pairs.random_pairs(rng, 150, adjacency):
    prob = rng.choice([0.25, 0.5, 0.8])
    asked = window.WindowQuantiles(
        probs=(prob,), epsilon=1.0, lower=lower, upper=upper,
        adjacency=adjacency, radius=rng.choice([0.0, 0.1, 3.0]))
    both_sides = [tuple(distribution(data, lower, upper, radius=asked.radius,
                                     prob=prob,
                                     rate=asked.parameters.rates[0]))
                  for data in both]
    points = pairs.midpoints(both_sides[0][0], both_sides[1][0])
    first, second = (pairs.log_density(*of, points) for of in both_sides)
    most = max(most, np.max(np.abs(first - second)))
  assert 0.95 <= most <= 1 + 1e-9


@pytest.mark.every(2)
def test_draws_have_the_law_and_find_atoms():
  kwargs = dict(probs=(0.25, 0.5, 0.9), lower=0.0, upper=1.0,
                adjacency=pairs.REPLACE)
  asked = window.WindowQuantiles(epsilon=6.0, radius=0.05, **kwargs)
  data = np.array([0.0, 0.2, 0.2, 0.2, 0.7, 1.0])
  answers = pairs.answers(asked, data, 3000)
  assert np.all(np.diff(answers) >= 0)
  ends, log_rates = distribution(data, 0.0, 1.0, radius=0.05, prob=0.5,
                                 rate=1.0)
  cells = np.unique(ends)
  densities = [np.exp(pairs.log_density(*distribution(
      data, 0.0, 1.0, radius=0.05, prob=prob, rate=1.0),
      pairs.midpoints(ends))) for prob in asked.probs]
  # The test takes all three together, because sorting keeps the multiset.
  expected = 3000 * np.diff(cells) * np.sum(densities, 0)
  counts = np.histogram(answers, cells)[0]
  assert stats.chisquare(counts, expected).pvalue > 1e-4
  # The records are all alike, at and beyond bounds, NaN, and one alone.
  values = np.array([0.0, 0.5, 1.0, -3.0, np.nan])
  rows = np.repeat(values[:, None], 30, 1)[np.arange(3000) % 5]
  answers = pairs.answers(window.WindowQuantiles(epsilon=60.0, **kwargs), rows,
                          3000)
  kept = np.array([0.0, 0.5, 1.0, 0.0, 0.0])[np.arange(3000) % 5, None]
  assert np.mean(np.abs(answers - kept) <= 1.01e-6) > 0.99
  alone = pairs.answers(asked, np.array([0.4]), 3000)
  assert np.all((alone >= 0) & (alone <= 1))


@pytest.mark.every(2)
def test_radius_zero_is_the_exponential_mechanism():
  data = np.array([0.1, 0.5, 0.5, 0.9])
  with jax.enable_x64(True):
    want = independent.log_masses(records.of(data, 0.0, 1.0), np.float64(0.3),
                                  np.float64(0.5), 'real')
  ends, log_rates = distribution(data, 0.0, 1.0, radius=0.0, prob=0.3, rate=0.5)
  points = np.array([0.05, 0.3, 0.7, 0.95])
  widths = np.array([0.1, 0.4, 0.4, 0.1])
  want = np.delete(np.asarray(want), 2) - np.log(widths)
  got = pairs.log_density(ends, log_rates, points)
  np.testing.assert_allclose(got - got[0], want - want[0], atol=1e-12)


def test_a_bad_radius_is_refused():
  with pytest.raises(ValueError, match='radius must be'):
    window.WindowQuantiles(probs=PROBS, epsilon=1.0, lower=0.0, upper=1.0,
                           adjacency=pairs.REPLACE, radius=-0.1)


def test_compositions_count_one_mechanism_an_order():
  public = dict(probs=(.2, .5, .9), epsilon=1.5, lower=0., upper=1.,
                adjacency=pairs.REPLACE)
  assert window.WindowQuantiles(**public).zcdp_event == (
      independent.IndependentQuantiles(**public).zcdp_event)
