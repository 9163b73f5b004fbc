"""These tests check Newton's method: sensitivity, noise and convergence."""

import functools
import math

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy import additive
from dpjax.privacy import mechanism as mechanisms
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Batch
from experiments.methods.training import newton

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(6)
SIZE, DIMS = 12, 3


def loss(params, record):
  """Returns the logistic loss for labels -1 and 1."""
  return jnp.logaddexp(0., -record.y * jnp.sum(record.x * params))


def make(**changes):
  return newton.NoisyNewton(**{**{
    'loss': loss, 'start': jnp.zeros(DIMS), 'num_examples': SIZE,
    'gradient_norm': 2., 'hessian_norm': .7, 'gradient_multiplier': 2.,
    'hessian_multiplier': 3., 'num_steps': 4, 'adjacency': REPLACE,
    'regularization': .1}, **changes})


def draw(count, scale=1.):
  rng = np.random.default_rng(count)
  return Batch(jnp.asarray(scale * rng.normal(size=(count, DIMS)), jnp.float32),
               jnp.asarray(rng.choice([-1., 1.], count), jnp.float32))


@pytest.mark.every(2)
def test_a_record_moves_both_sums_by_its_norms_at_most():
  """Replacing one record moves both sums by at most twice their norms.

  Large and unusable records are among the 50 tried.
  """
  mechanism, data, pool = make(), draw(SIZE), draw(50, 5.)
  pool = pool._replace(x=pool.x.at[0].set(jnp.nan).at[1].set(1e30).at[2].set(0))
  params = jnp.array([.3, -.2, .1])
  run = jax.jit(jax.vmap(lambda x, y: mechanism.sums(params, Batch(
      data.x.at[0].set(x), data.y.at[0].set(y)))))
  for sums, bound in zip(run(*pool), (2., .7), strict=True):
    flat = np.asarray(sums, np.float64).reshape(50, -1)
    assert np.isfinite(flat).all()
    added = np.linalg.norm(flat - flat[0], axis=1)  # NaN adds nothing
    assert .9 * bound < added.max() <= bound * (1 + 1e-5)
    moved = np.linalg.norm(flat[:, None] - flat[None], axis=-1).max()
    assert moved <= 2 * bound * (1 + 1e-5)
    # Hessians are positive: no two are opposite.
    assert moved > (1.8 if bound == 2. else 1.2) * bound


@pytest.mark.every(2)
def test_noise_of_a_step(monkeypatch):
  """Noise of a step has the stated deviations, independent by coordinate.

  Off the diagonal the Hessian's variance is half.
  """
  seen = {}

  def eigh(matrix):
    seen['hessian'] = matrix
    return jnp.ones(DIMS), jnp.eye(DIMS)

  monkeypatch.setattr(newton.jnp.linalg, 'eigh', eigh)
  mechanism, data = make(regularization=0.), draw(SIZE)

  def step(key):
    state = mechanism.update(mechanism.init(key), data)
    return state.params, seen['hessian']

  steps, hessians = map(np.asarray, jax.jit(jax.vmap(step))(
      jax.random.split(KEY, 4000)))
  rel = 5 * math.sqrt(2 / 4000)
  np.testing.assert_allclose(steps.var(0), (4 / SIZE)**2, rtol=rel)
  variances = hessians.var(0)
  wanted = np.where(np.eye(DIMS), 1, .5) * (.7 * 3 / SIZE)**2
  np.testing.assert_allclose(variances, wanted, rtol=rel)
  np.testing.assert_allclose(hessians, hessians.transpose(0, 2, 1), atol=1e-6)
  flat = np.hstack([steps, hessians[:, *np.triu_indices(DIMS)]])
  correlations = np.corrcoef(flat, rowvar=False) - np.eye(flat.shape[1])
  assert np.abs(correlations).max() < 5 / math.sqrt(4000)


@pytest.mark.slow
def test_keys_of_both_noises_and_of_the_next_step_differ(monkeypatch):
  keys = []
  monkeypatch.setattr(
      additive, 'add_gaussian_noise',
      lambda key, values, stddevs: (keys.append(key), values)[1])
  mechanism = make()
  state = mechanism.update(mechanism.init(KEY), draw(SIZE))
  key_words = {tuple(jax.random.key_data(key).tolist())
               for key in (*keys, state.key, KEY)}
  assert len(keys) == 2 and len(key_words) == 4


def test_without_noise_it_converges_in_few_steps():
  data = draw(SIZE)
  mechanism = make(gradient_multiplier=1e-6, hessian_multiplier=1e-6,
                   gradient_norm=50., hessian_norm=50., num_steps=6)
  released = jax.jit(mechanism.release)(KEY, data)

  def objective(params):
    margins = np.asarray(data.y) * (np.asarray(data.x) @ params)
    return np.logaddexp(0, -margins).mean() + .05 * params @ params

  best = optimize.minimize(objective, np.zeros(DIMS), tol=1e-10).x
  np.testing.assert_allclose(released, best, atol=1e-4)


@pytest.mark.every(2)
def test_noise_cannot_make_a_step_explode():
  mechanism = make(hessian_multiplier=50., gradient_multiplier=1e-3,
                   least_curvature=.5, num_steps=1, regularization=0.)
  run = jax.jit(jax.vmap(mechanism.release, (0, None)))
  releases = run(jax.random.split(KEY, 64), draw(SIZE))
  assert np.linalg.norm(releases, axis=1).max() <= 2.01 / .5


@pytest.mark.every(3)
@pytest.mark.parametrize('adjacency, doubled', [(ADD, 1), (REPLACE, 2)])
def test_event_is_two_gaussians_at_each_step(adjacency, doubled):
  mechanism = make(adjacency=adjacency)
  one = math.sqrt(4 * (1 / 2.**2 + 1 / 3.**2))
  exact = dp_accounting.get_epsilon_gaussian(1 / (doubled * one), 1e-5)
  spent = functools.partial(mechanisms.epsilon, mechanism, delta=1e-5)
  assert exact - 1e-6 <= spent() <= exact + 2e-3
  assert exact < spent(accountant='rdp') < 1.2 * exact
  assert isinstance(mechanism, mechanisms.Mechanism)


@pytest.mark.parametrize('name', [
  'gradient_norm', 'hessian_norm', 'gradient_multiplier', 'hessian_multiplier',
  'least_curvature', 'num_steps', 'num_examples'])
def test_refusals(name):
  with pytest.raises(ValueError, match=f'^{name} must be [^\n]*$'):
    make(**{name: 0})
