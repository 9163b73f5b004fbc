"""Three secret-sharing schemes for counting ranks.

| name | servers | learn nothing | answer needs | bits of an owner |
|---|---|---|---|---|
| comparison | 2 | any 1 | both | 2 (L (130 + k) + 128 + k) |
| additive | m >= 2 | any m - 1 | all | N k + 128 (m - 1) |
| outer_product | m > 2 t | any t | any 2 t + 1 | 31 m (R + C), R C >= N |

Comparison keys are for two servers. Barczewski (2025, section 6.4.2) mentions
keys for more servers, but none so short are known from a pseudorandom generator
alone (erratum C17): those of Boyle, Gilboa and Ishai (2015) grow as sqrt(N) and
exponentially in m, and combine by exclusive or, not modulo 2^k.
Source: Barczewski (2025, section 6.4; items EC-19, EC-20).
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools

import numpy as np

from dpjax import errors
from dpjax.mpc import additive
from dpjax.mpc import comparison
from dpjax.mpc import packing
from dpjax.mpc import prg
from dpjax.mpc import scheme
from dpjax.mpc import shamir


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Modular(scheme.Scheme):
  """Base class of schemes whose answers add up modulo 2^k.

  Attributes:
    value_bits: k, 2 to 64, large enough for noisy ranks; see
      `costs.value_bits`.
  """
  value_bits: int = 32

  def __post_init__(self) -> None:
    super().__post_init__()
    if errors.check_at_least('value_bits', self.value_bits, 2) > 64:
      raise ValueError(f'value_bits must be at most 64, got {self.value_bits}')

  @property
  def needed(self) -> int:
    """Returns m: all servers must answer."""
    return self.num_servers

  @property
  def colluding(self) -> int:
    """Returns m - 1: all servers but one may collude."""
    return self.num_servers - 1

  @property
  def modulus(self) -> int:
    """Returns 2^k."""
    return 2**self.value_bits

  def share_values(self, values: np.ndarray,
                   source: prg.Source) -> np.ndarray:
    """Returns additive shares [m, ...] of integers [...] modulo 2^k."""
    return additive.share(values, num_parties=self.num_servers,
                          value_bits=self.value_bits, source=source)

  def _open(self, answers: np.ndarray, servers: list[int]) -> np.ndarray:
    del servers
    return additive.centred(
        additive.combine(answers, value_bits=self.value_bits),
        value_bits=self.value_bits)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonScheme(_Modular):
  """Two servers that hold comparison keys of each owner's bin.

  With labels, an owner sends each server two keys, one per class, and a share
  of its label. The key of the class that the owner is not in has value 0.
  Source: Barczewski (2025, section 6.4.2).
  """
  num_servers: int = 2

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.num_servers != 2:
      raise ValueError('comparison keys are for 2 servers, got num_servers = '
                       f'{self.num_servers}')

  @property
  def depth(self) -> int:
    """Returns L = ceil(log2 N)."""
    return (self.num_thresholds - 1).bit_length()

  def layout(self, server: int) -> list[tuple[int, int]]:
    """Returns the fields of the keys and, with labels, of the label's share."""
    del server
    label = [(1, self.value_bits)] * (self.num_classes - 1)
    return self.num_classes * comparison.layout(
        self.depth, self.value_bits) + label

  def _shares(self, bins: np.ndarray, labels: np.ndarray,
              source: prg.Source) -> list[np.ndarray]:
    keys = [comparison.generate(bins, (labels == label).astype(np.int64),
                                depth=self.depth, value_bits=self.value_bits,
                                source=source)
            for label in range(self.num_classes)]
    shared = self.share_values(labels, source)[..., np.newaxis]
    return [packing.pack(
        [field for pair in keys for field in pair[server].fields()] +
        [(shared[server], self.value_bits)] * (self.num_classes - 1))
            for server in range(2)]

  def _ranks(self, server: int, fields: list[np.ndarray],
             points: np.ndarray) -> np.ndarray:
    # #{bin <= j} = n - #{j < bin}, in each class; keys give shares of the last.
    # The number of records n is public, so server 0 alone adds it.
    totals = np.zeros((self.num_classes, 1), np.uint64)
    totals[0] = len(fields[0]) if server == 0 else 0
    if self.num_classes == 2:
      totals[1] = fields[-1].sum()
      totals[0] -= totals[1]
    # A key is five fields of the message, see `comparison.layout`.
    larger = [comparison.sums(comparison.from_fields(
        fields[5 * label:5 * label + 5], party=server,
        value_bits=self.value_bits), points)
              for label in range(self.num_classes)]
    return (totals - np.stack(larger)) & additive.mask(self.value_bits)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditiveScheme(_Modular):
  """Additive shares of the indicator vector of the bin, for m >= 2 servers.

  The last server gets a message of N k bits (2 N k with labels); the others get
  a seed.
  """

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('num_servers', self.num_servers, 2)

  def layout(self, server: int) -> list[tuple[int, int]]:
    """Returns the fields of a seed or, for the last server, of N shares."""
    if server < self.num_servers - 1:
      return [(2, 64)]
    return [(self.num_classes * self.num_thresholds, self.value_bits)]

  def _shares(self, bins: np.ndarray, labels: np.ndarray,
              source: prg.Source) -> list[np.ndarray]:
    cells = self.num_classes * self.num_thresholds
    indicators = np.zeros((len(bins), cells), np.uint64)
    indicators[np.arange(len(bins)), labels * self.num_thresholds + bins] = 1
    seeds, rest = additive.share_by_seeds(
        indicators, num_parties=self.num_servers, value_bits=self.value_bits,
        source=source)
    return [packing.pack([(part, 64)]) for part in seeds] + [
        packing.pack([(rest, self.value_bits)])]

  def _ranks(self, server: int, fields: list[np.ndarray],
             points: np.ndarray) -> np.ndarray:
    cells = self.num_classes * self.num_thresholds
    if server < self.num_servers - 1:
      counts = additive.sum_of_expanded(fields[0], cells,
                                        value_bits=self.value_bits)
    else:
      counts = fields[0].sum(0)
    curves = counts.reshape(self.num_classes, -1).cumsum(1)
    return curves[:, points] & additive.mask(self.value_bits)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OuterProductScheme(scheme.Scheme):
  """Shamir shares of the row and the column of a bin, for m > 2 t servers.

  Bins are arranged in a table: bin r C + c is in row r and column c. An owner
  shares the indicator of its row (and class) and the step function [c' >= c].
  The sum over owners of the products of both counts the bins up to c' within
  each row; adding the counts of all earlier rows gives the ranks. One matrix
  product computes them all, as shares of degree 2 t. Shares of a product are
  not uniformly random and must not be opened as they are: the servers first add
  fresh shares of noise, of degree 2 t. Item EC-20 (b).

  Attributes:
    num_colluding: t, at least 1 and below half of the servers.
  """
  num_colluding: int = 1

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('num_colluding', self.num_colluding, 1)
    errors.check_at_least('num_servers', self.num_servers,
                          2 * self.num_colluding + 1)

  @property
  def needed(self) -> int:
    """Returns 2 t + 1."""
    return 2 * self.colluding + 1

  @property
  def colluding(self) -> int:
    """Returns the number of colluding servers, t = `num_colluding`."""
    return self.num_colluding

  @property
  def modulus(self) -> int:
    """Returns the prime of `shamir`."""
    return shamir.PRIME

  @functools.cached_property
  def shape(self) -> tuple[int, int]:
    """Returns the rows and columns (R, C) with the shortest messages."""
    rows = np.arange(1, self.num_thresholds + 1)
    columns = -(-self.num_thresholds // rows)
    best = int(np.argmin(self.num_classes * rows + columns))
    return int(rows[best]), int(columns[best])

  def layout(self, server: int) -> list[tuple[int, int]]:
    """Returns the fields of the shares of the row and of the column."""
    del server
    rows, columns = self.shape
    # The prime is 2^31 - 1, so 31 bits hold a share.
    return [(self.num_classes * rows, 31), (columns, 31)]

  def _out_of_range(self, fields: list[np.ndarray]) -> np.ndarray:
    return np.any([(field >= self.modulus).any(1) for field in fields], 0)

  def _shares(self, bins: np.ndarray, labels: np.ndarray,
              source: prg.Source) -> list[np.ndarray]:
    rows, columns = self.shape
    row, column = labels * rows + bins // columns, bins % columns
    indicators = row[:, np.newaxis] == np.arange(self.num_classes * rows)
    steps = column[:, np.newaxis] <= np.arange(columns)
    shared = [shamir.share(part.astype(np.int64), degree=self.colluding,
                           num_parties=self.num_servers, source=source)
              for part in (indicators, steps)]
    return [packing.pack([(part[server], 31) for part in shared])
            for server in range(self.num_servers)]

  def _ranks(self, server: int, fields: list[np.ndarray],
             points: np.ndarray) -> np.ndarray:
    del server
    indicators, steps = fields
    within = shamir.product_of_columns(indicators, steps)
    counts = (indicators.sum(0) % self.modulus).reshape(self.num_classes, -1)
    # The counts of all earlier rows. Shares of degree t are shares of degree
    # 2 t too, so they can be added to those of the products.
    above = np.cumsum(counts, 1) - counts
    curves = within + above.reshape(-1, 1)
    return (curves.reshape(self.num_classes, -1)[:, points] %
            np.uint64(self.modulus))

  def share_values(self, values: np.ndarray,
                   source: prg.Source) -> np.ndarray:
    """Returns Shamir shares [m, ...] of degree 2 t, which hide answers."""
    return shamir.share(values, degree=2 * self.colluding,
                        num_parties=self.num_servers, source=source)

  def _open(self, answers: np.ndarray, servers: list[int]) -> np.ndarray:
    return shamir.centred(shamir.combine(answers, servers,
                                         degree=2 * self.colluding))


SCHEMES: Mapping[str, Callable[..., scheme.Scheme]] = {
    'comparison': ComparisonScheme, 'additive': AdditiveScheme,
    'outer_product': OuterProductScheme}
"""The schemes by name."""
