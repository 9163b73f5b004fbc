"""These tests check that packs train each replica as if alone (MIA-05)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.typing import Batch
from experiments.methods.sparsity import networks
from experiments.methods.training import replicas
from experiments.methods.training.batch_resnet import BatchResnet
from experiments.methods.training.replicas import Recipe
from experiments.methods.training.replicas import Replicas
from experiments.methods.training.replicas import Task

NETWORK = BatchResnet(depth=8, widths=(2, 3, 4), num_classes=3,
                      input_channels=1)
COUNT, STEPS, SIZE, EPOCHS = 4, 3, 4, 8
SEEN = []
"""(number of a record, random word) of each view."""


def _noted_flip(key, image):
  """Returns the mirror image; notes the image, and what its key draws."""
  jax.debug.callback(lambda *values: SEEN.append(
    (int(64 * values[0]), int(values[1]))), image[0, 0, 0],
    jax.random.bits(key))
  return image[:, ::-1]


RECIPE = Recipe(num_epochs=EPOCHS, batch_size=SIZE, divisor=4.0,
                augmentation=_noted_flip)
PLAIN = networks.dense(NETWORK.init)


def _records():
  """Returns records numbered in a corner, with a class in a row of pixels."""
  rng = np.random.default_rng(0)
  y = rng.integers(0, 3, 90).astype(np.int32)
  x = rng.normal(size=(90, 8, 8, 1)).astype(np.float32)
  x[np.arange(90), 2 * y + 1] += 2
  x[:, 0, 0, 0] = x[:, 0, -1, 0] = np.arange(90) / 64
  return Batch(jnp.asarray(x), jnp.asarray(y))


RECORDS = _records()
MADE = Replicas(NETWORK, parametrisations=[PLAIN], recipe=RECIPE,
                records=RECORDS, pack_size=2)


def _task(mask=None):
  """Returns a task whose replicas share no record; one of them is masked."""
  rows = np.arange(COUNT * 14, dtype=np.int32).reshape(COUNT, 14)
  if mask is None:
    mask = np.array(MADE.full_mask(COUNT))
    mask[1, ::3] = False
  return Task(jax.random.split(jax.random.key(1), COUNT), jnp.asarray(rows),
              jnp.asarray(56 + np.arange(28, dtype=np.int32).reshape(COUNT, 7)),
              jnp.asarray([0.1, 0.05, 0.3, 0.02]),
              jnp.asarray([0.01, 0.0, 0.1, 0.3]), jnp.asarray(mask))


def _initial():
  return MADE.initial(jax.random.split(jax.random.key(0), COUNT))


def _start():
  return jnp.where(_task().mask, _initial(), 0)


def _numpy(values):
  return jax.tree.map(np.array, values)


@pytest.fixture(scope='module')
def run():
  """Returns (states, infos, views) of one training over all epochs."""
  SEEN.clear()
  task = _task()
  state = MADE.restart(_start())
  states, infos, views = [_numpy(state)], [], []
  for _ in range(EPOCHS):
    state, info = MADE.run_epoch(state, task)
    states.append(_numpy(state))
    infos.append(_numpy(info))
    jax.effects_barrier()
    views.append(list(SEEN))
    SEEN.clear()
  return states, infos, views


def _rows_of(views, replica):
  """Returns a replica's records in the order in which they came."""
  return [row for row, _ in views if row // 14 == replica]


@jax.jit
def _gradient(flat, statistics, x, y):
  """Returns (gradient, loss, statistics) of one network by itself."""

  def loss(flat):
    params = jax.tree.map(lambda leaf: leaf[None], MADE.tree(flat, 0))
    logits, updated = NETWORK.apply(params, jax.tree.map(
      lambda leaf: leaf[None], statistics), x[None], train=True)
    value = optax.softmax_cross_entropy_with_integer_labels(logits[0], y)
    return jnp.mean(value), jax.tree.map(lambda leaf: leaf[0], updated)

  (value, updated), gradient = jax.value_and_grad(loss, has_aux=True)(flat)
  return gradient, value, updated


@pytest.mark.slow
@pytest.mark.parametrize('replica', range(COUNT))
def test_training_is_that_of_the_rule_written_down(run, replica):
  """Every replica trains by the written rule on the batches that came."""
  states, infos, views = run
  task = _numpy(_task()._replace(key=0))
  flat = states[0].last.params[replica]
  statistics = jax.tree.map(lambda leaf: leaf[replica],
                            states[0].last.statistics)
  buffer = np.zeros_like(flat)
  for epoch in range(EPOCHS):
    rate = task.learning_rate[replica] * (
      1 if epoch < 4 else 1 / 4 if epoch < 6 else 1 / 16)
    losses = []
    for rows in np.reshape(_rows_of(views[epoch], replica), (STEPS, SIZE)):
      gradient, loss, statistics = _gradient(
        flat, statistics, RECORDS.x[rows][:, :, ::-1], RECORDS.y[rows])
      losses.append(loss)
      buffer = 0.9 * buffer + (
        gradient + task.weight_decay[replica] * flat)
      flat = flat - np.where(task.mask[replica], rate * buffer, 0)
    after = states[epoch + 1]
    np.testing.assert_allclose(after.last.params[replica], flat, rtol=1e-3,
                               atol=1e-4)
    np.testing.assert_allclose(after.optimizer[1].trace[replica], buffer, rtol=1e-3,
                               atol=1e-3)
    np.testing.assert_allclose(infos[epoch].loss[replica], np.mean(losses),
                               rtol=1e-3)
    # The test ignores rounding errors, so it goes on from this state.
    flat, buffer = after.last.params[replica], after.optimizer[1].trace[replica]
    of_replica = jax.tree.map(lambda leaf: leaf[replica],
                              after.last.statistics)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(
      a, b, rtol=1e-3, atol=1e-4), of_replica, statistics)
    statistics = of_replica
    assert np.all(after.epoch == epoch + 1)


