"""Several quantiles by recursive splitting of records and quantile levels.

The middle level cuts the records in two; lower levels are then sought among the
records below the cut, higher ones above it. A record is in one node of each
tree level, so that m quantile levels cost as much as ceil(log2(m + 1)). Source:
Kaplan, Schnapp and Stemmer (2022); Lalanne (2023, section 6.1.5) (items QF-08,
QB-02).

On a lattice many records are equal, and with all of them on one side of a cut
every level beyond it would be biased. So a record counts as spread evenly over
`parts` parts of its point, and cuts lie between parts. A node then holds a
share of a record, and the shares of a record in one tree level sum to 1.

Privacy. Let L be the number of tree levels. A node between two cuts holds mass
M, in records, and seeks the relative quantile level p = a/b there:
  1. A cut with mass C on its left has the score |C - p M|. If a share w of a
     record joins the node, C grows by at most w and M by w: the score changes
     by at most w max(p, 1 - p).
  2. If a share w is replaced by a share v, the score changes by at most
     (v + w) max(p, 1 - p), and at the root, where M is fixed, by at most 1.
  3. With probability proportional to e^(-rate score), the log-probability
     changes by at most 2 rate times that, including the normaliser.
  4. With
       rate = epsilon / (2 L max(p, 1 - p)) under add-or-remove-one, and
       rate = epsilon / (4 L max(p, 1 - p)), at the root epsilon / (2 L), under
         replace-one,
     a tree level costs, given the cuts above, epsilon / L times the sum of the
     shares, 1, or times half the sum of v + w, 2: that is epsilon / L.
  5. The L tree levels cost epsilon.

Ranks. Let the cuts l and r around a node have rank errors E_l and E_r, and its
own choice the error e. Its cut has rank n p_l + E_l + p (n (p_r - p_l) + E_r -
E_l) + e, so its error is (1 - p) E_l + p E_r + e: errors of ancestors shrink.
"""

import bisect
from collections.abc import Iterator, Sequence
import dataclasses
import fractions
import functools
import itertools
import math
from typing import NamedTuple

from dpjax.privacy import exact

Fraction = fractions.Fraction

# A part then holds at most one record in all files of up to 2^24 records.
PARTS = 2**24
"""Default number of parts of a lattice point."""


class Node(NamedTuple):
  """One node of the tree: the choice of one cut.

  Attributes:
    place: index of its quantile level, from 1.
    left: index of the level of the cut below, 0 for the lower bound.
    right: index of the level of the cut above, m + 1 for the upper bound.
    share: p, the relative quantile level between the two cuts.
    level: level in the tree, from 0.
  """
  place: int
  left: int
  right: int
  share: Fraction
  level: int


