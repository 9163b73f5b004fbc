"""These tests check every layer's constants by dense Jacobians (LIP-01)."""

from collections.abc import Callable
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from dpjax.lipschitz import layers
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz import projection
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.residual import Residual

IMAGE = (6, 6, 2)


def _params(node, shape, seed=0, scale=1.0):
  """Returns random parameters of a node, biases included."""
  rng = np.random.default_rng(seed)
  shapes = jax.eval_shape(lambda key: node.init(key, shape), jax.random.key(0))
  return jax.tree.map(lambda leaf: jnp.asarray(
    scale * rng.normal(size=leaf.shape), jnp.float32), shapes)


def _certified(node, params, shape, weight_norm=1e3):
  """Returns (held parameters, certificate) of one node, by `clip_weights`."""
  network = Network(root=Chain(name='n', nodes=(node, pointwise.flatten())),
                    input_shape=shape)
  held, certificate = projection.clip_weights(
    network, weight_norm=weight_norm).constrain({node.name: params})
  return held[node.name], certificate[node.name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """Holds a row of Table 5.1 of Barczewski (2025) and records that refute it.

  Attributes:
    node: the layer.
    shape: of a record.
    worst: a record that attains or nearly attains the layer's constant.
    params: of the layer, if not random.
    printed_input: what the table prints for x; infinite: nothing.
    printed_parameters: (params, x) -> what it prints for theta.
    wrong: which of 'input', 'parameters' the worst record exceeds.
    loose: how far below the bound a sound constant may stay.
  """
  node: object
  shape: tuple
  worst: Callable = lambda rng: rng.normal(size=IMAGE)
  params: dict | None = None
  printed_input: Callable = lambda params: math.inf
  printed_parameters: Callable = lambda params, x: math.inf
  wrong: tuple = ()
  loose: float = 1.0


_ONES = {'kernel': jnp.ones([3, 3, 1, 1]), 'bias': jnp.zeros([1])}
_RESHAPED = lambda params: float(np.linalg.norm(np.float64(
  params['kernel']).reshape(-1, params['kernel'].shape[-1]), 2))
_FLAT = lambda params, x: np.linalg.norm(x)
_CONSTANT = lambda shape: lambda rng: np.ones(shape)
_ONE = lambda params: 1.0

ROWS = {
  # E6: the print has no bias in ||x||. The kernel's part is right.
  'dense': Row(
    node=layers.Dense(name='d', width=3), shape=(4,),
    worst=lambda rng: 0.1 * rng.normal(size=4),
    printed_input=lambda params: np.linalg.norm(params['kernel'], 2) * (1 + 1e-9),
    printed_parameters=_FLAT, wrong=('parameters',)),
  'dense without bias': Row(
    node=layers.Dense(name='d', width=3, use_bias=False), shape=(4,),
    worst=lambda rng: rng.normal(size=4),
    printed_parameters=lambda params, x: np.linalg.norm(x) * (1 + 1e-9)),
  'orthogonal dense': Row(
    node=layers.Dense(name='d', width=4, orthogonal=True), shape=(4,),
    params={'kernel': jnp.float32(linalg.hadamard(4) / 2),
            'bias': jnp.zeros(4)}, worst=lambda rng: rng.normal(size=4)),
  # E7 (ii): the reshaped kernel has norm 3, the map 8.3 or 9.
  'conv': Row(
    node=layers.Conv(name='c', channels=1), shape=(8, 8, 1), params=_ONES,
    worst=_CONSTANT((8, 8, 1)), printed_input=_RESHAPED,
    printed_parameters=lambda params, x: 3 * np.linalg.norm(x), wrong=('input',),
    loose=1.2),
  # E6: the bias counts sqrt(h_out w_out) times.
  'conv bias': Row(
    node=layers.Conv(name='c', channels=1, padding='circular'), shape=(8, 8, 1),
    params=_ONES, worst=lambda rng: 0.1 * np.ones((8, 8, 1)),
    printed_input=_RESHAPED,
    printed_parameters=lambda params, x: 3 * np.linalg.norm(x),
    wrong=('input', 'parameters')),
  'conv valid': Row(
    node=layers.Conv(name='c', channels=3, padding='valid', kernel_size=(2, 3)),
    shape=IMAGE, loose=2.0),
  'conv strided': Row(
    node=layers.Conv(name='c', channels=3, strides=(2, 2)), shape=IMAGE,
    loose=2.0),
  'conv strides beyond the window': Row(
    node=layers.Conv(name='c', channels=3, kernel_size=(2, 1), strides=(3, 2),
                     padding='valid'), shape=IMAGE, loose=2.0),
  'conv other strides': Row(
    node=layers.Conv(name='c', channels=2, kernel_size=(3, 2), strides=(1, 2),
                     padding='circular'), shape=IMAGE, loose=2.0),
  'conv without bias': Row(
    node=layers.Conv(name='c', channels=3, kernel_size=(1, 1), use_bias=False),
    shape=IMAGE, loose=3.0),
  'affine': Row(
    node=layers.Affine(name='a'), shape=IMAGE, worst=lambda rng: rng.normal(
      size=IMAGE) * [1.0, 0.0], loose=1.0 + 1e-6),
  # E11: the print takes c = 1 for layers whose constant is larger.
  'lipschitz normalisation': Row(
    node=normalisation.lipschitz(num_groups=1, alpha=0.1), shape=IMAGE,
    worst=lambda rng: 1e-3 * rng.normal(size=IMAGE), printed_input=_ONE,
    wrong=('input',)),
  'standard normalisation': Row(
    node=normalisation.standard('instance', kappa=1e-2), shape=IMAGE,
    worst=lambda rng: 1e-4 * rng.normal(size=IMAGE), printed_input=_ONE,
    wrong=('input',), loose=1.0 + 1e-3),
  'relu': Row(node=pointwise.activation('relu'), shape=IMAGE,
              printed_input=_ONE),
  'tanh': Row(node=pointwise.activation('tanh'), shape=IMAGE,
              worst=lambda rng: np.zeros(IMAGE),
              printed_input=_ONE),
  # E15: the printed constant 1 holds but is four times too large.
  'sigmoid': Row(node=pointwise.activation('sigmoid'), shape=IMAGE,
                 worst=lambda rng: np.zeros(IMAGE), printed_input=_ONE),
  'tempered sigmoid': Row(
    node=pointwise.tempered_sigmoid(2.0, 5.0, 1.0), shape=IMAGE,
    worst=lambda rng: np.zeros(IMAGE), printed_input=_ONE, wrong=('input',)),
  'maxmin': Row(node=pointwise.activation('maxmin'), shape=IMAGE,
                printed_input=_ONE),
  'bounded maxmin': Row(node=pointwise.bounded_activation('maxmin', 2.0),
                        shape=IMAGE,
                        worst=lambda rng: 0.01 * rng.normal(size=IMAGE)),
  'bounded relu': Row(node=pointwise.bounded_activation('relu', 2.0),
                      shape=IMAGE, worst=lambda rng: np.full(IMAGE, 0.1)),
  'bounded tanh': Row(node=pointwise.bounded_activation('tanh', 2.0),
                      shape=IMAGE, worst=lambda rng: np.zeros(IMAGE)),
  'bounded sigmoid': Row(node=pointwise.bounded_activation('sigmoid', 2.0),
                         shape=IMAGE, worst=lambda rng: np.zeros(IMAGE)),
  'ball': Row(node=pointwise.Ball(name='b', radius=1.0), shape=IMAGE,
              worst=lambda rng: 0.01 * rng.normal(size=IMAGE)),
  'max pool': Row(
    node=pooling.max_pool((2, 2), (1, 1)), shape=(4, 4, 2),
    worst=lambda rng: np.eye(4)[1][:, None, None] * np.eye(4)[1][:, None]
    * np.ones(2), printed_input=_ONE, wrong=('input',)),
  'average pool': Row(node=pooling.average_pool(), shape=IMAGE,
                      printed_input=_ONE),
  'global average pool': Row(node=pooling.global_average_pool(), shape=IMAGE,
                             printed_input=_ONE),
  'flatten': Row(node=pointwise.flatten(), shape=IMAGE),
  # (5.2.7) holds; the printed chain product (line 5) is E12.
  'residual': Row(
    node=Residual(name='r', branch=Chain(name='b', nodes=(
      layers.Dense(name='d', width=2),)), shortcut=Chain(name='s', nodes=())),
    shape=(2,), params={'b': {'d': {'kernel': jnp.eye(2), 'bias': jnp.zeros(2)}}},
    worst=lambda rng: rng.normal(size=2), printed_input=_ONE, wrong=('input',)),
  'averaged residual': Row(
    node=Residual(name='r', share=0.5, branch=Chain(name='b', nodes=(
      layers.Dense(name='d', width=2),)), shortcut=Chain(name='s', nodes=(
        layers.Dense(name='d', width=2),))),
    shape=(2,), params={side: {'d': {'kernel': 2 * jnp.eye(2),
                                     'bias': jnp.zeros(2)}} for side in 'bs'},
    worst=lambda rng: rng.normal(size=2)),
  'residual with a share': Row(
    node=Residual(name='r', share=0.125, branch=Chain(name='b', nodes=(
      layers.Dense(name='d', width=2, use_bias=False),)),
                  shortcut=Chain(name='s', nodes=())),
    shape=(2,), params={'b': {'d': {'kernel': 3 * jnp.eye(2)}}},
    worst=lambda rng: rng.normal(size=2)),
}


def _constants(row, x, certificate):
  """Returns the stated (constant in x, constant in theta or None)."""
  sent, bounds = row.node.backward(certificate, 1.0, float(np.linalg.norm(x)),
                                   row.shape, None)
  bounds = [float(leaf) for leaf in jax.tree.leaves(bounds)]
  return float(sent), math.hypot(*bounds) if bounds else None


@pytest.mark.sound
@pytest.mark.parametrize('name', ROWS)
def test_table_of_constants(name, oracles):
  """Each layer's constants are sound and attained; wrong printed ones fail.

  This covers LIP-01, E6, E7, E11 and E15.
  """
  row = ROWS[name]
  rng = np.random.default_rng(0)
  params = row.params or _params(row.node, row.shape)
  certificate = _certified(row.node, params, row.shape)[1]
  records = np.stack([row.worst(rng), rng.normal(size=row.shape),
                      50 * rng.normal(size=row.shape),
                      1e-3 * rng.normal(size=row.shape), np.zeros(row.shape)])
  stated = [_constants(row, x, certificate) for x in records]
  norms = oracles.norms(oracles.input_jacobians(row.node, params, records))
  limits = np.array([each[0] for each in stated])
  assert np.all(norms <= limits * (1 + 1e-6))
  assert np.max(norms / limits) * row.loose >= 0.99
  # The first record was made to exceed the printed constant.
  exceeded = norms[0] > 1.001 * row.printed_input(params)
  assert exceeded == ('input' in row.wrong)
  if not jax.tree.leaves(params):
    return
  norms = oracles.norms(oracles.parameter_jacobians(row.node, params, records))
  limits = np.array([each[1] for each in stated])
  assert np.all(norms <= limits * (1 + 1e-6))
  assert np.max(norms[:4] / limits[:4]) >= 0.45
  exceeded = norms[0] > 1.001 * row.printed_parameters(params, records[0])
  assert exceeded == ('parameters' in row.wrong)


@pytest.mark.parametrize('scale', [0.0, 1e-3, 1.0, 1e3])
def test_dense_jacobians_are_exact(scale, oracles):
  """Dense Jacobians have norms sqrt(||x||^2 + 1) and ||W|| in float64 (NET-01).

  A gradient is x delta^T.
  """
  rng = np.random.default_rng(1)
  x = scale * rng.normal(size=4)
  for use_bias in (True, False):
    dense = layers.Dense(name='d', width=3, use_bias=use_bias)
    params = _params(dense, (4,))
    expected = math.hypot(np.linalg.norm(x), float(use_bias))
    jacobian = oracles.parameter_jacobians(dense, params, x[None])[0]
    assert oracles.norms(jacobian) == pytest.approx(expected, rel=1e-10,
                                                    abs=1e-300)
    # Every direction of the cotangent gives the same norm.
    delta = rng.normal(size=3)
    assert np.linalg.norm(delta @ jacobian) == pytest.approx(
      expected * np.linalg.norm(delta), rel=1e-10, abs=1e-300)
    assert oracles.norms(oracles.input_jacobians(dense, params, x[None]))[0] == (
      pytest.approx(np.linalg.norm(np.float64(params['kernel']), 2), rel=1e-10))


@pytest.mark.slow
@pytest.mark.parametrize('size, zero, circular', [(3, 8.291, 9.0),
                                                  (5, 20.047, 25.0)])
def test_norms_of_constant_kernels(size, zero, circular, oracles):
  """The reshaped norm of a constant kernel is below the true norm (NET-02).

  The certified norm is at least the true one.
  """
  params = {'kernel': jnp.ones([size, size, 1, 1])}
  assert _RESHAPED(params) == pytest.approx(size, rel=1e-12)
  x = np.ones((8, 8, 1))
  for padding, expected in (('zero', zero), ('circular', circular)):
    conv = layers.Conv(name='c', channels=1, kernel_size=(size, size),
                       padding=padding, use_bias=False)
    norm = oracles.norms(oracles.input_jacobians(conv, params, x[None]))[0]
    assert norm == pytest.approx(expected, abs=1e-3)
    certified = float(_certified(conv, params, (8, 8, 1))[1])
    assert norm <= certified <= circular * (1 + 1e-3)


@pytest.mark.parametrize('size, stride, expected', [
  (3, 1, 2.670), (5, 1, 4.018), (3, 2, 1.340), (5, 2, 2.014)])
def test_windows_of_a_constant_image(size, stride, expected, oracles):
  """The kernel Jacobian's norm over ||x|| is below ceil(k / s) (E7 iii)."""
  conv = layers.Conv(name='c', channels=1, kernel_size=(size, size),
                     strides=(stride, stride), use_bias=False)
  pad = (size - 1) // 2
  conv = dataclasses.replace(conv, padding=((pad, pad), (pad, pad)))
  x = np.ones((10, 10, 1))
  params = _params(conv, x.shape)
  norm = oracles.norms(oracles.parameter_jacobians(conv, params, x[None]))[0]
  assert norm / 10 == pytest.approx(expected, abs=1e-3)
  bound = conv.backward(1.0, 1.0, 10.0, x.shape, None)[1]
  assert bound / 10 == pytest.approx(-(-size // stride), rel=1e-12)


def test_circular_padding_attains_and_a_bias_counts_every_pixel(oracles):
  """Circular padding attains sqrt(9 ||x||^2 + h w) with a bias (NET-02).

  For a zero 6 x 6 image this is 6, because the bias counts at every pixel.
  """
  conv = layers.Conv(name='c', channels=2, padding='circular')
  x = np.full((6, 6, 1), 0.3)
  params = _params(conv, x.shape)
  norm = oracles.norms(oracles.parameter_jacobians(conv, params, x[None]))[0]
  assert norm == pytest.approx(math.sqrt(9 * 0.09 * 36 + 36), rel=1e-10)
  empty = oracles.norms(oracles.parameter_jacobians(conv, params, (0 * x)[None]))[0]
  assert empty == pytest.approx(6, rel=1e-10)


KINDS = {
  'dense': (layers.Dense(name='d', width=5, bias_norm=0.5), (7,)),
  'conv': (layers.Conv(name='c', channels=3, bias_norm=0.5), (5, 5, 2)),
  'strided': (layers.Conv(name='c', channels=3, strides=(2, 2), bias_norm=0.5,
                          padding='valid'), (5, 5, 2)),
  'affine': (layers.Affine(name='a', bias_norm=0.5), (3, 3, 4)),
}


@pytest.mark.sound
@pytest.mark.parametrize('kind', KINDS)
def test_constraint_and_certificate(kind, oracles):
  """Constrained layers have norm at most C; smaller ones stay (SPEC-09).

  Constraining twice changes nothing. Weights of both signs are tried, because
  the largest number may be negative.
  """
  node, shape = KINDS[kind]
  x = np.ones(shape)
  for scale in (1e-3, 1.0, -1.0, 1e3):
    params = _params(node, shape, scale=scale)
    held, certificate = _certified(node, params, shape, weight_norm=0.7)
    true = oracles.norms(oracles.input_jacobians(node, held, x[None]))[0]
    assert true <= 0.7 and true <= float(certificate) <= 0.7 * (1 + 3e-6)
    assert np.linalg.norm(held['bias']) <= 0.5
    again, _ = _certified(node, held, shape, weight_norm=0.7)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6),
                 held, again)
    if scale == 1e-3:
      jax.tree.map(np.testing.assert_array_equal, held, params)
    if scale == 1e3:
      # Large weights are not shrunk to nothing.
      assert true > 0.4 and np.linalg.norm(held['bias']) > 0.49
  zeros = jax.tree.map(jnp.zeros_like, params)
  held, certificate = _certified(node, zeros, shape, weight_norm=0.7)
  jax.tree.map(np.testing.assert_array_equal, held, zeros)
  assert 0 < float(certificate) < 1e-5


@pytest.mark.parametrize('make', [
  lambda: layers.Dense(name='x', width=0),
  lambda: layers.Dense(name='x', width=2, bias_norm=-1.0),
  lambda: layers.Dense(name='x', width=2, bias_norm=math.nan),
  lambda: layers.Conv(name='x', channels=0),
  lambda: layers.Conv(name='x', channels=1, bias_norm=0.0),
  lambda: layers.Affine(name='x', bias_norm=-2.0),
  lambda: layers.Dense(name='x', width=2).output_shape((4, 4, 1)),
  lambda: layers.Conv(name='x', channels=2).output_shape((16,)),
  lambda: layers.Affine(name='x').output_shape((16,)),
])
def test_refused_when_built(make):
  with pytest.raises(ValueError, match="'x'"):
    make()


@pytest.mark.parametrize('options, message', [
  (dict(padding='SAME'), 'padding must be one of'),
  (dict(padding='valid', kernel_size=(9, 9)), 'does not fit'),
  (dict(padding='circular', strides=(3, 3)), 'a stride that divides'),
  (dict(strides=(0, 1)), 'stride of .* must be an integer')])
def test_convolutions_that_do_not_fit_are_refused_when_built(options, message):
  with pytest.raises(ValueError, match=message):
    Network(root=Chain(name='n', nodes=(
      layers.Conv(name='c', channels=2, **options),
      pooling.global_average_pool())), input_shape=(4, 4, 1), input_radius=1.0)


REACHES = {
  # Images attain ||W|| B + ||b||, with sqrt(h w) times the bias, together.
  'dense': (layers.Dense(name='x', width=2, bias_norm=0.5),
            jnp.asarray([[2., 0.], [0., 1.]]), jnp.asarray([0.5, 0.]),
            np.array([1.0, 0.0])),
  'conv': (layers.Conv(name='x', channels=1, padding='circular', bias_norm=0.5),
           jnp.ones([3, 3, 1, 1]), jnp.asarray([0.5]), np.ones((4, 4, 1))),
  'affine': (layers.Affine(name='x', bias_norm=0.5), jnp.asarray([2., -1.]),
             jnp.asarray([0.5, 0.]), np.ones((4, 4, 2)) * [1.0, 0.0]),
}


@pytest.mark.parametrize('kind', REACHES)
@pytest.mark.parametrize('radius', [1e-2, 1.0, 7.0])
def test_forward_bounds_are_attained(kind, radius):
  """Output bounds are attained and count the
  bias at every pixel (LIP-02, E6)."""
  node, kernel, bias, x = REACHES[kind]
  held, certificate = _certified(node, {'kernel': kernel, 'bias': bias},
                                 x.shape)
  x = jnp.asarray(radius * x / np.linalg.norm(x), jnp.float32)
  norm = np.linalg.norm(np.float64(node.apply(held, x[None], Context())))
  limit = float(node.output_bound(certificate, radius, x.shape))
  assert limit * (1 - 1e-3) <= norm <= limit
  # A free bias has no bound, and without a bias there is no shift.
  free = dataclasses.replace(node, bias_norm=None)
  assert free.output_bound(certificate, radius, x.shape) == math.inf
  assert node.output_bound(certificate, math.inf, x.shape) == math.inf
  if kind != 'affine':
    bare = dataclasses.replace(node, use_bias=False, bias_norm=None)
    assert float(bare.output_bound(certificate, radius, x.shape)) == pytest.approx(
      float(certificate) * radius, rel=1e-5)
