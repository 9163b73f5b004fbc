"""Tests of private steps whose parameters are divided over 8 devices."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax.grads import shards
from dpjax.grads import sites
from dpjax.privacy import additive
from dpjax.privacy import correlated
from dpjax.privacy import sharded
from dpjax.sampling import CyclicSampler
from dpjax.train import placement
from dpjax.train import sharding
from dpjax.train.private import make_private
from tests import collectives

_MAIN = pathlib.Path(__file__).with_name('sharded_main.py')
# Divided along its input channels, a convolution collects windows.
_CASES = [*((case, layout) for case in ('mlp', 'scanned', 'plain')
            for layout in ('fsdp', 'tensor', 'both')), ('convolved', 'fsdp')]
_ROWS, _POSITIONS, _MOST_LEAVES = 16, 6, 30


def _ran(path, *names):
  environ = {name: value for name, value in os.environ.items()
             if name != 'XLA_FLAGS'}
  done = subprocess.run(
      [sys.executable, '-m', 'tests.train.sharded_main', path, *names],
      check=False, text=True, capture_output=True, env=environ,
      cwd=_MAIN.parents[2])
  assert done.returncode == 0, done.stderr
  with np.load(path) as arrays:
    return dict(arrays), json.loads(done.stdout)


@pytest.fixture(name='outputs', scope='module')
def _outputs(tmp_path_factory, request):
  """Returns parameters and needs, of the cases that selected tests use."""
  names = set()
  for item in request.session.items:
    params = getattr(item, 'callspec', None)
    if item.path == request.path and params and 'layout' in params.params:
      case = params.params['case']
      names |= {f'{case}/one', f'{case}/{params.params["layout"]}'}
  return _ran(tmp_path_factory.mktemp('sharded') / 'arrays.npz',
              *sorted(names))


@pytest.mark.slow
@pytest.mark.parametrize('case, layout', _CASES)
def test_eight_devices_train_what_one_trains(outputs, case, layout):
  """Noise included, so it is drawn once, from the same key.

  Noisy sums are rounded to a grid of 1/256 of their noise at most, so most
  parameters are equal in all bits, and others differ by little.
  """
  arrays, _ = outputs
  one, eight = arrays[f'{case}/one'], arrays[f'{case}/{layout}']
  assert np.mean(one != eight) < 0.05
  # Adam's steps of 0.01: three of them move a parameter by up to 0.03.
  assert np.abs(one - eight).max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize('case, layout', _CASES)
def test_devices_send_little_more_than_without_privacy(outputs, case, layout):
  """Norms cost few numbers for each record and parameter that is divided.

  These are one, or a Gram matrix of the positions of a sequence. The records of
  a fully sharded model are on one device each, and cost nothing.

  Counted are the bytes of all collectives of a compiled step on one device. A
  step without privacy does the same without clipping and noise.
  """
  _, needs = outputs
  private, plain = (needs[name] for name in (
      f'{case}/{layout}', f'{case}/{layout}/plain'))
  kinds = {kind: [each['totals'].get(kind, (0, 0))[1]
                  for each in (private, plain)] for kind in collectives.KINDS}
  numbers = 0 if layout == 'fsdp' else _ROWS * _MOST_LEAVES * (
      1 + _POSITIONS**2)
  assert kinds['all-reduce'][0] <= kinds['all-reduce'][1] + 4 * numbers
  assert kinds['reduce-scatter'][0] <= kinds['reduce-scatter'][1]
  # Without privacy all layers of a scan are collected at once and kept. The
  # private step collects one at a time, and once more in the backward pass.
  times = 2 if case == 'scanned' else 1
  assert kinds['all-gather'][0] <= times * kinds['all-gather'][1]
  for kind in ('all-to-all', 'collective-permute'):
    assert kinds[kind][0] == kinds[kind][1] == 0
  assert private['largest'] <= plain['largest']


@pytest.mark.slow
@pytest.mark.parametrize('case, layout', [
    each for each in _CASES if each[1] == 'fsdp'])
def test_devices_send_what_they_do_without_privacy_and_as_little_memory(
    outputs, case, layout):
  """In a step that collects each layer where it is read, and keeps none."""
  _, needs = outputs
  private, usual = (needs[name]['totals'] for name in (
      f'{case}/{layout}', f'{case}/{layout}/ordinary'))
  for kind in ('all-gather', 'reduce-scatter'):
    assert private[kind] == usual[kind]


@pytest.mark.slow
def test_a_device_needs_a_sixth_of_the_memory(tmp_path):
  """For a model of 16 layers that needs most of it, with Adam's state."""
  _, needs = _ran(tmp_path / 'none.npz', 'scanned/one/memory',
                  'scanned/fsdp/memory')
  one, eight = (needs[f'scanned/{layout}/memory']['memory']
                for layout in ('one', 'fsdp'))
  assert eight[0] <= one[0] / 6
  # The state: parameters and both moments.
  assert eight[1] <= 1.01 * one[1] / 8


