"""Tests dpjax.data.registry without files; see real_files_test for the rest."""

import dataclasses
import hashlib
import types
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.data import files
from dpjax.data import registry

NURSERY = (
  b'usual,proper,complete,1,convenient,convenient,nonprob,recommended,'
  b'recommend\n'
  b'usual,proper,complete,1,convenient,convenient,nonprob,priority,priority\n')


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch):
  monkeypatch.delenv('DPJAX_DATA_DIR', raising=False)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
  """Registers two nursery records and their archive as
  the original data set."""
  with zipfile.ZipFile(tmp_path / 'nursery.zip', 'w') as archive:
    archive.writestr('nursery.data', NURSERY)
  spec = dataclasses.replace(
    registry.DATASETS['nursery'],
    files=(files.FileSpec(
      name='nursery.data', sha256=hashlib.sha256(NURSERY).hexdigest()),),
    archive=(tmp_path / 'nursery.zip').as_uri())
  monkeypatch.setattr(
    registry, 'DATASETS', types.MappingProxyType({'nursery': spec}))
  return spec


def test_names():
  assert registry.names() == (
    'adult', 'android_permissions', 'bank_full', 'breast_cancer',
    'default_credit', 'diabetes_130', 'dropout', 'framingham',
    'german_credit', 'nursery')
  assert registry.image_names() == (
    'cifar10', 'digits', 'fashion_mnist', 'mnist')
  with pytest.raises(TypeError):
    registry.DATASETS['mine'] = None
  with pytest.raises(TypeError):
    registry.IMAGES['mine'] = None


def test_names_are_sorted(monkeypatch):
  for table, names in (('DATASETS', registry.names),
                       ('IMAGES', registry.image_names)):
    monkeypatch.setattr(registry, table, {'b': None, 'c': None, 'a': None})
    assert names() == ('a', 'b', 'c')


def test_unknown_name_lists_the_known_ones():
  with pytest.raises(ValueError) as caught:
    registry.load('iris')
  known = sorted(registry.names() + registry.image_names())
  assert str(caught.value) == (
    f'dataset must be one of {", ".join(known)}; got \'iris\'')


@pytest.mark.parametrize(
  'name', [name for name in registry.names() if name != 'breast_cancer'])
def test_missing_file_is_one_clear_line(name, tmp_path):
  with pytest.raises(FileNotFoundError) as caught:
    registry.load(name, data_dir=tmp_path)
  message = str(caught.value)
  assert '\n' not in message
  for part in (registry.DATASETS[name].files[0].name, str(tmp_path / name),
               registry.DATASETS[name].source, 'DPJAX_DATA_DIR'):
    assert part in message


@pytest.mark.parametrize('name, parts', [
  ('mnist', ('the four IDX files or mnist.npz', 'yann.lecun.com')),
  ('fashion_mnist', ('IDX files or fashion_mnist.npz', 'zalandoresearch')),
  ('cifar10', ('binary batches or the Python batches or cifar10.npz or mosaics',
               'https://www.cs.toronto.edu/~kriz/cifar.html'))])
def test_missing_images_are_one_clear_line(name, parts, tmp_path):
  with pytest.raises(FileNotFoundError) as caught:
    registry.load(name, data_dir=tmp_path)
  message = str(caught.value)
  assert '\n' not in message
  for part in (*parts, f'{name}/<version>', 'TFDS', str(tmp_path / name),
               'DPJAX_DATA_DIR'):
    assert part in message


def test_embedded_breast_cancer_needs_no_file(tmp_path):
  dataset = registry.load('breast_cancer')
  assert dataset.x.shape == (569, 30) and dataset.x.dtype == jnp.float32
  assert dataset.y.dtype == jnp.int32 and dataset.num_classes == 2
  # 357 records are benign and 212 malignant; the first is malignant.
  np.testing.assert_array_equal(np.bincount(dataset.y), [357, 212])
  assert int(dataset.y[0]) == 1
  x = np.asarray(dataset.x)
  assert np.isfinite(x).all() and np.abs(x).max() <= 1
  # The bounds are wide enough and the features spread between them.
  assert np.median(np.abs(x)) > 0.2
  assert np.mean(np.abs(x) == 1) < 0.01
  elsewhere = registry.load('breast_cancer', data_dir=tmp_path)
  np.testing.assert_array_equal(elsewhere.x, x)


def test_damaged_file_is_not_replaced_by_the_embedded_copy(tmp_path):
  (tmp_path / 'wdbc.data').write_bytes(b'842302,M,17.99\n')
  with pytest.raises(ValueError, match='is not the original wdbc.data'):
    registry.load('breast_cancer', data_dir=tmp_path)


def test_load_of_a_file(tiny, tmp_path):
  (tmp_path / 'nursery.data').write_bytes(NURSERY)
  dataset = registry.load('nursery', data_dir=tmp_path)
  assert dataset.x.shape == (2, 27) and dataset.y.tolist() == [1, 3]
  assert dataset.num_classes == 5 and dataset.name == 'nursery'
  assert dataset.feature_names == tiny.schema.feature_names


def test_download_only_on_request(tiny, tmp_path):
  folder = tmp_path / 'data'
  with pytest.raises(FileNotFoundError):
    registry.load('nursery', data_dir=folder)
  assert registry.load(
    'nursery', data_dir=folder, download=True).x.shape == (2, 27)
  # The second time it is found without a download.
  assert registry.load('nursery', data_dir=folder).x.shape == (2, 27)
