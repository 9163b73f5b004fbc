"""Tests bands, tests and curves against formulas, for invented releases."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import hosmer_lemeshow
from dpjax.stats import roc_bands
from dpjax.stats import roc_curves as roc
from dpjax.stats.density_methods import api as density_api
from dpjax.stats.density_methods import mechanism as density_mechanism
from dpjax.stats.density_methods.estimate import DensityEstimate
from dpjax.stats.ecdf_methods import api as ecdf_api
from dpjax.stats.ecdf_methods import grids
from dpjax.stats.ecdf_methods import mechanism as ecdf_mechanism
from dpjax.stats.quantile_methods import api as quantiles_api
from dpjax.stats.quantile_methods import mechanism as quantile_mechanism

ADD, REPLACE = Adjacency
KEY = jax.random.key(0)
PREDICTIONS = (np.arange(8) + 0.5) / 8
# These ranks fall at every other bin.
RANKS = np.array([[4.0, 3.0, 9.0, 7.0, 14.0, 11.0, 18.0, 15.0],
                  [1.0, -2.0, 4.0, 2.0, 6.0, 3.0, 17.0, 16.0]])
OTHERS = np.cumsum(np.arange(1.0, 17.0).reshape(2, 8) % 5, 1)


def constant(key, counts, parameters):
  """A mechanism that releases its parameters."""
  del key, counts
  return parameters


def shaken(key, counts, parameters):
  """A mechanism that releases ranks with noise that rises with the bins."""
  return jnp.cumsum(counts, 1) + jnp.cumsum(
      parameters * jax.random.uniform(key, counts.shape, jnp.float64), 1)


def groups(ranks, ends):
  """Returns counts of negatives and positives [2, Q] between ends."""
  return np.diff(np.pad(ranks, ((0, 0), (1, 0)))[:, ends])


def test_p_values_count_the_release_among_its_draws():
  """P-values count ties as larger, and are at least 1 / (B + 1)."""
  with jax.enable_x64(True):
    test = hosmer_lemeshow._test(constant, 4, False, 19)
    same, larger = (jax.tree.map(np.asarray, test(
        KEY, ranks, PREDICTIONS, OTHERS, np.float64(1)))
                    for ranks in (OTHERS, 50 * OTHERS))
  assert np.unique(same.draws).size == 1 and same.p_value == 1
  np.testing.assert_array_equal(same.draws, same.statistic)
  assert larger.statistic > larger.draws.max() and larger.p_value == 1 / 20


@pytest.mark.every(2)
def test_calibration_is_off_by_what_its_draws_miss():
  """Half-widths are how far the draws miss the share that they come from."""
  for ranks in (RANKS, np.tile(np.array([[0.1], [0.2]]), 8)):
    with jax.enable_x64(True):
      calibration = jax.tree.map(np.asarray, hosmer_lemeshow._calibration(
          constant, 3, 'records', 20)(KEY, ranks, PREDICTIONS, OTHERS,
                                      np.float64(0.9)))
      ends = np.asarray(hosmer_lemeshow.table(
          ranks, PREDICTIONS, num_groups=3).ends)
    share = lambda of: groups(of, ends)[1] / np.maximum(
        groups(of, ends).sum(0), 1)
    rising = np.maximum.accumulate(np.maximum(ranks, 0), 1)
    half = np.abs(share(OTHERS) - share(rising))
    value, low, high = calibration.observed
    np.testing.assert_allclose(value, share(ranks))
    np.testing.assert_allclose(low, np.clip(value - half, 0, 1), atol=1e-12)
    np.testing.assert_allclose(high, np.clip(value + half, 0, 1), atol=1e-12)
    size = groups(ranks, ends).sum(0)
    np.testing.assert_allclose(calibration.records, size)
    expected = np.diff(np.append(0, np.cumsum(np.diff(
        ranks.sum(0), prepend=0) * PREDICTIONS))[ends])
    np.testing.assert_allclose(calibration.predicted,
                               expected / np.maximum(size, 1))


def test_bands_hold_so_many_draws_as_a_whole():
  fprs, start = np.array([0.2, 0.5, 0.8]), np.maximum.accumulate(RANKS, 1)
  thresholds = np.arange(8.0)
  parameters = np.float64(3)
  with jax.enable_x64(True):
    bands = jax.tree.map(np.asarray, roc_bands._bands(
        shaken, 'high', 'records', 60)(KEY, RANKS, thresholds, fprs,
                                       np.float64(0.8), parameters))

    @jax.jit
    def drawn_again():
      draws = roc_bands.redrawn(shaken, 'records', 60)(
          KEY, roc_bands.cells(jnp.asarray(RANKS)), parameters)
      curves = [roc.of_ranks(ranks, thresholds)
                for ranks in (RANKS, start, draws)]
      return [(roc.tpr_at(curve, fprs), curve.auc) for curve in curves]
    rates, areas = zip(*jax.tree.map(np.asarray, drawn_again()), strict=True)
  released, origin, drawn = rates
  misses = drawn - origin
  size = np.sqrt(np.mean(misses**2, 0))
  factor = np.quantile(np.max(np.abs(misses) / size, 1), 0.8)
  np.testing.assert_allclose(bands.tpr.value, released)
  np.testing.assert_allclose(bands.tpr.low,
                             np.clip(released - factor * size, 0, 1))
  np.testing.assert_allclose(bands.tpr.high,
                             np.clip(released + factor * size, 0, 1))
  half = np.quantile(np.abs(areas[2] - areas[1]), 0.8)
  np.testing.assert_allclose(bands.auc, [
      areas[0], np.clip(areas[0] - half, 0, 1),
      np.clip(areas[0] + half, 0, 1)])
  # Eight of ten draws are within the band at all rates together.
  within = np.all(np.abs(misses) <= factor * size * (1 + 1e-12), 1)
  assert np.mean(within) == pytest.approx(0.8, abs=0.02)


def answers(patch, adjacency, data):
  """Returns what callers see of the data if every release is fixed."""
  asked = []

  def recorded(plan, *args, **kwargs):
    asked.append((args, kwargs))
    return plan(*args, **kwargs)
  for api in (quantiles_api, ecdf_api, density_api):
    patch.setattr(api, 'plan', functools.partial(recorded, api.plan))
  for kind, released in (
      (quantile_mechanism.QuantileMechanism, np.array([0.25, 0.75])),
      (ecdf_mechanism.EcdfMechanism, np.arange(1.0, 5.0)),
      (density_mechanism.DensityMechanism, DensityEstimate(
          kind='histogram', coefficients=np.ones(3)))):
    patch.setattr(kind, 'estimate',
                  lambda mechanism, key, data, released=released: released)
  public = dict(adjacency=adjacency, epsilon=0.5)
  quantiles = quantiles_api.quantiles(KEY, data, [0.2, 0.4], lower=0.0,
                                      upper=1.0, **public)
  curve = ecdf_api.ecdf(KEY, data, grids.Grid(
      lower=0.0, upper=1.0, num_thresholds=4), **public)
  density = density_api.density(
      KEY, data, lower=0.0, upper=1.0, **public,
      expected_records=900 if adjacency is ADD else None)
  return [asked, quantiles.tolist(), curve.cdf.tolist(), curve.total,
          curve.counts().tolist(), curve.quantiles([0.3, 0.9]).tolist(),
          curve.stddevs.tolist(), dataclasses.asdict(curve.mechanism),
          repr(density)]


def test_callers_are_told_what_is_released_and_no_more(monkeypatch):
  """Callers see only the release, and n only if it is public."""
  one, other, fewer = (np.full(40, 0.9), np.linspace(0, 1, 40),
                       np.linspace(0, 1, 7))
  for adjacency in Adjacency:
    released = []
    for data in (one, other, fewer):
      with monkeypatch.context() as patch:
        released.append(answers(patch, adjacency, data))
    assert released[0] == released[1]
    assert (released[0] == released[2]) == (adjacency is ADD)
