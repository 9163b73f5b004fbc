"""Tests that bfloat16 networks are measured and summed in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bookkeeping
from dpjax.grads import bounder as bounders
from dpjax.grads import clipping
from dpjax.grads import contractions
from dpjax.grads import lookups
from dpjax.grads import per_example
from dpjax.grads import precision
from dpjax.grads import quantiles
from dpjax.typing import Batch

CLIP_NORM = 0.5
SITES = 300
# The last two overflow: in a product, and in conversion to bfloat16.
SCALES = np.array([1e-3, 1e-2, 0.3, 1, 2, 3, 5, 10, 30, 100, 1e20, 3.4e38])
USABLE = SCALES < 1e10


def _image(params, x):
  """Applies a convolution, scale, bias and dense layer at many sites."""
  x = jax.lax.conv_general_dilated(
    x, params['kernel'], (1,), 'SAME', dimension_numbers=('NHC', 'HIO', 'NHC'))
  x = jax.nn.relu(x * params['scale'][None, None] + params['bias'][None, None])
  return jnp.sum(x @ params['dense'], 1) + params['out'][None]


def _tokens(params, x):
  """Applies an embedding; a record's first entry is the log of its scale."""
  read = jnp.mean(jnp.sin(params['table'][x[:, 1:]]), 1)
  return read @ params['dense'] * jnp.exp2(x[:, :1].astype(read.dtype))


def _perceptron(params, x):
  """Applies a layer measured by Gram matrices, then one of outer products."""
  x = jax.nn.relu(x @ params['dense'])
  return jnp.sum(x, 1) @ params['out']


def _draw(seed=0, **shapes):
  rng = np.random.default_rng(seed)
  return {name: jnp.asarray(rng.normal(size=shape) / max(1, shape[0])**.5,
                            jnp.float32) for name, shape in shapes.items()}


def _batch(*shape):
  x = np.random.default_rng(1).normal(size=(len(SCALES), *shape))
  x /= np.abs(x).max(tuple(range(1, x.ndim)), keepdims=True)
  x *= SCALES.reshape((-1,) + (1,) * len(shape))
  return Batch(jnp.asarray(x, jnp.float32),
               jnp.arange(len(SCALES), dtype=jnp.int32) % 3)


def _token_batch():
  tokens = np.random.default_rng(1).integers(0, 9, (len(SCALES), 8))
  tokens[:, 0] = np.log2(SCALES).round()
  return Batch(jnp.asarray(tokens, jnp.int32), _batch(1).y)


# name -> (apply, params, batch)
NETWORKS = {
  'image': (_image, _draw(kernel=(3, 2, 8), scale=(8,), bias=(8,),
                          dense=(8, 3), out=(3,)), _batch(SITES, 2)),
  'tokens': (_tokens, _draw(table=(50, 4), dense=(4, 3)), _token_batch()),
  'perceptron': (_perceptron, _draw(dense=(100, 90), out=(90, 3)),
                 _batch(4, 100)),
}


def _loss(logits, labels):
  """Returns a linear loss, so that a record's gradient does not fade."""
  assert logits.dtype == jnp.float32
  places = jnp.arange(logits.shape[1])[None] + labels[:, None]
  return jnp.sum(logits * jnp.cos(places.astype(jnp.float32)), 1)


def _flat_clipping(apply, params, **options):
  del params
  return per_example.clipped(apply, _loss, clip_norm=CLIP_NORM, **options)


def _by_layers(apply, params):
  return per_example.clipped(apply, _loss, clip_norm=clipping.per_layer(
    sorted(params), clip_norm=CLIP_NORM))


def _normalized(apply, params):
  del params
  return per_example.normalized(apply, _loss, clip_norm=CLIP_NORM,
                                stabilizer=0.0)


def _adaptive(apply, params):
  del params
  bounder = per_example.adaptively_clipped(
    apply, _loss, adaptive=quantiles.geometric(
      CLIP_NORM, target_quantile=0.5, learning_rate=0.1, noise_stddev=1.))
  return bounders.at_radii(bounder, bounder.adaptive.init)


