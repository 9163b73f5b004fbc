"""Audit targets for distribution functions and streams.

Data are counts of a few bins, or a few items. For Laplace noise on tree nodes
the output distribution is enumerated. For Gaussian noise the shift between
neighbours is measured in the metric of the noise. Neither needs sampling.
Without a `claim`, that of the mechanism's event is audited.
"""

from collections.abc import Callable
import math
from typing import Any

import jax
import numpy as np
from scipy import linalg

from dpjax.audit import claims
from dpjax.audit import wrapping
from dpjax.audit.target import Pair
from dpjax.audit.target import Query
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods.mechanism import DensityMechanism
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import hierarchy
from dpjax.stats.ecdf_methods import streams
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods import trees
from dpjax.stats.ecdf_methods.mechanism import EcdfMechanism

Mechanism = EcdfMechanism | streams.PrefixStream | DensityMechanism

# A node's noise is truncated where its probability is e^-30 of that at 0.
_SCALES = 30


def curve(mechanism: EcdfMechanism, *,
          claim: claims.Claim | None = None) -> Target:
  """Returns the target of a distribution function with a few thresholds."""
  fields: dict[str, Any] = {}
  if isinstance(mechanism, dyadic.DyadicEcdf):
    layout = mechanism.layout
    if not mechanism.pure:
      # For noise A z, |pinv(A) v| is the length of v in the noise's metric.
      fields['query'] = _gaussian(mechanism, mechanism.scale,
                                  np.linalg.pinv(_incidence(layout)))
    elif not mechanism.monotone and (
        not mechanism.knows_total
        or layout.num_rows < mechanism.num_thresholds):
      # Monotone or regressed ranks are not enumerated: each depends on all.
      fields['log_density'] = lambda data, outputs: log_probability(
          layout, mechanism.scale, np.cumsum(data), outputs)
  if isinstance(mechanism, trees.TreeEcdf):
    fields['query'] = _of_nodes(mechanism)
  if isinstance(mechanism, toeplitz.SquareRootEcdf):
    fields['query'] = _gaussian(
        mechanism, mechanism.scale, _inverse_root(mechanism.num_thresholds))
  pairs = neighbours(mechanism.num_thresholds, mechanism.adjacency)
  return _target(mechanism, pairs, claim, fields)


def stream(mechanism: streams.PrefixStream, *,
           claim: claims.Claim | None = None) -> Target:
  """Returns the target of a stream of a few integer items."""
  fields: dict[str, Any] = {}
  structure = mechanism.structure
  if structure.kind == 'dyadic':
    layout = dyadic.Layout(structure.horizon, structure.sizes[-1] == 1)
    if not mechanism.pure:
      fields['query'] = _gaussian(mechanism, mechanism.scale,
                                  np.linalg.pinv(_incidence(layout)))
    elif structure.item_bits == 0:
      fields['log_density'] = lambda data, outputs: log_probability(
          layout, mechanism.scale, np.cumsum(data), outputs)
  if structure.kind == 'square_root':
    fields['query'] = _gaussian(mechanism, mechanism.scale,
                                _inverse_root(structure.horizon))
  items = np.arange(structure.horizon) % 2.0
  pairs = tuple(Pair(np.where(place, 1.0, items), np.where(place, 0.0, items),
                     f'item {number + 1}')
                for number, place in enumerate(np.eye(items.size)))
  return _target(mechanism, pairs, claim, fields)


def _target(mechanism: Mechanism, pairs: tuple[Pair, ...],
            claim: claims.Claim | None, fields: dict[str, Any]) -> Target:
  """Wraps a mechanism with its neighbours and what it declares."""
  return wrapping.of_mechanism(
      mechanism, delta=0.0 if mechanism.pure else wrapping.DELTA, claim=claim,
      pairs=pairs, **fields)


