"""Tests closed-form errors on random densities, sizes and budgets.

Every linear estimator is run on random densities with random n and budget, and
its mean squared error is compared with `expected`. All comparisons of this file
share one error rate; small errors everywhere show in the sum.
"""

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import hierarchies
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import spectral
from tests.stats.density_methods import hidden

_SEEDS = range(4)
_RATE = 1e-4
_CELLS, _REPETITIONS = 6, 4000
_FINE = 512
"""Cells that sums of waves are read off."""


@pytest.mark.parametrize('draw', hidden.KINDS)
def test_hidden_densities_are_what_they_say(draw):
  """Drawn densities have the stated mass, square, slopes and bins."""
  for seed in _SEEDS:
    density = draw(np.random.default_rng(seed))
    edges = np.arange(2**16 + 1) / 2**16
    middles = (edges[1:] + edges[:-1]) / 2
    heights = density.pdf(middles)
    assert heights.min() >= 0
    assert np.mean(heights) == pytest.approx(1, abs=1e-8)
    assert np.mean(heights**2) == pytest.approx(density.square, rel=1e-7)
    np.testing.assert_allclose(density.masses(2**12), heights.reshape(
        2**12, 16).mean(1) / 2**12, rtol=0, atol=1e-9)
    slopes = np.abs(np.diff(density.pdf(edges))) * 2**16
    assert slopes.max() <= density.lipschitz * (1 + 1e-9)
    jump = abs(density.pdf(edges[:1]) - density.pdf(edges[-1:]))[0]
    assert not density.periodic or jump < 1e-9


def _odd(rng, low, high):
  return int(2 * rng.integers(low // 2, high // 2) + 1)


def _weights(rng):
  return tuple(rng.uniform(0.05, 1, rng.integers(2, 9)))


def _spectral(rng, basis, public):
  num_bins = _odd(rng, 5, 16)
  most = (num_bins - 1) // 2
  return spectral.SpectralHistogram(
      num_bins=num_bins, basis=basis, weights=tuple(rng.uniform(
          0.1, 1, rng.integers(1, most + 1))), **public)


# name -> (generator of sizes, budget, other arguments) -> mechanism.
_MECHANISMS = {
    'histogram': lambda rng, public: histograms.Histogram(
        num_bins=int(rng.integers(2, 12)), **public),
    'histogram_noised_mass': lambda rng, public: histograms.Histogram(
        num_bins=int(rng.integers(2, 12)), fix_mass=False, **public),
    'polygon': lambda rng, public: histograms.Polygon(
        num_bins=int(rng.integers(2, 12)), post='none', **public),
    'projection': lambda rng, public: projections.Projection(
        num_functions=_odd(rng, 3, 20), **public),
    'projection_printed': lambda rng, public: projections.Projection(
        num_functions=_odd(rng, 3, 20), tuning='printed', fix_mass=False,
        **public),
    'weighted_fourier': lambda rng, public: projections.WeightedProjection(
        coefficient_weights=_weights(rng), **public),
    'weighted_cosine': lambda rng, public: projections.WeightedProjection(
        coefficient_weights=_weights(rng), basis='cosine', **public),
    'spectral_fourier': lambda rng, public: _spectral(rng, 'fourier', public),
    'spectral_cosine': lambda rng, public: _spectral(rng, 'cosine', public),
    'tree': lambda rng, public: hierarchies.TreeDensity(
        height=int(rng.integers(2, 6)), **public),
    'haar': lambda rng, public: hierarchies.HaarDensity(
        height=int(rng.integers(2, 6)), threshold=0.0, **public),
}
# Each name has one size, so that it is compiled once.
_NAMES = tuple(_MECHANISMS)


def _mechanism(name, rng, noisy):
  """Returns this mechanism with random n, and a small or a large budget.

  A small budget makes noise the main error; a large one makes it the sample and
  the class.
  """
  spent = float(rng.uniform(0.1, 2) if noisy else rng.uniform(50, 500))
  gaussian = name.startswith('weighted') or name == 'spectral_cosine'
  public = dict(num_records=int(np.exp(rng.uniform(np.log(30), np.log(3000)))),
                adjacency=Adjacency.REPLACE_ONE, **(
                    dict(rho=spent**2 / 2) if gaussian
                    else dict(epsilon=spent)))
  return _MECHANISMS[name](np.random.default_rng([7, _NAMES.index(name)]),
                           public)


def _statistics(mechanism, density, rng):
  """Returns the statistics [R, s] of R independent data sets."""
  waves = hasattr(mechanism, 'of_counts')
  num_bins = _FINE if waves else mechanism.statistic(np.zeros(1)).size
  counts = density.counts(rng, num_records=mechanism.num_records,
                          num_bins=num_bins, repetitions=_REPETITIONS)
  return mechanism.of_counts(counts) if waves else counts


def _measured(mechanism, density, rng, key):
  """Returns the mean error and its standard error."""
  errors = estimate.errors_of(mechanism.kind, mechanism.coefficients(
      key, _statistics(mechanism, density, rng)), density)
  return errors.mean(), errors.std() / np.sqrt(errors.size)


def _hidden_cells(name):
  """Returns (error minus expected, standard error, expected) by cell, [C, 3].
  """
  rng, cells = np.random.default_rng([11, _NAMES.index(name)]), []
  for cell in range(_CELLS):
    density = hidden.KINDS[cell % len(hidden.KINDS)](rng)
    mechanism = _mechanism(name, rng, noisy=cell % 2 == 0)
    mean, error = _measured(mechanism, density, rng, jax.random.key(cell))
    expected = mechanism.expected(density).total
    cells.append((mean - expected, error, expected))
  return np.array(cells)


def _refuted(cells):
  """Returns whether a cell, or all of them together, differ from zero."""
  off, errors, _ = cells.T
  scores = np.append(off / errors, np.sum(off / errors) / np.sqrt(off.size))
  tests = scores.size * len(_NAMES)
  return np.abs(scores).max() > stats.norm.isf(_RATE / (2 * tests))


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('name', _NAMES)
def test_errors_are_the_expected_ones(name):
  """Correct closed forms pass except with chance 1e-4; 5 % off is refuted."""
  cells = _hidden_cells(name)
  assert not _refuted(cells)
  # An error of one twentieth is detected.
  cells[:, 0] -= 0.05 * cells[:, 2]
  assert _refuted(cells)
