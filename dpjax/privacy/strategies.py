"""Strategies of correlated noise, and their sensitivity over a whole run.

Independent noise adds up in the parameters, which are sums of all gradients so
far. A strategy is an invertible lower triangular matrix C of T steps: with
standard normal z, step t adds the noise (C^-1 z)_t, so that later noise takes
back a part of earlier noise (Denisov et al. 2022; Kairouz et al. 2021). The
release of all steps g + C^-1 z is post-processing of C g + z, a Gaussian
release, also if g depends on earlier outputs.

All strategies here are scaled so that no column of C is longer than 1. Entries
of C are not negative, so the worst contributions of a record are equal in all
of its steps, and its sensitivity is a norm of a sum of columns. It is computed
in float64 from the float32 numbers that the noise is made with, and rounded up.
"""

import abc
import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import signal

from dpjax import errors
from dpjax.typing import Array, PyTree

MARGIN = 1 + 1e-6
"""Covers float64 errors of norms, and float32 errors of the noise's scale."""


class Strategy(abc.ABC):
  """A matrix C that correlates the noise of steps, see the module.

  `init` and `correlate` apply C^-1 to a stream of draws. The history may reveal
  noise, so it is secret.
  """

  @property
  @abc.abstractmethod
  def bands(self) -> int | None:
    """Number of steps that a column reaches; None for all later ones."""

  @property
  @abc.abstractmethod
  def max_steps(self) -> int | None:
    """Largest number of steps T that it serves; None for any number."""

  @abc.abstractmethod
  def sensitivity(self, *, num_steps: int, separation: int) -> float:
    """Returns an upper bound on the l2 sensitivity of C g to one record.

    Args:
      num_steps: T.
      separation: two steps of a record, whose contributions have norm at most
        1, are at least so far apart.
    """

  @abc.abstractmethod
  def prefix_deviations(self, num_steps: int) -> np.ndarray:
    """Returns standard deviations [T] of the noise of all prefix sums."""

  @abc.abstractmethod
  def deviations(self, num_steps: int) -> np.ndarray:
    """Returns standard deviations [T] of the noise of all steps."""

  @abc.abstractmethod
  def init(self, values: PyTree) -> PyTree:
    """Returns the history before the first step, for draws of these shapes."""

  @abc.abstractmethod
  def correlate(self, draws: PyTree, history: PyTree,
                step: Array) -> tuple[PyTree, PyTree]:
    """Returns the noise of one step, and the history after it.

    Args:
      draws: z_t, fresh standard normal draws.
      history: after the step before.
      step: t, from 0.
    """


class Stacked(Strategy):
  """A strategy whose history is several arrays of the shape of each leaf."""

  @property
  @abc.abstractmethod
  def _depth(self) -> int:
    """Number of arrays in the history of a leaf."""

  @abc.abstractmethod
  def _next(self, draw: Array, past: Array, step: Array
            ) -> tuple[Array, Array]:
    """Returns `correlate` for one leaf and its history [depth, ...]."""

  def init(self, values: PyTree) -> PyTree:
    """Returns histories of zeros [depth, ...]; see `Strategy`."""
    return jax.tree.map(
        lambda leaf: jnp.zeros([self._depth, *leaf.shape], jnp.float32), values)

  def correlate(self, draws: PyTree, history: PyTree,
                step: Array) -> tuple[PyTree, PyTree]:
    """Returns the noise of one step, and the history; see `Strategy`."""
    leaves, structure = jax.tree.flatten(draws)
    pairs = [self._next(draw, past, step) for draw, past in zip(
        leaves, jax.tree.leaves(history), strict=True)]
    return (jax.tree.unflatten(structure, [noise for noise, _ in pairs]),
            jax.tree.unflatten(structure, [past for _, past in pairs]))


