"""Tests dpjax.data.user_tables, which makes a data set of file and schema."""

import gzip
import json

import numpy as np
import pytest

from dpjax.data import schema_files
from dpjax.data import user_tables
from dpjax.tables import reader

_SCHEMA = schema_files.of_parts(
  label='y', classes=['no', 'yes'], bounds={'age': (0.0, 100.0)},
  categories={'place': ['north, east', 'so"uth']})
_FILE = ('id,place,age,y\n'
         '1,"north, east",50,no\n'
         '\n'
         '2,"so""uth",150,yes\n'
         '3,elsewhere,NA,no\n'
         '4,,,yes\n')
_X = [[0, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0, 1, 0, 0, 1]]


@pytest.fixture
def write(tmp_path):
  """Returns a function that writes a file and returns its path."""
  def run(content, name='own.csv'):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes)
                     else content.encode())
    return str(path)
  return run


def test_quotes_missing_fields_and_unknown_categories(write):
  data = user_tables.load(write(_FILE), _SCHEMA)
  np.testing.assert_array_equal(data.x, _X)
  np.testing.assert_array_equal(data.y, [0, 1, 0, 1])
  assert data.x.dtype == np.float32 and data.num_classes == 2
  assert data.feature_names == ('age', 'age=?', 'place=north, east',
                                'place=so"uth', 'place=other')


def test_counts_are_those_of_the_rules(write):
  user = schema_files.parse(_SCHEMA)
  path = user_tables.find(write(_FILE))
  counts = user_tables.count(reader.table(path, user.form), user.schema)
  assert counts == (('age', 1, 2, 0), ('place', 0, 0, 2))


@pytest.mark.every(1)
@pytest.mark.parametrize('content, name', [
  (('\ufeff' + _FILE).encode(), 'bom.csv'),
  (gzip.compress(_FILE.encode(), mtime=0), 'own.csv.gz'),
  (_FILE.replace('\n', '\r\n'), 'windows.csv'),
])
def test_other_bytes_of_the_same_table(write, content, name):
  np.testing.assert_array_equal(
    user_tables.load(write(content, name), _SCHEMA).x, _X)


def test_another_separator(write):
  schema = json.dumps({**json.loads(_SCHEMA), 'separator': ';'})
  path = write('y;age;place\nyes;"50";"north, east"\n')
  np.testing.assert_array_equal(user_tables.load(path, schema).x, _X[:1])


def test_nothing_of_the_data_decides_the_encoding(write):
  """The schema alone decides the features, whatever records the file holds."""
  first = user_tables.load(write(_FILE), _SCHEMA)
  other = user_tables.load(write(
    'y,more,age,place\nyes,x,9e9,new\nno,x,-3,newer\nno,,50,"north, east"\n',
    'other.csv'), _SCHEMA)
  assert other.feature_names == first.feature_names
  assert other.num_classes == first.num_classes
  np.testing.assert_array_equal(other.x[2], first.x[0])
  # A record's row does not depend on the other records.
  for number in range(4):
    lines = _FILE.replace('\n\n', '\n').splitlines()
    alone = '\n'.join([lines[0], lines[1 + number], ''])
    np.testing.assert_array_equal(
      user_tables.load(write(alone), _SCHEMA).x[0], first.x[number])


@pytest.mark.every(1)
@pytest.mark.parametrize('content, message', [
  ('', 'is empty: there is no header'),
  ('age,place,y\n', 'has no records'),
  ('age,y\n1,no\n', 'no column \'place\'; there are age, y'),
  ('Age,place,y\n1,a,no\n', 'no column \'age\'; there are Age, place, y; did you mean \'Age\''),
  ('age;place;y\n1;a;no\n', r'is the separator a semicolon \(\';\'\)\?'),
  ('age,age,place,y\n1,1,a,no\n', 'has 2 columns \'age\''),
  ('age,place,y\n1,a,no\n1,no\n', 'line 3 has 2 fields, the header 3'),
  ('age,place,y\n1,a,no\nold,a,no\n',
   'line 3, column \'age\': \'old\' is not a number'),
  ('age,place,y\n1,a,perhaps\n', 'line 2, column \'y\': label must be one of'),
  ('age,place,y\n1,a,\n', 'line 2, column \'y\': label must be one of no, yes'),
  ('age,place,y\n1,"a,no\n', 'line 2: unexpected end of data'),
  (b'age,place,y\n1,\xe9,no\n', 'line 2 is not text in utf-8'),
])
def test_mistakes_in_a_file(write, content, message):
  with pytest.raises(ValueError, match=message) as caught:
    user_tables.load(write(content), _SCHEMA)
  assert 'own.csv' in str(caught.value) and '\n' not in str(caught.value)


def test_where_files_are_looked_for(write, tmp_path):
  write(_FILE)
  path = user_tables.find('own.csv', data_dir=tmp_path)
  assert path == tmp_path / 'own.csv'
  with pytest.raises(FileNotFoundError, match='^no file none.csv or .*none'):
    user_tables.find('none.csv', data_dir=tmp_path)
  assert user_tables.is_path('own.csv') and user_tables.is_path('data/own')
  assert not user_tables.is_path('breast_cancer')