class Run(NamedTuple):
  """Cuts start, start + step, ... with scores score, score + slope, ..."""
  start: int
  step: int
  cuts: int
  score: int
  slope: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Splitting:
  """The tree of the quantile levels, its noise, and its rank errors.

  Scores are integers: masses are counted in parts, and multiplied by b.

  Attributes:
    orders: [m] quantile levels in (0, 1), increasing.
    epsilon: privacy cost of all quantiles together.
    replacing: whether neighbours replace one record, instead of adding one.
    size: number of points of the lattice, which are 0 to size - 1.
    parts: number of parts of a point.
  """
  orders: tuple[Fraction, ...]
  epsilon: Fraction
  replacing: bool
  size: int
  parts: int = PARTS

  @functools.cached_property
  def nodes(self) -> tuple[Node, ...]:
    """Returns one node for each quantile level, parents first."""
    orders = [Fraction(0), *self.orders, Fraction(1)]
    nodes, level = [], [(0, len(self.orders) + 1)]
    for number in range(self.num_levels):
      for left, right in level:
        place = (left + right) // 2
        share = (orders[place] - orders[left]) / (orders[right] - orders[left])
        nodes.append(Node(place, left, right, share, number))
      level = [pair for node in nodes if node.level == number for pair in (
          (node.left, node.place), (node.place, node.right))
               if pair[1] - pair[0] > 1]
    return tuple(nodes)

  @property
  def num_levels(self) -> int:
    """Returns the number of tree levels, L = ceil(log2(m + 1))."""
    return len(self.orders).bit_length()

  def sensitivity(self, node: Node) -> int:
    """Returns the largest change of the node's score by one whole record.

    Under replace-one these are two records: the old one and the new one.
    """
    a, b = node.share.numerator, node.share.denominator
    # At the root M is fixed, and only C moves. Elsewhere a record that joins or
    # leaves moves b C - a M by b - a or by a: step 1.
    if self.replacing and not node.level:
      return b * self.parts
    return (1 + self.replacing) * max(a, b - a) * self.parts

  def rate(self, node: Node) -> Fraction:
    """Returns the factor of the score in the log-probability."""
    return self.epsilon / (2 * self.num_levels * self.sensitivity(node))

  @property
  def level_costs(self) -> tuple[Fraction, ...]:
    """Returns the cost of each tree level, from the rates of its nodes."""
    return tuple(max(2 * self.sensitivity(node) * self.rate(node)
                     for node in self.nodes if node.level == level)
                 for level in range(self.num_levels))

  def draw(self, values: Sequence[int], below: exact.Draw) -> list[int]:
    """Draws one point [m] for each quantile level, from sorted records [n]."""
    counts = [(value, sum(1 for _ in same))
              for value, same in itertools.groupby(values)]
    cuts = {0: 0, len(self.orders) + 1: self.size * self.parts}
    # Parents first: a node sees the records between two released cuts.
    for node in self.nodes:
      cuts[node.place] = choose(
          self.runs(counts, cuts[node.left], cuts[node.right], node.share),
          self.rate(node), below)
    # A cut at the upper end would be one above the last point.
    return [min(cuts[place] // self.parts, self.size - 1)
            for place in range(1, len(self.orders) + 1)]

  def runs(self, counts: Sequence[tuple[int, int]], left: int, right: int,
           share: Fraction) -> list[Run]:
    """Returns all cuts from `left` to `right`, both included, with scores.

    Args:
      counts: sorted (point, number of records there) pairs.
      left: the cut below.
      right: the cut above.
      share: relative quantile level of the node.
    """
    a, b = share.numerator, share.denominator
    segments = list(self._segments(counts, left, right))
    target = a * sum(count * slope for _, count, slope in segments)
    cut_runs, mass = [], 0
    for start, count, slope in segments:
      excess = b * mass - target
      mass += count * slope
      if not slope:
        cut_runs.append(Run(start, 1, count, abs(excess), 0))
        continue
      # The first `low` cuts have mass at most p M; the last has the best score.
      low = min(max(-excess // (b * slope) + 1, 0), count)
      if low:
        cut_runs.append(Run(start + low - 1, -1, low,
                            -(excess + (low - 1) * b * slope), b * slope))
      if low < count:
        cut_runs.append(Run(start + low, 1, count - low,
                            excess + low * b * slope, b * slope))
    return cut_runs

  def _segments(self, counts: Sequence[tuple[int, int]], left: int,
                right: int) -> Iterator[tuple[int, int, int]]:
    """Yields (first cut, number of cuts, mass between successive cuts)."""
    position = left
    first = bisect.bisect_left(counts, (left // self.parts,))
    for value, count in counts[first:]:
      start, end = max(value * self.parts, left), min(
          (value + 1) * self.parts, right)
      if start >= end:
        break
      if start > position:
        yield position, start - position, 0
      yield start, end - start, count
      position = end
    yield position, right - position + 1, 0

  def errors(self, miss: float, number: int | None = None) -> list[float]:
    """Returns bounds [m] of the rank errors; they hold except with `miss`.

    Args:
      miss: probability for all quantile levels together.
      number: n if it is public; else n is assumed to be at most `parts`.
    """
    # Mass grows by at most n parts from cut to cut, so parts / n cuts of a
    # node, or all, are within one rank of its target. One k ranks farther away
    # has probability at most (size parts + 1) n / parts e^(-rate k).
    num_near = max(1, self.parts // (number or self.parts))
    odds = math.log((self.size * self.parts + 1) / num_near)
    odds += math.log(len(self.orders) / miss)
    errors = {0: 0.0, len(self.orders) + 1: 0.0}
    for node in self.nodes:
      ranks = float(self.rate(node) * node.share.denominator * self.parts)
      share = float(node.share)
      errors[node.place] = (
          (1 - share) * errors[node.left] + share * errors[node.right]
          + max(1.0, (number or 0) / self.parts) + odds / ranks)
    return [errors[place] for place in range(1, len(self.orders) + 1)]


def pieces(run: Run, rate: Fraction) -> Iterator[Run]:
  """Yields parts of a run, shorter where its weights are larger.

  The first part falls by at most 1; each later part is as long as all before.
  """
  done, length = 0, run.cuts
  if run.slope:
    length = max(1, math.floor(1 / (rate * run.slope)))
  while done < run.cuts:
    length = min(length, run.cuts - done)
    yield run._replace(start=run.start + run.step * done, cuts=length,
                       score=run.score + run.slope * done)
    done += length
    length = done


def choose(runs: Sequence[Run], rate: Fraction, below: exact.Draw) -> int:
  """Draws a cut with probability proportional to e^(-rate score), exactly.

  Rejection sampling: a part is proposed as if all of its cuts had the score of
  its first, with a uniform cut in it, which is accepted with the ratio of its
  weights. The acceptance probability is about 1/2 or more.
  """
  proposals = [piece for run in runs for piece in pieces(run, rate)]
  counts = [piece.cuts for piece in proposals]
  scores = [piece.score for piece in proposals]
  while True:
    piece = proposals[exact.choice(counts, scores, rate, below)]
    steps = below(piece.cuts)
    if exact.bernoulli_exp(rate * piece.slope * steps, below):
      return piece.start + piece.step * steps
