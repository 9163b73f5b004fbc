"""Tests dpjax.data.tabular on handwritten rows."""

import numpy as np
import pytest

from dpjax.data import columns
from dpjax.data import tabular

SCHEMA = tabular.Schema(
  columns=(
    columns.Skip('id'),
    columns.Numeric('age', 0, 100),
    columns.Categorical('colour', ('red', 'blue')),
    columns.Label('class', (('n',), ('y',))),
    columns.Binary('flag'),
  ))
CONTENT = b'1,50,red,y,1\n2, 25 ,blue,n,0\n'


def _encode(content, schema=SCHEMA):
  return tabular.encode(tabular.parse(content, schema, file='toy.csv'), schema)


def _variant(**changes):
  return tabular.Schema(columns=SCHEMA.columns, **changes)


def test_encoding_by_hand():
  encoded = _encode(CONTENT)
  np.testing.assert_array_equal(
    encoded.x, [[0.0, 1.0, 0.0, 1.0], [-0.5, 0.0, 1.0, 0.0]])
  np.testing.assert_array_equal(encoded.y, [1, 0])
  assert encoded.x.dtype == np.float32 and encoded.y.dtype == np.int32
  assert SCHEMA.feature_names == ('age', 'colour=red', 'colour=blue', 'flag')


@pytest.mark.parametrize('content, changes', [
  (b'\xef\xbb\xbf' + CONTENT, {}),
  (CONTENT.replace(b'\n', b'\r\n'), {}),
  (CONTENT.replace(b'\n', b'\n\n'), {}),
  (CONTENT.rstrip(b'\n'), {}),
  (b'|comment, to skip\n' + CONTENT, {'comment': '|'}),
  (CONTENT.replace(b',', b';'), {'delimiter': ';'}),
  (b'1  50 red y 1\n2 25 blue n 0', {'delimiter': ' '}),
  (b'id,age,"colour\t",class,flag\n' + CONTENT, {'header': True}),
])
def test_file_forms_give_the_same(content, changes):
  schema = _variant(**changes)
  expected = _encode(CONTENT)
  encoded = _encode(content, schema)
  np.testing.assert_array_equal(encoded.x, expected.x)
  np.testing.assert_array_equal(encoded.y, expected.y)


@pytest.mark.parametrize('content, message', [
  (b'1,50,red,y,1\n2,,blue,n,0',
   r'^toy.csv line 2, column \'age\': a number is missing'),
  (b'1,50,red,y,1\n\n2,nan,blue,n,0',
   r'^toy.csv line 3, column \'age\': \'nan\' is not a number'),
  (b'1,1_0,red,y,1', r'^toy.csv line 1, column \'age\': \'1_0\' is not a num'),
  (b'1,5,green,y,1', r'^toy.csv line 1, column \'colour\': \'green\' is not '),
  (b'1,5,red,maybe,1',
   r'^toy.csv line 1, column \'class\': label must be one of n, y; got '),
  (b'1,5,red,y,7', r'^toy.csv line 1, column \'flag\': expected 0 or 1, got'),
  (b'1,50,red,y\n', r'^toy.csv line 1: expected 5 fields, got 4$'),
  (b'\n', r'^toy.csv has no records$'),
])
def test_errors_name_file_line_and_column(content, message):
  with pytest.raises(ValueError, match=message):
    _encode(content)


def test_header_is_checked():
  schema = _variant(header=True)
  with pytest.raises(ValueError, match='a column \'years\' where \'age\' is'):
    _encode(b'id,years,colour,class,flag\n' + CONTENT, schema)
  with pytest.raises(ValueError, match='header has 2 names, expected 5'):
    _encode(b'id,age\n' + CONTENT, schema)


def test_schema_needs_one_label():
  for wrong in ((), 2 * (columns.Label('class', (('n',),)),)):
    with pytest.raises(ValueError, match=f'one label, got {len(wrong)}'):
      tabular.Schema(columns=(columns.Binary('flag'), *wrong))


def test_erratum_corrects_one_field_of_one_record():
  schema = _variant(errata=(
    tabular.Erratum(key='2', column='age', wrong='nan', value='75'),))
  content = b'2,nan,red,y,1\n2,0,red,y,1\n'
  np.testing.assert_array_equal(_encode(content, schema).x[:, 0], [0.5, -1.0])
  # Another record, column or text is still an error.
  for other in (b'3,nan,red,y,1', b'2,5,nan,y,1', b'2,,red,y,1'):
    with pytest.raises(ValueError, match='toy.csv line 1'):
      _encode(other, schema)


def _min_max_encode(content):
  """Encodes with a planted fault: the bounds come from the records."""
  encoded = _encode(content)
  low, high = encoded.x.min(axis=0), encoded.x.max(axis=0)
  return encoded._replace(x=(encoded.x - low) / np.maximum(high - low, 1e-6))


def _is_unchanged_by_a_record(encode):
  added = CONTENT + b'3,1e9,red,n,1\n'
  return np.array_equal(encode(added).x[:2], encode(CONTENT).x)


def test_scaling_does_not_change_when_a_record_is_added():
  assert _is_unchanged_by_a_record(_encode)
  # The check detects a scaling that depends on the data.
  assert not _is_unchanged_by_a_record(_min_max_encode)
