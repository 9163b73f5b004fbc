"""Tests what is derived from chosen noisy answers, in a second way."""

import decimal
import fractions
import itertools
import math
import re

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import bands
from dpjax.release import costs
from dpjax.release import density_bands
from dpjax.release import noise
from dpjax.release import registry
from dpjax.release.query import Query
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
_BOUNDS = {'column': 'x', 'lower': Decimal(-1), 'upper': Decimal(3)}
_FINE = {**_BOUNDS, 'granularity': Decimal('.5')}
_Z = np.arange(-400, 401)


def _plan(statistic, adjacency, **fields):
  return registry.plan(Query(**{
      'statistic': statistic, 'adjacency': adjacency, 'epsilon': Fraction(1),
      'confidence': Fraction(9, 10), **fields}))


def _ends(interval):
  return interval['lower'], interval['upper']


def _pmf(distribution):
  if hasattr(distribution, 'scale'):
    weights = np.exp(-np.abs(_Z) / float(distribution.scale))
  else:
    weights = np.exp(-_Z**2 / (2 * float(distribution.variance)))
  return weights / weights.sum()


def _width(distribution, miss):
  """Returns the least w with P(|z| > w) <= miss, by a plain sum."""
  return next(w for w in itertools.count()
              if _pmf(distribution)[np.abs(_Z) > w].sum() <= miss)


@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('missing', [None, 'absent'])
def test_released_sums_are_those_of_the_polynomials(missing, adjacency, delta):
  """Released sums equal the polynomials that their texts state, with units."""
  data = [-1., 0.5, 1., 3.]
  for statistic in ('mean', 'variance'):
    plan = _plan(statistic, adjacency, missing=missing, delta=delta, **_FINE)
    measured = plan.measure(map(str, data))
    answer = drawing.chosen(plan, measured, [7 + each for each in measured[1]])
    texts = plan.facts()['noise']['sums']['a_record_adds']
    assert list(texts) == list(answer['noisy_sums'])
    for name, text in texts.items():
      formula = re.sub(r'(?<=[\w)]) (?=[\w(])', '*', text.replace(
          '(upper - lower)', '4').replace('^', '**'))
      wanted = sum(eval(formula, {'a': x + 1, 'b': 3 - x}) for x in data)  # pylint: disable=eval-used
      assert Fraction(answer['noisy_sums'][name]) == Fraction(wanted) + 7 * (
          plan.lattice.unit**2)


def test_a_mean_of_a_public_number_of_records_has_the_width_of_its_sum():
  plan = _plan('mean', _RO, **_FINE)
  answer = drawing.chosen(plan, (50, [0, 0]), [8 * 160, 900])
  # t is 160 / (8 * 50) on average, for a range of 8 steps of 1/2.
  assert answer['value'] == pytest.approx(-1 + 4 * 160 / 400)
  width = 4 * _width(plan.noise, .1) / (50 * 64)
  assert _ends(answer['interval']) == pytest.approx(
      (answer['value'] - width, answer['value'] + width), abs=1e-2 * width)
  low, high = _ends(answer['population_interval'])
  assert -1 <= low < answer['interval']['lower'] - .1
  assert answer['interval']['upper'] + .1 < high <= 3


@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_a_variance_is_that_of_its_noisy_sums(adjacency, delta):
  """A variance's interval covers all mean ratios within the noisy widths."""
  plan = _plan('variance', adjacency, delta=delta, **_FINE)
  # These are sums of a W, b W and a b over 100 records: t = .4, t (1 - t) = .2.
  exact = np.array([40 * 64, 60 * 64, 20 * 64])
  sums = [int(np.dot(part.factors, exact))
          for part in plan.design.parts.values()]
  answer = drawing.chosen(plan, (100, [0] * len(sums)), sums)
  assert answer['value'] == pytest.approx(16 * (.4 * .6 - .2))
  moments = plan.moments(sums, 100 if adjacency is _RO else None)
  assert moments.values == pytest.approx((40, 60, 20))

  def last(centre, end, factors):
    """Returns the last ratio towards `end` that its noise allows."""
    inner, outer = 0.0, 1.0
    for _ in range(14):
      share = (inner + outer) / 2
      ratio = centre + share * (end - centre)
      value, error = moments.combined(*factors(ratio))
      assert value == pytest.approx(100 * (centre - ratio), abs=1e-9)
      inner, outer = (share, outer) if abs(value) <= error.half_width(
          .05) else (inner, share)
    return centre + outer * (end - centre)

  means = [last(.4, end, lambda m: (1 - m, -m, 0)) for end in (0, 1)]
  products = [last(.2, end, lambda r: (-r, -r, 1)) for end in (0, .25)]
  most = [m * (1 - m) for m in (*means, min(.5, means[1]))]
  low, high = _ends(answer['interval'])
  assert low == pytest.approx(16 * max(0, min(most) - products[1]), rel=.01)
  assert high == pytest.approx(16 * (max(most) - products[0]), rel=.01)


