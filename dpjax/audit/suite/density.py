"""Audit targets for private density estimators.

The data of a target are the exact statistics: counts of a few bins, or sums of
a few trigonometric functions (waves). Everything after the noise is
post-processing, so the shift between neighbours, in units of the noise, bounds
the privacy loss. A deterministic check measures it; tests on sampled releases
follow as for other targets. Without a `claim`, that of the event is audited.
"""

from collections.abc import Callable, Sequence
import dataclasses
import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import wrapping
from dpjax.audit.suite import ecdf
from dpjax.audit.target import Pair
from dpjax.audit.target import Query
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import hierarchies
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import sparse
from dpjax.stats.density_methods.mechanism import DensityMechanism
from dpjax.stats.density_methods.noisy_counts import CountsMechanism
from dpjax.stats.density_methods.stages import TwoResolutions
from dpjax.stats.density_methods.stages import TwoStages
from dpjax.stats.density_methods.trigonometric import SumsMechanism
from dpjax.stats.density_methods.weighted import WeightedParameters
from dpjax.typing import PRNGKey, PyTree

_GRID = 256
"""Number of grid cells on the unit interval whose ends are tried as records."""

_DIRECTIONS = 16

Value = Callable[[np.ndarray], np.ndarray]
"""Maps data to the statistic in units of its noise.

The unit is the scale of Laplace noise, or the standard deviation.
"""


def counts(mechanism: CountsMechanism, *,
           claim: claims.Claim | None = None) -> Target:
  """Returns the target of an estimator that uses noisy counts of a few bins.
  """
  fields: dict[str, Any] = {}
  # Without post-processing, the heights are the noisy counts up to a factor.
  if (isinstance(mechanism, histograms.Histogram) and mechanism.pure
      and mechanism.knows_total and not mechanism.fix_mass
      and mechanism.post == 'none'):
    fields['log_density'] = lambda data, outputs: log_density(
        mechanism, data, outputs)
  return _target(
      mechanism, claim, ecdf.neighbours(mechanism.num_bins,
                                        mechanism.adjacency),
      lambda data: data / mechanism.scale, **fields)


def levels(mechanism: hierarchies.TreeDensity | hierarchies.HaarDensity, *,
           claim: claims.Claim | None = None) -> Target:
  """Returns the target of a tree of counts, or of Haar differences."""
  def nodes(data: np.ndarray) -> list[np.ndarray]:
    tree = [np.asarray(data, np.float64)]
    while tree[0].size > 2:  # The root is not measured.
      tree.insert(0, tree[0].reshape(-1, 2).sum(1))
    return tree

  def value(data: np.ndarray) -> np.ndarray:
    tree = nodes(data)
    if isinstance(mechanism, hierarchies.HaarDensity):
      tree = [level[::2] - level[1::2] for level in tree]
    return np.concatenate([level / scale for level, scale in zip(
        tree, mechanism.scales, strict=True)])
  return _target(mechanism, claim, ecdf.neighbours(
      2**mechanism.height, mechanism.adjacency), value)


