"""Selects by commit which share of a long list of tests a run takes.

Tests and experiments that take too long for every submission are divided into
shares, and each run takes one of them. The choice is a rotation, a hash of the
commit id. The same commit always takes the same share, and consecutive
submissions take independent, uniform shares, however many commits each has.
With N shares, k consecutive submissions all miss a given test with probability
(1 - 1/N)^k. Rotations 0 to N - 1 together take everything.
"""

from collections.abc import Sequence
import datetime
import hashlib
import pathlib
import re
import subprocess
from typing import NamedTuple
import zlib

ROTATING = 'rotating'


class Share(NamedTuple):
  """One of several disjoint shares whose union is everything.

  Attributes:
    number: number of the share, from 1 to `total`.
    total: number of shares.
  """
  number: int
  total: int

  def __str__(self) -> str:
    return f'{self.number}/{self.total}'


def of_checkout(root: pathlib.Path) -> int:
  """Returns the rotation of a checkout's commit, an integer in [0, 2^32).

  A copy without git has no commit; its rotation is the number of the day.
  """
  try:
    commit = subprocess.run(['git', 'rev-parse', 'HEAD'], cwd=root, check=True,
                            capture_output=True).stdout.strip()
  except (OSError, subprocess.CalledProcessError):
    return datetime.datetime.now(datetime.UTC).date().toordinal()
  return int.from_bytes(hashlib.sha256(commit).digest()[:4])


def parse(text: str, rotation: int) -> Share:
  """Parses a share.

  Args:
    text: 'I/N' for share I of N, from '1/N' to 'N/N'; or 'rotating/N' for the
      one that the rotation selects.
    rotation: rotation of the run.

  Raises:
    ValueError: if the text is no share.
  """
  match = re.fullmatch(rf'([0-9]+|{ROTATING})/([0-9]+)', text)
  if match and (total := int(match[2])):
    number = rotation % total + 1 if match[1] == ROTATING else int(match[1])
    if 1 <= number <= total:
      return Share(number, total)
  raise ValueError(f'a share is I/N with 1 <= I <= N, such as 3/8, or '
                   f'{ROTATING}/N; got {text!r}')


def takes(share: Share, name: str) -> bool:
  """Returns whether a name belongs to the share, by a hash of the name."""
  return zlib.crc32(name.encode()) % share.total == share.number - 1


def deal(share: Share, names: Sequence[str]) -> list[str]:
  """Returns every `total`-th name of a list, starting with the share's own."""
  return list(names[share.number - 1::share.total])


def keeps(table: str, position: int, step: int, rotation: int) -> bool:
  """Returns whether a run takes this case of a table of test cases.

  Of each block of `step` consecutive cases a run takes one, and `step`
  consecutive rotations take all of them. The table's name shifts the choice, so
  no rotation takes the first cases of all tables. From block to block the
  choice also moves by the Thue-Morse sequence, which is not periodic. In a
  table of two parameters a run therefore never takes only one value of a
  parameter, say a single adjacency in all its cases.

  Args:
    table: name of the table.
    position: index of the case, from 0.
    step: size of a block.
    rotation: rotation of the run.
  """
  shift = (position // step).bit_count() + zlib.crc32(table.encode())
  return (position + rotation + shift) % step == 0
