"""Noisy sums of vectors of bounded l2 norm; no server sees a single vector.

An owner rounds its vector to integers, splits them into additive shares modulo
2^k and sends one share to each server, as in Prio (Corrigan-Gibbs and Boneh,
2017). Each server adds up its shares, adds discrete Gaussian noise of its own,
and opens the result. The opened numbers add up to the sum of all vectors and of
all noise. The noise of a single server is enough for the guarantee, so the
distribution of sums of such noise (Kairouz, Liu and Steinke, 2021) is not
needed.

The l2 norm of an owner's integers is checked exactly against a public bound,
and a vector above it is an error: nothing is clipped. A network of known
Lipschitz constants bounds the gradient of every record by a function of its
public parameters (`dpjax.lipschitz`), so plain gradients can be summed.

Source of the sharing: Barczewski (2025, section 4.2.1; item EC-16). Source of
the noise: Canonne, Kamath and Steinke (2020, Theorem 4 for each entry; the
costs of independent entries add up to that of the squared l2 norm).
"""

from collections.abc import Mapping
import dataclasses
import fractions
import math
import secrets

import numpy as np

from dpjax import errors
from dpjax.mpc import additive
from dpjax.mpc import packing
from dpjax.mpc import prg
from dpjax.privacy import exact
from dpjax.privacy.adjacency import Adjacency

Fraction = fractions.Fraction

