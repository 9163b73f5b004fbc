"""These tests recompute replicas of a linear network in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.typing import Batch
from experiments.methods.sparsity import networks
from experiments.methods.training import replicas
from experiments.methods.training.replicas import Recipe
from experiments.methods.training.replicas import Replicas
from experiments.methods.training.replicas import Task

FEATURES, CLASSES, COUNT, EPOCHS = 3, 2, 4, 4
SIZES = set()
"""How many images networks were given at once."""

RECIPE = Recipe(num_epochs=EPOCHS, batch_size=4, momentum=.7, divisor=3.0)


class _Linear:
  """This network has logits x w and sums the mean inputs it trained on."""

  def init(self, key):
    return {'w': jax.random.normal(key, (FEATURES, CLASSES))}

  def init_statistics(self):
    return {'seen': jnp.zeros(FEATURES)}

  def apply(self, params, statistics, x, *, train):
    SIZES.add(x.shape[1])
    logits = jnp.einsum('pbf,pfc->pbc', x, params['w'])
    if not train:
      return logits + statistics['seen'][:, None, :CLASSES], statistics
    return logits, {'seen': statistics['seen'] + x.mean(1)}


def _halved():
  """Returns a parametrisation with halved weights and a common shift."""
  size = FEATURES * CLASSES
  return networks.Parametrisation(
      lambda key: {'a': _Linear().init(key)['w'] / 2, 'b': jnp.ones(1)},
      lambda params: {'w': 2 * params['a'] + params['b'][None]}, size + 1, size)


def _records():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(60, FEATURES)).astype(np.float32)
  return Batch(jnp.asarray(x), jnp.asarray((x[:, 0] > 0).astype(np.int32)))


RECORDS = _records()
MADE = Replicas(_Linear(), parametrisations=[networks.dense(_Linear().init),
                                             _halved()], recipe=RECIPE,
                records=RECORDS, pack_size=2)
KEYS = jax.random.split(jax.random.key(3), COUNT)


def _task():
  mask = np.array(MADE.full_mask(COUNT))
  mask[2, :2] = False
  return Task(KEYS, jnp.arange(40).reshape(COUNT, 10),
              jnp.arange(40, 60).reshape(COUNT, 5),
              jnp.asarray([.5, .1, .3, .2]), jnp.asarray([.01, .2, .0, .1]),
              jnp.asarray(mask))


def _weights(flat, replica):
  """Returns weights [f, c] of a vector, leaves in the order of names."""
  flat = np.asarray(flat, float)
  if replica % 2 == 0:
    return flat[:6].reshape(FEATURES, CLASSES)
  return 2 * flat[:6].reshape(FEATURES, CLASSES) + flat[6]


def _gradient(flat, replica, x, y):
  """Returns (mean loss, its gradient in the vector)."""
  logits = x @ _weights(flat, replica)
  probs = np.exp(logits - logits.max(1, keepdims=True))
  probs /= probs.sum(1, keepdims=True)
  moved = probs.copy()
  moved[np.arange(len(y)), y] -= 1
  inner = x.T @ moved / len(y)
  own = inner.ravel() if replica % 2 == 0 else np.append(
      2 * inner, inner.sum())
  return (-np.mean(np.log(probs[np.arange(len(y)), y])),
          np.append(own, np.zeros(7 - own.size)))


def _epoch(replica, epoch, flat, buffer, seen):
  """Returns the results of one epoch of one
  replica, with batches by its key."""
  task, x, y = _task(), np.asarray(RECORDS.x, float), np.asarray(RECORDS.y)
  order = jax.random.split(jax.random.fold_in(KEYS[replica], epoch))[0]
  rows = np.asarray(jax.random.permutation(order, task.rows[replica]))
  rate = float(task.learning_rate[replica]) / [1, 1, 3, 9][epoch]
  losses = []
  for batch in rows[:8].reshape(2, 4):
    loss, gradient = _gradient(flat, replica, x[batch], y[batch])
    buffer = .7 * buffer + gradient + float(task.weight_decay[replica]) * flat
    flat = flat - np.where(task.mask[replica], rate * buffer, 0)
    losses.append(loss)
    seen = seen + x[batch].mean(0)
  return flat, buffer, seen, np.mean(losses)


def _logits(flat, replica, seen, x):
  return x @ _weights(flat, replica) + seen[:CLASSES]


@pytest.fixture(name='trained', scope='module')
def _trained():
  """Returns copies of the states after each epoch and of the infos."""
  state, task, states, infos = MADE.init(KEYS), _task(), [], []
  states.append(jax.tree.map(np.array, state))
  for _ in range(EPOCHS):
    state, info = MADE.run_epoch(state, task)
    states.append(jax.tree.map(np.array, state))
    infos.append(jax.tree.map(np.array, info))
  return states, infos


@pytest.mark.every(1)
@pytest.mark.parametrize('replica', range(COUNT))
def test_training_is_that_of_the_rule_written_down(trained, replica):
  states, infos = trained
  flat = states[0].last.params[replica].astype(float)
  buffer, seen, best = np.zeros(7), np.zeros(FEATURES), (-1, None)
  own = np.asarray(_task().validation[replica])
  x, y = np.asarray(RECORDS.x, float), np.asarray(RECORDS.y)
  for epoch in range(EPOCHS):
    flat, buffer, seen, loss = _epoch(replica, epoch, flat, buffer, seen)
    state, info = states[epoch + 1], infos[epoch]
    np.testing.assert_allclose(state.last.params[replica], flat, rtol=1e-4,
                               atol=1e-5)
    np.testing.assert_allclose(state.last.statistics['seen'][replica], seen,
                               rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(info.loss[replica], loss, rtol=1e-4)
    right = np.mean(np.argmax(_logits(flat, replica, seen, x[own]), 1)
                    == y[own])
    np.testing.assert_allclose(info.accuracy[replica], right, rtol=1e-6)
    best = max(best, (right, flat), key=lambda pair: pair[0])
    np.testing.assert_allclose(state.best_accuracy[replica], best[0],
                               rtol=1e-6)
    np.testing.assert_allclose(state.best.params[replica], best[1], rtol=1e-4,
                               atol=1e-5)
    assert state.epoch[replica] == epoch + 1


@pytest.mark.every(2)
def test_logits_are_those_of_each_network(trained):
  """Logits equal each network's, in batches of 2, 4 or all images."""
  networks_ = trained[0][-1].last
  x = np.asarray(RECORDS.x[:9], float)
  wanted = np.stack([_logits(networks_.params[r], r,
                             networks_.statistics['seen'][r], x)
                     for r in range(COUNT)])
  for size in (4, 2, 9, 500):
    SIZES.clear()
    logits = MADE.logits(networks_, RECORDS.x[:9], batch_size=size)
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-5)
    assert SIZES <= {min(size, 9)}
  own = jnp.stack([RECORDS.x[r:r + 5] for r in range(COUNT)])
  np.testing.assert_allclose(
      MADE.apply(networks_, own), [wanted[r][r:r + 5] for r in range(COUNT)],
      rtol=1e-4, atol=1e-5)
  for r, dense in enumerate(MADE.dense(jnp.asarray(networks_.params))['w']):
    np.testing.assert_allclose(dense, _weights(networks_.params[r], r),
                               rtol=1e-5, atol=1e-6)


