"""Tests of dpjax.data.drafts: they fit, and are refused until reviewed."""

import json

import pytest

from dpjax.data import drafts
from dpjax.data import schema_files
from dpjax.data import user_tables


@pytest.fixture
def path(tmp_path):
  """A file with a column of each kind, one of too many texts among them."""
  rows = '\n'.join(f'p{i},{i - 3},{"ab"[i % 2]},{i % 3},{"" if i else 0.123}'
                   for i in range(60))
  made = tmp_path / 'own.csv'
  made.write_text(f'name,number,letter,y,some\n{rows}\n')
  return made


def test_a_draft_fits_its_file_and_needs_a_review(path):
  found = drafts.draft(path, label='y')
  assert list(found['columns']) == ['number', 'letter', 'some', 'y']
  assert found['columns']['number'] == {'kind': 'numeric', 'lower': -10,
                                        'upper': 60}
  assert found['columns']['letter']['categories'] == ['a', 'b']
  assert found['columns']['y']['classes'] == ['0', '1', '2']
  assert 'READ OFF THE DATA' in found['note']
  with pytest.raises(ValueError, match='"public" is not true'):
    schema_files.parse(json.dumps(found))
  user = schema_files.parse(json.dumps({**found, 'public': True}))
  counts = user_tables.count(user_tables.select(path, user), user.schema)
  assert counts == (('number', 0, 0, 0), ('letter', 0, 0, 0),
                    ('some', 0, 59, 0))


@pytest.mark.parametrize('label, message', [
  ('name', '\'name\' has 120 different values; it must have 2 to 100'),
  ('x', 'has no column \'x\''),
])
def test_labels_that_are_none(tmp_path, label, message):
  path = tmp_path / 'own.csv'
  path.write_text('name,y\n' + ''.join(f'p{i},1\n' for i in range(120)))
  with pytest.raises(ValueError, match=message):
    drafts.draft(path, label=label)
