"""Tests that a private n enters density estimates only by its noisy sum.

This is `tests.stats.coupling_test` for add-or-remove-one.
"""

import numpy as np
import pytest

from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import cubes
from dpjax.stats.density_methods import hierarchies
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import merging
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import spectral
from dpjax.stats.density_methods import weighted
from experiments.methods.statistics import marginals
from tests import coupling
from tests.stats import coupling_test


def _added(kind, attained, **fields):
  return coupling_test._density(kind, attained, adjacency=coupling_test.ADD,
                                **fields)


CASES = {
    'adaptive': lambda: _added(
        adaptive.AdaptiveHistogram, 0.5, num_bins=9, penalty=1e-6),
    'circle': lambda: _added(
        adaptive.AdaptiveHistogram, 0.5, num_bins=9, penalty=1e-6,
        basis='fourier', budget='rho'),
    'spectral': lambda: _added(spectral.SpectralHistogram, 0.5, num_bins=7),
    'merged': lambda: _added(
        merging.MergedHistogram, 0.5, num_bins=7, penalty=0.0),
    'histogram': lambda: _added(
        histograms.Histogram, 0.5, num_bins=5, fix_mass=False, budget='rho'),
    'polygon': lambda: _added(histograms.Polygon, 0.5, num_bins=5),
    'cube': lambda: _added(
        cubes.CubeHistogram, 0.5, num_bins=9, dimension=2, noise='laplace'),
    'tree': lambda: _added(hierarchies.TreeDensity, 0.5, height=3),
    'tree, rho': lambda: _added(
        hierarchies.TreeDensity, 0.3, height=3, level=2, budget='rho'),
    'projection': lambda: _added(
        projections.Projection, 0.5, num_functions=5),
    'weighted': lambda: _added(
        projections.WeightedProjection, 0.5, coefficient_weights=(1.0, 0.5),
        budget='rho'),
    'weighted, cosine': lambda: _added(
        projections.WeightedProjection, 0.5, coefficient_weights=(1.0, 0.5),
        basis='cosine', budget='rho'),
    'adaptive projection': lambda: _added(
        weighted.AdaptiveProjection, 0.5, coefficient_weights=(1.0, 0.5),
        budget='rho', penalty=1e-6),
    'independent tables': lambda: _added(
        marginals.TreeMarginals, 0.5, num_attributes=2, num_bins=2,
        structure='independent'),
    'known tables': lambda: _added(
        marginals.TreeMarginals, 0.5, num_attributes=3, num_bins=2,
        structure=((0, 1), (1, 2))),
    'private tables': lambda: _added(
        marginals.TreeMarginals, 0.3, num_attributes=3, num_bins=2)._replace(
            places=[1, 5])}


# These are quick to compile. The others differ in post-processing alone, which
# `post_processing_reads_test` checks for all.
_QUICK = ('projection', 'weighted', 'weighted, cosine')


@pytest.mark.sound
@pytest.mark.parametrize('name', [
    pytest.param(name, marks=[] if name in _QUICK else [pytest.mark.slow])
    for name in CASES])
def test_releases_of_neighbours_differ_by_what_is_claimed(name):
  case = CASES[name]()
  claimed = np.array(coupling.claim(case.mechanism.event, coupling_test.ADD))
  losses = coupling.losses(case.release, case.pairs, case.places,
                           concentrated=not claimed[0]).max(0)
  assert (losses <= claimed * (1 + 1e-3) + 1e-9).all()
  assert (losses >= case.attained * claimed).all()
