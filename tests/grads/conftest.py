"""Provides a handwritten network and the checks for every bounder."""

import functools
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import per_example
from dpjax.typing import Batch


class Network(NamedTuple):
  """A tanh network with 13 records, and its gradients written by hand.

  Attributes:
    apply: (params, x [b, 3]) -> logits [b, 3].
    loss: (logits, labels) -> [b].
    params: float32 parameters.
    batch: 13 records, a prime number, so that no microbatch divides it.
    by_hand: (params, x [3], y) -> (loss, gradient), NumPy float64.
  """
  apply: object
  loss: object
  params: dict
  batch: Batch
  by_hand: object


def _apply(params, x):
  hidden = jnp.tanh(x @ params['in']['w'] + params['in']['b'][None])
  return hidden @ params['out']['w'] + params['out']['b'][None]


def _loss(logits, labels):
  chosen = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
  return -jnp.sum(chosen * jax.nn.log_softmax(logits), -1)


def _by_hand(params, x, y):
  """Returns one record's loss and gradient, back-propagated line by line."""
  first, last = (jax.tree.map(lambda leaf: np.asarray(leaf, np.float64),
                              params[name]) for name in ('in', 'out'))
  x = np.asarray(x, np.float64)
  hidden = np.tanh(x @ first['w'] + first['b'])
  logits = hidden @ last['w'] + last['b']
  logits = logits - logits.max()
  probs = np.exp(logits) / np.exp(logits).sum()
  cotangent = probs - np.eye(3)[int(y)]
  inner = (last['w'] @ cotangent) * (1 - hidden**2)
  gradient = {
    'in': {'w': np.outer(x, inner), 'b': inner},
    'out': {'w': np.outer(hidden, cotangent), 'b': cotangent}}
  return np.log(np.exp(logits).sum()) - logits[int(y)], gradient


@pytest.fixture(scope='session')
def network():
  """Returns the network above with fixed random weights and records."""
  rng = np.random.default_rng(7)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  params = {'in': {'w': draw(3, 4), 'b': draw(4)},
            'out': {'w': draw(4, 3), 'b': draw(3)}}
  batch = Batch(draw(13, 3), jnp.asarray(rng.integers(0, 3, 13), jnp.int32))
  return Network(_apply, _loss, params, batch, _by_hand)


@pytest.fixture(scope='module', autouse=True)
def _quick_compilation():
  """Disables optimisation, which takes longer than these small programs run."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


def flat(values):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64))
                         for leaf in jax.tree.leaves(values)])


@functools.lru_cache
def _one_by_one(sums):
  return jax.jit(jax.vmap(sums, (None, None, 0)))


def contributions(bounder, params, batch):
  """Returns [b, d]: each record's sum when all other records are masked."""
  only = jnp.eye(batch.x.shape[0], dtype=jnp.bool_)
  total = _one_by_one(bounder.sums)(params, batch, only).total
  return np.stack([flat(jax.tree.map(lambda leaf, i=i: leaf[i], total))
                   for i in range(batch.x.shape[0])])


def adversarial(network):
  """Returns 40 ordinary, tiny, huge, flipped, repeated and zero records."""
  rng = np.random.default_rng(3)
  scales = np.logspace(-6, 12, 19)[:, None]
  direction = rng.normal(size=(1, 3))
  x = np.concatenate([rng.normal(size=(13, 3)), scales * direction,
                      np.repeat(direction, 7, 0), np.zeros([1, 3])])
  y = np.concatenate([rng.integers(0, 3, 32), [0, 1, 2, 0, 1, 2, 0], [1]])
  return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))


def _ascended(network, num_steps=60):
  """Returns records whose gradients are as long as gradient
  ascent can make them."""
  def length(x, y):
    grads = per_example.per_example_gradients(
      network.apply, network.loss, network.params, Batch(x[None], y[None]))[1]
    return sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads))

  def climb(x, y):
    def step(x, _):
      slope = jax.grad(length)(x, y)
      return x + 0.3 * slope / (1e-9 + jnp.linalg.norm(slope)), None
    return jax.lax.scan(step, x, length=num_steps)[0]

  x = jnp.tile(network.batch.x, (3, 1))
  y = jnp.repeat(jnp.arange(3, dtype=jnp.int32), 13)
  return Batch(jax.jit(jax.vmap(climb))(x, y), y)


@pytest.fixture(scope='session')
def hostile(network):
  """Returns 79 records that search for a contribution beyond its bound."""
  return jax.tree.map(lambda *leaves: jnp.concatenate(leaves),
                      adversarial(network), _ascended(network))


# Checks that a sound bounder passes and that planted faults must fail.


