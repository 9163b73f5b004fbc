"""Tests that embeddings are recognised however a model looks rows up.

Norms and sums are compared with gradients of each record, for indices in the
table, behind its end, and negative ones.
"""

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bookkeeping
from dpjax.grads import explain
from dpjax.grads import lookups

ROWS, WIDTH, SIZE, SITES = 7, 4, 5, 6


def _gather(mode, collapsed):
  """Returns a lookup whose indices name a column too, which is zero or one."""
  offsets = (1,) if collapsed else (1, 2)
  numbers = lax.GatherDimensionNumbers(offsets, collapsed, (1, 0))
  return lambda w, ids: lax.gather(
    w, jnp.stack([ids % 2, ids], -1), numbers, (1, WIDTH), mode=mode)


def _each(w, ids):
  return jax.vmap(lambda row: w[row])(ids)


# name -> (lookup (w, ids [t]), shape of w)
LOOKUPS = {
  'index': (lambda w, ids: w[ids], (ROWS, WIDTH)),
  'indices of two axes': (lambda w, ids: w[ids.reshape((2, 3))], (ROWS, WIDTH)),
  'one row': (lambda w, ids: w[ids[0]], (ROWS, WIDTH)),
  'rows one by one': (lambda w, ids: jnp.stack([w[row] for row in ids]),
                      (ROWS, WIDTH)),
  'vmap': (_each, (ROWS, WIDTH)),
  'vmap of vmap': (lambda w, ids: jax.vmap(lambda row: _each(w, row))(
    ids.reshape((3, 2))), (ROWS, WIDTH)),
  'rows with two axes': (_each, (ROWS, 2, 3)),
  'numbers': (lambda w, ids: w[ids], (ROWS,)),
  'more rows than the type of indices holds': (
    lambda w, ids: _each(w, ids.astype(jnp.uint8)), (300, WIDTH)),
  'in a loop': (lambda w, ids: lax.scan(
    lambda h, row: (h / 2 + w[row], h), jnp.zeros([WIDTH]), ids)[0],
                (ROWS, WIDTH)),
  'map': (lambda w, ids: lax.map(lambda row: jnp.tanh(w[row]), ids),
          (ROWS, WIDTH)),
  'a transposed table': (lambda w, ids: w.T[ids], (WIDTH, ROWS)),
  'along': (lambda w, ids: jnp.take_along_axis(w, ids[:, None], 0),
            (ROWS, WIDTH)),
  'a fill value': (lambda w, ids: w.at[ids].get(mode='fill', fill_value=2.0),
                   (ROWS, WIDTH)),
}
LOOKUPS |= {f'take, {mode}': (lambda w, ids, mode=mode: jnp.take(
  w, ids, 0, mode=mode), (ROWS, WIDTH)) for mode in ('fill', 'clip', 'wrap')}
LOOKUPS |= {f'gather, {mode}{", kept axis" * (not collapsed)}': (
  _gather(mode, collapsed), (ROWS, WIDTH))
            for mode in ('fill', 'clip', 'promise_in_bounds')
            for collapsed in ((), (0,))}


def _given(name, outside):
  lookup, shape = LOOKUPS[name]
  rng = np.random.default_rng(0)
  table = {'w': jnp.asarray(rng.normal(size=shape), jnp.float32)}
  low, high = (-2 * ROWS - 3, 2 * ROWS + 3) if outside else (0, ROWS)
  ids = jnp.asarray(rng.integers(low, high, (SIZE, SITES)), jnp.int32)

  def record_loss(params, ids):
    rows = lookup(params['w'], ids).ravel()
    places = jnp.cos(jnp.arange(rows.size, dtype=jnp.float32))
    return jnp.sum(places * rows + rows**2 / 2)

  return record_loss, table, ids


def _check(name, outside):
  record_loss, params, ids = _given(name, outside)
  gradients = bookkeeping.of_record_loss(record_loss, params, ids,
                                         jnp.ones([SIZE], jnp.bool_))
  usable = np.isfinite(jax.vmap(record_loss, (None, 0))(params, ids))
  assert np.array_equal(gradients.usable, usable)
  weights = np.where(usable, np.arange(1, SIZE + 1), 0).astype(np.float32)
  exact = np.float64(jax.vmap(jax.grad(record_loss), (None, 0))(params, ids)[
    'w'])
  exact[~usable] = 0
  norms = np.linalg.norm(exact.reshape((SIZE, -1)), axis=1)
  np.testing.assert_allclose(
    np.where(usable, np.sqrt(gradients.squares['w']), 0), norms, rtol=1e-5,
    atol=1e-15)
  total = gradients.weighted({'w': weights})['w']
  wanted = np.tensordot(weights, exact, 1)
  assert total.shape == wanted.shape
  assert np.linalg.norm(total - wanted) <= 1e-5 * np.linalg.norm(wanted)


@pytest.mark.every(8)
@pytest.mark.parametrize('outside', [False, True])
@pytest.mark.parametrize('name', LOOKUPS)
def test_lookups(name, outside):
  record_loss, params, ids = _given(name, outside)
  leaf, = explain.explain(record_loss, params, ids[0])
  assert leaf.way == explain.LOOKUP
  _check(name, outside)


def _unclipped(rows, num_rows):
  return rows, jnp.ones(rows.shape, jnp.bool_)


@pytest.mark.parametrize('name', ['vmap', 'one row', 'take, clip'])
def test_indices_that_are_not_clipped_are_seen(monkeypatch, name):
  monkeypatch.setattr(lookups, '_clipped', _unclipped)
  _check(name, False)
  with pytest.raises(AssertionError):
    _check(name, True)


def test_a_column_that_does_not_exist_reads_nothing():
  """An index that names the wrong column is out of range: no gradient."""
  name = 'gather, promise_in_bounds'
  record_loss, params, _ = _given(name, False)
  equations = jax.make_jaxpr(LOOKUPS[name][0])(
    params['w'], jnp.zeros([SITES], jnp.int32)).eqns
  gather, = (each for each in equations if each.primitive.name == 'gather')
  known = lookups.as_table(gather, 0).places(jnp.asarray(
    [[0, 1], [1, 1], [0, ROWS], [0, -1]], jnp.int32))[1]
  np.testing.assert_array_equal(known, [True, False, False, False])


@pytest.mark.parametrize('lookup', [
  lambda w, ids: jnp.take(w, ids, 1, mode='clip'),
  lambda w, ids: w[ids, :2],
  lambda w, ids: w[ids % 3, ids % 2],
  lambda w, ids: lax.dynamic_slice_in_dim(w, ids[0], 3)])
def test_other_indexing_is_no_embedding(lookup):
  """Columns, parts of rows, entries and windows are formed, and right."""
  LOOKUPS['other'] = lookup, (ROWS, WIDTH)
  try:
    record_loss, params, ids = _given('other', False)
    leaf, = explain.explain(record_loss, params, ids[0])
    assert leaf.way == explain.FORMED
    _check('other', True)
  finally:
    del LOOKUPS['other']
