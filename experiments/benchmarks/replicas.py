"""Training of many small networks at once, beside one with a large batch.

A step of the benchmark is an epoch of `STEPS` steps of `replicas` with
`REPLICAS` networks: in packs, or by `jax.vmap` over networks, the obvious way.
The large batch has as many images for one network, which shows the throughput
that convolutions of this width can reach.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.train import augment
from dpjax.typing import Batch
from experiments.benchmarks import methods
from experiments.benchmarks import program as programs
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec
from experiments.methods.sparsity import networks
from experiments.methods.training import replicas
from experiments.methods.training.batch_resnet import BatchResnet

REPLICAS = 16
STEPS = 20
"""Number of steps of each replica in an epoch."""

_NUM_RECORDS = 8192
_NETWORKS = {
    'resnet20_bfloat16': (BatchResnet(compute_dtype='bfloat16'), 32),
    'resnet20_float32': (BatchResnet(), 32),
    'tiny_resnet8': (BatchResnet(depth=8, widths=(4, 8, 16)), 8),
}
"""Maps a model to its network and the width of its images."""


class _Vmapped(replicas.Replicas):
  """Replicas in packs of one, mapped by `vmap` instead of one by one."""

  def _in_packs(self, function, *trees):
    mapped = jax.vmap(function)(
        *jax.tree.map(lambda leaf: leaf[:, None], trees))
    return jax.tree.map(lambda leaf: leaf[:, 0], mapped)


def make(spec: Spec) -> Program:
  """Returns a program of epochs of all replicas, or of one large batch."""
  name, _ = methods.split(spec.method)
  count, size = (1, REPLICAS * spec.size) if name == 'large' else (
      REPLICAS, spec.size)
  trainer = _trainer(spec, size)
  state, task = _start(trainer, count, size)
  # The private function is compiled here, so that its time can be measured.
  epoch, info = programs.compiled(trainer._epoch, state, task, trainer.records)
  states = [state]

  def step() -> None:
    states[0], _ = jax.block_until_ready(
        epoch(states[0], task, trainer.records))

  def audit() -> dict[str, np.ndarray]:
    step()
    return {'params': np.asarray(states[0].last.params)}

  peak = (None if jax.default_backend() == 'cpu'
          else lambda: info['temp_kib'])
  return Program(step=step, info=info, repeats=STEPS * REPLICAS * spec.size,
                 peak_kib=peak, audit=audit)


def _trainer(spec: Spec, size: int) -> replicas.Replicas:
  """Returns the trainer of a specification."""
  network, width = _NETWORKS[spec.model]
  name, _ = methods.split(spec.method)
  return (_Vmapped if name == 'vmap' else replicas.Replicas)(
      network,
      parametrisations=[networks.dense(network.init)],
      recipe=replicas.Recipe(
          num_epochs=300, batch_size=size,
          augmentation=augment.crop_and_flip(padding=4, mode='zero')),
      records=_records(width), pack_size=methods.pack_size(name))


def _records(width: int) -> Batch:
  """Returns random images with labels."""
  x_key, y_key = jax.random.split(jax.random.key(0))
  return Batch(jax.random.normal(x_key, (_NUM_RECORDS, width, width, 3)),
               jax.random.randint(y_key, (_NUM_RECORDS,), 0, 10))


def _start(trainer: replicas.Replicas, count: int,
           size: int) -> tuple[replicas.State, replicas.Task]:
  """Returns the initial state and the task; replicas begin at other records."""
  init_key, batch_key = jax.random.split(jax.random.key(1))
  rows = lambda length: (jnp.arange(length)[None] + jnp.arange(
      0, 500 * count, 500)[:, None]) % _NUM_RECORDS
  whole = lambda value: jnp.full(count, value)
  return trainer.init(jax.random.split(init_key, count)), replicas.Task(
      key=jax.random.split(batch_key, count), rows=rows(STEPS * size),
      validation=rows(size), learning_rate=whole(0.03),
      weight_decay=whole(0.005), mask=trainer.full_mask(count))
