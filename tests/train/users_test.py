"""Tests of users as records: index, sums, sensitivity, claims, refusals."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax import tree
from dpjax.audit import claims
from dpjax.audit import replay
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.grads import weighted
from dpjax.privacy.adjacency import Adjacency
from dpjax.train import sharding
from dpjax.train import sources
from dpjax.train import users
from dpjax.train.private import make_private

_LEAST = 1e-6  # A noise multiplier at which the exact sums can be read.
_RNG = np.random.default_rng(2)
# Users have from 1 to 9 records, in mixed order.
_OWNERS = _RNG.permutation(np.repeat(np.arange(12) + 100, 1 + np.arange(12) % 9))
_X = (_RNG.normal(size=(len(_OWNERS), 3)) * np.logspace(
    -1, 1, len(_OWNERS))[:, None]).astype(np.float32)
_Y = _RNG.integers(2, size=len(_OWNERS)).astype(np.int32)


def _loss(params, record):
  x, y = record
  return -jax.nn.log_softmax(jnp.tanh(x @ params['v']) @ params['w'])[y]


def _batch_loss(params, batch):
  x, y = batch
  values = jax.nn.log_softmax(jnp.tanh(x @ params['v']) @ params['w'])
  return -jnp.take_along_axis(values, y[:, None], 1)[:, 0]


def _params():
  rng = np.random.default_rng(1)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  return {'v': draw(3, 4), 'w': draw(4, 2)}


def _private(loss=_loss, **changed):
  given = dict(num_examples=12, batch_size=6, noise_multiplier=_LEAST,
               delta=1e-5, clip_norm=1.0, unit='user')
  return make_private(loss, optax.sgd(1.0), **given | changed)


def _expected(chosen, most, combine):
  """Returns the clipped sum over users by a loop, divided by the batch size."""
  total = jax.tree.map(lambda leaf: np.zeros(leaf.shape), _params())
  norms = []
  for number in chosen:
    places = np.flatnonzero(_OWNERS == 100 + number)[:most]
    grads = [jax.grad(_loss)(_params(), (_X[i], _Y[i])) for i in places]
    grad = jax.tree.map(lambda *leaves: np.sum(
        np.asarray(leaves, np.float64), 0), *grads)
    grad = tree.scale(1 / len(places) if combine == 'mean' else 1.0, grad)
    norms.append(float(np.sqrt(sum(np.square(leaf).sum()
                                   for leaf in jax.tree.leaves(grad)))))
    total = tree.add(total, tree.scale(min(1, 1 / norms[-1]), grad))
  assert min(norms) < 1 < max(norms)
  return tree.scale(1 / 6, total)


@pytest.mark.every(2)
def test_records_of_users_are_read_ahead_from_a_source():
  plain = users.by_user((_X, _Y), _OWNERS, most=4)
  of_source = users.by_user(sources.source((_X, _Y)), _OWNERS, most=4)
  ends = []
  for records in (plain, of_source, sources.source(
      of_source, num_records=of_source.num_users)):
    private = _private(noise_multiplier=1.0)
    # Reproducible: for research, not for a release.
    state = private.init(_params(), key=jax.random.key(3))
    for _ in range(3):
      state, _ = private.step(state, records)
    ends.append(np.asarray(state.params['v']))
  np.testing.assert_array_equal(ends[0], ends[1])
  np.testing.assert_array_equal(ends[0], ends[2])


def test_a_source_must_have_the_records_of_the_users():
  with pytest.raises(ValueError, match='number of user_ids'):
    users.by_user(sources.source((_X[:-1], _Y[:-1])), _OWNERS, most=4)


@pytest.mark.every(6)
@pytest.mark.parametrize('loss, kernel, combine, size', [
    (_loss, 'bookkeeping', 'mean', None), (_loss, 'vmap', 'sum', 2),
    (_batch_loss, 'bookkeeping', 'sum', None)])
def test_a_step_is_the_clipped_sum_over_users(loss, kernel, combine, size):
  """Gradients of a user are combined, then clipped once; three ways to step."""
  private = _private(loss, kernel=kernel, max_batch_size=size)
  grouped = users.by_user((_X, _Y), _OWNERS, most=4, combine=combine)
  fresh = lambda: private.init(_params(), key=jax.random.key(0))
  sample = private.sample(fresh())
  expected = _expected(sample.indices[sample.mask], 4, combine)
  steps = {
      'loaded': lambda state: private.step(state, grouped),
      'whole': lambda state: private.step(state, grouped.whole()),
      'sampled': lambda state: private.update(state, grouped(sample.indices)),
      'compiled': jax.jit(lambda state: private.step(state, grouped.whole()))}
  for step in steps.values():
    state = fresh()
    after, info = step(state)
    jax.tree.map(
        lambda old, new, wanted: np.testing.assert_allclose(
            np.asarray(old - new), wanted, 1e-4, 1e-5),
        _params(), after.params, expected)
    assert int(info.batch_size) == sample.mask.sum()
    assert not int(info.num_nonfinite)


@pytest.mark.every(2)
def test_devices_share_the_users_of_a_batch():
  grouped = users.by_user((_X, _Y), _OWNERS, most=4)
  moved = []
  for mesh in (None, sharding.data_mesh()):
    private = _private(mesh=mesh)
    state, _ = private.step(private.init(_params(), key=jax.random.key(0)),
                            grouped)
    moved.append(state.params)
  jax.tree.map(lambda one, two: np.testing.assert_allclose(
      one, two, 1e-5, 1e-6), *moved)


@pytest.mark.sound
@pytest.mark.parametrize('choose', users.CHOICES)
def test_the_index_of_a_user_depends_on_no_other_user(choose):
  grouped = users.by_user(np.arange(len(_OWNERS)), _OWNERS, most=4,
                          choose=choose)
  kept = _OWNERS != 104
  fewer = users.by_user(np.flatnonzero(kept), _OWNERS[kept], most=4,
                        choose=choose)
  numbers = np.delete(np.arange(12), 4)
  for number, place in zip(numbers, range(11), strict=True):
    rows, weights = grouped(np.array([number]))
    others = fewer(np.array([place]))
    own = np.flatnonzero(_OWNERS == 100 + number)
    count = min(4, len(own))
    assert set(rows[0]) <= set(own) and set(others.rows[0]) <= set(own)
    assert len(set(rows[0])) == count == (weights > 0).sum()
    np.testing.assert_array_equal(weights, others.weights)
    assert weights.sum() == pytest.approx(1)
    if choose == 'first':
      np.testing.assert_array_equal(rows[0][:count], own[:4])
      np.testing.assert_array_equal(rows, others.rows)


def test_random_records_are_drawn_uniformly():
  """Each record of a user represents it equally often; false alarm 1e-6."""
  counts = np.zeros(6)
  for _ in range(600):
    counts[users.by_user(np.arange(6), np.zeros(6, int), most=2,
                         choose='random').rows[0]] += 1
  # A count is binomial(600, 1/3), with standard deviation 11.5.
  assert counts.sum() == 1200 and np.abs(counts - 200).max() < 5.3 * 11.5


@pytest.mark.every(6)
def test_records_may_be_loaded_and_have_random_keys():
  """A loader gets numbers of records; each record of a user has its own key."""
  seen = []

  def load(numbers):
    seen.append(numbers)
    return np.ones(len(numbers), np.float32)

  grouped = users.by_user(load, ['a', 'b', 'a', 'a'], most=3, combine='sum')
  private = make_private(
      lambda w, x, rng: w * x * jax.random.normal(rng), optax.sgd(1.0),
      num_examples=2, batch_size=2, noise_multiplier=_LEAST, clip_norm=100.0,
      unit='user')
  rows, weights = grouped(np.array([0, 1]))
  assert rows.shape == weights.shape == (2, 3)
  np.testing.assert_array_equal(np.concatenate(seen), [0, 2, 3, 1, 1, 1])
  moves = [float(private.step(private.init(
      jnp.float32(0), key=jax.random.key(seed)), grouped)[0].params) * 2
           for seed in range(150)]
  # A sum of 3 + 1 independent draws has variance 4; 3 equal ones and 1, 10.
  assert 2 < np.var(moves) < 6.5


_ROWS = np.tile(np.array([[3.0, -1.0]], np.float32), (6, 1))


def _audited():
  """Returns the replay of a step with and without a user of six records."""
  private = make_private(
      lambda params, record: jnp.vdot(record, params), optax.sgd(1.0),
      num_examples=2, batch_size=1, noise_multiplier=1.0, steps=1, unit='user',
      max_batch_size=1)
  grouped = users.by_user(_ROWS, np.array([7, 7, 7, 7, 7, 3]), most=5,
                          combine='sum').whole()
  private.init(jnp.zeros(2))

  def release(key, present):
    state = private.init(jnp.zeros(2), key=key)
    return private.step(state, users.Users(
        grouped.rows * present[:, None, None], grouped.weights))[0].params

  return replay.audit(jax.random.key(0), Target(
      name='step', release=release, claim=claims.of_event(
          private.plan.event, delta=1e-5,
          adjacency=Adjacency.ADD_OR_REMOVE_ONE), pairs=(Pair(
              np.ones(2, np.float32), np.array([1, 0], np.float32),
              'a user of many records'),)), num_keys=16, sampled_runs=0)


_OF_RECORD_LOSS = weighted.of_record_loss


def _clipped_by_record(loss, **given):
  """Returns the bounder that clips each record of a user by itself."""
  honest = _OF_RECORD_LOSS(loss, **given)

  def sums(params, batch, mask):
    grouped, words = batch.x
    total = None
    for place in range(grouped.weights.shape[1]):
      one = grouped._replace(weights=jnp.zeros_like(grouped.weights).at[
          :, place].set(grouped.weights[:, place]))
      part = honest.sums(params, batch._replace(x=(one, words)), mask)
      total = part if total is None else tree.add(total, part)
    return total

  return honest._replace(sums=sums)


@pytest.mark.every(4)
def test_an_audit_of_users_notices_clipping_by_record():
  assert not _audited().violated
  with mock.patch.object(weighted, 'of_record_loss', _clipped_by_record):
    result = _audited()
  assert result.violated, str(result)


def test_the_claim_names_the_unit():
  assert 'unit=user' in repr(_private())
  assert 'unit=record' in repr(_private(unit='record'))
  assert _private().unit == 'user'


def _step(private, records):
  return private.step(private.init(_params(), key=jax.random.key(0)), records)


@pytest.mark.parametrize('call, message', [
    (lambda: _private(unit='person'), 'unit must be one of'),
    (lambda: _step(_private(), (_X[:12], _Y[:12])), "unit='user' needs records"),
    (lambda: _step(_private(unit='record'), users.by_user(
        (_X, _Y), _OWNERS, most=2)), 'records are grouped by user'),
    (lambda: _step(_private(num_examples=13), users.by_user(
        (_X, _Y), _OWNERS, most=2)), 'records must have 13 users'),
    (lambda: users.by_user((_X, _Y), _OWNERS[1:], most=2), 'records must have'),
    (lambda: users.by_user(_X, _OWNERS, most=0), 'most must be'),
    (lambda: users.by_user(_X, _OWNERS, most=2, choose='last'), 'choose must'),
    (lambda: users.by_user(_X, _OWNERS, most=2, combine='max'), 'combine must'),
    (lambda: users.by_user(_X, _X, most=2), 'user_ids must be integers or'),
])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    call()
