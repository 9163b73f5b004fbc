"""Tests dpjax.sampling: exactly on patched key bits, then by distribution.

Every statistical threshold states its false-alarm probability, at most 1e-6.
"""

import itertools
import math

from dp_accounting import dp_event as dp_events
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.sampling import Selection

KEY = jax.random.key(20)


def patch_words(monkeypatch, words):
  """Replaces key bits by the given words, whatever the key."""
  words = jnp.asarray(words, jnp.uint32)
  monkeypatch.setattr(additive, 'random_words',
                      lambda key, shape: words.reshape(shape))


def indicators(selection, size):
  """Returns 0/1 inclusion flags, by counting the valid rows."""
  rows = np.asarray(selection.rows)[:int(selection.num_selected)]
  return np.bincount(rows, minlength=size)


def many_indicators(sampler, keys):
  """Returns flags [keys, n], computed slowly and plainly on the host."""
  drawn = jax.jit(jax.vmap(sampler.draw))(keys)
  return np.stack([
      indicators(Selection(rows, count), sampler.num_examples)
      for rows, count in zip(np.asarray(drawn.rows),
                             np.asarray(drawn.num_selected), strict=True)])


def one_hot_sum(size):
  def function(rows, mask):
    hot = jax.nn.one_hot(rows, size, dtype=jnp.float32)
    return jnp.sum(jnp.where(mask[:, None], hot, 0.), axis=0)
  return function


# -- Exact.


@pytest.mark.every(3)
@pytest.mark.parametrize('batch_size, max_batch_size', [
  (1, None), (1, 1), (2, 3), (1.7, 2)])
def test_draw_is_a_threshold_on_the_words(monkeypatch, batch_size,
                                          max_batch_size):
  size = 3
  sampler = PoissonSampler(num_examples=size, batch_size=batch_size,
                           max_batch_size=max_batch_size)
  threshold = round(sampler.sampling_prob * 2**32)
  assert threshold == sampler.sampling_prob * 2**32
  domain = (0, threshold - 1, threshold, 2**32 - 1)
  for words in itertools.product(domain, repeat=size):
    patch_words(monkeypatch, words)
    selection = sampler.draw(KEY)
    expected = [i for i, word in enumerate(words) if word < threshold]
    assert int(selection.num_selected) == len(expected)
    rows = selection.rows.tolist()
    assert rows[:len(expected)] == expected
    assert rows[len(expected):] == [0] * (len(rows) - len(expected))


@pytest.mark.every(4)
@pytest.mark.parametrize('max_batch_size', [None, 1, 7])
def test_draw_equals_the_mask_of_the_key(max_batch_size):
  sampler = PoissonSampler(num_examples=20, batch_size=6,
                           max_batch_size=max_batch_size)
  keys = jax.random.split(KEY, 300)
  words = np.stack([np.asarray(additive.random_words(k, (20,)))
                    for k in keys])
  np.testing.assert_array_equal(
      many_indicators(sampler, keys),
      words < np.uint32(sampler.sampling_prob * 2**32))


@pytest.mark.every(3)
@pytest.mark.parametrize('max_batch_size, row_multiple', [
  (1, 1), (3, 4), (4, 1), (12, 5), (None, 8)])
def test_no_record_is_dropped_when_a_batch_overflows(
    monkeypatch, max_batch_size, row_multiple):
  size = 12
  sampler = PoissonSampler(num_examples=size, batch_size=2,
                           max_batch_size=max_batch_size,
                           row_multiple=row_multiple)
  total = jax.jit(lambda s: sampler.sum_parts(one_hot_sum(size), s))
  rng = np.random.default_rng(0)
  # The batches range from the empty one to all records at once.
  for chosen in (rng.permutation(size) < k for k in range(size + 1)):
    patch_words(monkeypatch, np.where(chosen, 0, 2**32 - 1).astype(np.uint32))
    np.testing.assert_array_equal(total(sampler.draw(KEY)), chosen)