@pytest.mark.parametrize('counts', [(7, 23), (0, 30), (34, 5)])
def test_probabilities_are_those_that_no_tail_refuses(counts):
  """Interval ends are probabilities at which a tail has chance miss / 2.

  Tails are plain sums over a binomial count and its noise. With a private
  number of records the interval is that of `two_counts`.
  """
  plan = _plan('proportion', _RO, column='x', positive='a')
  number, miss = sum(counts), .1
  answer = drawing.chosen(plan, [12, number - 12], counts[:1])

  def tail(p, reached):
    pmf = np.convolve(stats.binom.pmf(np.arange(number + 1), number, p),
                      _pmf(plan.noise))
    return pmf[reached(np.arange(len(pmf)) + _Z[0])].sum()

  low, high = _ends(answer['population_interval'])
  step = 1e-4
  for end, reached in ((low, lambda k: k >= counts[0]),
                       (high, lambda k: k <= counts[0])):
    inner, outer = (step, -step) if end == low else (-step, step)
    if 0 < end < 1:
      assert tail(end + outer, reached) < miss / 2
    assert tail(end + inner, reached) > miss / 2
  assert 0 <= low < answer['population_value'] < high <= 1


def test_shares_of_a_file_of_few_records():
  plan = _plan('proportion', _RO, column='x', positive='a',
               epsilon=Fraction(1000))
  for number, positive, value, interval in (
      (0, 0, .5, (0, 1)), (1, 1, 1, (1, 1)), (1, 0, 0, (0, 0)),
      (2, 1, .5, (.5, .5)), (1, -4, 0, (0, 0)), (2, 9, 1, (1, 1))):
    answer = drawing.chosen(plan, [positive, number - positive], [positive])
    assert answer['value'] == value and _ends(answer['interval']) == interval
  plan = _plan('proportion', _RO, column='x', positive='a')
  width = _width(plan.noise, .1)
  answer = drawing.chosen(plan, [20, 80], [20])
  assert _ends(answer['interval']) == pytest.approx(
      ((20 - width) / 100, (20 + width) / 100))


@pytest.mark.parametrize('adjacency', Adjacency)
def test_counts_are_within_the_width_of_their_noise(adjacency):
  bins = tuple(map(Decimal, '0123'))
  plan = _plan('histogram', adjacency, column='x', bins=bins)
  answer = drawing.chosen(plan, [5, 6, 7], [-3, 60, 1])
  assert list(answer['value'].values()) == [-3, 60, 1]
  width = _width(plan.noise, .1 / 3)
  for noisy, interval in zip((-3, 60, 1), answer['interval'].values(),
                             strict=True):
    assert _ends(interval) == (max(0, noisy - width), max(0, noisy + width))
  plan = _plan('count', adjacency, **_BOUNDS)
  answer = drawing.chosen(plan, [5], [9])
  width = _width(plan.noise, .1)
  assert answer['value'] == 9
  assert _ends(answer['interval']) == (max(0, 9 - width), 9 + width)


@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_normal_means_are_those_that_no_tail_refuses(adjacency, delta):
  """Interval ends are means at which normal-plus-noise tails reach the miss."""
  plan = _plan('normal_mean', adjacency, column='x', lower=Decimal(-2),
               upper=Decimal(2), sigma=Decimal(2), delta=delta)
  unit, number = plan.lattice.unit, 400
  cost = plan.cost if adjacency is _RO else plan.cost.part(Fraction(19, 20))
  answers = [] if adjacency is _RO else [[number]]
  width = 0 if adjacency is _RO else _size_law(plan).half_width(.005)
  stages = plan.stages(int(number - width), cost,
                       .1 if adjacency is _RO else .095)
  assert not stages.share
  # The sum of y is 400 times 1/2.
  total, clamp = round(number / 2 / unit), stages.clamp
  sums = {'from_centre': total, 'from_lower': number * clamp + total,
          'from_upper': number * clamp - total,
          'half_windows': number * clamp, 'twice_from_centre': 2 * total}
  names = plan.sums([0], 0, clamp)
  answer = drawing.chosen(plan, [0] * number, *answers,
                          [sums[name] for name in names])
  assert answer['value'] == pytest.approx(.5)
  low, high = _ends(answer['population_interval'])
  assert low + high == pytest.approx(1, abs=1e-2 * (high - low))
  inner = _ends(answer['interval'])
  assert sum(inner) == pytest.approx(1, abs=1e-2 * (high - low))
  noisy = plan.error(stages, .5 / float(unit)).half_width(.1) * float(unit)
  assert inner[1] - .5 == pytest.approx(noisy / number, rel=2e-2)
  wanted = plan.half_width(stages, number) * float(unit)
  # It is exact where n is public; otherwise n's range has a share of the miss.
  assert high - .5 == pytest.approx(wanted, rel=2e-3 if adjacency is _RO
                                    else .15)
  assert adjacency is _RO or high - .5 > wanted


