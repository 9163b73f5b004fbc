"""Divergences between two finite distributions; float64, on the host.

A pair (P, Q) holds a mechanism's output distributions for two neighbouring data
sets. Divergences are not symmetric, so a claim is checked on (P, Q) and on (Q,
P). Post-processing never increases any of these divergences (Barczewski 2025,
Theorem 3.1.1; item DP-02).
"""

from collections.abc import Callable
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from dpjax import errors


class Generator(NamedTuple):
  """Generator f of an f-divergence.

  Attributes:
    function: f, convex, f(1) = 0; elementwise.
    growth: limit of f(t) / t for t to infinity: the cost per probability of
      outcomes that Q cannot have.
  """
  function: Callable[[np.ndarray], np.ndarray]
  growth: float


# Barber and Duchi (2014, Definition 5) print twice this function (E-03).
TOTAL_VARIATION = Generator(lambda t: np.abs(t - 1) / 2, 0.5)
KULLBACK_LEIBLER = Generator(lambda t: special.xlogy(t, t), math.inf)
CHI_SQUARE = Generator(lambda t: np.square(t - 1), math.inf)


def f_divergence(p: np.ndarray, q: np.ndarray, generator: Generator) -> float:
  """Returns D_f(P || Q) = sum q f(p / q), which may be infinite.

  Args:
    p: [m] probabilities.
    q: [m] probabilities of the same outcomes.
    generator: f.
  """
  p, q = _pair(p, q)
  seen, outside = q > 0, p[q == 0].sum()
  inside = q[seen] @ generator.function(p[seen] / q[seen])
  # An infinite growth times 0 would be NaN.
  return float(inside + (generator.growth * outside if outside else 0.0))


def hockey_stick(p: np.ndarray, q: np.ndarray, *, epsilon: float) -> float:
  """Returns the least delta with P(S) <= e^epsilon Q(S) + delta for all S.

  The sum of max(p - e^epsilon q, 0) over outcomes: (epsilon, delta)-DP as in
  Barczewski (2025, Definitions 3.1.1 to 3.1.3), for one ordered pair (item
  DP-01).

  Args:
    p: [m] probabilities.
    q: [m] probabilities of the same outcomes.
    epsilon: >= 0.
  """
  errors.check_non_negative('epsilon', epsilon)
  p, q = _pair(p, q)
  return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0)))


def max_divergence(p: np.ndarray, q: np.ndarray) -> float:
  """Returns the largest ln(p / q) over outcomes with p > 0; may be infinite."""
  p, q = _pair(p, q)
  with np.errstate(divide='ignore'):
    return float(np.max(np.log(p[p > 0]) - np.log(q[p > 0])))


def renyi(p: np.ndarray, q: np.ndarray, *, order: float) -> float:
  """Returns the Renyi divergence ln(sum p^a q^(1-a)) / (a - 1), order a > 1.

  Source: Mironov (2017, Definition 3); Barczewski (2025, Definition 3.1.5; item
  DP-05).
  """
  if not (math.isfinite(order) and order > 1):
    raise ValueError(f'order must be a number > 1, got {order}')
  p, q = _pair(p, q)
  if np.any(q[p > 0] == 0):
    return math.inf
  p, q = p[p > 0], q[p > 0]
  # In logarithms, because powers of small probabilities under- or overflow.
  logs = order * np.log(p) + (1 - order) * np.log(q)
  return float(np.logaddexp.reduce(logs) / (order - 1))


def _pair(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns both as float64 vectors; raises if they are not distributions."""
  p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
  for name, values in (('p', p), ('q', q)):
    if not (np.all(values >= 0) and abs(values.sum() - 1) <= 1e-9):
      raise ValueError(f'{name} must be probabilities that sum to 1, got a sum '
                       f'of {values.sum()}')
  if p.shape != q.shape:
    raise ValueError(f'p and q must have one shape, got {p.shape} and '
                     f'{q.shape}')
  return p, q
