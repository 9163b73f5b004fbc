"""Tests dpjax.privacy.langevin: exact distributions and refusals."""

import dataclasses
import functools
import itertools
import math

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from dpjax.privacy import langevin
from dpjax.privacy import mechanism as mechanisms
from dpjax.privacy.adjacency import Adjacency

KEY = jax.random.key(4)


def quadratic(theta, data):
  """Returns the sum over records of the gradient of (theta - x)^2 / 2."""
  return data.shape[0] * theta - jnp.sum(data, 0)


def make(**changes):
  return langevin.LangevinDescent(**{**{
    'gradient': quadratic, 'start': jnp.zeros(1), 'num_examples': 10,
    'strong_convexity': 1., 'smoothness': 1., 'gradient_bound': 1.,
    'learning_rate': .3, 'stddev': .5, 'num_steps': 4}, **changes})


GRID = [make(strong_convexity=c, smoothness=c * ratio, learning_rate=eta / (
            c * ratio), num_steps=steps, stddev=.2)
        for c, ratio, eta, steps in itertools.product(
            (.1, 1., 3.), (1., 5.), (.1, .5, 1.), (1, 3, 30, 2000))]


def exact(mechanism, eigenvalue, start_variance):
  """Returns (distance, variance) of a quadratic's last
  iterates, by recursion."""
  distance, variance = 0., start_variance
  largest_step = mechanism.learning_rate * 2 * mechanism.gradient_bound
  kept = 1 - mechanism.learning_rate * eigenvalue
  for _ in range(mechanism.num_steps):
    distance = kept * distance + largest_step / mechanism.num_examples
    variance = kept**2 * variance + (
        2 * mechanism.learning_rate * mechanism.stddev**2)
  return distance, variance


@pytest.mark.sound
@pytest.mark.parametrize('mechanism', GRID)
def test_quadratics_attain_the_bound(mechanism):
  """A quadratic's flattest direction attains the bound (item OPT-04)."""
  distance, variance = exact(mechanism, mechanism.strong_convexity, 0.)
  assert mechanism.shift == pytest.approx(distance / variance**.5, rel=1e-9)
  steep, spread = exact(mechanism, mechanism.smoothness, 0.)
  assert steep**2 / spread <= mechanism.shift**2 * (1 + 1e-9)


def test_the_printed_bound_holds_and_is_looser():
  """The printed bound holds; the exact one is at most 0.586 of it (OPT-04)."""
  ratios, gaps = [], []
  for mechanism in GRID:
    start = 2 * mechanism.stddev**2 / mechanism.strong_convexity
    distance, variance = exact(mechanism, mechanism.strong_convexity, start)
    true = distance**2 / (2 * variance)
    assert true <= mechanism.rho * (1 + 1e-9)
    assert mechanism.rho <= mechanism.printed_rho * (
        .5 if mechanism.num_steps == 2000 else .64)
    assert mechanism.rho <= mechanism.composed_rho * (1 + 1e-9)
    if mechanism.learning_rate * mechanism.smoothness <= .5:
      ratios.append(true / mechanism.printed_rho)
    if mechanism.num_steps == 2000:
      gaps.append(mechanism.composed_rho / mechanism.rho)
  assert .3 < max(ratios) <= .586
  assert 5 < min(gaps) and max(gaps) > 670


@pytest.mark.parametrize('steps', [1, 10, 100_000])
@pytest.mark.every(1)
def test_the_printed_bound_is_that_of_fact_4_2_4(steps):
  mechanism = make(num_steps=steps, strong_convexity=.5, gradient_bound=3.,
                   learning_rate=.1, stddev=.2, num_examples=50)
  printed = (2 * 3)**2 / (.5 * .2**2 * 50**2) * (
      1 - math.exp(-.5 * .1 * steps / 2))
  assert mechanism.printed_rho == pytest.approx(printed)


def test_one_step_is_one_gaussian_release():
  mechanism = make(num_steps=1)
  assert mechanism.rho == pytest.approx(mechanism.composed_rho)
  largest_step = mechanism.learning_rate * 2 / 10
  assert mechanism.shift == pytest.approx(largest_step / mechanism.step_stddev)


