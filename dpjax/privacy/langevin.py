"""Noisy gradient descent of which the last iterate alone is released.

theta <- P(theta - eta grad F(theta) + sqrt(2 eta) sigma N(0, I)) for the mean F
of n strongly convex and smooth losses: a step contracts, so that what a record
did long ago is forgotten, and the cost stops growing with the steps. Source:
thesis 000, Section 2.3.4, Algorithm 1 and Fact 4.2.4, for the full batch; with
batches drawn with replacement the fact is false (item OPT-04; erratum E-15 of
the estimators).

The guarantee is that of one Gaussian release, for steps up to 2 / (lambda +
beta), any start and any projection; in many steps its rho is half the printed
one or less. A step is a map of factor c = 1 - eta lambda, moved between
neighbours by s = eta S / n at most, and noise of variance v. Replace a share of
the movement a_k, sum_k c^(K - k) (s - a_k) = 0, by the noise of step k: each
share is a Gaussian release of shift a_k, and the runs meet after the last one.
a_k proportional to c^(K - k) makes sum_k a_k^2 / v least:

  mu^2 = (s^2 / v) (1 + c) (1 - c^K) / ((1 - c) (1 + c^K)).

Sources: Feldman, Mironov, Talwar and Thakurta 2018; Bok, Su and Altschuler
2024, whose interpolation gives the whole trade-off curve. Quadratic losses from
a fixed start attain it. In real arithmetic: float32 rounding of the steps is
not charged.
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
  """Between two steps; PRIVATE, as is all of it but the last parameters.

  Attributes:
    params: the iterate.
    key: for the steps to come.
  """
  params: Params
  key: PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class LangevinDescent:
  """Releases the last iterate of noisy full-batch gradient descent.

  Guarantee: that of `event` under REPLACE_ONE, n public; hence `rho`-zCDP. For
  the last iterate alone: a step's parameters cost more when earlier ones are
  seen too (`composed_rho`).

  Callers certify the losses: for every record, on all of the space that is
  projected on, strongly convex, smooth, and of gradients that differ between
  two records by 2 `gradient_bound` at most.

  Attributes:
    gradient: (params, data) -> sum of the gradients of all records' losses.
    start: initial parameters, public.
    num_examples: n, public; the divisor.
    strong_convexity: lambda, of each record's loss.
    smoothness: beta, at least lambda.
    gradient_bound: L; a bound on the norm of a record's gradient serves.
    learning_rate: eta, at most 2 / (lambda + beta).
    stddev: sigma; the noise of a step has deviation sqrt(2 eta) sigma.
    num_steps: K, fixed before the run.
    project: onto a closed convex set, in the l2 norm of all parameters.
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

  def __post_init__(self):
    errors.check_at_least('num_examples', self.num_examples, 1)
    errors.check_at_least('num_steps', self.num_steps, 1)
    for name in ('strong_convexity', 'smoothness', 'gradient_bound',
                 'learning_rate', 'stddev'):
      errors.check_positive(name, getattr(self, name))
    if self.smoothness < self.strong_convexity:
      raise ValueError(f'smoothness must be at least strong_convexity = '
                       f'{self.strong_convexity}, got {self.smoothness}')
    largest = 2 / (self.strong_convexity + self.smoothness)
    if self.learning_rate > largest * (1 + 1e-12):
      raise ValueError('learning_rate must be at most 2 / (strong_convexity + '
                       f'smoothness) = {largest:g}, got {self.learning_rate}')

  @property
  def adjacency(self) -> Adjacency:
    """One record is replaced; their number is public."""
    return Adjacency.REPLACE_ONE

  @property
  def noise_multiplier(self) -> float:
    """Of the one Gaussian release that the whole run costs no more than."""
    # Under REPLACE_ONE the accountant doubles what one record contributes.
    return 2 / self.shift

  @property
  def shift(self) -> float:
    """mu: the last iterates of neighbours are told apart as N(0, 1), N(mu, 1).
    """
    moved = self.learning_rate * 2 * self.gradient_bound / self.num_examples
    kept = 1 - self.learning_rate * self.strong_convexity  # c
    # (1 - c^K) / (1 + c^K), for c in [0, 1).
    forgotten = (math.tanh(-self.num_steps * math.log(kept) / 2)
                 if kept > 0 else 1.0)
    return moved / self.step_stddev * math.sqrt(
        (1 + kept) / (1 - kept) * forgotten)

  @property
  def step_stddev(self) -> float:
    """Deviation of the noise of a step in every coordinate."""
    return math.sqrt(2 * self.learning_rate) * self.stddev

  @property
  def event(self) -> accounting.DpEvent:
    """What the last iterate costs."""
    return accounting.gaussian_event(noise_multiplier=self.noise_multiplier)

  @property
  def rho(self) -> float:
    """zCDP of the last iterate: shift^2 / 2."""
    return self.shift**2 / 2

  @property
  def printed_rho(self) -> float:
    """The same by the bound of Fact 4.2.4, 1.5 times as large or more.

    S^2 / (lambda sigma^2 n^2) (1 - e^(-lambda eta K / 2)); Chourasia, Ye and
    Shokri 2021, for eta < 1 / beta.
    """
    per_record = 2 * self.gradient_bound / (self.stddev * self.num_examples)
    return per_record**2 / self.strong_convexity * -math.expm1(
        -self.strong_convexity * self.learning_rate * self.num_steps / 2)

  @property
  def composed_rho(self) -> float:
    """zCDP of all K iterates together: what releasing them would cost."""
    per_record = 2 * self.gradient_bound / (self.stddev * self.num_examples)
    return self.num_steps * self.learning_rate * per_record**2 / 4

  def init(self, key: PRNGKey) -> LangevinState:
    """Before the first step."""
    return LangevinState(self.project(self.start), key)

  def update(self, state: LangevinState, data: PyTree) -> LangevinState:
    """One step on all records; what it returns is PRIVATE."""
    draw, key = jax.random.split(state.key)
    rate = self.learning_rate / self.num_examples
    moved = tree.add(state.params,
                     tree.scale(-rate, self.gradient(state.params, data)))
    noise = tree.scale(self.step_stddev,
                       additive.unit_noise(draw, state.params))
    return LangevinState(self.project(tree.add(moved, noise)), key)

  def release(self, key: PRNGKey, data: PyTree) -> Params:
    """The last iterate, on the public grid of the last step's noise.

    Not rounded in between: a step that rounds does not contract.
    """
    def step(state, _):
      return self.update(state, data), None

    last, _ = jax.lax.scan(step, self.init(key), length=self.num_steps)
    return jax.tree.map(self._rounded, last.params)

  def risk(self, num_values: int) -> None:
    """Depends on the losses."""
    del num_values

  def _rounded(self, leaf: Array) -> Array:
    return additive.on_grid(leaf, self.step_stddev)


