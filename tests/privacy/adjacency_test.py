"""Tests of dpjax.privacy.adjacency, by brute force over tiny data sets."""

import itertools

import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import sum_sensitivity

RECORDS = [np.array(r) * .75 for r in (
    (0., 0.), (1., 0.), (-1., 0.), (0., 1.), (.6, -.8))]


def neighbours(data, adjacency):
  for i in range(len(data)):
    rest = data[:i] + data[i + 1:]
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
      yield rest
    else:
      yield from (rest + (record,) for record in range(len(RECORDS)))


@pytest.mark.parametrize('adjacency, expected', [
  (Adjacency.ADD_OR_REMOVE_ONE, .75), (Adjacency.REPLACE_ONE, 1.5)])
def test_sensitivity_of_a_sum_is_attained(adjacency, expected):
  """Item DP-09; the factor that tells the two apart is erratum E25."""
  total = lambda data: sum((RECORDS[i] for i in data), np.zeros(2))
  worst = max(np.linalg.norm(total(data) - total(other))
              for data in itertools.product(range(len(RECORDS)), repeat=3)
              for other in neighbours(data, adjacency))
  assert sum_sensitivity(adjacency, record_norm=.75) == expected
  assert worst == pytest.approx(expected)


def test_names_are_stable():
  # They are written to result files.
  assert [a.value for a in Adjacency] == ['add_or_remove_one', 'replace_one']


def test_no_default():
  with pytest.raises(TypeError):
    sum_sensitivity(record_norm=1.)
