"""Training data read off a nearest-neighbour predictor by asking it.

The example of a model without privacy: black-box queries on a grid give every
label and the borders between records, and one leaked record gives all others.
Source: thesis 000, Section 0.1.3 (item INT-01); on a line, where the borders
are midpoints.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpjax import errors


class Inverted(NamedTuple):
  """What queries gave away.

  Attributes:
    labels: [k] in the order of the records on the line.
    borders: [k - 1] midpoints of neighbouring records, to half a cell.
  """
  labels: np.ndarray
  borders: np.ndarray

  def positions(self, first: float) -> np.ndarray:
    """All records [k], from the first: each is mirrored at the next border.

    An error e of the borders becomes one of at most 2 (k - 1) e.

    Args:
      first: the leftmost record.
    """
    found = [first]
    for border in self.borders:
      found.append(2 * border - found[-1])
    return np.array(found)


def invert_nearest_neighbour(predict: Callable[[np.ndarray], np.ndarray], *,
                             num_queries: int) -> Inverted:
  """Recovers the records of a 1-nearest-neighbour regressor on [0, 1].

  Records whose cell has no point of the grid are missed.

  Args:
    predict: queries [g] -> labels [g]; labels of records are distinct.
    num_queries: g, on an even grid from 0 to 1.
  """
  errors.check_at_least('num_queries', num_queries, 2)
  queries = np.linspace(0.0, 1.0, num_queries)
  answers = np.asarray(predict(queries))
  last = np.flatnonzero(answers[1:] != answers[:-1])
  return Inverted(labels=answers[np.append(last, num_queries - 1)],
                  borders=(queries[last] + queries[last + 1]) / 2)
