"""Tests that numbers and names outside an estimator's range are refused."""

import dataclasses
import math

import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import roc_curves as roc
from dpjax.stats.ecdf_methods import grids
from dpjax.stats.quantile_methods import records
from tests.stats import coupling_test

# One mechanism of each class.
MECHANISMS = {type(case.mechanism).__name__: case.mechanism
              for case in coupling_test.CASES.values()}
# These fields are booleans, objects, or may have any value of their type.
_FREE = {'lower', 'upper', 'coefficient_weights', 'weights', 'half', 'share',
         'rounds', 'grid', 'curve', 'model', 'guarantee', 'counts', 'step',
         'sigma', 'radius'}
# Scaling a release by any factor is post-processing.
_OPEN = {('NormalMean', 'shrinkage')}


@pytest.mark.every(1)
@pytest.mark.parametrize('name', MECHANISMS)
def test_no_field_takes_what_makes_no_sense(name):
  mechanism, tried = MECHANISMS[name], 0
  for field in dataclasses.fields(mechanism):
    value = getattr(mechanism, field.name)
    if field.name in _FREE or not field.init or isinstance(
        value, bool) or value is None or isinstance(value, tuple) or (
            (name, field.name) in _OPEN):
      continue
    wrong = (['unknown'] if isinstance(value, str) else
             ['replace_one'] if isinstance(value, Adjacency) else
             [-1, 1.5] if isinstance(value, int) else [-1.0, math.nan])
    for bad in wrong:
      tried += 1
      with pytest.raises(ValueError) as error:
        dataclasses.replace(mechanism, **{field.name: bad})
      assert '\n' not in str(error.value)
  assert tried


@pytest.mark.every(1)
@pytest.mark.parametrize('name', ['LaplaceShare', 'GeometricShare',
                                  'GaussianShare'])
def test_weights_of_noisy_means_lie_between_0_and_1(name):
  for weight in (0.0, 1.5, -0.1, math.nan):
    with pytest.raises(ValueError, match='^weight must'):
      dataclasses.replace(MECHANISMS[name], weight=weight)


def test_both_classes_are_asked_together_where_labels_may_change():
  grid = grids.Grid(lower=0.0, upper=1.0, num_thresholds=4)
  add, replace = Adjacency
  kinds = {(adjacency, public): type(roc.make(
      grid, epsilon=0.5, adjacency=adjacency, public_labels=public))
           for adjacency, public in ((add, False), (replace, False),
                                     (replace, True))}
  assert kinds == {(add, False): roc.ParallelRoc, (replace, False):
                   roc.JointRoc, (replace, True): roc.ParallelRoc}


def test_places_that_are_filled_are_those_of_records():
  for size in (1, 5, 32, 33):
    data = records.padded(np.linspace(0, 1, size), 0.0, 2.0)
    filled = np.asarray(records.filled(data))
    assert filled.sum() == size and filled[:size].all()
    assert (data.ordered[~filled] == 2).all()
