"""Tests samplers other than Poisson: their distributions and their events.

Every statistical threshold states its false-alarm probability, at most 1e-6.
"""

import collections
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import sampled_events
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import AllocationSampler
from dpjax.sampling import CyclicSampler
from dpjax.sampling import FixedSizeSampler
from dpjax.sampling import Participation
from dpjax.sampling import uniform

KEY = jax.random.key(7)
LEVEL = 1e-6


def flags(sampler, keys, steps):
  """Returns inclusion flags [keys, steps, n] of whole runs."""
  one = lambda key, step: sampler.batch(key, step)
  drawn = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(
      keys, jnp.arange(steps, dtype=jnp.int32))
  rows, sizes = np.asarray(drawn.rows), np.asarray(drawn.num_selected)
  result = np.zeros((*sizes.shape, sampler.num_examples), int)
  for place in np.ndindex(sizes.shape):
    np.add.at(result[place], rows[place][:sizes[place]], 1)
  return result


def check_uniform(outcomes, support):
  """Checks that outcomes are uniform on a support; false alarms: 1e-6."""
  counts = collections.Counter(outcomes)
  assert set(counts) <= set(support)
  observed = [counts[each] for each in support]
  assert stats.chisquare(observed).pvalue > LEVEL


def patch_words(monkeypatch, rounds):
  """Makes the random words of attempt i those of `rounds[i]`."""
  rounds = jnp.asarray(rounds, jnp.uint32)
  monkeypatch.setattr(jax.random, 'fold_in', lambda key, data: data)
  monkeypatch.setattr(additive, 'random_words',
                      lambda key, shape: rounds[key].reshape(shape))


# -- Uniform integers and subsets.


def test_integers_reject_the_last_words_only(monkeypatch):
  last = 2**32 - 1  # 2^32 = 1 mod 3, so this word is the only one rejected.
  patch_words(monkeypatch, [[last, 0, last - 1, last], [9, 9, 9, last],
                            [8, 8, 8, 7]])
  drawn = uniform.uniform_integers(KEY, 4, 3)
  assert drawn.tolist() == [0, 0, (last - 1) % 3, 1]
  patch_words(monkeypatch, [[last, 5, 0, 4]])
  assert uniform.uniform_integers(KEY, 4, 4).tolist() == [3, 1, 0, 0]
  assert uniform.uniform_integers(KEY, 4, 1).tolist() == [0] * 4


