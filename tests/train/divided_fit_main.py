"""Trains `loop.fit` with parameters divided over 8 host devices.

Writes an .npz of parameters, {case}/{layout}, and prints JSON of the memory
that compiled steps need: for `divided_fit_test`.
"""

import functools
import json
import os
import sys

os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

from dpjax import tree  # noqa: E402
from dpjax.data import registry  # noqa: E402
from dpjax.lipschitz import losses  # noqa: E402
from dpjax.models import convnet  # noqa: E402
from dpjax.models import mlp  # noqa: E402
from dpjax.privacy import correlated  # noqa: E402
from dpjax.privacy import keys as key_lib  # noqa: E402
from dpjax.privacy.adjacency import Adjacency  # noqa: E402
from dpjax.sampling import CyclicSampler  # noqa: E402
from dpjax.sampling import PoissonSampler  # noqa: E402
from dpjax.train import averaging  # noqa: E402
from dpjax.train import loop  # noqa: E402
from dpjax.train import methods  # noqa: E402
from dpjax.train import placement  # noqa: E402
from dpjax.train import plan as plans  # noqa: E402
from dpjax.train import sharding  # noqa: E402
from dpjax.train import sources  # noqa: E402
from dpjax.typing import Batch  # noqa: E402

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')

NUM, STEPS, WIDTH = 96, 4, 1024
LOSS = losses.cross_entropy()
MESHES = {'one': None, 'fsdp': {'data': 8}, 'both': {'data': 2, 'model': 4}}
SIZES = dict(num_features=16, num_classes=8, depth=2, width=32)
FREE = mlp.mlp(**SIZES)
BOUNDED = mlp.mlp(**SIZES, input_radius=1.5, hidden_radius=1.)
IMAGES = convnet.convnet(input_shape=(8, 8, 1), num_classes=10,
                         channels=(8, 16), width=16, kernel_size=3, pool='max')
SAMPLER = PoissonSampler(num_examples=NUM, batch_size=24, max_batch_size=16)
DP_SGD = methods.dp_sgd(FREE, LOSS, clip_norm=0.7)
CYCLIC = CyclicSampler(num_examples=NUM, batch_size=16, num_groups=3)
# Each case maps to (model, method, changes of the plan).
CASES = {
    'dp_sgd': (FREE, DP_SGD, {}),
    'streamed': (FREE, DP_SGD, {}),
    'sgd': (FREE, methods.sgd(FREE, LOSS), dict(noise_multiplier=None)),
    'adaptive': (FREE, methods.dp_sgd_adaptive(
        FREE, LOSS, clip_norm=0.7, noise_stddev=4.0, clip_blocks='layers'), {}),
    'lattice': (FREE, DP_SGD, dict(lattice_size=tree.count(
        jax.eval_shape(FREE.init, jax.random.key(0))))),
    'correlated': (FREE, DP_SGD, dict(
        strategy=correlated.square_root(3), sampler=CYCLIC)),
    'lip_dp_sgd': (BOUNDED, methods.lip_dp_sgd(
        BOUNDED, LOSS, weight_norm=0.9), {}),
    'convnet': (IMAGES, methods.dp_sgd(
        IMAGES, LOSS, clip_norm=0.7, microbatch_size=8), {}),
}


def records(model):
  """Returns records of a table, or of digits."""
  if model is IMAGES:
    train = registry.load('digits').train
    return Batch(jnp.asarray(train.x[:NUM], jnp.float32) / 16,
                 jnp.asarray(train.y[:NUM]))
  rng = np.random.default_rng(0)
  return Batch(jnp.asarray(rng.normal(size=(NUM, 16)), jnp.float32),
               jnp.asarray(rng.integers(0, 8, NUM), jnp.int32))


def placed(layout):
  """Returns the arguments of `fit` that say where arrays are."""
  if MESHES[layout] is None:
    return {}
  mesh = sharding.device_mesh(MESHES[layout])
  return dict(mesh=mesh, place=functools.partial(
      placement.divided, mesh, least_size=64))


def trained(case, layout):
  """Returns the parameters and their average after a few steps of two runs."""
  model, method, changed = CASES[case]
  plan = plans.TrainingPlan(**dict(
      sampler=SAMPLER, num_steps=STEPS, noise_multiplier=1.3,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE) | changed)
  given, rows = records(model), jnp.tile(
      jnp.arange(NUM, dtype=jnp.int32)[None], (2, 1))
  if case == 'streamed':
    given, rows = sources.source(jax.tree.map(np.asarray, tuple(given))), None
  result = loop.fit(
      # Reproducible: for research, not for a release.
      jax.random.split(jax.random.key(3), 2), plans=[plan] * 2, model=model,
      method=method, optimizer=optax.sgd(0.4, momentum=0.5),
      records=given, rows=rows, averaging=averaging.named('ema'),
      **placed(layout))
  state = result.state
  for leaf in jax.tree.leaves(state.params):
    count = np.prod(leaf.shape[1:])
    if layout != 'one' and count >= 512:
      assert leaf.addressable_data(0).size == leaf.size // 8, leaf.sharding
  momentum = state.optimizer[1][0].trace
  for leaf, like in zip(jax.tree.leaves((momentum, state.average.mean)),
                        jax.tree.leaves((state.params,) * 2), strict=True):
    assert leaf.sharding.is_equivalent_to(like.sharding, leaf.ndim)
  return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(
      (state.params, state.average.mean))])


def memory(case, layout):
  """Returns bytes that a device needs for steps of a large model by Adam."""
  # Adam promotes types.
  jax.config.update('jax_numpy_dtype_promotion', 'standard')
  model = mlp.mlp(num_features=WIDTH, num_classes=WIDTH, depth=8, width=WIDTH)
  size = tree.count(jax.eval_shape(model.init, jax.random.key(0)))
  plan = plans.TrainingPlan(
      sampler=SAMPLER, num_steps=STEPS, noise_multiplier=1.3,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE,
      lattice_size=size if case == 'lattice' else None)
  where = placed(layout)
  mesh, place = where.get('mesh'), where.get('place')
  keys = key_lib.system_keys(1)
  program = loop._compile(
      ((keys, keys), jnp.ones([1]), jnp.zeros([1, NUM], jnp.int32)), plan,
      model, methods.dp_sgd(model, LOSS, clip_norm=0.7),
      optax.adam(0.1), Batch(
          jnp.zeros([NUM, WIDTH]), jnp.zeros([NUM], jnp.int32)), 'optimal',
      None, mesh, placement.chosen(
          mesh, place, jax.eval_shape(model.init, jax.random.key(0))),
      frozenset({STEPS}))
  stats = program.chunks[STEPS].memory_analysis()
  return (stats.argument_size_in_bytes + stats.output_size_in_bytes
          + stats.temp_size_in_bytes - stats.alias_size_in_bytes)


def main(path, *names):
  """Runs cases, each named {case}/{layout}, or {case}/{layout}/memory."""
  arrays, needs = {}, {}
  for name in names:
    case, layout, *rest = name.split('/')
    if rest:
      needs[name] = memory(case, layout)
    else:
      arrays[name] = trained(case, layout)
  np.savez(path, **arrays)
  print(json.dumps(needs))


if __name__ == '__main__':
  main(*sys.argv[1:])