def _size_law(plan):
  """Returns the noise of a private number of records."""
  part = plan.cost.part(Fraction(1, 20))
  return noise.calibrated(
      part, l1_sensitivity=1, l2_sensitivity_squared=1)


@pytest.mark.parametrize('adjacency', Adjacency)
def test_the_end_of_a_uniform_law_is_scaled_by_its_rank(adjacency):
  plan = _plan('support_max', adjacency, column='x', lower=Decimal(1),
               upper=Decimal(8), granularity=Decimal('.001'),
               epsilon=Fraction(4))
  number = 500
  answers = [] if adjacency is _RO else [[number]]
  answer = drawing.chosen(plan, [0] * number, *answers, 4000)
  width = 0 if adjacency is _RO else _width(plan.count_noise, .1 / 20)
  rank = plan.rank(number + width)
  assert answer['rank_below_top'] == rank and answer['point'] == 4
  assert answer['value'] == pytest.approx(4 * 501 / (number - rank + .5))
  miss = .1 if adjacency is _RO else .1 * 19 / 20
  assert _ends(answer['population_interval']) == plan.interval(
      4., rank, (number - width, number + width), miss)
  low, high = _ends(answer['population_interval'])
  assert 4 < low < answer['value'] < high < 5
  # A score of s or more has chance at most |points| e^(-rate s).
  far = next(s for s in itertools.count() if 8001 * math.exp(
      -float(plan.rate) * (s + 1)) <= .1)
  assert _ends(answer['interval']) == (max(0, rank - far), rank + far)


def test_shares_of_bands_are_the_least_and_the_largest_of_all_counts():
  generator = np.random.default_rng(0)
  lower = generator.integers(0, 3, (2, 2, 6)).astype(float)
  upper = lower + generator.integers(0, 4, lower.shape)
  lower[:, 0, 0] = upper[:, 0, 0] = 0
  low, high = bands.Bands(lower, upper).shares()
  for place in np.ndindex(2, 6):
    shares = [a / (a + b) if a + b else share
              for a in np.arange(lower[0][place], upper[0][place] + 1)
              for b in np.arange(lower[1][place], upper[1][place] + 1)
              for share in (0, 1)]
    assert (low[place], high[place]) == (min(shares), max(shares))


@pytest.mark.parametrize('num_bins', [11, 61])
def test_functions_of_a_circle_are_its_waves(num_bins):
  """Bins of 1 + cos(2 pi k u + phase) give its means over all intervals."""
  functions = density_bands.Functions('fourier', num_bins)

  def means(number, k, phase):
    ends = np.sin(2 * np.pi * k * np.arange(number + 1) / number + phase)
    return np.diff(ends) * number / (2 * np.pi * k)

  for k, phase in ((1, .3), (2, 2.), (5, -1.)):
    integrals = functions.partial(means(num_bins, k, phase) / num_bins)
    for place, end in enumerate(functions.ends):
      wanted = means(density_bands.POINTS, k, phase) * (end >= k)
      np.testing.assert_allclose(integrals[place], wanted, atol=1e-9)


def test_functions_of_an_interval_have_lines_first():
  """Bins of a line give that line; later functions add nothing."""
  functions = density_bands.Functions('spline', 21)
  line = (np.arange(21) + .5) / 21 - .5
  integrals = functions.partial(3 * line / 21)
  wanted = 3 * ((np.arange(256) + .5) / 256 - .5)
  np.testing.assert_allclose(integrals, np.tile(wanted, (len(integrals), 1)),
                             atol=1e-9)


@pytest.mark.parametrize('adjacency', Adjacency)
def test_scores_of_ends_are_those_of_shifted_ranks(adjacency):
  """Scores equal point-by-point rank counts with padded public values."""
  level = Fraction(2, 5)
  plan = _plan('quantiles', adjacency, quantiles=(level,), value_interval=True,
               **_FINE)
  values = plan.measure(['-1', '0.5', '0.5', '2', '3'])
  for spare, shift in ((0, 0), (3, 0), (3, 6)):
    groups = plan.groups(values, spare)
    scores = plan.scores(groups, level, len(values), shift)
    every = values + [plan.lattice.low, plan.lattice.high] * spare
    for (start, size, _, _), score in zip(groups, scores, strict=True):
      for point in range(start, start + size):
        upto = sum(value <= point for value in every)
        under = sum(value < point for value in every)
        wanted = level * len(values) + shift
        assert score == 5 * max(0, wanted - upto, under - wanted)


def test_floats_of_costs_are_on_the_safe_side():
  for value in (Fraction(1, 10), Fraction(1, 3), Fraction(2, 3), Fraction(7),
                Fraction(1, 10**12), Fraction(10**30 + 1, 10**30)):
    above, below = costs._above(value), costs._below(value)
    assert Fraction(math.nextafter(above, 0)) < value <= Fraction(above)
    assert Fraction(below) <= value < Fraction(math.nextafter(below, math.inf))
