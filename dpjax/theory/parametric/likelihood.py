"""Private maximum likelihood by one noisy number for each coordinate.

All estimators use the means of T, d numbers that one record changes by at most
1/n each. None needs iterations or smoothness of the likelihood:

* `MaximumLikelihood`, without privacy: E ||theta_ML - theta||^2 <= d A''(theta)
  / (n lambda^2) at every n. (Lalanne, 2023, equation (4.8) has it as a limit in
  distribution, which bounds no moment; item EST-MLE, erratum E-25.)
* `OutputPerturbation`: theta_ML plus Gaussian noise, projected on the box (item
  EXT-OUTPERT). A record moves theta_ML most at the ends of the box.
* `SufficientStatistics`: noise on the means, then the maximum (item EXT-SSP).
  The noise is magnified by the curvature at theta instead of the least
  curvature, so prefer this one. Where T of a record fills the cube, equal
  variances are the best Gaussian noise (average the covariance over sign
  changes; v' S^-1 v over vertices v is tr S^-1). Under pure privacy the noise
  is that of the cube's own norm: d (d + 1) (d + 2) / 3 against 2 d^3 of
  independent Laplace noise.
* `MinimaxStatistics`: the same noisy means, post-processed by the rule of least
  worst risk over the box. It has up to a third less risk where noise and
  sampling are as wide as the box, at times less than theta_ML.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import k_norm
from dpjax.privacy import notions
from dpjax.stats import precision
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import gaussian_noise
from dpjax.theory.parametric import least_favourable
from dpjax.theory.parametric.estimator import Draw
from dpjax.theory.parametric.estimator import Estimator
from dpjax.theory.parametric.exponential_families import Family
from dpjax.theory.parametric.exponential_families import maximum
from dpjax.theory.parametric.exponential_families import Model
from dpjax.typing import Array, PRNGKey


class Scales(NamedTuple):
  """Public float64 numbers that a sampler takes.

  Attributes:
    radius: b.
    noise: scale of the noise of each coordinate; 0 for none.
  """
  radius: Array
  noise: Array


class Rule(NamedTuple):
  """A table of estimates for noisy means, as float64 numbers.

  Attributes:
    places: [Y] noisy means.
    estimates: [Y] estimates for them; linear in between.
    noise: scale of the noise of each coordinate.
  """
  places: Array
  estimates: Array
  noise: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class LikelihoodEstimator(Estimator):
  """Base class of estimators that use only the means of T.

  Attributes:
    model: model of the records.
  """
  model: Model

  def statistic(self, data: Array) -> Array:
    """Returns the means [d] of records [n, d] clipped to [0, 1].

    A missing value (NaN) counts as 0.
    """
    return jnp.mean(records(data, self.model), axis=0)


def records(data: Array, model: Model) -> Array:
  """Returns records as float64 [n, d] in [0, 1].

  Raises:
    ValueError: if the number of coordinates is wrong.
  """
  if data.ndim != 2 or data.shape[1] != model.dimension:
    raise ValueError(f'records must have {model.dimension} coordinates, got an '
                     f'array of shape {data.shape}')
  # Whatever a file holds, a record must lie in the cube: NaN counts as 0.
  values = precision.double(data)
  return jnp.clip(jnp.where(jnp.isnan(values), 0.0, values), 0.0, 1.0)


def normal(key: PRNGKey, means: Array) -> Array:
  """Draws standard normal noise of the shape and type of `means`."""
  return additive.standard_normal(key, means.shape).astype(means.dtype)


@functools.cache
def _maximum_draw(family: Family) -> Draw:
  """Returns the sampler without noise."""
  def draw(key: PRNGKey, means: Array, scales: Scales) -> Array:
    del key
    return maximum(family, means, scales.radius)
  return draw


@functools.cache
def _output_draw(family: Family) -> Draw:
  """Returns the sampler with noise on the estimate, projected on the box."""
  def draw(key: PRNGKey, means: Array, scales: Scales) -> Array:
    # Projection on the box is post-processing and only lowers the error.
    noisy = (maximum(family, means, scales.radius)
             + scales.noise * normal(key, means))
    return jnp.clip(additive.on_grid(noisy, scales.noise), -scales.radius,
                    scales.radius)
  return draw


def _noisy(key: PRNGKey, means: Array, noise: Array, pure: bool) -> Array:
  """Returns the means with K-norm noise if `pure`, else with Gaussian noise."""
  if pure:
    unit = k_norm.unit_noise(key, means.size, order=math.inf).astype(
        means.dtype)
  else:
    unit = normal(key, means)
  return additive.on_grid(means + noise * unit, noise)


@functools.cache
def _statistics_draw(family: Family, pure: bool) -> Draw:
  """Returns the sampler with noise on the means, then the maximum."""
  def draw(key: PRNGKey, means: Array, scales: Scales) -> Array:
    return maximum(family, _noisy(key, means, scales.noise, pure),
                   scales.radius)
  return draw


@functools.cache
def _rule_draw(pure: bool) -> Draw:
  """Returns the sampler with noise on the means, then a table of estimates."""
  def draw(key: PRNGKey, means: Array, rule: Rule) -> Array:
    return jnp.interp(_noisy(key, means, rule.noise, pure), rule.places,
                      rule.estimates)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaximumLikelihood(LikelihoodEstimator):
  """The maximum likelihood estimate, for comparison. Not private."""

  @property
  def event(self) -> accounting.DpEvent:
    """Event of a release without privacy."""
    return accounting.non_private_event()

  @property
  def draw(self) -> Draw:
    """Jittable sampler; it adds no noise."""
    return _maximum_draw(self.model.family)

  @property
  def parameters(self) -> Scales:
    """Radius of the box, and no noise."""
    return Scales(precision.double(self.model.radius), precision.double(0.0))

  def bound(self, curvature: float) -> float:
    """Bounds E ||theta_ML - theta||^2 where every T_j has this variance.

    The bound is tr C / (n lambda^2): maxima are 1/lambda-Lipschitz in the
    means.
    """
    lambd = self.model.strong_convexity
    return self.model.dimension * curvature / (self.num_examples * lambd**2)


def noise_scale(model: Model, *, num_examples: int,
                guarantee: Guarantee) -> float:
  """Returns the noise scale of the means of T, for each coordinate.

  Args:
    model: model of the records.
    num_examples: n.
    guarantee: guarantee of the release, under REPLACE_ONE.

  Returns:
    The standard deviation of Gaussian noise, sqrt(d) / (n mu); under pure
    privacy the scale 1 / (n epsilon) of `k_norm.unit_noise` of order inf.

  Raises:
    ValueError: if the guarantee allows everything, or nothing.
  """
  sensitivity = model.diameter / num_examples
  match guarantee:
    case notions.PureDP(epsilon=epsilon):
      # One record moves the means within a cube of half-width 1 / n.
      return 1 / (num_examples * errors.check_positive('epsilon', epsilon))
    case _:
      return sensitivity / errors.check_positive(
          'shift of Gaussian noise', gaussian_noise.shift(guarantee))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SufficientStatistics(LikelihoodEstimator):
  """Adds noise to the means of T and maximises the likelihood.

  Privacy: `guarantee` under REPLACE_ONE, for real arithmetic.

  Attributes:
    guarantee: guarantee of one release.
  """
  guarantee: Guarantee

  def __post_init__(self) -> None:
    super().__post_init__()
    noise_scale(self.model, num_examples=self.num_examples,
                guarantee=self.guarantee)

  @property
  def noise(self) -> float:
    """Scale of the noise, see `noise_scale`."""
    return noise_scale(self.model, num_examples=self.num_examples,
                       guarantee=self.guarantee)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost: one Gaussian release, or one of pure privacy."""
    if isinstance(self.guarantee, notions.PureDP):
      return accounting.pure_event(epsilon=self.guarantee.epsilon,
                                   adjacency=self.adjacency)
    sensitivity = self.model.diameter / self.num_examples
    # The event's multiplier is relative to one record's norm, which the
    # accountant doubles under REPLACE_ONE: hence the factor 2.
    return accounting.gaussian_event(
        noise_multiplier=2 * self.noise / sensitivity)

  @property
  def draw(self) -> Draw:
    """Jittable sampler, with Gaussian or with K-norm noise."""
    return _statistics_draw(self.model.family,
                            isinstance(self.guarantee, notions.PureDP))

  @property
  def parameters(self) -> Scales | Rule:
    """Radius of the box and noise scale."""
    return Scales(precision.double(self.model.radius),
                  precision.double(self.noise))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinimaxStatistics(SufficientStatistics):
  """Adds noise to the means of T and applies the rule of `least_favourable`.

  Privacy: that of `SufficientStatistics`, of which it is post-processing.
  """

  def __post_init__(self) -> None:
    super().__post_init__()
    if not least_favourable.is_resolved(
        self.model, num_examples=self.num_examples, noise=self.noise):
      raise ValueError(f'num_examples = {self.num_examples} is too large for '
                       'the grid of this rule: take SufficientStatistics')

  @property
  def design(self) -> least_favourable.Design:
    """The rule; it depends on public numbers only."""
    return least_favourable.design(
        self.model, num_examples=self.num_examples, noise=self.noise,
        guarantee=self.guarantee)

  @property
  def draw(self) -> Draw:
    """Jittable sampler of noise and rule."""
    return _rule_draw(isinstance(self.guarantee, notions.PureDP))

  @property
  def parameters(self) -> Rule:
    """The rule and the noise scale."""
    rule = self.design
    return Rule(precision.double(rule.places),
                precision.double(rule.game.estimates),
                precision.double(self.noise))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputPerturbation(LikelihoodEstimator):
  """Adds Gaussian noise to theta_ML and projects on the box.

  Privacy: rho-zCDP under REPLACE_ONE, for real arithmetic.

  Attributes:
    rho: zCDP budget of one release.
    printed: use the printed sensitivity 2 L / (lambda n), valid but larger.
  """
  rho: float
  printed: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_positive('rho', self.rho)

  @property
  def l2_sensitivity(self) -> float:
    """Largest l2 change of theta_ML by one record; attained unless `printed`.
    """
    model = self.model
    if self.printed:
      return 2 * model.lipschitz / (model.strong_convexity * self.num_examples)
    # Worst case: all d means move by 1 / n at an end of the box.
    return model.diameter * model.steepest(1 / self.num_examples)

  @property
  def noise(self) -> float:
    """Standard deviation of each coordinate's noise, before the projection."""
    return self.l2_sensitivity / math.sqrt(2 * self.rho)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one Gaussian release."""
    return accounting.gaussian_event(noise_multiplier=math.sqrt(2 / self.rho))

  @property
  def draw(self) -> Draw:
    """Jittable sampler: maximum, noise, projection."""
    return _output_draw(self.model.family)

  @property
  def parameters(self) -> Scales:
    """Radius of the box and noise scale."""
    return Scales(precision.double(self.model.radius),
                  precision.double(self.noise))
