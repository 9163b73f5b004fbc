"""Tests the Gaussian mechanism: claim, samples, calibration and refusals."""

import dataclasses
import math

import dp_accounting
from dp_accounting import dp_event as dp_events
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(7)
KS_BOUND = 2.7


def kolmogorov_distance(draws, cdf):
  """Returns the largest distance of the empirical distribution from `cdf`."""
  levels = cdf(np.sort(np.ravel(draws)))
  steps = np.arange(levels.size + 1) / levels.size
  return max((steps[1:] - levels).max(), (levels - steps[:-1]).max())


def exact_delta(mu, epsilon):
  return (special.ndtr(mu / 2 - epsilon / mu) -
          math.exp(epsilon) * special.ndtr(-mu / 2 - epsilon / mu))


@pytest.fixture(params=[(ADD, .5, 2.), (REPLACE, .5, 2.), (ADD, 10., .3)])
def mechanism(request):
  adjacency, record_norm, multiplier = request.param
  return additive.GaussianMechanism(
      record_norm=record_norm, noise_multiplier=multiplier,
      adjacency=adjacency)


def test_fields_and_event(mechanism):
  assert mechanism.stddev == (mechanism.noise_multiplier *
                              mechanism.record_norm)
  # Accountants get the noise over a record's norm, and the adjacency.
  assert mechanism.event == dp_events.GaussianDpEvent(
      mechanism.noise_multiplier)
  factor = 2 if mechanism.adjacency is REPLACE else 1
  assert mechanism.l2_sensitivity == factor * mechanism.record_norm
  assert mechanism.risk(12) == 12 * mechanism.stddev**2
  with pytest.raises(dataclasses.FrozenInstanceError):
    mechanism.noise_multiplier = 1.


@pytest.mark.every(2)
def test_claim_is_that_of_noise_over_sensitivity(mechanism):
  spent = accounting.epsilon(mechanism.event, delta=1e-6,
                             adjacency=mechanism.adjacency)
  exact = dp_accounting.get_epsilon_gaussian(
      mechanism.stddev / mechanism.l2_sensitivity, 1e-6)
  assert exact - 1e-9 <= spent <= exact + 1e-3


@pytest.mark.every(2)
def test_release_law(mechanism):
  values = jnp.linspace(-1, 1, 200_000).reshape(1000, 200)
  noisy = mechanism.release(KEY, values)
  draws = np.ravel(np.asarray(noisy, np.float64) - values) / mechanism.stddev
  bound = KS_BOUND / draws.size**.5 + .4 / 512
  assert kolmogorov_distance(draws, special.ndtr) < bound
  # Five standard errors have a rate of 6e-7; the grid adds its variance.
  assert abs(draws.mean()) < 5 / draws.size**.5
  assert abs(draws.var() - 1) < 5 * math.sqrt(2 / draws.size) + 256**-2 / 12
  risk = np.sum((draws * mechanism.stddev)**2)
  assert risk == pytest.approx(mechanism.risk(draws.size), rel=.02)


@pytest.mark.slow
def test_keys_decide(mechanism):
  data = {'sum': jnp.arange(5.), 'count': jnp.array(3.)}
  one = mechanism.release(KEY, data)
  jax.tree.map(np.testing.assert_array_equal, one,
               mechanism.release(KEY, data))
  jax.tree.map(np.testing.assert_array_equal, one,
               jax.jit(mechanism.release)(KEY, data))
  keys = jax.random.split(KEY, 10)
  many = jax.vmap(mechanism.release, (0, None))(keys, data)
  for i, key in enumerate(keys):
    jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b),
                 many, mechanism.release(key, data))
  assert len(np.unique(many['sum'], axis=0)) == 10


@pytest.mark.parametrize('arguments, message', [
  ({'record_norm': 0.}, 'record_norm must be a positive number, got 0.0'),
  ({'record_norm': math.inf}, 'record_norm must be a positive number, got inf'),
  ({'noise_multiplier': -1.}, 'noise_multiplier must be a positive number, '
   'got -1.0'),
  ({'noise_multiplier': 0.}, 'noise_multiplier must be a positive number, '
   'got 0.0'),
])
def test_refusals(arguments, message):
  good = {'record_norm': 1., 'noise_multiplier': 1., 'adjacency': ADD}
  with pytest.raises(ValueError, match=f'^{message}$'):
    additive.GaussianMechanism(**{**good, **arguments})
  with pytest.raises(TypeError):
    additive.GaussianMechanism(record_norm=1., noise_multiplier=1.)


@pytest.mark.every(4)
@pytest.mark.parametrize('epsilon, stddev', [
  (.1, 30.7496), (.5, 7.03183), (1., 3.730632), (2., 1.99381),
  (5., .89187)])
