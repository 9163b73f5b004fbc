"""Tests what the states of all privatizers keep, and that all is noised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import k_norm_privatizer
from dpjax.grads import lattice_privatizer
from dpjax.grads import privatizer

SETTINGS = {'noise_multiplier': 0.8, 'expected_batch_size': 4.0}
PRIVATIZERS = {
  'gaussian': (privatizer.gaussian_privatizer, {}),
  'lattice': (lattice_privatizer.lattice_privatizer, {}),
  'l1': (k_norm_privatizer.k_norm_privatizer, {'order': 1}),
  'l2': (k_norm_privatizer.k_norm_privatizer, {'order': 2}),
  'l_inf': (k_norm_privatizer.k_norm_privatizer, {'order': np.inf})}
SUMS = {'a': {'w': jnp.zeros([8, 16]), 'b': jnp.zeros([128])},
        'c': jnp.zeros([8, 16])}
BOUNDS = {'a': jnp.float32(0.5), 'c': jnp.float32(2.0)}


@pytest.mark.parametrize('name', PRIVATIZERS)
@pytest.mark.sound
def test_states_and_noise(name):
  make, options = PRIVATIZERS[name]
  transform = make(jax.random.key(5), **SETTINGS, **options)
  start = transform.init(SUMS)
  assert int(start.step) == 0 and float(start.joint_noise_multiplier) == np.inf
  # One program runs a fresh state, a state with less noise, and a block that
  # claims to be zero.
  run = jax.jit(lambda state, bounds: transform.update(SUMS, state,
                                                       l2_sensitivity=bounds))
  first, after = run(start, BOUNDS)
  assert 0.8 <= float(after.joint_noise_multiplier) <= 0.8 * (1 + 1e-3)
  second, later = run(after._replace(joint_noise_multiplier=jnp.float32(0.25)),
                      BOUNDS)
  assert int(after.step) == 1 and int(later.step) == 2
  assert float(later.joint_noise_multiplier) == 0.25
  for state in (after, later):
    assert state.key == start.key
  nothing = run(start, {**BOUNDS, 'c': jnp.float32(0)})[1]
  assert not float(nothing.joint_noise_multiplier) > 0
  # There are 66 pairs of 64 numbers from halves of leaves and steps. Each has
  # |r| >= 0.7 with probability 1e-10; equal noise at any scale gives 1.
  halves = np.stack([np.ravel(leaf) for leaf in jax.tree.leaves(
    (first, second))]).reshape((12, -1))
  assert np.all(np.std(halves, 1) > 0.05)
  assert np.max(np.abs(np.corrcoef(halves) - np.eye(12))) < 0.7
