"""These tests check regularisers (LIP-0E) and Adam (REG-06) after the noise."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.audit import whitebox
from dpjax.grads import bounder as bounders
from dpjax.sampling import PoissonSampler
from dpjax.train import step as steps

SAMPLER = PoissonSampler(num_examples=50, batch_size=12)
ROWS = jnp.arange(50, dtype=jnp.int32)
LEARNING_RATE, GAMMA = 0.4, 0.3


def _run(model, method, optimizer, records, num_steps=1):
  """Returns the states before the first step and after each step."""
  transform_of = lambda key: steps.make_transform(
    method, SAMPLER, optimizer, key=key, noise_multiplier=1.3,
    allocation='optimal')
  step = jax.jit(steps.make_step(method=method, sampler=SAMPLER,
                                 transform_of=transform_of))
  # Adam raises a Python number to an integer array's power.
  with jax.numpy_dtype_promotion('standard'):
    states = [steps.init_state(jax.random.key(2), model=model, method=method,
                               transform_of=transform_of)]
    for _ in range(num_steps):
      states.append(step(states[-1], records, ROWS)[0])
  return states


def _decayed(optimizer):
  return optax.chain(optax.add_decayed_weights(GAMMA), optimizer)


def check_regulariser_is_after_the_noise(with_psi, without, rate):
  """Checks that the regulariser moves
  parameters by -rate gamma grad psi(theta).

  Both runs use the same key.
  """
  start, plain = without[:2]
  for actual, expected, before in zip(*map(jax.tree.leaves, (
      with_psi[1].params, plain.params, start.params)), strict=True):
    np.testing.assert_allclose(actual, expected - rate * GAMMA * before,
                               atol=1e-6)


@pytest.mark.slow
def test_regulariser_is_after_the_noise(make_model, make_method, records):
  """The regulariser ||theta||^2 / 2 acts after
  the noise and batch are drawn (LIP-0E)."""
  model = make_model(False)
  method = make_method('dp_sgd', model)
  plain = optax.sgd(LEARNING_RATE)
  runs = [_run(model, method, optimizer, records)
          for optimizer in (_decayed(plain), plain)]
  check_regulariser_is_after_the_noise(*runs, LEARNING_RATE)
  # The noise and the batch did not depend on the regulariser.
  assert (runs[0][1].optimizer[0].joint_noise_multiplier
          == runs[1][1].optimizer[0].joint_noise_multiplier)


@pytest.mark.every(5)
def test_fault_regulariser_in_the_sum(make_model, make_method, records):
  model = make_model(False)
  honest = make_method('dp_sgd', model)

  def sums(params, batch, mask):
    bounded = honest.bounder.sums(params, batch, mask)
    return bounded._replace(total=jax.tree.map(
      lambda total, leaf: total + GAMMA * jnp.sum(mask) * leaf, bounded.total,
      params))

  fault = honest._replace(bounder=bounders.GradientBounder(
    sums, honest.bounder.l2_sensitivity))
  plain = optax.sgd(LEARNING_RATE)
  with pytest.raises(AssertionError):
    check_regulariser_is_after_the_noise(
      _run(model, fault, plain, records), _run(model, honest, plain, records),
      LEARNING_RATE)


@pytest.mark.slow
def test_adam_is_post_processing(make_model, make_method, records):
  """The run equals optax.adam applied to the released noisy means (REG-06)."""
  model = make_model(False)
  method = make_method('dp_sgd', model)
  adam = optax.adam(0.05)
  num_steps = 4
  recorder = whitebox.recorder(lambda update: update, num_steps)
  states = _run(model, method, optax.chain(recorder, adam), records, num_steps)
  released = states[-1].optimizer[1][0].history
  params = states[0].params
  with jax.numpy_dtype_promotion('standard'):
    moments = adam.init(params)
    for index in range(num_steps):
      mean = jax.tree.map(lambda leaf, i=index: leaf[i], released)
      updates, moments = adam.update(mean, moments, params)
      params = optax.apply_updates(params, updates)
      jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
                   params, states[index + 1].params)
  # The release also equals the first moment's first value over 1 - b1.
  first = jax.tree.map(lambda leaf: 0.1 * leaf[0], released)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
               states[1].optimizer[1][1][0].mu, first)