def test_padding_is_masked(monkeypatch):
  # Padded rows name record 0, which would count if they were not masked.
  sampler = PoissonSampler(num_examples=6, batch_size=3, max_batch_size=4)
  records = jnp.array([1e30, 1., 2., 4., 8., 16.])
  patch_words(monkeypatch, [2**32 - 1, 0, 0, 2**32 - 1, 0, 2**32 - 1])
  selection = sampler.draw(KEY)
  seen = []

  def function(rows, mask):
    jax.debug.callback(lambda m: seen.append(m.tolist()), mask)
    return {'sum': jnp.sum(jnp.where(mask, records[rows], 0.)),
            'count': jnp.sum(mask.astype(jnp.int32))}

  total = sampler.sum_parts(function, selection)
  jax.effects_barrier()
  assert float(total['sum']) == 11. and int(total['count']) == 3
  assert seen == [[True, True, True, False]]


@pytest.mark.every(2)
def test_empty_batch_gives_zeros(monkeypatch):
  sampler = PoissonSampler(num_examples=5, batch_size=1, max_batch_size=2)
  patch_words(monkeypatch, [2**32 - 1] * 5)
  selection = sampler.draw(KEY)
  assert int(selection.num_selected) == 0
  total = sampler.sum_parts(
      lambda rows, mask: (jnp.full([3], jnp.nan), jnp.ones([], jnp.int32)),
      selection)
  np.testing.assert_array_equal(total[0], np.zeros(3, np.float32))
  assert int(total[1]) == 0 and total[1].dtype == jnp.int32


def test_sampling_everything():
  sampler = PoissonSampler(num_examples=7, batch_size=7)
  assert sampler.sampling_prob == 1 and sampler.expected_batch_size == 7
  assert sampler.part_size == 7
  for key in jax.random.split(KEY, 5):
    selection = sampler.draw(key)
    assert selection.rows.tolist() == list(range(7))
    assert int(selection.num_selected) == 7


# -- What is accounted is what is drawn.


@pytest.mark.parametrize('num_examples, batch_size', [
  (60000, 512), (3, 1), (10, 10), (7, .001), (48842, 256), (1000, 999.999)])
def test_one_probability_for_draw_divisor_and_event(num_examples, batch_size):
  sampler = PoissonSampler(num_examples=num_examples, batch_size=batch_size)
  prob = sampler.sampling_prob
  assert prob * 2**32 == int(prob * 2**32)
  assert prob == pytest.approx(batch_size / num_examples, abs=2**-33)
  assert sampler.expected_batch_size == prob * num_examples
  event = sampler.event(noise_multiplier=1.5, num_steps=4)
  assert event == accounting.poisson_gaussian_event(
      sampling_prob=prob, noise_multiplier=1.5, num_steps=4)
  assert event.count == 4
  if prob < 1:
    assert event.event.sampling_probability == prob
    assert event.event.event == dp_events.GaussianDpEvent(1.5)
  else:
    assert event.event == dp_events.GaussianDpEvent(1.5)


def test_event_of_no_steps_costs_nothing():
  sampler = PoissonSampler(num_examples=10, batch_size=1)
  event = sampler.event(noise_multiplier=1., num_steps=0)
  assert accounting.epsilon(
      event, delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE_ONE) == 0


@pytest.mark.parametrize('num_examples, batch_size, expected', [
  (10000, 100, 160), (100, 100, 100), (5, 4, 5), (1, 1, 1)])
def test_default_room(num_examples, batch_size, expected):
  # It is six standard deviations above the mean, and at most all records.
  sampler = PoissonSampler(num_examples=num_examples, batch_size=batch_size)
  assert sampler.part_size == expected
  assert sampler.part_size <= num_examples


@pytest.mark.parametrize('num_examples, batch_size, published', [
  (60_000, 512, 3.7e-9), (1000, 100, 1.5e-9), (569, 64, 1.7e-9)])
def test_batches_seldom_need_a_second_part(num_examples, batch_size,
                                           published):
  """A second part is needed with chance below 1e-8; published tails match."""
  sampler = PoissonSampler(num_examples=num_examples, batch_size=batch_size)
  binomial = stats.binom(num_examples, sampler.sampling_prob)
  assert binomial.sf(batch_size + 6 * batch_size**.5) == pytest.approx(
      published, rel=.03)
  assert 1e-9 < binomial.sf(sampler.part_size) < 1e-8


