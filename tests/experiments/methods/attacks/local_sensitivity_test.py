"""These tests check features of records: closed forms and derivatives."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.methods.attacks import local_sensitivity
from experiments.methods.attacks.local_sensitivity import Options

_KEY = jax.random.key(0)
_LOGITS = Options(output='logits')


@functools.cache
def _convolutional():
  """Returns (a smooth convolutional network, eight images [6, 5, 2])."""
  keys = jax.random.split(jax.random.key(1), 3)
  kernel, dense, x = (jax.random.normal(k, shape) for k, shape in zip(
      keys, ((3, 3, 2, 4), (4, 10), (8, 6, 5, 2)), strict=True))

  def predict(x):
    hidden = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
    return jnp.tanh(hidden).mean((1, 2)) @ dense

  return predict, x


@functools.cache
def _dense():
  """Returns (a smooth dense network, eight records [3])."""
  keys = jax.random.split(jax.random.key(3), 2)
  weights, x = (jax.random.normal(k, shape) for k, shape in zip(
      keys, ((3, 10), (8, 3)), strict=True))
  return lambda x: 3 * jnp.tanh(x @ weights), x


@pytest.mark.every(3)
@pytest.mark.parametrize('exact', [False, True])
def test_linear_maps_have_the_slopes_of_the_closed_form(exact):
  # There are 2000 records with 5 draws each. |z| of a normal z has mean sqrt(2
  # / pi) and relative deviation .7555, the mean of five .3379.
  weights = jnp.array([[1.0, 2.0, 0.0], [0.0, -5.0, 0.1]])
  response = local_sensitivity.respond(
      _KEY, lambda x: x @ weights.T + 3.0, jnp.zeros([2000, 3]),
      dataclasses.replace(_LOGITS, exact=exact))
  slopes = np.asarray(response.sensitivity, np.float64)
  expected = np.sqrt(2 / np.pi) * np.linalg.norm(weights, axis=1)
  relative = slopes / expected
  np.testing.assert_allclose(response.prediction, np.full((2000, 2), 3.0))
  np.testing.assert_allclose(relative.mean(0), 1, atol=4 * .338 / 2000**.5)
  np.testing.assert_allclose(relative.std(0), .3379, atol=.025)
  # Neighbours in a batch have draws of their own.
  correlation = np.corrcoef(relative[:-1, 0], relative[1:, 0])[0, 1]
  assert abs(correlation) < 4 / 2000**.5


@pytest.mark.slow
@pytest.mark.parametrize('network, output', [
    (_convolutional, 'softmax'), (_dense, 'logits')])
def test_quotient_and_derivative_agree(network, output):
  predict, x = network()
  exact, quotient = (local_sensitivity.respond(
      _KEY, predict, x, Options(output=output, exact=exact))
                     for exact in (True, False))
  np.testing.assert_allclose(exact.prediction, quotient.prediction, rtol=1e-5)
  assert exact.sensitivity.max() > 10 * 1e-3
  assert np.all(np.abs(quotient.sensitivity - exact.sensitivity) <=
                1e-2 * np.abs(exact.sensitivity) + 1e-3)


@pytest.mark.every(2)
def test_the_derivative_is_that_of_the_jacobian():
  predict, x = _dense()
  response = local_sensitivity.respond(_KEY, predict, x, Options(
      exact=True, num_draws=3000))
  jacobian = jax.vmap(jax.jacobian(
      lambda row: jax.nn.softmax(predict(row[None])[0])))(x)
  expected = np.sqrt(2 / np.pi) * np.linalg.norm(jacobian, axis=2)
  np.testing.assert_allclose(response.sensitivity, expected,
                             rtol=5 * .7555 / 3000**.5)


@pytest.mark.every(2)
def test_draws_depend_on_the_record_and_not_on_the_batch():
  predict, x = _convolutional()
  ask = lambda x, size: local_sensitivity.respond(
      _KEY, predict, x, Options(exact=True, batch_size=size)).sensitivity
  sensitivity = ask(x, 100)
  for some, size in ((x, 3), (x[:5], 1)):
    np.testing.assert_allclose(ask(some, size), sensitivity[:len(some)],
                               rtol=1e-4)
  other = local_sensitivity.respond(jax.random.key(2), predict, x,
                                    Options(exact=True))
  assert np.all(other.sensitivity != sensitivity)


def test_features_are_class_prediction_and_slope():
  predict, x = _dense()
  y = jnp.arange(8) + 2
  every = [Options(), _LOGITS, Options(norm='l1'), Options(label='integer'),
           Options(norm='l1', label='integer')]
  plain, logits, scalar, integer, both = jax.jit(lambda x: [
      local_sensitivity.features(_KEY, predict, x, y, 10, options)
      for options in every])(x)
  np.testing.assert_array_equal(plain[:, :10], np.eye(10)[y])
  np.testing.assert_allclose(plain[:, 10:20], jax.nn.softmax(predict(x)),
                             rtol=1e-5)
  np.testing.assert_allclose(logits[:, 10:20], predict(x), rtol=1e-5,
                             atol=1e-6)
  slopes = local_sensitivity.respond(_KEY, predict, x).sensitivity
  np.testing.assert_allclose(plain[:, 20:], slopes, rtol=1e-2, atol=1e-3)
  np.testing.assert_allclose(scalar[:, 20], plain[:, 20:].sum(1), rtol=1e-5)
  np.testing.assert_array_equal(integer[:, 0], y)
  np.testing.assert_allclose(integer[:, 1:], plain[:, 10:], rtol=1e-5)
  for features, options, width in zip((plain, logits, scalar, integer, both),
                                      every, (30, 30, 21, 21, 12), strict=True):
    assert features.shape == (8, width) and options.num_features(10) == width


def test_quotients_ask_for_full_precision():
  predict, x = _convolutional()
  with jax.default_matmul_precision('bfloat16'):
    for exact in (False, True):
      text = str(jax.make_jaxpr(lambda x: local_sensitivity.respond(
          _KEY, predict, x, Options(exact=exact)))(x))
      assert ('HIGHEST' in text, 'DEFAULT' in text) == (not exact, exact)


@pytest.mark.parametrize('change, message', [
    (dict(output='argmax'), '^output must be one of logits, softmax'),
    (dict(norm='l2'), '^norm must be one of l1, none'),
    (dict(label='none'), '^label must be one of'),
    (dict(step=0.0), '^step must be a positive number'),
    (dict(num_draws=0), '^num_draws must be an integer >= 1'),
    (dict(batch_size=0), '^batch_size must be an integer >= 1'),
])
def test_refuses_bad_options(change, message):
  with pytest.raises(ValueError, match=message):
    Options(**change)


@pytest.mark.every(2)
@pytest.mark.parametrize('x, labels, classes, message', [
    (jnp.zeros([3, 2]), 2, 2, 'there must be 3 records'),
    (jnp.zeros([3, 2]), 3, 4, 'the network must have 4 outputs, got 2'),
    (jnp.zeros([0, 2]), 0, 2, '^number of records must be an integer >= 1'),
    (jnp.zeros([3, 2], jnp.uint8), 3, 2, '^x must be float32, got uint8'),
])
def test_refuses_bad_records(x, labels, classes, message):
  with pytest.raises(ValueError, match=message):
    local_sensitivity.features(_KEY, lambda x: x, x, jnp.zeros(labels, int),
                               classes)