_NUMBERS = 2**22  # numbers read or written at once; bounds memory
_TAIL = 12        # standard deviations of noise that must fit in k bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorSum:
  """Public parameters of one noisy sum of the owners' vectors.

  Guarantee: each sum is rho-zCDP with rho = Delta^2 / (2 noise_variance), for
  the replace-one relation between owners: the vector of one owner is replaced
  by any other, and the set of owners who took part stays the same, because the
  servers and the public know it. Delta = 2 2^b is the l2 sensitivity in units
  of the granularity: two integer vectors of norm at most 2^b are at most that
  far apart. An owner is protected with everything it puts into its vector. T
  sums of the same owners, each of which may depend on earlier ones, are
  T rho-zCDP together.

  Adversary: any m - 1 servers, all other owners and whoever sees the opened
  numbers may pool what they know. All of them follow the protocol (semi-honest)
  in computing and sending. The one honest server's noise is enough for the
  guarantee, and that of the others is extra. The shares of m - 1 servers do not
  depend on the vectors, under the assumption of `prg`. An owner who breaks the
  protocol can send any integers, which spoils the sum but leaves the privacy of
  the others as it is. Not covered: running times, and errors of an owner whose
  vector is above the bound, which become public if it then drops out.

  Attributes:
    length: d, entries of a vector.
    num_servers: m, at least 2.
    bound: S, public bound of the l2 norm of one owner's vector, in [1e-12,
      1e12].
    granularity_bits: b, at least 1; the granularity is S / 2^b.
    value_bits: k, 2 to 64; numbers are modulo 2^k, see `check_width`.
    noise_variance: sigma^2, variance parameter of the discrete Gaussian noise
      that each server adds to each entry, in squared units of the granularity;
      0 adds none, and then nothing is private.
  """
  length: int
  num_servers: int
  bound: float
  granularity_bits: int = 16
  value_bits: int = 48
  noise_variance: int = 0

  def __post_init__(self) -> None:
    errors.check_at_least('length', self.length, 1)
    errors.check_at_least('num_servers', self.num_servers, 2)
    errors.check_scale('bound', self.bound)
    errors.check_at_least('granularity_bits', self.granularity_bits, 1)
    errors.check_at_least('noise_variance', self.noise_variance, 0)
    if errors.check_at_least('value_bits', self.value_bits, 2) > 64:
      raise ValueError(f'value_bits must be at most 64, got {self.value_bits}')
    # The squared norm of d entries of at most 2^b must fit in int64.
    if 2 * self.granularity_bits + self.length.bit_length() > 62:
      raise ValueError(
          f'granularity_bits must be at most '
          f'{(62 - self.length.bit_length()) // 2} for vectors of '
          f'{self.length} entries, got {self.granularity_bits}')

  @property
  def l2_sensitivity(self) -> int:
    """Returns Delta = 2 2^b, in units of the granularity."""
    return 2 << self.granularity_bits

  @property
  def rho(self) -> float:
    """Returns the cost of one sum in zCDP, rounded up; inf without noise."""
    if not self.noise_variance:
      return math.inf
    exact_rho = Fraction(self.l2_sensitivity**2, 2 * self.noise_variance)
    return math.nextafter(float(exact_rho), math.inf)

  @property
  def noise_stddev(self) -> float:
    """Returns the standard deviation of an entry's noise, in units of `bound`.

    It is that of the noise of all m servers together.
    """
    return (math.sqrt(self.num_servers * self.noise_variance) * self.bound *
            2.0**-self.granularity_bits)

  def epsilon(self, *, delta: float, num_sums: int) -> float:
    """Returns an epsilon for which `num_sums` sums are (epsilon, delta)-DP.

    It is the best that zCDP implies over Renyi orders, for the replace-one
    relation; see the guarantee of the class.

    Args:
      delta: in [1e-12, 1).
      num_sums: T, how many sums of the same owners are opened.
    """
    errors.check_at_least('num_sums', num_sums, 1)
    if not self.noise_variance:
      return math.inf
    from dpjax.privacy import accounting  # SciPy: servers start without it
    event = accounting.concentrated_event(
        rho=math.nextafter(num_sums * self.rho, math.inf),
        adjacency=Adjacency.REPLACE_ONE)
    return accounting.epsilon(event, delta=delta, accountant='rdp',
                              adjacency=Adjacency.REPLACE_ONE)

  def check_width(self, num_owners: int) -> None:
    """Raises a ValueError if a noisy sum of the owners may wrap around.

    Noise of up to 12 standard deviations fits; more has a probability below
    1e-32 per entry. A wrap-around spoils a sum but not its privacy.

    Args:
      num_owners: largest number of owners of a sum.
    """
    needed = value_bits(num_owners, num_servers=self.num_servers,
                        granularity_bits=self.granularity_bits,
                        noise_variance=self.noise_variance)
    if self.value_bits < needed:
      raise ValueError(
          f'noisy sums of {num_owners} owners need numbers of {needed} bits '
          f'(value_bits), got {self.value_bits}')

  def encode(self, vectors: np.ndarray) -> np.ndarray:
    """Returns the vectors in units of the granularity, int64 [n, d].

    Each entry is rounded toward zero, exactly, so no norm grows.

    Args:
      vectors: the owners' vectors, float [n, d].

    Raises:
      ValueError: if an entry is not finite, or if the l2 norm of a vector's
        integers is above 2^b. The error may reveal data: it is for the owner.
    """
    vectors = np.asarray(vectors, np.float64)
    if vectors.ndim != 2 or vectors.shape[1] != self.length:
      raise ValueError(f'vectors must be [n, {self.length}], got shape '
                       f'{list(vectors.shape)}')
    if not np.isfinite(vectors).all():
      raise ValueError('vectors must be finite')
    magnitudes = np.abs(vectors)
    # An entry above S would overflow below; its vector is refused anyway.
    above = (magnitudes > self.bound).any(1)
    units = self._rounded_down(np.where(above[:, np.newaxis], 0.0, magnitudes))
    # Exact in int64: see the check of `granularity_bits`.
    above |= np.square(units).sum(1) > 1 << 2 * self.granularity_bits
    if above.any():
      raise ValueError(f'vector {int(np.argmax(above))} has an l2 norm above '
                       f'bound = {self.bound}')
    return np.where(vectors < 0, -units, units)

  def _rounded_down(self, magnitudes: np.ndarray) -> np.ndarray:
    """Returns floor(x 2^b / S) of float64 x in [0, S], exactly, int64."""
    units = np.floor(np.ldexp(magnitudes / self.bound, self.granularity_bits))
    # The quotient is rounded, so it may have reached the next integer. Its
    # multiple of S, as the exact sum of two floats, is compared with x 2^b.
    product, rest = _exact_product(units, self.bound)
    scaled = np.ldexp(magnitudes, self.granularity_bits)
    units -= (product > scaled) | ((product == scaled) & (rest > 0))
    return units.astype(np.int64)

  def decode(self, units: np.ndarray) -> np.ndarray:
    """Returns integers as float64 numbers in the unit of `bound`."""
    return np.ldexp(np.asarray(units, np.float64) * self.bound,
                    -self.granularity_bits)

  def layout(self, server: int) -> list[tuple[int, int]]:
    """Returns the fields (count, bits of each) of a message to a server."""
    if server < self.num_servers - 1:
      return [(2, 64)]
    return [(self.length, self.value_bits)]

  def message_bytes(self, server: int) -> int:
    """Returns the length of an owner's message to a server."""
    return packing.num_bytes(sum(count * bits
                                 for count, bits in self.layout(server)))

  def shares(self, units: np.ndarray, *, source: prg.Source
             ) -> list[np.ndarray]:
    """Returns, for each server, the owners' messages, uint8 [n, bytes].

    All servers but the last get a seed that stands for a share.

    Args:
      units: the owners' integers [n, d], from `encode`.
      source: randomness; all secrecy rests on it.
    """
    seeds, rest = additive.share_by_seeds(
        units, num_parties=self.num_servers, value_bits=self.value_bits,
        source=source)
    return [packing.pack([(part, 64)]) for part in seeds] + [
        packing.pack([(rest, self.value_bits)])]

  def faults(self, server: int, payloads: np.ndarray) -> np.ndarray:
    """Returns which messages [n] no honest owner can have sent, bool."""
    return np.concatenate([packing.unpack(payloads[part], self.layout(server)
                                          )[1]
                           for part in self._parts(server, len(payloads))])

  def aggregate(self, server: int, payloads: np.ndarray) -> np.ndarray:
    """Returns a server's share [d] of the exact sum; uint64 below 2^k.

    Add noise before opening it.

    Args:
      server: number of the server, from 0.
      payloads: the owners' messages to it, uint8 [n, bytes].

    Raises:
      ValueError: if messages have another length or one is malformed.
    """
    total = np.zeros(self.length, np.uint64)
    for part in self._parts(server, len(payloads)):
      (numbers,), bad = packing.unpack(payloads[part], self.layout(server))
      packing.refuse_rows(bad, first=part.start)
      total += (numbers.sum(0) if server == self.num_servers - 1 else
                additive.sum_of_expanded(numbers, self.length,
                                         value_bits=self.value_bits))
    return total & additive.mask(self.value_bits)

  def draw_noise(self, below: exact.Draw = secrets.randbelow) -> np.ndarray:
    """Draws the noise that one server adds, int64 [d].

    Args:
      below: uniform sampler n -> 0, ..., n - 1. The guarantee holds for that of
        the operating system, the default.
    """
    if not self.noise_variance:
      return np.zeros(self.length, np.int64)
    variance = Fraction(self.noise_variance)
    return np.array([exact.discrete_gaussian(variance, below)
                     for _ in range(self.length)], np.int64)

  def add_noise(self, share: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Returns the share [d] that a server opens, uint64 below 2^k."""
    return (share + noise.astype(np.uint64)) & additive.mask(self.value_bits)

  def combine(self, answers: Mapping[int, np.ndarray]) -> np.ndarray:
    """Returns the noisy sum, int64 [d], from the answers of all servers.

    Args:
      answers: opened shares [d] by number of the server.

    Raises:
      ValueError: if an answer is missing.
    """
    if sorted(answers) != list(range(self.num_servers)):
      raise ValueError(f'all {self.num_servers} servers have to answer, got '
                       f'answers of {sorted(answers)}')
    total = additive.combine(np.stack(list(answers.values())),
                             value_bits=self.value_bits)
    return additive.centred(total, value_bits=self.value_bits)

  def _parts(self, server: int, num_rows: int) -> list[slice]:
    """Returns the slices of rows to handle one after another, at least one."""
    numbers = sum(count for count, _ in self.layout(server))
    step = max(1, _NUMBERS // numbers)
    return [slice(start, start + step)
            for start in range(0, max(num_rows, 1), step)]


def _exact_product(values: np.ndarray, factor: float
                   ) -> tuple[np.ndarray, np.ndarray]:
  """Returns the float64 product and its rounding error, which is exact.

  Source: Dekker (1971). Numbers are split into halves of 26 bits, whose
  products have no error; it needs products far from overflow and underflow.
  """
  product = values * factor
  high, low = _halves(values)
  high_factor, low_factor = _halves(np.array(factor))
  rest = ((high * high_factor - product) + high * low_factor +
          low * high_factor) + low * low_factor
  return product, rest


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns two float64 numbers of at most 26 bits that add up to `values`."""
  shifted = values * (2.0**27 + 1)
  high = shifted - (shifted - values)
  return high, values - high


def value_bits(num_owners: int, *, num_servers: int, granularity_bits: int,
               noise_variance: int) -> int:
  """Returns the fewest bits k in which no noisy sum wraps around.

  Noise of up to 12 standard deviations fits. Args as for `VectorSum`, and
  `num_owners`, the largest number of owners of a sum.
  """
  errors.check_at_least('num_owners', num_owners, 1)
  variance = _TAIL**2 * num_servers * noise_variance
  largest = (num_owners << granularity_bits) + math.isqrt(variance) + 1
  # Integers modulo 2^k stand for -2^(k - 1), ..., 2^(k - 1) - 1.
  return largest.bit_length() + 1


def calibrated_variance(*, epsilon: float, delta: float, num_sums: int,
                        granularity_bits: int) -> int:
  """Returns the least noise variance of a server that meets a target.

  `VectorSum.epsilon` with this `noise_variance` is at most `epsilon`.

  Args:
    epsilon: of all sums together, positive.
    delta: in [1e-12, 1).
    num_sums: T, how many sums of the same owners are opened.
    granularity_bits: b.

  Returns:
    The variance, in squared units of the granularity. It is at most 0.1 % above
    the least integer.

  Examples:
    >>> from dpjax.mpc import vector_sums
    >>> variance = vector_sums.calibrated_variance(
    ...     epsilon=1.0, delta=1e-5, num_sums=10, granularity_bits=4)
    >>> vector_sums.VectorSum(
    ...     length=3, num_servers=2, bound=1.0, granularity_bits=4,
    ...     noise_variance=variance).epsilon(delta=1e-5, num_sums=10) <= 1.0
    True
  """
  from dpjax.privacy import accounting  # SciPy: servers start without it

  errors.check_at_least('num_sums', num_sums, 1)
  multiplier = accounting.calibrate_event(
      lambda noise: accounting.concentrated_event(
          rho=0.5 / noise**2, adjacency=Adjacency.REPLACE_ONE),
      target_epsilon=epsilon, target_delta=delta, accountant='rdp',
      adjacency=Adjacency.REPLACE_ONE)
  # The factor covers that costs are rounded up, see `VectorSum.rho`.
  scaled = Fraction(multiplier)**2 * num_sums * Fraction(1 + 2.0**-40)
  return math.ceil(scaled * (2 << granularity_bits)**2)
