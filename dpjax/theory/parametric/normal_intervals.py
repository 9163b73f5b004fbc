"""Confidence intervals for the mean of normal records of known variance.

The coverage is proven. First comes a private centre c, within h of theta except
with small probability; then the noisy mean of records clipped to c -+ B; the
interval is its value -+ a half-width. There are two methods.

`karwa_vadhan` (2018): the fullest bin of a noisy histogram as centre, B so wide
that no record is clipped, and separate bounds on sampling error and noise.

`tuned`, our variant. The centre is a median on a grid, by the exponential
mechanism with score -|#{x <= c} - n/2|. Proof of coverage.

1. For grid points c_0 next to theta and c_j farther than h let N_j = #{x <=
   c_j}. Scores differ by at most N_0 - N_j or n - N_0 - N_j. So c_j is chosen
   with probability at most E e^(-u (N_j - N_0)) + E e^(v (n - N_j - N_0)) for
   any u and v up to epsilon / 2; these are powers of means over one record.
   `miss_bound` is the sum over j.
2. Clipping moves the mean by at most the mean of (|z| - B + h)+ on either side,
   however c depends on the records. Chernoff bounds the probability that this
   exceeds b (`clip_shift`).
3. The remaining error, a normal variable plus the noise, has a known
   distribution (`intervals.half_width`).
4. Failure probabilities add up to at most 1 - confidence.

Budget fractions, step, h and B minimise the width; they depend on public
numbers only. Under rho-zCDP the noise is Gaussian and the median costs
epsilon^2 / 8, since its range is bounded. Source: item EXT-KV, EXT-KVCI.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy import notions
from dpjax.privacy import selection
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import intervals
from dpjax.stats import precision
from dpjax.stats.intervals import Estimate
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import normal_means
from dpjax.typing import Array, PRNGKey

FINDERS = ('median', 'histogram', 'none')
# Grids that `tuned` searches: budget fraction of the centre, step, h and B - h,
# lengths in units of sigma.
_SHARES = np.geomspace(0.01, 0.8, 16)
_STEPS = (0.125, 0.25)
_REACHES = np.linspace(0.4, 4.0, 19)
_MARGINS = np.linspace(0.5, 5.0, 19)
# Fractions of 1 - confidence tried for the failure of clipping on each side.
_CLIPPED = np.array([1e-4, 1e-3, 1e-2, 5e-2])
_MOST_MISSED = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormalInterval:
  """A private mean, and an interval that covers theta with the confidence.

  Privacy: `guarantee`, under REPLACE_ONE, n public. A record changes one count
  of the score by 1, two of the histogram, and the mean by 2 B / n.

  Attributes:
    num_examples: n.
    radius: R, public; |theta| <= R.
    sigma: s, public.
    guarantee: pure privacy or zCDP.
    finder: how to find the centre, one of `FINDERS`; with 'none' the centre is
      0.
    share: fraction of the budget for the centre.
    step: step of the grid of centres, which covers [-R, R].
    clip: B.
    half: half-width of the interval.
  """
  num_examples: int
  radius: float
  sigma: float
  guarantee: notions.PureDP | notions.ZCDP
  finder: str
  share: float
  step: float
  clip: float
  half: float

  def __post_init__(self) -> None:
    _check(self.num_examples, self.radius, self.sigma, self.guarantee)
    errors.check_choice('finder', self.finder, FINDERS)
    errors.check_positive('clip', self.clip)
    errors.check_positive('step', self.step)
    errors.check_positive('half', self.half)
    if not (0 < self.share < 1 or self.share == 0 and self.finder == 'none'):
      raise ValueError('share must lie between 0 and 1, or be 0 without a '
                       f'finder, got {self.share}')

  @property
  def adjacency(self) -> Adjacency:
    """REPLACE_ONE: one record is replaced; n is public."""
    return Adjacency.REPLACE_ONE

  @property
  def scale(self) -> float:
    """Scale of the Laplace noise of the mean, or its standard deviation."""
    return normal_means.noise_scale(
        self.clip, 1 - self.share, num_examples=self.num_examples,
        guarantee=self.guarantee)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of centre and mean together."""
    multiplier = self.scale * self.num_examples / self.clip
    mean = (accounting.laplace_event(noise_multiplier=multiplier)
            if isinstance(self.guarantee, notions.PureDP)
            else accounting.gaussian_event(noise_multiplier=multiplier))
    if self.finder == 'none':
      return mean
    epsilon = centre_epsilon(self.guarantee, self.share)
    if isinstance(self.guarantee, notions.PureDP):
      centre = accounting.pure_event(epsilon=epsilon, adjacency=self.adjacency)
    else:
      centre = self._median.zcdp_event
    return accounting.composed_event([centre, mean])

  @property
  def _median(self) -> selection.ExponentialMechanism:
    """The exponential mechanism that chooses the median."""
    return selection.ExponentialMechanism(
        sensitivity=1.0, adjacency=self.adjacency,
        epsilon=centre_epsilon(self.guarantee, self.share))

  @property
  def grid(self) -> np.ndarray:
    """Public candidates of the centre [m]."""
    count = math.ceil(2 * self.radius / self.step)
    return self.step * (np.arange(count + 1) - count / 2)

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Estimate:
    """Returns mean and interval from records [n].

    A record that is not finite counts as 0.
    """
    errors.check_records(data.shape, self.num_examples)
    records = precision.double(data)
    centre_key, mean_key = jax.random.split(key)
    records = jnp.where(jnp.isfinite(records), records, 0.0)
    centre = self._centre(centre_key, records)
    offsets = jnp.clip(records - centre, -self.clip, self.clip)
    noise = (draws.standard_laplace if isinstance(
        self.guarantee, notions.PureDP) else additive.standard_normal)
    value = (centre + jnp.mean(offsets)
             + self.scale * precision.double(noise(mean_key, ())))
    interval = intervals.symmetric(additive.on_grid(value, self.scale),
                                   jnp.asarray(self.half))
    return intervals.clipped(interval, -self.radius, self.radius)

  def risk(self, num_values: int) -> None:
    """Returns None: the clipping error depends on the records."""
    del num_values

  def _centre(self, key: PRNGKey, records: Array) -> Array:
    """Returns the private centre, a point of the grid or 0."""
    if self.finder == 'none':
      return jnp.zeros(())
    grid = jnp.asarray(self.grid)
    if self.finder == 'median':
      below = jnp.searchsorted(jnp.sort(records), grid, side='right')
      scores = -jnp.abs(precision.double(below) - self.num_examples / 2)
      return grid[self._median.release(key, scores.astype(jnp.float32))]
    places = jnp.round((records - grid[0]) / self.step)
    inside = (places >= 0) & (places < grid.size)
    # Records outside the grid add 0 to the first bin.
    counts = jnp.zeros(grid.size).at[jnp.where(
        inside, places, 0).astype(jnp.int32)].add(jnp.where(inside, 1.0, 0.0))
    # A replaced record changes two counts by 1: the l1 sensitivity is 2.
    scale = 2 / centre_epsilon(self.guarantee, self.share)
    noise = precision.double(draws.standard_laplace(key, grid.shape))
    return grid[draws.place_of_largest(counts + scale * noise)]

  @precision.in_float64
  def simulated(self, key: PRNGKey, mean: float, *, num_repetitions: int
                ) -> Estimate:
    """Returns releases [R] of fresh normal records with this mean."""
    def once(key: PRNGKey) -> Estimate:
      data_key, release_key = jax.random.split(key)
      return self.release(release_key, mean + self.sigma * precision.double(
          additive.standard_normal(data_key, (self.num_examples,))))
    keys = jax.random.split(key, num_repetitions)
    return jax.jit(lambda keys: jax.lax.map(once, keys, batch_size=8))(keys)


