"""These tests search random networks for
violations of the chain rule's bounds."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import ball
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import convolution
from dpjax.lipschitz import layers
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz import projection
from dpjax.lipschitz import rules
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.residual import Residual
from dpjax.typing import Batch
from tests.lipschitz.gradient_norms import lengths_of
from tests.lipschitz.gradient_norms import LOSS

ROUNDING = 1e-5
CONV = functools.partial(layers.Conv, bias_norm=0.3)
DENSE = functools.partial(layers.Dense, bias_norm=0.3)


def _chain(name, *nodes):
  return Chain(name=name, nodes=nodes)


def _residual(name, *branch, shortcut=(), share=None):
  return Residual(name=name, branch=_chain('branch', *branch),
                  shortcut=_chain('shortcut', *shortcut),
                  share=share)


def _network(shape, *nodes, input_radius=1.5):
  return Network(root=_chain('root', *nodes), input_shape=shape,
                 input_radius=input_radius)


_NORM = normalisation.lipschitz(num_groups=2, alpha=0.5)
_TANH, _RELU = pointwise.activation('tanh'), pointwise.activation('relu')
_HEAD = (pooling.global_average_pool(), DENSE(name='head', width=3))

NETWORKS = {
  # LDP-07: norms propagate through bounded biases from the input's ball.
  'dense': _network((5,), DENSE(name='a', width=6), _TANH,
                    DENSE(name='b', width=6), pointwise.tempered_sigmoid(
                      2.0, 3.0, 0.5), DENSE(name='c', width=3)),
  'conv': _network((4, 4, 2), CONV(name='a', channels=4), _RELU,
                   pooling.max_pool((2, 2), (1, 1)),
                   CONV(name='b', channels=4, strides=(2, 2)), _TANH,
                   pooling.average_pool((2, 2), (1, 1)), pointwise.flatten(),
                   DENSE(name='head', width=3)),
  'residual': _network(
    (4, 4, 2), CONV(name='stem', channels=4),
    _residual('one', _RELU, CONV(name='x', channels=4)),
    _residual('two', _RELU, CONV(name='x', channels=6, strides=(2, 2)), _TANH,
              CONV(name='y', channels=6),
              shortcut=(CONV(name='s', channels=6, kernel_size=(1, 1),
                             strides=(2, 2)),)), *_HEAD),
  'averaged': _network(
    (3, 3, 2), CONV(name='stem', channels=4),
    _residual('one', _NORM, _RELU, CONV(name='x', channels=4), share=0.5),
    _residual('two', _residual('inner', CONV(name='x', channels=4)),
              share=0.5), *_HEAD),
  # LDP-08: inputs are unbounded, and normalisation resets them.
  'normalised': _network(
    (3, 3, 4), _NORM, _RELU, CONV(name='a', channels=4), _NORM,
    layers.Affine(name='scale', bias_norm=0.5), _NORM,
    *_HEAD, input_radius=None),
  # Layers that stay orthogonal, sorted pairs, and a mean with its input.
  'orthogonal': _network(
    (5,), layers.Dense(name='a', width=6, use_bias=False, orthogonal=True),
    pointwise.activation('maxmin', name='first'),
    _residual('one', layers.Dense(name='x', width=6, use_bias=False,
                                  orthogonal=True),
              pointwise.activation('maxmin', name='second'), share=0.75),
    layers.Dense(name='head', width=3, use_bias=False)),
  # LDP-05: the network has balls, bounded activations and free biases.
  'balls': _network(
    (5,), layers.Dense(name='a', width=6), _RELU, pointwise.Ball(
      name='ball', radius=0.7), layers.Dense(name='b', width=6),
    pointwise.bounded_activation('tanh', 0.8), layers.Dense(name='c', width=3)),
}


def _random_params(network, rng, scale=2.0):
  shapes = jax.eval_shape(network.init, jax.random.key(0))
  return jax.tree.map(lambda leaf: jnp.asarray(
    rng.normal(size=leaf.shape) * scale**rng.uniform(-1, 1), jnp.float32),
    shapes)


@functools.cache
def _constrain(name):
  """Returns a function (params, weight_norm) -> (params, certificate)."""
  honest = projection.clip_weights(NETWORKS[name], weight_norm=1.0).constrain

  def constrain(params, weight_norm):
    held, certificate = honest(params)
    scale = lambda path, leaf: leaf * (
      weight_norm if path[-1].key == 'kernel' else 1.0)
    return (jax.tree_util.tree_map_with_path(scale, held), jax.tree.map(
      lambda leaf: leaf * weight_norm, certificate))

  return jax.jit(constrain)


RULES = {None: None, 'normalised': rules.normalised(),
         'clipped_factors': rules.clipped_factors(limit=0.8),
         'clipped_layers': rules.clipped_layers(clip_norm=0.1)}


@functools.cache
def _climb(name):
  """Returns a jitted ascent of log gradient norms over records."""
  lengths = jax.vmap(lengths_of(NETWORKS[name]), (None, 0, 0))

  @jax.jit
  def climb(params, x, y):
    axes = tuple(range(1, x.ndim))

    def turn(x, _):
      slope = jax.grad(lambda x: jnp.sum(jnp.log(lengths(params, x, y))))(x)
      slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
      size = jnp.sqrt(jnp.sum(jnp.square(slope), axes, keepdims=True)) + 1e-9
      return x + 0.1 * slope / size, None

    return jax.lax.scan(turn, x, length=15)[0]

  return climb


@functools.cache
def _jitted_lengths(name, rule_name):
  return jax.jit(jax.vmap(lengths_of(NETWORKS[name], RULES[rule_name]),
                          (None, 0, 0)))


def _records(network, rng, count=24):
  x = rng.normal(size=(count, *network.input_shape))
  x *= np.logspace(-2, 2, count).reshape((-1,) + (1,) * (x.ndim - 1))
  x[0], x[1] = 1.0, -1e18
  return jnp.asarray(x, jnp.float32), jnp.asarray(rng.integers(0, 3, count),
                                                  jnp.int32)


def _worst_ratio(name, rule_name=None):
  """Returns the largest ratio of gradient norm to bound on random networks."""
  network = NETWORKS[name]
  worst = 0.0
  for seed, weight_norm in enumerate((0.6, 1.0, 2.0)):
    rng = np.random.default_rng(seed)
    params, certificate = _constrain(name)(
      _random_params(network, rng), jnp.float32(weight_norm))
    limits = np.array([float(leaf) for leaf in jax.tree.leaves(
      network.gradient_bounds(certificate, loss_lipschitz=LOSS.lipschitz,
                              rule=RULES[rule_name]))])
    x, y = _records(network, rng)
    for start in (x, _climb(name)(params, x, y)):
      ratio = np.asarray(_jitted_lengths(name, rule_name)(params, start, y))
      ratio = np.max(ratio / limits)
      assert ratio <= 1 + ROUNDING, (name, rule_name, seed)
      worst = max(worst, ratio)
  return worst


@pytest.mark.sound
@pytest.mark.parametrize('name', NETWORKS)
def test_search_never_exceeds_the_bounds(name):
  """Gradient ascent never exceeds the bounds of plain gradients.

  This covers LIP-03, LDP-05, LDP-07, LDP-08 and NET-08.
  """
  assert _worst_ratio(name) > 0.1


@pytest.mark.sound
@pytest.mark.parametrize('rule_name', ['normalised', 'clipped_factors',
                                       'clipped_layers'])
def test_no_rule_exceeds_its_bounds(rule_name):
  """No weight rule exceeds its bound in a small network (LDP-04, LDP-09)."""
  assert _worst_ratio('dense', rule_name) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize('rule_name', ['normalised', 'clipped_factors',
                                       'clipped_layers'])
@pytest.mark.parametrize('name', ['residual', 'normalised'])
def test_search_never_exceeds_the_bounds_of_rules(name, rule_name):
  """No rule exceeds its bound in networks with skips (LDP-04, LDP-09)."""
  assert _worst_ratio(name, rule_name) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize('name', NETWORKS)
def test_chain_rule(name):
  """The network's gradients equal `jax.grad` of plain operations (NET-12)."""
  network = NETWORKS[name]
  rng = np.random.default_rng(0)
  params = _random_params(network, rng, scale=1.3)
  x, y = _records(network, rng)
  x, y = x[8:16], y[8:16]
  ones = rules.WeightRule('ones', lambda norms: jnp.ones_like(norms.inputs),
                          lambda cotangent, factor: cotangent * factor, True)

  def total(apply, params):
    return jnp.sum(LOSS.values(apply(params), y))

  ours = [jax.jit(jax.grad(lambda p, context=context: total(
    lambda p: network.apply(p, x, context), p)))(params)
    for context in (Context(), Context(rule=ones))]
  start = network.prepare(x)
  start = start if network.input_radius is None else start.values
  plain = jax.jit(jax.grad(lambda p: total(
    lambda p: _plain(network.root, p, start), p)))(params)
  for gradient in ours:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(
      a, b, rtol=1e-5, atol=1e-6 * max(1.0, float(jnp.max(jnp.abs(b))))),
      gradient, plain)


