"""Tests of clipped sums for losses of one record that compute anything.

The reference forms the gradient of each record in float64.
"""

import logging

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
import numpy as np
import pytest

from dpjax.grads import explain
from dpjax.grads import weighted
from dpjax.train import placement
from dpjax.train import sharding
from dpjax.typing import Batch

SIZE = 6  # Records; one of them is masked.
CLIP = 0.7


def _array(*shape, seed=0):
  rng = np.random.default_rng([seed, *shape])
  return jnp.asarray(rng.normal(size=shape) / shape[-1]**0.5, jnp.float32)


X = _array(SIZE, 3, 4)
PARAMS = {'v': _array(4, 4), 'w': _array(4, 4, seed=1)}


def _summed(values):
  """Returns a loss of an array of values, with different slopes."""
  wide = jnp.float64 if values.dtype == jnp.float64 else jnp.float32
  flat = values.astype(wide).ravel()
  return jnp.sum(jnp.cos(jnp.arange(flat.size, dtype=wide)) * flat
                 + 0.5 * flat**2)


def _own_backward(p, x):
  """Returns a layer whose backward pass is written by hand."""

  @jax.custom_vjp
  def layer(w, h):
    return jnp.tanh(h @ w)

  def backward(kept, cotangent):
    w, h = kept
    inner = cotangent * (1 - jnp.tanh(h @ w)**2)
    return h.T @ inner, inner @ w.T

  layer.defvjp(lambda w, h: (layer(w, h), (w, h)), backward)
  return layer(p['w'], x @ p['v'])


def _own_tangent(p, x):
  """Returns a layer whose derivative is written by hand."""

  @jax.custom_jvp
  def layer(w, h):
    return jnp.sin(h @ w)

  layer.defjvp(lambda values, tangents: (
      layer(*values), jnp.cos(values[1] @ values[0]) * (
          tangents[1] @ values[0] + values[1] @ tangents[0])))
  return layer(p['w'], x @ p['v'])


def _over_devices(p, x):
  """Returns a layer over the rows of a mesh of devices."""
  whole, rows = PartitionSpec(), PartitionSpec(placement.AXIS)
  return jax.shard_map(
      lambda w, h: jnp.tanh(h @ w), mesh=sharding.data_mesh(1),
      in_specs=(whole, rows), out_specs=rows)(p['w'], x @ p['v'])


def _either(p, x):
  """Returns one of two layers, depending on the record."""
  return lax.cond(x.sum() > 0, lambda h: h @ p['w'], jnp.sin, x @ p['v'])


def _loop(p, x):
  return lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h @ p['w']), x @ p['v'])


def _until(p, x):
  """Returns a layer with a factor from a loop of unknown length."""
  factor = lax.while_loop(lambda s: s < 3, lambda s: s * 1.5, 1 + x[0, 0]**2)
  return jnp.tanh(x @ p['v']) * factor @ p['w']


def _recurrence(p, x):
  """Returns h_t = a_t h_(t-1) + b_t for all t, by an associative scan."""
  return lax.associative_scan(
      lambda old, new: (old[0] * new[0], old[1] * new[0] + new[1]),
      (jax.nn.sigmoid(x @ p['w']), x @ p['v']))[1]


def _weight_norm(p, x):
  directions = p['v'] / jnp.linalg.norm(p['v'], axis=0, keepdims=True)
  return jnp.tanh(x @ (p['w'][:1] * directions))


def _standardised(p, x):
  centred = p['v'] - p['v'].mean(0, keepdims=True)
  return jnp.tanh(x @ (centred / centred.std(0, keepdims=True))) @ p['w']


LOSSES = {
    'own backward pass': _own_backward,
    'own derivative': _own_tangent,
    'shard_map': _over_devices,
    'condition': _either,
    'loop': _loop,
    'loop of unknown length': _until,
    'map': lambda p, x: lax.map(lambda r: jnp.tanh(r @ p['w']), x @ p['v']),
    'associative scan': _recurrence,
    'Fourier transform': lambda p, x: jnp.fft.irfft(
        jnp.fft.rfft(x @ p['v']) * jnp.fft.rfft(p['w'][:1]), n=4),
    'complex matrix': lambda p, x: jnp.fft.ifft(
        jnp.fft.fft(x @ p['v']) @ jnp.fft.fft(p['w'], axis=0)).real,
    'inverse': lambda p, x: jnp.linalg.solve(
        p['w'] + 3 * jnp.eye(4, dtype=x.dtype), (x @ p['v']).T),
    'Cholesky factor': lambda p, x: x @ jnp.linalg.cholesky(
        p['w'] @ p['w'].T + jnp.eye(4, dtype=x.dtype)),
    'sorted parameters': lambda p, x: x @ jnp.sort(p['w'], axis=0) @ p['v'],
    'weight norm': _weight_norm,
    'standardised weights': _standardised,
    'masked weights': lambda p, x: jnp.tanh(
        x @ jnp.where(np.tri(4, dtype=bool), p['w'], 0)) @ p['v'],
    'a number': lambda p, x: x @ p['v'] * p['w'][0, 0],
    'mean over the rows of a group': lambda p, x: jnp.mean(
        jnp.tanh(x @ p['v']) @ p['w'], 0),
}
# Losses for which gradients of records are formed in some parameters.
FORMED = {'own backward pass', 'own derivative', 'shard_map', 'condition',
          'Fourier transform', 'complex matrix', 'inverse', 'Cholesky factor',
          'sorted parameters', 'weight norm', 'standardised weights',
          'masked weights', 'a number'}


