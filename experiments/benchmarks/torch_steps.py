"""Steps in PyTorch: without privacy, and those of Opacus."""

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
  """What one step needs."""
  net: torch_nets.Net
  module: nn.Module
  optimizer: Any
  criterion: Any


def make(spec: Spec) -> Program:
  """The program of a step; the default device is a GPU if there is one."""
  cuda = torch.cuda.is_available() and os.environ.get('JAX_PLATFORMS') != 'cpu'
  device = torch.device('cuda' if cuda else 'cpu')
  # As JAX has it: the fastest convolution by trial, and products in TF32.
  torch.backends.cudnn.benchmark = True
  torch.set_float32_matmul_precision('high')
  net = torch_nets.Net(architectures.MODELS[spec.model])
  net.module.to(device)
  x, y = (tensor.to(device) for tensor in _batch(net, spec))
  training = _private(net, spec, x, y)
  run = _step(training, x, y)

  def step():
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


def _batch(net: torch_nets.Net, spec: Spec):
  """As `jax_nets.batch`, of other values."""
  architecture, rng = architectures.MODELS[spec.model], np.random.default_rng(0)
  shape = (spec.size, *architecture.input_shape)
  if architecture.vocabulary:
    x = rng.integers(0, architecture.vocabulary, shape)
  else:
    x = rng.standard_normal(shape, np.float32)
  y = rng.integers(0, architecture.num_classes, spec.size)
  return net.tensor(x), torch.from_numpy(y)


def _private(net: torch_nets.Net, spec: Spec, x, y) -> _Training:
  """Wrapped by Opacus, if the method is one of its."""
  name, _ = methods.split(spec.method)
  optimizer = torch.optim.SGD(net.module.parameters(), spec.learning_rate)
  criterion = nn.CrossEntropyLoss()
  if name == 'torch':
    return _Training(net, net.module, optimizer, criterion)
  # Opacus and PyTorch warn of each other's next versions.
  warnings.simplefilter('ignore')
  import opacus
  loader = torch.utils.data.DataLoader(
      torch.utils.data.TensorDataset(x, y), batch_size=spec.size)
  made = opacus.PrivacyEngine().make_private(
      module=net.module, optimizer=optimizer, criterion=criterion,
      data_loader=loader, noise_multiplier=spec.noise_multiplier,
      max_grad_norm=spec.clip_norm, poisson_sampling=False,
      grad_sample_mode=name.removeprefix('opacus_'))
  if name == 'opacus_ghost':
    module, optimizer, criterion, _ = made
  else:
    module, optimizer, _ = made
  return _Training(net, module, optimizer, criterion)


def _step(training: _Training, x, y) -> Callable[[], None]:
  def step():
    training.optimizer.zero_grad()
    training.criterion(training.module(x), y).backward()
    training.optimizer.step()
  return step


def _audit(spec: Spec, training: _Training) -> dict[str, Any]:
  """See `checks`: a step without noise and one with it, from `jax_nets`."""
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
