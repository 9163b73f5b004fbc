"""These tests check private networks and attack ceilings (MIA-12 d, MIA-13)."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.train import plan as plans
from dpjax.train import state
from dpjax.typing import Batch
from experiments.mia_sparsity import private

_DELTA = 1e-5
_NUM_RUNS = 800
_SIGNIFICANCE = 1e-4
# Seven records are faint; one, record 7 or 8 by a fair coin, is not. There are
# more parameters than records, and every step uses every record.
_NUM_EXAMPLES = 8
_IN, _OUT = 7, 8
_SHAPE = (4, 4, 1)
_TINY = private.Design(
    channels=(4,), width=8, batch_size=float(_NUM_EXAMPLES), recipes={
        'sgd': private.Recipe(num_steps=20, learning_rate=0.01),
        'dp_sgd': private.Recipe(num_steps=20, learning_rate=0.004,
                                 clip_norm=0.1),
        'lip_dp_sgd': private.Recipe(num_steps=20, learning_rate=0.01)})
# These budgets get a share of the noise of others.
_FAULTS = {1.1: (1.0, 0.05), 4.1: (4.0, 0.25)}


def _records():
  x = jax.random.normal(jax.random.key(1), (_NUM_EXAMPLES, *_SHAPE))
  x = jnp.concatenate([0.01 * x[:_IN], jnp.sign(x[_IN:])])
  y = jnp.asarray([0, 1, 1, 0, 1, 0, 0, 1, 0], jnp.int32)
  return Batch(jnp.concatenate([x, x[_IN:]]), y)


def _train(method, epsilons, keys, rows, design=_TINY, **settings):
  # optax.adam is not strict.
  with jax.numpy_dtype_promotion('standard'):
    return private.train(method, epsilons, design=design, delta=_DELTA,
                         records=_records(), num_classes=2, rows=rows,
                         keys=keys, **settings)


def _coins():
  return np.asarray(jax.random.bernoulli(jax.random.key(2),
                                         shape=(_NUM_RUNS,)))


_KEYS = jax.random.split(jax.random.key(3), _NUM_RUNS)


def _tossed(method, epsilons):
  """Returns networks that saw one of two records, by a fair coin each."""
  last = np.where(_coins(), _IN, _OUT)[:, None]
  common = np.tile(np.arange(_NUM_EXAMPLES - 1), (_NUM_RUNS, 1))
  rows = jnp.asarray(np.concatenate([common, last], 1), jnp.int32)
  return _train(method, epsilons, _KEYS, rows)


def _model(method):
  return private.make_model(method, design=_TINY, input_shape=_SHAPE,
                            recipe=_TINY.recipes[method], num_classes=2)


def _start(method, epsilon):
  """Returns the parameters before training, which no guarantee hides."""
  model = _model(method)
  keys = private._keys(_KEYS, method, epsilon, 1.0)
  return jax.vmap(lambda key: model.init(state.streams(key).init))(keys)


def _right(trained, start):
  """Returns how often an attack guesses right who saw `_IN`.

  The score is the growth of its log-odds in training. The first half of the
  runs picks the threshold, the second half counts.
  """
  records = _records()
  image = jnp.broadcast_to(records.x[_IN], (_NUM_RUNS, 1, *_SHAPE))
  odds = lambda networks: np.asarray(
      jax.jit(trained.apply)(networks, image)[:, 0] @ jnp.asarray([-1.0, 1.0]))
  scores = odds(trained.networks) - odds(start)
  coins, half = _coins(), _NUM_RUNS // 2
  guesses = scores[:half, None] > scores[:half]
  best = np.argmax(np.mean(guesses == coins[:half, None], 0))
  return int(np.sum((scores[half:] > scores[best]) == coins[half:]))


def _p_value(right, ceiling):
  """Returns the p-value if a guess is right with probability <= `ceiling`."""
  return stats.binom.sf(right - 1, _NUM_RUNS // 2, ceiling)


def _ceiling(epsilon):
  return (math.exp(epsilon) + _DELTA) / (1 + math.exp(epsilon))


def _sharp_ceiling(epsilon):
  """Returns the accuracy ceiling of a Gaussian release, as of full batches."""
  shift = accounting.gaussian_shift(epsilon=epsilon, delta=_DELTA)
  return stats.norm.cdf(shift / 2)


@pytest.fixture(scope='module')
def networks():
  """Returns dp_sgd networks by budget, with faults, in one program."""
  honest = plans.private_plan

  def plan(*, epsilon, **settings):
    asked, share = _FAULTS.get(epsilon, (epsilon, 1.0))
    planned = honest(epsilon=asked, **settings)
    return dataclasses.replace(
        planned, noise_multiplier=share * planned.noise_multiplier)

  budgets = (1.0, 4.0, *_FAULTS)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(plans, 'private_plan', plan)
    return dict(zip(budgets, _tossed('dp_sgd', budgets), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize('epsilon', [1.0, 4.0])
def test_no_attack_is_above_the_ceiling(networks, epsilon):
  """No attack is significantly above its ceiling.

  Each test is wrong with probability 1e-4.
  """
  right = _right(networks[epsilon], _start('dp_sgd', epsilon))
  assert right > _NUM_RUNS / 4
  assert _p_value(right, _ceiling(epsilon)) > _SIGNIFICANCE
  assert _p_value(right, _sharp_ceiling(epsilon)) > _SIGNIFICANCE


@pytest.mark.slow
@pytest.mark.parametrize('budget, ceiling', [(1.1, _ceiling(1.0)),
                                             (4.1, _sharp_ceiling(4.0))])
def test_too_little_noise_is_above_the_ceiling(networks, budget, ceiling):
  right = _right(networks[budget], _start('dp_sgd', budget))
  assert _p_value(right, ceiling) < _SIGNIFICANCE


@pytest.mark.slow
def test_epsilon_is_of_replaced_records(networks):
  """Epsilon is that of replacements: T Gaussians of shift 2 / z each."""
  for epsilon in (1.0, 4.0):
    trained = networks[epsilon]
    shift = 2 * trained.plan.num_steps**0.5 / trained.plan.noise_multiplier
    exact = accounting.gaussian_epsilon(shift=shift, delta=_DELTA)
    assert trained.epsilon == pytest.approx(exact, rel=1e-3)
    assert trained.epsilon == pytest.approx(epsilon, rel=1e-3)
    assert trained.plan.adjacency is Adjacency.REPLACE_ONE
    assert trained.delta == _DELTA


@pytest.mark.slow
def test_each_network_answers_for_its_own_images(networks):
  trained = networks[1.1]
  x = jax.random.normal(jax.random.key(4), (_NUM_RUNS, 3, *_SHAPE))
  logits = jax.jit(trained.paired)(x)
  assert logits.shape == (_NUM_RUNS, 3, 2)
  model = _model('dp_sgd')
  for r in (0, 1, _NUM_RUNS - 1):
    own = jax.tree.map(lambda leaf, r=r: leaf[r], trained.networks)
    np.testing.assert_allclose(logits[r], model.apply(own, x[r]), atol=1e-5)
  assert sum(leaf.size for leaf in jax.tree.leaves(own)) == trained.num_params


@pytest.mark.slow
def test_the_same_network_without_privacy_remembers():
  """Without privacy the same network remembers the record (MIA-02 c)."""
  trained, = _tossed('sgd', (math.inf,))
  assert math.isinf(trained.epsilon) and trained.delta == 0
  right = _right(trained, _start('sgd', math.inf))
  assert right > 0.95 * _NUM_RUNS / 2
  assert _p_value(right, _ceiling(1.0)) < _SIGNIFICANCE


@pytest.mark.slow
@pytest.mark.parametrize('method', ['dp_sgd', 'lip_dp_sgd'])
def test_understated_sensitivity_is_above_the_ceiling(method, monkeypatch):
  honest = private._method
  right = _right(_tossed(method, (1.0,))[0], _start(method, 1.0))
  assert _p_value(right, _sharp_ceiling(1.0)) > _SIGNIFICANCE

  def faulty(*args):
    method = honest(*args)
    bound = lambda *certificate: jax.tree.map(
        lambda leaf: leaf / 100, method.bounder.l2_sensitivity(*certificate))
    return method._replace(
        bounder=method.bounder._replace(l2_sensitivity=bound))

  monkeypatch.setattr(private, '_method', faulty)
  trained, = _tossed(method, (1.0,))
  assert trained.epsilon == pytest.approx(1.0, rel=1e-3)
  right = _right(trained, _start(method, 1.0))
  assert _p_value(right, _ceiling(1.0)) < _SIGNIFICANCE


@pytest.mark.slow
def test_a_stopped_training_is_the_start_of_a_whole_one():
  """A stopped training pays for its steps and keeps the whole schedule."""
  rows, seen = jnp.asarray([[0, 1, 2, 3, 4, 5, 6, 7]], jnp.int32), []
  trained, = _train('dp_sgd', (1.0,), _KEYS[:1], rows, stop=0.5,
                    on_progress=lambda *progress: seen.append(progress))
  assert trained.plan.num_steps == 10
  assert trained.epsilon == pytest.approx(1.0, rel=1e-3)
  assert seen[-1] == (1.0, 'dp_sgd')
  rates = []
  for steps in (10, 20):
    tx = private._optimizer(private.Recipe(num_steps=20, learning_rate=1.0))
    with jax.numpy_dtype_promotion('standard'):
      moments = tx.init(jnp.zeros(1))
      for _ in range(steps):
        update, moments = tx.update(jnp.ones(1), moments)
    rates.append(-float(update[0]))
  np.testing.assert_allclose(
      rates, [(1 + math.cos(math.pi * t / 20)) / 2 for t in (9, 19)],
      rtol=1e-3)


def test_methods_budgets_and_stops_have_keys_of_their_own():
  """Methods, budgets and stops have separate keys.

  Networks with shared noise would cancel it.
  """
  keys = jax.random.split(jax.random.key(0), 3)
  derived = [private._keys(keys, method, epsilon, stop)
             for method in private.METHODS for epsilon in (1.0, 2.0)
             for stop in (0.5, 1.0)]
  data = np.concatenate([jax.random.key_data(each) for each in derived])
  assert len(np.unique(data, axis=0)) == data.shape[0]


@pytest.mark.parametrize('name, shape, num_params', [
    ('cpu', (14, 14, 1), 25_552), ('gpu', (32, 32, 3), 282_080)])
def test_one_architecture_for_all_methods(name, shape, num_params):
  design = private.DESIGNS[name]
  for method in private.METHODS:
    recipe = design.recipes[method]
    model = private.make_model(method, design=design, recipe=recipe,
                               input_shape=shape, num_classes=10)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == num_params
    built = private._method(method, recipe, model)
    assert built.private == (method != 'sgd')


@pytest.mark.every(3)
@pytest.mark.parametrize('changed, message', [
    (dict(method='adam'), 'method must be'),
    (dict(epsilons=()), 'epsilons'),
    (dict(epsilons=(math.inf,)), r'epsilons are \(inf,\) for sgd'),
    (dict(method='sgd'), r'epsilons are \(inf,\) for sgd'),
    (dict(rows=jnp.zeros((2, 8), jnp.int32)), r'rows must be \[1, n\]'),
    (dict(stop=0.0), 'stop must lie in'),
    (dict(epsilons=(1.0, -1.0)), 'epsilon must be'),
])
def test_bad_input_is_one_line(changed, message):
  asked = dict(method='dp_sgd', epsilons=(1.0,), keys=_KEYS[:1],
               rows=jnp.zeros((1, 8), jnp.int32)) | changed
  with pytest.raises(ValueError, match=message) as refused:
    _train(**asked)
  assert '\n' not in str(refused.value)
