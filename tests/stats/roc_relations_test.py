"""Tests which curves and counts releases of two classes accept."""

import jax
import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import roc_curves as roc
from dpjax.stats.ecdf_methods import grids
from dpjax.stats.ecdf_methods import trees
from experiments.methods.statistics import hosmer_lemeshow_cells

ADD, REPLACE = Adjacency


def test_curves_of_classes_are_of_the_relation_of_their_release():
  """A curve's adjacency must fit its release and whether labels are public."""
  grid = grids.Grid(lower=0.0, upper=1.0, num_thresholds=4)
  taken = set()
  for own in Adjacency:
    for of_curve in Adjacency:
      for public in (False, True):
        try:
          roc.ParallelRoc(
              grid=grid, adjacency=own, public_labels=public,
              curve=trees.TreeEcdf(num_thresholds=4, epsilon=1.0,
                                   adjacency=of_curve))
          taken.add((own, of_curve, public))
        except ValueError:
          pass
  assert taken == {(ADD, ADD, False), (REPLACE, REPLACE, True),
                   (REPLACE, ADD, False)}


def test_counts_of_another_grid_are_refused_by_all_that_release():
  """Counts of another grid are refused on the device and on the host."""
  grid = grids.Grid(lower=0.0, upper=1.0, num_thresholds=4)
  public = dict(epsilon=1.0, adjacency=REPLACE)
  cells = hosmer_lemeshow_cells.CellwiseHosmerLemeshow(
      grid=grid, num_groups=2, **public)
  wrong = hosmer_lemeshow_cells.Bins(np.ones((2, 5)), np.ones(5))
  half = hosmer_lemeshow_cells.Bins(np.ones((2, 4)), np.ones(5))
  for mechanism, data in (
      (cells, wrong), (cells, half), (roc.make(grid, **public), np.ones((2, 5))),
      (roc.make(grid, **public), np.ones((1, 4))),
      (trees.TreeEcdf(num_thresholds=4, **public), np.ones(5)),
      (trees.TreeEcdf(num_thresholds=4, **public), np.ones((1, 4)))):
    for name in ('release', 'estimate', 'release_ranks'):
      if hasattr(mechanism, name):
        with pytest.raises(ValueError, match='shape'):
          getattr(mechanism, name)(jax.random.key(0), data)
