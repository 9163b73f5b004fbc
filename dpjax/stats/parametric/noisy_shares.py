"""Noisy counts of ones, as estimates of their probability.

The count gets noise, is divided by n, and is drawn to 1/2, by which
post-processing the largest risk falls to within a few per cent of the best
there is, or is looked up in a table that is best. Under REPLACE_ONE, n public,
the count moves by 1. Source: thesis 000, section 4.1.1 (item EST-BERN-*,
EXT-BERN-SHRINK, EXT-GEOM, erratum E-09).
"""

import abc
import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.stats.minimax import proportions_exact
from dpjax.stats.parametric import estimator
from dpjax.stats.parametric import proportion_bounds
from dpjax.typing import Array, PRNGKey


class Parameters(NamedTuple):
  """Of a noisy count.

  Attributes:
    num_examples: n.
    scale: of the noise.
    share: of what is told, the rest being 1/2.
  """
  num_examples: np.ndarray
  scale: np.ndarray
  share: np.ndarray


def _ones(data: Array) -> Array:
  return jnp.sum(jnp.round(data) == 1, dtype=jnp.float64)[None]


def _drawn_in(noisy: Array, parameters: Parameters) -> Array:
  return 0.5 + parameters.share * (noisy / parameters.num_examples - 0.5)


def _draw_exact(key: PRNGKey, count: Array, parameters: Parameters) -> Array:
  del key
  return _drawn_in(count, parameters)


def _draw_laplace(key: PRNGKey, count: Array, parameters: Parameters) -> Array:
  noise = parameters.scale * draws.standard_laplace(key, count.shape,
                                                    jnp.float64)
  return _drawn_in(additive.on_grid(count + noise, parameters.scale),
                   parameters)


def _draw_geometric(key: PRNGKey, count: Array,
                    parameters: Parameters) -> Array:
  return _drawn_in(count + draws.discrete_laplace(
      key, count.shape, parameters.scale, jnp.float64), parameters)


