"""Normalises features: by their own record, or by private moments of all.

Plain data normalisation subtracts the mean of the training features, which a
record moves. `GroupNormalisation` uses the statistics of one record and costs
nothing. `PrivateNormalisation` releases the moments of the data set with noise,
once, before training; its event is to be composed with that of training.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.additive import GaussianMechanism
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.typing import Array, ArrayLike, PRNGKey

# Sums of more integers than this, each at most 2^8, may not fit into 32 bits.
_MOST_RECORDS = 2**22
_ROUNDING = 2.0**-24


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupNormalisation:
  """Makes groups of channels of each record have mean 0 and variance 1.

  Guarantee: a row of the result is a function of the same row of the features,
  so it costs no privacy budget. There are no parameters to learn. Source: Wu
  and He (2018).

  Attributes:
    groups: number of groups of consecutive channels; divides the channels.
    least_variance: positive number that is added to the variance of a group.

  Examples:
    >>> from dpjax.features.normalisation import GroupNormalisation
    >>> GroupNormalisation(groups=1)(np.float32([[1.0, 3.0], [5.0, 5.0]]))
    Array([[-0.999995,  0.999995],
           [ 0.      ,  0.      ]], dtype=float32)
  """
  groups: int
  least_variance: float = 1e-5

  def __post_init__(self) -> None:
    errors.check_at_least('groups', self.groups, 1)
    errors.check_positive('least_variance', self.least_variance)

  def __call__(self, features: ArrayLike) -> Array:
    """Returns normalised features of the shape [b, ..., c] of the given ones.

    Raises:
      ValueError: if the number of groups does not divide c.
    """
    x = _floats(features)
    if x.shape[-1] % self.groups:
      raise ValueError(f'groups must divide the {x.shape[-1]} channels, got '
                       f'{self.groups}')
    grouped = x.reshape(x.shape[0], math.prod(x.shape[1:-1]), self.groups,
                        x.shape[-1] // self.groups)
    mean = grouped.mean((1, 3), keepdims=True)
    centred = grouped - mean
    variance = jnp.square(centred).mean((1, 3), keepdims=True)
    return (centred * jax.lax.rsqrt(variance + self.least_variance)
            ).reshape(x.shape)


@functools.partial(
  jax.tree_util.register_dataclass, meta_fields=[],
  data_fields=['mean', 'second_moment', 'least_variance'])
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Normalisation:
  """Normalises features by released moments; a function of one record.

  Attributes:
    mean: released mean of each channel, [c].
    second_moment: released mean of the squares of each channel, [c]; noise may
      make it smaller than the squared mean.
    least_variance: public lower bound of the variance that divides, a scalar.
  """
  mean: Array
  second_moment: Array
  least_variance: Array

  @property
  def variance(self) -> Array:
    """Variance of each channel, at least `least_variance`; [c]."""
    return jnp.maximum(self.second_moment - jnp.square(self.mean),
                       self.least_variance)

  def __call__(self, features: ArrayLike) -> Array:
    """Returns features [b, ..., c] minus the mean, over the deviation."""
    x = _floats(features)
    expand = lambda values: values.reshape((1,) * (x.ndim - 1) + (-1,))
    return (x - expand(self.mean)) * expand(jax.lax.rsqrt(self.variance))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateNormalisation:
  """Releases mean and second moment of each channel with Gaussian noise.

  Guarantee: (epsilon, delta)-DP under `adjacency` for every pair that
  `accounting` returns for `event`, for features of which each row is a function
  of one record. Proof:

  1. A record contributes the vector v = (m / (sqrt(2) A), q / (sqrt(2) B)),
     where m are its means over places, clipped to l2 norm A = `mean_norm`, and
     q its means of squares, clipped to l2 norm B = `square_norm`. An entry that
     is not finite counts as 0.
  2. Both halves of v have l2 norm at most 1 / sqrt(2), so v has at most 1.
     Clipping shrinks by more than the rounding errors of norm and quotient, and
     numbers are rounded towards zero to multiples of 2^-24.
  3. The sum of these multiples is exact, because it is a sum of integers. So
     adding or removing a record changes it by at most 1 in l2 norm, and
     replacing one by at most 2; its last rounding to float32 is not counted.
  4. `GaussianMechanism` with the record norm 1 adds noise of one scale to all
     entries of the sum. All that follows is post-processing, with the public
     `num_examples` as divisor.

  Clipping and truncation bias the moments if A or B is too small; noise grows
  with them. Both are public: choose them from public images, or from the
  features' construction. Source: Tramer and Boneh (2021) normalise scattering
  coefficients by noisy moments of clipped contributions; the joint release and
  its proof are ours.

  Attributes:
    mean_norm: A, bound on the l2 norm of a record's means.
    square_norm: B, bound on the l2 norm of a record's mean squares.
    noise_multiplier: standard deviation of the noise over the record norm 1.
    num_examples: public number of records. Under REPLACE_ONE it is that of the
      data; under ADD_OR_REMOVE_ONE it is a public guess, by which sums are
      divided.
    adjacency: neighbouring relation of the guarantee.

  Examples:
    >>> from dpjax import privacy
    >>> from dpjax.features.normalisation import PrivateNormalisation
    >>> normalising = PrivateNormalisation(
    ...     mean_norm=2.0, square_norm=2.0, noise_multiplier=8.0,
    ...     num_examples=1000, adjacency=privacy.Adjacency.ADD_OR_REMOVE_ONE)
    >>> x = np.random.default_rng(0).uniform(1, 2, (1000, 1)).astype(np.float32)
    >>> normalise = normalising.release(privacy.system_keys(1)[0], x)
    >>> normalise(x).shape
    (1000, 1)
    >>> round(privacy.epsilon(normalising.event, delta=1e-5,
    ...                       adjacency=normalising.adjacency), 2)
    0.48
  """
  mean_norm: float
  square_norm: float
  noise_multiplier: float
  num_examples: int
  adjacency: Adjacency

  def __post_init__(self) -> None:
    errors.check_scale('mean_norm', self.mean_norm)
    errors.check_scale('square_norm', self.square_norm)
    errors.check_at_least('num_examples', self.num_examples, 1)
    errors.check_scale('noise_multiplier', self.noise_multiplier)
    check_adjacency(self.adjacency)

  @property
  def noise(self) -> GaussianMechanism:
    """The mechanism that releases the sum of contributions."""
    return GaussianMechanism(record_norm=1.0, adjacency=self.adjacency,
                             noise_multiplier=self.noise_multiplier)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return self.noise.event

  def total(self, data: ArrayLike) -> Array:
    """Returns the exact sum [2 c] of contributions of features [n, ..., c].

    It is PRIVATE, and of l2 sensitivity `noise.l2_sensitivity`.

    Raises:
      ValueError: if data are no features of records, have another number of
        records under REPLACE_ONE, or more than 2^22.
    """
    x = _floats(data)
    if self.adjacency is Adjacency.REPLACE_ONE:
      errors.check_records(x.shape[:1], self.num_examples)
    if x.shape[0] > _MOST_RECORDS:
      raise ValueError(f'moments are of at most {_MOST_RECORDS} records, got '
                       f'{x.shape[0]}')
    places = x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])
    return _exact_sum(jnp.concatenate([
      _clipped(places.mean(1), self.mean_norm),
      _clipped(jnp.square(places).mean(1), self.square_norm)], axis=1))

  def release(self, key: PRNGKey, data: ArrayLike) -> Normalisation:
    """Returns the normalisation by noisy moments of features [n, ..., c].

    Args:
      key: secret key, fresh for this release.
      data: features, a row for each record; PRIVATE.
    """
    noisy = self.noise.release(key, self.total(data))
    mean, second = jnp.split(noisy * (math.sqrt(2) / self.num_examples), 2)
    # One standard deviation of the noise on a second moment.
    least = (math.sqrt(2) * self.square_norm * self.noise_multiplier /
             self.num_examples)
    return Normalisation(mean=mean * self.mean_norm,
                         second_moment=second * self.square_norm,
                         least_variance=jnp.float32(least))

  def risk(self, num_values: int) -> None:
    """Returns None, because the bias of clipping depends on the data."""
    del num_values


def _clipped(values: Array, bound: float) -> Array:
  """Returns rows [n, c] clipped to l2 norm `bound`, over sqrt(2) times it."""
  finite = jnp.where(jnp.isfinite(values), values, 0)
  norms = jnp.linalg.norm(finite, axis=1, keepdims=True)
  # A norm of c numbers has a relative error of at most (c + 3) / 2 roundings,
  # and a handful more follow.
  shrink = (1 - (values.shape[1] + 8) * _ROUNDING) / math.sqrt(2)
  return finite * (shrink / jnp.maximum(norms, bound))


def _exact_sum(values: Array) -> Array:
  """Returns the sum over axis 0 of values in [-1, 1], truncated to 2^-24.

  Each value is split into three integers of at most 8 bits, by steps that are
  exact in float32; the integers are added without rounding.
  """
  total, rest = jnp.zeros(values.shape[1:], jnp.float32), values
  for part in range(1, 4):
    whole = jnp.trunc(rest * 256)
    rest = rest * 256 - whole
    total += jnp.sum(whole.astype(jnp.int32), axis=0).astype(
      jnp.float32) * 256.0**-part
  return total


def _floats(features: ArrayLike) -> Array:
  """Returns features as float32; raises ValueError if they are no rows."""
  x = jnp.asarray(features)
  if x.ndim < 2 or not jnp.issubdtype(x.dtype, jnp.floating):
    raise ValueError(f'features must be floats [b, ..., c], got {x.dtype} of '
                     f'shape {list(x.shape)}')
  return x.astype(jnp.float32)
