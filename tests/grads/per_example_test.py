"""Clipped sums against loops over records, and what one record can do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bounder as bounders
from dpjax.grads import clipping
from dpjax.grads import per_example
from dpjax.typing import Batch

CLIP_NORM = 0.8
HUGE_NORM = 1e9


def _flat(values):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64))
                         for leaf in jax.tree.leaves(values)])


def _compiled(bounder):
  return bounder._replace(sums=jax.jit(bounder.sums))


def _clipped(network, clip_norm=CLIP_NORM, microbatch_size=None):
  return _compiled(per_example.clipped(
    network.apply, network.loss, clip_norm=clip_norm,
    microbatch_size=microbatch_size))


@functools.lru_cache
def _one_by_one(sums):
  return jax.jit(jax.vmap(sums, (None, None, 0)))


def _contributions(bounder, params, batch):
  """[b, d]: what each record adds to the sum when the others are masked."""
  only = jnp.eye(batch.x.shape[0], dtype=jnp.bool_)
  total = _one_by_one(bounder.sums)(params, batch, only).total
  return np.stack([_flat(jax.tree.map(lambda leaf, i=i: leaf[i], total))
                   for i in range(batch.x.shape[0])])


def _adversarial(network):
  """40 records: ordinary, tiny, huge, flipped, repeated and zero ones."""
  rng = np.random.default_rng(3)
  scales = np.logspace(-6, 12, 19)[:, None]
  direction = rng.normal(size=(1, 3))
  x = np.concatenate([rng.normal(size=(13, 3)), scales * direction,
                      np.repeat(direction, 7, 0), np.zeros([1, 3])])
  y = np.concatenate([rng.integers(0, 3, 32), [0, 1, 2, 0, 1, 2, 0], [1]])
  return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))


def _ascended(network, num_steps=60):
  """Records whose gradients are as long as ascent can make them."""
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


@pytest.fixture(name='hostile', scope='module')
def _hostile(network):
  return jax.tree.map(lambda *leaves: jnp.concatenate(leaves),
                      _adversarial(network), _ascended(network))


# Checks that the real bounder passes and that planted faults must fail.


def check_adding_one_moves_by_at_most(bounder, params, batch, bound):
  """Every record, added to random subsets of the others."""
  sums = lambda mask: bounder.sums(params, batch, mask).total
  rng = np.random.default_rng(0)
  size = batch.x.shape[0]
  for index in range(size):
    for share in (0., 0.1, 1.):
      without = rng.random(size) < share
      without[index] = False
      added = without.copy()
      added[index] = True
      moved = _flat(sums(jnp.asarray(added))) - _flat(
        sums(jnp.asarray(without)))
      # Subtraction of float32 sums of up to 79 terms: error below 1e-5.
      assert np.linalg.norm(moved) <= bound * (1 + 1e-5)


def check_replacing_one_moves_by_at_most(bounder, params, batch, bound):
  """Every record against every other one in the same place."""
  terms = _contributions(bounder, params, batch)
  moves = np.linalg.norm(terms[:, None] - terms[None], axis=-1)
  assert moves.max() <= bound * (1 + 1e-6)


def check_each_term_is_bounded(bounder, params, batch, bound):
  """Norms of single contributions, in float64."""
  norms = np.linalg.norm(_contributions(bounder, params, batch), axis=1)
  assert norms.max() <= bound * (1 + 1e-6)


def check_masked_rows_are_nothing(bounder, params, batch):
  """Bit for bit: other values in masked rows change nothing."""
  mask = jnp.arange(batch.x.shape[0]) % 3 == 0
  first = bounder.sums(params, batch, mask)
  for filling in (0., 5., 1e30, jnp.nan, jnp.inf):
    other = Batch(jnp.where(mask[:, None], batch.x, filling), batch.y)
    jax.tree.map(np.testing.assert_array_equal, first,
                 bounder.sums(params, other, mask))
  nothing = bounder.sums(params, batch, jnp.zeros_like(mask))
  assert not np.any(_flat(nothing))


def check_bad_records_are_nothing(bounder, params, batch,
                                  values=(jnp.nan, jnp.inf, -jnp.inf)):
  """Zero, counted, and the others left as they were, bit for bit."""
  mask = jnp.ones([batch.x.shape[0]], jnp.bool_)
  reference = bounder.sums(params, batch, mask.at[4].set(False))
  assert int(reference.num_nonfinite) == 0
  for bad in values:
    poisoned = Batch(batch.x.at[4, 1].set(bad), batch.y)
    found = bounder.sums(params, poisoned, mask)
    assert int(found.num_nonfinite) == 1
    jax.tree.map(np.testing.assert_array_equal, reference.total, found.total)
    np.testing.assert_array_equal(reference.loss, found.loss)


def check_records_are_isolated(bounder, params, batch):
  """What record i adds is the same bits, whatever the others are."""
  rng = np.random.default_rng(1)
  before = _contributions(bounder, params, batch)
  for index in (0, 5, 12):
    others = jnp.asarray(rng.normal(size=batch.x.shape) * 9, jnp.float32)
    changed = Batch(others.at[index].set(batch.x[index]),
                    (batch.y + 1).at[index].set(batch.y[index]))
    after = _contributions(bounder, params, changed)
    np.testing.assert_array_equal(before[index], after[index])
    # Its share of the full sum, too: with and without, in both company.
    full = jnp.ones([batch.x.shape[0]], jnp.bool_)
    for company in (batch, changed):
      moved = (_flat(bounder.sums(params, company, full).total) - _flat(
        bounder.sums(params, company, full.at[index].set(False)).total))
      np.testing.assert_allclose(moved, before[index], atol=5e-6)


def check_short_terms_are_untouched(network, bounder):
  """With a bound beyond every norm the sum is the plain gradient."""
  mask = jnp.ones([13], jnp.bool_).at[2].set(False)
  found = bounder.sums(network.params, network.batch, mask)
  plain = _compiled(per_example.summed(network.apply, network.loss)).sums(
    network.params, network.batch, mask)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-6),
               found, plain)


# The real bounder.


def test_gradients_are_those_of_a_loop(network):
  losses, grads = jax.jit(
    lambda params, batch: per_example.per_example_gradients(
      network.apply, network.loss, params, batch))(
        network.params, network.batch)
  assert losses.shape == (13,)

  def loss_of_one(params, x, y):
    return jnp.squeeze(network.loss(network.apply(params, x), y))

  gradient = jax.jit(jax.grad(loss_of_one))
  for index in range(13):
    x, y = network.batch.x[index], network.batch.y[index]
    naive = gradient(network.params, x[None], y[None])
    value, by_hand = network.by_hand(network.params, x, y)
    ours = jax.tree.map(lambda leaf, i=index: leaf[i], grads)
    for expected in (naive, by_hand):
      jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6),
        ours, expected)
    np.testing.assert_allclose(losses[index], value, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize('clip_norm', [0.05, CLIP_NORM, 100.])
def test_sum_is_that_of_clipped_gradients_by_hand(network, clip_norm):
  mask = np.arange(13) % 4 != 1
  expected, loss = 0, 0
  for index in np.flatnonzero(mask):
    value, gradient = network.by_hand(
      network.params, network.batch.x[index], network.batch.y[index])
    gradient = _flat(gradient)
    expected = expected + gradient * min(
      1, clip_norm / np.linalg.norm(gradient))
    loss = loss + value
  found = _clipped(network, clip_norm).sums(
    network.params, network.batch, jnp.asarray(mask))
  np.testing.assert_allclose(_flat(found.total), expected,
                             atol=3e-5 * min(clip_norm, 1))
  np.testing.assert_allclose(found.loss, loss, rtol=1e-5)
  assert int(found.num_nonfinite) == 0


@pytest.mark.parametrize('clip_norm', [1e-3, CLIP_NORM, 30.])
def test_one_record_moves_the_sum_by_at_most_the_bound(network, hostile,
                                                       clip_norm):
  bounder = _clipped(network, clip_norm)
  assert float(bounder.l2_sensitivity(())) == np.float32(clip_norm)
  check_each_term_is_bounded(bounder, network.params, hostile, clip_norm)
  check_replacing_one_moves_by_at_most(bounder, network.params, hostile,
                                       2 * clip_norm)
  check_adding_one_moves_by_at_most(bounder, network.params, hostile,
                                    clip_norm)
  # The search is strong enough to attain the bound where gradients reach it.
  if clip_norm == CLIP_NORM:
    terms = _contributions(bounder, network.params, hostile)
    assert np.linalg.norm(terms, axis=1).max() >= CLIP_NORM * (1 - 2e-5)
    moves = np.linalg.norm(terms[:, None] - terms[None], axis=-1)
    assert moves.max() >= 1.5 * CLIP_NORM


@pytest.mark.parametrize('microbatch_size', [None, 4])
def test_masked_bad_and_other_records(network, microbatch_size):
  bounder = _clipped(network, microbatch_size=microbatch_size)
  check_masked_rows_are_nothing(bounder, network.params, network.batch)
  check_bad_records_are_nothing(bounder, network.params, network.batch)
  check_records_are_isolated(bounder, network.params, network.batch)


@pytest.mark.parametrize('microbatch_size', [1, 5, 13, 20])
def test_microbatches_change_nothing(network, microbatch_size):
  mask = jnp.arange(13) != 3
  batch = Batch(network.batch.x.at[6, 0].set(jnp.nan), network.batch.y)
  whole = _clipped(network).sums(network.params, batch, mask)
  parts = _clipped(network, microbatch_size=microbatch_size).sums(
    network.params, batch, mask)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6),
               whole, parts)
  assert int(parts.num_nonfinite) == 1


def test_overflowing_records_are_nothing(network):
  # Without tanh the gradient grows with the record, so its square overflows.
  linear = lambda params, x: x @ params['w']
  params = {'w': network.params['in']['w']}
  bounder = _compiled(per_example.clipped(linear, network.loss,
                                          clip_norm=CLIP_NORM))
  check_bad_records_are_nothing(bounder, params, network.batch,
                                (jnp.nan, jnp.inf, 1e30, -3e38))
  largest = Batch(network.batch.x.at[0, 0].set(1e18), network.batch.y)
  check_each_term_is_bounded(bounder, params, largest, CLIP_NORM)


def test_huge_bound_is_the_plain_gradient(network):
  check_short_terms_are_untouched(network, _clipped(network, HUGE_NORM))


def test_all_records_bad_is_zero(network):
  batch = Batch(jnp.full_like(network.batch.x, jnp.nan), network.batch.y)
  found = _clipped(network).sums(network.params, batch,
                                 jnp.ones([13], jnp.bool_))
  assert not np.any(_flat(found.total))
  assert float(found.loss) == 0 and int(found.num_nonfinite) == 13


def test_label_out_of_range_stays_bounded(network):
  batch = network.batch._replace(y=network.batch.y.at[0].set(77))
  check_each_term_is_bounded(_clipped(network), network.params, batch,
                             CLIP_NORM)


def test_order_of_records_does_not_matter(network):
  order = np.random.default_rng(0).permutation(13)
  mask = jnp.ones([13], jnp.bool_)
  bounder = _clipped(network)
  first = bounder.sums(network.params, network.batch, mask)
  second = bounder.sums(
    network.params, jax.tree.map(lambda leaf: leaf[order], network.batch),
    mask)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6),
               first, second)


def test_summed_is_the_gradient_of_the_sum(network):
  bounder = _compiled(per_example.summed(network.apply, network.loss))
  assert float(bounder.l2_sensitivity(())) == np.inf
  mask = np.arange(13) % 3 != 1
  batch = Batch(network.batch.x.at[0, 0].set(jnp.inf), network.batch.y)
  found = bounder.sums(network.params, batch, jnp.asarray(mask))
  terms = [network.by_hand(network.params, batch.x[i], batch.y[i])
           for i in np.flatnonzero(mask) if i > 0]
  np.testing.assert_allclose(
    _flat(found.total), sum(_flat(gradient) for _, gradient in terms),
    atol=5e-6)
  np.testing.assert_allclose(found.loss, sum(loss for loss, _ in terms),
                             rtol=1e-5)
  assert int(found.num_nonfinite) == 1
  check_masked_rows_are_nothing(bounder, network.params, network.batch)


def test_images_are_records_too():
  apply = lambda params, x: jnp.einsum('bij,ijc->bc', x, params['w'])
  loss = lambda logits, labels: jnp.sum(jnp.square(logits), -1)
  rng = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  params = {'w': draw(2, 3, 2)}
  batch = Batch(draw(5, 2, 3), jnp.zeros([5], jnp.int32))
  mask = jnp.asarray([True, True, False, True, True])
  for bounder in (
      per_example.clipped(apply, loss, clip_norm=HUGE_NORM,
                          microbatch_size=2),
      per_example.summed(apply, loss)):
    found = jax.jit(bounder.sums)(params, batch, mask).total['w']
    logits = np.einsum('bij,ijc->bc', batch.x, params['w'])
    expected = np.einsum('bij,bc->ijc', batch.x,
                         2 * logits * np.asarray(mask)[:, None])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('value', [0., -1., np.nan, np.inf])
def test_refuses_a_bound_that_is_none(network, value):
  with pytest.raises(ValueError, match='clip_norm must be a positive number'):
    _clipped(network, value)


def test_refuses_an_empty_microbatch(network):
  bounder = _clipped(network, microbatch_size=0)
  with pytest.raises(ValueError, match='microbatch_size must be an integer'):
    bounder.sums(network.params, network.batch, jnp.ones([13], jnp.bool_))


def test_no_constraint_is_the_identity(network):
  params, certificate = bounders.no_constraint().constrain(network.params)
  assert params is network.params and certificate == ()


# Planted faults.


def _with_sums(network, sums):
  return bounders.GradientBounder(jax.jit(sums),
                                  lambda _: jnp.float32(CLIP_NORM))


def test_fault_no_clipping(network, monkeypatch):
  monkeypatch.setattr(clipping, 'flat_weights',
                      lambda norms, clip_norm: jnp.ones_like(norms))
  with pytest.raises(AssertionError):
    check_each_term_is_bounded(_clipped(network), network.params,
                               _adversarial(network), CLIP_NORM)
  with pytest.raises(AssertionError):
    check_adding_one_moves_by_at_most(
      _clipped(network), network.params, _adversarial(network), CLIP_NORM)


@pytest.mark.parametrize('factor', [1.0001, 2.])
def test_fault_bound_too_large(network, monkeypatch, factor):
  honest = clipping.flat_weights
  monkeypatch.setattr(
    clipping, 'flat_weights',
    lambda norms, clip_norm: honest(norms, clip_norm=factor * clip_norm))
  with pytest.raises(AssertionError):
    check_each_term_is_bounded(_clipped(network), network.params,
                               _adversarial(network), CLIP_NORM)


def test_fault_normalising_as_printed(network, monkeypatch):
  monkeypatch.setattr(clipping, 'flat_weights',
                      lambda norms, clip_norm: clip_norm / norms)
  with pytest.raises(AssertionError):
    check_short_terms_are_untouched(network, _clipped(network, HUGE_NORM))


def test_fault_clipping_the_sum(network):
  def sums(params, batch, mask):
    plain = per_example.plain_sums(network.apply, network.loss, params, batch,
                                   mask)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf))
                        for leaf in jax.tree.leaves(plain.total)))
    factor = jnp.minimum(1.0, CLIP_NORM / jnp.maximum(norm, 1e-9))
    return plain._replace(
      total=jax.tree.map(lambda leaf: leaf * factor, plain.total))

  # Alone, every record keeps the bound: only company shows the fault.
  fault = _with_sums(network, sums)
  check_each_term_is_bounded(fault, network.params, _adversarial(network),
                             CLIP_NORM)
  with pytest.raises(AssertionError):
    check_adding_one_moves_by_at_most(fault, network.params,
                                      _adversarial(network), CLIP_NORM)
  with pytest.raises(AssertionError):
    check_records_are_isolated(fault, network.params, network.batch)


def test_fault_mask_ignored(network):
  honest = _clipped(network)
  fault = _with_sums(network, lambda params, batch, mask: honest.sums(
    params, batch, jnp.ones_like(mask)))
  with pytest.raises(AssertionError):
    check_masked_rows_are_nothing(fault, network.params, network.batch)


def test_fault_batch_statistics(network):
  honest = _clipped(network)

  def sums(params, batch, mask):
    centred = batch.x - jnp.mean(batch.x, 0, keepdims=True)
    return honest.sums(params, Batch(centred, batch.y), mask)

  with pytest.raises(AssertionError):
    check_records_are_isolated(_with_sums(network, sums), network.params,
                               network.batch)


def test_fault_zero_times_infinity(network, monkeypatch):
  monkeypatch.setattr(
    per_example, '_weighted_sum',
    lambda weights, kept, leaf: jnp.tensordot(weights, leaf, 1))
  with pytest.raises(AssertionError):
    check_bad_records_are_nothing(_clipped(network), network.params,
                                  network.batch)
  with pytest.raises(AssertionError):
    check_masked_rows_are_nothing(_clipped(network), network.params,
                                  network.batch)


def test_fault_bad_record_drops_the_batch(network):
  honest = _clipped(network)

  def sums(params, batch, mask):
    fine = jnp.all(jnp.isfinite(batch.x))
    return honest.sums(params, batch, mask & fine)

  with pytest.raises(AssertionError):
    check_bad_records_are_nothing(_with_sums(network, sums), network.params,
                                  network.batch)
