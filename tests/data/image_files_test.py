"""Tests dpjax.data.image_files: search order, verification and messages."""

import dataclasses
import gzip
import hashlib
import struct

import numpy as np
import pytest

from dpjax.data import containers
from dpjax.data import files
from dpjax.data import image_files
from dpjax.data import tfds_records

Images = containers.Images
RNG = np.random.default_rng(0)
TRAIN = Images(RNG.integers(0, 256, (6, 2, 3, 1), dtype=np.uint8),
               np.array([0, 1, 2, 0, 1, 2]))
TEST = Images(RNG.integers(0, 256, (2, 2, 3, 1), dtype=np.uint8),
              np.array([2, 0]))
PARTS = containers.Parts(TRAIN, TEST)
NAMES = ('train-x', 'train-y', 'test-x', 'test-y')


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch):
  monkeypatch.delenv('DPJAX_DATA_DIR', raising=False)


def _idx(array):
  header = struct.pack(f'>I{array.ndim}I', 2048 + array.ndim, *array.shape)
  return header + array.astype(np.uint8).tobytes()


IDX = dict(zip(NAMES, map(_idx, (
  TRAIN.x[..., 0], TRAIN.y, TEST.x[..., 0], TEST.y))))


def _contents(part):
  """Returns the digest computed anew: a hash of the sorted record hashes."""
  hashes = sorted(hashlib.sha256(bytes([int(y)]) + x.tobytes()).digest()
                  for x, y in zip(part.x, part.y))
  return image_files.Contents(
    len(part.x), hashlib.sha256(b''.join(hashes)).hexdigest())


def _file(name, *, sha256=''):
  return files.FileSpec(name=name, sha256=sha256, alternatives=(f'{name}.gz',))


NPZ = image_files.Container(
  title='toy.npz', files=(_file('toy.npz'),), read=containers.npz_parts)
SPEC = image_files.ImageSpec(
  name='toy', image_shape=(2, 3, 1), class_names=('a', 'b', 'c'),
  train=_contents(TRAIN), test=_contents(TEST), source='the shop',
  licence='none',
  containers=(
    image_files.Container(
      title='the IDX files', read=containers.idx_parts,
      files=tuple(_file(name, sha256=hashlib.sha256(content).hexdigest())
                  for name, content in IDX.items())),
    NPZ))


def _write_idx(folder, *, only=NAMES):
  folder.mkdir(parents=True, exist_ok=True)
  for name in only:
    (folder / f'{name}.gz').write_bytes(gzip.compress(IDX[name]))


def _write_npz(folder, train=TRAIN, test=TEST):
  folder.mkdir(parents=True, exist_ok=True)
  np.savez(folder / 'toy.npz', x_train=train.x, y_train=train.y,
           x_test=test.x, y_test=test.y)


def _load(data_dir, **changes):
  return image_files.load(dataclasses.replace(SPEC, **changes),
                          data_dir=data_dir)


def _same(first, second):
  for part, other in ((first.train, second.train), (first.test, second.test)):
    np.testing.assert_array_equal(part.x, other.x)
    np.testing.assert_array_equal(part.y, other.y)


def test_load_of_idx_files(tmp_path):
  _write_idx(tmp_path / 'toy')
  dataset = _load(tmp_path)
  assert dataset.name == 'toy' and dataset.num_classes == 3
  assert dataset.class_names == ('a', 'b', 'c') and dataset.max_value == 255
  assert dataset.train.x.dtype == np.uint8 and dataset.train.y.dtype == np.int32
  for part, original in ((dataset.train, TRAIN), (dataset.test, TEST)):
    order, _ = image_files.order_and_digest(original)
    np.testing.assert_array_equal(part.x, original.x[order])
    np.testing.assert_array_equal(part.y, original.y[order])