# -- The distribution of the batches.

SIZE, BATCH, DRAWS = 40, 10, 8000


@pytest.fixture(scope='module')
def flags():
  """Returns inclusions [DRAWS, SIZE] of steps with keys as in a run."""
  sampler = PoissonSampler(num_examples=SIZE, batch_size=BATCH)
  steps = jax.vmap(lambda i: jax.random.fold_in(KEY, i))(jnp.arange(DRAWS))
  return many_indicators(sampler, steps)


def find_violations(indicators):
  """Returns the properties of Bernoulli(q) inclusions [draws, n] that fail.

  Normal approximations at |z| < 6.3 fail with chance 3e-10 for each of the 40
  rates, 780 pairs of records, 1600 pairs of records in consecutive steps and
  two moments of the batch size, 8e-7 for all of them together.
  """
  bound = 6.3
  draws, size = indicators.shape
  prob = BATCH / SIZE
  centred = indicators - prob
  variance = prob * (1 - prob)
  violations = []
  if not np.isin(indicators, (0, 1)).all():
    violations.append('repeated record')
  if np.abs(centred.mean(0)).max() > bound * math.sqrt(variance / draws):
    violations.append('inclusion rate')
  sizes = indicators.sum(1)
  wanted = size * variance
  if abs(sizes.mean() - size * prob) > bound * math.sqrt(wanted / draws):
    violations.append('mean batch size')
  kurtosis = 3 + (1 - 6 * variance) / wanted
  noise = wanted * math.sqrt((kurtosis - 1) / draws)
  if abs(sizes.var() - wanted) > bound * noise:
    violations.append('variance of batch size')
  records = centred.T @ centred / (draws * variance)
  np.fill_diagonal(records, 0)
  if np.abs(records).max() > bound / math.sqrt(draws):
    violations.append('records correlated')
  steps = centred[1:].T @ centred[:-1] / ((draws - 1) * variance)
  if np.abs(steps).max() > bound / math.sqrt(draws - 1):
    violations.append('steps correlated')
  return violations


@pytest.mark.every(2)
def test_inclusions_are_independent_bernoulli(flags):
  assert find_violations(flags) == []


def test_small_batches_have_the_right_joint_law():
  # All 2^3 batches of three records are counted: chi-square with 7 degrees of
  # freedom has its upper 1e-6 point at 41.5.
  sampler = PoissonSampler(num_examples=3, batch_size=1)
  indicators = many_indicators(sampler, jax.random.split(KEY, 20000))
  q = sampler.sampling_prob
  counts = np.bincount(indicators @ [1, 2, 4], minlength=8)
  chances = np.array([q**k * (1 - q)**(3 - k)
                      for k in (bin(i).count('1') for i in range(8))])
  expected = chances * len(indicators)
  assert np.sum((counts - expected)**2 / expected) < 41.5


def shuffled(rng):
  """Returns batches of fixed size, cut from a permutation per epoch."""
  epochs = DRAWS * BATCH // SIZE
  order = np.stack([rng.permutation(SIZE) for _ in range(epochs)])
  return order.reshape(DRAWS, BATCH)


def with_rows(rows):
  indicators = np.zeros((DRAWS, SIZE), np.int64)
  np.put_along_axis(indicators, rows, 1, axis=1)
  return indicators


