"""Image data sets on disk: found in any container, verified, put in order.

*What is verified.* Files whose checksum is known are compared with it. What
every container must agree with is the content: each record, its label as one
byte before its pixels, is hashed with SHA-256, and the hash of the sorted
hashes is known for both parts. It does not depend on the order of the
records, hence is one number for the original files, for a folder of TFDS,
which shuffles, and for a mosaic; a changed pixel, a label at another image
and a record in the other part change it. These sets are public benchmarks: to
refuse a set that lacks one record would tell of the record in a private one.

*Order.* Records are put in the order of their hashes, so that a key selects
the same records whichever container they came from.
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
  """What a part must contain.

  Attributes:
    num_examples: number of records.
    sha256: of the records in any order, see `order_and_digest`.
  """
  num_examples: int
  sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Container:
  """A form in which a data set is found.

  Attributes:
    title: for messages.
    files: all of them are needed.
    read: from the files in memory, in this order, to the two parts.
  """
  title: str
  files: tuple[files.FileSpec, ...]
  read: Callable[..., Parts]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSpec:
  """What is known about a data set before it is read.

  Attributes:
    name: name of its folder, and at TFDS.
    image_shape: height, width and channels.
    class_names: one for each class, 256 at most.
    train: contents of the publisher's training part.
    test: contents of the test part.
    source: where to get the files, in words.
    licence: of the data.
    containers: forms in which it is looked for, in this order.
    max_value: largest value that a pixel can take.
    embedded: returns a copy that needs no file, if there is one.
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
    """Number of classes."""
    return len(self.class_names)

  @property
  def num_examples(self) -> int:
    """Records in both parts together."""
    return self.train.num_examples + self.test.num_examples


def load(spec: ImageSpec, *, data_dir: str | os.PathLike | None = None,
         download: bool = False) -> images.ImageDataset:
  """Reads a data set from the first form in which it is found.

  Looks for a folder prepared by TFDS, for the containers of `spec` in their
  order, for an embedded copy. What is found but damaged is an error: nothing
  else is tried in its place.

  Args:
    spec: what to look for.
    data_dir: folder of the data; default $DPJAX_DATA_DIR.
    download: whether TFDS may download and prepare what was not found; the
      network is never used otherwise.

  Raises:
    FileNotFoundError: one line with what was looked for, where, and a source.
    ValueError: one line, if the content is not the published one.
    ImportError: one line, for a download without the packages it needs.
  """
  found = _read(spec, data_dir=data_dir)
  if found is None and download:
    tfds_records.prepare(spec.name, data_dir=data_dir)
    found = _read(spec, data_dir=data_dir)
  if found is None:
    raise files.not_found(
      spec.name, _wanted(spec, data_dir=data_dir), source=spec.source,
      data_dir=data_dir)
  where, parts = found
  return images.ImageDataset(
    name=spec.name, class_names=spec.class_names, max_value=spec.max_value,
    train=_verify(parts.train, spec, spec.train, where=f'{where}: training'),
    test=_verify(parts.test, spec, spec.test, where=f'{where}: test'))


def cache(spec: ImageSpec, *, data_dir: str | os.PathLike | None = None
          ) -> pathlib.Path:
  """Stores a data set, decoded, as `<data_dir>/<name>/<name>.npz`.

  For CIFAR-10, whose mosaics take seconds to decode. The file is 184 MB.

  Raises:
    ValueError: if no data folder is given, and whatever `load` raises.
  """
  root = files.resolve_data_dir(data_dir)
  if root is None:
    raise ValueError('a cache needs --data_dir or DPJAX_DATA_DIR')
  dataset = load(spec, data_dir=data_dir)
  path = root / spec.name / f'{spec.name}.npz'
  path.parent.mkdir(parents=True, exist_ok=True)
  part = path.with_suffix('.part')
  with part.open('wb') as file:
    np.savez(file, x_train=dataset.train.x, y_train=dataset.train.y,
             x_test=dataset.test.x, y_test=dataset.test.y)
  # Renamed when complete, so that a broken write leaves no half file.
  return part.replace(path)


def order_and_digest(part: Images) -> tuple[np.ndarray, str]:
  """Returns the order of the records by hash, and the hash of their set.

  Args:
    part: n records with labels in [0, 256).

  Returns:
    Row numbers [n], and the hexadecimal SHA-256 of the concatenated SHA-256
    of the records in that order.
  """
  rows = np.concatenate(
    [part.y.astype(np.uint8)[:, None], part.x.reshape(len(part.x), -1)], axis=1)
  hashes = [hashlib.sha256(row).digest() for row in rows]
  order = sorted(range(len(hashes)), key=hashes.__getitem__)
  total = hashlib.sha256(b''.join(hashes[row] for row in order))
  return np.array(order, np.int32), total.hexdigest()


def _read(spec, *, data_dir) -> tuple[str, Parts] | None:
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


def _missing(container, spec, *, data_dir) -> list[str]:
  return [file.name for file in container.files
          if files.find(file, spec.name, data_dir=data_dir) is None]


def _wanted(spec, *, data_dir) -> str:
  """Says what was looked for, and what of it is missing if not all."""
  wanted = [f'folder {spec.name}/<version> with ArrayRecord files of TFDS']
  for container in spec.containers:
    missing = _missing(container, spec, data_dir=data_dir)
    partly = len(missing) < len(container.files)
    wanted.append(container.title + (
      f' (only {", ".join(missing)} missing)' if partly else ''))
  return ' or '.join(wanted)


def _blob(file, spec, *, data_dir) -> containers.Blob:
  path = files.find(file, spec.name, data_dir=data_dir)
  content = files.read_unverified(path)
  if file.sha256:
    files.verify(content, file, where=str(path))
  return containers.Blob(str(path), content)


def _verify(part, spec, expected, *, where) -> Images:
  """Returns the part in the order of its hashes, its labels as int32."""
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
