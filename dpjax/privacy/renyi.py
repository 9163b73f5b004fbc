"""Renyi differential privacy at one order, and what it implies.

For whole runs use `accounting.epsilon(..., accountant='rdp')`, which does the
same over many orders; this module states the steps.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import special

from dpjax import errors
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import BoundedRange
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenyiDP:
  """Renyi divergence of order `order` at most `divergence`, both ways.

  Source: Mironov 2017 (thesis 003, Definition 3.1.5; item DP-05).
  """
  order: float
  divergence: float

  def __post_init__(self):
    errors.check_non_negative('divergence', self.divergence)
    _check_order(self.order)


def _check_order(order: float) -> None:
  if not (math.isfinite(order) and order > 1):
    raise ValueError(f'order must be a number > 1, got {order}')


def gaussian(*, noise_multiplier: float, order: float) -> RenyiDP:
  """Of one Gaussian release: order / (2 noise_multiplier^2), exact (DP-05)."""
  _check_order(order)
  errors.check_positive('noise_multiplier', noise_multiplier)
  return RenyiDP(order=order, divergence=order / (2 * noise_multiplier**2))


def sampled_gaussian(*, noise_multiplier: float, sampling_prob: float,
                     order: int) -> RenyiDP:
  """Of one Gaussian release on a Poisson subsample, exact at whole orders.

  ln sum_j C(a, j) (1-q)^(a-j) q^j e^(j (j-1) / (2 z^2)) / (a - 1), of the
  mixture against the plain noise; the other direction is smaller. For
  ADD_OR_REMOVE_ONE. Source: thesis 000, Section 2.3.4, for orders above 1
  where "any a > 0" is printed (item OPT-03, erratum T-E13); Mironov, Talwar
  and Zhang 2019.

  Args:
    noise_multiplier: z.
    sampling_prob: q, of every record, independently.
    order: a, an integer of at least 2.
  """
  errors.check_positive('noise_multiplier', noise_multiplier)
  errors.check_probability('sampling_prob', sampling_prob)
  errors.check_at_least('order', order, 2)
  if sampling_prob == 1:
    return gaussian(noise_multiplier=noise_multiplier, order=order)
  drawn = np.arange(order + 1)
  logs = (special.gammaln(order + 1) - special.gammaln(drawn + 1) -
          special.gammaln(order - drawn + 1) +
          (order - drawn) * math.log1p(-sampling_prob) +
          drawn * math.log(sampling_prob) +
          drawn * (drawn - 1) / (2 * noise_multiplier**2))
  divergence = float(special.logsumexp(logs)) / (order - 1)
  return RenyiDP(order=order, divergence=max(divergence, 0.0))


def laplace(*, epsilon: float, order: float) -> RenyiDP:
  """Of one number with Laplace noise of scale sensitivity / epsilon, exact.

  ln(a e^((a - 1) epsilon) + (a - 1) e^(-a epsilon)) - ln(2 a - 1), over a - 1.
  Source: Mironov 2017, Proposition 6 (item DEF-05).
  """
  _check_order(order)
  errors.check_positive('epsilon', epsilon)
  logs = (math.log(order) + (order - 1) * epsilon,
          math.log(order - 1) - order * epsilon)
  return RenyiDP(order=order, divergence=max(
      (np.logaddexp(*logs) - math.log(2 * order - 1)) / (order - 1), 0.0))


def randomized_response(*, epsilon: float, order: float,
                        num_categories: int = 2) -> RenyiDP:
  """Of one answer by randomised response among K categories, exact.

  ln(e^(a epsilon) + e^((1 - a) epsilon) + K - 2) - ln(e^epsilon + K - 1), over
  a - 1, under replace-one (item DEF-05).
  """
  _check_order(order)
  errors.check_positive('epsilon', epsilon)
  others = errors.check_at_least('num_categories', num_categories, 2) - 2
  above = np.logaddexp(order * epsilon, (1 - order) * epsilon)
  above = np.logaddexp(above, math.log(others) if others else -math.inf)
  below = np.logaddexp(epsilon, math.log(others + 1))
  return RenyiDP(order=order, divergence=max((above - below) / (order - 1),
                                             0.0))


def renyi_from_pure(guarantee: PureDP, *, order: float) -> RenyiDP:
  """Returns what epsilon-DP implies at one order; tight.

  Binary randomised response attains it: ln(cosh((a - 1/2) epsilon) /
  cosh(epsilon / 2)) / (a - 1), written so that small epsilons lose no digits.
  """
  _check_order(order)
  epsilon = guarantee.epsilon
  if order * epsilon < 30:
    return RenyiDP(order=order, divergence=math.log1p(
        2 * math.sinh(order * epsilon / 2) * math.sinh(
            (order - 1) * epsilon / 2) / math.cosh(epsilon / 2)) / (order - 1))
  rest = (math.log1p(math.exp((1 - 2 * order) * epsilon)) -
          math.log1p(math.exp(-epsilon)))
  return RenyiDP(order=order, divergence=epsilon + rest / (order - 1))


def bounded_range(guarantee: BoundedRange, *, order: float) -> RenyiDP:
  """Returns what a bounded range implies at one order; tight.

  Statement. If ln(P/Q) lies in [t - w, t] for some t, as it does for the
  exponential mechanism of guarantee w, then the Renyi divergence of order a of
  P from Q is at most s(a w) - s((a - 1) w) + (s(a w) - s(w)) / (a - 1), with
  s(u) = ln(sinh(u / 2) / (u / 2)).

  Proof. 1. X = P/Q lies in [x e^-w, x], x = e^t, and has mean 1 under Q. 2. A
  convex function is below its chord, so E X^a is at most that of the law on
  the two ends with mean 1: x^(a - 1) (1 - b^a + x (b^a - b)) / (1 - b), with
  b = e^-w. 3. Its derivative in x vanishes only at x = (a - 1) (1 - b^a) / (a
  (b - b^a)), where it is largest. 4. Its logarithm there, over a - 1, is the
  bound, by 1 - e^-u = u e^(-u / 2) e^s(u).

  Source of 1 and 2: Dong, Durfee and Rogers 2020.
  """
  _check_order(order)
  width = guarantee.width
  top, below = _log_sinhc(order * width), _log_sinhc((order - 1) * width)
  divergence = top - below + (top - _log_sinhc(width)) / (order - 1)
  return RenyiDP(order=order, divergence=max(divergence, 0.0))


def _log_sinhc(u: float) -> float:
  """ln(sinh(u / 2) / (u / 2)) for u >= 0, to nearly all digits."""
  if u < 0.1:  # The next term of the series is below 1e-15 of the first.
    square = u * u
    return square / 24 * (1 - square / 120 * (1 - square / 63 * (
        1 - square * 3 / 160)))
  return u / 2 + math.log(-math.expm1(-u) / u)


def renyi_from_pure_printed(guarantee: PureDP, *, order: float) -> RenyiDP:
  """The closed form min(epsilon, a epsilon^2 / 2): valid, and looser.

  Source: thesis 000, Section 2.2.2 (item ALG-02, erratum T-E06).
  """
  _check_order(order)
  epsilon = guarantee.epsilon
  return RenyiDP(order=order, divergence=min(epsilon, order * epsilon**2 / 2))


def renyi_from_zcdp(guarantee: ZCDP, *, order: float) -> RenyiDP:
  """rho a, by definition."""
  _check_order(order)
  return RenyiDP(order=order, divergence=guarantee.rho * order)


def rho_of_curve(guarantees: Sequence[RenyiDP]) -> float:
  """The largest divergence / order of some orders.

  At most the rho of zCDP, which is over all orders above 1: no guarantee (item
  DEF-06). One order alone implies no zCDP at all (thesis 000, Section 2.2.2).
  """
  return max(g.divergence / g.order for g in guarantees)


def compose(guarantees: Sequence[RenyiDP]) -> RenyiDP:
  """Releases on the same data, also adaptive: divergences of one order add.

  Source: thesis 003, Theorem 3.1.4 (item DP-06).
  """
  orders = {guarantee.order for guarantee in guarantees}
  if len(orders) != 1:
    raise ValueError(f'composing needs guarantees of one order, got '
                     f'{sorted(orders)}')
  total = math.fsum(guarantee.divergence for guarantee in guarantees)
  return RenyiDP(order=orders.pop(), divergence=total)


def group(guarantee: RenyiDP, *, doublings: int) -> RenyiDP:
  """What holds for data sets 2^c records apart, at order a / 2^c.

  3^c times the divergence, by a chain of triangle inequalities; of Gaussians it
  is 2^c times. Source: Mironov 2017, Proposition 2 (item ALG-06).

  Args:
    guarantee: of neighbours, at an order a of at least 2^(c + 1).
    doublings: c, at least 0.

  Raises:
    ValueError: if the order is too small.
  """
  size = 2**errors.check_at_least('doublings', doublings, 0)
  if guarantee.order < 2 * size:
    raise ValueError(f'groups of {size} need an order of at least {2 * size}, '
                     f'got {guarantee.order}')
  return RenyiDP(order=guarantee.order / size,
                 divergence=3**doublings * guarantee.divergence)


def approx_from_renyi(guarantee: RenyiDP, *, delta: float) -> ApproxDP:
  """The (epsilon, delta)-DP that one order implies; the tighter conversion.

  epsilon = divergence + ln((a - 1) / a) - ln(delta a) / (a - 1): Canonne,
  Kamath and Steinke 2020, Proposition 12, as `dp_accounting` has it (DP-07).
  """
  errors.check_open_unit('delta', delta)
  order = guarantee.order
  epsilon = (guarantee.divergence + math.log1p(-1 / order) -
             math.log(delta * order) / (order - 1))
  return ApproxDP(epsilon=max(epsilon, 0.0), delta=delta)


def approx_from_renyi_printed(guarantee: RenyiDP, *,
                              delta: float) -> ApproxDP:
  """The conversion divergence + ln(1/delta) / (a - 1): valid, and looser.

  Source: Mironov 2017, Proposition 3 (thesis 003, Theorem 3.1.5; DP-07).
  """
  errors.check_open_unit('delta', delta)
  return ApproxDP(epsilon=guarantee.divergence - math.log(delta) /
                  (guarantee.order - 1), delta=delta)