@pytest.mark.slow
@pytest.mark.parametrize('division', ['fsdp', 'both'])
def test_ten_million_draws_of_eight_devices_are_normal(tmp_path, division):
  """All together, and independent between devices and steps.

  False alarms: 1e-6 for the distribution, by the bound of Dvoretzky, Kiefer and
  Wolfowitz, and 1e-6 for all correlations.
  """
  arrays, _ = _ran(tmp_path / 'noise.npz', f'noise/{division}')
  drawn = arrays[f'noise/{division}']
  assert drawn.size > 10**7
  distance = stats.kstest(drawn.ravel(), stats.norm.cdf).statistic
  assert distance < np.sqrt(np.log(2 / 1e-6) / (2 * drawn.size))
  # Of each step, matrix and device.
  parts = drawn.reshape(-1, drawn.shape[-1])
  pairs = np.corrcoef(parts)[np.triu_indices(len(parts), 1)]
  most = stats.norm.isf(1e-6 / 2 / pairs.size)
  assert np.abs(pairs).max() < most / np.sqrt(parts.shape[1])


# Tests of two devices in this process.

_WIDTH, _DEPTH = 16, 3


def _loss(params, record):
  x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), record['x'],
                      params['layers'])
  return jnp.square(jnp.vdot(x @ params['last'], params['scale'])
                    - record['y'])


def _params():
  rng = np.random.default_rng(1)
  normal = lambda *shape: jnp.asarray(rng.normal(size=shape) / 4, jnp.float32)
  return {'layers': normal(_DEPTH, _WIDTH, _WIDTH),
          'last': normal(_WIDTH, _WIDTH), 'scale': normal(_WIDTH)}


def _records():
  rng = np.random.default_rng(0)
  return {'x': rng.normal(size=(40, _WIDTH)).astype(np.float32),
          'y': rng.normal(size=40).astype(np.float32)}


def _placed(params, **specs):
  mesh = sharding.data_mesh(2)
  return mesh, {name: jax.device_put(leaf, NamedSharding(
      mesh, specs.get(name, P()))) for name, leaf in params.items()}


_SPECS = dict(layers=P(None, None, 'data'), last=P('data'))


def _private(mesh, **changed):
  return make_private(_loss, optax.sgd(0.5, momentum=0.9), **dict(
      num_examples=40, batch_size=15, noise_multiplier=0.8, max_batch_size=6,
      mesh=mesh, per='record') | changed)


def _trained(divided, records, **changed):
  mesh, params = _placed(_params(), **_SPECS) if divided else (None, _params())
  private = _private(mesh, **changed)
  # Reproducible: for research, not for a release.
  state = private.init(params, key=jax.random.key(4))
  for _ in range(2):
    state, _ = private.step(state, records)
  return state, private


@pytest.mark.every(6)
@pytest.mark.parametrize('changed', [
    {}, dict(kernel='vmap'), dict(clip_norm='adaptive_layers', average='ema'),
    dict(clip_norm={'layers': 0.5, 'last': 0.1, 'scale': 0.2}, donate=True),
    dict(noise_multiplier=None, epsilon=float('inf'), clip_norm=float('inf')),
    dict(steps=4, noise=correlated.square_root(3), sampler=CyclicSampler(
        num_examples=40, batch_size=12, num_groups=3), batch_size=12,
         max_batch_size=None)])
@pytest.mark.parametrize('on_device', [True, False])
def test_two_devices_train_what_one_trains(changed, on_device):
  records = _records()
  if on_device:
    records = jax.tree.map(jnp.asarray, records)
  one, _ = _trained(False, records, **changed)
  two, private = _trained(True, records, **changed)
  for name in one.params:
    np.testing.assert_allclose(two.params[name], one.params[name], 1e-3, 5e-4)
  mesh = sharding.data_mesh(2)
  same = lambda leaf, name: leaf.sharding.is_equivalent_to(NamedSharding(
      mesh, _SPECS.get(name, P())), leaf.ndim)
  trees = [two.params, two.optimizer[1][0].trace]
  if 'average' in changed:
    trees.append(two.average.mean)
  for each in trees:
    assert all(same(leaf, name) for name, leaf in each.items())
  if 'noise' in changed:
    for name, leaf in two.optimizer[0].history.items():
      assert leaf.sharding.is_equivalent_to(NamedSharding(
          mesh, P(None, *_SPECS.get(name, P()))), leaf.ndim)
  if 'epsilon' not in changed:
    assert private.epsilon(two, delta=1e-5) == private.epsilon(delta=1e-5) > 0


def _compiled(**changed):
  mesh, params = _placed(_params(), **_SPECS)
  private = _private(mesh, donate=True, **changed)
  state = private.init(params, key=jax.random.key(4))
  return private._functions()[1].step.lower(
      state, jax.tree.map(jnp.asarray, _records()), None).compile().as_text()


