"""Tests dpjax.data.containers on handwritten files."""

import io
import struct

import numpy as np
from PIL import Image
import pytest

from dpjax.data import containers

Blob = containers.Blob
RNG = np.random.default_rng(0)


def _bytes(*shape):
  return RNG.integers(0, 256, shape, dtype=np.uint8)


def test_idx_of_a_matrix_written_out():
  content = bytes.fromhex('00000802' '00000002' '00000003' '010203' '0405ff')
  array = containers.idx(Blob('m', content), num_axes=2)
  assert array.dtype == np.uint8
  np.testing.assert_array_equal(array, [[1, 2, 3], [4, 5, 255]])


def _idx(array):
  header = struct.pack(f'>I{array.ndim}I', 2048 + array.ndim, *array.shape)
  return header + array.tobytes()


def test_idx_magic_numbers_are_those_of_mnist():
  assert _idx(_bytes(1, 2, 3))[:4] == (2051).to_bytes(4)
  assert _idx(_bytes(1))[:4] == (2049).to_bytes(4)


@pytest.mark.parametrize('content, message', [
  (_idx(_bytes(4)), 'toy is not an IDX file with 3 axes of bytes: it starts '
                    'with \'00000801\', expected \'00000803\'$'),
  (b'\x00\x00\x0d\x03' + bytes(12), 'it starts with \'00000d03\''),
  (b'', 'it starts with \'\''),
  (_idx(_bytes(2, 2, 2))[:9], 'toy is truncated: 9 bytes, expected at least 16'),
  (_idx(_bytes(2, 2, 2))[:-1],
   r'toy has 23 bytes, expected 24 for its shape \(2, 2, 2\)'),
  (_idx(_bytes(2, 2, 2)) + b'\n', 'toy has 25 bytes, expected 24'),
  # A product beyond 64 bits must not cause an allocation.
  (struct.pack('>4I', 2051, *[2**32 - 1] * 3), 'toy has 16 bytes, expected 79'),
])
def test_idx_refuses(content, message):
  with pytest.raises(ValueError, match=message) as caught:
    containers.idx(Blob('toy', content), num_axes=3)
  assert '\n' not in str(caught.value)


def test_idx_parts():
  arrays = [_bytes(3, 2, 4), _bytes(3), _bytes(2, 2, 4), _bytes(2)]
  parts = containers.idx_parts(*(Blob('', _idx(array)) for array in arrays))
  for part, x, y in zip(parts, arrays[::2], arrays[1::2], strict=True):
    np.testing.assert_array_equal(part.x, x[..., None])
    np.testing.assert_array_equal(part.y, y)


def test_cifar_binary_has_planes_after_the_label():
  """CIFAR files store red, green and blue planes row by row after the label."""
  red, green, blue = (np.full((32, 32), value, np.uint8) for value in (1, 2, 3))
  red[0, 31] = 77
  record = b'\x06' + red.tobytes() + green.tobytes() + blue.tobytes()
  other = b'\x09' + bytes(3072)
  split = containers.cifar_binary(Blob('b', record + other))
  assert split.x.shape == (2, 32, 32, 3)
  np.testing.assert_array_equal(split.y, [6, 9])
  np.testing.assert_array_equal(split.x[0, 0, 31], [77, 2, 3])
  np.testing.assert_array_equal(split.x[0, 31, 0], [1, 2, 3])
  assert not split.x[1].any()


def test_cifar_binary_parts_join_training_batches():
  blobs = [Blob('', bytes([k]) + bytes(3072)) for k in range(6)]
  parts = containers.cifar_binary_parts(*blobs)
  np.testing.assert_array_equal(parts.train.y, range(5))
  np.testing.assert_array_equal(parts.test.y, [5])
  assert parts.train.x.shape == (5, 32, 32, 3)


@pytest.mark.parametrize('size', [0, 3072, 3074])
def test_cifar_binary_refuses_parts_of_records(size):
  with pytest.raises(ValueError, match=(
      f'toy has {size} bytes, expected a multiple of 3073, ')):
    containers.cifar_binary(Blob('toy', bytes(size)))


def _npz(**arrays):
  file = io.BytesIO()
  np.savez(file, **arrays)
  return file.getvalue()


def _npy(array):
  file = io.BytesIO()
  np.save(file, array)
  return file.getvalue()


