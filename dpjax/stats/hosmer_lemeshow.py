"""Calibration of predicted probabilities: tables, Hosmer-Lemeshow statistics.

Records are grouped by what is predicted; in each of Q groups the positives that
were observed are compared with those that were expected. A private release of
ranks of both classes (`roc`) on a grid of predictions has all it takes: groups
are quantiles of the summed curve, observed positives are differences of ranks,
and expected ones are sums over bins of records times the prediction in their
middle, which is off by half a bin at most. So nothing here spends a budget.
Source: thesis 003, section 6.5.2 (item EC-24, EC-26); its own algorithm, which
asks for each cell, is in `hosmer_lemeshow_cells`.

With noise the statistic is not chi squared: at moderate epsilon it is far
above. It is compared with draws from a calibrated model, with the same noise.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from dpjax import errors
from dpjax.stats import intervals
from dpjax.stats import precision
from dpjax.stats import roc
from dpjax.stats import roc_bands
from dpjax.stats.ecdf.grids import Grid
from dpjax.stats.roc import RocMechanism
from dpjax.typing import Array, PRNGKey, PyTree


class Table(NamedTuple):
  """Records by group of prediction, lowest first; groups may be empty.

  Attributes:
    ends: [Q + 1] bins; group q has those from ends[q] to ends[q + 1] - 1.
    records: [Q] in each.
    observed: [Q] positives.
    expected: [Q] positives that the predictions expect.
  """
  ends: Array
  records: Array
  observed: Array
  expected: Array


class Test(NamedTuple):
  """Of the hypothesis that predictions are calibrated.

  Attributes:
    statistic: H.
    p_value: share of draws under the hypothesis that are as large; valid, never
      0.
    draws: [B] of H under it.
  """
  statistic: Array
  p_value: Array
  draws: Array


class Calibration(NamedTuple):
  """A calibration curve.

  Attributes:
    predicted: [Q] mean prediction of a group; NaN-free, 0 where it is empty.
    observed: [Q] share of positives, with an interval for each group.
    records: [Q] in each group.
  """
  predicted: Array
  observed: intervals.Estimate
  records: Array


def chances(grid: Grid) -> np.ndarray:
  """Predictions [N] in the middle of the bins of a grid within [0, 1].

  Raises:
    ValueError: for another grid, or a geometric one, whose first bin starts
      anywhere below `lower`.
  """
  if grid.lower < 0 or grid.upper > 1 or grid.kind != 'uniform':
    raise ValueError('predictions are probabilities: their grid must be uniform'
                     f' and within [0, 1], got {grid.kind} from {grid.lower} '
                     f'to {grid.upper}')
  edges = np.append(grid.lower, grid.thresholds)
  return (edges[1:] + edges[:-1]) / 2


def first_reaching(ranks: Array, wanted: Array) -> Array:
  """The first bins [m], from 0, up to which ranks [N] reach wanted ones [m].

  By halving, as Algorithm 9 of thesis 003: on a curve that falls in places it
  is one place where it passes; the last bin if it never does.
  """
  low = jnp.zeros(wanted.shape, jnp.int32)
  high = jnp.full(wanted.shape, ranks.size - 1, jnp.int32)
  for _ in range((ranks.size - 1).bit_length()):
    middle = (low + high) // 2
    reached = ranks[middle] >= wanted
    low, high = (jnp.where(reached, low, jnp.minimum(middle + 1, high)),
                 jnp.where(reached, middle, high))
  return high


def group_ends(ranks: Array, total: Array, num_groups: int) -> Array:
  """Ends [Q + 1] of groups of as many records each, by ranks [N]; in order."""
  shares = np.arange(1, num_groups) / num_groups
  inner = jnp.sort(first_reaching(ranks, shares * total)) + 1
  return jnp.concatenate([jnp.zeros([1], inner.dtype), inner,
                          jnp.full([1], ranks.size, inner.dtype)])


@precision.in_float64
def table(ranks: Array, predictions: Array, *, num_groups: int = 10,
          ends: Array | None = None) -> Table:
  """Groups of ranks [2, N] of negatives and positives.

  Args:
    ranks: of one release, or exact ones.
    predictions: [N] of the bins, see `chances`.
    num_groups: Q.
    ends: of given groups; None for quantiles of the predictions.
  """
  summed = ranks[0] + ranks[1]
  if ends is None:
    ends = group_ends(summed, summed[-1], num_groups)
  records = _between(summed, ends)
  counts = jnp.diff(summed, prepend=jnp.zeros_like(summed[:1]))
  return Table(ends, records, _between(ranks[1], ends),
               _between(jnp.cumsum(counts * predictions), ends))


def _between(sums: Array, ends: Array) -> Array:
  """Sums [Q] over the bins between ends, of sums [N] up to each bin."""
  return jnp.diff(jnp.concatenate([jnp.zeros_like(sums[:1]), sums])[ends])


@precision.in_float64
def statistic(groups: Table, *, min_expected: float = 5.0) -> Array:
  """H, equation 6.5.1.

  Args:
    groups: a table.
    min_expected: public; where fewer positives or negatives are expected, so
      many divide. An empty group adds nothing.
  """
  missed = jnp.square(groups.observed - groups.expected)
  return jnp.sum(
      missed / jnp.maximum(groups.expected, min_expected)
      + missed / jnp.maximum(groups.records - groups.expected, min_expected))


def exact(predictions: np.ndarray, labels: np.ndarray, *, num_groups: int = 10,
          min_expected: float = 0.0) -> float:
  """H of records, not private: groups (t_(q-1), t_q] of quantiles.

  t_q is the ceil(q n / Q)-th smallest prediction; records that tie are in one
  group. To be compared with chi squared, of Q - 2 degrees of freedom where the
  model was fitted on these records, of Q on others.

  Args:
    predictions: [n] in [0, 1].
    labels: [n], 0 or 1.
    num_groups: Q.
    min_expected: as of `statistic`; 0 divides by whatever is expected.
  """
  errors.check_at_least('num_groups', num_groups, 2)
  ordered = np.sort(predictions)
  # In whole numbers: 9 / 11 * 77 is more than 63.
  ranks = -(-np.arange(1, num_groups) * ordered.size // num_groups)
  group = np.searchsorted(ordered[ranks - 1], predictions)
  records, observed, expected = (
      np.bincount(group, weights, num_groups)
      for weights in (np.ones(group.size), labels, predictions))
  missed = np.square(observed - expected)
  kept = missed > 0
  return float(sum(np.sum(missed[kept] / np.maximum(part[kept], min_expected))
                   for part in (expected, records - expected)))


def chi_squared_tail(value: float, *, num_groups: int = 10,
                     fitted: bool = False) -> float:
  """P-value of an exact statistic; with noise use `test`."""
  degrees = num_groups - (2 if fitted else 0)
  return float(special.chdtrc(errors.check_at_least('degrees', degrees, 1),
                              value))


def recalibrated(counts: Array, predictions: Array) -> Array:
  """Predictions [N] after a step of a fit of two parameters to counts [2, N].

  The fit is that of intercept and slope of the logit, by one Newton step; what
  a model that was fitted on the records has done to them.
  """
  logit = jnp.log(predictions) - jnp.log1p(-predictions)
  design = jnp.stack([jnp.ones_like(logit), logit])
  total = counts[0] + counts[1]
  weights = total * predictions * (1 - predictions)
  score = design @ (counts[1] - total * predictions)
  # Without records there is nothing to fit.
  information = (design * weights[None]) @ design.T + 1e-9 * jnp.eye(2)
  step = jnp.linalg.solve(information, score)
  return jax.nn.sigmoid(logit + step @ design)


@functools.cache
def _test(draw: roc.Draw, num_groups: int, fitted: bool, num_draws: int):
  def found(ranks: Array, predictions: Array, min_expected: Array) -> Array:
    return statistic(table(ranks, predictions, num_groups=num_groups),
                     min_expected=min_expected)

  def drawn(key: PRNGKey, expected: Array, predictions: Array,
            parameters: PyTree, min_expected: Array) -> Array:
    noise_key, records_key = jax.random.split(key)
    # Given their sum, Poisson positives are binomial.
    counts = roc_bands.poisson(
        records_key, expected[None] * jnp.stack([1 - predictions, predictions]))
    ranks = draw(noise_key, counts, parameters)
    if fitted:
      predictions = recalibrated(counts, predictions)
    return found(ranks, predictions, min_expected)

  def law(key: PRNGKey, ranks: Array, predictions: Array, parameters: PyTree,
          min_expected: Array) -> Test:
    value = found(ranks, predictions, min_expected)
    draws = jax.vmap(drawn, (0, None, None, None, None))(
        jax.random.split(key, num_draws), jnp.sum(roc_bands.cells(ranks), 0),
        predictions, parameters, min_expected)
    larger = jnp.sum((draws >= value).astype(draws.dtype))
    return Test(value, (1 + larger) / (1 + num_draws), draws)
  return jax.jit(law)


@precision.in_float64
def test(mechanism: RocMechanism, key: PRNGKey, ranks: Array, *,
         num_groups: int = 10, min_expected: float = 5.0,
         fitted: bool = False, num_draws: int = 199) -> Test:
  """H of a release, and how large it is if predictions are calibrated.

  Under the hypothesis labels are drawn by the prediction in the middle of each
  bin, for as many records as were released there, and go through the same
  release. That is the law of H but for the width of bins and the noise that is
  in the numbers of records.

  Args:
    mechanism: what released; its grid is of predictions within [0, 1].
    key: for the draws; not that of the release.
    ranks: [2, N] of `release_ranks` or `estimate`.
    num_groups: Q.
    min_expected: as of `statistic`.
    fitted: whether the model was fitted on these records; then the draws are
      refitted, in two parameters, or H would be too small for them.
    num_draws: B.

  Raises:
    ValueError: for values outside their range.
  """
  predictions = chances(mechanism.grid)
  errors.check_at_least('num_groups', num_groups, 2)
  errors.check_at_least('num_draws', num_draws, 19)
  errors.check_positive('min_expected', min_expected)
  law = _test(mechanism.draw, num_groups, fitted, num_draws)
  return jax.tree.map(np.asarray, law(
      key, precision.double(ranks), predictions, mechanism.parameters,
      np.float64(min_expected)))


@functools.cache
def _calibration(draw: roc.Draw, num_groups: int, of: str, num_draws: int):
  def law(key: PRNGKey, ranks: Array, predictions: Array, parameters: PyTree,
          confidence: Array) -> Calibration:
    found = table(ranks, predictions, num_groups=num_groups)
    start = roc_bands.cells(ranks)
    again = roc_bands.redrawn(draw, of, num_draws)(key, start, parameters)
    # From the share of the cells that were drawn from, in the same groups.
    centre = _share(jnp.cumsum(start, 1), found.ends)
    misses = jax.vmap(_share, (0, None))(again, found.ends) - centre[None]
    observed = roc_bands.separate(_share(ranks, found.ends), misses, confidence)
    return Calibration(found.expected / jnp.maximum(found.records, 1),
                       intervals.clipped(observed, 0.0, 1.0), found.records)
  return jax.jit(law)


@precision.in_float64
def calibration(mechanism: RocMechanism, key: PRNGKey, ranks: Array, *,
                num_groups: int = 10, confidence: float = 0.95,
                of: str = 'population', num_draws: int = 400) -> Calibration:
  """Observed against predicted shares, by group.

  Groups are those of the release. Intervals are for one group each, of these
  records or of their population, see `roc_bands`.

  Args:
    mechanism: what released; its grid is of predictions within [0, 1].
    key: for the draws; not that of the release.
    ranks: [2, N] of `release_ranks` or `estimate`.
    num_groups: Q.
    confidence: of each interval.
    of: 'records' or 'population'.
    num_draws: B.
  """
  predictions = chances(mechanism.grid)
  errors.check_at_least('num_groups', num_groups, 2)
  errors.check_open_unit('confidence', confidence)
  errors.check_choice('of', of, roc_bands.OF)
  law = _calibration(mechanism.draw, num_groups, of, num_draws)
  return jax.tree.map(np.asarray, law(
      key, precision.double(ranks), predictions, mechanism.parameters,
      np.float64(confidence)))


def _share(ranks: Array, ends: Array) -> Array:
  """Of positives [Q] among records between ends; at least one divides."""
  return _between(ranks[1], ends) / jnp.maximum(
      _between(ranks[0] + ranks[1], ends), 1)
