"""Mechanisms for integers, with noise whose law is known to the last bit.

Counts are released as integers, with integer noise (`integers`): no float is
there to be attacked. What the tables leave out, a probability near 2^-90, is
given by `total_variation` and to be added to delta, (1 + e^epsilon) times; pure
guarantees hold up to it, and independence up to `integers.tie_variation`. A
release needs a key that nobody can guess, see `keys`.
"""

import dataclasses
import math

import jax
import jax.flatten_util
import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import integers
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.privacy.integers import Law
from dpjax.typing import PRNGKey, PyTree

_DIGIT = 1024
_LARGEST_SCALE = 2.0**16


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeometricMechanism:
  """Releases a sum of integer records, each of l1 norm at most `record_norm`.

  Two-sided geometric noise, P(Z = z) proportional to exp(-|z| / scale): the
  discrete Laplace law. Guarantee: epsilon-DP under `adjacency`, up to
  `total_variation`; the event composes better than its epsilon alone. Source:
  Ghosh, Roughgarden and Sundararajan 2012; item MECH-02.

  Attributes:
    record_norm: integer l1 bound on one record's contribution; callers enforce
      it.
    epsilon: of one release.
    adjacency: which data sets are neighbours.
    upper: None, or releases are clamped to 0, ..., upper: the truncated
      geometric mechanism, by post-processing.
  """
  record_norm: int
  epsilon: float
  adjacency: Adjacency
  upper: int | None = None

  def __post_init__(self):
    errors.check_at_least('record_norm', self.record_norm, 1)
    errors.check_positive('epsilon', self.epsilon)
    if self.scale > _LARGEST_SCALE:
      raise ValueError(f'epsilon must be at least l1_sensitivity / 2^16 = '
                       f'{self.l1_sensitivity / _LARGEST_SCALE:.4g}, got '
                       f'{self.epsilon}')
    if self.upper is not None:
      errors.check_at_least('upper', self.upper, 1)

  @property
  def l1_sensitivity(self) -> int:
    """Largest l1 change of the sum between neighbours."""
    return sum_sensitivity(self.adjacency, record_norm=self.record_norm)

  @property
  def scale(self) -> float:
    """Of the noise: a unit more is exp(-1 / scale) times as likely."""
    return self.l1_sensitivity / self.epsilon

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs, for the 'pld' accountant."""
    return accounting.discrete_laplace_event(
        noise_parameter=1 / self.scale, sensitivity=self.record_norm)

  @property
  def total_variation(self) -> float:
    """Of the noise of one number from the ideal law."""
    return sum(law.total_variation for law in self._laws())

  def _laws(self) -> list[Law]:
    """One of the noise, or two of each of two geometric numbers."""
    if self.scale <= integers.LARGEST_SCALE:
      return [integers.discrete_laplace(self.scale)]
    return 2 * [*integers.geometric_digits(self.scale, _DIGIT)]

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """The noisy sum; `data` is the exact sum, an int32 pytree within 2^30."""
    noisy = _add_noise(key, data, self._laws(), (1, _DIGIT, -1, -_DIGIT))
    if self.upper is None:
      return noisy
    return jax.tree.map(lambda leaf: jnp.clip(leaf, 0, self.upper), noisy)

  def risk(self, num_values: int) -> float | None:
    """Expected squared l2 error; of clamped releases it hangs on the data."""
    if self.upper is not None:
      return None
    return num_values / (2 * math.sinh(0.5 / self.scale)**2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteGaussianMechanism:
  """Releases a sum of integer records, each of l2 norm at most `record_norm`.

  Guarantee: l2_sensitivity^2 / (2 stddev^2)-zCDP, in any number of coordinates,
  up to `total_variation` for each. Source: Canonne, Kamath and Steinke 2020.

  Attributes:
    record_norm: l2 bound on one record's contribution; callers enforce it.
    noise_multiplier: parameter of the noise over `record_norm`.
    adjacency: which data sets are neighbours.
  """
  record_norm: float
  noise_multiplier: float
  adjacency: Adjacency

  def __post_init__(self):
    errors.check_scale('record_norm', self.record_norm)
    errors.check_scale('noise_multiplier', self.noise_multiplier)
    check_adjacency(self.adjacency)
    if self.stddev > _LARGEST_SCALE:
      raise ValueError(f'noise_multiplier * record_norm must be at most 2^16, '
                       f'got {self.stddev:.6g}')

  @property
  def l2_sensitivity(self) -> float:
    """Largest change of the sum between neighbours."""
    return sum_sensitivity(self.adjacency, record_norm=self.record_norm)

  @property
  def stddev(self) -> float:
    """Parameter of the noise in every coordinate."""
    return self.noise_multiplier * self.record_norm

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs, for the 'rdp' accountant."""
    return accounting.concentrated_event(
        rho=(self.l2_sensitivity / self.stddev)**2 / 2,
        adjacency=self.adjacency)

  @property
  def total_variation(self) -> float:
    """Of the noise of one number from the ideal law, at most."""
    parameter, multiplier = self._parts()
    parts = [law.total_variation for law in self._laws()]
    if multiplier:
      parts.append(integers.convolution_variation(parameter, parameter,
                                                  multiplier))
    return sum(parts)

  def _parts(self) -> tuple[float, int]:
    """(parameter, k) of Z1 + k Z2; k = 0 where one table does."""
    if self.stddev <= integers.LARGEST_STDDEV:
      return self.stddev, 0
    ratio = self.stddev / integers.LARGEST_STDDEV
    multiplier = math.ceil(math.sqrt(ratio**2 - 1))
    return self.stddev / math.hypot(1, multiplier), multiplier

  def _laws(self) -> list[Law]:
    parameter, multiplier = self._parts()
    return [integers.discrete_gaussian(parameter)] * (2 if multiplier else 1)

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """The noisy sum; `data` is the exact sum, an int32 pytree within 2^30."""
    return _add_noise(key, data, self._laws(), (1, self._parts()[1]))

  def risk(self, num_values: int) -> float:
    """Expected squared l2 error of `num_values` numbers, at most."""
    return num_values * self.stddev**2


def _add_noise(key: PRNGKey, data: PyTree, laws: list[Law],
               multipliers: tuple[int, ...]) -> PyTree:
  """Adds, to every number, draws of all laws times their multipliers."""
  values, unravel = jax.flatten_util.ravel_pytree(data)
  if values.dtype != jnp.int32:
    raise ValueError(f'integer noise is for int32 sums, got {values.dtype}')
  for number, law in enumerate(laws):
    drawn = integers.draw(law, key, values.shape,
                          number * integers.num_places(values.shape))
    values = values + multipliers[number] * drawn
  return unravel(values)
