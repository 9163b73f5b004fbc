"""The mean of normal records of known covariance s^2 I_d, released privately.

The mean theta lies in a public ball of radius R. Records are clipped around a
centre and their noisy mean is the next centre, one round or more (`coinpress`).
Noise: Gaussian, or of density exp(-|w| / b) for pure privacy (`k_norm`).

With one round, around 0, the risk is exact: bias and variance of one clipped
record, and the noise. A constant factor in front of the estimate trades noise
against bias, as the best constant does at its end. Source: paper 004, (20),
thesis 000, section 4.2.1 (item EST-TRUNC, EXT-L2, EXT-AGAUSS, MOD-GAUSS).
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import k_norm
from dpjax.privacy import notions
from dpjax.stats import precision
from dpjax.stats.minimax.bounds import Guarantee
from dpjax.stats.parametric import clipped_normals
from dpjax.stats.parametric import estimator
from dpjax.stats.parametric import gaussian_noise
from dpjax.typing import Array, PRNGKey, PyTree

NOTIONS = (notions.PureDP, notions.ApproxDP, notions.ZCDP,
           notions.TotalVariationPrivacy, notions.KullbackLeiblerPrivacy)
# Of the worst distance, a share of R; the ends are among them.
_PLACES = np.linspace(0, 1, 9)
_FACTORS = np.linspace(0, 1, 129)


class Round(NamedTuple):
  """One noisy mean of clipped records.

  Attributes:
    clip: T, in units of the records.
    share: of the budget: of epsilon, or of rho; shares sum to 1.
  """
  clip: float
  share: float


def budget(guarantee: Guarantee) -> float:
  """epsilon, or rho; where it is 0 nothing can be released."""
  if isinstance(guarantee, notions.PureDP):
    return guarantee.epsilon
  return gaussian_noise.rho(guarantee)


def noise_scale(clip: float, share: float, *, num_examples: int,
                guarantee: Guarantee) -> float:
  """Standard deviation of a coordinate, or b, for a mean that moves 2 T / n."""
  moved = 2 * clip / num_examples
  spent = errors.check_positive('budget', budget(guarantee) * share)
  if isinstance(guarantee, notions.PureDP):
    return moved / spent
  return moved / math.sqrt(2 * spent)


def noise_risk(scale: float, *, dimension: int, guarantee: Guarantee) -> float:
  """E |w|^2: d (d + 1) b^2, or d times the variance."""
  if isinstance(guarantee, notions.PureDP):
    return scale**2 * k_norm.expected_square(dimension, order=2)
  return scale**2 * dimension


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormalMean(estimator.Estimator):
  """Noisy means of clipped records, each around the one before.

  Guarantee: `guarantee`, under REPLACE_ONE, n public. A record moves a mean of
  clipped ones by 2 T / n, whatever the centre; rounds compose.

  Attributes:
    dimension: d.
    radius: R, public; the mean lies within it of 0.
    sigma: s, public.
    guarantee: of all rounds together.
    rounds: clips and shares.
    shrinkage: factor in front of the last centre.
    projected: whether centres are brought back to the ball of radius R, which
      brings none of them further from the mean.
  """
  dimension: int
  radius: float
  sigma: float
  guarantee: Guarantee
  rounds: tuple[Round, ...]
  shrinkage: float = 1.0
  projected: bool = False

  def __post_init__(self):
    super().__post_init__()
    check_model(self.dimension, self.radius, self.sigma)
    if not isinstance(self.guarantee, NOTIONS):
      raise ValueError(f'a guarantee is needed, got {self.guarantee}')
    shares = sum(turn.share for turn in self.rounds)
    if not (0 < shares < 1 + 1e-9 and all(
        0 < value < math.inf for turn in self.rounds for value in turn)):
      raise ValueError('rounds must have positive clips and shares of a sum of '
                       f'1, got {self.rounds}')
    if not math.isfinite(self.shrinkage):
      raise ValueError(f'shrinkage must be finite, got {self.shrinkage}')

  @property
  def scales(self) -> tuple[float, ...]:
    """Of the noise of each round; public."""
    return tuple(noise_scale(*turn, num_examples=self.num_examples,
                             guarantee=self.guarantee) for turn in self.rounds)

  @property
  def event(self) -> accounting.DpEvent:
    """What all rounds cost."""
    return accounting.composed_event([
        self._event(noise_multiplier=scale * self.num_examples / turn.clip)
        for turn, scale in zip(self.rounds, self.scales, strict=True)])

  @property
  def _event(self) -> Callable[..., accounting.DpEvent]:
    if isinstance(self.guarantee, notions.PureDP):
      return functools.partial(k_norm.event, order=2)
    return accounting.gaussian_event

  @property
  def draw(self) -> estimator.Draw:
    """One for each kind of noise."""
    return (_draw_pure if isinstance(self.guarantee, notions.PureDP)
            else _draw_gaussian)

  @property
  def parameters(self) -> PyTree:
    """Clips and scales [t], what centres are kept in, the factor."""
    clips = np.array([turn.clip for turn in self.rounds])
    kept = self.radius if self.projected else math.inf
    return clips, np.array(self.scales), np.float64(kept), np.float64(
        self.shrinkage)

  def statistic(self, data: Array) -> Array:
    """The records [n, d]; PRIVATE. Each round bounds them, around its centre.

    A record that is not finite counts as 0.
    """
    return jnp.where(jnp.all(jnp.isfinite(data), -1, keepdims=True),
                     precision.double(data), 0.0)

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Array:
    """The estimate [d] from records [n, d]."""
    shape = (self.num_examples, self.dimension)
    if data.shape != shape:
      raise ValueError(f'records must be of shape {shape}, got {data.shape}')
    return self.draw(key, self.statistic(data), self.parameters)

  @precision.in_float64
  def simulated(self, key: PRNGKey, mean: Array, *, num_repetitions: int
                ) -> Array:
    """[R, d]: estimates from fresh normal records of this mean [d]."""
    keys = jax.random.split(key, num_repetitions)
    return _simulated(self.draw, self.num_examples)(
        keys, precision.double(mean), np.float64(self.sigma), self.parameters)

  def risk_at(self, distance: np.ndarray | float) -> np.ndarray:
    """Exact expected squared error where the mean has this norm; one round.

    Raises:
      ValueError: for several rounds, whose centres see the records.
    """
    if len(self.rounds) > 1 or self.projected:
      raise ValueError('the risk is exact for one round without projection')
    kept, spread = self.kept_at(distance)
    return ((distance - self.shrinkage * kept)**2
            + self.shrinkage**2 * spread)

  def kept_at(self, distance: np.ndarray | float
              ) -> tuple[np.ndarray, np.ndarray]:
    """Norm of the expected first centre, and its variance with the noise."""
    bias, variance = clipped_normals.moments(
        distance, self.rounds[0].clip, dimension=self.dimension,
        sigma=self.sigma)
    noise = noise_risk(self.scales[0], dimension=self.dimension,
                       guarantee=self.guarantee)
    return distance - bias, variance / self.num_examples + noise

  def worst_risk(self) -> float:
    """The largest of `risk_at` over the ball, on a grid of distances."""
    return float(np.max(self.risk_at(self.radius * _PLACES)))


def check_model(dimension: int, radius: float, sigma: float) -> None:
  """Refuses what is no dimension, radius or standard deviation."""
  errors.check_at_least('dimension', dimension, 1)
  errors.check_positive('radius', radius)
  errors.check_positive('sigma', sigma)


def clipped_once(*, num_examples: int, dimension: int, radius: float,
                 sigma: float, guarantee: Guarantee, clip: float | None = None
                 ) -> NormalMean:
  """One round around 0.

  Args:
    num_examples: n.
    dimension: d.
    radius: R.
    sigma: s.
    guarantee: of the release.
    clip: T; None: T and a factor that together have the least worst risk.
  """
  known = dict(num_examples=num_examples, dimension=dimension, radius=radius,
               sigma=sigma, guarantee=guarantee)
  if clip is not None:
    return NormalMean(**known, rounds=(Round(clip, 1.0),))
  check_model(dimension, radius, sigma)

  def worst(clip):
    """The best factor, and the largest risk with it."""
    plain = NormalMean(**known, rounds=(Round(clip, 1.0),))
    places = radius * _PLACES
    kept, spread = plain.kept_at(places)
    lost = places - _FACTORS[:, None] * kept
    risks = np.max(lost**2 + np.square(_FACTORS)[:, None] * spread, -1)
    return float(_FACTORS[np.argmin(risks)]), float(np.min(risks))

  norm = math.hypot(radius, sigma * math.sqrt(dimension))
  best = optimize.minimize_scalar(
      lambda log: worst(math.exp(log))[1], method='bounded',
      options={'xatol': 1e-3},
      bounds=(math.log(norm / 4), math.log(norm + 8 * sigma)))
  clip = math.exp(best.x)
  return NormalMean(**known, rounds=(Round(clip, 1.0),),
                    shrinkage=worst(clip)[0])


def _draw_gaussian(key: PRNGKey, records: Array, parameters: PyTree) -> Array:
  return _rounds(key, records, parameters, additive.standard_normal)


def _draw_pure(key: PRNGKey, records: Array, parameters: PyTree) -> Array:
  return _rounds(key, records, parameters, lambda key, shape: k_norm.unit_noise(
      key, *shape, order=2))


def _rounds(key: PRNGKey, records: Array, parameters: PyTree, noise) -> Array:
  clips, scales, kept, shrinkage = parameters

  def turn(centre, of):
    key, clip, scale = of
    offsets = _within(records - centre[None], clip)
    moved = (centre + jnp.mean(offsets, 0)
             + scale * precision.double(noise(key, centre.shape)))
    return _within(additive.on_grid(moved, scale), kept), None

  start = jnp.zeros(records.shape[1:], records.dtype)
  keys = jax.random.split(key, clips.size)
  centre, _ = jax.lax.scan(turn, start, (keys, clips, scales))
  return shrinkage * centre


def _within(vectors: Array, radius: Array) -> Array:
  """Projected on the ball around 0."""
  norms = jnp.sqrt(jnp.sum(jnp.square(vectors), -1, keepdims=True))
  return vectors * jnp.minimum(1.0, radius / jnp.maximum(norms, 1e-300))


@functools.cache
def _simulated(draw: estimator.Draw, num_examples: int):
  def once(key, mean, sigma, parameters):
    data, coins = jax.random.split(key)
    records = mean[None] + sigma * precision.double(additive.standard_normal(
        data, (num_examples, *mean.shape)))
    return draw(coins, records, parameters)

  def run(keys, mean, sigma, parameters):
    return jax.lax.map(lambda key: once(key, mean, sigma, parameters), keys)
  return jax.jit(run)
