"""Tests how many records book-keeping takes at a time, and what it keeps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bookkeeping
from dpjax.grads import memory
from dpjax.grads import sites
from dpjax.grads import weighted
from dpjax.typing import Batch

_LENGTH, _WIDTH, _DEPTH, _COUNT = 24, 16, 6, 16


def _block(x, layer, remat):
  def run(x, layer):
    hidden = jnp.tanh(x @ layer['up'] + layer['bias'][None])
    return x + jnp.tanh(hidden @ layer['down'])
  return (jax.checkpoint(run) if remat else run)(x, layer)


def _loss(params, record, remat=False):
  """Returns the loss of one record of scanned layers."""
  x, y = record
  x, _ = jax.lax.scan(lambda x, layer: (_block(x, layer, remat), None), x,
                      params)
  return jnp.square(jnp.mean(x) - y)


def _inputs():
  keys = jax.random.split(jax.random.key(0), 4)
  draw = lambda key, *shape: 0.3 * jax.random.normal(key, shape)
  return ({'up': draw(keys[0], _DEPTH, _WIDTH, 4 * _WIDTH),
           'bias': jnp.zeros([_DEPTH, 4 * _WIDTH]),
           'down': draw(keys[1], _DEPTH, 4 * _WIDTH, _WIDTH)},
          (draw(keys[2], _COUNT, _LENGTH, _WIDTH), draw(keys[3], _COUNT)))


def _sums(loss, params, records):
  mask = jnp.ones([_COUNT], jnp.bool_)
  return weighted.of_record_loss(loss, clip_norm=1e-3).sums(
    params, Batch(records, records[1]), mask).total


def _bytes(function, *args):
  return jax.jit(function).lower(
    *args).compile().memory_analysis().temp_size_in_bytes


def _size(loss, monkeypatch, least=1, most=2**30):
  for name in ('_BYTES_ON_CPU', '_BYTES_ELSEWHERE'):
    monkeypatch.setattr(memory, name, (least, most))
  params, records = _inputs()
  return bookkeeping.planned(loss, params, records).num_records(
    params, _COUNT)


def test_bytes_of_one_record():
  """Counts by hand, for scanned layers without and with `jax.checkpoint`."""
  params, records = _inputs()
  each = 4 * _LENGTH * _WIDTH  # Bytes of x; the hidden layer has four times.
  found = memory.kept(bookkeeping.planned(_loss, params, records).program)
  # The first product shares the cotangent of its bias.
  assert found.inputs == found.outside == _DEPTH * 5 * each
  assert found.cotangents == _DEPTH * 5 * each
  # Both results of tanh, one of which is an input of a site, and the loss.
  assert found.others == _DEPTH * each + 4 and found.inside == 0
  remat = memory.kept(bookkeeping.planned(
    functools.partial(_loss, remat=True), params, records).program)
  assert (remat.inputs, remat.cotangents) == (found.inputs, found.cotangents)
  assert remat.outside == 0 and remat.others == _DEPTH * each + 4
  assert remat.inside == 6 * each


def test_parts_are_small_where_an_ordinary_pass_keeps_little(monkeypatch):
  whole = _size(_loss, monkeypatch, least=2**30)
  without, remat = (_size(functools.partial(_loss, remat=remat), monkeypatch)
                    for remat in (False, True))
  assert whole == _COUNT and remat < without < _COUNT
  assert _COUNT % without == _COUNT % remat == 0
  assert _size(_loss, monkeypatch, most=1) == 1


@pytest.mark.every(4)
@pytest.mark.parametrize('remat', [False, True])
def test_parts_need_no_more_memory_than_an_ordinary_pass(monkeypatch, remat):
  """By XLA's count; the sums are those of the whole batch."""
  loss = functools.partial(_loss, remat=remat)
  params, records = _inputs()
  plain = _bytes(jax.grad(lambda params, records: jnp.sum(
    jax.vmap(loss, (None, 0))(params, records))), params, records)
  whole = functools.partial(_sums, loss)
  at_once, wanted = _bytes(whole, params, records), whole(params, records)
  _size(loss, monkeypatch)
  parts = functools.partial(_sums, loss)
  assert _bytes(parts, params, records) < 1.25 * plain < at_once
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4,
                                 atol=1e-8), parts(params, records), wanted)


def _twice(params, x):
  """Returns a loss that reads a product besides adding a bias to it."""
  product = x @ params['w']
  return jnp.sum(jnp.tanh(product + params['b']) * jnp.sin(product))


def _scaled(params, x):
  return jnp.sum(jnp.tanh((x @ params['w']) * params['b']))


def _added(params, x):
  return jnp.sum(jnp.tanh(x @ params['w'] + params['b']))


def _shared(loss):
  """Returns whether a cotangent is shared, after checks against `vmap`."""
  keys = jax.random.split(jax.random.key(2), 3)
  params = {'w': jax.random.normal(keys[0], (5, 4)),
            'b': jax.random.normal(keys[1], (4,))}
  x = jax.random.normal(keys[2], (7, 3, 5))
  loss = functools.partial(lambda loss, params, x: loss(
    {**params, 'b': params['b'][None]}, x), loss)
  gradients = bookkeeping.of_record_loss(loss, params, x,
                                         jnp.ones([7], jnp.bool_))
  wanted = jax.vmap(jax.grad(loss), (None, 0))(params, x)
  for name, each in wanted.items():
    norms = np.linalg.norm(np.reshape(each, (7, -1)), axis=1)
    np.testing.assert_allclose(np.sqrt(gradients.squares[name]), norms,
                               rtol=1e-5)
  weights = jax.random.uniform(jax.random.key(3), (7,))
  total = gradients.weighted({name: weights for name in params})
  for name, each in wanted.items():
    np.testing.assert_allclose(total[name], jnp.tensordot(weights, each, 1),
                               rtol=1e-4, atol=1e-5)
  program = bookkeeping.planned(loss, params, x).program
  return any(site.same for site in program.sites)


@pytest.mark.every(2)
def test_a_cotangent_is_shared_where_a_bias_is_all_that_follows():
  assert _shared(_added)
  assert not _shared(_scaled) and not _shared(_twice)


@pytest.mark.every(2)
def test_fault_a_scale_is_taken_for_a_bias(monkeypatch):
  monkeypatch.setattr(sites, '_passes_on', lambda equation, var: True)
  with pytest.raises(AssertionError):
    _shared(_scaled)