def _check(num_examples: int, radius: float, sigma: float,
           guarantee: Guarantee) -> None:
  """Checks the public parameters and raises ValueError."""
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('radius', radius)
  errors.check_positive('sigma', sigma)
  if not isinstance(guarantee, (notions.PureDP, notions.ZCDP)):
    raise ValueError(f'the guarantee must be PureDP or ZCDP, got {guarantee}')
  errors.check_positive('budget', normal_means.budget(guarantee))


def centre_epsilon(guarantee: notions.PureDP | notions.ZCDP, share: float
                   ) -> float:
  """Returns the epsilon of the centre's mechanism.

  It is `share` epsilon, or epsilon with epsilon^2 / 8 = `share` rho.
  """
  if isinstance(guarantee, notions.PureDP):
    return share * guarantee.epsilon
  return math.sqrt(8 * share * guarantee.rho)


def karwa_vadhan(*, num_examples: int, radius: float, sigma: float,
                 guarantee: notions.PureDP, confidence: float = 0.95
                 ) -> NormalInterval:
  """Returns the interval with bins of width s and half of the budget each.

  B = (2 + sqrt(2 ln(2 n / b))) s with b = (1 - level) / 3. The half-width is z
  s / sqrt n + scale ln(1 / b), z the normal quantile of level 1 - b.
  """
  _check(num_examples, radius, sigma, guarantee)
  if not isinstance(guarantee, notions.PureDP):
    raise ValueError(f'the guarantee must be PureDP, got {guarantee}')
  errors.check_open_unit('confidence', confidence)
  failure = (1 - confidence) / 3
  clip = sigma * (2 + math.sqrt(2 * math.log(2 * num_examples / failure)))
  scale = normal_means.noise_scale(clip, 0.5, num_examples=num_examples,
                                   guarantee=guarantee)
  half = (intervals.normal_quantile(1 - failure) * sigma
          / math.sqrt(num_examples) - scale * math.log(failure))
  return NormalInterval(num_examples=num_examples, radius=radius, sigma=sigma,
                        guarantee=guarantee, finder='histogram', share=0.5,
                        step=sigma, clip=clip, half=half)


