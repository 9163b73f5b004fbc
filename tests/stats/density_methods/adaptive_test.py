"""Tests bases, shrinkage and the default estimator."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy import mechanism
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import api
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods import pooling
from dpjax.stats.density_methods import shrinkage
from dpjax.stats.density_methods import spectral
from dpjax.stats.density_methods import stages
from dpjax.stats.density_methods import weighted
from experiments.methods.statistics import compared_densities

_REPLACE = Adjacency.REPLACE_ONE


@pytest.mark.parametrize('size', [3, 4, 17, 400])
def test_the_smoothest_vectors_bend_least(size):
  vectors = bases.smoothest(size)
  np.testing.assert_allclose(vectors.T @ vectors, size * np.eye(size),
                             atol=1e-11 * size)
  bending = np.diff(vectors, 2, axis=0)
  products = bending.T @ bending
  values = np.diag(products).copy()
  np.testing.assert_allclose(products, np.diag(values), atol=1e-10)
  assert np.all(np.diff(values) >= -1e-9) and np.all(values[:2] < 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize('size', [1, 2, 40])
def test_shrinkage_is_the_weighted_isotonic_regression(size):
  rng = np.random.default_rng(size)
  variances = rng.uniform(0.1, 1, size)
  values = rng.normal(size=(60, size)) * 3 * np.exp(-0.1 * np.arange(size))
  with jax.enable_x64(True):
    fitted = jax.jit(jax.vmap(pooling.factors, (0, None)))(
        jnp.asarray(values), jnp.asarray(variances))
  for row, factors in zip(values, np.asarray(fitted), strict=True):
    expected = optimize.isotonic_regression(
        1 - 2 * variances / row**2, weights=row**2, increasing=False).x
    np.testing.assert_allclose(factors, np.clip(expected, 0, 1), atol=1e-12)
    np.testing.assert_allclose(shrinkage.factors(row, variances), factors,
                               atol=1e-12)


def test_nothing_is_made_of_nothing():
  for module in (shrinkage, pooling):
    np.testing.assert_array_equal(
        module.factors(np.zeros(4), np.ones(4)), np.zeros(4))


@pytest.mark.parametrize('num_records, epsilon, bins', [
    (1000, 0.1, 11), (10**4, 0.1, 33), (10**6, 1.0, 301), (10, 0.01, 5),
    (10**12, 1.0, 1023)])
def test_bins_are_public(num_records, epsilon, bins):
  num_bins = bases.adaptive_bins(num_records, 8 / epsilon**2)
  assert num_bins == bins and num_bins % 2


@pytest.mark.parametrize('num_records, rho, count', [
    (10**4, 0.005, 40), (100, 1e-4, 2), (10**4, 100.0, 49), (10**12, 1.0, 120)])
def test_frequencies_are_public(num_records, rho, count):
  """The number of frequencies is public, and noise grows with them (DEN-B5)."""
  mechanism = weighted.adaptive(num_records=num_records, rho=rho,
                                adjacency=_REPLACE)
  assert mechanism.num_frequencies == count
  np.testing.assert_allclose(mechanism.noise_variances[1:],
                             mechanism.kappa * np.arange(1, count + 1))


def _mean_error(mechanism, density, repetitions=200, seed=3):
  counts = density.counts(np.random.default_rng(seed), repetitions=repetitions,
                          num_records=mechanism.num_records,
                          num_bins=mechanism.num_bins)
  return float(
      np.mean(
          estimate.errors_of(
              mechanism.kind,
              mechanism.coefficients(jax.random.key(seed), counts), density)))


@pytest.mark.slow
def test_splines_have_a_third_of_the_error_of_cosines_at_sloping_ends():
  mechanism = adaptive.adaptive(10**5, epsilon=0.1, adjacency=_REPLACE)
  assert mechanism.basis == 'spline'
  cosines = dataclasses.replace(mechanism, basis='cosine')
  for density in (compared_densities.linear(1.5), compared_densities.beta(2, 2)):
    assert _mean_error(mechanism, density) < _mean_error(cosines, density) / 3
  # They are no worse where the density is flat at the ends.
  density = compared_densities.tent(2)
  assert _mean_error(mechanism, density) < 1.4 * _mean_error(cosines, density)


@pytest.mark.slow
@pytest.mark.parametrize('name, size, epsilon, known', [
    ('tent', 10**4, 0.1, 2.14e-3), ('sobrand1', 10**5, 0.1, 1.59e-3),
    ('sobrand2', 10**5, 0.1, 3.83e-4), ('wrapmix', 10**5, 0.02, 2.24e-3)])
def test_as_fine_as_specified_it_errs_as_specified(name, size, epsilon, known):
  density = {'tent': compared_densities.tent(2), 'sobrand1': compared_densities.random_phases(1),
             'sobrand2': compared_densities.random_phases(2),
             'wrapmix': compared_densities.wrapped_mixture()}[name]
  mechanism = adaptive.adaptive(size, epsilon=epsilon, boundary='circle',
                                adjacency=_REPLACE)
  fine = dataclasses.replace(mechanism, num_bins=bases.adaptive_bins(
      size, 8 / epsilon**2, factor=1.5))
  error = _mean_error(fine, density)
  assert error == pytest.approx(known, rel=0.25)
  # Fewer bins are better on each of these.
  assert _mean_error(mechanism, density) < error


def test_sums_err_as_specified():
  mechanism = weighted.adaptive(num_records=10**4, rho=0.005,
                                adjacency=_REPLACE, num_cells=511)
  density = compared_densities.random_phases(2)
  counts = density.counts(np.random.default_rng(0), num_records=10**4,
                          num_bins=511, repetitions=200)
  errors = estimate.errors_of('fourier', mechanism.coefficients(
      jax.random.key(1), mechanism.of_counts(counts)), density)
  assert errors.mean() == pytest.approx(1.67e-3, rel=0.15)
  with pytest.raises(NotImplementedError, match='linear'):
    mechanism.expected(density)


@pytest.mark.every(3)
@pytest.mark.parametrize('kind', [stages.TwoResolutions, stages.TwoStages])
def test_two_histograms_cost_their_sum_and_pay_where_a_density_is_smooth(kind):
  estimator = kind(num_records=10**8, epsilon=0.001, adjacency=_REPLACE)
  assert math.fsum(estimator.epsilons) == pytest.approx(0.001, rel=1e-12)
  assert mechanism.epsilon(dataclasses.replace(estimator, epsilon=1.0),
                           delta=1e-12) == pytest.approx(1.0, rel=1e-6)
  assert estimator.parameters.scales == pytest.approx(
      [2 / part for part in estimator.epsilons])
  one = adaptive.adaptive(10**8, epsilon=0.001, boundary='circle',
                          adjacency=_REPLACE)
  density = compared_densities.random_phases(3)
  most = {stages.TwoResolutions: 0.8, stages.TwoStages: 0.5}[kind]
  assert _mean_error(estimator, density,
                     20) < most * _mean_error(one, density, 20)


@pytest.mark.slow
@pytest.mark.parametrize('build', [
    lambda **public: adaptive.AdaptiveHistogram(
        basis='fourier', penalty=1e-12, **public),
    spectral.SpectralHistogram])
def test_an_unknown_total_is_read_off_noisy_counts_alone(build):
  mechanism = build(num_records=100, epsilon=0.2, num_bins=7,
                    adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  key, counts = jax.random.key(5), np.arange(7.0) * 9
  with jax.enable_x64(True):
    noisy = np.asarray(
        noisy_counts.noisy(key, jnp.asarray(counts), mechanism.scale,
                           mechanism.noise_distribution))
    coefficients = np.asarray(mechanism.release(key, counts))
  assert abs(noisy.sum() - counts.sum()) > 3
  np.testing.assert_allclose(
      coefficients, noisy / noisy.sum() @ bases.basis('fourier', 7).analysis,
      rtol=1e-9)


@pytest.mark.sound
@pytest.mark.parametrize('kind', [stages.TwoResolutions, stages.TwoStages])
def test_both_histograms_have_the_noise_that_is_paid_for(kind):
  """Unshrunk coefficients have the noise of both histograms, by precision."""
  mechanism = kind(num_records=10**4, epsilon=0.5, adjacency=_REPLACE,
                   penalty=1e-12)
  bins = ((mechanism.num_bins, mechanism.num_bins // 5)
          if kind is stages.TwoResolutions else mechanism.stage_bins)
  coefficients = mechanism.coefficients(jax.random.key(0),
                                        np.zeros((4000, mechanism.num_bins)))
  precision = sum(1 / (bases.basis('fourier', size).gains[:2] * variance)
                  for size, variance in zip(
                      bins, mechanism.parameters.variances, strict=True))
  np.testing.assert_allclose(
      np.mean(np.abs(coefficients[:, :2])**2, 0) * 1e8 * precision, 1,
      atol=0.08)


def test_two_stages_without_noise_are_the_coefficients():
  mechanism = stages.TwoStages(num_records=3465, epsilon=1e9,
                               adjacency=_REPLACE)
  counts = compared_densities.random_phases(3).masses(3465) * 3465 * 1e9
  coefficients = dataclasses.replace(mechanism,
                                     num_records=3465 * 10**9).coefficients(
                                         jax.random.key(0), counts[None])[0]
  np.testing.assert_allclose(coefficients[:6],
                             compared_densities.random_phases(3).fourier(6),
                             atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize('given, kind', [
    (dict(epsilon=1.0), 'spline'), (dict(rho=1.0), 'spline'),
    (dict(epsilon=1.0, boundary='circle'), 'fourier'),
    (dict(rho=1.0, boundary='circle'), 'fourier'),
    (dict(epsilon=1.0, boundary='circle', method='two_stages'), 'fourier')])
def test_a_density_of_a_column(given, kind):
  records = 20 + 50 * np.random.default_rng(0).beta(2, 5, 4000)
  curve = api.density(jax.random.key(0), records, lower=20, upper=70,
                      adjacency='replace_one', **given)
  assert curve.kind == kind
  grid = np.linspace(20, 70, 101)
  truth = compared_densities.beta(2, 5).pdf((grid - 20) / 50) / 50
  assert np.abs(curve(grid) - truth)[10:-10].max() < 0.008
  assert curve([19.9, 70.1]).tolist() == [0, 0]
  proper = curve.proper()
  assert proper.coefficients.min() >= 0
  assert proper.coefficients.mean() == pytest.approx(1)
  drawn = curve.sample(jax.random.key(1), 2000)
  assert abs(drawn.mean() - records.mean()) < 1.0


def test_an_unknown_number_of_records():
  records = np.random.default_rng(0).beta(2, 2, 5000)
  curve = api.density(jax.random.key(0), records, lower=0, upper=1, rho=1.0,
                      adjacency='add_or_remove_one', expected_records=2000)
  assert curve.ise(compared_densities.beta(2, 2)) < 0.01
  assert curve.mechanism.adjacency is Adjacency.ADD_OR_REMOVE_ONE


@pytest.mark.parametrize('given, message', [
    (dict(rho=1.0), 'one of them'), (dict(epsilon=None), 'one of them'),
    (dict(boundary='torus'), 'boundary'), (dict(method='magic'), 'method'),
    (dict(method='two_stages'), 'circle'), (dict(lower=2.0), 'lower'),
    (dict(method='sums', boundary='circle'), 'Gaussian'),
    (dict(expected_records=9), 'expected_records'),
    (dict(adjacency='add_or_remove_one'), 'expected_records'),
    (dict(x=[0.1, math.nan]), 'missing'), (dict(x=[]), 'no numbers')])
def test_bad_input_is_refused_before_anything_is_released(given, message):
  asked = dict(x=[0.5, 0.2], lower=0.0, upper=1.0, epsilon=1.0,
               adjacency='replace_one') | given
  with pytest.raises(ValueError, match=message):
    api.density(jax.random.key(0), asked.pop('x'), **asked)
