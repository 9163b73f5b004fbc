"""These tests check bounds of chains in induced norms."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import induced
from experiments.methods.training import induced_chains


def _chain(weights, inputs, orders=induced.ORDERS, norm=induced_chains.dense_norm):
  return induced_chains.chain_bounds(
    {p: [norm(w, p) for w in weights] for p in orders},
    {p: induced_chains.cross_entropy_dual_norm(p) for p in orders},
    {p: [induced_chains.dense_parameter_factor(w.shape[1], p) * size
         for w, size in zip(weights, inputs, strict=True)] for p in orders})


def _deep_gradients(x, weights):
  """Returns norms of each layer's gradient and of each layer's input."""
  inputs = [x]
  for kernel in weights[:-1]:
    inputs.append(jnp.tanh(inputs[-1] @ kernel))

  def loss(weights):
    hidden = x
    for kernel in weights[:-1]:
      hidden = jnp.tanh(hidden @ kernel)
    return -jax.nn.log_softmax(hidden @ weights[-1])[0]

  gradients = jax.grad(loss)(weights)
  return ([jnp.linalg.norm(g) for g in gradients],
          [jnp.linalg.norm(i) for i in inputs])


@pytest.mark.every(2)
def test_chain_bounds_deep_networks():
  """Each order bounds deep networks, and no order is always the least."""
  rng = np.random.default_rng(0)
  widths = (6, 9, 5, 3)
  winners = set()

  @jax.jit
  def compare(x, weights):
    gradients, inputs = _deep_gradients(x, weights)
    single = [jnp.stack(_chain(weights, inputs, (p,))) for p in induced.ORDERS]
    return (jnp.stack(gradients), jnp.stack(single),
            jnp.stack(_chain(weights, inputs)))

  for kind in range(40):
    weights = [rng.normal(size=shape) for shape in itertools.pairwise(widths)]
    if kind % 4 == 1:
      weights = [w * (rng.random(w.shape[0]) < 0.2)[:, None] for w in weights]
    elif kind % 4 == 2:
      weights = [np.eye(*w.shape) * 2 for w in weights]
    elif kind % 4 == 3:
      weights = [w * (np.arange(w.shape[1]) == 0) for w in weights]
    norms, single, least = compare(
      np.float32(rng.normal(size=6)), [np.float32(w) for w in weights])
    assert np.all(norms <= single.min(0) * (1 + 1e-6))
    np.testing.assert_allclose(least, single.min(0), rtol=1e-6)
    winners.add(int(np.argmin(single[:, 0])))
  assert winners >= {1, 2}


def test_chain_excludes_the_layer_itself():
  """The product of norms runs over the layers strictly after (E3)."""
  bounds = induced_chains.chain_bounds({2: [jnp.float32(0.1), jnp.float32(5.)]},
                                {2: 2.}, {2: [3., 1.]})
  assert [float(b) for b in bounds] == pytest.approx([30., 2.])


@pytest.mark.every(3)
def test_fault_kernels_the_wrong_way_round():
  """Norms of W in the place of those of W^T give too small a bound."""
  weights = [jnp.eye(6), jnp.zeros([6, 3]).at[:, 1].set(10.)]
  gradients, inputs = _deep_gradients(jnp.full([6], 0.1), weights)
  wrong = lambda w, p: induced.induced_norm(w, p, p)
  assert gradients[0] <= _chain(weights, inputs)[0]
  assert gradients[0] > 1.1 * _chain(weights, inputs, (math.inf,), wrong)[0]


def test_chain_with_nothing_in_it():
  with pytest.raises(ValueError, match='at least one of the orders'):
    induced_chains.chain_bounds({}, {}, {})
  with pytest.raises(ValueError, match='p must be 1, 2 or inf'):
    induced_chains.chain_bounds({3: []}, {3: 1.}, {3: []})
  bound, = induced_chains.chain_bounds({2: [jnp.float32(np.nan)], 1: [jnp.float32(1)]},
                                {2: 1., 1: 1.},
                                {2: [jnp.float32(np.nan)], 1: [1.]})
  assert np.isnan(bound)
