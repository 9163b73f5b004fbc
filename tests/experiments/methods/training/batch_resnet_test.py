"""These tests compare the batch-normalised network with Flax (MIA-04)."""

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax import tree
from experiments.methods.training import batch_resnet
from experiments.methods.training.batch_resnet import BatchResnet

TINY = BatchResnet(depth=8, widths=(2, 3, 4), num_classes=5,
                   mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
PACK, BATCH, SIDE = 3, 4, 7


class _Reference(nn.Module):
  """This is the network of the text in Flax, one replica."""
  train: bool

  def _convolved(self, x, width, size, stride, name, norm):
    pad = size // 2
    x = nn.Conv(width, (size, size), (stride, stride), [(pad, pad)] * 2,
                use_bias=False, name=name)(x)
    return nn.BatchNorm(use_running_average=not self.train, momentum=0.9,
                        epsilon=1e-5, name=norm)(x)

  @nn.compact
  def __call__(self, x):
    x = (x - np.float32([[[TINY.mean]]])) / np.float32([[[TINY.std]]])
    x = nn.relu(self._convolved(x, 2, 3, 1, 'conv', 'norm'))
    for group, (width, stride) in enumerate([(2, 1), (3, 2), (4, 2)]):
      name = f'block_{group}_0/'
      y = nn.relu(self._convolved(x, width, 3, stride, name + 'conv_0',
                                  name + 'norm_0'))
      y = self._convolved(y, width, 3, 1, name + 'conv_1', name + 'norm_1')
      if group:
        x = self._convolved(x, width, 1, stride, name + 'shortcut',
                            name + 'norm_shortcut')
      x = nn.relu(x + y)
    return nn.Dense(5, name='dense')(x.mean((1, 2)))


def _flat(params):
  """Returns the parameters as Flax names them: {'block_0_0/conv_0': {...}}."""
  layers = {}
  for name, inner in params.items():
    if name.startswith('block'):
      layers |= {f'{name}/{layer}': leaf for layer, leaf in inner.items()}
    else:
      layers[name] = inner
  return layers


def _loss(logits, labels):
  return jnp.sum(optax.softmax_cross_entropy_with_integer_labels(
    logits, labels))


def _compiled(network, *, train):
  """Returns (params, statistics, x, y) -> gradient, logits, statistics."""

  def loss(params, statistics, x, y):
    logits, updated = network.apply(params, statistics, x, train=train)
    return _loss(logits, y), (logits, updated)

  def run(params, statistics, x, y):
    gradient, (logits, updated) = jax.grad(loss, has_aux=True)(
      params, statistics, x, y)
    return gradient, logits, updated

  return jax.jit(run)


def _reference(*, train):

  def loss(params, statistics, x, y):
    logits, updated = _Reference(train).apply(
      {'params': params, 'batch_stats': statistics}, x, mutable='batch_stats')
    return _loss(logits, y), (logits, updated['batch_stats'])

  def run(params, statistics, x, y):
    gradient, (logits, updated) = jax.grad(loss, has_aux=True)(
      _flat(params), {name: {'mean': each['mean'], 'var': each['variance']}
                      for name, each in statistics.items()}, x, y)
    return gradient, logits, {name: {
      'mean': each['mean'], 'variance': each['var']}
      for name, each in updated.items()}

  return jax.jit(run)


_TRAIN = _compiled(TINY, train=True)
_EVALUATE = _compiled(TINY, train=False)


@pytest.fixture(scope='module')
def inputs():
  """Returns random parameters and statistics,
  unlike initial ones, and batches."""
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(lambda: (TINY.init(jax.random.key(0)),
                                   TINY.init_statistics()))
  params, statistics = jax.tree.map(lambda leaf: rng.uniform(
    -0.7, 0.9, (PACK, *leaf.shape)).astype(np.float32), shapes)
  for each in statistics.values():
    each['variance'] += 1
  x = rng.normal(size=(PACK, BATCH, SIDE, SIDE, 3)).astype(np.float32)
  return params, statistics, x, np.arange(PACK * BATCH, dtype=np.int32).reshape(
    PACK, BATCH) % 5


def _of(trees, replica):
  return jax.tree.map(lambda leaf: leaf[replica], trees)


def _close(actual, wanted, atol=2e-5):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(
    a, b, rtol=1e-4, atol=atol), actual, wanted)


