"""Conversions between notions of privacy, in one table of functions.

`TABLE[given, wanted]` returns a guarantee that follows from a given one, for
the same neighbours; it is the least one if the cell is sharp, and the tests
have examples that attain it. A missing cell means that nothing follows: no
level of Kullback-Leibler privacy bounds a log-ratio. Source: item DEF-CONV,
DEF-GROUP; Lalanne (2023, section 2.2 and Facts 3.3.5 and 3.3.11); Barber and
Duchi (2014, sections 2.2 and 2.3).
"""

from collections.abc import Callable
import math
from typing import Any, NamedTuple

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy import renyi
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import BoundedRange
from dpjax.privacy.notions import GaussianPrivacy
from dpjax.privacy.notions import KullbackLeiblerPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.privacy.renyi import RenyiDP
from dpjax.theory.minimax import disclosure
from dpjax.theory.minimax import two_points
from experiments.methods.mechanisms import renyi_steps
from experiments.methods.theory import compared_notions
from experiments.methods.theory import composition
from experiments.methods.theory import printed_guarantees
from experiments.methods.theory import tradeoffs
from experiments.methods.theory.compared_notions import ChiSquarePrivacy
from experiments.methods.theory.compared_notions import ConditionalTesting


class Conversion(NamedTuple):
  """A cell of the table.

  Attributes:
    function: function of a guarantee, and of the number in `needs`, by name.
    source: source of the statement.
    sharp: whether some pair of distributions attains it, or comes arbitrarily
      near.
    needs: free number of the wanted guarantee: delta, order or mass; or ''.
    printed: the looser form of the source, if there is one.
  """
  function: Callable[..., Any]
  source: str
  sharp: bool
  needs: str = ''
  printed: Callable[..., Any] | None = None


def convert(guarantee: Any, wanted: type, **at: float) -> Any:
  """Returns the guarantee of type `wanted` that follows.

  Args:
    guarantee: the known guarantee.
    wanted: type of the wanted guarantee.
    **at: the free number of the wanted guarantee, as the cell requires.

  Raises:
    ValueError: if nothing follows, or the free number is missing.
  """
  cell = TABLE.get((type(guarantee), wanted))
  if cell is None:
    raise ValueError(f'{type(guarantee).__name__} says nothing in terms of '
                     f'{wanted.__name__}')
  if set(at) != set(filter(None, [cell.needs])):
    raise ValueError(f'{type(guarantee).__name__} as {wanted.__name__} needs '
                     f'{cell.needs or "no number"}, got {sorted(at)}')
  return cell.function(guarantee, **at)


def group(guarantee: Any, *, size: int) -> Any:
  """Returns the guarantee for data sets that differ in `size` records.

  Kullback-Leibler divergences have no triangle inequality, so for a group only
  their total variation remains. From epsilon-DP, convert the group's guarantee,
  size epsilon tanh(size epsilon / 2) nats, or use `groups.divergence`, which
  also uses the steps between.

  Raises:
    ValueError: if the notion has no group property, or size is not positive.
  """
  errors.check_at_least('size', size, 1)
  match guarantee:
    case PureDP(epsilon=epsilon):
      return PureDP(epsilon=size * epsilon)
    case ApproxDP():
      return composition.group(guarantee, size=size)
    case ZCDP():
      return compared_notions.zcdp_of_group(guarantee, size=size)
    case GaussianPrivacy(shift=shift):
      return GaussianPrivacy(shift=size * shift)
    case BoundedRange(width=width):
      return BoundedRange(width=size * width)
    case TotalVariationPrivacy(level=level):
      return TotalVariationPrivacy(level=min(1.0, size * level))
    case _:
      raise ValueError(f'{type(guarantee).__name__} has no property of groups; '
                       'convert it to another notion first')


def printed_group(guarantee: ApproxDP, *, size: int) -> ApproxDP:
  """Returns delta k e^(epsilon (k - 1)): valid, but looser.

  Source: Lalanne (2023, Fact 3.3.5).
  """
  errors.check_at_least('size', size, 1)
  epsilon = guarantee.epsilon
  return ApproxDP(epsilon=size * epsilon, delta=(
      size * guarantee.delta * math.exp(epsilon * (size - 1))))


def conditional(guarantee: ApproxDP, *, mass: float) -> ConditionalTesting:
  """Returns the level t + (1 - t) delta / mass, t = tanh(epsilon / 2); sharp.

  It is 1 for mass <= delta. Proof (item DEF-CHTP, there for delta = 0).

  1. All pairs come from `definitions.extremal`. Given an event, the two
     distributions reveal the data with probabilities r and s, at most delta /
     mass; on the rest log-ratios range over 2 epsilon.
  2. Let r be the larger. The rest overlaps by at least (1 - r) (1 - t).
  3. An event of both revealing outcomes and as much of the others as mass
     allows attains this.
  """
  if not 0 <= mass <= 1:
    raise ValueError(f'mass must lie in [0, 1], got {mass}')
  # Step 1: given an event of this mass, the data are revealed at most so often.
  unrevealed = 1 - min(1.0, guarantee.delta / mass) if mass else float(
      guarantee.delta == 0)
  overlap = 1 - math.tanh(guarantee.epsilon / 2)
  return ConditionalTesting(level=1 - overlap * unrevealed, mass=mass)


