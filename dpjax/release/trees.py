"""A tree of noisy counts: counts of bins, of groups of bins, and so on.

Every level of the tree counts every record once, and each count has exact
integer noise. Estimation follows in floats from public numbers alone: least
squares over the tree (Hay et al. 2010; item EC-44), or least squares over
nonnegative counts (item EC-45).
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import math

import numpy as np

from dpjax.release import noise
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.stats.ecdf_methods import hierarchy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
  """Counts of bins of one or several classes of records, in a tree.

  A record is in one bin of one class. Adding or removing it changes one node of
  each level by 1; replacing it may change two, as bin and class may change.

  Attributes:
    num_bins: N, the number of bins of each class.
    num_classes: C, the number of classes.
    cost: budget of all nodes.
    replacing: whether neighbours replace one record, instead of adding one.
    known: whether the number of records is public.
  """
  num_bins: int
  num_classes: int
  cost: Cost
  replacing: bool
  known: bool

  @functools.cached_property
  def shape(self) -> hierarchy.Shape:
    """Returns the number of parts of a node on each level, the root first.

    No node counts records of two classes.
    """
    # The first number is replaced: the root has whole parts for each class.
    _, *lower = hierarchy.best_shape(
        self.num_classes * self.num_bins, known=self.known,
        pure=self.cost.epsilon is not None)
    return (self.num_classes * -(-self.num_bins // math.prod(lower)), *lower)

  @functools.cached_property
  def alive(self) -> np.ndarray:
    """Returns an array [leaves] that is 1 where there is a bin, else 0."""
    leaves = np.zeros((self.num_classes, math.prod(self.shape)
                       // self.num_classes))
    leaves[:, :self.num_bins] = 1
    return leaves.reshape(-1)

  @property
  def sensitivity(self) -> int:
    """Returns the l1 sensitivity of all nodes, and the square of the l2 one.
    """
    # The root is not released, so it is no level.
    return (1 + self.replacing) * len(self.shape)

  @property
  def noise(self) -> noise.Noise:
    """Returns the noise of each node."""
    return noise.calibrated(self.cost, l1_sensitivity=self.sensitivity,
                            l2_sensitivity_squared=self.sensitivity)

  @property
  def spent(self) -> Cost:
    """Returns the cost of the noise that will be drawn."""
    return self.noise.cost(l1_sensitivity=self.sensitivity,
                           l2_sensitivity_squared=self.sensitivity)

  def nodes(self, counts: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """Returns the exact counts of the nodes of each level, from C N bins."""
    leaves = np.zeros(self.alive.shape, np.int64)
    # Leaves are ordered by class; those after the last bin of a class stay 0.
    leaves[self.alive > 0] = counts
    return hierarchy.levels(leaves, self.shape)

  def draw(self, counts: Sequence[int],
           meter: Meter) -> list[list[int | None]]:
    """Returns noisy counts of the nodes of each level; None without bins."""
    # Nodes without bins are 0 for all data, so they need no noise.
    noisy = iter(meter.noisy(
        (count for level, mask in zip(self.nodes(counts), self._used,
                                       strict=True)
         for count in level[mask].tolist()), self.noise,
        l1_sensitivity=self.sensitivity,
        l2_sensitivity_squared=self.sensitivity))
    return [[next(noisy) if used else None for used in mask.tolist()]
            for mask in self._used]

  @functools.cached_property
  def _used(self) -> list[np.ndarray]:
    """Returns which nodes of each level have bins."""
    return [level > 0 for level in hierarchy.levels(self.alive, self.shape)]

  def facts(self) -> dict[str, object]:
    """Returns public facts: shape of the tree, sensitivity and noise."""
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

  def _solved(self, solver: Callable[..., np.ndarray],
              nodes: Sequence[np.ndarray], total: float | None) -> np.ndarray:
    """Returns the counts [C, N] that a solver of `hierarchy` computes."""
    solution = solver(nodes, self.shape, (1.0,) * len(self.shape), self.alive,
                   total)
    return solution[self.alive > 0].reshape(self.num_classes, self.num_bins)

  def linear(self, nodes: Sequence[np.ndarray],
             total: float | None) -> np.ndarray:
    """Returns counts [C, N] by least squares; `total` is n if it is public."""
    return self._solved(hierarchy.least_squares, nodes, total)

  def nonnegative(self, nodes: Sequence[np.ndarray],
                  total: float | None) -> np.ndarray:
    """Returns counts [C, N] >= 0 by least squares; `total` as in `linear`."""
    if total == 0:
      return np.zeros((self.num_classes, self.num_bins))
    return self._solved(hierarchy.nonnegative, nodes, total)

  def simulated(self, generator: np.random.Generator) -> list[np.ndarray]:
    """Returns simulated noise of all nodes, by level."""
    return [self.noise.simulated(generator, level.shape)
            for level in self._used]

  def errors(self, number: int,
             generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Yields simulated errors [C, N] of `linear`, `number` of them."""
    # Least squares are linear, so their error is what they make of the noise.
    return (self.linear(self.simulated(generator), self.error_total)
            for _ in range(number))

  def normal_errors(self, number: int,
                    generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Yields errors [C, N] with normal noise, which is never 0 by chance."""
    size = max(self.noise.deviation, 1e-100)
    return (self.linear([size * generator.standard_normal(level.shape)
                         for level in self._used], self.error_total)
            for _ in range(number))

  @property
  def error_total(self) -> float | None:
    """Returns the total of errors: 0 if the number of records is public."""
    return 0.0 if self.known else None

  def rank_deviations(self) -> np.ndarray:
    """Returns the standard deviations [N] of ranks of `linear`, one class."""
    return self.noise.deviation * np.sqrt(hierarchy.prefix_variances(
        self.shape, (1.0,) * len(self.shape), self.num_bins,
        known=self.known))
