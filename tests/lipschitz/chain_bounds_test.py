"""These tests compare chain bounds with search and hand-made networks.

They cover item LIP-03 and errata E3 and E6.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import losses
from dpjax.lipschitz import projection
from dpjax.models import mlp
from dpjax.typing import Batch

# The privatizer rounds its noise up by this much, as bounds are float32.
ROUNDING = 4e-6
LOSS = losses.cross_entropy()


class Layer(NamedTuple):
  """Holds what the chain formula needs of a dense layer, written by hand."""
  name: str
  input_radius: float
  lipschitz_after: float


def _layers(depth, *, input_radius, hidden_radius, activation):
  constant = {'relu': 1., 'tanh': 1., 'sigmoid': 0.25}[activation]
  radii = [input_radius] + [hidden_radius] * depth
  return tuple(Layer(f'dense_{k:02d}', radius, constant if k < depth else 1.)
               for k, radius in enumerate(radii))


def _network_bounds(layers, norms, *, loss_lipschitz):
  """Returns the library's bounds of the network that `layers` describe."""
  activation = {1.: 'relu', 0.25: 'sigmoid'}[layers[0].lipschitz_after]
  network = mlp.mlp(
    num_features=1, num_classes=2, depth=len(layers) - 1, width=1,
    activation=activation, input_radius=layers[0].input_radius,
    hidden_radius=layers[-1].input_radius).network
  return network.gradient_bounds(norms, loss_lipschitz=loss_lipschitz)


def _layer_norms(model, loss=LOSS):
  """Returns a function (params, x [b, p], y [b]) -> gradient norms [b, K]."""
  honest = lipschitz_bounder.certified(model.network, loss, weight_norm=2.)

  def of_one(params, x, y):
    total = honest.sums(params, Batch(x[None], y[None]),
                        jnp.ones([1], jnp.bool_)).total
    squares = [sum(jnp.sum(jnp.square(leaf)) for leaf in total[name].values())
               for name in sorted(total)]
    return jnp.sqrt(jnp.stack(squares))

  return jax.vmap(of_one, (None, 0, 0))


def _by_hand(layers, norms, *, loss_lipschitz, first=1, bias=1,
             activations=True):
  """Returns the bounds of a chain in float64, straight from the formula.

  Args:
    layers: of the chain.
    norms: likewise.
    loss_lipschitz: likewise.
    first: the product runs over layers >= k + `first`; 1 is right.
    bias: what is added to the squared radius; 1 is right.
    activations: whether their constants enter.
  """
  bounds = {}
  for k, layer in enumerate(layers):
    bound = loss_lipschitz * math.sqrt(layer.input_radius**2 + bias)
    for later in layers[k + first:]:
      bound *= float(norms[later.name])
    for later in layers[k:] if activations else []:
      bound *= later.lipschitz_after
    bounds[layer.name] = bound
  return bounds


def _attaining(depth, weight_norm, activation):
  """Returns a network of width 1 and a record
  whose gradient attains all bounds.

  Every hidden value sits just inside its ball at the steepest slope of the
  activation before it, every weight has norm `weight_norm`, and the logits are
  wrong beyond doubt.
  """
  # The sigmoid is steepest at half its radius; a tiny ball makes no difference.
  radius = {'relu': 3., 'sigmoid': 0.01}[activation]
  model = mlp.mlp(num_features=1, num_classes=2, depth=depth, width=1,
                  activation=activation, input_radius=2.,
                  hidden_radius=radius)
  params, value = {}, 2. * (1 - 1e-6)
  for index in range(depth):
    target = radius * (1 - 1e-6) if activation == 'relu' else 0.
    params[f'dense_{index:02d}'] = {
      'kernel': jnp.full([1, 1], weight_norm, jnp.float32),
      'bias': jnp.full([1], target - weight_norm * value, jnp.float32)}
    value = target if activation == 'relu' else radius / 2
  row = weight_norm / math.sqrt(2)
  params[f'dense_{depth:02d}'] = {
    'kernel': jnp.asarray([[row, -row]], jnp.float32),
    'bias': jnp.asarray([60., -60.], jnp.float32)}
  layers = _layers(depth, input_radius=2., hidden_radius=radius,
                   activation=activation)
  return model, layers, params, jnp.full([1, 1], 2. * (1 - 1e-6)), jnp.ones(
    [1], jnp.int32)


