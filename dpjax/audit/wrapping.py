"""Makes audit targets from mechanisms and functions, and their neighbours.

The attributes of an object decide which neighbours are tried: sums within a
bound on one record, scores within a sensitivity, or else data sets of records.
Neighbours respect every bound that the object declares. Without a bound every
number is a legal record, even a huge one, infinity or NaN.
"""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.audit import claims
from dpjax.audit.target import Noise
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.audit.target import toggles
from dpjax.privacy import additive
from dpjax.privacy import laplace
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import sum_sensitivity

# Default sizes of vectors and data sets: small, so that audits are fast.
_WIDTH = 3
_NUM_RECORDS = 8
# Without declared bounds, huge and non-finite records are tried too.
_HUGE = 1e6
_HOSTILE = (math.nan, math.inf)
DELTA = 1e-5


def of_mechanism(mechanism: Any, *, name: str = '', delta: float | None = None,
                 claim: claims.Claim | None = None,
                 pairs: Sequence[Pair] | None = None,
                 **overrides: Any) -> Target:
  """Returns the audit target of a mechanism; all that it declares is checked.

  Optional members that are read: `log_probs(data)` of a finite distribution,
  `log_density(data, outputs)`, `double_precision`, and the members that
  `neighbours_of` reads.

  Args:
    mechanism: object with `adjacency`, `event` and `release`.
    name: name for reports; by default that of the mechanism's type.
    delta: delta at which the event is converted to an epsilon; 0 for pure
      events, by default `DELTA`.
    claim: the audited claim; by default the event's.
    pairs: pairs of neighbours; by default those of `neighbours_of`.
    **overrides: fields of `Target` that replace those of the mechanism.
  """
  event = getattr(mechanism, 'event', None)
  if claim is None:
    claim = claims.of_event(event, adjacency=mechanism.adjacency,
                            delta=DELTA if delta is None else delta)
  if pairs is None:
    pairs = neighbours_of(mechanism, claim.adjacency)
  noise = declared_noise(mechanism)
  fields: dict[str, Any] = dict(
      log_probs=getattr(mechanism, 'log_probs', None), noise=noise,
      # On a public grid the lowest bits of a release reveal nothing.
      floating_point=noise is not None and noise.spacing > 0,
      double_precision=bool(getattr(mechanism, 'double_precision', False)),
      log_density=getattr(mechanism, 'log_density', None)) | overrides
  return Target(name=name or type(mechanism).__name__, claim=claim,
                release=mechanism.release, pairs=tuple(pairs), **fields)


def declared_noise(mechanism: Any) -> Noise | None:
  """Returns the declared noise of a Gaussian or Laplace mechanism, or None."""
  spacing = lambda scale: float(additive.grid_spacing(scale))
  if isinstance(mechanism, additive.GaussianMechanism):
    return Noise(stats.norm(scale=mechanism.stddev),
                 spacing=spacing(mechanism.stddev))
  if isinstance(mechanism, laplace.LaplaceMechanism):
    return Noise(stats.laplace(scale=mechanism.scale),
                 spacing=spacing(mechanism.scale))
  return None


def neighbours_of(mechanism: Any, adjacency: Adjacency) -> tuple[Pair, ...]:
  """Returns neighbours that the attributes of a mechanism allow.

  The first of these attributes that exists decides:
    `pairs`: the pairs themselves.
    `record_norm`: sums, in the norm `order`; by default l2 if there is a
      `stddev`, otherwise l1.
    `l2_sensitivity`, `l1_sensitivity`: sums at that distance.
    `sensitivity`: scores that all change by it, one up and the others down.
    `num_categories`: records in 0..K-1.
    `record_shape`, optionally `record_bounds`: data sets, see `search`.

  Raises:
    ValueError: if there is none of these.
  """
  def read(name: str) -> Any:
    return getattr(mechanism, name, None)
  if read('pairs') is not None:
    return tuple(Pair(*pair) for pair in read('pairs'))
  if read('record_norm') is not None:
    order = read('order') or (2 if read('stddev') else 1)
    return sums(sum_sensitivity(adjacency, record_norm=read('record_norm')),
                order=order)
  for order, name in ((2, 'l2_sensitivity'), (1, 'l1_sensitivity')):
    if read(name) is not None:
      return sums(read(name), order=order)
  if read('sensitivity') is not None:
    return scores(read('sensitivity'), monotone=bool(read('monotone')))
  if read('num_categories') is not None:
    return toggles(np.zeros([2], np.int32),
                   np.arange(min(read('num_categories'), 4), dtype=np.int32),
                   replace=adjacency is Adjacency.REPLACE_ONE)
  if read('record_shape') is None:
    raise ValueError(f'{type(mechanism).__name__} does not define neighbours: '
                     'give pairs or record_shape')
  return search(adjacency, shape=tuple(read('record_shape')),
                bounds=read('record_bounds'))


