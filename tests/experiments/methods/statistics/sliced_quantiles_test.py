"""These tests check sliced quantiles: privacy, overlap and answers."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import records
from experiments.methods.statistics import sliced_quantiles as slicing
from tests.stats.quantile_methods import brute
from tests.stats.quantile_methods import pairs

make = functools.partial(slicing.SlicedQuantiles, lower=0.0, upper=1.0,
                         adjacency=brute.REPLACE)
REACH = 60
SMALL = make(probs=(0.25, 0.75), epsilon=8.0, num_examples=100, delta=1e-12,
             resolution=1e-4, failure_prob=0.5, rank_share=0.5)


@pytest.mark.parametrize('num_orders', [1, 2, 3, 6, 8, 13])
def test_noise_of_a_tree_moves_runs_of_ranks(num_orders):
  sums, budget = slicing.tree(num_orders)
  assert set(np.unique(sums)) <= {0.0, 1.0}
  assert np.max(np.sum(sums, 1)) == num_orders.bit_length() - (
      (num_orders + 1) & num_orders != 0)
  # The search tries all moves of nodes by -1, 0 or 1 with the least total.
  costs = {}
  if num_orders > 8:
    return
  moves = np.stack(np.meshgrid(*[[-1, 0, 1]] * sums.shape[1]),
                   -1).reshape(-1, sums.shape[1])
  total = np.abs(moves).sum(1)
  moved = (moves @ sums.T).astype(int)
  for start in range(num_orders):
    for end in range(start + 1, num_orders + 1):
      run = np.zeros(num_orders, int)
      run[start:end] = -1
      costs[start, end] = total[(moved == run).all(1)].min()
  assert max(costs.values()) == budget


@functools.cache
def _masses():
  def log_probs(data, rank, half, rate):
    part = slicing.slices(data, rank[None], half, 32)[0]
    part = records.Records(part, jnp.int32(2 * half), data.lower, data.upper)
    return records.edges(part), independent.log_masses(
        part, jnp.float64(0.5), rate, 'real')
  return jax.jit(jax.vmap(log_probs, (None, 0, None, None)))


def rank_probs(scale):
  """Returns probabilities of rounded Laplace noise from -REACH to REACH."""
  ends = np.arange(-REACH, REACH + 2) - 0.5
  ends[[0, -1]] = -np.inf, np.inf
  return np.diff(stats.laplace(scale=scale).cdf(ends))


def joint_density(asked, data, points):
  """Returns densities [points, points] of both answers before sorting.

  Each of the two quantile levels has a node for its rank.
  """
  ranks, sums, scale, half, rate = asked.parameters
  assert sums.tolist() == [[1, 0], [0, 1]]
  # Slices of ranks further out are all lower or all upper bounds.
  near = np.arange(-half, asked.num_examples + half + 1)
  with jax.enable_x64(True):
    ends, masses = map(np.asarray, _masses()(
        records.padded(data, 0.0, 1.0), near, half, rate))
  widths = np.diff(ends)
  heights = np.where(widths > 0, masses - np.log(np.where(
      widths > 0, widths, 1.0)), -np.inf)
  given = np.exp([pairs.log_density(*of, points)
                  for of in zip(ends, heights, strict=True)])
  noise = np.arange(-REACH, REACH + 1)
  probs = rank_probs(scale)
  apart = (ranks[1] + noise) - (ranks[0] + noise)[:, None] >= 2 * half
  seen = np.where(apart, probs[:, None] * probs, 0.0)
  first, second = (given[np.clip(rank + noise - near[0], 0, near.size - 1
                                 ).astype(int)] for rank in ranks)
  return first.T @ seen @ second + (1 - seen.sum())


def some_pair(rng):
  """Returns two data sets of 100 records with few values that differ in one.

  Values change near the ranks asked for.
  """
  cuts = np.unique(rng.integers(10, 40, 4) + np.array([0, 0, 50, 50]))
  values = np.cumsum(np.exp(2 * rng.normal(size=cuts.size + 2)))
  values = values[:-1] / values[-1]
  first = values[np.searchsorted(cuts, np.arange(100), side='right')]
  second = first.copy()
  second[rng.choice([0, rng.integers(100)])] = rng.choice([1.0, *values])
  return first, second


@pytest.mark.sound
def test_no_pair_loses_more_than_the_guarantee():
  rng = np.random.default_rng(0)
  most, least = 0.0, 0.0
  for _ in range(15):
    both = some_pair(rng)
    ends = np.unique(np.concatenate([[0.0, 1.0], *both]))
    points, widths = (ends[1:] + ends[:-1]) / 2, np.diff(ends)
    areas = widths[:, None] * widths
    one, other = (joint_density(SMALL, data, points) * areas for data in both)
    assert abs(one.sum() - 1) < 1e-6
    for first, second in ((one, other), (other, one)):
      most = max(most, np.sum(np.maximum(
          first - math.exp(SMALL.epsilon) * second, 0)))
    least = max(least, np.max(np.abs(np.log(one) - np.log(other))))
  assert most <= SMALL.delta
  assert least > 0.3 * SMALL.epsilon
  # Epsilon pays for two ends of a run, two slices and a record's place.
  _, _, scale, half, rate = SMALL.parameters
  assert 2 / scale + 4 * rate + math.log(2 * half / (2 * half - 1)
                                         ) == pytest.approx(SMALL.epsilon)


def test_ranks_are_as_far_apart_as_said():
  rng = np.random.default_rng(1)
  ranks = np.arange(1, 7) * 100.0
  sums, _ = slicing.tree(6)
  for scale in (8.0, 10.0):
    noisy = ranks + np.floor(
        rng.laplace(scale=scale, size=(40_000, sums.shape[1])) @ sums.T + 0.5)
    close = np.mean(np.any(np.diff(noisy) <= 40, 1))
    bound = slicing.overlap_prob(ranks, half=20, scale=scale)
    assert close <= bound + 3e-4 and bound < 100 * close
  assert slicing.overlap_prob(ranks, half=50, scale=1.0) == 1.0
  assert slicing.overlap_prob(ranks[:1], half=50, scale=1.0) == 0.0


@pytest.mark.every(2)
def test_slices_hold_records_around_their_ranks():
  with jax.enable_x64(True):
    data = records.padded(np.arange(1, 9) / 10, 0.0, 1.0)
    slices = slicing.slices(data, np.array([4.0, 1.0, 8.0, -20.0]),
                            np.float64(2.0), 5)
  want = [[0.3, 0.4, 0.5, 0.6, 1], [0, 0.1, 0.2, 0.3, 1],
          [0.7, 0.8, 1, 1, 1], [0, 0, 0, 0, 1]]
  np.testing.assert_allclose(slices, want)


@pytest.mark.every(2)
def test_answers_are_near_their_ranks_or_blind():
  asked = make(probs=(0.2, 0.4, 0.6, 0.8), epsilon=2.0, num_examples=2000,
               delta=1e-5, resolution=1e-6)
  data = np.random.default_rng(2).permutation(np.arange(2000) / 2000)
  draw = jax.jit(jax.vmap(asked.draw, (0, None, None)))
  keys = jax.random.split(jax.random.key(3), 400)
  kept = records.padded(data, 0.0, 1.0)
  with jax.enable_x64(True):
    answers = np.asarray(draw(keys, kept, asked.parameters))
  assert np.all(np.diff(answers) >= 0)
  # A rank has two nodes of noise, and slices have half that length.
  off = np.abs(answers - np.array(asked.probs)) * 2000
  beyond = asked.scale * math.log(100)
  assert np.mean(np.max(off, 1) <= 2 * beyond + asked.half) > 0.95
  assert np.mean(off) < asked.half / 2
  # Without noise in slices, only the noise of ranks and rounding are left.
  sharp = asked.parameters._replace(rate=np.float64(50.0))
  with jax.enable_x64(True):
    ranks = np.asarray(draw(keys, kept, sharp)) * 2000
  want = 2 * asked.scale**2 * sharp.sums @ sharp.sums.T
  np.testing.assert_allclose(np.cov(ranks.T), want, atol=0.4 * want.max())
  assert want[1, 2] > 0 and (want == 0).sum() == 10 and want.max() > 20
  # The noise does not keep these ranks apart.
  close = asked.parameters._replace(ranks=np.full(4, 1000.0))
  with jax.enable_x64(True):
    blind = np.asarray(draw(keys, kept, close))
  assert stats.kstest(blind.ravel(), 'uniform').pvalue > 1e-4


def test_what_cannot_be_had_is_refused_with_what_is_needed():
  with pytest.raises(ValueError, match='need about ([0-9]+) records') as said:
    make(probs=tuple(j / 101 for j in range(1, 101)), epsilon=0.1,
         num_examples=10_000, delta=1e-6, resolution=1e-6)
  needed = int(said.value.args[0].split('about ')[1].split()[0])
  enough = make(probs=tuple(j / 101 for j in range(1, 101)), epsilon=0.1,
                num_examples=needed, delta=1e-6, resolution=1e-6)
  assert enough.half * 202 < needed < enough.half * 1000
  assert enough.guarantee.delta == 1e-6
  with pytest.raises(ValueError, match='slices have no event'):
    enough.event
  one = make(probs=(0.5,), epsilon=1.0, num_examples=30, delta=1e-6,
             resolution=0.1)
  assert one.guarantee.delta == 0 and one.event.epsilon == 1.0
  with pytest.raises(ValueError, match='there must be 30 records'):
    one.estimate(jax.random.key(0), np.zeros(31))
  with pytest.raises(ValueError, match='adjacency must be REPLACE_ONE'):
    make(probs=(0.5,), epsilon=1.0, num_examples=30, delta=1e-6,
         resolution=0.1, adjacency=brute.ADD)
  with pytest.raises(ValueError, match='delta must lie'):
    make(probs=(0.5,), epsilon=1.0, num_examples=30, delta=0.0,
         resolution=0.1)
  for resolution in (0.0, -0.1, math.nan, math.inf):
    with pytest.raises(ValueError, match='resolution must be'):
      make(probs=(0.5,), epsilon=1.0, num_examples=30, delta=1e-6,
           resolution=resolution)
