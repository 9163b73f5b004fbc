"""Private estimates of a proportion from the noisy count of ones.

The count gets noise, is divided by n, and is shrunk towards 1/2. This
post-processing brings the largest risk to within a few per cent of the best
possible. Alternatively the noisy count is looked up in an optimal table. Under
REPLACE_ONE, n public, the count changes by at most 1. Source: Lalanne (2023,
section 4.1.1) (item EST-BERN-*, EXT-BERN-SHRINK, EXT-GEOM, erratum E-09).
"""

import abc
import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.theory.minimax import proportions_exact
from dpjax.theory.parametric import estimator
from dpjax.theory.parametric import proportion_bounds
from dpjax.typing import Array, PRNGKey


class ShareParameters(NamedTuple):
  """Public parameters of an estimate from a noisy count.

  Attributes:
    num_examples: n.
    scale: scale of the noise.
    weight: weight of the noisy mean; the constant 1/2 has the rest.
  """
  num_examples: ArrayLike
  scale: ArrayLike
  weight: ArrayLike


def _ones(data: Array) -> Array:
  """Returns the number of ones [1]."""
  return jnp.sum(jnp.round(data) == 1, dtype=jnp.float64)[None]


def _shrunk_mean(noisy: Array, parameters: ShareParameters) -> Array:
  """Returns the noisy mean, shrunk towards 1/2."""
  return (noisy / parameters.num_examples - 0.5) * parameters.weight + 0.5


def _draw_exact(key: PRNGKey, count: Array, parameters: ShareParameters
                ) -> Array:
  """Returns the shrunk mean without noise."""
  del key
  return _shrunk_mean(count, parameters)


def _draw_laplace(key: PRNGKey, count: Array, parameters: ShareParameters
                  ) -> Array:
  """Returns an estimate [1] with Laplace noise, rounded to a grid."""
  scale = jnp.asarray(parameters.scale)
  noise = scale * draws.standard_laplace(key, count.shape, jnp.float64)
  return _shrunk_mean(additive.on_grid(count + noise, scale), parameters)


def _draw_geometric(key: PRNGKey, count: Array,
                    parameters: ShareParameters) -> Array:
  """Returns an estimate [1] with two-sided geometric noise."""
  return _shrunk_mean(count + draws.discrete_laplace(
      key, count.shape, jnp.asarray(parameters.scale), jnp.float64), parameters)


