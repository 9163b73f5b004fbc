"""These tests check whole networks: bounds, residual sums and refusals."""

import dataclasses
import functools
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz import projection
from dpjax.lipschitz import rules
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.node import UnknownConstant
from dpjax.lipschitz.residual import Residual
from tests.lipschitz.gradient_norms import dig
from tests.lipschitz.gradient_norms import lengths_of
from tests.lipschitz.gradient_norms import LOSS
from tests.lipschitz.gradient_norms import paths_of

ROUNDING = 1e-5
CONV = functools.partial(layers.Conv, bias_norm=0.3)
DENSE = functools.partial(layers.Dense, bias_norm=0.3)


def _chain(name, *nodes):
  return Chain(name=name, nodes=nodes)


def _residual(name, *branch, shortcut=(), averaged=False):
  return Residual(name=name, branch=_chain('branch', *branch),
                  shortcut=_chain('shortcut', *shortcut),
                  share=0.5 if averaged else None)


def _network(shape, *nodes, input_radius=1.5):
  return Network(root=_chain('root', *nodes), input_shape=shape,
                 input_radius=input_radius)


_TANH, _RELU = pointwise.activation('tanh'), pointwise.activation('relu')
_HEAD = (pooling.global_average_pool(), DENSE(name='head', width=3))


def _random_params(network, rng, scale=2.0):
  shapes = jax.eval_shape(network.init, jax.random.key(0))
  return jax.tree.map(lambda leaf: jnp.asarray(
    rng.normal(size=leaf.shape) * scale**rng.uniform(-1, 1), jnp.float32),
    shapes)


def test_propagated_norms_are_balls_that_are_idle():
  """Propagated output bounds give the bounds of idle balls (LDP-07, LDP-05)."""
  free = _network((5,), DENSE(name='a', width=6), _TANH, DENSE(name='b', width=6),
                  _RELU, DENSE(name='c', width=3))
  certificate = {name: 0.8 for name in 'abc'}
  nodes = list(free.root.nodes)
  radius, held = free.input_radius, []
  for node, shape in zip(nodes, free.root.shapes(free.input_shape)):
    held += [pointwise.Ball(name='ball', radius=float(radius)), node]
    radius = node.output_bound(certificate.get(node.name, {}), radius, shape)
  balls = _network((5,), *held)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12),
    *(network.gradient_bounds(certificate, loss_lipschitz=0.3)
      for network in (free, balls)))


def _scalar_chain(depth, **options):
  return _network((1,), *(layers.Dense(name=f'd{k}', width=1, **options)
                          for k in range(depth)), layers.Dense(
                            name='last', width=2, **options))


@pytest.mark.every(2)
@pytest.mark.parametrize('weight_norm', [0.5, 1.0, 3.0])
def test_bound_of_the_first_layer_is_a_power_of_the_norm(weight_norm):
  """The first layer's bound is tau C^(K-1)
  sqrt(B^2 + 1), not C^K (LIP-03, E3)."""
  for depth in (1, 2, 5):
    network = _scalar_chain(depth, bias_norm=1.0)
    bounds = network.gradient_bounds(network.fill(weight_norm),
                                     loss_lipschitz=0.7)
    assert bounds['d0'] == pytest.approx(
      0.7 * weight_norm**depth * math.sqrt(1.5**2 + 1), rel=1e-9)


@pytest.mark.every(2)
def test_product_from_the_layer_itself_under_noises():
  """The printed product is below a true gradient if ||W|| < 1 (E3, line 5).

  At W = 0 it adds no noise at all.
  """
  network = _network((1,), layers.Dense(name='d', width=2, use_bias=False),
                     input_radius=1.0)
  constrain = projection.clip_weights(network, weight_norm=1.0).constrain
  for size in (0.0, 0.1):
    params, certificate = constrain({'d': {'kernel': jnp.asarray(
      [[size, -size]], jnp.float32)}})
    length = float(lengths_of(network)(params, jnp.ones([1]), jnp.int32(1))[0])
    printed = LOSS.lipschitz * size * math.sqrt(2) * 1.0
    ours = network.gradient_bounds(certificate, loss_lipschitz=LOSS.lipschitz)
    assert length > 3 * printed
    assert length <= float(ours['d'])


def _blocks(count, averaged):
  return _network((2,), *(
    _residual(f'r{k}', layers.Dense(name='d', width=2, use_bias=False),
              averaged=averaged) for k in range(count)),
    layers.Dense(name='head', width=2, use_bias=False))