def _plain(node, params, x):
  """Returns the output of a node, written without the primitives."""
  if isinstance(node, Chain):
    for inner in node.nodes:
      x = _plain(inner, params.get(inner.name, {}), x)
    return x
  if isinstance(node, Residual):
    branch, shortcut = (_plain(side, params.get(side.name, {}), x)
                        for side in (node.branch, node.shortcut))
    if node.share is None:
      return branch + shortcut
    return node.share * branch + (1 - node.share) * shortcut
  if isinstance(node, layers.Dense):
    return x @ params['kernel'] + params.get('bias', jnp.zeros(1))[None]
  if isinstance(node, layers.Conv):
    return convolution.convolve(x, params['kernel'], node.geometry(
      x.shape[1:])) + params['bias'][None, None, None]
  if isinstance(node, layers.Affine):
    scale, shift = (params[name][None, None, None]
                    for name in ('kernel', 'bias'))
    return x * scale + shift
  return node.apply({}, x, Context())


@pytest.mark.sound
@pytest.mark.parametrize('name', NETWORKS)
def test_activations_stay_within_the_forward_bounds(name):
  """Gradient ascent keeps ||x_k|| <= B_k at
  every root node (LIP-02, LDP-07)."""
  network = NETWORKS[name]
  rng = np.random.default_rng(0)
  params, certificate = _constrain(name)(_random_params(network, rng),
                                         jnp.float32(2))
  radius = math.inf if network.input_radius is None else network.input_radius
  limits = np.array([float(each) for each in network.root._radii(
    certificate, radius, network.input_shape)[1:]])

  def lengths(x):
    """Returns the output norm of each node for one record."""
    x, outputs = x[None], []
    if network.input_radius is not None:
      x = ball.project_ball(x, network.input_radius)
    for node in network.root.nodes:
      x = node.apply(params.get(node.name, {}), x, Context())
      outputs.append(jnp.sqrt(1e-20 + jnp.sum(jnp.square(x))))
    return jnp.stack(outputs)

  def turn(x, _):
    slope = jax.grad(lambda x: jnp.sum(jnp.log(lengths(x))))(x)
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    return x + 0.2 * slope / (jnp.linalg.norm(slope.ravel()) + 1e-9), None

  climb = jax.jit(jax.vmap(lambda x: (lengths(x), lengths(
    jax.lax.scan(turn, x, length=20)[0]))))
  outputs = np.concatenate(climb(_records(network, rng, count=100)[0]))
  ratio = np.max(outputs, 0) / limits
  assert np.all(ratio <= 1 + ROUNDING)
  assert np.max(ratio[np.isfinite(limits)]) > 0.5


@pytest.mark.every(4)
@pytest.mark.parametrize('name', ['normalised', 'dense'])
def test_huge_records_are_finite_inside(name):
  """A finite record stays finite inside, even without an input ball."""
  network = NETWORKS[name]
  params, _ = _constrain(name)(_random_params(
    network, np.random.default_rng(0)), jnp.float32(1))
  bounder = lipschitz_bounder.certified(network, LOSS, weight_norm=1.0)
  x, y = _records(network, np.random.default_rng(1), count=6)
  x = x.at[2].set(3e38).at[3].set(-3e38).at[4].multiply(1e30).at[5].set(
    jnp.where(jnp.arange(x[5].size).reshape(x[5].shape) % 2 == 0, 3e38, -3e38))
  sums = jax.jit(bounder.sums)(params, Batch(x, y), jnp.ones([6], jnp.bool_))
  assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(sums.total))
  assert np.isfinite(sums.loss) and int(sums.num_nonfinite) == 0
