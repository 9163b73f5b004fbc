"""Curves and streams under audit: laws, shifts, and neighbours that tell.

Data are counts of few bins, or few items. Of Laplace noise on nodes the law is
enumerated, of Gaussian noise what neighbours shift is measured in the metric of
the noise: either needs no sampling.
"""

import math

import jax
import numpy as np
from scipy import linalg

from dpjax.audit import claims
from dpjax.audit import wrapping
from dpjax.audit.target import Pair, Query, Target
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf import dyadic
from dpjax.stats.ecdf import hierarchy
from dpjax.stats.ecdf import streams
from dpjax.stats.ecdf import toeplitz
from dpjax.stats.ecdf import trees
from dpjax.stats.ecdf.mechanism import EcdfMechanism

# Noise of a node is cut off where it is e^-30 of what it is at 0.
_SCALES = 30


def curve(mechanism: EcdfMechanism, *,
          claim: claims.Claim | None = None) -> Target:
  """A mechanism, of few bins.

  Args:
    mechanism: as it runs.
    claim: what is said of it; what its event says when not given.
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
  """A stream of few items, whole ones; arguments as of `curve`."""
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
  """Counts with a record more in a bin, or one that is in another bin."""
  base, one = np.arange(num_bins) % 3.0, np.eye(num_bins)
  if adjacency is Adjacency.REPLACE_ONE:
    return tuple(Pair(base + one[i], base + one[j], f'bin {i + 1} or {j + 1}')
                 for i in range(num_bins) for j in range(i))
  return tuple(Pair(base + one[i], base, f'bin {i + 1} or none')
               for i in range(num_bins))


def _incidence(layout: dyadic.Layout) -> np.ndarray:
  """What noise of rows has of that of nodes, [rows, nodes]."""
  with jax.enable_x64(True):
    return np.asarray(jax.jit(jax.vmap(layout.rows))(np.eye(
        sum(layout.level_sizes)))).T


def _gaussian(mechanism, inverse: np.ndarray, rows: int) -> Query:
  """What neighbours shift, in standard deviations of the noise beneath."""
  return Query(lambda data: inverse @ np.cumsum(data)[:rows] / mechanism.scale,
               math.sqrt(2 * mechanism.rho))


def _of_square_root(mechanism, rows: int) -> Query:
  root = toeplitz.square_root(rows)
  return _gaussian(mechanism, np.linalg.inv(linalg.toeplitz(
      root, np.zeros_like(root))), rows)


def _of_nodes(mechanism: trees.TreeEcdf) -> Query:
  """Counts of all nodes, each over the scale of its noise."""
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
  """Log-probabilities [n] of ranks [n, ...] with discrete Laplace noise.

  Level by level: the probability of what the rows of a node show, for all that
  the noise of the nodes above it can sum to. Rows without noise do not count.
  """
  width = math.ceil(_SCALES * scale)
  above = np.arange(-width, width + 1)

  def mass(noise):
    return math.tanh(0.5 / scale) * np.exp(-np.abs(noise) / scale)

  step = mass(above[:, None] - above)
  found = [mass(outputs[:, row, None] - ranks[row] - above)
           for row in range(layout.num_rows)]
  for size in layout.level_sizes[1:]:
    found = [math.prod(found[2 * node:2 * node + 2]) @ step
             for node in range(size)]
  return np.sum([np.log(node[:, width]) for node in found], 0)
