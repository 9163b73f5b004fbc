"""Densities under audit: what neighbours shift, in units of the noise beneath.

Data are the statistics that a release sees: counts of few bins, or sums of few
waves. What follows the noise is post-processing, so that the shift bounds what
is told, and it is measured without sampling. Releases are told apart besides,
as others do.
"""

from collections.abc import Callable, Sequence
import dataclasses
import itertools
import math

import jax
import numpy as np

from dpjax.audit import claims
from dpjax.audit import wrapping
from dpjax.audit.target import Pair, Query, Target
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import hierarchies
from dpjax.stats.density import histograms
from dpjax.stats.density import sparse
from dpjax.stats.density.mechanism import DensityMechanism
from dpjax.stats.density.noisy_counts import CountsMechanism
from experiments.audits import ecdf

_GRID = 256
"""Places of records that are tried on the unit interval."""

_DIRECTIONS = 16

Value = Callable[[np.ndarray], np.ndarray]
"""A statistic in scales of its noise: of Laplace, or standard deviations."""


def counts(mechanism: CountsMechanism, *,
           claim: claims.Claim | None = None) -> Target:
  """What sees nothing but noisy counts of few bins.

  Args:
    mechanism: as it runs.
    claim: what is said of it; what its event says when not given.
  """
  known = {}
  if (isinstance(mechanism, histograms.Histogram) and mechanism.pure
      and mechanism.knows_total and not mechanism.fix_mass
      and mechanism.post == 'none'):
    known['log_density'] = lambda data, outputs: log_law(
        mechanism, data, outputs)
  return _target(mechanism, mechanism.num_bins, claim,
                 lambda data: data / mechanism.scale, **known)


def levels(mechanism: hierarchies.TreeDensity | hierarchies.HaarDensity, *,
           claim: claims.Claim | None = None) -> Target:
  """Trees of counts, or differences of halves; arguments as of `counts`."""
  def nodes(data):
    found = [np.asarray(data, np.float64)]
    while found[0].size > 2:
      found.insert(0, found[0].reshape(-1, 2).sum(1))
    return found

  def value(data):
    found = nodes(data)
    if isinstance(mechanism, hierarchies.HaarDensity):
      found = [level[::2] - level[1::2] for level in found]
    return np.concatenate([level / scale for level, scale in zip(
        found, mechanism.scales, strict=True)])
  return _target(mechanism, 2**mechanism.height, claim, value)


def sums(mechanism: DensityMechanism, scales: np.ndarray, *,
         claim: claims.Claim | None = None) -> Target:
  """Sums of waves with noise of these scales, one for each; as `counts`.

  Neighbours are the records on a grid that move the sums farthest.
  """
  order = 1 if mechanism.pure else 2
  value = lambda data: data / scales
  return _target(mechanism, 0, claim, value, pairs=farthest(
      mechanism, value, order))


def waves(mechanism: sparse.SparseFourier, *,
          claim: claims.Claim | None = None) -> Target:
  """Rounds of choosing and measuring waves; arguments as of `counts`.

  Of any wave no part moves by more than 2, whichever way it is turned; scores
  and what is measured move as far at most.
  """
  turns = 2 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS

  def value(data):
    cosines, sines = np.reshape(data, (2, -1))
    return np.multiply.outer(np.cos(turns), cosines) + np.multiply.outer(
        np.sin(turns), sines)
  found = _target(mechanism, 0, claim, value, pairs=farthest(
      mechanism, value, math.inf))
  return dataclasses.replace(found, query=Query(value, 2.0, math.inf))


def farthest(mechanism: DensityMechanism, value: Value, order: float
             ) -> tuple[Pair, ...]:
  """Statistics of neighbours that are farthest apart, and of ends of [0, 1].

  All other records are at .2 and .7.
  """
  places = np.arange(_GRID + 1) / _GRID
  base = mechanism.statistic(np.array([0.2, 0.7, 0.7]))
  single = np.stack([mechanism.statistic(place[None]) for place in places])
  scaled = np.stack([np.ravel(value(each)) for each in single])
  if mechanism.adjacency is Adjacency.REPLACE_ONE:
    tried = list(itertools.combinations(range(places.size), 2))
    # Row by row: all differences at once would be many.
    lengths = np.concatenate([np.linalg.norm(
        scaled[i + 1:] - scaled[i], order, axis=1)
        for i in range(places.size - 1)])
    return tuple(Pair(base + single[i], base + single[j],
                      f'{places[i]:g} for {places[j]:g}')
                 for i, j in (tried[np.argmax(lengths)], (0, _GRID)))
  lengths = np.linalg.norm(scaled, order, axis=1)
  return tuple(Pair(base + single[i], base, f'{places[i]:g} or none')
               for i in (np.argmax(lengths), 0))


def _target(mechanism: DensityMechanism, num_bins: int,
            claim: claims.Claim | None, value: Value,
            pairs: Sequence[Pair] | None = None, **known) -> Target:
  query = (Query(value, mechanism.epsilon, 1) if mechanism.pure
           else Query(value, math.sqrt(2 * mechanism.rho)))
  if pairs is None:
    pairs = ecdf.neighbours(num_bins, mechanism.adjacency)
  made = wrapping.of_mechanism(
      mechanism, delta=0.0 if mechanism.pure else wrapping.DELTA, claim=claim,
      pairs=pairs, query=query, **known)

  def release(key, data):
    found = mechanism.release(key, data)
    return ((found.real, found.imag)
            if jax.numpy.iscomplexobj(found) else found)
  return dataclasses.replace(made, release=release)


def log_law(mechanism: histograms.Histogram, data: np.ndarray,
            outputs: np.ndarray) -> np.ndarray:
  """Log-probabilities [r] of heights [r, m], but for a constant; n is public."""
  noise = outputs * mechanism.num_records / mechanism.num_bins - data
  return -np.sum(np.abs(noise), -1) / mechanism.scale
