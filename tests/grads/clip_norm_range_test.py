"""Tests each accepted clip norm's bound, for records of every scale."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import errors
from dpjax import floats
from dpjax import tree
from dpjax.grads import ball
from dpjax.grads import clipping
from dpjax.grads import per_example
from dpjax.grads import privatizer
from dpjax.grads import quantiles
from dpjax.grads import weighted
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import rules
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.privacy import additive
from dpjax.privacy import blocks
from dpjax.privacy import k_norm
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import plan as plans
from dpjax.typing import Batch

CLIP_NORMS = np.float32(10.0)**np.arange(-12, 13, 2)
# Scales include subnormal ones; each feature scale meets each cotangent scale.
FEATURE_SCALES = 10.0**np.arange(-42, 13, 3)
COTANGENT_SCALES = 10.0**np.arange(-36, 13, 4)

# (network, shapes of parameters, shape of a record), named by its kernel.
NETWORKS = {
  'outer': (lambda w, x: x @ w, (30, 4), (30,)),
  'gram': (lambda w, x: (x @ w).reshape((-1, 80)), (40, 40), (2, 40)),
  'kept': (lambda w, x: jnp.sum(x @ w, 1), (3, 2), (4, 3)),
  'convolution': (lambda w, x: jnp.sum(jax.lax.conv(
    x, w, (1, 1), 'SAME'), (2, 3)), (3, 2, 3, 3), (2, 5, 5)),
  'scale': (lambda w, x: x * w[None], (30,), (30,)),
  'table': (lambda w, x: jnp.sum(w[jnp.int32(x > 0)], 1), (90, 3), (4,)),
}


class _OnlyLeaf(NamedTuple):
  """The sums of a network with one layer and no bias: one leaf."""
  total: jax.Array


def _loss(logits, labels):
  # A product, since XLA for CPUs may compute some sums of products differently.
  return logits @ jnp.ones(logits.shape[-1:]) * labels


def _records(shape):
  """Returns records whose features and cotangents have all pairs of scales."""
  rng = np.random.default_rng(0)
  pairs = [(a, b) for a in FEATURE_SCALES for b in COTANGENT_SCALES]
  features, labels = np.transpose(pairs)
  x = rng.choice([-1, 1], (len(pairs), *shape)) * features.reshape(
    (-1,) + (1,) * len(shape))
  return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(labels, jnp.float32))


def _norms(sums, params, records, radii):
  """Returns the norms [radii, records] of each record's contribution."""
  alone = lambda radius, x, y: sums(
    params, Batch(x[None], y[None]), jnp.ones([1], jnp.bool_), radius).total
  total = jax.jit(jax.vmap(jax.vmap(alone, (None, 0, 0)), (0, None, None)))(
    jnp.asarray(radii), *records)
  return np.linalg.norm(np.asarray(total, np.float64).reshape(
    len(radii), len(records.y), -1), axis=-1)


RADIUS = quantiles.geometric(1.0, target_quantile=0.5, learning_rate=0.2,
                             noise_stddev=1.0)


def _check_range(name, kernel):
  apply, weights, shape = NETWORKS[name]
  bounder = per_example.adaptively_clipped(apply, _loss, kernel=kernel,
                                           adaptive=RADIUS)
  _check_sums(bounder.sums, weights, shape)


def _check_sums(sums, weights, shape):
  norms = _norms(sums, jnp.ones(weights), _records(shape), CLIP_NORMS)
  assert np.isfinite(norms).all()
  assert (norms <= np.float64(CLIP_NORMS)[:, None]).all()
  # No record is shortened needlessly: some attain each reachable norm.
  reached = norms.max(1) / np.float64(CLIP_NORMS)
  assert (reached[:8] > 0.999).all()


@pytest.mark.every(1)
@pytest.mark.parametrize('name', NETWORKS)
def test_no_record_adds_more_than_any_accepted_clip_norm(name):
  _check_range(name, 'bookkeeping')


@pytest.mark.parametrize('name', ['outer', 'scale'])
def test_nor_by_the_reference(name):
  _check_range(name, 'vmap')


