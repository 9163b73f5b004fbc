"""Secure evaluation of curves and averages, simulated in one process.

The code runs the steps of owners, servers and client one after the other and
counts every bit that they would send; `costs` has the formulas. Noise is shared
once, before the first query, so equal queries get equal answers, and any number
of queries about a curve spends the privacy budget of that curve once. Source:
Barczewski (2025, sections 6.2.1 and 6.4; items EC-01, EC-13, EC-19).
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
  """Opened, public noisy totals, with their communication cost.

  Attributes:
    totals: noisy integers, int64.
    bits: number of bits sent to answer this query alone.
  """
  totals: np.ndarray
  bits: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureCurve:
  """A secret-shared curve that servers can evaluate; made by `collect`.

  Attributes:
    scheme: the secret-sharing scheme.
    payloads: for each server the owners' messages, uint8 [n, bytes].
    noise: the servers' shares of the noise of the M dyadic nodes,
      [servers, classes, M].
    num_rows: number of thresholds whose ranks get noise.
    root: whether one more dyadic node covers all of them.
  """
  scheme: schemes.Scheme
  payloads: Sequence[np.ndarray]
  noise: np.ndarray
  num_rows: int
  root: bool = True

  @property
  def bits(self) -> int:
    """Returns the number of bits that all owners sent."""
    return sum(len(payload) * self.scheme.bits(server)
               for server, payload in enumerate(self.payloads))

  def answer(self, server: int, points: np.ndarray) -> np.ndarray:
    """Returns a server's share of the noisy ranks [classes, m] at points [m].
    """
    return self.scheme.add(
        self.scheme.aggregate(server, self.payloads[server], points),
        nodes.dyadic_rows(self.noise[server], points, self.num_rows,
                          root=self.root))

  def ask(self, points: np.ndarray) -> Opened:
    """Opens the noisy ranks [classes, m] at points [m], with all servers."""
    answers = {server: self.answer(server, points)
               for server in range(self.scheme.num_servers)}
    index = (self.scheme.num_thresholds - 1).bit_length()
    sent = sum(points.size * index + share.size * self.scheme.answer_bits
               for share in answers.values())
    return Opened(self.scheme.combine(answers), sent)


def collect(scheme: schemes.Scheme, bins: np.ndarray, noise: np.ndarray, *,
            num_rows: int, source: prg.Source, root: bool = True,
            labels: np.ndarray | None = None) -> SecureCurve:
  """Shares the owners' bins and the noise among the servers.

  In this simulation one party knows the noise and shares it. Real servers use
  `noise.Contributions`, where each draws a part, or `joint_noise`.

  Args:
    scheme: the secret-sharing scheme.
    bins: the owners' bins [n], from 0 to N - 1.
    noise: integer noise of the dyadic nodes [classes, M].
    num_rows: number of thresholds whose ranks get noise.
    source: randomness of the shares.
    root: whether one more dyadic node covers all thresholds.
    labels: the owners' labels [n], 0 or 1, if the scheme has two classes.
  """
  return SecureCurve(
      scheme=scheme,
      payloads=scheme.shares(bins, labels=labels, source=source),
      noise=scheme.share_values(noise, source), num_rows=num_rows, root=root)


class Backend(abc.ABC):
  """A way to add up the owners' numbers: how they are shared and combined."""

  @abc.abstractmethod
  def share(self, values: np.ndarray, source: prg.Source) -> np.ndarray:
    """Returns the shares [servers, ...] of integers [...]."""

  @abc.abstractmethod
  def combine(self, totals: np.ndarray) -> np.ndarray:
    """Returns int64 totals [...] from the servers' sums [servers, ...]."""

  @property
  @abc.abstractmethod
  def bits_per_value(self) -> int:
    """Returns the number of bits that an owner sends for one number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrustedCurator(Backend):
  """A single trusted server that sees all numbers.

  Attributes:
    bits: k, length of a number; sums are modulo 2^k.
  """
  bits: int = 32

  def share(self, values: np.ndarray, source: prg.Source) -> np.ndarray:
    """Returns the values themselves, as one share."""
    del source
    return values.astype(np.uint64)[np.newaxis]

  def combine(self, totals: np.ndarray) -> np.ndarray:
    """Returns the single server's sum as signed integers."""
    return additive.centred(totals[0] & additive.mask(self.bits),
                            value_bits=self.bits)

  @property
  def bits_per_value(self) -> int:
    """Returns k."""
    return self.bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditiveShares(Backend):
  """Additive shares: only all servers together learn a number; see `additive`.

  Attributes:
    num_servers: m, the number of servers.
    bits: k; shares are modulo 2^k.
  """
  num_servers: int
  bits: int = 32

  def share(self, values: np.ndarray, source: prg.Source) -> np.ndarray:
    """Returns additive shares; see `additive.share`."""
    return additive.share(values, num_parties=self.num_servers,
                          value_bits=self.bits, source=source)

  def combine(self, totals: np.ndarray) -> np.ndarray:
    """Returns the totals of additive shares; see `additive.combine`."""
    return additive.centred(
        additive.combine(totals, value_bits=self.bits), value_bits=self.bits)

  @property
  def bits_per_value(self) -> int:
    """Returns m k."""
    return self.num_servers * self.bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShamirShares(Backend):
  """Shamir shares: any t + 1 servers open, any t learn nothing; see `shamir`.

  Attributes:
    num_servers: m, the number of servers.
    num_colluding: t, the number of servers that may collude.
  """
  num_servers: int
  num_colluding: int

  def share(self, values: np.ndarray, source: prg.Source) -> np.ndarray:
    """Returns Shamir shares; see `shamir.share`."""
    return shamir.share(values, degree=self.num_colluding,
                        num_parties=self.num_servers, source=source)

  def combine(self, totals: np.ndarray) -> np.ndarray:
    """Returns the totals of Shamir shares; see `shamir.combine`."""
    return shamir.centred(shamir.combine(
        totals % np.uint64(shamir.PRIME), range(self.num_servers),
        degree=self.num_colluding))

  @property
  def bits_per_value(self) -> int:
    """Returns 31 m: each of m servers gets a field element of 31 bits."""
    return self.num_servers * 31


