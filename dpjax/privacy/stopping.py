"""Random numbers of runs, of which only the best is released.

If one of a few private runs is chosen because it is the best, their number must
be random and secret, or all of them are paid for. The distributions of this
module are those for which the choice is known to be cheap; `tuning` computes
what it costs.
"""

from collections.abc import Callable
import dataclasses
import functools
import itertools
import math

import jax
import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import exact
from dpjax.typing import PRNGKey

Fraction = exact.Fraction

_MAX_TABLE = 10**7
# Logarithm of the least stopping parameter, far below all useful ones.
_LEAST_LOG_STOP = -40.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomStopping:
  """Distribution of the number of runs, independent of the data.

  The truncated negative binomial distribution with parameter g: k >= 1 runs
  have probability proportional to (1 - g)^k prod_{l<k} (l + shape) / (l + 1).
  A shape of 1 is the geometric distribution, 0 the logarithmic one; infinity is
  the Poisson distribution, which may be 0. For one mean, a smaller shape costs
  less privacy, and more often makes few runs. Sources: Liu and Talwar (2019)
  for the geometric distribution; Papernot and Steinke (2022, Definition 1; item
  DP-21).

  Attributes:
    mean: expected number of runs; > 1, or > 0 for Poisson.
    shape: eta > -1, or infinity.

  Raises:
    ValueError: if a value is out of range; shapes near -1 cannot have large
      means.
  """
  mean: float
  shape: float = 1.0

  def __post_init__(self) -> None:
    if not self.shape > -1:
      raise ValueError(f'shape must be > -1, got {self.shape}')
    least = 0 if self.is_poisson else 1
    if not (math.isfinite(self.mean) and self.mean > least):
      raise ValueError(f'mean must be a number > {least}, got {self.mean}')
    _ = self.stop_prob

  @property
  def is_poisson(self) -> bool:
    """Whether the number of runs is a Poisson number."""
    return math.isinf(self.shape)

  @property
  def stop_prob(self) -> float:
    """The parameter g in (0, 1) that gives this mean; 1 for Poisson."""
    return 1.0 if self.is_poisson else _stop_prob(self.mean, self.shape)

  def weight(self, better: np.ndarray) -> np.ndarray:
    """Returns f'(1 - u), where f is the generating function E s^N.

    A run that a share u of all runs would beat is released with this density
    times its own: sum_k P(N = k) k (1 - u)^(k - 1). It decreases in u, and is
    the mean number of runs at u = 0.

    Args:
      better: shares u in [0, 1].
    """
    if self.is_poisson:
      return self.mean * np.exp(-self.mean * better)
    stop = self.stop_prob
    mean = expected_num_runs(stop_prob=stop, shape=self.shape)
    return mean * (stop / (stop + (1 - stop) * better))**(1 + self.shape)

  def event(self, run: accounting.DpEvent) -> accounting.DpEvent:
    """Returns the event of the best of these runs, for 'rdp' alone.

    `tuning.epsilon` is tighter, and covers all shapes.

    Args:
      run: event of one run.

    Raises:
      ValueError: if the shape is negative or infinite.
    """
    return accounting.repeat_and_select_event(run, mean=self.mean,
                                              shape=self.shape)

  def probs(self) -> np.ndarray:
    """Returns P(N = 1), P(N = 2), ... up to a tail below 1e-12.

    Raises:
      ValueError: if the table had more than 10^7 entries.
    """
    stop = self.stop_prob
    # Once k exceeds the shape, masses fall at least about as fast as (1 - g)^k.
    count = (math.ceil(40 + 10 * self.mean) if self.is_poisson else
             math.ceil(40 / stop * max(1.0, self.shape)) + 10)
    if count > _MAX_TABLE:
      raise ValueError(f'a mean of {self.mean} with shape {self.shape} needs a '
                       f'table of {count} numbers of runs, no more than '
                       f'{_MAX_TABLE} are allowed')
    k = np.arange(1, count + 1)
    if self.is_poisson:
      probs = np.exp(np.cumsum(np.log(self.mean / k)) - self.mean)
    else:
      # The product starts at l = 1: its first factor is common to all k.
      factors = np.append(1.0, (k[:-1] + self.shape) / (k[:-1] + 1))
      logs = k * np.log1p(-stop) + np.cumsum(np.log(factors))
      probs = np.exp(logs - logs.max())
      probs /= probs.sum()
    tails = np.cumsum(probs[::-1])[::-1]
    return probs[:max(1, int(np.sum(tails > 1e-12)))]

  def draw_number(self, key: PRNGKey) -> int:
    """Draws a number of runs of exactly this distribution; SECRET.

    Args:
      key: secret key, used for nothing else.
    """
    return self.draw(integers_of(key))

  def draw(self, below: exact.Draw) -> int:
    """Draws a number of runs of exactly this distribution; SECRET.

    All decisions compare integers. The parameter g is the float `stop_prob`,
    of which the cost is computed too.

    Args:
      below: uniform sampler: n -> an integer from 0 to n - 1.
    """
    if self.is_poisson:
      # Few enough runs in each of these parts for `_from_ratios`.
      parts = math.ceil(2 * self.mean)
      doubled = 2 * Fraction(self.mean) / parts
      return sum(_from_ratios(Fraction(1, 2), lambda k: doubled / (k + 1),
                              below) for _ in range(parts))
    go, shape = 1 - Fraction(self.stop_prob), Fraction(self.shape)
    if shape <= 1:
      # Ratios of neighbouring weights from k = 1 on, without the factor 1 - g.
      return 1 + _from_ratios(go, lambda k: (k + 1 + shape) / (k + 2), below)
    # A negative binomial number is a sum of such numbers, here of shapes 1 and
    # of the rest; it is drawn again while it is 0.
    whole = shape // 1
    shapes = [Fraction(1)] * int(whole) + [shape - whole]
    while True:
      number = sum(_negative_binomial(go, each, below) for each in shapes)
      if number:
        return number


