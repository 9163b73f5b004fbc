"""Tests of dpjax.stats.quantiles.independent: laws, privacy, numbers."""

import math

import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.stats.quantiles import independent
from dpjax.stats.quantiles import mechanism
from dpjax.stats.quantiles import rates
from dpjax.stats.quantiles import records
from tests.stats.quantiles import brute

ADD, REPLACE = brute.ADD, brute.REPLACE
KEY = jax.random.key(61)
DATA = np.array([.2, .5, .9])
TIED = np.array([0., .1, .1, .1, .4, .4, 1.])
every_cost = pytest.mark.parametrize('cost', independent.COSTS)


def make(probs=(.25, .5, .9), epsilon=1., adjacency=REPLACE, cost='real',
         **bounds):
  return independent.IndependentQuantiles(
      probs=probs, epsilon=epsilon, adjacency=adjacency, cost=cost,
      **{'lower': 0., 'upper': 1., **bounds})


def law(data, prob, rate, cost):
  """Log-probabilities [n + 1] of intervals, by the kernel."""
  with jax.enable_x64(True):
    logs = np.asarray(independent.log_masses(
        records.padded(data, 0., 1.), np.float64(prob), np.float64(rate), cost))
  assert not np.isnan(logs).any()
  assert np.all(logs[len(data) + 1:] == -np.inf)
  logs = logs[:len(data) + 1]
  return logs - special.logsumexp(logs)


@pytest.mark.parametrize('cost, rate, expected', [
  ('rounded', 1., (.137715, .561523, .275430, .025331)),
  ('real', 2., (.036547, .405077, .540102, .018274)),
  ('interpolated', 1., (.159675, .491605, .319350, .029371))])
def test_golden_laws(cost, rate, expected):
  """QF-03, QB-01 and QB-03."""
  np.testing.assert_allclose(np.exp(law(DATA, .5, rate, cost)), expected,
                             atol=6e-7)


@every_cost
@pytest.mark.parametrize('prob', [.03, .29, .5, 6 / 7])
def test_laws_are_those_of_enumeration(cost, prob):
  for data in (DATA, TIED, np.full([5], .3), np.array([1.])):
    for rate in (1e-9, .3, 40.):
      expected = brute.node_log_masses(data, np.zeros([]), np.ones([]), prob,
                                       rate, cost)
      expected -= special.logsumexp(expected)
      found = law(data, prob, rate, cost)
      far = expected < -1e3
      np.testing.assert_allclose(found[~far], expected[~far], atol=1e-12,
                                 rtol=1e-12)
      np.testing.assert_array_equal(found[far], expected[far])


