"""These tests check the certified bounder and the unbounded printed method.

They cover erratum E1 and item LDP-09.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import per_example
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz import rules
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.residual import Residual
from dpjax.models import mlp
from dpjax.typing import Batch

HINGE = losses.LipschitzLoss(
  lambda logits, labels: jnp.maximum(
    0., 1. - (2 * labels - 1).astype(jnp.float32)
    * (logits[:, 1] - logits[:, 0]) / jnp.float32(np.sqrt(2))), 1.)
"""Of the margin in an orthonormal direction of two logits: slope 1."""


@pytest.fixture(name='model', scope='module')
def _model():
  return mlp.mlp(num_features=1, num_classes=2, depth=0, input_radius=1.,
                 hidden_radius=1.)


def _neighbours(size, outlier):
  """Returns records (1, +1) with a last row (outlier, -1), and both masks."""
  x = jnp.ones([size + 1, 1]).at[-1, 0].set(outlier)
  y = jnp.ones([size + 1], jnp.int32).at[-1].set(0)
  everyone = jnp.ones([size + 1], jnp.bool_)
  return Batch(x, y), everyone.at[-1].set(False), everyone


def _as_printed(apply, params, batch, mask):
  """Returns the weight gradient over the
  batch's largest input norm, as printed."""
  def total(params):
    losses_of = HINGE.values(apply(params, batch.x), batch.y)
    return jnp.sum(jnp.where(mask, losses_of, 0.))

  largest = jnp.max(jnp.where(mask, jnp.abs(batch.x[:, 0]), 0.))
  return jax.grad(total)(params)['dense_00']['kernel'] / largest


@pytest.mark.every(3)
@pytest.mark.parametrize('size, outlier, at_least', [
  (3, 100., 3.9), (10, 1000., 10.9), (100, 2., 50.)])
def test_dividing_by_the_batch_maximum_is_not_bounded(model, size, outlier,
                                                      at_least):
  """The printed method moves by m + 1 - m/M against the claimed 1 (E1).

  The certified bounder keeps its own bound.
  """
  params = {'dense_00': {'kernel': jnp.zeros([1, 2]), 'bias': jnp.zeros([2])}}
  apply = mlp.mlp(num_features=1, num_classes=2, depth=0).apply
  batch, without, added = _neighbours(size, outlier)
  distance = np.linalg.norm(_as_printed(apply, params, batch, added)
                            - _as_printed(apply, params, batch, without))
  claimed = HINGE.lipschitz
  assert distance == pytest.approx(size + 1 - size / outlier, rel=1e-5)
  assert distance >= at_least * claimed

  ours = lipschitz_bounder.certified(model.network, HINGE, weight_norm=1.)
  before, after = (ours.sums(params, batch, mask).total['dense_00']
                   for mask in (without, added))
  distance = np.sqrt(sum(np.sum((np.float64(after[leaf]) - before[leaf])**2)
                         for leaf in ('kernel', 'bias')))
  limit = float(ours.l2_sensitivity({'dense_00': 1.})['dense_00'])
  assert limit == pytest.approx(np.sqrt(2) * claimed, rel=1e-6)
  assert distance <= limit * (1 + 1e-5)
  assert distance >= limit * (1 - 1e-3)


@pytest.fixture(name='deep', scope='module')
def _deep():
  """Returns (jitted sums, params, batch) of a network with one hidden layer."""
  model = mlp.mlp(num_features=3, num_classes=2, depth=1, width=4,
                  input_radius=1., hidden_radius=1.)
  bounder = lipschitz_bounder.certified(
    model.network, losses.cross_entropy(), weight_norm=1.)
  rng = np.random.default_rng(0)
  batch = Batch(jnp.asarray(rng.normal(size=(9, 3)), jnp.float32),
                jnp.asarray(rng.integers(0, 2, 9), jnp.int32))
  return jax.jit(bounder.sums), model.init(jax.random.key(0)), batch


def test_sum_is_that_of_single_records(deep):
  sums, params, batch = deep
  mask = jnp.arange(9) % 4 != 1
  whole = sums(params, batch, mask)
  alone = [sums(params, batch, jnp.arange(9) == index)
           for index in np.flatnonzero(mask)]
  jax.tree.map(lambda total, *terms: np.testing.assert_allclose(
    total, np.sum(np.stack(terms), 0), rtol=1e-5, atol=1e-5), whole, *alone)


