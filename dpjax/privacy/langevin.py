"""Noisy gradient descent that releases only the last iterate.

theta <- P(theta - eta grad F(theta) + sqrt(2 eta) sigma N(0, I)) for the mean F
of n strongly convex and smooth losses. A step is a contraction, so the
influence of a record on early steps fades, and the privacy cost stops growing
with the number of steps. Source: Lalanne (2023, section 2.3.4, Algorithm 1 and
Fact 4.2.4), for the full batch; with batches drawn with replacement the fact is
false (item OPT-04; erratum E-15 of the estimators).

Statement. The guarantee of the last iterate is that of one Gaussian release of
shift mu,

  mu^2 = (s^2 / v) (1 + c) (1 - c^K) / ((1 - c) (1 + c^K)),

where S = 2 L bounds the difference of two records' gradients, s = eta S / n,
the noise of a step has variance v = 2 eta sigma^2, and c = 1 - eta lambda. It
holds for step sizes up to 2 / (lambda + beta), any start and any projection, in
real arithmetic: float32 rounding of the steps is not charged. Over many steps
its rho is at most half of that of Fact 4.2.4. Quadratic losses from a fixed
start attain it.

Proof:
1. Between neighbouring data sets, a step is the same map of Lipschitz constant
  c up to a displacement of at most s, followed by noise of variance v.
2. Let the noise of step k absorb a part a_k of the displacement, with sum_k
  c^(K - k) (s - a_k) = 0. Then both runs coincide after the last step, and step
  k costs a Gaussian release of shift a_k.
3. The total cost is mu^2 = sum_k a_k^2 / v. Its minimum has a_k proportional to
  c^(K - k), which gives the statement.

Sources: Feldman, Mironov, Talwar and Thakurta (2018); Bok, Su and Altschuler
(2024), whose interpolation gives the whole trade-off curve.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, Params, PRNGKey, PyTree


class LangevinState(NamedTuple):
  """State between two steps; PRIVATE, only the last parameters are released.

  Attributes:
    params: current iterate.
    key: key of the remaining steps.
  """
  params: Params
  key: PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class LangevinDescent:
  """Releases the last iterate of noisy full-batch gradient descent.

  Guarantee: that of `event` under REPLACE_ONE with public n; hence `rho`-zCDP.
  It covers the last iterate only: releasing earlier iterates too costs more
  (`composed_rho`).

  Callers certify the losses: each record's loss is strongly convex and smooth
  on the whole space that is projected, and gradients of two records differ by
  at most 2 `gradient_bound` in l2.

  Attributes:
    gradient: (params, data) -> sum of the gradients of all records' losses.
    start: initial parameters, public.
    num_examples: n, public; the divisor.
    strong_convexity: lambda, of each record's loss.
    smoothness: beta, at least lambda.
    gradient_bound: L; a bound on the norm of each record's gradient suffices.
    learning_rate: eta, at most 2 / (lambda + beta).
    stddev: sigma; a step's noise has standard deviation sqrt(2 eta) sigma.
    num_steps: K, fixed before the run.
    project: projection onto a closed convex set, in the l2 norm of all
      parameters.
  """
  gradient: Callable[[Params, PyTree], Params]
  start: Params
  num_examples: int
  strong_convexity: float
  smoothness: float
  gradient_bound: float
  learning_rate: float
  stddev: float
  num_steps: int
  project: Callable[[Params], Params] = lambda params: params

  def __post_init__(self) -> None:
    errors.check_at_least('num_examples', self.num_examples, 1)
    errors.check_at_least('num_steps', self.num_steps, 1)
    for name in ('strong_convexity', 'smoothness', 'gradient_bound',
                 'learning_rate', 'stddev'):
      errors.check_positive(name, getattr(self, name))
    if self.smoothness < self.strong_convexity:
      raise ValueError(f'smoothness must be at least strong_convexity = '
                       f'{self.strong_convexity}, got {self.smoothness}')
    largest = 2 / (self.strong_convexity + self.smoothness)
    # The tolerance admits the largest rate itself, computed in another order.
    if self.learning_rate > largest * (1 + 1e-12):
      raise ValueError('learning_rate must be at most 2 / (strong_convexity + '
                       f'smoothness) = {largest:g}, got {self.learning_rate}')

  @property
  def adjacency(self) -> Adjacency:
    """Replace-one: the number of records is public."""
    return Adjacency.REPLACE_ONE

  @property
  def noise_multiplier(self) -> float:
    """Multiplier of the one Gaussian release whose cost the whole run has."""
    # Under REPLACE_ONE the accountant doubles what one record contributes.
    return 2 / self.shift

  @property
  def shift(self) -> float:
    """Shift mu: neighbours are as distinguishable as N(0, 1) and N(mu, 1)."""
    displacement = (self.learning_rate * 2 * self.gradient_bound
                    / self.num_examples)
    contraction = 1 - self.learning_rate * self.strong_convexity  # c
    # (1 - c^K) / (1 + c^K), for c in [0, 1).
    forgotten = (math.tanh(-self.num_steps * math.log(contraction) / 2)
                 if contraction > 0 else 1.0)
    return displacement / self.step_stddev * math.sqrt(
        (1 + contraction) / (1 - contraction) * forgotten)

  @property
  def step_stddev(self) -> float:
    """Standard deviation of a step's noise in every coordinate."""
    return math.sqrt(2 * self.learning_rate) * self.stddev

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of the last iterate."""
    return accounting.gaussian_event(noise_multiplier=self.noise_multiplier)

  @property
  def rho(self) -> float:
    """zCDP of the last iterate: shift^2 / 2."""
    return self.shift**2 / 2

  @property
  def printed_rho(self) -> float:
    """zCDP of the last iterate by Fact 4.2.4, at least 1.5 times `rho`.

    S^2 / (lambda sigma^2 n^2) (1 - e^(-lambda eta K / 2)); Chourasia, Ye and
    Shokri (2021), for eta < 1 / beta.
    """
    per_record = 2 * self.gradient_bound / (self.stddev * self.num_examples)
    return per_record**2 / self.strong_convexity * -math.expm1(
        -self.strong_convexity * self.learning_rate * self.num_steps / 2)

  @property
  def composed_rho(self) -> float:
    """zCDP of all K iterates together: the cost of releasing all of them."""
    per_record = 2 * self.gradient_bound / (self.stddev * self.num_examples)
    return self.num_steps * self.learning_rate * per_record**2 / 4

  def init(self, key: PRNGKey) -> LangevinState:
    """Returns the state before the first step."""
    return LangevinState(self.project(self.start), key)

  def update(self, state: LangevinState, data: PyTree) -> LangevinState:
    """Runs one step on all records; the returned state is PRIVATE."""
    draw, key = jax.random.split(state.key)
    rate = self.learning_rate / self.num_examples
    descended = tree.add(state.params, tree.scale(
        -rate, self.gradient(state.params, data)))
    noise = tree.scale(self.step_stddev,
                       additive.unit_noise(draw, state.params))
    return LangevinState(self.project(tree.add(descended, noise)), key)

  def release(self, key: PRNGKey, data: PyTree) -> Params:
    """Returns the last iterate, on the public grid of the last step's noise.

    Earlier iterates are not rounded, because a step with rounding is not a
    contraction.
    """
    def step(state: LangevinState, _: None) -> tuple[LangevinState, None]:
      return self.update(state, data), None

    last, _ = jax.lax.scan(step, self.init(key), length=self.num_steps)
    return jax.tree.map(self._rounded, last.params)

  def risk(self, num_values: int) -> None:
    """Returns None: the error depends on the losses."""
    del num_values

  def _rounded(self, leaf: Array) -> Array:
    """Rounds an array to the public grid of one step's noise."""
    return additive.on_grid(leaf, self.step_stddev)


