"""Printed conversions between privacy guarantees, valid and loose.

The tight ones are in `dpjax.privacy.notions`, `renyi` and `composition`.
"""

from collections.abc import Sequence
import math

from dpjax import errors
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from dpjax.privacy.renyi import RenyiDP


def zcdp_from_pure_printed(guarantee: PureDP) -> ZCDP:
  """Returns the closed form epsilon^2 / 2: valid, and looser.

  Source: Lalanne (2023, section 2.2.2; item ALG-02, erratum T-E06).
  """
  return ZCDP(rho=guarantee.epsilon**2 / 2)


def renyi_from_pure_printed(guarantee: PureDP, *, order: float) -> RenyiDP:
  """Returns the closed form min(epsilon, a epsilon^2 / 2): valid, looser.

  Source: Lalanne (2023, section 2.2.2; item ALG-02, erratum T-E06).
  """
  epsilon = guarantee.epsilon
  return RenyiDP(order=order, divergence=min(epsilon, order * epsilon**2 / 2))


def rho_of_curve(guarantees: Sequence[RenyiDP]) -> float:
  """Returns the largest divergence / order of the given orders.

  This is at most the rho of zCDP, which is over all orders above 1, so it is no
  guarantee (item DEF-06). One order alone implies no zCDP at all (Lalanne 2023,
  section 2.2.2).
  """
  return max(g.divergence / g.order for g in guarantees)


def approx_from_renyi_printed(guarantee: RenyiDP, *,
                              delta: float) -> ApproxDP:
  """Returns epsilon = divergence + ln(1/delta) / (a - 1): valid, looser.

  Source: Mironov (2017, Proposition 3); Barczewski (2025, Theorem 3.1.5;
  DP-07).
  """
  errors.check_open_unit('delta', delta)
  return ApproxDP(epsilon=guarantee.divergence - math.log(delta) /
                  (guarantee.order - 1), delta=delta)


def group_printed(guarantee: ApproxDP, *, size: int) -> ApproxDP:
  """Returns `group` with the looser delta K e^(K epsilon) of the source.

  Valid. Source: Barczewski (2025, Theorem 3.1.6; item DP-08).
  """
  errors.check_at_least('size', size, 1)
  total = size * guarantee.epsilon
  return ApproxDP(epsilon=total,
                  delta=size * math.exp(total) * guarantee.delta)
