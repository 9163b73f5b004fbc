"""Private maximum likelihood by noisy gradient ascent, DP-SGML.

theta <- P(theta + eta (mean T - A'(theta)) + sqrt(2 eta) sigma N(0, I)), where
P projects on the box. Source: Lalanne (2023, Algorithm 1 and Fact 4.2.4) (item
EST-DPSGML).

The fact holds in part (errata E-15, E-16). rho-zCDP holds for the full batch,
with at most half the printed variance of noise; the guarantee of
`privacy.langevin` is exact. It does not hold for batches of m < n records with
replacement, where a drawn record changes a gradient by 2 L / m. So `Descent`
uses full batches, and `BatchDescent` composes its steps or raises an error. The
factor beta / lambda of the printed utility is superfluous: a step is a
contraction by c = 1 - eta lambda, so that for the full batch, whether theta_ML
is inside the box or on its boundary,

  E ||theta_K - theta_ML||^2 <= c^(2K) ||theta_0 - theta_ML||^2 + d v (1 -
    c^(2K)) / (1 - c^2),    v = 2 eta sigma^2.

With v calibrated to rho-zCDP exactly (gradients of two records differ by
sqrt(d)) the second term is (1 - c^K)^2 d^2 / (2 rho lambda^2 n^2): the error of
output perturbation, whatever the condition number and the step.
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import langevin
from dpjax.stats import precision
from dpjax.theory.parametric.estimator import Draw
from dpjax.theory.parametric.exponential_families import Family
from dpjax.theory.parametric.likelihood import LikelihoodEstimator
from dpjax.theory.parametric.likelihood import normal
from dpjax.typing import Array, PRNGKey


class Steps(NamedTuple):
  """Public parameters of the sampler of a descent, float64.

  Attributes:
    radius: b, half the side of the box.
    rate: learning rate eta.
    noise: standard deviation of the noise of a step.
    start: standard deviation of the start, before projection.
    num_steps: K, int32.
    threshold: a record joins a batch if its random uint32 word is below this.
    batch_size: m, by which a batch's sum is divided.
  """
  radius: Array
  rate: Array
  noise: Array
  start: Array
  num_steps: Array
  threshold: Array
  batch_size: Array


def run(key: PRNGKey, mean_of: Callable[[PRNGKey, Array], Array], like: Array,
        steps: Steps, family: Family) -> Array:
  """Returns the last iterate [d], rounded to a public grid.

  Args:
    key: key of the start, the batches and the noise.
    mean_of: (key, A'(theta)) -> the mean gradient [d] of a batch.
    like: an array of the shape and dtype of theta.
    steps: public parameters.
    family: family of each coordinate.
  """
  start_key, key = jax.random.split(key)

  def project(theta: Array) -> Array:
    return jnp.clip(theta, -steps.radius, steps.radius)

  def step(k: Array, theta: Array) -> Array:
    batch_key, noise_key = jax.random.split(jax.random.fold_in(key, k))
    return project(theta + steps.rate * mean_of(batch_key, family.mean(theta))
                   + steps.noise * normal(noise_key, like))

  # The number of steps is traced, so one compilation serves every K.
  last = jax.lax.fori_loop(0, steps.num_steps, step,
                           project(steps.start * normal(start_key, like)))
  return additive.on_grid(last, steps.noise)


@functools.cache
def _full_draw(family: Family) -> Draw:
  """Returns the sampler that runs on the means of all records."""
  def draw(key: PRNGKey, means: Array, steps: Steps) -> Array:
    return run(key, lambda _, model_mean: means - model_mean, means, steps,
               family)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ascent(LikelihoodEstimator):
  """Base class of ascents of the likelihood, with full and small batches.

  Attributes:
    rho: zCDP budget; with the number of examples it determines the noise.
    printed: use the noise and the random start of Fact 4.2.4; otherwise start
      at theta = 0, with the least noise that makes full batches rho-zCDP.
    num_steps: K; by default `langevin.enough_steps`.
  """
  rho: float
  printed: bool = False
  num_steps: int | None = None

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_positive('rho', self.rho)
    if self.num_steps is not None:
      errors.check_at_least('num_steps', self.num_steps, 1)
    elif self.rho * self.num_examples**2 <= self.model.dimension:
      raise ValueError(
          'rho num_examples^2 must exceed the dimension = '
          f'{self.model.dimension}, or give num_steps; got '
          f'{self.rho * self.num_examples**2:g}')

  @property
  def learning_rate(self) -> float:
    """Learning rate eta = 1 / (2 beta)."""
    return 1 / (2 * self.model.smoothness)

  @property
  def steps(self) -> int:
    """Number K of gradient steps."""
    if self.num_steps is not None:
      return self.num_steps
    return langevin.enough_steps(
        strong_convexity=self.model.strong_convexity,
        smoothness=self.model.smoothness, rho=self.rho,
        num_examples=self.num_examples, num_values=self.model.dimension)

  @property
  def descent(self) -> langevin.LangevinDescent:
    """The descent with these settings and full batches, for its guarantee."""
    model = self.model
    build: Callable[..., langevin.LangevinDescent]
    if self.printed:
      build = functools.partial(
          langevin.LangevinDescent, stddev=2 * model.lipschitz
          / self.num_examples / math.sqrt(self.rho * model.strong_convexity))
    else:
      build = functools.partial(langevin.calibrated_langevin, rho=self.rho)
    return build(
        gradient=lambda theta, means: self.num_examples * (
            model.family.mean(theta) - means),
        start=jnp.zeros(model.dimension), num_examples=self.num_examples,
        strong_convexity=model.strong_convexity, smoothness=model.smoothness,
        gradient_bound=model.diameter / 2, learning_rate=self.learning_rate,
        num_steps=self.steps, project=langevin.project_box(model.radius))

  @property
  def start_stddev(self) -> float:
    """Standard deviation of the start, before projection."""
    if not self.printed:
      return 0.0
    return self.descent.stddev * math.sqrt(2 / self.model.strong_convexity)

  def _steps(self, threshold: int, batch_size: float) -> Steps:
    """Returns the public parameters as arrays."""
    return Steps(
        radius=precision.double(self.model.radius),
        rate=precision.double(self.learning_rate),
        noise=precision.double(self.descent.step_stddev),
        start=precision.double(self.start_stddev),
        num_steps=jnp.int32(self.steps), threshold=jnp.uint32(threshold),
        batch_size=precision.double(batch_size))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Descent(Ascent):
  """Uses all records in every step; releases the last iterate only.

  Guarantee: `event` under REPLACE_ONE, for real arithmetic: rho-zCDP, or, if
  `printed`, at most (a quarter to a half of rho)-zCDP.
  """

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost: one Gaussian release, `langevin.LangevinDescent.event`."""
    return self.descent.event

  @property
  def actual_rho(self) -> float:
    """zCDP of the last iterate, exact for quadratic likelihoods."""
    return self.descent.rho

  @property
  def trajectory_rho(self) -> float:
    """zCDP of all iterates; printed: at most (rho / 4) ln(rho n^2 / d).

    Plain composition, with gradients that differ by sqrt(d) instead of 2 L.
    """
    return self.descent.composed_rho

  @property
  def draw(self) -> Draw:
    """Jittable sampler that runs the steps on the means."""
    return _full_draw(self.model.family)

  @property
  def parameters(self) -> Steps:
    """Public numbers of the gradient steps."""
    return self._steps(0, self.num_examples)

  @property
  def utility(self) -> float:
    """Bound on E ||theta_K - theta_ML||^2 for any records (module docstring).
    """
    model, variance = self.model, self.descent.step_stddev**2
    # Noise of earlier steps is contracted by every later one: a geometric sum.
    contraction = 1 - self.learning_rate * model.strong_convexity
    decay = contraction**(2 * self.steps)
    distance = model.radius**2 + self.start_stddev**2
    return model.dimension * (decay * distance + variance * (1 - decay) / (
        1 - contraction**2))

  @property
  def printed_utility(self) -> float:
    """Bound 9 d L^2 / (rho lambda^2 n^2) for printed noise (EST-DPSGML)."""
    model = self.model
    return 9 * model.dimension * model.lipschitz**2 / (
        self.rho * (model.strong_convexity * self.num_examples)**2)