def _in_bfloat16(make, name, **options):
  """Returns (bounder, parameters, batch) of a network in bfloat16."""
  apply, params, batch = NETWORKS[name]
  return make(precision.computed_in(apply, 'bfloat16'), params,
              **options), params, batch


@pytest.fixture(name='as_users')
def _as_users():
  """Compiles with all optimisations, which could otherwise remove rounding."""
  jax.config.update('jax_disable_most_optimizations', False)
  yield
  jax.config.update('jax_disable_most_optimizations', True)


@pytest.mark.every(6)
@pytest.mark.parametrize('name, make, options', [
  ('image', _flat_clipping, {}),
  ('image', _flat_clipping, {'kernel': 'vmap'}),
  ('image', _flat_clipping, {'microbatch_size': 5}),
  pytest.param('image', _by_layers, {}, marks=pytest.mark.slow),
  pytest.param('image', _normalized, {}, marks=pytest.mark.slow),
  ('image', _adaptive, {}), ('tokens', _flat_clipping, {}),
  ('tokens', _flat_clipping, {'kernel': 'vmap'}),
  ('perceptron', _flat_clipping, {})])
def test_a_record_adds_its_clip_norm_at_most_and_all_of_it(
    checks, name, make, options):
  bounder, params, batch = _in_bfloat16(make, name, **options)
  terms = checks.contributions(bounder, params, batch)
  norms = np.linalg.norm(terms, axis=1)
  assert np.all(norms <= CLIP_NORM * (1 + 1e-5))
  # Rounding does not cause more clipping, either.
  assert np.all(norms[USABLE & (SCALES >= 3)] >= CLIP_NORM * (1 - 2e-5))
  # Overflowing records add nothing, and are counted.
  assert not np.any(terms[~USABLE]) and np.all(np.any(terms[USABLE], 1))
  sums = jax.jit(bounder.sums)(params, batch, jnp.ones(SCALES.shape,
                                                       jnp.bool_))
  assert int(sums.num_nonfinite) == np.sum(~USABLE)
  assert {leaf.dtype for leaf in jax.tree.leaves(sums.total)} == {
    jnp.dtype('float32')}
  np.testing.assert_allclose(checks.flat(sums.total), terms.sum(0), atol=1e-5)


@pytest.mark.every(4)
@pytest.mark.parametrize('kernel', per_example.KERNELS)
@pytest.mark.parametrize('name', NETWORKS)
def test_norms_are_those_of_what_is_summed(as_users, name, kernel):
  """Norms match the summed gradients to float32, and exact ones to bfloat16."""
  apply, params, batch = NETWORKS[name]
  kept = jnp.asarray(USABLE)

  def run(params, batch):
    find = lambda apply: per_example.KERNELS[kernel](apply, _loss, params,
                                                     batch, kept)
    one = lambda gradients: jax.vmap(lambda weights: gradients.weighted(
      jax.tree.map(lambda _: weights, params)))(
        jnp.eye(len(SCALES), dtype=jnp.float32)[:USABLE.sum()])
    gradients = find(precision.computed_in(apply, 'bfloat16'))
    return gradients.squares, one(gradients), one(find(apply))

  squares, grads, exact = jax.jit(run)(params, batch)

  def check(square, grad, exact):
    assert square.dtype == grad.dtype == jnp.float32
    grad, exact = (np.float64(leaf).reshape((USABLE.sum(), -1))
                   for leaf in (grad, exact))
    np.testing.assert_allclose(np.sum(grad**2, 1), square[USABLE], rtol=1e-5)
    gaps = np.linalg.norm(grad - exact, axis=1)
    assert np.all(gaps <= 0.1 * np.linalg.norm(exact, axis=1))
    assert np.any(gaps > 0)

  jax.tree.map(check, squares, grads, exact)


