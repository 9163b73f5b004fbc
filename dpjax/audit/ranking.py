"""Scores of a pair of neighbours by few pilot runs with the same keys.

They only rank pairs, so they need not be valid tests.
"""

from collections.abc import Iterator

import numpy as np

from dpjax.audit import curves
from dpjax.audit import partitions

# Distances are cut here; noise that is zero makes them infinite.
_LARGEST = 1e6
_COORDINATES = 8
_CELLS = 32


def distance(one: np.ndarray, other: np.ndarray) -> float:
  """Returns the mean distance of outputs [n, d] drawn with the same keys.

  Its unit is the spread of the outputs of one data set, by coordinate. Without
  spread, any difference is huge.
  """
  with np.errstate(all='ignore'):
    differ = np.abs(one - other)
    # Equal infinities and equal NaN differ by 0, other such values hugely.
    differ[(one == other) | (np.isnan(one) & np.isnan(other))] = 0.0
    spread = np.maximum(*(np.median(np.abs(side - np.median(side, axis=0)),
                                    axis=0) for side in (one, other)))
    # Discrete outputs, most of them equal, have no spread and yet are random.
    random = np.maximum(*(np.any(side != side[:1], axis=0)
                          for side in (one, other)))
    spread = np.where(np.isfinite(spread) & (spread > 0), spread,
                      np.where(random, 1.0, 1e-300))
    units = np.nan_to_num(differ / spread, nan=_LARGEST, posinf=_LARGEST)
  return float(np.mean(np.minimum(np.linalg.norm(
      np.minimum(units, _LARGEST), axis=1), _LARGEST)))


def evidence(curve: curves.PrivacyCurve, one: np.ndarray,
             other: np.ndarray, *, low_bits: bool) -> float:
  """Returns the excess of the best simple event, in standard errors.

  Events are intervals up to or from a threshold and single values, of the first
  coordinates, the sum, the direction between the means and whole outputs; with
  `low_bits`, of the lowest bits too.
  """
  return max((_excess(curve, scores[:len(one)], scores[len(one):])
              for scores in _projected(one, other, low_bits)), default=-np.inf)


def _projected(one: np.ndarray, other: np.ndarray,
               low_bits: bool) -> Iterator[np.ndarray]:
  """Yields scores [2n] of the outputs of both sides."""
  both = np.concatenate([one, other])
  width = both.shape[1]
  if low_bits:
    for _, score in partitions.lowest_bits(width):
      yield score(both)
  for place in range(min(width, _COORDINATES)):
    yield both[:, place]
  if width > 1:
    finite = np.clip(np.nan_to_num(both), -1e30, 1e30)
    yield finite.sum(axis=1)
    shift = finite[:len(one)].mean(axis=0) - finite[len(one):].mean(axis=0)
    yield finite @ (shift / (finite.var(axis=0) + 1e-300) if shift.any()
                    else shift)
    # Equal outputs get equal numbers, others hardly ever.
    weights = np.random.default_rng(0).uniform(0.5, 1.5, width)
    yield (finite * weights).sum(axis=1)


def _excess(curve: curves.PrivacyCurve, one: np.ndarray,
            other: np.ndarray) -> float:
  """Returns the excess of the best event of a score, in standard errors."""
  values, places = np.unique(np.concatenate([one, other]), return_inverse=True)
  if values.size > _CELLS:
    places = places * _CELLS // values.size
  counts = np.stack([np.bincount(side, minlength=places.max() + 1) for side in (
      places[:len(one)], places[len(one):])])
  below = np.cumsum(counts, axis=1)[:, :-1]
  events = np.concatenate([below, len(one) - below, counts], axis=1)
  # Half a count more keeps rates off 0 and 1, where variances vanish.
  rates = (events + 0.5) / (len(one) + 1)
  hit, alarm = np.concatenate([rates, rates[::-1]], axis=1)[..., None]
  growth = np.exp(curve.epsilons)[None]
  error = np.sqrt((hit * (1 - hit) + growth**2 * alarm * (1 - alarm)) /
                  len(one))
  return float(np.max((hit - growth * alarm - curve.deltas[None]) / error,
                      initial=-np.inf))