def planted_faults():
  rng = np.random.default_rng(1)
  poisson = (rng.random((DRAWS, SIZE)) < BATCH / SIZE).astype(np.int64)
  fixed = rng.permuted(np.tile(np.arange(SIZE), (DRAWS, 1)), axis=1)[:, :BATCH]
  repeated = np.stack([np.bincount(row, minlength=SIZE)
                       for row in rng.integers(0, SIZE, (DRAWS, BATCH))])
  truncated = poisson * (np.cumsum(poisson, 1) <= BATCH + 2)
  return {
      'shuffled epochs': (with_rows(shuffled(rng)), 'variance of batch size'),
      'fixed size': (with_rows(fixed), 'variance of batch size'),
      'records in pairs': (np.repeat(poisson[:, ::2], 2, 1),
                           'records correlated'),
      'truncated': (truncated, 'inclusion rate'),
      'same key each step': (np.repeat(poisson[::2], 2, 0), 'steps correlated'),
      'five percent lost': (poisson * (rng.random(poisson.shape) < .95),
                            'mean batch size'),
      'with replacement': (repeated, 'repeated record'),
  }


def test_planted_samplers_are_told_apart(flags):
  for name, (indicators, symptom) in planted_faults().items():
    assert symptom in find_violations(indicators), name


@pytest.mark.every(2)
def test_same_key_same_batch_and_other_keys_other_batches():
  sampler = PoissonSampler(num_examples=100, batch_size=50)
  one, two = jax.random.split(KEY)
  np.testing.assert_array_equal(sampler.draw(one).rows, sampler.draw(one).rows)
  assert sampler.draw(one).rows.tolist() != sampler.draw(two).rows.tolist()


# -- Shapes and tracing.


@pytest.mark.every(3)
@pytest.mark.parametrize('max_batch_size', [None, 1, 3, 10, 64])
def test_static_shapes_compile_once(max_batch_size):
  sampler = PoissonSampler(num_examples=10, batch_size=4,
                           max_batch_size=max_batch_size)
  traces = []

  @jax.jit
  def total(key):
    traces.append(None)
    selection = sampler.draw(key)
    return selection, sampler.sum_parts(one_hot_sum(10), selection)

  for key in jax.random.split(KEY, 8):
    selection, drawn = total(key)
    plain = sampler.draw(key)
    assert selection.rows.shape == plain.rows.shape
    assert selection.rows.shape[0] % sampler.part_size == 0
    assert selection.rows.shape[0] >= 10
    assert selection.rows.dtype == selection.num_selected.dtype == jnp.int32
    np.testing.assert_array_equal(selection.rows, plain.rows)
    np.testing.assert_array_equal(drawn, indicators(plain, 10))
  assert len(traces) == 1


@pytest.mark.slow
def test_vmap_over_keys():
  sampler = PoissonSampler(num_examples=9, batch_size=4, max_batch_size=2)
  keys = jax.random.split(KEY, 6)
  drawn = jax.vmap(sampler.draw)(keys)
  totals = jax.vmap(lambda s: sampler.sum_parts(one_hot_sum(9), s))(drawn)
  for i, key in enumerate(keys):
    alone = sampler.draw(key)
    np.testing.assert_array_equal(drawn.rows[i], alone.rows)
    np.testing.assert_array_equal(totals[i], indicators(alone, 9))


# -- Refusals.


@pytest.mark.parametrize('arguments, message', [
  ({'num_examples': 0}, 'num_examples must be an integer >= 1, got 0'),
  ({'batch_size': 0}, 'batch_size must be a positive number, got 0'),
  ({'batch_size': -2}, 'batch_size must be a positive number, got -2'),
  ({'batch_size': math.nan}, 'batch_size must be a positive number, got nan'),
  ({'batch_size': 11}, 'batch_size must be at most num_examples = 10, got 11'),
  ({'batch_size': 1e-9}, 'batch_size 1e-09 is too small for 10 examples'),
  ({'max_batch_size': 0}, 'max_batch_size must be an integer >= 1, got 0'),
  ({'max_batch_size': 2.5}, 'max_batch_size must be an integer >= 1, got 2.5'),
])
def test_refusals(arguments, message):
  with pytest.raises(ValueError, match=f'^{message}$'):
    PoissonSampler(**{'num_examples': 10, 'batch_size': 2, **arguments})


def test_event_refuses_bad_arguments():
  sampler = PoissonSampler(num_examples=10, batch_size=1)
  with pytest.raises(ValueError, match='^noise_multiplier must be a positive'):
    sampler.event(noise_multiplier=0., num_steps=1)
