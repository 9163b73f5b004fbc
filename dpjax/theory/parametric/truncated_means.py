"""Private means of vectors with a bounded moment: truncate, average, add noise.

Records are projected on a ball of radius T, so that a mean of n changes by at
most 2 T / n in Euclidean norm, and noise of that scale is added:

  l2        density exp(-kappa |w|), kappa = n epsilon / (2 T): epsilon-DP
  laplace   independent coordinates of scale 2 T sqrt(d) / (n epsilon): the
            same, with 2 d / (d + 1) times the variance
  gaussian  rho-zCDP, which is Kullback-Leibler privacy of level rho, (epsilon,
            delta)-DP or total variation, each with the exact scale

l2 and laplace are also smooth: log-ratios are at most epsilon sum_i min(|x_i -
x_i'|, 2 T) / (2 T) for all pairs of data sets. The released mean is multiplied
by a public c. T and c minimise the exact worst risk (`moment_risks.tuned`).
Where the records are bounded, no other post-processing of spherical noise has a
much smaller risk in many dimensions (Pinsker).

Source: Barber and Duchi (2014, equation (20) and Proposition 6) (item
EST-TRUNC-*, EXT-L2, EXT-AGAUSS). Their noise for (epsilon, delta) is less than
the guarantee needs (erratum E-12), and the appendix halves the other two
(E-13): `UNSOUND`.
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import k_norm
from dpjax.privacy import notions
from dpjax.stats import precision
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import estimator
from dpjax.theory.parametric import gaussian_noise
from dpjax.theory.parametric import moment_bounds
from dpjax.theory.parametric import moment_risks
from dpjax.theory.parametric import study
from dpjax.theory.parametric import subsampling
from dpjax.typing import Array, PRNGKey

_Bounds = TypeVar('_Bounds')

NOISES = ('gaussian', 'l2', 'laplace')
UNSOUND = ('printed_gaussian', 'appendix_gaussian', 'appendix_laplace')


class MeanParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    scale: scale of the noise.
    shrinkage: c.
  """
  scale: ArrayLike
  shrinkage: ArrayLike


def relative_scale(noise: str, guarantee: Guarantee, dimension: int) -> float:
  """Returns the noise scale divided by the Euclidean sensitivity.

  Args:
    noise: one of `NOISES`, or of `UNSOUND`, which is printed for the guarantee.
    guarantee: guarantee to keep.
    dimension: d.
  """
  match noise, guarantee:
    case 'l2', notions.PureDP(epsilon=epsilon):
      return 1 / errors.check_positive('epsilon', epsilon)
    case 'laplace' | 'appendix_laplace', notions.PureDP(epsilon=epsilon):
      divisor = 1 if noise == 'laplace' else 2
      return math.sqrt(dimension) / (
          divisor * errors.check_positive('epsilon', epsilon))
    # The shift is sensitivity over standard deviation.
    case 'gaussian', _ if gaussian_noise.shift(guarantee):
      return 1 / gaussian_noise.shift(guarantee)
    case 'printed_gaussian' | 'appendix_gaussian', notions.ApproxDP(
        epsilon=epsilon, delta=delta):
      divisor = 2 if noise == 'printed_gaussian' else 4
      return math.sqrt(math.log(1 / delta) / divisor) / epsilon
    case 'appendix_gaussian', notions.KullbackLeiblerPrivacy(level=level):
      return math.sqrt(1 / (4 * level))
  raise ValueError(f'noise {noise!r} cannot give {guarantee}')


def noise_factor(noise: str, *, num_examples: int, dimension: int,
                 guarantee: Guarantee) -> float:
  """Returns nu: the noise of a mean truncated at T has mean square nu T^2."""
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_at_least('dimension', dimension, 1)
  scale = 2 / num_examples * relative_scale(noise, guarantee, dimension)
  if noise.endswith('gaussian'):
    return dimension * scale**2
  return scale**2 * k_norm.expected_square(dimension, order=_order(noise))


def _order(noise: str) -> int:
  return 2 if noise == 'l2' else 1