@pytest.mark.parametrize('name', NETWORKS)
def test_nor_by_a_loss_of_one_record(name):
  apply, weights, shape = NETWORKS[name]
  bounder = weighted.of_record_loss(lambda w, record: _loss(
    apply(w, record[0][None]), record[1][None])[0], clip_norm=RADIUS)
  _check_sums(lambda params, batch, mask, radius: bounder.sums(
    params, batch._replace(x=tuple(batch)), mask, radius), weights, shape)


@pytest.mark.every(4)
@pytest.mark.parametrize('name', ['outer', 'gram'])
def test_fault_products_that_underflow(name, monkeypatch):
  """Without the underflow guard, a norm of 1e-20 is measured as zero."""
  monkeypatch.setattr(floats, 'SMALLEST_NORMAL', 0.0)
  with pytest.raises(AssertionError):
    _check_range(name, 'bookkeeping')


@pytest.mark.parametrize('kernel', per_example.KERNELS)
@pytest.mark.parametrize('clip_norm', [1e-12, 1e12])
def test_normalised_gradients_at_both_ends(kernel, clip_norm):
  apply, weights, shape = NETWORKS['outer']
  bounder = per_example.normalized(apply, _loss, clip_norm=clip_norm,
                                   stabilizer=0.0, kernel=kernel)
  norms = _norms(lambda p, b, m, _: bounder.sums(p, b, m), jnp.ones(weights),
                 _records(shape), [1.0])
  assert 0.999 * clip_norm < norms.max() <= clip_norm


def _check_layer(layer, shape, clip_norm):
  network = Network(input_shape=shape, root=Chain(
    name='net', nodes=(layer, *([] if len(shape) == 1 else [
      pointwise.flatten()]))))
  bounder = lipschitz_bounder.certified(
    network, losses.LipschitzLoss(_loss, np.inf), weight_norm=1.0,
    rule=rules.clipped_layers(clip_norm=clip_norm))
  norms = _norms(
    lambda p, b, m, _: _OnlyLeaf(*jax.tree.leaves(bounder.sums(p, b, m).total)),
    network.init(jax.random.key(0)), _records(shape), [1.0])
  assert norms.max() <= clip_norm
  assert norms.max() > 0.9 * clip_norm or clip_norm > 1


LAYERS = {
  'dense': (layers.Dense(name='dense', width=3, use_bias=False), (20,)),
  'conv': (layers.Conv(name='conv', channels=4, use_bias=False,
                       padding='zero'), (2, 2, 3)),
}


@pytest.mark.every(1)
@pytest.mark.parametrize('name', LAYERS)
@pytest.mark.parametrize('clip_norm', [1e-12, 1.0])
def test_layers_clipped_in_one_backward_pass(name, clip_norm):
  _check_layer(*LAYERS[name], clip_norm)


def test_fault_layers_whose_products_underflow(monkeypatch):
  monkeypatch.setattr(floats, 'SMALLEST_NORMAL', 0.0)
  with pytest.raises(AssertionError):
    _check_layer(*LAYERS['dense'], 1e-12)


@pytest.mark.every(3)
@pytest.mark.parametrize('rule', blocks.ALLOCATIONS)
def test_noise_is_as_planned_for_bounds_of_every_scale(rule):
  """Noise matches the plan for bounds as far apart as accepted ones can be."""
  sums = [jnp.zeros([7]), jnp.zeros([2, 3])]
  for bounds in ([1e-12, 1e-12], [1e12, 1e12], [1e-12, 1e-9], [1e-15, 1e-15],
                 [1e9, 1e12]):
    scaled, stddevs = privatizer.scales(
      [jnp.float32(bound) for bound in bounds], sums, 0.8, rule, None)
    joint = blocks.joint_noise_multiplier(scaled, stddevs)
    np.testing.assert_allclose(joint, 0.8, rtol=1e-5)
    noisy = additive.add_gaussian_noise(jax.random.key(0), sums, list(stddevs))
    ratio = np.concatenate([np.ravel(leaf) / stddev for leaf, stddev in zip(
      noisy, np.asarray(stddevs), strict=True)])
    assert (ratio != 0).all() and np.abs(ratio).max() < 7


