"""Tests dpjax.papers.bassily: its formula, delivered epsilon and ball."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.grads import per_example
from dpjax.grads.bounder import Method
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.papers import bassily
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.train import loop
from dpjax.typing import Batch

ADD = Adjacency.ADD_OR_REMOVE_ONE


def printed(num_examples, num_steps, epsilon=1., delta=1e-5):
  return bassily.printed_noise_multiplier(
    num_examples=num_examples, num_steps=num_steps, epsilon=epsilon,
    delta=delta)


def plan(**changes):
  return bassily.bassily_plan(**{**{
    'num_examples': 10_000, 'batch_size': 100, 'num_steps': 1000,
    'epsilon': 1., 'delta': 1e-5, 'adjacency': ADD}, **changes})


@pytest.mark.parametrize('n, size, steps, delivered', [
  (10_000, 1, 10_000, .018),
  (10_000, 100, 1000, 9.13),
  (10_000, 512, 1000, 43.9),
  pytest.param(10_000, 1, 100, 31.9, marks=pytest.mark.slow),
  pytest.param(60_000, 256, 2344, 573., marks=pytest.mark.slow)])
def test_golden_delivered_epsilons(n, size, steps, delivered):
  """The printed noise for target 1 delivers these epsilons (DP-15, E22)."""
  event = accounting.poisson_gaussian_event(
    sampling_prob=size / n, noise_multiplier=printed(n, steps),
    num_steps=steps)
  epsilon = accounting.epsilon(event, delta=1e-5, adjacency=ADD)
  assert epsilon == pytest.approx(delivered, rel=8e-3)


def test_formula():
  """The formula gives the printed noise (item DP-15)."""
  expected = 16 * math.sqrt(50 * math.log(2e5) * math.log(2.5 * 50 / .01)) / (
    1000 * .5)
  assert printed(1000, 50, epsilon=.5) == pytest.approx(expected)


def test_plan_multiplies_by_the_batch_and_meets_the_target():
  """The plan puts s times sigma on the sum, well within the target (DP-15)."""
  planned = plan()
  assert planned.noise_multiplier == pytest.approx(100 * printed(10_000, 1000),
                                                   rel=1e-6)
  assert planned.epsilon(1e-5) == pytest.approx(.0147, rel=1e-2)
  single = plan(batch_size=1, num_steps=10_000)
  assert single.epsilon(1e-5) == pytest.approx(.018, rel=1e-2)


@pytest.mark.slow
def test_refuses_when_the_accountant_says_more():
  """The plan is refused if T << n, where the unstated condition fails (E22)."""
  with pytest.raises(ValueError, match='^the noise of Bassily et al. gives '
                     'epsilon .* more than the target 1: use more steps$'):
    plan(batch_size=1, num_steps=300)


@pytest.mark.parametrize('changes, message', [
  ({'num_steps': 1, 'delta': .1, 'num_examples': 100_000},
   'num_steps must exceed delta'),
  ({'epsilon': 0.}, 'epsilon must be a positive number'),
  ({'delta': 1.}, 'delta must lie strictly between'),
  ({'num_steps': 0}, 'num_steps must be an integer >= 1'),
])
def test_refusals(changes, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    plan(**changes)


# -- The projection.


def model(radius=1.5):
  return mlp.mlp(num_features=3, num_classes=2, depth=0, input_radius=radius,
                 hidden_radius=1.)


@pytest.mark.parametrize('scale', [0., .01, 1., 1e3])
def test_projection_on_the_ball(scale):
  constraint = bassily.project_parameters(model().network, radius=2.)
  params = jax.tree.map(lambda leaf: scale * (leaf + .3),
                        model().init(jax.random.key(0)))
  kept, certificate = constraint.constrain(params)
  flat = lambda tree: np.concatenate(
    [np.ravel(np.float64(leaf)) for leaf in jax.tree.leaves(tree)])
  norm = np.linalg.norm(flat(params))
  expected = flat(params) * min(1, 2 / norm) if norm else flat(params)
  np.testing.assert_allclose(flat(kept), expected, rtol=1e-6)
  assert np.linalg.norm(flat(kept)) <= 2 * (1 + 1e-6)
  spectral = np.linalg.norm(np.float64(kept['dense_00']['kernel']), 2)
  assert spectral <= float(certificate['dense_00'])


def test_projection_is_the_nearest_point():
  rng = np.random.default_rng(0)
  constraint = bassily.project_parameters(model().network, radius=1.)
  point = jnp.asarray(rng.normal(size=6) * 3, jnp.float32)
  kept = np.float64(constraint.constrain({'w': point})[0]['w'])
  for _ in range(200):
    other = rng.normal(size=6)
    other /= max(1., np.linalg.norm(other))
    assert np.linalg.norm(point - kept) <= (
      np.linalg.norm(point - other) + 1e-6)
  with pytest.raises(ValueError, match='^radius must be a positive number'):
    bassily.project_parameters(model().network, radius=0.)


@pytest.mark.slow
def test_a_run_with_this_plan(records):
  """A run with a Lipschitz loss and no clipping keeps its gradient bound."""
  loss, net = losses.cross_entropy(), model()
  method = Method(
    'bassily', lipschitz_bounder.certified(
      net.network, loss, weight_norm=1.),
    bassily.project_parameters(net.network, radius=1.), private=True)
  planned = plan(num_examples=60, batch_size=6, num_steps=120, epsilon=4.,
                 delta=1e-3)
  result = loop.fit(
    jax.random.split(jax.random.key(0), 1), plans=[planned], model=net,
    method=method, optimizer=optax.sgd(.05), records=records,
    rows=jnp.arange(60, dtype=jnp.int32)[None])
  assert result.joint_noise_multipliers[0] >= (
      planned.noise_multiplier * (1 - 1e-6))
  norm = optax.tree.norm(jax.tree.map(lambda leaf: leaf[0],
                                      result.state.params))
  assert float(norm) <= 1 + 1e-5
  bound = float(method.bounder.l2_sensitivity(
    method.constraint.constrain(net.init(jax.random.key(1)))[1])['dense_00'])
  assert bound == pytest.approx(2**.5 * (1.5**2 + 1)**.5)
  params = jax.tree.map(lambda leaf: leaf[0], result.state.params)
  hostile = Batch(1e3 * records.x, records.y)
  sums = jax.vmap(lambda x, y: per_example.plain_sums(
    net.apply, loss.values, params, Batch(x[None], y[None]),
    jnp.ones(1, bool)).total)(hostile.x, hostile.y)
  norms = jax.vmap(optax.tree.norm)(sums)
  assert .3 * bound < float(norms.max()) <= bound


def test_certificates_exceed_the_norms_that_rounding_leaves():
  """Certificates exceed the rounded norms of rank-one
  kernels near the radius."""
  rng = np.random.default_rng(3)
  constraint = bassily.project_parameters(model().network, radius=2.)
  left, right = (rng.normal(size=(300, size, 1)) for size in (3, 2))
  kernels = left @ right.transpose(0, 2, 1)
  kernels *= rng.uniform(1.99, 3, (300, 1, 1)) / np.linalg.norm(
    kernels, axis=(1, 2), keepdims=True)
  kept, certificates = jax.vmap(constraint.constrain)({'dense_00': {
    'kernel': jnp.asarray(kernels, jnp.float32), 'bias': jnp.zeros((300, 2))}})
  norms = np.linalg.norm(np.float64(kept['dense_00']['kernel']), 2, axis=(1, 2))
  stated = np.float64(certificates['dense_00'])
  assert (norms > 2).any() and (norms < stated).all()
  assert (stated < 2 * (1 + 1e-4)).all()
