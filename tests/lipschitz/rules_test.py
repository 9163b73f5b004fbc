"""These tests check weight rules: bounds, bias
and the division they replace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import primitives
from dpjax.lipschitz import rules
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.rules import RecordNorms
from dpjax.typing import Batch


def _norms(inputs, factors, cotangents, gradients):
  values = [jnp.asarray(each, jnp.float32)
            for each in (inputs, factors, cotangents, gradients)]
  return RecordNorms(*values[:3], gradients=lambda: values[3])


def _records(rng, size=500):
  """Returns norms of many sizes; gradients are
  at most factor times cotangent."""
  inputs, cotangents = 10**rng.uniform(-9, 9, (2, size))
  factors = inputs * rng.uniform(1, 3, size)
  return inputs, factors, cotangents, factors * cotangents * rng.random(size)


@pytest.mark.sound
@pytest.mark.parametrize('rule', [
  rules.normalised(floor=1e-3), rules.clipped_factors(limit=0.7),
  rules.clipped_layers(clip_norm=0.4)], ids=lambda rule: rule.name)
def test_weighted_norms_are_at_most_the_bound(rule):
  """Weighted norms attain the rule's bound and
  never exceed it (LDP-04, LDP-09)."""
  inputs, factors, cotangents, gradients = _records(np.random.default_rng(0))
  gradients[::2] = (factors * cotangents)[::2]
  weights = np.float64(rule.weights(_norms(inputs, factors, cotangents,
                                           gradients)))
  norms = weights * gradients
  # The limits use each record's own radius and cotangent.
  limits = np.array([rule.bound(float(d), float(f))
                     for d, f in zip(cotangents, factors, strict=True)])
  assert np.all(norms <= limits * (1 + 1e-6))
  assert np.max(norms / limits) > 1 - 2e-5
  assert np.all(weights >= 0) and np.all(np.isfinite(weights))


def test_clip_forms_leave_what_is_small():
  """Clipping rules leave norms below the limit at a weight of exactly one."""
  rng = np.random.default_rng(1)
  _, factors, cotangents, gradients = _records(rng)
  norms = _norms(factors, factors, cotangents, gradients)
  for rule, size, limit in (
      (rules.clipped_factors(limit=2.0), factors, 2.0),
      (rules.clipped_layers(clip_norm=3.0), gradients, 3.0)):
    weights = np.asarray(rule.weights(norms))
    assert np.all(weights[size < 0.999 * limit] == 1)
    np.testing.assert_allclose(weights[size > limit],
                               (limit / size)[size > limit], rtol=2e-5)


def test_bounds():
  """Bounds are the same for traced values and floats.

  Only two of the three rules need a certificate.
  """
  cases = ((rules.normalised(), 0.3), (rules.clipped_factors(limit=2.0), 0.6),
           (rules.clipped_layers(clip_norm=2.0), 2.0))
  for rule, expected in cases:
    assert rule.bound(0.3, 5.0) == pytest.approx(expected)
    assert rule.bound(0.3, float('inf')) == pytest.approx(expected)
    traced = jax.jit(rule.bound)(jnp.float32(0.3), jnp.float32(5))
    assert float(traced) == pytest.approx(expected)
  assert rules.clipped_factors(limit=2.0).bound(0.3, 1.5) == pytest.approx(0.45)
  assert [rule.needs_certificate for rule, _ in cases] == [True, True, False]


@pytest.mark.parametrize('value', [0.0, -1.0, np.inf, np.nan])
def test_refused(value):
  for make, name in ((rules.normalised, 'floor'),
                     (rules.clipped_factors, 'limit'),
                     (rules.clipped_layers, 'clip_norm')):
    with pytest.raises(ValueError, match=f'{name} must be a positive'):
      make(**{name: value})


def _stationary_point(rule, x, y, repeats):
  """Returns the point where the weighted least-squares gradient is zero."""
  xs, ys = (jnp.repeat(jnp.asarray(each, jnp.float32), jnp.asarray(repeats),
                       total_repeat_length=sum(repeats))[:, None]
            for each in (x, y))

  def turn(theta, _):
    def risk(theta):
      return 0.5 * jnp.sum(jnp.square(
        primitives.dense(xs, theta, None, rule) - ys))

    return theta - 0.01 * jax.grad(risk)(theta) / sum(repeats), None

  return float(jax.jit(lambda t: jax.lax.scan(turn, t, length=4000)[0])(
    jnp.zeros([1, 1]))[0, 0])


@pytest.mark.every(3)
@pytest.mark.parametrize('repeats, weighted, unbiased', [
  ((1, 1), 0.9091, 0.9901), ((99, 1), 0.0917, 0.5025)])
def test_bias_of_backward_normalisation(repeats, weighted, unbiased):
  """Backward normalisation moves the optimum (LDP-04, E19).

  The clipping rule moves it only where it clips.
  """
  x, y = (1.0, 10.0), (0.0, 10.0)
  points = _stationary_point(rules.normalised(), x, y, repeats)
  assert points == pytest.approx(weighted, abs=2e-4)
  for rule in (None, rules.clipped_factors(limit=10.1)):
    points = _stationary_point(rule, x, y, repeats)
    assert points == pytest.approx(unbiased, abs=2e-4)


_NETWORK = Network(root=Chain(name='n', nodes=(
  layers.Dense(name='first', width=5, use_bias=False),
  pointwise.activation('relu'),
  layers.Dense(name='last', width=3, use_bias=False))), input_shape=(4,))


def _climbed_ratio(scale, seed=0):
  """Returns the largest ||g_first|| / (||x|| tau ||W_last||) by ascent."""
  rng = np.random.default_rng(seed)
  params = jax.tree.map(
    lambda leaf: scale * jnp.asarray(rng.normal(size=leaf.shape), jnp.float32),
    _NETWORK.init(jax.random.key(0)))
  loss = losses.cross_entropy()
  after = np.linalg.norm(params['last']['kernel'], 2)
  limit = np.sqrt(2) * after

  def ratio(x, y):
    total = lambda p: loss.values(_NETWORK.apply(p, x[None]), y[None])[0]
    gradient = jax.grad(total)(params)['first']['kernel']
    # The constant gives the norm a derivative in a dead network, too.
    length = jnp.sqrt(jnp.sum(jnp.square(gradient)) + 1e-20)
    return length / jnp.linalg.norm(x) / jnp.float32(limit)

  def turn(x, _):
    slope = jax.vmap(jax.grad(ratio))(x, y)
    size = jnp.linalg.norm(slope, axis=1, keepdims=True) + 1e-9
    return x + 0.1 * slope / size, None

  x = jnp.asarray(rng.normal(size=(60, 4)) * np.logspace(-2, 2, 60)[:, None],
                  jnp.float32)
  y = jnp.asarray(rng.integers(0, 3, 60), jnp.int32)
  x = jax.jit(lambda x: jax.lax.scan(turn, x, length=60)[0])(x)
  return float(jnp.max(jax.vmap(ratio)(x, y)))


@pytest.mark.slow
@pytest.mark.parametrize('scale', [0.3, 1.0, 4.0])
def test_scaled_gradient_of_one_record(scale):
  """One record's ||g|| / ||x|| is at most tau
  times later norms (LIP-04, 5.2.14).

  The record may have any norm. For a sum over a batch see the next test.
  """
  assert 0.4 < _climbed_ratio(scale) <= 1 + 1e-5


@pytest.mark.every(3)
@pytest.mark.parametrize('rule', [
  rules.normalised(), rules.clipped_factors(limit=1.0),
  rules.clipped_layers(clip_norm=1.0)], ids=lambda rule: rule.name)
def test_one_huge_record_moves_a_sum_by_its_bound_only(rule):
  """One huge record moves a sum by its bound; batch division fails (E1)."""
  network = Network(root=Chain(name='n', nodes=(
    layers.Dense(name='dense', width=2, use_bias=False),)), input_shape=(1,))
  bounder = lipschitz_bounder.certified(
    network, losses.cross_entropy(), weight_norm=1.0, rule=rule)
  params = {'dense': {'kernel': jnp.asarray([[1e-3, -1e-3]])}}
  x = jnp.ones([41, 1]).at[-1].set(1e4)
  batch = Batch(x, jnp.zeros([41], jnp.int32).at[-1].set(1))
  everyone = jnp.ones([41], jnp.bool_)

  sums = jax.jit(bounder.sums)

  def of(mask):
    return np.float64(sums(params, batch, mask).total['dense']['kernel'])

  distance = np.linalg.norm(of(everyone) - of(everyone.at[-1].set(False)))
  limit = float(bounder.l2_sensitivity({'dense': jnp.float32(1)})['dense'])
  assert limit == pytest.approx(
    1.0 if rule.name == 'clipped_layers' else np.sqrt(2))
  # The distance is at least half of the bound.
  assert 0.5 * limit < distance <= limit * (1 + 1e-5)

  plain_sums = jax.jit(lambda mask: lipschitz_bounder.per_example.plain_sums(
    network.apply, losses.cross_entropy().values, params, batch, mask))
  plain, less = plain_sums(everyone), plain_sums(everyone.at[-1].set(False))
  printed = (np.float64(plain.total['dense']['kernel']) / 1e4
             - np.float64(less.total['dense']['kernel']))
  assert np.linalg.norm(printed) > 10 * limit
