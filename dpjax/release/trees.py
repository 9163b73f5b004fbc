"""Counts of bins and of bins of bins, each with exact noise.

Every level of a tree counts every record once. Integers are noised; what
follows is in floats and of public numbers alone: least squares over the tree,
and the same among counts that are not negative (item EC-44, EC-45).
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import math

import numpy as np

from dpjax.release import noise
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.stats.ecdf import hierarchy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
  """Counts of bins of one class of records, or of several, in a tree.

  A record is in one bin of one class, and may change both where one is
  replaced: then two nodes of each level move by 1, else one.

  Attributes:
    num_bins: N, of each class.
    num_classes: C.
    cost: budget of all nodes.
    replacing: whether a record may be replaced; else one more or less.
    known: whether the number of records is public.
  """
  num_bins: int
  num_classes: int
  cost: Cost
  replacing: bool
  known: bool

  @functools.cached_property
  def shape(self) -> hierarchy.Shape:
    """Parts of nodes, the root first; every class fills nodes of its own."""
    _, *lower = hierarchy.best_shape(
        self.num_classes * self.num_bins, known=self.known,
        pure=self.cost.epsilon is not None)
    return (self.num_classes * -(-self.num_bins // math.prod(lower)), *lower)

  @functools.cached_property
  def alive(self) -> np.ndarray:
    """[leaves] 1 where there is a bin."""
    leaves = np.zeros((self.num_classes, math.prod(self.shape)
                       // self.num_classes))
    leaves[:, :self.num_bins] = 1
    return leaves.reshape(-1)

  @property
  def sensitivity(self) -> int:
    """l1 sensitivity, and square of the l2 sensitivity, of all nodes."""
    return (1 + self.replacing) * len(self.shape)

  @property
  def noise(self) -> noise.Noise:
    """Of each node."""
    return noise.calibrated(self.cost, l1_sensitivity=self.sensitivity,
                            l2_sensitivity_squared=self.sensitivity)

  @property
  def spent(self) -> Cost:
    """What the noise that will be drawn costs."""
    return self.noise.cost(l1_sensitivity=self.sensitivity,
                           l2_sensitivity_squared=self.sensitivity)

  def nodes(self, counts: Sequence[int]) -> list[np.ndarray]:
    """Exact counts of the nodes of each level, of those of C N bins."""
    leaves = np.zeros(self.alive.shape, np.int64)
    leaves[self.alive > 0] = counts
    return hierarchy.levels(leaves, self.shape)

  def draw(self, counts: Sequence[int],
           meter: Meter) -> list[list[int | None]]:
    """Noisy counts of the nodes of each level; None for those without bins."""
    noisy = iter(meter.noisy(
        (count for level, there in zip(self.nodes(counts), self._used,
                                       strict=True)
         for count in level[there].tolist()), self.noise,
        l1_sensitivity=self.sensitivity,
        l2_sensitivity_squared=self.sensitivity))
    return [[next(noisy) if used else None for used in there.tolist()]
            for there in self._used]

  @functools.cached_property
  def _used(self) -> list[np.ndarray]:
    return [level > 0 for level in hierarchy.levels(self.alive, self.shape)]

  def facts(self) -> dict[str, object]:
    """What is public of the noise."""
    return {
        'tree': {'shape': list(self.shape), 'bins': self.num_bins,
                 'classes': self.num_classes,
                 'rule': 'a node is cut into so many parts on each level, the '
                         'root first, which is not counted; null is a node '
                         'without bins'},
        'noise': {'node_counts': {
            'unit': '1', 'l1_sensitivity': str(self.sensitivity),
            'l2_sensitivity_squared': str(self.sensitivity),
            **self.noise.to_json()}}}

  def _solved(self, solver, nodes: Sequence[np.ndarray],
              total: float | None) -> np.ndarray:
    found = solver(nodes, self.shape, (1.0,) * len(self.shape), self.alive,
                   total)
    return found[self.alive > 0].reshape(self.num_classes, self.num_bins)

  def linear(self, nodes: Sequence[np.ndarray],
             total: float | None) -> np.ndarray:
    """Counts [C, N] nearest to those of all nodes; `total` if it is public."""
    return self._solved(hierarchy.least_squares, nodes, total)

  def nonnegative(self, nodes: Sequence[np.ndarray],
                  total: float | None) -> np.ndarray:
    """The same among counts >= 0."""
    if total == 0:
      return np.zeros((self.num_classes, self.num_bins))
    return self._solved(hierarchy.nonnegative, nodes, total)

  def simulated(self, generator: np.random.Generator) -> list[np.ndarray]:
    """Noise of all nodes, of the law."""
    return [self.noise.simulated(generator, level.shape)
            for level in self._used]

  def errors(self, number: int,
             generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Errors of `linear` [C, N], as many times."""
    return (self.linear(self.simulated(generator), self.error_total)
            for _ in range(number))

  def normal_errors(self, number: int,
                    generator: np.random.Generator) -> Iterator[np.ndarray]:
    """The same as if noise were normal: none is 0 by chance."""
    size = max(self.noise.deviation, 1e-100)
    return (self.linear([size * generator.standard_normal(level.shape)
                         for level in self._used], self.error_total)
            for _ in range(number))

  @property
  def error_total(self) -> float | None:
    """Of errors: 0 where the number of records is public."""
    return 0.0 if self.known else None

  def rank_deviations(self) -> np.ndarray:
    """Standard deviations [N] of ranks of `linear`, for one class."""
    return self.noise.deviation * np.sqrt(hierarchy.prefix_variances(
        self.shape, (1.0,) * len(self.shape), self.num_bins,
        known=self.known))