@dataclasses.dataclass(frozen=True, kw_only=True)
class UStat:
  """Securely computes noisy averages U + (1/n) sum of eta_i over i in I.

  U is a U-statistic of order 1, the mean of an integer function phi of each
  record. eta is noise, of which each average uses the entries I. The servers
  open only the integer n U + sum of eta_i, then divide by n. Source: Barczewski
  (2025, section 6.2.1), with the factor 1/n of erratum C5.

  Attributes:
    backend: way in which numbers are shared and added.
    noise: shares [servers, M] of the noise eta [M], which is drawn once.
    source: randomness of the owners' shares.
  """
  backend: Backend
  noise: np.ndarray
  source: prg.Source

  def totals(self, values: np.ndarray,
             indices: Sequence[np.ndarray]) -> Opened:
    """Opens n times the noisy averages.

    Every owner takes part in every statistic (Barczewski, 2025, section 6.4.1).

    Args:
      values: integers [n, m], the function phi_j of record i.
      indices: for each of the m averages the set I of its noise entries.
    """
    shares = self.backend.share(values, self.source)
    eta = np.stack([self.noise[:, list(chosen)].sum(1) for chosen in indices],
                   -1)
    return Opened(self.backend.combine(shares.sum(1) + eta),
                  values.size * self.backend.bits_per_value)

  def __call__(self, values: np.ndarray,
               indices: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the noisy averages [m], float64; arguments as `totals`."""
    return self.totals(values, indices).totals / len(values)


def u_statistic(phi: Callable[..., float], data: np.ndarray,
                order: int) -> float:
  """Returns the exact mean of phi over all subsets of `order` records.

  Not private: a curator computes it in the clear. Replacing one record changes
  it by at most order / n times the range of phi. Source: Barczewski (2025,
  equation 6.2.1).

  Args:
    phi: symmetric kernel, a function of `order` records.
    data: records [n, ...].
    order: number of arguments of phi, at least 1.
  """
  errors.check_at_least('order', order, 1)
  values = [phi(*subset) for subset in itertools.combinations(data, order)]
  return float(np.mean(values))
