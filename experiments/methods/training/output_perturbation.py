"""Output perturbation: logistic regression solved, then noised once.

Barczewski (2025, Algorithm 5), after Chaudhuri, Monteleoni and Sarwate (2011);
item DP-13. The conditions that the algorithm leaves out (erratum E24) are
imposed here: a convex loss whose gradient in the parameters has norm at most L,
a strongly convex regulariser, and a solver whose error is part of the
sensitivity. The release is the minimiser plus noise in all its dimensions, not
"F(Z) + b" as printed.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.grads import ball
from dpjax.grads import inputs
from dpjax.grads import per_example
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import mechanism as mechanisms
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Batch, Params, PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputPerturbation:
  """L2-regularised multinomial logistic regression, released with noise.

  Minimises F(theta) = (1/n) sum_i loss_i(theta) + (gamma/2) ||theta||^2 over
  the parameters (weights and biases) of a linear model. Records are projected
  on a public ball first. n is a public constant, not the number of rows. So
  adding or removing a record moves the gradient of F by at most L/n, and the
  minimiser by at most L/(n gamma); replacing one moves it at most twice as far.

  The number of solver steps depends only on the number of records. It bounds
  the distance to the minimiser for all data; twice that distance is added to
  the sensitivity.

  Guarantee: (epsilon, delta)-DP under `adjacency` for every pair that
  `accounting` gives for `event`; epsilon may exceed 1. In real arithmetic:
  float32 rounding of the solver is not covered.

  Attributes:
    num_features: p, the number of features.
    num_classes: c; there are (p + 1) c parameters.
    num_examples: n, the public number of records.
    input_radius: l2 radius that records are projected on; public.
    regularization: gamma, weight of the quadratic regulariser, positive.
    noise_multiplier: standard deviation of the noise over `record_norm`.
    adjacency: which data sets are neighbours.
    solver_share: what the solver's error adds to the sensitivity, as a fraction
      of the exact minimiser's, in (0, 1).
  """
  num_features: int
  num_classes: int
  num_examples: int
  input_radius: float
  regularization: float
  noise_multiplier: float
  adjacency: Adjacency
  solver_share: float = 0.01

  def __post_init__(self):
    errors.check_at_least('num_features', self.num_features, 1)
    errors.check_at_least('num_classes', self.num_classes, 2)
    errors.check_at_least('num_examples', self.num_examples, 1)
    errors.check_scale('input_radius', self.input_radius)
    errors.check_positive('regularization', self.regularization)
    errors.check_scale('noise_multiplier', self.noise_multiplier)
    errors.check_open_unit('solver_share', self.solver_share)

  @property
  def gradient_bound(self) -> float:
    """Returns L: sqrt(2), for cross entropy, times the largest norm of (x, 1).
    """
    return losses.cross_entropy().lipschitz * self._input_norm

  @property
  def solver_error(self) -> float:
    """Returns a bound on the distance of the solver's result to the minimiser.
    """
    return self._exact_norm * self.solver_share / 2

  @property
  def record_norm(self) -> float:
    """Returns an l2 bound on how far adding one record moves the result."""
    return self._exact_norm + 2 * self.solver_error

  @property
  def stddev(self) -> float:
    """Returns the standard deviation of the noise on every parameter."""
    return self._gaussian.stddev

  def num_iterations(self, num_rows: int) -> int:
    """Returns the number of solver steps for `num_rows` rows of data.

    Nesterov's method from 0, for F gamma-strongly convex and beta-smooth,
    satisfies ||theta_k - theta*||^2 <= 2 (1 - sqrt(gamma / beta))^k (L /
    gamma)^2, where L bounds the gradient of the data term (Nesterov 2004,
    Theorem 2.2.3).
    """
    if not num_rows:
      return 1  # The minimiser is 0, where the solver starts.
    start = (math.sqrt(2) * self.gradient_bound / self.regularization *
             num_rows / self.num_examples)
    rate = -math.log1p(-self._root(num_rows)) / 2
    return max(1, math.ceil(math.log(start / self.solver_error) / rate))

  @property
  def event(self) -> accounting.DpEvent:
    """Returns the privacy event of one release of parameters."""
    return self._gaussian.event

  def solve(self, data: Batch) -> Params:
    """Returns the minimiser of F to within `solver_error`; PRIVATE.

    Records that are not finite, or whose label is no class, contribute nothing.

    Args:
      data: x [rows, p], y [rows].
    """
    data = inputs.as_batch(data)
    gradient = functools.partial(self._gradient, self._prepare(data))
    num_rows, root = data.y.shape[0], self._root(data.y.shape[0])
    momentum, rate = (1 - root) / (1 + root), root**2 / self.regularization

    def step(_, carry):
      theta, ahead = carry
      new = tree.add(ahead, tree.scale(-rate, gradient(ahead)))
      # The direction of the last move, which Nesterov's method continues.
      back = tree.add(new, tree.scale(-1.0, theta))
      return new, tree.add(new, tree.scale(momentum, back))

    zeros = tree.zeros_like(jax.eval_shape(self._model.init,
                                           jax.random.key(0)))
    return jax.lax.fori_loop(0, self.num_iterations(num_rows), step,
                             (zeros, zeros))[0]

  def objective_gradient(self, data: Batch, params: Params) -> Params:
    """Returns the gradient of F at `params`; PRIVATE."""
    data = inputs.as_batch(data)
    return self._gradient(self._prepare(data), params)

  def release(self, key: PRNGKey, data: Batch) -> Params:
    """Returns noisy parameters, with the structure of `mlp.mlp(depth=0)`."""
    return self._gaussian.release(key, self.solve(data))

  def risk(self, num_values: int) -> float:
    """Returns the expected squared l2 distance to the solver's result."""
    return num_values * self.stddev**2

  @property
  def _exact_norm(self) -> float:
    """Returns L/(n gamma), how far one record moves the exact minimiser."""
    return self.gradient_bound / (self.num_examples * self.regularization)

  @property
  def _input_norm(self) -> float:
    """Returns the largest norm of (x, 1), whose last entry multiplies the bias.
    """
    return math.sqrt(self.input_radius**2 + 1)

  def _root(self, num_rows: int) -> float:
    """Returns sqrt(gamma / beta), the root of the inverse condition number."""
    # Eigenvalues of the Hessian of cross entropy in the logits are <= 1/2.
    smoothness = self._input_norm**2 / 2 * num_rows / self.num_examples
    return math.sqrt(self.regularization / (smoothness + self.regularization))

  @property
  def _gaussian(self) -> additive.GaussianMechanism:
    """Returns the Gaussian mechanism that adds the noise."""
    return additive.GaussianMechanism(
        record_norm=self.record_norm, adjacency=self.adjacency,
        noise_multiplier=self.noise_multiplier)

  @property
  def _model(self):
    return mlp.mlp(num_features=self.num_features, depth=0,
                   num_classes=self.num_classes,
                   input_radius=self.input_radius, hidden_radius=1.0)

  def _prepare(self, data: Batch) -> Batch:
    """Returns the data with its records projected on the public ball."""
    if data.x.shape[1:] != (self.num_features,):
      raise ValueError(f'x must have {self.num_features} features, got shape '
                       f'{data.x.shape}')
    return data._replace(x=ball.project_records(data.x, self.input_radius))

  def _gradient(self, data: Batch, params: Params) -> Params:
    """Returns the gradient of F for prepared data."""
    # Labels that are no class are masked out; 0 only stands in for them.
    valid = (data.y >= 0) & (data.y < self.num_classes)
    data = data._replace(y=jnp.where(valid, data.y, 0))
    sums = per_example.plain_sums(self._model.apply,
                                  losses.cross_entropy().values, params, data,
                                  valid)
    return tree.add(tree.scale(1 / self.num_examples, sums.total),
                    tree.scale(self.regularization, params))


