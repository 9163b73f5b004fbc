"""A server's folder: the state that must survive a crash.

Accepted messages, still sealed, are on disk before their receipt is sent. Noise
is on disk before any answer that contains it, and so is a mark that it may have
been released. A restarted server therefore uses the same noise or none.
"""

import io
import json
import os
import pathlib

import numpy as np

from dpjax import private_files
from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties.agreement import Agreement
from dpjax.report import files

_PRIVATE = 0o600
# File with the identity of released noise. A restarted server looks for this
# name: under another one it would take released noise for unreleased.
_RELEASED = 'told'


class Storage:
  """Files of one server in one study."""

  def __init__(self, folder: pathlib.Path, parameters: Agreement):
    """Opens the folder of a server.

    Raises:
      ValueError: if the folder was used for another study.
      PermissionError: if users other than its owner may have written to it.
    """
    private_files.check_folder(folder)
    self.folder = folder
    parameters_path = folder / 'parameters.json'
    if parameters_path.exists():
      other = parameters.differences(parameters_path.read_bytes())
      if other:
        raise ValueError(f'{folder} was used for another study: '
                         f'{", ".join(other)} differ')
    else:
      files.replace(parameters_path, parameters.to_bytes())
    # Unbuffered: entries survive a crash of this program.
    self._inbox = open(folder / 'inbox.log', 'ab', buffering=0)

  def keep(self, entries: bytes) -> None:
    """Appends entries of sealed messages to the log."""
    while entries:
      # Without a buffer a write may store a part, as when a disk fills up.
      entries = entries[self._inbox.write(entries):]

  def kept(self) -> list[tuple[int, bytes]]:
    """Returns (owner, sealed message) of all stored messages.

    An incomplete last entry is removed from the file. Its message never got a
    receipt, so its owner sends it again.
    """
    data = (self.folder / 'inbox.log').read_bytes()
    messages, size = [], 0
    try:
      for owner, sealed in enrolment.entries(data):
        messages.append((owner, sealed))
        size += enrolment.ENTRY_BYTES + len(sealed)
    except enrolment.TornBatch:
      os.truncate(self.folder / 'inbox.log', size)
    return messages

  def write_dealt(self, data: bytes) -> None:
    """Stores a dealer's keys."""
    files.replace(self.folder / 'dealt.bin', data, _PRIVATE)

  def dealt(self) -> bytes | None:
    """Returns the stored keys of a dealer, or None."""
    path = self.folder / 'dealt.bin'
    return private_files.read(path) if path.exists() else None

  def write_noise(self, identity: str, accepted: np.ndarray,
                  noise: np.ndarray) -> None:
    """Stores a share of the noise and which owners [n] it is for.

    Args:
      identity: identity of the noise, equal on all servers.
      accepted: which owners' records are counted, bool [owners].
      noise: this server's share [classes, M].
    """
    buffer = io.BytesIO()
    np.savez(buffer, identity=identity, accepted=accepted, noise=noise)
    files.replace(self.folder / 'noise.npz', buffer.getvalue(), _PRIVATE)

  def noise(self) -> tuple[str, np.ndarray, np.ndarray] | None:
    """Returns what `write_noise` stored, or None."""
    path = self.folder / 'noise.npz'
    if not path.exists():
      return None
    with np.load(io.BytesIO(private_files.read(path))) as archive:
      return str(archive['identity']), archive['accepted'], archive['noise']

  def mark_released(self, identity: str) -> None:
    """Records that this noise may be part of an answer from now on."""
    files.replace(self.folder / _RELEASED, identity.encode())

  def released(self) -> str | None:
    """Returns the identity of noise that may be part of an answer, or None."""
    path = self.folder / _RELEASED
    return path.read_text() if path.exists() else None

  def mark_started(self) -> None:
    """Records that a server has run in this folder.

    Raises:
      ValueError: if one has run before.
    """
    try:
      certificates.write_secret(self.folder / 'started', b'')
    except FileExistsError:
      raise ValueError(
          f'{self.folder.name} has run before, and its rounds were lost when '
          'it ended: this study is over, start a new one') from None

  def write_report(self, report: dict[str, object]) -> None:
    """Writes the report for the operator of the server."""
    files.replace(self.folder / 'report.json',
                  json.dumps(report, indent=1).encode())

  def close(self) -> None:
    """Closes the log of messages."""
    self._inbox.close()


def enrolment_key(folder: pathlib.Path) -> bytes:
  """Returns the key from which a server derives its owners' tokens.

  The first call creates it.
  """
  path = folder / 'enrolment.key'
  if not path.exists():
    certificates.write_secret(path, os.urandom(enrolment.KEY_BYTES))
  return private_files.read(path)
