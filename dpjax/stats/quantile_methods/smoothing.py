"""Runs any quantile mechanism on records with added noise.

Equal records leave no interval between them, so a mechanism that chooses an
interval cannot answer their value. Where the distribution has atoms, the error
of every mechanism here does not fall with the number of records. Noise that
separates the records repairs this. It costs no privacy: noise values are
exchangeable, so neighbouring data sets have a coupling under which the noisy
ones are neighbours too.

Source: Lalanne (2023, Propositions 6.3.1, 6.3.3 and 6.3.4) (item QF-21 to
QF-24, QB-12). `Smoothed` of the joint mechanism is HSJointExp.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey, PyTree

# Kinds of noise, and by how many standard deviations bounds are widened. Noise
# must not have atoms, which rules out discrete noise. Privacy does not depend
# on the tails.
_KINDS = {'uniform': math.sqrt(3), 'gaussian': 5.0, 'laplace': 5.0}
KINDS = tuple(_KINDS)
FLOOR = 1e-6
"""Half the width of the least uniform noise, as a fraction of the range."""
_LEAST_FLOOR = 1e-12


class SmoothingParameters(NamedTuple):
  """Arrays of a smoothed mechanism.

  Attributes:
    sigma: standard deviation of the noise, or its least value.
    first: standard deviation before it decays with n; 0 if it is fixed.
    decay: decrease of its logarithm with each record.
    inner: parameters of the inner mechanism.
  """
  sigma: np.float64
  first: np.float64
  decay: np.float64
  inner: PyTree


def standard_noise(key: PRNGKey, shape: tuple[int, ...], kind: str) -> Array:
  """Draws float64 noise of mean 0 and variance 1, of one of `KINDS`."""
  if kind == 'gaussian':
    return jax.random.normal(key, shape, jnp.float64)
  if kind == 'laplace':
    return jax.random.laplace(key, shape, jnp.float64) / math.sqrt(2)
  return jax.random.uniform(key, shape, jnp.float64, -1, 1) * math.sqrt(3)


def smoothed(key: PRNGKey, data: Records, sigma: Array, kind: str) -> Records:
  """Returns noisy records between wider bounds, shifted so that `lower` is 0.

  Shifting first keeps more digits for the noise when the bounds are far from 0.
  """
  zero = jnp.zeros_like(data.lower)
  shifted = Records(data.ordered - data.lower, data.count, zero,
                    data.upper - data.lower)
  noise = sigma * standard_noise(key, data.ordered.shape, kind)
  return records.separated(shifted, noise, sigma * _KINDS[kind])


@functools.cache
def _draw(inner: mechanism.Draw, kind: str) -> mechanism.Draw:
  """Returns the sampler of `inner` on records with noise of one kind."""
  def draw(key: PRNGKey, data: Records,
           parameters: SmoothingParameters) -> Array:
    noise_key, key = jax.random.split(key)
    # The noise may depend on n only where n is public: otherwise `first` is 0.
    count = data.count.astype(jnp.float64)
    sigma = jnp.maximum(parameters.sigma, parameters.first * jnp.exp(
        -parameters.decay * count))
    noisy = smoothed(noise_key, data, sigma, kind)
    return data.lower + inner(key, noisy, parameters.inner)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class Smoothed(mechanism.OuterQuantiles):
  """A mechanism on records with added noise, with the same guarantee.

  Answers lie between the widened bounds: wider by sqrt(3) standard deviations
  of uniform noise, or 5 of other noise; records outside are clipped. Quantile
  levels, epsilon, bounds and adjacency are those of `inner`.

  Attributes:
    inner: mechanism that answers.
    kind: kind of noise, one of `KINDS`.
    sigma: standard deviation of the noise, public. None for uniform noise on
      [-a, a], a = (upper - lower) max(exp(-n epsilon / 48) / 2, floor), or for
      the floor alone: under ADD_OR_REMOVE_ONE, where n is private, and where
      the budget is rho. Without a floor, rounding would lose the recommended
      noise from n epsilon = 1800 on (erratum QE-01).
    floor: least half-width as a fraction of the range; at least 1e-12.
  """
  probs: tuple[float, ...] = dataclasses.field(init=False, repr=False)
  epsilon: float | None = dataclasses.field(init=False, repr=False)
  lower: float = dataclasses.field(init=False, repr=False)
  upper: float = dataclasses.field(init=False, repr=False)
  adjacency: Adjacency = dataclasses.field(init=False, repr=False)
  inner: mechanism.QuantileMechanism
  kind: str = 'uniform'
  sigma: float | None = None
  floor: float = FLOOR

  def __post_init__(self) -> None:
    for field in dataclasses.fields(mechanism.QuantileMechanism):
      object.__setattr__(self, field.name, getattr(self.inner, field.name))
    errors.check_choice('kind', self.kind, KINDS)
    if not _LEAST_FLOOR <= self.floor < math.inf:
      raise ValueError(f'floor must be at least {_LEAST_FLOOR:g} of the range, '
                       f'got {self.floor}')
    if self.sigma is not None:
      errors.check_positive('sigma', self.sigma)
      least = float(np.spacing(self.upper - self.lower)) / 2
      if self.sigma < least:
        raise ValueError(f'sigma must be at least {least:.3g}, or float64 '
                         'rounds the noise away between these bounds, got '
                         f'{self.sigma}')

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, records, parameters) -> quantiles."""
    return _draw(self.inner.draw, self.kind)

  @property
  def parameters(self) -> SmoothingParameters:
    """Noise parameters and those of `inner`, as arrays."""
    widest = (self.upper - self.lower) / math.sqrt(3)
    sigma, first, decay = self.sigma, 0.0, 0.0
    if sigma is None:
      sigma = widest * self.floor
      if self.adjacency is Adjacency.REPLACE_ONE and self.epsilon:
        first, decay = widest / 2, self.epsilon / 48
    return SmoothingParameters(np.float64(sigma), np.float64(first),
                               np.float64(decay), self.inner.parameters)
