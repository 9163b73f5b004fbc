"""Tests dpjax.stats.quantile_methods.independent: samples and privacy."""

import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records
from tests.stats.quantile_methods import brute

ADD, REPLACE = brute.ADD, brute.REPLACE
KEY = jax.random.key(61)
DATA = np.array([.2, .5, .9])
TIED = np.array([0., .1, .1, .1, .4, .4, 1.])
every_cost = pytest.mark.parametrize('cost', independent.COSTS)


def log_probs_of(data, prob, rate, cost):
  """Returns log-probabilities [n + 1] of intervals, by the kernel."""
  with jax.enable_x64(True):
    logs = np.asarray(independent.log_masses(
        records.padded(data, 0., 1.), np.float64(prob), np.float64(rate), cost))
  assert not np.isnan(logs).any()
  assert np.all(logs[len(data) + 1:] == -np.inf)
  logs = logs[:len(data) + 1]
  return logs - special.logsumexp(logs)


@pytest.mark.every(3)
@pytest.mark.parametrize('cost, rate, expected', [
  ('rounded', 1., (.137715, .561523, .275430, .025331)),
  ('real', 2., (.036547, .405077, .540102, .018274)),
  ('interpolated', 1., (.159675, .491605, .319350, .029371))])
def test_golden_laws(cost, rate, expected):
  """Kernels give the golden probabilities (QF-03, QB-01 and QB-03)."""
  np.testing.assert_allclose(np.exp(log_probs_of(DATA, .5, rate, cost)),
                             expected, atol=6e-7)


@every_cost
@pytest.mark.parametrize('prob', [.03, .29, .5, 6 / 7])
def test_laws_are_those_of_enumeration(cost, prob):
  for data in (DATA, TIED, np.full([5], .3), np.array([1.])):
    for rate in (1e-9, .3, 40.):
      expected = brute.node_log_masses(data, np.zeros([]), np.ones([]), prob,
                                       rate, cost)
      expected -= special.logsumexp(expected)
      log_masses = log_probs_of(data, prob, rate, cost)
      far = expected < -1e3
      np.testing.assert_allclose(log_masses[~far], expected[~far], atol=1e-12,
                                 rtol=1e-12)
      np.testing.assert_array_equal(log_masses[far], expected[far])


@pytest.mark.slow
@every_cost
def test_points_follow_the_density(cost):
  """Points have the density by Kolmogorov-Smirnov, at level 1e-4 / 4.

  There are 20 000 draws for each of four cases, two of which choose in two
  stages.
  """
  rng = np.random.default_rng(3)
  many = np.sort(np.round(rng.beta(2, 5, 90), 2))
  with jax.enable_x64(True):
    draw = jax.jit(jax.vmap(
        lambda key, data, prob, rate: independent.point(key, data, prob, rate,
                                                        cost),
        (0, None, None, None)))
    for data in (TIED, many):
      for prob, rate in ((.3, .7), (.62, 4.)):
        points = np.asarray(draw(jax.random.split(KEY, 20_000), records.of(
            np.pad(data, (0, 96 - len(data)), constant_values=1.), 0., 1.
        )._replace(count=np.int32(len(data))), prob, rate))
        grid = np.unique(np.concatenate([np.linspace(0, 1, 20_001), data]))
        middle = (grid[1:] + grid[:-1]) / 2
        shape = (len(middle), 1)
        density = np.exp(brute.node_log_density(
            np.broadcast_to(data, (shape[0], len(data))), np.zeros(shape[0]),
            np.ones(shape[0]), middle, prob, rate, cost))
        total = np.cumsum(density * np.diff(grid), dtype=float)
        assert total[-1] == pytest.approx(1, abs=1e-4)
        cdf = np.concatenate([[0], total / total[-1]])
        test = stats.kstest(points, lambda x: np.interp(x, grid, cdf))
        assert test.pvalue > 1e-4 / 4


@pytest.mark.slow
def test_orders_are_drawn_independently_and_sorted():
  """Points are independent and sorted, by chi-square of
  20 000 draws (QF-05)."""
  one = independent.IndependentQuantiles(
      probs=(.4, .6), epsilon=4., lower=0., upper=1., adjacency=REPLACE)
  with jax.enable_x64(True):
    answers = np.asarray(jax.jit(jax.vmap(one.draw, (0, None, None)))(
        jax.random.split(KEY, 20_000), records.padded(DATA, 0., 1.),
        one.parameters))
  assert np.all(np.diff(answers) > 0)
  counts = np.zeros([4, 4])
  np.add.at(counts, tuple(np.searchsorted(DATA, answers).T), 1)
  both = np.outer(*(np.exp(log_probs_of(DATA, prob, 1., 'real'))
                    for prob in one.probs))
  expected = 20_000 * (np.triu(both) + np.tril(both, -1).T)
  kept = np.triu_indices(4)
  assert stats.chisquare(counts[kept], expected[kept]).pvalue > 1e-4


def worst(prob, rate, cost, adjacency, count=1000):
  """Returns the worst loss over random neighbours, at points of all cells."""
  rng = np.random.default_rng(7)
  return max(brute.worst_recursive_loss(
      rng, brute.pairs(rng, count, size, spread, adjacency), 12, [prob], [rate],
      cost) for size in (3, 8) for spread in (.5, 3, 8))


@pytest.mark.sound
@every_cost
@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
@pytest.mark.parametrize('prob', [.5, .2])
def test_neighbours_differ_by_epsilon(prob, adjacency, cost):
  """Neighbours differ by epsilon at most, and by nearly as much (QT-03)."""
  rate = rates.single(prob, epsilon=1., adjacency=adjacency,
                      rounded=cost == 'rounded')
  loss = worst(prob, rate, cost, adjacency)
  assert .95 <= loss <= 1 + 1e-9
  # QT-04: the rate lacks the 2 of the normaliser, and exceeds epsilon.
  assert worst(prob, 2 * rate, cost, adjacency, 300) > 1.5


def test_neighbours_differ_by_epsilon_at_every_block():
  """The joint mechanisms' enumeration gives epsilon for one level, too."""
  rng = np.random.default_rng(8)
  for adjacency, rate in ((REPLACE, .5), (ADD, .5 / .75)):
    cost = lambda ranks, size: rate * np.abs(ranks[..., 0] - .25 * size)
    loss = max(brute.worst_loss(brute.pairs(rng, 2000, size, 3, adjacency),
                                cost, 1) for size in (3, 6, 8))
    assert .99 < loss <= 1 + 1e-9


@pytest.mark.parametrize('prob', [.5, .2, .9])
def test_sensitivities(prob):
  """A record moves costs by the stated sensitivity, up to n = 30 (QT-06)."""
  sizes, below = np.mgrid[:30, :31]
  known = below <= sizes
  changes = {}
  for rounded, target in ((True, lambda n: np.floor(prob * n + 1e-9)),
                          (False, lambda n: prob * n)):
    changes[rounded] = max(np.abs(
        np.abs(below + more - target(sizes + 1)) - np.abs(
            below - target(sizes)))[known].max() for more in (0, 1))
    assert rates.single(prob, epsilon=1., adjacency=ADD,
                        rounded=rounded) == pytest.approx(.5 / changes[rounded])
  assert changes[True] == 1
  assert changes[False] == pytest.approx(max(prob, 1 - prob))
