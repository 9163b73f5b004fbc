"""Training of many small networks at once, beside one with a large batch.

A step of the benchmark is an epoch of `STEPS` steps of `replicas` with
`REPLICAS` networks: in packs, or by `jax.vmap` over networks, which is what
one writes first. The large batch is as many images for one network: what
convolutions of this width can do where nothing keeps them waiting.
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
"""Of every replica in an epoch."""

_NUM_RECORDS = 8192
_NETWORKS = {
    'resnet20_bfloat16': (BatchResnet(compute_dtype='bfloat16'), 32),
    'resnet20_float32': (BatchResnet(), 32),
    'tiny_resnet8': (BatchResnet(depth=8, widths=(4, 8, 16)), 8),
}
"""Network and width of its images, by model."""


class _Vmapped(replicas.Replicas):
  """Packs of one beside each other instead of one after the other."""

  def _in_packs(self, function, *trees):
    found = jax.vmap(function)(*jax.tree.map(lambda leaf: leaf[:, None], trees))
    return jax.tree.map(lambda leaf: leaf[:, 0], found)


def make(spec: Spec) -> Program:
  """Epochs of all replicas, or of the one with a large batch."""
  name, _ = methods.split(spec.method)
  count, size = (1, REPLICAS * spec.size) if name == 'large' else (
      REPLICAS, spec.size)
  made = _trainer(spec, size)
  state, task = _start(made, count, size)
  # A method of `Replicas` would compile where its time cannot be told.
  epoch, info = programs.compiled(made._epoch, state, task, made.records)
  held = [state]

  def step():
    held[0], _ = jax.block_until_ready(epoch(held[0], task, made.records))

  def audit():
    step()
    return {'params': np.asarray(held[0].last.params)}

  peak = (None if jax.default_backend() == 'cpu'
          else lambda: info['temp_kib'])
  return Program(step=step, info=info, repeats=STEPS * REPLICAS * spec.size,
                 peak_kib=peak, audit=audit)


def _trainer(spec: Spec, size: int) -> replicas.Replicas:
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
  x_key, y_key = jax.random.split(jax.random.key(0))
  return Batch(jax.random.normal(x_key, (_NUM_RECORDS, width, width, 3)),
               jax.random.randint(y_key, (_NUM_RECORDS,), 0, 10))


def _start(made: replicas.Replicas, count: int,
           size: int) -> tuple[replicas.State, replicas.Task]:
  """Each replica begins at another record; validation takes one batch."""
  init_key, batch_key = jax.random.split(jax.random.key(1))
  rows = lambda length: (jnp.arange(length)[None] + jnp.arange(
      0, 500 * count, 500)[:, None]) % _NUM_RECORDS
  whole = lambda value: jnp.full(count, value)
  return made.init(jax.random.split(init_key, count)), replicas.Task(
      key=jax.random.split(batch_key, count), rows=rows(STEPS * size),
      validation=rows(size), learning_rate=whole(0.03),
      weight_decay=whole(0.005), mask=made.full_mask(count))
