"""Renyi differential privacy at one order, and its conversions.

For whole runs use `accounting.epsilon(..., accountant='rdp')`, which does the
same over many orders; this module provides the single steps.
"""

import dataclasses
import math

from dpjax import errors
from dpjax.privacy.notions import BoundedRange
from dpjax.privacy.notions import PureDP


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenyiDP:
  """Renyi divergence of order `order` at most `divergence`, in both directions.

  Source: Mironov (2017); Barczewski (2025, Definition 3.1.5; item DP-05).

  Attributes:
    order: a, finite and > 1.
    divergence: bound on the Renyi divergence, >= 0.
  """
  order: float
  divergence: float

  def __post_init__(self) -> None:
    errors.check_non_negative('divergence', self.divergence)
    check_order(self.order)


def check_order(order: float) -> None:
  """Checks that a Renyi order is a finite number > 1."""
  if not (math.isfinite(order) and order > 1):
    raise ValueError(f'order must be a number > 1, got {order}')


def renyi_from_pure(guarantee: PureDP, *, order: float) -> RenyiDP:
  """Returns the tight RDP of any epsilon-DP mechanism at one order.

  Binary randomised response attains it: ln(cosh((a - 1/2) epsilon) /
  cosh(epsilon / 2)) / (a - 1), written so that small epsilons lose no digits.
  """
  check_order(order)
  epsilon = guarantee.epsilon
  if order * epsilon < 30:
    return RenyiDP(order=order, divergence=math.log1p(
        2 * math.sinh(order * epsilon / 2) * math.sinh(
            (order - 1) * epsilon / 2) / math.cosh(epsilon / 2)) / (order - 1))
  # For large arguments sinh would overflow: factor the exponentials out.
  rest = (math.log1p(math.exp((1 - 2 * order) * epsilon)) -
          math.log1p(math.exp(-epsilon)))
  return RenyiDP(order=order, divergence=epsilon + rest / (order - 1))


def bounded_range(guarantee: BoundedRange, *, order: float) -> RenyiDP:
  """Returns the tight RDP of any mechanism of bounded range at one order.

  Statement. If ln(P/Q) lies in [t - w, t] for some t, as it does for the
  exponential mechanism of guarantee w, then the Renyi divergence of order a of
  P from Q is at most s(a w) - s((a - 1) w) + (s(a w) - s(w)) / (a - 1), with
  s(u) = ln(sinh(u / 2) / (u / 2)).

  Proof:
  1. X = P/Q lies in [x e^-w, x], x = e^t, and has mean 1 under Q.
  2. A convex function is below its chord. So E X^a is at most that of the
    distribution of mean 1 on the two end points, x^(a - 1) (1 - b^a + x (b^a -
    b)) / (1 - b) with b = e^-w.
  3. The derivative in x vanishes only at x = (a - 1) (1 - b^a) / (a (b - b^a)),
    the maximum.
  4. The logarithm of the maximum, over a - 1, is the bound, by 1 - e^-u = u
    e^(-u / 2) e^s(u).

  Source of 1 and 2: Dong, Durfee and Rogers (2020).
  """
  check_order(order)
  width = guarantee.width
  top, below = _log_sinhc(order * width), _log_sinhc((order - 1) * width)
  # The difference cancels for small widths, and may round to below 0.
  divergence = top - below + (top - _log_sinhc(width)) / (order - 1)
  return RenyiDP(order=order, divergence=max(divergence, 0.0))


def _log_sinhc(u: float) -> float:
  """Returns ln(sinh(u / 2) / (u / 2)) for u >= 0, to nearly all digits."""
  if u < 0.1:  # The next term of the series is below 1e-15 of the first.
    square = u * u
    return square / 24 * (1 - square / 120 * (1 - square / 63 * (
        1 - square * 3 / 160)))
  return u / 2 + math.log(-math.expm1(-u) / u)