class Fitted(NamedTuple):
  """A fitted private logistic regression, and its privacy guarantee.

  Attributes:
    params: noisy parameters, with the structure of `mlp.mlp(depth=0)`.
    mechanism: the mechanism that released them.
    event: event of the release.
    epsilon: epsilon of the event at the requested delta, <= the target.
  """
  params: Params
  mechanism: OutputPerturbation
  event: accounting.DpEvent
  epsilon: float


def fit(key: PRNGKey, data: Batch, *, num_classes: int, num_examples: int,
        input_radius: float, regularization: float, epsilon: float,
        delta: float, adjacency: Adjacency,
        solver_share: float = 0.01) -> Fitted:
  """Fits a logistic regression with the least noise for (epsilon, delta)-DP.

  The noise is calibrated by numerical accounting of the Gaussian mechanism, so
  epsilon may exceed 1.

  Args:
    key: for the noise; secret for a release.
    data: the records, x [n, p] and y [n].
    num_classes: c, at least 2.
    num_examples: n, the public divisor of the objective.
    input_radius: see `OutputPerturbation`, as for the next argument.
    regularization: gamma, the weight of the quadratic regulariser.
    epsilon: target, positive.
    delta: target, in [1e-12, 1).
    adjacency: which data sets are neighbours.
    solver_share: see `OutputPerturbation`.
  """
  data = inputs.as_batch(data)
  make = functools.partial(
      OutputPerturbation, num_features=data.x.shape[-1],
      num_classes=num_classes, num_examples=num_examples,
      input_radius=input_radius, regularization=regularization,
      adjacency=adjacency, solver_share=solver_share)
  make(noise_multiplier=1.0)  # Checks the arguments before calibrating.
  mechanism = make(noise_multiplier=accounting.calibrate_noise_multiplier(
      target_epsilon=epsilon, target_delta=delta, sampling_prob=1.0,
      num_steps=1, adjacency=adjacency))
  params = jax.jit(mechanism.release)(key, data)
  return Fitted(params, mechanism, mechanism.event,
                mechanisms.epsilon(mechanism, delta=delta))