@pytest.mark.every(5)
def test_epochs_use_records_once_and_leave_a_part_of_a_batch_out(run):
  _, _, views = run
  words = [word for epoch in views for _, word in epoch]
  # Of 384 words of 32 bits, two are equal with probability 2e-5.
  assert len(set(words)) == len(words) == EPOCHS * COUNT * STEPS * SIZE
  for replica in range(COUNT):
    orders = [_rows_of(epoch, replica) for epoch in views]
    for order in orders:
      assert len(set(order)) == len(order) == STEPS * SIZE < 14
    assert len(set(map(tuple, orders))) == EPOCHS
    # A record is left out of all eight epochs with probability (1/7)^8.
    assert len(set(sum(orders, []))) == 14
  assert len({tuple(row - 14 * replica for row in _rows_of(views[0], replica))
              for replica in range(COUNT)}) == COUNT


@pytest.mark.every(2)
def test_what_is_masked_stays_zero(run):
  states, _, _ = run
  mask = np.asarray(_task().mask)
  for network in (states[-1].last, states[-1].best):
    assert np.all(network.params[~mask] == 0)
    moved = network.params != states[0].last.params
    assert np.mean(moved[mask]) > 0.8 and not np.any(moved[~mask])
  # Masked weights are held, but their momentum is not cut off.
  assert np.any(states[-1].optimizer[1].trace[~mask] != 0)


def test_the_best_epoch_is_the_first_of_highest_validation_accuracy(run):
  states, infos, _ = run
  accuracies = np.stack([info.accuracy for info in infos])
  assert states[0].best_accuracy.tolist() == [-1] * COUNT
  for replica in range(COUNT):
    for epoch in range(1, EPOCHS + 1):
      first = 1 + int(np.argmax(accuracies[:epoch, replica]))
      jax.tree.map(
        lambda best, last: np.testing.assert_array_equal(
          best[replica], last[replica]),
        states[epoch].best, states[first].last)
      assert states[epoch].best_accuracy[replica] == accuracies[
        first - 1, replica]
  # Some best epoch is neither the first nor the last, and some are equal.
  highest = accuracies.max(0)
  firsts = np.argmax(accuracies, 0)
  assert np.any((firsts > 0) & (firsts < EPOCHS - 1))
  assert np.any((accuracies == highest).sum(0) > 1)


