"""Trains on one and on 8 host devices for `sharding_test`.

Writes an .npz of arrays, {case}/{what}/{devices}, and prints JSON of the rest.
"""

import json
import os
import sys

os.environ['XLA_FLAGS'] = ('--xla_force_host_platform_device_count=8 '
                           '--xla_cpu_use_fusion_emitters=false')

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

from dpjax import tree  # noqa: E402
from dpjax.audit import whitebox  # noqa: E402
from dpjax.lipschitz import losses  # noqa: E402
from dpjax.models import mlp  # noqa: E402
from dpjax.models import model as models  # noqa: E402
from dpjax.privacy import additive  # noqa: E402
from dpjax.privacy.adjacency import Adjacency  # noqa: E402
from dpjax.sampling import PoissonSampler  # noqa: E402
from dpjax.train import loop  # noqa: E402
from dpjax.train import methods  # noqa: E402
from dpjax.train import placement  # noqa: E402
from dpjax.train import plan as plans  # noqa: E402
from dpjax.train import sharding  # noqa: E402
from dpjax.train import step as steps  # noqa: E402
from dpjax.typing import Batch  # noqa: E402

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')
jax.config.update('jax_disable_most_optimizations', True)

MULTIPLIER, CLIP_NORM, COUNT_NOISE, NUM_STEPS = 1.3, 0.7, 4.0, 20
MESH = sharding.data_mesh()
LOSS = losses.cross_entropy()
# Batches of several parts have parts of 16 rows.
IN_PARTS = PoissonSampler(num_examples=100, batch_size=30, max_batch_size=16)
# One part has 53 rows, which are padded to 56 for 8 devices.
IN_ONE = PoissonSampler(num_examples=100, batch_size=28)
FREE = mlp.mlp(num_features=3, num_classes=2, depth=1, width=4)
BOUNDED = mlp.mlp(num_features=3, num_classes=2, depth=1, width=4,
                  input_radius=1.5, hidden_radius=1.)
DP_SGD = methods.dp_sgd(FREE, LOSS, clip_norm=CLIP_NORM)


def _convolved(params, x):
  hidden = jnp.tanh(jax.lax.conv_general_dilated(
      x[:, :, None], params['kernel'], (1,), 'VALID',
      dimension_numbers=('NWC', 'WIO', 'NWC')))
  return hidden.reshape((-1, 8)) @ params['dense'] + params['bias'][None]


CONVOLVED = models.Model(lambda key: {
    'kernel': jax.random.normal(key, (2, 1, 4)),
    'dense': jax.random.normal(jax.random.fold_in(key, 1), (8, 2)),
    'bias': jnp.zeros([2])},
                         _convolved, None)
# Each case maps to (model, method, sampler).
CASES = {
    'sgd': (FREE, methods.sgd(FREE, LOSS), IN_PARTS),
    'dp_sgd': (FREE, DP_SGD, IN_ONE),
    'dp_sgd_per_layer': (FREE, methods.dp_sgd_per_layer(
        FREE, LOSS, clip_norm=CLIP_NORM), IN_ONE),
    'dp_sgd_adaptive': (FREE, methods.dp_sgd_adaptive(
        FREE, LOSS, clip_norm=CLIP_NORM, noise_stddev=COUNT_NOISE,
        microbatch_size=1), IN_PARTS),
    'convolved': (CONVOLVED, methods.dp_sgd(
        CONVOLVED, LOSS, clip_norm=CLIP_NORM, microbatch_size=2), IN_PARTS),
    'lip_dp_sgd': (BOUNDED, methods.lip_dp_sgd(BOUNDED, LOSS, weight_norm=.9),
                   IN_PARTS),
    'layer_clipped': (FREE, methods.layer_clipped(
        FREE, LOSS, clip_norm=CLIP_NORM), IN_ONE),
    'lattice': (FREE, DP_SGD, IN_ONE),
}


