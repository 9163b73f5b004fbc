"""Tests crossed one-hot features against a loop over records and columns."""

import itertools

import numpy as np
import pytest

from dpjax.data import columns
from dpjax.data import tabular
from dpjax.features import tables
from dpjax.tables import reader

pytestmark = pytest.mark.every(2)

_COLOURS = ('red', 'green', 'blue')
_SCHEMA = tabular.Schema(columns=(
  columns.Skip('number'),
  columns.Numeric('age', 0, 100),
  columns.Numeric('income', 1, 1000, scale='log', missing='?'),
  columns.Binary('smoker'),
  columns.Label('sick', (('0',), ('1',))),
  columns.Categorical('colour', _COLOURS),
  columns.Grouped('code', ('low', 'high'),
                  lambda text: 'low' if text < '5' else 'high')))
_ROWS = [
  [str(number), str(age), income, smoker, '0', colour, code]
  for number, (age, income, smoker, colour, code) in enumerate(
    itertools.product((0, 24, 25, 99, 100), ('?', '1', '9', '999'), '01',
                      _COLOURS, '19'))]


def _encoded():
  table = tabular.of_rows(_ROWS, _SCHEMA, file='table', place=str)
  assert isinstance(table, reader.Table)
  return tabular.encode(table, _SCHEMA).x


def _values(row):
  """Returns the values of a record's columns, by the fields of the file."""
  _, age, income, smoker, _, colour, code = row
  # Bins of income are equal on the logarithmic scale.
  bins = 4 if income == '?' else min(int(np.log10(float(income)) / 3 * 4), 3)
  return [min(int(float(age) / 25), 3), bins, int(smoker),
          _COLOURS.index(colour), int(code >= '5')]


def test_features_are_those_of_the_fields():
  features = tables.crossed(_SCHEMA, bins=4)
  sizes = [4, 5, 2, 3, 2]
  wanted = np.zeros((len(_ROWS), *features.output_shape), np.float32)
  for record, row in enumerate(_ROWS):
    start, values = 0, _values(row)
    for value, size in zip(values, sizes, strict=True):
      wanted[record, start + value] = 15**-0.5
      start += size
    for i, j in itertools.combinations(range(5), 2):
      wanted[record, start + values[i] * sizes[j] + values[j]] = 15**-0.5
      start += sizes[i] * sizes[j]
    assert start == wanted.shape[1]
  np.testing.assert_allclose(features(_encoded()), wanted, rtol=1e-6)


@pytest.mark.sound
@pytest.mark.parametrize('options', [
  dict(), dict(crosses=1), dict(most=31), dict(bins=50, most=200),
  dict(pairs=[('colour', 'age')]), dict(cuts={'age': [25, 70]})])
def test_all_rows_have_norm_one_and_equally_many_ones(options):
  features = tables.crossed(_SCHEMA, **{'bins': 4, **options})
  # Records outside of the schema cannot have another norm either.
  x = np.concatenate([_encoded(), np.random.default_rng(0).normal(
    size=(50, 9)).astype(np.float32), np.full((1, 9), np.nan, np.float32)])
  rows, places = np.asarray(features(x)), np.asarray(features.indices(x))
  assert (np.count_nonzero(rows, axis=1) == features.num_ones).all()
  np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
  assert places.shape == (len(x), features.num_ones)
  assert places.min() >= 0 and places.max() < rows.shape[1]
  assert rows.shape[1] <= options.get('most', rows.shape[1])
  # The places are those of the ones.
  assert (np.take_along_axis(rows, places, 1) > 0).all()


def test_hashing_takes_the_largest_crosses_and_spreads_their_codes():
  features = tables.crossed(_SCHEMA, bins=50, most=600)
  whole = tables.crossed(_SCHEMA, bins=50)
  kept = [a == b for a, b in zip(features.buckets, whole.buckets, strict=True)]
  assert sum(features.output_shape) <= 600 and any(kept) and not all(kept)
  assert max(size for size, same in zip(features.buckets, kept, strict=True)
             if same) <= min(size for size, same in zip(
               features.buckets, kept, strict=True) if not same)
  counts = np.bincount(np.asarray(tables._hashed(np.arange(10_000), 3, 50)),
                       minlength=50)
  # A uniform hash has 200 +- 14 codes in each bucket.
  assert counts.size == 50 and 130 < counts.min() and counts.max() < 270


def test_cuts_are_in_the_unit_of_the_file():
  features = tables.crossed(_SCHEMA, cuts={'age': [25], 'income': [9.5, 100]},
                            crosses=1)
  places = np.asarray(features.indices(_encoded()))
  ages = np.array([int(row[1]) for row in _ROWS])
  np.testing.assert_array_equal(places[:, 0], ages >= 25)
  incomes = np.array([row[2] for row in _ROWS])
  for text, place in (('1', 2), ('9', 2), ('999', 4), ('?', 5)):
    assert set(places[incomes == text, 1]) == {place}


@pytest.mark.parametrize('options, message', [
  (dict(bins=1), 'bins must be an integer >= 2'),
  (dict(crosses=3), 'crosses must be 1 or 2'),
  (dict(cuts={'colour': [1]}), "columns of numbers, got .'colour'"),
  (dict(cuts={'age': [50, 20]}), 'must increase strictly between 0 and 100'),
  (dict(cuts={'age': []}), 'must increase strictly'),
  (dict(pairs=[('age', 'colur')]), "did you mean 'colour'"),
  (dict(pairs=[('age', 'age')]), 'must be of two columns'),
  (dict(pairs=[('age', 'colour'), ('colour', 'age')]), 'each pair once'),
  (dict(most=20), 'most leaves')])
def test_refusals(options, message):
  with pytest.raises(ValueError, match=message):
    tables.crossed(_SCHEMA, **options)


def test_refusals_of_records():
  with pytest.raises(ValueError, match=r'must have shape \[b, 9\], got'):
    tables.crossed(_SCHEMA)(np.zeros((3, 5), np.float32))