def _negative_binomial(go: Fraction, shape: Fraction,
                       below: exact.Draw) -> int:
  """Draws a negative binomial number >= 0, for a shape from 0 to 1."""
  return _from_ratios(go, lambda k: (k + shape) / (k + 1), below)


def _from_ratios(go: Fraction, ratio: Callable[[int], Fraction],
                 below: exact.Draw) -> int:
  """Draws k >= 0 with weights go^k prod_{l<k} ratio(l), by rejection.

  A geometric number is proposed, and accepted with the product of ratios, which
  are at most 1.
  """
  while True:
    number = 0
    accepted = True
    while accepted and exact.bernoulli(go, below):
      accepted = exact.bernoulli(ratio(number), below)
      number += 1
    if accepted:
      return number


def integers_of(key: PRNGKey) -> exact.Draw:
  """Returns a uniform sampler of integers, for `exact`, from a key.

  Args:
    key: one typed key, used for nothing else.
  """
  places = itertools.count()

  def below(bound: int) -> int:
    size = (bound - 1).bit_length()
    words = -(-size // 32)
    while words:
      drawn = jax.random.bits(jax.random.fold_in(key, next(places)), (words,),
                              np.uint32)
      value = int.from_bytes(np.asarray(drawn).tobytes(), 'little')
      value >>= 32 * words - size
      if value < bound:
        return value
    return 0

  return below


def expected_num_runs(*, stop_prob: float, shape: float) -> float:
  """Returns the mean of the distribution with g = `stop_prob` in (0, 1].

  Args:
    stop_prob: g.
    shape: eta, a number > -1.
  """
  errors.check_probability('stop_prob', stop_prob)
  if not -1 < shape < math.inf:
    raise ValueError(f'shape must be a number > -1, got {shape}')
  if stop_prob == 1:
    return 1.0
  odds = (1 - stop_prob) / stop_prob
  if shape == 0:
    return odds / -math.log(stop_prob)
  return shape * odds / -math.expm1(shape * math.log(stop_prob))


@functools.lru_cache(maxsize=256)
def _stop_prob(mean: float, shape: float) -> float:
  """Returns the parameter g for which the mean is `mean`."""
  def gap(log_stop: float) -> float:
    return math.log(expected_num_runs(stop_prob=math.exp(log_stop),
                                      shape=shape) / mean)

  if gap(_LEAST_LOG_STOP) < 0:
    raise ValueError(f'a mean of {mean} needs a shape further from -1, got '
                     f'{shape}')
  # Solves for ln g, because g spans many orders of magnitude.
  return math.exp(optimize.brentq(gap, _LEAST_LOG_STOP, -1e-12, xtol=1e-14))