def sums(sensitivity: float, *, order: float,
         width: int = _WIDTH) -> tuple[Pair, ...]:
  """Returns pairs of sums [width] whose distance is the sensitivity.

  They differ along one axis or in all coordinates. Pairs near zero and far from
  it reveal noise that grows with the data.
  """
  errors.check_positive('sensitivity', sensitivity)
  axes = [np.eye(width)[place] for place in (0, width - 1)]
  signs = np.where(np.arange(width) % 2, -1.0, 1.0)
  shifts = [*axes, signs / np.linalg.norm(signs, order)]
  # Far from zero, but float32 is still much finer than the noise there.
  bases = [np.zeros(width), np.full(width, 64.0) * sensitivity]
  return tuple(
      Pair(np.float32(base + sensitivity * shift), np.float32(base),
           f'{_text(sensitivity * shift)} from {_text(base)}')
      for base in bases for shift in shifts)


def integer_sums(sensitivity: int, *,
                 width: int = _WIDTH) -> tuple[Pair, ...]:
  """Returns the pairs of `sums` that differ in one coordinate, as integers."""
  # Shifts of several coordinates are left out, as they are fractions.
  return tuple(Pair(pair.data.astype(np.int32), pair.neighbour.astype(np.int32),
                    pair.what)
               for pair in sums(sensitivity, order=1, width=width)
               if np.count_nonzero(pair.data - pair.neighbour) == 1)


def scores(sensitivity: float, *, monotone: bool = False,
           width: int = _WIDTH) -> tuple[Pair, ...]:
  """Returns pairs of candidates' scores that differ by the sensitivity.

  One score rises and the others fall; if `monotone`, the others stay.
  """
  errors.check_positive('sensitivity', sensitivity)
  shift = np.full(width, 0.0 if monotone else -1.0)
  shift[0] = 1.0
  # Equal scores, then increasing and decreasing ones.
  tilt = np.linspace(0.0, 2.0, width) * sensitivity
  return tuple(
      Pair(np.float32(base + sensitivity * change), np.float32(base), what)
      for base in (np.zeros(width), tilt, -tilt)
      for change, what in ((shift, 'one up, others down'),
                           (shift[::-1], 'the last up, others down'),
                           (np.eye(width)[0], 'one up')))


def search(adjacency: Adjacency, *, shape: tuple[int, ...],
           bounds: tuple[float, float] | None = None,
           num_records: int = _NUM_RECORDS) -> tuple[Pair, ...]:
  """Returns pairs of data sets that differ by one extreme record.

  The other records are all low, all high, in the middle or random, so that in
  some pairs they are opposite to the extreme record.

  Args:
    adjacency: which data sets are neighbours.
    shape: shape of a record; data sets are [n, *shape] float32.
    bounds: bounds on the numbers in a record; None if every number is legal,
      including infinity and NaN.
    num_records: number n of records, before one is added.
  """
  low, high = (-1.0, 1.0) if bounds is None else bounds
  full = lambda value: np.full(shape, value, np.float32)
  usual = full((low + high) / 2)
  bases = [np.stack([record] * num_records)
           for record in (full(low), full(high), usual)]
  bases.append(np.random.default_rng(0).uniform(
      low, high, (num_records, *shape)).astype(np.float32))
  extremes = [full(low), full(high), *_directions(shape, low, high)]
  if bounds is None:
    extremes += [full(value) for value in (-_HUGE, _HUGE, *_HOSTILE)]
    extremes += _directions(shape, -_HUGE, _HUGE)[:1]
  pairs: list[Pair] = []
  for base in bases:
    if adjacency is Adjacency.REPLACE_ONE:
      # Replace the extremes by each other, and by a usual record.
      pairs += toggles(base, np.stack(extremes[:2]), replace=True)
      for record in extremes[2:]:
        pairs += toggles(base, np.stack([record, usual]), replace=True)
    else:
      pairs += toggles(base, np.stack([*extremes, usual]), replace=False)
  return tuple(pairs)


def _directions(shape: tuple[int, ...], low: float,
                high: float) -> list[np.ndarray]:
  """Returns records that are extreme in one coordinate, or in all of them."""
  size = int(np.prod(shape))
  if size < 2:
    return []
  alternating = np.where(np.arange(size) % 2, high, low)
  first = np.full(size, (low + high) / 2)
  first[0] = high
  return [np.float32(record).reshape(shape)
          for record in (alternating, first, first[::-1])]


def _text(vector: np.ndarray) -> str:
  """Returns a vector as a short text."""
  return np.array2string(np.asarray(vector), precision=3)
