"""Tests dpjax.privacy.discrete: privacy by enumeration of drawn values."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import discrete
from dpjax.privacy import integers
from dpjax.privacy import mechanism as mechanisms
from dpjax.privacy.adjacency import Adjacency

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(2)
DRAWS = 100_000


def geometric(**changes):
  return discrete.GeometricMechanism(**{
    'record_norm': 1, 'epsilon': 1., 'adjacency': ADD, **changes})


def gaussian(**changes):
  return discrete.DiscreteGaussianMechanism(**{
    'record_norm': 1., 'noise_multiplier': 2., 'adjacency': ADD, **changes})


@pytest.mark.every(2)
def test_wide_noise_is_a_sum_of_two_of_its_variance():
  """Wide noise is Z1 + k Z2, whose variance p^2 (1 + k^2) is the stated one."""
  for stddev in (300., 362., 520., 1000., 60_000.):
    mechanism = gaussian(noise_multiplier=stddev)
    width, multiplier = mechanism._parts()
    assert width <= integers.LARGEST_STDDEV
    # Tables are as wide as possible, since narrow ones leave gaps.
    assert multiplier == 0 or stddev > integers.LARGEST_STDDEV * math.hypot(
      1, multiplier - 1)
    assert mechanism.total_variation < 1e-20
    assert (multiplier == 0) == (stddev == 300)
    assert width**2 * (1 + multiplier**2) == pytest.approx(stddev**2)


def table(mechanism, bound):
  """Returns the probabilities of -bound, ..., bound, from the one table."""
  noise, = mechanism._tables()
  weights = {noise.first + i: w / 2**96 for i, w in enumerate(noise.weights)}
  return np.array([weights[z] for z in range(-bound, bound + 1)])


def curve(here, there, epsilon):
  """Returns the hockey-stick divergence of two probability vectors."""
  return np.maximum(here - math.exp(epsilon) * there, 0).sum()


@pytest.mark.parametrize('adjacency, record_norm', [
  (ADD, 1), (ADD, 3), (REPLACE, 1), (REPLACE, 2)])
def test_geometric_loss_by_enumeration(adjacency, record_norm):
  """The largest log-ratio over all shifts is epsilon,
  and attained (MECH-02)."""
  mechanism = geometric(adjacency=adjacency, record_norm=record_norm)
  sensitivity = record_norm * (2 if adjacency is REPLACE else 1)
  assert mechanism.l1_sensitivity == sensitivity
  noise = table(mechanism, 30 * sensitivity)
  # Tables are exact to 2^-96, so 10^-13 is to a relative 10^-16.
  losses = [np.abs(np.log(noise[shift:] / noise[:-shift])).max()
            for shift in range(1, sensitivity + 1)]
  assert max(losses) == pytest.approx(1, abs=1e-12) == losses[-1]
  # One more step costs more, so the sensitivity is not too large.
  further = sensitivity + 1
  assert np.log(noise[further:] / noise[:-further]).min() < -1.1


@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
def test_geometric_event_is_the_exact_curve(adjacency):
  """The event has the exact curve; replace-one doubles the sensitivity."""
  mechanism = geometric(adjacency=adjacency, record_norm=2, epsilon=1.5)
  noise = table(mechanism, 80)
  shift = mechanism.l1_sensitivity
  for epsilon in (0., .4, 1.1):
    exact = curve(noise[shift:], noise[:-shift], epsilon)
    delta = accounting.delta_for(mechanism.event, target_epsilon=epsilon,
                                 adjacency=adjacency)
    assert exact - 1e-12 <= delta <= exact + 1e-4
  assert mechanisms.epsilon(mechanism, delta=1e-9) == pytest.approx(1.5,
                                                                    abs=1e-6)
  with pytest.raises(ValueError, match='the rdp accountant does not cover'):
    mechanisms.epsilon(mechanism, delta=1e-9, accountant='rdp')


def test_a_shift_in_one_coordinate_dominates():
  """One shifted coordinate is worst, so a scalar event covers l1 bounds."""
  noise = table(geometric(), 40)
  pair = np.outer(noise, noise)
  for epsilon in (0., .3, 1., 1.7):
    split = curve(pair[1:, 1:], pair[:-1, :-1], epsilon)
    joint = curve(noise[2:], noise[:-2], epsilon)
    assert split <= joint + 1e-12


def test_geometric_golden_values():
  """Geometric noise has the golden variance and mean modulus (MECH-02)."""
  mechanism = geometric()
  noise = table(mechanism, 60)
  z = np.arange(-60, 61)
  assert (noise * z**2).sum() == pytest.approx(1.841347, abs=1e-6)
  assert mechanism.risk(3) == pytest.approx(3 * 1.841347, abs=1e-5)
  assert (noise * abs(z)).sum() == pytest.approx(.850918, abs=1e-6)
  assert noise[60] == pytest.approx(math.tanh(.5))


def clamped_matrix(mechanism):
  """Returns probabilities [true count, released], clamped to 0, ..., 4."""
  noise = table(mechanism, 60)
  matrix = np.zeros([5, 5])
  for count in range(5):
    for z, p in zip(range(-60, 61), noise, strict=True):
      matrix[count, min(max(count + z, 0), 4)] += p
  return matrix


@pytest.mark.every(2)
def test_truncated_geometric_golden_matrix():
  """The truncated mechanism has the golden matrix and log-ratio 1 (MECH-02)."""
  mechanism = geometric(upper=4)
  matrix = clamped_matrix(mechanism)
  a = math.exp(-1)
  for c in range(5):
    inside = [math.tanh(.5) * a**abs(c - z) for z in (1, 2, 3)]
    np.testing.assert_allclose(
      matrix[c], [a**c / (1 + a), *inside, a**(4 - c) / (1 + a)], rtol=1e-12)
  np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-12)
  ratio = np.abs(np.log(matrix[1:] / matrix[:-1])).max()
  assert ratio == pytest.approx(1, abs=1e-12)
  counts = jnp.repeat(jnp.arange(5, dtype=jnp.int32), DRAWS // 5)
  released = np.asarray(mechanism.release(KEY, counts)).reshape(5, -1)
  seen = np.stack([np.bincount(row, minlength=5) for row in released])
  wanted = matrix * DRAWS / 5
  assert seen.shape == (5, 5) and mechanism.risk(1) is None
  assert ((seen - wanted)**2 / wanted).sum() < stats.chi2(20).isf(1e-6)


def log_moment(noise, shift, order):
  """Returns the Renyi divergence of a probability vector under a shift."""
  here, there = noise[shift:], noise[:-shift]
  kept = (here > 1e-25) & (there > 1e-25)
  return np.log(np.sum(here[kept]**order * there[kept]**(1 - order))) / (
    order - 1)


@pytest.mark.parametrize('stddev', [.6, 2., 5.])
def test_discrete_gaussian_is_zcdp(stddev):
  """The discrete Gaussian's divergence is at most alpha
  shift^2 / (2 stddev^2)."""
  noise = table(gaussian(noise_multiplier=stddev), math.ceil(9 * stddev))
  for shift in (1, 2):
    for order in (1.5, 2., 3.):
      bound = order * shift**2 / (2 * stddev**2)
      moment = log_moment(noise, shift, order)
      assert moment <= bound * (1 + 1e-9)
      if stddev >= 2 and shift == 1:
        assert moment > .999 * bound
        # Noise that is ten percent too small is detected.
        less = table(gaussian(noise_multiplier=.9 * stddev),
                     math.ceil(7 * stddev))
        assert log_moment(less, shift, order) > bound * 1.1


@pytest.mark.every(3)
@pytest.mark.parametrize('adjacency, rho', [(ADD, 1 / 8), (REPLACE, 1 / 2)])
def test_discrete_gaussian_event(adjacency, rho):
  mechanism = gaussian(adjacency=adjacency, record_norm=3.)
  assert mechanism.event == accounting.concentrated_event(
    rho=rho, adjacency=mechanism.adjacency)
  spent = mechanisms.epsilon(mechanism, delta=1e-5, accountant='rdp')
  # It lies between the exact Gaussian curve and the textbook conversion.
  exact = accounting.epsilon(accounting.gaussian_event(noise_multiplier=2.),
                             delta=1e-5, adjacency=adjacency)
  assert exact < spent < rho + 2 * math.sqrt(rho * math.log(1e5))


WIDE = [geometric(epsilon=1 / 500), gaussian(noise_multiplier=3000.),
        gaussian(noise_multiplier=17.), geometric(epsilon=.2)]


@pytest.mark.every(3)
@pytest.mark.parametrize('mechanism', WIDE, ids=[
  'digits', 'convolution', 'gaussian', 'geometric'])
def test_release_law(mechanism):
  """Releases pass Kolmogorov-Smirnov at 1e-6; ten percent less noise fails."""
  data = {'a': jnp.full((DRAWS // 2,), 1000, jnp.int32),
          'b': jnp.full((DRAWS // 4, 2), 1000, jnp.int32)}
  noisy = mechanism.release(KEY, data)
  noise = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(noisy)])
  noise = noise.astype(np.float64) - 1000
  assert jax.tree.map(jnp.shape, noisy) == jax.tree.map(jnp.shape, data)
  if isinstance(mechanism, discrete.GeometricMechanism):
    distribution, spread = stats.dlaplace(1 / mechanism.scale), 5.
  else:
    distribution, spread = stats.norm(0, mechanism.stddev), 2.
  correction = .5 if spread == 2. else 0.

  def distance(values):
    ends = np.unique(values)
    seen = np.searchsorted(np.sort(values), ends, side='right') / DRAWS
    return np.abs(seen - distribution.cdf(ends + correction)).max()

  assert distance(noise) < 2.7 / DRAWS**.5
  assert distance(np.round(noise * .9)) > 2.7 / DRAWS**.5
  variance = mechanism.risk(1)
  assert noise.var() == pytest.approx(
    variance, rel=5 * math.sqrt(spread / DRAWS))
  # It is less than 10^-15 of delta for 10^9 numbers.
  assert 0 < mechanism.total_variation < 1e-24


def test_both_are_mechanisms_that_compose():
  for mechanism in (geometric(), gaussian()):
    assert isinstance(mechanism, mechanisms.Mechanism)
  once, pure = (
    accounting.epsilon(accounting.repeated_event(event, 50), delta=1e-6,
                       adjacency=REPLACE)
    for event in (geometric(epsilon=.1, record_norm=4).event,
                  accounting.pure_event(epsilon=.1, adjacency=ADD)))
  assert once < pure


@pytest.mark.every(2)
def test_leaves_and_laws_use_words_of_their_own():
  noise = geometric(epsilon=1 / 500).release(
    KEY, {'a': jnp.zeros(2000, jnp.int32), 'b': jnp.zeros(2000, jnp.int32)})
  assert abs(np.corrcoef(noise['a'], noise['b'])[0, 1]) < 5 / 2000**.5
  # The noise uses two different draws, since equal ones would cancel to 0.
  assert np.mean(np.asarray(noise['a']) == 0) < .02


@pytest.mark.parametrize('make, message', [
  (lambda: geometric(record_norm=1.5), 'record_norm must be an integer >= 1'),
  (lambda: geometric(epsilon=0.), 'epsilon must be a positive number'),
  (lambda: geometric(epsilon=1e-5), 'epsilon must be at least l1_sensitivity'),
  (lambda: geometric(upper=0), 'upper must be an integer >= 1'),
  (lambda: gaussian(record_norm=-1.), 'record_norm must be a positive'),
  (lambda: gaussian(noise_multiplier=1e5), r'noise_multiplier \* record_norm'),
  (lambda: gaussian().release(KEY, jnp.zeros(3)), 'integer noise is for int32'),
])
def test_refusals(make, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    make()


# Faults are planted from here on.


def test_fault_one_entry_shifted(monkeypatch):
  """Moving the weight of 1 to 2 fails the golden-value tests."""
  noise_table = integers.discrete_laplace(1.)
  weights = list(noise_table.weights)
  weights[2 - noise_table.first] += weights[1 - noise_table.first]
  weights[1 - noise_table.first] = 0
  shifted = dataclasses.replace(noise_table, weights=tuple(weights))
  monkeypatch.setattr(integers, 'discrete_laplace', lambda scale: shifted)
  for test in (test_geometric_golden_values,
               test_truncated_geometric_golden_matrix):
    with pytest.raises(AssertionError):
      test()


def test_fault_half_the_sensitivity(monkeypatch):
  monkeypatch.setattr(discrete, 'sum_sensitivity',
                      lambda adjacency, record_norm: record_norm)
  with pytest.raises(AssertionError):
    test_geometric_loss_by_enumeration(REPLACE, 1)
  with pytest.raises(AssertionError):
    test_discrete_gaussian_event(REPLACE, 1 / 2)