@pytest.fixture(name='two_runs', scope='module')
def _two_runs():
  """Returns last iterates of 40000 runs on each of two neighbours."""
  mechanism = make()
  data = jnp.stack([jnp.linspace(-1, 1, 10)] * 2)[..., None]
  data = data.at[1, 0].set(1.)  # This is the whole way, from -1.
  keys = jax.random.split(KEY, (2, 40_000))
  run = jax.jit(jax.vmap(lambda key, rows: jax.vmap(
      lambda k: mechanism.release(k, rows))(key)))
  return mechanism, np.asarray(run(keys, data), np.float64)[..., 0]


def test_what_runs_is_what_is_accounted(two_runs):
  """Runs have the accounted distance and variance, to five standard errors."""
  mechanism, (first, second) = two_runs
  distance, variance = exact(mechanism, 1., 0.)
  count = len(first)
  for sample in (first, second):
    assert sample.var() == pytest.approx(variance,
                                         rel=5 * math.sqrt(2 / count))
  gap = second.mean() - first.mean()
  assert gap == pytest.approx(distance, abs=5 * math.sqrt(2 * variance / count))
  assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(count)
  assert mechanism.shift == pytest.approx(distance / variance**.5)


def transition(mechanism, gradient, grid):
  """Returns the transition matrix [m, m] of the iterates on grid cells."""
  centre = grid - mechanism.learning_rate / mechanism.num_examples * gradient
  cuts = (grid[1:] + grid[:-1]) / 2
  below = special.ndtr((cuts[None] - centre[:, None]) / mechanism.step_stddev)
  ends = np.zeros((len(grid), 1)), np.ones((len(grid), 1))
  return np.diff(np.hstack([ends[0], below, ends[1]]), axis=1)


