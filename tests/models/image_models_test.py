"""Tests the image networks: counts, shapes and
certificates (NET-10, NET-11)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import tree
from dpjax.lipschitz import losses
from dpjax.models import bounding
from dpjax.models import convnet
from dpjax.models import resnet
from dpjax.models import wide_resnet
from dpjax.train import methods
from dpjax.typing import Batch

Bounding = bounding.Bounding


def _count(model):
  return tree.count(jax.eval_shape(model.init, jax.random.key(0)))


def _logits(model, shape):
  params = jax.eval_shape(model.init, jax.random.key(0))
  return jax.eval_shape(model.apply, params,
                        jax.ShapeDtypeStruct((3, *shape), jnp.float32)).shape


def test_convnet_has_the_printed_count():
  model = convnet.convnet(input_shape=(28, 28, 1), num_classes=10)
  assert _count(model) == 320 + 18_496 + 1_605_760 + 1_290 == 1_625_866
  assert _logits(model, (28, 28, 1)) == (3, 10)
  # Bounding adds no parameters.
  for kind in ('ball', 'normalised'):
    assert _count(convnet.convnet(
      input_shape=(28, 28, 1), num_classes=10, input_radius=1.,
      bounding=Bounding(kind=kind))) == 1_625_866


def test_convnet_of_other_kernels_strides_and_no_biases():
  model = convnet.convnet(
    input_shape=(14, 14, 1), num_classes=10, channels=(8, 16), width=32,
    stride=2, pool='none', use_bias=False)
  assert _count(model) == 9 * 8 + 9 * 8 * 16 + 4 * 4 * 16 * 32 + 32 * 10
  assert _logits(model, (14, 14, 1)) == (3, 10)
  one = convnet.convnet(input_shape=(14, 14, 1), num_classes=10, channels=(4,),
                        width=6, kernel_size=5, stride=2)
  assert _count(one) == 26 * 4 + (3 * 3 * 4 + 1) * 6 + 7 * 10


@pytest.mark.parametrize('depth, use_bias, affine, expected', [
  (16, True, True, 2_751_146), (16, True, False, 2_747_530),
  (16, False, True, 2_748_890), (16, False, False, 2_745_274),
  (40, True, True, 8_955_050), (40, True, False, 8_944_266),
  (40, False, True, 8_949_210), (40, False, False, 8_938_426)])
def test_wide_resnet_counts(depth, use_bias, affine, expected):
  """Parameter counts are right; section 5.3.2 prints
  WRN-40-4's for WRN-16-4."""
  model = wide_resnet.wide_resnet(
    depth=depth, use_bias=use_bias,
    bounding=Bounding(num_groups=16, affine=affine))
  assert _count(model) == expected


def test_wide_resnet_has_the_layers_of_its_depth():
  for depth, parameter_layers, blocks in ((16, 17, 6), (40, 41, 18)):
    model = wide_resnet.wide_resnet(depth=depth)
    layers = jax.tree.leaves(model.network.fill(1.))
    # The depth's name does not count the three projections: 16 = 13 + 3.
    assert len(layers) == parameter_layers
    names = jax.eval_shape(model.init, jax.random.key(0))
    assert sum(name.startswith('block') for name in names) == blocks
  assert _logits(wide_resnet.wide_resnet(depth=10, widening=1),
                 (32, 32, 3)) == (3, 10)


def test_resnet_20_has_the_known_count():
  model = resnet.resnet()
  assert _count(model) == 272_474
  assert _logits(model, (32, 32, 3)) == (3, 10)
  assert _count(resnet.resnet(bounding=Bounding(
    kind='normalised', num_groups=4, affine=True))) == 272_474


def _small(kind):
  """Returns [(name, model)] of small certified models of all families."""
  bound = Bounding(kind=kind, num_groups=2, radius=2.)
  models = [
    ('convnet', convnet.convnet(
      input_shape=(6, 6, 1), num_classes=3, channels=(2, 4), width=5,
      input_radius=2., bounding=bound)),
    ('wide_resnet', wide_resnet.wide_resnet(
      input_shape=(8, 8, 1), num_classes=3, depth=10, widening=1,
      averaged=True, input_radius=2., bounding=bound))]
  if kind == 'normalised':
    models.append(('resnet', resnet.resnet(
      input_shape=(8, 8, 1), num_classes=3, depth=8, averaged=True,
      input_radius=2., bounding=bound)))
  return models


