"""These tests compare book-keeping with the
gradients of single records (DP-16)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import clipping
from dpjax.grads import contractions
from dpjax.grads import per_example
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.residual import Residual
from dpjax.typing import Batch

_SIZE, _CLIP = 9, 0.3
_LOSS = losses.cross_entropy()
_RELU = pointwise.activation('relu')


def _chain(*nodes, shape, **kwargs):
  return Network(root=Chain(name='net', nodes=nodes), input_shape=shape,
                 **kwargs)


def _conv(name, channels, **kwargs):
  return layers.Conv(name=name, channels=channels, **kwargs)


def _dense(name, width, **kwargs):
  return layers.Dense(name=name, width=width, **kwargs)


def _block(name, channels, *, averaged=False, stride=1, projected=False):
  """Returns a residual block; inner names are the same in every block."""
  norm = normalisation.lipschitz(num_groups=1, alpha=0.5)
  branch = (norm, layers.Affine(name='affine'), _RELU,
            _conv('conv', channels, strides=(stride, stride)))
  shortcut = (_conv('conv', channels, kernel_size=(1, 1), use_bias=False,
                    strides=(stride, stride)),) if projected else ()
  return Residual(name=name, share=0.5 if averaged else None,
                  branch=Chain(name='branch', nodes=branch),
                  shortcut=Chain(name='shortcut', nodes=shortcut))


_FLAT = pointwise.flatten()
# Convolutions of few sites and many channels go by Gram matrices.
NETWORKS = {
  'dense': _chain(_dense('a', 5), pointwise.activation('tanh'),
                  _dense('b', 4, use_bias=False), _RELU, _dense('c', 3),
                  shape=(6,)),
  'in a ball': _chain(_dense('a', 5), pointwise.Ball(name='ball', radius=0.5),
                      _dense('b', 3), shape=(6,), input_radius=1.5),
  'convolutions': _chain(
    _conv('a', 4), _RELU, pooling.max_pool(),
    _conv('b', 3, padding='valid', use_bias=False),
    pointwise.activation('tanh'), _FLAT, _dense('c', 3), shape=(8, 8, 2)),
  'strides': _chain(
    _conv('a', 3, strides=(2, 1), kernel_size=(3, 2)),
    _conv('b', 4, strides=(2, 2), padding='circular', kernel_size=(2, 3)),
    _conv('c', 3, padding=((1, 0), (0, 2)), kernel_size=(2, 2)), _RELU, _FLAT,
    _dense('d', 3), shape=(8, 4, 2)),
  'gram': _chain(
    _conv('a', 6), _RELU, _conv('b', 8, strides=(2, 2), padding='circular'),
    _RELU, _FLAT, _dense('d', 3), shape=(4, 4, 5)),
  'blocks': _chain(
    _conv('a', 4), _block('first', 4), _block('second', 4, averaged=True),
    _block('third', 6, stride=2, projected=True), _RELU,
    pooling.global_average_pool(), _dense('d', 3), shape=(6, 6, 2)),
}


@functools.cache
def _case(name, seed=0):
  """Returns (network, params, batch) with weights and records of many sizes."""
  network = NETWORKS[name]
  rng = np.random.default_rng(seed)
  params = jax.tree.map(
    lambda leaf: leaf + jnp.asarray(0.1 * rng.normal(size=leaf.shape),
                                    jnp.float32),
    network.init(jax.random.key(seed)))
  x = rng.normal(size=(_SIZE, *network.input_shape))
  x *= np.logspace(-2, 1, _SIZE).reshape((-1,) + (1,) * (x.ndim - 1))
  return network, params, Batch(
    jnp.asarray(x, jnp.float32),
    jnp.asarray(rng.integers(0, 3, _SIZE), jnp.int32))


def _book_keeping(network, clip_norm=_CLIP, kernel='bookkeeping'):
  return per_example.clipped(network.apply, _LOSS.values, clip_norm=clip_norm,
                             kernel=kernel)


@functools.cache
def _ours(name, clip_norm=_CLIP):
  bounder = _book_keeping(NETWORKS[name], clip_norm)
  return bounder._replace(sums=jax.jit(bounder.sums))


def _flat(values):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64))
                         for leaf in jax.tree.leaves(values)])


def _single(sums, params, batch):
  """Returns what each record adds when the others are masked, [b, d]."""
  only = jnp.eye(batch.y.shape[0], dtype=jnp.bool_)
  return np.stack([_flat(sums(params, batch, mask).total) for mask in only])


@pytest.mark.slow
@pytest.mark.parametrize('name', NETWORKS)
def test_sums_without_clipping_are_the_plain_gradient(name):
  network, params, batch = _case(name)
  mask = jnp.arange(_SIZE) != 4
  sums = _ours(name, 1e6).sums(params, batch, mask)
  plain = jax.jit(functools.partial(
    per_example.plain_sums, network.apply, _LOSS.values))(params, batch, mask)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(
    a, b, rtol=1e-5, atol=1e-5 * float(jnp.max(jnp.abs(b)))),
               sums.total, plain.total)
  np.testing.assert_allclose(sums.loss, plain.loss, rtol=1e-6)
  assert int(sums.num_nonfinite) == 0


@functools.cache
def _gradients(name):
  """Returns each record's gradient by `vmap` in float64, [b, d]."""
  network, params, batch = _case(name)
  gradients = jax.jit(functools.partial(
    per_example.per_example_gradients, network.apply, _LOSS.values))(
      params, batch)[1]
  return np.concatenate([np.float64(leaf).reshape(_SIZE, -1)
                         for leaf in jax.tree.leaves(gradients)], 1)


