"""Tests that rearranged convolutions give the same numbers in one layout."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import convolutions
from dpjax.grads import per_example
from dpjax.typing import Batch

_FAST = {'bf_io->bf', 'b0f_0io->b0f', 'b01f_01io->b01f', 'b012f_012io->b012f'}

# Shapes of image and kernel, and how they are convolved.
_CASES = {
    'plain': ((2, 7, 7, 3), (3, 3, 3, 4), {}),
    'strides': ((2, 8, 7, 3), (3, 2, 3, 4), {'window_strides': (2, 3)}),
    'dilated': ((2, 9, 8, 3), (2, 3, 3, 4), {'rhs_dilation': (3, 2)}),
    'transposed': ((2, 4, 5, 3), (3, 3, 3, 4), {'lhs_dilation': (2, 2)}),
    'uneven': ((2, 6, 6, 3), (3, 3, 3, 4), {'padding': ((0, 2), (2, 0))}),
    'cut': ((2, 9, 9, 3), (3, 3, 3, 4), {'padding': ((-1, 0), (0, -2))}),
    'groups': ((2, 6, 6, 4), (3, 3, 2, 6), {'feature_group_count': 2}),
    'channels first': ((2, 3, 6, 5), (4, 3, 3, 3), {
        'dimension_numbers': ('NCHW', 'OIHW', 'NCHW')}),
    'mixed': ((6, 3, 5, 2), (3, 4, 3, 3), {
        'dimension_numbers': ('HCWN', 'HOWI', 'WNHC')}),
    'line': ((2, 9, 3), (3, 3, 4), {'padding': ((1, 1),),
                                    'window_strides': (2,),
                                    'dimension_numbers': ('NWC', 'WIO', 'NWC')}),
    'solid': ((2, 4, 5, 3, 2), (2, 2, 2, 2, 3), {
        'padding': ((0, 1),) * 3, 'window_strides': (1, 1, 2),
        'dimension_numbers': ('NDHWC', 'DHWIO', 'NDHWC')}),
}


def _convolve(case, x, kernel):
  options = {'window_strides': (1, 1), 'padding': ((1, 1), (1, 1)),
             'dimension_numbers': ('NHWC', 'HWIO', 'NHWC')} | _CASES[case][2]
  return jax.lax.conv_general_dilated(x, kernel, **options)


def _operands(case, seed=0):
  keys = jax.random.split(jax.random.key(seed))
  return tuple(jax.random.normal(key, shape)
               for key, shape in zip(keys, _CASES[case][:2], strict=True))


def _slopes(case):
  return jax.grad(lambda x, kernel: jnp.sum(jnp.sin(
      _convolve(case, x, kernel))), (0, 1))


@pytest.fixture(autouse=True)
def _cpu_only():
  if jax.default_backend() != 'cpu':
    pytest.skip('nothing is rearranged but on CPU')


def _assert_close(actual, wanted):
  for got, want in zip(jax.tree.leaves(actual), jax.tree.leaves(wanted),
                       strict=True):
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def _layouts(function, *args):
  """Returns the layouts of all convolutions that a function compiles to."""
  text = jax.jit(function).lower(*args).compile().as_text()
  return set(re.findall(r'dim_labels=([\w>-]+)', text))


@pytest.mark.every(8)
@pytest.mark.parametrize('case', _CASES)
def test_values_and_gradients_stay(case):
  args = _operands(case)
  _assert_close(
      convolutions.fast_in_loops(functools.partial(_convolve, case))(*args),
      _convolve(case, *args))
  _assert_close(convolutions.fast_in_loops(_slopes(case))(*args),
                _slopes(case)(*args))


def _in_scan(function):
  def run(x, kernel):
    return jax.lax.scan(lambda carry, _: (jax.tree.map(
        lambda a, b: a - 0.1 * b, carry, function(*carry)), None),
                        (x, kernel), None, length=2)[0]
  return run


# The compiler has its own way for groups. Where a kernel is larger than the
# image, as in gradients of transposed convolutions, it swaps them.
@pytest.mark.slow
@pytest.mark.parametrize('case', [
    name for name in _CASES if name not in ('groups', 'transposed')])
def test_loops_hold_fast_convolutions_only(case):
  args = _operands(case)
  assert _layouts(_in_scan(_slopes(case)), *args) - _FAST
  rearranged = convolutions.fast_in_loops(_slopes(case))
  assert _layouts(_in_scan(rearranged), *args) <= _FAST


def _in_cond(function):
  return lambda x, kernel: jax.lax.cond(
      jnp.sum(x) > jnp.sum(kernel), function, lambda x, kernel: (x, kernel), x,
      kernel)


def _in_while(function):
  def run(x, kernel):
    return jax.lax.while_loop(
        lambda carry: carry[0] < 2,
        lambda carry: (carry[0] + 1, jax.tree.map(
            lambda a, b: a - 0.1 * b, carry[1], function(*carry[1]))),
        (0, (x, kernel)))[1]
  return run


def _in_custom(function):
  wrapped = jax.custom_vjp(function)
  wrapped.defvjp(lambda *args: (function(*args), args),
                 lambda args, cotangents: cotangents)
  return wrapped


@pytest.mark.every(3)
@pytest.mark.parametrize('place', [
    _in_scan, _in_cond, _in_while, _in_custom, jax.jit, jax.checkpoint,
    lambda f: _in_scan(jax.jit(_in_cond(f)))],
    ids=['scan', 'cond', 'while', 'custom', 'jit', 'checkpoint', 'nested'])
def test_convolutions_are_found_wherever_they_are(place):
  args = _operands('strides')
  function = place(_slopes('strides'))
  rearranged = convolutions.fast_in_loops(function)
  _assert_close(rearranged(*args), function(*args))
  assert _layouts(_in_scan(rearranged), *args) <= _FAST
  if place is jax.checkpoint:  # It stays, or all values would be kept.
    assert 'remat' in str(jax.make_jaxpr(rearranged)(*args))


def test_functions_without_convolutions_and_trees_pass_through():
  tree = {'a': jnp.arange(3.0), 'b': (jnp.ones([2]), None)}
  function = lambda tree, scale: jax.tree.map(lambda leaf: leaf * scale, tree)
  _assert_close(convolutions.fast_in_loops(function)(tree, 2.0),
                function(tree, 2.0))


def test_values_from_outside_are_seen():
  x, kernel = _operands('plain')

  @jax.jit
  def run(scale):
    return convolutions.fast_in_loops(
        lambda x: scale * _convolve('plain', x, kernel))(x)

  _assert_close(run(2.0), 2.0 * _convolve('plain', x, kernel))


@pytest.mark.slow
@pytest.mark.parametrize('microbatch_size', [None, 2])
def test_clipped_sums_have_fast_convolutions_only(microbatch_size):

  def apply(params, x):
    hidden = jnp.tanh(jax.lax.conv_general_dilated(
        x, params['a'], (2, 2), 'SAME',
        dimension_numbers=('NHWC', 'HWIO', 'NHWC')))
    hidden = jnp.tanh(jax.lax.conv_general_dilated(
        hidden, params['b'], (1, 1), 'SAME',
        dimension_numbers=('NHWC', 'HWIO', 'NHWC')))
    return jnp.mean(hidden, (1, 2))

  keys = jax.random.split(jax.random.key(0), 3)
  params = {'a': jax.random.normal(keys[0], (3, 3, 1, 4)),
            'b': jax.random.normal(keys[1], (3, 3, 4, 5))}
  batch = Batch(jax.random.normal(keys[2], (4, 6, 6, 1)),
                jnp.zeros([4], jnp.int32))
  loss = lambda logits, labels: jnp.sum(jnp.square(logits), -1)
  bounder = per_example.clipped(apply, loss, clip_norm=0.5,
                                microbatch_size=microbatch_size)
  mask = jnp.ones([4], jnp.bool_)
  rearranged = convolutions.fast_in_loops(bounder.sums)
  _assert_close(rearranged(params, batch, mask),
                bounder.sums(params, batch, mask))

  def loop(sums):
    return lambda params: jax.lax.scan(
        lambda p, _: (sums(p, batch, mask).total, None), params, None,
        length=2)[0]

  assert _layouts(loop(rearranged), params) <= _FAST
  # A loop over microbatches is the library's own.
  assert bool(_layouts(loop(bounder.sums), params) - _FAST) == (
      microbatch_size is None)
