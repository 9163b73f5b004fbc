"""Trains models whose parameters are divided over 8 host devices.

Writes an .npz of parameters, {case}/{layout}, and prints JSON of what the
compiled programs need: for `sharded_test`.
"""

import functools
import json
import os
import sys

os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

from dpjax.grads import shards  # noqa: E402
from dpjax.privacy import additive  # noqa: E402
from dpjax.train import placement  # noqa: E402
from dpjax.train import sharding  # noqa: E402
from dpjax.train.private import make_private  # noqa: E402
from tests import collectives  # noqa: E402

NUM, ROWS, STEPS = 64, 16, 3
DEPTH, WIDTH, LENGTH, HEADS = 4, 64, 6, 4


def _normal(seed, *shape):
  return np.random.default_rng(seed).normal(
      size=shape).astype(np.float32) / np.sqrt(shape[-2] if len(shape) > 1
                                               else 1)


def _itself(layer):
  """Returns the function of a layer as it is; see `_recomputed`."""
  return layer


def _mlp(params, record, of_layer=_itself):
  dense = of_layer(lambda x, layer: jnp.tanh(x @ layer['w'] + layer['b']))
  hidden = record['x']
  for layer in params['hidden']:
    hidden = dense(hidden, layer)
  return jnp.square(jnp.vdot(hidden, params['last']) - record['y'])


def _mlp_params(scale=1, depth=DEPTH):
  width = WIDTH * scale
  return {'hidden': [{'w': _normal(i, WIDTH if i == 0 else width, width),
                      'b': np.zeros(width, np.float32)} for i in range(depth)],
          'last': _normal(9, width)}


def _layer(x, layer):
  """Returns one layer of a transformer; x [length, width]."""
  split = lambda each: each.reshape((LENGTH, HEADS, -1))
  queries, keys, values = (split(x @ layer[name]) for name in 'qkv')
  scores = jnp.einsum('qhd,khd->hqk', queries, keys) / 4
  mixed = jnp.einsum('hqk,khd->qhd', jax.nn.softmax(scores), values)
  x = x + mixed.reshape((LENGTH, -1)) @ layer['o']
  return x + jax.nn.gelu(x @ layer['up']) @ layer['down']


def _language_model(params, record, run, of_layer):
  """Returns the loss of a transformer.

  Args:
    params: weights.
    record: tokens.
    run: (the function of a layer, x, its weights for all layers) -> x.
    of_layer: see `_itself`.
  """
  look_up = of_layer(lambda ids, table: table[ids])
  x = run(of_layer(_layer), look_up(record['ids'], params['embedding']),
          params['layers']) * params['scale']
  logits = of_layer(jnp.matmul)(x, params['head'])
  return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(
      logits, record['ids']))


def _scanned(params, record, of_layer=_itself):
  return _language_model(params, record, lambda layer, x, layers: jax.lax.scan(
      lambda x, each: (layer(x, each), None), x, layers)[0], of_layer)


def _plain(params, record, of_layer=_itself):
  def run(layer, x, layers):
    for each in layers:
      x = layer(x, each)
    return x
  return _language_model(params, record, run, of_layer)


_SIZES = {'q': (1, 1), 'k': (1, 1), 'v': (1, 1), 'o': (1, 1), 'up': (1, 4),
          'down': (4, 1)}


def _transformer_params(scale=1, depth=DEPTH):
  width = WIDTH * scale
  return {'embedding': _normal(1, 32, width), 'head': _normal(2, width, 32),
          'scale': np.ones([width], np.float32),
          'layers': {name: _normal(3 + i, depth, a * width, b * width)
                     for i, (name, (a, b)) in enumerate(_SIZES.items())}}


def _plain_params(scale=1, depth=DEPTH):
  params = _transformer_params(scale, depth)
  stacked = params['layers']
  return params | {'layers': [{name: leaf[i] for name, leaf in stacked.items()}
                              for i in range(depth)]}


def _convolved(params, record, of_layer=_itself):
  convolve = of_layer(lambda x, kernel: jax.nn.relu(
      jax.lax.conv_general_dilated(x, kernel, (1, 1), 'SAME',
                                   dimension_numbers=('NHWC', 'HWIO', 'NHWC'))))
  x = record['image'][None]
  for kernel in params['kernels']:
    x = convolve(x, kernel)
  return jnp.square(jnp.vdot(jnp.mean(x, (0, 1, 2)), params['last'])
                    - record['y'])


def _convolved_params(scale=1, depth=DEPTH):
  width = 16 * scale
  return {'kernels': [_normal(i, 3, 3, 8 if i == 0 else width, width) / 3
                      for i in range(depth)], 'last': _normal(8, width)}


