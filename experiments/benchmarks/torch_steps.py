"""Training steps in PyTorch, without privacy and by Opacus."""

from collections.abc import Callable
import os
from typing import Any, NamedTuple
import warnings

import numpy as np
import torch
from torch import nn

from experiments.benchmarks import architectures
from experiments.benchmarks import methods
from experiments.benchmarks import torch_nets
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec


class _Training(NamedTuple):
  """A network with the optimiser and the loss of its steps."""
  net: torch_nets.Net
  module: nn.Module
  optimizer: Any
  criterion: Any


def make(spec: Spec) -> Program:
  """Returns the program of a step, on a GPU if there is one."""
  cuda = torch.cuda.is_available() and os.environ.get('JAX_PLATFORMS') != 'cpu'
  device = torch.device('cuda' if cuda else 'cpu')
  # As in JAX: convolutions are autotuned, and products use TF32.
  torch.backends.cudnn.benchmark = True
  torch.set_float32_matmul_precision('high')
  net = torch_nets.Net(architectures.MODELS[spec.model])
  net.module.to(device)
  x, y = (tensor.to(device) for tensor in _batch(net, spec))
  training = _private(net, spec, x, y)
  run = _step(training, x, y)

  def step() -> None:
    run()
    if cuda:
      torch.cuda.synchronize()

  peak = None
  if cuda:
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    peak = lambda: (torch.cuda.max_memory_allocated() - before) / 1024
  return Program(step=step, info={}, tidy=training.optimizer.zero_grad,
                 peak_kib=peak, audit=lambda: _audit(spec, training))


def _batch(net: torch_nets.Net,
           spec: Spec) -> tuple[torch.Tensor, torch.Tensor]:
  """Returns records and labels with the shapes of `jax_nets.batch`."""
  architecture, rng = architectures.MODELS[spec.model], np.random.default_rng(0)
  shape = (spec.size, *architecture.input_shape)
  if architecture.vocabulary:
    x = rng.integers(0, architecture.vocabulary, shape)
  else:
    x = rng.standard_normal(shape, np.float32)
  y = rng.integers(0, architecture.num_classes, spec.size)
  return net.tensor(x), torch.from_numpy(y)


def _private(net: torch_nets.Net, spec: Spec, x: torch.Tensor,
             y: torch.Tensor) -> _Training:
  """Returns the training, wrapped by Opacus if the method is of Opacus."""
  name, _ = methods.split(spec.method)
  optimizer = torch.optim.SGD(net.module.parameters(), spec.learning_rate)
  criterion = nn.CrossEntropyLoss()
  if name == 'torch':
    return _Training(net, net.module, optimizer, criterion)
  # Opacus and PyTorch print deprecation warnings about each other.
  warnings.simplefilter('ignore')
  import opacus
  loader = torch.utils.data.DataLoader(
      torch.utils.data.TensorDataset(x, y), batch_size=spec.size)
  wrapped = opacus.PrivacyEngine().make_private(
      module=net.module, optimizer=optimizer, criterion=criterion,
      data_loader=loader, noise_multiplier=spec.noise_multiplier,
      max_grad_norm=spec.clip_norm, poisson_sampling=False,
      grad_sample_mode=name.removeprefix('opacus_'))
  if name == 'opacus_ghost':
    module, optimizer, criterion, _ = wrapped
  else:
    module, optimizer, _ = wrapped
  return _Training(net, module, optimizer, criterion)


def _step(training: _Training, x: torch.Tensor,
          y: torch.Tensor) -> Callable[[], None]:
  """Returns a function that runs one step."""
  def step() -> None:
    training.optimizer.zero_grad()
    training.criterion(training.module(x), y).backward()
    training.optimizer.step()
  return step


def _audit(spec: Spec, training: _Training) -> dict[str, Any]:
  """Returns values for `checks` of a step without noise and one with noise."""
  import jax

  from experiments.benchmarks import jax_nets
  architecture, net = architectures.MODELS[spec.model], training.net
  params = jax.tree.map(np.array, jax_nets.init(architecture,
                                                jax.random.key(0)))
  batch = jax_nets.batch(architecture, spec.size, jax.random.key(1))
  step = _step(training, net.tensor(np.asarray(batch.x)),
               torch.from_numpy(np.array(batch.y)).long())
  sums, moved = {}, {}
  for noise in (0.0, spec.noise_multiplier):
    net.write(params)
    training.optimizer.noise_multiplier = noise
    step()
    sums[noise] = net.read(lambda p: spec.size * p.grad)
    moved[noise] = net.read(lambda p: p)
  noise = jax.tree.map(np.subtract, sums[spec.noise_multiplier], sums[0.0])
  flat = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(noise)])
  wanted = jax.tree.map(
      lambda leaf, total: leaf - spec.learning_rate * total / spec.size,
      params, sums[0.0])
  return {'params': params, 'sums': sums[0.0], 'moved': moved[0.0],
          'wanted': wanted,
          'noise_multiplier': float(flat.std()) / spec.clip_norm}
