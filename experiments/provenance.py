"""The origin of rows: `provenance.json`, stored beside the rows.

The file holds the digest of the rows' configuration, an entry in `runs` for
each different run (command, code, device) that made some of the rows, and an
entry in `confirmed` for each sample of rows that was recomputed with equal
values.
"""

import json
import os
import pathlib
from typing import Any

from dpjax.report import files

NAME = 'provenance.json'
FIELDS = ('command', 'commit', 'configuration', 'device', 'versions')


def _parse(path: files.Path, data: bytes) -> dict[str, Any]:
  """Returns the content of a provenance file; raises for another file."""
  if not data:
    return {'configuration': None, 'runs': []}
  try:
    content = json.loads(data)
    if {'configuration', 'runs'} <= content.keys():
      return content
  except (AttributeError, ValueError):
    pass
  raise ValueError(f'{path}: not a provenance file')


def read(path: files.Path) -> dict[str, Any]:
  """Returns the content of a provenance file; an empty one if it is missing."""
  path = pathlib.Path(path)
  return _parse(path, path.read_bytes() if path.exists() else b'')


def write(path: files.Path, *, configuration: str, command: str, commit: str,
          device: str, versions: dict[str, str]) -> None:
  """Adds a run to a provenance file, unless an equal run is there.

  Args:
    path: the JSON file.
    configuration: digest of the settings and columns of the rows.
    command: command that makes the rows, without machine-specific paths.
    commit: version of the code.
    device: hardware.
    versions: versions, by name, of the packages that may affect the numbers.
  """
  run = dict(zip(FIELDS, (command, commit, configuration, device, versions),
                 strict=True))
  with files.locked(path, os.O_RDWR | os.O_CREAT) as descriptor:
    content = _parse(path, files.read_all(descriptor))
    _write(path, {**content, 'configuration': configuration,
                  'runs': _with(content['runs'], run)})


def merge(path: files.Path, other: files.Path) -> None:
  """Adds the runs and samples of another provenance file.

  The configuration stays, unless this file is new.
  """
  added = read(other)
  with files.locked(path, os.O_RDWR | os.O_CREAT) as descriptor:
    content = _parse(path, files.read_all(descriptor))
    for name in ('runs', 'confirmed'):
      for entry in added.get(name, []):
        content[name] = _with(content.get(name, []), entry)
    if content['configuration'] is None:
      content['configuration'] = added['configuration']
    _write(path, content)


def confirm(path: files.Path, sample: dict[str, Any]) -> None:
  """Adds a record of a sample of rows that was recomputed.

  Args:
    path: the JSON file.
    sample: the code that recomputed it, its size and the rows it confirmed.
  """
  with files.locked(path, os.O_RDWR | os.O_CREAT) as descriptor:
    content = _parse(path, files.read_all(descriptor))
    _write(path, {**content, 'confirmed': _with(content.get('confirmed', []),
                                              sample)})


def _with(entries: list[Any], entry: Any) -> list[Any]:
  """Returns the entries with one more, sorted and without duplicates."""
  return sorted([*entries, *([] if entry in entries else [entry])],
                key=lambda each: json.dumps(each, sort_keys=True))


def _write(path: files.Path, content: dict[str, Any]) -> None:
  text = json.dumps(content, indent=2, sort_keys=True)
  files.replace(path, text.encode() + b'\n')
