"""Tests dpjax.data.images: public scaling, parts, subsets."""

import fractions

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.data import images
from dpjax.data import splits

RNG = np.random.default_rng(0)


def _part(num_examples, *, first):
  """Returns images whose first pixel is the index of the record."""
  x = RNG.integers(0, 17, (num_examples, 2, 3, 1), dtype=np.uint8)
  x[:, 0, 0, 0] = np.arange(first, first + num_examples)
  return images.Images(x, np.arange(num_examples, dtype=np.int32) % 3)


DATASET = images.ImageDataset(
  name='toy', train=_part(12, first=0), test=_part(5, first=12),
  class_names=('a', 'b', 'c'), max_value=16)


def _numbers(part):
  return part.x[:, 0, 0, 0].tolist()


@pytest.mark.parametrize('max_value', [1, 16, 100, 255])
def test_scale_is_linear_in_the_public_range(max_value):
  pixels = np.arange(256, dtype=np.uint8)
  scaled = np.asarray(images.scale(pixels, max_value=max_value))
  exact = [float(2 * fractions.Fraction(min(int(pixel), max_value), max_value)
                 - 1) for pixel in pixels]
  np.testing.assert_allclose(scaled, exact, rtol=0, atol=2**-25)
  assert scaled.dtype == np.float32
  assert scaled[0] == -1 and scaled[max_value] == 1
  assert np.abs(scaled).max() == 1


@pytest.mark.parametrize('max_value', [1, 16, 255])
def test_scale_can_keep_black_at_zero(max_value):
  pixels = np.arange(256, dtype=np.uint8)
  scaled = np.asarray(images.scale(pixels, max_value=max_value, low=0.))
  exact = np.minimum(pixels, max_value) / max_value
  np.testing.assert_allclose(scaled, exact, rtol=0, atol=2**-25)
  assert scaled[0] == 0 and scaled[max_value] == 1 and scaled.min() == 0
  records = DATASET._replace(low=0.).records
  np.testing.assert_allclose(records.x, (DATASET.records.x + 1) / 2,
                             atol=2**-23)


def test_downsample_takes_means_of_blocks():
  """Each record is downsampled by itself, to float64 block means rounded."""
  x = RNG.integers(0, 256, (5, 6, 4, 2), dtype=np.uint8)
  part = images.Images(x, np.zeros(5, np.int32))
  dataset = DATASET._replace(train=part, test=part, max_value=255)
  small = images.downsample(dataset, 2)
  assert small.image_shape == (3, 2, 2) and small.train.x.dtype == np.uint8
  for row in range(3):
    for column in range(2):
      block = x[:, 2 * row:2 * row + 2, 2 * column:2 * column + 2]
      mean = block.astype(np.float64).mean((1, 2))
      pixels = small.train.x[:, row, column]
      assert np.abs(pixels - mean).max() <= 0.5
      np.testing.assert_array_equal(pixels, np.floor(mean + 0.5))
  np.testing.assert_array_equal(small.test.x, small.train.x)
  np.testing.assert_array_equal(images.downsample(dataset, 1).train.x, x)
  white = part._replace(x=np.full_like(x, 255))
  assert (images.downsample(dataset._replace(train=white), 2).train.x == 255
          ).all()


@pytest.mark.parametrize('factor, message', [
  (2, 'downsample must divide the sides 2 and 3 of toy, got 2$'),
  (3, 'downsample must divide the sides 2 and 3 of toy, got 3$'),
  (0, 'factor must be an integer >= 1, got 0$')])
def test_downsample_refuses(factor, message):
  with pytest.raises(ValueError, match=message):
    images.downsample(DATASET, factor)


def test_scale_sees_one_pixel_at_a_time():
  """One changed pixel changes only itself, since scaling uses no statistics."""
  x = DATASET.train.x
  brighter = x.copy()
  brighter[4, 1, 1, 0] = 255
  before = np.asarray(images.scale(x, max_value=255))
  after = np.asarray(images.scale(brighter, max_value=255))
  assert (before != after).sum() == 1 and after[4, 1, 1, 0] == 1
  alone = images.scale(x[3:4], max_value=255)
  np.testing.assert_array_equal(alone[0], before[3])


@pytest.mark.every(2)
def test_records_are_the_parts_one_after_the_other():
  records = DATASET.records
  assert records.x.shape == (17, 2, 3, 1) and records.x.dtype == jnp.float32
  assert records.y.shape == (17,) and records.y.dtype == jnp.int32
  split = splits.official_split(jax.random.key(0), num_train=12, num_test=5)
  for part, rows in ((DATASET.train, split.train), (DATASET.test, split.test)):
    batch, rows = DATASET.batch(part), np.sort(rows)
    np.testing.assert_array_equal(records.x[rows], batch.x)
    np.testing.assert_array_equal(records.y[rows], batch.y)


def test_public_sizes():
  assert DATASET.num_classes == 3 and DATASET.image_shape == (2, 3, 1)


def test_subset_is_keyed_and_keeps_the_parts_apart():
  key = jax.random.key(0)
  small = images.subset(key, DATASET, num_train=4, num_test=2)
  assert small.train.x.shape == (4, 2, 3, 1) and small.test.y.shape == (2,)
  assert len(set(_numbers(small.train))) == 4 and max(_numbers(small.train)) < 12
  assert len(set(_numbers(small.test))) == 2 and min(_numbers(small.test)) >= 12
  again = images.subset(key, DATASET, num_train=4, num_test=2)
  assert _numbers(again.train) == _numbers(small.train)
  other = images.subset(jax.random.key(1), DATASET, num_train=4)
  assert _numbers(other.train) != _numbers(small.train)
  assert sorted(_numbers(other.test)) == list(range(12, 17))
  larger = images.subset(key, DATASET, num_train=9)
  assert _numbers(larger.train)[:4] == _numbers(small.train)


def test_subset_keeps_images_and_labels_together():
  small = images.subset(jax.random.key(2), DATASET, num_train=12)
  for part, whole in ((small.train, DATASET.train), (small.test, DATASET.test)):
    rows = np.array(_numbers(part)) - _numbers(whole)[0]
    np.testing.assert_array_equal(part.x, whole.x[rows])
    np.testing.assert_array_equal(part.y, whole.y[rows])


def test_subset_is_uniform():
  counts = np.zeros(17)
  for seed in range(300):
    small = images.subset(jax.random.key(seed), DATASET, num_train=3,
                          num_test=2)
    counts[_numbers(small.train) + _numbers(small.test)] += 1
  # Binomial(300, 1/4) and (300, 2/5) per record: standard deviations 7.5 and
  # 8.5; 6 of them leave a false alarm of about 4e-8 over all records.
  assert np.abs(counts[:12] - 75).max() < 45
  assert np.abs(counts[12:] - 120).max() < 51


@pytest.mark.parametrize('sizes, message', [
  (dict(num_train=13), 'num_train must be at most 12, .* got 13$'),
  (dict(num_train=0), 'num_train must be an integer >= 1, got 0$'),
  (dict(num_train=1, num_test=6), 'num_test must be at most 5, .* got 6$'),
  (dict(num_train=1, num_test=0), 'num_test must be an integer >= 1, got 0$'),
])
def test_subset_refuses(sizes, message):
  with pytest.raises(ValueError, match=message):
    images.subset(jax.random.key(0), DATASET, **sizes)
