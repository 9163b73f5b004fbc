"""These tests check how networks take views of records and prepared records."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import ball
from dpjax.lipschitz import layers
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network

ROOT = Chain(name='root', nodes=(layers.Dense(name='a', width=3),))


def _records():
  rng = np.random.default_rng(0)
  scales = np.logspace(-1, 2, 5)[:, None, None]
  return jnp.asarray(rng.normal(size=(5, 2, 4)) * scales, jnp.float32)


@pytest.mark.every(2)
def test_views_are_rows_of_their_own():
  """Each view is projected by itself, whether records are prepared or not."""
  network = Network(root=ROOT, input_shape=(4,), input_radius=1.5)
  params, x = network.init(jax.random.key(0)), _records()
  apart = jnp.stack([network.apply(params, x[:, view]) for view in range(2)], 1)
  inside = np.asarray(x) * np.minimum(1, 1.5 / np.linalg.norm(
    x, axis=-1, keepdims=True))
  by_hand = inside @ np.asarray(params['a']['kernel'])
  for given in (x, ball.BallRecords(jnp.asarray(inside), jnp.ones(5, bool),
                                    1.5)):
    outputs = network.apply(params, given)
    assert outputs.shape == (5, 2, 3)
    np.testing.assert_allclose(outputs, by_hand, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(apart, by_hand, rtol=1e-4, atol=1e-5)


def test_without_a_radius_records_stay_as_they_are():
  """Without an input radius, records stay as they are.

  Only entries whose squares overflow float32 are cut.
  """
  network = Network(root=ROOT, input_shape=(4,))
  params, x = network.init(jax.random.key(0)), _records()[:, 0]
  assert network.prepare(x) is x
  plain = np.asarray(x) @ np.asarray(params['a']['kernel'])
  np.testing.assert_allclose(network.apply(params, x), plain, rtol=1e-4,
                             atol=1e-4)
  # Records that were projected elsewhere are used as they are.
  projected = ball.project_records(x, 0.5)
  np.testing.assert_allclose(
    network.apply(params, projected),
    np.asarray(projected.values) @ np.asarray(params['a']['kernel']),
    rtol=1e-4, atol=1e-5)
  np.testing.assert_array_equal(
    network.apply(params, x.at[0, 0].set(3e38)),
    network.apply(params, x.at[0, 0].set(1e15)))
  prepared = Network(root=ROOT, input_shape=(4,), input_radius=0.5).prepare(x)
  assert isinstance(prepared, ball.BallRecords) and prepared.radius == 0.5


def test_bounds_that_vanish_are_refused():
  network = Network(root=ROOT, input_shape=(4,), input_radius=1.0)
  network.check_bounds(weight_norm=1.0, loss_lipschitz=1e-14)
  with pytest.raises(ValueError, match='is too small for float32; raise'):
    network.check_bounds(weight_norm=1.0, loss_lipschitz=1e-16)
  with pytest.raises(ValueError, match='overflows float32; lower'):
    network.check_bounds(weight_norm=1.0, loss_lipschitz=1e20)
  with pytest.raises(ValueError, match='of a loss must be > 0, got 0'):
    network.check_bounds(weight_norm=1.0, loss_lipschitz=0)
