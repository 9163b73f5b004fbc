"""Makes directions of features equally large, by private second moments.

Few directions carry most of the size of scattering coefficients. A private
linear model learns little in the others before its noise has grown: it helps
more to shrink the large directions first. Their second moments have few
numbers, if they are taken over channels and over places instead of over all
pairs of features, so noise hardly disturbs them and their release costs little.
"""

from collections.abc import Callable, Iterator
import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.features import normalisation
from dpjax.features import sums
from dpjax.privacy import accounting
from dpjax.privacy.additive import GaussianMechanism
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.typing import Array, ArrayLike, PRNGKey

_HIGHEST = jax.lax.Precision.HIGHEST


@functools.partial(jax.tree_util.register_dataclass, meta_fields=[],
                   data_fields=['mean', 'channels', 'places'])
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Whitening:
  """Whitens features by released moments; a function of one record.

  Attributes:
    mean: released mean of the features of norm 1, [p, c] for p places.
    channels: [c, c] matrix by which the channels of a place are multiplied.
    places: [p, p] matrix by which the places of a channel are multiplied.
  """
  mean: Array
  channels: Array
  places: Array

  def __call__(self, features: ArrayLike) -> Array:
    """Returns features of the shape [b, ..., c] of the given ones, of norm 1.

    The norm is over all features of a record. A record of zeros remains one,
    and a record with an entry that is not finite becomes NaN, so that training
    leaves it out as it would have.
    """
    x = _places(normalisation.floats(features))
    rows = _by_channels(_centred(x, self.mean), self.channels)
    rows = _unit(jnp.einsum('bpc,pq->bqc', rows, self.places,
                            precision=_HIGHEST))
    finite = jnp.all(jnp.isfinite(x), (1, 2), keepdims=True)
    return jnp.where(finite, rows, jnp.nan).reshape(jnp.shape(features))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateWhitening:
  """Releases a mean and two matrices of second moments with Gaussian noise.

  A record is scaled to norm 1, its mean over records is subtracted, and it is
  scaled again. Then its channels are multiplied by (S + f I)^(-1/2), where S is
  the released matrix of second moments of channels, summed over places, and f a
  floor; then its places likewise, by their matrix over channels.

  Guarantee: (epsilon, delta)-DP under `adjacency` for every pair that
  `accounting` returns for `event`, for features of which each row is a function
  of one record. Proof:

  1. There are three sums over records, each released with noise before the next
     one is formed. A contribution to a sum is a function of one record and of
     what has been released.
  2. It is a vector of l2 norm at most 1: the record of norm 1; or the entries
     of X^T X, for X [p, c] of Frobenius norm 1, those off the diagonal once and
     times sqrt(2), so that the norm of the vector is the Frobenius norm of the
     matrix, which is at most that of X squared. It is clipped to norm 1 all the
     same, so that rounding does not matter, and rounded towards zero to
     multiples of 2^-24.
  3. The sum of these multiples is exact, because it is a sum of integers. So
     `GaussianMechanism` with the record norm 1 makes each sum private. Its last
     rounding to float32 is not counted.
  4. The three releases compose adaptively. All that follows is post-processing,
     with the public `num_examples` as divisor.

  Source: the mechanism and its proof are ours. Shampoo (Gupta, Koren and
  Singer, 2018) scales gradients by such pairs of matrices.

  Attributes:
    noise_multiplier: standard deviation of the noise of each sum over the
      record norm 1.
    num_examples: public number of records. Under REPLACE_ONE it is that of the
      data; under ADD_OR_REMOVE_ONE it is a public guess, by which sums are
      divided.
    adjacency: neighbouring relation of the guarantee.
    floor: f as a multiple of the mean eigenvalue of a matrix. No direction
      grows by more than f^(-1/2). If f is less than the largest eigenvalue that
      noise alone has, that is taken.

  Examples:
    >>> from dpjax import privacy
    >>> from dpjax.features.whitening import PrivateWhitening
    >>> whitening = PrivateWhitening(
    ...     noise_multiplier=8.0, num_examples=1000,
    ...     adjacency=privacy.Adjacency.ADD_OR_REMOVE_ONE)
    >>> x = np.random.default_rng(0).uniform(1, 2, (1000, 2, 2, 3))
    >>> whiten = whitening.release(privacy.system_keys(1)[0],
    ...                            x.astype(np.float32))
    >>> whiten(x[:5].astype(np.float32)).shape
    (5, 2, 2, 3)
    >>> round(privacy.epsilon(whitening.event, delta=1e-5,
    ...                       adjacency=whitening.adjacency), 2)
    0.79
  """
  noise_multiplier: float
  num_examples: int
  adjacency: Adjacency
  floor: float = 0.2

  def __post_init__(self) -> None:
    errors.check_at_least('num_examples', self.num_examples, 1)
    errors.check_scale('noise_multiplier', self.noise_multiplier)
    errors.check_scale('floor', self.floor)
    check_adjacency(self.adjacency)

  @property
  def noise(self) -> GaussianMechanism:
    """The mechanism that releases each of the three sums."""
    return GaussianMechanism(record_norm=1.0, adjacency=self.adjacency,
                             noise_multiplier=self.noise_multiplier)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return accounting.repeated_event(self.noise.event, 3)

  def totals(self, data: ArrayLike) -> Iterator[Callable[..., Array]]:
    """Yields the three exact sums, as functions of what has been released.

    They are PRIVATE, and each of l2 sensitivity `noise.l2_sensitivity`: of
    nothing, [p c]; of the mean [p, c], [c (c + 1) / 2]; and of the mean and the
    matrix of channels [c, c], [p (p + 1) / 2].

    Args:
      data: features [n, ..., c], a row for each record.

    Raises:
      ValueError: if data are no features of records, have another number of
        records under REPLACE_ONE, or more than 2^22.
    """
    x = normalisation.floats(data)
    normalisation.check_records(x.shape, self.num_examples, self.adjacency)
    x = _places(x)
    for contribution in (_to_mean, _to_channels, _to_places):
      yield functools.partial(sums.exact_sum_of, contribution, x)

  def release(self, key: PRNGKey, data: ArrayLike) -> Whitening:
    """Returns the whitening by noisy moments of features [n, ..., c].

    Args:
      key: secret key, fresh for this release.
      data: features, a row for each record; PRIVATE.
    """
    of_mean, of_channels, of_places = self.totals(data)
    first, second, third = jax.random.split(key, 3)
    shape = _places(normalisation.floats(data)).shape[1:]
    mean = (self.noise.release(first, of_mean()) / self.num_examples
            ).reshape(shape)
    channels = self._root(self.noise.release(second, of_channels(mean)),
                          shape[1])
    places = self._root(self.noise.release(third, of_places(mean, channels)),
                        shape[0])
    return Whitening(mean=mean, channels=channels, places=places)

  def risk(self, num_values: int) -> None:
    """Returns None, because the bias of the floor depends on the data."""
    del num_values

  def _root(self, noisy: Array, size: int) -> Array:
    """Returns (S + f I)^(-1/2) [size, size], where S is of a noisy sum."""
    moments = _matrix(noisy / self.num_examples, size)
    # Of the semicircle law; entries off the diagonal have 1 / sqrt(2) of the
    # standard deviation.
    of_noise = (self.noise.stddev / self.num_examples) * math.sqrt(2 * size)
    values, vectors = jnp.linalg.eigh(moments)
    scales = jax.lax.rsqrt(jnp.maximum(values, 0) +
                           max(self.floor / size, of_noise))
    return jnp.matmul(vectors * scales[None], vectors.T, precision=_HIGHEST)


