"""The upper end theta of a uniform distribution on [0, theta], theta <= 1.

Estimates by the largest record and by twice the mean, without privacy and with
a curator. Without privacy the largest record is better by a factor of n. With
noise on it, it is not even consistent, and twice the mean, called the weaker
estimate in the lecture notes (chapter 7, Exercise 7.36), is the better one
(item EST-04..08, erratum L-E15). The failing estimators are kept and marked as
such; `support_ranks` keeps the rate of the largest record.
"""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.laplace import LaplaceMechanism
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import estimator
from dpjax.theory.parametric import study
from dpjax.theory.parametric import subsampling
from dpjax.theory.parametric import support_bounds
from dpjax.theory.parametric import support_ranks
from dpjax.theory.parametric.study import Upper
from dpjax.typing import Array, PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMaximum:
  """The largest record plus Laplace noise: private, and useless (EST-05a).

  The largest record changes by up to 1 if a record is added or replaced, for
  any n; the risk tends to 2 / epsilon^2. Privacy: epsilon-DP under `adjacency`.

  Attributes:
    epsilon: privacy budget of one release.
    adjacency: which data sets are neighbours.
  """
  epsilon: float
  adjacency: Adjacency

  def __post_init__(self) -> None:
    errors.check_positive('epsilon', self.epsilon)
    check_adjacency(self.adjacency)

  @property
  def noise(self) -> LaplaceMechanism:
    """Laplace mechanism of l1 sensitivity 1 under either adjacency."""
    replacing = self.adjacency is Adjacency.REPLACE_ONE
    return LaplaceMechanism(record_norm=0.5 if replacing else 1.0,
                            epsilon=self.epsilon, adjacency=self.adjacency)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return self.noise.event

  def release(self, key: PRNGKey, data: Array) -> Array:
    """Returns the noisy maximum of records [n], clipped to [0, 1]; a scalar."""
    # A record must not break the release: NaN counts as 0, no records as [0].
    values = jnp.nan_to_num(data.astype(jnp.float32))
    top = jnp.max(values, initial=0.0)
    return self.noise.release(key, jnp.minimum(top, 1.0))

  def risk(self, num_values: int) -> float:
    """Returns the mean squared error as the largest of these records."""
    return self.noise.risk(num_values)


def _doubled(noisy: Array, parameters: np.ndarray) -> Array:
  """Returns twice the noisy mean, clipped to [0, 1]."""
  return jnp.clip(2 * noisy / parameters[1], 0.0, 1.0)


def _draw_laplace(key: PRNGKey, total: Array, parameters: np.ndarray) -> Array:
  """Samples with Laplace noise on the total, rounded to a grid."""
  noise = parameters[0] * draws.standard_laplace(key, total.shape, jnp.float64)
  return _doubled(additive.on_grid(total + noise, parameters[0]), parameters)


