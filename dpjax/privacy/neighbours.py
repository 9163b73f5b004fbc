"""All data sets of a small domain, and which of them are neighbours.

For exact answers by enumeration: sensitivities, and privacy of mechanisms whose
law can be written down. What is enumerated grows as |domain|^size.
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
  """All ordered data sets of this size (item DEF-01).

  Raises:
    ValueError: if they are over 10^5.
  """
  errors.check_at_least('size', size, 0)
  if len(domain)**size > MAX_DATASETS:
    raise ValueError(f'{len(domain)}^{size} data sets are too many to '
                     f'enumerate, at most {MAX_DATASETS}')
  return list(itertools.product(domain, repeat=size))


def neighbours(dataset: Dataset, domain: Sequence[Hashable],
               adjacency: Adjacency) -> Iterator[Dataset]:
  """The neighbours of a data set, each at least once.

  Under add-or-remove-one those with one record more at any place, and those
  with one less.
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
  """All ordered pairs of neighbours, both of one of these sizes."""
  for size in sizes:
    for dataset in datasets(domain, size):
      for other in dict.fromkeys(neighbours(dataset, domain, adjacency)):
        if len(other) in sizes:
          yield dataset, other


def sensitivity(function: Callable[[Dataset], np.ndarray | float],
                domain: Sequence[Hashable], sizes: Sequence[int],
                adjacency: Adjacency, *, order: float = 1.0) -> float:
  """The largest change of a function between neighbours, by enumeration.

  Source: thesis 000, Definition 2.3.1; lecture 002, Definitions 7.11 and 7.16
  (item DEF-02).

  Args:
    function: of a data set; its values are of one shape.
    domain: values of a record.
    sizes: of the data sets that are tried; of some queries the largest change
      is at small ones.
    adjacency: which are neighbours.
    order: of the norm, 1, 2 or infinity.
  """
  values: dict[Dataset, np.ndarray] = {}

  def value(dataset):
    if dataset not in values:
      values[dataset] = np.atleast_1d(np.asarray(function(dataset), float))
    return values[dataset]

  return max((float(np.linalg.norm((value(one) - value(other)).ravel(), order))
              for one, other in pairs(domain, sizes, adjacency)), default=0.0)


def distances(start: Dataset, domain: Sequence[Hashable],
              sizes: Sequence[int], adjacency: Adjacency
              ) -> dict[Dataset, int]:
  """How many steps from neighbour to neighbour each data set is away.

  Breadth-first, through data sets of these sizes (item DEF-01, MECH-07).
  """
  found, reached = {start: 0}, [start]
  while reached:
    following = []
    for dataset in reached:
      for other in neighbours(dataset, domain, adjacency):
        if len(other) in sizes and other not in found:
          found[other] = found[dataset] + 1
          following.append(other)
    reached = following
    if len(found) > MAX_DATASETS:
      raise ValueError('too many data sets to enumerate')
  return found