def printed_conditional(guarantee: ApproxDP) -> ConditionalTesting:
  """Returns a = (1 + e^-epsilon) (1 - e^(-2 epsilon)), at its own mass: valid.

  It proves nothing, a >= 1, from epsilon = ln((1 + sqrt 5) / 2) = 0.4812 on
  (erratum E-22). Source: Barber and Duchi (2014, Theorem 1).
  """
  epsilon = errors.check_positive('epsilon', guarantee.epsilon)
  growth = math.exp(epsilon) * math.expm1(epsilon)
  return ConditionalTesting(
      level=(1 + math.exp(-epsilon)) * -math.expm1(-2 * epsilon),
      mass=min(1.0, guarantee.delta / growth))


def approx_from_conditional(guarantee: ConditionalTesting) -> ApproxDP:
  """Returns (2 ln((1 + a) / (1 - a)), mass (1 + a) / (1 - a))-DP, for a < 1.

  Sharp for mass 0, by one-sided log-ratios. Source: Barber and Duchi (2014,
  Theorem 1).
  """
  odds = _odds(guarantee)
  return ApproxDP(epsilon=2 * math.log(odds), delta=guarantee.mass * odds)


def _odds(guarantee: ConditionalTesting) -> float:
  """Returns (1 + a) / (1 - a); raises ValueError for a >= 1."""
  if guarantee.level >= 1:
    raise ValueError('nothing follows from a conditional variation of '
                     f'{guarantee.level}')
  return (1 + guarantee.level) / (1 - guarantee.level)


def _range_from_conditional(guarantee: ConditionalTesting) -> BoundedRange:
  """Returns the bounded range that follows from mass 0."""
  if guarantee.mass:
    raise ValueError('a bounded range follows only from mass 0, got '
                     f'{guarantee.mass}')
  return BoundedRange(width=2 * math.log(_odds(guarantee)))


def _variation(guarantee: Any) -> TotalVariationPrivacy:
  """Returns the total variation that a guarantee allows."""
  return TotalVariationPrivacy(level=two_points.total_variation(guarantee))


def _pinsker(guarantee: ZCDP | KullbackLeiblerPrivacy) -> TotalVariationPrivacy:
  """Returns Pinsker's bound, or that of Bretagnolle and Huber if smaller."""
  nats, = vars(guarantee).values()  # rho, or the level.
  return TotalVariationPrivacy(level=min(
      math.sqrt(nats / 2), math.sqrt(-math.expm1(-nats))))


def _chi_square(guarantee: Any) -> ChiSquarePrivacy:
  """Returns the chi^2 divergence that a guarantee allows."""
  return ChiSquarePrivacy(level=disclosure.chi_square(guarantee))


def _range_zcdp(guarantee: BoundedRange) -> ZCDP:
  """Returns the zCDP of a mechanism of bounded range."""
  return notions.zcdp_from_mechanism(PureDP(epsilon=guarantee.width),
                                     'exponential')


def _of_gaussian(function: Callable[..., Any]) -> Callable[..., Any]:
  """Returns the conversion through zCDP, whose worst pair is Gaussian."""
  return lambda guarantee, **at: function(
      ZCDP(rho=guarantee.shift**2 / 2), **at)


# Sources of several cells.
_DONG = 'Dong, Durfee and Rogers 2020'
_RHO = 'Lalanne (2023, section 2.2.2)'

