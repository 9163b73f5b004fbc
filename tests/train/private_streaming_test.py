"""Tests of private steps on records that are read ahead of the device."""

import gc
import pickle
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.sampling import poisson
from dpjax.train import reading
from dpjax.train import sharding
from dpjax.train import sources
from dpjax.train.private import make_private

_SIZE, _STEPS = 60, 6
_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=(_SIZE, 3)).astype(np.float32)
_Y = _RNG.normal(size=_SIZE).astype(np.float32)


def _loss(params, record, rng):
  x, y = record
  return jnp.square(jnp.vdot(x, params) - y) * jax.random.uniform(rng)


def _load(numbers):
  return _X[numbers], _Y[numbers]


def _source(load=_load, **changed):
  return sources.source(load, num_records=_SIZE, **changed)


def _private(**changed):
  return make_private(_loss, optax.sgd(0.1, momentum=0.9), **dict(
      num_examples=_SIZE, batch_size=20, noise_multiplier=1.0, delta=1e-5,
      steps=_STEPS, max_batch_size=8, accountant='rdp') | changed)


def _init(private, seed=3):
  return private.init(jnp.zeros(3), key=jax.random.key(seed))


def _trained(records, *, steps=_STEPS, seed=3, **changed):
  """Returns parameters and batch size of each step, and epsilon."""
  private, results = _private(**changed), []
  state = _init(private, seed)
  for _ in range(steps):
    state, info = private.step(state, records)
    results.append((*np.asarray(state.params).tolist(), int(info.batch_size)))
  return results, private.epsilon()


def _threads():
  return [thread for thread in threading.enumerate()
          if thread.name == 'dpjax-reader']


def _wait(condition):
  """Waits until a condition holds, at most 20 seconds."""
  end = time.monotonic() + 20
  while not condition():
    assert time.monotonic() < end, 'it never happened'
    time.sleep(0.01)


@pytest.fixture(autouse=True)
def no_threads_left():
  """Checks that threads end with their objects.

  What is there before a test is not searched for cycles, which would take
  seconds.
  """
  gc.freeze()
  yield
  gc.collect()
  gc.unfreeze()
  _wait(lambda: not _threads())


@pytest.mark.parametrize('changed', [
    {}, *(pytest.param(changed, marks=pytest.mark.slow) for changed in (
        dict(on_host=True), dict(max_batch_size=None, donate=True),
        dict(mesh=2), dict(mesh=2, on_host=True, donate=True),
        dict(batch_size=0.1), dict(clip_norm='adaptive', average='ema')))])
def test_records_read_ahead_train_what_others_train(monkeypatch, changed):
  """To the bit, whatever is read ahead, and for the same epsilon."""
  changed = dict(changed)
  if changed.pop('on_host', False):
    monkeypatch.setattr(poisson, 'MOST_ON_DEVICE', _SIZE - 1)
  if 'mesh' in changed:
    changed['mesh'] = sharding.data_mesh(changed['mesh'])
  expected = _trained(_load, **changed)
  for given in (dict(read_ahead=1), dict(read_ahead=5, workers=2)):
    assert _trained(_source(**given), **changed) == expected


@pytest.mark.every(4)
@pytest.mark.parametrize('fault', ['next', 'first'])
def test_reading_the_batch_of_another_step_is_noticed(monkeypatch, fault):
  honest, expected = reading.drawn, _trained(_load, steps=2)

  def wrong(sampler, draw, key, step):
    return honest(sampler, draw, key, step + 1 if fault == 'next' else 0)

  monkeypatch.setattr(reading, 'drawn', wrong)
  assert _trained(_source(), steps=2) != expected


class _Counting:
  """Counts the parts that are read, and fails at one of them if asked to."""

  def __init__(self, fails_at=None):
    self.parts, self.fails_at = 0, fails_at

  def __call__(self, numbers):
    if self.parts == self.fails_at:
      raise OSError('the disk is full')
    self.parts += 1
    return _load(numbers)


@pytest.mark.every(2)
def test_a_stated_number_of_parts_is_read_ahead():
  """Those, and no more, while nobody asks for the next step."""
  load = _Counting()
  source = _source(load, read_ahead=2)
  private = _private(max_batch_size=None)
  state, before = _init(private), load.parts
  assert not _threads()
  for step in range(1, _STEPS + 1):
    state, _ = private.step(state, source)
    expected = before + min(step + 2, _STEPS)
    _wait(lambda: load.parts == expected)  # noqa: B023
    time.sleep(0.05)
    assert load.parts == expected
    assert private.epsilon() == private.epsilon(state)
  # No batch beyond the plan is read.
  _wait(lambda: not _threads())
  with pytest.raises(ValueError, match='steps of the plan are spent'):
    private.step(state, source)


