"""These tests check quantile bounds of Lalanne
(2023) with mechanisms (QT-08)."""

import functools
import math

import jax
import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods.independent import IndependentQuantiles
from dpjax.stats.quantile_methods.recursive import RecursiveQuantiles
from experiments.methods.statistics import histogram_bounds
from experiments.methods.statistics import joint_consistency as consistency
from experiments.methods.statistics import quantile_bounds as bounds

_UNIT = dict(density_min=1.0, density_max=1.0)
_ADDED = Adjacency.ADD_OR_REMOVE_ONE
_REPLACED = Adjacency.REPLACE_ONE


def _orders(count):
  """Returns the quantile levels of Lalanne (2023, Figure 6.1)."""
  return tuple(0.25 + (j + 1) / (2 * (count + 1)) for j in range(count))


def _solved(bound, **known):
  return histogram_bounds.smallest(functools.partial(bound, **known), 0.05)


def _uniform(seed, repetitions, size):
  return np.sort(np.random.default_rng(seed).random((repetitions, size)))


def _at_most(hits, bound):
  """Checks that a frequency is at most the bound plus 4 standard errors."""
  share = np.mean(hits)
  assert share <= bound + 4 * math.sqrt(bound * (1 - bound) / len(hits))
  return share


def _interval_probs(gaps, rate, target):
  """Returns the probabilities of the intervals of QExp, by enumeration."""
  logs = np.log(gaps) - rate * np.abs(np.arange(gaps.size) - target)
  weights = np.exp(logs - logs.max())
  return weights / weights.sum()


def test_numbers_of_the_lemma_on_empirical_quantiles():
  for n, error, prob, wanted in ((2000, .1, .5, .027), (2000, .1, .2, .088),
                                 (10_000, .05, .5, .0077)):
    known = dict(num_examples=n, prob=prob, density_min=1.0)
    printed = bounds.empirical_quantile(error, printed=True, **known)
    assert printed == pytest.approx(wanted, rel=.01)
    assert bounds.empirical_quantile(error, **known) == pytest.approx(
        printed / 2)
    assert bounds.empirical_quantile(error / 10, printed=True, **known) == 1


@pytest.mark.parametrize('error', [.14, .03])
def test_order_statistics_around_the_target_are_near_the_quantile(error):
  n, prob = 400, .3
  ordered = _uniform(0, 4000, n)
  half = math.floor(n * error / 2)
  places = np.clip(np.arange(1 - half, half) + round(n * prob), 1, n) - 1
  misses = np.max(np.abs(ordered[:, places] - prob), 1) > error
  share = _at_most(misses, bounds.empirical_quantile(
      error, num_examples=n, prob=prob, density_min=1.0))
  # A third of the exponent's square root would fail: the buffer is there.
  if error < .1:
    assert share > .2


