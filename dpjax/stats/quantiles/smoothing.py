"""Smoothed: any mechanism of the room, on records with noise of their own.

Records that are equal leave no interval between them, and no choice of an
interval can then answer them: where the law has atoms, errors of every
mechanism here stay the same however many records there are. Noise that
separates the records repairs that, and costs no privacy: who adds it is any
exchangeable draw, so that neighbours have a coupling in which they stay
neighbours. Source: thesis 000, Propositions 6.3.1, 6.3.3 and 6.3.4 (item QF-21
to QF-24, QB-12). `Smoothed` of the joint mechanism is HSJointExp.
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
from dpjax.stats.quantiles import mechanism
from dpjax.stats.quantiles import records
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey, PyTree

# Standard draws, and by how many standard deviations bounds are widened. Noise
# must not have atoms, so that of lattices will not do; nothing rests on tails.
_KINDS = {'uniform': math.sqrt(3), 'gaussian': 5.0, 'laplace': 5.0}
KINDS = tuple(_KINDS)
FLOOR = 1e-6
"""Half the width of the least uniform noise, as a share of the range."""
_LEAST_FLOOR = 1e-12


class Parameters(NamedTuple):
  """Of a smoothed mechanism.

  Attributes:
    sigma: standard deviation of the noise, or the least.
    first: the standard deviation before it decays with n; 0 for a fixed one.
    decay: by which its logarithm falls with each record.
    inner: parameters of the mechanism.
  """
  sigma: np.ndarray
  first: np.ndarray
  decay: np.ndarray
  inner: PyTree


def standard_noise(key: PRNGKey, shape: tuple[int, ...], kind: str) -> Array:
  """Float64 draws of mean 0 and variance 1, of one of `KINDS`."""
  if kind == 'gaussian':
    return jax.random.normal(key, shape, jnp.float64)
  if kind == 'laplace':
    return jax.random.laplace(key, shape, jnp.float64) / math.sqrt(2)
  return jax.random.uniform(key, shape, jnp.float64, -1, 1) * math.sqrt(3)


def smoothed(key: PRNGKey, data: Records, sigma: Array, kind: str) -> Records:
  """Records between wider bounds, all seen from the lower one.

  From there, what distance leaves of their digits is the noise's.
  """
  zero = jnp.zeros_like(data.lower)
  near = Records(data.ordered - data.lower, data.count, zero,
                 data.upper - data.lower)
  noise = sigma * standard_noise(key, data.ordered.shape, kind)
  return records.separated(near, noise, sigma * _KINDS[kind])


@functools.cache
def _draw(inner: mechanism.Draw, kind: str) -> mechanism.Draw:
  def draw(key: PRNGKey, data: Records, parameters: Parameters) -> Array:
    noise_key, key = jax.random.split(key)
    count = data.count.astype(jnp.float64)
    sigma = jnp.maximum(parameters.sigma, parameters.first * jnp.exp(
        -parameters.decay * count))
    moved = smoothed(noise_key, data, sigma, kind)
    return data.lower + inner(key, moved, parameters.inner)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class Smoothed(mechanism.OuterQuantiles):
  """A mechanism on records with noise, of the same guarantee.

  Answers lie between the bounds of the noisy records, which are wider than
  those of the records by sqrt(3) standard deviations of uniform noise and by 5
  of others; what is beyond is clipped. Orders, epsilon, bounds and adjacency
  are those of `inner`.

  Attributes:
    inner: what answers.
    kind: of the noise, one of `KINDS`.
    sigma: standard deviation of the noise, public; None for that of noise
      which is uniform on [-a, a], a = (upper - lower) max(exp(-n epsilon / 48)
      / 2, floor), or for the floor alone: under ADD_OR_REMOVE_ONE, where n is
      private, and where the budget is rho. Without a floor rounding loses noise
      as recommended, from n epsilon = 1800 on (erratum QE-01).
    floor: as a share of the range; at least 1e-12.
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

  def __post_init__(self):
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
    """The law."""
    return _draw(self.inner.draw, self.kind)

  @property
  def parameters(self) -> Parameters:
    """The noise, and parameters of what it is for."""
    widest = (self.upper - self.lower) / math.sqrt(3)
    sigma, first, decay = self.sigma, 0.0, 0.0
    if sigma is None:
      sigma = widest * self.floor
      if self.adjacency is Adjacency.REPLACE_ONE and self.epsilon:
        first, decay = widest / 2, self.epsilon / 48
    return Parameters(*map(np.float64, (sigma, first, decay)),
                      self.inner.parameters)
