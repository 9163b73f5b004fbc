"""Tests dpjax.data.columns: encodings against hand computations, and errors."""

import math

import numpy as np
import pytest

from dpjax.data import columns


@pytest.mark.parametrize('value, expected', [
  (10, -1.0), (20, 0.0), (30, 1.0), (25, 0.5), (27.5, 0.75),
  # These values are clipped.
  (-5, -1.0), (1e300, 1.0),
])
def test_linear_number(value, expected):
  encoded = columns.Numeric('age', 10, 30).encode(np.array([value]))
  np.testing.assert_array_equal(encoded, [[expected]])


@pytest.mark.parametrize('scale, lower, upper, value, expected', [
  ('log', 1, 100, 10, 0.0),
  ('log', 1, 100, 0, -1.0),
  ('log', 1, 100, -7, -1.0),
  ('sqrt', 0, 16, 4, 0.0),
  ('sqrt', 0, 16, 9, 0.5),
  ('sqrt', 0, 16, -9, -1.0),
  ('signed_log', -99, 99, 0, 0.0),
  ('signed_log', -99, 99, 9, 0.5),
  ('signed_log', -99, 99, -9, -0.5),
  ('signed_log', 0, 99, 9, 0.0),
  ('signed_log', 0, 99, -1, -1.0),
])
def test_transformed_number(scale, lower, upper, value, expected):
  column = columns.Numeric('amount', lower, upper, scale=scale)
  np.testing.assert_allclose(
    column.encode(np.array([value])), [[expected]], atol=1e-15, rtol=0)


@pytest.mark.parametrize('scale', ['linear', 'log', 'signed_log', 'sqrt'])
def test_number_is_monotone_and_bounded(scale):
  column = columns.Numeric('amount', 0.1, 7.3, scale=scale)
  values = column.encode(0.05 * np.arange(200) - 1)[:, 0].tolist()
  assert values == sorted(values)
  assert values[0] == -1.0 and values[-1] == 1.0


def test_infinite_numbers_are_clipped_and_missing_ones_marked():
  values = np.array([np.inf, -np.inf, np.nan])
  np.testing.assert_array_equal(
    columns.Numeric('age', 0, 1, missing='?', default=0.75).encode(values),
    [[1, 0], [-1, 0], [0.5, 1]])


@pytest.mark.parametrize('lower, upper', [
  (1, 1), (2, 1), (0, math.inf), (-math.inf, 0), (math.nan, 1)])
def test_bounds_must_be_finite_and_ordered(lower, upper):
  with pytest.raises(ValueError, match='\'age\' needs finite lower < upper'):
    columns.Numeric('age', lower, upper)


def test_scale_restricts_the_lower_bound():
  with pytest.raises(ValueError, match='logarithmic and needs lower > 0'):
    columns.Numeric('age', 0, 1, scale='log')
  with pytest.raises(ValueError, match='square root and needs lower >= 0'):
    columns.Numeric('age', -1, 1, scale='sqrt')
  with pytest.raises(ValueError, match='scale must be one of linear, log'):
    columns.Numeric('age', 0, 1, scale='rank')


def test_categorical_is_one_hot_in_the_order_of_the_list():
  column = columns.Categorical('sex', ('f', 'm', '?'))
  assert column.names() == ('sex=f', 'sex=m', 'sex=?')
  assert column.encode('m') == (0.0, 1.0, 0.0)
  assert column.encode('?') == (0.0, 0.0, 1.0)


def test_categorical_refuses_other_codes_and_repetition():
  column = columns.Categorical('sex', ('f', 'm'))
  with pytest.raises(ValueError, match='^\'x\' is not in the public list of 2'):
    column.encode('x')
  with pytest.raises(ValueError, match='\'sex\' lists a category twice'):
    columns.Categorical('sex', ('f', 'f'))


def test_binary_is_kept():
  column = columns.Binary('camera')
  assert (column.encode('0'), column.encode('1')) == ((0.0,), (1.0,))
  for text in ('', '2', '-1', '1.0', 'nan'):
    with pytest.raises(ValueError, match='^expected 0 or 1, got '):
      column.encode(text)


def test_skip_and_label_are_no_features():
  label = columns.Label('income', (('<=50K', '<=50K.'), ('>50K', '>50K.')))
  assert columns.Skip('id').names() == label.names() == ()
  assert [label.encode(t) for t in ('<=50K', '<=50K.', '>50K.')] == [0, 0, 1]
  with pytest.raises(ValueError, match='must be one of <=50K, >50K; got \'2\''):
    label.encode('2')