def _adding_one_moves_by_at_most(bounder, params, batch, bound):
  """Checks each record's effect on sums of random subsets of the others."""
  sums = lambda mask: bounder.sums(params, batch, mask).total
  rng = np.random.default_rng(0)
  size = batch.x.shape[0]
  for index in range(size):
    for share in (0., 0.1, 1.):
      without = rng.random(size) < share
      without[index] = False
      added = without.copy()
      added[index] = True
      difference = flat(sums(jnp.asarray(added))) - flat(
        sums(jnp.asarray(without)))
      # Subtraction of float32 sums of up to 79 terms: error below 1e-5.
      assert np.linalg.norm(difference) <= bound * (1 + 1e-5)


def _replacing_one_moves_by_at_most(bounder, params, batch, bound):
  """Checks the effect of replacing each record by each other one."""
  terms = contributions(bounder, params, batch)
  moves = np.linalg.norm(terms[:, None] - terms[None], axis=-1)
  assert moves.max() <= bound * (1 + 1e-6)


def _each_term_is_bounded(bounder, params, batch, bound):
  """Checks the norms of single contributions, in float64."""
  norms = np.linalg.norm(contributions(bounder, params, batch), axis=1)
  assert norms.max() <= bound * (1 + 1e-6)


def _masked_rows_are_nothing(bounder, params, batch):
  """Checks that masked rows do not change one bit of the sums."""
  mask = jnp.arange(batch.x.shape[0]) % 3 == 0
  first = bounder.sums(params, batch, mask)
  for filling in (0., 5., 1e30, jnp.nan, jnp.inf):
    other = Batch(jnp.where(mask[:, None], batch.x, filling), batch.y)
    jax.tree.map(np.testing.assert_array_equal, first,
                 bounder.sums(params, other, mask))
  nothing = bounder.sums(params, batch, jnp.zeros_like(mask))
  assert not np.any(flat(nothing))


def _bad_records_are_nothing(bounder, params, batch,
                             values=(jnp.nan, jnp.inf, -jnp.inf)):
  """Checks that bad records add zero, are counted and
  leave others unchanged."""
  mask = jnp.ones([batch.x.shape[0]], jnp.bool_)
  reference = bounder.sums(params, batch, mask.at[4].set(False))
  assert int(reference.num_nonfinite) == 0
  for bad in values:
    poisoned = Batch(batch.x.at[4, 1].set(bad), batch.y)
    sums = bounder.sums(params, poisoned, mask)
    assert int(sums.num_nonfinite) == 1
    jax.tree.map(np.testing.assert_array_equal, reference.total, sums.total)
    np.testing.assert_array_equal(reference.loss, sums.loss)


def _records_are_isolated(bounder, params, batch):
  """Checks that record i adds the same bits whatever the other records are."""
  rng = np.random.default_rng(1)
  before = contributions(bounder, params, batch)
  for index in (0, 5, 12):
    others = jnp.asarray(rng.normal(size=batch.x.shape) * 9, jnp.float32)
    changed = Batch(others.at[index].set(batch.x[index]),
                    (batch.y + 1).at[index].set(batch.y[index]))
    after = contributions(bounder, params, changed)
    np.testing.assert_array_equal(before[index], after[index])
    # Its share of the full sum is isolated, too, among both sets of others.
    full = jnp.ones([batch.x.shape[0]], jnp.bool_)
    for company in (batch, changed):
      difference = (flat(bounder.sums(params, company, full).total) - flat(
        bounder.sums(params, company, full.at[index].set(False)).total))
      np.testing.assert_allclose(difference, before[index], atol=5e-6)


def _short_terms_are_untouched(network, bounder):
  """Checks that a bound above all norms gives the plain gradient."""
  mask = jnp.ones([13], jnp.bool_).at[2].set(False)
  sums = bounder.sums(network.params, network.batch, mask)
  plain = jax.jit(per_example.summed(network.apply, network.loss).sums)(
    network.params, network.batch, mask)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-6),
               sums, plain)


@pytest.fixture(scope='session')
def checks():
  """Returns the checks above, and their records and helpers."""
  return types.SimpleNamespace(
    flat=flat, contributions=contributions, adversarial=adversarial,
    adding_one_moves_by_at_most=_adding_one_moves_by_at_most,
    replacing_one_moves_by_at_most=_replacing_one_moves_by_at_most,
    each_term_is_bounded=_each_term_is_bounded,
    masked_rows_are_nothing=_masked_rows_are_nothing,
    bad_records_are_nothing=_bad_records_are_nothing,
    records_are_isolated=_records_are_isolated,
    short_terms_are_untouched=_short_terms_are_untouched)
