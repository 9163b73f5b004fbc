"""Tests every network layer by layer, with its input and output."""

import dataclasses
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import layers
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import residual
from dpjax.models import bounding
from dpjax.models import convnet
from dpjax.models import mlp
from dpjax.models import resnet
from dpjax.models import wide_resnet

Bounding = bounding.Bounding


def _start(node):
  """Returns whether a kernel's initial variance is 2 / n (He) or 1 / n (LeCun).

  The deviation of 5000 draws is within 5 % of its expectation.
  """
  deviation = np.std(node.kernel_init(jax.random.key(0), (100, 50)))
  name, = (name for name, variance in (('He', 2), ('LeCun', 1))
           if abs(deviation / (variance / 100)**0.5 - 1) < 0.05)
  return name


def _biases(node):
  return f'bias {node.bias_norm}' if node.use_bias else 'no bias'


def _groups(node):
  """Returns the smallest number of channels that a node accepts."""
  for channels in range(1, 100):
    try:
      node.output_shape((8, 8, channels))
    except ValueError:
      continue
    return channels
  return 0


def _details(node, shape):
  if isinstance(node, layers.Conv):
    (height, width), (down, right) = node.kernel_size, node.strides
    return (f'{height}x{width}/{down},{right} {node.padding} {_biases(node)} '
            f'{_start(node)}')
  if isinstance(node, layers.Dense):
    return f'{_biases(node)} {_start(node)}'
  if isinstance(node, pointwise.Ball):
    return f'{node.radius}{" adaptive" * node.adaptive}'
  if isinstance(node, layers.Affine):
    return _biases(node)
  constant = f'{node.lipschitz(shape):.4g}-Lipschitz'
  if node.elementwise:
    return f'{constant} -1 to {node.function(jnp.array([[-1.]])).item():.3f}'
  return constant + (f' {_groups(node)} groups' if len(shape) == 3 else '')


def _lines(chain, shape, start=''):
  """Yields one line for each node, including those in residual blocks."""
  for node in chain.nodes:
    leaving = node.output_shape(shape)
    if isinstance(node, residual.Residual):
      yield f'{start}{node.name}{" averaged" * (node.share == 0.5)}'
      yield from _lines(node.branch, shape, start + '  ')
      yield f'{start} +'
      yield from _lines(node.shortcut, shape, start + '  ')
    else:
      yield (f'{start}{node.name} {type(node).__name__} '
             f'{_details(node, shape)} -> {leaving}')
    shape = leaving


def _listing(model):
  network = model.network
  return [f'{network.input_shape} within {network.input_radius}',
          *_lines(network.root, network.input_shape)]


def _text(text):
  """Returns the lines of an indented text."""
  return textwrap.dedent(text).strip('\n').splitlines()


@pytest.mark.every(2)
def test_layers_of_a_perceptron():
  model = mlp.mlp(
    num_features=5, num_classes=3, depth=2, width=4, activation='sigmoid',
    bias_norm=0.3, input_radius=2., hidden_radius=0.5)
  assert _listing(model) == _text('''
    (5,) within 2.0
    dense_00 Dense bias 0.3 LeCun -> (4,)
    activation_01 Fixed 0.25-Lipschitz -1 to 0.060 -> (4,)
    dense_01 Dense bias 0.3 LeCun -> (4,)
    activation_02 Fixed 0.25-Lipschitz -1 to 0.060 -> (4,)
    dense_02 Dense bias 0.3 LeCun -> (3,)
    ''')


def test_a_plain_perceptron():
  model = mlp.mlp(num_features=5, num_classes=3, width=4)
  assert _listing(model) == _text('''
    (5,) within None
    dense_00 Dense bias None LeCun -> (4,)
    activation_01 Fixed 1-Lipschitz -1 to -0.762 -> (4,)
    dense_01 Dense bias None LeCun -> (3,)
    ''')


def test_a_perceptron_with_adaptive_balls():
  model = mlp.mlp(
    num_features=5, num_classes=3, depth=2, width=4, use_bias=False,
    input_radius=2., hidden_radius=0.5, adaptive=True)
  assert _listing(model) == _text('''
    (5,) within 2.0
    dense_00 Dense no bias LeCun -> (4,)
    activation_01 Fixed 1-Lipschitz -1 to -0.762 -> (4,)
    ball_01 Ball 0.5 adaptive -> (4,)
    dense_01 Dense no bias LeCun -> (4,)
    activation_02 Fixed 1-Lipschitz -1 to -0.762 -> (4,)
    ball_02 Ball 0.5 adaptive -> (4,)
    dense_02 Dense no bias LeCun -> (3,)
    ''')