def _draw_gaussian(key: PRNGKey, count: Array, parameters: ShareParameters
                   ) -> Array:
  """Returns an estimate [1] with Gaussian noise, rounded to a grid."""
  scale = jnp.asarray(parameters.scale)
  noise = scale * additive.standard_normal(key, count.shape).astype(jnp.float64)
  return _shrunk_mean(additive.on_grid(count + noise, scale), parameters)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyShare(estimator.Estimator):
  """Base class of estimators 1/2 + weight (noisy count / n - 1/2).

  Attributes:
    weight: weight in (0, 1]; 1 gives the noisy mean, small weights give nearly
      1/2.
  """
  weight: float = 1.0

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_probability('weight', self.weight)

  @property
  @abc.abstractmethod
  def scale(self) -> float:
    """Scale of the noise on the count."""

  @property
  @abc.abstractmethod
  def count_variance(self) -> float:
    """Variance of the noise on the count."""

  @property
  def parameters(self) -> ShareParameters:
    """n, noise scale and weight."""
    return ShareParameters(*map(np.float64, (self.num_examples, self.scale,
                                             self.weight)))

  def statistic(self, data: Array) -> Array:
    """Returns the number of ones [1]; values that do not round to 1 count as 0.
    """
    return _ones(data)

  def risk(self, num_values: int = 1) -> float:
    """Returns the variance that noise adds to the estimate."""
    return num_values * self.weight**2 * self.count_variance / (
        self.num_examples**2)

  def population_risk(self, prob: np.ndarray | float) -> np.ndarray | float:
    """Returns the exact mean squared error as an estimate of p, elementwise."""
    return (self.weight**2 * prob * (1 - prob) / self.num_examples
            + self.risk() + (1 - self.weight)**2 * (prob - 0.5)**2)

  def worst_risk(self) -> float:
    """Returns the largest risk over p; the risk is linear in (p - 1/2)^2."""
    return float(max(self.population_risk(0.5), self.population_risk(0.0)))

  def shrunk(self) -> 'NoisyShare':
    """Returns this estimator with the weight of least worst risk."""
    # The weight where the risks at p = 1/2 and p = 0 agree, or a smaller one
    # that minimises the risk at p = 0, which is then the larger.
    noise = self.count_variance / self.num_examples**2
    root = math.sqrt(self.num_examples)
    return dataclasses.replace(
        self, weight=min(root / (1 + root), 0.25 / (noise + 0.25)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmpiricalShare(NoisyShare):
  """The mean of the records; no privacy (EST-BERN-EMP).

  `shrunk()` is minimax, with risk 1 / (4 (1 + sqrt n)^2).
  """
  draw = staticmethod(_draw_exact)
  scale = 0.0
  count_variance = 0.0

  @property
  def event(self) -> accounting.DpEvent:
    """Event of a release without privacy."""
    return accounting.non_private_event()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PureShare(NoisyShare):
  """Base class of estimators with epsilon-DP noise."""
  epsilon: float

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_positive('epsilon', self.epsilon)

  @property
  def scale(self) -> float:
    """Scale of the noise on the count, 1 / epsilon."""
    return 1 / self.epsilon


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceShare(_PureShare):
  """Laplace noise on the count: epsilon-DP (EST-BERN-LAP, EXT-BERN-SHRINK).

  Attributes:
    epsilon: privacy budget of one release.
  """
  draw = staticmethod(_draw_laplace)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release.

    The sum of (record - 1/2) has records of norm 1/2.
    """
    return accounting.laplace_event(noise_multiplier=2 * self.scale)

  @property
  def count_variance(self) -> float:
    """Variance of the noise on the count, 2 / epsilon^2."""
    return 2 * self.scale**2


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeometricShare(_PureShare):
  """Two-sided geometric noise on the count: epsilon-DP (EXT-GEOM).

  The released count is an integer.

  Attributes:
    epsilon: privacy budget of one release.
  """
  draw = staticmethod(_draw_geometric)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost epsilon; there is no tighter event for integer noise."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  def count_variance(self) -> float:
    """Variance 1 / (2 sinh^2(epsilon / 2)), below 2 / epsilon^2."""
    # Clamped, because the square of sinh overflows for large epsilon.
    return 0.5 / math.sinh(min(self.epsilon, 600.0) / 2)**2


def _draw_table(key: PRNGKey, count: Array, parameters: 'Table') -> Array:
  """Returns the estimate [1] that the table has for a noisy count."""
  noisy = count + draws.discrete_laplace(
      key, count.shape, jnp.asarray(parameters.scale), jnp.float64)
  # Noisy counts beyond 0 and n have the estimates of 0 and n.
  values = jnp.asarray(parameters.values)
  return values[jnp.clip(noisy, 0, values.shape[0] - 1).astype(jnp.int32)]


class Table(NamedTuple):
  """A lookup table for noisy counts.

  Attributes:
    scale: scale of the noise.
    values: [n + 1] the estimate for each noisy count.
  """
  scale: ArrayLike
  values: ArrayLike


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinimaxShare(estimator.Estimator):
  """The optimal estimate: a table of truncated geometric counts, epsilon-DP.

  Its worst risk is within half a per cent of the least that any epsilon-DP
  estimate can have (`proportions_exact`). Available for n where noisy counts
  need not be grouped.

  Attributes:
    epsilon: privacy budget of one release.
  """
  epsilon: float
  draw = staticmethod(_draw_table)

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_positive('epsilon', self.epsilon)
    self._table  # Raises if noisy counts would have to be grouped.

  @property
  def _table(self) -> np.ndarray:
    """The estimate for each noisy count [n + 1]."""
    if self.solution.values is None:
      raise ValueError(f'num_examples = {self.num_examples} is too large for a '
                       f'table at epsilon = {self.epsilon}')
    return self.solution.values

  @property
  def solution(self) -> proportions_exact.Solution:
    """Bounds of the worst risk, and the table."""
    return proportion_bounds.solved(self.num_examples, self.epsilon)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost epsilon, as for `GeometricShare`."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  def parameters(self) -> Table:
    """Noise scale and table of estimates."""
    return Table(np.float64(1 / self.epsilon), self._table)

  def statistic(self, data: Array) -> Array:
    """Returns the number of ones [1]."""
    return _ones(data)

  def worst_risk(self) -> float:
    """Returns the largest risk over p."""
    return self.solution.upper


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianShare(NoisyShare):
  """Gaussian noise on the count: rho-zCDP (EST-BERN-GAUSS).

  Attributes:
    rho: zCDP budget of one release.
    printed: use the printed standard deviation 2 / sqrt(rho), which gives rho /
      8 at eight times the variance; the event reports rho / 8 (erratum E-09).
  """
  rho: float
  printed: bool = False
  draw = staticmethod(_draw_gaussian)

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_positive('rho', self.rho)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release.

    The sum of (record - 1/2) has records of norm 1/2.
    """
    return accounting.gaussian_event(noise_multiplier=2 * self.scale)

  @property
  def scale(self) -> float:
    """Standard deviation of the noise on the count, 1 / sqrt(2 rho)."""
    return 2 / math.sqrt(self.rho) if self.printed else math.sqrt(
        0.5 / self.rho)

  @property
  def count_variance(self) -> float:
    """Variance of the noise on the count."""
    return self.scale**2
