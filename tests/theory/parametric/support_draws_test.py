"""Tests draws of supports, and the estimators offered for a guarantee."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import notions
from dpjax.theory.parametric import normal_bounds
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric import support_bounds
from dpjax.theory.parametric import support_ranks
from dpjax.theory.parametric import supports
from experiments.methods.statistics import doubled_means
from experiments.methods.statistics import support_queries
from tests import coupling

PURE, ZCDP = notions.PureDP(epsilon=0.9), notions.ZCDP(rho=0.2)
TV = notions.TotalVariationPrivacy(level=0.3)


def _cdf_parts(estimator, data):
  """Returns the released cdf, and mass and place of the lowest end.

  Weights are by ranks: e^(-epsilon / 2 |records up to t - rank|), in t or in ln
  t.
  """
  records = np.sort(np.clip(np.nan_to_num(data), 0, 1))
  rank = estimator.num_examples - estimator.records_above
  factor = (estimator.num_examples + 1) / (rank + 0.5)
  lowest = 0.0 if estimator.printed else 1 / (32 * max(
      1.0, estimator.num_examples * estimator.epsilon))
  ends = np.unique(np.concatenate([[lowest, 1.0], records]))
  ends = ends[ends >= lowest]
  middle = (ends[1:] + ends[:-1]) / 2
  ranks = np.sum(records <= middle[:, None], 1)
  weights = np.exp(-estimator.epsilon / 2 * np.abs(ranks - rank))
  lengths = np.diff(ends) if estimator.printed else np.diff(np.log(ends))
  # All values below the lowest end are one candidate, with its best rank.
  below = 0.0 if estimator.printed else np.exp(-estimator.epsilon / 2 * max(
      0, rank - np.sum(records <= lowest)))
  total = below + np.sum(weights * lengths)
  sums = np.concatenate([[0.0], np.cumsum(weights * lengths)])

  def cdf(released):
    t = np.maximum(np.asarray(released) / factor, 1e-300)
    place = t if estimator.printed else np.log(np.maximum(t, lowest))
    known = ends if estimator.printed else np.log(ends)
    return (below + np.interp(place, known, sums)) / total * (t >= lowest)
  return cdf, below / total, min(1.0, factor * lowest)


@pytest.mark.every(5)
@pytest.mark.parametrize('fields', [{}, {'printed': True}, {'above': 2}],
                         ids=str)
def test_releases_have_the_law_of_ranks(fields):
  """Releases have the cdf of ranks by Kolmogorov-Smirnov; alarms 1e-6 each."""
  rng = np.random.default_rng(3)
  for data in (0.4 * rng.uniform(size=9), np.array(
      [0, 0, 1e-4, np.nan, 0.01, 0.02, 0.2, 7.0, -3.0])):
    estimator = support_ranks.RankedSupport(num_examples=9, epsilon=1.1,
                                            **fields)
    with jax.enable_x64(True):
      ordered = np.asarray(estimator.statistic(jnp.asarray(data)))
    np.testing.assert_array_equal(ordered, np.sort(np.clip(
        np.nan_to_num(data), 0, 1)))
    estimates = np.asarray(estimator.estimates(jax.random.key(1), np.tile(
        ordered, (4000, 1))))[:, 0]
    cdf, atom, lowest = _cdf_parts(estimator, data)
    assert estimates.min() >= lowest * (1 - 1e-9) and estimates.max() <= 1
    at_end = np.mean(estimates <= lowest * (1 + 1e-9))
    if not estimator.printed:
      assert abs(at_end - atom) < 4.9 * math.sqrt(atom / 4000) + 1e-3
    # There are steps at the lowest end, and at 1, where larger values go.
    inside = np.sort(
        estimates[(estimates > lowest * (1 + 1e-9)) & (estimates < 1)])
    seen = np.searchsorted(np.sort(estimates), inside,
                           side='right') / estimates.size
    assert np.abs(seen - cdf(inside)).max() < 2.7 / math.sqrt(4000)
    alone = float(estimator.release(jax.random.key(5), jnp.asarray(data))[0])
    assert lowest * (1 - 1e-9) <= alone <= 1


def test_ranks_leave_room_and_name_their_numbers():
  estimator = support_ranks.RankedSupport(num_examples=500, epsilon=0.4)
  numbers = estimator.parameters
  assert numbers.rate == 0.2 and numbers.rank == 500 - estimator.records_above
  assert numbers.factor == pytest.approx(501 / (500.5 - estimator.records_above))
  assert math.exp(numbers.log_lowest) == pytest.approx(1 / (32 * 200))
  # Almost without noise it is the mean of the record at the rank.
  sharp = support_ranks.RankedSupport(num_examples=500, epsilon=200.0,
                                      above=100)
  data = (np.arange(500) + 0.5) / 1000
  assert float(sharp.release(jax.random.key(0), jnp.asarray(data))[0]) == (
      pytest.approx(0.5, rel=0.01))


class _Exact:
  """An oracle that answers statistical queries without noise."""
  num_queries, tolerance = 7, 0.02

  def init(self, key, data):
    del key
    return data, 0

  def ask(self, state, query):
    data, asked = state
    return (data, asked + 1), jnp.mean(query(data))


@pytest.mark.every(5)
@pytest.mark.parametrize('theta', [0.1, 0.37, 0.8, 1.0])
def test_bisection_encloses_the_end(theta):
  data = jnp.asarray(theta * (np.arange(4000) + 0.5) / 4000, jnp.float32)
  interval = support_queries.by_queries(_Exact(), None, data)
  assert 0 <= interval.low <= theta <= interval.high <= 1
  assert interval.value - interval.low == pytest.approx(2**-8)
  # Errors are halvings, and twice the tolerance.
  assert abs(interval.value - theta) <= 2 * 0.02 * theta + 2**-8
  assert interval.high == pytest.approx(min(1, (interval.value + 2**-8) / 0.96))
  blunt = _Exact()
  blunt.tolerance = 0.5
  assert support_queries.by_queries(blunt, None, data).high == 1
  assert support_queries.by_one_query(jnp.float32(theta / 2)) == (
      pytest.approx(theta))


def test_a_quantile_near_the_top_leaves_room_for_noise():
  estimator = doubled_means.top_quantile(num_examples=1000, epsilon=0.5)
  assert estimator.prob == 1 - math.ceil(6 * math.log(1000) / 0.5) / 1000
  assert (estimator.num_examples, estimator.epsilon) == (1000, 0.5)
  assert doubled_means.top_quantile(num_examples=4, epsilon=0.1).prob == 0.5
  data = jnp.linspace(0, 0.6, 1000)
  estimate = float(estimator.release(jax.random.key(0), data)) / estimator.prob
  assert estimate == pytest.approx(0.6, abs=0.02)


@pytest.mark.parametrize('guarantee, kinds', [
    (PURE, ['MeanSupport', 'RankedSupport']),
    (notions.ApproxDP(epsilon=0.9, delta=1e-6),
     ['MeanSupport', 'RankedSupport']),
    (ZCDP, ['MeanSupport', 'RankedSupport']),
    (notions.KullbackLeiblerPrivacy(level=0.2),
     ['MeanSupport', 'RankedSupport']),
    (TV, []), (notions.PureDP(epsilon=0.0), []), (notions.ZCDP(rho=0.0), [])])
def test_what_is_offered_keeps_the_guarantee(guarantee, kinds):
  estimators = supports.estimators(num_examples=60, guarantee=guarantee)
  assert [type(each).__name__ for each in estimators] == kinds
  wanted = ((0.0, 0.2) if isinstance(
      guarantee, (notions.ZCDP, notions.KullbackLeiblerPrivacy)) else (0.9, 0))
  for each in estimators:
    claimed = coupling.claim(each.event, each.adjacency)
    # An exponential mechanism costs slightly less than epsilon^2 / 8.
    assert np.less_equal(claimed, np.array(wanted) * (1 + 1e-9)).all()
    assert max(claimed) > 0.9 * max(wanted)
  alone = supports.estimators(num_examples=1, guarantee=guarantee)
  assert len(alone) == min(len(kinds), 1)


def test_upper_bounds_of_supports_are_those_of_their_estimators():
  known = dict(num_examples=60)
  study, absolute = supports.STUDY, supports.ABSOLUTE
  mean, ranks = supports.estimators(**known, guarantee=PURE)
  upper = study.upper(**known, guarantee=PURE)
  assert [(each.value, each.exact) for each in upper] == [
      (mean.population_risk(1.0), False), (ranks.worst_risk(), False)]
  assert [each.value for each in absolute.upper(**known, guarantee=PURE)] == [
      math.sqrt(each.value) for each in upper]
  for each, loss in ((study, lambda n: support_bounds.non_private(n)), (
      absolute, lambda n: support_bounds.absolute_non_private(n))):
    free, = each.upper(**known, guarantee=None)
    subset, = each.upper(**known, guarantee=TV)
    assert free.exact and subset.exact
    assert (free.value, subset.value) == (loss(60), loss(18))
    assert each.non_private(**known) == loss(60)
    assert each.upper(num_examples=3, guarantee=TV) == ()
  # The largest of 18 records is enlarged, by its distribution.
  estimator = doubled_means.subsampled(num_examples=60, level=0.3)
  beta = stats.beta(18, 1)
  kept = float(estimator.estimate(jnp.asarray([0.3, 0.5])))
  assert kept == pytest.approx(0.5 * 20 / 19)
  assert beta.expect(lambda x: (20 / 19 * x - 1)**2) == pytest.approx(
      support_bounds.non_private(18), rel=1e-6)
  assert float(doubled_means.subsampled(num_examples=60, level=0.3, factor=2.0)
               .estimate(jnp.asarray([0.3]))) == pytest.approx(0.6)


@pytest.mark.every(3)
@pytest.mark.parametrize('guarantee', [PURE, ZCDP])
def test_bounds_called_exact_are_risks_and_others_are_not_exceeded(guarantee):
  """Exact bounds are risks at the worst mean; others are not exceeded."""
  known = dict(num_examples=40, dimension=2, radius=1.5, sigma=1.0,
               guarantee=guarantee)
  once, rounds = normal_bounds.upper(**known)
  assert (once.name, once.exact) == ('clipped mean', True)
  assert (rounds.name, rounds.exact) == ('rounds', False)
  estimator = normal_means.clipped_once(**known)
  distances = np.linspace(0, 1.5, 31)
  worst = distances[np.argmax(estimator.risk_at(distances))]
  assert np.max(estimator.risk_at(distances)) <= once.value * (1 + 1e-6)
  estimates = np.asarray(estimator.simulated(
      jax.random.key(0), np.array([worst, 0.0]), num_repetitions=3000))
  errors = np.square(estimates - [worst, 0.0]).sum(1)
  assert errors.mean() == pytest.approx(once.value, abs=4 * (
      errors.std() / 3000**0.5))
  free, = normal_bounds.upper(**{**known, 'guarantee': None})
  variance = 2 / 40
  assert free.exact and free.value == pytest.approx(
      variance * 1.5**2 / (variance + 1.5**2))
  assert free.value == normal_bounds.non_private(**known)
  assert normal_bounds.upper(**{**known, 'guarantee': notions.ZCDP(
      rho=0.0)}) == ()
