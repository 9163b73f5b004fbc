"""Enumerates all data sets of a small domain, and their neighbours.

For exact results: sensitivities, and the privacy of mechanisms with known
output distributions. The number of data sets grows as |domain|^size.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
import itertools

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency

Dataset = tuple[Hashable, ...]
MAX_DATASETS = 10**5


def datasets(domain: Sequence[Hashable], size: int) -> list[Dataset]:
  """Returns all ordered data sets of this size (item DEF-01).

  Raises:
    ValueError: if there are more than 10^5.
  """
  errors.check_at_least('size', size, 0)
  if len(domain)**size > MAX_DATASETS:
    raise ValueError(f'{len(domain)}^{size} data sets are too many to '
                     f'enumerate, at most {MAX_DATASETS}')
  return list(itertools.product(domain, repeat=size))


def neighbours(dataset: Dataset, domain: Sequence[Hashable],
               adjacency: Adjacency) -> Iterator[Dataset]:
  """Yields the neighbours of a data set, each at least once.

  Under add-or-remove-one: the data sets with one more record at any place, and
  those with one less.

  Args:
    dataset: tuple of records.
    domain: possible values of a record.
    adjacency: neighbouring relation.
  """
  check_adjacency(adjacency)
  for place in range(len(dataset)):
    before, after = dataset[:place], dataset[place + 1:]
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
      yield before + after
      continue
    for record in domain:
      if record != dataset[place]:
        yield (*before, record, *after)
  if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
    for place in range(len(dataset) + 1):
      for record in domain:
        yield (*dataset[:place], record, *dataset[place:])


def pairs(domain: Sequence[Hashable], sizes: Sequence[int],
          adjacency: Adjacency) -> Iterator[tuple[Dataset, Dataset]]:
  """Yields all ordered pairs of neighbours whose sizes are among `sizes`."""
  for size in sizes:
    for dataset in datasets(domain, size):
      # A dict keeps each neighbour once, in order.
      for other in dict.fromkeys(neighbours(dataset, domain, adjacency)):
        if len(other) in sizes:
          yield dataset, other


def sensitivity(function: Callable[[Dataset], np.ndarray | float],
                domain: Sequence[Hashable], sizes: Sequence[int],
                adjacency: Adjacency, *, order: float = 1.0) -> float:
  """Returns the largest change of a function between neighbours.

  Found by enumeration. Source: Lalanne (2023, Definition 2.3.1); lecture notes
  (chapter 7, Definitions 7.11 and 7.16; item DEF-02).

  Args:
    function: function of a data set; its values all have the same shape.
    domain: possible values of a record.
    sizes: sizes of the enumerated data sets; some queries change most on small
      ones.
    adjacency: neighbouring relation.
    order: order of the norm, 1, 2 or infinity.
  """
  # Each data set occurs in many pairs, so its value is computed once.
  values: dict[Dataset, np.ndarray] = {}

  def value(dataset: Dataset) -> np.ndarray:
    if dataset not in values:
      values[dataset] = np.atleast_1d(np.asarray(function(dataset), float))
    return values[dataset]

  return max((float(np.linalg.norm((value(one) - value(other)).ravel(), order))
              for one, other in pairs(domain, sizes, adjacency)), default=0.0)


def distances(start: Dataset, domain: Sequence[Hashable],
              sizes: Sequence[int], adjacency: Adjacency
              ) -> dict[Dataset, int]:
  """Returns the number of neighbour steps from `start` to each data set.

  Breadth-first search through data sets of these sizes (item DEF-01, MECH-07).

  Args:
    start: data set at distance 0.
    domain: possible values of a record.
    sizes: allowed sizes of data sets on a path.
    adjacency: neighbouring relation that counts as one step.
  """
  steps, frontier = {start: 0}, [start]
  while frontier:
    next_frontier = []
    for dataset in frontier:
      for other in neighbours(dataset, domain, adjacency):
        if len(other) in sizes and other not in steps:
          steps[other] = steps[dataset] + 1
          next_frontier.append(other)
    frontier = next_frontier
    if len(steps) > MAX_DATASETS:
      raise ValueError('too many data sets to enumerate')
  return steps
