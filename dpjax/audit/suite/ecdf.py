"""Audit targets for distribution functions and streams.

Data are counts of a few bins, or a few items. For Laplace noise on tree nodes
the output distribution is enumerated. For Gaussian noise the shift between
neighbours is measured in the metric of the noise. Neither needs sampling.
"""

import math

import jax
import numpy as np
from scipy import linalg

from dpjax.audit import claims
from dpjax.audit import wrapping
from dpjax.audit.target import Pair
from dpjax.audit.target import Query
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import hierarchy
from dpjax.stats.ecdf_methods import streams
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods import trees
from dpjax.stats.ecdf_methods.mechanism import EcdfMechanism

# A node's noise is truncated where its probability is e^-30 of that at 0.
_SCALES = 30


def curve(mechanism: EcdfMechanism, *,
          claim: claims.Claim | None = None) -> Target:
  """Returns the target of a distribution function with a few thresholds.

  Args:
    mechanism: the mechanism.
    claim: the audited claim; by default that of the mechanism's event.
  """
  known = {}
  if isinstance(mechanism, dyadic.DyadicEcdf):
    layout = mechanism.layout
    if not mechanism.pure:
      known['query'] = _gaussian(mechanism, np.linalg.pinv(_incidence(layout)),
                                 layout.num_rows)
    elif not mechanism.monotone and (
        not mechanism.knows_total
        or layout.num_rows < mechanism.num_thresholds):
      known['log_density'] = lambda data, outputs: log_law(
          layout, mechanism.scale, np.cumsum(data), outputs)
  if isinstance(mechanism, trees.TreeEcdf):
    known['query'] = _of_nodes(mechanism)
  if isinstance(mechanism, toeplitz.SquareRootEcdf):
    known['query'] = _of_square_root(mechanism, mechanism.num_thresholds)
  pairs = neighbours(mechanism.num_thresholds, mechanism.adjacency)
  return _target(mechanism, pairs, claim, known)


def stream(mechanism: streams.PrefixStream, *,
           claim: claims.Claim | None = None) -> Target:
  """Returns the target of a stream of a few integer items.

  See `curve` for the arguments.
  """
  known, structure = {}, mechanism.structure
  if structure.kind == 'dyadic':
    layout = dyadic.Layout(structure.horizon, structure.sizes[-1] == 1)
    if not mechanism.pure:
      known['query'] = _gaussian(mechanism, np.linalg.pinv(_incidence(layout)),
                                 layout.num_rows)
    elif structure.item_bits == 0:
      known['log_density'] = lambda data, outputs: log_law(
          layout, mechanism.scale, np.cumsum(data), outputs)
  if structure.kind == 'square_root':
    known['query'] = _of_square_root(mechanism, structure.horizon)
  items = np.arange(structure.horizon) % 2.0
  pairs = tuple(Pair(np.where(place, 1.0, items), np.where(place, 0.0, items),
                     f'item {number + 1}')
                for number, place in enumerate(np.eye(items.size)))
  return _target(mechanism, pairs, claim, known)


def _target(mechanism, pairs, claim, known) -> Target:
  return wrapping.of_mechanism(
      mechanism, delta=0.0 if mechanism.pure else wrapping.DELTA, claim=claim,
      pairs=pairs, **known)


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


def _gaussian(mechanism, inverse: np.ndarray, rows: int) -> Query:
  """Returns the query of cumulative counts in standard deviations of noise.

  Its l2 sensitivity must be at most sqrt(2 rho).
  """
  return Query(lambda data: inverse @ np.cumsum(data)[:rows] / mechanism.scale,
               math.sqrt(2 * mechanism.rho))


def _of_square_root(mechanism, rows: int) -> Query:
  """Returns the query of a square-root factorisation, by its inverse."""
  root = toeplitz.square_root(rows)
  return _gaussian(mechanism, np.linalg.inv(linalg.toeplitz(
      root, np.zeros_like(root))), rows)


def _of_nodes(mechanism: trees.TreeEcdf) -> Query:
  """Returns the query of all node counts, each divided by its noise scale."""
  shape = mechanism.branching
  fill = math.prod(shape) - mechanism.num_thresholds

  def value(data):
    levels = hierarchy.levels(np.pad(np.asarray(data), (0, fill)), shape)
    return np.concatenate([level / scale for level, scale in zip(
        levels, mechanism.scales, strict=True)])
  if mechanism.pure:
    return Query(value, mechanism.epsilon, 1)
  return Query(value, math.sqrt(2 * mechanism.rho))


def log_law(layout: dyadic.Layout, scale: float, ranks: np.ndarray,
            outputs: np.ndarray) -> np.ndarray:
  """Returns log-probabilities [n] of noisy ranks with discrete Laplace noise.

  Level by level, it computes the probability of the rows below each node, given
  every possible sum of the noise of the nodes above. Rows without noise are
  left out.
  """
  width = math.ceil(_SCALES * scale)
  above = np.arange(-width, width + 1)

  def mass(noise):
    return math.tanh(0.5 / scale) * np.exp(-np.abs(noise) / scale)

  step = mass(above[:, None] - above)
  masses = [mass(outputs[:, row, None] - ranks[row] - above)
           for row in range(layout.num_rows)]
  for size in layout.level_sizes[1:]:
    masses = [math.prod(masses[2 * node:2 * node + 2]) @ step
             for node in range(size)]
  return np.sum([np.log(node[:, width]) for node in masses], 0)
