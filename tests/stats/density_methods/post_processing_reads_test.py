"""Tests by traced programs that post-processing reads noisy numbers only.

Noisy numbers and private choices are replaced by constants. Then the release
must not depend on the records, neither on their counts nor on n under
ADD_OR_REMOVE_ONE.
"""

from unittest import mock

import jax
from jax.interpreters import partial_eval
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import cubes
from dpjax.stats.density_methods import hierarchies
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import merging
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods import post_processing
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import sparse
from dpjax.stats.density_methods import spectral
from dpjax.stats.density_methods import stages
from dpjax.stats.density_methods import weighted
from dpjax.stats.ecdf_methods import trees
from experiments.methods.statistics import marginals

ADD, REPLACE = Adjacency


def _mechanisms():
  """Returns one of every density mechanism, by name."""
  both = {
      'adaptive': (adaptive.AdaptiveHistogram, dict(num_bins=9)),
      'circle': (adaptive.AdaptiveHistogram,
                 dict(num_bins=9, basis='fourier')),
      'cube': (cubes.CubeHistogram, dict(num_bins=9, dimension=2)),
      'tree': (hierarchies.TreeDensity, dict(height=3)),
      'polygon': (histograms.Polygon, dict(num_bins=5)),
      **{post: (histograms.Histogram, dict(num_bins=5, post=post))
         for post in post_processing.POSTS},
      'merged': (merging.MergedHistogram, dict(num_bins=5)),
      'projection': (projections.Projection, dict(num_functions=5)),
      'spectral': (spectral.SpectralHistogram, dict(num_bins=7)),
      'independent': (marginals.TreeMarginals, dict(
          num_attributes=2, num_bins=2, structure='independent')),
      'known': (marginals.TreeMarginals, dict(
          num_attributes=3, num_bins=2, structure=((0, 1), (1, 2)))),
      'private': (marginals.TreeMarginals,
                  dict(num_attributes=3, num_bins=2))}
  weights = dict(coefficient_weights=(1.0, 0.5), rho=0.3, epsilon=None)
  both |= {
      'weighted': (projections.WeightedProjection, weights),
      'cosine': (projections.WeightedProjection,
                 dict(weights, basis='cosine')),
      'adaptive sums': (weighted.AdaptiveProjection, weights)}
  for name, (kind, fields) in both.items():
    for adjacency in (ADD, REPLACE):
      yield f'{name}, {adjacency.value}', kind(**dict(
          dict(num_records=50, epsilon=0.4, adjacency=adjacency), **fields))
  known = dict(num_records=50, adjacency=REPLACE)
  yield 'spectrum', projections.Projection(
      num_functions=5, epsilon=0.4, fix_mass=False, **known)
  yield 'Haar', hierarchies.HaarDensity(height=3, epsilon=0.4, **known)
  yield 'sparse', sparse.SparseFourier(
      num_rounds=2, num_frequencies=4, rho=0.4, **known)
  yield 'two resolutions', stages.TwoResolutions(epsilon=0.4, **known)
  yield 'two stages', stages.TwoStages(epsilon=0.4, **known)


MECHANISMS = dict(_mechanisms())


def _used(draw, key, data, parameters):
  """Returns whether a draw depends on data that noise replaces wholly."""
  def noisy(key, values, *numbers, **named):
    del key, numbers, named
    return jax.tree.map(jnp.ones_like, values)

  def noisy_levels(key, counts, shape, scales, **named):
    del key, scales, named
    return [jnp.ones(size, counts.dtype) for size in np.cumprod(shape)]
  with mock.patch.object(noisy_counts, 'noisy', noisy), mock.patch.object(
      trees, 'noisy_levels', noisy_levels), mock.patch.object(
          trees, 'with_noise', noisy), mock.patch.object(
              sparse, 'chosen', lambda *_: jnp.int32(1)):
    traced = jax.make_jaxpr(draw)(key, data, parameters)
  _, used = partial_eval.dce_jaxpr(
      traced.jaxpr, [True] * len(traced.jaxpr.outvars))
  return used[1]


@pytest.mark.sound
@pytest.mark.parametrize('name', MECHANISMS)
def test_post_processing_reads_noisy_numbers_alone(name):
  mechanism = MECHANISMS[name]
  axes = getattr(mechanism, 'num_attributes',
                 getattr(mechanism, 'dimension', 1))
  unit = np.linspace(0.01, 0.99, 50)
  flat = axes == 1 or isinstance(mechanism, histograms.Polygon)
  with jax.enable_x64(True):
    data = jnp.asarray(mechanism.statistic(
        unit if flat else np.stack([unit] * axes, 1)))
    given = jax.random.key(0), data, mechanism.parameters
    assert not _used(mechanism.draw, *given)
    # A draw that reads the data besides is detected.
    assert _used(lambda key, data, numbers: jax.tree.map(
        lambda leaf: leaf + jnp.sum(data).astype(leaf.dtype),
        mechanism.draw(key, data, numbers)), *given)


def test_there_is_one_of_each_kind():
  kinds = {type(one) for one in MECHANISMS.values()}

  def concrete(kind):
    if kind.__module__.startswith('dpjax.stats.density_methods') and not (
        kind.__abstractmethods__):
      yield kind
    for below in kind.__subclasses__():
      yield from concrete(below)
  assert set(concrete(mechanism.DensityMechanism)) <= kinds
