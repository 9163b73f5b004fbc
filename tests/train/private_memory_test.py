"""Tests that a large batch of `make_private` takes the memory of its parts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax.train.private import make_private

_FEATURES, _WIDTH, _PART = 50, 400, 64


def _loss(params, record):
  x, y = record
  return jnp.square(jnp.tanh(x @ params['first']) @ params['last'] - y)


def _params():
  return {'first': jnp.ones([_FEATURES, _WIDTH]) / _FEATURES,
          'last': jnp.ones(_WIDTH) / _WIDTH}


def _records(numbers):
  rng = np.random.default_rng(0)
  return (rng.normal(size=(len(numbers), _FEATURES)).astype(np.float32),
          rng.normal(size=len(numbers)).astype(np.float32))


def _private(size, **changed):
  return make_private(_loss, optax.sgd(0.1), **dict(
      num_examples=size, batch_size=0.75 * size, noise_multiplier=1.0,
      max_batch_size=_PART) | changed)


def _memory(compiled):
  """Returns the memory of a compiled function, in bytes."""
  analysis = compiled.memory_analysis()
  return analysis.temp_size_in_bytes + analysis.output_size_in_bytes


def test_the_sums_of_all_parts_are_in_one_memory():
  private = _private(1000)
  state = private.init(_params(), key=jax.random.key(0))
  numbers = np.arange(_PART)
  data = state, _records(numbers), numbers, numbers >= 0
  functions = private._functions()[1]
  shapes = jax.eval_shape(functions.no_sums, state)
  analysis = functions.add.lower(state, shapes, *data[1:]).compile(
      ).memory_analysis()
  size = sum(4 * leaf.size for leaf in jax.tree.leaves(shapes))
  assert size > 4 * _FEATURES * _WIDTH
  assert analysis.alias_size_in_bytes >= size


def test_a_step_needs_no_more_memory_for_a_larger_batch():
  """Of records on the device; drawing a batch takes 40 bytes for a record."""
  sizes = 1000, 11_000
  memories = []
  for size in sizes:
    private = _private(size)
    state = private.init(_params(), key=jax.random.key(0))
    step = private._functions()[1].step
    memories.append(_memory(step.lower(
        state, _records(np.arange(size))).compile()))
  # The activations of one record alone take ten times as much.
  assert 4 * _WIDTH >= 10 * 40
  assert memories[1] - memories[0] <= 40 * (sizes[1] - sizes[0])


class _End:
  """The sign that a part is summed, which notes when it is waited for."""

  def __init__(self, events, number):
    self.note = lambda: events.append(('wait', number))

  def block_until_ready(self):
    self.note()


def test_one_part_is_loaded_while_the_one_before_it_is_summed():
  """And not two, or a device would have to hold all parts of a batch."""
  size, events = 4 * _PART - 3, []

  def load(numbers):
    events.append(('load', len(numbers)))
    return jax.tree.map(jnp.asarray, _records(numbers))

  def add(state, total, part, *rest):
    sums, _ = functions.add(state, total, part, *rest)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(total))
    events.append(('add', part[0].shape[0]))
    return sums, _End(events, sum(kind == 'add' for kind, _ in events))

  private = _private(size, batch_size=size)
  state = private.init(_params(), key=jax.random.key(0))
  program, functions = private._functions()
  private._built = program, functions._replace(add=add)
  _, info = private.step(state, load)
  assert int(info.batch_size) == size
  middle = [('load', _PART), ('wait', 1), ('add', _PART), ('load', _PART),
            ('wait', 2), ('add', _PART)]
  assert events == [('load', _PART), ('add', _PART), *middle,
                    ('load', _PART - 3), ('wait', 3), ('add', _PART)]


def test_functions_are_compiled_once_for_batches_of_all_sizes():
  private = _private(300, batch_size=_PART)
  state = private.init(_params(), key=jax.random.key(0))
  sizes = set()
  for _ in range(6):
    state, info = private.step(state, _records)
    sizes.add(-(-int(info.batch_size) // _PART))
  functions = private._functions()[1]
  counts = {name: getattr(functions, name)._cache_size()
            for name in functions._fields}
  assert sizes == {1, 2}
  assert counts == {'init': 1, 'step': 0, 'update': 0, 'finish': 1,
                    'no_sums': 1, 'add': 1, 'draw': 1}