TABLE: dict[tuple[type, type], Conversion] = {
    (PureDP, TotalVariationPrivacy): Conversion(
        _variation, 'Barber and Duchi (2014, equation (3)), sharp', True),
    (PureDP, KullbackLeiblerPrivacy): Conversion(
        lambda known: KullbackLeiblerPrivacy(
            level=notions.zcdp_from_pure(known).rho),
        'Lalanne (2023, Fact 3.3.11)', True),
    (PureDP, ZCDP): Conversion(
        notions.zcdp_from_pure, _RHO, True,
        printed=printed_guarantees.zcdp_from_pure_printed),
    (PureDP, ChiSquarePrivacy): Conversion(_chi_square, 'item DEF-CONV', True),
    (PureDP, RenyiDP): Conversion(
        renyi.renyi_from_pure, _RHO, True, 'order',
        printed_guarantees.renyi_from_pure_printed),
    (PureDP, ApproxDP): Conversion(
        compared_notions.approx_from_pure, 'item DEF-03', True, 'delta'),
    (PureDP, BoundedRange): Conversion(
        lambda known: BoundedRange(width=2 * known.epsilon), _DONG, True),
    (PureDP, ConditionalTesting): Conversion(
        lambda known: conditional(
            ApproxDP(epsilon=known.epsilon, delta=0.0), mass=0.0),
        'Barber and Duchi (2014, Theorem 1), sharp', True),
    (ApproxDP, TotalVariationPrivacy): Conversion(
        lambda known: TotalVariationPrivacy(
            level=tradeoffs.total_variation(known)),
        'Barber and Duchi (2014, equation (3)), corrected', True),
    (ApproxDP, ConditionalTesting): Conversion(
        conditional, 'Barber and Duchi (2014, Theorem 1), sharp', True, 'mass'),
    (BoundedRange, PureDP): Conversion(
        lambda known: PureDP(epsilon=known.width), _DONG, True),
    (BoundedRange, TotalVariationPrivacy): Conversion(
        lambda known: TotalVariationPrivacy(level=math.tanh(known.width / 4)),
        'item DEF-CHTP', True),
    (BoundedRange, ConditionalTesting): Conversion(
        lambda known: ConditionalTesting(level=math.tanh(known.width / 4)),
        'item DEF-CHTP', True),
    (BoundedRange, KullbackLeiblerPrivacy): Conversion(
        lambda known: KullbackLeiblerPrivacy(level=_range_zcdp(known).rho),
        _DONG, True),
    (BoundedRange, ZCDP): Conversion(
        _range_zcdp, _DONG, True,
        printed=lambda known: ZCDP(rho=known.width**2 / 8)),
    (BoundedRange, ChiSquarePrivacy): Conversion(
        lambda known: ChiSquarePrivacy(level=math.sinh(known.width / 2)**2),
        'two outcomes whose ratios are a range apart', True),
    (ConditionalTesting, BoundedRange): Conversion(
        _range_from_conditional, 'item DEF-CHTP', True),
    (ConditionalTesting, ApproxDP): Conversion(
        approx_from_conditional, 'Barber and Duchi (2014, Theorem 1)', True),
    (ZCDP, KullbackLeiblerPrivacy): Conversion(
        lambda known: KullbackLeiblerPrivacy(level=known.rho), _RHO, True),
    (ZCDP, ChiSquarePrivacy): Conversion(_chi_square, 'order 2', True),
    (ZCDP, RenyiDP): Conversion(
        renyi_steps.renyi_from_zcdp, _RHO, True, 'order'),
    (ZCDP, TotalVariationPrivacy): Conversion(
        _variation, 'item LB-13', True, printed=_pinsker),
    (ZCDP, ApproxDP): Conversion(
        notions.approx_from_zcdp, _RHO, False, 'delta'),
    (RenyiDP, KullbackLeiblerPrivacy): Conversion(
        lambda known: KullbackLeiblerPrivacy(level=known.divergence),
        'orders increase', False),
    (RenyiDP, ApproxDP): Conversion(
        renyi_steps.approx_from_renyi, 'Canonne, Kamath and Steinke 2020',
        False, 'delta', printed_guarantees.approx_from_renyi_printed),
    (KullbackLeiblerPrivacy, TotalVariationPrivacy): Conversion(
        _variation, 'both divergences; Barber and Duchi (2014, section 2.2)',
        True, printed=_pinsker),
    (ChiSquarePrivacy, KullbackLeiblerPrivacy): Conversion(
        lambda known: KullbackLeiblerPrivacy(level=math.log1p(known.level)),
        "Jensen's inequality", False),
    (TotalVariationPrivacy, ApproxDP): Conversion(
        lambda known: ApproxDP(epsilon=0.0, delta=known.level),
        'Barber and Duchi (2014, Definition 4)', True),
    (GaussianPrivacy, ApproxDP): Conversion(
        lambda known, *, delta: ApproxDP(epsilon=max(
            0.0, accounting.gaussian_epsilon(shift=known.shift, delta=delta)),
                                         delta=delta),
        'Balle and Wang 2018', True, 'delta'),
    (GaussianPrivacy, ZCDP): Conversion(
        _of_gaussian(lambda rho: rho), _RHO, True),
    (GaussianPrivacy, KullbackLeiblerPrivacy): Conversion(
        _of_gaussian(lambda rho: KullbackLeiblerPrivacy(level=rho.rho)), _RHO,
        True),
    (GaussianPrivacy, ChiSquarePrivacy): Conversion(
        _of_gaussian(_chi_square), 'order 2', True),
    (GaussianPrivacy, RenyiDP): Conversion(
        _of_gaussian(renyi_steps.renyi_from_zcdp), _RHO, True, 'order'),
    (GaussianPrivacy, TotalVariationPrivacy): Conversion(
        lambda known: TotalVariationPrivacy(
            level=math.erf(known.shift / math.sqrt(8))),
        '2 Phi(shift / 2) - 1', True),
}
"""(given, wanted) -> the conversion between these notions."""