@pytest.mark.every(5)
@pytest.mark.parametrize('name', NETWORKS)
def test_each_record_adds_its_clipped_gradient(name):
  _, params, batch = _case(name)
  free = _gradients(name)
  lengths = np.linalg.norm(free, axis=1)
  clip_norm = float(np.median(lengths)) * 1.01
  bounder = _ours(name, clip_norm)
  assert float(bounder.l2_sensitivity(())) == np.float32(clip_norm)
  contributions = _single(bounder.sums, params, batch)
  weights = np.minimum(1, clip_norm * (1 - clipping.ROUNDING_MARGIN) / lengths)
  assert 2 <= np.sum(weights < 0.99) <= _SIZE // 2
  expected = weights[:, None] * free
  limits = lengths * weights
  gaps = np.linalg.norm(contributions - expected, axis=1) / limits
  assert np.all(gaps[weights == 1] <= 1e-5)
  assert gaps.max() <= 1e-5
  # The direction is the gradient's up to rounding, for any norm.
  norms = np.linalg.norm(contributions, axis=1)
  cosines = np.einsum('bi,bi->b', contributions, expected) / norms / limits
  assert np.all(cosines >= 1 - 1e-10)
  assert np.all(norms <= limits * (1 + 1e-5)) and norms.max() <= clip_norm


@pytest.mark.every(3)
@pytest.mark.parametrize('name', NETWORKS)
def test_sums_are_those_of_the_reference(name):
  network, params, batch = _case(name)
  mask = jnp.arange(_SIZE) % 4 != 1
  reference = jax.jit(_book_keeping(network, kernel='vmap').sums)
  actual, expected = (sums(params, batch, mask)
                      for sums in (_ours(name).sums, reference))
  gap = np.linalg.norm(_flat(actual.total) - _flat(expected.total))
  assert gap <= 1e-5 * np.linalg.norm(_flat(expected.total))
  np.testing.assert_allclose(actual.loss, expected.loss, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['dense', 'convolutions', 'blocks'])
def test_a_record_adds_the_same_in_any_company(name):
  _, params, batch = _case(name)
  before = _single(_ours(name).sums, params, batch)
  others = Batch((3 * batch.x[::-1] + 1).at[5].set(batch.x[5]),
                 ((batch.y + 1) % 3).at[5].set(batch.y[5]))
  after = _single(_ours(name).sums, params, others)
  np.testing.assert_array_equal(before[5], after[5])
  full = jnp.ones([_SIZE], jnp.bool_)
  for company in (batch, others):
    difference = (_flat(_ours(name).sums(params, company, full).total) - _flat(
      _ours(name).sums(params, company, full.at[5].set(False)).total))
    np.testing.assert_allclose(difference, before[5], atol=2e-6)


@pytest.mark.every(4)
@pytest.mark.parametrize('name', NETWORKS)
def test_bad_and_masked_records_are_nothing(name):
  """Bad and masked records change no bit of the sums.

  Bad features are NaN or infinite.
  """
  _, params, batch = _case(name)
  sums = _ours(name).sums
  full = jnp.ones([_SIZE], jnp.bool_)
  reference = sums(params, batch, full.at[3].set(False))
  assert int(reference.num_nonfinite) == 0
  for bad in (jnp.nan, jnp.inf, -jnp.inf):
    poisoned = batch._replace(x=batch.x.at[3, 0].set(bad))
    actual = sums(params, poisoned, full)
    assert int(actual.num_nonfinite) == 1
    jax.tree.map(np.testing.assert_array_equal, reference.total, actual.total)
    np.testing.assert_array_equal(reference.loss, actual.loss)
    masked = sums(params, poisoned, full.at[3].set(False))
    jax.tree.map(np.testing.assert_array_equal, reference, masked)
  nothing = sums(params, batch, jnp.zeros_like(full))
  assert not np.any(_flat(nothing.total))


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['dense', 'convolutions', 'gram'])
def test_huge_records_and_huge_cotangents(name):
  """Huge records and cotangents stay clipped, or are counted and add zero.

  Above 1e10 float32 cannot measure the product of norms.
  """
  _, params, batch = _case(name)
  full = jnp.ones([_SIZE], jnp.bool_)
  for size in (1e3, 1e6, 1e8, 3e12, 1e20, 3e38):
    huge = batch._replace(x=batch.x.at[3].set(size))
    terms = _single(_ours(name).sums, params, huge)
    assert np.all(np.isfinite(terms))
    assert np.linalg.norm(terms, axis=1).max() <= _CLIP
    count = int(_ours(name).sums(params, huge, full).num_nonfinite)
    # Products of norms end at 1e10; gradients that are formed are measured,
    # however large what they are made of.
    assert count == (size > 1e10) or (name == 'convolutions' and count == 0)
    assert count == 0 or not np.any(terms[3])
  for size in (1e4, 1e15, 1e30):
    # Weights that large make cotangents large; then records overflow, or not.
    grown = jax.tree.map(lambda leaf: leaf * size, params)
    terms = _single(_ours(name).sums, grown, batch)
    assert np.all(np.isfinite(terms))
    assert np.linalg.norm(terms, axis=1).max() <= _CLIP


