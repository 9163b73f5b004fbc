"""These tests check training in bfloat16, which
sums and adds noise in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.grads import bounder as bounders
from dpjax.lipschitz import losses
from dpjax.models import bounding
from dpjax.models import convnet
from dpjax.models import mlp
from dpjax.models import model as models
from dpjax.models import resnet
from dpjax.models import wide_resnet
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import training_methods
from dpjax.sampling import PoissonSampler
from dpjax.train import augment
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import plan as plans
from dpjax.train import step as steps
from dpjax.typing import Batch

LOSS = losses.cross_entropy()
SAMPLER = PoissonSampler(num_examples=60, batch_size=30, max_batch_size=60)
ROWS = jnp.arange(60, dtype=jnp.int32)
# These are the options that each method needs.
METHODS = {
  'sgd': {}, 'dp_sgd': {'clip_norm': 0.7},
  'dp_sgd_per_layer': {'clip_norm': 0.7},
  'dp_sgd_automatic': {'clip_norm': 0.7},
  'dp_sgd_adaptive': {'clip_norm': 0.7, 'noise_stddev': 5.}}


def _method(name, model, compute_dtype='bfloat16', loss=LOSS, **more):
  return getattr(methods, name)(model, loss, compute_dtype=compute_dtype,
                                **METHODS[name], **more)


def _floats(values):
  return {leaf.dtype for leaf in jax.tree.leaves(values)
          if jnp.issubdtype(leaf.dtype, jnp.floating)}


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('name', [
  'sgd', 'dp_sgd', *(pytest.param(name, marks=pytest.mark.slow) for name in (
    'dp_sgd_per_layer', 'dp_sgd_automatic', 'dp_sgd_adaptive'))])
def test_a_run_learns_and_is_kept_in_float32(make_model, records, name):
  model = make_model(False)
  settings = {'sampler': SAMPLER, 'num_steps': 40,
              'adjacency': Adjacency.ADD_OR_REMOVE_ONE}
  result = loop.fit(
    jax.random.split(jax.random.key(0), 1), model=model, records=records,
    plans=[plans.TrainingPlan(
      **settings, noise_multiplier=None if name == 'sgd' else 0.5)],
    # Normalised gradients do not shrink, so larger steps go round the minimum.
    method=_method(name, model), optimizer=optax.sgd(0.1, momentum=0.9),
    rows=ROWS[None])
  mean_loss = result.info.mean_loss[:, 0]
  assert np.mean(mean_loss[-10:]) < 0.7 * np.mean(mean_loss[:3])
  assert _floats((result.state, result.info)) == {jnp.dtype('float32')}
  rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16).astype(
    jnp.float32), result.state.params)
  assert not jax.tree.all(jax.tree.map(np.array_equal, rounded,
                                       result.state.params))


def test_every_method_of_any_type_is_here():
  # `dp_sgd_vmap` is `dp_sgd` with the other kernel, which is tested below.
  assert METHODS.keys() | {'dp_sgd_vmap'} == {
    *training_methods.having('any_dtype')}


@pytest.mark.every(3)
@pytest.mark.parametrize('name', METHODS)
def test_methods_compute_in_the_type_that_is_asked_for(make_model, name):
  model = make_model(False)
  batch = Batch(jnp.zeros([4, 3]), jnp.zeros([4], jnp.int32))
  params, mask = model.init(jax.random.key(0)), jnp.ones([4], jnp.bool_)
  for compute_dtype in ('float32', 'bfloat16'):
    bounder = _method(name, model, compute_dtype).bounder
    bounder = bounders.at_radii(
      bounder, bounder.adaptive.init if bounder.adaptive else ())
    program = str(jax.make_jaxpr(bounder.sums)(params, batch, mask))
    assert ('bf16' in program) == (compute_dtype == 'bfloat16')


@pytest.mark.every(4)
def test_noise_is_that_of_float32(make_model, records):
  """Training in bfloat16 adds the same float32 noise, bit for bit.

  The records count for nothing, so only noise is left.
  """
  nothing = Batch(jnp.full_like(records.x, jnp.nan), records.y)
  model, params_by_dtype = make_model(False), {}
  for compute_dtype in ('float32', 'bfloat16'):
    # The grid is a power of two, so that noise of few bits would show on it.
    method = methods.dp_sgd(model, LOSS, clip_norm=0.5,
                            compute_dtype=compute_dtype)
    transform_of = lambda key, method=method: steps.make_transform(
      method, SAMPLER, optax.sgd(1.), key=key, noise_multiplier=1.,
      allocation='optimal')
    before = steps.init_state(jax.random.key(0), model=model, method=method,
                              transform_of=transform_of)
    step = jax.jit(steps.make_step(method=method, sampler=SAMPLER,
                                   transform_of=transform_of))
    after, info = step(before, nothing, ROWS)
    assert int(info.num_nonfinite) == int(info.batch_size) > 0
    params_by_dtype[compute_dtype] = after.params
  jax.tree.map(np.testing.assert_array_equal, *params_by_dtype.values())
  # In multiples of the grid, noise has more digits than bfloat16 can hold.
  moved = np.concatenate([np.ravel(np.float64(b) - np.float64(a)) for a, b in zip(
    *map(jax.tree.leaves, (before.params, after.params)), strict=True)])
  moved *= SAMPLER.expected_batch_size / float(additive.grid_spacing(0.5))
  points = np.round(moved)
  np.testing.assert_allclose(moved, points, atol=0.02)
  assert np.any(points != points.astype(jnp.bfloat16).astype(np.float64))


IMAGE = (8, 8, 4)
NORMED = bounding.Bounding(num_groups=2, affine=True)
MODELS = {
  'convnet': lambda: convnet.convnet(
    input_shape=IMAGE, num_classes=3, channels=(4,), width=5),
  'resnet': lambda: resnet.resnet(
    input_shape=IMAGE, num_classes=3, depth=8, bounding=NORMED),
  'wide_resnet': lambda: wide_resnet.wide_resnet(
    input_shape=IMAGE, num_classes=3, depth=10, widening=1, bounding=NORMED),
  'orthogonal': lambda: models.reparametrised(
    mlp.mlp(num_features=4, num_classes=3, width=5), 'orthogonal',
    weight_norm=1e4)}


@pytest.mark.parametrize('kernel', [
  'bookkeeping', pytest.param('vmap', marks=pytest.mark.slow)])
@pytest.mark.parametrize('name', MODELS)
def test_every_network_has_an_own_form_in_bfloat16(name, kernel):
  """Every network computes in bfloat16, yet all its sums are in float32."""
  model = MODELS[name]()
  shape = IMAGE if model.network.input_shape == IMAGE else (4,)
  batch = Batch(jax.ShapeDtypeStruct((6, *shape), jnp.float32),
                jax.ShapeDtypeStruct((6,), jnp.int32))
  params = jax.eval_shape(model.init, jax.random.key(0))
  sums = _method('dp_sgd', model, kernel=kernel).bounder.sums
  mask = jax.ShapeDtypeStruct((6,), jnp.bool_)
  assert 'bf16' in str(jax.make_jaxpr(sums)(params, batch, mask))
  shapes = jax.eval_shape(sums, params, batch, mask)
  assert _floats(shapes) == {jnp.dtype('float32')}


def _of_views(model, compute_dtype):
  """Returns a bounder on two views per record,
  as `dpjax.runs.building` makes it."""
  return augment.augmented(
    lambda apply, values: _method(
      'dp_sgd', model._replace(apply=apply), compute_dtype,
      loss=LOSS._replace(values=values)).bounder,
    model.apply, LOSS.values, multiplicity=2,
    augmentation=augment.crop_and_flip(padding=1))


@pytest.mark.slow
@pytest.mark.parametrize('name', ['convnet', 'orthogonal'])
def test_sums_are_close_to_those_of_float32(name):
  """Sums in bfloat16 are within 5 % of float32, also with views and maps."""
  model, totals = MODELS[name](), []
  params = model.init(jax.random.key(1))
  x = jax.random.normal(jax.random.key(0), (6, *model.network.input_shape))
  for compute_dtype in ('float32', 'bfloat16'):
    if name == 'convnet':
      bounder = _of_views(model, compute_dtype)
      seen = bounder.views(jax.random.key(2), jnp.arange(6), x)
    else:
      bounder, seen = _method('dp_sgd', model, compute_dtype).bounder, x
    total = jax.jit(bounder.sums)(
      params, Batch(seen, jnp.arange(6, dtype=jnp.int32) % 3),
      jnp.ones([6], jnp.bool_)).total
    totals.append(np.concatenate([np.ravel(np.float64(leaf))
                                  for leaf in jax.tree.leaves(total)]))
  exact, short = totals
  assert 1e-5 < np.linalg.norm(exact - short) / np.linalg.norm(exact) < 0.05