@pytest.mark.slow
def test_logits_and_accuracies_are_those_of_single_networks(run):
  """Logits and accuracies equal those of single networks, in batches of 4."""
  states, infos, _ = run
  network = states[-1].last
  x, y = RECORDS.x[56:85], np.asarray(RECORDS.y[56:84]).reshape(COUNT, 7)
  logits = MADE.logits(network, x, batch_size=4)
  assert logits.shape == (COUNT, 29, 3)
  wanted, _ = jax.jit(lambda params, *args: NETWORK.apply(
    MADE.dense(params), *args, train=False))(
      network.params, network.statistics,
      jnp.broadcast_to(x, (COUNT, *x.shape)))
  np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)
  predicted = np.argmax(logits[:, :28], 2).reshape(COUNT, COUNT, 7)
  right = [np.mean(predicted[r, r] == y[r]) for r in range(COUNT)]
  np.testing.assert_allclose(infos[-1].accuracy, right, rtol=1e-6)
  assert 0 < infos[-1].accuracy.min() and infos[-1].accuracy.max() < 1


def test_stopped_and_resumed_gives_the_same_bits(run):
  states, infos, _ = run
  task, calls = _task(), []
  params = _start()
  state = MADE.restart(params)
  for _ in range(3):
    state, _ = MADE.run_epoch(state, task)
  state, info = MADE.fit(state, task, lambda state, info: calls.append(
    int(state.epoch[0])))
  jax.tree.map(np.testing.assert_array_equal, _numpy(state), states[-1])
  jax.tree.map(np.testing.assert_array_equal, info, jax.tree.map(
    lambda *leaves: np.stack(leaves), *infos[3:]))
  assert calls == list(range(4, EPOCHS + 1))
  # The start of training is kept, and finished training stays as it is.
  np.testing.assert_array_equal(params, states[0].last.params)
  state, info = MADE.fit(state, task)
  assert info.loss.shape == info.accuracy.shape == (0, COUNT)
  jax.tree.map(np.testing.assert_array_equal, _numpy(state), states[-1])


