"""These tests check steps of Lipschitz methods on a network with skips."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.residual import Residual
from dpjax.models import model as models
from dpjax.sampling import PoissonSampler
from dpjax.train import methods
from dpjax.train import step as steps
from dpjax.typing import Batch

_SAMPLER = PoissonSampler(num_examples=20, batch_size=8)
_ROWS = jnp.arange(20, dtype=jnp.int32)
_CONV = functools.partial(layers.Conv, channels=4, bias_norm=0.5)
_BRANCH = Chain(name='branch', nodes=(
  normalisation.lipschitz(num_groups=2, alpha=0.5),
  pointwise.activation('relu'), _CONV(name='conv')))
_NETWORK = Network(root=Chain(name='root', nodes=(
  _CONV(name='stem'),
  Residual(name='block', branch=_BRANCH, share=0.5,
           shortcut=Chain(name='shortcut', nodes=())),
  pooling.max_pool(), pooling.global_average_pool(),
  layers.Dense(name='head', width=3))), input_shape=(4, 4, 2),
  input_radius=2.0)

_LOSS = losses.cross_entropy(logit_clip=0.5)
_MODEL = models.from_network(_NETWORK)
METHODS = {
  'lip_dp_sgd': methods.lip_dp_sgd(_MODEL, _LOSS, weight_norm=1.0),
  'fix_lip_dp_sgd': methods.fix_lip_dp_sgd(_MODEL, _LOSS, weight_norm=1.0),
  'lip_normalised': methods.lip_normalised(_MODEL, _LOSS, weight_norm=1.0),
  'layer_clipped': methods.layer_clipped(_MODEL, _LOSS, clip_norm=0.3),
}


def _build(method):
  transform_of = lambda key: steps.make_transform(
    method, _SAMPLER, optax.sgd(0.1), key=key, noise_multiplier=1.0,
    allocation='optimal')
  state = steps.init_state(jax.random.key(0), model=_MODEL, method=method,
                           transform_of=transform_of)
  return state, steps.make_step(method=method, sampler=_SAMPLER,
                                transform_of=transform_of)


@functools.cache
def _stepped(name):
  state, step = _build(METHODS[name])
  return state, jax.jit(step)


def _records(seed=0):
  rng = np.random.default_rng(seed)
  return Batch(jnp.asarray(rng.normal(size=(20, 4, 4, 2)), jnp.float32),
               jnp.asarray(rng.integers(0, 3, 20), jnp.int32))


def _reads(jaxpr, argument: int) -> list[bool]:
  """Returns for each output whether it may depend on an input, by data flow."""
  touched = {jaxpr.jaxpr.invars[argument]}
  for equation in jaxpr.jaxpr.eqns:
    if any(variable in touched for variable in equation.invars
           if not hasattr(variable, 'val')):
      touched |= set(equation.outvars)
  return [variable in touched for variable in jaxpr.jaxpr.outvars
          if not hasattr(variable, 'val')]


def _flow(step, state, records):
  """Returns whether a step's (scales, joint
  multiplier, loss) read the features."""
  def of(x, y):
    info = step(state, Batch(x, y), _ROWS)[1]
    return info.l2_sensitivity, info.joint_noise_multiplier, info.mean_loss

  return _reads(jax.make_jaxpr(of)(records.x, records.y), 0)


@pytest.mark.every(4)
@pytest.mark.parametrize('name', METHODS)
def test_no_scale_is_computed_from_records(name):
  """No path in the program leads from features to a noise scale (LDP-10)."""
  assert _flow(*reversed(_build(METHODS[name])), _records()) == [
    False, False, True]


@pytest.mark.every(4)
@pytest.mark.parametrize('name', METHODS)
def test_poisoned_records_leave_the_scales(name):
  """Records of NaN, inf or 3e38 leave scales and weights finite (LDP-10).

  The scales do not change.
  """
  state, step = _stepped(name)
  clean, info = step(state, _records(), _ROWS)
  for bad in (jnp.nan, jnp.inf, 3e38):
    poisoned = _records()._replace(x=jnp.full([20, 4, 4, 2], bad))
    after, later = step(state, poisoned, _ROWS)
    np.testing.assert_array_equal(later.l2_sensitivity, info.l2_sensitivity)
    np.testing.assert_array_equal(later.joint_noise_multiplier,
                                  info.joint_noise_multiplier)
    assert np.all(np.isfinite(later.l2_sensitivity))
    assert all(np.all(np.isfinite(leaf))
               for leaf in jax.tree.leaves(after.params))
  assert np.all(np.asarray(info.l2_sensitivity) > 0)
  # The joint multiplier is one over the root of the sum of squares: R3, E2.
  assert float(info.joint_noise_multiplier) == pytest.approx(1, rel=1e-4)
  assert jax.tree.structure(clean.params) == jax.tree.structure(state.params)


@pytest.mark.every(4)
@pytest.mark.parametrize('name', METHODS)
def test_a_poisoned_record_is_as_if_absent(name):
  """NaN and infinite values in one record give the same, finite step."""
  state, step = _stepped(name)
  records = _records()
  outcomes = []
  for bad in (jnp.nan, jnp.inf, -jnp.inf):
    poisoned = records._replace(x=records.x.at[3, 0, 0, 0].set(bad))
    outcomes.append(step(state, poisoned, _ROWS)[0].params)
  for other in outcomes[1:]:
    jax.tree.map(np.testing.assert_array_equal, outcomes[0], other)
  assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(outcomes[0]))


def test_fault_scale_from_the_batch():
  """A scale that reads the batch's largest feature must be detected (E1)."""
  honest = METHODS['lip_dp_sgd']

  def sums(params, batch, mask):
    bounded = honest.bounder.sums(params, batch, mask)
    return bounded._replace(total=jax.tree.map(
      lambda leaf: leaf / jnp.max(jnp.abs(batch.x)), bounded.total))

  faulty = honest._replace(bounder=honest.bounder._replace(sums=sums))
  state, step = _build(faulty)
  # The scales look innocent: it is the sums that one record changes for all.
  assert _flow(step, state, _records()) == [False, False, True]

  def scale_from_batch(state, records, rows):
    loud = jax.tree.map(lambda leaf: leaf * jnp.max(jnp.abs(records.x)),
                        state.certificate)
    return steps_of_honest(state._replace(certificate=loud), records, rows)

  state, steps_of_honest = _build(honest)
  assert _flow(scale_from_batch, state, _records()) == [True, True, True]
