"""Intervals for the mean of normal numbers of known variance, proven to cover.

A private centre c, within h of theta but for a small probability; the mean of
records clipped to c -+ B, with noise; its value -+ a half-width. Two ways:

`karwa_vadhan` (2018): the fullest bin of a noisy histogram, B so wide that no
record is clipped, and the errors of sampling and of noise bounded apart.

`tuned`, ours. The centre is a median on a grid, by the exponential mechanism of
score -|#{x <= c} - n/2|. For grid points c_0 next to theta and c_j beyond h let
N_j = #{x <= c_j}: scores differ by N_0 - N_j or by n - N_0 - N_j at most, so
c_j is chosen with probability

  E e^(-u (N_j - N_0)) + E e^(v (n - N_j - N_0))

at most for any u and v up to epsilon / 2, powers of means over one record; the
sum over j is `miss_bound`. Clipping moves the mean by no more than the mean of
(|z| - B + h)+ on either side, whatever c has seen of the records, and that
exceeds b with a probability that Chernoff bounds (`clip_shift`). What is left,
a normal plus the noise, has a known law (`intervals.half_width`). Failures add
up to 1 - confidence. Budget, step, h, B and shares are of least width; they see
public numbers alone. Under rho-zCDP the noise is Gaussian and the median costs
epsilon^2 / 8, its range being bounded.

Source: item EXT-KV, EXT-KVCI.
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
from dpjax.stats.parametric import normal_means
from dpjax.typing import Array, PRNGKey

FINDERS = ('median', 'histogram', 'none')
_SHARES = np.geomspace(0.01, 0.8, 16)
_STEPS = (0.125, 0.25)
_REACHES = np.linspace(0.4, 4.0, 19)
_MARGINS = np.linspace(0.5, 5.0, 19)
# Of 1 - confidence: what clipping may miss by on each side.
_CLIPPED = np.array([1e-4, 1e-3, 1e-2, 5e-2])
_MOST_MISSED = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormalInterval:
  """A mean, and an interval that holds theta with the confidence or more.

  Guarantee: `guarantee`, under REPLACE_ONE, n public: a record moves one count
  of the score by 1, two of the histogram, and the mean by 2 B / n.

  Attributes:
    num_examples: n.
    radius: R, public; |theta| <= R.
    sigma: s, public.
    guarantee: pure, or zCDP.
    finder: one of `FINDERS`; 'none': the centre is 0.
    share: of the budget, for the centre.
    step: of the grid of centres, which covers [-R, R].
    clip: B.
    half: half-width.
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

  def __post_init__(self):
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
    """One record is replaced; their number is public."""
    return Adjacency.REPLACE_ONE

  @property
  def scale(self) -> float:
    """Of the noise of the mean: of Laplace, or a standard deviation."""
    return normal_means.noise_scale(
        self.clip, 1 - self.share, num_examples=self.num_examples,
        guarantee=self.guarantee)

  @property
  def event(self) -> accounting.DpEvent:
    """What centre and mean cost together."""
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
    return selection.ExponentialMechanism(
        sensitivity=1.0, adjacency=self.adjacency,
        epsilon=centre_epsilon(self.guarantee, self.share))

  @property
  def grid(self) -> np.ndarray:
    """Centres [m]; public."""
    count = math.ceil(2 * self.radius / self.step)
    return self.step * (np.arange(count + 1) - count / 2)

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Estimate:
    """From records [n]; what is not finite counts as 0."""
    errors.check_records(data.shape, self.num_examples)
    records = precision.double(data)
    for_centre, for_mean = jax.random.split(key)
    records = jnp.where(jnp.isfinite(records), records, 0.0)
    centre = self._centre(for_centre, records)
    offsets = jnp.clip(records - centre, -self.clip, self.clip)
    noise = (draws.standard_laplace if isinstance(
        self.guarantee, notions.PureDP) else additive.standard_normal)
    value = (centre + jnp.mean(offsets)
             + self.scale * precision.double(noise(for_mean, ())))
    return intervals.clipped(intervals.symmetric(
        additive.on_grid(value, self.scale), self.half), -self.radius,
                             self.radius)

  def _centre(self, key: PRNGKey, records: Array) -> Array:
    if self.finder == 'none':
      return jnp.zeros(())
    grid = jnp.asarray(self.grid)
    if self.finder == 'median':
      below = jnp.searchsorted(jnp.sort(records), grid, side='right')
      scores = -jnp.abs(precision.double(below) - self.num_examples / 2)
      return grid[self._median.release(key, scores.astype(jnp.float32))]
    places = jnp.round((records - grid[0]) / self.step)
    inside = (places >= 0) & (places < grid.size)
    counts = jnp.zeros(grid.size).at[jnp.where(
        inside, places, 0).astype(jnp.int32)].add(jnp.where(inside, 1.0, 0.0))
    scale = 2 / centre_epsilon(self.guarantee, self.share)
    noise = precision.double(draws.standard_laplace(key, grid.shape))
    return grid[draws.place_of_largest(counts + scale * noise)]

  @precision.in_float64
  def simulated(self, key: PRNGKey, mean: float, *, num_repetitions: int
                ) -> Estimate:
    """Releases [R] of fresh normal records of this mean."""
    def once(key):
      data, coins = jax.random.split(key)
      return self.release(coins, mean + self.sigma * precision.double(
          additive.standard_normal(data, (self.num_examples,))))
    keys = jax.random.split(key, num_repetitions)
    return jax.jit(lambda keys: jax.lax.map(once, keys, batch_size=8))(keys)


