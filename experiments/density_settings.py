"""Densities of the studies, and closed forms of errors at all tunings at once.

A linear estimator of n records errs by
  sampling(t) / n + privacy(t) / (n alpha)^2 + bias(t)
at a tuning t, alpha being epsilon or the square root of rho: a `Family` has the
three for a whole grid of tunings, so that the best tuning of a density, which
only an oracle knows, is a minimum of arrays (density: DEN-H2, P2, B2).

Methods, of what paper 001 prints and of what is better:
  pure_printed, zcdp_printed   Theorem 4: noise of the printed sensitivities
  pure_exact, zcdp_exact       the same with exact ones, the mean not noised
  spectral, zcdp_spectral      coefficients of a noisy histogram, no taper
  histogram, zcdp_histogram    Theorem 1
Noise of a pure budget is that of Laplace here, as printed.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import bandwidths
from dpjax.stats.density import laws
from dpjax.stats.density import projections
from dpjax.stats.density import sensitivities

# Tunings up to this one are tried one by one, then in steps.
_EACH = 40
_STEP = 1.03
# Bins to an order 2 K + 1, as they are tried in table 8.2.
RATIOS = (1.0, 1.2, 1.5, 2.0, 3.0)
_AMPLITUDE_4 = 0.65
# As good as infinite.
_MANY = 10**30
# Norm of the sensitivity; none where the printed one stands in a formula.
_SENSITIVITY = {'pure_printed': None, 'zcdp_printed': None, 'pure_exact': 1,
                'zcdp_exact': 2}
# Variance of the noise of a count, times alpha^2.
COUNTS = {'spectral': 8.0, 'zcdp_spectral': 1.0, 'histogram': 8.0,
          'zcdp_histogram': 1.0}

DENSITIES = {
    'tent1': lambda: laws.tent(1), 'tent2': lambda: laws.tent(2),
    'linear1.5': lambda: laws.linear(1.5), 'beta22': lambda: laws.beta(2, 2),
    'beta25': lambda: laws.beta(2, 5), 'wrapmix': laws.wrapped_mixture,
    **{f'sobdet{order}': functools.partial(laws.alternating, order)
       for order in (1, 2, 3)},
    'sobdet4': lambda: laws.alternating(4, _AMPLITUDE_4),
    **{f'sobrand{order}': functools.partial(laws.random_phases, order)
       for order in (1, 2, 3)}}

# The smoothness that printed tunings are told.
SMOOTHNESS = {name: int(name[-1]) for name in DENSITIES if 'sob' in name} | {
    'tent2': 1, 'wrapmix': 2}


@functools.cache
def density(name: str) -> laws.Density:
  """A density of `DENSITIES`."""
  errors.check_choice('density', name, tuple(DENSITIES))
  return DENSITIES[name]()


class Family(NamedTuple):
  """Errors of one method on one density at tunings t, each [T].

  Attributes:
    orders: N of projections, m of histograms and noisy bins.
    frequencies: K.
    sampling: what n records leave, times n.
    privacy: what the noise adds, times (n alpha)^2.
    bias: squared.
  """
  orders: np.ndarray
  frequencies: np.ndarray
  sampling: np.ndarray
  privacy: np.ndarray
  bias: np.ndarray

  def risks(self, num_records: float, signal: float) -> np.ndarray:
    """Totals [T]; either may be infinite.

    Args:
      num_records: n.
      signal: n alpha.
    """
    return (self.sampling / num_records + self.privacy / signal**2
            + self.bias)

  def best(self, num_records: float, signal: float) -> int:
    """The tuning an oracle takes."""
    return int(np.argmin(self.risks(num_records, signal)))

  def least(self, num_records: float, signal: float) -> float:
    """The error there."""
    return float(np.min(self.risks(num_records, signal)))


def tried(largest: int) -> tuple[int, ...]:
  """Numbers of frequencies or bins, 1 to `largest`: each, then in steps."""
  count = max(0, math.log(largest / _EACH, _STEP))
  steps = _EACH * _STEP**np.arange(count)
  return tuple(sorted({*range(1, min(largest, _EACH) + 1),
                       *map(int, steps[1:]), largest}))


@functools.cache
def fourier(method: str, name: str, counts: tuple[int, ...]) -> Family:
  """Sums of a Fourier basis with noise (DEN-P2).

  Args:
    method: one of the first four above.
    name: of the density.
    counts: numbers of frequencies, rising.
  """
  errors.check_choice('method', method, tuple(_SENSITIVITY))
  found, exact = np.array(counts), _SENSITIVITY[method]
  orders = 2 * found + 1
  known, beyond = _energies(name, counts)
  if exact is None:
    privacy = 16.0 * orders**3 if method == 'pure_printed' else 4.0 * orders**2
  else:
    norms = np.array([sensitivities.trigonometric(
        int(order), order=exact, adjacency=Adjacency.REPLACE_ONE)
                      for order in orders])
    # 2 Delta^2 / epsilon^2 or Delta^2 / (2 rho) for each coefficient.
    privacy = (2.0 if exact == 1 else 0.5) * (orders - 1) * norms**2
  return Family(orders, found, orders - 1 - known, privacy, beyond)


def _energies(name, counts):
  """Energy of the first K frequencies and of the others, each [T]."""
  known = np.cumsum(density(name).energies(counts[-1]))[np.array(counts) - 1]
  return known, density(name).energy - known


@functools.cache
def spectral(method: str, name: str,
             pairs: tuple[tuple[int, int], ...]) -> Family:
  """Coefficients of noisy counts on a circle (DEN-B2).

  Args:
    method: 'spectral' or 'zcdp_spectral'.
    name: of the density.
    pairs: of K, rising, and m.
  """
  errors.check_choice('method', method, tuple(COUNTS))
  found, largest = [], pairs[-1][0]
  truth = density(name).fourier(largest)
  beyond = _energies(name, tuple(range(1, largest + 1)))[1]
  for top, num_bins in pairs:
    k = np.arange(1, top + 1)
    # What the mean of y_b e^(-2 pi i k b / m) is, turned to mid-points.
    means = np.fft.rfft(density(name).masses(num_bins))[1:top + 1] * np.exp(
        -1j * np.pi * k / num_bins)
    shrunk = np.sinc(k / num_bins)
    found.append((
        num_bins, top, 2 * np.sum((1 - np.abs(means)**2) / shrunk**2),
        2 * num_bins * COUNTS[method] * np.sum(shrunk**-2.0),
        2 * np.sum(np.abs(means / shrunk - truth[:top])**2)
        + beyond[top - 1]))
  return Family(*np.array(found).T)


@functools.cache
def histograms(method: str, name: str, bins: tuple[int, ...]) -> Family:
  """Noisy counts of equal bins (DEN-H2).

  Args:
    method: 'histogram' or 'zcdp_histogram'.
    name: of the density.
    bins: numbers of them.
  """
  errors.check_choice('method', method, tuple(COUNTS))
  found = np.array(bins)
  squares = np.array([np.sum(density(name).masses(m)**2) for m in bins])
  return Family(found, found // 2, found * (1 - squares),
                COUNTS[method] * found**2.0,
                np.maximum(density(name).square - found * squares, 0))


def family(method: str, name: str, largest: int) -> Family:
  """All tunings of a method up to so many frequencies, or bins."""
  if method in _SENSITIVITY:
    return fourier(method, name, tried(largest))
  if 'histogram' in method:
    return histograms(method, name, tried(largest))
  return spectral(method, name, tuple(
      (top, num_bins) for top in tried(largest) for num_bins in dict.fromkeys(
          odd((2 * top + 1) * ratio) for ratio in RATIOS)))


def single(method: str, name: str, order: int) -> Family:
  """The one tuning of an order N of a projection, or of m bins."""
  if method in _SENSITIVITY:
    return fourier(method, name, (order // 2,))
  errors.check_choice('method', method, ('histogram', 'zcdp_histogram'))
  return histograms(method, name, (order,))


def odd(size: float) -> int:
  """The least odd number that is not below."""
  found = math.ceil(size - 1e-9)
  return found + 1 - found % 2


def printed_order(method: str, smoothness: int, num_records: float,
                  signal: float) -> int:
  """What the papers take for N, the next odd number, or m (DEN-H4, P4, P5).

  Args:
    method: a printed one; relaxed ones are zCDP with a signal of their own.
    smoothness: beta.
    num_records: n; may be infinite.
    signal: n alpha.
  """
  if 'histogram' in method:
    size = min(num_records, _MANY)
    return bandwidths.printed_bins(num_records=round(size),
                                   budget=min(signal, _MANY) / size)
  return projections.printed_num_functions(
      min(signal, _MANY), num_records=round(min(num_records, _MANY)),
      smoothness=smoothness, pure='pure' in method)


def relaxed_signal(num_records: float, epsilon: float, gamma: float) -> float:
  """n sqrt(rho) of Corollary 2 at delta = n^-gamma (DEN-P7)."""
  return num_records * epsilon / math.sqrt(16 * gamma * math.log(num_records))