def _exact_norms(params):
  return {name: np.linalg.norm(np.float64(layer['kernel']), 2)
          for name, layer in params.items()}


@pytest.fixture(name='attained', scope='module')
def _attained():
  """Returns (layers, weight norms, gradient
  norms) of each attaining network."""
  examples = []
  for depth, activation in ((0, 'relu'), (1, 'sigmoid'), (2, 'relu'),
                            (4, 'relu')):
    for weight_norm in (0.5, 2.):
      model, layers, params, x, y = _attaining(depth, weight_norm, activation)
      gradients = jax.jit(_layer_norms(model))(params, x, y)
      examples.append((layers, _exact_norms(params), gradients[0]))
  return examples


def check_sound(bound_of, attained):
  """Checks that no gradient is longer than its bound."""
  for layers, norms, gradients in attained:
    limits = bound_of(layers, norms, loss_lipschitz=LOSS.lipschitz)
    for layer, gradient in zip(layers, gradients, strict=True):
      assert float(gradient) <= float(limits[layer.name]) * (1 + ROUNDING)


def check_tight(bound_of, attained):
  """Checks that the gradient of each hand-made network attains its bound."""
  for layers, norms, gradients in attained:
    limits = bound_of(layers, norms, loss_lipschitz=LOSS.lipschitz)
    for layer, gradient in zip(layers, gradients, strict=True):
      assert float(gradient) >= float(limits[layer.name]) * (1 - 1e-3)


@pytest.mark.every(2)
def test_formula(attained):
  for layers, norms, _ in attained:
    bounds = _network_bounds(layers, norms, loss_lipschitz=0.7)
    expected = _by_hand(layers, norms, loss_lipschitz=0.7)
    assert set(bounds) == set(expected)
    for name, value in expected.items():
      assert float(bounds[name]) == pytest.approx(value, rel=1e-6)


@pytest.mark.every(2)
def test_bounds_are_attained_but_not_exceeded(attained):
  check_sound(_network_bounds, attained)
  check_tight(_network_bounds, attained)


def _random_params(model, rng):
  """Returns weights and biases of random scales."""
  params = jax.eval_shape(model.init, jax.random.key(0))
  draw = lambda leaf: jnp.asarray(
    rng.normal(size=leaf.shape) * 10**rng.uniform(-1.5, 1), jnp.float32)
  return jax.tree.map(draw, params)


@pytest.mark.every(3)
@pytest.mark.parametrize('depth, activation', [
  (0, 'tanh'), (1, 'tanh'), (2, 'relu'), (3, 'sigmoid'), (4, 'tanh')])
def test_search_never_exceeds_the_bound(depth, activation):
  model = mlp.mlp(num_features=5, num_classes=3, depth=depth, width=6,
                  activation=activation, input_radius=1.5, hidden_radius=0.8)
  constrain = jax.jit(
    projection.clip_weights(model.network, weight_norm=1.3).constrain)
  lengths = _layer_norms(model)

  @jax.jit
  def climb(params, x, y, rate):
    """Returns gradient norms after ascent on the sum of their logarithms."""
    def objective(x):
      return jnp.sum(jnp.log(lengths(params, x, y) + 1e-9))

    def turn(x, _):
      slope = jax.grad(objective)(x)
      size = jnp.linalg.norm(slope, axis=1, keepdims=True)
      return x + rate * slope / (size + 1e-9), None

    return lengths(params, jax.lax.scan(turn, x, length=25)[0], y)

  rng = np.random.default_rng(depth)
  y = jnp.asarray(np.arange(48) % 3, jnp.int32)
  worst = 0.
  for _ in range(6):
    params, certificate = constrain(_random_params(model, rng))
    limits = model.network.gradient_bounds(certificate,
                                           loss_lipschitz=LOSS.lipschitz)
    limits = np.array([float(limits[name]) for name in sorted(limits)])
    x = rng.normal(size=(48, 5)) * np.logspace(-3, 3, 48)[:, None]
    x = jnp.asarray(x, jnp.float32)
    huge = x * 1e25 / jnp.linalg.norm(x, axis=1, keepdims=True)
    for start, rate in ((x, 0.), (huge, 0.), (1e-3 * x, 0.1)):
      ratio = np.max(np.asarray(climb(params, start, y, rate)) / limits)
      assert ratio <= 1 + ROUNDING
      worst = max(worst, ratio)
  # The search is not idle: some gradient comes near its bound.
  assert worst > 0.3


