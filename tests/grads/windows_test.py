"""Tests gradients and Gram matrices of convolutions without all windows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import contractions
from dpjax.grads import per_example
from dpjax.grads import windows
from dpjax.typing import Batch

NUMBERS = {3: ('NHC', 'HIO', 'NHC'), 4: ('NHWC', 'HWIO', 'NHWC')}
CASES = {
  'plain': ((1, 5, 5, 4), (3, 3, 4, 4), {
    'window_strides': (1, 1), 'padding': 'SAME'}),
  'uneven': ((2, 5, 7, 2), (3, 2, 2, 3), {
    'window_strides': (2, 3), 'padding': ((1, 2), (0, 1))}),
  'dilated': ((1, 6, 9, 1), (2, 3, 1, 2), {
    'window_strides': (1, 2), 'padding': 'VALID', 'rhs_dilation': (3, 1)}),
  'transposed': ((1, 3, 4, 2), (2, 3, 2, 3), {
    'window_strides': (2, 2), 'padding': ((1, 1), (2, 0)),
    'lhs_dilation': (2, 3)}),
  'cropped': ((2, 9, 2), (3, 2, 3), {
    'window_strides': (2,), 'padding': ((-1, 2),)}),
}


def _normal(shape, seed):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape),
                     jnp.float32)


def _convolve(how, x, kernel):
  return jax.lax.conv_general_dilated(
    x, kernel, dimension_numbers=NUMBERS[x.ndim], **how)


@pytest.fixture(params=CASES)
def case(request):
  """Returns (convolution of the image, parameters,
  kernel, image, cotangent)."""
  shape, kernel, how = CASES[request.param]
  x, kernel = _normal(shape, 0), _normal(kernel, 1)
  function = functools.partial(_convolve, how)
  equation, = jax.make_jaxpr(function)(x, kernel).jaxpr.eqns
  out = _normal(equation.outvars[0].aval.shape, 2)
  return function, equation.params, kernel, x, out


def test_taps_on_either_side_give_the_gradient(case):
  function, params, kernel, x, cotangent = case
  windowed = windows.split(x.shape, kernel.shape[:-2], params, cotangent.shape)
  kernel_gradient = jax.jit(lambda *values: windowed.to_rows(
      windowed.product(*values)))(x, cotangent)
  wanted, = jax.vjp(functools.partial(function, x), kernel)[1](cotangent)
  np.testing.assert_allclose(kernel_gradient.reshape(kernel.shape), wanted,
                             rtol=1e-5, atol=1e-5)


def test_gram_matrices_of_pixels_are_those_of_windows(case):
  _, params, kernel, x, cotangent = case
  taps, out = kernel.shape[:-2], cotangent.shape[1:-1]
  rows, gram = jax.jit(lambda x: (
    windows.by_slices(x, taps, params, out),
    windows.gram(x, taps, params, out)))(x)
  rows = np.reshape(rows, (cotangent.size // cotangent.shape[-1], -1))
  np.testing.assert_allclose(gram, rows @ rows.T, rtol=1e-5, atol=1e-5)


def _apply(params, x):
  """Applies two convolutions: one with formed gradients,
  one with Gram matrices."""
  for name in ('early', 'late'):
    x = jnp.tanh(_convolve({'window_strides': (1, 1), 'padding': 'SAME'}, x,
                           params[name]))
    x = x[:, ::2, ::2]
  return jnp.sum(x, (1, 2))


def _loss(logits, labels):
  return jnp.sum(jnp.sin(logits + labels[:, None].astype(jnp.float32)), 1)


@pytest.mark.every(2)
def test_what_accelerators_do_gives_the_same_sums(monkeypatch):
  params = {'early': _normal((3, 3, 4, 4), 3), 'late': _normal((3, 3, 4, 6), 4)}
  batch = Batch(_normal((5, 8, 8, 4), 5), jnp.arange(5, dtype=jnp.int32))
  chosen = []
  split = contractions._faster_split
  monkeypatch.setattr(contractions, '_faster_split', lambda *args: chosen.append(
    split(*args)) or chosen[-1])
  monkeypatch.setattr(contractions, 'gram_is_cheaper',
                      lambda layer: layer.split is None)
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')

  def sums(kernel):
    bounder = per_example.clipped(_apply, _loss, clip_norm=0.5, kernel=kernel)
    return jax.jit(lambda params: bounder.sums(
      params, batch, jnp.arange(5) != 2).total)(params)

  actual, wanted = sums('bookkeeping'), sums('vmap')
  early, late = chosen
  assert early is not None and late is None
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4,
                                 atol=1e-5), actual, wanted)


def test_the_choice_of_norms_on_accelerators(monkeypatch):
  """Gradients are kept on accelerators if Gram matrices need all windows."""
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  layer = functools.partial(contractions.Layer, None, None, None, 16,
                            (1, 2304, 256))
  assert contractions.gram_is_cheaper(layer())
  assert contractions.gram_is_cheaper(layer(True, gram=lambda x: x))
  assert not contractions.gram_is_cheaper(layer(True))


@pytest.mark.every(2)
def test_gram_norms_of_pixels_that_cancel_are_no_shorter_than_their_sums():
  """Gram norms bound sums that cancel, where both are only rounding errors."""
  how = {'window_strides': (1, 1), 'padding': 'VALID'}
  x = jnp.broadcast_to(_normal((30, 1, 1, 64), 6), (30, 7, 7, 64))
  cotangent = np.random.default_rng(7).normal(size=(30, 5, 5, 32))
  cotangent = jnp.asarray(cotangent - cotangent.mean((1, 2), keepdims=True),
                          jnp.float32)
  equation, = jax.make_jaxpr(functools.partial(_convolve, how))(
    x[:1], jnp.zeros((3, 3, 64, 32))).jaxpr.eqns
  layer = contractions.as_layer(equation, 1)
  assert layer.gram is not None
  bounds, formed = jax.jit(lambda *values: (
    jnp.sqrt(contractions.gram_norms(layer, *values).squares),
    contractions.products(layer, *values).reshape((30, -1))))(
      x[:, None], cotangent[:, None])
  sums = np.linalg.norm(formed, axis=1)
  assert np.all(0 < sums) and np.all(sums <= bounds)
