"""Trains on 20 GB of records with 2 GB of memory, for `larger_than_memory_test`.

Prints JSON of the parameters and of the peak of resident memory.
"""

import json
import os
import pathlib
import resource
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import sources
from dpjax.train.checkpoint import Checkpoints
from dpjax.train.plan import TrainingPlan

FEATURES, STEPS = 100, 60
LIMIT = 2 * 10**9


def computed(num_records):
  """Returns records that are computed from their numbers."""
  table = np.random.default_rng(0).normal(size=(997, FEATURES)).astype(
      np.float32)

  def load(numbers):
    x = table[numbers % 997] * np.float32(1) + table[numbers // 997 % 997]
    return {'x': x, 'y': (x[:, 0] > 0).astype(np.int32)}

  return sources.source(load, num_records=num_records)


def mapped(num_records, path):
  """Returns records of a file that is mapped into memory.

  The file has no contents, and takes no place on the disk: all features are 0.
  """
  with open(path, 'wb') as file:
    file.truncate(num_records * FEATURES * 4)
  x = np.memmap(path, np.float32, 'r', shape=(num_records, FEATURES))
  y = np.broadcast_to(np.int32(1), (num_records,))
  return sources.source({'x': x, 'y': y})


def fitted(source, folder, last_step):
  """Returns parameters; kills the process after a number of steps."""
  num_records = len(source)
  model = mlp.mlp(num_features=FEATURES, num_classes=2, depth=1, width=16)

  def progress(done, total):
    del total
    if last_step and done >= last_step:
      os.kill(os.getpid(), signal.SIGKILL)

  # Reproducible: for research, not for a release.
  result = loop.fit(
      jax.random.split(jax.random.key(1), 1), model=model, plans=[TrainingPlan(
          sampler=PoissonSampler(num_examples=num_records, batch_size=256,
                                 max_batch_size=128),
          num_steps=STEPS, noise_multiplier=1.0,
          adjacency=Adjacency.ADD_OR_REMOVE_ONE)],
      method=methods.dp_sgd(model, losses.cross_entropy(), clip_norm=1.0),
      optimizer=optax.sgd(0.5, momentum=0.9), records=source, rows=None,
      on_progress=progress,
      checkpoints=Checkpoints(folder=folder, every_seconds=0.0))
  return [jnp.ravel(leaf).tolist()
          for leaf in jax.tree.leaves(result.state.params)]


def peak_kib():
  """Returns the peak of resident memory of this program.

  That of `getrusage` includes the process that started it.
  """
  status = pathlib.Path('/proc/self/status').read_text()
  return int(status.split('VmHWM:')[1].split()[0])


def main(kind, num_records, folder, last_step='0'):
  """Trains under the limit; `last_step` 0 trains to the end."""
  resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
  size = int(num_records)
  try:
    np.ones([size, FEATURES], np.float32)
    limited = False
  except MemoryError:
    limited = True
  source = computed(size) if kind == 'computed' else mapped(
      size, os.path.join(folder, 'records'))
  params = fitted(source, os.path.join(folder, 'steps'), int(last_step))
  print(json.dumps({
      'params': params, 'limited': limited, 'peak_kib': peak_kib()}))


if __name__ == '__main__':
  main(*sys.argv[1:])