def test_layers_of_a_convnet():
  model = convnet.convnet(
    input_shape=(17, 18, 2), num_classes=3, channels=(4, 6), width=5,
    kernel_size=5, stride=2, activation='sigmoid', pool='average',
    bias_norm=0.3, input_radius=2.,
    bounding=Bounding(kind='ball', radius=0.5, adaptive=True))
  assert _listing(model) == _text('''
    (17, 18, 2) within 2.0
    conv_00 Conv 5x5/2,2 zero bias 0.3 He -> (9, 9, 4)
    activation_conv_00 Fixed 0.25-Lipschitz -1 to 0.269 -> (9, 9, 4)
    ball_conv_01 Ball 0.5 adaptive -> (9, 9, 4)
    conv_01 Conv 5x5/2,2 zero bias 0.3 He -> (5, 5, 6)
    activation_conv_01 Fixed 0.25-Lipschitz -1 to 0.269 -> (5, 5, 6)
    average_pool Fixed 0.5-Lipschitz 1 groups -> (2, 2, 6)
    ball_dense_00 Ball 0.5 adaptive -> (2, 2, 6)
    flatten Fixed 1-Lipschitz 1 groups -> (24,)
    dense_00 Dense bias 0.3 He -> (5,)
    activation_dense_00 Fixed 0.25-Lipschitz -1 to 0.269 -> (5,)
    ball_dense_01 Ball 0.5 adaptive -> (5,)
    dense_01 Dense bias 0.3 LeCun -> (3,)
    ''')


def test_a_normalised_convnet_without_pool():
  """Without pooling, a ball precedes the last layer: vectors have no groups."""
  model = convnet.convnet(
    input_shape=(6, 6, 1), num_classes=3, channels=(4, 6), width=5,
    pool='none', use_bias=False, input_radius=2.,
    bounding=Bounding(kind='normalised', radius=0.7, num_groups=2, alpha=0.25))
  assert _listing(model) == _text('''
    (6, 6, 1) within 2.0
    conv_00 Conv 3x3/1,1 zero no bias He -> (6, 6, 4)
    activation_conv_00 Fixed 1-Lipschitz -1 to 0.000 -> (6, 6, 4)
    norm_conv_01 Fixed 4-Lipschitz 2 groups -> (6, 6, 4)
    conv_01 Conv 3x3/1,1 zero no bias He -> (6, 6, 6)
    activation_conv_01 Fixed 1-Lipschitz -1 to 0.000 -> (6, 6, 6)
    norm_dense_00 Fixed 4-Lipschitz 2 groups -> (6, 6, 6)
    flatten Fixed 1-Lipschitz 1 groups -> (216,)
    dense_00 Dense no bias He -> (5,)
    activation_dense_00 Fixed 1-Lipschitz -1 to 0.000 -> (5,)
    ball_dense_01 Ball 0.7 -> (5,)
    dense_01 Dense no bias LeCun -> (3,)
    ''')


def _resnet_block(name, leaving, side, stride, shortcut):
  """Returns the lines of an averaged block with normalisation and scales."""
  conv = (f'Conv 3x3/{{}} zero no bias He -> ({side}, {side}, {leaving})')
  norm = f'Fixed 2-Lipschitz 4 groups -> ({side}, {side}, {leaving})'
  affine = f'Affine bias None -> ({side}, {side}, {leaving})'
  relu = f'Fixed 1-Lipschitz -1 to 0.000 -> ({side}, {side}, {leaving})'
  step = f'{stride},{stride}'
  lines = [
    f'{name} averaged',
    f'  conv_0 {conv.format(step)}', f'  norm_0 {norm}',
    f'  norm_0_affine {affine}', f'  activation {relu}',
    f'  conv_1 {conv.format("1,1")}', f'  norm_1 {norm}',
    f'  norm_1_affine {affine}', ' +']
  if shortcut:
    lines += [f'  conv {conv.format(step).replace("3x3", "1x1")}',
              f'  norm {norm}', f'  norm_affine {affine}']
  return [*lines, f'activation_{name} {relu}']


def test_layers_of_a_resnet():
  model = resnet.resnet(
    input_shape=(8, 8, 1), num_classes=3, depth=14, averaged=True,
    input_radius=2.,
    bounding=Bounding(kind='normalised', num_groups=4, alpha=0.5, affine=True))
  assert _listing(model) == [
    '(8, 8, 1) within 2.0',
    'conv Conv 3x3/1,1 zero no bias He -> (8, 8, 16)',
    'norm Fixed 2-Lipschitz 4 groups -> (8, 8, 16)',
    'norm_affine Affine bias None -> (8, 8, 16)',
    'activation Fixed 1-Lipschitz -1 to 0.000 -> (8, 8, 16)',
    *_resnet_block('block_0_0', 16, 8, 1, False),
    *_resnet_block('block_0_1', 16, 8, 1, False),
    *_resnet_block('block_1_0', 32, 4, 2, True),
    *_resnet_block('block_1_1', 32, 4, 1, False),
    *_resnet_block('block_2_0', 64, 2, 2, True),
    *_resnet_block('block_2_1', 64, 2, 1, False),
    'global_average_pool Fixed 0.5-Lipschitz 1 groups -> (64,)',
    'dense Dense bias None LeCun -> (3,)']


