"""Tests chance bounds against their proofs, computed in a second way.

Most bounds are far above what they bound, so that only their own formula, or
its worst case, shows whether a term is missing.
"""

import decimal
import fractions
import math

import numpy as np
import pytest
from scipy import integrate
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import noise
from dpjax.release import normal_means
from dpjax.release import registry
from dpjax.release import sample_means
from dpjax.release import two_counts
from dpjax.release.combinations import Combination
from dpjax.release.query import Query

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
_NARROW = noise.LaplaceNoise(scale=Fraction(1, 2))
_NONE = noise.LaplaceNoise(scale=Fraction(1, 10**3))


def _plan(statistic, adjacency, **fields):
  return registry.plan(Query(**{
      'statistic': statistic, 'adjacency': adjacency, 'epsilon': Fraction(1),
      'column': 'x', **fields}))


def _pmf(distribution, bound):
  z = np.arange(-bound, bound + 1)
  if hasattr(distribution, 'scale'):
    weights = np.exp(-np.abs(z) / float(distribution.scale))
  else:
    weights = np.exp(-z**2 / (2 * float(distribution.variance)))
  return z, weights / weights.sum()


@pytest.mark.parametrize('distribution', [
    _NARROW, noise.GaussianNoise(variance=Fraction(4))])
@pytest.mark.parametrize('seen', [(9, 13), (3, 30)])
def test_the_test_of_two_counts_is_that_of_its_proof(seen, distribution):
  """The bound is steps 3 and 4 of its proof by plain sums."""
  alpha, bound_of_noise, total = .02, 4., sum(seen)
  z, chances = _pmf(distribution, 40)
  for p1, p2, least, most in ((.2, .23, 18, 22), (.4, .4, 18, 22),
                              (.3, .35, 20, 20), (.6, .6, 25, 25)):
    end = two_counts.LowerEnd(seen=seen, sizes=(18, 30), noise=distribution,
                              alpha=alpha, noise_bound=bound_of_noise)
    gap = most - least
    shift = math.sqrt(gap * math.log(1 / two_counts._ETA) / 2)
    apart = (p2 - p1) * max(0, total - most + bound_of_noise)
    above = seen[0] + p1 * (most - total) - apart - shift
    noisy = np.add.outer((1 - p1) * z, -p1 * z)
    weights = np.multiply.outer(chances, chances)

    def bound(excess):
      hit = [weights[count + noisy >= excess - 1e-9].sum()
             for count in range(most + 1)]
      chance = stats.binom.pmf(range(most + 1), most, p2) @ hit
      return chance / (1 - two_counts._ETA * (gap > 0)) + (
          two_counts._TAU * alpha * (p2 > p1))

    step = end._noise(p1, math.sqrt(most * p2 * (1 - p2)))[0].step
    tail_bound = end.tail(p1, p2, least, most)
    assert bound(above) - 1e-9 <= tail_bound <= 1.001 * bound(
        above - 2.1 * step) + 1e-4 * alpha


def test_the_deviation_of_two_counts_is_that_of_the_test():
  """The deviation is that of (1 - p) (a + z) - p (n - a + y), at largest n."""
  distribution = noise.GaussianNoise(variance=Fraction(9))
  end = two_counts.LowerEnd(seen=(6, 14), sizes=(15, 25), noise=distribution,
                            alpha=.02, noise_bound=9.)
  p, (z, chances) = .3, _pmf(distribution, 60)
  variance = 25 * p * (1 - p) + (1 + 2 * p * (p - 1)) * (chances @ z**2)
  assert end.estimate == pytest.approx(p)
  assert end.deviation == pytest.approx(math.sqrt(variance))


def _two_points(most, variance, number):
  """Returns values of sums of e, and their chances (step
  2 of `sample_means`)."""
  p = variance / (variance + most**2)
  counts = np.arange(number + 1)
  return (counts * (most + variance / most) - number * variance / most,
          stats.binom.pmf(counts, number, p))


