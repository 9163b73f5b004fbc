"""The Hosmer-Lemeshow statistic from one noisy release per cell: Algorithm 10.

A private curve of predictions gives groups; then the observed and expected
numbers of positives and negatives of each group are released with fresh noise.
Kept for comparison: one release of both classes (`hosmer_lemeshow`) yields all
of that at no further cost and with a smaller error. Source: Barczewski (2025,
Algorithm 10 and Theorem 6.5.1; item EC-25, corrections C8 to C10).
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors

# Under another name, because a dataclass field is called `accounting`.
from dpjax.privacy import accounting as events
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.stats import hosmer_lemeshow
from dpjax.stats import mechanisms
from dpjax.stats import precision
from dpjax.stats import roc_curves as roc
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import dyadic_calibration
from dpjax.stats.ecdf_methods import mechanism
from dpjax.stats.ecdf_methods.grids import Grid
from dpjax.typing import Array, PRNGKey, PyTree


class Bins(NamedTuple):
  """The statistics of the records that the algorithm needs, by prediction bin.

  Attributes:
    counts: [2, N] negatives and positives.
    sums: [N] sums of predictions, clipped to [0, 1], over both classes.
  """
  counts: Array
  sums: Array


class Cells(NamedTuple):
  """A release: the curve of predictions, and noisy cells of Q groups.

  Attributes:
    ranks: [N] noisy ranks of predictions.
    ends: [Q + 1] bins, see `hosmer_lemeshow.Table`.
    observed: [2, Q] noisy numbers of negatives and positives.
    expected: [2, Q] noisy numbers that the predictions expect.
  """
  ranks: Array
  ends: Array
  observed: Array
  expected: Array


class CellParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    curve: parameters of the curve's sampler.
    scale: scale of the Laplace noise of a cell.
  """
  curve: PyTree
  scale: np.ndarray


def bins(grid: Grid, predictions: np.ndarray, labels: np.ndarray) -> Bins:
  """Returns the statistics of records by bin; raises as `roc.counts` does."""
  counts = roc.counts(grid, predictions, labels)
  return Bins(counts, np.bincount(
      grid.bins(predictions), np.clip(predictions, 0, 1), grid.num_thresholds))


@functools.cache
def _sampler(curve: mechanism.Draw, num_groups: int, derived: bool,
             shared: bool):
  """Returns the sampler (key, bins, parameters) -> cells.

  Args:
    curve: sampler of the curve.
    num_groups: Q, the number of groups.
    derived: whether expected negatives are computed from the other cells.
    shared: whether observed and expected cells share their noise (unsound).
  """
  def sample(key: PRNGKey, data: Bins, parameters: CellParameters) -> Cells:
    curve_key, cells_key = jax.random.split(key)
    counts = jnp.sum(data.counts, 0)
    ranks = curve(curve_key, counts, parameters.curve)
    ends = hosmer_lemeshow.group_ends(ranks, ranks[-1], num_groups)
    observed = _between(data.counts, ends)
    expected = _between(jnp.stack([counts - data.sums, data.sums]), ends)
    # Noisy values are rounded to a public grid of powers of two, so that their
    # low-order bits carry no information.
    noise = parameters.scale * draws.standard_laplace(
        cells_key, (2, *observed.shape), jnp.float64)
    grid = additive.grid_spacing(parameters.scale).astype(jnp.float64)
    observed, expected = (
        jnp.round((exact + noise[place]) / grid) * grid for exact, place in (
            (observed, 0), (expected, 0 if shared else 1)))
    # O0 + O1 = E0 + E1 holds exactly, so E0 need not be released.
    if derived:
      expected = jnp.stack([jnp.sum(observed, 0) - expected[1], expected[1]])
    return Cells(ranks, ends, observed, expected)
  return sample


def _between(values: Array, ends: Array) -> Array:
  """Returns sums [K, Q] over the bins of each group, of values [K, N]."""
  # Differences of running sums at the ends of the groups.
  sums = jnp.cumsum(values, 1)
  before = jnp.concatenate([jnp.zeros_like(sums[:, :1]), sums], 1)
  return jnp.diff(before[:, ends], axis=1)