@pytest.mark.every(3)
@pytest.mark.parametrize('radius', [.5, 8.])
@pytest.mark.parametrize('steps', [2, 6])
def test_logistic_losses_on_an_interval_keep_the_curve(radius, steps):
  """Exact distributions of a projected logistic descent keep the curve."""
  size, strong = 2, .3
  # The loss is ln(1 + e^(-x theta)) + strong theta^2 / 2, x = -1 or 1.
  mechanism = make(num_examples=size, strong_convexity=strong,
                   smoothness=strong + .25, gradient_bound=1., stddev=1.,
                   learning_rate=1.5, num_steps=steps)
  grid = np.linspace(-radius, radius, 801)
  start = np.zeros(len(grid))
  start[len(grid) // 2] = 1
  distributions = []
  for records in ((1, 1), (1, -1)):
    gradient = sum(strong * grid - x * special.expit(-x * grid)
                   for x in records)
    matrix = transition(mechanism, gradient, grid)
    distributions.append(functools.reduce(np.matmul, [matrix] * steps, start))
  mu, attained = mechanism.shift, 0.
  for epsilon in (0., .1, .5, 1., 2.):
    curve = special.ndtr(mu / 2 - epsilon / mu) - math.exp(
        epsilon) * special.ndtr(-mu / 2 - epsilon / mu)
    for p, q in (distributions, distributions[::-1]):
      delta = np.maximum(p - math.exp(epsilon) * q, 0).sum()
      assert delta <= curve + 1e-9
      attained = max(attained, delta / curve)
  assert attained > .3  # A tenth of the shift would fail.


def test_event_is_that_of_one_gaussian_release():
  mechanism = make()
  wanted = dp_accounting.get_epsilon_gaussian(1 / mechanism.shift, 1e-5)
  assert mechanisms.epsilon(mechanism, delta=1e-5) == pytest.approx(
      wanted, abs=2e-4)
  by_renyi = mechanisms.epsilon(mechanism, delta=1e-5, accountant='rdp')
  assert wanted < by_renyi < 1.3 * wanted
  assert isinstance(mechanism, mechanisms.Mechanism)
  assert mechanism.adjacency is Adjacency.REPLACE_ONE
  calibrated = langevin.calibrated_langevin(rho=.05, **{
      field.name: getattr(mechanism, field.name)
      for field in dataclasses.fields(mechanism) if field.name != 'stddev'})
  assert calibrated.rho == pytest.approx(.05)


def bernoulli_gradient(theta, data):
  """Returns the gradient of -log likelihoods of independent Bernoullis."""
  return data.shape[0] * jax.nn.sigmoid(theta) - jnp.sum(data, 0)


@pytest.mark.every(2)
def test_maximum_likelihood_golden():
  """Maximum likelihood has G-12's golden error, at n = 500, d = 5, rho = .5."""
  size, dims, rho, radius = 500, 5, .5, 1.
  share = special.expit(radius)
  strong, bound = share * (1 - share), math.sqrt(dims) * share
  steps = langevin.enough_steps(strong_convexity=strong, smoothness=.25,
                                rho=rho, num_examples=size, num_values=dims)
  assert steps == 26
  stddev = 2 * bound / math.sqrt(rho * strong) / size
  mechanism = make(
      gradient=bernoulli_gradient, start=jnp.zeros(dims), num_examples=size,
      strong_convexity=strong, smoothness=.25, gradient_bound=bound,
      learning_rate=2., stddev=stddev, num_steps=steps,
      project=langevin.project_box(radius))
  # Fact 4.2.4's demand is exceeded 2 to 2.7 times.
  assert 3 / 8 * rho <= mechanism.rho <= rho / 2
  rng = np.random.default_rng(0)
  truth = rng.uniform(-.6, .6, (200, 1, dims))
  data = rng.uniform(size=(200, size, dims)) < special.expit(truth)
  best = np.clip(special.logit(data.mean(1)), -radius, radius)
  estimates = np.asarray(jax.jit(jax.vmap(mechanism.release))(
      jax.random.split(KEY, 200), jnp.asarray(data, jnp.float32)))
  errors = ((estimates - best)**2).sum(1)
  assert errors.mean() == pytest.approx(
      1.22e-2, abs=.05e-2 + 4 * errors.std() / 200**.5)
  assert errors.mean() <= 9 * dims * bound**2 / (rho * strong**2 * size**2)
  assert np.abs(estimates).max() <= radius + mechanism.step_stddev / 256


@pytest.mark.every(2)
def test_without_noise_it_descends_and_release_is_the_updates():
  data = jnp.array([[.2, -.4], [.6, .8]])
  mechanism = make(start=jnp.ones(2), num_examples=2, stddev=1e-7,
                   num_steps=60)
  np.testing.assert_allclose(mechanism.release(KEY, data), [.4, .2], atol=1e-5)
  noisy = make(start=jnp.ones(2), num_examples=2, num_steps=3,
               project=langevin.project_box(.25))
  state, update = noisy.init(KEY), jax.jit(noisy.update)
  for _ in range(3):
    state = update(state, data)
  released = noisy.release(KEY, data)
  np.testing.assert_allclose(released, state.params,
                             atol=noisy.step_stddev / 256)
  assert released.shape == (2,)  # It is no trajectory.
  assert noisy.risk(2) is None
  many = jax.jit(jax.vmap(lambda key: noisy.update(
      noisy.init(key), data).params))(jax.random.split(KEY, 50))
  assert jnp.abs(many).max() == .25


@pytest.mark.parametrize('changes, message', [
  ({'learning_rate': 1.01}, 'learning_rate must be at most 2 / .* = 1,'),
  ({'learning_rate': .5, 'smoothness': 4.}, 'learning_rate must be at most'),
  ({'strong_convexity': 0.}, 'strong_convexity must be a positive'),
  ({'strong_convexity': 2.}, 'smoothness must be at least strong_convexity'),
  ({'stddev': 0.}, 'stddev must be a positive'),
  ({'gradient_bound': -1.}, 'gradient_bound must be a positive'),
  ({'num_steps': 0}, 'num_steps must be an integer >= 1'),
  ({'num_examples': 0}, 'num_examples must be an integer >= 1')])
def test_refusals(changes, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    make(**changes)
