"""Private maximum likelihood by one noisy number for each coordinate.

Three ways through the means of T, d numbers that one record moves by 1/n each,
all of them free of iterations and of the smoothness of the likelihood:

* `MaximumLikelihood`, without privacy: E ||theta_ML - theta||^2 <= d A''(theta)
  / (n lambda^2) at every n (thesis 000, equation (4.8) has it as a limit in
  law, which bounds no moment; item EST-MLE, erratum E-25).
* `OutputPerturbation`: theta_ML plus Gaussian noise, back into the box (item
  EXT-OUTPERT). What a record moves theta_ML by is that at the ends of the box.
* `SufficientStatistics`: noise on the means, then the maximum (item EXT-SSP).
  Noise of the means is magnified by the curvature where theta is and not by the
  smallest one, so this is the one to use. Where T of a record fills the cube,
  noise of equal variances is the best Gaussian one (its covariance may be
  averaged over changes of sign, and v' S^-1 v over vertices v is tr S^-1);
  under pure privacy the noise is that of the cube's own norm, d (d + 1) (d + 2)
  / 3 against 2 d^3 of independent Laplace noise.
* `MinimaxStatistics`: the same noisy means, and of all that can be made of them
  the estimate of least worst risk over the box. Up to a third less risk where
  noise or the sample leave the box in doubt, at times less than theta_ML has.
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
from dpjax.stats.minimax.bounds import Guarantee
from dpjax.stats.parametric import gaussian_noise
from dpjax.stats.parametric import least_favourable
from dpjax.stats.parametric.estimator import Draw, Estimator
from dpjax.stats.parametric.exponential_families import (Family, Model,
                                                         maximum)
from dpjax.typing import Array, PRNGKey


class Scales(NamedTuple):
  """Numbers of a law; float64.

  Attributes:
    radius: b.
    noise: of each coordinate; 0 for none.
  """
  radius: Array
  noise: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class LikelihoodEstimator(Estimator):
  """Base of those that see means of T alone.

  Attributes:
    model: of the records.
  """
  model: Model

  def statistic(self, data: Array) -> Array:
    """[d]: means of records [n, d], cut to [0, 1]; missing ones count as 0."""
    return jnp.mean(records(data, self.model), axis=0)


def records(data: Array, model: Model) -> Array:
  """[n, d] in [0, 1], float64, of anything of that shape.

  Raises:
    ValueError: for another number of coordinates.
  """
  if data.ndim != 2 or data.shape[1] != model.dimension:
    raise ValueError(f'records must have {model.dimension} coordinates, got an '
                     f'array of shape {data.shape}')
  found = precision.double(data)
  return jnp.clip(jnp.where(jnp.isnan(found), 0.0, found), 0.0, 1.0)


def normal(key: PRNGKey, means: Array) -> Array:
  """Standard normal draws like `means`."""
  return additive.standard_normal(key, means.shape).astype(means.dtype)


@functools.cache
def _maximum_draw(family: Family) -> Draw:
  def draw(key, means, scales):
    del key
    return maximum(family, means, scales.radius)
  return draw


@functools.cache
def _output_draw(family: Family) -> Draw:
  def draw(key, means, scales):
    noisy = (maximum(family, means, scales.radius)
             + scales.noise * normal(key, means))
    return jnp.clip(additive.on_grid(noisy, scales.noise), -scales.radius,
                    scales.radius)
  return draw


def _noisy(key, means: Array, noise: Array, pure: bool) -> Array:
  if pure:
    unit = k_norm.unit_noise(key, means.size, order=math.inf).astype(
        means.dtype)
  else:
    unit = normal(key, means)
  return additive.on_grid(means + noise * unit, noise)


@functools.cache
def _statistics_draw(family: Family, pure: bool) -> Draw:
  def draw(key, means, scales):
    return maximum(family, _noisy(key, means, scales.noise, pure),
                   scales.radius)
  return draw


@functools.cache
def _rule_draw(pure: bool) -> Draw:
  def draw(key, means, rule):
    return jnp.interp(_noisy(key, means, rule.noise, pure), rule.places,
                      rule.estimates)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaximumLikelihood(LikelihoodEstimator):
  """The maximum itself: what privacy is compared with. Not private."""

  @property
  def event(self) -> accounting.DpEvent:
    """No guarantee."""
    return accounting.non_private_event()

  @property
  def draw(self) -> Draw:
    """No noise."""
    return _maximum_draw(self.model.family)

  @property
  def parameters(self) -> Scales:
    """The box."""
    return Scales(precision.double(self.model.radius), precision.double(0.0))

  def bound(self, curvature: float) -> float:
    """Of E ||theta_ML - theta||^2 for coordinates of this variance of T.

    tr C / (n lambda^2): maxima are 1/lambda-Lipschitz in the means.
    """
    lambd = self.model.strong_convexity
    return self.model.dimension * curvature / (self.num_examples * lambd**2)


def noise_scale(model: Model, *, num_examples: int,
                guarantee: Guarantee) -> float:
  """Of the noise of means of T, in each coordinate.

  Args:
    model: of the records.
    num_examples: n.
    guarantee: under REPLACE_ONE.

  Returns:
    The deviation of Gaussian noise, sqrt(d) / (n mu); under pure privacy the
    scale 1 / (n epsilon) of `k_norm.unit_noise` of order inf.

  Raises:
    ValueError: where nothing is promised, or everything.
  """
  moved = model.diameter / num_examples
  match guarantee:
    case notions.PureDP(epsilon=epsilon):
      return 1 / (num_examples * errors.check_positive('epsilon', epsilon))
    case _:
      return moved / errors.check_positive(
          'shift of Gaussian noise', gaussian_noise.shift(guarantee))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SufficientStatistics(LikelihoodEstimator):
  """Noise on the means of T, then the maximum.

  Guarantee: `guarantee` under REPLACE_ONE, for real arithmetic.

  Attributes:
    guarantee: of one release.
  """
  guarantee: Guarantee

  def __post_init__(self):
    super().__post_init__()
    noise_scale(self.model, num_examples=self.num_examples,
                guarantee=self.guarantee)

  @property
  def noise(self) -> float:
    """`noise_scale` of it."""
    return noise_scale(self.model, num_examples=self.num_examples,
                       guarantee=self.guarantee)

  @property
  def event(self) -> accounting.DpEvent:
    """One Gaussian release, or one of pure privacy."""
    if isinstance(self.guarantee, notions.PureDP):
      return accounting.pure_event(epsilon=self.guarantee.epsilon,
                                   adjacency=self.adjacency)
    moved = self.model.diameter / self.num_examples
    # Under REPLACE_ONE the accountant doubles what one record contributes.
    return accounting.gaussian_event(noise_multiplier=2 * self.noise / moved)

  @property
  def draw(self) -> Draw:
    """Of Gaussian or of K-norm noise."""
    return _statistics_draw(self.model.family,
                            isinstance(self.guarantee, notions.PureDP))

  @property
  def parameters(self) -> Scales:
    """The box and the noise."""
    return Scales(precision.double(self.model.radius),
                  precision.double(self.noise))


class Rule(NamedTuple):
  """Numbers of a rule; float64.

  Attributes:
    places: [Y] noisy means.
    estimates: [Y].
    noise: of each coordinate.
  """
  places: Array
  estimates: Array
  noise: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinimaxStatistics(SufficientStatistics):
  """Noise on the means of T, then the rule of `least_favourable`.

  Guarantee: that of `SufficientStatistics`, of which it is post-processing.
  """

  def __post_init__(self):
    super().__post_init__()
    if not least_favourable.is_resolved(
        self.model, num_examples=self.num_examples, noise=self.noise):
      raise ValueError(f'num_examples = {self.num_examples} is too large for '
                       'the grid of this rule: take SufficientStatistics')

  @property
  def design(self) -> least_favourable.Design:
    """The rule, of public numbers."""
    return least_favourable.design(
        self.model, num_examples=self.num_examples, noise=self.noise,
        guarantee=self.guarantee)

  @property
  def draw(self) -> Draw:
    """Noise and rule."""
    return _rule_draw(isinstance(self.guarantee, notions.PureDP))

  @property
  def parameters(self) -> Rule:
    """The rule and the noise."""
    found = self.design
    return Rule(*map(precision.double, (found.places, found.game.estimates,
                                        self.noise)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputPerturbation(LikelihoodEstimator):
  """theta_ML plus Gaussian noise, projected on the box.

  Guarantee: rho-zCDP under REPLACE_ONE, for real arithmetic.

  Attributes:
    rho: of one release.
    printed: calibrates by 2 L / (lambda n), which is valid and larger.
  """
  rho: float
  printed: bool = False

  def __post_init__(self):
    super().__post_init__()
    errors.check_positive('rho', self.rho)

  @property
  def l2_sensitivity(self) -> float:
    """How far one record moves theta_ML; attained unless `printed`."""
    model = self.model
    if self.printed:
      return 2 * model.lipschitz / (model.strong_convexity * self.num_examples)
    return model.diameter * model.steepest(1 / self.num_examples)

  @property
  def noise(self) -> float:
    """Deviation in each coordinate, before the projection."""
    return self.l2_sensitivity / math.sqrt(2 * self.rho)

  @property
  def event(self) -> accounting.DpEvent:
    """One Gaussian release."""
    return accounting.gaussian_event(noise_multiplier=math.sqrt(2 / self.rho))

  @property
  def draw(self) -> Draw:
    """Maximum, noise, projection."""
    return _output_draw(self.model.family)

  @property
  def parameters(self) -> Scales:
    """The box and the noise."""
    return Scales(precision.double(self.model.radius),
                  precision.double(self.noise))