def _check(num_examples, radius, sigma, guarantee):
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('radius', radius)
  errors.check_positive('sigma', sigma)
  if not isinstance(guarantee, (notions.PureDP, notions.ZCDP)):
    raise ValueError(f'the guarantee must be PureDP or ZCDP, got {guarantee}')
  errors.check_positive('budget', normal_means.budget(guarantee))


def centre_epsilon(guarantee: notions.PureDP | notions.ZCDP, share: float
                   ) -> float:
  """Of the median: a share of epsilon, or epsilon^2 / 8 a share of rho."""
  if isinstance(guarantee, notions.PureDP):
    return share * guarantee.epsilon
  return math.sqrt(8 * share * guarantee.rho)


def karwa_vadhan(*, num_examples: int, radius: float, sigma: float,
                 guarantee: notions.PureDP, confidence: float = 0.95
                 ) -> NormalInterval:
  """Bins of width s, B = (2 + sqrt(2 ln(2 n / b))) s, b = (1 - level) / 3.

  Half-width z s / sqrt n + scale ln(1 / b), z of level 1 - b.
  """
  _check(num_examples, radius, sigma, guarantee)
  if not isinstance(guarantee, notions.PureDP):
    raise ValueError(f'the guarantee must be PureDP, got {guarantee}')
  errors.check_open_unit('confidence', confidence)
  part = (1 - confidence) / 3
  clip = sigma * (2 + math.sqrt(2 * math.log(2 * num_examples / part)))
  scale = normal_means.noise_scale(clip, 0.5, num_examples=num_examples,
                                   guarantee=guarantee)
  half = (intervals.normal_quantile(1 - part) * sigma / math.sqrt(num_examples)
          - scale * math.log(part))
  return NormalInterval(num_examples=num_examples, radius=radius, sigma=sigma,
                        guarantee=guarantee, finder='histogram', share=0.5,
                        step=sigma, clip=clip, half=half)