_PIXELS = 8


def _cancelling(size):
  """Returns a convolution or affine layer whose cotangents sum to zero."""
  first = _conv('a', 3) if size == 'conv' else layers.Affine(name='a')
  # The next layer is linear and weighs pixels by numbers that sum to zero.
  rng = np.random.default_rng(1)
  weights = rng.normal(size=(_PIXELS, _PIXELS, 1))
  weights -= weights.mean()
  mix = pointwise.opaque(
    lambda x: jnp.einsum('bhwc,hwz->bc', x, jnp.asarray(weights, jnp.float32)),
    name='mix', shape_of=lambda shape: shape[2:])
  return _chain(first, mix, _dense('b', 3, use_bias=False),
                shape=(_PIXELS, _PIXELS, 3))


@pytest.mark.every(4)
@pytest.mark.parametrize('kind', ['conv', 'conv by gram', 'affine'])
def test_gradients_that_cancel_stay_clipped(kind, monkeypatch):
  """Gradients that cancel stay clipped although float32 rounds all of them.

  The records are constant images of many sizes.
  """
  if kind == 'conv by gram':
    monkeypatch.setattr(contractions, 'gram_is_cheaper', lambda layer: True)
    kind = 'conv'
  network = _cancelling(kind)
  params = network.init(jax.random.key(0))
  sizes = jnp.asarray(np.logspace(0, 9, 60), jnp.float32)
  batch = Batch(jnp.ones((60, _PIXELS, _PIXELS, 3)) * sizes[
    :, None, None, None], jnp.zeros([60], jnp.int32))
  sums = jax.jit(_book_keeping(network, 1e-3).sums)
  terms = _single(sums, params, batch)
  assert np.linalg.norm(terms, axis=1).max() <= 1e-3


def test_records_in_a_ball():
  """Projecting records before or inside the network gives the same sums.

  Bad records count as bad either way.
  """
  network, params, batch = _case('in a ball')
  mask = jnp.ones([_SIZE], jnp.bool_)
  x = batch.x.at[2, 1].set(jnp.nan)
  inside = _ours('in a ball').sums(params, batch._replace(x=x), mask)
  prepared = _ours('in a ball').sums(
    params, batch._replace(x=network.prepare(x)), mask)
  assert int(inside.num_nonfinite) == int(prepared.num_nonfinite) == 1
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
               inside.total, prepared.total)


def test_no_dense_kernel_is_formed_for_a_record():
  network, params, batch = _case('dense')
  mask = jnp.ones([_SIZE], jnp.bool_)

  def shapes(bounder):
    text = str(jax.make_jaxpr(bounder.sums)(params, batch, mask))
    return [f'f32[{_SIZE},{m},{n}]' in text for m, n in ((6, 5), (5, 4), (4, 3))
            ]

  assert all(shapes(_book_keeping(network, kernel='vmap')))
  assert not any(shapes(_book_keeping(network)))


def test_parameters_get_no_gradient_of_their_own():
  """Book-keeping needs no second backward pass for the parameters.

  The compiled step has as many products as outputs, cotangents and sums need.
  """
  network, params, batch = _case('dense')
  compiled = jax.jit(_book_keeping(network).sums).lower(
      params, batch, jnp.ones([_SIZE], jnp.bool_)).compile()
  flops = compiled.cost_analysis()['flops']
  kernels = sum(layer['kernel'].size for layer in params.values())
  # Each weight and record takes two for forward, backward (not first), sums.
  products = 2 * _SIZE * (3 * kernels - params['a']['kernel'].size)
  assert products <= flops <= products + 100 * _SIZE * 18
