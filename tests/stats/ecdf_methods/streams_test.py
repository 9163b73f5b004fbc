"""Tests streams of noisy sums against matrices, and resuming.

A stream's noise is a matrix times the noise of nodes. The matrices of all kinds
are built here from the definition of the nodes.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy import accounting
from dpjax.privacy import keys
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf_methods import stream_noise
from dpjax.stats.ecdf_methods import streams

_HORIZON = 13
_STREAMS = {
    'dyadic': dict(kind='dyadic', epsilon=1.0),
    'printed': dict(kind='dyadic', epsilon=1.0, accounting='paper'),
    'signed': dict(kind='signed', base=3, epsilon=1.0, item_bits=0),
    'even base': dict(kind='signed', base=4, epsilon=1.0),
    'bottom up': dict(kind='bottom_up', epsilon=1.0),
    'Gaussian dyadic': dict(kind='dyadic', rho=.5),
    'Gaussian bottom up': dict(kind='bottom_up', rho=.5),
    'square root': dict(kind='square_root', rho=.5)}


def _stream(name, horizon=_HORIZON):
  return streams.PrefixStream(horizon=horizon, **_STREAMS[name])


def _held(structure):
  """Returns the times that nodes hold, [nodes, N], leaves first."""
  times = np.arange(structure.horizon)
  return np.concatenate([
      np.arange(size)[:, None] == times // structure.base**level
      for level, size in enumerate(structure.sizes)]).astype(float)


def _nearest(time, structure):
  """Returns a time's signed nodes: steps to the nearest node of each level."""
  signs, near = np.zeros(structure.sizes.sum()), time
  for level, (start, size) in enumerate(zip(structure.starts, structure.sizes,
                                            strict=True)):
    nodes = range(size + structure.base)
    above = 0 if level == structure.levels - 1 else min(
        (abs(near - structure.base * node), node) for node in nodes)[1]
    for node in range(min(near, above * structure.base),
                      max(near, above * structure.base)):
      if node < size:
        signs[start + node] = 1 if above * structure.base <= near else -1
    near = above
  return signs


def _from_below(time, structure):
  """Returns the fewest nodes that end at a time, each estimated from below."""
  held, signs, rest = _held(structure), np.zeros(structure.sizes.sum()), time
  for level in reversed(range(structure.levels)):
    while rest >= 2**level:
      first = time - rest
      inside = np.zeros(structure.horizon, bool)
      inside[first:first + 2**level] = True
      below = np.flatnonzero(~np.any(held[:, ~inside], 1)
                             & (np.repeat(np.arange(structure.levels),
                                          structure.sizes) <= level))
      leaves = np.linalg.pinv(held[below][:, inside])
      signs[below] += leaves.sum(0)
      rest -= 2**level
  return signs


def _matrix(structure):
  """Returns [N, nodes], which maps noise of nodes to noise of sums."""
  times = range(1, structure.horizon + 1)
  if structure.kind == 'square_root':
    weights = [math.comb(2 * k, k) / 4**k for k in range(structure.horizon)]
    return np.array([[weights[time - 1 - node] if node < time else 0.0
                      for node in range(structure.horizon)] for time in times])
  if structure.kind == 'dyadic':
    return _held(structure).T
  make = _nearest if structure.kind == 'signed' else _from_below
  return np.array([make(time, structure) for time in times])


@pytest.mark.sound
@pytest.mark.parametrize('name', _STREAMS)
def test_one_item_moves_sums_as_noise_of_the_budget_does(name):
  mechanism = _stream(name)
  matrix, size = _matrix(mechanism.structure), mechanism.horizon
  steps = np.tril(np.ones((size, size)))
  if mechanism.pure:
    worst = max(optimize.linprog(
        np.ones(2 * matrix.shape[1]), A_eq=np.hstack([matrix, -matrix]),
        b_eq=step).fun for step in steps.T)
  else:
    worst = max(np.sum((np.linalg.pinv(matrix) @ step)**2) for step in steps.T)
  spent = (worst / mechanism.scale if mechanism.pure else
           worst / (2 * mechanism.scale**2))
  budget = mechanism.epsilon if mechanism.pure else mechanism.rho
  # Real coefficients hide slightly more of a Gaussian than changed nodes.
  least = .85 if name == 'Gaussian bottom up' else 1 - 1e-9
  assert least * budget <= spent <= budget * (1 + 1e-9)


