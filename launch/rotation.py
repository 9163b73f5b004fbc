"""Chooses the share of a long list that one run takes, by the commit.

Tests and experiments that take too long for every submission are dealt into
shares, and each run takes one of them. The commit decides which: its rotation
is a hash of the commit's id, so that the same commit always takes the same
share, and consecutive submissions, however many commits each of them has, take
shares that are independent and uniform. What holds: of N shares, k submissions
in a row miss a given test with probability (1 - 1/N)^k; rotations 0 to N - 1
together take everything.
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
  """One of several disjoint shares that together are everything.

  Attributes:
    number: which share, from 1 to `count`.
    count: of shares.
  """
  number: int
  count: int

  def __str__(self) -> str:
    return f'{self.number}/{self.count}'


def of_checkout(root: pathlib.Path) -> int:
  """Returns the rotation of a checkout's commit, an integer in [0, 2^32).

  A copy without git has none; there the rotation is the number of the day.
  """
  try:
    commit = subprocess.run(['git', 'rev-parse', 'HEAD'], cwd=root, check=True,
                            capture_output=True).stdout.strip()
  except (OSError, subprocess.CalledProcessError):
    return datetime.datetime.now(datetime.UTC).date().toordinal()
  return int.from_bytes(hashlib.sha256(commit).digest()[:4])


def parse(text: str, rotation: int) -> Share:
  """Returns the share that a flag names.

  Args:
    text: 'I/N', share I of N, from '1/N' to 'N/N'; or 'rotating/N', the one
      that the rotation picks.
    rotation: of the run.

  Raises:
    ValueError: the text names no share.
  """
  match = re.fullmatch(rf'([0-9]+|{ROTATING})/([0-9]+)', text)
  count = int(match[2]) if match else 0
  if count:
    number = (rotation % count + 1 if match[1] == ROTATING else int(match[1]))
    if 1 <= number <= count:
      return Share(number, count)
  raise ValueError(f'a share is I/N with 1 <= I <= N, such as 3/8, or '
                   f'{ROTATING}/N; got {text!r}')


def takes(share: Share, name: str) -> bool:
  """Returns whether the share has this name; by a hash, so for any names."""
  return zlib.crc32(name.encode()) % share.count == share.number - 1


def deal(share: Share, names: Sequence[str]) -> list[str]:
  """Returns the share's part of a list that is dealt out in its order."""
  return list(names[share.number - 1::share.count])


def keeps(table: str, position: int, step: int, rotation: int) -> bool:
  """Returns whether a run takes this case of a table of which it takes few.

  One case of `step` consecutive ones is taken, a different one by each of
  `step` consecutive rotations. The table's name shifts the choice, so that no
  rotation takes the first cases of all tables. From one such block to the next
  the choice moves by the sequence of Thue and Morse, which has no period: in a
  table of two parameters no run takes one value of a parameter alone, say one
  adjacency in all its cases.

  Args:
    table: its name.
    position: of the case, from 0.
    step: the run takes one case of this many.
    rotation: of the run.
  """
  shift = (position // step).bit_count() + zlib.crc32(table.encode())
  return (position + rotation + shift) % step == 0
