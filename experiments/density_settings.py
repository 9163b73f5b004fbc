"""Test densities, and closed-form errors of estimators on a grid of tunings.

A linear estimator on n records has the mean integrated squared error
  sampling(t) / n + privacy(t) / (n alpha)^2 + bias(t)
at a tuning t, where alpha is epsilon (pure DP) or the square root of rho
(zCDP). A `Family` holds the three terms for a grid of tunings. The best tuning
for a density, which only an oracle knows, is then the minimum of an array
(items DEN-H2, DEN-P2 and DEN-B2).

Methods printed in Lalanne, Garivier and Gribonval (2023), and better ones:
  pure_printed, zcdp_printed   Theorem 4: noise of the printed sensitivities
  pure_exact, zcdp_exact       the same with exact sensitivities; the constant
                               coefficient gets no noise
  spectral, zcdp_spectral      coefficients of a noisy histogram, no taper
  histogram, zcdp_histogram    Theorem 1
Noise is Laplace under pure DP, as in that paper, and Gaussian under zCDP.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import bandwidths
from dpjax.stats.density_methods import densities
from dpjax.stats.density_methods import sensitivities
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import projection_tunings

# Tunings are 1, 2, ..., _LINEAR; above, each is _STEP times the one before.
_LINEAR = 40
_STEP = 1.03
# Numbers of bins tried, as multiples of the 2 K + 1 basis functions.
RATIOS = (1.0, 1.2, 1.5, 2.0, 3.0)
_AMPLITUDE_4 = 0.65
# Stands for infinity where a finite number is needed.
_MANY = 10**30
# Order of the norm of the exact sensitivity: 1 for Laplace and 2 for Gaussian
# noise; None where `fourier` uses the formula for the printed sensitivity.
_SENSITIVITY = {'pure_printed': None, 'zcdp_printed': None, 'pure_exact': 1,
                'zcdp_exact': 2}
# Variance of the noise of a count, times alpha^2, for each method.
COUNTS = {'spectral': 8.0, 'zcdp_spectral': 1.0, 'histogram': 8.0,
          'zcdp_histogram': 1.0}

DENSITIES = {
    'tent1': lambda: compared_densities.tent(1),
    'tent2': lambda: compared_densities.tent(2),
    'linear1.5': lambda: compared_densities.linear(1.5),
    'beta22': lambda: compared_densities.beta(2, 2),
    'beta25': lambda: compared_densities.beta(2, 5),
    'wrapmix': compared_densities.wrapped_mixture,
    **{f'sobdet{order}': functools.partial(
        compared_densities.alternating, order)
       for order in (1, 2, 3)},
    'sobdet4': lambda: compared_densities.alternating(4, _AMPLITUDE_4),
    **{f'sobrand{order}': functools.partial(
        compared_densities.random_phases, order)
       for order in (1, 2, 3)}}

# Smoothness beta that the printed tunings are given.
SMOOTHNESS = {name: int(name[-1]) for name in DENSITIES if 'sob' in name} | {
    'tent2': 1, 'wrapmix': 2}


@functools.cache
def density(name: str) -> densities.Density:
  """Returns a density by its name in `DENSITIES`."""
  errors.check_choice('density', name, tuple(DENSITIES))
  return DENSITIES[name]()


class Family(NamedTuple):
  """Error terms of one method on one density at T tunings, each [T].

  Attributes:
    orders: N, the number of basis functions, for projections; the number of
      bins m for histograms and noisy counts.
    frequencies: K, the number of frequencies.
    sampling: sampling error, times n.
    privacy: error that the noise adds, times (n alpha)^2.
    bias: integrated squared bias.
  """
  orders: np.ndarray
  frequencies: np.ndarray
  sampling: np.ndarray
  privacy: np.ndarray
  bias: np.ndarray

  def risks(self, num_records: float, signal: float) -> np.ndarray:
    """Returns mean integrated squared errors [T].

    Args:
      num_records: n; may be infinite.
      signal: n alpha; may be infinite.
    """
    return (self.sampling / num_records + self.privacy / signal**2
            + self.bias)

  def best(self, num_records: float, signal: float) -> int:
    """Returns the index of the tuning with the least error."""
    return int(np.argmin(self.risks(num_records, signal)))

  def least(self, num_records: float, signal: float) -> float:
    """Returns the error at the oracle's tuning."""
    return float(np.min(self.risks(num_records, signal)))


def tried(largest: int) -> tuple[int, ...]:
  """Returns the numbers of frequencies or bins to try, from 1 to `largest`.

  All numbers up to `_LINEAR` are tried, then a geometric grid.
  """
  count = max(0, math.log(largest / _LINEAR, _STEP))
  steps = _LINEAR * _STEP**np.arange(count)
  return tuple(sorted({*range(1, min(largest, _LINEAR) + 1),
                       *map(int, steps[1:]), largest}))