def _places(x: Array) -> Array:
  """Returns features [b, ..., c] as [b, p, c], one place if there are none."""
  return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])


def _to_mean(rows: Array) -> Array:
  """Returns the contributions of records [b, p, c] to the mean: [b, p c]."""
  return sums.clipped(_unit(rows).reshape(rows.shape[0], -1), 1.0)


def _to_channels(rows: Array, mean: Array) -> Array:
  """Returns those to the moments of channels, see `_squares`."""
  return _squares(_centred(rows, mean))


def _to_places(rows: Array, mean: Array, channels: Array) -> Array:
  """Returns those to the moments of places, see `_squares`."""
  return _squares(jnp.swapaxes(_by_channels(_centred(rows, mean), channels),
                               1, 2))


def _unit(rows: Array) -> Array:
  """Returns records [b, p, c] of norm 1; zeros remain zeros.

  An entry that is not finite counts as 0.
  """
  finite = jnp.where(jnp.isfinite(rows), rows, 0)
  # The square of a large number is infinite.
  largest = jnp.max(jnp.abs(finite), (1, 2), keepdims=True)
  scaled = finite / jnp.where(largest > 0, largest, 1)
  square = jnp.sum(jnp.square(scaled), (1, 2), keepdims=True)
  return scaled * jax.lax.rsqrt(jnp.where(square > 0, square, 1))


def _centred(rows: Array, mean: Array) -> Array:
  """Returns records of norm 1 minus the mean, scaled to norm 1 again.

  A record of zeros remains one.
  """
  unit = _unit(rows)
  exists = jnp.any(unit != 0, (1, 2), keepdims=True)
  return _unit(jnp.where(exists, unit - mean[None], 0))


def _by_channels(rows: Array, channels: Array) -> Array:
  """Returns records of norm 1 with channels multiplied by a matrix."""
  return _unit(jnp.einsum('bpc,cd->bpd', rows, channels, precision=_HIGHEST))


def _squares(rows: Array) -> Array:
  """Returns the second moments of each record [b, p, c] as vectors.

  X^T X of each record: the diagonal, then the upper triangle times sqrt(2).
  """
  products = jnp.einsum('bpc,bpd->bcd', rows, rows, precision=_HIGHEST)
  above = jnp.triu_indices(rows.shape[2], 1)
  return sums.clipped(jnp.concatenate([
      jnp.diagonal(products, axis1=1, axis2=2),
      products[:, above[0], above[1]] * jnp.float32(math.sqrt(2))], 1), 1.0)


def _matrix(vector: Array, size: int) -> Array:
  """Returns the symmetric matrix of a vector, the inverse of `_squares`."""
  above = jnp.triu_indices(size, 1)
  half = jnp.zeros((size, size), vector.dtype).at[above].set(
      vector[size:] / jnp.float32(math.sqrt(2)))
  return half + half.T + jnp.diag(vector[:size])