@pytest.mark.every(2)
def test_an_error_of_reading_is_raised_by_its_step_and_spends_nothing():
  expected = _trained(_load, max_batch_size=None)
  load = _Counting()
  source, private, results = _source(load), _private(max_batch_size=None), []
  state, load.fails_at = _init(private), load.parts + 3
  for _ in range(3):
    state, info = private.step(state, source)
    results.append((*np.asarray(state.params).tolist(), int(info.batch_size)))
  spent = private.epsilon()
  for _ in range(2):
    with pytest.raises(OSError, match='the disk is full'):
      private.step(state, source)
    _wait(lambda: not _threads())
    assert private.epsilon() == spent
  # Once the disk has room, the run goes on as if nothing had happened.
  load.fails_at = None
  for _ in range(3):
    state, info = private.step(state, source)
    results.append((*np.asarray(state.params).tolist(), int(info.batch_size)))
  assert (results, private.epsilon()) == expected


@pytest.mark.every(4)
@pytest.mark.parametrize('on_host', [False, True])
def test_a_run_that_is_resumed_sees_the_same_batches(monkeypatch, on_host):
  """The run is cut off while parts are read ahead; equal to the bit."""
  if on_host:
    monkeypatch.setattr(poisson, 'MOST_ON_DEVICE', _SIZE - 1)
  expected, _ = _trained(_source())
  private = _private()
  state = _init(private)
  for _ in range(2):
    state, _ = private.step(state, _source())
  is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
  saved = pickle.dumps(jax.tree.map(
      lambda leaf: np.asarray(jax.random.key_data(leaf) if is_key(leaf) else
                              leaf), state))
  structure, keys = jax.tree.structure(state), jax.tree.map(is_key, state)
  del private, state
  restored = jax.tree.unflatten(structure, [
      jax.random.wrap_key_data(leaf) if key else jnp.asarray(leaf)
      for leaf, key in zip(jax.tree.leaves(pickle.loads(saved)),
                           jax.tree.leaves(keys), strict=True)])
  private, results, source = _private(), [], _source()
  _init(private, seed=8)
  for _ in range(_STEPS - 2):
    restored, info = private.step(restored, source)
    results.append((*np.asarray(restored.params).tolist(),
                    int(info.batch_size)))
  assert results == expected[2:]


@pytest.mark.every(2)
def test_runs_may_take_turns():
  """A run never gets the batch that was read ahead for another one."""
  expected = [_trained(_load, steps=2, seed=seed)[0] for seed in (3, 5)]
  private, source, results = _private(), _source(), [[], []]
  states = [_init(private), _init(private, 5)]
  # Run 1 asks for its step 1 when that of run 0 has been read.
  for run in (1, 0, 1, 0):
    states[run], info = private.step(states[run], source)
    results[run].append((*np.asarray(states[run].params).tolist(),
                         int(info.batch_size)))
  assert results == expected
  assert len(_threads()) == 1


@pytest.mark.every(2)
def test_threads_end_with_the_object():
  private = _private()
  state, _ = private.step(_init(private), _source())
  assert len(_threads()) == 1
  del private, state
  gc.collect()
  _wait(lambda: not _threads())


def test_refusals_spend_nothing():
  private = _private(num_examples=_SIZE - 1)
  state = _init(private)
  with pytest.raises(ValueError, match='there must be 59 records, the num_exam'
                     'ples of make_private; the source has 60'):
    private.step(state, _source())
  private = _private()
  state = _init(private)
  with pytest.raises(ValueError, match='got a object; sources.source reads'):
    private.step(state, object())
  with pytest.raises(ValueError, match='cannot run in a function that JAX comp'):
    jax.jit(lambda state: private.step(state, _source()))(state)
  assert private.epsilon() == 0 and not _threads()


_PROGRAM = '''
import time, jax, jax.numpy as jnp, numpy as np, optax
from dpjax.train import sources
from dpjax.train.private import make_private
calls = []
def load(numbers):
  calls.append(1)
  if len(calls) > 3:
    time.sleep(1000)
  return np.ones([len(numbers), 3], np.float32)
private = make_private(lambda p, x: jnp.vdot(p, x), optax.sgd(0.1),
                       num_examples=20, batch_size=5, noise_multiplier=1.0)
source = sources.source(load, num_records=20, read_ahead=3)
state = private.init(jnp.zeros(3))
state, _ = private.step(state, source)
jax.block_until_ready(state)
while len(calls) < 4:
  time.sleep(0.01)
print('stepped')
'''


@pytest.mark.slow
def test_a_program_ends_although_a_record_is_still_being_read():
  done = subprocess.run([sys.executable, '-c', _PROGRAM], timeout=120,
                        capture_output=True, text=True, check=False)
  assert (done.returncode, done.stdout) == (0, 'stepped\n'), done.stderr