def test_plain_residual_sums_double_the_bound_and_averages_keep_it():
  """Plain residual sums double the bound at each block; averages keep it.

  18 plain blocks send 2^18 to the input (E12, NET-08).
  """
  for count in (1, 3, 18):
    plain, averaged = (network.gradient_bounds(
      network.fill(1.0), loss_lipschitz=1.0)['r0']['branch']['d']
      for network in (_blocks(count, False), _blocks(count, True)))
    # The first block's own parameter does not see that block's skip path.
    assert plain == pytest.approx(1.5 * 2**(count - 1))
    assert averaged == pytest.approx(1.5 / 2)
  sent = _blocks(18, False).root.backward(_blocks(18, False).fill(1.0), 1.0,
                                          1.5, (2,), None)[0]
  assert sent == 262144


@pytest.mark.every(2)
def test_residual_bounds_are_attained():
  """Identity branches attain residual bounds; a
  product of norms is unsound (E12)."""
  network = _blocks(4, False)
  eye = {'kernel': jnp.eye(2)}
  params = {f'r{k}': {'branch': {'d': eye}} for k in range(4)}
  params['head'] = eye
  x = 1.5 * jnp.asarray([1.0, -1.0]) / math.sqrt(2)
  lengths = dict(zip(paths_of(network), np.float64(lengths_of(network)(
    params, 20 * x, jnp.int32(1)))))
  bounds = network.gradient_bounds(network.fill(1.0),
                                   loss_lipschitz=LOSS.lipschitz)
  for path, length in lengths.items():
    assert length == pytest.approx(dig(bounds, path), rel=1e-5)
  printed = LOSS.lipschitz * 1.5
  assert lengths['r0', 'branch', 'd'] > 7 * printed


def test_a_branch_parameter_does_not_see_the_shortcut():
  """A branch's parameters ignore the shortcut's
  factor 1 + c (NET-08, LIP-03)."""
  block = _residual('r', DENSE(name='x', width=3), _TANH,
                    DENSE(name='y', width=3))
  certificate = {'branch': {'x': 5.0, 'y': 3.0}}
  sent, bounds = block.backward(certificate, 2.0, 1.0, (3,), None)
  assert sent == pytest.approx(2 * (1 + 15))
  assert bounds['branch']['y'] == pytest.approx(2 * math.sqrt(3 + 1))
  assert bounds['branch']['x'] == pytest.approx(2 * 3 * math.sqrt(1 + 1))
  halved = dataclasses.replace(block, share=0.5)
  sent, bounds = halved.backward(certificate, 2.0, 1.0, (3,), None)
  assert sent == pytest.approx(1 + 15)
  assert bounds['branch']['x'] == pytest.approx(3 * math.sqrt(1 + 1))
  assert halved.output_bound(certificate, 1.0, (3,)) == pytest.approx(
    block.output_bound(certificate, 1.0, (3,)) / 2)


@pytest.mark.slow
@pytest.mark.parametrize('alpha', [1.0, 0.1])
def test_block_with_normalisation(oracles, alpha):
  """A normalised pre-activation block never exceeds 1 + c / alpha (NET-08).

  The images are 4 x 4 x 4.
  """
  block = _residual(
    'r', normalisation.lipschitz(num_groups=1, alpha=alpha), _RELU,
    layers.Conv(name='c', channels=4, use_bias=False),
    normalisation.lipschitz(num_groups=1, alpha=alpha), _RELU,
    layers.Conv(name='d', channels=4, use_bias=False))
  network = _network((4, 4, 4), block, pointwise.flatten())
  rng = np.random.default_rng(0)
  params, certificate = projection.clip_weights(
    network, weight_norm=2.37).constrain(_random_params(network, rng))
  limit = float(block.backward(certificate['r'], 1.0, math.inf, (4, 4, 4),
                               rules.normalised())[0])
  records = rng.normal(size=(60, 4, 4, 4)) * np.logspace(-3, 1, 60)[
    :, None, None, None] * alpha
  norms = oracles.norms(oracles.input_jacobians(block, params['r'], records))
  assert norms.max() <= limit
  # A separate computation found a similar distance: 2.64 of 6.62.
  assert norms.max() > 0.15 * limit


