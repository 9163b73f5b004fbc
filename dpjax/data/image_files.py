"""Finds image data sets on disk in several formats, verifies and sorts them.

*Verification.* Files with a known checksum are compared with it. The content
is verified for every format: each record (its label as one byte, then its
pixels) is hashed with SHA-256, and the hash of the sorted hashes is known for
both parts. It does not depend on the order of records, which differs between
formats, but any changed pixel, label or part changes it. Verification is only
for public benchmarks: rejecting a private data set because one record is
missing would reveal that record.

*Order.* Records are sorted by their hashes, so a random key selects the same
records for every format.
"""

from collections.abc import Callable
import dataclasses
import hashlib
import os
import pathlib
from typing import NamedTuple

import numpy as np

from dpjax.data import containers
from dpjax.data import files
from dpjax.data import images
from dpjax.data import tfds_records

Images = containers.Images
Parts = containers.Parts


class Contents(NamedTuple):
  """The expected content of a part.

  Attributes:
    num_examples: number of records.
    sha256: hash of the set of records, see `order_and_digest`.
  """
  num_examples: int
  sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Container:
  """A format in which a data set may be stored.

  Attributes:
    title: description for messages.
    files: the files of this format; all are needed.
    read: maps the files in memory, in this order, to the two parts.
  """
  title: str
  files: tuple[files.FileSpec, ...]
  read: Callable[..., Parts]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSpec:
  """The public description of an image data set.

  Attributes:
    name: name of its folder, and of the data set in TFDS.
    image_shape: height, width and channels.
    class_names: one name for each class, at most 256.
    train: expected content of the publisher's training part.
    test: expected content of the test part.
    source: where to get the files, in words.
    licence: licence of the data.
    containers: formats to search for, in this order.
    max_value: largest possible pixel value.
    embedded: function that returns a copy without files, or None.
  """
  name: str
  image_shape: tuple[int, int, int]
  class_names: tuple[str, ...]
  train: Contents
  test: Contents
  source: str
  licence: str
  containers: tuple[Container, ...] = ()
  max_value: int = 255
  embedded: Callable[[], Parts] | None = None

  @property
  def num_classes(self) -> int:
    """Returns the number of classes."""
    return len(self.class_names)

  @property
  def num_examples(self) -> int:
    """Returns the number of records in both parts together."""
    return self.train.num_examples + self.test.num_examples


def load(spec: ImageSpec, *, data_dir: str | os.PathLike[str] | None = None,
         download: bool = False) -> images.ImageDataset:
  """Reads a data set from the first format in which it is found.

  The order is: a folder prepared by TFDS, the containers of `spec`, an embedded
  copy. Damaged files raise an error; no other format is tried instead.

  Args:
    spec: description of the data set.
    data_dir: data folder; default $DPJAX_DATA_DIR.
    download: whether TFDS may download and prepare a missing data set; else
      the network is not used.

  Returns:
    Both parts, sorted by record hash.

  Raises:
    FileNotFoundError: the data set is missing; the message names a source.
    ValueError: the content is not the published one.
    ImportError: a download needs packages that are not installed.
  """
  location_and_parts = _read(spec, data_dir=data_dir)
  if location_and_parts is None and download:
    tfds_records.prepare(spec.name, data_dir=data_dir)
    location_and_parts = _read(spec, data_dir=data_dir)
  if location_and_parts is None:
    raise files.not_found(
      spec.name, _wanted(spec, data_dir=data_dir), source=spec.source,
      data_dir=data_dir)
  where, parts = location_and_parts
  return images.ImageDataset(
    name=spec.name, class_names=spec.class_names, max_value=spec.max_value,
    train=_verify(parts.train, spec, spec.train, where=f'{where}: training'),
    test=_verify(parts.test, spec, spec.test, where=f'{where}: test'))


def cache(spec: ImageSpec, *, data_dir: str | os.PathLike[str] | None = None
          ) -> pathlib.Path:
  """Stores a decoded data set as `<data_dir>/<name>/<name>.npz`.

  The mosaics of CIFAR-10 take seconds to decode; its npz file has 184 MB.

  Raises:
    ValueError: no data folder is given; also all errors of `load`.
  """
  root = files.resolve_data_dir(data_dir)
  if root is None:
    raise ValueError('a cache needs --data_dir or DPJAX_DATA_DIR')
  dataset = load(spec, data_dir=data_dir)
  # `load` searches for an npz file of this name.
  path = root / spec.name / f'{spec.name}.npz'
  path.parent.mkdir(parents=True, exist_ok=True)
  part = path.with_suffix('.part')
  with part.open('wb') as file:
    np.savez(file, x_train=dataset.train.x, y_train=dataset.train.y,
             x_test=dataset.test.x, y_test=dataset.test.y)
  # Renamed when complete, so that a broken write leaves no partial file.
  return part.replace(path)


