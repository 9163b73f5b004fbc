"""Tests parts of a batch: their size, and that padding draws nothing."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.sampling import PoissonSampler

KEY = jax.random.key(20)


def _one_hot_sum(rows, mask):
  """Returns how often each of six records is in rows without padding."""
  hot = jax.nn.one_hot(rows, 6, dtype=jnp.float32)
  return jnp.sum(jnp.where(mask[:, None], hot, 0.), axis=0)


def test_parts_are_the_least_multiples_that_have_room():
  """A part is the least multiple that holds the room, or all records."""
  for room, multiple in itertools.product(range(1, 14), range(1, 9)):
    sampler = PoissonSampler(num_examples=10, batch_size=2, max_batch_size=room,
                             row_multiple=multiple)
    assert sampler.part_size == min(
        rows for rows in range(1, 30)
        if rows >= min(room, 10) and rows % multiple == 0)
    plain = dataclasses.replace(sampler, row_multiple=1)
    assert sampler.event(noise_multiplier=1., num_steps=3) == plain.event(
        noise_multiplier=1., num_steps=3)
  with pytest.raises(ValueError, match='^row_multiple must be an integer >= 1'):
    PoissonSampler(num_examples=10, batch_size=2, row_multiple=0)


@pytest.mark.every(2)
def test_numbers_of_64_bits_change_nothing():
  sampler = PoissonSampler(num_examples=6, batch_size=3, max_batch_size=2)
  plain = sampler.draw(KEY)
  with jax.enable_x64(True):
    drawn = sampler.draw(KEY)
    total = sampler.sum_parts(_one_hot_sum, drawn)
  assert drawn.rows.dtype == drawn.num_selected.dtype == jnp.int32
  np.testing.assert_array_equal(drawn.rows, plain.rows)
  rows = np.asarray(plain.rows)[:int(plain.num_selected)]
  np.testing.assert_array_equal(total, np.bincount(rows, minlength=6))


@pytest.mark.slow
@pytest.mark.parametrize('max_batch_size', [None, 7, 50])
def test_a_row_multiple_pads_and_draws_the_same_records(max_batch_size):
  plain = PoissonSampler(num_examples=21, batch_size=9,
                         max_batch_size=max_batch_size)
  padded = dataclasses.replace(plain, row_multiple=8)
  assert padded.part_size % 8 == 0
  assert 0 <= padded.part_size - plain.part_size < 8
  assert padded.event(noise_multiplier=1., num_steps=3) == plain.event(
    noise_multiplier=1., num_steps=3)
  for seed in range(5):
    one, other = (jax.jit(sampler.draw)(jax.random.key(seed))
                  for sampler in (plain, padded))
    assert one.num_selected == other.num_selected > 0
    np.testing.assert_array_equal(one.rows[:one.num_selected],
                                  other.rows[:one.num_selected])
    # Counts of every record over the parts show that padding adds nothing.
    counts = jax.jit(lambda drawn: padded.sum_parts(
      lambda rows, mask: jnp.zeros(21, jnp.int32).at[rows].add(
        mask.astype(jnp.int32)), drawn))(other)
    np.testing.assert_array_equal(np.flatnonzero(counts),
                                  one.rows[:one.num_selected])
    assert counts.sum() == one.num_selected
