"""Tests of `fit` on records that are read part by part from a source."""

import dataclasses
import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.lipschitz import losses
from dpjax.privacy import additive
from dpjax.privacy import keys
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import poisson
from dpjax.sampling import PoissonSampler
from dpjax.train import averaging
from dpjax.train import checkpoint
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import reading
from dpjax.train import sharding
from dpjax.train import sources
from dpjax.train.checkpoint import Checkpoints
from dpjax.train.plan import TrainingPlan

_SIZE, _STEPS, _MULTIPLIERS = 60, 22, (0.8, 1.6)
_KEYS = jax.random.split(jax.random.key(11), 2)
_ROWS = np.broadcast_to(np.arange(_SIZE, dtype=np.int32), (2, _SIZE))


@pytest.fixture(autouse=True)
def _no_threads_left():
  yield
  gc.collect()
  for thread in threading.enumerate():
    if thread.name == 'dpjax-reader':
      thread.join(20)
      assert not thread.is_alive()


def _plan(multiplier=1.0, **changes):
  return TrainingPlan(**dict(
      sampler=PoissonSampler(num_examples=_SIZE, batch_size=9,
                             max_batch_size=4),
      num_steps=_STEPS, noise_multiplier=multiplier,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE) | changes)


def _dp_sgd(model):
  return methods.dp_sgd(model, losses.cross_entropy(), clip_norm=0.7)


def _adaptive(model):
  return methods.dp_sgd_adaptive(model, losses.cross_entropy(), clip_norm=0.7,
                                 noise_stddev=3.0)


def _lip_dp_sgd(model):
  return methods.lip_dp_sgd(model, losses.cross_entropy(), weight_norm=0.9)


def _sgd(model):
  return methods.sgd(model, losses.cross_entropy())


@pytest.fixture(name='fit')
def _fit(make_model, records):
  """Returns a function that fits two runs, to arrays or to a source."""
  x, y = map(np.asarray, records)

  def fit(streamed, make=_dp_sgd, given=None, **changes):
    model = make_model(make is _lip_dp_sgd)
    method = make(model)
    source = sources.source({'x': x, 'y': y}, **given or {})
    settings = dict(
        plans=[_plan(z if method.private else None) for z in _MULTIPLIERS],
        model=model, method=method,
        optimizer=optax.sgd(0.5, momentum=0.9)) | (
            dict(records=source, rows=None) if streamed else
            dict(records=records, rows=_ROWS)) | changes
    return loop.fit(settings.pop('keys', _KEYS), **settings)

  return fit


_CASES = {
    'clipping': (_dp_sgd, {}),
    'adaptive clipping and an average': (
        _adaptive, dict(averaging=averaging.ema())),
    'certificates': (_lip_dp_sgd, {}),
    'not private': (_sgd, dict(averaging=averaging.polyak())),
    'init keys': (_dp_sgd, dict(init_keys=jax.random.split(
        jax.random.key(5), 2))),
    'two devices': (_dp_sgd, dict(mesh=2)),
}


@pytest.mark.every(6)
@pytest.mark.parametrize('case', _CASES)
def test_a_source_trains_what_its_arrays_train(fit, case):
  """Batches and noise are the same; sums differ by rounding."""
  make, changes = _CASES[case]
  if 'mesh' in changes:
    changes = changes | {'mesh': sharding.data_mesh(2)}
  expected, found = (fit(streamed, make, **changes)
                     for streamed in (False, True))
  np.testing.assert_array_equal(found.info.batch_size,
                                expected.info.batch_size)
  assert jax.tree.structure(found.info) == jax.tree.structure(expected.info)
  assert jax.tree.structure(found.state) == jax.tree.structure(expected.state)
  compared = lambda result: jax.tree.map(np.asarray, (
      result.state.params, result.state.radii, result.state.average,
      result.info, result.joint_noise_multipliers))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-3, 1e-4),
               compared(found), compared(expected))
  assert found.events == expected.events
  assert found.info.batch_size.max() > 2 * 4  # Of several parts.


@pytest.mark.every(4)
@pytest.mark.parametrize('fault', ['noise', 'batch', 'a part is left out'])
def test_faults_of_the_streamed_step_are_noticed(fit, monkeypatch, fault):
  plans = [_plan(z, num_steps=3) for z in _MULTIPLIERS]
  expected = fit(False, plans=plans)
  if fault == 'noise':
    monkeypatch.setattr(additive, 'add_gaussian_noise',
                        lambda key, values, stddevs: values)
  elif fault == 'batch':
    drawn = reading.drawn
    monkeypatch.setattr(reading, 'drawn', lambda sampler, draw, key, step:
                        drawn(sampler, draw, key, 0))
  else:
    parts = reading.parts
    monkeypatch.setattr(reading, 'parts', lambda load, numbers, size: (
        part._replace(mask=part.mask & (len(numbers) <= size))
        for part in parts(load, numbers, size)))
  found = fit(True, plans=plans)
  with pytest.raises(AssertionError):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-3, 1e-4),
                 found.state.params, expected.state.params)


class _Killed(Exception):
  """Stands for the end of the process."""


def _bits(result):
  return [np.asarray(checkpoint._to_host(leaf)).tobytes() for leaf in
          jax.tree.leaves((result.state, result.info))]


@pytest.mark.slow
@pytest.mark.parametrize('on_host, kill', [(False, 6), (True, 28)])
def test_killed_and_resumed_gives_the_bits_of_one_go(
    fit, tmp_path, monkeypatch, on_host, kill):
  """In the first run, and in the second one, while batches are read ahead."""
  if on_host:
    monkeypatch.setattr(poisson, 'MOST_ON_DEVICE', 10)
  expected = fit(True)

  def on_progress(done, total):
    assert done <= total == 2 * _STEPS
    if done >= kill:
      raise _Killed

  saved = Checkpoints(folder=str(tmp_path / 'fit'), every_seconds=0,
                      say=lambda line: None)
  with pytest.raises(_Killed):
    fit(True, checkpoints=saved, on_progress=on_progress)
  resumed = fit(True, checkpoints=saved, given=dict(read_ahead=5))
  assert _bits(resumed) == _bits(expected)


@pytest.mark.every(2)
def test_an_error_of_reading_ends_the_fit_and_uses_up_no_key(fit, records):
  x, y = map(np.asarray, records)
  calls = []

  def load(numbers):
    calls.append(1)
    if len(calls) == 10:
      raise OSError('the disk is full')
    return x[numbers], y[numbers]

  given = dict(records=sources.source(load, num_records=_SIZE),
               keys=keys.system_keys(1), plans=[_plan(num_steps=4)])
  with pytest.raises(OSError, match='the disk is full'):
    fit(True, **given)
  assert fit(True, **given).info.batch_size.shape == (4, 1)


def test_refusals(fit, records):
  with pytest.raises(ValueError, match='rows must be None if the records are'):
    fit(True, rows=_ROWS)
  small = dataclasses.replace(_plan().sampler, num_examples=59)
  with pytest.raises(ValueError, match='there must be 59 records, the num_exam'
                     'ples of the plans; the source has 60'):
    fit(True, plans=[_plan(sampler=small)] * 2)
  with pytest.raises(ValueError, match=r'records must be a Batch\(x, y\) or a'):
    fit(True, records=sources.source(np.asarray(records.x)))
  with pytest.raises(ValueError, match='runs 0 and 1 have equal keys'):
    fit(True, keys=jnp.stack([_KEYS[0]] * 2))
