"""Three ways to split a record among servers that count ranks.

| name | servers | learn nothing | answer needs | bits of an owner |
|---|---|---|---|---|
| comparison | 2 | any 1 | both | 2 (L (130 + k) + 128 + k) |
| additive | m >= 2 | any m - 1 | all | N k + 128 (m - 1) |
| outer_product | m > 2 t | any t | any 2 t + 1 | 31 m (R + C), R C >= N |

Keys as short as those of comparisons, from a generator alone, are not known for
three servers (item C17), though the thesis names them: those of
Boyle, Gilboa and Ishai 2015 grow as sqrt(N) and exponentially in m, and add up
by exclusive or, not modulo 2^k.
Source: thesis 003, section 6.4; item EC-19, EC-20.
"""

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
  """Schemes whose answers add up modulo 2^k.

  Attributes:
    value_bits: k, wide enough for ranks and noise: `costs.value_bits`.
  """
  value_bits: int = 32

  def __post_init__(self):
    super().__post_init__()
    if errors.check_at_least('value_bits', self.value_bits, 2) > 64:
      raise ValueError(f'value_bits must be at most 64, got {self.value_bits}')

  @property
  def needed(self) -> int:
    """All of them."""
    return self.num_servers

  @property
  def colluding(self) -> int:
    """All but one."""
    return self.num_servers - 1

  @property
  def modulus(self) -> int:
    """2^k."""
    return 2**self.value_bits

  def share_values(self, values: np.ndarray,
                   source: prg.Source) -> np.ndarray:
    """As in `scheme`; they add up modulo 2^k."""
    return additive.share(values, num_parties=self.num_servers,
                          value_bits=self.value_bits, source=source)

  def _open(self, answers, servers):
    del servers
    return additive.centred(
        additive.combine(answers, value_bits=self.value_bits),
        value_bits=self.value_bits)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonScheme(_Modular):
  """Two servers that hold keys of comparisons with each owner's bin.

  With labels an owner sends two keys to each server, one of which compares to
  no effect, and a share of its label. Source: thesis 003, section 6.4.2.
  """
  num_servers: int = 2

  def __post_init__(self):
    super().__post_init__()
    if self.num_servers != 2:
      raise ValueError('comparison keys are for 2 servers, got '
                       f'{self.num_servers}')

  @property
  def depth(self) -> int:
    """L = ceil(log2 N)."""
    return (self.num_thresholds - 1).bit_length()

  def layout(self, server: int) -> list[tuple[int, int]]:
    """As in `scheme`."""
    del server
    label = [(1, self.value_bits)] * (self.num_classes - 1)
    return self.num_classes * comparison.layout(
        self.depth, self.value_bits) + label

  def _shares(self, bins, labels, source):
    keys = [comparison.generate(bins, (labels == label).astype(np.int64),
                                depth=self.depth, value_bits=self.value_bits,
                                source=source)
            for label in range(self.num_classes)]
    shared = self.share_values(labels, source)[..., np.newaxis]
    return [packing.pack(
        [field for pair in keys for field in pair[server].fields()] +
        [(shared[server], self.value_bits)] * (self.num_classes - 1))
            for server in range(2)]

  def _ranks(self, server, fields, points):
    totals = np.zeros((self.num_classes, 1), np.uint64)
    totals[0] = len(fields[0]) if server == 0 else 0
    if self.num_classes == 2:
      totals[1] = fields[-1].sum()
      totals[0] -= totals[1]
    larger = [comparison.sums(comparison.from_fields(
        fields[5 * label:5 * label + 5], party=server,
        value_bits=self.value_bits), points)
              for label in range(self.num_classes)]
    return (totals - np.stack(larger)) & additive.mask(self.value_bits)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditiveScheme(_Modular):
  """Shares of the indicator of the bin: long messages, any number of servers.

  All servers but the last get a seed.

  """

  def __post_init__(self):
    super().__post_init__()
    errors.check_at_least('num_servers', self.num_servers, 2)

  def layout(self, server: int) -> list[tuple[int, int]]:
    """As in `scheme`."""
    if server < self.num_servers - 1:
      return [(2, 64)]
    return [(self.num_classes * self.num_thresholds, self.value_bits)]

  def _shares(self, bins, labels, source):
    cells = self.num_classes * self.num_thresholds
    indicators = np.zeros((len(bins), cells), np.uint64)
    indicators[np.arange(len(bins)), labels * self.num_thresholds + bins] = 1
    seeds, rest = additive.share_by_seeds(
        indicators, num_parties=self.num_servers, value_bits=self.value_bits,
        source=source)
    return [packing.pack([(part, 64)]) for part in seeds] + [
        packing.pack([(rest, self.value_bits)])]

  def _ranks(self, server, fields, points):
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
  """Shamir shares of a row and of a column of the bin: three servers or more.

  Bin r C + c stands in row r and column c. An owner shares the indicator of its
  row (and class) and the steps [c' >= c]; products of both, summed over owners,
  count its row, and sums of rows above it what lies there: one matrix product
  has all ranks, in shares of degree 2 t. They are not random enough to be
  opened; noise that each server shares anew makes them so. Item EC-20 (b).

  Attributes:
    num_colluding: t, below half of the servers.
  """
  num_colluding: int = 1

  def __post_init__(self):
    super().__post_init__()
    errors.check_at_least('num_colluding', self.num_colluding, 1)
    errors.check_at_least('num_servers', self.num_servers,
                          2 * self.num_colluding + 1)

  @property
  def needed(self) -> int:
    """2 t + 1."""
    return 2 * self.colluding + 1

  @property
  def colluding(self) -> int:
    """t."""
    return self.num_colluding

  @property
  def modulus(self) -> int:
    """The prime of `shamir`."""
    return shamir.PRIME

  @functools.cached_property
  def shape(self) -> tuple[int, int]:
    """(R, C), the shortest messages."""
    rows = np.arange(1, self.num_thresholds + 1)
    columns = -(-self.num_thresholds // rows)
    best = int(np.argmin(self.num_classes * rows + columns))
    return int(rows[best]), int(columns[best])

  def layout(self, server: int) -> list[tuple[int, int]]:
    """As in `scheme`."""
    del server
    rows, columns = self.shape
    return [(self.num_classes * rows, 31), (columns, 31)]

  def _out_of_range(self, fields):
    return np.any([(field >= self.modulus).any(1) for field in fields], 0)

  def _shares(self, bins, labels, source):
    rows, columns = self.shape
    row, column = labels * rows + bins // columns, bins % columns
    indicators = row[:, np.newaxis] == np.arange(self.num_classes * rows)
    steps = column[:, np.newaxis] <= np.arange(columns)
    shared = [shamir.share(part.astype(np.int64), degree=self.colluding,
                           num_parties=self.num_servers, source=source)
              for part in (indicators, steps)]
    return [packing.pack([(part[server], 31) for part in shared])
            for server in range(self.num_servers)]

  def _ranks(self, server, fields, points):
    del server
    indicators, steps = fields
    within = shamir.product_of_columns(indicators, steps)
    counts = (indicators.sum(0) % self.modulus).reshape(self.num_classes, -1)
    above = np.cumsum(counts, 1) - counts
    curves = within + above.reshape(-1, 1)
    return (curves.reshape(self.num_classes, -1)[:, points] %
            np.uint64(self.modulus))

  def share_values(self, values: np.ndarray,
                   source: prg.Source) -> np.ndarray:
    """As in `scheme`; of degree 2 t, and so fit to hide answers."""
    return shamir.share(values, degree=2 * self.colluding,
                        num_parties=self.num_servers, source=source)

  def _open(self, answers, servers):
    return shamir.centred(shamir.combine(answers, servers,
                                         degree=2 * self.colluding))


SCHEMES = {'comparison': ComparisonScheme, 'additive': AdditiveScheme,
           'outer_product': OuterProductScheme}
"""By name."""