def calibrated_langevin(*, rho: float,
                        **arguments: Any) -> LangevinDescent:
  """The descent of least noise that is rho-zCDP.

  Args:
    rho: target, positive.
    **arguments: those of `LangevinDescent` but `stddev`.
  """
  errors.check_positive('rho', rho)
  unit = LangevinDescent(stddev=1.0, **arguments)
  return dataclasses.replace(unit, stddev=math.sqrt(unit.rho / rho))


def enough_steps(*, strong_convexity: float, smoothness: float, rho: float,
                 num_examples: int, num_values: int) -> int:
  """K of Fact 4.2.4: after so many the start weighs no more than the noise.

  ceil((2 beta / lambda) ln(rho n^2 / d)) at eta = 1 / (2 beta), at least 1.

  Args:
    strong_convexity: lambda.
    smoothness: beta.
    rho: of the release.
    num_examples: n.
    num_values: d, parameters.
  """
  for name, value in (('strong_convexity', strong_convexity),
                      ('smoothness', smoothness), ('rho', rho)):
    errors.check_positive(name, value)
  odds = (rho * errors.check_at_least('num_examples', num_examples, 1)**2
          / errors.check_at_least('num_values', num_values, 1))
  return max(1, math.ceil(2 * smoothness / strong_convexity * math.log(
      max(odds, 1.0))))


def project_box(radius: Array | float) -> Callable[[Params], Params]:
  """The projection on [-radius, radius] in every coordinate."""
  return lambda params: jax.tree.map(
      lambda leaf: jnp.clip(leaf, -radius, radius), params)