@pytest.mark.slow
@pytest.mark.parametrize('use_bias', [False, True])
@pytest.mark.parametrize('kernel_size, windows', [(2, 1), (3, 4)])
def test_bounds_of_strided_convnets(kernel_size, windows, use_bias):
  """Bounds of strided convnets match hand computations and hold (NET-02)."""
  model = convnet.convnet(
    input_shape=(8, 8, 1), num_classes=3, channels=(2,), width=4,
    kernel_size=kernel_size, stride=2, pool='none', use_bias=use_bias,
    input_radius=3., bounding=Bounding(kind='ball', radius=0.5))
  loss = losses.cross_entropy()
  method = methods.lip_dp_sgd(model, loss, weight_norm=2.)
  params, norms = jax.jit(method.constraint.constrain)(
    model.init(jax.random.key(0)))
  bounds = method.bounder.l2_sensitivity(norms)
  bias = 1. if use_bias else 0.
  by_hand = {
    'conv_00': loss.lipschitz * norms['dense_01'] * norms['dense_00'] * np.sqrt(
      windows * 3**2 + 16 * bias),
    'dense_00': loss.lipschitz * norms['dense_01'] * np.sqrt(0.25 + bias),
    'dense_01': loss.lipschitz * np.sqrt(0.25 + bias)}
  assert set(bounds) == set(by_hand)
  for name, bound in bounds.items():
    np.testing.assert_allclose(bound, by_hand[name], rtol=1e-4)
    assert ('bias' in params[name]) == use_bias

  @jax.jit
  def norms_of(x, y):
    total = method.bounder.sums(params, Batch(x[None], y[None]),
                                jnp.ones([1], jnp.bool_)).total
    return {name: tree.global_norm(total[name]) for name in bounds}

  rng = np.random.default_rng(0)
  for scale in (0.01, 1., 1e20):
    x = jnp.asarray(rng.normal(size=(8, 8, 1)) * scale, jnp.float32)
    for name, norm in norms_of(x, jnp.int32(1)).items():
      assert norm <= bounds[name] * (1 + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['ball', 'normalised'])
def test_records_keep_the_bounds_of_small_networks(kind):
  loss = losses.cross_entropy()
  for name, model in _small(kind):
    method = methods.lip_dp_sgd(model, loss, weight_norm=1.)
    params, certificate = jax.jit(method.constraint.constrain)(
      model.init(jax.random.key(0)))
    bounds = method.bounder.l2_sensitivity(certificate)
    shape = model.network.input_shape

    @jax.jit
    def ratios(x, y, method=method, params=params, bounds=bounds):
      total = method.bounder.sums(params, Batch(x[None], y[None]),
                                  jnp.ones([1], jnp.bool_)).total
      blocks = jax.tree.structure(bounds).flatten_up_to(total)
      return jnp.stack([tree.global_norm(block) / bound for block, bound in
                        zip(blocks, jax.tree.leaves(bounds), strict=True)])

    rng = np.random.default_rng(0)
    worst = 0.
    for scale in (0., 0.1, 1., 1e6, 1e25):
      x = jnp.asarray(rng.normal(size=shape) * scale, jnp.float32)
      worst = max(worst, float(jnp.max(ratios(x, jnp.int32(1)))))
    assert worst <= 1 + 1e-5, name
    assert worst > 1e-3, name


_CONVNET = dict(input_shape=(8, 8, 1), num_classes=3)


@pytest.mark.every(1)
@pytest.mark.parametrize('make, message', [
  (lambda: wide_resnet.wide_resnet(depth=17), 'depth must be 6 n'),
  (lambda: wide_resnet.wide_resnet(depth=4), 'depth must be .* >= 10'),
  (lambda: wide_resnet.wide_resnet(widening=0), 'widening must be .* >= 1'),
  (lambda: wide_resnet.wide_resnet(num_classes=0), 'num_classes .* >= 1'),
  (lambda: resnet.resnet(depth=16), 'depth must be 6 n'),
  (lambda: resnet.resnet(depth=2), 'depth must be .* >= 8'),
  (lambda: resnet.resnet(num_classes=0), 'num_classes must be .* >= 1'),
  (lambda: convnet.convnet(**_CONVNET, channels=()), 'convolutions must be'),
  (lambda: convnet.convnet(**_CONVNET, width=0), 'width must be .* >= 1'),
  (lambda: convnet.convnet(**_CONVNET | {'num_classes': 0}), 'num_classes'),
  (lambda: convnet.convnet(**_CONVNET, activation='gelu'), 'activation must'),
  (lambda: Bounding(num_groups=0), 'num_groups must be'),
  (lambda: resnet.resnet(bounding=Bounding(kind='ball')), "'none' or 'norm"),
  (lambda: Bounding(kind='box'), 'bounding must be one of'),
  (lambda: Bounding(radius=0.), 'radius must be a positive'),
  (lambda: Bounding(alpha=-1.), 'alpha must be a positive'),
  (lambda: convnet.convnet(input_shape=(28, 28, 1), num_classes=10,
                           pool='median'), 'pool must be one of'),
  (lambda: wide_resnet.wide_resnet(bounding=Bounding(num_groups=5)),
   '5 groups need')])
def test_errors(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_plain_residuals_overflow_or_drown_and_are_refused_or_said():
  """Plain residuals with a small alpha overflow and are refused (E12, E17)."""
  model = wide_resnet.wide_resnet(
    depth=40, input_radius=1.,
    bounding=Bounding(kind='normalised', num_groups=16, alpha=1e-3))
  with pytest.raises(ValueError, match='overflows float32'):
    methods.lip_dp_sgd(model, losses.cross_entropy(), weight_norm=1.)


def test_losses_without_a_constant_are_refused():
  """Losses without a Lipschitz constant are refused (LOSS-01)."""
  model = _small('ball')[0][1]
  with pytest.raises(ValueError, match='loss has no Lipschitz constant'):
    methods.lip_dp_sgd(model, losses.squared_error(), weight_norm=1.)
  methods.lip_dp_sgd(model, losses.clip_cotangents(
    losses.squared_error(), 1.), weight_norm=1.)
  methods.layer_clipped(model, losses.squared_error(), clip_norm=1.)
