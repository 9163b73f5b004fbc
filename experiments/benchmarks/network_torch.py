"""Steps of Opacus on those networks of `--suite=models` that its modules allow.

The networks have the sizes of those in JAX, and the initial parameters of
PyTorch. The unit is the step of the same network in PyTorch, in the process of
the method. As in JAX, no noise is drawn.
"""

from collections.abc import Callable
import copy
from typing import Any, NamedTuple
import warnings

import numpy as np
import torch
from torch import nn

from experiments.benchmarks import architectures
from experiments.benchmarks import methods
from experiments.benchmarks import network_names
from experiments.benchmarks import networks_recurrent as recurrent
from experiments.benchmarks import networks_transformers as transformers
from experiments.benchmarks import torch_nets
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

_LEARNING_RATE = 1e-3
_GROUPS = 4


class _Loss:
  """The mean loss of each record, over its tokens or pixels, then of all.

  Opacus sets `reduction` to 'none' and expects a loss for each record.
  """
  reduction = 'mean'

  def __init__(self, each: Callable) -> None:
    self._each = each

  def __call__(self, outputs: torch.Tensor,
               targets: torch.Tensor) -> torch.Tensor:
    losses = self._each(outputs, targets, reduction='none')
    losses = losses.reshape(len(targets), -1).mean(1)
    return losses.mean() if self.reduction == 'mean' else losses


def _of_tokens(logits: torch.Tensor, targets: torch.Tensor,
               reduction: str) -> torch.Tensor:
  """Returns the losses [b, t] of logits [b, t, v]."""
  return nn.functional.cross_entropy(logits.transpose(1, 2), targets,
                                     reduction=reduction)


class _Adapted(nn.Module):
  """A frozen dense layer with adapters beside it."""

  def __init__(self, inputs: int, outputs: int, rank: int) -> None:
    super().__init__()
    self.frozen = nn.Linear(inputs, outputs)
    self.a = nn.Linear(inputs, rank, bias=False)
    self.b = nn.Linear(rank, outputs, bias=False)

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    return self.frozen(x) + self.b(self.a(x))


class _Block(nn.Module):
  """A block of a transformer; attention is written out, as in JAX."""

  def __init__(self, shape: transformers.Shape, dense: Callable) -> None:
    super().__init__()
    width, self._heads = shape.width, shape.heads
    self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
    self.qkv, self.out = dense(width, 3 * width), dense(width, width)
    self.up, self.down = dense(width, 4 * width), dense(4 * width, width)

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    split = self.qkv(self.norm_1(x)).reshape(
        *x.shape[:2], 3, self._heads, -1).permute(2, 0, 3, 1, 4)
    mixed = nn.functional.scaled_dot_product_attention(*split, is_causal=True)
    x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
    hidden = nn.functional.gelu(self.up(self.norm_2(x)), approximate='tanh')
    return x + self.down(hidden)


class _Transformer(nn.Module):
  """A language model; positions are looked up, which Opacus understands."""

  def __init__(self, shape: transformers.Shape, dense: Callable) -> None:
    super().__init__()
    self.embedding = nn.Embedding(shape.vocabulary, shape.width)
    self.positions = nn.Embedding(shape.length, shape.width)
    self.blocks = nn.ModuleList([_Block(shape, dense)
                                 for _ in range(shape.depth)])
    self.norm = nn.LayerNorm(shape.width)
    self.head = nn.Linear(shape.width, shape.vocabulary)

  def forward(self, tokens: torch.Tensor) -> torch.Tensor:
    # Not `expand`: ghost clipping takes a view of them.
    places = torch.arange(tokens.shape[1]).repeat(len(tokens), 1)
    x = self.embedding(tokens) + self.positions(places.to(tokens.device))
    for block in self.blocks:
      x = block(x)
    return self.head(self.norm(x))