def test_every_container_and_every_order_give_the_same(tmp_path):
  _write_idx(tmp_path / 'first' / 'toy')
  _write_npz(tmp_path / 'second')
  rows = np.array([3, 0, 5, 1, 4, 2])
  _write_npz(tmp_path / 'third', Images(TRAIN.x[rows], TRAIN.y[rows]))
  expected = _load(tmp_path / 'first')
  _same(_load(tmp_path / 'second'), expected)
  _same(_load(tmp_path / 'third'), expected)
  _same(_load(None, embedded=lambda: PARTS), expected)


def test_digest_does_not_depend_on_the_order():
  order, digest = image_files.order_and_digest(TRAIN)
  assert digest == _contents(TRAIN).sha256
  np.testing.assert_array_equal(np.sort(order), np.arange(6))
  for _ in range(5):
    rows = RNG.permutation(6)
    again, same = image_files.order_and_digest(
      Images(TRAIN.x[rows], TRAIN.y[rows]))
    assert same == digest
    np.testing.assert_array_equal(rows[again], order)


def _changed_pixel():
  x = TRAIN.x.copy()
  x[3, 1, 2, 0] ^= 1
  return Images(x, TRAIN.y), TEST


def _swapped_labels():
  return Images(TRAIN.x, TRAIN.y[[1, 0, 2, 3, 4, 5]]), TEST


def _moved_record():
  """Returns both parts after they have exchanged one record."""
  train_x, test_x = TRAIN.x.copy(), TEST.x.copy()
  train_y, test_y = TRAIN.y.copy(), TEST.y.copy()
  train_x[0], test_x[0] = TEST.x[0], TRAIN.x[0]
  train_y[0], test_y[0] = TEST.y[0], TRAIN.y[0]
  return Images(train_x, train_y), Images(test_x, test_y)


def _doubled_record():
  rows = [0, 0, 2, 3, 4, 5]
  return Images(TRAIN.x[rows], TRAIN.y[rows]), TEST


@pytest.mark.parametrize('change', [
  _changed_pixel, _swapped_labels, _moved_record, _doubled_record])
def test_changed_content_is_refused(change, tmp_path):
  parts = change()
  _write_npz(tmp_path, *parts)
  digest = _contents(parts[0]).sha256
  with pytest.raises(ValueError) as caught:
    _load(tmp_path)
  assert str(caught.value) == (
    f'toy from toy.npz: training part is not the original: the SHA-256 of its '
    f'records is {digest[:12]}..., expected {SPEC.train.sha256[:12]}...')


def test_test_part_is_verified_too(tmp_path):
  _write_npz(tmp_path, test=Images(TEST.x, TEST.y[::-1]))
  with pytest.raises(ValueError, match='toy.npz: test part is not the orig'):
    _load(tmp_path)


@pytest.mark.parametrize('train, message', [
  (Images(TRAIN.x[:-1], TRAIN.y),
   r'training part has 5 images, but labels of shape \(6,\)$'),
  (Images(TRAIN.x, np.array(3)), r'6 images, but labels of shape \(\)$'),
  (Images(TRAIN.x[:-1], TRAIN.y[:-1]), 'has 5 records, expected 6$'),
  (Images(TRAIN.x[:0], TRAIN.y[:0]), 'has 0 records, expected 6$'),
  (Images(TRAIN.x, np.array([0, 1, 3, 0, 1, 2])),
   r'training labels must be in \[0, 3\), got 3 in record 2$'),
  (Images(TRAIN.x, np.array([0, 1, 2, 0, -1, 2])), 'got -1 in record 4$'),
  # As a byte it would be a valid label.
  (Images(TRAIN.x, TRAIN.y + 256), 'got 256 in record 0$'),
  (Images(TRAIN.x, TRAIN.y.astype(float)),
   'training labels must be integers, got float64$'),
  (Images(TRAIN.x.astype(int), TRAIN.y),
   r'training images must be uint8 of shape \(2, 3, 1\), got int64 of '),
  (Images(TRAIN.x.reshape(6, 3, 2, 1), TRAIN.y), r'uint8 of \(3, 2, 1\)$'),
  (Images(TRAIN.x.ravel(), TRAIN.y), r'uint8 of \(\)$'),
])
def test_bad_content_is_one_line(train, message, tmp_path):
  _write_npz(tmp_path, train)
  with pytest.raises(ValueError, match=f'^toy from toy.npz: .*{message}'
                     ) as caught:
    _load(tmp_path)
  assert '\n' not in str(caught.value)


