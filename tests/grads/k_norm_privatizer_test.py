"""Measures the K-norm privatizer's noise, and plants faults that must show."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax.grads import k_norm_privatizer
from dpjax.grads import privatizer
from dpjax.privacy import draws
from dpjax.privacy import k_norm

ORDERS = k_norm.ORDERS
EPSILON = .8
EXPECTED_BATCH_SIZE = 6.5
BOUNDS = {'a': .3, 'b': 2., 'c': 11.}
SHAPES = {'a': (4,), 'b': {'u': (3,), 'v': (5, 4)}, 'c': (9,)}
SIZES = {'a': 4, 'b': 23, 'c': 9}
RUNS = 6000
ALPHA = 1e-6  # Rate of false alarms of each check.


def _sums(value=0.):
  return jax.tree.map(lambda shape: jnp.full(shape, value), SHAPES,
                      is_leaf=lambda leaf: isinstance(leaf, tuple))


def _bounds():
  return {name: jnp.float32(bound) for name, bound in BOUNDS.items()}


def _transform(order, key=None):
  return k_norm_privatizer.k_norm_privatizer(
    jax.random.key(0) if key is None else key, noise_multiplier=1 / EPSILON,
    order=order, expected_batch_size=EXPECTED_BATCH_SIZE)


def _many(order, step=0, value=0.):
  """Returns noise [RUNS, d] of each block, with one key for each run."""
  sums = _sums(value)

  def run(key):
    transform = _transform(order, key)
    state = transform.init(sums)._replace(step=jnp.int32(step))
    mean, _ = transform.update(sums, state, l2_sensitivity=_bounds())
    return mean

  means = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(1), RUNS))
  return {name: np.concatenate([
      np.asarray(leaf, np.float64).reshape(RUNS, -1)
      for leaf in jax.tree.leaves(block)], 1) * EXPECTED_BATCH_SIZE - value
          for name, block in means.items()}


def check_cost(order):
  """Checks from measured noise that sum_k D_k / s_k is the step's cost.

  The p-norm of block k is Gamma(d_k) times s_k: its mean over d_k estimates the
  scale to 1 / sqrt(d_k RUNS), 0.7 % at most. A Kolmogorov-Smirnov test checks
  the distribution.
  """
  noise, cost = _many(order), 0.
  for name, block in noise.items():
    norms = np.linalg.norm(block, ord=order, axis=1)
    scale = norms.mean() / SIZES[name]
    assert stats.kstest(norms / scale, stats.gamma(SIZES[name]).cdf
                        ).statistic < 2.7 / RUNS**.5
    cost += BOUNDS[name] / scale
  assert EPSILON * .965 < cost < EPSILON * 1.035


def check_independence(order):
  """Checks that blocks, steps and coordinates are uncorrelated."""
  noises = [block for step in (0, 1) for block in _many(order, step).values()]
  # The noise is heavy-tailed, so signs and ranks are compared.
  columns = [np.sign(p[:, i]) for p in noises for i in (0, -1)]
  columns += [stats.rankdata(np.linalg.norm(p, axis=1)) for p in noises]
  correlations = np.corrcoef(columns)
  size = len(columns)
  others = correlations[~np.eye(size, dtype=bool)]
  assert np.abs(others).max() < stats.norm.isf(ALPHA / size**2) / RUNS**.5


@pytest.mark.every(3)
@pytest.mark.parametrize('order', ORDERS)
def test_cost_of_the_measured_noise(order):
  """The measured noise costs epsilon in sum over blocks (item LDP-03)."""
  check_cost(order)


@pytest.mark.every(3)
@pytest.mark.parametrize('order', ORDERS)
def test_blocks_and_steps_are_independent(order):
  check_independence(order)


@pytest.mark.sound
@pytest.mark.parametrize('order', [
  2, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, math.inf))])
def test_state_counts_and_remembers_the_smallest_multiplier(order):
  transform, sums = _transform(order), _sums(3.)
  update = jax.jit(lambda state, bounds: transform.update(
    sums, state, l2_sensitivity=bounds))
  state = transform.init(sums)
  assert isinstance(state, privatizer.PrivatizerState)
  assert float(state.joint_noise_multiplier) == math.inf
  means = []
  for step in range(3):
    assert int(state.step) == step
    mean, state = update(state, _bounds())
    means.append(np.ravel(mean['c']))
  assert not np.any(means[0] == means[1]) and not np.any(means[1] == means[2])
  measured = float(state.joint_noise_multiplier)
  assert 1 / EPSILON <= measured < (1 + 2e-5) / EPSILON
  low = state._replace(joint_noise_multiplier=jnp.float32(.5))
  low = update(low, _bounds())[1]
  assert float(low.joint_noise_multiplier) == .5
  broken = dict(_bounds(), a=jnp.float32(jnp.nan))
  mean, broken = update(state, broken)
  assert np.isnan(float(broken.joint_noise_multiplier))
  assert np.all(np.isnan(mean['a']))


@pytest.mark.sound
@pytest.mark.parametrize('order', ORDERS)
def test_blocks_of_one_shape_have_noise_of_their_own(order):
  """Equal blocks have uncorrelated signs; 5.6 deviations have chance 1e-7."""
  sums = {name: jnp.zeros(900) for name in 'abc'}
  bounds = {name: jnp.float32(1) for name in sums}
  transform = _transform(order)
  mean = jax.jit(lambda state: transform.update(
    sums, state, l2_sensitivity=bounds)[0])(transform.init(sums))
  signs = np.sign(list(mean.values()))
  assert np.abs(signs @ signs.T / 900 - np.eye(3)).max() < 5.6 / 30


def test_rounding_errs_towards_more_noise(monkeypatch):
  scales = []
  monkeypatch.setattr(
    k_norm, 'add_noise', lambda key, values, scale, *, order:
    scales.append(np.float64(scale)) or values)
  rng = np.random.default_rng(0)
  for order in ORDERS:
    for _ in range(40):
      bounds = tuple(np.float32(10**rng.uniform(-3, 3, 3)))
      sums = (jnp.zeros(7), jnp.zeros(31), jnp.zeros(2))
      transform = _transform(order)
      scales.clear()
      transform.update(sums, transform.init(sums), l2_sensitivity=tuple(
        jnp.float32(bound) for bound in bounds))
      cost = np.sum(np.float64(bounds) / np.array(scales))
      assert EPSILON * (1 - 3e-5) < cost <= EPSILON


@pytest.mark.every(2)
def test_divisor_and_noise_do_not_depend_on_the_sums():
  empty, full = _many(2), _many(2, value=40.)
  for name, block in empty.items():
    assert np.count_nonzero(block) > .99 * block.size
    shift = np.abs(full[name] - block)
    assert shift.max() < .02 * np.std(block)


def test_comes_first_in_a_chain():
  sums = {'w': jnp.arange(4, dtype=jnp.float32)}
  alone, chain = _transform(1), optax.chain(
    _transform(1), optax.with_extra_args_support(optax.sgd(.5)))
  mean, _ = alone.update(sums, alone.init(sums), l2_sensitivity=jnp.float32(1.))
  update, state = jax.jit(chain.update)(sums, chain.init(sums), sums,
                                        l2_sensitivity=jnp.float32(1.))
  np.testing.assert_allclose(update['w'], -.5 * mean['w'], rtol=1e-5)
  assert float(state[0].joint_noise_multiplier) >= 1 / EPSILON


@pytest.mark.parametrize('arguments, message', [
  ({'expected_batch_size': math.inf}, 'expected_batch_size must be a positive'),
  ({'order': 4}, 'order must be 1, 2 or inf, got 4')])
def test_refusals(arguments, message):
  good = {'noise_multiplier': 1., 'order': 2, 'expected_batch_size': 3.}
  with pytest.raises(ValueError, match=f'^{message}'):
    k_norm_privatizer.k_norm_privatizer(jax.random.key(0),
                                        **{**good, **arguments})


def test_refuses_what_is_gaussian():
  transform, sums = _transform(1), _sums()
  state = transform.init(sums)
  with pytest.raises(ValueError, match='^K-norm noise cannot use Gaussian'):
    transform.update(sums, state, l2_sensitivity=_bounds(), draws=sums)
  with pytest.raises(ValueError, match='^adaptive radii are released with Gau'):
    transform.update(sums, state, l2_sensitivity=_bounds(),
                     indicators={'a': jnp.float32(0)})


# Faults are planted from here on.


@pytest.mark.every(3)
@pytest.mark.parametrize('factor', [.93, 1 / EXPECTED_BATCH_SIZE, 1.08])
def test_fault_noise_of_another_scale(monkeypatch, factor):
  honest = k_norm.unit_noise
  monkeypatch.setattr(k_norm, 'unit_noise', lambda key, size, *, order:
                      factor * honest(key, size, order=order))
  with pytest.raises(AssertionError):
    check_cost(2)


def test_fault_each_block_as_if_alone(monkeypatch):
  """K blocks of epsilon each cost K epsilon (erratum E2 for pure noise)."""
  monkeypatch.setattr(
    k_norm, 'allocate', lambda bounds, *, noise_multiplier, sizes, order:
    noise_multiplier * bounds)
  with pytest.raises(AssertionError):
    check_cost(1)


@pytest.mark.every(2)
def test_fault_one_key_for_all_blocks(monkeypatch):
  # Blocks of one size get the same draws from one key.
  monkeypatch.setitem(SHAPES, 'a', SHAPES['c'])
  honest = jax.random.split
  monkeypatch.setattr(jax.random, 'split', lambda key, count=2: (
    honest(key, count) if count == RUNS else [key] * count))
  with pytest.raises(AssertionError):
    check_independence(1)


def test_fault_one_key_for_all_steps(monkeypatch):
  monkeypatch.setattr(jax.random, 'fold_in', lambda key, data: key)
  with pytest.raises(AssertionError):
    check_independence(1)


@pytest.mark.every(2)
def test_fault_radius_of_too_few_draws(monkeypatch):
  honest = draws.standard_gamma
  monkeypatch.setattr(draws, 'standard_gamma', lambda key, count:
                      honest(key, max(count - 1, 1)))
  with pytest.raises(AssertionError):
    check_cost(math.inf)
