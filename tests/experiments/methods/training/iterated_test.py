"""These tests check iterated mechanisms: keys of noise and single steps."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import GradientBounder
from dpjax.papers import bassily
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.train.plan import TrainingPlan
from experiments.methods.training import fixed_point
from experiments.methods.training import newton

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
GRADIENT = np.array([0.5, -2.0, 1.0])
# The matrix has eigenvalues 3, 1/2 and -1 in a turned basis.
BASIS = np.linalg.qr(np.array([[1., 2, 0], [0, 1, 1], [1, 0, 3]]))[0]
HESSIAN = BASIS @ np.diag([3.0, 0.5, -1.0]) @ BASIS.T


@pytest.fixture(name='noised')
def _noised(monkeypatch):
  """Returns a list that collects (key, deviation) of noise; none is added."""
  draws = []
  monkeypatch.setattr(
      additive, 'add_gaussian_noise', lambda key, values, stddevs: (
          draws.append((tuple(jax.random.key_data(key).tolist()),
                        float(jax.tree.leaves(stddevs)[0]))), values)[1])
  return draws


def _newton(**changes):
  return newton.NoisyNewton(**{**{
      'loss': None, 'start': jnp.array([0.1, 0.2, -0.3]), 'num_examples': 4,
      'gradient_norm': 2.0, 'hessian_norm': 0.7, 'gradient_multiplier': 2.0,
      'hessian_multiplier': 3.0, 'num_steps': 3, 'adjacency': REPLACE,
      'regularization': 0.1}, **changes})


def test_keys_and_deviations_of_newton_steps(noised, monkeypatch):
  monkeypatch.setattr(newton.NoisyNewton, 'sums', lambda *_: (
      jnp.asarray(4 * GRADIENT, jnp.float32),
      jnp.asarray(4 * HESSIAN, jnp.float32)))
  for adjacency in (ADD, REPLACE):
    noised.clear()
    mechanism, key = _newton(adjacency=adjacency), jax.random.key(1)
    states = [mechanism.init(key)]
    for _ in range(3):
      states.append(mechanism.update(states[-1], None))
    assert len({words for words, _ in noised} | {
        tuple(jax.random.key_data(each.key).tolist())
        for each in states}) == 6 + 4
    # The event counts a multiplier of one record's norm.
    np.testing.assert_allclose([stddev for _, stddev in noised],
                               [4.0, 2.1] * 3, rtol=1e-5)
  for before, after in itertools.pairwise(states):
    params = np.asarray(before.params, float)
    gradient = GRADIENT + 0.1 * params
    curvature = np.maximum(np.array([3.0, 0.5, -1.0]) + 0.1, 1e-3)
    wanted = params - BASIS @ ((BASIS.T @ gradient) / curvature)
    np.testing.assert_allclose(after.params, wanted, rtol=1e-3, atol=1e-3)


def test_the_floor_of_the_curvature_is_that_of_the_whole(monkeypatch, noised):
  """The least curvature applies to Hessian plus regulariser."""
  monkeypatch.setattr(newton.NoisyNewton, 'sums', lambda *_: (
      jnp.ones(3), 4 * jnp.diag(jnp.array([-5.0, 0.3, 2.0]))))
  mechanism = _newton(regularization=0.5, least_curvature=0.6,
                      start=jnp.zeros(3))
  after = mechanism.update(mechanism.init(jax.random.key(0)), None)
  np.testing.assert_allclose(after.params, -0.25 / np.array([0.6, 0.8, 2.5]),
                             rtol=1e-4)
  assert len(noised) == 2


def test_keys_and_deviations_of_fixed_point_steps(noised):
  mechanism = fixed_point.FixedPointIteration(
      operator=lambda x, data: x / 2 + data, record_norm=3.0,
      start=jnp.ones(2), relaxation=0.25, noise_multiplier=1.5, num_steps=4,
      adjacency=REPLACE)
  states = [mechanism.init(jax.random.key(2))]
  for _ in range(4):
    states.append(mechanism.update(states[-1], jnp.float32(1)))
  assert len({words for words, _ in noised} | {
      tuple(jax.random.key_data(each.key).tolist()) for each in states}) == 9
  assert {stddev for _, stddev in noised} == {4.5}
  for before, after in itertools.pairwise(states):
    np.testing.assert_allclose(
        after.point, 0.75 * before.point + 0.25 * (before.point / 2 + 1),
        rtol=1e-6)


def test_descent_is_noised_for_all_blocks_together():
  """Descent is noised for all blocks together.

  One record may be at the bound of every block at once.
  """
  bounds = {'a': 0.3, 'b': 0.4, 'c': 1.2}
  bounder = GradientBounder(
      lambda params, batch, mask: BoundedSums(
          jax.tree.map(lambda leaf: leaf * jnp.sum(
              mask, dtype=jnp.float32), params), 0.0, 0),
      lambda certificate: {name: jnp.float32(bound)
                           for name, bound in bounds.items()})
  mechanism = fixed_point.gradient_descent(
      bounder, num_examples=5, learning_rate=2.0, relaxation=1.0,
      start={name: jnp.ones(2) for name in bounds}, noise_multiplier=1.0,
      num_steps=1, adjacency=ADD)
  assert mechanism.record_norm == pytest.approx(2 / 5 * 1.3)
  image = mechanism.operator(mechanism.start, jnp.zeros((3, 1)))
  for leaf in image.values():
    np.testing.assert_allclose(leaf, 1 - 2 / 5 * 3, rtol=1e-5)


def _bassily(delivered, monkeypatch, **changes):
  asked = []
  monkeypatch.setattr(TrainingPlan, 'epsilon', lambda self, *args, **more: (
      asked.append((args, more)), delivered)[1])
  settings = {'num_examples': 100, 'batch_size': 20, 'num_steps': 50,
              'epsilon': 0.5, 'delta': 1e-4, 'adjacency': REPLACE, **changes}
  return bassily.bassily_plan(**settings), asked


def test_bassily_plans_deliver_at_most_their_target(monkeypatch):
  """Bassily's plans cost at most their target, by the accountant."""
  plan, asked = _bassily(0.5, monkeypatch)
  assert asked == [((1e-4,), {})] and plan.adjacency is REPLACE
  with pytest.raises(ValueError, match='epsilon 0.5001 at delta = 0.0001, more'
                     ' than the target 0.5: use more steps'):
    _bassily(0.5001, monkeypatch)
  # Noise is for the expected batch, whatever is computed at once.
  parts, _ = _bassily(0.1, monkeypatch, max_batch_size=7)
  assert parts.noise_multiplier == plan.noise_multiplier == pytest.approx(
      20 * bassily.printed_noise_multiplier(
          num_examples=100, num_steps=50, epsilon=0.5, delta=1e-4))
