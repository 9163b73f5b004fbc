"""Tests dpjax.data.image_sets; tests of original files skip without them."""

import functools
import shutil

import numpy as np
import pytest

from dpjax.data import containers
from dpjax.data import files
from dpjax.data import image_sets
from dpjax.data import registry

# Published records of each class; a single number holds for every class.
MNIST_TRAIN = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
MNIST_TEST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)
EXPECTED = {
  'cifar10': ((32, 32, 3), (5_000,) * 10, (1_000,) * 10),
  'fashion_mnist': ((28, 28, 1), (6_000,) * 10, (1_000,) * 10),
  'mnist': ((28, 28, 1), MNIST_TRAIN, MNIST_TEST),
}
# Published channel means and deviations of training pixels in [0, 1], with
# eight or four digits.
MOMENTS = {
  'cifar10': ((0.49139968, 0.48215841, 0.44653091),
              (0.24703223, 0.24348513, 0.26158784), 1e-8),
  'fashion_mnist': ((0.2860,), (0.3530,), 1e-4),
  'mnist': ((0.1307,), (0.3081,), 1e-4),
}

each_name = pytest.mark.parametrize('name', sorted(EXPECTED))


@functools.cache
def _load(name, data_dir):
  try:
    return registry.load(name, data_dir=data_dir)
  except FileNotFoundError as error:
    pytest.skip(str(error))


@each_name
def test_sizes_and_classes(name, data_dir):
  dataset = _load(name, data_dir)
  shape, *counts = EXPECTED[name]
  assert dataset.image_shape == registry.IMAGES[name].image_shape == shape
  assert registry.IMAGES[name].num_examples == sum(map(sum, counts))
  for part, count in zip((dataset.train, dataset.test), counts, strict=True):
    np.testing.assert_array_equal(np.bincount(part.y), count)


@each_name
def test_published_moments(name, data_dir):
  """Pixel moments match the published ones, which ties digests to originals."""
  pixels = _load(name, data_dir).train.x
  counts = np.stack([np.bincount(pixels[..., channel].ravel(), minlength=256)
                     for channel in range(pixels.shape[-1])])
  levels, total = np.arange(256) / 255, pixels[..., 0].size
  means = counts @ levels / total
  deviations = np.sqrt(counts @ levels**2 / total - means**2)
  expected_means, expected_deviations, tolerance = MOMENTS[name]
  np.testing.assert_allclose(means, expected_means, rtol=0, atol=tolerance)
  np.testing.assert_allclose(
    deviations, expected_deviations, rtol=0, atol=tolerance)


def test_cifar10_images_are_distinct(data_dir):
  dataset = _load('cifar10', data_dir)
  assert len({image.tobytes() for part in (dataset.train, dataset.test)
              for image in part.x}) == 60_000


def test_cifar10_holds_the_frog_of_the_original(data_dir):
  """CIFAR-10 contains the pixel and label that start its
  first original batch."""
  train = _load('cifar10', data_dir).train
  rows = np.flatnonzero((train.x[:, 0, 0] == (59, 62, 63)).all(axis=-1))
  frog = registry.IMAGES['cifar10'].class_names.index('frog')
  assert frog == 6 and frog in train.y[rows]


def test_cifar10_in_the_binary_container(data_dir):
  """The test part written in the publisher's format is read back unchanged."""
  dataset = _load('cifar10', data_dir)
  test = dataset.test
  planes = test.x.transpose(0, 3, 1, 2).reshape(len(test.x), -1)
  content = np.concatenate([test.y.astype(np.uint8)[:, None], planes], axis=1)
  split = containers.cifar_binary(containers.Blob('', content.tobytes()))
  np.testing.assert_array_equal(split.x, test.x)
  np.testing.assert_array_equal(split.y, test.y)


def test_files_of_another_set_with_the_same_names_are_refused(
    data_dir, tmp_path):
  spec = registry.IMAGES['mnist']
  for file in spec.containers[0].files:
    path = files.find(file, 'mnist', data_dir=data_dir)
    if path is None:
      pytest.skip('needs the IDX files of MNIST')
    shutil.copy(path, tmp_path)
  with pytest.raises(ValueError, match='not the original train-images-idx3'):
    registry.load('fashion_mnist', data_dir=tmp_path)


def test_records_of_mnist_are_scaled(data_dir):
  records = _load('mnist', data_dir).records
  assert records.x.shape == (70_000, 28, 28, 1)
  assert float(records.x.min()) == -1 and float(records.x.max()) == 1


def test_digits_need_no_file(monkeypatch):
  monkeypatch.delenv('DPJAX_DATA_DIR', raising=False)
  dataset = registry.load('digits')
  assert dataset.train.x.shape == (1_437, 8, 8, 1)
  assert dataset.test.x.shape == (360, 8, 8, 1)
  assert dataset.num_classes == 10 and dataset.max_value == 16
  assert dataset.train.x.max() == 16
  records = dataset.records
  assert float(records.x.min()) == -1 and float(records.x.max()) == 1
  # The classes are nearly balanced in both parts.
  for part in (dataset.train, dataset.test):
    share = np.bincount(part.y, minlength=10) / len(part.y)
    assert np.abs(share - 0.1).max() < 0.02


def test_specifications():
  for name, spec in image_sets.IMAGE_SETS.items():
    assert spec.name == name and spec.num_classes == 10
    for contents in (spec.train, spec.test):
      assert len(bytes.fromhex(contents.sha256)) == 32
    for container in spec.containers:
      for file in container.files:
        assert len(bytes.fromhex(file.sha256)) in (0, 32)
        assert f'{file.name}.gz' in file.alternatives
  cifar10 = image_sets.IMAGE_SETS['cifar10'].containers
  assert ('cifar-10-batches-bin/data_batch_1.bin'
          in cifar10[0].files[0].alternatives)
  assert cifar10[0].files[-1].name == 'test_batch.bin'
  assert cifar10[1].files[-1].name == 'test_batch'
