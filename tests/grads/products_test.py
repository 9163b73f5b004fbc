"""Tests that norms and sums are float32 whatever precision products have."""

import functools

import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import contractions
from dpjax.grads import lookups
from dpjax.grads import per_example
from dpjax.typing import Batch

HIGHEST = (jax.lax.Precision.HIGHEST,) * 2
SHAPES = {'table': (40, 4), 'kernel': (3, 4, 4), 'long': (4, 30),
          'dense': (30, 3)}


def _precisions(function, *args):
  """Returns the precisions of all products of a function."""

  def visit(item):
    if isinstance(item, core.ClosedJaxpr):
      item = item.jaxpr
    if isinstance(item, core.Jaxpr):
      for equation in item.eqns:
        if equation.primitive.name in ('dot_general', 'conv_general_dilated'):
          precisions.append(equation.params['precision'])
        visit(tuple(equation.params.values()))
    elif isinstance(item, tuple):
      for each in item:
        visit(each)

  precisions = []
  with jax.default_matmul_precision('bfloat16'):
    visit(jax.make_jaxpr(function)(*args))
  return precisions


def _apply(params, tokens):
  x = params['table'][tokens]
  x = jax.lax.conv_general_dilated(
    x, params['kernel'], (1,), 'SAME', dimension_numbers=('NHC', 'HIO', 'NHC'))
  return jnp.sum(jnp.tanh(x @ params['long']), 1) @ params['dense']


def _loss(logits, labels):
  return jnp.sum(jnp.cos(logits + labels[:, None].astype(jnp.float32)), 1)


@pytest.mark.parametrize('kernel', per_example.KERNELS)
@pytest.mark.parametrize('gram', [True, False])
def test_sums_by_weights_are_float32(kernel, gram, monkeypatch):
  monkeypatch.setattr(contractions, 'gram_is_cheaper', lambda layer: gram)
  params = jax.tree.map(jnp.ones, SHAPES, is_leaf=lambda x: isinstance(x, tuple))
  batch = Batch(jnp.arange(12, dtype=jnp.int32).reshape((2, 6)),
                jnp.arange(2, dtype=jnp.int32))
  precisions = []

  def traced(params):
    gradients = per_example.KERNELS[kernel](_apply, _loss, params, batch,
                                            jnp.ones(2, jnp.bool_))
    weights = jax.tree.map(lambda leaf: jnp.ones(2), params)
    precisions.extend(_precisions(gradients.weighted, weights))

  jax.eval_shape(traced, params)
  # A lookup is summed by a scatter, everything else by products.
  assert len(precisions) >= len(SHAPES) - (kernel == 'bookkeeping')
  assert set(precisions) == {HIGHEST}


def _equation(function, *args):
  equation, = (each for each in jax.make_jaxpr(function)(*args).jaxpr.eqns
               if each.primitive.name in ('dot_general', 'gather',
                                          'conv_general_dilated'))
  return equation


@pytest.mark.parametrize('convolved', [True, False])
def test_gram_norms_are_float32(convolved):
  x = jnp.ones((1, 6, 6, 2)) if convolved else jnp.ones((6, 2))
  kernel = jnp.ones((3, 3, 2, 5)) if convolved else jnp.ones((2, 5))
  function = functools.partial(
    jax.lax.conv_general_dilated, window_strides=(1, 1), padding='SAME',
    dimension_numbers=('NHWC', 'HWIO', 'NHWC')) if convolved else jnp.matmul
  layer = contractions.as_layer(_equation(function, x, kernel), 1)
  assert (layer.gram is not None) == convolved
  precisions = _precisions(functools.partial(contractions.gram_norms, layer),
                           x[None], function(x, kernel)[None])
  assert len(precisions) >= 2 and set(precisions) == {HIGHEST}


def test_norms_of_lookups_are_float32():
  table, rows = jnp.ones((40, 4)), jnp.arange(6, dtype=jnp.int32)
  layer = lookups.as_table(
    _equation(lambda table, rows: table.at[rows].get(mode='clip'),
              table, rows), 0)

  def squares(rows, values):
    return lookups.squares(lookups.Lookups(*jax.vmap(layer.places)(rows),
                                           values))

  precisions = _precisions(squares, np.zeros((1, 6, 1), np.int32),
                           jnp.ones((1, 6, 4)))
  assert precisions and set(precisions) == {HIGHEST}


def test_norms_of_what_is_formed_are_float32():
  assert _precisions(contractions.norms, jnp.ones((2, 3, 4))) == [HIGHEST]


def test_gradients_come_in_the_precision_of_the_network():
  """Products that are neither measured nor summed keep their fast precision."""
  params = {'dense': jnp.ones((3, 4)), 'out': jnp.ones((4, 2))}
  batch = Batch(jnp.ones((2, 3)), jnp.zeros(2, jnp.int32))
  apply = lambda params, x: jnp.tanh(x @ params['dense']) @ params['out']
  bounder = per_example.clipped(apply, _loss, clip_norm=1.0)
  precisions = _precisions(lambda params: bounder.sums(
    params, batch, jnp.ones(2, jnp.bool_)).total, params)
  # There are two products forward, and one back.
  assert sum(each != HIGHEST for each in precisions) == 3