@pytest.mark.every(2)
def test_what_runs_beside_does_not_matter(run):
  """Other mates and places in a pack change results by rounding only."""
  states, infos, _ = run
  order = np.array([3, 0, 1, 2])
  task = _task()
  start = jnp.asarray(states[0].last.params)
  state = MADE.restart(start[order])
  state, info = MADE.run_epoch(state, jax.tree.map(
    lambda leaf: leaf[order], task))
  np.testing.assert_allclose(state.last.params, states[1].last.params[order],
                             rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(info.accuracy, infos[0].accuracy[order])


def _scaled():
  """Returns a parametrisation that also trains a factor of the last layer."""

  def effective(params):
    dense = params['network']['dense']
    return params['network'] | {'dense': dense | {
      'kernel': params['factor'] * dense['kernel']}}

  size = MADE.num_params
  return networks.Parametrisation(lambda key: {
    'factor': jnp.full((1, 1), 2.0), 'network': NETWORK.init(key)},
                                  effective, size + 1, size)


@pytest.mark.slow
def test_parametrisations_mix_and_packs_may_be_larger(run):
  """Replicas of different parametrisations train as beside their like."""
  states, infos, _ = run
  mixed = Replicas(NETWORK, parametrisations=[PLAIN, _scaled()],
                   recipe=RECIPE, records=RECORDS, pack_size=4)
  size = MADE.num_params
  assert mixed.num_params == size + 1
  full = np.asarray(mixed.full_mask(COUNT))
  assert full.sum(1).tolist() == [size, size + 1] * 2 and full[:, :size].all()
  task = _task()
  params = np.array(mixed.initial(jax.random.split(jax.random.key(0), COUNT)))
  plain = _initial()
  np.testing.assert_array_equal(params[::2, :size], plain[::2])
  np.testing.assert_array_equal(params[1::2, 1:], plain[1::2])
  assert np.all(params[::2, size] == 0) and np.all(params[1::2, 0] == 2)
  for number in (0, 3):
    tree = mixed.tree(jnp.asarray(params[number]), number)
    np.testing.assert_array_equal(mixed.vector(tree, number), params[number])
    kept = mixed.vector(jax.tree.map(lambda leaf: np.ones(leaf.shape, bool), tree),
                        number)
    np.testing.assert_array_equal(kept, full[number])
  dense = jax.jit(mixed.dense)(jnp.asarray(params))
  np.testing.assert_array_equal(
    dense['dense']['kernel'][3],
    2 * MADE.tree(plain[3], 0)['dense']['kernel'])
  state, info = mixed.run_epoch(mixed.restart(jnp.asarray(params)),
                                task._replace(mask=jnp.asarray(full)))
  after = np.asarray(state.last.params)
  np.testing.assert_allclose(after[::2, :size], states[1].last.params[::2],
                             rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(info.accuracy[::2], infos[0].accuracy[::2])
  assert np.all(after[::2, size] == 0)
  assert np.all(np.abs(after[1::2, 0] - 2) > 1e-4)


def test_learning_rates_fall_where_they_should():
  recipe = Recipe(num_epochs=300)
  rates = recipe.rate(jnp.asarray([0, 149, 150, 224, 225, 299]))
  np.testing.assert_allclose(rates, [1, 1, 0.1, 0.1, 0.01, 0.01], rtol=1e-6)
  # 0.7 * 10 is a little more than 7 in double precision.
  late = Recipe(num_epochs=10, drops=(0.7,), divisor=2.0)
  np.testing.assert_array_equal(late.rate(jnp.arange(6, 9)), [1, 0.5, 0.5])
  assert Recipe(num_epochs=5, drops=()).rate(jnp.asarray(4)) == 1
  assert Recipe(num_epochs=1, batch_size=1).batch_size == 1


@pytest.mark.every(2)
@pytest.mark.parametrize('arguments, message', [
  (dict(num_epochs=0), 'num_epochs must be'),
  (dict(num_epochs=3, batch_size=0), 'batch_size must be'),
  (dict(num_epochs=3, momentum=-0.1), 'momentum must be'),
  (dict(num_epochs=3, drops=(1.5,)), 'drops must lie'),
  (dict(num_epochs=3, divisor=0.0), 'divisor must be')])
def test_bad_recipes_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    Recipe(**arguments)


def test_bad_input_is_refused():
  task = _task()
  state = MADE.restart(jnp.zeros((COUNT, MADE.num_params)))
  for data, message in (
      (task._replace(rows=task.rows[:, :3]), 'a batch of 4 needs as many'),
      (task._replace(validation=task.validation[:, :0]), 'validation records'),
      (task._replace(learning_rate=task.learning_rate[:2]),
       'learning_rate must be of 4 replicas, got 2'),
      (task._replace(rows=task.rows + 90), 'numbers of the 90 records'),
      (task._replace(validation=task.validation - 90), 'numbers of the 90')):
    with pytest.raises(ValueError, match=message):
      MADE.fit(state, data)
  with pytest.raises(ValueError, match='3 replicas do not fill packs of 2'):
    MADE.restart(jnp.zeros((3, MADE.num_params)))
  with pytest.raises(ValueError, match='3 replicas do not fill packs of 2'):
    MADE.init(jax.random.split(jax.random.key(0), 3))
  with pytest.raises(ValueError, match='a pack of 3 cannot hold 2'):
    replicas.Replicas(NETWORK, parametrisations=[PLAIN] * 2, recipe=RECIPE,
                      records=RECORDS, pack_size=3)
  with pytest.raises(ValueError, match='parameters, got 1'):
    MADE.vector({'a': jnp.zeros(1)}, 0)