def test_parameters_are_those_of_the_table():
  params = jax.eval_shape(BatchResnet().init, jax.random.key(0))
  layers = _flat(params)
  kernels = {name: math.prod(layer['kernel'].shape)
             for name, layer in layers.items() if 'kernel' in layer}
  group = lambda number: sum(
    size for name, size in kernels.items()
    if name.startswith(f'block_{number}') and 'conv' in name)
  assert kernels['conv'] == 432
  assert [group(number) for number in range(3)] == [13_824, 50_688, 202_752]
  assert sorted(size for name, size in kernels.items()
                if 'shortcut' in name) == [512, 2048]
  assert sum(layer['scale'].size + layer['bias'].size
             for layer in layers.values() if 'scale' in layer) == 1568
  assert params['dense']['kernel'].shape == (64, 10)
  assert params['dense']['bias'].shape == (10,)
  assert tree.count(params) == 272_474
  assert {name.split('/')[0] for name in layers} - {
    f'block_{i}_{j}' for i in range(3) for j in range(3)} == {
      'conv', 'norm', 'dense'}


def test_an_image_takes_the_documented_multiplications():
  network = BatchResnet()
  shape = lambda init: jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
    (1, *leaf.shape), leaf.dtype), jax.eval_shape(init))
  program = jax.make_jaxpr(lambda *args: network.apply(*args, train=True)[0])(
    shape(lambda: network.init(jax.random.key(0))),
    shape(network.init_statistics),
    jax.ShapeDtypeStruct((1, 1, 32, 32, 3), jnp.float32))
  multiplications = [math.prod(each.outvars[0].aval.shape)
                     * math.prod(each.invars[1].aval.shape[:-1])
                     for each in program.jaxpr.eqns
                     if each.primitive.name == 'conv_general_dilated']
  assert len(multiplications) == 21 and sum(multiplications) == 40_812_544
  assert program.out_avals[0].shape == (1, 1, 10)


@pytest.mark.every(2)
def test_initial_values_are_uniform_up_to_their_bound():
  layers = _flat(jax.jit(BatchResnet().init)(jax.random.key(1)))
  scaled = []
  for name, layer in layers.items():
    if 'kernel' not in layer:
      assert np.all(layer['scale'] == 1) and np.all(layer['bias'] == 0)
      continue
    kernel = np.asarray(layer['kernel'], np.float64)
    kernel *= math.sqrt(math.prod(kernel.shape[:-1]))
    # With 432 values or more, a layer fails with probability .013 at most.
    assert 0.99 < np.abs(kernel).max() <= 1, name
    scaled.append(kernel.ravel())
  assert len(scaled) == 22
  assert stats.kstest(np.concatenate(scaled), stats.uniform(
    -1, 2).cdf).pvalue > 1e-6
  bias = 8 * np.abs(layers['dense']['bias'])
  assert 0.5 < bias.max() <= 1 and len(set(bias.tolist())) == 10


@pytest.mark.slow
@pytest.mark.parametrize('train', [True, False])
def test_every_replica_of_a_pack_is_the_reference(inputs, train):
  results = (_TRAIN if train else _EVALUATE)(*inputs)
  reference = _reference(train=train)
  for replica in range(PACK):
    gradient, logits, updated = _of(results, replica)
    _close((_flat(gradient), logits, updated),
           reference(*_of(inputs, replica)))
  moved = jax.tree.map(lambda new, old: bool(np.all(new != old)), results[2],
                       inputs[1])
  assert set(jax.tree.leaves(moved)) == {train}


@pytest.mark.slow
def test_one_replica_is_a_pack_too(inputs):
  one = jax.tree.map(lambda leaf: leaf[1:2], inputs)
  _close(_TRAIN(*one), jax.tree.map(lambda leaf: leaf[1:2], _TRAIN(*inputs)))


@pytest.mark.every(2)
def test_replicas_do_not_see_each_other(inputs):
  params, statistics, x, y = inputs
  other = lambda trees: jax.tree.map(
    lambda leaf: np.concatenate([leaf[:1], -3 * leaf[1:2], leaf[2:]]),
    trees)
  before = _TRAIN(*inputs)
  after = _TRAIN(other(params), statistics, other(x), y)
  for replica, same in enumerate((True, False, True)):
    jax.tree.map(lambda a, b: np.testing.assert_equal(
      bool(np.array_equal(a, b)), same), _of(before, replica)[1:],
      _of(after, replica)[1:])
    if same:
      jax.tree.map(np.testing.assert_array_equal, _of(before, replica)[0],
                   _of(after, replica)[0])


