"""Tests that the chances of all failures add up to the stated miss.

Unions of rare events are wide bounds: an interval that gives one of them twice
its share still covers. So the test adds up the shares: those that are asked for
of each width, and the largest tails that the search still accepts.
"""

import decimal
import fractions
import math
import types

import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import combinations
from dpjax.release import noise
from dpjax.release import normal_means
from dpjax.release import registry
from dpjax.release import sample_means
from dpjax.release import supports
from dpjax.release import two_counts
from dpjax.release.combinations import Combination
from dpjax.release.query import Query
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
_MISS = .1


def _plan(statistic, adjacency, **fields):
  return registry.plan(Query(
      statistic=statistic, adjacency=adjacency, epsilon=Fraction(1),
      confidence=Fraction(9, 10), column='x', **fields))


def _largest(accepted, high=1.0):
  """Returns the largest accepted number in [0, high], if smaller ones are."""
  low = 0.0
  for _ in range(45):
    middle = (low + high) / 2
    low, high = (middle, high) if accepted(middle) else (low, middle)
  return low


def _normal_mean(adjacency, upper=2):
  return _plan('normal_mean', adjacency, lower=Decimal(-2),
               upper=Decimal(upper), sigma=Decimal(2))


@pytest.mark.parametrize('adjacency', Adjacency)
def test_a_normal_mean_leaves_to_its_stages_what_it_does_not_use(
    adjacency, monkeypatch):
  """A private n takes part of miss and budget; the stages get the rest."""
  plan, sizes, asked = _normal_mean(adjacency), [], []

  def width(self, miss):
    sizes.append(miss)
    return 9

  def stages(self, number, cost, miss):
    asked.append((number, cost, miss))
    share = Fraction(1, 10)
    distribution = noise.calibrated(cost.part(1 - share),
                                    **self.sensitivity(50))
    return normal_means.Stages(share, 50, distribution, miss)

  monkeypatch.setattr(noise.LaplaceNoise, 'half_width', width)
  monkeypatch.setattr(normal_means.NormalMean, 'stages', stages)
  monkeypatch.setattr(normal_means.NormalMean, '_estimates', lambda *_: {
      'population_interval': {'lower': 'as given'}})
  for number in (400, 10, 9, 1, 0, -7):
    answers = [] if adjacency is _RO else [[number]]
    answer = drawing.chosen(
        plan, [0] * max(number, 0), *answers, [0] * plan.num_bins,
        [0] * (1 + (adjacency is _AR)))
    (least, cost, miss), = asked
    assert sum(sizes) + miss == pytest.approx(_MISS)
    # This is a lower bound for the number of records.
    few = max(0, number) if adjacency is _RO else number - 9
    assert least == max(1, few)
    assert cost == plan.cost.part(Fraction(20 - (adjacency is _AR), 20))
    # If there may be no records, nothing follows for the population.
    assert (answer['population_interval']['lower'] == -2) == (few < 1)
    asked.clear()
    sizes.clear()


@pytest.mark.parametrize('adjacency', Adjacency)
def test_a_bin_may_be_wrong_as_often_as_is_not_left(adjacency, monkeypatch):
  plan = _normal_mean(adjacency, upper=400)
  monkeypatch.setattr(normal_means, '_CLAMPS', normal_means._CLAMPS[6:7])
  monkeypatch.setattr(normal_means, '_SHARES', (Fraction(0), Fraction(1, 10)))
  left = []

  def admitted(chance):
    monkeypatch.setattr(normal_means, 'wrong_bin', lambda *_: chance)
    stages_found = plan.stages(400, plan.cost, _MISS)
    left.append((stages_found.share > 0, stages_found.miss))
    return stages_found.share > 0

  wrong = _largest(admitted)
  assert wrong > 0
  assert dict(left) == {False: _MISS, True: pytest.approx(_MISS - wrong)}


@pytest.mark.parametrize('adjacency', Adjacency)
def test_the_interval_of_a_normal_mean_uses_what_is_left(
    adjacency, monkeypatch):
  """Clamping, a private n and both sides together use all of the miss."""
  plan, number = _normal_mean(adjacency), 400
  stages = plan.stages(number, plan.cost, _MISS)
  used, least = [], {}

  def width(self, miss):
    used.append(miss)
    return 7.0

  def clamped(clamp, number, miss):
    used.append(miss)
    least['number'] = number
    return 0.0

  def tail(self, excess, deviations):
    least['deviations'] = deviations
    return least['tail']

  def accepted(chance):
    used.clear()
    least['tail'] = chance
    sums = [0] if adjacency is _RO else [
        number * stages.clamp, number * stages.clamp]
    interval = plan._estimates(sums, 0, number if adjacency is _RO else None,
                               stages)['population_interval']
    return (interval['lower'], interval['upper']) != (-2, 2)

  monkeypatch.setattr(normal_means, 'clamped_sum', clamped)
  monkeypatch.setattr(Combination, 'half_width', width)
  monkeypatch.setattr(Combination, 'normal_tail', tail)
  monkeypatch.setattr(combinations, 'ratio_interval', lambda *_: (0, 1))
  side = _largest(accepted)
  assert len(used) == 1 + (adjacency is _AR)
  assert sum(used) + 2 * side == pytest.approx(stages.miss)
  far = 0 if adjacency is _RO else 7
  assert least['number'] == number + far
  assert least['deviations'] == pytest.approx(tuple(
      plan.sigma * math.sqrt(number + sign * far) for sign in (-1, 1)))


