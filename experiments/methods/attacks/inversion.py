"""Recovers the training data of a nearest-neighbour predictor from queries.

This is an example of a model without privacy. Black-box queries on a grid
reveal every label and the borders between records; with one leaked record they
reveal all records. Source: Lalanne (2023, section 0.1.3; INT-01), here on a
line, where borders are midpoints of neighbouring records.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpjax import errors


class Inverted(NamedTuple):
  """Labels and borders recovered from queries.

  Attributes:
    labels: [k] labels in the order of the records on the line.
    borders: [k - 1] midpoints of neighbouring records, accurate to half the
      spacing of the queries.
  """
  labels: np.ndarray
  borders: np.ndarray

  def positions(self, first: float) -> np.ndarray:
    """Returns all records [k], reflecting each one at the next border.

    If each border has an error of at most e, the records have errors of at most
    2 (k - 1) e.

    Args:
      first: the leftmost record.
    """
    records = [first]
    for border in self.borders:
      records.append(2 * border - records[-1])
    return np.array(records)


def invert_nearest_neighbour(predict: Callable[[np.ndarray], np.ndarray], *,
                             num_queries: int) -> Inverted:
  """Recovers the records of a 1-nearest-neighbour regressor on [0, 1].

  It misses a record if no query is closest to it.

  Args:
    predict: function of queries [g] that returns labels [g]; all records must
      have distinct labels.
    num_queries: number g >= 2 of queries, evenly spaced from 0 to 1.
  """
  errors.check_at_least('num_queries', num_queries, 2)
  queries = np.linspace(0.0, 1.0, num_queries)
  answers = np.asarray(predict(queries))
  last = np.flatnonzero(answers[1:] != answers[:-1])
  return Inverted(labels=answers[np.append(last, num_queries - 1)],
                  borders=(queries[last] + queries[last + 1]) / 2)