@pytest.mark.slow
def test_constant_kernels_make_the_printed_convolution_bounds_too_small():
  """Constant kernels exceed the printed bounds 9, 3, 1 and 1 times (E7 i).

  The joint multiplier would be divided by sqrt(92).
  """
  conv = functools.partial(layers.Conv, channels=1, padding='circular',
                           use_bias=False)
  dense = functools.partial(layers.Dense, use_bias=False)
  network = _network((6, 6, 1), conv(name='a'), conv(name='b'),
                     pointwise.flatten(), dense(name='c', width=1),
                     dense(name='d', width=2), input_radius=1.0)
  ones = jnp.ones([3, 3, 1, 1])
  params = {'a': {'kernel': ones / 3}, 'b': {'kernel': ones / 3},
            'c': {'kernel': jnp.full([36, 1], 1 / 6)},
            'd': {'kernel': jnp.asarray([[0.5**0.5, -0.5**0.5]])}}
  x = jnp.full([6, 6, 1], 1 / 6)
  # All reshaped kernels have norm 1, so the print has tau X_k for every layer.
  radii, value = [], x[None]
  for node in network.root.nodes:
    if node.name in params:
      radii.append(float(jnp.linalg.norm(value)))
    value = node.apply(params.get(node.name, {}), value, Context())
  certificate = {'a': 3.0, 'b': 3.0, 'c': 1.0, 'd': 1.0}
  lengths = np.float64(lengths_of(network)(params, 1e3 * x, jnp.int32(0)))
  delta = jax.grad(lambda z: LOSS.values(z, jnp.zeros([1], jnp.int32))[0])(value)
  exceed = lengths / (np.array(radii) * float(jnp.linalg.norm(delta)))
  np.testing.assert_allclose(exceed, [9, 3, 1, 1], rtol=1e-4)
  assert np.sum(exceed**2) == pytest.approx(92, rel=1e-3)
  # With true operator norms the parameter factors are still missing: 20.
  with_norms = exceed / [3, 1, 1, 1]
  assert np.sum(with_norms**2) == pytest.approx(20, rel=1e-3)
  limits = network.gradient_bounds(certificate, loss_lipschitz=LOSS.lipschitz)
  assert np.all(lengths <= [limits[name] for name in 'abcd'])


def test_parameterless_layers_count():
  """A constant of 1 for pooling and normalisation is exceeded (E11)."""
  network = _network(
    (3, 3, 1), layers.Conv(name='a', channels=1, kernel_size=(1, 1)),
    normalisation.lipschitz(num_groups=1, alpha=0.05),
    pooling.max_pool((2, 2), (1, 1)), pointwise.flatten(),
    layers.Dense(name='head', width=2), input_radius=0.05)
  bounds = network.gradient_bounds(network.fill(1.0), loss_lipschitz=1.0)
  assert bounds['a'] == pytest.approx(20 * 2 * math.sqrt(0.05**2 + 9))
  rng = np.random.default_rng(0)
  row = jnp.ones([4, 1]) / 2 * jnp.asarray([[1.0, -1.0]]) / 2**0.5
  params = {'a': {'kernel': jnp.ones([1, 1, 1, 1]), 'bias': jnp.zeros([1])},
            'head': {'kernel': row, 'bias': jnp.asarray([-60.0, 60.0])}}
  x = 0.01 * rng.normal(size=(60, 3, 3, 1))
  x[:, 1, 1] += 0.03
  lengths = jax.jit(jax.vmap(lambda x: lengths_of(network)(
    params, x, jnp.int32(0))[0]))(jnp.asarray(x, jnp.float32))
  ones = LOSS.lipschitz * math.sqrt(0.05**2 + 1)
  assert np.max(lengths) <= bounds['a'] * LOSS.lipschitz
  of_kernel = jax.jit(jax.vmap(lambda x: jnp.linalg.norm(jax.grad(
    lambda k: LOSS.values(network.apply(
      {**params, 'a': {'kernel': k, 'bias': jnp.zeros([1])}}, x[None]),
      jnp.zeros([1], jnp.int32))[0])(params['a']['kernel']))))(
        jnp.asarray(x, jnp.float32))
  assert np.max(of_kernel) > ones * 0.05 * 2


# All refusals come when the bounder is built.


def _certified(network, *, loss=LOSS, weight_norm=1.0, rule=None):
  return lipschitz_bounder.certified(network, loss, weight_norm=weight_norm,
                                     rule=rule)


@pytest.mark.parametrize('network, rule, layer', [
  # With free biases, inputs of the second layer have no bound.
  (_scalar_chain(1), None, 'last'),
  (_network((1,), layers.Dense(name='d', width=2), input_radius=None), None,
   'd'),
  (_network((3,), DENSE(name='d', width=3), pointwise.opaque(
    jnp.sin, name='x'), DENSE(name='last', width=2)), rules.normalised(), 'd'),
  (_network((3,), DENSE(name='d', width=3), pointwise.opaque(
    jnp.sin, name='x'), DENSE(name='last', width=2)), None, 'last')])
def test_an_unknown_constant_is_refused_by_name(network, rule, layer):
  with pytest.raises(UnknownConstant, match=f"'{layer}' has no finite"):
    _certified(network, rule=rule)


