"""Tests calibration of predicted probabilities: Hosmer-Lemeshow statistics.

Records are grouped by their prediction; each of Q groups compares observed with
expected positives. All of it is post-processing of one private release of ranks
of both classes (`roc`) on a grid of predictions, so it costs no extra budget:
groups are quantiles of the summed curve, observed positives are differences of
ranks, and expected positives are sums over bins of records times the bin's
middle prediction, which is off by at most half a bin. Source: Barczewski (2025,
section 6.5.2; items EC-24, EC-26). Its own algorithm, which releases each cell,
is in `hosmer_lemeshow_cells`.

With privacy noise the statistic is not chi squared; at moderate epsilon it is
far larger. So it is compared with draws from a calibrated model that have the
same noise.
"""

from collections.abc import Callable
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from dpjax import errors
from dpjax.stats import intervals
from dpjax.stats import precision
from dpjax.stats import roc_bands
from dpjax.stats import roc_curves as roc
from dpjax.stats.ecdf_methods.grids import Grid
from dpjax.stats.roc_curves import RocMechanism
from dpjax.typing import Array, ArrayLike, PRNGKey, PyTree


class Table(NamedTuple):
  """Records by group of predictions, lowest first; groups may be empty.

  Attributes:
    ends: [Q + 1] bins; group q has the bins ends[q] .. ends[q + 1] - 1.
    records: [Q] number of records.
    observed: [Q] number of positives.
    expected: [Q] number of positives that the predictions expect.
  """
  ends: Array
  records: Array
  observed: Array
  expected: Array


class Test(NamedTuple):
  """A test of the hypothesis that the predictions are calibrated.

  Attributes:
    statistic: H of the release.
    p_value: (1 + number of draws at least as large) / (1 + B): a valid p-value,
      never 0.
    draws: [B] values of H under the hypothesis.
  """
  statistic: Array
  p_value: Array
  draws: Array


class Calibration(NamedTuple):
  """A calibration curve: observed shares against predictions, by group.

  Attributes:
    predicted: [Q] mean prediction of each group; 0 if the group is empty.
    observed: [Q] share of positives, with an interval for each group.
    records: [Q] number of records.
  """
  predicted: Array
  observed: intervals.Estimate
  records: Array


def chances(grid: Grid) -> np.ndarray:
  """Returns the predictions [N] in the middle of each bin of a grid in [0, 1].

  Raises:
    ValueError: if the grid leaves [0, 1] or is geometric; the first bin of a
      geometric grid has no definite lower end.
  """
  if grid.lower < 0 or grid.upper > 1 or grid.kind != 'uniform':
    raise ValueError('predictions are probabilities: grid must be uniform and '
                     f'within [0, 1], got a {grid.kind} one from {grid.lower} '
                     f'to {grid.upper}')
  edges = np.append(grid.lower, grid.thresholds)
  return (edges[1:] + edges[:-1]) / 2


def first_reaching(ranks: Array, wanted: Array | np.ndarray) -> Array:
  """Returns the first bins [m], from 0, whose ranks [N] reach `wanted` [m].

  It bisects, as in Algorithm 9 of Barczewski (2025). If ranks are not monotone,
  it returns some bin where they cross `wanted`; the last bin if they never
  reach it.
  """
  # The first bin that reaches a rank stays within [low, high].
  low = jnp.zeros(wanted.shape, jnp.int32)
  high = jnp.full(wanted.shape, ranks.size - 1, jnp.int32)
  for _ in range((ranks.size - 1).bit_length()):
    middle = (low + high) // 2
    reached = ranks[middle] >= wanted
    low, high = (jnp.where(reached, low, jnp.minimum(middle + 1, high)),
                 jnp.where(reached, middle, high))
  return high


def group_ends(ranks: Array, total: Array, num_groups: int) -> Array:
  """Returns increasing ends [Q + 1] of groups of equal size, by ranks [N]."""
  fractions = np.arange(1, num_groups) / num_groups
  # Sorted, because raw ranks may decrease and then cross out of order.
  inner = jnp.sort(first_reaching(ranks, fractions * total)) + 1
  return jnp.concatenate([jnp.zeros([1], inner.dtype), inner,
                          jnp.full([1], ranks.size, inner.dtype)])