def _is_divided(program):
  """Returns whether no device has, or sends, more than a layer at once."""
  totals = collectives.totals(program)
  layer = 4 * _WIDTH**2
  return (collectives.largest(program) <= layer
          # The scale, and a few numbers.
          and totals['all-reduce'][1] <= 4 * _WIDTH + 64
          and totals['all-gather'][1] <= 2 * (_DEPTH + 1) * layer
          and totals['reduce-scatter'][1] == (_DEPTH + 1) * layer
          and f'f32[{_DEPTH},{_WIDTH},{_WIDTH}]' not in program)


@pytest.mark.every(2)
def test_nothing_is_larger_than_a_layer():
  assert _is_divided(_compiled())


@pytest.mark.parametrize('fault', ['collected', 'summed', 'noise'])
def test_fault_something_is_copied_to_every_device(fault, monkeypatch):
  """Parameters are collected whole, sums are not divided, or noise is not."""
  if fault == 'collected':
    monkeypatch.setattr(sites.Block, '_collected', lambda self, inputs: [
        shards.whole(value) for value in inputs])
  elif fault == 'noise':
    monkeypatch.setattr(sharded, 'unit_noise',
                        lambda key, values, where: additive.unit_noise(
                            key, values))
  else:
    def own(self, number, total):
      if number not in self.dims:
        return total
      dim = total.ndim + self.dims[number]
      size = total.shape[dim] // 2
      return jax.lax.dynamic_slice_in_dim(
          jax.lax.psum(total, self.axis),
          size * jax.lax.axis_index(self.axis), size, dim)
    monkeypatch.setattr(shards.Shards, 'own', own)
  assert not _is_divided(_compiled())


@pytest.mark.parametrize('fault', ['twice', 'same', 'missing'])
def test_fault_of_noise_in_parts(fault, monkeypatch):
  """Noise twice, the same on both devices, or of one device only."""
  honest = sharded.unit_noise

  def faulty(key, values, where):
    noise = honest(key, values, where)
    change = {'twice': lambda leaf: 2**0.5 * leaf,
              'same': lambda leaf: jnp.concatenate([leaf[:8], leaf[:8]]),
              'missing': lambda leaf: leaf.at[8:].set(0.0)}[fault]
    return noise | {'last': change(noise['last'])}

  expected = _trained(False, _records())[0].params['last']
  monkeypatch.setattr(sharded, 'unit_noise', faulty)
  last = _trained(True, _records())[0].params['last']
  assert np.abs(last - expected).max() > 0.005


@pytest.mark.parametrize('axis', ['data', 'model'])
def test_a_record_is_bounded_by_its_norm_over_all_parts(axis):
  """One record: its whole contribution has the clip norm, not that times two.
  """
  mesh, params = _placed(_params(), **_SPECS)
  if axis == 'model':
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]).reshape(1, 2),
                             ('data', 'model'))
    specs = {'layers': P(None, None, 'model'), 'last': P('model', None),
             'scale': P()}
    params = {name: jax.device_put(leaf, NamedSharding(mesh, specs[name]))
              for name, leaf in _params().items()}
  private = make_private(
      _loss, optax.sgd(1.0), num_examples=1, batch_size=1, per='record',
      epsilon=float('inf'), clip_norm=0.1, mesh=mesh)
  state = private.init(params, key=jax.random.key(4))
  record = jax.tree.map(lambda leaf: 10 * leaf[:1], _records())
  after, _ = private.step(state, record)
  moved = [np.asarray(after.params[name]) - np.asarray(params[name])
           for name in params]
  norm = np.sqrt(sum(np.sum(np.square(each)) for each in moved))
  assert 0.0999 < norm <= 0.1 and all(np.abs(each).max() > 0 for each in moved)


def test_parameters_are_divided_along_their_longest_dimension():
  mesh = sharding.data_mesh(2)
  given = {'wide': np.ones([4, 200, 200]), 'tall': np.ones([300, 200]),
           'odd': np.ones([201, 201]), 'small': np.ones(8), 'name': 'x'}
  placed = placement.fully_sharded(mesh, given, least_size=100)
  assert placed['name'] == 'x'
  assert {name: placed[name].sharding.spec for name in given if name != 'name'
          } == {'wide': P(None, None, 'data'), 'tall': P('data', None),
                'odd': P(None, None), 'small': P(None)}
  again = placement.fully_sharded(mesh, placed, least_size=100)
  assert again['wide'].sharding == placed['wide'].sharding


def test_refused_placements():
  mesh, params = _placed(_params(), **_SPECS)
  other = jax.sharding.Mesh(np.array(jax.devices()[:2])[::-1], ('data',))
  with pytest.raises(ValueError, match='must be placed on the mesh'):
    _private(other).init(params, key=jax.random.key(4))
  both = jax.sharding.Mesh(np.array(jax.devices()[:2]).reshape(1, 2),
                           ('data', 'model'))
  moved = jax.device_put(_params()['last'], NamedSharding(
      both, P(('model', 'data'))))
  with pytest.raises(ValueError, match="put 'data' first"):
    _private(both).init(_params() | {'last': moved}, key=jax.random.key(4))
