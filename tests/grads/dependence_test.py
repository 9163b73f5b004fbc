"""Tests the records each operation is said to read against its behaviour.

All operations run once on random records, once for each replaced record, and
once on equal records; they are compiled as one program.
"""

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import dependence
from dpjax.grads import entries

KEY = jax.random.key(1)
W = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)), jnp.float32)
B, T, D = 3, 4, 5


def _gram(x):
  """Returns one positive definite matrix for each record, [B, D, D]."""
  return jnp.einsum('btd,bte->bde', x, x) + jnp.eye(D)[None]


def _reduced(x):
  return lax.reduce(x, np.float32(0), lambda a, b: a + 2 * b, (1,))


def _convolved(x, kernel, **settings):
  return lax.conv_general_dilated(x, kernel, (1,), 'SAME',
                                  dimension_numbers=('NTC', 'TIO', 'NTC'),
                                  **settings)


def _ragged(x):
  """Applies `ragged_dot`, an operation that has no rule."""
  return lax.ragged_dot(x.reshape((-1, D)), jnp.ones([2, D, 2]),
                        jnp.array([5, 7], jnp.int32)).reshape((B, T, 2))


def _drawn(x):
  keys = jax.vmap(lambda r: jax.random.fold_in(KEY, (9 * r[0, 0]).astype(
    jnp.int32)))(x)
  return jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys)