@pytest.mark.parametrize('number, most, variance, distribution', [
    (10**4, .5, .25, _NONE), (3_000, .8, .02, _NONE), (400, .3, .2, _NARROW),
    (50, .9, .01, noise.GaussianNoise(variance=Fraction(4)))])
def test_moments_of_tails_are_within_a_cell_of_their_least(
    number, most, variance, distribution):
  """The bound is the least E (S + z - s)_+^2 / (x - s)^2 over s, to a cell."""
  values, chances = _two_points(most, variance, number)
  z, weights = _pmf(distribution, 30)
  values = np.add.outer(values, z).reshape(-1)
  chances = np.multiply.outer(chances, weights).reshape(-1)
  values, chances = values[chances > 1e-15], chances[chances > 1e-15]
  combination = Combination(noise=distribution, coefficients=(1.0,))
  deviation = math.hypot(combination.deviation, math.sqrt(number * variance))
  for excess in (1.5 * deviation, 3 * deviation):
    shifts = excess - deviation * np.geomspace(.2, 20, 60)
    least = min(chances @ np.maximum(values - s, 0)**2 / (excess - s)**2
                for s in shifts)
    tail_bound = sample_means._moment_tail(excess, most, variance,
                                           number=number,
                                           combination=combination)
    assert .98 * least < tail_bound < 1.05 * least


@pytest.mark.parametrize('mean, variance, sizes', [
    (.5, .25, (10**6, 10**6)), (.1, .05, (10**5, 3 * 10**5)),
    (.8, .16, (4 * 10**4, 4 * 10**4 + 9))])
def test_large_samples_have_the_terms_of_berry_and_esseen(
    mean, variance, sizes):
  """Tails of large samples are step 3's Berry-Esseen or moment bound."""
  least, most = sizes
  combination = Combination(noise=_NONE, coefficients=(1.0,))
  normal_used = 0
  for score in (.3, 1.5, 2.2, 4.):
    excess = score * math.sqrt(most * variance)

    def moment(v):
      return sample_means._moment_tail(excess, 1 - mean, v, number=most,
                                       combination=combination)
    distance = max(mean, 1 - mean) / math.sqrt(least * variance / 2)
    distance = .33554 * (distance + .415 / math.sqrt(least))
    normal = distance + stats.norm.sf(score)
    wanted = min(moment(variance), max(normal, moment(variance / 2)))
    tail_bound = sample_means.upper_tail(excess, mean, variance, sizes,
                                         combination)
    assert tail_bound == pytest.approx(wanted, rel=1e-6)
    normal_used += tail_bound == pytest.approx(normal, rel=1e-6)
  assert normal_used


@pytest.mark.parametrize('distribution', [
    noise.LaplaceNoise(scale=Fraction(3)),
    noise.GaussianNoise(variance=Fraction(49))])
@pytest.mark.parametrize('number, num_bins', [(100, 4_000), (40, 3), (9, 8)])
def test_wrong_bins_have_the_exponential_moments_of_two_counts(
    number, num_bins, distribution):
  """The bound has exponential moments of two counts with
  noise, for all bins."""
  z, chances = _pmf(distribution, 400)
  near = stats.norm.cdf(1) - .5

  def log_moment(far, rate):
    one = math.log(1 + far * math.expm1(rate) + near * math.expm1(-rate))
    return number * one + 2 * math.log(chances @ np.exp(rate * z))

  rates = np.linspace(.001, .999 / 3 if distribution.deviation < 5 else 1.5,
                      600)
  most, total = min(num_bins, 8), 0.0
  for k in range(1, most + 1):
    last = k == most
    far = stats.norm.sf(k) - (0 if last else stats.norm.sf(k + 1))
    least = min(log_moment(far, rate) for rate in rates)
    total += (num_bins if last else 2) * math.exp(min(0.0, least))
  failure_bound = normal_means.wrong_bin(number, num_bins, distribution)
  assert total * (1 - 1e-4) <= failure_bound <= 1.05 * total


