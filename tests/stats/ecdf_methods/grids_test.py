"""Tests public grids: bins against a loop, and refusal of records' grids."""

import numpy as np
import pytest

from dpjax.stats.ecdf_methods import grids

_GRIDS = [grids.Grid(lower=-1.0, upper=2.0, num_thresholds=30),
          grids.Grid(lower=0.1, upper=1e4, num_thresholds=17, kind='geometric')]


@pytest.mark.parametrize('grid', _GRIDS, ids=lambda g: g.kind)
def test_bins_are_the_first_threshold_that_is_not_below(grid):
  rng = np.random.default_rng(0)
  values = np.concatenate([
      rng.uniform(grid.lower - 1, grid.upper + 1, 300), grid.thresholds,
      np.nextafter(grid.thresholds, np.inf), [-np.inf, np.inf, grid.lower]])
  expected = [next((j for j, t in enumerate(grid.thresholds) if x <= t),
                   grid.num_thresholds - 1) for x in values]
  np.testing.assert_array_equal(grid.bins(values), expected)
  inside = values[values <= grid.upper]
  np.testing.assert_array_equal(
      grid.ranks(inside), [np.sum(inside <= t) for t in grid.thresholds])
  assert grid.ranks(values)[-1] == values.size


def test_a_lower_value_raises_the_ranks_in_between():
  """A lower value raises rows t2 + 1 .. t1, which is printed reversed (C22)."""
  grid, rng = _GRIDS[0], np.random.default_rng(1)
  rows, apart = np.arange(1, grid.num_thresholds + 1), 0
  for low, high in np.sort(rng.uniform(grid.lower, grid.upper, (20, 2))):
    last, first = (int(np.sum(grid.thresholds < x)) for x in (high, low))
    change = grid.ranks(np.array([low])) - grid.ranks(np.array([high]))
    np.testing.assert_array_equal(change, (rows > first) & (rows <= last))
    apart += first < last
  assert apart > 10


def test_thresholds_are_evenly_spaced():
  uniform, geometric = _GRIDS
  np.testing.assert_allclose(np.diff(uniform.thresholds), 0.1)
  assert uniform.thresholds[0] == pytest.approx(-0.9)
  logs = np.diff(np.log(geometric.thresholds))
  np.testing.assert_allclose(logs, np.log(1e5) / 17)
  assert (uniform.thresholds[-1], geometric.thresholds[-1]) == (2.0, 1e4)


def test_grids_of_records_are_refused():
  records = np.array([0.0, 3.0])
  with pytest.raises(ValueError, match='is not private'):
    grids.of_records(records, 4)
  # The reason: the neighbour's curve ends elsewhere, with certainty.
  ends = {grids.of_records(data, 4, allow_unsound=True).upper
          for data in (records, np.array([0.0, 2.0]))}
  assert len(ends) == 2


@pytest.mark.parametrize('change', [
    dict(lower=1.0), dict(upper=np.inf), dict(num_thresholds=0),
    dict(kind='other'), dict(kind='geometric'),
    dict(lower=1 - 1e-15, num_thresholds=1000)], ids=str)
def test_bad_grids_are_refused(change):
  with pytest.raises(ValueError):
    grids.Grid(**{**dict(lower=0.0, upper=1.0, num_thresholds=4), **change})


def test_values_that_are_no_numbers_are_refused():
  with pytest.raises(ValueError, match='NaN'):
    _GRIDS[0].bins(np.array([0.0, np.nan]))