class _Recurrent(nn.Module):
  """A recurrent language model."""

  def __init__(self, shape: recurrent.Shape, layer: Callable) -> None:
    super().__init__()
    self.embedding = nn.Embedding(shape.vocabulary, shape.width)
    self.cell = layer(shape.width, shape.hidden, batch_first=True)
    self.head = nn.Linear(shape.hidden, shape.vocabulary)

  def forward(self, tokens: torch.Tensor) -> torch.Tensor:
    return self.head(self.cell(self.embedding(tokens))[0])


def _pair(inputs: int, outputs: int) -> nn.Module:
  """Returns two convolutions with normalisation and activation."""
  conv = lambda inputs: nn.Conv2d(inputs, outputs, 3, padding=1)
  return nn.Sequential(
      conv(inputs), nn.GroupNorm(_GROUPS, outputs), nn.SiLU(),
      conv(outputs), nn.GroupNorm(_GROUPS, outputs), nn.SiLU())


class _UNet(nn.Module):
  """A U-Net of two levels."""

  def __init__(self, first: int, second: int, third: int) -> None:
    super().__init__()
    self.enter, self.middle = _pair(1, first), _pair(second, second)
    self.bottom = _pair(third, third)
    self.down_0 = nn.Conv2d(first, second, 3, 2, 1)
    self.down_1 = nn.Conv2d(second, third, 3, 2, 1)
    self.up_1 = _pair(third + second, second)
    self.up_0 = _pair(second + first, first)
    self.out, self.doubled = nn.Conv2d(first, 1, 1), nn.Upsample(scale_factor=2)

  def forward(self, image: torch.Tensor) -> torch.Tensor:
    top = self.enter(image)
    middle = self.middle(self.down_0(top))
    bottom = self.bottom(self.down_1(middle))
    x = self.up_1(torch.cat([self.doubled(bottom), middle], 1))
    return self.out(self.up_0(torch.cat([self.doubled(x), top], 1)))


class _Built(NamedTuple):
  """A network in PyTorch and for Opacus, with its loss and its records."""
  plain: nn.Module
  private: nn.Module
  loss: Callable
  x: torch.Tensor
  y: torch.Tensor


def _build(name: str, tiny: bool, size: int) -> _Built:
  """Returns a network by its name in `network_names`."""
  torch.manual_seed(0)
  if name in ('mlp', 'cnn'):
    return _tutorial(f'tiny_{name}' if tiny else name, size)
  if name == 'unet':
    module = _UNet(*((4, 4, 8) if tiny else (16, 32, 64)))
    side = 8 if tiny else 32
    image, noise = torch.randn(2, size, 1, side, side)
    return _Built(module, copy.deepcopy(module), nn.functional.mse_loss,
                  image + noise, noise)
  if name in ('lstm', 'gru'):
    return _recurrent(name, recurrent.TINY if tiny else recurrent.Shape(), size)
  shape = transformers.TINY if tiny else transformers.Shape()
  module = _Transformer(shape, nn.Linear) if name == 'gpt' else _Transformer(
      shape, lambda *sizes: _Adapted(*sizes, shape.rank))
  if name == 'gpt_lora':
    for path, parameter in module.named_parameters():
      parameter.requires_grad = path.endswith(('a.weight', 'b.weight'))
  return _Built(module, copy.deepcopy(module), _of_tokens,
                *_tokens(shape.vocabulary, size, shape.length))


def _tutorial(name: str, size: int) -> _Built:
  """Returns a network of `architectures`."""
  architecture = architectures.MODELS[name]
  net = torch_nets.Net(architecture)
  x = np.random.default_rng(0).standard_normal(
      (size, *architecture.input_shape), np.float32)
  return _Built(net.module, copy.deepcopy(net.module),
                nn.functional.cross_entropy, net.tensor(x),
                torch.randint(architecture.num_classes, (size,)))


