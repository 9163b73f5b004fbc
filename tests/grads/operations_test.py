"""Tests that each operation with a rule isolates records or is seen to mix.

Nothing is compiled: operations are followed on batches whose records lie along
the first axis, and along the axes that an operation works on.
"""

import re

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import dependence
from dpjax.grads import entries
from dpjax.grads import entry_rules

B, N = 3, 4
linalg = lax.linalg


def _keys(x):
  """Returns words of keys, some of which were split from records' keys."""
  keys = jax.random.wrap_key_data(x[..., :2].astype(jnp.uint32))
  return jax.random.key_data(jax.vmap(
    lambda row: jax.vmap(jax.random.split)(row))(keys))


# x [B, N, N] or [N, N, B] -> [..., N, N] or [..., N] by the last axis or two.
OPERATIONS = {
  'approx_top_k': lambda x: lax.approx_max_k(x, x.shape[-1])[0],
  'argmin': lambda x: lax.argmin(x, 2, jnp.int32),
  # It is zero above its diagonal.
  'cholesky': lambda x: linalg.cholesky(x)[:, -1],
  'cumlogsumexp': lambda x: lax.cumlogsumexp(x, 2),
  'cummax': lambda x: lax.cummax(x, 2),
  'cummin': lambda x: lax.cummin(x, 2, reverse=True),
  'cumprod': lambda x: lax.cumprod(x, 2),
  'eig': lambda x: linalg.eig(x, compute_left_eigenvectors=False)[1],
  'eigh': lambda x: linalg.eigh(x)[0],
  'hessenberg': lambda x: linalg.hessenberg(x)[0],
  'householder_product': lambda x: linalg.householder_product(x, x[:, 0]),
  'lu': lambda x: linalg.lu(x)[0],
  'lu_pivots_to_permutation': lambda x: linalg.lu_pivots_to_permutation(
    x.astype(jnp.int32), N),
  'qr': lambda x: linalg.qr(x)[1],
  'reduce_and': lambda x: jnp.all(x > 0, 2),
  'reduce_min': lambda x: jnp.min(x, 2),
  'reduce_or': lambda x: jnp.any(x > 0, 2),
  'reduce_prod': lambda x: jnp.prod(x, 2),
  'reduce_xor': lambda x: lax.reduce_xor(x.astype(jnp.int32), [2]),
  'schur': lambda x: linalg.schur(x)[0],
  'svd': lambda x: linalg.svd(x, compute_uv=False),
  'triangular_solve': lambda x: linalg.triangular_solve(x, x),
  'tridiagonal': lambda x: linalg.tridiagonal(x)[0],
  'tridiagonal_solve': lambda x: linalg.tridiagonal_solve(
    x[:, 0], x[:, 0], x[:, 0], x),
}
# Operations on two axes, here of a matrix [B, B].
MATRICES = set(entry_rules._LAST_AXES) - {'lu_pivots_to_permutation'}


def _followed(function, shape, axis):
  """Returns the followed output entries for records along one axis of x."""
  x = entries.of_records((B, *shape[:axis], *shape[axis + 1:]), 0)
  x = entries.rearranged(x, lambda array: np.moveaxis(array, 0, axis))
  closed = jax.make_jaxpr(function)(jax.ShapeDtypeStruct(shape, jnp.float32))
  with jax.ensure_compile_time_eval():
    return closed, dependence.Follower(B).outputs(closed, [x])[0]


@pytest.mark.parametrize('name', OPERATIONS)
@pytest.mark.sound
def test_records_along_the_first_axis_are_kept_apart(name):
  closed, out = _followed(OPERATIONS[name], (B, N, N), 0)
  assert re.search(rf' {name}[\[ ]', str(closed))
  for row, (reads, codes) in enumerate(zip(out.reads, out.codes)):
    assert np.all(reads & ~entries.UNKNOWN == 1 << row)
    # Equal records give equal rows, in which no two entries are alike.
    np.testing.assert_array_equal(codes, out.codes[0])
    assert len(np.unique(codes)) == codes.size


@pytest.mark.parametrize('name', OPERATIONS)
@pytest.mark.sound
def test_records_along_the_last_axis_are_mixed(name):
  shape = (N, B, B) if name in MATRICES else (N, N, B)
  out = _followed(OPERATIONS[name], shape, 2)[1]
  assert np.all(out.reads & ~entries.UNKNOWN == 2**B - 1)