@precision.in_float64
def statistic(cells: Cells, *, min_expected: float = 5.0) -> Array:
  """Returns H; `min_expected` is a public floor of the denominators."""
  return jnp.sum(jnp.square(cells.observed - cells.expected)
                 / jnp.maximum(cells.expected, min_expected))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellwiseHosmerLemeshow(mechanisms.SampledMechanism[Bins]):
  """Algorithm 10 of Barczewski (2025), corrected: each cell has fresh noise.

  Corrections (C9): groups are half-open, so that a record on a threshold is in
  one group only; thresholds are sorted; each class is counted separately. The
  published groups are closed, and its cells do not depend on the class. The
  published algorithm also uses one noise variable for an observed and an
  expected number, so that their difference is released exactly (C8);
  `shared_noise` reproduces that.

  Guarantee: epsilon-DP under `adjacency`; none with `shared_noise`.

  Attributes:
    grid: public, of predictions within [0, 1].
    epsilon: budget of the whole release.
    adjacency: which data sets are neighbours.
    num_groups: Q, the number of groups.
    accounting: 'paper': the curve's nodes and all 4 Q cells have noise of scale
      (L + 9) / epsilon. 'tight': the curve is calibrated exactly. A record
      changes one observed cell by 1 and an expected one by a probability; 3 Q
      cells are released and E0 = O0 + O1 - E1 is computed. Their noise has
      scale 4 / epsilon_C if a record is replaced, else 2 / epsilon_C.
    cells_share: epsilon_C / epsilon of 'tight'.
    shared_noise: whether to share noise as published; needs `allow_unsound`.
    allow_unsound: permits `shared_noise`, to demonstrate the leak.
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
      raise ValueError("accounting='paper' needs adjacency REPLACE_ONE")
    if self.shared_noise and not (
        self.allow_unsound and self.accounting == 'paper'):
      raise ValueError('shared_noise=True releases observed minus expected '
                       "numbers without noise; it needs accounting='paper' and "
                       'allow_unsound=True')

  @property
  def _cells_epsilon(self) -> float:
    """Returns the part of epsilon that the cells spend."""
    if self.accounting == 'tight':
      return self.epsilon * self.cells_share
    # L + 1 of L + 9 parts are for the curve.
    return self.epsilon * 8 / (8 + dyadic_calibration.num_levels(
        self.grid.num_thresholds))

  @property
  def curve(self) -> dyadic.DyadicEcdf:
    """Returns the mechanism that releases the curve of predictions."""
    return dyadic.DyadicEcdf(
        num_thresholds=self.grid.num_thresholds, adjacency=self.adjacency,
        epsilon=self.epsilon - self._cells_epsilon, monotone=False,
        accounting=self.accounting)

  @property
  def scale(self) -> float:
    """Returns the Laplace scale of the noise of a cell."""
    if self.accounting == 'paper':
      return 8 / self._cells_epsilon
    return sum_sensitivity(self.adjacency, record_norm=2) / self._cells_epsilon

  @property
  def event(self) -> events.DpEvent:
    """Returns the privacy event of one release, for the accountants."""
    if self.shared_noise:
      return events.non_private_event()
    return events.pure_event(epsilon=self.epsilon, adjacency=self.adjacency)

  @property
  def draw(self) -> Callable[[PRNGKey, Bins, CellParameters], Cells]:
    """Returns a jittable sampler (key, bins, parameters) -> cells."""
    return _sampler(self.curve.draw, self.num_groups,
                    self.accounting == 'tight', self.shared_noise)

  @property
  def parameters(self) -> CellParameters:
    """Returns the float64 NumPy arrays that `draw` takes as parameters."""
    return CellParameters(self.curve.parameters, np.float64(self.scale))

  def _check(self, data: Bins) -> None:
    """Raises unless counts and sums have the shape of the grid."""
    size = self.grid.num_thresholds
    if data.counts.shape != (2, size) or data.sums.shape != (size,):
      raise ValueError(f'data must be counts and sums of {size} bins, got '
                       f'arrays of shapes {data.counts.shape} and '
                       f'{data.sums.shape}')

  @precision.in_float64
  def release(self, key: PRNGKey, data: Bins) -> Cells:
    """Releases the groups and noisy cells of records."""
    self._check(data)
    return self.draw(key, Bins(*map(precision.double, data)), self.parameters)

  @precision.in_float64
  def estimate(self, key: PRNGKey, data: Bins) -> Cells:
    """Same as `release`, on the host, compiled once for each grid."""
    self._check(data)
    return self._drawn(key, Bins(*map(precision.double, data)))
