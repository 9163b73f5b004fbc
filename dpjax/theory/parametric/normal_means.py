"""Private mean of normal records with known covariance s^2 I_d.

The mean theta lies in a public ball of radius R. Records are clipped around a
centre and their noisy mean is the next centre, for one or more rounds
(`coinpress`). The noise is Gaussian, or of density exp(-|w| / b) for pure
privacy (`k_norm`).

With one round around 0 the risk is exact: bias and variance of one clipped
record, and the noise. A constant factor in front of the estimate trades noise
against bias. Source: Barber and Duchi (2014, equation (20)), Lalanne (2023,
section 4.2.1) (item EST-TRUNC, EXT-L2, EXT-AGAUSS, MOD-GAUSS).
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
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import clipped_normals
from dpjax.theory.parametric import estimator
from dpjax.theory.parametric import gaussian_noise
from dpjax.typing import Array, PRNGKey, PyTree

NOTIONS = (notions.PureDP, notions.ApproxDP, notions.ZCDP,
           notions.TotalVariationPrivacy, notions.KullbackLeiblerPrivacy)
# Grids of the worst distance of the mean from 0, as a fraction of R with both
# ends, and of the shrinkage factor.
_PLACES = np.linspace(0, 1, 9)
_FACTORS = np.linspace(0, 1, 129)


class Round(NamedTuple):
  """One noisy mean of clipped records.

  Attributes:
    clip: T, in units of the records.
    share: fraction of epsilon or of rho; the fractions sum to 1.
  """
  clip: float
  share: float


def budget(guarantee: Guarantee) -> float:
  """Returns epsilon, or rho; where it is 0 nothing can be released."""
  if isinstance(guarantee, notions.PureDP):
    return guarantee.epsilon
  return gaussian_noise.rho(guarantee)


def noise_scale(clip: float, share: float, *, num_examples: int,
                guarantee: Guarantee) -> float:
  """Returns the noise scale of a mean of sensitivity 2 T / n.

  It is the standard deviation of a coordinate, or b under pure privacy.
  """
  sensitivity = 2 * clip / num_examples
  spent = errors.check_positive('budget', budget(guarantee) * share)
  if isinstance(guarantee, notions.PureDP):
    return sensitivity / spent
  return sensitivity / math.sqrt(2 * spent)


def noise_risk(scale: float, *, dimension: int, guarantee: Guarantee) -> float:
  """Returns E |w|^2: d (d + 1) b^2, or d times the variance."""
  if isinstance(guarantee, notions.PureDP):
    return scale**2 * k_norm.expected_square(dimension, order=2)
  return scale**2 * dimension


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormalMean(estimator.Estimator):
  """Noisy means of clipped records, each clipped around the mean before.

  Privacy: `guarantee`, under REPLACE_ONE, n public. A record changes a mean of
  clipped records by at most 2 T / n, whatever the centre; rounds compose.

  Attributes:
    dimension: d.
    radius: R, public; the mean lies within it of 0.
    sigma: s, public.
    guarantee: guarantee of all rounds together.
    rounds: clips and budget fractions.
    shrinkage: factor in front of the last centre.
    projected: whether centres are projected on the ball of radius R, which
      never moves them away from the mean.
  """
  dimension: int
  radius: float
  sigma: float
  guarantee: Guarantee
  rounds: tuple[Round, ...]
  shrinkage: float = 1.0
  projected: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    check_model(self.dimension, self.radius, self.sigma)
    if not isinstance(self.guarantee, NOTIONS):
      raise ValueError(f'a guarantee is needed, got {self.guarantee}')
    shares = sum(turn.share for turn in self.rounds)
    if not (0 < shares < 1 + 1e-9 and all(
        0 < value < math.inf for turn in self.rounds for value in turn)):
      raise ValueError('rounds must have positive clips, and positive shares '
                       f'that sum to at most 1, got {self.rounds}')
    if not math.isfinite(self.shrinkage):
      raise ValueError(f'shrinkage must be finite, got {self.shrinkage}')

  @property
  def scales(self) -> tuple[float, ...]:
    """Public noise scales of the rounds."""
    return tuple(noise_scale(*turn, num_examples=self.num_examples,
                             guarantee=self.guarantee) for turn in self.rounds)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of all rounds."""
    return accounting.composed_event([
        self._event(noise_multiplier=scale * self.num_examples / turn.clip)
        for turn, scale in zip(self.rounds, self.scales, strict=True)])

  @property
  def _event(self) -> Callable[..., accounting.DpEvent]:
    """The function that makes the event of one round."""
    if isinstance(self.guarantee, notions.PureDP):
      return functools.partial(k_norm.event, order=2)
    return accounting.gaussian_event

  @property
  def draw(self) -> estimator.Draw:
    """Jittable sampler, with Gaussian or with K-norm noise."""
    return (_draw_pure if isinstance(self.guarantee, notions.PureDP)
            else _draw_gaussian)

  @property
  def parameters(self) -> PyTree:
    """Clips and scales [t], radius for the centres, and shrinkage factor."""
    clips = np.array([turn.clip for turn in self.rounds])
    bound = self.radius if self.projected else math.inf
    return clips, np.array(self.scales), np.float64(bound), np.float64(
        self.shrinkage)

  def statistic(self, data: Array) -> Array:
    """Returns the records [n, d], PRIVATE; each round clips them later.

    A record that is not finite counts as 0.
    """
    return jnp.where(jnp.all(jnp.isfinite(data), -1, keepdims=True),
                     precision.double(data), 0.0)

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Array:
    """Returns the estimate [d] from records [n, d]."""
    shape = (self.num_examples, self.dimension)
    if data.shape != shape:
      raise ValueError(f'records must be of shape {shape}, got {data.shape}')
    return self.draw(key, self.statistic(data), self.parameters)

  @precision.in_float64
  def simulated(self, key: PRNGKey, mean: Array, *, num_repetitions: int
                ) -> Array:
    """Returns estimates [R, d] from fresh normal records with this mean [d]."""
    keys = jax.random.split(key, num_repetitions)
    return _simulated(self.draw, self.num_examples)(
        keys, precision.double(mean), np.float64(self.sigma), self.parameters)

  def risk_at(self, distance: np.ndarray | float) -> np.ndarray:
    """Returns the exact mean squared error for a mean of this norm; one round.

    Raises:
      ValueError: with several rounds, whose centres depend on the records.
    """
    if len(self.rounds) > 1 or self.projected:
      raise ValueError('the risk is exact for one round without projection')
    mean_norm, variance = self.kept_at(distance)
    return ((distance - self.shrinkage * mean_norm)**2
            + self.shrinkage**2 * variance)

  def kept_at(self, distance: np.ndarray | float
              ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the norm of the expected first centre, and its total variance."""
    bias, variance = clipped_normals.moments(
        distance, self.rounds[0].clip, dimension=self.dimension,
        sigma=self.sigma)
    noise = noise_risk(self.scales[0], dimension=self.dimension,
                       guarantee=self.guarantee)
    return distance - bias, variance / self.num_examples + noise

  def worst_risk(self) -> float:
    """Returns the largest `risk_at` over the ball, on a grid of distances."""
    return float(np.max(self.risk_at(self.radius * _PLACES)))


def check_model(dimension: int, radius: float, sigma: float) -> None:
  """Checks dimension, radius and standard deviation, and raises ValueError."""
  errors.check_at_least('dimension', dimension, 1)
  errors.check_positive('radius', radius)
  errors.check_positive('sigma', sigma)


def clipped_once(*, num_examples: int, dimension: int, radius: float,
                 sigma: float, guarantee: Guarantee, clip: float | None = None
                 ) -> NormalMean:
  """Returns the mechanism with one round around 0.

  `clip` is T; None for a T and a factor that together minimise the worst risk.
  Other Args as for `NormalMean`.
  """
  def build(clip: float, shrinkage: float = 1.0) -> NormalMean:
    return NormalMean(
        num_examples=num_examples, dimension=dimension, radius=radius,
        sigma=sigma, guarantee=guarantee, rounds=(Round(clip, 1.0),),
        shrinkage=shrinkage)

  if clip is not None:
    return build(clip)
  check_model(dimension, radius, sigma)

  def worst(clip: float) -> tuple[float, float]:
    """Returns the best factor for this clip, and the largest risk with it."""
    plain = build(clip)
    places = radius * _PLACES
    mean_norm, variance = plain.kept_at(places)
    # Bias for each factor and distance: [factors, distances].
    bias = places - _FACTORS[:, None] * mean_norm
    risks = np.max(bias**2 + np.square(_FACTORS)[:, None] * variance, -1)
    return float(_FACTORS[np.argmin(risks)]), float(np.min(risks))

  norm = math.hypot(radius, sigma * math.sqrt(dimension))
  # Search ln T around the typical norm of a record at the edge of the ball.
  best = optimize.minimize_scalar(
      lambda log: worst(math.exp(log))[1], method='bounded',
      options={'xatol': 1e-3},
      bounds=(math.log(norm / 4), math.log(norm + 8 * sigma)))
  clip = math.exp(best.x)
  return build(clip, shrinkage=worst(clip)[0])


def _draw_gaussian(key: PRNGKey, records: Array, parameters: PyTree) -> Array:
  """Runs the rounds with Gaussian noise."""
  return _rounds(key, records, parameters, additive.standard_normal)


def _draw_pure(key: PRNGKey, records: Array, parameters: PyTree) -> Array:
  """Runs the rounds with noise of density exp(-|w| / b)."""
  return _rounds(key, records, parameters, lambda key, shape: k_norm.unit_noise(
      key, *shape, order=2))


def _rounds(key: PRNGKey, records: Array, parameters: PyTree,
            noise: Callable[[PRNGKey, tuple[int, ...]], Array]) -> Array:
  """Runs all rounds from the centre 0 and returns the shrunk last centre."""
  clips, scales, centre_radius, shrinkage = parameters

  def run_round(centre: Array, inputs: tuple[PRNGKey, Array, Array]
                ) -> tuple[Array, None]:
    key, clip, scale = inputs
    # Offsets in a ball of radius T: the sensitivity is 2 T / n at any centre.
    offsets = _within(records - centre[None], clip)
    noisy = (centre + jnp.mean(offsets, 0)
             + scale * precision.double(noise(key, centre.shape)))
    return _within(additive.on_grid(noisy, scale), centre_radius), None

  start = jnp.zeros(records.shape[1:], records.dtype)
  keys = jax.random.split(key, clips.size)
  centre, _ = jax.lax.scan(run_round, start, (keys, clips, scales))
  return shrinkage * centre


def _within(vectors: Array, radius: Array) -> Array:
  """Projects vectors on the ball around 0."""
  # The floor avoids 0 / 0 for a zero vector, which stays where it is.
  norms = jnp.sqrt(jnp.sum(jnp.square(vectors), -1, keepdims=True))
  return vectors * jnp.minimum(1.0, radius / jnp.maximum(norms, 1e-300))


@functools.cache
def _simulated(draw: estimator.Draw, num_examples: int
               ) -> Callable[..., Array]:
  """Returns a compiled simulation of releases from fresh normal records."""
  def once(key: PRNGKey, mean: Array, sigma: Array, parameters: PyTree
           ) -> Array:
    data_key, draw_key = jax.random.split(key)
    records = mean[None] + sigma * precision.double(additive.standard_normal(
        data_key, (num_examples, *mean.shape)))
    return draw(draw_key, records, parameters)

  def run(keys: PRNGKey, mean: Array, sigma: Array, parameters: PyTree
          ) -> Array:
    return jax.lax.map(lambda key: once(key, mean, sigma, parameters), keys)
  return jax.jit(run)