class _Toeplitz(Stacked):
  """A strategy C_ts = c_(t-s) / norm, with c_0 >= c_1 >= ... >= 0."""

  @abc.abstractmethod
  def column(self, num_steps: int) -> np.ndarray:
    """Returns c_0, ..., c_(T-1), float64 [T]."""

  @functools.cached_property
  def norm(self) -> float:
    """Norm of the longest column, rounded up."""
    length = self.max_steps or self.bands
    assert length is not None
    return MARGIN * float(np.linalg.norm(self.column(length)))

  def _check(self) -> None:
    """Raises a ValueError if c increases or has a negative entry."""
    length = self.max_steps or self.bands
    assert length is not None
    column = self.column(length)
    # Rounding errors of a filter are far below the margin of the norm.
    slack = 1e-12 * column[0] if column[0] > 0 else math.nan
    if not (np.all(column >= -slack) and np.all(np.diff(column) <= slack)):
      raise ValueError('the first column of a strategy must be positive, and '
                       'must not increase: its sensitivity is not known')

  def sensitivity(self, *, num_steps: int, separation: int) -> float:
    """Returns the l2 sensitivity of C g, exact up to rounding.

    For a separation b, no steps i_1 < ... < i_k are worse than 0, b, 2 b, ...
    (Kalinin and Lampert 2024, Theorem 2): columns i < j have the inner product
    sum of c_m c_(m + j - i) over m < T - j. Moving step i_l to (l - 1) b makes
    neither j nor j - i larger, so sums get more terms, and terms that are not
    smaller, since c is not negative and does not increase.
    """
    check_steps(self, num_steps)
    errors.check_at_least('separation', separation, 1)
    padded = np.pad(self.column(num_steps), (0, -num_steps % separation))
    total = np.cumsum(padded.reshape(-1, separation), 0).reshape(-1)[:num_steps]
    return MARGIN * float(np.linalg.norm(total)) / (self.norm / MARGIN)

  def _inverse_column(self, num_steps: int) -> np.ndarray:
    """Returns the first column of C^-1, float64 [T]."""
    check_steps(self, num_steps)
    return self.norm * signal.lfilter([1.0], self.column(num_steps),
                                      _impulse(num_steps))

  def prefix_deviations(self, num_steps: int) -> np.ndarray:
    """Returns standard deviations [T] of prefix sums, see `Strategy`."""
    sums = np.cumsum(self._inverse_column(num_steps))
    return np.sqrt(np.cumsum(sums**2))

  def deviations(self, num_steps: int) -> np.ndarray:
    """Returns standard deviations [T] of single steps, see `Strategy`."""
    return np.sqrt(np.cumsum(self._inverse_column(num_steps)**2))


@dataclasses.dataclass(frozen=True)
class BandedStrategy(_Toeplitz):
  """A strategy whose columns reach b steps; the history has b - 1 arrays.

  Source: Choquette-Choo et al. (2023). If groups of at least b records take
  turns, it can be combined with amplification by sampling.

  Attributes:
    coefficients: c_0, ..., c_(b-1).
  """
  coefficients: tuple[float, ...]

  def __post_init__(self) -> None:
    object.__setattr__(self, 'coefficients', _float32s(self.coefficients))
    self._check()

  @property
  def bands(self) -> int:
    """The number of coefficients, b: a column reaches b steps."""
    return len(self.coefficients)

  @property
  def max_steps(self) -> None:
    """None: it serves any number of steps."""
    return None

  def column(self, num_steps: int) -> np.ndarray:
    """Returns the coefficients, filled up by zeros: float64 [T]."""
    kept = np.array(self.coefficients[:num_steps], np.float64)
    return np.pad(kept, (0, num_steps - len(kept)))

  @property
  def _depth(self) -> int:
    return self.bands - 1

  def _next(self, draw: Array, past: Array, step: Array
            ) -> tuple[Array, Array]:
    first, *rest = self.coefficients
    # Row t of C w = z, solved for w_t.
    noise = (draw - _weighted_past(rest, past, step)) / jnp.float32(first)
    return jnp.float32(self.norm) * noise, _remembered(noise, past, step)


@dataclasses.dataclass(frozen=True)
class InverseBandedStrategy(_Toeplitz):
  """A strategy whose inverse is banded: the history has b - 1 arrays.

  Source: Kalinin et al. (2025). Columns reach all later steps, so it cannot be
  combined with amplification by sampling.

  Attributes:
    coefficients: d_0, ..., d_(b-1) of the inverse; the noise of step t is the
      sum of d_j z_(t-j).
    num_steps: T.
  """
  coefficients: tuple[float, ...]
  num_steps: int

  def __post_init__(self) -> None:
    object.__setattr__(self, 'coefficients', _float32s(self.coefficients))
    errors.check_at_least('num_steps', self.num_steps, 1)
    self._check()

  @property
  def bands(self) -> None:
    """None: a column reaches all later steps."""
    return None

  @property
  def max_steps(self) -> int:
    """T, the number of steps that it was made for."""
    return self.num_steps

  def column(self, num_steps: int) -> np.ndarray:
    """Returns the first column of C, float64 [T]."""
    return signal.lfilter([1.0], np.array(self.coefficients),
                          _impulse(num_steps))

  @property
  def _depth(self) -> int:
    return len(self.coefficients) - 1

  def _next(self, draw: Array, past: Array, step: Array
            ) -> tuple[Array, Array]:
    first, *rest = self.coefficients
    noise = jnp.float32(first) * draw + _weighted_past(rest, past, step)
    return jnp.float32(self.norm) * noise, _remembered(draw, past, step)


