"""Tests post-processing: nearest points by inequalities and other libraries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import isotonic

from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import post_processing
from experiments.methods.statistics import compared_densities

_SIZE = 7
_HEIGHTS = np.random.default_rng(0).normal(1, 1.5, (40, _SIZE))


def _processed(post, noise=1.0):
  with jax.enable_x64(True):
    return np.asarray(jax.jit(
        lambda heights: post_processing.processed(heights, post, noise))(
            jnp.asarray(_HEIGHTS)))


@pytest.mark.parametrize('post', ['clip', 'simplex', 'increasing',
                                  'decreasing', 'unimodal'])
def test_results_are_densities(post):
  heights = _processed(post)
  assert heights.shape == _HEIGHTS.shape
  assert heights.min() >= 0
  np.testing.assert_allclose(heights.mean(-1), 1, atol=1e-12)
  falls, rises = np.diff(heights) < -1e-12, np.diff(heights) > 1e-12
  if post == 'increasing':
    assert not falls.any()
  if post == 'decreasing':
    assert not rises.any()
  if post == 'unimodal':
    # Nothing rises after it fell.
    assert not (np.maximum.accumulate(falls, 1) & rises).any()
    assert (falls.any(1) & rises.any(1)).any()


def _members(post, count=4000):
  """Returns random and extreme densities of the set that `post` projects on."""
  rng = np.random.default_rng(1)
  members = np.concatenate([rng.dirichlet(np.full(_SIZE, 0.3), count),
                            np.eye(_SIZE)]) * _SIZE
  if post in ('increasing', 'decreasing'):
    members = np.sort(members)
  return members[:, ::-1] if post == 'decreasing' else members


@pytest.mark.slow
@pytest.mark.parametrize('post', ['simplex', 'increasing', 'decreasing'])
def test_nearest_points_of_convex_sets(post):
  """v - P makes no acute angle with q - P for any q, so P is nearest."""
  heights = _processed(post)
  others = _members(post)
  off = _HEIGHTS - heights
  assert np.max(off @ others.T - np.sum(off * heights, -1)[:, None]) < 1e-9
  with jax.enable_x64(True):
    again = post_processing.processed(jnp.asarray(heights), post, 1.0)
  np.testing.assert_allclose(again, heights, atol=1e-12)


def test_unimodal_is_the_nearest_of_all_modes():
  """The fit is the best of all modes, each fitted by scikit-learn."""
  fitted = _processed('unimodal')
  for heights, best in zip(_HEIGHTS, fitted, strict=True):
    least = np.inf
    for mode in range(_SIZE):
      places = np.arange(_SIZE)
      fit = np.concatenate([
          isotonic.isotonic_regression(heights[:mode + 1]),
          isotonic.isotonic_regression(heights[mode + 1:], increasing=False)
          if mode + 1 < _SIZE else places[:0]])
      ordered = np.sort(fit)[::-1]
      shift = np.max((np.cumsum(ordered) - _SIZE) / (places + 1))
      least = min(least, np.sum((np.maximum(fit - shift, 0) - heights)**2))
    assert np.sum((best - heights)**2) == pytest.approx(least, rel=1e-9)


@pytest.mark.every(2)
def test_projections_never_increase_the_error():
  density = compared_densities.beta(2, 2)
  raw = estimate.errors_of('histogram', _HEIGHTS, density)
  for post in ('simplex', 'unimodal'):
    after = estimate.errors_of('histogram', _processed(post), density)
    assert np.all(after < raw) if post == 'simplex' else after.mean() < (
        raw.mean())
  with jax.enable_x64(True):
    shifted = np.asarray(post_processing.fix_mass(jnp.asarray(_HEIGHTS)))
  np.testing.assert_allclose(shifted.mean(-1), 1)
  np.testing.assert_allclose(np.ptp(shifted - _HEIGHTS, -1), 0, atol=1e-12)
  assert np.all(estimate.errors_of('histogram', shifted, density) <= raw)


@pytest.mark.every(2)
def test_clip_is_divided_by_what_is_left():
  raised = np.maximum(_HEIGHTS, 0)
  np.testing.assert_allclose(
      _processed('clip'), raised / raised.mean(-1, keepdims=True))
  assert np.all(post_processing.clip(jnp.array([-1.0, -2.0])) == 1)


@pytest.mark.every(2)
def test_shrinkage_by_the_share_of_noise():
  mean_square = np.mean((_HEIGHTS - 1)**2, -1, keepdims=True)
  noise = float(np.median(mean_square))
  shrunk = _processed('james_stein', noise)
  share = np.maximum(0, 1 - noise / mean_square)
  assert 0 < np.sum(share == 0) < share.size
  np.testing.assert_allclose(shrunk, 1 + (_HEIGHTS - 1) * share, atol=1e-12)
  np.testing.assert_allclose(_processed('james_stein', 0.0), _HEIGHTS)
  assert np.all(post_processing.james_stein(jnp.ones(3), 0.5) == 1)


def test_unknown_names_are_refused():
  with pytest.raises(ValueError, match='post must be one of'):
    post_processing.processed(jnp.ones(3), 'smooth', 1.0)
