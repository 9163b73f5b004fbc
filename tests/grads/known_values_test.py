"""Tests that integers known before a network runs are the computed ones.

They decide which entries an index reads and which branch is taken; a wrong one
would make the check follow another record.
"""

import jax
from jax import lax
from jax.extend import core
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import dependence
from dpjax.grads import entries
from dpjax.grads import entry_rules

B = 3
# Both signs and zero occur; 4 is not a place of any array.
LEFT = jnp.array([[-7, 0, 4], [5, -2, 3]], jnp.int32)
RIGHT = jnp.array([[2, 0, -3], [5, 1, -4]], jnp.int32)
DIVISORS = jnp.array([[2, 3, -3], [-5, 1, -4]], jnp.int32)
SMALL = jnp.array([[2, 0, 1], [1, 2, 0]], jnp.int32)
FLAGS = jnp.array([[True, False, True], [False, True, True]])

# There is one for each operation whose values are followed.
OPERATIONS = {
  name: lambda i, apply=apply: apply(LEFT, RIGHT) for name, apply in {
    'add': lax.add, 'and': lax.bitwise_and, 'eq': lax.eq, 'ge': lax.ge,
    'gt': lax.gt, 'le': lax.le, 'lt': lax.lt, 'max': lax.max, 'min': lax.min,
    'mul': lax.mul, 'ne': lax.ne, 'or': lax.bitwise_or, 'sub': lax.sub,
    'xor': lax.bitwise_xor}.items()} | {
      'clamp': lambda i: lax.clamp(SMALL, LEFT, SMALL + 2),
      'convert_element_type': lambda i: lax.convert_element_type(
        LEFT, jnp.int8),
      'div': lambda i: lax.div(LEFT, DIVISORS), 'neg': lambda i: lax.neg(LEFT),
      'not': lambda i: lax.bitwise_not(LEFT),
      'rem': lambda i: lax.rem(LEFT, DIVISORS),
      'sign': lambda i: lax.sign(LEFT)}
# These move integers to other places; i [B, 2] belongs to records.
MOVES = {
  'flags': lambda i: ~FLAGS, 'counted': lambda i: lax.iota(jnp.int32, 5),
  'columns': lambda i: lax.broadcasted_iota(jnp.int32, (2, 3), 1),
  'chosen': lambda i: jnp.where(FLAGS, LEFT, RIGHT),
  'one of three': lambda i: lax.select_n(SMALL, LEFT, RIGHT, LEFT - 9),
  'kept from records': lambda i: jnp.where(
    jnp.array([[True], [False], [True]]), i, LEFT[:1, :2]),
  'beside records': lambda i: lax.concatenate([RIGHT.T, i, LEFT.T], 1),
  'around records': lambda i: lax.pad(i, jnp.int32(8), (
    (1, 0, 1), (-1, 2, 0))),
  'padded': lambda i: lax.pad(LEFT, jnp.int32(8), ((-1, 2, 0), (1, -2, 1))),
  'cut': lambda i: lax.slice(LEFT, (0, 0), (2, 3), (1, 2)),
  'parts': lambda i: jnp.split(LEFT, [1], 1)[1],
  'turned': lambda i: jnp.flip(LEFT.T, 0).reshape((2, 3)),
  'slice': lambda i: lax.dynamic_slice(LEFT, (0, SMALL[0, 2]), (2, 2)),
  'slice at the end': lambda i: lax.dynamic_slice(LEFT, (5, 2), (1, 2)),
  'slid': lambda i: lax.dynamic_update_slice(
    LEFT, lax.slice(RIGHT, (0, 0), (1, 2)), (1, 7)),
  'slid records': lambda i: lax.dynamic_update_slice(
    jnp.tile(LEFT, (2, 1)), i, (1, 0)),
  'looked up': lambda i: LEFT[SMALL[0] % 2, SMALL[1]],
  'along an axis': lambda i: jnp.take_along_axis(LEFT, SMALL, 1),
  'branch': lambda i: lax.switch(SMALL[0, 0], [
    lambda: LEFT, lambda: RIGHT, lambda: LEFT + 1, lambda: RIGHT - 1]),
  'branch beyond': lambda i: lax.switch(RIGHT[0, 0] + 5, [
    lambda: LEFT, lambda: RIGHT]),
  'steps': lambda i: lax.fori_loop(0, 5, lambda k, c: 2 * c + k, LEFT),
  'halved': lambda i: lax.while_loop(
    lambda c: c > 3, lambda c: c // 2, jnp.int32(100)),
  'backwards': lambda i: lax.scan(
    lambda c, row: (c - row, c * row), RIGHT[0], LEFT, reverse=True)[1]}
ALL = OPERATIONS | MOVES


@pytest.fixture(name='traced', scope='module')
def _traced():
  return jax.make_jaxpr(lambda i: [function(i) for function in ALL.values()])(
    jax.ShapeDtypeStruct((B, 2), jnp.int32))


@pytest.fixture(name='followed', scope='module')
def _followed(traced):
  with jax.ensure_compile_time_eval():
    return dict(zip(ALL, dependence.Follower(B).outputs(
      traced, [entries.of_records((B, 2), 0)]), strict=True))


def test_each_operation_is_among_them():
  assert set(OPERATIONS) == set(entry_rules._NUMPY)


def test_known_values_are_those_computed(traced, followed):
  compute = jax.jit(core.jaxpr_as_fun(traced))
  for drawn in (jnp.arange(6).reshape((3, 2)), -jnp.ones([3, 2])):
    values = compute(drawn.astype(jnp.int32))
    for (name, each), value in zip(followed.items(), values, strict=True):
      known = each.reads == 0
      np.testing.assert_array_equal(each.value[known],
                                    np.asarray(value)[known], name)


def test_all_that_reads_no_record_is_known(followed):
  for name, each in followed.items():
    of_records = name in ('kept from records', 'beside records',
                          'around records', 'slid records')
    assert bool(np.any(each.reads & ~entries.UNKNOWN)) == of_records, name
    assert of_records or each.known() is not None, name


def test_codes_of_constants_are_equal_where_values_are():
  """Constants of every type have equal codes exactly where values are equal."""
  values = {
    np.bool_: [False, True, True], np.int8: [-3, 0, 4, 4, -3],
    np.uint32: [7, 2**32 - 1, 7], np.int32: [-1, 1, -1, 2**31 - 1],
    np.float32: [0.5, -0.5, 0.25, 0.5], jnp.bfloat16: [1.5, 2.0, 1.5],
    np.complex64: [1j, 2j, 1j, 1 + 1j, 1, 0, 1 - 1j]}
  for dtype, numbers in values.items():
    each = np.array(numbers).astype(dtype)
    codes = entries.of_constant(each).codes
    np.testing.assert_array_equal(codes[:, None] == codes[None],
                                  each[:, None] == each[None], str(dtype))
    large = np.tile(each[:, None], (1, 2**15))
    rows = entries.of_constant(large).codes
    assert large.size > 2**15 and rows.shape == large.shape
    np.testing.assert_array_equal(rows[:, :1] == rows[:, -1],
                                  each[:, None] == each[None], str(dtype))