def test_keys_of_records_are_keys_of_their_own():
  closed, out = _followed(_keys, (B, N, N), 0)
  for name in ('random_wrap', 'random_split', 'random_unwrap'):
    assert f' {name}' in str(closed)
  own = (1 << np.arange(B)).reshape((-1, 1, 1, 1))
  np.testing.assert_array_equal(
    out.reads & ~entries.UNKNOWN, np.broadcast_to(own, out.reads.shape))
  assert len(np.unique(out.codes[0])) == out.codes[0].size


def test_the_program_of_this_platform_is_followed():
  function = lambda x: lax.platform_dependent(
    x, **{jax.default_backend(): lambda x: x}, default=lambda x: x[::-1])
  own = 1 << np.arange(B)
  assert np.all(_followed(function, (B, N), 0)[1].reads == own[:, None])
  other = lambda x: lax.platform_dependent(
    x, rocm=lambda x: x, default=lambda x: x[::-1])
  assert np.all(_followed(other, (B, N), 0)[1].reads == own[::-1, None])


def test_operations_without_a_rule():
  """Without a rule, known integers are exact and no input reads nothing."""
  rows = np.array([1, 0, 2, 1, 1, 2, 0, 0], np.int32)
  shape = jax.ShapeDtypeStruct(rows.shape, jnp.float32)
  chosen = lambda x: jax.pure_callback(
    lambda x, rows: np.asarray(x)[rows, 0], shape, x, rows)
  reads = _followed(chosen, (B, N), 0)[1].reads
  nothing = _followed(lambda x: jax.pure_callback(
    lambda: np.ones(rows.shape, np.float32), shape), (B, N), 0)[1].reads
  np.testing.assert_array_equal(reads & ~entries.UNKNOWN, 1 << rows)
  assert not np.any(nothing & ~entries.UNKNOWN)


def test_long_loops_are_followed_to_their_end():
  """Long loops are followed to the end, also where effects arrive late."""
  long = 3000
  every = lambda x: lax.scan(lambda c, row: (c + row, None), jnp.zeros([N]),
                             jnp.repeat(x, long // B, 0))[0]
  chosen = lambda x: lax.fori_loop(
    0, long, lambda k, c: c + lax.dynamic_index_in_dim(x, k % B, 0, False),
    jnp.zeros([N]))
  growing = lambda x: lax.while_loop(
    lambda c: c[0] < long, lambda c: (c[0] + 1, c[1] + x[c[0] % B]),
    (jnp.int32(0), jnp.zeros([N])))[1]
  for function in (every, chosen, growing):
    assert np.all(_followed(function, (B, N), 0)[1].reads
                  & ~entries.UNKNOWN == 2**B - 1)
  place = jnp.arange(B, dtype=jnp.float32)[:, None]
  delayed = lambda x: lax.fori_loop(
    0, long, lambda k, c: (c[0] + place, c[0], c[1], c[2]),
    (0 * x, x, x, x))[3]
  codes = _followed(delayed, (B, N), 0)[1].codes
  assert np.all(codes[0] != codes[1]) and np.all(codes[1] != codes[2])


def test_windows_and_batches_along_any_axis():
  """Lookups with paired axes and windows that fill an axis are followed."""
  own = 1 << np.arange(B)
  paired = lambda x: lax.gather(
    x.T[:, :, None], jnp.array([[2], [0], [1]]), lax.GatherDimensionNumbers(
      offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,),
      operand_batching_dims=(1,), start_indices_batching_dims=(0,)),
    slice_sizes=(1, 1, 1))
  added = lambda x: lax.scatter_add(
    jnp.zeros([N, B]), jnp.array([[2], [0], [1]]), x[:, 0],
    lax.ScatterDimensionNumbers(
      update_window_dims=(), inserted_window_dims=(0,),
      scatter_dims_to_operand_dims=(0,), operand_batching_dims=(1,),
      scatter_indices_batching_dims=(0,)))
  filled = lambda x: lax.gather(
    x, jnp.stack([x[0, 0].astype(jnp.int32), jnp.int32(1)]),
    lax.GatherDimensionNumbers(offset_dims=(0,), collapsed_slice_dims=(1,),
                               start_index_map=(0, 1)), slice_sizes=(B, 1))
  reads = [_followed(function, (B, N), 0)[1].reads & ~entries.UNKNOWN
           for function in (paired, added, filled)]
  np.testing.assert_array_equal(reads[0], own[:, None])
  np.testing.assert_array_equal(reads[1], [
    [0, 2, 0], [0, 0, 4], [1, 0, 0], [0, 0, 0]])
  # The place comes from the first record.
  np.testing.assert_array_equal(reads[2], own | 1)
