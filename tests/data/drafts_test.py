"""Tests dpjax.data.drafts: drafts fit, and are refused until reviewed."""

import json

import pytest

from dpjax.data import drafts
from dpjax.data import schema_files
from dpjax.data import user_tables
from dpjax.tables import reader
from dpjax.tables.formats import Format


@pytest.fixture
def path(tmp_path):
  """Returns a file with one column of each kind and one with too many texts."""
  rows = '\n'.join(f'p{i},{i - 3},{"ab"[i % 2]},{i % 3},{"" if i else 0.123}'
                   for i in range(60))
  csv = tmp_path / 'own.csv'
  csv.write_text(f'name,number,letter,y,some\n{rows}\n')
  return csv


def test_a_draft_fits_its_file_and_needs_a_review(path):
  draft = drafts.draft(path, label='y')
  schema = draft.schema
  assert draft.left_out == {'name': 'it has 60 different texts, more than 50, '
                            'some of which are not numbers'}
  assert list(schema['columns']) == ['number', 'letter', 'some', 'y']
  assert schema['columns']['number'] == {'kind': 'numeric', 'lower': -10,
                                        'upper': 60}
  assert schema['columns']['letter']['categories'] == ['a', 'b']
  assert schema['columns']['y']['classes'] == ['0', '1', '2']
  assert 'READ OFF THE DATA' in schema['note']
  with pytest.raises(ValueError, match='"public" is not true'):
    schema_files.parse(json.dumps(schema))
  user = schema_files.parse(json.dumps({**schema, 'public': True}))
  counts = user_tables.count(reader.table(path, user.form), user.schema)
  assert counts == (('number', 0, 0, 0), ('letter', 0, 0, 0),
                    ('some', 0, 59, 0))


def _draft(tmp_path, header, rows, **changes):
  path = tmp_path / 'own.csv'
  path.write_text('\n'.join([header, *rows]) + '\n')
  return drafts.draft(path, **{'label': 'y', **changes}).schema


def test_two_columns_of_one_name_are_refused(tmp_path):
  with pytest.raises(ValueError, match="has 2 columns 'a'"):
    _draft(tmp_path, 'a,y,a', ['1,0,1', '2,1,2'])
  with pytest.raises(ValueError, match="has 2 columns 'y'"):
    _draft(tmp_path, 'y,a,y', ['1,0,1', '2,1,2'])


@pytest.mark.every(1)
@pytest.mark.parametrize('number', [1, 2, 100, 101])
def test_a_label_has_between_2_and_100_classes(tmp_path, number):
  rows = [f'{i},{i}' for i in range(number)]
  if number in (2, 100):
    schema = _draft(tmp_path, 'x,y', rows)['columns']['y']
    assert schema == {'kind': 'label',
                     'classes': sorted(map(str, range(number)))}
  else:
    with pytest.raises(ValueError, match=f"label 'y' has {number} different"):
      _draft(tmp_path, 'x,y', rows)


def test_kinds_of_columns_by_their_texts(tmp_path):
  """Up to 50 texts make a category; missing fields do not,
  and nan is no number."""
  rows = [f'a{min(i, 50)},a{min(i, 49)},{"NA" if i else "b"},?,'
          f'{"inf" if i == 7 else 1},{i % 2}' for i in range(60)]
  schema = _draft(tmp_path, 'many|some|one|none|infinite|y',
                 [row.replace(',', '|') for row in rows], form=Format(separator='|'))
  assert schema['separator'] == '|' and schema['public'] is False
  assert schema['missing'] == list(schema_files.MISSING)
  kinds = schema['columns']
  assert list(kinds) == ['some', 'one', 'infinite', 'y']
  assert kinds['some']['categories'] == sorted(f'a{i}' for i in range(50))
  assert kinds['one'] == {'kind': 'categorical', 'categories': ['b']}
  assert kinds['infinite']['categories'] == ['1', 'inf']


@pytest.mark.every(1)
@pytest.mark.parametrize('low, high, lower, upper', [
  (-3, 56, -10, 60), (0, 0.5, 0, 0.5), (0.12, 0.31, 0.1, 0.4), (7, 7, 7, 8),
  (1234, 9876, 1000, 10_000), (-250, -20, -300, 0), (99, 100, 0, 100),
  (0, 0, 0, 1e-9), (-5, -5, -5, -4), (0.2, 15, 0, 20)])
def test_ranges_of_round_numbers(tmp_path, low, high, lower, upper):
  """Drafted bounds are rounded to one digit of the range or the upper end."""
  schema = _draft(tmp_path, 'x,y', [f'{low},0', f'{high},1'])['columns']['x']
  assert schema['kind'] == 'numeric'
  assert (schema['lower'], schema['upper']) == pytest.approx((lower, upper))
  for bound, wanted in zip((schema['lower'], schema['upper']), (lower, upper)):
    assert isinstance(bound, int) == (wanted == int(wanted))


@pytest.mark.parametrize('label, message', [
  ('name', '\'name\' has 120 different values; it must have 2 to 100'),
  ('x', 'has no column \'x\''),
])
def test_labels_that_are_none(tmp_path, label, message):
  path = tmp_path / 'own.csv'
  path.write_text('name,y\n' + ''.join(f'p{i},1\n' for i in range(120)))
  with pytest.raises(ValueError, match=message):
    drafts.draft(path, label=label)
