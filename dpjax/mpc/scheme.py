"""The interface of secret-sharing schemes for counting ranks.

A scheme defines what an owner sends to each server, what a server computes from
these messages, and how the servers' answers are combined into the ranks
S_j = #{bin <= j}. With labels there is one curve of ranks per class. Bins and
points are integers from 0 to N - 1.

All parties are assumed to follow the protocol. Messages that no honest owner
could have sent are detected (`faults`). A message that counts its owner twice
is not, because a server cannot see what it adds. Servers see who sent a
message, and so the number of records. Source: Barczewski (2025, section 6.4;
items EC-13, EC-19, EC-20).
"""

import abc
from collections.abc import Mapping
import dataclasses

import numpy as np

from dpjax import errors
from dpjax.mpc import packing
from dpjax.mpc import prg

_NUMBERS = 2**22  # numbers read or written at once; bounds memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scheme(abc.ABC):
  """Base class of the secret-sharing schemes.

  Attributes:
    num_thresholds: N, at least 2.
    num_servers: m.
    num_classes: 1, or 2 for records with labels 0 and 1, which stay secret.
  """
  num_thresholds: int
  num_servers: int
  num_classes: int = 1

  def __post_init__(self) -> None:
    errors.check_at_least('num_thresholds', self.num_thresholds, 2)
    if self.num_classes not in (1, 2):
      raise ValueError(f'num_classes must be 1 or 2, got {self.num_classes}')

  @property
  @abc.abstractmethod
  def needed(self) -> int:
    """Returns how many servers must answer."""

  @property
  @abc.abstractmethod
  def colluding(self) -> int:
    """Returns t, how many servers together still learn nothing."""

  @property
  @abc.abstractmethod
  def modulus(self) -> int:
    """Returns the modulus of the opened numbers."""

  @abc.abstractmethod
  def layout(self, server: int) -> list[tuple[int, int]]:
    """Returns the fields (count, bits of each) of a message to a server."""

  @abc.abstractmethod
  def _shares(self, bins: np.ndarray, labels: np.ndarray,
              source: prg.Source) -> list[np.ndarray]:
    """Returns `shares` of checked int64 bins and labels [n]."""
    ...

  @abc.abstractmethod
  def _ranks(self, server: int, fields: list[np.ndarray],
             points: np.ndarray) -> np.ndarray:
    """Returns a server's share of the ranks [classes, m] from fields."""
    ...

  @abc.abstractmethod
  def share_values(self, values: np.ndarray,
                   source: prg.Source) -> np.ndarray:
    """Returns shares [m, ...] of integers [...], to be added to answers."""

  @abc.abstractmethod
  def _open(self, answers: np.ndarray, servers: list[int]) -> np.ndarray:
    """Returns signed totals [...] from answers [servers, ...]."""
    ...

  def bits(self, server: int) -> int:
    """Returns the length in bits of an owner's message to a server."""
    return sum(count * size for count, size in self.layout(server))

  @property
  def bits_per_owner(self) -> int:
    """Returns the length in bits of an owner's messages to all servers."""
    return sum(map(self.bits, range(self.num_servers)))

  @property
  def answer_bits(self) -> int:
    """Returns the length in bits of one number of a server's answer."""
    return (self.modulus - 1).bit_length()

  def shares(self, bins: np.ndarray, *, source: prg.Source,
             labels: np.ndarray | None = None) -> list[np.ndarray]:
    """Returns, for each server, the owners' messages, uint8 [n, bytes].

    Args:
      bins: the owners' bins [n], secret integers from 0 to N - 1.
      source: randomness; all secrecy rests on it.
      labels: the owners' secret labels [n], 0 or 1; required with two classes,
        None with one.
    """
    bins = np.asarray(bins)
    _check_below('bins', bins, self.num_thresholds)
    if (labels is None) != (self.num_classes == 1):
      raise ValueError('labels must be given with two classes, and only then')
    labels = np.zeros_like(bins) if labels is None else np.asarray(labels)
    _check_below('labels', labels, 2)
    # The last server's message has the most numbers in every scheme.
    parts = [self._shares(bins[part].astype(np.int64),
                          labels[part].astype(np.int64), source)
             for part in self._parts(self.num_servers - 1, len(bins))]
    return [np.concatenate(chunks) for chunks in zip(*parts, strict=True)]

  def faults(self, server: int, payloads: np.ndarray) -> np.ndarray:
    """Returns which messages [n] no honest owner can have sent, bool."""
    return np.concatenate([self._read(server, payloads[part])[1]
                           for part in self._parts(server, len(payloads))])

  def aggregate(self, server: int, payloads: np.ndarray,
                points: np.ndarray | None = None) -> np.ndarray:
    """Returns a server's share of the ranks [classes, m] at points [m].

    The share is of exact ranks: add noise before opening it.

    Args:
      server: number of the server, from 0.
      payloads: the owners' messages to it, uint8 [n, bytes].
      points: integers from 0 to N - 1; None for all of them.

    Raises:
      ValueError: if messages have another length or one is malformed; names
        the first such row.
    """
    points = np.arange(self.num_thresholds) if points is None else np.asarray(
        points)
    _check_below('points', points, self.num_thresholds)
    total = np.zeros((self.num_classes, points.size), np.uint64)
    for part in self._parts(server, len(payloads)):
      fields, bad = self._read(server, payloads[part])
      packing.refuse_rows(bad, first=part.start)
      total = self.add(total, self._ranks(server, fields, points))
    return total

  def _parts(self, server: int, num_rows: int) -> list[slice]:
    """Returns the slices of rows to handle one after another, at least one."""
    numbers = sum(count for count, _ in self.layout(server))
    step = max(1, _NUMBERS // numbers)
    return [slice(start, start + step)
            for start in range(0, max(num_rows, 1), step)]

  def _read(self, server: int, payloads: np.ndarray
            ) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns the fields of messages, and which messages are malformed."""
    fields, bad = packing.unpack(payloads, self.layout(server))
    return fields, bad | self._out_of_range(fields)

  def _out_of_range(self, fields: list[np.ndarray]) -> np.ndarray:
    """Returns which messages have numbers that are not below the modulus."""
    return np.zeros(len(fields[0]), bool)

  def add(self, answer: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Returns sums of shares; inputs must be below the modulus; broadcasts."""
    # Sums below 2^64 do not overflow; modulo 2^64 wrapping is right.
    return self._reduced(answer + noise)

  def subtract(self, answer: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Returns differences of shares."""
    # A modulus of 2^64 does not fit in uint64; it becomes 0, and 0 - x wraps
    # around to 2^64 - x.
    return self._reduced(answer + (np.uint64(self.modulus % 2**64) - other))

  def _reduced(self, values: np.ndarray) -> np.ndarray:
    if self.modulus == 2**64:
      return values
    return values % np.uint64(self.modulus)

  def combine(self, answers: Mapping[int, np.ndarray]) -> np.ndarray:
    """Combines the servers' answers into noisy ranks, int64 [...].

    Args:
      answers: shares [...] by number of the server.

    Raises:
      ValueError: if there are too few answers, or they contradict each other.
    """
    servers = sorted(answers)
    if len(servers) < self.needed:
      raise ValueError(f'{self.needed} servers have to answer, got answers of '
                       f'{servers}')
    return self._open(np.stack([answers[server] for server in servers]),
                      servers)


def _check_below(name: str, values: np.ndarray, bound: int) -> None:
  """Raises a ValueError unless values are a vector of 0, ..., bound - 1."""
  if not np.issubdtype(values.dtype, np.integer) or values.ndim != 1:
    raise ValueError(f'{name} must be a vector of whole numbers, got '
                     f'{values.dtype} of shape {values.shape}')
  if values.size and not 0 <= values.min() <= values.max() < bound:
    raise ValueError(f'{name} must lie between 0 and {bound - 1}, got '
                     f'{values.min()} to {values.max()}')
