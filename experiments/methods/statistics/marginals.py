"""Densities of several attributes: noisy tables of pairs along a tree.

A table of all cells would be dominated by noise, and n records do not fill it.
A tree of d - 1 pairs needs d - 1 small tables; the density of a cell follows
from them as if attributes that are not joined were independent given those
between them. The tree is known beforehand or chosen privately. Sources: Chow
and Liu 1968; Zhang et al. 2014, PrivBayes; McKenna et al. 2022, AIM (item
DEN-B13).
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import selection
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.stats import frequencies
from dpjax.stats import precision
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods import sparse
from dpjax.typing import Array, PRNGKey, PyTree

# Largest number of cells that `Tables.cells` writes out.
_MOST_CELLS = 2**22


class Tables(NamedTuple):
  """A density on [0, 1]^d by factors, with k bins per axis; sums are exact.

  Attributes:
    edges: [d - 1, 2], parent and child; each parent is the first one or a child
      of an earlier edge. [0, 2] if attributes are independent.
    joints: [d - 1, k, k], probabilities of the bins of parent and child; rows
      and columns sum to `marginals`.
    marginals: [d, k], probabilities of each attribute's cells.
  """
  edges: Array
  joints: Array
  marginals: Array

  def cells(self) -> Array:
    """Returns densities [k^d] of all cells; the last attribute varies fastest.

    Jittable, under 64-bit types, for the arrays of one estimate.
    """
    num, size = self.marginals.shape
    if size**num > _MOST_CELLS:
      raise ValueError(f'{size}^{num} cells are too many to write out; use '
                       'Tables.at')
    return self.at(jnp.asarray(np.indices((size,) * num).reshape(num, -1).T))

  def at(self, bins: Array) -> Array:
    """Returns densities [n] of the cells with bins [n, d]."""
    def inverse(probs: Array) -> Array:
      return 1 / jnp.where(probs > 0, probs, jnp.inf)  # 0 where nothing is.
    num, size = self.marginals.shape
    columns = jnp.arange(num)[None]
    single = jnp.asarray(self.marginals)[columns, bins] * size
    densities = jnp.prod(single, 1)
    for (parent, child), joint in zip(self.edges, self.joints, strict=True):
      pair = jnp.asarray(joint)[jnp.take(bins, parent, 1),
                                jnp.take(bins, child, 1)] * size**2
      densities *= pair * inverse(jnp.take(single, parent, 1)) * inverse(
          jnp.take(single, child, 1))
    return densities

  @precision.in_float64
  def __call__(self, x: np.ndarray) -> np.ndarray:
    """Returns values [n] at points [n, d] of [0, 1]^d."""
    size = self.marginals.shape[1]
    return np.asarray(self.at(jnp.asarray(_bins(np.asarray(x), size))))


class TreeParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    single: noise scale of tables of one attribute.
    rate: log-weight of a unit of the score of a pair.
    pair: noise scale of tables of pairs.
    num_records: n, or a public guess.
  """
  single: ArrayLike
  rate: ArrayLike
  pair: ArrayLike
  num_records: ArrayLike


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeMarginals(mechanism.DensityMechanism):
  """Tables of pairs along a tree, each projected on probabilities.

  Guarantee: epsilon-DP under `adjacency`. A record is in one cell of each
  table, so a table changes by 1 in l1, and by 2 if a record is replaced; T
  tables have noise of scale 2 T / epsilon. A private tree grows by one pair at
  a time, with the exponential mechanism. The score of a pair is the l1 distance
  between its table of counts and the independent table predicted from noisy
  single attributes. That prediction is fixed when a pair is chosen, so a score
  changes by at most 2, which is attained. The event composes all parts.

  Attributes:
    num_attributes: d, at least 2.
    num_bins: k, of each attribute; all attributes lie in [0, 1].
    structure: 'private', 'independent' for tables of single attributes only, or
      the d - 1 pairs of a known tree, with attributes numbered from 0.
    shares: fractions of the budget of a private tree, for single attributes,
      for choices and for pairs.
  """
  num_attributes: int
  num_bins: int
  structure: str | tuple[tuple[int, int], ...] = 'private'
  shares: tuple[float, float, float] = (0.1, 0.2, 0.7)

  kind = 'tables'

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('num_attributes', self.num_attributes, 2)
    errors.check_at_least('num_bins', self.num_bins, 2)
    if self.epsilon is None:
      raise ValueError('the budget of tables is epsilon: epsilon must be given')
    if isinstance(self.structure, str):
      errors.check_choice('structure', self.structure,
                          ('private', 'independent'))
    else:
      rooted(self.structure, self.num_attributes)
    if (len(self.shares) != 3 or not all(share > 0 for share in self.shares)
        or not abs(sum(self.shares) - 1) <= 1e-9):
      raise ValueError('shares must be three positive numbers that sum to 1, '
                       f'got {self.shares}')

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Returns tables [d (d - 1) / 2 k^2] of pairs of attributes.

    Args:
      unit: records [n, d] in [0, 1].
    """
    bins, size = _bins(unit, self.num_bins), self.num_bins
    return np.concatenate([
        np.bincount(bins[:, i] * size + bins[:, j], minlength=size**2)
        for i, j in itertools.combinations(range(self.num_attributes), 2)
    ]).astype(np.float64)

  def statistic_of_cells(self, counts: np.ndarray) -> np.ndarray:
    """Returns `statistic` from counts [..., k^d] of cells, as `Tables.cells`.
    """
    num = self.num_attributes
    shaped = counts.reshape(*counts.shape[:-1], *(self.num_bins,) * num)
    return np.concatenate([
        shaped.sum(tuple(axis - num for axis in range(num)
                         if axis not in pair)).reshape(
                             *counts.shape[:-1], -1)
        for pair in itertools.combinations(range(num), 2)], -1)

  @property
  def _parts(self) -> tuple[float, float, float]:
    """Returns the parts of epsilon for single attributes, choices and pairs."""
    if self.structure == 'private':
      single, choices, pairs = self.shares
      return self.budget * single, self.budget * choices, self.budget * pairs
    alone = self.structure == 'independent'
    return (self.budget, 0.0, 0.0) if alone else (0.0, 0.0, self.budget)

  @property
  def _table_sensitivity(self) -> float:
    """Returns the l1 sensitivity of one table."""
    return sum_sensitivity(self.adjacency, record_norm=1)

  @property
  def selection(self) -> selection.ExponentialMechanism:
    """Returns the exponential mechanism for each pair of a private tree."""
    return selection.ExponentialMechanism(
        sensitivity=self._table_sensitivity, adjacency=self.adjacency,
        epsilon=self._parts[1] / (self.num_attributes - 1))

  @property
  def event(self) -> accounting.DpEvent:
    """Returns the privacy event of all tables and choices."""
    if self.structure != 'private':
      return super().event
    single, _, pairs = (accounting.pure_event(
        epsilon=part, adjacency=self.adjacency) for part in self._parts)
    return accounting.composed_event([
        single, accounting.repeated_event(self.selection.event,
                                          self.num_attributes - 1), pairs])

  @property
  def draw(self) -> mechanism.Draw:
    """Returns a jittable sampler (key, statistic, parameters) -> `Tables`."""
    tree = self.structure if isinstance(self.structure, str) else tuple(
        rooted(self.structure, self.num_attributes))
    return _sampler(self.num_attributes, self.num_bins, tree, self.knows_total)

  @property
  def parameters(self) -> TreeParameters:
    """Returns the float64 NumPy arrays that `draw` takes as parameters."""
    single, choices, pairs = self._parts
    num = self.num_attributes
    return TreeParameters(*(np.array(value, np.float64) for value in (
        self._table_sensitivity * num / single if single else 0.0,
        self.selection.rate if choices else 0.0,
        self._table_sensitivity * (num - 1) / pairs if pairs else 0.0,
        self.num_records)))

  @precision.in_float64
  def estimate(self, key: PRNGKey, x: np.ndarray) -> Tables:
    """Releases the density of records [n, d]; clips them to [0, 1]."""
    unit = np.clip(np.asarray(x, np.float64), 0, 1)
    if unit.ndim != 2 or unit.shape[1] != self.num_attributes:
      raise ValueError(f'records must be [n, {self.num_attributes}], got an '
                       f'array of shape {unit.shape}')
    if np.isnan(unit).any():
      raise ValueError('records must be numbers, got NaN')
    if self.knows_total:
      errors.check_records(unit.shape[:1], self.num_records)
    return self._drawn(key, jnp.asarray(self.statistic(unit)))


def _bins(unit: np.ndarray, size: int) -> np.ndarray:
  """Returns the bins of values in [0, 1]; 1 is in the last bin."""
  return np.minimum((unit * size).astype(np.int64), size - 1)


def rooted(pairs: Sequence[tuple[int, int]], num_attributes: int
           ) -> list[tuple[int, int]]:
  """Returns the pairs of a tree as (parent, child), from the first pair on.

  Raises:
    ValueError: if they are not a tree over all attributes.
  """
  # Grow from the first attribute: each pair must join exactly one new one.
  left = [tuple(pair) for pair in pairs]
  edges, inside = [], set(left[0][:1]) if left else set()
  while left:
    near = [pair for pair in left if len(inside & set(pair)) == 1
            and len(pair) == 2]
    if not near:
      break
    parent, child = near[0] if near[0][0] in inside else near[0][::-1]
    left.remove(near[0])
    edges.append((parent, child))
    inside.add(child)
  if left or inside != set(range(num_attributes)):
    raise ValueError(f'{pairs} is not a tree over attributes 0 to '
                     f'{num_attributes - 1}')
  return edges


@functools.cache
def _sampler(num: int, size: int, tree: str | tuple[tuple[int, int], ...],
             known: bool) -> mechanism.Draw:
  """Returns the sampler of `TreeMarginals`."""
  rows, columns = np.triu_indices(num, 1)

  def draw(key: PRNGKey, statistic: Array, parameters: TreeParameters
           ) -> PyTree:  # `Tables`, where other samplers return an array.
    of_single, of_pairs = jax.random.split(key)
    # Tables of pairs i < j, and their transposes for j < i: [d, d, k, k].
    half = statistic.reshape(-1, size, size)
    pairs = jnp.zeros((num, num, size, size), half.dtype).at[
        rows, columns].set(half).at[columns, rows].set(half.swapaxes(1, 2))
    # Tables of single attributes, from the pair of each with its predecessor.
    exact = jnp.sum(pairs[np.arange(num), np.arange(num) - 1], 2)
    scores = None
    if isinstance(tree, str):
      single, total = _shares(of_single, exact, parameters.single, parameters,
                              known)
      if tree == 'independent':
        return Tables(jnp.zeros((0, 2), jnp.int32),
                      jnp.zeros((0, size, size), exact.dtype), single)
      predicted = total * single[:, None, :, None] * single[None, :, None, :]
      scores = jnp.sum(jnp.abs(pairs - predicted), (2, 3))
    return _grown(of_pairs, pairs, scores, tree, parameters, known)
  return draw


def _shares(key: PRNGKey, counts: Array, scale: ArrayLike,
            parameters: TreeParameters, known: bool) -> tuple[Array, Array]:
  """Returns probabilities [t, ...] of noisy tables [t, ...], and their total.
  """
  noisy = noisy_counts.noisy(key, counts, scale, 'discrete_laplace')
  # Every table counts all n records, so the mean of their totals estimates n.
  total = noisy_counts.total(noisy / counts.shape[0],
                             parameters.num_records, known)
  flat = jax.vmap(frequencies.project_on_simplex)(
      noisy.reshape(counts.shape[0], -1) / total)
  return flat.reshape(counts.shape), total


def _grown(key: PRNGKey, pairs: Array, scores: Array | None,
           tree: str | tuple[tuple[int, int], ...], parameters: TreeParameters,
           known: bool) -> Tables:
  """Grows a tree edge by edge: chosen by scores or given, then measured."""
  num, size = pairs.shape[0], pairs.shape[2]
  uniform = jnp.full((size, size), 1 / size, pairs.dtype)

  def add_edge(state: tuple[Array, Array], given: tuple[PRNGKey, Array]
               ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    inside, marginals = state
    key, edge = given
    choose, measure = jax.random.split(key)
    if scores is not None:
      # At first any pair, then from an attribute in the tree to one outside.
      allowed = jnp.where(jnp.any(inside), inside[:, None] & ~inside[None],
                          np.triu(np.ones((num, num), bool), 1))
      place = sparse.chosen(choose, jnp.where(allowed, scores, -jnp.inf
                                              ).reshape(-1), parameters.rate)
      edge = jnp.stack([place // num, place % num])
    parent, child = edge[0], edge[1]
    joint = _shares(measure, pairs[parent, child][None], parameters.pair,
                    parameters, known)[0][0]
    across = jnp.sum(joint, 1)
    given_parent = jnp.where(
        across[:, None] > 0,
        joint / jnp.where(across > 0, across, 1.0)[:, None], uniform)
    # A parent that is already in the tree keeps its marginal, so all tables
    # agree; only the conditional distribution of the child is used.
    across = jnp.where(inside[parent], marginals[parent], across)
    joint = across[:, None] * given_parent
    marginals = marginals.at[parent].set(across).at[child].set(
        jnp.sum(joint, 0))
    return (inside.at[parent].set(True).at[child].set(True),
            marginals), (edge, joint)

  edges = (jnp.zeros((num - 1, 2), jnp.int32) if scores is not None
           else jnp.asarray(tree, jnp.int32))
  (_, marginals), (edges, joints) = jax.lax.scan(
      add_edge, (jnp.zeros(num, bool), jnp.zeros((num, size), pairs.dtype)),
      (jax.random.split(key, num - 1), edges))
  return Tables(edges, joints, marginals)


@functools.cache
def _all_cells() -> Callable[[Tables], Array]:
  """Returns the jitted `Tables.cells` of many estimates."""
  return jax.jit(jax.vmap(Tables.cells))


@precision.in_float64
def cells_of(tables: Tables) -> np.ndarray:
  """Returns `Tables.cells` of many estimates, [R, k^d]; arrays have leading R.
  """
  return np.asarray(_all_cells()(tables))
