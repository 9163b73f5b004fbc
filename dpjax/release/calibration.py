"""Whether predicted probabilities are those of labels, from released counts.

The statistic of Hosmer and Lemeshow compares, in groups of like predictions,
numbers of labels with expected ones. Noise makes it larger, so that chi-squared
is not its law: here the null law is simulated, labels and noise alike (item
EC-24, EC-26; thesis 003, section 6.5.2).
"""

from typing import NamedTuple

import numpy as np

from dpjax.release.trees import Tree

LEAST = 5.0
"""Groups that expect fewer labels of either kind join the next."""

RUNS = 499


class Groups(NamedTuple):
  """Consecutive bins with like predictions; G groups.

  Attributes:
    ends: [G] last bin of each.
    records: [G] of both classes.
    observed: [G] positive ones.
    expected: [G] the same, by the predictions.
  """
  ends: np.ndarray
  records: np.ndarray
  observed: np.ndarray
  expected: np.ndarray

  @property
  def statistic(self) -> float:
    """H: squared distances over expected numbers, of both classes."""
    rest = np.maximum(self.records - self.expected, LEAST)
    return float(np.sum((self.observed - self.expected)**2 * (
        1 / np.maximum(self.expected, LEAST) + 1 / rest)))


def grouped(counts: np.ndarray, centres: np.ndarray, number: int) -> Groups:
  """Groups that end where shares q / number of all records are reached.

  Args:
    counts: [2, N] >= 0, of negative and positive records by prediction.
    centres: [N] predicted probability of each bin.
    number: of groups, before those that expect too few join others.
  """
  records = counts.sum(0)
  ranks = np.cumsum(records)
  shares = np.arange(1, number + 1) / number
  ends = np.searchsorted(ranks, ranks[-1] * (shares - 1e-12))
  ends = np.append(np.unique(np.minimum(ends, len(ranks) - 1))[:-1],
                   len(ranks) - 1)
  rows = np.diff(np.cumsum([records, counts[1], records * centres], 1)[:, ends],
                 prepend=0.0)
  kept, sums, last = [], [], np.zeros(3)
  for end, row in zip(ends, rows.T, strict=True):
    last = last + row
    if min(last[2], last[0] - last[2]) >= LEAST:
      kept.append(end)
      sums.append(last)
      last = np.zeros(3)
  if not kept or last.any():  # what is left joins the last group, if any
    sums[-1:] = [sum(sums[-1:], last)]
  kept[-1:] = [ends[-1]]
  return Groups(np.array(kept), *np.array(sums).T)


def null_law(tree: Tree, counts: np.ndarray, centres: np.ndarray, number: int,
             generator: np.random.Generator) -> np.ndarray:
  """Statistics [RUNS] of well calibrated labels, released by the same tree.

  Args:
    tree: of the release, whose noise law is public.
    counts: [2, N] as released; the records of each bin are taken from them.
    centres: [N] as `grouped`.
    number: of groups.
    generator: of what is public.
  """
  records = np.rint(counts.sum(0)).astype(np.int64)
  total = int(records.sum()) if tree.known else None
  found = np.zeros(RUNS)
  for run in range(RUNS):
    labels = generator.binomial(records, centres)
    nodes = tree.nodes(np.concatenate([records - labels, labels]))
    noisy = [node + z for node, z in zip(nodes, tree.simulated(generator),
                                         strict=True)]
    found[run] = grouped(tree.nonnegative(noisy, total), centres,
                         number).statistic
  return found
