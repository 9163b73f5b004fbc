"""The Hosmer-Lemeshow statistic by asking for each cell: Algorithm 10.

A private curve of predictions gives groups; in each, the numbers of observed
and expected positives and negatives are asked for anew. Kept to compare: one
release of both classes (`hosmer_lemeshow`) has all that at no further cost, and
errs less. Source: thesis 003, Algorithm 10 and Theorem 6.5.1 (item EC-25,
corrections C8 to C10).
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
# A field is called so too.
from dpjax.privacy import accounting as events
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.stats import hosmer_lemeshow
from dpjax.stats import precision
from dpjax.stats import roc
from dpjax.stats.ecdf import dyadic
from dpjax.stats.ecdf import dyadic_calibration
from dpjax.stats.ecdf import mechanism
from dpjax.stats.ecdf.grids import Grid
from dpjax.typing import Array, PRNGKey, PyTree


class Bins(NamedTuple):
  """All that the algorithm asks of records, by bin of what is predicted.

  Attributes:
    counts: [2, N] negatives and positives.
    sums: [N] of predictions, clipped to [0, 1], of both.
  """
  counts: Array
  sums: Array


class Cells(NamedTuple):
  """What is released: the curve, and of Q groups the cells.

  Attributes:
    ranks: [N] of predictions.
    ends: [Q + 1] bins, as of `hosmer_lemeshow.Table`.
    observed: [2, Q] negatives and positives, noisy.
    expected: [2, Q] as predicted, noisy.
  """
  ranks: Array
  ends: Array
  observed: Array
  expected: Array


class Parameters(NamedTuple):
  """Of the law.

  Attributes:
    curve: parameters of the curve.
    scale: of the Laplace noise of a cell.
  """
  curve: PyTree
  scale: np.ndarray


def bins(grid: Grid, predictions: np.ndarray, labels: np.ndarray) -> Bins:
  """Of records; errors as `roc.counts`."""
  counts = roc.counts(grid, predictions, labels)
  return Bins(counts, np.bincount(
      grid.bins(predictions), np.clip(predictions, 0, 1), grid.num_thresholds))


@functools.cache
def _law(curve: mechanism.Draw, num_groups: int, derived: bool, shared: bool):
  def law(key: PRNGKey, data: Bins, parameters: Parameters) -> Cells:
    curve_key, cells_key = jax.random.split(key)
    counts = jnp.sum(data.counts, 0)
    ranks = curve(curve_key, counts, parameters.curve)
    ends = hosmer_lemeshow.group_ends(ranks, ranks[-1], num_groups)
    observed = _between(data.counts, ends)
    expected = _between(jnp.stack([counts - data.sums, data.sums]), ends)
    noise = parameters.scale * draws.standard_laplace(
        cells_key, (2, *observed.shape), jnp.float64)
    grid = additive.grid_spacing(parameters.scale).astype(jnp.float64)
    observed, expected = (
        jnp.round((exact + noise[place]) / grid) * grid for exact, place in (
            (observed, 0), (expected, 0 if shared else 1)))
    if derived:
      expected = jnp.stack([jnp.sum(observed, 0) - expected[1], expected[1]])
    return Cells(ranks, ends, observed, expected)
  return law


def _between(values: Array, ends: Array) -> Array:
  sums = jnp.cumsum(values, 1)
  before = jnp.concatenate([jnp.zeros_like(sums[:, :1]), sums], 1)
  return jnp.diff(before[:, ends], axis=1)


@precision.in_float64
def statistic(cells: Cells, *, min_expected: float = 5.0) -> Array:
  """H; where fewer are expected, `min_expected` divide."""
  return jnp.sum(jnp.square(cells.observed - cells.expected)
                 / jnp.maximum(cells.expected, min_expected))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellwiseHosmerLemeshow:
  """Algorithm 10, mended; cells have Laplace noise of their own.

  Groups are half-open, so that a record on a threshold is in one, thresholds
  are put in order, and each class is counted apart; printed are closed groups,
  and cells that do not depend on the class (C9). What is printed of the noise
  of cells is one variable for an observed and an expected number: then their
  difference is released as it is (C8), `shared_noise`.

  Guarantee: epsilon-DP under `adjacency`; none with `shared_noise`.

  Attributes:
    grid: public, of predictions within [0, 1].
    epsilon: of all together.
    adjacency: which data sets are neighbours.
    num_groups: Q.
    accounting: 'paper': nodes of the curve and all 4 Q cells have noise of
      scale (L + 9) / epsilon. 'tight': the curve is exactly calibrated; of
      cells a record moves one observed number by 1 and an expected one by a
      probability, of which 3 Q are asked for and E0 = O0 + O1 - E1, at
      4 / epsilon_C where a record is replaced and 2 / epsilon_C elsewhere.
    cells_share: epsilon_C / epsilon of 'tight'.
    shared_noise: as printed; refused without `allow_unsound`.
    allow_unsound: to show what is printed.
  """
  grid: Grid
  epsilon: float
  adjacency: Adjacency
  num_groups: int = 10
  accounting: str = 'tight'
  cells_share: float = 0.5
  shared_noise: bool = False
  allow_unsound: bool = False

  def __post_init__(self):
    errors.check_choice('accounting', self.accounting, dyadic.ACCOUNTING)
    errors.check_positive('epsilon', self.epsilon)
    check_adjacency(self.adjacency)
    errors.check_at_least('num_groups', self.num_groups, 2)
    errors.check_open_unit('cells_share', self.cells_share)
    hosmer_lemeshow.chances(self.grid)
    if self.accounting == 'paper' and (
        self.adjacency is not Adjacency.REPLACE_ONE):
      raise ValueError("accounting='paper' is under REPLACE_ONE")
    if self.shared_noise and not (
        self.allow_unsound and self.accounting == 'paper'):
      raise ValueError('cells that share their noise release observed less '
                       "expected numbers as they are: accounting='paper' and "
                       'allow_unsound=True show that')

  @property
  def _cells_epsilon(self) -> float:
    if self.accounting == 'tight':
      return self.epsilon * self.cells_share
    # L + 1 of L + 9 parts are for the curve.
    return self.epsilon * 8 / (8 + dyadic_calibration.num_levels(
        self.grid.num_thresholds))

  @property
  def curve(self) -> dyadic.DyadicEcdf:
    """Of predictions."""
    return dyadic.DyadicEcdf(
        num_thresholds=self.grid.num_thresholds, adjacency=self.adjacency,
        epsilon=self.epsilon - self._cells_epsilon, monotone=False,
        accounting=self.accounting)

  @property
  def scale(self) -> float:
    """Of the noise of a cell."""
    if self.accounting == 'paper':
      return 8 / self._cells_epsilon
    return sum_sensitivity(self.adjacency, record_norm=2) / self._cells_epsilon

  @property
  def event(self) -> events.DpEvent:
    """What a release costs."""
    if self.shared_noise:
      return events.non_private_event()
    return events.pure_event(epsilon=self.epsilon, adjacency=self.adjacency)

  @property
  def draw(self) -> Callable[[PRNGKey, Bins, Parameters], Cells]:
    """(key, bins, parameters) -> cells; one function for equal options."""
    return _law(self.curve.draw, self.num_groups, self.accounting == 'tight',
                self.shared_noise)

  @property
  def parameters(self) -> Parameters:
    """Of the law."""
    return Parameters(self.curve.parameters, np.float64(self.scale))

  def _check(self, data: Bins) -> None:
    size = self.grid.num_thresholds
    if data.counts.shape != (2, size) or data.sums.shape != (size,):
      raise ValueError(f'there must be counts and sums of {size} bins, got '
                       f'arrays of shapes {data.counts.shape} and '
                       f'{data.sums.shape}')

  @precision.in_float64
  def release(self, key: PRNGKey, data: Bins) -> Cells:
    """Groups and noisy cells of records."""
    self._check(data)
    return self.draw(key, Bins(*map(precision.double, data)), self.parameters)

  @precision.in_float64
  def estimate(self, key: PRNGKey, data: Bins) -> Cells:
    """The same on the host, compiled once for each grid."""
    self._check(data)
    return jax.tree.map(np.asarray, mechanism.compiled(self.draw)(
        key, Bins(*map(precision.double, data)), self.parameters))