def calibrated_langevin(*, rho: float,
                        **arguments: Any) -> LangevinDescent:
  """Returns the rho-zCDP descent of least noise.

  Args:
    rho: target, positive.
    **arguments: those of `LangevinDescent` except `stddev`.
  """
  errors.check_positive('rho', rho)
  # rho is proportional to 1 / stddev^2.
  unit = LangevinDescent(stddev=1.0, **arguments)
  return dataclasses.replace(unit, stddev=math.sqrt(unit.rho / rho))


def enough_steps(*, strong_convexity: float, smoothness: float, rho: float,
                 num_examples: int, num_values: int) -> int:
  """Returns the K of Fact 4.2.4, which makes the start's effect negligible.

  After K steps, the start contributes no more than the noise: K = ceil((2 beta
  / lambda) ln(rho n^2 / d)) at eta = 1 / (2 beta), at least 1.

  Args:
    strong_convexity: lambda.
    smoothness: beta.
    rho: zCDP of the release.
    num_examples: n, public.
    num_values: d, number of parameters.
  """
  for name, value in (('strong_convexity', strong_convexity),
                      ('smoothness', smoothness), ('rho', rho)):
    errors.check_positive(name, value)
  odds = (rho * errors.check_at_least('num_examples', num_examples, 1)**2
          / errors.check_at_least('num_values', num_values, 1))
  return max(1, math.ceil(2 * smoothness / strong_convexity * math.log(
      max(odds, 1.0))))


def project_box(radius: Array | float) -> Callable[[Params], Params]:
  """Returns the projection on [-radius, radius] in every coordinate."""
  return lambda params: jax.tree.map(
      lambda leaf: jnp.clip(leaf, -radius, radius), params)