def _gaussian(key: PRNGKey, mean: Array, parameters: MeanParameters) -> Array:
  unit = additive.standard_normal(key, mean.shape).astype(mean.dtype)
  return _shrunk(mean + parameters.scale * unit, parameters, 1.0)


def _l2(key: PRNGKey, mean: Array, parameters: MeanParameters) -> Array:
  unit = k_norm.unit_noise(key, mean.size, order=2).astype(mean.dtype)
  # A coordinate of l2 noise is about sqrt d scales wide, which sets the grid.
  return _shrunk(mean + parameters.scale * unit, parameters, mean.size**0.5)


def _laplace(key: PRNGKey, mean: Array, parameters: MeanParameters) -> Array:
  unit = k_norm.unit_noise(key, mean.size, order=1).astype(mean.dtype)
  return _shrunk(mean + parameters.scale * unit, parameters, 1.0)


def _shrunk(noisy: Array, parameters: MeanParameters, typical: float) -> Array:
  """Rounds to the grid of the noise and multiplies by the shrinkage."""
  return additive.on_grid(
      noisy, jnp.asarray(parameters.scale) * typical) * parameters.shrinkage


_DRAWS = {'gaussian': _gaussian, 'l2': _l2, 'laplace': _laplace}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncatedMean(estimator.Estimator):
  """The mean of vectors projected on a ball, with noise, shrunk.

  Privacy: `guarantee` under REPLACE_ONE, for real arithmetic.

  Attributes:
    dimension: d.
    threshold: T, public.
    guarantee: guarantee to keep.
    noise: one of `NOISES`, or of `UNSOUND`.
    shrinkage: c in (0, 1].
    allow_unsound: allow noise that does not keep the guarantee; `event` reports
      the privacy it really gives.
  """
  dimension: int
  threshold: float
  guarantee: Guarantee
  noise: str
  shrinkage: float = 1.0
  allow_unsound: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('dimension', self.dimension, 1)
    errors.check_positive('threshold', self.threshold)
    errors.check_probability('shrinkage', self.shrinkage)
    errors.check_choice('noise', self.noise, NOISES + UNSOUND)
    if self.noise in UNSOUND and not self.allow_unsound:
      raise ValueError(f'noise {self.noise!r} does not keep its guarantee; '
                       'set allow_unsound=True to use it anyway')
    relative_scale(self.noise, self.guarantee, self.dimension)

  @property
  def l2_sensitivity(self) -> float:
    """l2 sensitivity of the mean, 2 T / n."""
    return 2 * self.threshold / self.num_examples

  @property
  def scale(self) -> float:
    """Scale of the noise: a standard deviation, or one over a rate."""
    return self.l2_sensitivity * relative_scale(self.noise, self.guarantee,
                                                self.dimension)

  @property
  def event(self) -> accounting.DpEvent:
    """The true privacy cost of one release, also for unsound noise."""
    scale = relative_scale(self.noise, self.guarantee, self.dimension)
    # Events take noise over the norm of one record, which is half of the
    # sensitivity under REPLACE_ONE.
    if self.noise.endswith('gaussian'):
      return accounting.gaussian_event(noise_multiplier=2 * scale)
    if self.noise == 'l2':
      return accounting.pure_event(epsilon=1 / scale, adjacency=self.adjacency)
    return accounting.laplace_event(
        noise_multiplier=2 * scale / math.sqrt(self.dimension))

  @property
  def draw(self) -> estimator.Draw:
    """Jittable sampler, with one of three kinds of noise."""
    return _DRAWS[self.noise.split('_')[-1]]

  @property
  def parameters(self) -> MeanParameters:
    """Noise scale and shrinkage factor c."""
    return MeanParameters(np.float64(self.scale), np.float64(self.shrinkage))

  @precision.in_float64
  def statistic(self, data: Array) -> Array:
    """Returns the PRIVATE mean [d] of records [n, d] projected on the ball.

    A record that is not finite counts as 0.
    """
    if data.ndim != 2 or data.shape[1] != self.dimension:
      raise ValueError(f'records must be [n, {self.dimension}], got an array '
                       f'of shape {data.shape}')
    data = precision.double(data)
    is_finite = jnp.all(jnp.isfinite(data), 1, keepdims=True)
    data = jnp.where(is_finite, data, 0.0)
    # Scale by the largest coordinate first: squares of large numbers overflow.
    size = jnp.maximum(jnp.max(jnp.abs(data), 1, keepdims=True), 1e-300)
    norm = size * jnp.linalg.norm(data / size, axis=1, keepdims=True)
    return jnp.mean(data * jnp.minimum(1.0, self.threshold / norm), 0)

  @precision.in_float64
  def log_density(self, data: Array, outputs: Array) -> Array:
    """Returns log-densities [m] of outputs [m, d] given records [n, d].

    The rounding grid is ignored. Only the mean differs between data sets, so
    smooth privacy bounds the differences (item DEF-SMOOTH).
    """
    offsets = (precision.double(outputs) / self.shrinkage
               - self.statistic(data)[None])
    d, scale = self.dimension, self.scale
    constant = -d * math.log(scale * self.shrinkage)
    if self.draw is _gaussian:
      return constant - d / 2 * math.log(2 * math.pi) - jnp.sum(
          jnp.square(offsets / scale), -1) / 2
    if self.draw is _laplace:
      return constant - d * math.log(2) - jnp.sum(jnp.abs(offsets), -1) / scale
    area = math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2)
    return constant - area - math.lgamma(d) - jnp.linalg.norm(
        offsets, axis=-1) / scale

  def risk(self, num_values: int) -> float:
    """Returns the mean square of the noise alone, after shrinkage."""
    errors.check_at_least('num_values', num_values, 1)
    return self.shrinkage**2 * self.noise_factor * self.threshold**2

  @property
  def noise_factor(self) -> float:
    """nu, see the function `noise_factor`."""
    return noise_factor(self.noise, num_examples=self.num_examples,
                        dimension=self.dimension, guarantee=self.guarantee)

  def worst(self, *, moment: float, radius: float) -> moment_risks.Worst:
    """Returns the exact largest risk over E |X|^k <= r^k, and its distribution.
    """
    return moment_risks.worst(
        num_examples=self.num_examples, threshold=self.threshold,
        shrinkage=self.shrinkage, noise_factor=self.noise_factor,
        moment=moment, radius=radius)


