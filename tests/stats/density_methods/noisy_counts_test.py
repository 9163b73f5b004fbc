"""Tests that post-processing reads noisy counts only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import merging
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods import sparse
from dpjax.stats.density_methods import spectral
from dpjax.stats.density_methods import stages
from experiments.methods.statistics import marginals

_ADD = dict(num_records=50, epsilon=0.5,
            adjacency=Adjacency.ADD_OR_REMOVE_ONE)
_REPLACE = _ADD | dict(adjacency=Adjacency.REPLACE_ONE)
_MECHANISMS = {
    'adaptive': adaptive.AdaptiveHistogram(num_bins=7, **_ADD),
    'adaptive_circle': adaptive.AdaptiveHistogram(
        num_bins=7, basis='fourier', **_ADD),
    'spectral': spectral.SpectralHistogram(num_bins=7, **_ADD),
    'histogram': histograms.Histogram(num_bins=7, **_ADD),
    'polygon': histograms.Polygon(num_bins=7, **_ADD),
    'merged': merging.MergedHistogram(num_bins=7, **_ADD),
    'two_resolutions': stages.TwoResolutions(**_REPLACE),
    'two_stages': stages.TwoStages(**_REPLACE),
    'private_tables': marginals.TreeMarginals(
        num_attributes=3, num_bins=2, **_ADD),
    'independent_tables': marginals.TreeMarginals(
        num_attributes=3, num_bins=2, structure='independent', **_ADD)}


def _size(mechanism):
  return 12 if isinstance(mechanism,
                          marginals.TreeMarginals) else mechanism.num_bins


@pytest.mark.slow
@pytest.mark.parametrize('name', _MECHANISMS)
def test_equal_noisy_counts_give_equal_releases(name, monkeypatch):
  """Equal noisy counts and choices give equal releases,
  whatever the records."""
  mechanism = _MECHANISMS[name]
  monkeypatch.setattr(
      noisy_counts, 'noisy',
      lambda key, counts, scale, distribution: jnp.reshape(
          jnp.asarray(5.0 + 60 * (np.arange(counts.size) % 3)), counts.shape))
  monkeypatch.setattr(sparse, 'chosen',
                      lambda key, scores, rate: jnp.int32(1))
  rng = np.random.default_rng(0)
  # `release` would reuse compiled noise, so `draw` is called.
  with jax.enable_x64(True):
    one, other = (jax.tree.map(
        np.asarray,
        mechanism.draw(jax.random.key(0),
                       jnp.asarray(rng.poisson(rate, _size(mechanism)) * 1.0),
                       mechanism.parameters)) for rate in (9, 30))
  jax.tree.map(np.testing.assert_array_equal, one, other)
  assert np.isfinite(jax.tree.leaves(one)[-1]).all()
