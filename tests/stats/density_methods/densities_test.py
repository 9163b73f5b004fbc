"""Tests densities, and exact errors of estimates in each form."""

import jax
import numpy as np
import pytest

from dpjax.stats.density_methods import densities
from dpjax.stats.density_methods import estimate
from experiments.methods.statistics import compared_densities

_KNOWN = {
    'uniform': (densities.uniform(), 0.0), 'tent': (compared_densities.tent(2), 4 / 48),
    'linear': (compared_densities.linear(1.5), 2.25 / 12), 'beta22': (compared_densities.beta(2, 2), 0.2),
    'beta25': (compared_densities.beta(2, 5), 0.8181818),
    'sobdet1': (compared_densities.alternating(1), 0.10818511),
    'sobdet2': (compared_densities.alternating(2), 0.25923193),
    'sobrand1': (compared_densities.random_phases(1), 0.664095),
    'sobrand3': (compared_densities.random_phases(3), 0.523880),
    'wrapmix': (compared_densities.wrapped_mixture(), 0.885404),
    'blocks': (compared_densities.blocks(), 0.363148), 'cos30': (compared_densities.cosine_wave(), 0.405)}
_GRID = (np.arange(2**12) + 0.5) / 2**12


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('name', _KNOWN)
def test_what_is_known_of_a_density_agrees(name):
  density, energy = _KNOWN[name]
  assert density.energy == pytest.approx(energy, rel=2e-6, abs=1e-12)
  values = density.pdf(_GRID)
  assert values.min() >= 0 and values.mean() == pytest.approx(1, abs=1e-3)
  assert np.mean(values**2) == pytest.approx(density.square, rel=1e-3)
  for bins in (1, 7, 100):
    masses = density.masses(bins)
    assert masses.sum() == pytest.approx(1)
    np.testing.assert_allclose(
        masses, np.diff(density.cdf(np.linspace(0, 1, bins + 1))), atol=1e-12)
  jumps = name in ('blocks', 'linear', 'beta25')
  assert density.energies(2048).sum() == pytest.approx(
      energy, rel=2e-3 if jumps else 1e-5, abs=1e-12)
  assert np.sum(density.cosine(4096)**2) == pytest.approx(
      energy, rel=1e-3, abs=1e-12)
  steps = np.abs(np.diff(values)) * _GRID.size
  assert steps.max() <= density.lipschitz * (1 + 1e-9) + 1e-9


@pytest.mark.slow
def test_borderline_constants():
  tent = compared_densities.tent(2)
  k = np.arange(1, 8193)
  assert tent.sobolev(1) == pytest.approx(2, rel=1e-3)
  assert np.sum((2.0 * k)**2 * tent.energies(8192)) == pytest.approx(
      4 / np.pi**2, abs=3e-5)
  assert [compared_densities.alternating(b).pdf(_GRID).min() for b in (1, 2, 3)
          ] == pytest.approx([0.675, 0.387, 0.213], abs=1e-3)
  assert [compared_densities.alternating(b).sobolev(b) for b in (1, 2, 3)
          ] == pytest.approx([5.398, 56.53, 426.2], rel=1e-3)
  # The whole Lipschitz class is in the cosine ellipsoid, for slopes too.
  theta = compared_densities.linear(1.5).cosine(1600)
  assert np.sum((np.pi * np.arange(1, 1601) * theta)**2) == pytest.approx(
      2.2494, abs=2e-4)


