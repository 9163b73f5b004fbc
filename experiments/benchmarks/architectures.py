"""Networks as plain data, which JAX, PyTorch and certified forms build."""

from typing import Any, NamedTuple


class Dense(NamedTuple):
  """Dense layer x W + b over the last axis."""
  name: str
  inputs: int
  outputs: int


class Conv(NamedTuple):
  """Convolution with square kernels, zero padding and a bias."""
  name: str
  size: int
  inputs: int
  outputs: int
  stride: int = 1
  pad: int = 0


class Embedding(NamedTuple):
  """Embedding of tokens as vectors."""
  name: str
  vocabulary: int
  width: int


class LayerNorm(NamedTuple):
  """Layer normalisation over the last axis, with a scale and a shift."""
  name: str
  width: int


class GroupNorm(NamedTuple):
  """Normalisation over pixels and groups of channels, without parameters."""
  groups: int


class Activation(NamedTuple):
  """Activation function: relu, tanh or gelu."""
  function: str


class MaxPool(NamedTuple):
  """Maximum over square windows without padding."""
  window: int
  stride: int


class Mean(NamedTuple):
  """Mean over all axes but batch and channels."""


class Flatten(NamedTuple):
  """Conversion of an image of this shape to a vector."""
  shape: tuple[int, int, int]


class Residual(NamedTuple):
  """Residual sum branch(x) + shortcut(x); an empty shortcut is the identity."""
  branch: tuple
  shortcut: tuple = ()


class Architecture(NamedTuple):
  """A network with the shape of its records.

  Attributes:
    layers: layers in order.
    input_shape: shape of a record; images have channels last.
    num_classes: number of logits.
    vocabulary: number of tokens if records are tokens, else 0.
    about: description of the network.
  """
  layers: tuple
  input_shape: tuple[int, ...]
  num_classes: int
  vocabulary: int
  about: str


_RELU, _TANH, _GELU = map(Activation, ('relu', 'tanh', 'gelu'))


def _mlp(*widths: int) -> tuple:
  """Returns dense layers of these widths, with ReLU between them."""
  layers = []
  for index, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
    layers += [*([_RELU] if index else []),
               Dense(f'dense_{index}', inputs, outputs)]
  return tuple(layers)


def _cnn() -> tuple:
  """Returns the network of the MNIST tutorials."""
  return (Conv('conv_0', 8, 1, 16, 2, 3), _TANH, MaxPool(2, 1),
          Conv('conv_1', 4, 16, 32, 2, 0), _TANH, MaxPool(2, 1),
          Flatten((4, 4, 32)), Dense('dense_0', 512, 32), _TANH,
          Dense('dense_1', 32, 10))


def _conv3() -> tuple:
  """Returns a network of three convolutions without pooling."""
  return (Conv('conv_0', 3, 1, 32, 1, 1), _RELU,
          Conv('conv_1', 3, 32, 64, 2, 1), _RELU,
          Conv('conv_2', 3, 64, 64, 2, 1), _RELU, Flatten((7, 7, 64)),
          Dense('dense_0', 3136, 41), _RELU, Dense('dense_1', 41, 10))


def _convnet() -> tuple:
  """Returns the layers of `dpjax.models.convnet`."""
  return (Conv('conv_0', 3, 1, 32, 1, 1), _RELU,
          Conv('conv_1', 3, 32, 64, 1, 1), _RELU, MaxPool(2, 2),
          Flatten((14, 14, 64)), Dense('dense_0', 12544, 128), _RELU,
          Dense('dense_1', 128, 10))


def _wide_resnet(blocks: int, widening: int, groups: int) -> tuple:
  """Returns pre-activation blocks as in `dpjax.models.wide_resnet`."""
  layers: list[Any] = [Conv('conv', 3, 3, 16, 1, 1)]
  entering = 16
  for group, base in enumerate((16, 32, 64)):
    leaving = base * widening
    for block in range(blocks):
      stride, name = 2 if group and not block else 1, f'block_{group}_{block}'
      branch = (GroupNorm(groups), _RELU,
                Conv(f'{name}_conv_0', 3, entering, leaving, stride, 1),
                GroupNorm(groups), _RELU,
                Conv(f'{name}_conv_1', 3, leaving, leaving, 1, 1))
      shortcut = (Conv(f'{name}_conv', 1, entering, leaving, stride),)
      layers.append(Residual(branch, shortcut if entering != leaving else ()))
      entering = leaving
  return (*layers, GroupNorm(groups), _RELU, Mean(),
          Dense('dense', entering, 10))


