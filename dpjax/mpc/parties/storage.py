"""A server's folder: what it must not forget when it is killed.

Accepted messages are on disk before their receipt is sent, sealed as they came.
Noise is on disk before anything is told that has it, and a mark that it was
told before it is: a server that starts again uses the same noise or none.
"""

import io
import json
import os
import pathlib

import numpy as np

from dpjax import private_files
from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import parameters as public
from dpjax.report import files

_PRIVATE = 0o600


class Storage:
  """Files of one server in one study."""

  def __init__(self, folder: pathlib.Path, parameters: public.Parameters):
    """Opens the folder, or refuses one that was used for another study.

    Raises:
      ValueError: if it was.
      PermissionError: if others than its owner may have written to it.
    """
    private_files.check_folder(folder)
    self.folder = folder
    told = folder / 'parameters.json'
    if told.exists():
      other = parameters.differences(told.read_bytes())
      if other:
        raise ValueError(f'{folder} was used for another study: '
                         f'{", ".join(other)} differ')
    else:
      files.replace(told, parameters.to_bytes())
    self._inbox = open(folder / 'inbox.log', 'ab', buffering=0)

  def keep(self, entries: bytes) -> None:
    """Appends entries of sealed messages."""
    self._inbox.write(entries)

  def kept(self) -> list[tuple[int, bytes]]:
    """(owner, sealed message) of all that were kept; a torn last one is lost.

    It never got a receipt, so its owner sends it again.
    """
    data = (self.folder / 'inbox.log').read_bytes()
    found, size = [], 0
    try:
      for owner, sealed in enrolment.entries(data):
        found.append((owner, sealed))
        size += enrolment.ENTRY_BYTES + len(sealed)
    except enrolment.TornBatch:
      os.truncate(self.folder / 'inbox.log', size)
    return found

  def write_dealt(self, data: bytes) -> None:
    """Keeps a dealer's keys."""
    files.replace(self.folder / 'dealt.bin', data, _PRIVATE)

  def dealt(self) -> bytes | None:
    """A dealer's keys, if they came."""
    path = self.folder / 'dealt.bin'
    return private_files.read(path) if path.exists() else None

  def write_noise(self, identity: str, accepted: np.ndarray,
                  noise: np.ndarray) -> None:
    """Keeps what was drawn: a share of noise, for these owners [n]."""
    buffer = io.BytesIO()
    np.savez(buffer, identity=identity, accepted=accepted, noise=noise)
    files.replace(self.folder / 'noise.npz', buffer.getvalue(), _PRIVATE)

  def noise(self) -> tuple[str, np.ndarray, np.ndarray] | None:
    """What `write_noise` kept, if it did."""
    path = self.folder / 'noise.npz'
    if not path.exists():
      return None
    with np.load(io.BytesIO(private_files.read(path))) as found:
      return str(found['identity']), found['accepted'], found['noise']

  def mark_told(self, identity: str) -> None:
    """From here on this noise may be part of an answer."""
    files.replace(self.folder / 'told', identity.encode())

  def told(self) -> str | None:
    """The noise that may be part of an answer."""
    path = self.folder / 'told'
    return path.read_text() if path.exists() else None

  def write_report(self, report: dict[str, object]) -> None:
    """What happened here, for whoever runs the server."""
    files.replace(self.folder / 'report.json',
                  json.dumps(report, indent=1).encode())

  def close(self) -> None:
    """Closes files."""
    self._inbox.close()


def enrolment_key(folder: pathlib.Path) -> bytes:
  """The key by which a server knows its owners; made at the first call."""
  path = folder / 'enrolment.key'
  if not path.exists():
    certificates.write_secret(path, os.urandom(enrolment.KEY_BYTES))
  return private_files.read(path)
