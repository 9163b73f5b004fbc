"""Scores of the inverse sensitivity mechanism, by enumeration of data sets.

`dpjax.privacy.inverse` has the closed form for quantiles. Source: Lalanne
(2023, Example 2.3.11; item MECH-07).
"""

from collections.abc import Callable, Hashable, Sequence
import math

import numpy as np

from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency


def scores_by_enumeration(
    function: Callable[[neighbours.Dataset], Hashable],
    dataset: neighbours.Dataset, *, domain: Sequence[Hashable],
    candidates: Sequence[Hashable], sizes: Sequence[int],
    adjacency: Adjacency) -> np.ndarray:
  """Returns the scores [m] of any function on a small domain.

  A candidate that no data set of these sizes has as its answer scores -inf, for
  all data sets alike.

  Args:
    function: f, of a data set.
    dataset: X, the data set.
    domain: possible values of a record.
    candidates: [m], possible answers.
    sizes: sizes of the data sets on a path from X.
    adjacency: neighbouring relation that counts as one step.
  """
  scores = dict.fromkeys(candidates, -math.inf)
  steps = neighbours.distances(dataset, domain, sizes, adjacency)
  for other, distance in steps.items():
    answer = function(other)
    if answer in scores:
      scores[answer] = max(scores[answer], -float(distance))
  return np.array([scores[candidate] for candidate in candidates])
