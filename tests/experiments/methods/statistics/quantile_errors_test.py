"""These tests compare sharp error bounds with enumeration and simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import rates
from experiments.methods.statistics import histogram_bounds
from experiments.methods.statistics import quantile_bounds as bounds
from experiments.methods.statistics import quantile_errors as confidence
from experiments.methods.statistics.quantile_errors import Population


def _gaps(seed, repetitions, n):
  raw = np.random.default_rng(seed).exponential(size=(repetitions, n + 1))
  return raw / raw.sum(1, keepdims=True)


def _interval_probs(gaps, rate, target):
  weights = gaps * np.exp(-rate * np.abs(np.arange(gaps.shape[1]) - target))
  return weights / weights.sum(1, keepdims=True)


def test_the_distribution_for_one_record_is_elementary():
  """For one record, the distribution is elementary.

  E(E_0 / (E_0 + r E_1)) = (1 - r + r ln r) / (1 - r)^2.
  """
  rate, prob = 1.4, .25
  ratio = math.exp(-rate / 2)
  wanted = (1 - ratio + ratio * math.log(ratio)) / (1 - ratio)**2
  probs = confidence.rank_distribution(num_examples=1, prob=prob, rate=rate)
  np.testing.assert_allclose(probs, [wanted, 1 - wanted], rtol=1e-12)


@pytest.mark.parametrize('n, prob, rate, below, above', [
    (6, .3, .8, 0, 0), (50, .5, .05, 0, 0), (30, .9, 3., .5, 2.),
    (3, .5, 4., 1e3, 0), (400, .25, .5, 0, 1e8)])
def test_rank_distributions_are_exact(n, prob, rate, below, above):
  probs = confidence.rank_distribution(num_examples=n, prob=prob, rate=rate,
                              below=below, above=above)
  assert probs.sum() == pytest.approx(1, abs=1e-12)
  gaps = _gaps(0, 4000, n)
  gaps[:, 0] += below
  gaps[:, -1] += above
  each = _interval_probs(gaps, rate, n * prob)
  spread = each.std(0, ddof=1) / math.sqrt(len(each))
  assert np.all(np.abs(each.mean(0) - probs) <= 5 * spread + 1e-12)


def test_what_is_far_from_the_target_keeps_its_weight():
  """Ranks far from the target keep falling weights.

  Terms beyond e^-60 are left out of the sum.
  """
  probs = confidence.rank_distribution(num_examples=2000, prob=.5, rate=.5)
  steps = np.diff(np.log(probs[1200:1900]))
  np.testing.assert_allclose(steps, -.5, rtol=1e-9)


def test_rank_errors_are_those_of_the_distribution():
  known = dict(num_examples=21, prob=.4, rate=.3)
  probs = confidence.rank_distribution(**known)
  costs = np.abs(np.arange(22) - 8.4)
  for level in (.5, .05, 1e-3):
    error = confidence.single_rank_error(level, **known)
    smaller = max(cost for cost in costs if cost < error - 1e-9)
    tail = lambda least: probs[costs >= least - 1e-9].sum()
    assert tail(error) <= level < tail(smaller)
  assert confidence.single_rank_error(1e-9, **known) == math.inf
  uneven = Population(density_min=.5, density_max=1.5)
  assert confidence.single_rank_error(.3, population=uneven, **known) == (
      confidence.single_rank_error(.1, **known))
  wide = Population(below=5.0, above=50.0)
  assert confidence.single_rank_error(.05, population=wide, **known) > (
      confidence.single_rank_error(.05, **known))


def test_uneven_densities_keep_their_bound():
  """Rank errors keep their bound for densities 1/2 and 3/2."""
  n, prob, rate = 40, .6, .2
  uniform = np.sort(np.random.default_rng(1).random((3000, n)))
  values = np.where(uniform < .25, 2 * uniform, .5 + (uniform - .25) / 1.5)
  gaps = np.diff(np.pad(values, ((0, 0), (1, 1)), constant_values=(0, 1)))
  probs = _interval_probs(gaps, rate, n * prob).mean(0)
  threshold = confidence.single_rank_error(
      .1, num_examples=n, prob=prob, rate=rate,
      population=Population(density_min=.5, density_max=1.5))
  assert probs[np.abs(np.arange(n + 1) - n * prob) >= threshold].sum() <= .1


def test_sums_of_gaps_stay_above_their_floor():
  n, rate = 200, .2
  weights = np.exp(-rate * np.arange(10))
  gaps = _gaps(2, 4000, n)
  sums = np.stack([np.convolve(one, weights[::-1], 'valid') for one in gaps])
  both = np.minimum(sums.min(1), np.stack(
      [np.convolve(one, weights, 'valid') for one in gaps]).min(1))
  for level in (.05, .5):
    floor = confidence.gap_sum(level, num_examples=n, weights=weights,
                               num_sums=2 * (n + 1))
    assert np.mean(both < floor) <= level
    assert floor > .4 * np.quantile(both, level)


def _tree(gaps, probs, rate, rng):
  """Returns rank errors of RecExp for three quantile levels."""
  edges = np.concatenate([[0], np.cumsum(gaps)])
  ordered = edges[1:-1]

  def node(low, high, prob):
    inside = ordered[(ordered > low) & (ordered < high)]
    ends = np.concatenate([[low], inside, [high]])
    interval_probs = _interval_probs(np.diff(ends)[None], rate,
                                     inside.size * prob)[0]
    place = rng.choice(interval_probs.size, p=interval_probs)
    return ends[place] + rng.random() * (ends[place + 1] - ends[place])
  middle = node(0, 1, probs[1])
  answers = [node(0, middle, probs[0] / probs[1]), middle,
             node(middle, 1, (probs[2] - probs[1]) / (1 - probs[1]))]
  return np.searchsorted(ordered, answers) - gaps.size * np.array(probs) + (
      np.array(probs))


def test_trees_are_off_by_less():
  probs, n, rate = (.3, .5, .8), 400, .5
  rng = np.random.default_rng(3)
  worst = np.array([np.abs(_tree(gaps, probs, rate, rng)).max()
                    for gaps in _gaps(4, 400, n)])
  for level in (.05, .5):
    bound = confidence.recursive_rank_error(level, num_examples=n, probs=probs,
                                            rate=rate)
    assert np.mean(worst >= bound) <= level
    assert bound < 12 * np.quantile(worst, 1 - level)


def _joint_tail(gaps, probs, rate, ranks):
  """Returns P(rank error >= ranks) of JointExp for two quantile levels."""
  n = gaps.size - 1
  first, second = np.meshgrid(np.arange(n + 1), np.arange(n + 1),
                              indexing='ij')
  cost = (np.abs(first - n * probs[0])
          + np.abs(second - first - n * (probs[1] - probs[0]))
          + np.abs(n - second - n * (1 - probs[1])))
  weights = np.outer(gaps, gaps) * np.exp(-rate * cost) * np.where(
      first < second, 1, np.where(first == second, .5, 0))
  missed = np.maximum(np.abs(first - n * probs[0]),
                      np.abs(second - n * probs[1])) >= ranks
  return np.sum(weights * missed) / np.sum(weights)


def test_joint_quantiles_are_off_by_less():
  probs, n, rate = (.3, .7), 150, .25
  many = _gaps(5, 60, n)
  for level in (.05, .5):
    bound = confidence.joint_rank_error(level, num_examples=n, probs=probs,
                                        rate=rate)
    mean = np.mean([_joint_tail(gaps, probs, rate, bound) for gaps in many])
    assert mean <= level
    # A quarter of the bound would be too little.
    assert np.mean([_joint_tail(gaps, probs, rate, bound / 4)
                    for gaps in many]) > level / 2
  wide = Population(above=100.0)
  assert confidence.joint_rank_error(
      .05, num_examples=n, probs=probs, rate=rate, population=wide
      ) - confidence.joint_rank_error(
          .05, num_examples=n, probs=probs, rate=rate) == pytest.approx(
              2 * math.log(101) / (2 * rate))


def test_what_adds_up_to_rank_errors():
  """Rank error bounds equal their sums, written out for trees and pairs."""
  level, n, rate, share = .05, 900, .1, .8
  floor = lambda weights, level, sums: confidence.gap_sum(
      level, num_examples=n, weights=weights, num_sums=sums)
  side = floor(np.exp(-rate * np.arange(10)), level * (1 - share), 2 * (n + 1))
  wanted = 2 * max(20, 1 + math.log(1 / side) / rate) + stats.gamma.isf(
      level * share / 3, 2) / rate
  error = confidence.recursive_rank_error(
      level, num_examples=n, probs=(.25, .5, .75), rate=rate)
  assert .8 * wanted < error <= wanted
  around = np.exp(-2 * rate * np.abs(np.arange(-149, 150)))
  volume = -math.log(2) - 2 * math.log(floor(around, level * (1 - share) / 2, 1))
  wanted = (volume - math.log(level * share)) / (2 * rate)
  error = confidence.joint_rank_error(level, num_examples=n,
                                      probs=(1 / 3, 2 / 3), rate=rate)
  assert .95 * wanted < error <= wanted * (1 + 1e-6)


def test_values_between_two_order_statistics():
  """Value errors are binomial tails between two order statistics."""
  n, prob, level = 60, .4, .1
  error = confidence.value_error(level, [5.0], num_examples=n, probs=(prob,),
                                 density_min=1.0)
  high, low = math.ceil(24 + 5), math.floor(24 - 5) + 1
  above = stats.binom.cdf(high - 1, n, prob + error)
  below = stats.binom.sf(low - 1, n, prob - error)
  assert max(above, below) == pytest.approx(level / 2)
  assert confidence.value_error(
      level, [5.0], num_examples=n, probs=(prob,),
      density_min=.5) == pytest.approx(2 * error)
  for far in (24.5, math.inf):
    assert confidence.value_error(level, [far], num_examples=n, probs=(prob,),
                                  density_min=1.0) == math.inf


def test_median_of_uniform_records_is_within():
  """The median of uniform records stays within its bound.

  The bound is below twice the error; the printed bound is far larger.
  """
  n, epsilon = 2000, .5
  rng = np.random.default_rng(6)
  missed = []
  bound = confidence.independent_error(.05, num_examples=n, probs=(.5,),
                                       rates_=[epsilon / 2])
  for gaps in _gaps(7, 500, n):
    interval_probs = _interval_probs(gaps[None], epsilon / 2, n / 2)[0]
    place = rng.choice(n + 1, p=interval_probs)
    missed.append(abs(gaps[:place].sum() + rng.random() * gaps[place] - .5))
  assert np.mean(np.array(missed) > bound) <= .05
  assert bound < 2 * np.quantile(missed, .95)
  printed = histogram_bounds.smallest(lambda error: bounds.independent(
      error, num_examples=n, probs=(.5,), epsilon=epsilon, density_min=1.0,
      density_max=1.0, printed=True), .05)
  assert printed > 8 * bound


@pytest.mark.parametrize('n, epsilon, m', [(10_000, 1., 3), (100_000, .5, 9)])
def test_sharp_bounds_beat_the_printed_ones(n, epsilon, m):
  probs = tuple((1 + np.arange(m)) / (m + 1))
  known = dict(num_examples=n, probs=probs)
  unit = dict(density_min=1.0, density_max=1.0, printed=True)
  solved = lambda bound, **more: histogram_bounds.smallest(
      lambda error: bound(error, epsilon=epsilon, **known, **unit, **more),
      .05)
  swap = Adjacency.REPLACE_ONE
  assert 5 * confidence.independent_error(
      .05, rates_=[epsilon / (2 * m)] * m, **known) < solved(
          bounds.independent)
  rate = min(rates.recursive(probs, share=lambda parts: epsilon / parts,
                             adjacency=swap, rounded=False))
  assert 5 * confidence.recursive_error(.05, rate=rate, **known) < solved(
      bounds.recursive, adjacency=swap)


def test_bad_input_is_one_line():
  known = dict(num_examples=10, probs=(.5,), rates_=[.1])
  for level, density, name in ((1.5, 1.0, 'level'), (.05, 0.0, 'density_min')):
    with pytest.raises(ValueError, match=name):
      confidence.independent_error(
          level, population=Population(density_min=density), **known)
  with pytest.raises(ValueError, match='density_min'):
    bounds.independent(.1, num_examples=10, probs=(.5,), epsilon=1.0,
                       density_min=0.0, density_max=1.0)
  with pytest.raises(ValueError, match='min_gap'):
    bounds.single_rank_error(.05, min_gap=0.0, epsilon=1.0)


@pytest.mark.every(2)
def test_errors_of_joint_quantiles_share_out_their_failures():
  """The joint bound splits the failure probability almost optimally.

  It is within 10 % of the best of 49 splits between ranks and values.
  """
  known = dict(num_examples=4000, probs=(.3, .6))
  population = confidence.Population()
  errors = {rate: confidence.joint_error(.05, rate=rate, **known)
            for rate in (.2, .4)}
  for rate, value in errors.items():
    tried = []
    for share in np.linspace(.02, .98, 49):
      ranks = confidence.joint_rank_error(
          .05 * share, rate=rate, population=population, **known)
      tried.append(confidence.value_error(
          .05 * (1 - share), [ranks] * 2, density_min=1., **known))
    assert min(tried) * (1 - 1e-9) <= value <= 1.1 * min(tried)
  assert errors[.4] < errors[.2] < .2
