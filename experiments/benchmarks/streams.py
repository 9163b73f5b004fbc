"""Private steps on records that are read while training, within 2 GB.

The unit is the same step on records in memory: a network, its noise and Poisson
batches of `BATCH_SIZE` records of 784 numbers, as in MNIST. A process may use
`LIMIT` bytes of memory for data; the largest data set, of 20 GB, has ten times
as many.
"""

from collections.abc import Callable
import os
import resource
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax.models import mlp
from dpjax.train import sources
from dpjax.train.private import make_private
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

LIMIT = 2 * 10**9
"""Bytes of memory for data, which Linux does not let a process exceed."""

BATCH_SIZE = 1024
_FEATURES, _WIDTH, _CLASSES = 784, 1024, 10
_STEPS = 10**6
_IN_MEMORY = 64_000


def make(spec: Spec) -> Program:
  """Returns a program of private steps.

  The size of a specification is the number of records; those in memory are the
  first 64,000 of them.
  """
  resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
  data = _computed(spec.size) if spec.model == 'computed' else _mapped(
      spec.size)
  if spec.method == 'ours':
    return Program(step=_stepping(data, len(data)), info={})
  numbers = np.arange(min(_IN_MEMORY, spec.size))
  return Program(step=_stepping(jax.tree.map(jnp.asarray, data.load(numbers)),
                                len(numbers)), info={})


def _computed(size: int) -> sources.Source:
  """Returns records that are computed from their numbers."""
  table = np.random.default_rng(0).normal(size=(997, _FEATURES)).astype(
      np.float32)
  return sources.source(lambda numbers: {
      'x': table[numbers % 997], 'y': (numbers % _CLASSES).astype(np.int32)},
                        num_records=size)


def _mapped(size: int) -> sources.Source:
  """Returns records of a file that is mapped into memory.

  The file has no contents and takes no place on the disk, so steps are those
  of a disk that keeps up.
  """
  with tempfile.NamedTemporaryFile(delete=False) as file:
    file.truncate(size * _FEATURES * 4)
  x = np.memmap(file.name, np.float32, 'r', shape=(size, _FEATURES))
  os.remove(file.name)  # It stays as long as it is mapped.
  return sources.source({'x': x, 'y': np.broadcast_to(np.int32(1), (size,))})


def _stepping(records: object, size: int) -> Callable[[], None]:
  """Returns a function that makes the next step on records."""
  model = mlp.mlp(num_features=_FEATURES, num_classes=_CLASSES, depth=1,
                  width=_WIDTH)

  def loss(params, batch):
    return optax.losses.softmax_cross_entropy_with_integer_labels(
        model.apply(params, batch['x']), batch['y'])

  private = make_private(
      loss, optax.sgd(0.1), num_examples=size, batch_size=BATCH_SIZE,
      noise_multiplier=1.0, delta=1e-6, steps=_STEPS, per='batch', donate=True)
  # Reproducible: for research, not for a release.
  key = jax.random.key(0)
  states = [private.init(model.init(key), key=key)]

  def step() -> None:
    states[0], _ = private.step(states[0], records)
    jax.block_until_ready(states[0].params)

  return step
