"""These tests check norm certificates that fail with known probability.

They cover SPEC-07.
"""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from dpjax.lipschitz import norms
from experiments.methods.training import randomised

BETA = 1e-10


def _bound_of(matrix, num_iterations, **options):
  """Returns a compiled function from a key to the bound of one matrix."""
  options = {'failure_prob': BETA, **options}
  return jax.jit(lambda key: randomised.randomised_upper_bound(
    lambda v: jnp.matmul(matrix, v, precision=jax.lax.Precision.HIGHEST), key,
    (matrix.shape[1],), num_iterations=num_iterations, **options))


def _svd(matrix):
  return np.linalg.norm(np.asarray(matrix, np.float64), 2)


@pytest.fixture(name='gaussian', scope='module')
def _gaussian():
  rng = np.random.default_rng(0)
  return jnp.asarray(rng.normal(size=(512, 512)), jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize('num_iterations, golden', [
  (20, 1.79), (100, 1.111), (300, 1.033)])
def test_gaussian_512_from_one_start(gaussian, num_iterations, golden):
  # The published ratios have another matrix and start.
  bound = _bound_of(gaussian, num_iterations, num_starts=1, turn_rounding=0.)
  ratio = float(bound(jax.random.key(0))) / _svd(gaussian)
  assert ratio >= 1 and ratio == pytest.approx(golden, rel=0.012)


@pytest.mark.slow
def test_gaussian_512_from_many_starts(gaussian):
  """Twenty turns from sixteen starts bound a Gaussian within 6.5 %."""
  ratio = float(_bound_of(gaussian, 20)(jax.random.key(0))) / _svd(gaussian)
  assert 1 <= ratio <= 1.065


@pytest.mark.every(2)
@pytest.mark.parametrize('size, share, published, bound', [
  (50, .05, .271, .282), (500, .01, .173, .178)])
def test_tail_of_the_first_component(size, share, published, bound):
  """The tail of the first component is below its bound (P5).

  The exact tail is a beta distribution's and agrees with simulation.
  """
  exact = scipy.stats.beta.cdf(share**2, 0.5, (size - 1) / 2)
  claimed = share * math.sqrt(2 * size / math.pi)
  # The published value is itself from a simulation.
  assert exact == pytest.approx(published, abs=0.006)
  assert claimed == pytest.approx(bound, abs=5e-4)
  assert exact <= claimed
  draws = np.random.default_rng(0).normal(size=(20000, size))
  share_below = np.mean(np.abs(draws[:, 0]) <=
                        share * np.linalg.norm(draws, axis=1))
  # At 4.9 standard deviations a two-sided false alarm has probability 1e-6.
  assert abs(share_below - exact) <= 4.9 * math.sqrt(exact / 20000)


def test_tail_bound_in_every_dimension():
  for size in (2, 3, 4, 10, 1000, 10**6):
    for share in np.logspace(-12, 0, 60) * math.sqrt(math.pi / (2 * size)):
      exact = scipy.stats.beta.cdf(share**2, 0.5, (size - 1) / 2)
      assert exact <= share * math.sqrt(2 * size / math.pi) * (1 + 1e-9)


def _failures(failure_prob, num_starts, scale=1.0, num_keys=20000):
  """Returns how often the bound misses a map of one singular value."""
  size = 6
  bound = jax.jit(jax.vmap(lambda key: randomised.randomised_upper_bound(
    lambda v: v * jnp.asarray([2.] + [0.] * (size - 1)), key, (size,),
    num_iterations=2, failure_prob=failure_prob, num_starts=num_starts,
    turn_rounding=0.)))
  keys = jax.random.split(jax.random.key(7), num_keys)
  return np.mean(np.float64(bound(keys)) * scale < 2)


@pytest.mark.every(3)
@pytest.mark.parametrize('num_starts', [1, 3])
def test_fails_as_often_as_it_says(num_starts):
  beta = 0.2
  frequency = _failures(beta, num_starts)
  component = beta**(1 / num_starts) * math.sqrt(math.pi / 12)
  exact = scipy.stats.beta.cdf(component**2, 0.5, 2.5)**num_starts
  deviation = 4.9 * math.sqrt(exact / 20000)
  assert exact <= beta and abs(frequency - exact) <= deviation
  # The planted fault is a bound with exponent 2 t + 1 instead of 2 t.
  assert _failures(beta, num_starts, scale=0.9) > beta + deviation


def test_rounding_is_covered_turn_by_turn():
  """The bound covers an adversary who rounds by e ||v|| each turn."""
  turns, rounding = 12, 1e-3
  matrix = jnp.diag(jnp.asarray([1., 0.6, 0.5]))
  plain, covered = [float(_bound_of(
    matrix, turns, failure_prob=0.1, num_starts=1, turn_rounding=e)(
      jax.random.key(0))) for e in (0., rounding)]
  component = 0.1 * math.sqrt(math.pi / 6)
  vector = np.array([component, math.sqrt(1 - component**2), 0.])
  for _ in range(turns):
    size = np.linalg.norm(vector)
    vector = np.diag([1., 0.36, 0.25]) @ vector
    vector[0] -= rounding * size
  # These are the ratios of the least promised start, without and with cover.
  missed = (np.linalg.norm(vector) / component)**(0.5 / turns)
  assert missed < 1 <= missed * covered / plain
  drift = (1 + rounding)**turns - 1
  assert covered / plain == pytest.approx(
    (1 - drift / component)**(-0.5 / turns), rel=1e-5)


@pytest.mark.every(2)
def test_many_random_maps_none_missed():
  """The bound misses none of 40 random maps, at two sizes of rounding."""
  rng = np.random.default_rng(1)
  for rounding in (1e-6, 1e-4):
    bound = jax.jit(lambda key, w, r=rounding: (
      randomised.randomised_upper_bound(
        lambda v: w @ v, key, (12,), num_iterations=30, failure_prob=BETA,
        turn_rounding=r)))
    for index in range(40):
      matrix = rng.normal(size=(9, 12)) * np.logspace(0, -rng.uniform(0, 6), 12)
      matrix = np.float32(matrix * 10**rng.uniform(-18, 18))
      ratio = float(bound(jax.random.key(index), matrix)) / _svd(matrix)
      assert 1 <= ratio <= 1.07


@pytest.mark.slow
def test_maps_on_images():
  matrix = jnp.asarray(np.random.default_rng(0).normal(size=(5, 12)),
                       jnp.float32)
  bound = randomised.randomised_upper_bound(
    lambda image: matrix @ image.ravel(), jax.random.key(0), (3, 4),
    num_iterations=60, failure_prob=BETA)
  assert 1 <= float(bound) / _svd(matrix) <= 1.03


@pytest.mark.every(2)
@pytest.mark.parametrize('scale', [1e-25, 1e-15, 1e15, 1e30])
def test_extreme_scales(scale):
  matrix = np.random.default_rng(0).normal(size=(7, 9)) * scale
  matrix = jnp.asarray(matrix, jnp.float32)
  ratio = float(_bound_of(matrix, 50)(jax.random.key(0))) / _svd(matrix)
  assert 1 <= ratio <= 1.04


def test_zero_and_not_finite():
  assert 0 < float(_bound_of(jnp.zeros([4, 3]), 5)(jax.random.key(0))) < 1e-36
  for bad in (np.nan, np.inf):
    matrix = jnp.ones([4, 3]).at[1, 1].set(bad)
    assert not np.isfinite(_bound_of(matrix, 5)(jax.random.key(0)))


def test_a_warm_start_voids_the_certificate():
  """A warm start can miss the norm with certainty, so none is allowed."""
  assert 'start' not in inspect.signature(
    randomised.randomised_upper_bound).parameters
  before = jnp.asarray(np.diag([2., 1., 1.]), jnp.float32)
  _, warm = norms.power_iteration(before, jnp.ones(3), num_iterations=60)
  # The next weights have their leading vector where the warm one is zero.
  after = np.diag([1., 1., 10.])
  image, turns = np.float64(warm), 40
  for _ in range(turns):
    image = after.T @ (after @ image)
  # The exact image is used, with a start from [0, 0, 1] up to rounding.
  log_ratio = np.log(np.linalg.norm(image) * math.sqrt(6 / math.pi) / 1e-10)
  from_warm = np.exp(log_ratio / (2 * turns))
  fresh = float(_bound_of(jnp.asarray(after, jnp.float32), turns)(
    jax.random.key(0)))
  assert from_warm < 10 <= fresh


def test_refuses_what_rounding_could_hide():
  with pytest.raises(ValueError, match='above the least component'):
    _bound_of(jnp.eye(512), 100, num_starts=1)(jax.random.key(0))
  for options in ({'failure_prob': 0.}, {'failure_prob': 1.},
                  {'num_starts': 0}, {'turn_rounding': -1.}):
    with pytest.raises(ValueError, match='must'):
      _bound_of(jnp.eye(3), 5, **options)(jax.random.key(0))
  with pytest.raises(ValueError, match='number of inputs'):
    _bound_of(jnp.ones([3, 1]), 5)(jax.random.key(0))


# The functions below bound what a failure costs.


def _hockey_stick(p, q, epsilon):
  return np.sum(np.maximum(p - np.exp(epsilon) * q, 0))


def _extra(epsilon, failure_prob):
  return randomised.certificate_failure_delta(
    epsilon, num_steps=1, num_layers=1, failure_prob=failure_prob)


def test_failure_delta_covers_every_move_of_mass():
  """The added delta covers any move of mass b on finite outcomes (P6)."""
  rng = np.random.default_rng(0)
  for _ in range(500):
    epsilon, moved = rng.uniform(0, 3), rng.uniform(0, 0.2)
    p, q, to_p, to_q = rng.dirichlet(np.full(6, rng.uniform(0.1, 2)), 4)
    delta = _hockey_stick((1 - moved) * p + moved * to_p,
                          (1 - moved) * q + moved * to_q, epsilon)
    assert delta <= _hockey_stick(p, q, epsilon) + _extra(epsilon, moved)


def test_failure_delta_is_attained():
  p, q, moved, epsilon = np.array([0.7, 0.3]), np.array([0.1, 0.9]), 0.05, 1.
  shift = np.array([moved, -moved])
  assert _hockey_stick(p + shift, q - shift, epsilon) == pytest.approx(
    _hockey_stick(p, q, epsilon) + _extra(epsilon, moved), rel=1e-12)


def test_failure_delta_of_a_run():
  delta = randomised.certificate_failure_delta(
    1., num_steps=5000, num_layers=40, failure_prob=1e-14)
  assert delta == pytest.approx((1 + math.e) * 2e-9, rel=1e-12)
  for bad in ({'num_steps': 0}, {'num_layers': 0}, {'failure_prob': 0.}):
    with pytest.raises(ValueError, match='must'):
      randomised.certificate_failure_delta(1., **{
        'num_steps': 1, 'num_layers': 1, 'failure_prob': .1, **bad})
