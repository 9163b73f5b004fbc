"""Tests that estimators keep their guarantee, for records of any kind.

Costs are those of events; the estimators are those that studies compare.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.theory.parametric import coinpress
from dpjax.theory.parametric import densities
from dpjax.theory.parametric import exponential_families as families
from dpjax.theory.parametric import likelihood
from dpjax.theory.parametric import likelihood_study
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import normal_intervals
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric import proportions
from dpjax.theory.parametric import support_ranks
from dpjax.theory.parametric import supports
from dpjax.theory.parametric import truncated_means
from experiments.methods.statistics import batch_descents
from tests import coupling

_MODEL = families.Model(dimension=2, radius=1.0)
_GUARANTEES = [
    notions.PureDP(epsilon=0.3), notions.ApproxDP(epsilon=0.3, delta=1e-4),
    notions.ApproxDP(epsilon=2.0, delta=0.0), notions.ZCDP(rho=0.02),
    notions.KullbackLeiblerPrivacy(level=0.02),
    notions.TotalVariationPrivacy(level=0.15)]


def _estimators(guarantee):
  """Yields all estimators that studies make for a guarantee."""
  known = dict(num_examples=50, guarantee=guarantee)
  yield from proportions.estimators(**known)
  yield from supports.estimators(**known)
  yield from densities.histograms(**known, dimension=1)
  yield from likelihood_study.estimators(_MODEL, **known).values()
  normal = dict(known, dimension=2, radius=2.0, sigma=1.0)
  if normal_means.budget(guarantee):
    yield normal_means.clipped_once(**normal, clip=2.0)
    yield coinpress.printed(**normal)
  for noise in truncated_means.NOISES:
    try:
      yield truncated_means.TruncatedMean(
          **known, dimension=2, threshold=1.5, noise=noise)
    except ValueError:
      pass  # No noise of this kind keeps the guarantee.


def _spent(event, guarantee):
  """Returns the cost of an event over the cost that the guarantee allows."""
  if isinstance(guarantee, notions.ApproxDP) and guarantee.delta:
    return accounting.epsilon(
        event, delta=guarantee.delta,
        adjacency=Adjacency.REPLACE_ONE) / guarantee.epsilon
  epsilon, rho = coupling.claim(event, Adjacency.REPLACE_ONE)
  assert not (epsilon and rho)
  match guarantee:
    case notions.PureDP(epsilon=most) | notions.ApproxDP(epsilon=most):
      assert not rho
      return epsilon / most
    case notions.ZCDP(rho=most) | notions.KullbackLeiblerPrivacy(level=most):
      return (rho or epsilon * math.tanh(epsilon / 2)) / most
    case notions.TotalVariationPrivacy(level=most):
      assert not epsilon
      return special.erf(math.sqrt(rho) / 2) / most


@pytest.mark.sound
@pytest.mark.parametrize('guarantee', _GUARANTEES, ids=str)
def test_estimators_cost_their_guarantee_and_no_more(guarantee):
  shares = {}
  for estimator in _estimators(guarantee):
    shares[repr(estimator)] = _spent(estimator.event, guarantee)
  assert len(shares) > 3
  assert max(shares.values()) <= 1 + 2e-3, max(shares, key=shares.get)
  # A choice by ranks has a bounded range, so its rho is less than claimed.
  assert min(shares.values()) > 0.9, min(shares, key=shares.get)


_LEVEL = notions.PureDP(epsilon=1.0)
_CASES = {
    'truncated mean': lambda: truncated_means.TruncatedMean(
        num_examples=4, dimension=2, threshold=1.5, guarantee=_LEVEL,
        noise='l2'),
    'normal mean': lambda: normal_means.clipped_once(
        num_examples=4, dimension=2, radius=2.0, sigma=1.0, guarantee=_LEVEL,
        clip=1.5),
    'means': lambda: likelihood.SufficientStatistics(
        model=_MODEL, num_examples=4, guarantee=_LEVEL),
    'batches': lambda: batch_descents.BatchDescent(
        model=_MODEL, num_examples=4, rho=1.0, num_steps=2, batch_size=2),
    'share': lambda: noisy_shares.LaplaceShare(num_examples=4, epsilon=1.0),
    'table': lambda: noisy_shares.MinimaxShare(num_examples=4, epsilon=1.0),
    'mean support': lambda: supports.MeanSupport(
        num_examples=4, guarantee=_LEVEL),
    'ranks': lambda: support_ranks.RankedSupport(num_examples=4, epsilon=1.0)}


@pytest.mark.sound
@pytest.mark.parametrize('name', _CASES)
def test_statistics_of_any_records_are_those_of_bounded_ones(name):
  """Statistics are finite for any records, and missing values count as 0."""
  estimator = _CASES[name]()
  plane = hasattr(estimator, 'dimension') or hasattr(estimator, 'model')
  data = np.array([[0.2, 0.9], [1.0, 0.0], [0.4, 0.4], [0.0, 1.0]])
  with jax.enable_x64(True):
    def seen(record):
      rows = data if plane else data[:, 0]
      rows = np.concatenate([np.asarray(record, float)[None], rows[1:]])
      return np.asarray(estimator.statistic(jnp.asarray(rows)))
    whole = (lambda value: [value, value]) if plane else lambda value: value
    none = seen(whole(0.0))
    np.testing.assert_array_equal(seen(whole(np.nan)), none)
    for value in (np.inf, -np.inf, 1e300, -1e300):
      statistic = seen(whole(value))
      assert np.isfinite(statistic).all()
      if isinstance(estimator, truncated_means.TruncatedMean):
        assert np.linalg.norm(statistic - none) <= 1.5 / 4 + 1e-12
      elif not isinstance(estimator, normal_means.NormalMean):
        assert np.abs(statistic - none).max() <= 1
    if isinstance(estimator, (truncated_means.TruncatedMean,
                              normal_means.NormalMean)):
      for half in ([np.nan, 5.0], [5.0, np.inf], [-np.inf, np.nan]):
        np.testing.assert_array_equal(seen(half), none)


def _failures(estimator, radius, alpha):
  """Yields half-widths of all candidate plans, by their clip and step."""
  pure = isinstance(estimator.guarantee, notions.PureDP)
  epsilon = normal_intervals.centre_epsilon(estimator.guarantee,
                                            estimator.share)
  for distance in normal_intervals._REACHES:
    margin = estimator.clip / estimator.sigma - distance
    if np.abs(normal_intervals._MARGINS - margin).min() < 1e-9:
      missed = normal_intervals.miss_bound(
          distance, num_examples=estimator.num_examples,
          radius=radius / estimator.sigma,
          step=estimator.step / estimator.sigma, epsilon=epsilon)
      for part in normal_intervals._CLIPPED:
        left = alpha - missed - 2 * part * alpha
        if left > 0 and missed < alpha / 2:
          shift = normal_intervals.clip_shift(
              np.array(margin), np.array(part * alpha),
              num_examples=estimator.num_examples)
          normal = estimator.sigma / math.sqrt(estimator.num_examples)
          noise = normal_intervals._quantile(normal, estimator.scale, 1 - left,
                                             estimator.guarantee)
          rough = np.hypot(
              special.ndtri(1 - left / 2) * normal,
              estimator.scale *
              (-math.log(left) if pure else special.ndtri(1 - left / 2)))
          yield estimator.sigma * shift + rough, estimator.sigma * shift + noise


@pytest.mark.every(1)
@pytest.mark.parametrize('guarantee', [
    pytest.param(_LEVEL, marks=pytest.mark.slow), notions.ZCDP(rho=0.3)],
                         ids=str)
def test_failures_of_an_interval_add_up_to_all_that_is_allowed(guarantee):
  """Centres, clipping, and noise with sampling together use all of the miss."""
  estimator = normal_intervals.tuned(num_examples=400, radius=30.0, sigma=2.0,
                                     guarantee=guarantee, confidence=0.9)
  assert estimator.finder == 'median'
  _, half = min(_failures(estimator, 30.0, 1 - 0.9))
  assert estimator.half == pytest.approx(float(half), rel=1e-6)
