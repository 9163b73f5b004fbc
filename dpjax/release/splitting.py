"""Several quantiles by splitting records and orders in two, level by level.

The middle order cuts the records in two; the lower orders are then sought among
those below the cut, the upper ones above it. A record is in one part of each
level, so that m orders cost as much as ceil(log2(m + 1)). Source: Kaplan,
Schnapp and Stemmer 2022; thesis 000, section 6.1.5 (item QF-08, QB-02).

On a lattice many records are equal, and all of them on one side of a cut would
mislead every order beyond it. So a record counts as spread evenly over `parts`
parts of its point, and cuts lie between parts. What a part of the tree holds of
a record is then a share of it, and the shares of a level sum to 1.

Privacy. A node between two cuts holds mass M, in records, and seeks its order's
relative place p = a/b there. A cut with mass C on its left has the score
|C - p M|. If a share w of a record joins the node, C grows by at most w, M by
w: the score moves by w max(p, 1 - p). If a share w is replaced by v it moves by
at most (v + w) max(p, 1 - p), and at the root, where M stays, by 1. A choice of
probability proportional to e^(-rate score) moves in log-probability by twice
rate times that, the normaliser included. With

  rate = epsilon / (2 L max(p, 1 - p)) under add-or-remove-one, and
  rate = epsilon / (4 L max(p, 1 - p)), at the root epsilon / (2 L), under
    replace-one,

the nodes of a level cost epsilon / L times the sum of shares, 1, or half the
sum of v and w, 2: epsilon / L, given the cuts above. L levels cost epsilon.

Ranks. If the cuts l and r around a node miss their ranks by E_l and E_r, and
its own by e, then the rank of its cut is n p_l + E_l + p (n (p_r - p_l) + E_r -
E_l) + e, which is off by (1 - p) E_l + p E_r + e: errors of ancestors shrink.
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

PARTS = 2**24


class Node(NamedTuple):
  """One choice.

  Attributes:
    place: of its order, from 1.
    left: place of the order of the cut below, 0 for the lower bound.
    right: of the cut above, m + 1 for the upper bound.
    share: p, the order's relative place between the two.
    level: from 0.
  """
  place: int
  left: int
  right: int
  share: Fraction
  level: int


class Run(NamedTuple):
  """Cuts start, start + step, ... of scores score, score + slope, ..."""
  start: int
  step: int
  count: int
  score: int
  slope: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Splitting:
  """The tree of the orders, its noise, and how far it may be off.

  Scores are whole: masses are counted in parts, and multiplied by b.

  Attributes:
    orders: [m] in (0, 1), increasing.
    epsilon: of all orders together.
    replacing: whether a neighbour has a record replaced; else one more.
    size: points of the lattice, 0 to size - 1.
    parts: of a point.
  """
  orders: tuple[Fraction, ...]
  epsilon: Fraction
  replacing: bool
  size: int
  parts: int = PARTS

  @functools.cached_property
  def nodes(self) -> tuple[Node, ...]:
    """One for each order, parents first."""
    ends = [Fraction(0), *self.orders, Fraction(1)]
    found, level = [], [(0, len(self.orders) + 1)]
    for number in range(self.num_levels):
      for left, right in level:
        place = (left + right) // 2
        share = (ends[place] - ends[left]) / (ends[right] - ends[left])
        found.append(Node(place, left, right, share, number))
      level = [pair for node in found if node.level == number for pair in (
          (node.left, node.place), (node.place, node.right))
               if pair[1] - pair[0] > 1]
    return tuple(found)

  @property
  def num_levels(self) -> int:
    """L = ceil(log2(m + 1))."""
    return len(self.orders).bit_length()

  def sensitivity(self, node: Node) -> int:
    """Most that shares which sum to 1 move the node's score by.

    To 2 under replace-one: of the record that leaves and of the one that comes.
    """
    a, b = node.share.numerator, node.share.denominator
    if self.replacing and not node.level:
      return b * self.parts
    return (1 + self.replacing) * max(a, b - a) * self.parts

  def rate(self, node: Node) -> Fraction:
    """What a score of 1 costs in log-probability."""
    return self.epsilon / (2 * self.num_levels * self.sensitivity(node))

  @property
  def level_costs(self) -> tuple[Fraction, ...]:
    """Returns what each level costs, from the rates of its nodes."""
    return tuple(max(2 * self.sensitivity(node) * self.rate(node)
                     for node in self.nodes if node.level == level)
                 for level in range(self.num_levels))

  def draw(self, values: Sequence[int], below: exact.Draw) -> list[int]:
    """Points [m] of the lattice for sorted records [n], in order."""
    counts = [(value, sum(1 for _ in same))
              for value, same in itertools.groupby(values)]
    cuts = {0: 0, len(self.orders) + 1: self.size * self.parts}
    for node in self.nodes:
      cuts[node.place] = choose(
          self.runs(counts, cuts[node.left], cuts[node.right], node.share),
          self.rate(node), below)
    # A cut at the very end is above the last point.
    return [min(cuts[place] // self.parts, self.size - 1)
            for place in range(1, len(self.orders) + 1)]

  def runs(self, counts: Sequence[tuple[int, int]], left: int, right: int,
           share: Fraction) -> list[Run]:
    """All cuts from `left` to `right`, both included, with their scores.

    Args:
      counts: (point, number of records there), sorted.
      left: cut below.
      right: cut above.
      share: of the node.
    """
    a, b = share.numerator, share.denominator
    segments = list(self._segments(counts, left, right))
    wanted = a * sum(count * slope for _, count, slope in segments)
    found, mass = [], 0
    for start, count, slope in segments:
      lead = b * mass - wanted
      mass += count * slope
      if not slope:
        found.append(Run(start, 1, count, abs(lead), 0))
        continue
      # So many cuts have mass at most p M; the last is the best of them.
      low = min(max(-lead // (b * slope) + 1, 0), count)
      if low:
        found.append(Run(start + low - 1, -1, low,
                         -(lead + (low - 1) * b * slope), b * slope))
      if low < count:
        found.append(Run(start + low, 1, count - low, lead + low * b * slope,
                         b * slope))
    return found

  def _segments(self, counts: Sequence[tuple[int, int]], left: int,
                right: int) -> Iterator[tuple[int, int, int]]:
    """(first cut, how many, mass from one cut to the next)."""
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
    """By how many ranks each of [m] orders is off, but with probability `miss`.

    Mass grows by at most n parts from a cut to the next, so parts / n cuts of a
    node, or all, are within one rank of what it seeks: the others are k ranks
    farther with probability (size parts + 1) n / parts e^(-rate k) at most.

    Args:
      miss: for all orders together.
      number: n, if it is public; else it is at most `parts`.
    """
    near = max(1, self.parts // (number or self.parts))
    odds = math.log((self.size * self.parts + 1) / near)
    odds += math.log(len(self.orders) / miss)
    found = {0: 0.0, len(self.orders) + 1: 0.0}
    for node in self.nodes:
      ranks = float(self.rate(node) * node.share.denominator * self.parts)
      share = float(node.share)
      found[node.place] = (
          (1 - share) * found[node.left] + share * found[node.right]
          + max(1.0, (number or 0) / self.parts) + odds / ranks)
    return [found[place] for place in range(1, len(self.orders) + 1)]


def pieces(run: Run, rate: Fraction) -> Iterator[Run]:
  """The run in pieces, so that log-weights fall little where they are large.

  The first falls by 1 at most, and each is as long as all before it.
  """
  done, length = 0, run.count
  if run.slope:
    length = max(1, math.floor(1 / (rate * run.slope)))
  while done < run.count:
    length = min(length, run.count - done)
    yield run._replace(start=run.start + run.step * done, count=length,
                       score=run.score + run.slope * done)
    done += length
    length = done


def choose(runs: Sequence[Run], rate: Fraction, below: exact.Draw) -> int:
  """A cut of probability proportional to e^(-rate score), exactly.

  A piece is proposed as if all of its cuts had the score of the first, one of
  them evenly, and accepted with what it has less: every other time or oftener.
  """
  found = [piece for run in runs for piece in pieces(run, rate)]
  counts, scores = [each.count for each in found], [each.score
                                                    for each in found]
  while True:
    piece = found[exact.choice(counts, scores, rate, below)]
    steps = below(piece.count)
    if exact.bernoulli_exp(rate * piece.slope * steps, below):
      return piece.start + piece.step * steps