def _records():
  rng = np.random.default_rng(0)
  return {'x': rng.normal(size=(NUM, WIDTH)).astype(np.float32),
          'y': rng.normal(size=NUM).astype(np.float32),
          'ids': rng.integers(0, 32, (NUM, LENGTH)).astype(np.int32),
          'image': rng.normal(size=(NUM, 6, 6, 8)).astype(np.float32)}


CASES = {'mlp': (_mlp, _mlp_params, ('x', 'y')),
         'scanned': (_scanned, _transformer_params, ('ids',)),
         'plain': (_plain, _plain_params, ('ids',)),
         'convolved': (_convolved, _convolved_params, ('image', 'y'))}

# Tensor parallelism: columns of the first matrix, rows of the second one.
_COLUMNS, _LINES = ('q', 'k', 'v', 'up'), ('o', 'down')


def _tensor_spec(path, leaf):
  """Returns the specification of a parameter in a mesh of data and model."""
  name = str(getattr(path[-1], 'key', ''))
  if name in _COLUMNS:
    return P(*[None] * (leaf.ndim - 1), 'model')
  if name in _LINES:
    return P(*[None] * (leaf.ndim - 2), 'model', None)
  if name in ('head',):
    return P(None, 'model')
  number = getattr(path[-1], 'idx', getattr(path[-2], 'idx', 0)) if len(
      path) > 1 else 0
  if name in ('w', 'b'):
    return (P(None, 'model') if leaf.ndim == 2 else P('model')) if (
        number % 2 == 0) else (P('model', None) if leaf.ndim == 2 else P())
  if leaf.ndim == 4:
    return P(None, None, None, 'model') if number % 2 == 0 else P(
        None, None, 'model', None)
  return P()


def placed(layout, params):
  """Returns (mesh, parameters on it); None for one device."""
  devices = np.array(jax.devices())
  if layout == 'one':
    return None, jax.tree.map(jnp.asarray, params)
  if layout == 'rows':
    return sharding.data_mesh(), params
  if layout == 'fsdp':
    mesh = sharding.data_mesh()
    return mesh, placement.fully_sharded(mesh, params, least_size=256)
  mesh = Mesh(devices.reshape(2, 4), ('data', 'model'))
  params = jax.tree_util.tree_map_with_path(lambda path, leaf: jax.device_put(
      leaf, NamedSharding(mesh, _tensor_spec(path, leaf))), params)
  if layout == 'both':
    params = placement.fully_sharded(mesh, params, least_size=256)
  return mesh, params


def private(case, mesh, **changed):
  loss = CASES[case][0]
  return make_private(loss, changed.pop('optimizer', optax.adam(1e-2)), **dict(
      num_examples=NUM, batch_size=ROWS, noise_multiplier=0.8, clip_norm=0.7,
      max_batch_size=ROWS, per='record', mesh=mesh, donate=True) | changed)


def trained(case, layout, scale=1, depth=DEPTH, **changed):
  """Returns (parameters after a few steps, the compiled step)."""
  mesh, params = placed(layout, CASES[case][1](scale, depth))
  own = private(case, mesh, **changed)
  # Reproducible: for research, not for a release.
  state = own.init(params, key=jax.random.key(4))
  records = {name: _records()[name] for name in CASES[case][2]}
  for _ in range(STEPS):
    state, _ = own.step(state, jax.tree.map(jnp.asarray, records))
  for leaf, given in zip(jax.tree.leaves(state.params),
                         jax.tree.leaves(params)):
    if layout not in ('one', 'rows'):
      assert leaf.sharding.is_equivalent_to(given.sharding, leaf.ndim)
  return state


def compiled(case, layout, scale=1, depth=DEPTH, **changed):
  """Returns the compiled step of a model, from shapes alone."""
  mesh, params = placed(layout, CASES[case][1](scale, depth))
  own = private(case, mesh, **changed)
  state = own.init(params, key=jax.random.key(4))
  records = {name: _records()[name] for name in CASES[case][2]}
  return own._functions()[1].step.lower(
      state, jax.tree.map(jnp.asarray, records), None).compile()


