"""Tests dpjax.data.tfds_records on a tiny data set that TFDS prepared."""

import importlib.util
import io
import shutil
import subprocess
import sys

import numpy as np
from PIL import Image
import pytest

from dpjax.data import containers
from dpjax.data import tfds_records

tfds = pytest.importorskip('tensorflow_datasets')
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch):
  monkeypatch.delenv('DPJAX_DATA_DIR', raising=False)


def _part(num_examples, shape):
  return containers.Images(
    RNG.integers(0, 256, (num_examples, *shape), dtype=np.uint8),
    np.arange(num_examples) % 4)


PARTS = {
  shape: containers.Parts(_part(11, shape), _part(3, shape))
  for shape in ((5, 4, 1), (5, 4, 3))}


def _png(image):
  file = io.BytesIO()
  Image.fromarray(image.squeeze()).save(file, format='PNG')
  return file.getvalue()


class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """A tiny data set with the features of TFDS's own MNIST and CIFAR-10."""
  VERSION = tfds.core.Version('1.2.3')
  url_infos = {}  # Nothing is downloaded, so there are no URLs.
  shape = (5, 4, 1)

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self, features=tfds.features.FeaturesDict({
        'image': tfds.features.Image(shape=self.shape),
        'label': tfds.features.ClassLabel(num_classes=4)}))

  def _split_generators(self, _):
    train, test = PARTS[self.shape]
    return {'train': self._generate_examples(train),
            'test': self._generate_examples(test)}

  def _generate_examples(self, part):
    for row, (x, y) in enumerate(zip(part.x, part.y)):
      yield row, {'image': _png(x), 'label': y}


@pytest.fixture(scope='module', params=sorted(PARTS), ids=str)
def prepared(request, tmp_path_factory):
  """Returns a data folder with `tiny/1.2.3`, and the records in it."""
  root = tmp_path_factory.mktemp('tfds')
  Tiny.shape = request.param
  Tiny(data_dir=root, file_format='array_record').download_and_prepare()
  return root, PARTS[request.param]


def _sorted(part):
  rows = sorted(range(len(part.x)), key=lambda row: part.x[row].tobytes())
  return part.x[rows], part.y[rows]


@pytest.mark.slow
def test_read(prepared):
  root, expected = prepared
  folder = tfds_records.find('tiny', data_dir=root)
  assert folder == root / 'tiny' / '1.2.3'
  for part, original in zip(tfds_records.read(folder), expected, strict=True):
    assert part.x.dtype == np.uint8 and part.y.dtype == np.int64
    # TFDS shuffles by its own hash, so records are compared sorted.
    np.testing.assert_array_equal(_sorted(part)[0], _sorted(original)[0])
    np.testing.assert_array_equal(_sorted(part)[1], _sorted(original)[1])


@pytest.mark.slow
def test_tensorflow_is_not_imported(prepared):
  root, expected = prepared
  code = (
    'import sys\n'
    'from dpjax.data import registry, tfds_records\n'
    'assert not {"PIL", "sklearn", "tensorflow_datasets"} & set(sys.modules)\n'
    f'folder = tfds_records.find("tiny", data_dir={str(root)!r})\n'
    'parts = tfds_records.read(folder)\n'
    'assert "tensorflow_datasets" in sys.modules\n'
    'print(parts.train.x.sum(), [name for name in sys.modules\n'
    '                            if name.split(".")[0] == "tensorflow"])\n')
  done = subprocess.run([sys.executable, '-c', code], capture_output=True,
                        text=True, check=True)
  assert done.stdout == f'{expected.train.x.sum()} []\n'


def test_find(tmp_path):
  assert tfds_records.find('tiny') is None
  assert tfds_records.find('tiny', data_dir=tmp_path) is None
  (tmp_path / 'tiny' / '1.0.0').mkdir(parents=True)
  (tmp_path / 'tiny' / '1.0.0' / 'tiny-train.tfrecord-00000').touch()
  assert tfds_records.find('tiny', data_dir=tmp_path) is None
  for version in ('3.0.1', '2.0.0'):
    (tmp_path / 'tiny' / version).mkdir()
    (tmp_path / 'tiny' / version / 'a.array_record-00000-of-00001').touch()
  assert tfds_records.find(
    'tiny', data_dir=tmp_path) == tmp_path / 'tiny' / '3.0.1'


@pytest.mark.every(2)
@pytest.mark.parametrize('name, content', [
  ('dataset_info.json', None), ('dataset_info.json', b'{'),
  ('features.json', None), ('tiny-train.array_record-00000-of-00001', None),
  ('tiny-train.array_record-00000-of-00001', b'no records'),
  ('tiny-test.array_record-00000-of-00001', b''),
])
def test_damaged_folder_is_one_line(prepared, tmp_path, name, content):
  folder = tmp_path / 'tiny' / '1.2.3'
  shutil.copytree(prepared[0] / 'tiny' / '1.2.3', folder)
  (folder / name).unlink()
  if content is not None:
    (folder / name).write_bytes(content)
  with pytest.raises(ValueError, match=(
      f'^{folder} is not a readable TFDS folder: .')) as caught:
    tfds_records.read(folder)
  assert '\n' not in str(caught.value)


def test_prepare_names_the_packages_it_lacks(monkeypatch, tmp_path):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ImportError) as caught:
    tfds_records.prepare('mnist', data_dir=tmp_path)
  assert str(caught.value) == (
    'to download and prepare mnist TFDS needs tensorflow-cpu and '
    'importlib_resources, not installed; reading the prepared files does not '
    'need them')
  with pytest.raises(ValueError, match='needs --data_dir or DPJAX_DATA_DIR'):
    tfds_records.prepare('mnist')


def test_prepare_makes_a_folder_that_is_found(monkeypatch, tmp_path):
  """The prepared folder is found, using a builder that needs no network."""
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: name)
  monkeypatch.setattr(tfds, 'builder', lambda name, **options: Tiny(**options))
  tfds_records.prepare('tiny', data_dir=tmp_path)
  folder = tfds_records.find('tiny', data_dir=tmp_path)
  assert tfds_records.read(folder).train.y.shape == (11,)
