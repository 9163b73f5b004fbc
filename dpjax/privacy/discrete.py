"""Mechanisms for integers, with noise of an exactly known distribution.

Counts are released as integers with integer noise (`integers`), so there are no
floating-point attacks. The noise tables omit outcomes of total probability near
2^-90: `total_variation` gives their mass, and (1 + e^epsilon) times this mass
must be added to delta. Pure guarantees hold up to it, and draws are independent
up to `integers.tie_variation`. A release needs a key that nobody can guess, see
`keys`.
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
from dpjax.privacy.integers import NoiseTable
from dpjax.typing import PRNGKey, PyTree

# Base of the two digits in which noise of a large scale is drawn.
_DIGIT = 1024
# Up to here the digits fit their tables, and sums within 2^30 stay in int32.
_LARGEST_SCALE = 2.0**16


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeometricMechanism:
  """Releases a sum of integer records, each of l1 norm at most `record_norm`.

  Adds two-sided geometric (discrete Laplace) noise, P(Z = z) proportional to
  exp(-|z| / scale). Guarantee: epsilon-DP under `adjacency`, up to
  `total_variation`; the event composes better than its epsilon alone. Source:
  Ghosh, Roughgarden and Sundararajan (2012); item MECH-02.

  Attributes:
    record_norm: integer l1 bound on one record's contribution; callers enforce
      it.
    epsilon: budget of one release, positive.
    adjacency: neighbouring relation of the guarantee.
    upper: None, or a bound: releases are clamped to 0, ..., upper, which is
      post-processing (the truncated geometric mechanism).
  """
  record_norm: int
  epsilon: float
  adjacency: Adjacency
  upper: int | None = None

  def __post_init__(self) -> None:
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
    """Largest l1 change of the sum between neighbouring data sets."""
    return sum_sensitivity(self.adjacency, record_norm=self.record_norm)

  @property
  def scale(self) -> float:
    """Scale of the noise: P(Z = z + 1) / P(Z = z) = exp(-1 / scale), z >= 0."""
    return self.l1_sensitivity / self.epsilon

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release, for the 'pld' accountant."""
    return accounting.discrete_laplace_event(
        noise_parameter=1 / self.scale, sensitivity=self.record_norm)

  @property
  def total_variation(self) -> float:
    """Distance of one number's noise from the ideal distribution."""
    return sum(table.total_variation for table in self._tables())

  def _tables(self) -> list[NoiseTable]:
    """Returns the noise table, or four tables for noise of a large scale.

    Large noise is a difference of two geometric numbers of two digits each.
    """
    if self.scale <= integers.LARGEST_SCALE:
      return [integers.discrete_laplace(self.scale)]
    return 2 * [*integers.geometric_digits(self.scale, _DIGIT)]

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """Returns the noisy sum; `data` is an int32 pytree of sums within 2^30."""
    # One table is multiplied by 1; four are the digits of a difference.
    noisy = _add_noise(key, data, self._tables(), (1, _DIGIT, -1, -_DIGIT))
    if self.upper is None:
      return noisy
    return jax.tree.map(lambda leaf: jnp.clip(leaf, 0, self.upper), noisy)

  def risk(self, num_values: int) -> float | None:
    """Returns the expected squared l2 error of `num_values` numbers.

    None if releases are clamped, because the error then depends on the data.
    """
    if self.upper is not None:
      return None
    return num_values / (2 * math.sinh(0.5 / self.scale)**2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteGaussianMechanism:
  """Releases a sum of integer records, each of l2 norm at most `record_norm`.

  Guarantee: l2_sensitivity^2 / (2 stddev^2)-zCDP, in any number of coordinates,
  up to `total_variation` for each. Source: Canonne, Kamath and Steinke (2020).

  Attributes:
    record_norm: l2 bound on one record's contribution; callers enforce it.
    noise_multiplier: parameter of the noise over `record_norm`.
    adjacency: neighbouring relation of the guarantee.
  """
  record_norm: float
  noise_multiplier: float
  adjacency: Adjacency

  def __post_init__(self) -> None:
    errors.check_scale('record_norm', self.record_norm)
    errors.check_scale('noise_multiplier', self.noise_multiplier)
    check_adjacency(self.adjacency)
    if self.stddev > _LARGEST_SCALE:
      raise ValueError(f'noise_multiplier * record_norm must be at most 2^16, '
                       f'got {self.stddev:.6g}')

  @property
  def l2_sensitivity(self) -> float:
    """Largest l2 change of the sum between neighbouring data sets."""
    return sum_sensitivity(self.adjacency, record_norm=self.record_norm)

  @property
  def stddev(self) -> float:
    """Parameter of the discrete Gaussian noise in every coordinate."""
    return self.noise_multiplier * self.record_norm

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release, for the 'rdp' accountant."""
    return accounting.concentrated_event(
        rho=(self.l2_sensitivity / self.stddev)**2 / 2,
        adjacency=self.adjacency)

  @property
  def total_variation(self) -> float:
    """Bound on the distance of one number's noise from the ideal noise."""
    parameter, multiplier = self._parts()
    parts = [table.total_variation for table in self._tables()]
    if multiplier:
      parts.append(integers.convolution_variation(parameter, parameter,
                                                  multiplier))
    return sum(parts)

  def _parts(self) -> tuple[float, int]:
    """Returns (parameter, k) of Z1 + k Z2; k = 0 if one table suffices."""
    if self.stddev <= integers.LARGEST_STDDEV:
      return self.stddev, 0
    # The least k with parameter^2 (1 + k^2) = stddev^2 that fits the table.
    ratio = self.stddev / integers.LARGEST_STDDEV
    multiplier = math.ceil(math.sqrt(ratio**2 - 1))
    return self.stddev / math.hypot(1, multiplier), multiplier

  def _tables(self) -> list[NoiseTable]:
    """Returns the noise tables of Z1 and, if it is needed, Z2."""
    parameter, multiplier = self._parts()
    return [integers.discrete_gaussian(parameter)] * (2 if multiplier else 1)

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """Returns the noisy sum; `data` is an int32 pytree of sums within 2^30."""
    return _add_noise(key, data, self._tables(), (1, self._parts()[1]))

  def risk(self, num_values: int) -> float:
    """Returns a bound on the expected squared l2 error of `num_values`."""
    return num_values * self.stddev**2


def _add_noise(key: PRNGKey, data: PyTree, tables: list[NoiseTable],
               multipliers: tuple[int, ...]) -> PyTree:
  """Adds to every number one draw of each table times its multiplier."""
  values, unravel = jax.flatten_util.ravel_pytree(data)
  if values.dtype != jnp.int32:
    raise ValueError(f'integer noise is for int32 sums, got {values.dtype}')
  # Each table uses its own places of the key, so their draws are independent.
  for number, table in enumerate(tables):
    drawn = integers.draw(table, key, values.shape,
                          number * integers.num_places(values.shape))
    values = values + multipliers[number] * drawn
  return unravel(values)