@pytest.mark.parametrize('adjacency', Adjacency)
def test_the_end_of_a_uniform_law_uses_all_of_its_miss(adjacency, monkeypatch):
  """A private n, ranks and order statistics together use all of the miss."""
  plan = _plan('support_max', adjacency, lower=Decimal(1), upper=Decimal(8))
  used, sizes, shapes = [], [], []

  def width(self, miss):
    used.append(miss)
    return 5

  def off(self, miss, numbers, rank, *, above):
    used.append(miss)
    sizes.append(numbers)
    return 3

  def beta(miss, *shape):
    used.append(miss)
    shapes.append(shape)
    return .5

  monkeypatch.setattr(noise.LaplaceNoise, 'half_width', width)
  monkeypatch.setattr(supports.SupportMax, 'off', off)
  monkeypatch.setattr(supports, 'stats', types.SimpleNamespace(
      beta=types.SimpleNamespace(isf=beta, ppf=beta)))
  answers = [] if adjacency is _RO else [[300]]
  rank = drawing.chosen(plan, [0] * 300, *answers, 4000)['rank_below_top']
  assert len(used) == 4 + (adjacency is _AR)
  assert sum(used) == pytest.approx(_MISS)
  far = 0 if adjacency is _RO else 5
  assert sizes == [(300 - far, 300 + far)] * 2
  # Ranks are 3 away; more records may be above, fewer below.
  assert shapes == [(300 + far - rank + 3, rank - 2),
                    (300 - far - rank - 2, rank + 3)]
  # If so low a rank may not exist, nothing bounds theta from above.
  assert plan.interval(3., 12, (15, 99), _MISS)[1] == pytest.approx(6)
  assert plan.interval(3., 12, (14, 99), _MISS)[1] == 8


def test_two_counts_use_all_of_their_miss(monkeypatch):
  """The range of n and both sides together use all of the miss."""
  widths, sides = [], []

  def width(self, miss):
    widths.append(miss)
    return 4.2

  monkeypatch.setattr(Combination, 'half_width', width)
  monkeypatch.setattr(two_counts.LowerEnd, 'search', lambda self: (
      sides.append(self), .25)[1])
  distribution = noise.LaplaceNoise(scale=Fraction(17, 5))
  two_counts.interval.cache_clear()
  for seen in ((-3, 3), (20, 31)):
    assert two_counts.interval(*seen, distribution, _MISS) == (.25, .75)
    assert [side.seen for side in sides] == [seen, seen[::-1]]
    number = sum(seen)
    assert {side.sizes for side in sides} == {
        (max(0, number - 5), number + 5)}
    alpha, = {side.alpha for side in sides}
    # The width of z + y belongs to the test, which adds its chance to g.
    assert widths == pytest.approx([_MISS - 2 * alpha,
                                    two_counts._TAU * alpha])
    widths.clear()
    sides.clear()
  two_counts.interval.cache_clear()


@pytest.mark.parametrize('public', [True, False])
def test_means_of_populations_use_all_of_their_miss(public, monkeypatch):
  """A private n, the variance and both sides together use all of the miss."""
  distribution = noise.LaplaceNoise(scale=Fraction(2))
  weights = ((1, 0), (-1, 0), (0, 1)) if public else ((1, 0), (0, 1), (0, 0))
  moments = sample_means.NoisyMoments(values=(40., 60., 20.), weights=weights,
                                      noise=distribution)
  used, seen = [], {}

  def width(self, miss):
    used.append(miss)
    return 5.5

  def variance(moments, mean, miss):
    used.append(miss)
    return 8.0

  def tail(excess, mean, variance, sizes, combination):
    seen.update(variance=variance, sizes=sizes)
    return seen['tail']

  monkeypatch.setattr(Combination, 'half_width', width)
  monkeypatch.setattr(sample_means, 'variance_bound', variance)
  monkeypatch.setattr(sample_means, 'upper_tail', tail)
  sizes, left = sample_means._sizes(moments, _MISS)
  assert sizes == ((100, 100) if public else (95, 105))

  def refused(chance):
    seen['tail'] = chance
    del used[1 - public:]
    return sample_means.refused(moments, .3, sizes, left)

  side = _largest(refused)
  assert len(used) == 2 - public
  assert sum(used) + 2 * side == pytest.approx(_MISS)
  # A bound of n v bounds v with the least n.
  assert seen['sizes'] == sizes and seen['variance'] == 8 / sizes[0]
  assert sample_means.refused(moments, .01, sizes, left) in (True, False)
  assert seen['variance'] == .01 * .99


@pytest.mark.parametrize('adjacency', Adjacency)
def test_ends_of_quantiles_use_all_of_their_miss(adjacency):
  """Interval ends divide the miss by their number, each by its own tail."""
  levels = (Fraction(1, 10), Fraction(1, 2), Fraction(2, 3))
  plan = _plan('quantiles', adjacency, lower=Decimal(0), upper=Decimal(10),
               granularity=Decimal('.1'), quantiles=levels,
               value_interval=True)

  def tail(level, ranks):
    return 101 * math.exp(-float(plan.rate(level)) * level.denominator * ranks)

  for level in levels:
    spare = plan.spare(level)
    assert tail(level, spare) <= _MISS / 6 < tail(level, spare - 1)
  far, = set(plan.errors())
  assert max(tail(level, far) for level in levels) == pytest.approx(_MISS / 3)
  for number in (50, 1000):
    in_ranks = plan._ranks(number)
    assert in_ranks['rank_error'] == far
    assert in_ranks['orders'] == {str(p): pytest.approx(
        [max(0, float(p) - far / number), min(1, float(p) + far / number)])
                               for p in levels}