@pytest.mark.every(2)
def test_vectors_are_trees_and_back():
  params = MADE.initial(KEYS)
  full = np.asarray(MADE.full_mask(COUNT))
  assert full.tolist() == [[True] * 6 + [False], [True] * 7] * 2
  for number in range(COUNT):
    tree = MADE.tree(params[number], number)
    assert set(tree) == ({'w'} if number % 2 == 0 else {'a', 'b'})
    np.testing.assert_array_equal(MADE.vector(tree, number), params[number])
    wanted = MADE.parametrisations[number % 2].init(KEYS[number])
    jax.tree.map(np.testing.assert_array_equal, tree, wanted)
  assert np.all(np.asarray(params)[::2, 6] == 0)


def test_what_is_left_of_a_run_is_run():
  task, seen = _task(), []
  state, infos = MADE.fit(MADE.init(KEYS), task, lambda state, info: seen.append(
      int(state.epoch[0])))
  assert seen == [1, 2, 3, 4] and infos.loss.shape == (EPOCHS, COUNT)
  half = MADE.init(KEYS)
  for _ in range(2):
    half, _ = MADE.run_epoch(half, task)
  rest, late = MADE.fit(half, task)
  assert isinstance(rest, replicas.State)
  np.testing.assert_array_equal(rest.last.params, state.last.params)
  np.testing.assert_array_equal(late.loss, infos.loss[2:])
