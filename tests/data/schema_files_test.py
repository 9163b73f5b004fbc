"""Tests dpjax.data.schema_files: which schemas are valid, and their meaning."""

import json

import numpy as np
import pytest

from dpjax.data import schema_files

_COLUMNS = {
  'age': {'kind': 'numeric', 'lower': 18, 'upper': 90},
  'income': {'kind': 'numeric', 'lower': 1, 'upper': 1e4, 'scale': 'log',
             'default': 100},
  'sex': {'kind': 'categorical', 'categories': ['F', 'M']},
  'outcome': {'kind': 'label', 'classes': ['no', 'yes', 'maybe']},
}


def _text(**changes):
  return json.dumps({'public': True, 'columns': _COLUMNS, **changes})


def test_columns_are_features_in_the_order_of_the_schema():
  user = schema_files.parse(_text(separator=';'))
  assert user.schema.feature_names == (
    'age', 'age=?', 'income', 'income=?', 'sex=F', 'sex=M', 'sex=other')
  assert user.form.separator == ';' and user.num_classes == 3
  age, income, sex, label = user.schema.columns
  np.testing.assert_array_equal(age.encode(np.array([np.nan, 200.0])),
                                [[0.0, 1.0], [1.0, 0.0]])
  np.testing.assert_allclose(income.encode(np.array([np.nan])), [[0.0, 1.0]],
                             atol=1e-12)
  assert [sex.encode(text) for text in ('M', '', 'x')] == [
    (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.0, 1.0)]
  assert label.encode('maybe') == 2


def test_messages_name_where_a_schema_is():
  for read in (schema_files.parse, schema_files.canonical):
    with pytest.raises(ValueError, match='^mine is not JSON'):
      read('{', where='mine')


def test_a_listed_other_is_not_there_twice():
  columns = {**_COLUMNS, 'sex': {'kind': 'categorical',
                                 'categories': ['other', 'F']}}
  user = schema_files.parse(_text(columns=columns))
  assert user.schema.feature_names[-2:] == ('sex=other', 'sex=F')


def test_round_trip_and_parts():
  """Notes are dropped, and flags and files give the same canonical schema."""
  once = schema_files.canonical(_text(note='reviewed'))
  assert 'reviewed' not in once and schema_files.canonical(once) == once
  schema = schema_files.of_parts(
    label='y', classes=['0', '1'], bounds={'age': (18.0, 90.0)},
    categories={'sex': ['F', 'M']}, separator=';')
  assert schema_files.canonical(schema) == schema
  assert schema_files.parse(schema).schema.feature_names == (
    'age', 'age=?', 'sex=F', 'sex=M', 'sex=other')
  with pytest.raises(ValueError, match='\'age\' is given two kinds'):
    schema_files.of_parts(label='age', classes=['0', '1'],
                          bounds={'age': (0.0, 1.0)}, categories={})


@pytest.mark.every(1)
@pytest.mark.parametrize('column, message', [
  ({'kind': 'number'}, 'kind must be one of categorical, label, numeric; got'),
  ({'kind': 'numeric', 'lower': 1}, 'has no \'upper\''),
  ({'kind': 'numeric', 'lower': 1, 'upper': 1}, 'finite lower < upper'),
  ({'kind': 'numeric', 'lower': '1', 'upper': 2}, 'lower must be a finite num'),
  ({'kind': 'numeric', 'lower': True, 'upper': 2}, 'lower must be a finite'),
  ({'kind': 'numeric', 'lower': 0, 'upper': 2, 'uper': 1},
   'unknown \'uper\'; did you mean \'upper\''),
  ({'kind': 'numeric', 'lower': 0, 'upper': 2, 'scale': 'log'}, 'lower > 0'),
  ({'kind': 'categorical', 'categories': ['a', 'a']}, 'list of at least 1 diff'),
  ({'kind': 'categorical', 'categories': [1, 2]}, 'texts in quotation marks'),
  ({'kind': 'label', 'classes': ['a']}, 'list of at least 2 different'),
  ('numeric', 'must be an object with a kind'),
])
def test_refuses_columns(column, message):
  with pytest.raises(ValueError, match=message) as caught:
    schema_files.parse(_text(columns={**_COLUMNS, 'x': column}))
  assert '\'x\'' in str(caught.value) and '\n' not in str(caught.value)


@pytest.mark.every(1)
@pytest.mark.parametrize('text, message', [
  ('{', '^schema is not JSON: '), ('[]', 'must be an object'),
  ('{"public": true}', 'has no \'columns\''),
  (_text(public=False), '"public" is not true; replace bounds'),
  (_text(public='true'), '"public" is not true'),
  (_text(separator=';;'), 'separator must be one character'),
  (_text(columns={'y': _COLUMNS['outcome']}), 'has no feature'),
  (_text(columns={'age': _COLUMNS['age'], 'b': _COLUMNS['age']}),
   'needs one label, got 0'),
  (_text(bounds={}), 'unknown \'bounds\''),
  ('{"public": true, "columns": {"a": {}, "a": {}}}', '\'a\' occurs twice'),
])
def test_refuses_files(text, message):
  for read in (schema_files.parse, schema_files.canonical):
    with pytest.raises(ValueError, match=message) as caught:
      read(text)
    assert '\n' not in str(caught.value)