def tuned(*, num_examples: int, dimension: int, moment: float, radius: float,
          guarantee: Guarantee, noise: str) -> TruncatedMean:
  """Returns the mechanism with T and c of least worst risk over E |X|^k <= r^k.

  Args:
    num_examples: n.
    dimension: d.
    moment: k.
    radius: r.
    guarantee: guarantee to keep.
    noise: one of `NOISES`.
  """
  best = moment_risks.tuned(
      num_examples=num_examples, moment=moment, radius=radius,
      noise_factor=noise_factor(noise, num_examples=num_examples,
                                dimension=dimension, guarantee=guarantee))
  return TruncatedMean(
      num_examples=num_examples, dimension=dimension, guarantee=guarantee,
      noise=noise, threshold=best.threshold, shrinkage=best.shrinkage)


def printed(*, num_examples: int, dimension: int, moment: float, radius: float,
            guarantee: Guarantee) -> TruncatedMean:
  """Returns the mechanism with T of Proposition 6 and noise that is sound.

  T is r times the 2k-th root of n^2 level / d, (n epsilon)^2 / (d ln(1 /
  delta)) or, with independent Laplace noise, (n epsilon / d)^2. The appendix
  drops r.
  """
  moment_bounds.check_class(moment, radius)
  match guarantee:
    case notions.KullbackLeiblerPrivacy(level=level) | notions.ZCDP(rho=level):
      noise, ratio = 'gaussian', num_examples**2 * level / dimension
    case notions.ApproxDP(epsilon=epsilon, delta=delta) if delta > 0:
      noise, ratio = 'gaussian', (num_examples * epsilon)**2 / (
          dimension * math.log(1 / delta))
    case notions.PureDP(epsilon=epsilon):
      noise, ratio = 'laplace', (num_examples * epsilon / dimension)**2
    case _:
      raise ValueError(f'Proposition 6 has no estimator for {guarantee}')
  return TruncatedMean(
      num_examples=num_examples, dimension=dimension, guarantee=guarantee,
      noise=noise, threshold=radius * ratio**(1 / (2 * moment)))