def miss_bound(distance: float, *, num_examples: int, radius: float,
               step: float, epsilon: float) -> float:
  """Bounds P(|c - theta| > distance) of the median; lengths in units of s."""
  count = math.ceil(2 * radius / step) + 1
  # Beyond 12 sigma the terms are constant.
  computed = min(count, math.ceil(12 / step))
  above = special.ndtr(-distance - step * np.arange(computed))
  rate, terms = epsilon / 2, np.full(computed, math.inf)
  for low in (-1.0, -0.5, 0.0):
    # c_0 may be the grid point above theta, the one below, or the nearest.
    below, up_to = special.ndtr(low * step), special.ndtr((low + 1) * step)
    # log1p and expm1 keep precision: means over one record are close to 1.
    first = np.log1p(np.maximum(1 - up_to - above, 0) * math.expm1(-rate))
    best = np.minimum(rate, np.maximum(0.0, np.log(below / np.maximum(
        above, 1e-300)) / 2))
    second = np.log1p(above * np.expm1(best) + below * np.expm1(-best))
    terms = np.minimum(terms, np.exp(num_examples * first)
                       + np.exp(num_examples * second))
  return float(2 * (np.sum(terms) + (count - computed) * terms[-1]))


def clip_shift(margin: np.ndarray, prob: np.ndarray, *, num_examples: int
               ) -> np.ndarray:
  """Returns b with P(mean of (z - g)+ > b) <= `prob`.

  z are n standard normal numbers. Least over u of (ln(1 / prob) / n + ln E e^(u
  (z - g)+)) / u.
  """
  u = np.geomspace(0.01, 30, 120)
  g = np.asarray(margin)[..., None]
  tilted = np.exp(np.minimum(u**2 / 2 - u * g + special.log_ndtr(u - g), 700))
  logs = np.log1p(tilted - special.ndtr(-g))
  cost = -np.log(np.asarray(prob))[..., None] / num_examples
  return np.min((cost + logs) / u, -1)


def tuned(*, num_examples: int, radius: float, sigma: float,
          guarantee: notions.PureDP | notions.ZCDP, confidence: float = 0.95
          ) -> NormalInterval:
  """Returns the shortest interval whose coverage is proved (see the module).

  With too few records for a private centre, the centre is 0 and the interval is
  [-R, R] at worst.
  """
  _check(num_examples, radius, sigma, guarantee)
  errors.check_open_unit('confidence', confidence)
  return _tuned(num_examples, radius, sigma, guarantee, confidence)


@functools.lru_cache(maxsize=256)
def _tuned(n: int, radius: float, sigma: float,
           guarantee: notions.PureDP | notions.ZCDP, confidence: float
           ) -> NormalInterval:
  """Returns the plan of least half-width; cached."""
  alpha = 1 - confidence
  share, step, distance, missed = np.array(_centres(
      n, radius / sigma, guarantee, alpha)).T[..., None, None]
  # Axes [centres, margins, failure splits]: all plans at once, in units of s.
  clipped = alpha * _CLIPPED
  shift = clip_shift(_MARGINS[:, None], clipped[None], num_examples=n)
  remaining = alpha - missed - 2 * clipped[None, None]
  unit = [normal_means.noise_scale(1.0, 1 - part, num_examples=n,
                                   guarantee=guarantee) for part in share.flat]
  clip = distance + _MARGINS[None, :, None]
  scale = clip * np.reshape(unit, share.shape)
  # Approximate widths rank the plans: exact if noise or sampling is 0.
  normal = -special.ndtri(remaining / 2)
  noise = scale * (-np.log(remaining) if isinstance(guarantee, notions.PureDP)
                   else normal)
  rank = shift[None] + np.hypot(normal / math.sqrt(n), noise)
  k, i, j = np.unravel_index(np.argmin(rank), rank.shape)
  half = shift[i, j] + _quantile(1 / math.sqrt(n), float(scale[k, i, 0]),
                                 1 - float(remaining[k, 0, j]), guarantee)
  chosen = float(share[k, 0, 0])
  return NormalInterval(
      num_examples=n, radius=radius, sigma=sigma, guarantee=guarantee,
      finder='median' if chosen else 'none', share=chosen,
      step=float(step[k, 0, 0] * sigma), clip=float(clip[k, i, 0] * sigma),
      half=float(half * sigma))


def _centres(n: int, radius: float, guarantee: notions.PureDP | notions.ZCDP,
             alpha: float) -> list[tuple[float, float, float, float]]:
  """Returns (share, step, h, P(centre farther than h)) of all plans to try."""
  plans = [(0.0, 1.0, radius, 0.0)]
  for share in _SHARES:
    epsilon = centre_epsilon(guarantee, share)
    for step in _STEPS:
      missed = [miss_bound(distance, num_examples=n, radius=radius, step=step,
                           epsilon=epsilon) for distance in _REACHES]
      plans += [(share, step, distance, prob) for distance, prob in zip(
          _REACHES, missed) if prob < _MOST_MISSED * alpha]
  return plans


@precision.in_float64
def _quantile(stddev: float, scale: float, level: float, guarantee: Guarantee
              ) -> float:
  """Returns a quantile of the absolute error of sampling and noise together."""
  if isinstance(guarantee, notions.PureDP):
    return float(intervals.half_width(jnp.asarray(stddev), jnp.asarray(scale),
                                      confidence=level))
  return intervals.normal_quantile(level) * math.hypot(stddev, scale)