@pytest.mark.parametrize('upper', [2, 400])
def test_clamping_and_rounding_move_a_sum_by_the_slack_at_most(upper):
  """The worst values move a sum nearly by the slack, but not by more."""
  plan = _plan('normal_mean', _RO, lower=Decimal(-2), upper=Decimal(upper),
               sigma=Decimal(2), granularity=Decimal('.02'))
  number = 400
  stages = plan.stages(number, plan.cost, .05)
  assert bool(stages.share) == (upper > 2)
  sigma, centre = 100, 3_000
  far = 1.5 * sigma if stages.share else (plan.high - plan.low) / 2
  edge = (stages.clamp - far) / sigma
  excess = normal_means.clamped_sum(edge, number, .05 * stages.miss)
  # One value is below the window, the others are rounded up by a half.
  values = [centre - stages.clamp - sigma * excess] + (number - 1) * [
      centre + 10.501]
  sums = plan.sums([math.floor(value + .5) for value in values], centre,
                   stages.clamp)
  difference = sums['from_centre'] - sum(value - centre for value in values)
  assert .6 * plan.slack(stages, number) < difference <= plan.slack(
      stages, number)


def _off(plan, miss, sizes, rank, above):
  """Returns the least r >= 2 whose chance is at most
  `miss`, as in the proof."""
  q, (least, number) = math.exp(-float(plan.rate)), sizes
  theta, top = float(plan.query.lower), float(plan.query.upper)
  side = rank if above else number - rank

  def integral(r):
    away = [k for k in range(-(r - 1), r)
            if -(least - rank) <= k <= rank]
    if len(away) < 3:
      return math.inf
    powers = q**np.abs(np.array(away, float))
    return integrate.quad(lambda x: math.exp(x - np.sum(np.log1p(
        math.exp(x) * powers))), -40, 40, limit=300)[0]

  def chance(r):
    chances = sum(q**k for k in range(r, side + 1))
    chances += (number + 1) * float(plan.lattice.unit) / theta * q**r
    if above:
      chances += (number + 1) * (top / theta - 1) * q**rank
    return chances * integral(r)

  return next((r for r in range(2, side + 1) if chance(r) <= miss), None)


@pytest.mark.parametrize('sizes, rank', [((60, 60), 19), ((52, 68), 19),
                                         ((60, 60), 8), ((25, 25), 12)])
def test_ranks_of_the_end_of_a_uniform_law_are_off_as_proved(sizes, rank):
  """The rank error is the proof's, also with a range above theta."""
  errors = set()
  for granularity in ('.02', '.0001'):
    plan = _plan('support_max', _RO, lower=Decimal('.25'), upper=Decimal(1),
                 granularity=Decimal(granularity))
    for miss in (.03, .3):
      for above in (True, False):
        off = plan.off(miss, sizes, rank, above=above)
        assert off == _off(plan, miss, sizes, rank, above)
        errors.add(off)
  assert len(errors) > 3
  # There may be fewer records than that rank.
  assert plan.off(.3, (18, 60), 19, above=False) is None
  assert plan.off(.3, (19, 60), 19, above=False) is not None
  for number in (2, 9, 10, 300):
    assert plan.rank(number) <= number // 2


@pytest.mark.parametrize('granularity', ['.1', '.0001'])
def test_ends_allow_for_half_a_cell(granularity):
  """Ends are binomial quantiles at the point, shifted by half a cell."""
  plan = _plan('support_max', _RO, lower=Decimal('.2'), upper=Decimal(1),
               granularity=Decimal(granularity))
  number, miss, point = 300, .2, .5
  rank = plan.rank(number)
  up, down = (plan.off(miss / 4, (number, number), rank, above=above)
              for above in (True, False))
  low, high = plan.interval(point, rank, (number, number), miss)
  half = float(granularity) / 2
  for order, value, end in ((number - rank + up, point - half, low),
                            (number - rank - down + 1, point + half, high)):
    under = stats.binom.sf(order - 1, number, value / end)
    assert (1 - under if end == low else under) == pytest.approx(miss / 4)
