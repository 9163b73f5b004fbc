"""Tests spectral histograms: exact errors, constants, and the proof's steps."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import spectral
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import spectral_risks

_REPLACE = Adjacency.REPLACE_ONE
_ADD = Adjacency.ADD_OR_REMOVE_ONE


def _mechanism(**given):
  return spectral.SpectralHistogram(**dict(
      num_records=5000, epsilon=0.5, num_bins=21, weights=(1.0,) * 5,
      noise='laplace', adjacency=_REPLACE) | given)


def test_closed_forms_are_those_of_the_reference():
  first = _mechanism().expected(compared_densities.alternating(1))
  np.testing.assert_allclose(first, (2.156865e-3, 2.927560e-4, 1.476909e-3),
                             rtol=1e-6)
  assert _mechanism().expected(
      compared_densities.alternating(2)).total == pytest.approx(
          2.485677e-3, rel=1e-6)


@pytest.mark.every(3)
@pytest.mark.parametrize('given', [
    dict(), dict(noise='discrete_laplace', weights=()),
    dict(epsilon=None, rho=0.02, num_records=800),
    dict(basis='cosine', weights=(1.0, 0.9, 0.4, 0.1)),
    dict(epsilon=None)], ids=['laplace', 'whole', 'rho', 'cosine', 'none'])
def test_errors_are_the_closed_form(given):
  mechanism, density = _mechanism(**given), compared_densities.wrapped_mixture()
  if mechanism.basis == 'cosine':
    density = compared_densities.beta(2, 5)
  counts = density.counts(np.random.default_rng(1), repetitions=4000,
                          num_records=mechanism.num_records, num_bins=21)
  errors = estimate.errors_of(mechanism.kind,
                              mechanism.coefficients(jax.random.key(2), counts),
                              density)
  error = errors.std() / math.sqrt(errors.size)
  assert abs(errors.mean() - mechanism.expected(density).total) < 4 * error


@pytest.mark.parametrize('adjacency, sensitivity', [(_REPLACE, 2.0),
                                                    (_ADD, 1.0)])
def test_noise_is_of_what_one_record_moves(adjacency, sensitivity):
  mechanism = _mechanism(adjacency=adjacency)
  cells = [np.full(1, (b + 0.5) / 21) for b in range(21)]
  one = np.stack([mechanism.statistic(cell) for cell in cells])
  others = one if adjacency is _REPLACE else np.zeros([1, 21])
  most = np.abs(one[:, None] - others[None]).sum(-1).max()
  assert most == sensitivity and mechanism.scale == most / mechanism.epsilon
  rho = dataclasses.replace(mechanism, epsilon=None, rho=0.02)
  square = np.square(one[:, None] - others[None]).sum(-1).max()
  assert square / (2 * rho.scale**2) == pytest.approx(0.02)


def test_an_unknown_total_is_the_noisy_one():
  mechanism = _mechanism(adjacency=_ADD, epsilon=1e7)
  counts = compared_densities.tent(4).masses(21) * 300
  np.testing.assert_allclose(
      mechanism.coefficients(jax.random.key(0), counts[None])[0],
      compared_densities.tent(4).masses(21) @ bases.basis('fourier', 21, 5).analysis,
      atol=1e-5)


def test_bins_alias_as_the_proof_says():
  """E theta_k is the sum over l of theta_(k + l m) k / (k + l m)."""
  density, bins = compared_densities.random_phases(1), 21
  theta = density.fourier(2048)
  both = np.concatenate([theta[::-1].conj(), [1], theta])
  coefficients = density.masses(bins) @ bases.basis('fourier', bins).analysis
  for k in range(1, 11):
    shifts = np.arange(-90, 91)
    expected = np.sum(both[2048 + k + shifts * bins] * k / (k + shifts * bins))
    assert coefficients[k - 1] == pytest.approx(expected, abs=1e-5)


def test_cosines_alias_in_pairs():
  density, bins = compared_densities.beta(2, 5), 9
  theta = density.cosine(2000)
  coefficients = density.masses(bins) @ bases.basis('cosine', bins).analysis
  for k in range(1, bins):
    up, down = (np.arange(1, 100) * 2 * bins + sign * k for sign in (1, -1))
    expected = theta[k - 1] + np.sum(k / up * theta[up - 1]
                                     - k / down * theta[down - 1])
    assert coefficients[k - 1] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize('bins', [3, 11, 41, 1001])
def test_noise_is_at_most_that_of_the_integral(bins):
  gains = bases.basis('fourier', bins).gains / bins
  assert 2 * gains.sum() <= 2 * math.log(2) * bins
  known = {3: 0.97478, 11: 1.28868, 41: 1.36142}
  if bins in known:
    assert 2 * gains.sum() / bins == pytest.approx(known[bins], abs=1e-5)


@pytest.mark.parametrize('smoothness, plain, tapered, noise, least', [
    (1, 2.016, 1.04, 2.92, 1.107), (2, 2.001, 1.05, 4.87, 1.201),
    (3, 2.000, 1.06, 6.04, 1.233)])
def test_constants(smoothness, plain, tapered, noise, least):
  constants = spectral_risks.constants(smoothness)
  bare = spectral_risks.constants(smoothness, 'none')
  proved = 2 * (1 - 2.0**(-2 * smoothness - 2)) * special.zeta(
      2 * smoothness + 2)
  assert bare.bias == pytest.approx(plain, abs=1e-3) and bare.bias <= proved
  assert bare.noise == pytest.approx(2 * math.log(2), rel=1e-6)
  assert constants.bias == pytest.approx(tapered, abs=6e-3)
  assert 8 * constants.noise == pytest.approx(noise, abs=5e-3)
  power = 1 / (smoothness + 1)
  bias = constants.bias * math.pi**(-2 * smoothness)
  best = bias**power * (8 * constants.noise)**(1 - power) * (
      smoothness**(power - 1) + smoothness**power)
  assert best == pytest.approx(least, rel=3e-3)


@pytest.mark.parametrize('taper', spectral_risks.TAPERS)
@pytest.mark.parametrize('smoothness', [1, 2])
def test_no_density_of_the_class_errs_more(taper, smoothness):
  """No density of the class exceeds the worst risk, aliasing ones included."""
  mechanism = spectral_risks.tuned(20000, smoothness=smoothness, lipschitz=5.0,
                        adjacency=_REPLACE, epsilon=0.1, taper=taper)
  worst = spectral_risks.worst_risk(mechanism.num_bins, num_records=20000,
                                    noise_variance=mechanism.noise_variance,
                                    smoothness=smoothness, lipschitz=5.0,
                                    taper=taper)
  rng, bins = np.random.default_rng(0), mechanism.num_bins
  ratios = []
  for trial in range(40):
    theta = np.zeros(3 * bins, complex)
    if trial % 2:
      k = rng.integers(1, bins // 2 + 1)
      theta[[k - 1, bins - k - 1]] = [rng.uniform(-.3, 1), 1]
    else:
      theta[:] = rng.normal(size=theta.size) / np.arange(
          1, theta.size + 1)**(smoothness + 0.6)
    density = compared_densities.series('any', theta)
    density = compared_densities.series('any', theta * 5.0 / density.sobolev(smoothness))
    assert density.sobolev(smoothness) == pytest.approx(5.0)
    ratios.append(mechanism.expected(density).total / worst)
  assert 0.3 < max(ratios) <= 1


def test_bins_are_the_best_of_the_bound():
  mechanism = spectral_risks.tuned(10**5, smoothness=2, lipschitz=50.0,
                                   epsilon=0.1, adjacency=_REPLACE)
  risks = [spectral_risks.worst_risk(
      bins, num_records=10**5, noise_variance=mechanism.noise_variance,
      smoothness=2, lipschitz=50.0) for bins in (
          mechanism.num_bins - 2, mechanism.num_bins, mechanism.num_bins + 2)]
  assert mechanism.num_bins % 2 and min(risks) == risks[1]


@pytest.mark.every(1)
@pytest.mark.parametrize('num_records, smoothness, lipschitz', [
    (1, 1, 0.5), (30, 2, 3.0), (5000, 1, 20.0), (10**6, 3, 2.0),
    (10**13, 1, 300.0)])
@pytest.mark.parametrize('taper', spectral_risks.TAPERS)
def test_no_other_number_of_bins_is_better(num_records, smoothness, lipschitz,
                                           taper):
  """The tuned number of bins is the best odd one up to 2001."""
  for budget in (dict(epsilon=0.5), dict(rho=2.0), dict(epsilon=1e-3)):
    mechanism = spectral_risks.tuned(num_records, smoothness=smoothness,
                                     taper=taper, lipschitz=lipschitz,
                                     adjacency=_REPLACE, **budget)
    risk = functools.partial(
        spectral_risks.worst_risk, num_records=num_records, taper=taper,
        noise_variance=mechanism.noise_variance, smoothness=smoothness,
        lipschitz=lipschitz)
    every = np.arange(3, 2002, 2)
    assert mechanism.num_bins == every[np.argmin(risk(every))]
    assert len(mechanism.weights) in (0, mechanism.num_bins // 2)
  if num_records == 10**13:
    assert mechanism.num_bins > 1000


@pytest.mark.parametrize('smoothness', [1, 2, 3])
def test_the_rate_is_that_of_the_lower_bound(smoothness):
  signals = np.geomspace(1e3, 1e7, 9)
  risks = []
  for signal in signals:
    bins = np.arange(3, 20001, 2)
    risks.append(np.min(spectral_risks.worst_risk(
        bins, num_records=1e12, noise_variance=8e24 / signal**2,
        smoothness=smoothness, lipschitz=10.0, taper='none')))
  slope = np.polyfit(np.log(signals), np.log(risks), 1)[0]
  assert slope == pytest.approx(-2 * smoothness / (smoothness + 1), abs=0.02)


def test_kernel_weights_make_a_kernel_estimate():
  """Kernel weights give a wrapped Gaussian on each record in fine bins."""
  bins, bandwidth = 501, 0.05
  x = (np.array([3, 40, 41, 250, 499]) + 0.5) / bins
  mechanism = _mechanism(
      num_records=5, epsilon=None, num_bins=bins,
      weights=tuple(spectral_risks.gaussian_kernel(bins, bandwidth)))
  grid = np.linspace(0, 1, 101)
  gaps = grid[:, None, None] - x[:, None] + np.arange(-2, 3)
  wanted = stats.norm.pdf(gaps, scale=bandwidth).sum(2).mean(1)
  curve = mechanism.estimate(jax.random.key(0), x)(grid)
  np.testing.assert_allclose(curve, wanted, atol=1e-3 * wanted.max())


def test_what_does_not_fit_is_refused():
  for given, message in ((dict(num_bins=20), 'odd'),
                         (dict(weights=(1.0,) * 11), 'coefficients'),
                         (dict(basis='spline'), 'basis'),
                         (dict(rho=1.0), 'one of them'),
                         (dict(epsilon=0.0), 'epsilon')):
    with pytest.raises(ValueError, match=message):
      _mechanism(**given)
