"""Finds, verifies and downloads the original files of data sets.

A file is searched in `<data_dir>/<dataset>/` and in `<data_dir>/`, plain or
packed with gzip. Only `fetch` uses the network, and it runs only on request.
"""

import dataclasses
import hashlib
import io
import os
import pathlib
import urllib.request
import zipfile
import zlib

from dpjax import unpacking

_VARIABLE = 'DPJAX_DATA_DIR'
# The first bytes of a file tell whether it is packed; its name may not.
_GZIP_MAGIC = b'\x1f\x8b'


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSpec:
  """The name and checksum of one original file.

  Attributes:
    name: the publisher's file name.
    sha256: hexadecimal SHA-256 of the unpacked bytes; '' if unknown, and then
      only `read_unverified` reads the file.
    alternatives: other accepted names, which may include a folder.
  """
  name: str
  sha256: str
  alternatives: tuple[str, ...] = ()


def resolve_data_dir(data_dir: str | os.PathLike[str] | None = None
                     ) -> pathlib.Path | None:
  """Returns `data_dir`, else $DPJAX_DATA_DIR, else None; '' counts as not set.
  """
  chosen = data_dir or os.environ.get(_VARIABLE)
  return pathlib.Path(chosen).expanduser() if chosen else None


def find(spec: FileSpec, dataset: str, *,
         data_dir: str | os.PathLike[str] | None = None) -> pathlib.Path | None:
  """Returns the first path where the file exists, or None."""
  for folder in _folders(dataset, data_dir=data_dir):
    for name in (spec.name, *spec.alternatives):
      if (folder / name).is_file():
        return folder / name
  return None


def read(spec: FileSpec, dataset: str, *, source: str,
         data_dir: str | os.PathLike[str] | None = None) -> bytes:
  """Returns the file's unpacked bytes after checking their SHA-256.

  Args:
    spec: name and checksum of the file.
    dataset: name of the data set and of its folder.
    source: where to get the file, in words, for the message.
    data_dir: data folder; default $DPJAX_DATA_DIR.

  Raises:
    FileNotFoundError: the file is missing; the message names the source.
    ValueError: the file is not the original.
  """
  path = find(spec, dataset, data_dir=data_dir)
  if path is None:
    raise not_found(dataset, spec.name, source=source, data_dir=data_dir)
  content = read_unverified(path)
  verify(content, spec, where=str(path))
  return content


def read_unverified(path: pathlib.Path) -> bytes:
  """Returns a file's unpacked bytes.

  Raises:
    ValueError: a gzip file is damaged or unpacks to more than
      `unpacking.limit`.
  """
  return _unpack(path.read_bytes(), where=str(path))


def not_found(dataset: str, what: str, *, source: str,
              data_dir: str | os.PathLike[str] | None = None
              ) -> FileNotFoundError:
  """Returns the error for a missing file, which `what` describes.

  The caller raises it. The other arguments are those of `read`.
  """
  folders = _folders(dataset, data_dir=data_dir)
  where = ' and '.join(str(folder) for folder in folders) or 'no folder'
  return FileNotFoundError(
    f'{dataset}: {what} not found (looked in {where}); get it from {source}, '
    f'and let --data_dir or {_VARIABLE} point to its folder')


def verify(content: bytes, spec: FileSpec, *, where: str) -> None:
  """Raises `ValueError` unless `content` has the SHA-256 of `spec`."""
  # A gzip header may hold a name and a time, so it is not hashed.
  digest = hashlib.sha256(content).hexdigest()
  if digest != spec.sha256:
    raise ValueError(
      f'{where} is not the original {spec.name}: its SHA-256 is '
      f'{digest[:12]}..., expected {spec.sha256[:12]}...')


def fetch(specs: tuple[FileSpec, ...], dataset: str, *, url: str,
          data_dir: str | os.PathLike[str] | None = None) -> None:
  """Downloads a zip archive, verifies its files and stores them.

  Args:
    specs: files to extract, found in the archive by their names.
    dataset: name of their folder in the data folder.
    url: address of the zip archive.
    data_dir: data folder; default $DPJAX_DATA_DIR.

  Raises:
    ValueError: no data folder is given, or the archive or a file is not the
      original; nothing is stored then.
    OSError: the address cannot be read.
  """
  root = resolve_data_dir(data_dir)
  if root is None:
    raise ValueError(f'a download needs --data_dir or {_VARIABLE}')
  # All files are verified before the first one is written.
  with urllib.request.urlopen(url, timeout=60) as response:
    contents = _extract(response.read(), specs, url=url)
  (root / dataset).mkdir(parents=True, exist_ok=True)
  for name, content in contents.items():
    # Renamed when complete, so that a broken write leaves no partial file.
    part = root / dataset / f'{name}.part'
    part.write_bytes(content)
    part.replace(root / dataset / name)


def _extract(packed: bytes, specs: tuple[FileSpec, ...], *, url: str
             ) -> dict[str, bytes]:
  """Returns the verified files of a zip archive, by name."""
  contents = {}
  try:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
      # Only the last part of a member's path counts, so it cannot lead
      # to another folder.
      members = {pathlib.PurePosixPath(member).name: member
                 for member in archive.namelist()}
      for spec in specs:
        contents[spec.name] = archive.read(members[spec.name])
        verify(contents[spec.name], spec, where=f'{url}: {spec.name}')
  except (zipfile.BadZipFile, zlib.error) as error:
    raise ValueError(f'{url} is a damaged zip archive: {error}') from None
  except KeyError as error:
    raise ValueError(f'{url} does not contain {error}') from None
  return contents


def _folders(dataset: str, *, data_dir: str | os.PathLike[str] | None
             ) -> tuple[pathlib.Path, ...]:
  """Returns the folders to search, in order."""
  root = resolve_data_dir(data_dir)
  # Its own folder comes first: several data sets have a file data.csv.
  return () if root is None else (root / dataset, root)


def _unpack(content: bytes, *, where: str) -> bytes:
  """Returns the content of a gzip file; other content unchanged."""
  if not content.startswith(_GZIP_MAGIC):
    return content
  try:
    return unpacking.gunzip(io.BytesIO(content)).read()
  except unpacking.ExpandedError as error:
    raise ValueError(f'{where} {error}') from None
  except (EOFError, OSError, zlib.error) as error:
    raise ValueError(f'{where} is a damaged gzip file: {error}') from None
