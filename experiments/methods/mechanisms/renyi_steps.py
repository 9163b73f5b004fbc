"""Renyi divergences of single mechanisms, and steps of composition, by formula.

Accounting uses `accounting.epsilon(..., accountant='rdp')`, which does the same
over many orders. Source: Mironov (2017); Mironov, Talwar and Zhang (2019).
"""

from collections.abc import Sequence
import math

import numpy as np
from scipy import special

from dpjax import errors
from dpjax.privacy import renyi
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import ZCDP
from dpjax.privacy.renyi import RenyiDP


def gaussian(*, noise_multiplier: float, order: float) -> RenyiDP:
  """Returns the RDP of one Gaussian release, exact (DP-05).

  The divergence is order / (2 noise_multiplier^2).
  """
  renyi.check_order(order)
  errors.check_positive('noise_multiplier', noise_multiplier)
  return RenyiDP(order=order, divergence=order / (2 * noise_multiplier**2))


def sampled_gaussian(*, noise_multiplier: float, sampling_prob: float,
                     order: int) -> RenyiDP:
  """Returns the RDP of a Gaussian release on a Poisson sample, exact.

  ln sum_j C(a, j) (1-q)^(a-j) q^j e^(j (j-1) / (2 z^2)) / (a - 1), the
  divergence of the mixture from plain noise; the other direction is smaller.
  For ADD_OR_REMOVE_ONE and integer orders. Source: Lalanne (2023, section
  2.3.4) for orders above 1, where "any a > 0" is printed (item OPT-03, erratum
  T-E13); Mironov, Talwar and Zhang (2019).

  Args:
    noise_multiplier: z, noise deviation over one contribution.
    sampling_prob: q, of every record, independently.
    order: a, an integer of at least 2.
  """
  errors.check_positive('noise_multiplier', noise_multiplier)
  errors.check_probability('sampling_prob', sampling_prob)
  errors.check_at_least('order', order, 2)
  if sampling_prob == 1:
    return gaussian(noise_multiplier=noise_multiplier, order=order)
  drawn = np.arange(order + 1)
  # Logarithms of the terms of the binomial sum, which would overflow.
  logs = (special.gammaln(order + 1) - special.gammaln(drawn + 1) -
          special.gammaln(order - drawn + 1) +
          (order - drawn) * math.log1p(-sampling_prob) +
          drawn * math.log(sampling_prob) +
          drawn * (drawn - 1) / (2 * noise_multiplier**2))
  divergence = float(special.logsumexp(logs)) / (order - 1)
  return RenyiDP(order=order, divergence=max(divergence, 0.0))


def laplace(*, epsilon: float, order: float) -> RenyiDP:
  """Returns the RDP of one number with Laplace noise, exact.

  The noise scale is sensitivity / epsilon. The divergence is ln(a e^((a - 1)
  epsilon) + (a - 1) e^(-a epsilon)) - ln(2 a - 1), over a - 1. Source: Mironov
  (2017, Proposition 6; item DEF-05).
  """
  renyi.check_order(order)
  errors.check_positive('epsilon', epsilon)
  # Logarithms of the two terms, which overflow at large orders.
  logs = (math.log(order) + (order - 1) * epsilon,
          math.log(order - 1) - order * epsilon)
  return RenyiDP(order=order, divergence=max(
      (np.logaddexp(*logs) - math.log(2 * order - 1)) / (order - 1), 0.0))


def randomized_response(*, epsilon: float, order: float,
                        num_categories: int = 2) -> RenyiDP:
  """Returns the RDP of one randomised response among K categories, exact.

  ln(e^(a epsilon) + e^((1 - a) epsilon) + K - 2) - ln(e^epsilon + K - 1), over
  a - 1, under replace-one (item DEF-05).
  """
  renyi.check_order(order)
  errors.check_positive('epsilon', epsilon)
  others = errors.check_at_least('num_categories', num_categories, 2) - 2
  # Truth and one lie exchange their probabilities, K - 2 lies keep theirs.
  above = np.logaddexp(order * epsilon, (1 - order) * epsilon)
  above = np.logaddexp(above, math.log(others) if others else -math.inf)
  below = np.logaddexp(epsilon, math.log(others + 1))
  return RenyiDP(order=order, divergence=max((above - below) / (order - 1),
                                             0.0))


def renyi_from_zcdp(guarantee: ZCDP, *, order: float) -> RenyiDP:
  """Returns the RDP of rho-zCDP at one order: rho a, by definition."""
  renyi.check_order(order)
  return RenyiDP(order=order, divergence=guarantee.rho * order)


def compose(guarantees: Sequence[RenyiDP]) -> RenyiDP:
  """Returns the RDP of several releases on the same data: divergences add.

  Releases may be chosen adaptively. Source: Barczewski (2025, Theorem 3.1.4;
  item DP-06).

  Raises:
    ValueError: if the guarantees are not all of one order.
  """
  orders = {guarantee.order for guarantee in guarantees}
  if len(orders) != 1:
    raise ValueError(f'composing needs guarantees of one order, got '
                     f'{sorted(orders)}')
  total = math.fsum(guarantee.divergence for guarantee in guarantees)
  return RenyiDP(order=orders.pop(), divergence=total)


def group(guarantee: RenyiDP, *, doublings: int) -> RenyiDP:
  """Returns the RDP of data sets 2^c records apart, at order a / 2^c.

  The divergence is 3^c times as large, by a chain of triangle inequalities; for
  Gaussians the factor is 2^c. Source: Mironov (2017, Proposition 2; item
  ALG-06).

  Args:
    guarantee: RDP for neighbours, at an order a of at least 2^(c + 1).
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
  """Returns the (epsilon, delta)-DP that one order implies; tighter form.

  epsilon = divergence + ln((a - 1) / a) - ln(delta a) / (a - 1): Canonne,
  Kamath and Steinke (2020, Proposition 12), as in `dp_accounting` (DP-07).
  """
  errors.check_open_unit('delta', delta)
  order = guarantee.order
  epsilon = (guarantee.divergence + math.log1p(-1 / order) -
             math.log(delta * order) / (order - 1))
  return ApproxDP(epsilon=max(epsilon, 0.0), delta=delta)
