"""Coefficients of noisy bin shares in three bases.

  fourier  for a circle: deconvolved, complex (item DEN-B2)
  cosine   for an interval, by its even extension: the same (DEN-B7)
  spline   for an interval, with no assumption at its ends

The last is the discrete Demmler-Reinsch basis: eigenvectors of the penalty sum
(h_(b-1) - 2 h_b + h_(b+1))^2 on heights of bins, ordered from straight lines to
the fastest oscillation. The cosine basis is that of first differences. It
treats all densities as flat at the ends; for others its coefficients fall
slowly. No JAX: releases in plain Python use this too.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import linalg

from dpjax import errors

BASES = ('spline', 'cosine', 'fourier')
BOUNDARIES = {'interval': 'spline', 'circle': 'fourier'}
"""The basis for each kind of boundary; on a circle 0 and 1 are the same point.
"""

_MOST_BINS = 2048


class Basis(NamedTuple):
  """A linear map from shares of bins to coefficients.

  Attributes:
    analysis: [m, K]; shares of bins times this matrix are coefficients.
    gains: [K] sums of squares of its columns: the variance of a coefficient if
      the shares have noise of variance 1.
  """
  analysis: np.ndarray
  gains: np.ndarray


@functools.lru_cache(maxsize=64)
def basis(kind: str, num_bins: int, count: int | None = None) -> Basis:
  """Returns the first K functions of a basis; all of them by default.

  Args:
    kind: one of `BASES`.
    num_bins: m; odd for 'fourier', where K is at most (m - 1) / 2, else m - 1.
    count: K.
  """
  errors.check_choice('basis', kind, BASES)
  errors.check_at_least('num_bins', num_bins, 3)
  if kind == 'fourier' and num_bins % 2 == 0:
    raise ValueError('num_bins must be odd on a circle: of m bins a frequency '
                     f'm / 2 has no sine, got {num_bins}')
  most = (num_bins - 1) // 2 if kind == 'fourier' else num_bins - 1
  count = most if count is None else count
  if not 1 <= count <= most:
    raise ValueError(f'{num_bins} bins determine 1 to {most} coefficients, got '
                     f'{count}')
  if kind == 'spline':
    analysis = smoothest(num_bins)[:, 1:count + 1]
  else:
    k, middles = np.arange(1, count + 1), np.arange(num_bins) + 0.5
    turns = np.multiply.outer(middles, k) / num_bins
    analysis = (np.exp(-2j * np.pi * turns) / np.sinc(k / num_bins)
                if kind == 'fourier' else math.sqrt(2) * np.cos(np.pi * turns)
                / np.sinc(0.5 * k / num_bins))
  gains = np.sum(np.abs(analysis)**2, 0)
  for part in (analysis, gains):
    part.setflags(write=False)
  return Basis(analysis, gains)


@functools.lru_cache(maxsize=32)
def smoothest(num_bins: int) -> np.ndarray:
  """Returns vectors [m, m] of mean square 1, the smoothest first."""
  if not 3 <= num_bins <= _MOST_BINS:
    raise ValueError(f'num_bins must be 3 to {_MOST_BINS}, got {num_bins}')
  # D' D has five diagonals; LAPACK takes those above and the main one.
  bands = np.zeros([3, num_bins])
  for row, a in enumerate((1, -2, 1)):
    for column, b in enumerate((1, -2, 1)):
      if column >= row:
        bands[2 - (column - row), column:column + num_bins - 2] += a * b
  vectors = linalg.eig_banded(bands)[1]
  # The eigenvectors of eigenvalue 0 are the constant and the line; remove what
  # rounding leaves of them in the other vectors.
  line = np.arange(num_bins) - 0.5 * (num_bins - 1)
  flat = np.stack([np.ones(num_bins), line], 1)
  flat /= np.linalg.norm(flat, axis=0)
  vectors[:, 2:] -= flat @ (flat.T @ vectors[:, 2:])
  vectors[:, :2] = flat
  vectors *= math.sqrt(num_bins) / np.linalg.norm(vectors, axis=0)
  vectors.setflags(write=False)
  return vectors


def adaptive_bins(num_records: int, noise_variance: float, *,
                  factor: float = 1.0, most: int = 1023) -> int:
  """Returns the bins of an adaptive estimator: min(sqrt(n eps), 3 n^(1/3)).

  An odd number, at least 5. It resolves a density with one square-integrable
  derivative; shrinkage removes detail that is finer than the density. Noise of
  variance V stands for epsilon = sqrt(8 / V).

  Args:
    num_records: n, public.
    noise_variance: V of a count; 0 without privacy.
    factor: multiplies the number of bins.
    most: the largest number of bins.
  """
  errors.check_at_least('num_records', num_records, 1)
  errors.check_non_negative('noise_variance', noise_variance)
  num_bins = 3 * num_records**(1 / 3)
  if noise_variance:
    num_bins = min(num_bins,
                   math.sqrt(num_records * math.sqrt(8 / noise_variance)))
  return min(max(5, 2 * math.ceil((factor * num_bins - 1) / 2) + 1), most)
