"""Where rows come from: `provenance.json`, kept beside the rows.

It holds the digest of the configuration that the rows belong to, one entry in
`runs` for each different way in which some of them were made, and one in
`confirmed` for each sample of them that was made anew and gave the same values.
"""

import json
import os
import pathlib
from typing import Any

from dpjax.report import files

NAME = 'provenance.json'
FIELDS = ('command', 'commit', 'configuration', 'device', 'versions')


def _parse(path: files.Path, data: bytes) -> dict[str, Any]:
  if not data:
    return {'configuration': None, 'runs': []}
  try:
    found = json.loads(data)
    if {'configuration', 'runs'} <= found.keys():
      return found
  except (AttributeError, ValueError):
    pass
  raise ValueError(f'{path}: not a provenance file')


def read(path: files.Path) -> dict[str, Any]:
  """Returns what a provenance file says; no digest and no run if not there."""
  path = pathlib.Path(path)
  return _parse(path, path.read_bytes() if path.exists() else b'')


def write(path: files.Path, *, configuration: str, command: str, commit: str,
          device: str, versions: dict[str, str]) -> None:
  """Adds a run to a provenance file; a run already there is not repeated.

  Args:
    path: the JSON file.
    configuration: digest of the settings and columns the rows belong to.
    command: how to make the rows, without the paths of a machine.
    commit: version of the code.
    device: hardware.
    versions: name -> version of what the numbers may depend on.
  """
  run = dict(zip(FIELDS, (command, commit, configuration, device, versions),
                 strict=True))
  with files.locked(path, os.O_RDWR | os.O_CREAT) as descriptor:
    found = _parse(path, files.read_all(descriptor))
    _write(path, {**found, 'configuration': configuration,
                  'runs': _with(found['runs'], run)})


def confirm(path: files.Path, sample: dict[str, Any]) -> None:
  """Adds what is known of a sample of rows that was made anew.

  Args:
    path: the JSON file.
    sample: by which code it was made, how large it was and what it confirmed.
  """
  with files.locked(path, os.O_RDWR | os.O_CREAT) as descriptor:
    found = _parse(path, files.read_all(descriptor))
    _write(path, {**found, 'confirmed': _with(found.get('confirmed', []),
                                              sample)})


def _with(entries: list[Any], entry: Any) -> list[Any]:
  """Returns the entries and one more, each once, sorted."""
  return sorted([*entries, *([] if entry in entries else [entry])],
                key=lambda each: json.dumps(each, sort_keys=True))


def _write(path: files.Path, found: dict[str, Any]) -> None:
  text = json.dumps(found, indent=2, sort_keys=True)
  files.replace(path, text.encode() + b'\n')