def _recurrent(name: str, shape: recurrent.Shape, size: int) -> _Built:
  """Returns a recurrent network, for Opacus with its own layer."""
  from opacus import layers
  plain, private = {'lstm': (nn.LSTM, layers.DPLSTM),
                    'gru': (nn.GRU, layers.DPGRU)}[name]
  return _Built(_Recurrent(shape, plain), _Recurrent(shape, private),
                _of_tokens, *_tokens(shape.vocabulary, size, shape.length))


def _tokens(vocabulary: int, size: int,
            length: int) -> tuple[torch.Tensor, torch.Tensor]:
  """Returns random tokens and the tokens that follow them."""
  tokens = torch.randint(vocabulary, (size, length + 1))
  # Ghost clipping takes views of them.
  return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class _Training(NamedTuple):
  """A network with the optimiser and the loss of its steps."""
  module: nn.Module
  optimizer: Any
  loss: Any


def _plain(module: nn.Module, loss: Callable) -> _Training:
  """Returns the training of a network without privacy."""
  return _Training(module, torch.optim.SGD(_trained(module), _LEARNING_RATE),
                   _Loss(loss))


def _private(built: _Built, spec: Spec) -> _Training:
  """Returns the training that Opacus wraps, with noise of zero."""
  # Opacus and PyTorch print deprecation warnings about each other.
  warnings.simplefilter('ignore')
  import opacus
  module, optimizer, loss = _plain(built.private.train(), built.loss)
  mode = methods.split(spec.method)[0].removeprefix('opacus_')
  loader = torch.utils.data.DataLoader(
      torch.utils.data.TensorDataset(built.x, built.y), batch_size=spec.size)
  module, optimizer, *others = opacus.PrivacyEngine().make_private(
      module=module, optimizer=optimizer, criterion=loss, data_loader=loader,
      noise_multiplier=0.0, max_grad_norm=spec.clip_norm,
      poisson_sampling=False, grad_sample_mode=mode)
  return _Training(module, optimizer, others[0] if mode == 'ghost' else loss)


def _step(training: _Training, built: _Built) -> Callable[[], None]:
  """Returns a function that runs one step."""

  def step() -> None:
    training.optimizer.zero_grad()
    training.loss(training.module(built.x), built.y).backward()
    training.optimizer.step()

  return step


def make(spec: Spec) -> Program:
  """Returns the program of a step, with the plain step beside it; on CPUs."""
  name = spec.model.removeprefix(network_names.TINY)
  built = _build(name, name != spec.model, spec.size)
  alone = copy.deepcopy(built.private)  # Opacus changes the module itself.
  training = _private(built, spec)
  unit = _step(_plain(built.plain, built.loss), built)
  unit()
  step = _step(training, built)
  return Program(step=step, info={}, unit=unit,
                 tidy=training.optimizer.zero_grad,
                 audit=lambda: {'wanted': _wanted(spec, built, alone),
                                'sums': _sums(spec, training, step)})


def _sums(spec: Spec, training: _Training,
          step: Callable[[], None]) -> list[np.ndarray]:
  """Runs the first step; returns the clipped sums by parameter."""
  step()
  return [spec.size * each.grad.numpy() for each in _trained(training.module)]


def _wanted(spec: Spec, built: _Built, module: nn.Module) -> list[np.ndarray]:
  """Returns the sums of gradients that are clipped one by one, in float64."""
  loss, trained = _Loss(built.loss), _trained(module)
  sums = [np.zeros(each.shape) for each in trained]
  for i in range(spec.size):
    module.zero_grad()
    loss(module(built.x[i:i + 1]), built.y[i:i + 1]).backward()
    gradient = [each.grad.numpy().astype(np.float64) for each in trained]
    norm = np.sqrt(sum(np.sum(each**2) for each in gradient))
    sums = [total + min(1.0, spec.clip_norm / norm) * each
            for total, each in zip(sums, gradient, strict=True)]
  return sums


def _trained(module: nn.Module) -> list[nn.Parameter]:
  """Returns the parameters that are trained."""
  return [each for each in module.parameters() if each.requires_grad]