def test_fault_squares_of_bounds_that_vanish(monkeypatch):
  monkeypatch.setattr(floats, 'power_of_two_below', lambda x: jnp.float32(1))
  bounds, stddevs = privatizer.scales(
    [jnp.float32(1e-25)] * 2, [jnp.zeros([2])] * 2, 0.8, 'global', None)
  assert not float(blocks.joint_noise_multiplier(bounds, stddevs)) > 0.1


_PLAN = dict(sampler=PoissonSampler(num_examples=9, batch_size=3), num_steps=1,
             adjacency=Adjacency.REPLACE_ONE)
_OF_BALL = dict(input_shape=(2,), root=Chain(name='net', nodes=(
  layers.Dense(name='dense', width=2),)))
ACCEPTED = {
  'clip_norm': lambda c: per_example.clipped(None, None, clip_norm=c),
  'clip_norm of layers': lambda c: per_example.clipped(
    None, None, clip_norm={'a': 1.0, 'b': c}),
  'clip_norm of normalized': lambda c: per_example.normalized(
    None, None, clip_norm=c, stabilizer=0.1),
  'clip_norm in all': lambda c: clipping.per_layer(['a'], clip_norm=c),
  'clip_norm of a rule': lambda c: rules.clipped_layers(clip_norm=c),
  'floor': lambda c: rules.normalised(floor=c),
  'radius': lambda c: ball.project_ball(jnp.ones([1, 2]), c),
  'radius of a ball': lambda c: pointwise.Ball(name='ball', radius=c),
  'input_radius': lambda c: Network(input_radius=c, **_OF_BALL),
  'logit_clip': lambda c: losses.cross_entropy(logit_clip=c),
  'temperature': lambda c: losses.cross_entropy(temperature=c),
  'noise_multiplier': lambda c: plans.TrainingPlan(noise_multiplier=c, **_PLAN),
  'record_norm': lambda c: additive.GaussianMechanism(
    record_norm=c, noise_multiplier=1.0, adjacency=Adjacency.REPLACE_ONE),
  'record_norm of K': lambda c: k_norm.KNormMechanism(
    order=2, record_norm=c, epsilon=1.0, adjacency=Adjacency.REPLACE_ONE),
  'radius that adapts': lambda c: quantiles.geometric(
    c, target_quantile=.5, learning_rate=.2, noise_stddev=1., span=1.0),
  'noise_stddev': lambda c: quantiles.geometric(
    1., target_quantile=.5, learning_rate=.2, noise_stddev=c),
}


@pytest.mark.every(1)
@pytest.mark.parametrize('name', ACCEPTED)
def test_what_float32_cannot_square_is_refused(name):
  make, argument = ACCEPTED[name], name.split()[0]
  for value in (1e-12, 1.0, 1e12):
    make(value)
  for value in (1e-25, 1e-40, 9e-13, 1.1e12, 1e39):
    with pytest.raises(ValueError, match=rf'^{argument}.* must lie in '
                       r'\[1e-12, 1e\+12\], got '):
      make(value)
  # The clip norm infinity clips nothing.
  for value in (0.0, -1.0, float('nan'),
                *[float('inf')] * (name != 'clip_norm')):
    with pytest.raises(ValueError, match=rf'^{argument}.* must be a positive'):
      make(value)


def test_bounds_that_are_too_small_for_noise_are_refused():
  root = Chain(name='net', nodes=(
    layers.Dense(name='first', width=2), pointwise.Ball(name='b', radius=1e-9),
    layers.Dense(name='last', width=2, use_bias=False)))
  network = Network(root=root, input_shape=(2,), input_radius=1.0)
  with pytest.raises(ValueError, match='too small for float32'):
    network.check_bounds(weight_norm=1.0, loss_lipschitz=1e-9)


def test_scales_are_checked_as_numbers():
  assert errors.check_scale('x', 2) == 2
  assert tree.count(per_example.clipped(
    None, None, clip_norm={'a': 2, 'b': np.float32(3)}).l2_sensitivity(())) == 2
  with pytest.raises(ValueError, match='clip_norm must be a positive'):
    per_example.clipped(None, None, clip_norm={})