def _windowed(x, kernel, stride):
  """Returns a strided convolution with equal padding, window by window."""
  side = len(kernel)
  padded = np.pad(x, ((0, 0), *[(side // 2,) * 2] * 2, (0, 0)))
  out = (x.shape[1] + 2 * (side // 2) - side) // stride + 1
  return np.stack([np.stack([np.einsum(
    'bijc,ijcd->bd', padded[:, i * stride:i * stride + side,
                            j * stride:j * stride + side], kernel)
    for j in range(out)], 1) for i in range(out)], 1)


def _by_hand(params, statistics, x, *, train):
  """Returns logits and statistics of one replica of TINY, in float64."""
  updated = {}

  def convolved(x, block, name, stride):
    inner = params[block] if block else params
    norm = {'conv': 'norm', 'shortcut': 'norm_shortcut'}.get(
      name, name.replace('conv', 'norm'))
    x = _windowed(x, np.float64(inner[name]['kernel']), stride)
    old = statistics[f'{block}/{norm}' if block else norm]
    mean, variance = ((x.mean((0, 1, 2)), x.var((0, 1, 2))) if train else
                      (old['mean'], old['variance']))
    updated[f'{block}/{norm}' if block else norm] = {
      'mean': 0.9 * old['mean'] + 0.1 * mean if train else mean,
      'variance': 0.9 * old['variance'] + 0.1 * variance if train else variance}
    return (x - mean) / np.sqrt(variance + 1e-5) * inner[norm][
      'scale'] + inner[norm]['bias']

  relu = lambda x: np.maximum(x, 0)
  x = relu(convolved((x - np.float64(TINY.mean)) / np.float64(TINY.std), '',
                     'conv', 1))
  for group, stride in enumerate((1, 2, 2)):
    block = f'block_{group}_0'
    y = relu(convolved(x, block, 'conv_0', stride))
    y = convolved(y, block, 'conv_1', 1)
    x = relu(y + (convolved(x, block, 'shortcut', stride) if group else x))
  logits = x.mean((1, 2)) @ np.float64(params['dense']['kernel'])
  return logits + params['dense']['bias'], updated


@pytest.mark.parametrize('train', [True, False])
def test_a_pack_computes_what_each_network_does_by_hand(inputs, train):
  """A pack computes what each network computes by hand, in both modes."""
  run = _TRAIN if train else jax.jit(lambda params, statistics, x, y: (
    None, *TINY.apply(params, statistics, x, train=False)))
  _, logits, updated = run(*inputs)
  for replica in range(PACK):
    params, statistics, x, _ = _of(inputs, replica)
    wanted = _by_hand(params, statistics, x, train=train)
    _close((logits[replica], _of(updated, replica)), wanted)


@pytest.mark.every(3)
@pytest.mark.parametrize('side, height, stride', [
  (3, 6, 1), (3, 6, 2), (3, 7, 2), (1, 6, 2), (1, 7, 2)])
def test_convolutions_pad_alike_on_both_sides(side, height, stride):
  """Convolutions pad alike on both sides, as PyTorch's do.

  XLA's 'SAME' pads a height of 6 by 0 and 1.
  """
  rng = np.random.default_rng(0)
  x = rng.normal(size=(2, height, height, 2 * 3)).astype(np.float32)
  kernel = rng.normal(size=(2, side, side, 3, 4)).astype(np.float32)
  wanted = np.concatenate([_windowed(part, each, stride) for part, each in zip(
    np.split(x, 2, -1), kernel, strict=True)], -1)
  convolved = batch_resnet._convolve(x, kernel, stride)
  np.testing.assert_allclose(convolved, wanted, atol=1e-5)


@pytest.mark.slow
def test_half_precision_is_close_while_training_and_absent_afterwards(inputs):
  half = dataclasses.replace(TINY, compute_dtype='bfloat16')
  logits, updated = jax.jit(lambda *args: half.apply(*args, train=True))(
    *inputs[:3])
  _, wanted, statistics = _TRAIN(*inputs)
  assert {leaf.dtype for leaf in jax.tree.leaves((logits, updated))} == {
    jnp.dtype('float32')}
  error = np.abs(logits - wanted)
  assert 1e-4 < error.max() < 0.05 * np.abs(wanted).max()
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.02,
                                                       atol=0.02),
               updated, statistics)
  exact = jax.jit(lambda *args: half.apply(*args, train=False)[0])(*inputs[:3])
  np.testing.assert_allclose(exact, _EVALUATE(*inputs)[1], rtol=1e-4,
                             atol=1e-5)


@pytest.mark.parametrize('arguments, message', [
  (dict(depth=10), 'depth must be 6 n [+] 2, got 10'),
  (dict(depth=2), 'depth must be an integer >= 8'),
  (dict(widths=(1, 2)), 'widths must be three numbers, got 2'),
  (dict(widths=(1, 0, 2)), 'width must be'),
  (dict(num_classes=1), 'num_classes must be'),
  (dict(input_channels=0), 'input_channels must be'),
  (dict(std=(1.0, 0.0, 1.0)), 'std must be a positive'),
  (dict(compute_dtype='float16'), 'compute_dtype must be one of')])
def test_bad_input_is_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    BatchResnet(**arguments)