def _wide_block(name, entering, before, side, stride, *, shortcut):
  """Returns the lines of a block with balls instead of normalisations."""
  leaving = 32 * 2**int(name[6])
  after = (side, side, leaving)
  conv = f'Conv 3x3/{{}} zero no bias He -> {after}'
  step, outside = f'{stride},{stride}', (before, before, entering)
  lines = [
    name, f'  ball_0 Ball 0.5 -> {outside}',
    f'  activation_0 Fixed 1-Lipschitz -1 to 0.000 -> {outside}',
    f'  conv_0 {conv.format(step)}', f'  ball_1 Ball 0.5 -> {after}',
    f'  activation_1 Fixed 1-Lipschitz -1 to 0.000 -> {after}',
    f'  conv_1 {conv.format("1,1")}', ' +']
  if shortcut:
    lines += [f'  ball_shortcut Ball 0.5 -> {outside}',
              f'  conv {conv.format(step).replace("3x3", "1x1")}']
  return lines


def test_layers_of_a_wide_resnet():
  model = wide_resnet.wide_resnet(
    input_shape=(8, 8, 1), num_classes=3, depth=16, widening=2, use_bias=False,
    input_radius=2., bounding=Bounding(kind='ball', radius=0.5))
  assert _listing(model) == [
    '(8, 8, 1) within 2.0',
    'conv Conv 3x3/1,1 zero no bias He -> (8, 8, 16)',
    *_wide_block('block_0_0', 16, 8, 8, 1, shortcut=True),
    *_wide_block('block_0_1', 32, 8, 8, 1, shortcut=False),
    *_wide_block('block_1_0', 32, 8, 4, 2, shortcut=True),
    *_wide_block('block_1_1', 64, 4, 4, 1, shortcut=False),
    *_wide_block('block_2_0', 64, 4, 2, 2, shortcut=True),
    *_wide_block('block_2_1', 128, 2, 2, 1, shortcut=False),
    'ball_final Ball 0.5 -> (2, 2, 128)',
    'activation_final Fixed 1-Lipschitz -1 to 0.000 -> (2, 2, 128)',
    'global_average_pool Fixed 0.5-Lipschitz 1 groups -> (128,)',
    'dense Dense bias None LeCun -> (3,)']


def test_a_wide_resnet_with_a_first_block_of_the_same_width():
  """With widening 1, the first block has an identity shortcut."""
  model = wide_resnet.wide_resnet(
    depth=10, widening=1, averaged=True,
    bounding=Bounding(num_groups=8))
  lines = _listing(model)
  first = lines.index('block_0_0 averaged')
  assert lines[first + 1:first + 9] == _text('''
      norm_0 Fixed 316.2-Lipschitz 8 groups -> (32, 32, 16)
      activation_0 Fixed 1-Lipschitz -1 to 0.000 -> (32, 32, 16)
      conv_0 Conv 3x3/1,1 zero bias None He -> (32, 32, 16)
      norm_1 Fixed 316.2-Lipschitz 8 groups -> (32, 32, 16)
      activation_1 Fixed 1-Lipschitz -1 to 0.000 -> (32, 32, 16)
      conv_1 Conv 3x3/1,1 zero bias None He -> (32, 32, 16)
     +
    block_1_0 averaged''')


_PLAIN = Bounding(
  kind='none', radius=1., adaptive=False, alpha=1., num_groups=1, affine=False)


@pytest.mark.every(1)
@pytest.mark.parametrize('make, needed, defaults', [
  (mlp.mlp, dict(num_features=4, num_classes=3), dict(
    depth=1, width=32, activation='tanh', use_bias=True, bias_norm=None,
    input_radius=None, hidden_radius=None, adaptive=False)),
  (mlp.mlp, dict(num_features=4, num_classes=3, input_radius=1.,
                 hidden_radius=1.), dict(adaptive=False)),
  (convnet.convnet, dict(input_shape=(28, 28, 1), num_classes=10), dict(
    channels=(32, 64), width=128, kernel_size=3, stride=1, activation='relu',
    pool='max', use_bias=True, bias_norm=None, input_radius=None,
    bounding=_PLAIN)),
  (resnet.resnet, {}, dict(
    input_shape=(32, 32, 3), num_classes=10, depth=20, averaged=False,
    input_radius=None, bounding=dataclasses.replace(
      _PLAIN, num_groups=8, affine=True))),
  (wide_resnet.wide_resnet, {}, dict(
    input_shape=(32, 32, 3), num_classes=10, depth=16, widening=4,
    use_bias=True, averaged=False, input_radius=None,
    bounding=dataclasses.replace(_PLAIN, num_groups=16)))])
def test_what_is_not_given(make, needed, defaults):
  """The default networks are those of Barczewski (2025) without any bound."""
  assert _listing(make(**needed)) == _listing(make(**needed, **defaults))
  assert Bounding() == _PLAIN
