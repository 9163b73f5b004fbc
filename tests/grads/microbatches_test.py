"""Tests that microbatches give equal sums, and are used where faster."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import microbatches
from dpjax.grads import per_example
from dpjax.typing import Batch

_SIZE = 70


def _loss(logits, labels):
  return jnp.square(logits[:, 0] - labels.astype(jnp.float32))


def _convolved(params, x):
  hidden = jnp.tanh(jax.lax.conv_general_dilated(
      x, params['kernel'], (1,), 'SAME', dimension_numbers=('NWC', 'WIO',
                                                            'NWC')))
  return jnp.mean(hidden, 1)


def _dense(params, x):
  return jnp.tanh(jnp.mean(x, 1)) @ params['kernel'][0]


def _inputs():
  keys = jax.random.split(jax.random.key(0), 3)
  x = jax.random.normal(keys[0], (_SIZE, 6, 2))
  return ({'kernel': jax.random.normal(keys[1], (3, 2, 4))},
          Batch(x.at[3].set(jnp.nan), jnp.arange(_SIZE, dtype=jnp.int32) % 3),
          jax.random.bernoulli(keys[2], 0.8, (_SIZE,)).at[3].set(True))


def _clipped(apply, microbatch_size=None):
  return per_example.clipped(apply, _loss, clip_norm=0.3,
                             microbatch_size=microbatch_size).sums


def _plain(apply):
  return per_example.summed(apply, _loss).sums


def _num_parts(sums, *args):
  """Returns the length of the loop over parts, or 1 without a loop."""
  lengths = [equation.params['length']
             for equation in jax.make_jaxpr(sums)(*args).jaxpr.eqns
             if equation.primitive.name == 'scan'
             and equation.params['num_carry'] == 3]
  return lengths[0] if lengths else 1


@pytest.mark.every(3)
@pytest.mark.parametrize('make', [_clipped, _plain])
def test_convolutions_come_in_parts_on_cpu_and_nothing_else(make, monkeypatch):
  if jax.default_backend() != 'cpu':
    pytest.skip('parts are faster on CPU')
  args = _inputs()
  few = jax.tree.map(lambda leaf: leaf[:32], args[1:])
  assert _num_parts(make(_convolved), *args) == 2
  assert _num_parts(make(_convolved), args[0], *few) == 1
  assert _num_parts(make(_dense), *args) == 1
  # A record leaves six places of four channels, here for 40 records.
  monkeypatch.setattr(microbatches, '_CACHED_VALUES', 40 * 24)
  assert _num_parts(make(_convolved), *args) == 2
  monkeypatch.setattr(microbatches, '_CACHED_VALUES', 20 * 24)
  assert _num_parts(make(_convolved), *args) == 3


def test_whoever_asks_gets_what_he_asks_for():
  args = _inputs()
  assert _num_parts(_clipped(_convolved, _SIZE), *args) == 1
  assert _num_parts(_clipped(_dense, 9), *args) == 8


def _equal(actual, wanted):
  assert actual.num_nonfinite == wanted.num_nonfinite == 1
  for got, want in zip(jax.tree.leaves(actual), jax.tree.leaves(wanted),
                       strict=True):
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('size', [7, 32, 69, 1000])
def test_parts_add_up_to_the_sums_of_all(size):
  """Parts add up to the whole, also where the last one is padded and masked."""
  args = _inputs()
  whole = _clipped(_convolved, _SIZE)(*args)
  _equal(jax.jit(_clipped(_convolved, size))(*args), whole)
  # Every part counts, so the sums do not agree by accident.
  less = _clipped(_convolved, size)(*args[:2], args[2].at[-1].set(False))
  changed = args[2][-1]
  assert bool(jnp.any(less.total['kernel'] != whole.total['kernel'])) >= changed


@pytest.mark.every(2)
def test_plain_sums_come_in_parts_too():
  args = _inputs()
  sums = jax.jit(_plain(_convolved))(*args)
  kept = np.array(args[2])
  kept[3] = False
  gradient = jax.grad(lambda params: jnp.sum(_loss(
      _convolved(params, args[1].x[kept]), args[1].y[kept])))(args[0])
  np.testing.assert_allclose(sums.total['kernel'], gradient['kernel'],
                             rtol=2e-5, atol=1e-5)
  assert sums.num_nonfinite == 1


def test_no_size_below_one():
  params, batch, mask = _inputs()
  with pytest.raises(ValueError, match='microbatch_size must be an integer'):
    microbatches.added_up(_plain(_dense), params, batch, mask, 0)


@pytest.mark.every(2)
def test_norms_come_in_parts_too():
  """Norms come in the records' order, without the padding of the last part."""
  params, batch, _ = _inputs()
  for blocks in (0, {'kernel': 0}):
    record_norms = per_example.per_example_norms(_convolved, _loss, params,
                                                 batch, blocks=blocks)
    gradients = per_example.per_example_gradients(
        _convolved, _loss, params, batch)[1]['kernel']
    wanted = np.linalg.norm(np.reshape(gradients, (_SIZE, -1)), axis=1)
    wanted[3] = np.inf
    norms, = jax.tree.leaves(record_norms)
    np.testing.assert_allclose(norms, wanted, rtol=1e-5)