@dataclasses.dataclass(frozen=True)
class BufferedStrategy(_Toeplitz):
  """A buffered linear Toeplitz strategy (BLT): the history has d arrays.

  c_0 = 1 and c_j = sum_i scales_i decays_i^(j-1). Source: Dvijotham et al.
  (2024). Columns reach all later steps.

  Attributes:
    decays: d numbers in [0, 1).
    scales: d numbers.
    num_steps: T.
  """
  decays: tuple[float, ...]
  scales: tuple[float, ...]
  num_steps: int

  def __post_init__(self) -> None:
    for name in ('decays', 'scales'):
      object.__setattr__(self, name, _float32s(getattr(self, name)))
    errors.check_at_least('num_steps', self.num_steps, 1)
    if len(self.decays) != len(self.scales):
      raise ValueError('decays and scales must have equal lengths, got '
                       f'{len(self.decays)} and {len(self.scales)}')
    if not all(0 <= decay < 1 for decay in self.decays):
      raise ValueError(f'decays must lie in [0, 1), got {self.decays}')
    self._check()

  @property
  def bands(self) -> None:
    """None: a column reaches all later steps."""
    return None

  @property
  def max_steps(self) -> int:
    """T, the number of steps that it was made for."""
    return self.num_steps

  def column(self, num_steps: int) -> np.ndarray:
    """Returns the first column of C, float64 [T]."""
    powers = np.array(self.decays) ** np.arange(num_steps - 1)[:, None]
    return np.concatenate([[1.0], powers @ np.array(self.scales)])

  @property
  def _depth(self) -> int:
    return len(self.decays)

  def _next(self, draw: Array, past: Array, step: Array
            ) -> tuple[Array, Array]:
    del step
    decays = jnp.array(self.decays, jnp.float32)
    # Row t of C w = z: buffers hold the decayed sums of earlier w.
    noise = draw - _combined(jnp.array(self.scales, jnp.float32), past)
    past = decays.reshape(-1, *[1] * draw.ndim) * past + noise[None]
    return jnp.float32(self.norm) * noise, past


def check_steps(strategy: Strategy, num_steps: int) -> None:
  """Raises a ValueError if a strategy does not serve a number of steps."""
  errors.check_at_least('num_steps', num_steps, 1)
  if strategy.max_steps is not None and num_steps > strategy.max_steps:
    raise ValueError(f'the strategy must serve {num_steps} steps, it is made '
                     f'for {strategy.max_steps}')


def _impulse(size: int) -> np.ndarray:
  """Returns the first unit vector."""
  return (np.arange(size) == 0).astype(np.float64)


def _float32s(values: Any) -> tuple[float, ...]:
  """Returns numbers rounded to float32, which noise is made with."""
  rounded = tuple(float(np.float32(value)) for value in values)
  if not all(map(math.isfinite, rounded)):
    raise ValueError(f'coefficients must be finite numbers, got {values}')
  return rounded


def _weighted_past(weights: list[float], past: Array, step: Array) -> Array:
  """Returns the sum of weights_j times the array of j + 1 steps ago.

  `past` is a ring: the array of step s is at place s modulo its length.
  """
  count = len(weights)
  if not count:
    return jnp.zeros(past.shape[1:], past.dtype)
  ages = (step - 1 - jnp.arange(count, dtype=jnp.int32)) % count
  return _combined(jnp.array(weights, jnp.float32)[ages], past)


def _combined(weights: Array, arrays: Array) -> Array:
  """Returns the weighted sum of arrays [d, ...] over the first axis."""
  return jnp.tensordot(weights, arrays, 1, precision=jax.lax.Precision.HIGHEST)


def _remembered(values: Array, past: Array, step: Array) -> Array:
  """Returns the ring with the array of this step."""
  return past if not len(past) else past.at[step % len(past)].set(values)
