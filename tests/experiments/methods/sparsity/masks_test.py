"""These tests check that masked weights stay 0 for any optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.methods.sparsity import masks

DECAY, RATE, MOMENTUM, STEPS = 0.1, 0.05, 0.9, 10


def _params():
  rng = np.random.default_rng(0)
  return {'dense': {'kernel': jnp.asarray(rng.normal(size=(4, 3)), jnp.float32),
                    'bias': jnp.asarray(rng.normal(size=3), jnp.float32)}}


def _mask(seed):
  rng = np.random.default_rng(seed)
  return {'dense': {'kernel': jnp.asarray(rng.random((4, 3)) < 0.5),
                    'bias': jnp.ones(3, bool)}}


def _loss(params, x):
  return jnp.sum(jnp.square(x @ params['dense']['kernel']
                            + params['dense']['bias'][None] - 1))


def _optimizer():
  return optax.chain(optax.add_decayed_weights(DECAY),
                     optax.sgd(RATE, momentum=MOMENTUM), masks.frozen())


X = jnp.asarray(np.random.default_rng(3).normal(size=(5, 4)), jnp.float32)


def _train(optimizer, params, state, mask):
  def step(carry, _):
    params, state = carry
    updates, state = optimizer.update(jax.grad(_loss)(params, X), state, params,
                                      mask=mask)
    return (optax.apply_updates(params, updates), state), None

  return jax.lax.scan(step, (params, state), None, length=STEPS)[0]


def _by_hand(mask):
  """Returns PyTorch's update, weight by weight, in float64."""
  names = ('kernel', 'bias')
  kept = {n: np.asarray(mask['dense'][n]) for n in names}
  params = {n: np.where(kept[n], np.asarray(_params()['dense'][n], np.float64),
                        0) for n in names}
  buffers = {n: np.zeros_like(params[n]) for n in names}
  x = np.asarray(X, np.float64)
  for _ in range(STEPS):
    residual = 2 * (x @ params['kernel'] + params['bias'] - 1)
    gradients = {'kernel': x.T @ residual, 'bias': residual.sum(0)}
    for n in names:
      buffers[n] = MOMENTUM * buffers[n] + gradients[n] + DECAY * params[n]
      params[n] = params[n] - RATE * buffers[n] * kept[n]
  return params


@pytest.mark.every(2)
def test_masked_weights_stay_zero_and_others_train_as_by_hand():
  """Masked weights stay zero and others train as by hand, in one program.

  The optimiser has momentum and weight decay.
  """
  optimizer, traced = _optimizer(), []

  def train(params, mask):
    traced.append(1)
    params = masks.apply(params, mask)
    return _train(optimizer, params, optimizer.init(params), mask)[0]

  compiled = jax.jit(train)
  for seed in (1, 2):
    mask = _mask(seed)
    trained = compiled(_params(), mask)['dense']
    wanted = _by_hand(mask)
    masked = ~np.asarray(mask['dense']['kernel'])
    assert 3 < masked.sum() < 9
    np.testing.assert_array_equal(np.asarray(trained['kernel'])[masked], 0)
    for name in ('kernel', 'bias'):
      np.testing.assert_allclose(trained[name], wanted[name], rtol=1e-4,
                                 atol=1e-5)
  assert len(traced) == 1
  gradient = jax.grad(_loss)(masks.apply(_params(), mask), X)
  assert np.all(np.asarray(gradient['dense']['kernel'])[masked] != 0)


@pytest.mark.parametrize('last', [True, False])
def test_momentum_of_before_the_pruning_moves_nothing_if_it_is_last(last):
  """Freezing last stops old momentum; freezing first lets it through."""
  parts = (optax.sgd(RATE, momentum=MOMENTUM), masks.frozen())
  optimizer = optax.chain(*(parts if last else parts[::-1]))
  train = jax.jit(lambda *args: _train(optimizer, *args))
  params, every = _params(), masks.ones_like(_params())
  params, state = train(params, optimizer.init(params), every)
  mask = _mask(1)
  params, _ = train(masks.apply(params, mask), state, mask)
  masked = ~np.asarray(mask['dense']['kernel'])
  moved = np.asarray(params['dense']['kernel'])[masked]
  assert np.all(moved == 0) if last else np.all(moved != 0)


def test_what_is_masked_is_plus_zero_whatever_it_was():
  values = {'a': jnp.array([jnp.nan, jnp.inf, -1.0, -2.0])}
  masked = masks.apply(values, {'a': jnp.array([False, False, False, True])})
  np.testing.assert_array_equal(masked['a'], [0, 0, 0, -2])
  assert not np.any(np.signbit(masked['a'][:3]))


def test_counts_and_fractions_of_packs():
  pack = {'a': jnp.array([[True, True, False], [False, False, False]]),
          'b': jnp.array([[[True], [False]], [[True], [True]]])}
  np.testing.assert_array_equal(jax.vmap(masks.count)(pack), [3, 2])
  np.testing.assert_allclose(jax.vmap(masks.fraction)(pack), [0.6, 0.4])
  every = masks.ones_like({'a': jnp.zeros(7), 'b': jnp.zeros((2, 3))})
  assert int(masks.count(every)) == 13 and float(masks.fraction(every)) == 1


def test_counts_are_of_32_bits_whatever_the_mode():
  with jax.enable_x64(True):
    count = masks.count({'a': jnp.ones(3, bool), 'b': jnp.ones(2, bool)})
  assert count.dtype == jnp.int32 and int(count) == 5


def test_nested_is_inclusion_leaf_by_leaf():
  small, large = ({'a': jnp.array([False, True]), 'b': jnp.array([kept])}
                  for kept in (False, True))
  other = {'a': jnp.array([True, False]), 'b': jnp.array([True])}
  holds = lambda inner, outer: bool(masks.nested(inner, outer))
  assert holds(small, large) and holds(small, small)
  assert not holds(large, small)
  assert not holds(small, other) and not holds(other, small)


@pytest.mark.parametrize('mask', [
    {'a': jnp.ones(3, bool)}, {'a': jnp.ones((2, 3))},
    {'b': jnp.ones((2, 3), bool)}])
def test_refuses_what_is_no_mask(mask):
  """Masks of the wrong shape, dtype or names are refused."""
  with pytest.raises(ValueError, match='a mask'):
    masks.apply({'a': jnp.zeros((2, 3))}, mask)