@precision.in_float64
def table(ranks: Array, predictions: Array | np.ndarray, *,
          num_groups: int = 10, ends: Array | None = None) -> Table:
  """Returns the table of groups from ranks [2, N] of negatives and positives.

  Args:
    ranks: ranks of one release, or exact ones.
    predictions: [N], predictions of the bins, see `chances`.
    num_groups: Q.
    ends: [Q + 1], ends of given groups; None for quantiles of the predictions.
  """
  summed = ranks[0] + ranks[1]
  if ends is None:
    ends = group_ends(summed, summed[-1], num_groups)
  records = _between(summed, ends)
  counts = jnp.diff(summed, prepend=jnp.zeros_like(summed[:1]))
  return Table(ends, records, _between(ranks[1], ends),
               _between(jnp.cumsum(counts * predictions), ends))


def _between(sums: Array, ends: Array) -> Array:
  """Returns sums [Q] over the bins of each group, from cumulated sums [N]."""
  return jnp.diff(jnp.concatenate([jnp.zeros_like(sums[:1]), sums])[ends])


@precision.in_float64
def statistic(groups: Table, *, min_expected: ArrayLike = 5.0) -> Array:
  """Returns H, equation 6.5.1 of Barczewski (2025).

  Args:
    groups: a table.
    min_expected: public floor of the denominators, the expected positives and
      negatives. An empty group adds nothing.
  """
  squared = jnp.square(groups.observed - groups.expected)
  return jnp.sum(
      squared / jnp.maximum(groups.expected, min_expected)
      + squared / jnp.maximum(groups.records - groups.expected, min_expected))


