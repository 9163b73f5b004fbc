"""Privacy guarantees as values, and conversions between them.

Every conversion is an implication: a mechanism with the first guarantee also
has the returned one, for the same adjacency. No conversion can be reversed at
the same parameters.
"""

import dataclasses
import math

from dpjax import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class PureDP:
  """epsilon-DP: the log-ratio of output densities is at most `epsilon`.

  Attributes:
    epsilon: bound on the log-ratio, >= 0.
  """
  epsilon: float

  def __post_init__(self) -> None:
    errors.check_non_negative('epsilon', self.epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApproxDP:
  """(epsilon, delta)-DP: P(S) <= e^epsilon Q(S) + delta, and P, Q exchanged.

  Source: Barczewski (2025, Definition 3.1.3; item DP-01). It is not the same as
  epsilon-DP with probability 1 - delta, which implies it. A delta of 1/n is no
  privacy: publishing one random record is (0, 1/n)-DP under replace-one
  (erratum E26).

  Attributes:
    epsilon: >= 0.
    delta: in [0, 1).
  """
  epsilon: float
  delta: float

  def __post_init__(self) -> None:
    errors.check_non_negative('epsilon', self.epsilon)
    if not 0 <= self.delta < 1:
      raise ValueError(f'delta must lie in [0, 1), got {self.delta}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZCDP:
  """rho-zCDP: Renyi divergence of order a at most rho * a, for all a > 1.

  Attributes:
    rho: >= 0.
  """
  rho: float

  def __post_init__(self) -> None:
    errors.check_non_negative('rho', self.rho)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TotalVariationPrivacy:
  """Distributions under neighbours are `level`-close in total variation.

  The same as (0, level)-DP. Nobody should rely on this guarantee: publishing
  one random record has it with level 1/n under replace-one. Source: Barber and
  Duchi (2014, Definition 4).

  Attributes:
    level: bound on the total variation distance, >= 0.
  """
  level: float

  def __post_init__(self) -> None:
    errors.check_non_negative('level', self.level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KullbackLeiblerPrivacy:
  """Neighbours' distributions have KL divergence of at most `level`.

  Implied by zCDP with rho = level; the reverse does not hold. Source: Barber
  and Duchi (2014, Definition 5).

  Attributes:
    level: bound on the divergence, >= 0.
  """
  level: float

  def __post_init__(self) -> None:
    errors.check_non_negative('level', self.level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedRange:
  """Log-ratio of neighbours' distributions varies by at most `width`.

  The log-ratio, as a function of the output, lies in an interval of length
  `width`. This implies `width`-DP, and (width / 2)-DP if the interval is
  symmetric about 0. The exponential mechanism has bounded range with width
  equal to its epsilon. Source: Dong, Durfee and Rogers (2020).

  Attributes:
    width: length of the interval, >= 0.
  """
  width: float

  def __post_init__(self) -> None:
    errors.check_non_negative('width', self.width)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianPrivacy:
  """Neighbours are as hard to distinguish as N(0, 1) and N(shift, 1).

  Attributes:
    shift: mu, >= 0.
  """
  shift: float

  def __post_init__(self) -> None:
    errors.check_non_negative('shift', self.shift)


def zcdp_from_pure(guarantee: PureDP) -> ZCDP:
  """Returns the tight zCDP of any pure mechanism: epsilon tanh(epsilon/2).

  Never worse than the textbook epsilon^2 / 2. Binary randomised response
  attains it as the Renyi order tends to 1.
  """
  epsilon = guarantee.epsilon
  return ZCDP(rho=epsilon * math.tanh(epsilon / 2))


def approx_from_zcdp(guarantee: ZCDP, *, delta: float) -> ApproxDP:
  """Returns epsilon = rho + 2 sqrt(rho ln(1/delta)) at a given delta.

  Valid for every mechanism, and looser than accounting for the event itself
  (`accounting.epsilon`).

  Examples:
    >>> from dpjax.privacy import notions
    >>> implied = notions.approx_from_zcdp(notions.ZCDP(rho=0.1), delta=1e-5)
    >>> round(implied.epsilon, 3)
    2.246
  """
  errors.check_open_unit('delta', delta)
  rho = guarantee.rho
  return ApproxDP(
      epsilon=rho + 2 * math.sqrt(rho * math.log(1 / delta)), delta=delta)


def zcdp_from_approx_target(guarantee: ApproxDP) -> ZCDP:
  """Returns the largest rho for which `approx_from_zcdp` meets `guarantee`.

  This is a calibration, not an implication: a mechanism that spends this rho
  meets the target.
  """
  errors.check_open_unit('delta', guarantee.delta)
  # sqrt(rho) is the positive root of x^2 + 2 x sqrt(ln(1/delta)) = epsilon.
  log_term = math.log(1 / guarantee.delta)
  root = math.sqrt(log_term + guarantee.epsilon) - math.sqrt(log_term)
  return ZCDP(rho=root**2)


def zcdp_from_mechanism(guarantee: PureDP, mechanism: str) -> ZCDP:
  """Returns the tight zCDP of a known mechanism, from its epsilon.

  * 'laplace' (one number): epsilon + e^-epsilon - 1.
  * 'geometric' (sensitivity 1): epsilon tanh(epsilon / 2), as for any pure
    mechanism.
  * 'exponential' (anything of bounded range): epsilon / (e^epsilon - 1) - 1 -
    ln(epsilon / (e^epsilon - 1)), at most epsilon^2 / 8.

  Sources: items ALG-02, MECH-05; Dong, Durfee and Rogers (2020).
  """
  epsilon = guarantee.epsilon
  errors.check_choice('mechanism', mechanism,
                      ('laplace', 'geometric', 'exponential'))
  if mechanism == 'geometric' or not epsilon:
    return zcdp_from_pure(guarantee)
  if mechanism == 'laplace':
    # The difference cancels for small epsilons; their series is used instead.
    exact = epsilon + math.expm1(-epsilon)
    return ZCDP(rho=exact if epsilon > 1e-4 else epsilon**2 / 2)
  ratio = epsilon / math.expm1(epsilon)
  exact = ratio - 1 - math.log(ratio)
  return ZCDP(rho=exact if epsilon > 1e-4 else epsilon**2 / 8)