@every_cost
def test_points_follow_the_density(cost):
  """One-sample Kolmogorov and Smirnov, 40 000 draws each, level 1e-4 / 4.

  Two of the cases choose in two stages.
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
        points = np.asarray(draw(jax.random.split(KEY, 40_000), records.of(
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
        found = stats.kstest(points, lambda x: np.interp(x, grid, cdf))
        assert found.pvalue > 1e-4 / 4


def worst(prob, rate, cost, adjacency, count=1000):
  """Over random neighbours, at random points of all cells."""
  rng = np.random.default_rng(7)
  return max(brute.worst_recursive_loss(
      rng, brute.pairs(rng, count, size, spread, adjacency), 12, [prob], [rate],
      cost) for size in (3, 8) for spread in (.5, 3, 8))


@every_cost
@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
@pytest.mark.parametrize('prob', [.5, .2])
def test_neighbours_differ_by_epsilon(prob, adjacency, cost):
  """QT-03: no more, and not much less."""
  rate = rates.single(prob, epsilon=1., adjacency=adjacency,
                      rounded=cost == 'rounded')
  found = worst(prob, rate, cost, adjacency)
  assert .95 <= found <= 1 + 1e-9
  # QT-04: without the 2 of the normaliser.
  assert worst(prob, 2 * rate, cost, adjacency, 300) > 1.5


def test_neighbours_differ_by_epsilon_at_every_block():
  """The same through the enumeration that is shared with joint mechanisms."""
  rng = np.random.default_rng(8)
  for adjacency, rate in ((REPLACE, .5), (ADD, .5 / .75)):
    cost = lambda ranks, size: rate * np.abs(ranks[..., 0] - .25 * size)
    found = max(brute.worst_loss(brute.pairs(rng, 2000, size, 3, adjacency),
                                 cost, 1) for size in (3, 6, 8))
    assert .99 < found <= 1 + 1e-9


@pytest.mark.parametrize('prob', [.5, .2, .9])
def test_sensitivities(prob):
  """QT-06: what a record moves the costs by, over all ranks and up to n = 30."""
  sizes, below = np.mgrid[:30, :31]
  known = below <= sizes
  moved = {}
  for rounded, target in ((True, lambda n: np.floor(prob * n + 1e-9)),
                          (False, lambda n: prob * n)):
    moved[rounded] = max(np.abs(
        np.abs(below + more - target(sizes + 1)) - np.abs(
            below - target(sizes)))[known].max() for more in (0, 1))
    assert rates.single(prob, epsilon=1., adjacency=ADD,
                        rounded=rounded) == pytest.approx(.5 / moved[rounded])
  assert moved[True] == 1 and moved[False] == max(prob, 1 - prob)


@pytest.mark.parametrize('cost', ['real', 'interpolated'])
def test_any_records_are_answered(cost):
  """QT-07: finite, in order, within bounds; always true of what is wild."""
  tiny = np.arange(6) * 1e-300
  cases = [[math.nan], [math.nan, -math.inf, math.inf], [1e300, -1e300],
           np.full([20], .3), [0.], [1.] * 5, [0.] * 5, TIED, tiny, tiny[:2]]
  for data in cases:
    for epsilon in (1e-6, 1., 1e5):
      found = make(epsilon=epsilon, cost=cost).estimate(KEY, np.array(data))
      assert found.dtype == np.float64 and found.shape == (3,)
      assert np.all((0 <= found) & (found <= 1) & np.isfinite(found))
      assert np.all(np.diff(found) >= 0)
  # Of positive width, where nothing else is: what a large epsilon asks for.
  found = make(probs=(.5,), epsilon=1e5, cost=cost).estimate(KEY, tiny)
  assert 0 < found[0] < 1e-299


def test_maps_of_the_line_move_answers_alike():
  """QT-07: to 1e-10."""
  data = np.random.default_rng(0).beta(2, 5, 25)
  plain = make(cost='interpolated').estimate(KEY, data)
  moved = make(cost='interpolated', lower=-300., upper=-100.).estimate(
      KEY, 200 * data - 300)
  np.testing.assert_allclose(moved, 200 * plain - 300, rtol=1e-10)


def test_one_program_serves_a_sweep():
  """QT-12: n within a capacity, epsilon, bounds, orders and adjacency."""
  traces = []

  def counted(*args):
    traces.append(args)
    return make().draw(*args)

  program = jax.jit(counted)
  rng = np.random.default_rng(2)
  with jax.enable_x64(True):
    for size in (1, 9, 31, 32):
      for epsilon, upper, adjacency in ((.1, 1., REPLACE), (7, 30., ADD)):
        one = make(epsilon=epsilon, upper=upper, adjacency=adjacency,
                   probs=(.1, .2, .3 + epsilon / 100))
        assert one.draw is make().draw
        data = rng.random(size)
        found = program(KEY, records.padded(data, 0., upper), one.parameters)
        np.testing.assert_array_equal(found, one.estimate(KEY, data))
  assert len(traces) == 1


def test_side_by_side_is_one_by_one():
  """QT-11, and `release` is `estimate`."""
  rng = np.random.default_rng(4)
  keys, data = jax.random.split(KEY, 4), rng.random((4, 20))
  one = make(cost='real')
  with jax.enable_x64(True):
    many = jax.tree.map(lambda *leaves: np.stack(leaves), *(
        records.padded(row, 0., 1.) for row in data))
    found = np.asarray(mechanism.repeated(one.draw)(keys, many, one.parameters))
  for key, row, expected in zip(keys, data, found, strict=True):
    np.testing.assert_allclose(one.estimate(key, row), expected, rtol=1e-14)


@pytest.mark.parametrize('wrong, message', [
  ({'cost': 'free'}, 'cost must be one of'), ({'probs': ()}, 'one order'),
  ({'probs': (.5, .5)}, 'must increase'), ({'probs': (0., .5)}, 'strictly'),
  ({'upper': 0.}, 'lower must be below'), ({'epsilon': 0.}, 'epsilon'),
  ({'epsilon': None}, 'epsilon or rho'), ({'rho': 1.}, 'epsilon or rho'),
  ({'epsilon': None, 'rho': -1.}, 'rho must be'),
  ({'adjacency': 'replace_one'}, 'member of Adjacency')])
def test_bad_input_is_one_line(wrong, message):
  with pytest.raises(ValueError, match=message) as error:
    make(**wrong)
  assert '\n' not in str(error.value)