# (x [B, T, D] floats, i [B, T] integers in [0, T)) -> an array. Every entry
# changes with each record that it is said to read.
EXACT = {
  'product': lambda x, i: x @ W,
  'rows': lambda x, i: x[::-1],
  'every other row': lambda x, i: jnp.concatenate([x[::2], x[1::2]]),
  'shifted': lambda x, i: jnp.roll(x, (1, 2), (0, 1)),
  'padded': lambda x, i: lax.pad(x, 0.0, ((1, -1, 0), (-1, 2, 1), (0, 0, 0))),
  'merged': lambda x, i: (x.reshape((-1, D)) @ W).reshape((B, -1)),
  'time first': lambda x, i: jnp.swapaxes(x, 0, 1).reshape((-1, D)),
  'mean of records': lambda x, i: x.mean(0),
  'own statistics': lambda x, i: (x - x.mean(1, keepdims=True)) / x.std(
    1, keepdims=True),
  'sums of pairs': lambda x, i: x[:2] + x[1:],
  'products of records': lambda x, i: jnp.einsum('btd,ctd->bc', x, x),
  'diagonal': lambda x, i: jnp.diagonal(jnp.einsum('btd,ctd->bc', x, x)),
  'masked': lambda x, i: jnp.where(jnp.eye(B, dtype=bool)[:, :, None],
                                   x[:, 0][None], 0.0),
  'running': lambda x, i: jnp.cumsum(x[..., 0], 1)[:, -1],
  'sorted': lambda x, i: jnp.sort(x, 1).sum(1),
  'largest two': lambda x, i: lax.top_k(x, 2)[0],
  'general sum': lambda x, i: _reduced(x),
  'Fourier': lambda x, i: jnp.abs(jnp.fft.fft(x)),
  'convolution': lambda x, i: _convolved(x, jnp.ones([3, D, 2])).sum(1),
  'groups': lambda x, i: _convolved(
    jnp.swapaxes(x[..., 0], 0, 1)[None], jnp.ones([3, 1, 6]),
    feature_group_count=B)[0].sum(0),
  'groups of rows': lambda x, i: _convolved(
    x.reshape((6, 2, D)), jnp.ones([1, D, 4]), batch_group_count=2).sum(1),
  'pooled': lambda x, i: lax.reduce_window(
    x, 0.0, lax.add, (1, 2, D), (1, 2, 1), 'VALID'),
  'pool gradients': lambda x, i: jax.grad(lambda x: jnp.sum(lax.reduce_window(
    x, -jnp.inf, lax.max, (1, T, 1), (1, T, 1), 'VALID')**2))(x).sum(1),
  'own places': lambda x, i: x[jnp.arange(B), i[:, 0]],
  'along an axis': lambda x, i: jnp.take_along_axis(x, i[:, :, None], 1),
  'a table': lambda x, i: jnp.arange(4.0)[i],
  'blocks': lambda x, i: jax.vmap(lambda r, j: lax.dynamic_slice(
    r, (j[0], 0), (2, D)))(x, i).sum(1),
  'written rows': lambda x, i: jnp.zeros([B, D]).at[jnp.array([2, 0])].set(
    x[:2, 0]),
  'written beyond': lambda x, i: x.at[jnp.array([7])].set(0.0, mode='drop'),
  'written anywhere': lambda x, i: x.at[i[0, 0] % B].add(x[1]),
  'counted': lambda x, i: jnp.zeros([B, T]).at[
    jnp.arange(B)[:, None], i].add(1.0).cumsum(1)[:, 2],
  'segments': lambda x, i: jax.ops.segment_sum(
    x.reshape((-1, D)), jnp.repeat(jnp.arange(B), T), B),
  'loop over rows': lambda x, i: lax.fori_loop(
    0, B, lambda k, out: out.at[k].set(x[k, 0] @ W), jnp.zeros([B, 2])),
  'map': lambda x, i: lax.map(lambda r: r @ W, x.reshape((-1, D))),
  'scan': lambda x, i: lax.scan(lambda c, r: (c + r, c), jnp.zeros([B, D]),
                                jnp.swapaxes(x, 0, 1))[0],
  'backwards': lambda x, i: lax.scan(
    lambda c, r: (c + r, c), jnp.zeros([D]), x[:, 0], reverse=True)[1],
  'long loop': lambda x, i: lax.fori_loop(
    0, 3000, lambda k, c: jnp.tanh(c + x * k.astype(
      jnp.float32)), jnp.zeros_like(x)),
  'own loops': lambda x, i: jax.vmap(lambda r: lax.while_loop(
    lambda c: c[0] < 40, lambda c: (c[0] + jnp.abs(r[0, 0]) + 1, c[1] + r),
    (jnp.float32(0), r))[1])(x),
  'one branch': lambda x, i: lax.cond(jnp.bool_(False), lambda x: x.sum(0),
                                      lambda x: x[0], x),
  'linear system': lambda x, i: jnp.linalg.solve(_gram(x), x[:, 0, :, None]),
  'eigenvalues': lambda x, i: jnp.linalg.eigvalsh(_gram(x)),
  'no rule': lambda x, i: _ragged(x),
  'recomputed': jax.checkpoint(lambda x, i: jnp.tanh(x)),
  'random by record': lambda x, i: _drawn(x),
  'words': lambda x, i: lax.bitcast_convert_type(
    lax.bitcast_convert_type(x, jnp.uint8), jnp.float32),
}
# Entries of these may be said to read more than what changes them.
AT_LEAST = {
  'written in part': lambda x, i: lax.scatter(
    x, jnp.array([2]), x[:2], lax.ScatterDimensionNumbers((0, 1, 2), (), (0,)),
    mode='drop'),
  'chosen record': lambda x, i: x[i[0, 0] % B],
  'argmax': lambda x, i: jnp.argmax(x.max((1, 2))),
  'slid': lambda x, i: lax.dynamic_update_slice(
    x, x[:1] * 2, (i[1, 0] % B, 0, 0)),
  'shared branch': lambda x, i: lax.cond(
    x[0, 0, 0] > 0, lambda x: x, lambda x: -x, x),
  'shared loop': lambda x, i: lax.while_loop(
    lambda c: c.sum() < 100, lambda c: c + jnp.abs(x) + 1, x),
  'thresholds': lambda x, i: x + jnp.where(jnp.max(x) > 1e6, 1.0, 0.0),
  'nothing of it': lambda x, i: x + 0 * x[::-1],
}
# These read no two places alike.
PLACES = {
  'place': lambda x, i: x + jnp.arange(3.0)[:, None, None],
  'noise': lambda x, i: x * jax.random.uniform(KEY, x.shape, minval=0.5),
  'own feature': lambda x, i: x[jnp.arange(B), 0, jnp.arange(B)],
  'one row': lambda x, i: x.at[1].multiply(2.0),
  'keys': lambda x, i: jax.random.gamma(KEY, 1 + jnp.abs(x[:, 0])),
  'same place': lambda x, i: x + (jnp.arange(B) // B)[:, None, None].astype(
    jnp.float32),
}
ALL = EXACT | AT_LEAST | PLACES