def stages(mechanism: TwoResolutions | TwoStages, *,
           claim: claims.Claim | None = None) -> Target:
  """Returns the target of two histograms of the same records.

  However many bins the second histogram has, a replaced record lowers at most
  one count of each and raises another, so the bins of the first suffice.
  """
  size, scales = mechanism.num_bins, mechanism.parameters.scales
  base, places = np.arange(size) % 3.0, (0, size // 2, size - 1)
  pairs = [Pair(base + np.eye(size)[i], base + np.eye(size)[j],
                f'bin {i + 1} or {j + 1}')
           for i, j in itertools.combinations(places, 2)]
  return _target(mechanism, claim, pairs, lambda data: np.concatenate(
      [data / scale for scale in scales]))


def sums(mechanism: SumsMechanism, *,
         claim: claims.Claim | None = None) -> Target:
  """Returns the target of sums of waves, each with its own noise scale.

  Neighbours are the records on a grid that change the sums most.
  """
  parameters = mechanism.parameters
  if isinstance(parameters, WeightedParameters):
    parameters = parameters.sums
  scales = parameters.scales
  value: Value = lambda data: data / scales
  return _target(mechanism, claim, farthest(
      mechanism, value, 1 if mechanism.pure else 2), value)


def waves(mechanism: sparse.SparseFourier, *,
          claim: claims.Claim | None = None) -> Target:
  """Returns the target of rounds that choose and measure waves.

  A replaced record changes the projection of a wave's sum on any direction by
  at most 2. Scores and measurements change by no more.
  """
  angles = 2 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS

  def value(data: np.ndarray) -> np.ndarray:
    cosines, sines = np.reshape(data, (2, -1))
    return np.multiply.outer(np.cos(angles), cosines) + np.multiply.outer(
        np.sin(angles), sines)
  unbounded = _target(mechanism, claim, farthest(mechanism, value, math.inf),
                  value)
  return dataclasses.replace(unbounded, query=Query(value, 2.0, math.inf))


def farthest(mechanism: DensityMechanism, value: Value, order: float
             ) -> tuple[Pair, ...]:
  """Returns the neighbours whose statistics are farthest apart.

  A second pair uses the ends of [0, 1], or the record 0. All other records are
  at .2 and .7.
  """
  places = np.arange(_GRID + 1) / _GRID
  base = mechanism.statistic(np.array([0.2, 0.7, 0.7]))
  single = np.stack([mechanism.statistic(place[None]) for place in places])
  scaled = np.stack([np.ravel(value(statistic)) for statistic in single])
  if mechanism.adjacency is Adjacency.REPLACE_ONE:
    tried = list(itertools.combinations(range(places.size), 2))
    # Row by row, because all differences at once would need much memory.
    lengths = np.concatenate([np.linalg.norm(
        scaled[i + 1:] - scaled[i], order, axis=1)
        for i in range(places.size - 1)])
    return tuple(Pair(base + single[i], base + single[j],
                      f'{places[i]:g} for {places[j]:g}')
                 for i, j in (tried[np.argmax(lengths)], (0, _GRID)))
  lengths = np.linalg.norm(scaled, order, axis=1)
  return tuple(Pair(base + single[i], base, f'{places[i]:g} or none')
               for i in (np.argmax(lengths), 0))


def _target(mechanism: DensityMechanism, claim: claims.Claim | None,
            pairs: Sequence[Pair], value: Value, **fields: Any) -> Target:
  """Wraps a mechanism with the query that bounds its shift."""
  query = ecdf.in_units_of_noise(mechanism, value)
  wrapped = wrapping.of_mechanism(
      mechanism, delta=0.0 if mechanism.pure else wrapping.DELTA, claim=claim,
      pairs=pairs, query=query, **fields)

  def release(key: PRNGKey, data: np.ndarray) -> PyTree:
    heights = mechanism.release(key, data)
    # Targets cast releases to float64, which would drop imaginary parts.
    return ((heights.real, heights.imag) if jnp.iscomplexobj(heights)
            else heights)
  return dataclasses.replace(wrapped, release=release)


def log_density(mechanism: histograms.Histogram, data: np.ndarray,
                outputs: np.ndarray) -> np.ndarray:
  """Returns log-probabilities or log-densities [r] of released heights [r, m].

  Valid if n is public and heights are the noisy counts up to a constant factor.
  """
  noise = outputs * mechanism.num_records / mechanism.num_bins - data
  # Maxima of the density of Laplace noise, or of integer probabilities.
  peak = (1 / (2 * mechanism.scale) if mechanism.noise == 'laplace'
          else math.tanh(1 / (2 * mechanism.scale)))
  return np.sum(math.log(peak) - np.abs(noise) / mechanism.scale, -1)