def miss_bound(reach: float, *, num_examples: int, radius: float, step: float,
               epsilon: float) -> float:
  """P(|c - theta| > h) of the median, at most; lengths in units of s."""
  far = math.ceil(2 * radius / step) + 1
  # Beyond 12 s nothing changes any more.
  shown = min(far, math.ceil(12 / step))
  above = special.ndtr(-reach - step * np.arange(shown))
  rate, terms = epsilon / 2, math.inf
  for low in (-1.0, -0.5, 0.0):
    # c_0 is between these: above theta, below it, or nearest.
    below, ends = special.ndtr(low * step), special.ndtr((low + 1) * step)
    # log1p and expm1: means of one record are close to 1.
    first = np.log1p(np.maximum(1 - ends - above, 0) * math.expm1(-rate))
    best = np.minimum(rate, np.maximum(0.0, np.log(below / np.maximum(
        above, 1e-300)) / 2))
    second = np.log1p(above * np.expm1(best) + below * np.expm1(-best))
    terms = np.minimum(terms, np.exp(num_examples * first)
                       + np.exp(num_examples * second))
  return float(2 * (np.sum(terms) + (far - shown) * terms[-1]))


def clip_shift(margin: np.ndarray, prob: np.ndarray, *, num_examples: int
               ) -> np.ndarray:
  """b: the mean of (z - g)+ of n normal numbers exceeds it less often; s = 1.

  Least over u of (ln(1 / prob) / n + ln E e^(u (z - g)+)) / u.
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
  """The shortest interval whose coverage is proved; see above.

  Where records are too few for a centre it is 0, and the interval is [-R, R] at
  worst.
  """
  _check(num_examples, radius, sigma, guarantee)
  errors.check_open_unit('confidence', confidence)
  return _tuned(num_examples, radius, sigma, guarantee, confidence)


@functools.lru_cache(maxsize=256)
def _tuned(n, radius, sigma, guarantee, confidence):
  alpha = 1 - confidence
  share, step, reach, missed = np.array(_centres(
      n, radius / sigma, guarantee, alpha)).T[..., None, None]
  # [centres, margins, parts]: all plans at once, in units of s.
  clipped = alpha * _CLIPPED
  shift = clip_shift(_MARGINS[:, None], clipped[None], num_examples=n)
  left = alpha - missed - 2 * clipped[None, None]
  unit = [normal_means.noise_scale(1.0, 1 - part, num_examples=n,
                                   guarantee=guarantee) for part in share.flat]
  clip = reach + _MARGINS[None, :, None]
  scale = clip * np.reshape(unit, share.shape)
  # To rank plans: exact where one part is nothing, close in between.
  normal = -special.ndtri(left / 2)
  noise = scale * (-np.log(left) if isinstance(guarantee, notions.PureDP)
                   else normal)
  rank = shift[None] + np.hypot(normal / math.sqrt(n), noise)
  k, i, j = np.unravel_index(np.argmin(rank), rank.shape)
  half = shift[i, j] + _quantile(1 / math.sqrt(n), float(scale[k, i, 0]),
                                 1 - float(left[k, 0, j]), guarantee)
  chosen = float(share[k, 0, 0])
  return NormalInterval(
      num_examples=n, radius=radius, sigma=sigma, guarantee=guarantee,
      finder='median' if chosen else 'none', share=chosen,
      step=float(step[k, 0, 0] * sigma), clip=float(clip[k, i, 0] * sigma),
      half=float(half * sigma))


def _centres(n, radius, guarantee, alpha):
  """(share, step, h, P of a centre further than h) of what may be tried."""
  found = [(0.0, 1.0, radius, 0.0)]
  for share in _SHARES:
    epsilon = centre_epsilon(guarantee, share)
    for step in _STEPS:
      missed = [miss_bound(reach, num_examples=n, radius=radius, step=step,
                           epsilon=epsilon) for reach in _REACHES]
      found += [(share, step, reach, prob) for reach, prob in zip(
          _REACHES, missed) if prob < _MOST_MISSED * alpha]
  return found


@precision.in_float64
def _quantile(stddev, scale, level, guarantee):
  """Of the absolute error of sampling and noise together."""
  if isinstance(guarantee, notions.PureDP):
    return float(intervals.half_width(jnp.asarray(stddev), jnp.asarray(scale),
                                      confidence=level))
  return intervals.normal_quantile(level) * math.hypot(stddev, scale)
