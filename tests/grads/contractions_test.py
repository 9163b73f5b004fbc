"""Norms and sums of outer products: bounds, choices, factors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import contractions


def test_gram_norms_of_sites_that_cancel_are_no_shorter_than_their_sums():
  """Equal inputs, cotangents that sum to zero: rounding errors both."""
  rng = np.random.default_rng(0)
  x = np.repeat(rng.normal(size=(40, 1, 64)), 49, 1)
  cotangent = rng.normal(size=(40, 49, 32))
  cotangent -= cotangent.mean(1, keepdims=True)
  x, cotangent = (jnp.asarray(each, jnp.float32) for each in (x, cotangent))
  rows = lambda *one: tuple(each[None] for each in one)
  layer = contractions.Layer(rows, None, None, 49, (1, 64, 32))
  bounds = np.sqrt(contractions.gram_squares(layer, x, cotangent))
  sums = np.linalg.norm(contractions.products(layer, x, cotangent),
                        axis=(2, 3))[:, 0]
  assert np.all(0 < sums) and np.all(sums <= bounds)
  # Beside what they are sums of they are nothing.
  assert np.all(bounds < 2e-3 * np.linalg.norm(x, axis=(1, 2))
                * np.linalg.norm(cotangent, axis=(1, 2)))


def test_the_choice_of_norms():
  """Few sites and large kernels by Gram matrices, and the other way round."""
  choose = lambda sites, *sizes, windows=False: contractions.gram_is_cheaper(
    contractions.Layer(None, None, None, sites, sizes, windows))
  assert choose(16, 1, 2304, 256) and choose(64, 1, 768, 768)
  assert not choose(784, 1, 9, 32) and not choose(196, 1, 288, 64)
  # Kept gradients of large layers fall out of the caches, of small ones not.
  assert choose(128, 1, 512, 2048) and not choose(32, 1, 64, 64)
  assert choose(4, 1, 64, 64) and not choose(8, 1, 32, 32)
  assert choose(16, 4, 1152, 128)
  assert not choose(16, 4, 1152, 128, windows=True)


@pytest.mark.parametrize('shape, axes', [
  ((5,), ((0,), (0,))), ((2, 3), ((1, 0), (0, 1))), ((2, 3), ((0, 1), (0, 2)))])
def test_outer_products_are_those_of_their_factors(shape, axes):
  """A site that contracts any axes, in any order, is one outer product."""
  rng = np.random.default_rng(1)
  places = [None] * (len(shape) + 1)
  for mine, theirs in zip(*axes):
    places[theirs] = shape[mine]
  weight = jnp.asarray(rng.normal(size=[place or 4 for place in places]),
                       jnp.float32)
  x, cotangent = (jnp.asarray(rng.normal(size=(7, *each)), jnp.float32)
                  for each in (shape, (4,)))
  product = lambda x, w: jax.lax.dot_general(x, w, (axes, ((), ())))
  equation, = jax.make_jaxpr(product)(x[0], weight).jaxpr.eqns
  made = contractions.layer(equation, 1)
  wanted = jax.vmap(lambda x, d: jax.vjp(functools.partial(product, x),
                                         weight)[1](d)[0])(x, cotangent)
  factors = contractions.factors(made, x, cotangent)
  norms = np.prod([np.linalg.norm(each, axis=1) for each in factors], 0)
  np.testing.assert_allclose(
    norms, np.linalg.norm(np.reshape(wanted, (7, -1)), axis=1), rtol=1e-5)
  np.testing.assert_allclose(contractions.outer_total(made, *factors),
                             jnp.sum(wanted, 0), rtol=1e-4, atol=1e-5)