@pytest.mark.parametrize('channel', [(), (1,), (3,)])
@pytest.mark.parametrize('column', [(), (1,)])
def test_npz_parts(channel, column):
  arrays = dict(x_train=_bytes(3, 4, 5, *channel), y_train=_bytes(3, *column),
                x_test=_bytes(2, 4, 5, *channel), y_test=_bytes(2, *column))
  train, test = containers.npz_parts(Blob('', _npz(**arrays)))
  assert train.x.shape == (3, 4, 5, *(channel or (1,)))
  np.testing.assert_array_equal(train.x.ravel(), arrays['x_train'].ravel())
  np.testing.assert_array_equal(test.x.ravel(), arrays['x_test'].ravel())
  np.testing.assert_array_equal(train.y, arrays['y_train'].ravel())
  np.testing.assert_array_equal(test.y, arrays['y_test'].ravel())


WHOLE = dict(x_train=_bytes(2, 2, 2), y_train=_bytes(2),
             x_test=_bytes(2, 2, 2), y_test=_bytes(2))


@pytest.mark.parametrize('content, message', [
  (_npz(**WHOLE)[:-30], 'toy is a damaged npz file: '),
  (_npz(**WHOLE)[:300].ljust(2000, b'\0'), 'toy is a damaged npz file: '),
  (b'', 'toy is a damaged npz file: '),
  (b'no archive', 'toy is a damaged npz file: '),
  (_npy(_bytes(3)), 'toy is a damaged npz file: '),
  (_npz(x_train=_bytes(2, 2, 2)), 'toy: .*y_train'),
  (_npz(**{**WHOLE, 'y_test': np.array([{}, 1], object)}),
   'toy is a damaged npz file: .*allow_pickle=False'),
])
def test_npz_refuses(content, message):
  with pytest.raises(ValueError, match=message) as caught:
    containers.npz_parts(Blob('toy', content))
  assert '\n' not in str(caught.value)


def test_npy():
  np.testing.assert_array_equal(
    containers.npy(Blob('', _npy(np.arange(3)))), [0, 1, 2])
  for content in (b'', _npy(np.arange(3))[:-2], b'\x93NUMPYjunk',
                  _npy(np.array([None], object))):
    with pytest.raises(ValueError, match='toy is a damaged npy file: '):
      containers.npy(Blob('toy', content))


def _webp(pixels):
  file = io.BytesIO()
  Image.fromarray(pixels).save(file, format='WEBP', lossless=True)
  return file.getvalue()


def test_mosaic_is_cut_row_by_row():
  images = _bytes(6, 4, 4, 3)
  rows = [np.concatenate(images[3 * k:3 * k + 3], axis=1) for k in range(2)]
  blob = Blob('', _webp(np.concatenate(rows, axis=0)))
  np.testing.assert_array_equal(
    containers.mosaic(blob, grid=(2, 3), size=4), images)


def test_mosaics_of_cifar_have_100_rows_of_100_images():
  labels, small = Blob('y', _npy(np.zeros(1, np.uint8))), Blob(
    'toy', _webp(_bytes(8, 8, 3)))
  with pytest.raises(ValueError, match='toy has 8 x 8 pixels, expected '
                     '3200 x 3200'):
    containers.mosaic_parts(labels, labels, small, small)


def test_mosaic_parts():
  batches = _bytes(3, 2, 4, 4, 3)
  labels = [np.array([1, 2, 3, 4], np.uint8), np.array([5, 6], np.uint8)]
  train, test = containers.mosaic_parts(
    *(Blob('', _npy(y)) for y in labels),
    *(Blob('', _webp(np.concatenate(batch, axis=1))) for batch in batches),
    grid=(1, 2), size=4)
  np.testing.assert_array_equal(train.x, batches[:2].reshape(4, 4, 4, 3))
  np.testing.assert_array_equal(test.x, batches[2])
  np.testing.assert_array_equal(train.y, labels[0])
  np.testing.assert_array_equal(test.y, labels[1])


@pytest.mark.parametrize('content, message', [
  (b'', 'toy is a damaged image: '),
  (b'RIFF\x00\x00\x00\x00WEBPVP8L', 'toy is a damaged image: '),
  (_webp(_bytes(8, 8, 3))[:60], 'toy is a damaged image: '),
  (_webp(_bytes(8, 12, 3)), 'toy has 8 x 12 pixels, expected 8 x 8$'),
])
def test_mosaic_refuses(content, message):
  with pytest.raises(ValueError, match=message) as caught:
    containers.mosaic(Blob('toy', content), grid=(2, 2), size=4)
  assert '\n' not in str(caught.value)
