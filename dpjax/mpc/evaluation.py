"""Curves and averages as parties compute them, played in one process.

What owners, servers and a client do is here line by line, and every bit that
would be sent is counted; `costs` has the formulas. Noise is shared once, before
anything is asked, so that the same question has the same answer, and any number
of questions about one curve cost what the curve costs. Source: thesis 003,
sections 6.2.1 and 6.4; item EC-01, EC-13, EC-19.
"""

import abc
from collections.abc import Callable, Sequence
import dataclasses
import itertools
from typing import NamedTuple

import numpy as np

from dpjax import errors
from dpjax.mpc import additive
from dpjax.mpc import nodes
from dpjax.mpc import prg
from dpjax.mpc import scheme as schemes
from dpjax.mpc import shamir


class Opened(NamedTuple):
  """What everybody may see, and what it took.

  Attributes:
    totals: opened whole numbers with their noise, int64.
    bits: sent to answer; what was sent before is not in it.
  """
  totals: np.ndarray
  bits: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureCurve:
  """Owners that have sent once, servers that answer; made by `collect`.

  Attributes:
    scheme: how records are split.
    payloads: what each server got, [n, bytes] for each.
    noise: shares of the noise of dyadic nodes, [classes, M] for each server.
    num_rows: rows that have noise.
    root: whether they share that of one node.
  """
  scheme: schemes.Scheme
  payloads: Sequence[np.ndarray]
  noise: Sequence[np.ndarray]
  num_rows: int
  root: bool = True

  @property
  def bits(self) -> int:
    """That owners sent."""
    return sum(len(payload) * self.scheme.bits(server)
               for server, payload in enumerate(self.payloads))

  def answer(self, server: int, points: np.ndarray) -> np.ndarray:
    """What a server tells: its share of noisy ranks [classes, m]."""
    return self.scheme.add(
        self.scheme.aggregate(server, self.payloads[server], points),
        nodes.dyadic_rows(self.noise[server], points, self.num_rows,
                          root=self.root))

  def ask(self, points: np.ndarray) -> Opened:
    """Noisy ranks [classes, m] at points, by all servers."""
    answers = {server: self.answer(server, points)
               for server in range(self.scheme.num_servers)}
    index = (self.scheme.num_thresholds - 1).bit_length()
    sent = sum(points.size * index + share.size * self.scheme.answer_bits
               for share in answers.values())
    return Opened(self.scheme.combine(answers), sent)


def collect(scheme: schemes.Scheme, bins: np.ndarray, noise: np.ndarray, *,
            num_rows: int, source: prg.Source, root: bool = True,
            labels: np.ndarray | None = None) -> SecureCurve:
  """Owners send, and noise of nodes [classes, M] is shared.

  Here one hand shares noise that is known to it; servers do with
  `noise.Contributions`, each its part, or `joint_noise`.
  """
  return SecureCurve(
      scheme=scheme,
      payloads=scheme.shares(bins, labels=labels, source=source),
      noise=scheme.share_values(noise, source), num_rows=num_rows, root=root)


class Backend(abc.ABC):
  """Who adds up numbers of owners, in what form."""

  @abc.abstractmethod
  def share(self, values: np.ndarray, source: prg.Source) -> np.ndarray:
    """What each server gets of whole numbers [...]: [servers, ...]."""

  @abc.abstractmethod
  def combine(self, totals: np.ndarray) -> np.ndarray:
    """int64 [...] of what servers added up [servers, ...]."""

  @property
  @abc.abstractmethod
  def bits_per_value(self) -> int:
    """That an owner sends for one number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrustedCurator(Backend):
  """One server, which sees all numbers.

  Attributes:
    bits: of a number.
  """
  bits: int = 32

  def share(self, values: np.ndarray, source: prg.Source) -> np.ndarray:
    """The values."""
    del source
    return values.astype(np.uint64)[np.newaxis]

  def combine(self, totals: np.ndarray) -> np.ndarray:
    """Their sum."""
    return additive.centred(totals[0] & additive.mask(self.bits),
                            value_bits=self.bits)

  @property
  def bits_per_value(self) -> int:
    """k."""
    return self.bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditiveShares(Backend):
  """Servers of which all have to collude; see `additive`.

  Attributes:
    num_servers: m.
    bits: k.
  """
  num_servers: int
  bits: int = 32

  def share(self, values: np.ndarray, source: prg.Source) -> np.ndarray:
    """As `additive.share`."""
    return additive.share(values, num_parties=self.num_servers,
                          value_bits=self.bits, source=source)

  def combine(self, totals: np.ndarray) -> np.ndarray:
    """As `additive.combine`."""
    return additive.centred(
        additive.combine(totals, value_bits=self.bits), value_bits=self.bits)

  @property
  def bits_per_value(self) -> int:
    """m k."""
    return self.num_servers * self.bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShamirShares(Backend):
  """Servers of which any t + 1 answer, and t learn nothing; see `shamir`.

  Attributes:
    num_servers: m.
    num_colluding: t.
  """
  num_servers: int
  num_colluding: int

  def share(self, values: np.ndarray, source: prg.Source) -> np.ndarray:
    """As `shamir.share`."""
    return shamir.share(values, degree=self.num_colluding,
                        num_parties=self.num_servers, source=source)

  def combine(self, totals: np.ndarray) -> np.ndarray:
    """As `shamir.combine`."""
    return shamir.centred(shamir.combine(
        totals % np.uint64(shamir.PRIME), range(self.num_servers),
        degree=self.num_colluding))

  @property
  def bits_per_value(self) -> int:
    """31 m."""
    return self.num_servers * 31


@dataclasses.dataclass(frozen=True, kw_only=True)
class UStat:
  """U + (1/n) sum of eta_i over i in I, and nothing else (section 6.2.1).

  The division by n is that of correction C5. Of order 1 and whole numbers; the
  whole numbers are what is opened, n times the statistic.

  Attributes:
    backend: who adds up.
    noise: eta [M] as the servers hold it, [servers, M]: drawn once.
    source: of the randomness of owners.
  """
  backend: Backend
  noise: np.ndarray
  source: prg.Source

  def totals(self, values: np.ndarray,
             indices: Sequence[np.ndarray]) -> Opened:
    """n times the statistics of values [n, m], with noise of index sets.

    Every owner takes part in every statistic (section 6.4.1).

    Args:
      values: whole numbers, phi_j of record i.
      indices: m index sets I.
    """
    shares = self.backend.share(values, self.source)
    eta = np.stack([self.noise[:, list(chosen)].sum(1) for chosen in indices],
                   -1)
    return Opened(self.backend.combine(shares.sum(1) + eta),
                  values.size * self.backend.bits_per_value)

  def __call__(self, values: np.ndarray,
               indices: Sequence[np.ndarray]) -> np.ndarray:
    """The statistics [m] float64."""
    return self.totals(values, indices).totals / len(values)


def u_statistic(phi: Callable[..., float], data: np.ndarray,
                order: int) -> float:
  """Mean of phi over all subsets of records of a size (equation 6.2.1).

  Of a curator who sees the records. Replacing a record moves it by order / n of
  the range of phi.
  """
  errors.check_at_least('order', order, 1)
  values = [phi(*subset) for subset in itertools.combinations(data, order)]
  return float(np.mean(values))