def test_norms_of_derivatives_are_ellipsoids():
  """Derivative norms are ellipsoids (fact 1); weights j - 1
  fall short (DEN-E21)."""
  theta = np.random.default_rng(0).normal(size=(2, 5)) / np.arange(1, 6)**3
  density = compared_densities.series('any', 0.1 * (theta[0] + 1j * theta[1]))
  waves = 2 * np.pi * np.multiply.outer(np.arange(1, 6), _GRID)
  functions = np.stack([np.sin(waves), np.cos(waves)], 1).reshape(10, -1)
  coefficients = np.sqrt(2) * functions @ density.pdf(_GRID) / _GRID.size
  after, here, before = (density.pdf(_GRID + shift)
                         for shift in (1e-4, 0, -1e-4))
  j = np.arange(2, 12)
  for beta, slopes in ((1, (after - before) / 2e-4),
                       (2, (after - 2 * here + before) / 1e-8)):
    norm = np.mean(slopes**2)
    assert density.sobolev(beta)**2 == pytest.approx(norm, rel=1e-4)
    ellipsoid, less = (np.sum((np.pi * a)**(2 * beta) * coefficients**2)
                       for a in (j // 2 * 2, j - 1))
    assert ellipsoid == pytest.approx(norm, rel=1e-4)
    assert less < 0.95 * norm


@pytest.mark.every(2)
def test_samples_have_the_law():
  density = compared_densities.beta(2, 5)
  drawn = np.sort(density.sample(jax.random.key(0), 20000))
  gap = np.abs(density.cdf(drawn) - (np.arange(20000) + 0.5) / 20000).max()
  assert gap < 1.95 / np.sqrt(20000)  # Kolmogorov's limit at level .001.


@pytest.mark.slow
@pytest.mark.every(4)
@pytest.mark.parametrize('name', ['tent', 'beta25', 'wrapmix', 'blocks'])
@pytest.mark.parametrize('kind', estimate.KINDS)
def test_errors_are_those_of_the_curve(kind, name):
  density = _KNOWN[name][0]
  rng = np.random.default_rng(0)
  coefficients = {
      'histogram': lambda: 40 * density.masses(40),
      'spline': lambda: 40 * density.masses(40),
      'polygon': lambda: 40 * density.masses(40),
      'fourier': lambda: density.fourier(9),
      'spectrum': lambda: np.append(1.02, density.fourier(9)),
      'cosine': lambda: density.cosine(9)}[kind]()
  coefficients = coefficients + 0.05 * rng.normal(size=coefficients.size)
  curve = estimate.DensityEstimate(kind=kind, coefficients=coefficients)
  grid = (np.arange(2**16) + 0.5) / 2**16
  direct = np.mean((curve(grid) - density.pdf(grid))**2)
  assert curve.ise(density) == pytest.approx(direct, rel=2e-3)
  proper = curve.proper()
  assert proper.ise(density) <= curve.ise(density) * (1 + 1e-3)
  with jax.enable_x64(True):
    means = np.asarray(estimate.on_bins(kind, jax.numpy.asarray(coefficients),
                                        800))
  np.testing.assert_allclose(means, curve(
      (np.arange(800)[:, None] + (np.arange(32) + 0.5) / 32) / 800).mean(1),
                             atol=1e-3)


def test_bounds_stretch_a_curve():
  curve = estimate.DensityEstimate(kind='cosine', coefficients=np.array([.2]),
                                   lower=-5.0, upper=15.0)
  grid = np.linspace(-5, 15, 100001)
  assert np.trapezoid(curve(grid), grid) == pytest.approx(1, abs=1e-6)
  with pytest.raises(ValueError, match='kind'):
    estimate.DensityEstimate(kind='spleen', coefficients=np.ones(4))
  with pytest.raises(ValueError, match='evenly'):
    estimate.on_bins('histogram', np.ones(3), 8)


def test_densities_that_are_none_are_refused():
  for make in (lambda: compared_densities.tent(5), lambda: compared_densities.linear(3),
               lambda: compared_densities.beta(1, 2), lambda: compared_densities.alternating(4)):
    with pytest.raises(ValueError):
      make()


@pytest.mark.every(1)
@pytest.mark.parametrize('name', _KNOWN)
def test_distributions_are_integrals_and_slopes_are_bounded(name):
  """Distributions integrate densities, and slopes are bounded, on a grid."""
  density, energy = _KNOWN[name]
  assert density.energy == pytest.approx(energy, rel=2e-6, abs=1e-12)
  grid = np.linspace(0, 1, 401)
  cdf, middles = density.cdf(grid), density.pdf((grid[1:] + grid[:-1]) / 2)
  assert cdf[0] == pytest.approx(0, abs=1e-9) and cdf[-1] == pytest.approx(1)
  assert middles.min() >= 0
  rough = name in ('sobdet1', 'sobrand1')
  np.testing.assert_allclose(np.diff(cdf) * 400, middles,
                             atol=0.06 if rough else 0.02)
  np.testing.assert_allclose(density.masses(400), np.diff(cdf), atol=1e-9)
  assert density.square >= 400 * np.sum(np.diff(cdf)**2) - 1e-9
  values = density.pdf(grid)
  assert density.lipschitz >= 400 * np.abs(np.diff(values)).max() * (1 - 1e-9)
  assert density.periodic == (abs(values[0] - values[-1]) < 1e-6)
  # `blocks` alone has no bound on its slope.
  assert (name == 'blocks') == (density.lipschitz == np.inf)
