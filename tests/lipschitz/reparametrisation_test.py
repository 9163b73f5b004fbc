"""These tests check weights that are functions of parameters.

They cover REG-02, E16 and SPEC-08.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax import tree
from dpjax.lipschitz import losses
from dpjax.lipschitz import reparametrisation
from dpjax.models import convnet
from dpjax.models import mlp
from dpjax.models import model as models
from dpjax.models.bounding import Bounding
from dpjax.train import methods
from dpjax.typing import Batch

LOSS = losses.cross_entropy()


@pytest.mark.every(2)
@pytest.mark.parametrize('scale', [0.01, 0.1, 1.])
def test_the_jacobian_of_standardisation_is_one_over_the_deviation(scale):
  """Standardisation's Jacobian has norm 1 / deviation (E16).

  Pulling back before the noise would cost this factor.
  """
  kernel = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3, 2, 1))
                       * scale, jnp.float32)
  jacobian = jax.jacobian(reparametrisation.standardise)(kernel)
  matrix = np.float64(jacobian).reshape(18, 18)
  # Our map also divides by 18, the fan-in, under a root.
  deviation = float(jnp.std(kernel))
  assert np.linalg.norm(matrix, 2) * 18**0.5 == pytest.approx(
    1 / deviation, rel=1e-4)


def test_standardised_kernels_have_unit_channels():
  kernel = jnp.asarray(np.random.default_rng(1).normal(size=(3, 3, 4, 6)) + 5,
                       jnp.float32)
  flattened = np.float64(reparametrisation.standardise(kernel)).reshape(-1, 6)
  np.testing.assert_allclose(flattened.mean(0), 0, atol=1e-6)
  np.testing.assert_allclose(np.square(flattened).sum(0), 1, rtol=1e-5)
  assert not np.any(reparametrisation.standardise(jnp.ones([3, 3, 4, 6])))


def test_channels_that_hardly_vary_are_divided_by_a_hundred_thousandth():
  kernel = jnp.array([[-1e-7], [1e-7]], jnp.float32)
  np.testing.assert_allclose(reparametrisation.standardise(kernel),
                             kernel / (1e-5 * 2**.5), rtol=1e-5)


def test_kernels_are_mapped_and_scales_are_not():
  params = {'layer': {'kernel': jnp.ones([2, 3]), 'bias': jnp.ones(3)},
            'norm': {'kernel': jnp.ones(3)}}
  mapped = reparametrisation.map_kernels(lambda kernel: 2 * kernel, params)
  np.testing.assert_array_equal(mapped['layer']['kernel'], 2 * np.ones([2, 3]))
  np.testing.assert_array_equal(mapped['layer']['bias'], np.ones(3))
  np.testing.assert_array_equal(mapped['norm']['kernel'], np.ones(3))


def test_orthogonal_kernels_keep_lengths():
  kernel = jnp.asarray(np.random.default_rng(2).normal(size=(3, 3, 4, 6)),
                       jnp.float32)
  flattened = np.float64(reparametrisation.orthogonalise(kernel)).reshape(-1, 6)
  values = np.linalg.svd(flattened, compute_uv=False)
  np.testing.assert_allclose(values, 1, atol=1e-3)


@pytest.fixture(name='plain', scope='module')
def _plain():
  return convnet.convnet(
    input_shape=(4, 4, 1), num_classes=2, channels=(2,), width=3,
    input_radius=2., bounding=Bounding(kind='ball', radius=1.))


@pytest.mark.sound
@pytest.mark.parametrize('scale', [1e-2, 1., 1e2])
@pytest.mark.parametrize('kind', sorted(reparametrisation.MAPS))
def test_certificates_are_of_the_weights_in_use(kind, scale):
  """Certificates bound the weights in use, not the parameters behind them."""
  rng = np.random.default_rng(0)
  model = models.reparametrised(
    mlp.mlp(num_features=4, num_classes=2, depth=1, width=3, input_radius=1.,
            hidden_radius=1.), kind, weight_norm=1.3)
  params = jax.tree.map(lambda leaf: jnp.asarray(
    scale * rng.normal(size=leaf.shape), jnp.float32),
    jax.eval_shape(model.init, jax.random.key(0)))
  method = methods.lip_dp_sgd(model, LOSS, weight_norm=1.3)
  kept, certificate = method.constraint.constrain(params)
  weights, _ = model.effective(kept)
  assert certificate.keys() == weights.keys()
  for name, bound in certificate.items():
    norm = np.linalg.norm(np.float64(weights[name]['kernel']), 2)
    assert norm <= float(bound) <= min(1.3, 1.05 * norm) * (1 + 1e-5)
    # The map does its work: the norm is not that of the parameters.
    assert (scale == 1) or not 0.3 < norm / np.linalg.norm(
      np.float64(params[name]['kernel']), 2) < 3


def test_parameters_are_free_and_their_map_is_certified():
  """Parameters stay free while the weights they map to are certified.

  Gradients go through the map.
  """
  plain = mlp.mlp(num_features=4, num_classes=3, depth=1, width=5,
                  input_radius=1., hidden_radius=1.)
  model = models.reparametrised(plain, 'standardised', weight_norm=1.3)
  method = methods.lip_dp_sgd(model, LOSS, weight_norm=1.3)
  params = tree.scale(50., model.init(jax.random.key(0)))
  kept, certificate = jax.jit(method.constraint.constrain)(params)
  jax.tree.map(np.testing.assert_array_equal, kept, params)
  weights, _ = model.effective(params)
  for name, bound in certificate.items():
    norm = np.linalg.norm(np.float64(weights[name]['kernel']), 2)
    assert norm <= float(bound) <= 1.3 * (1 + 1e-5)
    assert np.linalg.norm(np.float64(params[name]['kernel']), 2) > 5
  pulled, _ = reparametrisation.pullback(lambda p: {
    'w': p['w']**3}).update({'w': jnp.asarray([1., -2.])}, optax.EmptyState(),
                            {'w': jnp.asarray([2., 3.])})
  np.testing.assert_allclose(pulled['w'], [12., -54.], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('kind', sorted(reparametrisation.MAPS))
def test_noise_is_added_in_the_weights_and_pulled_back(plain, kind):
  """Noise is added in the weights; the pullback equals the direct gradient.

  The sensitivity is that of the weights.
  """
  model = models.reparametrised(plain, kind, weight_norm=1.3)
  method = methods.lip_dp_sgd(model, LOSS, weight_norm=1.3)
  params, certificate = jax.jit(lambda key: method.constraint.constrain(
    model.init(key)))(jax.random.key(0))
  rng = np.random.default_rng(0)
  batch = Batch(jnp.asarray(rng.normal(size=(5, 4, 4, 1)), jnp.float32),
                jnp.asarray(rng.integers(0, 2, 5), jnp.int32))
  sums = jax.jit(lambda mask: method.bounder.sums(params, batch, mask).total)
  pulled, _ = jax.jit(method.pullback.update)(
    sums(jnp.ones([5], jnp.bool_)), optax.EmptyState(), params)
  direct = jax.jit(jax.grad(lambda p: jnp.sum(LOSS.values(
    model.apply(p, batch.x), batch.y))))(params)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(
    a, b, rtol=1e-3, atol=1e-4), pulled, direct)
  # One record's contribution keeps the certified bound of the weights.
  bounds = method.bounder.l2_sensitivity(certificate)
  for row in range(5):
    one = sums(jnp.arange(5) == row)
    blocks = jax.tree.structure(bounds).flatten_up_to(one)
    for block, bound in zip(blocks, jax.tree.leaves(bounds), strict=True):
      assert float(tree.global_norm(block)) <= float(bound) * (1 + 1e-5)
  # The certificate is of the weights in use, not of the parameters.
  weights, _ = model.effective(params)
  for name, bound in certificate.items():
    kernel = np.float64(weights[name]['kernel'])
    if kernel.ndim == 2:
      assert np.linalg.norm(kernel, 2) <= float(bound)


@pytest.mark.slow
def test_parameters_are_left_free(plain):
  model = models.reparametrised(plain, 'standardised', weight_norm=1.)
  method = methods.lip_dp_sgd(model, LOSS, weight_norm=1.)
  params = tree.scale(50., model.init(jax.random.key(0)))
  kept, _ = method.constraint.constrain(params)
  jax.tree.map(np.testing.assert_array_equal, kept, params)


def test_refuses_an_unknown_map(plain):
  with pytest.raises(ValueError, match='kernel_map must be one of'):
    models.reparametrised(plain, 'whitened', weight_norm=1.)
