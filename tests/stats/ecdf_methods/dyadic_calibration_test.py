"""Tests costs of dyadic noise against dense graphs and linear programs.

The graph is built here once more, from the definition of its nodes.
"""

import itertools

import numpy as np
import pytest
from scipy import optimize
from scipy.sparse import csgraph

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import dyadic_calibration

_ADD, _REPLACE = Adjacency
calibrate = dyadic_calibration.calibrate

# L -> l1 of replacements with and without root, l1 of additions likewise;
# squared l2 of additions and of replacements.
_TABLE = {
    1: (1, 1, 1, 2, .6667, .6667), 2: (2, 2, 2, 2, .9048, 1.1429),
    3: (3, 4, 2, 3, 1.0095, 1.4667), 4: (4, 4, 3, 3, 1.1223, 1.6897),
    5: (5, 6, 3, 4, 1.2350, 1.9365), 6: (6, 6, 4, 4, 1.3458, 2.1574),
    7: (7, 8, 4, 5, 1.4575, 2.3857), 8: (8, 8, 5, 5, 1.5684, 2.6075),
    9: (9, 10, 5, 6, 1.6797, 2.8313), 10: (10, 10, 6, 6, 1.7908, 3.0534),
    11: (11, 12, 6, 7, 1.9019, 3.2760), 12: (12, 12, 7, 7, 2.0130, 3.4982),
    15: (15, 16, 8, 9, 2.3464, 4.1650)}


def _nodes(num_rows, root=True):
  """Returns Z [rows, nodes], and the level of each node."""
  columns, levels = [], []
  for level in range(dyadic_calibration.num_levels(num_rows) - (not root)):
    for first in range(0, num_rows, 2**level):
      columns.append([first <= row < first + 2**level
                      for row in range(num_rows)])
      levels.append(level)
  return np.array(columns, float).T, np.array(levels)


def _pairs(num_rows, adjacency, known):
  ends = range(num_rows + (known or adjacency is _ADD))
  return [(s, t) for s, t in itertools.combinations(ends, 2)
          if adjacency is _REPLACE or t == num_rows]


def _dense(num_thresholds, adjacency, norm, root, known, scales):
  rows = num_thresholds - known
  z, levels = _nodes(rows, root)
  weights = np.ones(levels.size) if scales is None else np.array(scales)[levels]
  steps = np.diff(np.vstack([np.zeros_like(z[:1]), z, np.zeros_like(z[:1])]),
                  axis=0)
  if norm == 'l2':
    inverse = np.linalg.pinv(steps * weights**2 @ steps.T)
    diagonal = np.diag(inverse)
    distances = diagonal[:, None] + diagonal - 2 * inverse
  else:
    lengths = np.full((rows + 1,) * 2, np.inf)
    for step, weight in zip(steps.T[weights > 0], weights[weights > 0],
                            strict=True):
      start, end = np.flatnonzero(step)
      lengths[start, end] = min(lengths[start, end], 1 / weight)
    distances = csgraph.shortest_path(np.where(np.isinf(lengths), 0, lengths),
                                      directed=False)
  return max(distances[pair] for pair in _pairs(rows, adjacency, known))