def test_golden_calibration(epsilon, stddev):
  """Calibration gives the golden deviations, never less than exact (DP-11)."""
  mechanism = additive.calibrated_gaussian(
      record_norm=2., epsilon=epsilon, delta=1e-5, adjacency=ADD)
  assert mechanism.stddev / 2 == pytest.approx(stddev, rel=4e-4)
  # The noise is never less than the exact curve needs.
  exact = dp_accounting.get_sigma_gaussian(epsilon, 1e-5)
  assert exact * (1 - 1e-7) <= mechanism.noise_multiplier <= exact * (1 + 4e-4)
  assert exact_delta(1 / mechanism.noise_multiplier,
                     epsilon) <= 1e-5 * (1 + 1e-6)


def test_replacement_needs_twice_the_noise():
  add, replace = (additive.calibrated_gaussian(
      record_norm=1., epsilon=1., delta=1e-5, adjacency=adjacency)
      for adjacency in (ADD, REPLACE))
  assert replace.stddev == pytest.approx(2 * add.stddev, rel=4e-4)


def test_classical_scale_is_no_guarantee_at_large_epsilon():
  """The classical scale fails at large epsilon; Theorem
  3.1.8 omits this (E23)."""
  for delta, last in [(1e-5, 8.42), (1e-3, 7.46), (1e-2, 6.77)]:
    def leak(epsilon):
      return exact_delta(epsilon / math.sqrt(2 * math.log(1.25 / delta)),
                         epsilon)

    assert leak(1.) < leak(last - .5) < delta * (1 + 1e-9)
    assert leak(last) <= delta * 1.002 and leak(last + .05) > delta
  assert leak_at_ten() == pytest.approx(2.27e-5, rel=1e-2)
  root = math.sqrt(2 * math.log(1.25e5))
  for epsilon, stddev in [(.1, 48.448), (.5, 9.6896), (1., 4.8448), (5., .96896)]:
    assert root / epsilon == pytest.approx(stddev, rel=1e-4)
  assert exact_delta(50. / root, 50.) == pytest.approx(.586, abs=5e-4)


def leak_at_ten():
  return exact_delta(10 / math.sqrt(2 * math.log(1.25e5)), 10.)


@pytest.mark.parametrize('adjacency, factor', [(ADD, 1), (REPLACE, 2)])
def test_classical_noise_is_that_of_the_textbook(adjacency, factor):
  """Classical noise is sensitivity sqrt(2 ln(1.25 / delta)) / epsilon."""
  mechanism = additive.classical_gaussian(record_norm=3., epsilon=.7,
                                          delta=1e-4, adjacency=adjacency)
  assert mechanism.adjacency is adjacency and mechanism.record_norm == 3
  assert mechanism.stddev == pytest.approx(
    factor * 3 * math.sqrt(2 * math.log(1.25e4)) / .7)
  for bad in (dict(record_norm=0.), dict(epsilon=0.), dict(delta=1.)):
    with pytest.raises(ValueError, match=f'^{next(iter(bad))} must'):
      additive.classical_gaussian(**{
        'record_norm': 1., 'epsilon': 1., 'delta': .1, 'adjacency': adjacency,
        **bad})


@pytest.mark.slow
@pytest.mark.parametrize('epsilon, stddev, spent', [
  (.5, 9.68961, .3526), (1., 4.84481, .7510), (8., .60560, 7.9144),
  (10., .48448, 10.3939)])
def test_classical_noise_is_too_much_and_then_too_little(epsilon, stddev,
                                                         spent):
  """Classical noise spends less than its epsilon, then more (MECH-04)."""
  for adjacency, record_norm in ((ADD, 1.), (REPLACE, .5)):
    classical = additive.classical_gaussian(
      record_norm=record_norm, epsilon=epsilon, delta=1e-5,
      adjacency=adjacency)
    assert classical.stddev == pytest.approx(stddev, abs=5e-5)
    actual = accounting.epsilon(classical.event, delta=1e-5,
                                adjacency=adjacency)
    assert actual == pytest.approx(spent, abs=1e-3)
  exact = additive.calibrated_gaussian(record_norm=1., epsilon=epsilon,
                                       delta=1e-5, adjacency=ADD)
  assert (exact.stddev < classical.stddev) == (epsilon < 8.42)


@pytest.mark.every(3)
@pytest.mark.parametrize('rho, spent', [(.1, 1.76006), (.5, 4.37718),
                                        (2., 9.99726)])
def test_calibration_to_zcdp(rho, spent):
  """zCDP calibration gives sensitivity / sqrt(2 rho), with ALG-04's curve."""
  for adjacency, record_norm in ((ADD, 3.), (REPLACE, 1.5)):
    mechanism = additive.zcdp_gaussian(record_norm=record_norm, rho=rho,
                                       adjacency=adjacency)
    assert mechanism.stddev == pytest.approx(3 / math.sqrt(2 * rho))
    assert accounting.epsilon(mechanism.event, delta=1e-5, adjacency=adjacency
                              ) == pytest.approx(spent, abs=1e-3)
  with pytest.raises(ValueError, match='rho must be a positive number'):
    additive.zcdp_gaussian(record_norm=1., rho=0., adjacency=ADD)
