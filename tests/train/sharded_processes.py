"""One of several processes that train a model divided over their devices.

Arguments: number of this process, number of processes, port, path. The first
process writes the parameters.
"""

import os
import sys

NUM_DEVICES = 4
os.environ['XLA_FLAGS'] = (
    f'--xla_force_host_platform_device_count={NUM_DEVICES}')

import jax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

from dpjax.train import placement  # noqa: E402
from dpjax.train import sharding  # noqa: E402
from dpjax.train.private import make_private  # noqa: E402


def _loss(params, record):
  x, _ = jax.lax.scan(lambda x, w: (jax.numpy.tanh(x @ w), None), record['x'],
                      params['layers'])
  return jax.numpy.square(jax.numpy.vdot(x, params['last']) - record['y'])


def main(index, count, port, path):
  """Trains in process `index` of `count`, and in the first writes to `path`."""
  if count > 1:
    jax.distributed.initialize(f'localhost:{port}', count, index)
  mesh = sharding.data_mesh()
  rng = np.random.default_rng(0)
  normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
  params = placement.fully_sharded(
      mesh, {'layers': normal(3, 16, 16) / 4, 'last': normal(16) / 4},
      least_size=100)
  records = {'x': normal(64, 16), 'y': normal(64)}
  private = make_private(
      _loss, optax.sgd(0.5, momentum=0.9), num_examples=64, batch_size=24,
      noise_multiplier=0.8, per='record', max_batch_size=16, mesh=mesh)
  # Reproducible: for research, not for a release.
  state = private.init(params, key=jax.random.key(4))
  for _ in range(2):
    state, info = private.step(state, records)
  indices = private.sample(state).indices
  state, info = private.update(state, {
      name: leaf[indices] for name, leaf in records.items()})
  assert private.epsilon(state, delta=1e-5) > 0 and int(info.batch_size) > 0
  # A secret key, which the first process draws for all.
  secret = private.init(params)
  private.step(secret, records)
  layers = state.params['layers']
  assert layers.sharding.shard_shape(layers.shape)[2] == 16 // (
      count * NUM_DEVICES)
  gathered = jax.jit(lambda tree: tree, out_shardings=jax.tree.map(
      lambda _: jax.sharding.NamedSharding(
          mesh, jax.sharding.PartitionSpec()), params))(state.params)
  if index == 0:
    np.savez(path, **{name: np.asarray(leaf) for name, leaf
                      in gathered.items()})


if __name__ == '__main__':
  main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