def _draw_gaussian(key: PRNGKey, count: Array, parameters: Parameters) -> Array:
  noise = parameters.scale * additive.standard_normal(key, count.shape).astype(
      jnp.float64)
  return _drawn_in(additive.on_grid(count + noise, parameters.scale),
                   parameters)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyShare(estimator.Estimator):
  """Base: 1/2 + share (noisy count / n - 1/2).

  Attributes:
    share: in (0, 1]; 1 is the noisy mean itself, towards 0 it is 1/2.
  """
  share: float = 1.0

  def __post_init__(self):
    super().__post_init__()
    errors.check_probability('share', self.share)

  @property
  @abc.abstractmethod
  def scale(self) -> float:
    """Of the noise on the count."""

  @property
  @abc.abstractmethod
  def count_variance(self) -> float:
    """Of the noise on the count."""

  @property
  def parameters(self) -> Parameters:
    """n, scale and share."""
    return Parameters(*map(np.float64, (self.num_examples, self.scale,
                                        self.share)))

  def statistic(self, data: Array) -> Array:
    """The number of ones [1]; what is no 1 after rounding counts as 0."""
    return _ones(data)

  def risk(self, num_values: int = 1) -> float:
    """The variance that noise adds."""
    return num_values * self.share**2 * self.count_variance / (
        self.num_examples**2)

  def population_risk(self, prob: np.ndarray | float) -> np.ndarray | float:
    """Expected squared error as an estimate of p, exact, elementwise."""
    return (self.share**2 * prob * (1 - prob) / self.num_examples
            + self.risk() + (1 - self.share)**2 * (prob - 0.5)**2)

  def worst_risk(self) -> float:
    """The largest over p: it is linear in (p - 1/2)^2."""
    return max(self.population_risk(0.5), self.population_risk(0.0))

  def shrunk(self) -> 'NoisyShare':
    """The same noise, drawn to 1/2 by as much as is best for the worst p."""
    noise = self.count_variance / self.num_examples**2
    root = math.sqrt(self.num_examples)
    return dataclasses.replace(
        self, share=min(root / (1 + root), 0.25 / (noise + 0.25)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmpiricalShare(NoisyShare):
  """The mean of records; no privacy (EST-BERN-EMP).

  `shrunk` it is minimax: 1 / (4 (1 + sqrt n)^2).
  """
  draw = staticmethod(_draw_exact)
  scale = 0.0
  count_variance = 0.0

  @property
  def event(self) -> accounting.DpEvent:
    """No privacy."""
    return accounting.non_private_event()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PureShare(NoisyShare):
  epsilon: float

  def __post_init__(self):
    super().__post_init__()
    errors.check_positive('epsilon', self.epsilon)

  @property
  def scale(self) -> float:
    """1 / epsilon."""
    return 1 / self.epsilon


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceShare(_PureShare):
  """Laplace noise on the count: epsilon-DP (EST-BERN-LAP, EXT-BERN-SHRINK).

  Attributes:
    epsilon: of one release.
  """
  draw = staticmethod(_draw_laplace)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs; a record adds at most 1/2 to the centred sum."""
    return accounting.laplace_event(noise_multiplier=2 * self.scale)

  @property
  def count_variance(self) -> float:
    """2 / epsilon^2."""
    return 2 * self.scale**2


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeometricShare(_PureShare):
  """Two-sided geometric noise on the count: epsilon-DP (EXT-GEOM).

  The released count is an integer.

  Attributes:
    epsilon: of one release.
  """
  draw = staticmethod(_draw_geometric)

  @property
  def event(self) -> accounting.DpEvent:
    """epsilon: of integers that move by 1 the library knows no event."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  def count_variance(self) -> float:
    """1 / (2 sinh^2(epsilon / 2)), below 2 / epsilon^2."""
    return 0.5 / math.sinh(min(self.epsilon, 600.0) / 2)**2


def _draw_table(key: PRNGKey, count: Array, parameters: 'Table') -> Array:
  noisy = count + draws.discrete_laplace(key, count.shape, parameters.scale,
                                         jnp.float64)
  place = jnp.clip(noisy, 0, parameters.values.shape[0] - 1)
  return jnp.asarray(parameters.values)[place.astype(jnp.int32)]


class Table(NamedTuple):
  """Of a noisy count that is looked up.

  Attributes:
    scale: of the noise.
    values: [n + 1] the estimate for each noisy count.
  """
  scale: np.ndarray
  values: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinimaxShare(estimator.Estimator):
  """The best there is: a table of truncated geometric counts, epsilon-DP.

  Its worst risk is within half a per cent of what any epsilon-DP estimate can
  have (`proportions_exact`). For n where counts need not be taken in steps.

  Attributes:
    epsilon: of one release.
  """
  epsilon: float
  draw = staticmethod(_draw_table)

  def __post_init__(self):
    super().__post_init__()
    errors.check_positive('epsilon', self.epsilon)
    if self.solution.values is None:
      raise ValueError(f'num_examples = {self.num_examples} is too large for a '
                       f'table at epsilon = {self.epsilon}')

  @property
  def solution(self) -> proportions_exact.Solution:
    """Bounds of its worst risk, and the table."""
    return proportion_bounds.solved(self.num_examples, self.epsilon)

  @property
  def event(self) -> accounting.DpEvent:
    """epsilon, as of `GeometricShare`."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  def parameters(self) -> Table:
    """Scale and table."""
    return Table(np.float64(1 / self.epsilon), self.solution.values)

  def statistic(self, data: Array) -> Array:
    """The number of ones [1]."""
    return _ones(data)

  def worst_risk(self) -> float:
    """The largest over p."""
    return self.solution.upper


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianShare(NoisyShare):
  """Gaussian noise on the count: rho-zCDP (EST-BERN-GAUSS).

  Attributes:
    rho: of one release.
    printed: the thesis's standard deviation 2 / sqrt(rho), which gives rho / 8
      at eight times the variance; its event says so (erratum E-09).
  """
  rho: float
  printed: bool = False
  draw = staticmethod(_draw_gaussian)

  def __post_init__(self):
    super().__post_init__()
    errors.check_positive('rho', self.rho)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs; a record adds at most 1/2 to the centred sum."""
    return accounting.gaussian_event(noise_multiplier=2 * self.scale)

  @property
  def scale(self) -> float:
    """1 / sqrt(2 rho)."""
    return 2 / math.sqrt(self.rho) if self.printed else math.sqrt(
        0.5 / self.rho)

  @property
  def count_variance(self) -> float:
    """The square of `scale`."""
    return self.scale**2