def test_adding_a_record_moves_each_block_by_at_most_its_bound():
  model = mlp.mlp(num_features=4, num_classes=2, depth=1, width=5,
                  input_radius=1., hidden_radius=1.)
  constrain = projection.clip_weights(model.network, weight_norm=1.).constrain
  params, certificate = jax.jit(constrain)(
    _random_params(model, np.random.default_rng(3)))
  honest = lipschitz_bounder.certified(model.network, LOSS, weight_norm=1.)
  limits = honest.l2_sensitivity(certificate)
  rng = np.random.default_rng(0)
  x = rng.normal(size=(20, 4)) * np.logspace(-2, 30, 20)[:, None]
  batch = Batch(jnp.asarray(x, jnp.float32),
                jnp.asarray(rng.integers(0, 2, 20), jnp.int32))
  sums = jax.jit(lambda mask: honest.sums(params, batch, mask).total)
  for index in range(20):
    without = rng.random(20) < 0.5
    without[index] = False
    added = without.copy()
    added[index] = True
    before, after = sums(jnp.asarray(without)), sums(jnp.asarray(added))
    for name, limit in limits.items():
      distance = np.sqrt(sum(
        np.sum((np.float64(after[name][leaf]) - before[name][leaf])**2)
        for leaf in ('kernel', 'bias')))
      # These are float32 sums of 20 terms.
      assert distance <= float(limit) * (1 + 2e-5)


@pytest.mark.every(2)
def test_dense_layer_jacobian_counts_the_bias():
  model = mlp.mlp(num_features=3, num_classes=2, depth=0)
  params = model.init(jax.random.key(0))
  rng = np.random.default_rng(0)
  for scale in (0., 0.1, 1., 20.):
    x = jnp.asarray(rng.normal(size=(1, 3)) * scale, jnp.float32)
    jacobian = jax.jacrev(lambda p, x=x: model.apply(p, x)[0])(params)
    matrix = np.concatenate([np.float64(leaf).reshape(2, -1)
                             for leaf in jax.tree.leaves(jacobian)], 1)
    norm = np.linalg.norm(np.float64(x))
    assert np.linalg.norm(matrix, 2) == pytest.approx(
      math.sqrt(norm**2 + 1), rel=1e-6)


# Each planted fault must fail the check that guards its direction.


@pytest.mark.parametrize('fault', [
  {'first': 0}, {'first': 2}, {'bias': 0}])
def test_fault_unsound(attained, fault):
  """A bound fails with the own layer (E3), a factor missing or no bias (E6).

  Below weight norm 1 the first is too small, above it the second.
  """
  wrong = lambda *args, **kwargs: _by_hand(*args, **kwargs, **fault)
  check_sound(_by_hand, attained)
  with pytest.raises(AssertionError):
    check_sound(wrong, attained)


@pytest.mark.parametrize('fault', [
  {'first': 0}, {'first': 2}, {'activations': False}, {'bias': 2}])
def test_fault_loose(attained, fault):
  wrong = lambda *args, **kwargs: _by_hand(*args, **kwargs, **fault)
  check_tight(_by_hand, attained)
  with pytest.raises(AssertionError):
    check_tight(wrong, attained)


def test_fault_no_bias_at_the_origin():
  model = mlp.mlp(num_features=3, num_classes=2, depth=0, input_radius=1e-3,
                  hidden_radius=1.)
  params = {'dense_00': {'kernel': jnp.ones([3, 2]),
                         'bias': jnp.asarray([60., -60.])}}
  gradient = jax.jit(_layer_norms(model))(params, jnp.zeros([1, 3]),
                                          jnp.ones([1], jnp.int32))
  layers = _layers(0, input_radius=1e-3, hidden_radius=1., activation='relu')
  case = [(layers, _exact_norms(params), gradient[0])]
  check_sound(_network_bounds, case)
  with pytest.raises(AssertionError):
    check_sound(lambda *args, **kwargs: _by_hand(*args, **kwargs, bias=0),
                case)