def exact(predictions: np.ndarray, labels: np.ndarray, *, num_groups: int = 10,
          min_expected: float = 0.0) -> float:
  """Returns the exact H of records (not private), by groups (t_(q-1), t_q].

  t_q is the ceil(q n / Q)-th smallest prediction, so that tied records share a
  group. Compare it with chi squared, with Q - 2 degrees of freedom if the model
  was fitted on these records and Q otherwise.

  Args:
    predictions: [n] in [0, 1].
    labels: [n], 0 or 1.
    num_groups: Q.
    min_expected: floor of the denominators; 0 for none.
  """
  errors.check_at_least('num_groups', num_groups, 2)
  ordered = np.sort(predictions)
  # Integer arithmetic: in floats 9 / 11 * 77 exceeds 63, and the ceiling is 64.
  ranks = -(-np.arange(1, num_groups) * ordered.size // num_groups)
  group = np.searchsorted(ordered[ranks - 1], predictions)
  records, observed, expected = (
      np.bincount(group, weights, num_groups)
      for weights in (np.ones(group.size), labels, predictions))
  squared = np.square(observed - expected)
  # Skips 0 / 0, as in empty groups.
  differing = squared > 0
  return float(sum(
      np.sum(squared[differing] / np.maximum(part[differing], min_expected))
      for part in (expected, records - expected)))


def chi_squared_tail(value: float, *, num_groups: int = 10,
                     fitted: bool = False) -> float:
  """Returns the p-value of an exact statistic; for noisy ones use `test`."""
  degrees = num_groups - (2 if fitted else 0)
  return float(special.chdtrc(errors.check_at_least('degrees', degrees, 1),
                              value))


def recalibrated(counts: Array, predictions: Array) -> Array:
  """Returns predictions [N], recalibrated on counts [class, N].

  One Newton step fits an intercept and a slope of the logit. This imitates a
  model that was fitted on the records.
  """
  logit = jnp.log(predictions) - jnp.log1p(-predictions)
  design = jnp.stack([jnp.ones_like(logit), logit])
  total = counts[0] + counts[1]
  weights = total * predictions * (1 - predictions)
  score = design @ (counts[1] - total * predictions)
  # The small ridge keeps the system solvable when there are no records.
  information = (design * weights[None]) @ design.T + 1e-9 * jnp.eye(2)
  # From intercept 0 and slope 1, that is, the predictions as they are.
  step = jnp.linalg.solve(information, score)
  return jax.nn.sigmoid(logit + step @ design)


@functools.cache
def _test(draw: roc.Draw, num_groups: int, fitted: bool,
          num_draws: int) -> Callable[..., Test]:
  """Returns the compiled Monte Carlo test of `test`."""
  def compute(ranks: Array, predictions: Array, min_expected: Array) -> Array:
    return statistic(table(ranks, predictions, num_groups=num_groups),
                     min_expected=min_expected)

  def draw_statistic(key: PRNGKey, expected: Array, predictions: Array,
                     parameters: PyTree, min_expected: Array) -> Array:
    noise_key, records_key = jax.random.split(key)
    # Given their sum, Poisson positives are binomial.
    counts = roc_bands.poisson(
        records_key, expected[None] * jnp.stack([1 - predictions, predictions]))
    ranks = draw(noise_key, counts, parameters)
    if fitted:
      predictions = recalibrated(counts, predictions)
    return compute(ranks, predictions, min_expected)

  def run(key: PRNGKey, ranks: Array, predictions: Array, parameters: PyTree,
          min_expected: Array) -> Test:
    value = compute(ranks, predictions, min_expected)
    draws = jax.vmap(draw_statistic, (0, None, None, None, None))(
        jax.random.split(key, num_draws), jnp.sum(roc_bands.cells(ranks), 0),
        predictions, parameters, min_expected)
    # Counting the release among the draws makes the p-value valid.
    larger = jnp.sum((draws >= value).astype(draws.dtype))
    return Test(value, (1 + larger) / (1 + num_draws), draws)
  return jax.jit(run)


@precision.in_float64
def test(mechanism: RocMechanism, key: PRNGKey, ranks: Array, *,
         num_groups: int = 10, min_expected: float = 5.0,
         fitted: bool = False, num_draws: int = 199) -> Test:
  """Tests calibration: H of a release against its distribution if calibrated.

  Under the hypothesis, labels are drawn with the prediction in the middle of
  each bin, for as many records as were released there, and pass through the
  same release. This is the distribution of H, except for the bin width and the
  noise in the numbers of records.

  Args:
    mechanism: the mechanism that released the ranks; its grid is of predictions
      within [0, 1].
    key: for the draws; not the key of the release.
    ranks: [2, N] from `release_ranks` or `estimate`.
    num_groups: Q, at least 2.
    min_expected: see `statistic`.
    fitted: whether the model was fitted on these records. If so, intercept and
      slope are refitted to each draw, because fitting makes H smaller.
    num_draws: B, at least 19.

  Raises:
    ValueError: for values outside their range.
  """
  predictions = chances(mechanism.grid)
  errors.check_at_least('num_groups', num_groups, 2)
  errors.check_at_least('num_draws', num_draws, 19)
  errors.check_positive('min_expected', min_expected)
  run = _test(mechanism.draw, num_groups, fitted, num_draws)
  return jax.tree.map(np.asarray, run(
      key, precision.double(ranks), predictions, mechanism.parameters,
      np.float64(min_expected)))


@functools.cache
def _calibration(draw: roc.Draw, num_groups: int, of: str,
                 num_draws: int) -> Callable[..., Calibration]:
  """Returns the compiled bootstrap of `calibration`."""
  def run(key: PRNGKey, ranks: Array, predictions: Array, parameters: PyTree,
          confidence: Array) -> Calibration:
    groups = table(ranks, predictions, num_groups=num_groups)
    cell_counts = roc_bands.cells(ranks)
    redrawn_ranks = roc_bands.redrawn(draw, of, num_draws)(
        key, cell_counts, parameters)
    # Errors are relative to the share in the counts that were drawn from, in
    # the same groups.
    centre = _share(jnp.cumsum(cell_counts, 1), groups.ends)
    misses = (jax.vmap(_share, (0, None))(redrawn_ranks, groups.ends)
              - centre[None])
    observed = roc_bands.separate(_share(ranks, groups.ends), misses,
                                  confidence)
    return Calibration(groups.expected / jnp.maximum(groups.records, 1),
                       intervals.clipped(observed, 0.0, 1.0), groups.records)
  return jax.jit(run)


@precision.in_float64
def calibration(mechanism: RocMechanism, key: PRNGKey, ranks: Array, *,
                num_groups: int = 10, confidence: float = 0.95,
                of: str = 'population', num_draws: int = 400) -> Calibration:
  """Returns observed against predicted shares of positives, by group.

  The groups are those of the release. Each interval is for one group, of these
  records or of their population, see `roc_bands`.

  Args:
    mechanism: the mechanism that released the ranks; its grid is of predictions
      within [0, 1].
    key: for the draws; not the key of the release.
    ranks: [2, N] from `release_ranks` or `estimate`.
    num_groups: Q, at least 2.
    confidence: level of each interval.
    of: 'records' or 'population'.
    num_draws: B.
  """
  predictions = chances(mechanism.grid)
  errors.check_at_least('num_groups', num_groups, 2)
  errors.check_open_unit('confidence', confidence)
  errors.check_choice('of', of, roc_bands.OF)
  run = _calibration(mechanism.draw, num_groups, of, num_draws)
  return jax.tree.map(np.asarray, run(
      key, precision.double(ranks), predictions, mechanism.parameters,
      np.float64(confidence)))


def _share(ranks: Array, ends: Array) -> Array:
  """Returns the share of positives [Q] between ends; the denominator is >= 1.
  """
  return _between(ranks[1], ends) / jnp.maximum(
      _between(ranks[0] + ranks[1], ends), 1)