def _reference(loss, params, records, mask):
  """Returns clipped sums of gradients in float64, and norms [b]."""
  with jax.enable_x64(True):
    as_double = lambda leaf: (
        jnp.asarray(np.asarray(leaf), jnp.float64)
        if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.asarray(leaf))
    params, records = jax.tree.map(as_double, (params, records))
    gradients = jax.vmap(jax.grad(loss), (None, 0))(params, records)
    gradients = jax.tree.map(np.asarray, gradients)
  norms = np.sqrt(sum(np.sum(leaf.reshape(len(mask), -1)**2, 1)
                      for leaf in jax.tree.leaves(gradients)))
  weights = np.where(mask, np.minimum(1, CLIP / np.maximum(norms, 1e-30)), 0)
  return jax.tree.map(lambda leaf: np.tensordot(weights, leaf, 1), gradients)


def _check(loss, params, records, *, tolerance=3e-5):
  """Compares sums with the reference; the masked record holds NaN."""
  mask = np.arange(SIZE) != 2
  total = _reference(loss, params, records, mask)
  bad = jax.tree.map(
      lambda leaf: leaf.at[2].set(jnp.nan)
      if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, records)
  bounder = weighted.of_record_loss(loss, clip_norm=CLIP)
  sums = jax.jit(bounder.sums)(params, Batch(bad, jnp.zeros(SIZE)), mask)
  assert int(sums.num_nonfinite) == 0
  scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(total))
  jax.tree.map(lambda got, wanted: np.testing.assert_allclose(
      got, wanted, rtol=0, atol=tolerance * scale), sums.total, total)
  assert {leaf.dtype for leaf in jax.tree.leaves(sums.total)} == {
      np.dtype(np.float32)}


@pytest.mark.every(3)
@pytest.mark.parametrize('name', LOSSES)
def test_sums_are_those_of_gradients_of_each_record(name):
  loss = lambda p, x: _summed(LOSSES[name](p, x))
  _check(loss, PARAMS, X)
  leaves = explain.explain(loss, PARAMS, X[0])
  assert (name in FORMED) == any(not leaf.is_fast for leaf in leaves), leaves


def _rows_of_a_group(p, group):
  """Returns the mean loss over the rows that a person has, 1 to 3 of them."""
  rows, has = group
  values = jax.vmap(lambda row: _summed(jnp.tanh(row @ p['v']) @ p['w']))(rows)
  return jnp.sum(jnp.where(has, values, 0.0)) / 3


def test_a_record_may_be_a_group_of_rows():
  """All rows of a person are clipped together; empty places do not count."""
  has = jnp.asarray(np.arange(3) < 1 + np.arange(SIZE)[:, None] % 3)
  _check(_rows_of_a_group, PARAMS, (X, has))


@pytest.mark.parametrize('computed', [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize('stored', [jnp.float32, None, 'mixed'])
def test_short_floats(computed, stored):
  """Sums of short parameters or layers are float32, to what layers resolve."""
  short = {'v': computed, 'w': jnp.float32 if stored == 'mixed' else computed}
  params = (PARAMS if stored == jnp.float32 else
            {name: leaf.astype(short[name]) for name, leaf in PARAMS.items()})

  def loss(p, x):
    # In float64 the reference computes with the rounded parameters.
    one = x.dtype if x.dtype == jnp.float64 else computed
    hidden = jnp.tanh(x.astype(one) @ p['v'].astype(one))
    return _summed(hidden @ p['w'].astype(one))

  _check(loss, params, X, tolerance=8 * float(jnp.finfo(computed).eps))


@pytest.mark.parametrize('params', [
    (PARAMS['v'], PARAMS['w']), [PARAMS['v'], {'w': PARAMS['w']}],
    {'layer': (PARAMS['v'], [PARAMS['w'], ()])}])
def test_parameters_of_any_structure(params):
  def loss(p, x):
    first, second = jax.tree.leaves(p)
    return _summed(jnp.tanh(x @ first) @ second)

  _check(loss, params, X)


def test_a_batch_may_be_empty():
  """No record, or only masked records, have sums of zero."""
  sums = weighted.of_record_loss(lambda p, x: _summed(_loop(p, x)),
                                 clip_norm=CLIP).sums
  none = jax.jit(sums)(PARAMS, Batch(X[:0], jnp.zeros(0)), np.ones(0, bool))
  masked = jax.jit(sums)(PARAMS, Batch(X * jnp.inf, jnp.zeros(SIZE)),
                         np.zeros(SIZE, bool))
  for found in (none, masked):
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(found))
    assert jax.tree.map(np.shape, found.total) == jax.tree.map(np.shape, PARAMS)


def test_what_is_not_followed_is_named_once(caplog):
  """The log names the parameters and operations that cost time, one time."""
  def loss(p, x):
    return _summed(x @ jnp.sort(p['sorted'], axis=0) @ p['v'])

  params = {'v': PARAMS['v'], 'sorted': PARAMS['w']}
  sums = weighted.of_record_loss(loss, clip_norm=CLIP).sums
  with caplog.at_level(logging.WARNING):
    for size in (SIZE, SIZE - 1):
      jax.jit(sums)(params, Batch(X[:size], jnp.zeros(size)),
                    np.ones(size, bool))
  named = [text for text in caplog.messages
           if "['sorted'] (sort changes it" in text]
  assert len(named) == 1 and "['v']" not in named[0]
