"""These tests check that a resumed run equals one that was never killed.

A checkpoint of another fit is refused.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.lipschitz import losses
from dpjax.privacy import keys
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import averaging
from dpjax.train import checkpoint
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import plan as plans
from dpjax.train.checkpoint import Checkpoints
from dpjax.train.checkpoint import Saver

LOSS = losses.cross_entropy()
SAMPLER = PoissonSampler(num_examples=40, batch_size=5, max_batch_size=4)
KEYS = jax.random.split(jax.random.key(11), 3)
ROWS = jnp.asarray(np.stack([
  np.random.default_rng(seed).permutation(60)[:40] for seed in range(3)]),
  jnp.int32)
MULTIPLIERS = (1.6, 3.2, 2.1)


class _Killed(BaseException):
  """This exception stands for a kill; no code under test catches it."""


def _plan(multiplier, num_steps):
  return plans.TrainingPlan(
    sampler=SAMPLER, num_steps=num_steps, noise_multiplier=multiplier,
    adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def _dp_sgd(model):
  return methods.dp_sgd(model, LOSS, clip_norm=0.7)


def _adaptive(model):
  return methods.dp_sgd_adaptive(model, LOSS, clip_norm=0.7, noise_stddev=3.)


def _lip_dp_sgd(model):
  return methods.lip_dp_sgd(model, LOSS, weight_norm=0.9)


@pytest.fixture(name='fit', scope='module')
def _fit(make_model, records):
  """Returns a function that fits the three runs and can kill them at a step."""
  def fit(make=_dp_sgd, num_steps=23, kill=None, **changes):
    model = make_model(make is _lip_dp_sgd)
    method = make(model)

    def on_progress(done, total):
      assert done <= total
      seen.append(done)
      if done == kill:
        raise _Killed

    seen = changes.pop('seen', [])
    settings = {
      'keys': KEYS, 'rows': ROWS, 'model': model, 'method': method,
      'plans': [_plan(z if method.private else None, num_steps)
                for z in MULTIPLIERS],
      'optimizer': optax.sgd(0.5, momentum=0.9), 'records': records,
      'on_progress': on_progress, **changes}
    return loop.fit(settings.pop('keys'), **settings)

  return fit


@pytest.fixture(name='compile_once')
def _compile_once(monkeypatch):
  """Makes the fits of a test share compiled
  programs and use at most four chunks."""
  compiled, honest = [], loop._compile

  def shared(*args):
    if not compiled:
      compiled.append(honest(*args))
    return compiled[0]

  monkeypatch.setattr(loop, '_compile', shared)
  monkeypatch.setattr(loop, 'chunk_lengths', functools.partial(
    loop.chunk_lengths, most=4))


def _bits(result):
  """Returns the bytes of each array in the result of a fit, by name."""
  leaves = jax.tree_util.tree_leaves_with_path(
    (result.state, result.info, result.joint_noise_multipliers))
  return {jax.tree_util.keystr(path): (
    str(leaf.dtype), leaf.shape, checkpoint._to_host(leaf).tobytes())
    for path, leaf in leaves}


def _assert_same(actual, expected):
  actual, expected = _bits(actual), _bits(expected)
  assert list(actual) == list(expected)
  assert [name for name in actual if actual[name] != expected[name]] == []


_CASES = {
  # Each case has a method, steps, arguments of fit and kills at boundaries.
  'adam, a shorter last chunk, groups of two': (
    _dp_sgd, 23, {'optimizer': optax.adam(0.1), 'max_parallel': 2},
    (18, 23, 41)),
  'radii and an average': (
    _adaptive, 24, {'averaging': averaging.ema()}, (6, 18)),
  'certificates, one after the other': (
    _lip_dp_sgd, 22, {'max_parallel': 1}, (11, 22, 33)),
  'not private': (
    methods.sgd, 24, {'averaging': averaging.polyak()}, (12,)),
  'secret keys and public ones': (
    _dp_sgd, 24, {'keys': keys.system_keys(3), 'init_keys': KEYS}, (6, 18)),
}


@pytest.mark.every(8)
@pytest.mark.parametrize('name', _CASES)
def test_killed_and_resumed_gives_the_bits_of_one_go(
    fit, compile_once, name, tmp_path):
  make, num_steps, changes, kills = _CASES[name]
  if make is methods.sgd:
    make = lambda model: methods.sgd(model, LOSS)
  said = []
  checkpoints = Checkpoints(folder=tmp_path / 'c', every_seconds=0,
                            say=said.append)
  with jax.numpy_dtype_promotion('standard'):  # optax.adam is not strict
    expected = fit(make, num_steps, seen=(steps := []), **changes)
    for kill, before in zip(kills, (0, *kills), strict=False):
      with pytest.raises(_Killed):
        fit(make, num_steps, kill, checkpoints=checkpoints, seen=(seen := []),
            **changes)
      # The resumed fit repeats no step that was saved.
      assert seen == [step for step in steps if before < step <= kill]
    resumed = fit(make, num_steps, checkpoints=checkpoints, seen=(seen := []),
                  **changes)
    again = fit(make, num_steps, checkpoints=checkpoints, seen=(last := []),
                **changes)
  assert seen == [step for step in steps if step > kills[-1]]
  _assert_same(resumed, expected)
  assert resumed.events == expected.events
  # A fit resumed at its very end trains nothing but reports everything.
  _assert_same(again, expected)
  ends = [*kills, steps[-1]]
  saved = checkpoint._load(tmp_path / 'c' / str(ends[-1]))['meta']['seconds']
  assert last == [] and 0 < saved <= again.train_seconds
  assert said == [f'resuming at step {kill}, from {tmp_path / "c" / str(kill)}'
                  for kill in ends]
  assert len(list((tmp_path / 'c').iterdir())) == checkpoint.KEPT


def _key_again(state):
  """Returns the state with a noise stream derived from a key used already."""
  return state._replace(keys=state.keys._replace(noise=jax.vmap(
    lambda key: jax.random.fold_in(key, 0))(state.keys.noise)))


def _privatizer(**changes):
  return lambda state: state._replace(optimizer=(
    state.optimizer[0]._replace(**{
      name: change(getattr(state.optimizer[0], name))
      for name, change in changes.items()}), *state.optimizer[1:]))


_FAULTS = {
  'step not restored': lambda part: part._replace(
    state=part.state._replace(step=part.state.step * 0)),
  'noise step not restored': lambda part: part._replace(
    state=_privatizer(step=jnp.zeros_like)(part.state)),
  'measured multiplier not restored': lambda part: part._replace(
    state=_privatizer(joint_noise_multiplier=lambda z: z + 9)(part.state)),
  'noise key derived again': lambda part: part._replace(
    state=_key_again(part.state)),
  'momentum not restored': lambda part: part._replace(
    state=part.state._replace(optimizer=(
      part.state.optimizer[0],
      *jax.tree.map(jnp.zeros_like, part.state.optimizer[1:])))),
  'radii not restored': lambda part: part._replace(
    state=part.state._replace(radii=jax.tree.map(
      lambda leaf: leaf * 0 + 0.7, part.state.radii))),
  'average not restored': lambda part: part._replace(
    state=part.state._replace(average=part.state.average._replace(
      mean=jax.tree.map(jnp.copy, part.state.params)))),
  'last bit of the parameters': lambda part: part._replace(
    state=part.state._replace(params=jax.tree.map(
      lambda leaf: jnp.nextafter(leaf, jnp.inf * jnp.ones_like(leaf)),
      part.state.params))),
  'infos dropped': lambda part: part._replace(infos=()),
  'infos emptied': lambda part: part._replace(infos=tuple(
    jax.tree.map(np.zeros_like, info) for info in part.infos)),
}


@pytest.mark.slow
def test_faults_in_what_is_restored_are_seen(fit, compile_once, tmp_path,
                                             monkeypatch):
  settings = {'make': _adaptive, 'averaging': averaging.ema()}
  expected = fit(**settings)
  with pytest.raises(_Killed):
    fit(kill=12, checkpoints=Checkpoints(folder=tmp_path, every_seconds=0),
        **settings)
  kept = Checkpoints(folder=tmp_path, every_seconds=1e9)
  _assert_same(fit(checkpoints=kept, **settings), expected)
  honest = Saver.restore
  for name, fault in _FAULTS.items():
    monkeypatch.setattr(Saver, 'restore', lambda *args, fault=fault: [
      fault(part) for part in honest(*args)])
    try:
      resumed = fit(checkpoints=kept, **settings)
    except ValueError as error:
      # Infos of zeros say that there was less noise than planned.
      assert 'noised with joint multiplier' in str(error), name
    else:
      assert _bits(resumed) != _bits(expected), name


@pytest.mark.slow
def test_another_configuration_is_refused(fit, compile_once, records,
                                          tmp_path):
  honest = Checkpoints(folder=tmp_path, every_seconds=0,
                       description={'clip_norm': '0.7', 'depth': '1'})
  with pytest.raises(_Killed):
    fit(kill=6, checkpoints=honest)
  before = sorted(map(str, tmp_path.rglob('*')))
  assert {path.stat().st_mode & 0o077 for path in (
      tmp_path, *tmp_path.rglob('*'))} == {0}
  other = Checkpoints(folder=tmp_path, description={'clip_norm': '2'})
  for message, changes in {
      'clip_norm = 0.7, now 2;': {'checkpoints': other},
      'noise_multiplier = 1.6, 3.2, 2.1, now 1.6, 3.2, 9.0;': {
        'plans': [_plan(z, 23) for z in (1.6, 3.2, 9.)]},
      'noise_multiplier = 1.6, 3.2, 2.1, now 3.2, 1.6, 2.1;': {
        'plans': [_plan(z, 23) for z in (3.2, 1.6, 2.1)]},
      'num_steps = 23, now 25;': {'num_steps': 25},
      'method = dp_sgd, now dp_sgd_adaptive;': {'make': _adaptive},
      'allocation = optimal, now equal;': {'allocation': 'equal'},
      'runs = 3, now 2;': {
        'keys': KEYS[:2], 'rows': ROWS[:2],
        'plans': [_plan(z, 23) for z in MULTIPLIERS[:2]]},
      'groups of runs = 1, now 2;': {'max_parallel': 2},
      'other keys;': {'keys': KEYS[::-1]},
      'other keys; use': {'init_keys': jax.random.split(jax.random.key(12), 3)},
      'other rows;': {'rows': ROWS[::-1]},
      'other records;': {'records': records._replace(x=records.x + jnp.full_like(
        records.x, 1e-6))}}.items():
    with pytest.raises(ValueError) as caught:
      fit(**{'checkpoints': honest, **changes})
    assert message in str(caught.value) and '\n' not in str(caught.value)
    assert f'the checkpoint in {tmp_path} is of another' in str(caught.value)
  assert sorted(map(str, tmp_path.rglob('*'))) == before


def test_another_device_is_refused_unless_allowed(fit, compile_once, tmp_path,
                                                  monkeypatch):
  expected = fit()
  with pytest.raises(_Killed):
    fit(kill=6, checkpoints=Checkpoints(folder=tmp_path, every_seconds=0))
  honest = checkpoint.fingerprint
  monkeypatch.setattr(checkpoint, 'fingerprint', lambda *args, **given: {
    **honest(*args, **given), 'device': 'TPU v9'})
  with pytest.raises(ValueError, match='device = cpu, now TPU v9'):
    fit(checkpoints=Checkpoints(folder=tmp_path))
  _assert_same(fit(checkpoints=Checkpoints(
    folder=tmp_path, other_devices=True)), expected)
  # Only the device may differ.
  with pytest.raises(ValueError, match='other keys'):
    fit(keys=KEYS[::-1], checkpoints=Checkpoints(
      folder=tmp_path, other_devices=True))


def test_chunks_are_as_many_as_asked_for(fit, tmp_path):
  checkpoints = Checkpoints(folder=tmp_path, every_seconds=0, most_chunks=2)
  with pytest.raises(_Killed):
    fit(num_steps=24, kill=12, checkpoints=checkpoints)
  _assert_same(fit(num_steps=24, checkpoints=checkpoints, seen=(seen := [])),
               fit(num_steps=24))
  assert seen == [24]
  with pytest.raises(ValueError, match='chunks of steps = 12 12, now 2 2 2'):
    fit(num_steps=24, checkpoints=Checkpoints(folder=tmp_path))
  with pytest.raises(ValueError, match='most_chunks must be an integer >= 1'):
    Checkpoints(folder=tmp_path, most_chunks=0)


@pytest.mark.slow
def test_a_state_of_another_form_is_refused(fit, tmp_path, monkeypatch):
  monkeypatch.setattr(loop, 'chunk_lengths', lambda num_steps: [num_steps])
  checkpoints = Checkpoints(folder=tmp_path, every_seconds=0)
  with pytest.raises(_Killed):
    fit(kill=23, checkpoints=checkpoints)
  with pytest.raises(ValueError, match=r'state\.optimizer.*trace.*, now none'):
    fit(checkpoints=checkpoints, optimizer=optax.sgd(0.5))