@functools.cache
def fourier(method: str, name: str, counts: tuple[int, ...]) -> Family:
  """Returns errors of noisy projections on a Fourier basis (DEN-P2).

  Args:
    method: 'pure_printed', 'zcdp_printed', 'pure_exact' or 'zcdp_exact'.
    name: name of the density.
    counts: numbers of frequencies, increasing.
  """
  errors.check_choice('method', method, tuple(_SENSITIVITY))
  frequencies, exact = np.array(counts), _SENSITIVITY[method]
  orders = 2 * frequencies + 1
  captured, omitted = _energies(name, counts)
  if exact is None:
    privacy = 16.0 * orders**3 if method == 'pure_printed' else 4.0 * orders**2
  else:
    norms = np.array([sensitivities.trigonometric(
        int(order), order=exact, adjacency=Adjacency.REPLACE_ONE)
                      for order in orders])
    # Each noised coefficient has variance 2 Delta^2 / epsilon^2 (Laplace) or
    # Delta^2 / (2 rho) (Gaussian).
    privacy = (2.0 if exact == 1 else 0.5) * (orders - 1) * norms**2
  return Family(orders, frequencies, orders - 1 - captured, privacy, omitted)


def _energies(name, counts):
  """Returns the integrated squares of two parts of a density, each [T].

  Args:
    name: name of the density.
    counts: [T] numbers K of frequencies.

  Returns:
    That of frequencies 1..K, and that of all higher ones.
  """
  captured = np.cumsum(density(name).energies(counts[-1]))[np.array(counts) - 1]
  return captured, density(name).energy - captured


@functools.cache
def spectral(method: str, name: str,
             pairs: tuple[tuple[int, int], ...]) -> Family:
  """Returns errors of Fourier series made from noisy bin counts (DEN-B2).

  Args:
    method: 'spectral' or 'zcdp_spectral'.
    name: name of the density, on a circle.
    pairs: pairs (K, m) of frequencies and bins, K increasing.
  """
  errors.check_choice('method', method, tuple(COUNTS))
  columns, largest = [], pairs[-1][0]
  truth = density(name).fourier(largest)
  omitted = _energies(name, tuple(range(1, largest + 1)))[1]
  for top, num_bins in pairs:
    k = np.arange(1, top + 1)
    # Expected coefficients sum_b y_b e^(-2 pi i k b / m), with the phase moved
    # from the left ends of bins to their mid-points.
    means = np.fft.rfft(density(name).masses(num_bins))[1:top + 1] * np.exp(
        -1j * np.pi * k / num_bins)
    shrunk = np.sinc(k / num_bins)
    columns.append((
        num_bins, top, 2 * np.sum((1 - np.abs(means)**2) / shrunk**2),
        2 * num_bins * COUNTS[method] * np.sum(shrunk**-2.0),
        2 * np.sum(np.abs(means / shrunk - truth[:top])**2)
        + omitted[top - 1]))
  return Family(*np.array(columns).T)


@functools.cache
def histograms(method: str, name: str, bins: tuple[int, ...]) -> Family:
  """Returns errors of histograms with noisy counts (DEN-H2).

  Args:
    method: 'histogram' or 'zcdp_histogram'.
    name: name of the density.
    bins: numbers of equal bins.
  """
  errors.check_choice('method', method, tuple(COUNTS))
  num_bins = np.array(bins)
  squares = np.array([np.sum(density(name).masses(m)**2) for m in bins])
  return Family(num_bins, num_bins // 2, num_bins * (1 - squares),
                COUNTS[method] * num_bins**2.0,
                np.maximum(density(name).square - num_bins * squares, 0))


def family(method: str, name: str, largest: int) -> Family:
  """Returns errors of a method at all tunings up to `largest`.

  Args:
    method: a method of the module docstring.
    name: name of the density.
    largest: largest number of frequencies, or of bins for histograms.
  """
  if method in _SENSITIVITY:
    return fourier(method, name, tried(largest))
  if 'histogram' in method:
    return histograms(method, name, tried(largest))
  return spectral(method, name, tuple(
      (top, num_bins) for top in tried(largest) for num_bins in dict.fromkeys(
          odd((2 * top + 1) * ratio) for ratio in RATIOS)))


def single(method: str, name: str, order: int) -> Family:
  """Returns errors of a method at one tuning: N basis functions, or m bins."""
  if method in _SENSITIVITY:
    return fourier(method, name, (order // 2,))
  errors.check_choice('method', method, ('histogram', 'zcdp_histogram'))
  return histograms(method, name, (order,))


def odd(size: float) -> int:
  """Returns the least odd integer that is at least `size`."""
  integer = math.ceil(size - 1e-9)
  return integer + 1 - integer % 2


def printed_order(method: str, smoothness: int, num_records: float,
                  signal: float) -> int:
  """Returns the printed tuning: N, rounded up to be odd, or m bins.

  Items DEN-H4, DEN-P4 and DEN-P5.

  Args:
    method: a printed method; for relaxed privacy, the zCDP method with the
      signal of `relaxed_signal`.
    smoothness: beta, the order of the bounded derivative.
    num_records: n; may be infinite.
    signal: n alpha; may be infinite.
  """
  if 'histogram' in method:
    size = min(num_records, _MANY)
    return bandwidths.printed_bins(num_records=round(size),
                                   budget=min(signal, _MANY) / size)
  return projection_tunings.printed_num_functions(
      min(signal, _MANY), num_records=round(min(num_records, _MANY)),
      smoothness=smoothness, pure='pure' in method)


def relaxed_signal(num_records: float, epsilon: float, gamma: float) -> float:
  """Returns n sqrt(rho) of Corollary 2 for delta = n^-gamma (DEN-P7)."""
  return num_records * epsilon / math.sqrt(16 * gamma * math.log(num_records))
