"""The networks in PyTorch, and their parameters in the layout of JAX.

Images have channels first here, so flattened images have another order.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments.benchmarks import architectures as arch

_EPSILON = 1e-5
_FUNCTIONS = {'relu': nn.ReLU, 'tanh': nn.Tanh,
              'gelu': lambda: nn.GELU(approximate='tanh')}


class _Mean(nn.Module):
  """Mean over tokens, or over pixels."""

  def __init__(self, axes):
    super().__init__()
    self._axes = axes

  def forward(self, x):
    return x.mean(self._axes)


class _Residual(nn.Module):
  """Residual sum branch(x) + shortcut(x)."""

  def __init__(self, branch, shortcut):
    super().__init__()
    self.branch, self.shortcut = branch, shortcut

  def forward(self, x):
    return self.branch(x) + self.shortcut(x)


class Net:
  """A network with access to its parameters by layer.

  Attributes:
    module: the PyTorch module, to be called with `tensor(x)`.
  """

  def __init__(self, architecture: arch.Architecture):
    """Builds the network, with the initial parameters of PyTorch."""
    self._layers: dict[str, tuple[Any, nn.Module]] = {}
    self._image = len(architecture.input_shape) == 3
    self._flattened: dict[str, tuple[int, int, int]] = {}
    self.module = self._chain(architecture.layers)

  def tensor(self, x: np.ndarray) -> torch.Tensor:
    """Converts records from the layout of JAX to that of the network."""
    if self._image:
      x = np.moveaxis(x, -1, 1)
    # A contiguous copy. Otherwise images of one channel count as channels last,
    # for which Opacus 1.6 computes wrong gradients.
    return torch.from_numpy(np.array(x)).clone(
        memory_format=torch.contiguous_format)

  def read(self, value: Callable[[nn.Parameter], torch.Tensor]
           ) -> dict[str, dict[str, np.ndarray]]:
    """Returns a value for each parameter, structured as in `jax_nets.init`."""
    values = {}
    for name, (layer, module) in self._layers.items():
      leaves = _leaves(layer)
      values[name] = {
          leaf: self._to_jax(layer, leaf, value(getattr(
              module, attribute)).detach().cpu().numpy().copy())
          for leaf, attribute in leaves.items()}
    return values

  def write(self, params: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Sets all parameters to those of `jax_nets.init`."""
    for name, (layer, module) in self._layers.items():
      for leaf, attribute in _leaves(layer).items():
        value = self._to_torch(layer, leaf, np.asarray(params[name][leaf]))
        with torch.no_grad():
          getattr(module, attribute).copy_(
              torch.from_numpy(np.ascontiguousarray(value)))

  def _chain(self, layers: tuple) -> nn.Module:
    """Builds layers, and notes those with parameters."""
    modules, flattened = [], None
    for layer in layers:
      if flattened and isinstance(layer, arch.Dense):
        self._flattened[layer.name], flattened = flattened, None
      if isinstance(layer, arch.Flatten):
        flattened = layer.shape
      module = self._module(layer)
      if hasattr(layer, 'name'):
        self._layers[layer.name] = (layer, module)
      modules.append(module)
    return nn.Sequential(*modules)

  def _module(self, layer: Any) -> nn.Module:
    """Builds one layer."""
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

  def _to_torch(self, layer: Any, leaf: str, value: np.ndarray) -> np.ndarray:
    """Converts a parameter from the layout of JAX."""
    if leaf != 'kernel':
      return value
    if isinstance(layer, arch.Conv):
      return value.transpose(3, 2, 0, 1)
    if shape := self._flattened.get(layer.name):
      value = value.reshape(*shape, -1).transpose(2, 0, 1, 3)
      value = value.reshape(layer.inputs, layer.outputs)
    return value.T

  def _to_jax(self, layer: Any, leaf: str, value: np.ndarray) -> np.ndarray:
    """Converts a parameter to the layout of JAX."""
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
  """Normalisation over pixels and groups of channels, without parameters."""

  def __init__(self, groups):
    super().__init__()
    self._groups = groups

  def forward(self, x):
    return nn.functional.group_norm(x, self._groups, eps=_EPSILON)


def _leaves(layer: Any) -> dict[str, str]:
  """Maps names of parameters in JAX to names in PyTorch."""
  if isinstance(layer, arch.Embedding):
    return {'embedding': 'weight'}
  if isinstance(layer, arch.LayerNorm):
    return {'scale': 'weight', 'bias': 'bias'}
  return {'kernel': 'weight', 'bias': 'bias'}
