"""These tests check methods on a linear model in closed form."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import per_example
from dpjax.lipschitz import losses
from dpjax.lipschitz import reparametrisation
from dpjax.models import mlp
from dpjax.models.model import Model
from dpjax.models.model import reparametrised
from dpjax.papers import bassily
from dpjax.papers import lip_printed
from dpjax.runs import training_methods
from dpjax.train import methods
from dpjax.typing import Batch

pytestmark = pytest.mark.every(1)

LOSS = losses.cross_entropy()
CLIP = 0.6
PARAMS = {'a': jnp.asarray([[.5, -.2], [.1, .3]]), 'b': jnp.asarray([.2, -.1])}
LINEAR = Model(init=lambda key: PARAMS, network=None,
               apply=lambda p, x: x @ p['a'] + p['b'][None])
# These defaults decide on published results.
DEFAULTS = {
  'dp_sgd': {'microbatch_size': None, 'kernel': 'bookkeeping'},
  'dp_sgd_automatic': {'stabilizer': .01},
  'dp_sgd_adaptive': {'target_quantile': .5, 'learning_rate': .2},
  'lip_dp_sgd': {'recertify_every': 1}, 'lip_normalised': {'floor': 1e-2},
  'lip_adaptive': {'target_quantile': .9, 'learning_rate': .2}}
NORM = {'weight_norm': 1.0}
NETWORKS = {
  'layer_clipped': {'clip_norm': 1.0}, 'lip_dp_sgd': NORM,
  'fix_lip_dp_sgd': NORM, 'lip_normalised': NORM,
  'lip_adaptive': {**NORM, 'noise_stddev': 1.0},
  'lip_printed': {**NORM, 'allow_unsound': True},
  'lip_k_norm': {**NORM, 'order': 1}, 'bassily': {'radius': 1.0}}


def _gradient(x, y):
  """Returns the gradient of one record, as {name: array}."""
  logits = x @ np.asarray(PARAMS['a'], float) + np.asarray(PARAMS['b'], float)
  moved = np.exp(logits) / np.exp(logits).sum()
  moved[y] -= 1
  return {'a': np.outer(x, moved), 'b': moved}


def _contribution(method, x, y, *radii):
  sums = jax.jit(method.bounder.sums)(
      PARAMS, Batch(jnp.asarray([x], jnp.float32), jnp.asarray([y])),
      jnp.ones(1, bool), *radii)
  return sums.total


def _norm(gradient):
  return np.sqrt(sum(np.sum(leaf**2) for leaf in gradient.values()))


@pytest.mark.parametrize('x, y', [((3., -4.), 0), ((.02, .01), 1)])
def test_a_record_contributes_what_the_method_says(x, y):
  gradient = _gradient(np.array(x), y)
  size = _norm(gradient)
  layers = {name: np.linalg.norm(leaf) for name, leaf in gradient.items()}
  scale = {
    'sgd': dict.fromkeys('ab', 1.0),
    'dp_sgd': dict.fromkeys('ab', min(1, CLIP / size)),
    'dp_sgd_per_layer': {name: min(1, CLIP / np.sqrt(2) / norm)
                         for name, norm in layers.items()},
    'dp_sgd_automatic': dict.fromkeys('ab', CLIP / (size + .01)),
    'dp_sgd_adaptive': dict.fromkeys('ab', min(1, CLIP / size))}
  # The kernel `vmap` and clipping in one backward pass have tests of their own.
  assert scale.keys() == {'sgd', *training_methods.having('clips')} - {
    'dp_sgd_vmap', 'layer_clipped'}
  for name, factors in scale.items():
    clipped = {} if name == 'sgd' else {'clip_norm': CLIP}
    if name == 'dp_sgd_adaptive':
      clipped['noise_stddev'] = 1.0
    method = getattr(methods, name)(LINEAR, LOSS, **clipped)
    radii = [] if method.bounder.adaptive is None else [
        method.bounder.adaptive.init]
    contribution = _contribution(method, x, y, *radii)
    assert method.name == name and method.private == (name != 'sgd')
    assert method.noise_order is None and method.pullback is None
    for leaf, factor in factors.items():
      np.testing.assert_allclose(contribution[leaf], factor * gradient[leaf],
                                 rtol=2e-4, atol=1e-6)


def test_radii_move_by_what_is_missing_from_the_quantile():
  for name, wanted in (('dp_sgd_adaptive', .5), ('lip_adaptive', .9)):
    model, size = LINEAR, {'clip_norm': CLIP}
    if name == 'lip_adaptive':
      size = NORM
      model = mlp.mlp(num_features=2, num_classes=2, depth=1, width=3,
                      input_radius=1.0, hidden_radius=1.0, adaptive=True)
    adaptive = getattr(methods, name)(model, LOSS, noise_stddev=3.0,
                                      **size).bounder.adaptive
    assert adaptive.noise_stddev == 3
    for share in (0., .25, 1.):
      means = jax.tree.map(lambda radius, share=share: jnp.float32(share - .5),
                           adaptive.init)
      moved = adaptive.update(adaptive.init, means)
      jax.tree.map(lambda a, b, share=share: np.testing.assert_allclose(
          a / b, np.exp(-.2 * (share - wanted)), rtol=1e-5), moved,
                   adaptive.init)


def test_defaults_are_as_they_were():
  for name, defaults in DEFAULTS.items():
    parameters = inspect.signature(getattr(methods, name)).parameters
    assert {key: parameters[key].default for key in defaults} == defaults
  for name in ('sgd', 'dp_sgd', 'dp_sgd_per_layer', 'dp_sgd_automatic',
               'dp_sgd_adaptive'):
    assert inspect.signature(getattr(methods, name)).parameters[
        'compute_dtype'].default == 'float32'


@pytest.mark.parametrize('name', NETWORKS)
def test_lipschitz_methods_refuse_what_states_no_layers(name):
  with pytest.raises(ValueError, match='Model.network is None'):
    training_methods.METHODS[name].make(LINEAR, LOSS, **NETWORKS[name])


def test_layer_clipping_bounds_all_layers_together():
  model = mlp.mlp(num_features=2, num_classes=2, depth=2, width=3,
                  input_radius=1.0, hidden_radius=1.0)
  method = methods.layer_clipped(model, LOSS, clip_norm=CLIP)
  params, certificate = method.constraint.constrain(
      model.init(jax.random.key(0)))
  bounds = jax.tree.leaves(method.bounder.l2_sensitivity(certificate))
  assert np.hypot.reduce(np.array(bounds)) == pytest.approx(CLIP, rel=1e-4)
  assert len(bounds) > 1 and len(set(map(float, bounds))) == 1
  jax.tree.map(np.testing.assert_array_equal, params,
               model.init(jax.random.key(0)))


def test_kernels_are_chosen_by_name():
  sums = [_contribution(methods.dp_sgd(LINEAR, LOSS, clip_norm=CLIP,
                                       kernel=kernel), (3., -4.), 0)
          for kernel in per_example.KERNELS]
  for other in sums[1:]:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4),
                 sums[0], other)
  with pytest.raises(ValueError, match='kernel'):
    methods.dp_sgd(LINEAR, LOSS, clip_norm=CLIP, kernel='none')
  for name in ('dp_sgd', 'dp_sgd_per_layer', 'dp_sgd_automatic'):
    with pytest.raises(ValueError, match='microbatch_size'):
      _contribution(getattr(methods, name)(
          LINEAR, LOSS, clip_norm=CLIP, microbatch_size=0), (3., -4.), 0)
    with pytest.raises(ValueError, match='compute_dtype'):
      getattr(methods, name)(LINEAR, LOSS, clip_norm=CLIP,
                             compute_dtype='int8')


def test_one_layer_and_allowed_faults():
  model = mlp.mlp(num_features=2, num_classes=2, depth=1, width=3,
                  input_radius=1.0, hidden_radius=1.0)
  with pytest.raises(ValueError, match='this one has 2'):
    bassily.bassily(model, LOSS, radius=1.0)
  with pytest.raises(ValueError, match='not differentially private'):
    lip_printed.lip_printed(model, LOSS, weight_norm=1.0, allow_unsound=False)


@pytest.mark.every(4)
def test_reparametrised_weights_are_noised_and_pulled_back():
  """Noise is added to gradients of the effective weights, then pulled back.

  These weights stay within their norm.
  """
  model = reparametrised(mlp.mlp(
      num_features=2, num_classes=2, depth=0, input_radius=5.0,
      hidden_radius=1.0), sorted(reparametrisation.MAPS)[0], weight_norm=0.5)
  params = model.init(jax.random.key(0))
  weights, certificate = model.effective(params)
  batch = Batch(jnp.asarray([[3., -4.]]), jnp.asarray([0]))
  method = methods.lip_dp_sgd(model, LOSS, weight_norm=0.5)
  total = jax.jit(method.bounder.sums)(params, batch, jnp.ones(1, bool)).total
  plain = jax.grad(lambda w: LOSS.values(
      model.network.apply(w, batch.x), batch.y)[0])(weights)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4),
               total, plain)
  kept, stated = method.constraint.constrain(params)
  assert kept is params and method.pullback is not None
  jax.tree.map(np.testing.assert_array_equal, stated, certificate)
  for limit in jax.tree.leaves(stated):
    assert float(limit) <= .5 * 1.01
  with pytest.raises(ValueError, match='recertify_every must be 1'):
    methods.lip_dp_sgd(model, LOSS, weight_norm=0.5, recertify_every=2)
  loss = methods.sgd(model, LOSS).bounder.sums(params, batch,
                                               jnp.ones(1, bool)).loss
  assert float(loss) == pytest.approx(float(LOSS.values(model.apply(
      params, batch.x), batch.y)[0]), rel=1e-4)
