"""These tests put K-norm noise in the place of Gaussian noise in a step."""

import math

import jax
import jax.numpy as jnp
import optax
import pytest

from dpjax.grads import k_norm_privatizer
from dpjax.privacy import k_norm
from dpjax.sampling import PoissonSampler
from dpjax.train import step as steps


@pytest.mark.every(2)
@pytest.mark.parametrize('order', [1, math.inf])
def test_a_step_with_pure_noise(make_model, make_method, records, order):
  """K-norm noise replaces Gaussian noise in a
  step without other changes (LDP-03).

  Its p-norm bounds are derived from l2 bounds.
  """
  sampler = PoissonSampler(num_examples=60, batch_size=12)
  model = make_model(True)
  method = make_method('lip_dp_sgd', model)
  sizes = {'dense_00': 16, 'dense_01': 10}
  l2 = method.bounder.l2_sensitivity
  bounder = method.bounder._replace(l2_sensitivity=lambda certificate: {
    name: k_norm.p_norm_bound(bound, sizes[name], order=order)
    for name, bound in l2(certificate).items()})
  method = method._replace(bounder=bounder)
  transform_of = lambda key: optax.chain(
    k_norm_privatizer.k_norm_privatizer(
      key, noise_multiplier=1 / 3, order=order,
      expected_batch_size=sampler.expected_batch_size),
    optax.with_extra_args_support(optax.sgd(.1)))
  state = steps.init_state(jax.random.key(0), model=model, method=method,
                           transform_of=transform_of)
  step = jax.jit(steps.make_step(method=method, sampler=sampler,
                                 transform_of=transform_of))
  rows = jnp.arange(60, dtype=jnp.int32)
  for _ in range(2):
    state, info = step(state, records, rows)
  assert int(state.optimizer[0].step) == 2
  assert 1 / 3 <= float(info.joint_noise_multiplier) < (1 + 2e-5) / 3
  assert all(jnp.all(jnp.isfinite(leaf))
             for leaf in jax.tree.leaves(state.params))