def test_masked_and_bad_records_are_nothing(deep):
  sums, params, batch = deep
  everyone = jnp.ones([9], jnp.bool_)
  reference = sums(params, batch, everyone.at[4].set(False))
  for bad in (jnp.nan, jnp.inf, -jnp.inf):
    poisoned = batch._replace(x=batch.x.at[4, 1].set(bad))
    actual = sums(params, poisoned, everyone)
    assert int(actual.num_nonfinite) == 1
    jax.tree.map(np.testing.assert_array_equal, reference.total, actual.total)
    masked = sums(params, poisoned, everyone.at[4].set(False))
    jax.tree.map(np.testing.assert_array_equal, reference, masked)
  nothing = sums(params, batch, jnp.zeros([9], jnp.bool_))
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(nothing))


def test_records_are_isolated(deep):
  sums, params, batch = deep
  alone = jnp.arange(9) == 2
  first = sums(params, batch, alone)
  others = Batch((batch.x * -50).at[2].set(batch.x[2]),
                 (1 - batch.y).at[2].set(batch.y[2]))
  jax.tree.map(np.testing.assert_array_equal, first,
               sums(params, others, alone))


def test_refuses_a_model_without_bounds():
  model = mlp.mlp(num_features=1, num_classes=2)
  with pytest.raises(ValueError, match="'dense_00' has no finite gradient"):
    lipschitz_bounder.certified(model.network, losses.cross_entropy(),
                                weight_norm=1.)


SKIPPING = Network(root=Chain(name='root', nodes=(
  layers.Conv(name='stem', channels=3, bias_norm=0.4),
  Residual(
    name='block', branch=Chain(name='branch', nodes=(
      pointwise.activation('tanh'),
      layers.Conv(name='conv', channels=4, strides=(2, 2), bias_norm=0.4))),
    shortcut=Chain(name='shortcut', nodes=(
      pooling.average_pool(), layers.Conv(
        name='conv', channels=4, kernel_size=(1, 1), bias_norm=0.4)))),
  normalisation.lipschitz(num_groups=2, alpha=0.3),
  layers.Affine(name='scale', bias_norm=0.4), pointwise.flatten(),
  layers.Dense(name='head', width=3))), input_shape=(4, 4, 2),
  input_radius=3.)
"""Every kind of layer; several records clipped and several not."""
PATHS = (('stem',), ('block', 'branch', 'conv'), ('block', 'shortcut', 'conv'),
         ('scale',), ('head',))


def _of(values, path):
  for name in path:
    values = values[name]
  return values


@pytest.fixture(name='skipping', scope='module')
def _skipping():
  """Returns (params, batch, each record's gradients by `vmap`, [b, ...])."""
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32),
    jax.eval_shape(SKIPPING.init, jax.random.key(0)))
  x = rng.normal(size=(11, 4, 4, 2)) * np.logspace(-3, 1, 11)[
    :, None, None, None]
  batch = Batch(jnp.asarray(x, jnp.float32),
                jnp.asarray(rng.integers(0, 3, 11), jnp.int32))
  gradients = jax.jit(lambda batch: per_example.per_example_gradients(
    SKIPPING.apply, losses.cross_entropy().values, params, batch)[1])(batch)
  return params, batch, gradients


@pytest.mark.every(2)
def test_clipped_layers_are_those_of_materialised_gradients(skipping):
  """One backward pass gives the sums of gradients clipped by layer.

  This compares LDP-09 with DP-16.
  """
  params, batch, gradients = skipping
  mask = jnp.arange(11) != 4
  clipped_some = 0
  for clip_norm in (0.1, 1.0):
    honest = lipschitz_bounder.certified(
      SKIPPING, losses.cross_entropy(), weight_norm=1.,
      rule=rules.clipped_layers(clip_norm=clip_norm))
    total = jax.jit(honest.sums)(params, batch, mask).total
    for path in PATHS:
      block = _of(gradients, path)
      norms = np.sqrt(sum(np.sum(np.square(np.float64(leaf)), tuple(
        range(1, leaf.ndim))) for leaf in block.values()))
      weights = np.minimum(1, clip_norm / norms) * np.asarray(mask)
      clipped_some += np.any(norms > clip_norm) and np.any(norms < clip_norm)
      for name, leaf in block.items():
        np.testing.assert_allclose(
          _of(total, path)[name], np.tensordot(weights, np.float64(leaf), 1),
          rtol=1e-3, atol=1e-4 * clip_norm)
  assert clipped_some >= 5


