"""These tests check output perturbation: objective, release and cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Batch
from experiments.methods.training import output_perturbation

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
SIZE, FEATURES, CLASSES = 12, 2, 3
RNG = np.random.default_rng(7)
DATA = Batch(jnp.asarray(RNG.normal(size=(SIZE, FEATURES)), jnp.float32),
             jnp.asarray(RNG.integers(0, CLASSES, SIZE), jnp.int32))


def _mechanism(**changes):
  return output_perturbation.OutputPerturbation(**{**{
      'num_features': FEATURES, 'num_classes': CLASSES, 'num_examples': 15,
      'input_radius': 0.8, 'regularization': .4, 'noise_multiplier': .5,
      'adjacency': REPLACE, 'solver_share': .05}, **changes})


def _flat(params):
  layer = params['dense_00']
  return np.concatenate([np.ravel(np.asarray(layer['kernel'], float)),
                         np.asarray(layer['bias'], float)])


def _gradient(theta):
  """Returns the gradient of F at a vector of kernel, then bias; n is 15."""
  x = np.asarray(DATA.x, float)
  x = x * np.minimum(1, .8 / np.linalg.norm(x, axis=1, keepdims=True))
  x = np.concatenate([x, np.ones((SIZE, 1))], 1)
  logits = x @ theta.reshape(FEATURES + 1, CLASSES)
  probs = np.exp(logits)
  probs /= probs.sum(1, keepdims=True)
  probs[np.arange(SIZE), np.asarray(DATA.y)] -= 1
  return (x.T @ probs).ravel() / 15 + .4 * theta


def _minimiser():
  """Returns the minimiser by plain descent; F is curved by at least .4."""
  theta = np.zeros((FEATURES + 1) * CLASSES)
  for _ in range(400):
    theta = theta - .8 * _gradient(theta)
  return theta


@pytest.mark.every(4)
def test_the_gradient_is_that_of_the_objective():
  theta = RNG.normal(size=(FEATURES + 1) * CLASSES)
  params = {'dense_00': {
      'kernel': jnp.asarray(theta[:-CLASSES].reshape(FEATURES, CLASSES),
                            jnp.float32),
      'bias': jnp.asarray(theta[-CLASSES:], jnp.float32)}}
  gradient = _flat(_mechanism().objective_gradient(DATA, params))
  np.testing.assert_allclose(gradient, _gradient(theta), rtol=1e-3, atol=1e-5)


def test_a_release_is_the_minimiser_and_noise_of_the_stated_size():
  mechanism, keys = _mechanism(), jax.random.split(jax.random.key(0), 3)
  solve, release = jax.jit(mechanism.solve), jax.jit(mechanism.release)
  solved = _flat(solve(DATA))
  assert np.linalg.norm(solved - _minimiser()) <= mechanism.solver_error
  others = DATA._replace(y=(DATA.y + 1) % CLASSES)
  noise = []
  for key in keys:
    noise.append(_flat(release(key, DATA)) - solved)
    # Other records give the same noise for this key, up to its grid.
    again = _flat(release(key, others)) - _flat(solve(others))
    np.testing.assert_allclose(again, noise[-1], atol=.02 * mechanism.stddev)
  size = np.sqrt(np.mean(np.square(noise))) / mechanism.stddev
  assert .4 < size < 1.7  # Of 27 values, at a rate of 10^-5.
  assert mechanism.risk(9) == pytest.approx(9 * mechanism.stddev**2)


@pytest.mark.every(2)
def test_without_records_the_minimiser_is_where_the_solver_starts():
  empty = Batch(jnp.zeros((0, FEATURES)), jnp.zeros(0, jnp.int32))
  assert _mechanism().num_iterations(0) == 1
  assert not _flat(_mechanism().solve(empty)).any()


@pytest.mark.every(2)
@pytest.mark.parametrize('adjacency, moved', [(ADD, 1), (REPLACE, 2)])
def test_a_fit_spends_its_target_and_no_more(adjacency, moved):
  fitted = output_perturbation.fit(
      jax.random.key(1), DATA, num_classes=CLASSES, num_examples=15,
      input_radius=.8, regularization=.4, epsilon=3.0, delta=1e-4,
      adjacency=adjacency, solver_share=.05)
  assert .998 * 3 <= fitted.epsilon <= 3
  mechanism = fitted.mechanism
  shift = moved / mechanism.noise_multiplier
  assert accounting.gaussian_epsilon(
      shift=shift, delta=1e-4) == pytest.approx(fitted.epsilon, rel=1e-3)
  assert fitted.event == mechanism.event and mechanism.adjacency is adjacency
  assert (mechanism.num_examples, mechanism.input_radius,
          mechanism.regularization, mechanism.solver_share,
          mechanism.num_features) == (15, .8, .4, .05, FEATURES)
  assert fitted.params['dense_00']['kernel'].shape == (FEATURES, CLASSES)


@pytest.mark.every(1)
@pytest.mark.parametrize('changes', [
    {}, {'num_examples': 3, 'regularization': 1e-3}, {'solver_share': .5},
    {'input_radius': 7., 'num_examples': 100}])
def test_iterations_are_as_many_as_the_rate_of_convergence_needs(changes):
  """The solver runs just as many iterations as its rate needs.

  The rate is Theorem 2.2.3 of Nesterov (2004).
  """
  mechanism = _mechanism(**changes)
  gamma, n = mechanism.regularization, mechanism.num_examples
  square = mechanism.input_radius**2 + 1
  assert mechanism.gradient_bound == pytest.approx(np.sqrt(2 * square))
  for rows in (1, 5, 40, 1000):
    # These are the gradient and curvature of the sum of all rows over n.
    steepest = np.sqrt(2 * square) * rows / n
    curvature = square / 2 * rows / n + gamma
    distance = lambda steps, c=curvature, g=steepest: np.sqrt(2) * (
        1 - np.sqrt(gamma / c))**(steps / 2) * g / gamma
    num_iterations = mechanism.num_iterations(rows)
    assert distance(num_iterations) <= mechanism.solver_error * (1 + 1e-9)
    assert (num_iterations == 1 or
            distance(num_iterations - 1) > mechanism.solver_error)


def test_the_solver_converges_where_the_objective_curves_most():
  """The solver converges where the objective curves most.

  All records lie in one place with either label, so the curvature is nearly
  1/2. More rows than the public size would make long steps diverge.
  """
  mechanism = _mechanism(num_classes=2, num_examples=4, regularization=.05,
                         input_radius=3., solver_share=1e-3)
  data = Batch(jnp.tile(jnp.asarray([[2.4, 1.8]]), (20, 1)),
               jnp.asarray([0] * 13 + [1] * 7))
  solution = _flat(jax.jit(mechanism.solve)(data))
  # By symmetry theta is t (x, 1) for one label and -t (x, 1) for the other.
  point, time = np.array([2.4, 1.8, 1.0]), 0.0
  for _ in range(100):
    odds = 1 / (1 + np.exp(-2 * time * 10))
    slope = (13 * (odds - 1) + 7 * odds) / 4 + .05 * time
    time -= slope / (20 / 4 * 20 * odds * (1 - odds) + .05)
  wanted = np.stack([time * point, -time * point], 1).ravel()
  assert np.linalg.norm(solution - wanted) <= mechanism.solver_error
  assert np.linalg.norm(wanted) > 10 * mechanism.solver_error


@pytest.mark.every(2)
def test_labels_of_no_class_contribute_nothing():
  theta = RNG.normal(size=(FEATURES + 1) * CLASSES).astype(np.float32)
  params = {'dense_00': {'kernel': jnp.asarray(theta[:-CLASSES]).reshape(
      FEATURES, CLASSES), 'bias': jnp.asarray(theta[-CLASSES:])}}
  gradient = jax.jit(lambda y: _mechanism().objective_gradient(
      Batch(jnp.full((4, FEATURES), .5), y), params))
  only_norms = .4 * theta
  for bad in (-1, -7, CLASSES, 2**30):
    np.testing.assert_allclose(_flat(gradient(jnp.full(4, bad))), only_norms,
                               rtol=1e-6)
  assert np.abs(_flat(gradient(jnp.zeros(4, jnp.int32))) - only_norms
                ).max() > .05
