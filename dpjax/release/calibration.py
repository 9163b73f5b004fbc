"""A test whether predicted probabilities are calibrated, from noisy counts.

The statistic of Hosmer and Lemeshow compares observed and expected numbers of
positive labels in groups of similar predictions. Noise makes it larger, so it
does not have a chi-squared distribution. Its null distribution is simulated
instead, labels and noise alike (Barczewski 2025, section 6.5.2; items EC-24,
EC-26).
"""

from typing import NamedTuple

import numpy as np

from dpjax.release.trees import Tree

LEAST = 5.0
"""Groups that expect fewer labels of either class join the next group."""

RUNS = 499
"""Number of simulations of the null distribution."""


class Groups(NamedTuple):
  """G groups of consecutive bins, with similar predictions.

  Attributes:
    ends: [G] last bin of each group.
    records: [G] numbers of records of both classes.
    observed: [G] numbers of positive records.
    expected: [G] sums of predicted probabilities.
  """
  ends: np.ndarray
  records: np.ndarray
  observed: np.ndarray
  expected: np.ndarray

  @property
  def statistic(self) -> float:
    """Returns the Hosmer-Lemeshow statistic, with denominators >= `LEAST`."""
    # A nearly empty group would otherwise decide it by its noise alone.
    rest = np.maximum(self.records - self.expected, LEAST)
    return float(np.sum((self.observed - self.expected)**2 * (
        1 / np.maximum(self.expected, LEAST) + 1 / rest)))


def grouped(counts: np.ndarray, centres: np.ndarray, number: int) -> Groups:
  """Returns groups of nearly equal numbers of records.

  Args:
    counts: [2, N] counts >= 0 of negative and positive records in each bin.
    centres: [N] predicted probability of each bin.
    number: number of groups, before those that expect too few labels are
      merged.
  """
  records = counts.sum(0)
  ranks = np.cumsum(records)
  shares = np.arange(1, number + 1) / number
  # 1e-12: a share that is a rank up to rounding ends at that rank.
  ends = np.searchsorted(ranks, ranks[-1] * (shares - 1e-12))
  # Groups that end in the same bin are one; the last one ends with the bins.
  ends = np.append(np.unique(np.minimum(ends, len(ranks) - 1))[:-1],
                   len(ranks) - 1)
  rows = np.diff(np.cumsum([records, counts[1], records * centres], 1)[:, ends],
                 prepend=0.0)
  kept_ends, sums, merged = [], [], np.zeros(3)
  for end, row in zip(ends, rows.T, strict=True):
    merged = merged + row
    if min(merged[2], merged[0] - merged[2]) >= LEAST:
      kept_ends.append(end)
      sums.append(merged)
      merged = np.zeros(3)
  # What is left is too small for a group, and joins the last one, if any.
  if not kept_ends or merged.any():
    sums[-1:] = [sum(sums[-1:], merged)]
  kept_ends[-1:] = [ends[-1]]
  return Groups(np.array(kept_ends), *np.array(sums).T)


def null_statistics(tree: Tree, counts: np.ndarray, centres: np.ndarray,
                    number: int, generator: np.random.Generator) -> np.ndarray:
  """Returns simulated statistics [RUNS] under perfect calibration.

  Args:
    tree: tree of the release, whose noise is simulated.
    counts: [2, N] released counts; they give the number of records in each bin.
    centres: [N] predicted probability of each bin.
    number: number of groups.
    generator: source of randomness; all inputs are public.
  """
  records = np.rint(counts.sum(0)).astype(np.int64)
  total = int(records.sum()) if tree.known else None
  statistics = np.zeros(RUNS)
  # All steps of the release are repeated, so that noise and the correction of
  # negative counts raise simulated and real statistics alike.
  for run in range(RUNS):
    labels = generator.binomial(records, centres)
    nodes = tree.nodes(np.concatenate([records - labels, labels]))
    noisy = [node + z for node, z in zip(nodes, tree.simulated(generator),
                                         strict=True)]
    statistics[run] = grouped(tree.nonnegative(noisy, total), centres,
                              number).statistic
  return statistics