@pytest.mark.every(2)
def test_biases_and_scales_are_summed_over_their_sites_in_float32():
  """The sum of 3001 ones is exact, though bfloat16 has only eight bits."""
  sites = 3001
  x = jnp.asarray(np.random.default_rng(0).uniform(size=(1, sites, 2)),
                  jnp.float32)
  apply = lambda params, x: (x * params['scale'][None, None] + params['bias'][
    None, None]).astype(jnp.float32).sum(1)
  gradients = bookkeeping.record_gradients(
    precision.computed_in(apply, 'bfloat16'), lambda logits, y: logits.sum(1),
    {'scale': jnp.ones([2]), 'bias': jnp.zeros([2])},
    Batch(x, jnp.zeros([1], jnp.int32)), jnp.ones([1], jnp.bool_))
  grads = gradients.weighted({'scale': jnp.ones([1]), 'bias': jnp.ones([1])})
  np.testing.assert_array_equal(grads['bias'], [sites, sites])
  np.testing.assert_allclose(
    grads['scale'], np.float64(x.astype(jnp.bfloat16)).sum((0, 1)), rtol=1e-6)
  np.testing.assert_allclose(gradients.squares['bias'], 2. * sites**2,
                             rtol=1e-6)


def test_the_networks_take_all_ways_to_a_norm():
  """The test networks use every way to compute a norm."""
  operations, gram = {}, contractions.gram_is_cheaper
  for name, (apply, params, batch) in NETWORKS.items():
    def record_loss(params, record, apply=apply):
      return _loss(apply(params, record[0][None]), record[1][None])[0]
    known = bookkeeping.planned(record_loss, params, tuple(batch)).known
    for leaf, groups in known.items():
      for group in groups or ():
        operations[name, sorted(params)[leaf]] = group.reads[0].operation
  assert gram(operations['perceptron', 'dense'])
  assert contractions.is_outer(operations['perceptron', 'out'])
  assert not gram(operations['image', 'dense']) and operations[
    'image', 'kernel'].has_windows
  assert isinstance(operations['tokens', 'table'], lookups.Table)


@pytest.mark.every(3)
@pytest.mark.parametrize('kernel', per_example.KERNELS)
def test_parameters_may_be_short_themselves(kernel):
  """Norms and sums are float32 even where the parameters are bfloat16."""
  apply, params, batch = NETWORKS['image']
  short = lambda values: jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16),
                                      values)
  kept = jnp.arange(len(SCALES)) == 5

  def run(params, x):
    gradients = per_example.KERNELS[kernel](
      lambda params, x: apply(params, x).astype(jnp.float32), _loss, params,
      batch._replace(x=x), kept)
    return gradients.squares, gradients.weighted(jax.tree.map(
      lambda _: kept.astype(jnp.float32), params))

  squares, sums = jax.jit(run)(short(params), short(batch.x))
  jax.tree.map(lambda square, total: np.testing.assert_allclose(
    np.sum(np.square(np.float64(total))), square[5], rtol=1e-5), squares, sums)


def test_only_floats_are_rounded():
  seen = {}

  def apply(params, x):
    seen.update(jax.tree.map(lambda leaf: leaf.dtype, {'params': params,
                                                       'x': x}))
    return x['values'] @ params['w']

  params = {'w': jnp.ones([2, 3]), 'count': jnp.int32(2)}
  x = {'values': jnp.ones([4, 2]), 'tokens': jnp.zeros([4], jnp.int32)}
  logits = precision.computed_in(apply, 'bfloat16')(params, x)
  assert logits.dtype == jnp.float32
  assert seen == {'params': {'w': jnp.bfloat16, 'count': jnp.int32},
                  'x': {'values': jnp.bfloat16, 'tokens': jnp.int32}}
  assert precision.computed_in(apply, 'float32') is apply
  with pytest.raises(ValueError, match='compute_dtype must be one of '
                     'bfloat16, float32; got .float16.'):
    precision.computed_in(apply, 'float16')