def test_damaged_container_is_not_replaced_by_the_next(tmp_path):
  _write_npz(tmp_path)
  _write_idx(tmp_path)
  (tmp_path / 'test-y.gz').write_bytes(gzip.compress(IDX['test-y'])[:-9])
  with pytest.raises(ValueError, match='test-y.gz is a damaged gzip file: '):
    _load(tmp_path)
  (tmp_path / 'test-y.gz').write_bytes(IDX['test-y'][:-1] + b'\x01')
  with pytest.raises(ValueError, match=(
      'test-y.gz is not the original test-y: its SHA-256 is ')):
    _load(tmp_path)
  # A damaged file of a later form is not even read.
  _write_idx(tmp_path)
  (tmp_path / 'toy.npz').write_bytes(b'damaged')
  assert _load(tmp_path).train.x.shape == (6, 2, 3, 1)


def test_incomplete_container_is_passed_over(tmp_path):
  _write_idx(tmp_path, only=NAMES[:3])
  _write_npz(tmp_path)
  _same(_load(tmp_path), _load(None, embedded=lambda: PARTS))


def test_prepared_folder_comes_first(tmp_path, monkeypatch):
  _write_idx(tmp_path)
  (tmp_path / 'toy' / '1.0.0').mkdir(parents=True)
  (tmp_path / 'toy' / '1.0.0' / 'toy-train.array_record-00000').touch()
  read = []

  def _read(folder):
    read.append(folder)
    return PARTS._replace(train=Images(TRAIN.x, TRAIN.y[::-1]))

  monkeypatch.setattr(tfds_records, 'read', _read)
  with pytest.raises(ValueError, match=(
      f'^{tmp_path / "toy" / "1.0.0"}: training part is not the original')):
    _load(tmp_path)
  assert read == [tmp_path / 'toy' / '1.0.0']


def test_missing_is_one_clear_line(tmp_path):
  wanted = 'folder toy/<version> with ArrayRecord files of TFDS or the IDX files'
  with pytest.raises(FileNotFoundError) as caught:
    _load(tmp_path)
  assert str(caught.value) == (
    f'toy: {wanted} or toy.npz not found (looked in {tmp_path / "toy"} and '
    f'{tmp_path}); get it from the shop, and let --data_dir or DPJAX_DATA_DIR '
    f'point to its folder')
  with pytest.raises(FileNotFoundError, match=r'\(looked in no folder\)'):
    _load(None)
  _write_idx(tmp_path, only=NAMES[1:3])
  with pytest.raises(FileNotFoundError, match=(
      r'IDX files \(only train-x, test-y missing\) or toy.npz not found')):
    _load(tmp_path)


def test_download_is_last_and_only_on_request(tmp_path, monkeypatch):
  prepared = []

  def _prepare(name, *, data_dir):
    prepared.append(name)
    _write_npz(data_dir)

  monkeypatch.setattr(tfds_records, 'prepare', _prepare)
  with pytest.raises(FileNotFoundError):
    image_files.load(SPEC, data_dir=tmp_path)
  assert not prepared
  for _ in range(2):  # The second time it is found without a download.
    image_files.load(SPEC, data_dir=tmp_path, download=True)
  assert prepared == ['toy']


def test_cache_is_read_like_the_original(tmp_path):
  _write_idx(tmp_path)
  expected = _load(tmp_path)
  path = image_files.cache(SPEC, data_dir=tmp_path)
  assert path == tmp_path / 'toy' / 'toy.npz'
  assert sorted(path.parent.iterdir()) == [path]
  _same(_load(tmp_path, containers=(NPZ,)), expected)
  assert image_files.cache(SPEC, data_dir=tmp_path) == path
  with pytest.raises(ValueError, match='a cache needs --data_dir or DPJAX_DA'):
    image_files.cache(SPEC)
