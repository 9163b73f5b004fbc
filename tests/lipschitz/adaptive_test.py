"""These tests check balls whose radii are
private quantiles (LDP-06, LDP-05)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import quantiles
from dpjax.lipschitz import adaptive
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.typing import Batch

LOSS = losses.cross_entropy()
MAKE = functools.partial(quantiles.geometric, target_quantile=0.5,
                         learning_rate=0.2, noise_stddev=1.)
NET = mlp.mlp(num_features=3, num_classes=2, depth=2, width=4,
              activation='relu', input_radius=2., hidden_radius=0.7,
              adaptive=True)


@pytest.fixture(name='bounder', scope='module')
def _bounder():
  return adaptive.adaptively_certified(NET.network, LOSS, weight_norm=1.,
                                       make_adaptive=MAKE)


@pytest.fixture(name='batch', scope='module')
def _batch():
  rng = np.random.default_rng(0)
  return Batch(jnp.asarray(rng.normal(size=(9, 3)), jnp.float32),
               jnp.asarray(rng.integers(0, 2, 9), jnp.int32))


def _radii(first, second):
  return {'ball_01': jnp.float32(first), 'ball_02': jnp.float32(second)}


@pytest.mark.sound
def test_counts_are_of_norms_before_the_projection(bounder, batch):
  params = jax.tree.map(lambda leaf: leaf + 0.1, NET.init(jax.random.key(0)))
  mask = jnp.arange(9) != 4
  radii = _radii(0.4, 0.3)
  indicators = jax.jit(bounder.sums)(params, batch, mask, radii).indicators
  # These norms enter each ball, by hand, with the first ball projecting.
  clip = lambda v, r: v * np.minimum(1, r / np.linalg.norm(
    v, axis=1, keepdims=True).clip(1e-12))
  x = clip(np.float64(batch.x), 2.)
  for index, radius in enumerate((0.4, 0.3)):
    layer = params[f'dense_{index:02d}']
    x = np.maximum(x @ np.float64(layer['kernel']) + np.float64(
      layer['bias']), 0)
    norms = np.linalg.norm(x, axis=1)[np.asarray(mask)]
    expected = np.sum(np.where(norms <= radius, 0.5, -0.5))
    assert float(indicators[f'ball_{index + 1:02d}']) == expected
    x = clip(x, radius)


def test_bounds_are_those_of_the_radii_in_use(bounder):
  certificate = {name: jnp.float32(0.9) for name in
                 ('dense_00', 'dense_01', 'dense_02')}
  small = bounder.l2_sensitivity(certificate, _radii(0.1, 0.2))
  large = bounder.l2_sensitivity(certificate, _radii(3., 5.))
  root = LOSS.lipschitz
  assert float(small['dense_02']) == pytest.approx(
    root * (0.2**2 + 1)**0.5, rel=1e-5)
  assert float(large['dense_02']) == pytest.approx(
    root * (5.**2 + 1)**0.5, rel=1e-5)
  assert float(large['dense_01']) == pytest.approx(
    root * 0.9 * (3.**2 + 1)**0.5, rel=1e-5)
  assert float(large['dense_00']) == pytest.approx(
    float(small['dense_00']), rel=1e-6)


@pytest.mark.every(5)
def test_records_keep_the_bounds_of_the_radii(bounder, batch):
  params = jax.tree.map(lambda leaf: leaf + 0.3, NET.init(jax.random.key(1)))
  norms = {name: jnp.float32(np.linalg.norm(np.float64(layer['kernel']), 2))
           for name, layer in params.items()}
  for radii in (_radii(0.05, 0.05), _radii(1., 0.2)):
    bounds = bounder.l2_sensitivity(norms, radii)
    for row in range(9):
      total = bounder.sums(params, batch._replace(x=batch.x * 1e3),
                           jnp.arange(9) == row, radii).total
      for name, bound in bounds.items():
        length = np.sqrt(sum(np.sum(np.square(np.float64(leaf)))
                             for leaf in total[name].values()))
        assert length <= float(bound) * (1 + 1e-5)


@pytest.mark.every(2)
def test_dropped_and_zero_records_leave_gradients_finite(bounder, batch):
  """Dropped and zero records leave all gradients finite.

  The square root in a norm has no derivative at zero, and none may reach the
  sums.
  """
  params = jax.tree.map(jnp.zeros_like, NET.init(jax.random.key(0)))
  poisoned = batch._replace(x=batch.x.at[2].set(jnp.nan).at[3].set(0.))
  sums = bounder.sums(params, poisoned, jnp.ones([9], jnp.bool_),
                      _radii(1., 1.))
  assert all(bool(jnp.all(jnp.isfinite(leaf)))
             for leaf in jax.tree.leaves(sums))
  assert int(sums.num_nonfinite) == 1
  assert float(sums.indicators['ball_01']) == 8 * 0.5


def test_refuses_a_network_that_does_not_adapt():
  fixed = mlp.mlp(num_features=3, num_classes=2, input_radius=1.,
                  hidden_radius=1.)
  with pytest.raises(ValueError, match='no ball of this network is adaptive'):
    adaptive.adaptively_certified(fixed.network, LOSS, weight_norm=1.,
                                  make_adaptive=MAKE)
