"""Tests of the random keys of records in `make_private`, as for dropout."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.train import losses
from dpjax.train.private import make_private

_SIZE = 6
_CLIP = 1.0


def _loss(params, record, rng):
  kept = jax.random.bernoulli(rng, 0.5, record.shape)
  return jnp.sum(jnp.where(kept, record, 0.0) * params)


def _batch_loss(params, batch, rng):
  kept = jax.random.bernoulli(rng, 0.5, batch.shape)
  return jnp.sum(jnp.where(kept, batch, 0.0) * params[None], 1)


def _sum(records, *, loss=_loss, steps=1, **changed):
  """Returns the sum of gradients of the last step, all records sampled."""
  private = make_private(loss, optax.sgd(1.0), num_examples=_SIZE,
                         batch_size=_SIZE, noise_multiplier=1e-6,
                         clip_norm=_CLIP, **changed)
  state = private.init(jnp.zeros(40), key=jax.random.key(0))
  for _ in range(steps):
    before, (state, _) = state, private.step(state, records)
  return _SIZE * np.asarray(before.params - state.params)


def _records(seed):
  rng = np.random.default_rng(seed)
  return rng.normal(size=(_SIZE, 40)).astype(np.float32)


@pytest.mark.every(4)
@pytest.mark.parametrize('loss, changed', [
    (_loss, {}), (_loss, {'kernel': 'vmap'}), (_loss, {'max_batch_size': 2}),
    (_batch_loss, {'per': 'batch'}),
])
def test_a_contribution_does_not_change_with_the_other_records(loss, changed):
  contributions = []
  for seed in (1, 2):
    records = _records(seed)
    records[3] = _records(0)[3]
    without = records.copy()
    without[3] = np.nan  # This record does not count.
    contributions.append(_sum(records, loss=loss, **changed)
                         - _sum(without, loss=loss, **changed))
  np.testing.assert_allclose(*contributions, atol=2e-5)
  assert np.linalg.norm(contributions[0]) == pytest.approx(_CLIP, rel=1e-4)


@pytest.mark.every(2)
def test_masks_differ_by_record_and_by_step():
  ones = np.ones([_SIZE, 40], np.float32)
  alone = []
  for number in range(3):
    records = np.full_like(ones, np.nan)
    records[number] = 1
    alone.append(_sum(records) > 0.01)
  alone.append(_sum(records, steps=2) > 0.01)
  for mask in alone:
    assert 5 < mask.sum() < 35
  assert len({mask.tobytes() for mask in alone}) == 4


def test_the_mask_is_the_same_in_norm_and_sum():
  """A mask drawn anew for the sum would give a sum beyond the clip norm."""
  records = np.full([_SIZE, 40], np.nan, np.float32)
  records[2] = 100.0
  total = _sum(records)
  assert np.linalg.norm(total) == pytest.approx(_CLIP, rel=1e-4)
  # All entries that the mask keeps are equal.
  assert np.unique(total.round(4)).size == 2


def test_keys_of_records_depend_on_their_numbers_alone():
  key = jax.random.key(5)
  words = np.asarray(losses.record_keys(key, jnp.arange(9)))
  some = np.asarray(losses.record_keys(key, jnp.array([7, 2])))
  np.testing.assert_array_equal(some, words[[7, 2]])
  assert len({row.tobytes() for row in words}) == 9
  # With the hardware generator, mapped keys would depend on each other.
  other = jax.random.key(5, impl='rbg')
  words = np.asarray(losses.record_keys(other, jnp.arange(9)))
  some = np.asarray(losses.record_keys(other, jnp.array([7, 2])))
  np.testing.assert_array_equal(some, words[[7, 2]])


def test_a_secret_key_is_drawn_by_default_and_not_printed():
  private = make_private(_loss, optax.sgd(1.0), num_examples=_SIZE,
                         batch_size=2, noise_multiplier=1.0)
  states = [private.init(jnp.zeros(40)) for _ in range(2)]
  words = [np.asarray(jax.random.key_data(state.keys.noise))
           for state in states]
  assert words[0].shape == (8,) and not np.array_equal(*words)
  assert str(words[0][0]) not in repr(states[0])