@pytest.mark.sound
@pytest.mark.parametrize('name', _STREAMS)
def test_noise_of_sums_is_that_of_the_matrix(name, monkeypatch):
  """Released sums have the matrix's noise, with numbers for node noise."""
  mechanism, rng = _stream(name), np.random.default_rng(4)
  matrix, asked = _matrix(mechanism.structure), []
  nodes = np.round(1000 * rng.normal(size=matrix.shape[1]))

  def noise(structure, words, scale, places):
    del structure, words
    asked.append(scale)
    return jnp.asarray(nodes)[places]
  monkeypatch.setattr(stream_noise, 'node_noise', noise)
  # `stepper` itself would reuse what was compiled.
  step = stream_noise.stepper.__wrapped__(mechanism.structure)
  items = np.array([.5, 0, 1, 2, -3, np.nan, .25, 0, 0, 1, .75, .5, 1])
  counted = np.clip(np.nan_to_num(items), 0, 1)
  unit = 2.**mechanism.structure.item_bits
  with jax.enable_x64(True):
    state = mechanism.init(jax.random.key(0))
    state, sums = jax.jit(lambda state: jax.lax.scan(
        functools.partial(
            step, jax.tree.map(jnp.asarray, mechanism.parameters)),
        state, jnp.asarray(items)))(state)
    _, after = step(mechanism.parameters, state, jnp.float64(1))
  np.testing.assert_allclose(
      sums, np.cumsum(np.round(counted * unit) / unit) + matrix @ nodes,
      atol=1e-2)
  assert np.isnan(after)
  assert mechanism.parameters.scale == mechanism.scale


@pytest.mark.parametrize('name', _STREAMS)
def test_variances_are_those_of_the_matrix(name):
  mechanism = _stream(name)
  squares = np.square(_matrix(mechanism.structure)).sum(1)
  ratio = mechanism.variances() / squares
  np.testing.assert_allclose(ratio, ratio[0])
  unit = 2 * mechanism.scale**2 if mechanism.pure else mechanism.scale**2
  assert .95 < ratio[0] / unit <= 1 + 1e-9
  assert mechanism.risk(2) == pytest.approx(2 * ratio[0] * squares.mean())


@pytest.mark.every(4)
@pytest.mark.parametrize('name', [
    'dyadic', 'signed', 'bottom up', 'square root'])
def test_killed_and_resumed_tells_the_same_bits(name, tmp_path):
  """One run, item by item, and resumed from a file give the same bits."""
  mechanism, key = _stream(name), jax.random.key(7)
  items = np.random.default_rng(0).uniform(-.3, 1.3, _HORIZON)
  items[3], items[9] = np.nan, np.inf
  at_once = np.asarray(mechanism.release(key, items))
  state, one_by_one = mechanism.init(key), []
  for item in items[:6]:
    state, noisy_sum = mechanism.update(state, item)
    one_by_one.append(float(noisy_sum))
  np.savez(tmp_path / 'state.npz', **state._asdict())
  del state
  with np.load(tmp_path / 'state.npz') as saved:
    state = stream_noise.StreamState(**saved)
  for item in items[6:]:
    state, noisy_sum = mechanism.update(state, item)
    one_by_one.append(float(noisy_sum))
  np.testing.assert_array_equal(at_once, one_by_one)
  assert at_once.dtype == np.float64 and int(state.time) == _HORIZON
  with pytest.raises(ValueError, match='horizon is 13'):
    mechanism.update(state, .5)
  unit = 2.0**mechanism.item_bits
  sums = np.cumsum(np.round(np.clip(np.nan_to_num(items, nan=0.0), 0, 1)
                            * unit) / unit)
  assert float(state.total) == sums[-1]
  with jax.enable_x64(True):
    matrix = _matrix(mechanism.structure)
    noise = np.asarray(stream_noise.node_noise(
        mechanism.structure, state.words, jnp.float64(mechanism.scale),
        jnp.arange(matrix.shape[1], dtype=jnp.int32)))
  spacing = 2.0**-24 if mechanism.pure else mechanism.scale / 256
  np.testing.assert_allclose(at_once, sums + matrix @ noise, rtol=0,
                             atol=spacing)
  # Sums of whole items with whole noise need no rounding.
  assert np.all(at_once * unit % 1 == 0) or name != 'signed'


def test_noise_of_a_node_is_its_own():
  """Each node and key has its own noise, the same at each call."""
  drawn = jax.jit(functools.partial(stream_noise.node_noise,
                                    _stream('dyadic').structure))
  places = np.arange(25, dtype=np.int32)
  with jax.enable_x64(True):
    first, other, back = (
        np.asarray(drawn(np.array(words, np.uint32), np.float64(3), order))
        for words, order in (((1, 2), places), ((1, 3), places),
                             ((1, 2), places[::-1])))
  assert len(np.unique([first, other])) == 50
  np.testing.assert_array_equal(back, first[::-1])


@pytest.mark.slow
@pytest.mark.every(1)
@pytest.mark.parametrize('name', ['dyadic', 'square root'])
def test_a_secret_key_stays_as_long_as_it_is(name):
  """Each word of a 256-bit key changes the noise of every time."""
  stream, items = _stream(name), jnp.ones(_HORIZON)
  words = np.full(8, 7, np.uint32)
  state = stream.init(keys.from_words(words[None])[0])
  assert state.words.shape == (8,)
  assert np.unique(np.asarray(state.words)).size == 8
  sums = np.asarray(stream.run(state, items)[1])
  assert np.isfinite(sums).all()
  for place in range(8):
    flipped = state.words.at[place].set(state.words[place] ^ jnp.uint32(1))
    other = np.asarray(stream.run(state._replace(words=flipped), items)[1])
    assert (other != sums).all()
  assert stream.init(jax.random.key(7)).words.shape == (2,)


