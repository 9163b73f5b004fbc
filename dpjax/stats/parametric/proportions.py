"""A proportion: what privacy costs.

The count of ones gets noise, is divided by n, and is drawn to 1/2, by which
post-processing the largest risk falls to within a third of the best there is.
Under REPLACE_ONE, n public, the count moves by 1. Risks are expected squared
errors. Source: thesis 000, equations (4)-(11) and section 4.1.1 (spec INT-03,
EST-BERN-*, EXT-BERN-SHRINK, EXT-GEOM, erratum E-09).
"""

import abc
import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy import notions
from dpjax.stats.mean import BoundedMean
from dpjax.stats.minimax.bounds import Guarantee
from dpjax.stats.parametric import estimator
from dpjax.stats.parametric import proportion_bounds
from dpjax.stats.parametric import study
from dpjax.stats.parametric import subsampling
from dpjax.stats.parametric.study import Upper
from dpjax.typing import Array, PRNGKey


def proportion(*, num_examples: int, epsilon: float, confidence: float = 0.95,
               interval: str = 'exact') -> BoundedMean:
  """The mechanism of the share of ones among n zeros and ones.

  Its interval is for the probability of a one.
  """
  return BoundedMean(num_examples=num_examples, lower=0.0, upper=1.0,
                     epsilon=epsilon, confidence=confidence, interval=interval)


def risk(prob: float, *, num_examples: int, epsilon: float) -> float:
  """Of `proportion`: p (1 - p) / n + 2 / (n epsilon)^2."""
  return proportion(num_examples=num_examples, epsilon=epsilon
                    ).population_risk(prob * (1 - prob))


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
    share: in [0, 1]; 1 is the noisy mean itself, 0 the constant 1/2.
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
    return jnp.sum(jnp.round(data) == 1, dtype=jnp.float64)[None]

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
    return 0.5 / math.sinh(self.epsilon / 2)**2


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


def made(*, num_examples: int, guarantee: Guarantee) -> tuple[NoisyShare, ...]:
  """Estimators that keep a guarantee of full strength; shrunk and not.

  None for total variation alone: see `subsampling`.
  """
  n = num_examples
  match guarantee:
    case None:
      found = (EmpiricalShare(num_examples=n),)
    case notions.PureDP(epsilon=epsilon):
      found = (GeometricShare(num_examples=n, epsilon=epsilon),
               LaplaceShare(num_examples=n, epsilon=epsilon))
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      found = () if not epsilon else (
          GeometricShare(num_examples=n, epsilon=epsilon),)
      found += () if not delta else (GaussianShare(
          num_examples=n, rho=accounting.gaussian_shift(
              epsilon=epsilon, delta=delta)**2 / 2),)
    case notions.ZCDP(rho=rho):
      found = (GaussianShare(num_examples=n, rho=rho), GeometricShare(
          num_examples=n, epsilon=_pure_of(rho)))
    case notions.KullbackLeiblerPrivacy(level=level):
      found = (GaussianShare(num_examples=n, rho=level),)
    case _:
      found = ()
  return found + tuple(each.shrunk() for each in found)


def _pure_of(rho: float) -> float:
  """The epsilon of which all mechanisms are rho-zCDP, from below."""
  spent = lambda epsilon: notions.zcdp_from_pure(
      notions.PureDP(epsilon=epsilon)).rho - rho
  # epsilon tanh(epsilon / 2) is below epsilon^2 / 2, and above epsilon - 1.
  return optimize.brentq(spent, math.sqrt(rho), rho + 2 * math.sqrt(rho) + 1)


_NAMES = {EmpiricalShare: 'mean', LaplaceShare: 'Laplace',
          GeometricShare: 'geometric', GaussianShare: 'Gaussian'}


def _upper(*, num_examples: int, guarantee: Guarantee) -> tuple[Upper, ...]:
  if isinstance(guarantee, notions.TotalVariationPrivacy):
    if num_examples * guarantee.level < 1:
      return ()
    size = subsampling.subset_size(num_examples, guarantee.level)
    return (Upper(proportion_bounds.non_private(size), 'subsample, shrunk',
                  True),)
  return tuple(
      Upper(each.worst_risk(), _NAMES[type(each)] + (
          ', shrunk' if each.share < 1 else ''), True)
      for each in made(num_examples=num_examples, guarantee=guarantee))


STUDY = study.Study(
    name='proportion',
    help='the probability p of a one, over all p in [0, 1]',
    loss='squared error', parameters={}, lower=proportion_bounds.lower,
    upper=_upper,
    non_private=lambda *, num_examples, guarantee=None: (
        proportion_bounds.non_private(num_examples)),
    trivial=proportion_bounds.trivial,
    notions=(notions.PureDP, notions.ApproxDP, notions.ZCDP,
             notions.TotalVariationPrivacy, notions.KullbackLeiblerPrivacy))