@pytest.mark.every(2)
def test_rules_do_not_change_what_travels(skipping):
  """With every weight one, the sums are the plain gradient's (LDP-04)."""
  params, batch, gradients = skipping
  idle = rules.clipped_factors(limit=1e6)
  actual = jax.jit(lipschitz_bounder.certified(
    SKIPPING, losses.cross_entropy(), weight_norm=1., rule=idle).sums)(
      params, batch, jnp.ones([11], jnp.bool_)).total
  jax.tree.map(lambda a, b: np.testing.assert_allclose(
    a, jnp.sum(b, 0), rtol=1e-4, atol=1e-5), actual, gradients)


@pytest.mark.every(3)
@pytest.mark.parametrize('rule', [
  rules.normalised(), rules.clipped_factors(limit=2.),
  rules.clipped_layers(clip_norm=0.5), None],
  ids=['normalised', 'clipped_factors', 'clipped_layers', 'plain'])
def test_bad_records_are_nothing_under_every_rule(skipping, rule):
  params, batch, _ = skipping
  honest = jax.jit(lipschitz_bounder.certified(
    SKIPPING, losses.cross_entropy(), weight_norm=1., rule=rule).sums)
  everyone = jnp.ones([11], jnp.bool_)
  reference = honest(params, batch, everyone.at[4].set(False))
  for bad in (jnp.nan, jnp.inf, -jnp.inf):
    poisoned = batch._replace(x=batch.x.at[4, 1, 1, 0].set(bad))
    actual = honest(params, poisoned, everyone)
    assert int(actual.num_nonfinite) == 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(
      a, b, rtol=1e-6, atol=1e-7), actual.total, reference.total)
  # A huge finite record stays finite and leaves its neighbours alone.
  huge = honest(params, batch._replace(x=batch.x.at[4].set(3e38)), everyone)
  limits = SKIPPING.gradient_bounds(
    SKIPPING.fill(30.), loss_lipschitz=losses.cross_entropy().lipschitz,
    rule=rule)
  for path in PATHS:
    distance = np.sqrt(sum(np.sum(np.square(a - b)) for a, b in zip(
      jax.tree.leaves(_of(huge.total, path)),
      jax.tree.leaves(_of(reference.total, path)))))
    assert distance <= float(_of(limits, path)) * (1 + 1e-5)


def test_clipped_layers_need_no_certificate():
  """Layers clipped by norm keep their sensitivity for any certificate."""
  network = mlp.mlp(num_features=3, num_classes=2, depth=1, width=4).network
  bounder = lipschitz_bounder.certified(
    network, losses.squared_error(), weight_norm=1.0,
    rule=rules.clipped_layers(clip_norm=0.3))
  for certificate in ((), {}, network.fill(1e9), network.fill(float('nan'))):
    sensitivities = bounder.l2_sensitivity(certificate)
    assert sorted(sensitivities) == ['dense_00', 'dense_01']
    np.testing.assert_allclose(list(sensitivities.values()), 0.3, rtol=1e-6)


def test_bounds_follow_the_weights_and_nothing_else():
  """Bounds depend on the weights alone, so
  noise scales adapt for free (E32)."""
  network = mlp.mlp(num_features=3, num_classes=2, depth=1, width=4,
                    input_radius=1., hidden_radius=1.).network
  bounder = lipschitz_bounder.certified(network, losses.cross_entropy(),
                                        weight_norm=4.0)
  bounds = [bounder.l2_sensitivity(network.fill(norm))
            for norm in (0.5, 1.0, 2.0)]
  first, last = ([float(bound[name]) for bound in bounds]
                 for name in ('dense_00', 'dense_01'))
  assert first[1] == pytest.approx(2 * first[0], rel=1e-6)
  assert first[2] == pytest.approx(4 * first[0], rel=1e-6)
  assert last[0] == last[1] == last[2]
