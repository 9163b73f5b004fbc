"""These tests compare discriminators with a loop, each problem by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax import tree
from experiments.methods.attacks import discriminators
from experiments.methods.attacks.discriminators import Recipe

_KEY = jax.random.key(0)
# A network trained at the first rate stays where it started.
_RATES = (1e-12, 1e-2, 3e-2)


@pytest.mark.slow
@pytest.mark.parametrize('widths, count', list(zip(
    Recipe().hidden_widths, (961, 1891, 23401), strict=True)))
def test_parameter_counts_and_starts(widths, count):
  params = discriminators.init(_KEY, 30, widths)
  assert tree.count(params) == count
  for (kernel, bias), fan_in in zip(params, (30, *widths), strict=True):
    assert kernel.shape[0] == fan_in
    most = max(float(jnp.abs(leaf).max()) for leaf in (kernel, bias))
    assert .9 * fan_in**-.5 < most <= fan_in**-.5


def test_an_epoch_sees_no_record_twice():
  rows = np.asarray(discriminators.batches(_KEY, 10, 4))
  assert rows.shape == (2, 4) and len(set(rows.ravel())) == 8
  assert set(discriminators.batches(_KEY, 10, 5).ravel().tolist()) == set(
      range(10))
  assert discriminators.batches(_KEY, 10, 100).shape == (1, 10)
  assert not np.array_equal(
      rows, discriminators.batches(jax.random.key(1), 10, 4))


def _plain(start, x, labels, *, rate, num_steps):
  """Returns the result of full-batch Adam and the loss before every step."""
  optimizer = optax.adam(rate)
  state, losses = optimizer.init(start), []

  def loss(params):
    p = jax.nn.sigmoid(discriminators.apply(params, x))
    return -jnp.mean(jnp.where(labels, jnp.log(p), jnp.log(1 - p)))

  for _ in range(num_steps):
    value, gradient = jax.value_and_grad(loss)(start)
    losses.append(float(value))
    with jax.numpy_dtype_promotion('standard'):
      change, state = optimizer.update(gradient, state)
    start = optax.apply_updates(start, change)
  return start, losses


@pytest.fixture(name='problems', scope='module')
def _problems():
  keys = jax.random.split(jax.random.key(3), 3)
  features = 5 + 3 * jax.random.normal(keys[0], (3, 12, 4))
  # A constant feature has no deviation to be divided by; what was fitted to
  # the third problem would be visible in its own mean.
  features = features.at[:, :, 1].set(7.0).at[2].multiply(10.0)
  members = jax.random.bernoulli(keys[1], .5, (3, 12))
  recipe = Recipe(hidden_widths=((5,), (6, 3)), learning_rates=_RATES,
                  num_epochs=4)
  return features, members, recipe, discriminators.fit(
      keys[2], features, members, recipe)


@pytest.mark.slow
@pytest.mark.parametrize('problem, architecture, rate', [
    (0, 0, 1), (0, 1, 2), (2, 0, 2), (2, 1, 1)])
def test_training_is_that_of_a_plain_loop(problems, problem, architecture,
                                          rate):
  features, members, recipe, fitted = problems
  x = np.asarray(features[problem], np.float64)
  deviation = np.where(x.std(0) > 1e-6, x.std(0), 1)
  x = jnp.asarray((x - x.mean(0)) / deviation, jnp.float32)
  start, trained = (jax.tree.map(lambda leaf: leaf[problem, place],
                                 fitted.params[architecture])
                    for place in (0, rate))
  expected, losses = _plain(start, x, members[problem], rate=_RATES[rate],
                            num_steps=4)
  # Adam divides by root mean squares of gradients, and some are tiny.
  jax.tree.map(lambda a, b: np.testing.assert_allclose(
      a, b, atol=.05 * _RATES[rate]), trained, expected)
  place = architecture * len(_RATES) + rate
  np.testing.assert_allclose(fitted.losses[problem, place], losses, rtol=1e-4)
  logits = fitted.logits(features)
  assert logits.shape == (3, recipe.num_discriminators, 12)
  np.testing.assert_allclose(
      logits[problem, place], discriminators.apply(expected, x), atol=5e-3)


@pytest.mark.every(5)
def test_problems_start_apart_and_none_sees_another(problems):
  features, members, recipe, fitted = problems
  kernel = fitted.params[0][0][0]
  assert np.abs(kernel[0, 0] - kernel[1, 0]).min() > 1e-6
  assert recipe.num_discriminators == 6
  losses = np.asarray(fitted.losses).reshape(3, 2, 3, 4)[:, :, 1:]
  assert np.all(losses[..., -1] < losses[..., 0])
  other = discriminators.fit(_KEY, features, members, recipe)
  changed = discriminators.fit(_KEY, features.at[1].add(1e3 * jnp.eye(12, 4)),
                               members.at[1].set(True), recipe)
  same = np.isclose(other.logits(features), changed.logits(features))
  assert same[0].all() and same[2].all() and not same[1].all()


@pytest.mark.slow
def test_every_batch_is_a_step():
  # All records are alike, so that all batches are; 10 of them make two.
  recipe = Recipe(hidden_widths=((),), learning_rates=_RATES, num_epochs=3,
                  batch_size=4)
  fitted = discriminators.fit(_KEY, jnp.ones([1, 10, 2]),
                              jnp.ones([1, 10], bool), recipe)
  start, trained = (jax.tree.map(lambda leaf: leaf[0, place], fitted.params[0])
                    for place in (0, 2))
  expected, losses = _plain(start, jnp.zeros([4, 2]), jnp.ones(4, bool),
                            rate=_RATES[2], num_steps=6)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4),
               trained, expected)
  np.testing.assert_allclose(fitted.losses[0, 2],
                             np.reshape(losses, (3, 2)).mean(1), rtol=1e-4)


@pytest.mark.parametrize('change, message', [
    (dict(hidden_widths=()), '^number of architectures must be an integer'),
    (dict(hidden_widths=((3, 0),)), '^hidden width must be an integer >= 1'),
    (dict(learning_rates=()), '^number of learning rates must be an integer'),
    (dict(learning_rates=(0.0,)), '^learning rate must be a positive'),
    (dict(num_epochs=0), '^num_epochs must be an integer >= 1'),
    (dict(batch_size=0), '^batch_size must be an integer >= 1'),
])
def test_refuses_bad_recipes(change, message):
  with pytest.raises(ValueError, match=message):
    Recipe(**change)


@pytest.mark.parametrize('shape', [(5, 2), (1, 4, 2), (1, 0, 2)])
def test_refuses_bad_shapes(shape):
  members = jnp.zeros((1, shape[-2] if shape[-2] == 0 else 5), bool)
  with pytest.raises(ValueError, match='must be'):
    discriminators.fit(_KEY, jnp.zeros(shape), members)
