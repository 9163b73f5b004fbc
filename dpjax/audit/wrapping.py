"""Targets from mechanisms and functions, with neighbours that they can have.

What an object says of itself decides what is tried: a bound on one record of a
sum, a bound on scores, or nothing, and then records are. A bound that is stated
is kept; where none is, every number is a legal record, also one that is huge,
infinite or none.
"""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.audit import claims
from dpjax.audit.target import Noise, Pair, Target
from dpjax.audit.target import toggles
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency, sum_sensitivity

_WIDTH = 3
_NUM_RECORDS = 8
_HUGE = 1e6
_HOSTILE = (math.nan, math.inf)
DELTA = 1e-5


def of_mechanism(mechanism: Any, *, name: str = '', delta: float | None = None,
                 claim: claims.Claim | None = None,
                 pairs: Sequence[Pair] | None = None, **known: Any) -> Target:
  """The target of a `Mechanism`; whatever it says of itself is checked.

  Read where there is such a member: `log_probs(data)` of a finite law,
  `log_density(data, outputs)`, `double_precision`, and what `neighbours_of`
  reads.

  Args:
    mechanism: with `adjacency`, `event` and `release`.
    name: for reports; its type's when not given.
    delta: at which the event is turned into an epsilon; 0 for pure events.
    claim: what is said of it; what its event says when not given.
    pairs: neighbours; `neighbours_of` when not given.
    **known: fields of `Target`, where the mechanism does not tell.
  """
  event = getattr(mechanism, 'event', None)
  if claim is None:
    claim = claims.of_event(event, adjacency=mechanism.adjacency,
                            delta=DELTA if delta is None else delta)
  if pairs is None:
    pairs = neighbours_of(mechanism, claim.adjacency)
  noise = declared_noise(mechanism)
  found = dict(log_probs=getattr(mechanism, 'log_probs', None), noise=noise,
               floating_point=noise is not None and noise.spacing > 0,
               double_precision=bool(getattr(mechanism, 'double_precision',
                                             False)),
               log_density=getattr(mechanism, 'log_density', None)) | known
  return Target(name=name or type(mechanism).__name__, claim=claim,
                release=mechanism.release, pairs=tuple(pairs), **found)


def declared_noise(mechanism: Any) -> Noise | None:
  """The noise that a mechanism of this library adds to its data, if known."""
  spacing = lambda scale: float(additive.grid_spacing(scale))
  if isinstance(mechanism, additive.GaussianMechanism):
    return Noise(stats.norm(scale=mechanism.stddev),
                 spacing=spacing(mechanism.stddev))
  if type(mechanism).__name__ == 'LaplaceMechanism':
    return Noise(stats.laplace(scale=mechanism.scale),
                 spacing=spacing(mechanism.scale))
  return None


def neighbours_of(mechanism: Any, adjacency: Adjacency) -> tuple[Pair, ...]:
  """Neighbours that a mechanism's own words allow.

  `pairs`, as they are; `record_norm` (of norm `order`; of l2 if there is a
  `stddev`, of l1 otherwise), `l2_sensitivity`, `l1_sensitivity`: sums at that
  distance; `sensitivity`: numbers that all change by it, one up and the others
  down; `num_categories`: records 0..K-1; `record_shape`, and maybe
  `record_bounds`: records, see `search`.

  Raises:
    ValueError: if there is none of these.
  """
  read = lambda name: getattr(mechanism, name, None)
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
    raise ValueError(f'{type(mechanism).__name__} does not say what neighbours '
                     'are: give pairs, or the shape of a record')
  return search(adjacency, shape=tuple(read('record_shape')),
                bounds=read('record_bounds'))


def sums(sensitivity: float, *, order: float,
         width: int = _WIDTH) -> tuple[Pair, ...]:
  """Exact sums [width] at a distance in the norm: along an axis, across all.

  At zero and far from it: noise that grows with the data shows.
  """
  errors.check_positive('sensitivity', sensitivity)
  axes = [np.eye(width)[place] for place in (0, width - 1)]
  across = np.where(np.arange(width) % 2, -1.0, 1.0)
  shifts = [*axes, across / np.linalg.norm(across, order)]
  # Far, but where float32 is still much finer than the noise.
  bases = [np.zeros(width), np.full(width, 64.0) * sensitivity]
  return tuple(
      Pair(np.float32(base + sensitivity * shift), np.float32(base),
           f'{_text(sensitivity * shift)} from {_text(base)}')
      for base in bases for shift in shifts)


def integer_sums(sensitivity: int, *,
                 width: int = _WIDTH) -> tuple[Pair, ...]:
  """Those of `sums` that are integers."""
  return tuple(Pair(pair.data.astype(np.int32), pair.neighbour.astype(np.int32),
                    pair.what)
               for pair in sums(sensitivity, order=1, width=width)
               if np.count_nonzero(pair.data - pair.neighbour) == 1)


def scores(sensitivity: float, *, monotone: bool = False,
           width: int = _WIDTH) -> tuple[Pair, ...]:
  """Scores of candidates that all change, one up and the others down.

  Monotone ones all change in one direction, if at all.
  """
  errors.check_positive('sensitivity', sensitivity)
  shift = np.full(width, 0.0 if monotone else -1.0)
  shift[0] = 1.0
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
  """Data sets of records, and extreme records that join or leave them.

  Others are all low, all high, at zero or at random, so that a record finds
  company that pulls the other way.

  Args:
    adjacency: which are neighbours.
    shape: of a record; data sets are [n, *shape] float32.
    bounds: of the numbers in a record; None if every number is legal, also
      infinite ones and none.
    num_records: of a data set.
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
  found = []
  for base in bases:
    if adjacency is Adjacency.REPLACE_ONE:
      # Extremes against each other, and against what is usual.
      found += toggles(base, np.stack(extremes[:2]), replace=True)
      for record in extremes[2:]:
        found += toggles(base, np.stack([record, usual]), replace=True)
    else:
      found += toggles(base, np.stack([*extremes, usual]), replace=False)
  return tuple(found)


def _directions(shape: tuple[int, ...], low: float,
                high: float) -> list[np.ndarray]:
  """Records that are extreme in one coordinate, and in all by turns."""
  size = int(np.prod(shape))
  if size < 2:
    return []
  turns = np.where(np.arange(size) % 2, high, low)
  first = np.full(size, (low + high) / 2)
  first[0] = high
  return [np.float32(record).reshape(shape)
          for record in (turns, first, first[::-1])]


def _text(vector: np.ndarray) -> str:
  return np.array2string(np.asarray(vector), precision=3)
