"""Output perturbation: logistic regression solved, then noised once.

Thesis 003, Algorithm 5 (Chaudhuri, Monteleoni and Sarwate 2011; item DP-13),
with the hypotheses it leaves out (erratum E24): a convex loss whose gradient in
the parameters has norm at most L, a 1-strongly convex regulariser, and a solver
whose error is charged. What is released is the minimiser plus noise in all its
dimensions, not "F(Z) + b" as printed.
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
  the parameters, biases included, of a linear model on records projected on a
  public ball. n is a public constant, not the number of rows, so a record moves
  the gradient of F by L/n at most and the minimiser by L/(n gamma), twice that
  under replace-one.

  The solver runs a number of steps that depends on the number of records alone.
  After them its distance to the minimiser is bounded whatever the data;
  twice that distance is added to the sensitivity.

  Guarantee: (epsilon, delta)-DP under `adjacency` for every pair that
  `accounting` gives for `event`; no epsilon < 1 restriction. In real
  arithmetic: float32 rounding of the solver is not charged.

  Attributes:
    num_features: p.
    num_classes: c; the parameters are (p + 1) c numbers.
    num_examples: n, public.
    input_radius: records are projected on this l2 ball; public.
    regularization: gamma, positive.
    noise_multiplier: standard deviation of the noise over `record_norm`.
    adjacency: which data sets are neighbours.
    solver_share: the solver's charge over that of one record.
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
    """L: sqrt(2) from cross entropy times the norm of (x, 1)."""
    return losses.cross_entropy().lipschitz * self._input_norm

  @property
  def solver_error(self) -> float:
    """Bound on the distance of the solver's result to the minimiser."""
    return self._exact_norm * self.solver_share / 2

  @property
  def record_norm(self) -> float:
    """What one record added or removed can move the solver's result by."""
    return self._exact_norm + 2 * self.solver_error

  @property
  def stddev(self) -> float:
    """Standard deviation of the noise on every parameter."""
    return self._gaussian.stddev

  def num_iterations(self, num_rows: int) -> int:
    """Steps of the solver on so many rows, from its rate of convergence alone.

    Nesterov's method from 0 for a gamma-strongly convex and beta-smooth F:
    ||theta_k - theta*||^2 <= 2 (1 - sqrt(gamma / beta))^k (L / gamma)^2, with L
    the bound of the whole gradient (Nesterov 2004, Theorem 2.2.3).
    """
    if not num_rows:
      return 1  # The minimiser is 0, where the solver starts.
    start = (math.sqrt(2) * self.gradient_bound / self.regularization *
             num_rows / self.num_examples)
    rate = -math.log1p(-self._root(num_rows)) / 2
    return max(1, math.ceil(math.log(start / self.solver_error) / rate))

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return self._gaussian.event

  def solve(self, data: Batch) -> Params:
    """The regularised minimiser to within `solver_error`; PRIVATE.

    Records that are not finite, or of no class, contribute nothing.

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
      back = tree.add(new, tree.scale(-1.0, theta))
      return new, tree.add(new, tree.scale(momentum, back))

    zeros = tree.zeros_like(jax.eval_shape(self._model.init,
                                           jax.random.key(0)))
    return jax.lax.fori_loop(0, self.num_iterations(num_rows), step,
                             (zeros, zeros))[0]

  def objective_gradient(self, data: Batch, params: Params) -> Params:
    """The gradient of F at `params`; PRIVATE."""
    data = inputs.as_batch(data)
    return self._gradient(self._prepare(data), params)

  def release(self, key: PRNGKey, data: Batch) -> Params:
    """The noisy parameters, as those of `mlp.mlp(depth=0)`."""
    return self._gaussian.release(key, self.solve(data))

  def risk(self, num_values: int) -> float:
    """Expected squared distance to the solver's result."""
    return num_values * self.stddev**2

  @property
  def _exact_norm(self) -> float:
    return self.gradient_bound / (self.num_examples * self.regularization)

  @property
  def _input_norm(self) -> float:
    return math.sqrt(self.input_radius**2 + 1)

  def _root(self, num_rows: int) -> float:
    """sqrt(gamma / beta): the Hessian of cross entropy is at most 1/2."""
    smoothness = self._input_norm**2 / 2 * num_rows / self.num_examples
    return math.sqrt(self.regularization / (smoothness + self.regularization))

  @property
  def _gaussian(self) -> additive.GaussianMechanism:
    return additive.GaussianMechanism(
        record_norm=self.record_norm, adjacency=self.adjacency,
        noise_multiplier=self.noise_multiplier)

  @property
  def _model(self):
    return mlp.mlp(num_features=self.num_features, depth=0,
                   num_classes=self.num_classes,
                   input_radius=self.input_radius, hidden_radius=1.0)

  def _prepare(self, data: Batch) -> Batch:
    if data.x.shape[1:] != (self.num_features,):
      raise ValueError(f'x must have {self.num_features} features, got shape '
                       f'{data.x.shape}')
    return data._replace(x=ball.project_records(data.x, self.input_radius))

  def _gradient(self, data: Batch, params: Params) -> Params:
    known = (data.y >= 0) & (data.y < self.num_classes)
    data = data._replace(y=jnp.where(known, data.y, 0))
    sums = per_example.plain_sums(self._model.apply,
                                  losses.cross_entropy().values, params, data,
                                  known)
    return tree.add(tree.scale(1 / self.num_examples, sums.total),
                    tree.scale(self.regularization, params))


class Fitted(NamedTuple):
  """A private logistic regression.

  Attributes:
    params: as those of `mlp.mlp(depth=0)`.
    mechanism: what released them.
    event: what it cost.
    epsilon: of the event at the delta that was asked for, <= the target.
  """
  params: Params
  mechanism: OutputPerturbation
  event: accounting.DpEvent
  epsilon: float


def fit(key: PRNGKey, data: Batch, *, num_classes: int, num_examples: int,
        input_radius: float, regularization: float, epsilon: float,
        delta: float, adjacency: Adjacency,
        solver_share: float = 0.01) -> Fitted:
  """Trains with the least noise that is (epsilon, delta)-DP, exactly.

  Args:
    key: for the noise.
    data: the records, x [n, p] and y [n].
    num_classes: c.
    num_examples: the public divisor n of the objective.
    input_radius: see `OutputPerturbation`, as the next arguments.
    regularization: gamma.
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
  make(noise_multiplier=1.0)  # Refuses bad arguments before calibrating.
  mechanism = make(noise_multiplier=accounting.calibrate_noise_multiplier(
      target_epsilon=epsilon, target_delta=delta, sampling_prob=1.0,
      num_steps=1, adjacency=adjacency))
  params = jax.jit(mechanism.release)(key, data)
  return Fitted(params, mechanism, mechanism.event,
                mechanisms.epsilon(mechanism, delta=delta))
