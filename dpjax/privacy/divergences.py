"""How far apart two finite distributions are; float64, on the host.

A pair (P, Q) is what a mechanism makes of two neighbours. Both orders matter,
so a claim is checked on (P, Q) and on (Q, P). No post-processing raises any of
these divergences (thesis 003, Theorem 3.1.1; item DP-02).
"""

from collections.abc import Callable
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from dpjax import errors


class Generator(NamedTuple):
  """Of an f-divergence.

  Attributes:
    function: f, convex, f(1) = 0; elementwise.
    growth: limit of f(t) / t, what an outcome that Q cannot have costs.
  """
  function: Callable[[np.ndarray], np.ndarray]
  growth: float


# Half of |t - 1|: twice that is printed (paper 004, Definition 5; E-03).
TOTAL_VARIATION = Generator(lambda t: np.abs(t - 1) / 2, 0.5)
KULLBACK_LEIBLER = Generator(lambda t: special.xlogy(t, t), math.inf)
CHI_SQUARE = Generator(lambda t: np.square(t - 1), math.inf)


def f_divergence(p: np.ndarray, q: np.ndarray, generator: Generator) -> float:
  """D_f(P || Q) = sum q f(p / q); may be infinite.

  Args:
    p: [m] probabilities.
    q: [m] probabilities of the same outcomes.
    generator: f.
  """
  p, q = _pair(p, q)
  seen, outside = q > 0, p[q == 0].sum()
  inside = q[seen] @ generator.function(p[seen] / q[seen])
  return float(inside + (generator.growth * outside if outside else 0.0))


def hockey_stick(p: np.ndarray, q: np.ndarray, *, epsilon: float) -> float:
  """The least delta with P(S) <= e^epsilon Q(S) + delta for every event S.

  sum over outcomes of (p - e^epsilon q)+: the (epsilon, delta)-DP of thesis
  003, Definitions 3.1.1 to 3.1.3, for one ordered pair (item DP-01).

  Args:
    p: [m] probabilities.
    q: [m] probabilities of the same outcomes.
    epsilon: >= 0.
  """
  errors.check_non_negative('epsilon', epsilon)
  p, q = _pair(p, q)
  return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0)))


def max_divergence(p: np.ndarray, q: np.ndarray) -> float:
  """Largest ln(p / q) over outcomes that P can produce; may be infinite."""
  p, q = _pair(p, q)
  with np.errstate(divide='ignore'):
    return float(np.max(np.log(p[p > 0]) - np.log(q[p > 0])))


def renyi(p: np.ndarray, q: np.ndarray, *, order: float) -> float:
  """Renyi divergence ln(sum p^a q^(1-a)) / (a - 1) of order a > 1.

  Source: Mironov 2017, Definition 3 (thesis 003, Definition 3.1.5; item DP-05).
  """
  if not (math.isfinite(order) and order > 1):
    raise ValueError(f'order must be a number > 1, got {order}')
  p, q = _pair(p, q)
  if np.any(q[p > 0] == 0):
    return math.inf
  p, q = p[p > 0], q[p > 0]
  logs = order * np.log(p) + (1 - order) * np.log(q)
  return float(np.logaddexp.reduce(logs) / (order - 1))


def _pair(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Both as float64 vectors, refused if they are no distributions."""
  p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
  for name, values in (('p', p), ('q', q)):
    if not (np.all(values >= 0) and abs(values.sum() - 1) <= 1e-9):
      raise ValueError(f'{name} must be probabilities that sum to 1, got a sum '
                       f'of {values.sum()}')
  if p.shape != q.shape:
    raise ValueError(f'p and q must have one shape, got {p.shape} and '
                     f'{q.shape}')
  return p, q