def subsampled(*, num_examples: int, level: float) -> subsampling.Subsampled:
  """Returns the shrunk mean of a random subset, for total variation privacy.

  The factor is sqrt m / (1 + sqrt m); the worst risk is r^2 / (1 + sqrt m)^2 in
  every dimension, for every k.
  """
  root = math.sqrt(subsampling.subset_size(num_examples, level))
  return subsampling.Subsampled(
      num_examples=num_examples, level=level,
      # Shrinkage by sqrt m / (1 + sqrt m) makes the mean of m minimax.
      estimate=lambda records: jnp.mean(records, 0) * root / (1 + root))


def upper(*, num_examples: int, guarantee: Guarantee, dimension: int,
          moment: float, radius: float) -> tuple[study.Upper, ...]:
  """Returns the worst risks of the estimators for the guarantee, all exact."""
  moment_bounds.check_class(moment, radius)
  variants: list[tuple[str, Guarantee]] = []
  match guarantee:
    case None:
      return (study.Upper(moment_bounds.non_private(
          num_examples=num_examples, radius=radius), 'shrunk mean', True),)
    case notions.PureDP(epsilon=epsilon) if epsilon > 0:
      variants = [('l2', guarantee), ('laplace', guarantee)]
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      # A pure mechanism keeps the guarantee too, and may have less noise.
      variants += [('gaussian', guarantee)] if delta else []
      variants += [('l2', notions.PureDP(epsilon=epsilon))] if epsilon else []
    case notions.ZCDP(rho=level) | notions.KullbackLeiblerPrivacy(level=level):
      variants = [('gaussian', guarantee)] if level else []
    case notions.TotalVariationPrivacy(level=level) if 0 < level < 1:
      variants = [('gaussian', guarantee)]
  uppers = [study.Upper(tuned(
      num_examples=num_examples, dimension=dimension, moment=moment,
      radius=radius, guarantee=its_guarantee, noise=noise).worst(
          moment=moment, radius=radius).value, f'truncated mean, {noise} noise',
                        True) for noise, its_guarantee in variants]
  if (isinstance(guarantee, notions.TotalVariationPrivacy)
      and num_examples * guarantee.level >= 1):
    size = subsampling.subset_size(num_examples, guarantee.level)
    uppers.append(study.Upper(moment_bounds.non_private(
        num_examples=size, radius=radius), 'mean of a subsample', True))
  return tuple(uppers)


def _whole(function: Callable[..., _Bounds]) -> Callable[..., _Bounds]:
  """Wraps a function so that d may be a float with an integer value."""
  @functools.wraps(function)
  def run(*, dimension: float, **arguments: Any) -> _Bounds:
    if dimension != int(dimension):
      raise ValueError(f'dimension must be an integer, got {dimension}')
    return function(dimension=int(dimension), **arguments)
  return run


def _non_private(*, num_examples: int, dimension: float, moment: float,
                 radius: float, guarantee: Guarantee = None) -> float:
  """Returns the minimax risk without privacy, which d and k do not change."""
  del guarantee, dimension, moment
  return moment_bounds.non_private(num_examples=num_examples, radius=radius)


STUDY = study.Study(
    name='mean',
    help='mean of n vectors in R^d with E |X|^k <= r^k',
    loss='squared error',
    parameters=dict(
        dimension=study.Parameter(1, 'd, coordinates of a record'),
        moment=study.Parameter(2.0, 'k, at least 2; inf for |X| <= r'),
        radius=study.Parameter(1.0, 'r, in units of the records')),
    lower=_whole(moment_bounds.lower),
    upper=_whole(upper),
    non_private=_non_private,
    trivial=lambda *, radius, **_: radius**2,
    notions=(notions.PureDP, notions.ApproxDP, notions.ZCDP,
             notions.KullbackLeiblerPrivacy, notions.TotalVariationPrivacy,
             type(None)))