def ordinary(case):
  """Returns a compiled step without privacy, fully sharded as usually done.

  Each layer collects its weights and keeps neither them nor what it computes,
  so it collects them again in the backward pass.
  """
  loss, make, names = CASES[case]
  mesh, params = placed('fsdp', make())
  divided = placement.Placement(
      jax.tree.map(lambda leaf: leaf.sharding, params), {}).shards
  whole = lambda weights: jax.tree.map(
      shards.whole, weights, is_leaf=lambda each: isinstance(each, shards.Part))
  recomputed = lambda layer: jax.checkpoint(
      lambda x, weights: layer(x, whole(weights)))
  specs = jax.tree.map(lambda leaf: leaf.sharding.spec, params)
  optimizer = optax.adam(1e-2)

  @functools.partial(jax.shard_map, mesh=mesh, in_specs=(specs, P('data')),
                     out_specs=specs)
  def gradients(params, records):
    leaves, structure = jax.tree.flatten(params)

    def mean(leaves):
      parts = jax.tree.unflatten(structure, divided.parts(leaves))
      losses = jax.vmap(functools.partial(loss, of_layer=recomputed),
                        (None, 0))(parts, records)
      return jax.lax.pmean(jnp.mean(losses), 'data')

    return jax.tree.unflatten(structure, jax.grad(mean)(leaves))

  def step(params, state, records):
    updates, state = optimizer.update(gradients(params, records), state, params)
    return optax.apply_updates(params, updates), state

  records = {name: jnp.asarray(_records()[name][:ROWS]) for name in names}
  return jax.jit(step, donate_argnums=(0, 1)).lower(
      params, optimizer.init(params), records).compile()


def memory(step):
  """Returns the bytes that a device needs for a step, and for its state."""
  stats = step.memory_analysis()
  return (stats.argument_size_in_bytes + stats.output_size_in_bytes
          + stats.temp_size_in_bytes - stats.alias_size_in_bytes,
          stats.argument_size_in_bytes)


def _needs(step):
  """Returns memory and collectives of a compiled step."""
  text = step.as_text()
  return {'memory': memory(step), 'totals': collectives.totals(text),
          'largest': collectives.largest(text)}


def noise(layout, steps=10):
  """Returns noise of several steps over its deviation, [steps, 2, 8, 2^16].

  Of two matrices, by device. Gradients are zero, so a step moves parameters by noise alone. It is on a grid
  of 1/512 to 1/256 deviations, so uniform numbers of the width of the grid are
  added.
  """
  shapes = {'wide': (512, 1024), 'high': (2048, 256)}
  mesh, params = placed(layout, {name: np.zeros(shape, np.float32)
                                 for name, shape in shapes.items()})
  if layout == 'both':
    params['wide'] = jax.device_put(params['wide'], NamedSharding(
        mesh, P(('data', 'model'), None)))
    params['high'] = jax.device_put(params['high'], NamedSharding(
        mesh, P('data', 'model')))
  own = make_private(
      lambda params, record: 0.0 * jnp.sum(params['wide'] + record[0]),
      optax.sgd(1.0), num_examples=NUM, batch_size=ROWS, noise_multiplier=1.0,
      clip_norm=1.0, per='record', mesh=mesh)
  # Reproducible: for research, not for a release.
  state = own.init(params, key=jax.random.key(11))
  records = jnp.zeros([NUM, 2])
  deviation = np.float32(1 / own.sampler.expected_batch_size)
  drawn = []
  for _ in range(steps):
    before = state.params
    state, _ = own.step(state, records)
    moves = jax.tree.map(jnp.subtract, state.params, before)
    drawn.append([[np.ravel(part.data) / deviation
                   for part in moves[name].addressable_shards]
                  for name in shapes])
  width = float(additive.grid_spacing(1.0))
  values = np.asarray(drawn, np.float64)
  return values + np.random.default_rng(5).uniform(-width / 2, width / 2,
                                                   values.shape)


PLAIN = dict(epsilon=float('inf'), noise_multiplier=None,
             clip_norm=float('inf'))


def main(path, *names):
  """Runs cases, each named {case}/{layout}, and writes what they give.

  '{case}/{layout}/memory' compiles a large model and trains nothing, and
  'noise/{layout}' draws noise.
  """
  arrays, needs = {}, {}
  for name in names:
    case, layout, *rest = name.split('/')
    if case == 'noise':
      arrays[name] = noise(layout)
      continue
    if rest:
      needs[name] = _needs(compiled(case, layout, 4, 16))
      continue
    arrays[name] = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(
        trained(case, layout).params)])
    if layout == 'fsdp':
      needs[f'{name}/ordinary'] = _needs(ordinary(case))
    if layout != 'one':
      needs[name] = _needs(compiled(case, layout))
      needs[f'{name}/plain'] = _needs(compiled(case, layout, **PLAIN))
  np.savez(path, **arrays)
  print(json.dumps(needs))


if __name__ == '__main__':
  main(*sys.argv[1:])