def _records():
  """Returns 100 finite records and 100 of NaN, which count as zero."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(200, 3))
  y = x[:, 0] + 0.5 * rng.normal(size=200) > 0
  x[100:] = np.nan
  return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))


def _flat(values, axes=1):
  return np.concatenate([np.reshape(leaf, (*leaf.shape[:axes], -1))
                         for leaf in jax.tree.leaves(values)], axes)


def _fit(case, mesh, method=None):
  """Trains two runs on records and four on NaN; returns what they released."""
  model, honest, sampler = CASES[case]
  method = method or honest
  plan = plans.TrainingPlan(
      sampler=sampler, num_steps=NUM_STEPS,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE,
      noise_multiplier=MULTIPLIER if method.private else None,
      lattice_size=26 if case == 'lattice' else None)
  order = np.random.default_rng(1).permutation(100)
  rows = np.stack([order] * 2 + [100 + order] * 4)
  result = loop.fit(
      jax.random.split(jax.random.key(3), 6), plans=[plan] * 6, model=model,
      method=method, records=_records(), rows=jnp.asarray(rows, jnp.int32),
      mesh=mesh, optimizer=optax.chain(
          whitebox.recorder(lambda updates: updates, NUM_STEPS),
          optax.sgd(0.4)))
  return {
      'params': _flat(result.state.params),
      'means': _flat(result.state.optimizer[1][0].history, 2),
      'radii': [np.asarray(leaf) for leaf
                in jax.tree.leaves(result.info.radii)],
      'sizes': result.info.batch_size}


def _noised_in_shards(scale):
  """Returns a faulty method whose devices each
  add noise before the all-reduce."""
  stddev = MULTIPLIER * CLIP_NORM * scale

  def sums(params, batch, mask):
    bounded = DP_SGD.bounder.sums(params, batch, mask)
    bits = jax.lax.bitcast_convert_type(tree.global_norm(params), jnp.uint32)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(7), bits),
                             jax.lax.axis_index(placement.AXIS))
    return bounded._replace(total=tree.add(bounded.total, tree.scale(
        stddev, additive.unit_noise(key, params))))

  return DP_SGD._replace(bounder=DP_SGD.bounder._replace(sums=sums))


# These faults draw noise in every shard, at this scale.
FAULTS = {'repeated': 1.0, 'missing': 1 / 8}


def _faulty(name):
  """Returns the privatizer's output if every shard draws noise."""
  honest = additive.add_drawn_noise
  additive.add_drawn_noise = lambda draws, values, stddevs: values
  means = _fit('dp_sgd', MESH, _noised_in_shards(FAULTS[name]))['means']
  additive.add_drawn_noise = honest
  return means


def _program():
  """Returns the text of the compiled dp_sgd step on all devices."""
  model, method, _ = CASES['dp_sgd']
  sampler = sharding.split_sampler(MESH, IN_ONE)
  method = method._replace(bounder=sharding.split_sums(MESH, method.bounder))
  transform_of = lambda key: steps.make_transform(
      method, sampler, optax.sgd(0.4), key=key, noise_multiplier=MULTIPLIER,
      allocation='optimal')
  state = steps.init_state(jax.random.key(0), model=model, method=method,
                           transform_of=transform_of)
  step = steps.make_step(method=method, sampler=sampler,
                         transform_of=transform_of)
  return sharding.jit(MESH, step).lower(
      state, _records(), jnp.arange(100, dtype=jnp.int32)).compile().as_text()


def main(path, *cases):
  """Runs the given cases and faults and writes their arrays."""
  arrays = {f'{case}/{key}/{name}': value for case in cases
            if case in CASES for name, mesh in (('1', None), ('8', MESH))
            for key, value in _fit(case, mesh).items()}
  faults = {case: _faulty(case) for case in cases if case in FAULTS}
  np.savez(path, **arrays, **faults)
  print(json.dumps({'program': _program(), 'devices': len(jax.devices())}))


if __name__ == '__main__':
  main(*sys.argv[1:])
