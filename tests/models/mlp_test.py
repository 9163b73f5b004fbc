"""Tests the perceptron NET-09 against NumPy, and its certified layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import tree
from dpjax.grads import ball
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import primitives
from dpjax.lipschitz import projection
from dpjax.models import mlp
from dpjax.models import model as models

ACTIVATIONS = {'relu': lambda x: np.maximum(x, 0), 'tanh': np.tanh,
               'sigmoid': lambda x: 1 / (1 + np.exp(-x)),
               'maxmin': lambda x: np.concatenate([
                 reduce(np.split(x, 2, 1), 0) for reduce in (np.max, np.min)],
                                                  1)}
# Lowest values of activations that are clipped to stay in a ball.
LOWEST = {'relu': 0, 'maxmin': -1}


def _forward(params, x, *, activation, radii=None):
  """Returns the input of every layer and the logits, in float64."""
  x, inputs = np.asarray(x, np.float64), []
  for index, name in enumerate(sorted(params)):
    if index > 0:
      cap = 1 if radii is None else radii[index] / x.shape[1]**0.5
      x = x / cap
      if radii is not None and activation in LOWEST:
        x = np.clip(x, LOWEST[activation], 1)
      x = cap * ACTIVATIONS[activation](x)
    elif radii is not None:
      norms = np.linalg.norm(x, axis=1, keepdims=True)
      x = x * np.minimum(1, radii[index] / np.maximum(norms, 1e-300))
    inputs.append(x)
    x = x @ np.float64(params[name]['kernel']) + np.float64(
      params[name]['bias'])
  return inputs, x


def _random_params(model, scale=1.):
  rng = np.random.default_rng(0)
  return jax.tree.map(lambda leaf: jnp.asarray(
    rng.normal(size=leaf.shape) * scale, jnp.float32),
    model.init(jax.random.key(0)))


def test_every_activation_has_a_version_in_numpy():
  assert ACTIVATIONS.keys() == set(pointwise.ACTIVATIONS)


@pytest.mark.parametrize('sizes, expected', [
  ([20, 6, 2], 140), ([20, 2], 42), ([8, 7, 7, 5], 159), ([3, 1, 1, 1, 2], 12)])
def test_parameter_count(sizes, expected):
  model = mlp.mlp(num_features=sizes[0], num_classes=sizes[-1],
                  depth=len(sizes) - 2, width=sizes[1])
  params = jax.eval_shape(model.init, jax.random.key(0))
  assert tree.count(params) == expected
  assert expected == sum((a + 1) * b for a, b in zip(sizes, sizes[1:]))


@pytest.mark.every(3)
@pytest.mark.parametrize('activation', sorted(ACTIVATIONS))
@pytest.mark.parametrize('depth, radii', [
  (0, None), (2, None), (0, (1.2,)), (3, (1.2, 0.7, 0.7, 0.7))])
def test_equals_a_forward_pass_by_hand(activation, depth, radii):
  model = mlp.mlp(
    num_features=5, num_classes=3, depth=depth, width=4,
    activation=activation, input_radius=radii and radii[0],
    hidden_radius=radii and 0.7)
  params = _random_params(model)
  x = np.random.default_rng(1).normal(size=(20, 5)) * np.logspace(
    -2, 2, 20)[:, None]
  logits = model.apply(params, jnp.asarray(x, jnp.float32))
  assert logits.shape == (20, 3) and logits.dtype == jnp.float32
  _, expected = _forward(params, x, activation=activation, radii=radii)
  np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_large_radii_are_no_radii():
  shape = dict(num_features=4, num_classes=2, depth=2, width=5,
               activation='relu')
  plain = mlp.mlp(**shape)
  bounded = mlp.mlp(**shape, input_radius=1e9, hidden_radius=1e9)
  params = _random_params(plain)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(9, 4)), jnp.float32)
  np.testing.assert_allclose(plain.apply(params, x), bounded.apply(params, x),
                             rtol=1e-5)


@pytest.mark.slow
def test_layers_are_named_from_input_to_output():
  model = mlp.mlp(num_features=4, num_classes=2, depth=11, width=3,
                  activation='sigmoid', input_radius=2., hidden_radius=0.5)
  params = model.init(jax.random.key(0))
  names = sorted(params)
  assert len(names) == 12
  assert params[names[0]]['kernel'].shape == (4, 3)
  assert params[names[-1]]['kernel'].shape == (3, 2)
  bounds = model.network.gradient_bounds(model.network.fill(2.),
                                         loss_lipschitz=1.)
  for index, name in enumerate(names):
    radius = 2. if index == 0 else 0.5
    assert bounds[name] == pytest.approx(
      (2. * 0.25)**(11 - index) * (radius**2 + 1)**0.5, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize('activation', sorted(ACTIVATIONS))
def test_inputs_of_layers_keep_their_radii(activation, monkeypatch):
  """Inputs of all layers keep their radii, for hostile records and weights."""
  model = mlp.mlp(num_features=4, num_classes=2, depth=2, width=6,
                  activation=activation, input_radius=1.5, hidden_radius=0.4)
  params = _random_params(model, scale=30.)
  rng = np.random.default_rng(2)
  x = rng.normal(size=(200, 4)) * np.logspace(-6, 37, 200)[:, None]
  seen = []
  honest = primitives.dense

  def spying(inputs, kernel, bias, rule):
    seen.append(np.linalg.norm(np.float64(inputs), axis=1).max())
    return honest(inputs, kernel, bias, rule)

  monkeypatch.setattr(primitives, 'dense', spying)
  logits = model.apply(params, jnp.asarray(x, jnp.float32))
  assert np.all(np.isfinite(logits)) and len(seen) == 3
  radii = [1.5, 0.4, 0.4]
  for norm, radius in zip(seen, radii, strict=True):
    assert norm <= radius * (1 + 1e-6)
  # All radii are nearly attained (a unit that is off is missing).
  assert seen[0] == pytest.approx(radii[0], rel=1e-5)
  assert np.min(np.array(seen) / radii) > 0.8


def test_prepared_records_give_the_same_logits():
  model = mlp.mlp(num_features=4, num_classes=3, depth=1, width=5,
                  input_radius=1., hidden_radius=1.)
  params = _random_params(model)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)
  np.testing.assert_array_equal(model.apply(params, x),
                                model.apply(params, model.prepare(x)))
  # Records of a larger ball are projected again.
  np.testing.assert_allclose(
    model.apply(params, x),
    model.apply(params, ball.project_records(x, 1.5)), rtol=1e-5, atol=1e-6)
  plain = mlp.mlp(num_features=4, num_classes=3)
  assert plain.prepare(x) is x


@pytest.mark.every(2)
@pytest.mark.parametrize('weight_norm', [0.5, 1e6])
def test_kernels_that_are_functions_of_parameters(weight_norm):
  """Standardised kernels match hand computations and keep the norm bound."""
  plain = mlp.mlp(num_features=4, num_classes=3, depth=1, width=5)
  reparametrised = models.reparametrised(plain, 'standardised',
                                         weight_norm=weight_norm)
  params = _random_params(plain)
  weights, certificate = reparametrised.effective(params)
  for name, layer in params.items():
    kernel = np.float64(layer['kernel'])
    kernel = (kernel - kernel.mean(0)) / kernel.std(0) / len(kernel)**0.5
    norm = np.linalg.norm(kernel, 2)
    kernel *= min(1, weight_norm / norm)
    np.testing.assert_allclose(weights[name]['kernel'], kernel, rtol=0.02)
    assert certificate[name] <= weight_norm * (1 + 1e-6)
    assert np.linalg.norm(np.float64(weights[name]['kernel']), 2) <= (
      certificate[name] * (1 + 1e-6))
    np.testing.assert_array_equal(weights[name]['bias'], layer['bias'])
  x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)
  np.testing.assert_array_equal(reparametrised.apply(params, x),
                                plain.apply(weights, x))
  assert reparametrised.network is plain.network
  with pytest.raises(ValueError, match='kernel_map must be one of'):
    models.reparametrised(plain, 'whitened', weight_norm=1.)


def test_records_do_not_meet():
  model = mlp.mlp(num_features=4, num_classes=3, depth=1, width=5,
                  input_radius=1., hidden_radius=1.)
  params = _random_params(model)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)
  first = model.apply(params, x)
  other = model.apply(params, (x * 100).at[3].set(x[3]))
  np.testing.assert_array_equal(first[3], other[3])


@pytest.mark.every(2)
def test_key_decides_the_start():
  model = mlp.mlp(num_features=4, num_classes=2)
  first, again, other = (model.init(jax.random.key(seed))
                         for seed in (0, 0, 1))
  jax.tree.map(np.testing.assert_array_equal, first, again)
  assert not np.array_equal(first['dense_00']['kernel'],
                            other['dense_00']['kernel'])
  assert not np.any(first['dense_00']['bias'])


@pytest.mark.parametrize('changes, message', [
  ({'num_features': 0}, 'num_features must be an integer >= 1, got 0'),
  ({'num_classes': 0}, 'num_classes must be an integer >= 1, got 0'),
  ({'depth': -1}, 'depth must be an integer >= 0, got -1'),
  ({'width': 0}, 'width must be an integer >= 1, got 0'),
  ({'activation': 'gelu'}, "activation must be one of .*; got 'gelu'"),
  ({'hidden_radius': 1.}, 'hidden_radius needs input_radius'),
  ({'input_radius': 0., 'hidden_radius': 1.}, 'input_radius must be a posit'),
  ({'input_radius': 1., 'hidden_radius': -1.}, 'hidden_radius must be a po')])
def test_errors(changes, message):
  with pytest.raises(ValueError, match=message):
    mlp.mlp(**{'num_features': 3, 'num_classes': 2, **changes})


def _gradient_norms(model, params, record, label):
  """Returns the norms of a record's gradients by layer, and the cotangent's."""
  def loss(params):
    logits = model.apply(params, record[None])
    return -jax.nn.log_softmax(logits)[0, label], logits

  gradients, logits = jax.grad(loss, has_aux=True)(params)
  cotangent = jax.nn.softmax(logits[0]) - jax.nn.one_hot(label, logits.shape[1])
  return (jax.tree.map(jnp.linalg.norm, gradients),
          float(jnp.linalg.norm(cotangent)))


@pytest.mark.parametrize('depth', [1, 4, 16])
def test_orthogonal_networks_attain_their_bounds(depth):
  """Gradients of all layers have the norm of their bound, at every depth."""
  model = mlp.orthogonal(num_features=5, num_classes=2, depth=depth, width=8)
  params = model.init(jax.random.key(1))
  head = f'dense_{depth:02d}'
  # Both classes see the same hidden unit, with opposite signs.
  params[head] = {'kernel': jnp.zeros([8, 2]).at[3].set(jnp.float32([2, -2]))}
  record = jax.random.normal(jax.random.key(2), [5])
  record /= jnp.linalg.norm(record)
  norms, cotangent = _gradient_norms(model, params, record, 0)
  certificate = {**model.network.fill(1.0), head: np.sqrt(8)}
  bounds = model.network.gradient_bounds(certificate, loss_lipschitz=cotangent)
  for name, bound in bounds.items():
    assert float(norms[name]['kernel']) == pytest.approx(bound, rel=1e-4), name


def test_a_share_keeps_deep_networks_near_shallow_ones():
  shape = dict(num_features=5, num_classes=2, width=8)
  deep = mlp.orthogonal(**shape, depth=9, share=0.01)
  bounds = deep.network.gradient_bounds(deep.network.fill(1.0),
                                        loss_lipschitz=1.0)
  blocks = [bound['branch'][f'dense_{number:02d}'] for number, bound in (
      (int(name[-2:]), bound) for name, bound in bounds.items()
      if name.startswith('block'))]
  assert len(blocks) == 8
  np.testing.assert_allclose(blocks, 0.01, rtol=1e-5)
  params = deep.init(jax.random.key(1))
  x = jax.random.normal(jax.random.key(2), [20, 5])
  x /= jnp.linalg.norm(x, axis=1, keepdims=True)
  shallow = mlp.orthogonal(**shape, depth=1)
  same = {'dense_00': params['dense_00'], 'dense_01': params['dense_09']}
  gap = jnp.abs(deep.apply(params, x) - shallow.apply(same, x)).max()
  assert 0 < float(gap) < 0.2
  with pytest.raises(ValueError, match='share'):
    mlp.orthogonal(**shape, depth=2, share=1.0)


def test_no_norm_of_an_orthogonal_network_is_left_uncertified():
  """The bound of the head reads the norms of all layers before it."""
  network = mlp.orthogonal(num_features=5, num_classes=2, depth=3, width=8,
                           share=0.1).network
  free = projection.unread(lambda certificate: network.gradient_bounds(
      certificate, loss_lipschitz=1.0), network.fill(1.0))
  assert not any(jax.tree.leaves(free))
