"""These tests search over logits for the constant of the loss."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import losses


def _gradient_norms(loss, logits, labels):
  total = lambda z: jnp.sum(loss.values(z, labels))
  return np.linalg.norm(np.float64(jax.jit(jax.grad(total))(logits)), axis=1)


@pytest.mark.every(3)
@pytest.mark.parametrize('temperature', [0.5, 1., 4.])
@pytest.mark.parametrize('num_classes', [2, 10])
def test_supremum_of_the_gradient_norm(temperature, num_classes):
  loss = losses.cross_entropy(temperature=temperature)
  assert loss.lipschitz == pytest.approx(math.sqrt(2) / temperature,
                                         rel=1e-12)
  rng = np.random.default_rng(0)
  labels = jnp.asarray(rng.integers(0, num_classes, 5000), jnp.int32)
  scales = np.repeat([0.1, 1, 100, 1000], 1250)[:, None]
  logits = rng.normal(size=(5000, num_classes)) * scales
  norms = _gradient_norms(loss, jnp.asarray(logits, jnp.float32), labels)
  # float32 rounds p = 1 - 1e-9 to 1, so the supremum may be attained.
  assert norms.max() <= loss.lipschitz * (1 + 1e-6)
  assert norms.max() >= loss.lipschitz * (1 - 1e-3)


@pytest.mark.every(3)
@pytest.mark.parametrize('temperature', [0.5, 1., 4.])
def test_values_and_gradient_by_hand(temperature):
  rng = np.random.default_rng(1)
  logits = rng.normal(size=(50, 4)) * 3
  labels = rng.integers(0, 4, 50)
  scaled = np.exp(logits / temperature)
  probs = scaled / scaled.sum(1, keepdims=True)
  loss = losses.cross_entropy(temperature=temperature)
  arguments = jnp.asarray(logits, jnp.float32), jnp.asarray(labels, jnp.int32)
  np.testing.assert_allclose(
    loss.values(*arguments), -np.log(probs[np.arange(50), labels]), rtol=1e-4,
    atol=1e-6)
  expected = np.linalg.norm(probs - np.eye(4)[labels], axis=1) / temperature
  np.testing.assert_allclose(_gradient_norms(loss, *arguments), expected,
                             rtol=1e-4, atol=1e-6)


@pytest.mark.every(4)
@pytest.mark.parametrize('logit_clip', [1e-3, 0.4, 1.2, 50.])
def test_clipped_cotangents(logit_clip):
  """Clipped cotangents attain their bound, and
  shorter ones stay as they are."""
  loss = losses.cross_entropy(temperature=0.7, logit_clip=logit_clip)
  plain = losses.cross_entropy(temperature=0.7)
  assert loss.lipschitz == min(logit_clip, plain.lipschitz)
  rng = np.random.default_rng(2)
  scales = np.logspace(-2, 3, 400)[:, None]
  logits = jnp.asarray(rng.normal(size=(400, 5)) * scales, jnp.float32)
  labels = jnp.asarray(rng.integers(0, 5, 400), jnp.int32)
  np.testing.assert_allclose(loss.values(logits, labels),
                             plain.values(logits, labels), rtol=1e-6,
                             atol=1e-5)
  gradients, honest = (np.float64(jax.jit(jax.grad(
    lambda z, values=each.values: jnp.sum(values(z, labels))))(logits))
    for each in (loss, plain))
  norms = np.linalg.norm(honest, axis=1, keepdims=True)
  # The margin below the bound is 1e-5; a probability near one is rounded.
  np.testing.assert_allclose(
    gradients, honest * np.minimum(1, logit_clip / np.maximum(norms, 1e-30)),
    rtol=1.2e-5, atol=1e-7)
  lengths = np.linalg.norm(gradients, axis=1)
  assert lengths.max() <= loss.lipschitz * (1 + 1e-6)
  assert lengths.max() >= loss.lipschitz * (1 - 1e-3)
  with pytest.raises(ValueError, match='logit_clip must be a positive'):
    losses.cross_entropy(logit_clip=-logit_clip)


def test_ten_equal_logits():
  norms = _gradient_norms(losses.cross_entropy(), jnp.zeros([1, 10]),
                          jnp.zeros([1], jnp.int32))
  assert norms[0] == pytest.approx(math.sqrt(0.9), abs=1e-6)


def test_shortened_gradients_are_within_their_bound_to_the_last_bit():
  """Shortened gradients stay within their bound in float64.

  Rounding to float32 could have lengthened them.
  """
  for bound in (1.0, 0.37):
    gradient = 3 * np.random.default_rng(0).normal(size=(5000, 10))
    shortened = losses._shorten(jnp.asarray(gradient, jnp.float32), bound)
    norms = np.linalg.norm(np.float64(shortened), axis=-1)
    assert .9999 * bound < norms.max() <= bound


def test_label_out_of_range_stays_bounded():
  loss = losses.cross_entropy()
  logits = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)) * 100,
                       jnp.float32)
  labels = jnp.asarray([3, 99, -1, -7], jnp.int32)
  norms = _gradient_norms(loss, logits, labels)
  assert norms.max() <= loss.lipschitz * (1 + 1e-6)


@pytest.mark.parametrize('temperature', [0., -1., math.inf, math.nan])
def test_refuses_a_temperature_that_is_none(temperature):
  with pytest.raises(ValueError, match='temperature must be a positive'):
    losses.cross_entropy(temperature=temperature)


def test_fault_constant_of_one_logit():
  loss = losses.cross_entropy()._replace(lipschitz=1.)
  logits = jnp.asarray([[100., -100.]])
  norms = _gradient_norms(loss, logits, jnp.asarray([1], jnp.int32))
  assert norms.max() > loss.lipschitz * 1.4


@pytest.mark.parametrize('options', [{}, {'logit_clip': 0.1}])
def test_refuses_a_single_logit(options):
  loss = losses.cross_entropy(**options)
  with pytest.raises(ValueError, match='at least two classes, got one'):
    loss.values(jnp.zeros([4, 1]), jnp.zeros(4, jnp.int32))
