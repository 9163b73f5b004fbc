"""Privacy guarantees as values, and the conversions between them.

Every conversion is an implication: a mechanism that has the first guarantee
has the returned one, for the same adjacency. None can be reversed at the same
parameters.
"""

import dataclasses
import math

from dpjax import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class PureDP:
  """epsilon-DP: log-ratio of output densities at most `epsilon`."""
  epsilon: float

  def __post_init__(self):
    errors.check_non_negative('epsilon', self.epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApproxDP:
  """(epsilon, delta)-DP: P(S) <= e^epsilon Q(S) + delta, both orders.

  Source: thesis 003, Definition 3.1.3 (item DP-01). Not the same as epsilon-DP
  with probability 1 - delta, which implies it. A delta of 1/n is no privacy:
  publishing one random record is (0, 1/n)-DP under replace-one (erratum E26).
  """
  epsilon: float
  delta: float

  def __post_init__(self):
    errors.check_non_negative('epsilon', self.epsilon)
    if not 0 <= self.delta < 1:
      raise ValueError(f'delta must lie in [0, 1), got {self.delta}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZCDP:
  """rho-zCDP: Renyi divergence of order a at most rho * a, for all a > 1."""
  rho: float

  def __post_init__(self):
    errors.check_non_negative('rho', self.rho)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TotalVariationPrivacy:
  """Neighbours' laws differ by at most `level` in total variation.

  The same as (0, level)-DP. No promise that anybody should rely on: publishing
  a record drawn at random has it with a level of 1/n under replace-one. Source:
  paper 004, Definition 4.
  """
  level: float

  def __post_init__(self):
    errors.check_non_negative('level', self.level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KullbackLeiblerPrivacy:
  """Neighbours' laws have a Kullback-Leibler divergence of at most `level`.

  Implied by zCDP of rho = level, and not the reverse. Source: paper 004,
  Definition 5.
  """
  level: float

  def __post_init__(self):
    errors.check_non_negative('level', self.level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChiSquarePrivacy:
  """Neighbours' laws have a chi-square divergence of at most `level`."""
  level: float

  def __post_init__(self):
    errors.check_non_negative('level', self.level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedRange:
  """The log-ratio of neighbours' laws varies by at most `width` over outputs.

  `width`-DP, half of it at best. The exponential mechanism has it with its
  epsilon. Source: Dong, Durfee and Rogers 2020.
  """
  width: float

  def __post_init__(self):
    errors.check_non_negative('width', self.width)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianPrivacy:
  """Neighbours are as hard to tell apart as N(0, 1) and N(shift, 1)."""
  shift: float

  def __post_init__(self):
    errors.check_non_negative('shift', self.shift)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConditionalTesting:
  """Given any event of probability `mass` or more, variation at most `level`.

  Of neighbours' laws and all that is computed from them: the event, and what is
  tested in it, may be of a post-processed output, or else nothing is inherited.
  Source: paper 004, Definition 8 and Theorem 1.
  """
  level: float
  mass: float = 0.0

  def __post_init__(self):
    errors.check_non_negative('level', self.level)
    if not 0 <= self.mass <= 1:
      raise ValueError(f'mass must lie in [0, 1], got {self.mass}')


def zcdp_from_pure(guarantee: PureDP) -> ZCDP:
  """The tight zCDP guarantee of any pure mechanism: epsilon tanh(epsilon/2).

  Never worse than the textbook epsilon^2 / 2; attained by binary randomised
  response as the order tends to 1.
  """
  epsilon = guarantee.epsilon
  return ZCDP(rho=epsilon * math.tanh(epsilon / 2))


def zcdp_from_pure_printed(guarantee: PureDP) -> ZCDP:
  """The closed form epsilon^2 / 2: valid, and looser.

  Source: thesis 000, Section 2.2.2 (item ALG-02, erratum T-E06).
  """
  return ZCDP(rho=guarantee.epsilon**2 / 2)


def approx_from_pure(guarantee: PureDP, *, delta: float = 0.0) -> ApproxDP:
  """The epsilon that is left when a delta is allowed; tight.

  ln(max(e^epsilon - delta (1 + e^epsilon), 1)), attained by binary randomised
  response (item DEF-03).
  """
  if not 0 <= delta < 1:
    raise ValueError(f'delta must lie in [0, 1), got {delta}')
  epsilon = guarantee.epsilon
  left = 1 - delta * (1 + math.exp(-epsilon))
  return ApproxDP(epsilon=max(epsilon + math.log(left), 0.0) if left > 0 else
                  0.0, delta=delta)


def approx_from_zcdp(guarantee: ZCDP, *, delta: float) -> ApproxDP:
  """The closed form rho + 2 sqrt(rho ln(1/delta)) at a given delta.

  Valid for every mechanism, and looser than accounting for the event itself
  (`accounting.epsilon`).

  Examples:
    >>> from dpjax.privacy import notions
    >>> found = notions.approx_from_zcdp(notions.ZCDP(rho=0.1), delta=1e-5)
    >>> round(found.epsilon, 3)
    2.246
  """
  errors.check_open_unit('delta', delta)
  rho = guarantee.rho
  return ApproxDP(
      epsilon=rho + 2 * math.sqrt(rho * math.log(1 / delta)), delta=delta)


def zcdp_from_approx_target(guarantee: ApproxDP) -> ZCDP:
  """The largest rho for which `approx_from_zcdp` meets `guarantee`.

  A calibration, not an implication: spend this rho and the target holds.
  """
  errors.check_open_unit('delta', guarantee.delta)
  log_term = math.log(1 / guarantee.delta)
  root = math.sqrt(log_term + guarantee.epsilon) - math.sqrt(log_term)
  return ZCDP(rho=root**2)


def zcdp_from_mechanism(guarantee: PureDP, mechanism: str) -> ZCDP:
  """The tight zCDP guarantee of a mechanism that is known, from its epsilon.

  'laplace', one number: epsilon + e^-epsilon - 1. 'geometric', of sensitivity
  1: that of any, epsilon tanh(epsilon / 2). 'exponential', and whatever else
  has bounded range: epsilon / (e^epsilon - 1) - 1 - ln(epsilon / (e^epsilon -
  1)), at most epsilon^2 / 8. Sources: item ALG-02, MECH-05; Dong, Durfee and
  Rogers 2020.
  """
  epsilon = guarantee.epsilon
  errors.check_choice('mechanism', mechanism,
                      ('laplace', 'geometric', 'exponential'))
  if mechanism == 'geometric' or not epsilon:
    return zcdp_from_pure(guarantee)
  if mechanism == 'laplace':
    # Small epsilons: the series, for what the difference would lose.
    exact = epsilon + math.expm1(-epsilon)
    return ZCDP(rho=exact if epsilon > 1e-4 else epsilon**2 / 2)
  ratio = epsilon / math.expm1(epsilon)
  exact = ratio - 1 - math.log(ratio)
  return ZCDP(rho=exact if epsilon > 1e-4 else epsilon**2 / 8)


def zcdp_from_response(guarantee: PureDP, num_categories: int) -> ZCDP:
  """The tight zCDP guarantee of randomised response among 2 to 6 categories.

  epsilon (e^epsilon - 1) / (e^epsilon + K - 1), the limit of order 1; for more
  categories the supremum may lie elsewhere (item ALG-02).
  """
  if not 2 <= errors.check_at_least('num_categories', num_categories, 2) <= 6:
    raise ValueError('num_categories must be an integer from 2 to 6, got '
                     f'{num_categories}')
  growth = math.expm1(guarantee.epsilon)
  return ZCDP(rho=guarantee.epsilon * growth / (growth + num_categories))


def zcdp_of_group(guarantee: ZCDP, *, size: int) -> ZCDP:
  """For data sets that differ in `size` records: size^2 rho.

  Exact for Gaussian releases. Source: thesis 000, Fact 2.2.3 (item ALG-06).
  """
  return ZCDP(rho=errors.check_at_least('size', size, 1)**2 * guarantee.rho)