def test_clipping_by_layer_needs_no_constant():
  """Clipping by layer works without constants,
  even with opaque layers (LDP-09)."""
  network = _network((3,), layers.Dense(name='d', width=3), pointwise.opaque(
    jnp.sin, name='x'), layers.Dense(name='last', width=2), input_radius=None)
  bounder = _certified(network, rule=rules.clipped_layers(clip_norm=0.3),
                       loss=losses.squared_error())
  assert jax.tree.map(float, bounder.l2_sensitivity(())) == {
    'd': pytest.approx(0.3), 'last': pytest.approx(0.3)}


def _deep(name):
  if name == 'plain residual':
    return _network((2,), *(_residual(
      f'r{k}', DENSE(name='d', width=2, use_bias=False, bias_norm=None))
      for k in range(70)), layers.Dense(name='head', width=2))
  if name == 'alpha':
    nodes = []
    for k in range(60):
      nodes += [CONV(name=f'c{k}', channels=2),
                normalisation.lipschitz(num_groups=1, alpha=1e-6)]
    return _network((2, 2, 2), *nodes, *_HEAD)
  return _scalar_chain({'float32': 20, 'float64': 400}[name], bias_norm=1.0)


@pytest.mark.every(4)
@pytest.mark.parametrize('rule', [None, rules.normalised()],
                         ids=['plain', 'normalised'])
@pytest.mark.parametrize('name, weight_norm', [
  ('plain residual', 1.0), ('alpha', 1.0), ('float32', 15.0),
  ('float64', 15.0)])
def test_bounds_that_overflow_are_refused(name, weight_norm, rule):
  """Bounds that overflow are refused with a ValueError (E12, E17).

  No warning and no OverflowError is raised.
  """
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    with pytest.raises(ValueError, match='overflows'):
      _certified(_deep(name), weight_norm=weight_norm, rule=rule)
  # Averaged blocks of norm one do not overflow.
  _certified(_blocks(70, True))


@pytest.mark.parametrize('make, message', [
  (lambda: _certified(_network((3,), _TANH)), 'nothing to train'),
  (lambda: _certified(_blocks(1, True), weight_norm=-1.0), 'weight_norm must'),
  (lambda: _certified(_blocks(1, True), weight_norm=math.inf), 'weight_norm'),
  (lambda: _certified(_blocks(1, True), loss=LOSS._replace(lipschitz=-1.0)),
   'Lipschitz constant of a loss must be > 0, got -1'),
  (lambda: _certified(_blocks(1, True), loss=LOSS._replace(lipschitz=math.nan)),
   'must be > 0, got nan'),
  (lambda: _network((2, 2, 1), CONV(name='c', channels=2)), 'vector of logits'),
  (lambda: _network((2,), DENSE(name='c', width=2), input_radius=0.0),
   'input_radius must be'),
  (lambda: _chain('x', DENSE(name='c', width=2), DENSE(name='c', width=2)),
   'names repeat'),
  (lambda: Residual(name='r', branch=_chain('a'), shortcut=_chain('a')),
   "share the name 'a'"),
  (lambda: _network((2,), _residual('r', DENSE(name='d', width=3)),
                    DENSE(name='head', width=2)), 'same output shape'),
  (lambda: _network((2,), _residual('r', pointwise.Ball(
    name='b', radius=1.0, adaptive=True)), pointwise.Ball(
      name='b', radius=1.0, adaptive=True), DENSE(name='head', width=2)),
   "two adaptive balls share the name 'b'")])
def test_refused_when_built(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_adaptive_balls_are_found_wherever_they_are():
  ball = functools.partial(pointwise.Ball, radius=1.0, adaptive=True)
  network = _network((2,), ball(name='a'), _residual('r', ball(name='b')),
                     pointwise.Ball(name='c', radius=1.0),
                     DENSE(name='head', width=2))
  assert set(network.adaptive_balls()) == {'a', 'b'}
  # Bounds use the radii that the certificate contains.
  certificate = {**network.fill(1.0), 'a': jnp.float32(0.25)}
  assert float(network.root._radii(certificate, 1.5, (2,))[1]) == 0.25


@pytest.mark.parametrize('averaged', [False, True])
def test_forward_bounds_of_residual_sums_grow_geometrically_or_not(averaged):
  """Output bounds of residual sums grow as (1 + c)^blocks (E29).

  Averages grow as ((1 + c) / 2)^blocks. The text claims linear growth.
  """
  for norm in (1.0, 0.5):
    for blocks in (1, 4, 9):
      network = _network((3,), *(
          _residual(f'block_{number}', layers.Dense(
              name='dense', width=3, use_bias=False), averaged=averaged)
          for number in range(blocks)))
      shares = 2 if averaged else 1
      output_bound = network.root.output_bound(network.fill(norm), 1.5, (3,))
      assert float(output_bound) == pytest.approx(
          1.5 * ((1 + norm) / shares)**blocks, rel=1e-4)