def order_and_digest(part: Images) -> tuple[np.ndarray, str]:
  """Returns the order of the records by hash, and a hash of their set.

  Args:
    part: n records with labels in [0, 256).

  Returns:
    Row numbers [n] in the order of the records' SHA-256, and the hexadecimal
    SHA-256 of these hashes concatenated in that order.
  """
  # One byte holds a label, since there are at most 256 classes.
  rows = np.concatenate(
    [part.y.astype(np.uint8)[:, None], part.x.reshape(len(part.x), -1)], axis=1)
  hashes = [hashlib.sha256(row).digest() for row in rows]
  # Records of equal hash are equal, so their order does not matter.
  order = sorted(range(len(hashes)), key=hashes.__getitem__)
  total = hashlib.sha256(b''.join(hashes[row] for row in order))
  return np.array(order, np.int32), total.hexdigest()


def _read(spec: ImageSpec, *, data_dir: str | os.PathLike[str] | None
          ) -> tuple[str, Parts] | None:
  """Returns where the data set was found, and its unverified parts."""
  folder = tfds_records.find(spec.name, data_dir=data_dir)
  if folder is not None:
    return str(folder), tfds_records.read(folder)
  for container in spec.containers:
    if not _missing(container, spec, data_dir=data_dir):
      blobs = [_blob(file, spec, data_dir=data_dir) for file in container.files]
      return f'{spec.name} from {container.title}', container.read(*blobs)
  if spec.embedded is not None:
    return f'{spec.name}, embedded', spec.embedded()
  return None


def _missing(container: Container, spec: ImageSpec, *,
             data_dir: str | os.PathLike[str] | None) -> list[str]:
  """Returns the names of the container's files that were not found."""
  return [file.name for file in container.files
          if files.find(file, spec.name, data_dir=data_dir) is None]


def _wanted(spec: ImageSpec, *, data_dir: str | os.PathLike[str] | None) -> str:
  """Describes the formats searched for, with missing files if some exist."""
  formats = [f'folder {spec.name}/<version> with ArrayRecord files of TFDS']
  for container in spec.containers:
    missing = _missing(container, spec, data_dir=data_dir)
    # A format without any file is named, but its files are not listed.
    partly = len(missing) < len(container.files)
    formats.append(container.title + (
      f' (only {", ".join(missing)} missing)' if partly else ''))
  return ' or '.join(formats)


def _blob(file: files.FileSpec, spec: ImageSpec, *,
          data_dir: str | os.PathLike[str] | None) -> containers.Blob:
  """Reads a file, and verifies its checksum if that is known."""
  path = files.find(file, spec.name, data_dir=data_dir)
  if path is None:
    raise files.not_found(spec.name, file.name, source=spec.source,
                          data_dir=data_dir)
  content = files.read_unverified(path)
  if file.sha256:
    files.verify(content, file, where=str(path))
  return containers.Blob(str(path), content)


def _verify(part: Images, spec: ImageSpec, expected: Contents, *,
            where: str) -> Images:
  """Verifies a part; returns it sorted by hash, with int32 labels."""
  x, y = part
  if x.dtype != np.uint8 or x.shape[1:] != spec.image_shape:
    raise ValueError(f'{where} images must be uint8 of shape '
                     f'{spec.image_shape}, got {x.dtype} of {x.shape[1:]}')
  if y.shape != x.shape[:1]:
    raise ValueError(f'{where} part has {len(x)} images, but labels of shape '
                     f'{y.shape}')
  if y.dtype.kind not in 'iu':
    raise ValueError(f'{where} labels must be integers, got {y.dtype}')
  valid = (y >= 0) & (y < spec.num_classes)
  if not valid.all():
    row = int(np.argmin(valid))
    raise ValueError(f'{where} labels must be in [0, {spec.num_classes}), got '
                     f'{y[row]} in record {row}')
  if len(x) != expected.num_examples:
    raise ValueError(f'{where} part has {len(x)} records, expected '
                     f'{expected.num_examples}')
  order, digest = order_and_digest(Images(x, y))
  if digest != expected.sha256:
    raise ValueError(
      f'{where} part is not the original: the SHA-256 of its records is '
      f'{digest[:12]}..., expected {expected.sha256[:12]}...')
  return Images(x[order], y[order].astype(np.int32))
