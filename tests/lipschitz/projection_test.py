"""These tests check norms and certificates after a step by float64 SVD.

They cover SPEC-09 and LDP-02.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import layers
from dpjax.lipschitz import norms
from dpjax.lipschitz import projection
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network

SHAPES = {'dense_00': (6, 12), 'dense_01': (12, 3), 'dense_02': (3, 2),
          'dense_03': (2, 1)}
NETWORK = Network(input_shape=(6,), root=Chain(name='chain', nodes=tuple(
  layers.Dense(name=name, width=shape[1]) for name, shape in SHAPES.items())))


def _params(seed, scale):
  rng = np.random.default_rng(seed)
  return {
    name: {'kernel': jnp.asarray(rng.normal(size=shape) * scale, jnp.float32),
           'bias': jnp.asarray(rng.normal(size=shape[1]) * 50, jnp.float32)}
    for name, shape in SHAPES.items()}


def _svd(params):
  return {name: np.linalg.norm(np.float64(params[name]['kernel']), 2)
          for name in SHAPES}


def check_norms(constrain, weight_norm):
  """Checks that norms are at most C and at most their certificates."""
  for seed in range(6):
    for scale in (1e-6, 1e-2, 0.3, 1., 30., 1e6):
      params, certificate = constrain(_params(seed, scale))
      assert set(certificate) == set(SHAPES)
      for name, norm in _svd(params).items():
        assert norm <= weight_norm
        assert norm <= float(certificate[name])
        assert float(certificate[name]) <= weight_norm * (1 + 3e-6)


@pytest.fixture(name='clip', scope='module')
def _clip():
  return jax.jit(projection.clip_weights(NETWORK, weight_norm=0.9).constrain)


@pytest.fixture(name='fix', scope='module')
def _fix():
  return jax.jit(projection.fix_weights(NETWORK, weight_norm=0.9).constrain)


def test_norms_are_at_most_the_bound(clip, fix):
  check_norms(clip, 0.9)
  check_norms(fix, 0.9)


@pytest.mark.every(2)
def test_clip_is_the_formula(clip):
  params = _params(0, 1.)
  clipped, _ = clip(params)
  for name in SHAPES:
    kernel = np.float64(params[name]['kernel'])
    upper = float(norms.spectral_upper_bound(params[name]['kernel'],
                                             num_iterations=4))
    np.testing.assert_allclose(clipped[name]['kernel'],
                               kernel * min(1, 0.9 / upper), rtol=1e-6)


def test_clip_leaves_what_is_below(clip):
  params = _params(1, 0.02)
  assert max(_svd(params).values()) < 0.5
  clipped, certificate = clip(params)
  jax.tree.map(np.testing.assert_array_equal, params, clipped)
  for name, norm in _svd(params).items():
    assert norm <= float(certificate[name]) <= 1.06 * norm


def test_clip_is_idempotent(clip):
  """Clipping weights a second time changes nothing (SPEC-09)."""
  once, _ = clip(_params(2, 3.))
  twice, certificate = clip(once)
  for name in SHAPES:
    np.testing.assert_allclose(once[name]['kernel'], twice[name]['kernel'],
                               rtol=3e-7)
    assert _svd(twice)[name] <= float(certificate[name])


def test_fix_reaches_the_bound(fix):
  for scale in (1e-6, 1e-2, 1., 1e6):
    params, certificate = fix(_params(3, scale))
    for name, norm in _svd(params).items():
      assert 0.9 / 1.06 <= norm <= 0.9
      assert float(certificate[name]) == pytest.approx(0.9, rel=3e-6)


def test_limits_by_hand():
  """Limits rescale as computed by hand and
  certify above rounding, never zero."""
  clip = projection.clip_limits(2.0, num_iterations=3)
  fix = projection._limits(2.0, 5, True, lambda bound: 2.0 / bound)
  for bound, clipped in ((0.5, 1.0), (2.0, 1.0), (8.0, 0.25)):
    bound = jnp.float32(bound)
    assert float(clip.rescale(bound)) == clipped
    assert float(fix.rescale(bound)) == 2.0 / bound
    for limits in (clip, fix):
      scale = limits.rescale(bound)
      margin = float(limits.certify(bound, scale)) / float(bound * scale)
      assert 1 + 8e-7 < margin < 1 + 1.2e-6
  for limits in (clip, fix):
    assert np.isfinite(limits.rescale(jnp.float32(0)))
    assert float(limits.certify(jnp.float32(0), jnp.float32(1))) == (
      pytest.approx(2e-6))
  assert (clip.num_iterations, fix.num_iterations) == (3, 5)
  # The faster bound is used only where the least certificate covers its gaps.
  assert [projection.clip_limits(norm).any_scale for norm in (
    0.99, 1.0, 1e4, 1.01e4)] == [True, False, False, True]


def test_biases_are_left_alone(clip, fix):
  params = _params(4, 3.)
  for constrain in (clip, fix):
    constrained, _ = constrain(params)
    for name in SHAPES:
      np.testing.assert_array_equal(constrained[name]['bias'],
                                    params[name]['bias'])


def test_zero_weights(clip, fix):
  params = jax.tree.map(jnp.zeros_like, _params(0, 1.))
  for constrain in (clip, fix):
    constrained, certificate = constrain(params)
    jax.tree.map(np.testing.assert_array_equal, constrained, params)
    # Certificates are above the true norm and never zero, since bounds divide.
    assert all(0 < float(value) < 1e-5 for value in certificate.values())


@pytest.mark.parametrize('scale', [1e-20, 1e-24])
def test_tiny_weights(clip, fix, scale):
  for constrain in (clip, fix):
    params, certificate = constrain(_params(0, scale))
    for name, norm in _svd(params).items():
      assert norm <= min(0.9, float(certificate[name]))


@pytest.mark.every(3)
@pytest.mark.parametrize('make', [projection.clip_weights,
                                  projection.fix_weights])
@pytest.mark.parametrize('weight_norm', [1., 4.])
def test_certificates_hold_at_every_scale(make, weight_norm):
  """Certificates hold at scales from 1e-24 to 1e6, where squares underflow."""
  constrain = jax.jit(make(NETWORK, weight_norm=weight_norm).constrain)
  for scale in 10.**np.arange(-24, 7):
    params, certificate = constrain(_params(0, scale))
    for name, norm in _svd(params).items():
      assert norm <= min(weight_norm, float(certificate[name]))


def test_not_finite_weights_certify_nothing(clip, fix):
  params = _params(0, 1.)
  kernel = params['dense_00']['kernel']
  for bad in (jnp.nan, jnp.inf):
    broken = dict(params, dense_00={'kernel': kernel.at[0, 0].set(bad),
                                    'bias': params['dense_00']['bias']})
    for constrain in (clip, fix):
      assert not np.isfinite(constrain(broken)[1]['dense_00'])


@pytest.mark.parametrize('value', [0., -1., np.inf, np.nan])
def test_refuses_a_norm_that_is_none(value):
  for make in (projection.clip_weights, projection.fix_weights):
    with pytest.raises(ValueError, match='weight_norm must be a positive'):
      make(NETWORK, weight_norm=value)


# The tests below plant faults.


def _power_bound(weights, *, num_iterations, any_scale):
  del any_scale
  start = jnp.ones([weights.shape[1]])
  return norms.power_iteration(weights, start,
                               num_iterations=num_iterations)[0]


def test_fault_power_iteration(monkeypatch):
  """A constraint that uses power iteration as a bound must fail (E9)."""
  monkeypatch.setattr(norms, 'spectral_upper_bound', _power_bound)
  make = projection.clip_weights(NETWORK, weight_norm=0.9, num_iterations=2)
  with pytest.raises(AssertionError):
    check_norms(jax.jit(make.constrain), 0.9)


def test_fault_certificate_of_the_weights_before():
  honest = projection.fix_weights(NETWORK, weight_norm=0.9)

  def constrain(params):
    return honest.constrain(params)[0], {
      name: norms.spectral_upper_bound(params[name]['kernel'])
      for name in SHAPES}

  with pytest.raises(AssertionError):
    check_norms(jax.jit(constrain), 0.9)


def test_fault_nothing_is_clipped():
  with pytest.raises(AssertionError):
    check_norms(lambda params: (params, {name: jnp.float32(0.9)
                                         for name in SHAPES}), 0.9)