def test_errors_of_many_runs():
  """Errors match mean and mean square of 4000 runs, to five deviations."""
  mechanism, runs = _stream('signed'), 4000
  with jax.enable_x64(True):
    sums = np.asarray(jax.jit(jax.vmap(mechanism.release, (0, None)))(
        jax.random.split(jax.random.key(2), runs), jnp.zeros(_HORIZON)))
  variances = mechanism.variances()
  fourth = np.mean(sums**4, 0) / variances**2
  assert np.all(np.abs(sums.mean(0)) < 5 * np.sqrt(variances / runs))
  assert np.all(np.abs(np.mean(sums**2, 0) / variances - 1)
                < 5 * np.sqrt((fourth - 1) / runs))


def test_after_the_horizon_nothing_is_told_and_nothing_changes():
  mechanism = _stream('dyadic')
  items = np.ones(_HORIZON + 2)
  with pytest.raises(ValueError, match='got 15'):
    mechanism.release(jax.random.key(0), items)
  with jax.enable_x64(True):
    state, sums = jax.lax.scan(mechanism.update,
                               mechanism.init(jax.random.key(0)), items)
  assert np.isnan(sums[-2:]).all() and np.isfinite(sums[:-2]).all()
  assert int(state.time) == _HORIZON == float(state.total)


@pytest.mark.parametrize('horizon, fields, mean, largest', [
    (10, dict(epsilon=1.0, kind='dyadic', accounting='paper'), 792, 792),
    (10, dict(epsilon=1.0, kind='dyadic'), 720, 720),
    (10, dict(epsilon=1.0), 171, 324), (15, dict(epsilon=1.0), 510, 992),
    (10, dict(epsilon=1.0, kind='bottom_up'), 581, 1161),
    (15, dict(epsilon=1.0, kind='bottom_up'), 1868, 3737),
    (10, dict(rho=.5, kind='dyadic', accounting='paper'), 66, 66),
    (10, dict(rho=.5, kind='dyadic'), 19.70, 19.70),
    (15, dict(rho=.5, kind='dyadic'), 37.54, 37.54),
    (10, dict(rho=.5, kind='bottom_up'), 29.0, 58),
    (10, dict(rho=.5), 9.67, 10.71), (15, dict(rho=.5), 17.76, 19.15)], ids=str)
def test_table_of_errors(horizon, fields, mean, largest):
  mechanism = streams.PrefixStream(horizon=2**horizon, **fields)
  assert mechanism.risk(1) == pytest.approx(mean, rel=.005)
  assert mechanism.variances().max() == pytest.approx(largest, rel=.005)


def test_printed_noise():
  """Laplace noise attains ceil((L+1)/2); for Gaussian noise it is too much."""
  printed = dict(horizon=2**10, kind='dyadic', accounting='paper')
  assert streams.PrefixStream(epsilon=2.0, **printed).scale == 3
  mechanism = streams.PrefixStream(rho=.5, **printed)
  assert mechanism.scale**2 == pytest.approx(6)
  tight = streams.PrefixStream(rho=.5, horizon=2**10, kind='dyadic')
  assert mechanism.risk(1) / tight.risk(1) == pytest.approx(3.35, abs=.01)


def test_events_say_what_streams_cost():
  for mechanism in map(_stream, ('signed', 'square root')):
    assert mechanism.adjacency is Adjacency.ADD_OR_REMOVE_ONE
    cost = accounting.epsilon(mechanism.event, delta=1e-5,
                              adjacency=mechanism.adjacency)
    assert cost == pytest.approx(1.0 if mechanism.pure else 4.38, abs=.05)


@pytest.mark.parametrize('change', [
    dict(rho=1.0), dict(epsilon=-1.0), dict(kind='square_root'),
    dict(kind='other'), dict(base=3), dict(kind='signed', base=1),
    dict(accounting='paper', kind='signed'), dict(item_bits=25),
    dict(horizon=1)], ids=str)
def test_bad_settings_are_refused(change):
  fields = dict(horizon=8, epsilon=1.0, kind='dyadic') | change
  with pytest.raises(ValueError):
    streams.PrefixStream(**fields)


def test_laws_are_shared():
  both = [streams.PrefixStream(horizon=8, kind='dyadic', epsilon=epsilon)
          for epsilon in (.5, 3.0)]
  first, second = (stream_noise.stepper(each.structure) for each in both)
  assert first is second
  assert len({stream_noise.stepper(_stream(name).structure)
              for name in _STREAMS}) == len(_STREAMS)