def _batches(rng):
  """Returns a batch, and the same batch with each record replaced."""
  draw = lambda: (rng.normal(size=(B, T, D)).astype(np.float32),
                  rng.integers(0, T, (B, T)).astype(np.int32))
  before, after = draw(), draw()
  # The same integer might be drawn again.
  after = after[0], (before[1] + 1 + after[1] % (T - 1)) % T
  changed = []
  for record in range(B):
    place = (np.arange(B) == record).reshape((-1, 1))
    changed.append((np.where(place[..., None], after[0], before[0]),
                    np.where(place, after[1], before[1])))
  return before, changed


@pytest.fixture(name='run', scope='module')
def _run():
  return jax.jit(lambda x, i: {name: function(x, i)
                               for name, function in ALL.items()})


@pytest.fixture(name='followed', scope='module')
def _followed():
  followed = {}
  for name, function in ALL.items():
    closed = jax.make_jaxpr(function)(*_batches(np.random.default_rng(0))[0])
    with jax.ensure_compile_time_eval():
      followed[name], = dependence.Follower(B).outputs(closed, [
        entries.of_records((B, T, D), 0), entries.of_records((B, T), 1)])
  return followed


@pytest.fixture(name='changes', scope='module')
def _changes(run):
  """Returns bits of the records that change each entry of each operation."""
  rng = np.random.default_rng(0)
  changes = {}
  for _ in range(6):
    before, changed = _batches(rng)
    old = run(*before)
    for record, batch in enumerate(changed):
      new = run(*batch)
      for name in ALL:
        bits = np.uint32(1 << record) * (
          np.asarray(old[name]) != np.asarray(new[name]))
        changes[name] = changes.get(name, np.uint32(0)) | bits
  return changes


@pytest.mark.every(2)
def test_what_changes_an_entry_is_read(followed, changes):
  for name in ALL:
    reads = followed[name].reads & ~entries.UNKNOWN
    assert reads.shape == changes[name].shape, name
    assert not np.any(changes[name] & ~reads), name


def test_nothing_else_is_read(followed, changes):
  for name in EXACT | PLACES:
    reads = followed[name].reads & ~entries.UNKNOWN
    np.testing.assert_array_equal(reads, changes[name], name)


def test_entries_of_one_code_are_equal_if_records_are(run, followed):
  (x, i), _ = _batches(np.random.default_rng(1))
  outputs = run(np.repeat(x[:1], B, 0), np.repeat(i[:1], B, 0))
  # Operations without a rule have one code for all entries.
  for name in ALL.keys() - {'no rule'}:
    values, codes = np.ravel(outputs[name]), np.ravel(followed[name].codes)
    for code in np.unique(codes):
      group = values[codes == code]
      np.testing.assert_allclose(group, np.broadcast_to(
        group[:1], group.shape), 1e-4, 1e-4, err_msg=name)


def test_rows_of_equal_records_have_one_code(followed):
  same = set(EXACT) & {
    'product', 'merged', 'own statistics', 'sorted', 'convolution',
    'own places', 'along an axis', 'a table', 'blocks', 'segments',
    'loop over rows', 'scan', 'long loop', 'own loops', 'linear system',
    'random by record', 'counted', 'no rule'} | {'same place'}
  assert len(same) == 19
  for name, each in followed.items():
    alike = each.codes.shape[:1] == (B,) and np.all(each.codes == each.codes[0])
    if name in same:
      assert alike, name
    if name in PLACES and name != 'same place':
      assert not alike, name
