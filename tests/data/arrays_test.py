"""Tests dpjax.data.arrays."""

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.data import arrays

X = [[0.0, 5.0], [10.0, -3.0], [99.0, 1.0]]
Y = [0, 2, 1]


def _make(x=X, y=Y, **changes):
  kwargs = {'num_classes': 3, 'lower': 0.0, 'upper': 10.0, **changes}
  return arrays.from_arrays(x, y, **kwargs)


def test_clips_and_scales_by_hand():
  dataset = _make(name='mine')
  np.testing.assert_allclose(
    dataset.x, [[-1, 0], [1, -1], [1, -0.8]], rtol=1e-6)
  np.testing.assert_array_equal(dataset.y, Y)
  assert dataset.x.dtype == jnp.float32 and dataset.y.dtype == jnp.int32
  assert dataset.name == 'mine' and dataset.num_classes == 3
  assert dataset.feature_names == ('x0', 'x1')
  assert dataset.records.x is dataset.x and dataset.records.y is dataset.y
  assert _make().name == 'user'


def test_bounds_may_differ_by_feature():
  dataset = _make(lower=[0, -5], upper=[100, 5])
  np.testing.assert_allclose(
    dataset.x, [[-1, 1], [-0.8, -0.6], [0.98, 0.2]], rtol=1e-6)


def test_default_bounds_keep_features_in_the_unit_box():
  x = jnp.asarray([[0.25, -1.0], [1.0, 3.0]])
  dataset = arrays.from_arrays(x, jnp.asarray([0, 1]), num_classes=2)
  np.testing.assert_array_equal(dataset.x, [[0.25, -1.0], [1.0, 1.0]])


def test_row_does_not_depend_on_other_rows():
  whole = _make()
  for row in range(3):
    alone = _make(X[row:row + 1], Y[row:row + 1])
    np.testing.assert_array_equal(alone.x[0], whole.x[row])


@pytest.mark.parametrize('changes, message', [
  ({'x': [1.0, 2.0, 3.0]}, r'x must be \[n, p\].*got \(3,\)$'),
  ({'x': np.zeros((0, 2)), 'y': []}, r'n, p >= 1, got \(0, 2\)$'),
  ({'x': [[1.0, 2.0], [3.0, np.nan], [0.0, 0.0]]},
   'x must be finite, got nan in row 1, column 1$'),
  ({'x': [[1.0], [np.inf], [0.0]]}, 'got inf in row 1, column 0$'),
  ({'x': [['a'], ['b'], ['c']]}, 'x must be an array of real numbers$'),
  ({'y': [0, 1]}, r'y must have shape \(3,\) as x has 3 rows, got \(2,\)$'),
  ({'y': [[0], [1], [2]]}, r'got \(3, 1\)$'),
  ({'y': [0, 3, 1]}, r'y must hold integers in \[0, 3\), got 3 in row 1$'),
  ({'y': [0, 1, -1]}, 'got -1 in row 2$'),
  ({'y': [0.5, 1, 2]}, 'got 0.5 in row 0$'),
  ({'y': [0, np.nan, 2]}, 'got nan in row 1$'),
  ({'num_classes': 1}, 'num_classes must be an integer >= 2, got 1$'),
  ({'lower': 10.0}, 'lower must be below upper, got 10.0 and 10.0$'),
  ({'lower': [0, 20]}, r'lower must be below upper, got \[0, 20\] and 10.0$'),
  ({'lower': [0, 0, 0]}, r'lower must be a number or 2 numbers, got shape'),
  ({'upper': np.inf}, 'upper must be finite, got inf$'),
])
def test_errors_are_one_line(changes, message):
  with pytest.raises(ValueError, match=message) as caught:
    _make(**changes)
  assert '\n' not in str(caught.value)
