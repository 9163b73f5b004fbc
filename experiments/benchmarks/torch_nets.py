"""The networks in PyTorch, and their parameters in the layout of JAX.

Images are channels first here, so what is flattened comes in another order.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

from experiments.benchmarks import architectures as arch

_EPSILON = 1e-5
_FUNCTIONS = {'relu': nn.ReLU, 'tanh': nn.Tanh,
              'gelu': lambda: nn.GELU(approximate='tanh')}


class _Mean(nn.Module):
  """Over tokens, or over pixels."""

  def __init__(self, axes):
    super().__init__()
    self._axes = axes

  def forward(self, x):
    return x.mean(self._axes)


class _Residual(nn.Module):
  """branch(x) + shortcut(x)."""

  def __init__(self, branch, shortcut):
    super().__init__()
    self.branch, self.shortcut = branch, shortcut

  def forward(self, x):
    return self.branch(x) + self.shortcut(x)


class Net:
  """A network and where its parameters are.

  Attributes:
    module: to be called with `tensor(x)`.
  """

  def __init__(self, architecture: arch.Architecture):
    """Builds it, initialised by PyTorch."""
    self._layers = {}
    self._image = len(architecture.input_shape) == 3
    self._flattened = {}
    self.module = self._chain(architecture.layers)

  def tensor(self, x: np.ndarray) -> torch.Tensor:
    """Records of the layout of JAX as the network takes them."""
    if self._image:
      x = np.moveaxis(x, -1, 1)
    # A copy with strides of its own: images of one channel pass for channels
    # last otherwise, and then Opacus 1.6 sums wrong gradients.
    return torch.from_numpy(np.array(x)).clone(
        memory_format=torch.contiguous_format)

  def read(self, value: Callable[[nn.Parameter], torch.Tensor]
           ) -> dict[str, dict[str, np.ndarray]]:
    """What belongs to each parameter, as in `jax_nets.init`."""
    found = {}
    for name, (layer, module) in self._layers.items():
      leaves = _leaves(layer)
      found[name] = {
          leaf: self._to_jax(layer, leaf, value(getattr(
              module, attribute)).detach().cpu().numpy().copy())
          for leaf, attribute in leaves.items()}
    return found

  def write(self, params: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Sets all parameters to those of `jax_nets.init`."""
    for name, (layer, module) in self._layers.items():
      for leaf, attribute in _leaves(layer).items():
        value = self._to_torch(layer, leaf, np.asarray(params[name][leaf]))
        with torch.no_grad():
          getattr(module, attribute).copy_(
              torch.from_numpy(np.ascontiguousarray(value)))

  def _chain(self, layers: tuple) -> nn.Module:
    found, flattened = [], None
    for layer in layers:
      if flattened and isinstance(layer, arch.Dense):
        self._flattened[layer.name], flattened = flattened, None
      if isinstance(layer, arch.Flatten):
        flattened = layer.shape
      made = self._module(layer)
      if hasattr(layer, 'name'):
        self._layers[layer.name] = (layer, made)
      found.append(made)
    return nn.Sequential(*found)

  def _module(self, layer) -> nn.Module:
    match layer:
      case arch.Dense(_, inputs, outputs):
        return nn.Linear(inputs, outputs)
      case arch.Conv(_, size, inputs, outputs, stride, pad):
        return nn.Conv2d(inputs, outputs, size, stride, pad)
      case arch.Embedding(_, vocabulary, width):
        return nn.Embedding(vocabulary, width)
      case arch.LayerNorm(_, width):
        return nn.LayerNorm(width, eps=_EPSILON)
      case arch.GroupNorm(groups):
        return _GroupNorm(groups)
      case arch.Activation(function):
        return _FUNCTIONS[function]()
      case arch.MaxPool(window, stride):
        return nn.MaxPool2d(window, stride)
      case arch.Mean():
        return _Mean((2, 3) if self._image else (1,))
      case arch.Flatten():
        return nn.Flatten()
      case arch.Residual(branch, shortcut):
        return _Residual(self._chain(branch), self._chain(shortcut))
    raise TypeError(f'no {type(layer).__name__} in PyTorch')

  def _to_torch(self, layer, leaf: str, value: np.ndarray) -> np.ndarray:
    if leaf != 'kernel':
      return value
    if isinstance(layer, arch.Conv):
      return value.transpose(3, 2, 0, 1)
    if shape := self._flattened.get(layer.name):
      value = value.reshape(*shape, -1).transpose(2, 0, 1, 3)
      value = value.reshape(layer.inputs, layer.outputs)
    return value.T

  def _to_jax(self, layer, leaf: str, value: np.ndarray) -> np.ndarray:
    if leaf != 'kernel':
      return value
    if isinstance(layer, arch.Conv):
      return value.transpose(2, 3, 1, 0)
    value = value.T
    if shape := self._flattened.get(layer.name):
      height, width, channels = shape
      value = value.reshape(channels, height, width, -1).transpose(1, 2, 0, 3)
      value = value.reshape(layer.inputs, layer.outputs)
    return value


class _GroupNorm(nn.Module):
  """Over pixels and groups of channels, without parameters."""

  def __init__(self, groups):
    super().__init__()
    self._groups = groups

  def forward(self, x):
    return nn.functional.group_norm(x, self._groups, eps=_EPSILON)


def _leaves(layer) -> dict[str, str]:
  """Name in JAX -> name in PyTorch."""
  if isinstance(layer, arch.Embedding):
    return {'embedding': 'weight'}
  if isinstance(layer, arch.LayerNorm):
    return {'scale': 'weight', 'bias': 'bias'}
  return {'kernel': 'weight', 'bias': 'bias'}
