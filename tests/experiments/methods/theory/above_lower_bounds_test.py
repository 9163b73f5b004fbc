"""These tests check that no estimator beats the lower bounds."""

import dataclasses
import math

import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import bandwidths
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import projections
from experiments.methods.statistics import projection_tunings
from experiments.methods.statistics import spectral_risks
from experiments.methods.theory import density_lower_bounds as lower_bounds
from experiments.methods.theory import density_packings as packings

WAVES = [packings.wave(beta) for beta in (1, 2, 3)]
REPLACE = Adjacency.REPLACE_ONE
SIZES = [(n, alpha) for n in (10**3, 10**5, 10**7)
         for alpha in (1e-3, 0.01, 0.1, 1.0) if n * alpha >= 10]
RADII = {1: 2.0, 2: 12.0, 3: 75.0}


def budget(pure, alpha):
  return dict(epsilon=alpha) if pure else dict(rho=alpha**2)


def either(bound, known, **others):
  """Returns the larger of the bounds with and without privacy."""
  return max(bound(**part, **others).value for part in (known, {}))


@pytest.mark.every(3)
@pytest.mark.parametrize('beta', [1, 2, 3])
@pytest.mark.parametrize('pure', [True, False])
def test_no_estimator_of_sobolev_densities_is_better(pure, beta):
  """No implemented estimator beats the lower bounds for Sobolev densities.

  At one size at least, the worst case is within a factor of 20.
  """
  radius, ratios = RADII[beta], []
  for n, alpha in SIZES:
    known = budget(pure, alpha)
    tuned = spectral_risks.tuned(n, smoothness=beta, lipschitz=radius,
                           adjacency=REPLACE, **known)
    upper = [spectral_risks.worst_risk(
        tuned.num_bins, num_records=n, noise_variance=tuned.noise_variance,
        smoothness=beta, lipschitz=radius)]
    for tuning in ('printed', 'exact'):
      sums = projections.Projection(num_records=n, num_functions=3,
                                    tuning=tuning, adjacency=REPLACE, **known)
      size = projection_tunings.printed_num_functions(
          n * alpha, num_records=n, smoothness=beta, pure=pure)
      upper.append(dataclasses.replace(sums, num_functions=size)
                   .worst_case(beta, radius).total)
    if not pure and n * alpha < 1e5:
      upper.append(projection_tunings.pinsker_projection(
          num_records=n, smoothness=beta, radius=radius, adjacency=REPLACE,
          **known).worst_case(beta, radius).total)
    lower = either(lower_bounds.cells, known, kernel=WAVES[beta - 1],
                   radius=radius, num_records=n, sharp=True)
    assert lower < min(upper)
    assert either(lower_bounds.assouad, known, kernel=packings.smooth(beta),
                  radius=radius, num_records=n) < min(upper)
    ratios.append(min(upper) / lower)
  assert min(ratios) < 20


@pytest.mark.every(3)
@pytest.mark.parametrize('pure', [True, False])
def test_estimators_err_on_the_cube_as_they_must(pure):
  """Estimators err on the cube's densities by more than the bound.

  The test uses closed forms on six densities.
  """
  n, known = 10**4, budget(pure, 0.02)
  for kernel in WAVES[:2]:
    beta, radius = kernel.smoothness, RADII[kernel.smoothness]
    bound = lower_bounds.cells(kernel, radius=radius, num_records=n,
                               sharp=True, **known)
    size = int(bound.size)
    packing = packings.cells(kernel, radius=radius, num_cells=size)
    words = 2 * np.random.default_rng(0).integers(0, 2, (6, size)) - 1
    densities = [lower_bounds.least_favourable(packing, word)
                 for word in words]
    tuned = spectral_risks.tuned(n, smoothness=beta, lipschitz=radius,
                           adjacency=REPLACE, **known)
    risks = [tuned.expected(density).total for density in densities]
    assert np.mean(risks) > bound.value
    # An estimator that ignores the data loses all of the hidden energy.
    assert densities[0].energy == pytest.approx(size * packing.energy)
    assert bound.value < densities[0].energy < 8 * bound.value


def test_least_favourable_densities_are_those_of_the_packing():
  for packing, word in (
      (packings.spike(lipschitz=2.0, centre=0.5, half_width=0.2), [1]),
      (packings.bumps(packings.smooth(2), radius=150.0, num_bumps=3,
                      width=0.2), [1, 0, 1]),
      (packings.cells(packings.sawtooth(), radius=4.0, num_cells=4),
       [1, -1, -1, 1])):
    density = lower_bounds.least_favourable(packing, word)
    x, weights = packing.rule()
    values, = packing.densities(np.array([word]), x)
    np.testing.assert_array_equal(density.pdf(x), values)
    assert density.square == pytest.approx(values**2 @ weights, abs=1e-13)
    places = np.array([0.13, 0.41, 0.58, 0.83])
    steps = density.cdf(places + 1e-6) - density.cdf(places - 1e-6)
    np.testing.assert_allclose(steps / 2e-6, density.pdf(places), rtol=1e-6)
    middle = density.cdf(np.array([0, 0.5, 1]))
    np.testing.assert_allclose(
        middle, [0, values @ (weights * (x < 0.5)), 1], atol=1e-9)
    # Parseval gives the energy by coefficients from masses of bins.
    assert 1 + np.sum(density.energies(2000)) == pytest.approx(
        density.square, abs=1e-8)


def histogram(lipschitz, n, known):
  """Returns an upper bound of the tuned histogram's worst error (DEN-H6)."""
  tuned = histograms.Histogram.tuned(num_records=n, lipschitz=lipschitz,
                                     adjacency=REPLACE, **known)
  return bandwidths.histogram_bound(
      tuned.num_bins, num_records=n, variance=tuned.noise_variance,
      lipschitz=lipschitz)


@pytest.mark.parametrize('pure', [True, False])
def test_no_histogram_is_better(pure):
  teeth = packings.sawtooth()
  for n, alpha in SIZES:
    known = budget(pure, alpha)
    for slope_ in (1.0, 4.0):
      upper = histogram(slope_, n, known)
      others = dict(radius=slope_, num_records=n)
      assert either(lower_bounds.cells, known, kernel=teeth, **others) < (
          either(lower_bounds.cells, known, kernel=teeth, sharp=True,
                 **others)) < upper
      assert either(lower_bounds.fano, known, kernel=packings.triangle(),
                    **others) < upper
  # With much noise the limits are 1.633 L / (n eps) and .577 L / (n sqrt rho).
  limit = histogram(1.0, 10**15, budget(pure, 1e-9)) * 1e6
  assert limit == pytest.approx(1.633 if pure else 0.577, rel=2e-3)
  assert lower_bounds.cell_constant(teeth, pure=pure, sharp=True) < limit / 8


def test_without_data_nothing_is_lost_beyond_the_class():
  """Without budget the bound is at most the error of the uniform density."""
  for kernel in WAVES:
    beta, radius = kernel.smoothness, 2.0 * 6.0**(kernel.smoothness - 1)
    for known in (dict(epsilon=1e-9), dict(rho=1e-18)):
      bound = lower_bounds.cells(kernel, radius=radius, num_records=10,
                                 sharp=True, **known)
      most = (radius / (2 * math.pi)**beta)**2
      assert 0.05 * most < bound.value < most


def test_the_printed_rate_of_the_cube_is_impossible():
  """The printed rate of the cube is impossible (DEN-E5b).

  Any multiple of it exceeds what an estimator reaches.
  """
  upper = 0.253 * 1e12**(-4 / 3)
  assert upper < 1e-4 * 1e12**(-4 / 5)
