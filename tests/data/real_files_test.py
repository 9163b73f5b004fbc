"""Tests all data sets on their original files; skips without them."""

import functools

import numpy as np
import pytest

from dpjax.data import columns
from dpjax.data import files
from dpjax.data import registry
from dpjax.data import tabular

# Published n, p and records of each class.
EXPECTED = {
  'adult': (48_842, 108, (37_155, 11_687)),
  'android_permissions': (29_332, 86, (14_632, 14_700)),
  'bank_full': (45_211, 51, (39_922, 5_289)),
  'breast_cancer': (569, 30, (357, 212)),
  'default_credit': (30_000, 99, (23_364, 6_636)),
  'diabetes_130': (101_766, 266, (54_864, 46_902)),
  'dropout': (4_424, 247, (1_421, 794, 2_209)),
  # Barczewski (2025) prints 4328 instances.
  'framingham': (4_238, 26, (3_594, 644)),
  'german_credit': (1_000, 63, (700, 300)),
  'nursery': (12_960, 27, (4_320, 2, 328, 4_266, 4_044)),
}

each_name = pytest.mark.parametrize('name', sorted(EXPECTED))


@functools.cache
def _load(name, data_dir):
  for spec in registry.DATASETS[name].files:
    if files.find(spec, name, data_dir=data_dir) is None:
      pytest.skip(f'needs the original file {spec.name} of {name}')
  return registry.load(name, data_dir=data_dir)


def _table(name, data_dir, *, file=0):
  spec = registry.DATASETS[name]
  content = files.read(
    spec.files[file], name, source=spec.source, data_dir=data_dir)
  return tabular.parse(content, spec.schema, file=name), spec.schema


def _records(table, schema, rows, *more):
  """Returns a table of the chosen rows of another table and of more records."""
  return tabular.of_rows(
    [[texts[row] for texts in table.columns] for row in rows] + [*more], schema,
    file='part', place=str)


@each_name
def test_sizes_and_classes(name, data_dir):
  dataset = _load(name, data_dir)
  num_examples, num_features, classes = EXPECTED[name]
  spec = registry.DATASETS[name]
  assert dataset.x.shape == (num_examples, num_features)
  assert (spec.num_examples, spec.num_features) == dataset.x.shape
  assert len(dataset.feature_names) == num_features
  np.testing.assert_array_equal(np.bincount(dataset.y), classes)
  assert dataset.num_classes == spec.num_classes == len(classes)


@each_name
def test_features_are_finite_and_within_public_bounds(name, data_dir):
  x = np.asarray(_load(name, data_dir).x)
  assert np.isfinite(x).all() and np.abs(x).max() <= 1


@each_name
def test_one_hot_groups_sum_to_one(name, data_dir):
  dataset = _load(name, data_dir)
  x, start = np.asarray(dataset.x), 0
  for column in registry.DATASETS[name].schema.columns:
    group = x[:, start:start + len(column.names())]
    start += group.shape[1]
    if isinstance(column, columns.Categorical | columns.Grouped):
      assert np.isin(group, [0, 1]).all()
      np.testing.assert_array_equal(group.sum(axis=1), 1)
  assert start == x.shape[1]


@each_name
def test_row_alone_is_encoded_as_in_the_whole(name, data_dir):
  """A row alone is encoded as in its table, so no bound comes from the data."""
  whole = _load(name, data_dir)
  table, schema = _table(name, data_dir)
  rows = np.random.default_rng(0).choice(table.num_records, 40, replace=False)
  for row in [0, 1, 2, 3, *rows]:
    alone = tabular.encode(_records(table, schema, [row]), schema)
    np.testing.assert_array_equal(alone.x[0], whole.x[row])
    assert alone.y[0] == whole.y[row]


@each_name
def test_added_record_changes_no_other_row(name, data_dir):
  """An added extreme record changes no other row, so data set no scale."""
  whole = _load(name, data_dir)
  table, schema = _table(name, data_dir)
  extreme = [
    '1e9' if isinstance(column, columns.Numeric) else texts[0]
    for column, texts in zip(schema.columns, table.columns)]
  added = _records(table, schema, range(100), extreme)
  np.testing.assert_array_equal(
    tabular.encode(added, schema).x[:100], whole.x[:100])


def test_adult_holds_both_files_in_order(data_dir):
  dataset = _load('adult', data_dir)
  table, schema = _table('adult', data_dir, file=1)
  assert table.num_records == 16_281
  second = tabular.encode(table, schema)
  np.testing.assert_array_equal(dataset.x[32_561:], second.x)


def test_breast_cancer_file_and_embedded_copy_agree(data_dir, tmp_path):
  original = _load('breast_cancer', data_dir)
  embedded = registry.load('breast_cancer', data_dir=tmp_path)
  np.testing.assert_array_equal(original.x, embedded.x)
  np.testing.assert_array_equal(original.y, embedded.y)
  assert original.feature_names == embedded.feature_names


def test_default_credit_has_the_published_ages(data_dir):
  """With its two errata applied, the table has the published age moments."""
  dataset = _load('default_credit', data_dir)
  scaled = np.asarray(dataset.x)[:, dataset.feature_names.index('AGE')]
  ages = np.round(20 + 30 * (scaled.astype(np.float64) + 1))
  np.testing.assert_array_equal(ages[:5], [24, 26, 34, 37, 57])
  assert np.mean(ages) == pytest.approx(35.4855, abs=1e-9)
  assert np.std(ages, ddof=1) == pytest.approx(9.217904, abs=1e-6)