def _dense_stack(blocks: int, width: int, vocabulary: int) -> tuple:
  """Returns the layers of a transformer without attention."""
  layers: list[Any] = [Embedding('embedding', vocabulary, width)]
  for block in range(blocks):
    name = f'block_{block}'
    layers.append(Residual((
        LayerNorm(f'{name}_norm', width),
        Dense(f'{name}_dense_0', width, 4 * width), _GELU,
        Dense(f'{name}_dense_1', 4 * width, width))))
  return (*layers, LayerNorm('norm', width), Mean(), Dense('dense', width, 10))


MODELS = {
    'mlp': Architecture(_mlp(784, 512, 256, 10), (784,), 10, 0,
                        'MLP 784-512-256-10, ReLU'),
    'cnn': Architecture(_cnn(), (28, 28, 1), 10, 0,
                        'tanh and max-pool net of the MNIST tutorials'),
    'conv3': Architecture(_conv3(), (28, 28, 1), 10, 0,
                          'three 3 x 3 convolutions, no pool'),
    'convnet': Architecture(_convnet(), (28, 28, 1), 10, 0,
                            'ConvNet of `dpjax.models.convnet`'),
    'wrn_16_4': Architecture(_wide_resnet(2, 4, 16), (32, 32, 3), 10, 0,
                             'WRN-16-4 with group normalisation'),
    'dense_stack': Architecture(
        _dense_stack(2, 128, 1024), (128,), 10, 1024,
        'embedding, two residual blocks of dense layers on 128 tokens, mean'),
    'tiny_mlp': Architecture(_mlp(6, 5, 3), (6,), 3, 0, 'for smoke runs'),
    'tiny_cnn': Architecture(
        (Conv('conv_0', 3, 1, 4, 2, 1), _RELU, MaxPool(2, 1),
         Flatten((3, 3, 4)), Dense('dense_0', 36, 3)),
        (8, 8, 1), 3, 0, 'for tests'),
    'tiny_resnet': Architecture(
        (Conv('conv', 3, 1, 4, 1, 1),
         Residual((GroupNorm(2), _RELU, Conv('conv_0', 3, 4, 6, 2, 1)),
                  (Conv('conv_1', 1, 4, 6, 2),)),
         GroupNorm(2), _RELU, Mean(), Dense('dense', 6, 3)),
        (6, 6, 1), 3, 0, 'for tests'),
    'tiny_stack': Architecture(_dense_stack(1, 4, 7), (5,), 10, 7,
                               'for tests'),
}
"""Maps a name to its network."""


def walk(layers: tuple) -> list:
  """Returns all layers in order, including those of branches and shortcuts."""
  flat: list[Any] = []
  for layer in layers:
    if isinstance(layer, Residual):
      flat += walk(layer.branch) + walk(layer.shortcut)
    else:
      flat.append(layer)
  return flat


def with_parameters(architecture: Architecture) -> list:
  """Returns the layers that have parameters."""
  return [layer for layer in walk(architecture.layers)
          if hasattr(layer, 'name')]


def num_parameters(architecture: Architecture) -> int:
  """Returns the number of trainable scalars of a network."""
  return sum(map(_size, with_parameters(architecture)))


def _size(layer: Any) -> int:
  """Returns the number of trainable scalars of a layer."""
  match layer:
    case Dense():
      return (layer.inputs + 1) * layer.outputs
    case Conv():
      return (layer.size**2 * layer.inputs + 1) * layer.outputs
    case Embedding():
      return layer.vocabulary * layer.width
    case LayerNorm():
      return 2 * layer.width
  raise TypeError(f'{type(layer).__name__} has no parameters')