def _draw_gaussian(key: PRNGKey, total: Array, parameters: np.ndarray) -> Array:
  """Samples with Gaussian noise on the total, rounded to a grid."""
  noise = parameters[0] * additive.standard_normal(key, total.shape).astype(
      jnp.float64)
  return _doubled(additive.on_grid(total + noise, parameters[0]), parameters)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanSupport(estimator.Estimator):
  """Twice the noisy mean, clipped to [0, 1]; the statistic is the total.

  Where n epsilon is below sqrt n it errs less than `support_ranks`.

  Attributes:
    guarantee: `PureDP`, by Laplace noise, or `ZCDP`, by Gaussian noise.
  """
  guarantee: notions.PureDP | notions.ZCDP

  def __post_init__(self) -> None:
    super().__post_init__()
    if not isinstance(self.guarantee, (notions.PureDP, notions.ZCDP)):
      raise ValueError(f'guarantee must be PureDP or ZCDP, got '
                       f'{self.guarantee}')
    errors.check_positive('budget', self._budget)

  @property
  def _budget(self) -> float:
    """The budget epsilon, or rho."""
    if isinstance(self.guarantee, notions.PureDP):
      return self.guarantee.epsilon
    return self.guarantee.rho

  @property
  def _pure(self) -> bool:
    """Whether the budget is epsilon."""
    return isinstance(self.guarantee, notions.PureDP)

  @property
  def scale(self) -> float:
    """Scale of the noise on the total, whose sensitivity is 1."""
    return 1 / self._budget if self._pure else math.sqrt(0.5 / self._budget)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release.

    A record adds at most 1/2 to the centred sum.
    """
    make = accounting.laplace_event if self._pure else accounting.gaussian_event
    return make(noise_multiplier=2 * self.scale)

  @property
  def draw(self) -> estimator.Draw:
    """Jittable sampler (key, total, parameters) -> estimate."""
    return _draw_laplace if self._pure else _draw_gaussian

  @property
  def parameters(self) -> np.ndarray:
    """Noise scale of the total, and n."""
    return np.array([self.scale, self.num_examples], np.float64)

  def statistic(self, data: Array) -> Array:
    """Returns the total [1] of records clipped to [0, 1]; NaN counts as 0."""
    return jnp.sum(jnp.clip(jnp.nan_to_num(data.astype(jnp.float64)), 0, 1)
                   )[None]

  def population_risk(self, theta: float) -> float:
    """Returns the mean squared error before clipping, which only lowers it."""
    # Laplace noise of scale b has variance 2 b^2; the estimate doubles it.
    noise = self.scale**2 * (2 if self._pure else 1)
    return theta**2 / (3 * self.num_examples) + 4 * noise / (
        self.num_examples**2)


def estimators(*, num_examples: int, guarantee: Guarantee
               ) -> tuple[MeanSupport | support_ranks.RankedSupport, ...]:
  """Returns estimators that keep a guarantee.

  Empty for total variation privacy and for budgets of 0.
  """
  n = num_examples
  match guarantee:
    case notions.PureDP(epsilon=epsilon) | notions.ApproxDP(
        epsilon=epsilon) if epsilon:
      # These estimators gain nothing from delta: treat it as pure.
      pure = notions.PureDP(epsilon=epsilon)
      mean = MeanSupport(num_examples=n, guarantee=pure)
      concentrated = False
    case notions.ZCDP(rho=rho) | notions.KullbackLeiblerPrivacy(
        level=rho) if rho:
      mean = MeanSupport(num_examples=n, guarantee=notions.ZCDP(rho=rho))
      # A choice by rank at this epsilon is epsilon^2 / 8 = rho-zCDP.
      epsilon, concentrated = math.sqrt(8 * rho), True
    case _:
      return ()
  if n < 2:
    return (mean,)
  return mean, support_ranks.RankedSupport(
      num_examples=n, epsilon=epsilon, concentrated=concentrated)


def _upper(*, num_examples: int, guarantee: Guarantee) -> tuple[Upper, ...]:
  """Returns the estimators that keep the guarantee, with their squared risks.
  """
  n = num_examples
  match guarantee:
    case None:
      return (Upper(support_bounds.non_private(n), 'largest record', True),)
    case notions.TotalVariationPrivacy(level=level):
      if n * level < 1:
        return ()
      return (Upper(support_bounds.non_private(subsampling.subset_size(
          n, level)), 'largest of a subset', True),)
  return tuple(
      Upper(support.population_risk(1.0), 'twice the mean', False)
      if isinstance(support, MeanSupport) else
      Upper(support.worst_risk(), 'a rank near the largest', False)
      for support in estimators(num_examples=n, guarantee=guarantee))


def _absolute_upper(*, num_examples: int,
                    guarantee: Guarantee) -> tuple[Upper, ...]:
  """Returns square roots of squared risks, and the largest of a subset."""
  if isinstance(guarantee, notions.TotalVariationPrivacy):
    if num_examples * guarantee.level < 1:
      return ()
    size = subsampling.subset_size(num_examples, guarantee.level)
    return (Upper(support_bounds.absolute_non_private(size),
                  'largest of a subset', True),)
  if guarantee is None:
    return (Upper(support_bounds.absolute_non_private(num_examples),
                  'largest record', True),)
  return tuple(Upper(math.sqrt(value), name, False) for value, name, _ in
               _upper(num_examples=num_examples, guarantee=guarantee))


_NOTIONS = (notions.PureDP, notions.ApproxDP, notions.ZCDP,
            notions.TotalVariationPrivacy, notions.KullbackLeiblerPrivacy)

STUDY = study.Study(
    name='support_max',
    help='theta of the uniform distribution on [0, theta], theta in (0, 1]',
    loss='squared error', parameters={}, lower=support_bounds.lower,
    upper=_upper,
    non_private=lambda *, num_examples, guarantee=None: (
        support_bounds.non_private(num_examples)),
    trivial=support_bounds.trivial, notions=_NOTIONS)

ABSOLUTE = study.Study(
    name='support_max_absolute',
    help='theta of the uniform distribution on [0, theta], theta in (0, 1]',
    loss='absolute error', parameters={}, lower=support_bounds.absolute_lower,
    upper=_absolute_upper,
    non_private=lambda *, num_examples, guarantee=None: (
        support_bounds.absolute_non_private(num_examples)),
    trivial=support_bounds.absolute_trivial, notions=_NOTIONS)