@pytest.mark.parametrize('level', [.5, .05])
def test_rank_errors_of_two_wide_outer_intervals(level):
  """Fact 6.1.2 bounds rank errors, and four fifths of it would not."""
  epsilon, gap = 1.0, 1e-6
  threshold = bounds.single_rank_error(level, min_gap=gap, epsilon=epsilon)
  if level == .5:
    assert threshold == pytest.approx(29.0, abs=.1)

  def tail(ranks):
    n = 2 * math.ceil(ranks)
    gaps = np.full(n + 1, gap)
    gaps[[0, -1]] = (1 - (n - 1) * gap) / 2
    interval_probs = _interval_probs(gaps, epsilon / 2, n // 2)
    return interval_probs[0] + interval_probs[-1]
  assert tail(threshold) <= level < tail(.8 * threshold)
  wider = bounds.single_rank_error(level, min_gap=gap, epsilon=epsilon,
                                   length=10.0)
  assert wider == pytest.approx(threshold + 2 * math.log(10))


def test_numbers_of_the_rank_errors_of_trees():
  gap = math.exp(-20.5)
  for m, wanted in ((1, 47), (7, 741), (31, 1919)):
    known = dict(num_orders=m, min_gap=gap, epsilon=1.0)
    printed = bounds.recursive_rank_error(.05, adjacency=_ADDED, printed=True,
                                          **known)
    assert printed == pytest.approx(wanted, rel=.01)
    assert bounds.recursive_rank_error(
        .05, adjacency=_REPLACED, printed=True, **known) == 2 * printed
    corrected = bounds.recursive_rank_error(.05, adjacency=_ADDED, **known)
    assert corrected == pytest.approx(printed * {1: 1, 7: 3 / (
        math.log2(7) + 1), 31: 5 / (math.log2(31) + 1)}[m] + (
            0 if m == 1 else 2 * math.ceil(math.log2(m))))


def test_gaps_of_uniform_records_are_exact():
  """Gaps of uniform records are exact (Fact 6.2.2).

  Lemma 6.2.1 agrees for a density of 2 on half of the bounds.
  """
  for n, gap in ((5, .015), (50, 4e-4)):
    ordered = _uniform(1, 20_000, n)
    ends = np.pad(ordered, ((0, 0), (1, 1)), constant_values=(0, 1))
    share = np.mean(np.diff(ends).min(1) > gap)
    exact = bounds.uniform_gaps(gap, num_examples=n)
    assert .3 < exact < .7
    assert abs(share - exact) < 4 * math.sqrt(exact * (1 - exact) / 20_000)
    for wide in (1.0, 2.0):
      known = dict(num_examples=n, density_max=wide)
      printed = bounds.gaps(gap / 5, printed=True, **known)
      assert printed <= bounds.gaps(gap / 5, **known)
    assert bounds.gaps(gap, **known) == pytest.approx(
        bounds.uniform_gaps(2 * gap, num_examples=n))
  assert bounds.gaps(.3 / 2500, num_examples=50, density_max=1.0,
                     printed=True) == 0


def test_numbers_of_the_theorems():
  known = dict(num_examples=100_000, probs=(.5,), epsilon=1.0, printed=True)
  assert bounds.independent(.02, **known, **_UNIT) == pytest.approx(
      .027, rel=.01)
  assert _solved(bounds.independent, **_UNIT, **{
      **known, 'num_examples': 10_000, 'epsilon': .1}) == pytest.approx(
          .462, abs=1e-3)
  for n, epsilon, m, independent, recursive in (
      (10_000, .1, 10, 5.36, 9.32), (10_000, .1, 100, 60.9, 31.3),
      (100_000, 1., 10, .061, .107), (1_000_000, 1., 100, .076, .040)):
    known = dict(num_examples=n, probs=_orders(m), epsilon=epsilon, **_UNIT)
    error = _solved(bounds.independent, printed=True, **known)
    assert error == pytest.approx(independent, rel=.01)
    assert _solved(bounds.independent, **known) < error
    known['adjacency'] = _ADDED
    error = _solved(bounds.recursive, printed=True, **known)
    assert error == pytest.approx(recursive, rel=.01)
    assert _solved(bounds.recursive, **known) < error
    assert bounds.applies(error, num_examples=n, probs=_orders(m),
                          density_min=1.0) == (error < .5)


def test_trees_have_whole_levels_and_ranks_to_spare():
  """The corrected Theorem 6.2.5 equals its formula for ten quantile levels."""
  n, error, epsilon, depth = 3000, .3, 30.0, math.log2(20)
  probs = _orders(10)
  spread = 2 * 4 * depth / (epsilon / 2)
  wanted = 4 * n * math.sqrt(20) * math.exp(
      8.5 / (2 * spread) - n * error / (16 * spread))
  wanted += sum(math.exp(-error**2 * n / (8 * share))
                for p in probs for share in (p, 1 - p))
  failure = bounds.recursive(error, num_examples=n, probs=probs,
                             epsilon=epsilon,
                             adjacency=_REPLACED, **_UNIT)
  assert failure == pytest.approx(wanted) and 1e-12 < failure < .1


def test_epsilon_above_four_costs_more_than_is_printed():
  """Above epsilon 4 the printed sqrt(e) must be e^(epsilon / 8) (QE-09)."""
  for epsilon, ratio in ((4.0, 1.0), (12.0, math.e)):
    printed, corrected = (bounds.independent(
        240 / epsilon, num_examples=10, probs=(.5,), epsilon=epsilon,
        printed=printed, **_UNIT) for printed in (True, False))
    assert printed < 1e-5
    assert corrected == pytest.approx(ratio * printed, rel=1e-6)


def test_the_display_in_the_proof_for_trees_has_sixteen():
  """The proof's display for trees needs 16, not 32 (QE-18)."""
  n, m, error, epsilon = 10_000, 7, .5, 8.0
  known = dict(density_min=.5, density_max=1.5)
  stated = bounds.recursive(error, num_examples=n, probs=_orders(m),
                            epsilon=epsilon, adjacency=_ADDED, printed=True,
                            **known)
  exponent = epsilon * n * error * .5 / math.log2(2 * m)**2
  gaps = np.geomspace(1e-40, 1, 4001)

  def least(divisor):
    return np.min(math.e * n**2 * m / gaps * math.exp(-exponent / divisor)
                  + 8 * 1.5 * gaps)
  assert least(16) == pytest.approx(stated, rel=1e-3)
  assert least(32) > 1e6 * stated


@pytest.mark.parametrize('n', [2, 7, 9, 1000])
def test_where_the_proofs_lack_ranks_nothing_is_stated(n):
  """Bounds are 1 below n error = 8, where the proofs lack ranks (QE-19)."""
  for scaled in (4, 5.5, 7.99, 8, 11.9, 12, 100):
    buffer = math.floor(scaled / 4)
    assert (buffer - 1 >= buffer / 2) == (scaled >= 8)
  for epsilon in (.1, 4., 100.):
    for printed in (True, False):
      assert bounds.independent(
          min(7.99 / n, 1.0), num_examples=n, probs=(.5,), epsilon=epsilon,
          printed=printed, **_UNIT) == 1


def test_lower_bounds_tend_to_one_half():
  """Lower bounds with many quantile levels tend to 1/2, not to 1 (QE-25)."""
  failures = [bounds.least_failure(.25, num_examples=1000, rate=1 / (2 * m))
              for m in (1, 100, 10**4, 10**6)]
  assert np.all(np.diff(failures) > 0) and failures[-1] < .5
  assert failures[-1] == pytest.approx(.5, abs=1e-3)


def _draws(mechanism_, data, seed):
  """Returns answers [R, m] on data sets [R, n]."""
  each = [records.padded(one, 0.0, 1.0) for one in data]
  batch = each[0]._replace(ordered=np.stack([one.ordered for one in each]))
  with jax.enable_x64(True):
    return np.asarray(mechanism.repeated(mechanism_.draw)(
        jax.random.split(jax.random.key(seed), len(data)), batch,
        mechanism_.parameters))


@pytest.mark.slow
@pytest.mark.parametrize('epsilon', [20.0, 2.0])
def test_mechanisms_miss_no_more_often_than_the_theorems_allow(epsilon):
  """Mechanisms miss no more often than Theorems 6.2.3 and 6.2.5 allow.

  The theorems are not vacuous at the first epsilon only.
  """
  n, data = 1000, _uniform(2, 300, 1000)
  probs, error = (.4, .5, .6), .28
  for kind, bound in (
      (functools.partial(IndependentQuantiles, cost='rounded'),
       bounds.independent),
      (functools.partial(RecursiveQuantiles, cost='rounded', budget='printed'),
       functools.partial(bounds.recursive, adjacency=_ADDED))):
    answers = _draws(kind(probs=probs, epsilon=epsilon, lower=0.0, upper=1.0,
                          adjacency=_ADDED), data, 3)
    misses = np.max(np.abs(answers - probs), 1) > error
    allowed = bound(error, num_examples=n, probs=probs, epsilon=epsilon,
                    **_UNIT)
    assert (allowed < .3) == (epsilon > 10)
    _at_most(misses, allowed)
    # Errors above .01, far below the bound's .28, are common.
    assert np.mean(np.max(np.abs(answers - probs), 1) > .01) > .5


@pytest.mark.parametrize('n, epsilon, floor', [(5, .5, .143), (10, .2, .184)])
def test_lower_bounds_are_below_the_failures_of_one_order(n, epsilon, floor):
  printed = bounds.least_failure(.25, num_examples=n, rate=epsilon / 2)
  assert printed == pytest.approx(floor, abs=5e-4)
  sharper = bounds.least_failure(.25, num_examples=n, rate=epsilon / 2,
                                 prob=.5)
  misses = []
  for ordered in _uniform(4, 500, n):
    ends = np.concatenate([[0], ordered, [1]])
    interval_probs = _interval_probs(np.diff(ends), epsilon / 2, n * .5)
    density = interval_probs / np.diff(ends)
    inner = np.diff(np.clip(ends, .25, .75))
    misses.append(1 - np.sum(density * inner))
  # The bound holds in every data set, not only on average.
  assert printed < sharper <= min(misses)
  assert np.mean(misses) == pytest.approx(.45, abs=.03)


def test_a_lower_bound_knows_its_order():
  """A lower bound depends on its quantile level, checked by hand at 0.9."""
  n, rate = 40, .1
  far = 1 / (1 + math.exp(.8 * n * rate))
  floor = bounds.least_failure(.25, num_examples=n, rate=rate, prob=.9)
  assert far / 3 < floor <= far
  assert bounds.least_failure(.25, num_examples=n, rate=rate) < floor


@pytest.mark.parametrize('n, printed, corrected', [
    (100, .67, .165), (200, .079, 5.1e-3), (400, 1.2e-3, 7.7e-6)])
def test_noise_on_zeros(n, printed, corrected):
  known = dict(num_examples=n, epsilon=.5)
  assert bounds.dirac_risk(printed=True, **known) == pytest.approx(
      printed, rel=.01)
  risk = bounds.dirac_risk(**known)
  assert risk == pytest.approx(corrected, rel=.01)
  # This is the best amplitude of the corrected bound, to first order.
  assert risk <= 1.2 * min(bounds.dirac_risk(
      amplitude=amplitude, **known) for amplitude in np.geomspace(1e-9, 1, 99))
  # This is the printed amplitude, by the risk of that experiment.
  amplitude = math.exp(-n * .5 / 48)
  assert bounds.dirac_risk(amplitude=amplitude, **known) < (
      bounds.dirac_risk(printed=True, **known))


def test_squared_errors_have_their_numbers():
  for epsilon, wanted in ((.01, 8.25e-4), (.03, 1.14e-4), (.1, 3.3e-5),
                          (1., 2.51e-5)):
    mse = bounds.single_mse(num_examples=10_000, prob=.5, rate=epsilon / 2,
                            density=1.0)
    assert mse == pytest.approx(wanted, rel=3e-3)
    assert bounds.single_mse(num_examples=10_000, prob=.5, rate=epsilon / 2,
                             density=2.0) == pytest.approx(mse / 4)


def _joint_volume(ordered, probs, rate, error):
  """Returns P(JointExp misses by more) for two quantile levels, on a grid."""
  grid = (np.arange(400) + .5) / 400
  ranks = np.searchsorted(ordered, grid)
  n = ordered.size
  first, second = np.meshgrid(np.arange(400), np.arange(400), indexing='ij')
  cost = (np.abs(ranks[first] - n * probs[0])
          + np.abs(ranks[second] - ranks[first] - n * (probs[1] - probs[0]))
          + np.abs(n - ranks[second] - n * (1 - probs[1])))
  weights = np.where(first <= second, np.exp(-rate * cost), 0)
  missed = np.maximum(np.abs(grid[first] - probs[0]),
                      np.abs(grid[second] - probs[1])) > error
  return np.sum(weights * missed) / np.sum(weights)


@pytest.mark.parametrize('printed, num_examples', [(False, 100_000),
                                                   (True, 1_000_000)])
def test_bounds_of_joint_quantiles_do_not_depend_on_the_unit(printed,
                                                             num_examples):
  at = lambda unit: consistency.joint(
      .3 * unit, num_examples=num_examples, probs=(1 / 3, 2 / 3), rate=.01,
      density_min=.8 / unit, density_max=1.3 / unit, length=unit,
      printed=printed)
  assert at(10.) == pytest.approx(at(1.), rel=1e-9) and at(1.) < .9


@pytest.mark.parametrize('n', [200, 200_000])
def test_joint_quantiles_are_consistent(n):
  """Joint quantiles are consistent; Theorem 6.2.15 needs the larger n."""
  probs, error = (1 / 3, 2 / 3), .3
  rate = 1 / 4
  known = dict(num_examples=n, probs=probs, rate=rate, **_UNIT)
  printed = consistency.joint(error, printed=True, **known)
  corrected = consistency.joint(error, **known)
  assert corrected <= printed
  assert (corrected < .01) == (n == 200_000)
  missed = np.mean([_joint_volume(ordered, probs, rate / 10, .1)
                    for ordered in _uniform(5, 10, n)])
  at = consistency.joint(.1, **{**known, 'rate': rate / 10})
  assert missed <= at


def test_the_theorem_on_joint_quantiles_written_out():
  n, m, error, rate = 1_000_000, 2, .3, 1.7e-4
  probs = (1 / 3, 2 / 3)
  known = dict(num_examples=n, probs=probs, rate=rate, **_UNIT)

  def rest(radius):
    failure = sum(math.exp(-n * radius**2 / (8 * share))
                  for p in probs for share in (p, 1 - p))
    failure += m * math.exp(-n * 2 * radius / 3)
    return failure + 2 * m * math.exp(-n / 8 * (error - radius))
  wanted = (2 / error)**m * 2 * (4 * 3 + .5)**m * math.exp(
      -4 * rate * error * n / 16)
  assert wanted > .01
  assert consistency.joint(error, printed=True, **known) == pytest.approx(
      wanted + rest(error / 50))
  ours = min(rest(radius) + (1 / (2 * radius))**m * math.exp(
      -rate * n * (error - radius - 8 * m * radius))
             for radius in np.geomspace(error / 200, .99 * error, 60)[:30])
  assert 1e-12 < ours
  assert consistency.joint(error, **known) == pytest.approx(ours)


def test_counts_of_an_interval_and_quantiles_of_a_sample():
  """Lemmas 6.2.13 and 6.2.14 bound simulated counts and quantiles."""
  n, length, error = 800, .0075, .1
  ordered = _uniform(6, 4000, n)
  counts = np.sum(ordered < length, 1)
  for hits, bound in (
      (counts >= 2 * n * length, consistency.crowded(
          length, num_examples=n, density_max=1.0)),
      (counts <= n * length / 2, consistency.deserted(
          length, num_examples=n, density_min=1.0)),
      (np.abs(ordered[:, math.ceil(n * .3) - 1] - .3) > error,
       consistency.order_statistic(error, num_examples=n, prob=.3,
                                   density_min=1.0))):
    assert bound < .6
    _at_most(hits, bound)
  assert consistency.order_statistic(.001, num_examples=n, prob=.3,
                                     density_min=1.0) == 1