@pytest.mark.every(2)
def test_integers_are_uniform():
  drawn = jax.jit(uniform.uniform_integers, static_argnums=(1, 2))(
      KEY, 60_000, 7)
  check_uniform(drawn.tolist(), range(7))
  large = uniform.uniform_integers(KEY, 10_000, 2**31 - 1)
  check_uniform((np.asarray(large) // 2**28).tolist()[:8000], range(8))


def test_subsets_are_of_the_smallest_pairs_and_equal_pairs_are_redrawn(
    monkeypatch):
  equal = [5, 1, 5, 7, 3, 0, 3, 9]  # High words, then low words.
  other = [5, 1, 5, 7, 4, 0, 3, 9]
  patch_words(monkeypatch, [equal, other])
  chosen = uniform.uniform_subset(KEY, 4, 2)
  assert chosen.tolist() == [False, True, True, False]


def test_subsets_are_uniform():
  keys = jax.random.split(KEY, 20_000)
  drawn = jax.jit(jax.vmap(lambda key: uniform.uniform_subset(key, 5, 2)))(keys)
  check_uniform([tuple(np.flatnonzero(row)) for row in np.asarray(drawn)],
                list(itertools.combinations(range(5), 2)))


# -- Samplers.


@pytest.mark.every(2)
def test_fixed_sizes_are_uniform_subsets_of_each_step():
  sampler = FixedSizeSampler(num_examples=4, batch_size=2, max_batch_size=1)
  drawn = flags(sampler, jax.random.split(KEY, 8000), 2)
  subsets = [tuple(each) for each in itertools.combinations(range(4), 2)]
  check_uniform([(tuple(np.flatnonzero(one)), tuple(np.flatnonzero(two)))
                 for one, two in drawn], list(itertools.product(subsets,
                                                                subsets)))
  assert sampler.expected_batch_size == sampler.usual_batch_size == 2


@pytest.mark.every(2)
def test_allocation_puts_each_record_once_in_each_epoch_uniformly():
  sampler = AllocationSampler(num_examples=6, batch_size=2)
  drawn = flags(sampler, jax.random.split(KEY, 8000), 6)
  epochs = drawn.reshape(-1, 2, 3, 6)
  assert np.all(epochs.sum(2) == 1)
  steps = epochs.argmax(2)  # [runs, epochs, records]
  # Two epochs of one record, and two records in one epoch, are independent.
  nine = list(itertools.product(range(3), repeat=2))
  check_uniform(map(tuple, steps[:, :, 0].tolist()), nine)
  check_uniform(map(tuple, steps[:, 0, :2].tolist()), nine)
  assert sampler.steps_per_epoch == 3 and sampler.expected_batch_size == 2


@pytest.mark.every(2)
def test_groups_take_turns_and_are_uniform():
  sampler = CyclicSampler(num_examples=4, batch_size=4 / 6, num_groups=3)
  assert sampler.participation == Participation(3, 0.5)
  assert sampler.expected_batch_size == pytest.approx(2 / 3)
  drawn = flags(sampler, jax.random.split(KEY, 8000), 6)
  steps = [[np.flatnonzero(run[:, record]) for record in range(4)]
           for run in drawn]
  assert all(len(set(each % 3)) <= 1 for run in steps for each in run)
  # Given the group, both of its steps are fair coins, and groups are uniform.
  outcomes = [tuple(run[:, 0]) for run in drawn if run[:, 0].any()]
  support = [tuple(int(step in hit) for step in range(6)) for group in range(3)
             for hit in ([group], [group + 3], [group, group + 3])]
  check_uniform(outcomes, support)
  empty = sum(not run[:, 0].any() for run in drawn)
  assert stats.binomtest(empty, len(drawn), 0.25).pvalue > LEVEL
  # Records are independent: two of them are in step 0 with probability 1/36.
  both = int(np.sum(drawn[:, 0, 0] * drawn[:, 0, 1]))
  assert stats.binomtest(both, len(drawn), 1 / 36).pvalue > LEVEL


@pytest.mark.every(2)
def test_whole_groups_take_turns_as_a_partition():
  sampler = CyclicSampler(num_examples=9, batch_size=3, num_groups=3)
  assert sampler.participation == Participation(3, 1.0)
  drawn = flags(sampler, jax.random.split(KEY, 50), 6)
  assert np.all(drawn[:, :3].sum(1) == 1)
  np.testing.assert_array_equal(drawn[:, :3], drawn[:, 3:])


SAMPLERS = [FixedSizeSampler(num_examples=12, batch_size=4),
            AllocationSampler(num_examples=12, batch_size=4),
            CyclicSampler(num_examples=12, batch_size=2, num_groups=3)]


@pytest.mark.every(4)
@pytest.mark.parametrize('sampler', SAMPLERS, ids=lambda s: type(s).__name__)
def test_a_batch_is_a_function_of_key_and_step(sampler):
  keys = jax.random.split(KEY, 2)
  drawn = flags(sampler, keys, 9)
  for step in (0, 4, 8):
    alone = jax.jit(sampler.batch)(keys[1], step)
    np.testing.assert_array_equal(
        np.asarray(alone.rows)[:int(alone.num_selected)],
        np.flatnonzero(drawn[1, step]))


@pytest.mark.parametrize('sampler', SAMPLERS, ids=lambda s: type(s).__name__)
def test_the_divisor_is_the_mean_batch_size(sampler):
  sizes = flags(sampler, jax.random.split(KEY, 3000), 1).sum((1, 2))
  error = 5 * np.std(sizes) / len(sizes)**0.5  # False alarms: 6e-7.
  assert abs(np.mean(sizes) - sampler.expected_batch_size) <= error + 1e-9


# -- Events.


def test_events_are_those_of_the_sampling():
  fixed, allocation, cyclic = SAMPLERS
  assert fixed.event(noise_multiplier=2.0, num_steps=5) == (
      accounting.repeated_event(sampled_events.fixed_size_event(
          num_examples=12, batch_size=4, noise_multiplier=2.0), 5))
  # A part of an epoch costs a whole one.
  for steps, epochs in ((0, 0), (1, 1), (3, 1), (4, 2), (6, 2), (7, 3)):
    assert allocation.event(noise_multiplier=2.0, num_steps=steps) == (
        accounting.repeated_event(sampled_events.allocation_event(
            noise_multiplier=2.0, num_steps=3), epochs))
    assert cyclic.event(noise_multiplier=2.0, num_steps=steps) == (
        accounting.poisson_gaussian_event(
            sampling_prob=0.5, noise_multiplier=2.0, num_steps=epochs))
  assert fixed.adjacencies == (Adjacency.REPLACE_ONE,)
  assert allocation.adjacencies == (Adjacency.ADD_OR_REMOVE_ONE,)
  assert cyclic.adjacencies == tuple(Adjacency)
  assert [each.independent_steps for each in SAMPLERS] == [True, False, False]


@pytest.mark.parametrize('make, message', [
    (lambda: FixedSizeSampler(num_examples=9, batch_size=2.5),
     'batch_size of batches of fixed size must be a whole number, got 2.5'),
    (lambda: AllocationSampler(num_examples=10, batch_size=4),
     'random allocation needs a whole number of steps in an epoch: '
     'num_examples / batch_size = 2.5; take batch_size = num_examples / 2'),
    (lambda: CyclicSampler(num_examples=10, batch_size=4, num_groups=3),
     'batch_size 4 exceeds the expected size 3.33333 of a group: take a '
     'smaller batch_size or num_groups'),
    (lambda: CyclicSampler(num_examples=10, batch_size=4, num_groups=0),
     'num_groups must be an integer >= 1, got 0')])
def test_refusals(make, message):
  with pytest.raises(ValueError) as error:
    make()
  assert str(error.value) == message