@pytest.mark.parametrize('depth', _TABLE)
def test_table(depth):
  size, row = 2**depth, _TABLE[depth]
  sensitivities = [calibrate(size, adjacency=adjacency, norm='l1', root=root)
                   for adjacency in (_REPLACE, _ADD) for root in (True, False)
                   if depth > 1 or root or adjacency is _ADD]
  assert sensitivities == [*row[:2][:1 + (depth > 1)], *row[2:4]]
  assert sensitivities[-2] == -(-(depth + 1) // 2)
  squares = [calibrate(size, adjacency=adjacency, norm='l2')
             for adjacency in (_ADD, _REPLACE)]
  np.testing.assert_allclose(squares, row[4:], atol=5.1e-5)
  # These fits hold for the whole table.
  assert squares[0] <= depth / 9 + .69 and squares[1] <= 2 * depth / 9 + .84
  # The node counts of Barczewski (2025) are far too large for Gaussian noise.
  assert squares[0] < .67 * row[2] and squares[1] < .4 * (depth + 1)
  assert row[0] == depth


@pytest.mark.every(3)
@pytest.mark.parametrize('norm', dyadic_calibration.NORMS)
def test_prices_are_those_of_all_pairs(norm):
  rng = np.random.default_rng(0)
  for size in [*range(2, 36), 63, 65, 77]:
    for adjacency, known, root in [
        (_ADD, False, True), (_ADD, False, False), (_REPLACE, False, True),
        (_REPLACE, False, False), (_REPLACE, True, True),
        (_REPLACE, True, False)]:
      if not root and size - known == 1:
        continue
      weights = rng.lognormal(size=dyadic_calibration.num_levels(size - known))
      weights[1:-1] *= rng.random(weights[1:-1].size) > .3
      for scales in (None, tuple(weights)):
        got = calibrate(size, adjacency=adjacency, norm=norm, root=root,
                        known_last_row=known, level_scales=scales)
        expected = _dense(size, adjacency, norm, root, known, scales)
        assert got == pytest.approx(expected, rel=1e-9), (
            size, adjacency, known, root, scales)


def test_fewer_rows_cost_no_more():
  """Fewer rows never cost more, since boundaries get shorter."""
  sizes = np.r_[2:200, 1000:1060]
  for norm, adjacency in itertools.product(dyadic_calibration.NORMS, Adjacency):
    for size in sizes.tolist():
      power = 2**(dyadic_calibration.num_levels(size) - 1)
      assert calibrate(size, adjacency=adjacency, norm=norm) <= calibrate(
          power, adjacency=adjacency, norm=norm) * (1 + 1e-12)


def test_first_numbers_of_rows_that_cost_as_much_as_the_power_of_two():
  first = {}
  for size in range(5, 330):
    depth = dyadic_calibration.num_levels(size) - 1
    cost = calibrate(size, adjacency=_REPLACE, norm='l1')
    assert cost in (depth - 1, depth)
    if cost == depth:
      first.setdefault(depth, size)
    assert calibrate(size, adjacency=_ADD, norm='l1') == -(-(depth + 1) // 2)
  assert list(first.values()) == [6, 12, 21, 45, 81, 177, 321]


def test_a_threshold_more_than_a_power_of_two_costs_no_more():
  for depth in (3, 6, 10):
    options = dict(adjacency=_REPLACE, norm='l1', known_last_row=True)
    assert calibrate(2**depth + 1, **options) == depth


@pytest.mark.parametrize('size', [5, 13, 37, 64])
def test_signed_nodes_are_the_optima_of_linear_programs(size):
  """Signed nodes are optimal over real coefficients, so
  discrete noise is exact."""
  z, levels = _nodes(size)
  rng = np.random.default_rng(size)
  for _ in range(12):
    first, last = np.sort(rng.integers(1, size + 1, 2))
    rows = ((np.arange(1, size + 1) >= first)
            & (np.arange(1, size + 1) <= last)).astype(float)
    solved = optimize.linprog(np.ones(2 * levels.size), np.hstack([z, -z]),
                              rows, A_eq=np.hstack([z, -z]), b_eq=rows)
    nodes = dyadic.signed_nodes(int(first), int(last), size)
    assert len(nodes) == pytest.approx(solved.fun)
    total = np.zeros(size)
    for sign, place, level in nodes:
      total[(place - 1) * 2**level:place * 2**level] += sign
    np.testing.assert_array_equal(total, rows)


def _non_adjacent_weight(number: int) -> int:
  return bin(number ^ 3 * number).count('1')


def test_blocks_take_as_many_nodes_as_the_non_adjacent_form_has_digits():
  depth = 6
  for last in range(1, 2**depth + 1):
    fewest = _non_adjacent_weight(last)
    assert len(dyadic.signed_nodes(1, last, 2**depth)) == fewest
    assert fewest <= -(-(depth + 1) // 2)
    assert fewest <= -(-(depth + 1) // 2)
    rest = dyadic.signed_nodes(last, 2**depth, 2**depth)
    assert len(rest) <= -(-(depth + 1) // 2)
  assert len(dyadic.signed_nodes(1, 683, 1024)) == 6


@pytest.mark.every(2)
def test_more_rows_than_any_dense_matrix_has():
  """One more level adds 1/9 or 2/9 to the variance, for 2^18 rows."""
  size = 2**18 - 2**15 + 5
  for adjacency, step in zip(Adjacency, (1 / 9, 2 / 9), strict=True):
    half, power, fewer = (calibrate(rows, adjacency=adjacency, norm='l2')
                          for rows in (2**17, 2**18, size))
    assert power - half == pytest.approx(step, abs=.001)
    assert half < fewer <= power
  assert calibrate(size, adjacency=_REPLACE, norm='l1') == 18


@pytest.mark.parametrize('change', [
    dict(norm='l3'), dict(num_thresholds=1), dict(level_scales=(1.0, 1.0)),
    dict(level_scales=(1.0, -1.0, 1.0)), dict(level_scales=(0.0, 1.0, 1.0)), dict(known_last_row=True),
    dict(adjacency='add_or_remove_one')], ids=str)
def test_bad_input_is_refused(change):
  fields = dict(num_thresholds=4, adjacency=_ADD, norm='l1') | change
  with pytest.raises(ValueError):
    calibrate(fields.pop('num_thresholds'), **fields)


def test_a_root_that_is_all_there_is():
  with pytest.raises(ValueError, match='root=False needs'):
    calibrate(2, adjacency=_REPLACE, norm='l1', known_last_row=True, root=False)