def neighbours(num_bins: int, adjacency: Adjacency) -> tuple[Pair, ...]:
  """Returns neighbouring counts: a record joins a bin, or changes its bin."""
  base, one = np.arange(num_bins) % 3.0, np.eye(num_bins)
  if adjacency is Adjacency.REPLACE_ONE:
    return tuple(Pair(base + one[i], base + one[j], f'bin {i + 1} or {j + 1}')
                 for i in range(num_bins) for j in range(i))
  return tuple(Pair(base + one[i], base, f'bin {i + 1} or none')
               for i in range(num_bins))


def _incidence(layout: dyadic.Layout) -> np.ndarray:
  """Returns the matrix [rows, nodes] from node noise to row noise."""
  with jax.enable_x64(True):
    return np.asarray(jax.jit(jax.vmap(layout.rows))(np.eye(
        sum(layout.level_sizes)))).T


def _gaussian(mechanism: Mechanism, scale: float,
              inverse: np.ndarray) -> Query:
  """Returns the query of cumulative counts in standard deviations of noise.

  Args:
    mechanism: mechanism that adds scale M z to cumulative counts, with z white.
    scale: standard deviation of the white noise.
    inverse: [k, rows] inverse of M, after which the noise is white again.
  """
  rows = inverse.shape[1]
  return in_units_of_noise(
      mechanism, lambda data: inverse @ np.cumsum(data)[:rows] / scale)


def _inverse_root(rows: int) -> np.ndarray:
  """Returns the inverse [rows, rows] of the square root of the sum matrix."""
  root = toeplitz.square_root(rows)
  return np.linalg.inv(linalg.toeplitz(root, np.zeros_like(root)))


def _of_nodes(mechanism: trees.TreeEcdf) -> Query:
  """Returns the query of all node counts, each divided by its noise scale."""
  shape = mechanism.branching
  fill = math.prod(shape) - mechanism.num_thresholds

  def value(data: np.ndarray) -> np.ndarray:
    levels = hierarchy.levels(np.pad(np.asarray(data), (0, fill)), shape)
    return np.concatenate([level / scale for level, scale in zip(
        levels, mechanism.scales, strict=True)])
  return in_units_of_noise(mechanism, value)


def in_units_of_noise(mechanism: Mechanism, value: Callable[[Any], np.ndarray]
                      ) -> Query:
  """Returns the query of a statistic that is divided by its noise scales.

  Its l1 sensitivity must be at most epsilon for a pure mechanism, and its l2
  sensitivity at most sqrt(2 rho) for Gaussian noise (Bun and Steinke, 2016).

  Args:
    mechanism: mechanism with `epsilon` if it is pure, or else `rho`.
    value: function of data that returns the statistic in units of its noise.
  """
  if mechanism.epsilon is not None:
    return Query(value, mechanism.epsilon, 1)
  assert mechanism.rho is not None
  return Query(value, math.sqrt(2 * mechanism.rho))


def log_probability(layout: dyadic.Layout, scale: float, ranks: np.ndarray,
                    outputs: np.ndarray) -> np.ndarray:
  """Returns log-probabilities [n] of noisy ranks with discrete Laplace noise.

  Level by level, it computes the probability of the rows below each node, given
  every possible sum of the noise of the nodes above. Rows without noise are
  left out.
  """
  width = math.ceil(_SCALES * scale)
  above = np.arange(-width, width + 1)

  def mass(noise: np.ndarray) -> np.ndarray:
    return math.tanh(0.5 / scale) * np.exp(-np.abs(noise) / scale)

  # Probabilities that the noise of one node changes one sum into another.
  step = mass(above[:, None] - above)
  masses = [mass(outputs[:, row, None] - ranks[row] - above)
           for row in range(layout.num_rows)]
  for size in layout.level_sizes[1:]:
    # Both children must fit the same noise above them; then sum over the noise
    # of the node itself.
    masses = [math.prod(masses[2 * node:2 * node + 2]) @ step
             for node in range(size)]
  # No noise lies above the highest level: that sum is 0, at index `width`.
  return np.sum([np.log(node[:, width]) for node in masses], 0)
