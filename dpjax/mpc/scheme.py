"""What a way to split records among servers has to say and to do.

A scheme says what an owner sends to each server, what a server computes from
what it got, and how answers of servers become ranks S_j = #{bin <= j}, with
labels one curve for each class. Bins and points are from 0 to N - 1.

Everybody is assumed to follow the protocol. Messages that no owner could have
sent are found (`faults`), but not one that counts an owner twice: a server
cannot see what it adds. Servers see who sent, and so the number of records.
Source: thesis 003, section 6.4; item EC-13, EC-19, EC-20.
"""

import abc
from collections.abc import Mapping
import dataclasses

import numpy as np

from dpjax import errors
from dpjax.mpc import packing
from dpjax.mpc import prg

_NUMBERS = 2**22  # of messages that are read or written at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scheme(abc.ABC):
  """What all schemes share.

  Attributes:
    num_thresholds: N.
    num_servers: m.
    num_classes: 1, or 2 for records with labels 0 and 1, which stay hidden.
  """
  num_thresholds: int
  num_servers: int
  num_classes: int = 1

  def __post_init__(self):
    errors.check_at_least('num_thresholds', self.num_thresholds, 2)
    if self.num_classes not in (1, 2):
      raise ValueError(f'num_classes must be 1 or 2, got {self.num_classes}')

  @property
  @abc.abstractmethod
  def needed(self) -> int:
    """Servers that an answer needs."""

  @property
  @abc.abstractmethod
  def colluding(self) -> int:
    """Servers that learn nothing together: t."""

  @property
  @abc.abstractmethod
  def modulus(self) -> int:
    """Of the numbers that are opened."""

  @abc.abstractmethod
  def layout(self, server: int) -> list[tuple[int, int]]:
    """Fields (numbers, bits of each) of an owner's message to a server."""

  @abc.abstractmethod
  def _shares(self, bins, labels, source) -> list[np.ndarray]:
    ...

  @abc.abstractmethod
  def _ranks(self, server, fields, points) -> np.ndarray:
    ...

  @abc.abstractmethod
  def share_values(self, values: np.ndarray,
                   source: prg.Source) -> np.ndarray:
    """Shares [m, ...] of whole numbers [...] that answers can be added to."""

  @abc.abstractmethod
  def _open(self, answers: np.ndarray, servers: list[int]) -> np.ndarray:
    ...

  def bits(self, server: int) -> int:
    """Of an owner's message to a server."""
    return sum(count * size for count, size in self.layout(server))

  @property
  def bits_per_owner(self) -> int:
    """To all servers."""
    return sum(map(self.bits, range(self.num_servers)))

  @property
  def answer_bits(self) -> int:
    """Of one number of a server's answer."""
    return (self.modulus - 1).bit_length()

  def shares(self, bins: np.ndarray, *, source: prg.Source,
             labels: np.ndarray | None = None) -> list[np.ndarray]:
    """Messages of owners to each server, uint8 [n, bytes] for each of them.

    Args:
      bins: [n] whole numbers from 0 to N - 1.
      source: of randomness; all secrecy is in it.
      labels: [n] of 0 and 1 if there are two classes.
    """
    bins = np.asarray(bins)
    _check_below('bins', bins, self.num_thresholds)
    if (labels is None) != (self.num_classes == 1):
      raise ValueError('labels come with two classes, and only with them')
    labels = np.zeros_like(bins) if labels is None else np.asarray(labels)
    _check_below('labels', labels, 2)
    parts = [self._shares(bins[part].astype(np.int64),
                          labels[part].astype(np.int64), source)
             for part in self._parts(self.num_servers - 1, len(bins))]
    return [np.concatenate(each) for each in zip(*parts, strict=True)]

  def faults(self, server: int, payloads: np.ndarray) -> np.ndarray:
    """Which messages [n] no owner that follows the protocol can have sent."""
    return np.concatenate([self._read(server, payloads[part])[1]
                           for part in self._parts(server, len(payloads))])

  def aggregate(self, server: int, payloads: np.ndarray,
                points: np.ndarray | None = None) -> np.ndarray:
    """A server's share of ranks [classes, m] at points [m], or all points.

    It is opened with noise in it only.

    Raises:
      ValueError: for messages of another length, and for the first that is at
        fault, by its row.
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
    """Rows that are worked on at once: one part or more."""
    numbers = sum(count for count, _ in self.layout(server))
    step = max(1, _NUMBERS // numbers)
    return [slice(start, start + step)
            for start in range(0, max(num_rows, 1), step)]

  def _read(self, server, payloads):
    """Fields of messages, and which of them are at fault."""
    fields, bad = packing.unpack(payloads, self.layout(server))
    return fields, bad | self._out_of_range(fields)

  def _out_of_range(self, fields) -> np.ndarray:
    return np.zeros(len(fields[0]), bool)

  def add(self, answer: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Sums of shares, broadcast; of numbers below the modulus."""
    return self._reduced(answer + noise)

  def subtract(self, answer: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Differences of shares."""
    # 0 - x is 2^64 - x; what a modulus of 2^64 would be is 0 here.
    return self._reduced(answer + (np.uint64(self.modulus % 2**64) - other))

  def _reduced(self, values: np.ndarray) -> np.ndarray:
    if self.modulus == 2**64:
      return values
    return values % np.uint64(self.modulus)

  def combine(self, answers: Mapping[int, np.ndarray]) -> np.ndarray:
    """Noisy ranks int64 [...] of answers by number of the server.

    Raises:
      ValueError: for too few answers, and for some that contradict others.
    """
    servers = sorted(answers)
    if len(servers) < self.needed:
      raise ValueError(f'{self.needed} servers have to answer, got {servers}')
    return self._open(np.stack([answers[server] for server in servers]),
                      servers)


def _check_below(name: str, values: np.ndarray, bound: int) -> None:
  if not np.issubdtype(values.dtype, np.integer) or values.ndim != 1:
    raise ValueError(f'{name} must be a vector of whole numbers, got '
                     f'{values.dtype} of shape {values.shape}')
  if values.size and not 0 <= values.min() <= values.max() < bound:
    raise ValueError(f'{name} must lie between 0 and {bound - 1}, got '
                     f'{values.min()} to {values.max()}')
