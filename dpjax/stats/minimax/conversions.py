"""What one notion of privacy says in terms of another: one table of functions.

`TABLE[given, wanted]` has the least guarantee that follows from a given one,
for the same neighbours, where it is sharp; what attains it is in the tests. It
holds in neither direction unless a cell says so: no number of Kullback-Leibler
privacy bounds a log-ratio. Source: item DEF-CONV, DEF-GROUP; thesis 000,
section 2.2 and Facts 3.3.5 and 3.3.11; paper 004, sections 2.2 and 2.3.
"""

from collections.abc import Callable
import math
from typing import Any, NamedTuple

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import composition
from dpjax.privacy import notions
from dpjax.privacy import renyi
from dpjax.privacy import tradeoff
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import BoundedRange
from dpjax.privacy.notions import ChiSquarePrivacy
from dpjax.privacy.notions import ConditionalTesting
from dpjax.privacy.notions import GaussianPrivacy
from dpjax.privacy.notions import KullbackLeiblerPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.privacy.renyi import RenyiDP
from dpjax.stats.minimax import disclosure
from dpjax.stats.minimax import two_points


class Conversion(NamedTuple):
  """A cell of the table.

  Attributes:
    function: of a guarantee, and what `needs` says, by name.
    source: of the statement.
    sharp: whether some pair of laws attains it, or comes as near as one likes.
    needs: the free number of what is wanted, delta, order or mass; or ''.
    printed: the looser form of the source, if there is one.
  """
  function: Callable[..., Any]
  source: str
  sharp: bool
  needs: str = ''
  printed: Callable[..., Any] | None = None


def convert(guarantee: Any, wanted: type, **at: float) -> Any:
  """The guarantee of type `wanted` that follows.

  Args:
    guarantee: what is known.
    wanted: a type of guarantees.
    **at: the free number of what is wanted, as the cell says.

  Raises:
    ValueError: nothing follows, or the free number is missing.
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
  """The guarantee of data sets that differ in `size` records.

  Divergences of Kullback and Leibler have no triangle inequality: what is left
  of them in a group is that of their total variation. From epsilon-DP convert
  the group's guarantee, size epsilon tanh(size epsilon / 2) nats, or ask
  `groups.divergence`, which knows of the steps between.

  Raises:
    ValueError: there is no such property, or size is none.
  """
  errors.check_at_least('size', size, 1)
  match guarantee:
    case PureDP(epsilon=epsilon):
      return PureDP(epsilon=size * epsilon)
    case ApproxDP():
      return composition.group(guarantee, size=size)
    case ZCDP():
      return notions.zcdp_of_group(guarantee, size=size)
    case GaussianPrivacy(shift=shift):
      return GaussianPrivacy(shift=size * shift)
    case BoundedRange(width=width):
      return BoundedRange(width=size * width)
    case TotalVariationPrivacy(level=level):
      return TotalVariationPrivacy(level=min(1.0, size * level))
    case _:
      raise ValueError(f'{type(guarantee).__name__} has no property of groups; '
                       'convert it first')


def printed_group(guarantee: ApproxDP, *, size: int) -> ApproxDP:
  """k delta e^(epsilon (k - 1)): valid, and looser (thesis 000, Fact 3.3.5)."""
  errors.check_at_least('size', size, 1)
  epsilon = guarantee.epsilon
  return ApproxDP(epsilon=size * epsilon, delta=(
      size * guarantee.delta * math.exp(epsilon * (size - 1))))


def conditional(guarantee: ApproxDP, *, mass: float) -> ConditionalTesting:
  """t + (1 - t) delta / mass for t = tanh(epsilon / 2); 1 for mass <= delta.

  Sharp. All pairs come from `definitions.extremal`. Given an event the laws
  have r and s, delta / mass at most, where the data are told, and the rest
  where log-ratios range over 2 epsilon. Let r be the larger: the rest overlaps
  by (1 - r) (1 - t) or more, and an event of both sure outcomes and as much of
  the others as mass allows attains it (item DEF-CHTP, there for delta = 0).
  """
  if not 0 <= mass <= 1:
    raise ValueError(f'mass must lie in [0, 1], got {mass}')
  kept = 1 - min(1.0, guarantee.delta / mass) if mass else float(
      guarantee.delta == 0)
  least = 1 - math.tanh(guarantee.epsilon / 2)
  return ConditionalTesting(level=1 - least * kept, mass=mass)


def printed_conditional(guarantee: ApproxDP) -> ConditionalTesting:
  """a = (1 + e^-epsilon) (1 - e^(-2 epsilon)), at its own mass: valid.

  It says nothing, a >= 1, from epsilon = ln((1 + sqrt 5) / 2) = 0.4812 on
  (erratum E-22). Source: paper 004, Theorem 1.
  """
  epsilon = errors.check_positive('epsilon', guarantee.epsilon)
  growth = math.exp(epsilon) * math.expm1(epsilon)
  return ConditionalTesting(
      level=(1 + math.exp(-epsilon)) * -math.expm1(-2 * epsilon),
      mass=min(1.0, guarantee.delta / growth))


def approx_from_conditional(guarantee: ConditionalTesting) -> ApproxDP:
  """(2 ln((1 + a) / (1 - a)), mass (1 + a) / (1 - a))-DP, for a < 1.

  Source: paper 004, Theorem 1; of mass 0 sharp, by one-sided log-ratios.
  """
  odds = _odds(guarantee)
  return ApproxDP(epsilon=2 * math.log(odds), delta=guarantee.mass * odds)


def _odds(guarantee: ConditionalTesting) -> float:
  if guarantee.level >= 1:
    raise ValueError('nothing follows from a conditional variation of '
                     f'{guarantee.level}')
  return (1 + guarantee.level) / (1 - guarantee.level)


def _range_from_conditional(guarantee: ConditionalTesting) -> BoundedRange:
  if guarantee.mass:
    raise ValueError('a range is bounded if all events count, mass 0; got '
                     f'{guarantee.mass}')
  return BoundedRange(width=2 * math.log(_odds(guarantee)))


def _variation(guarantee) -> TotalVariationPrivacy:
  return TotalVariationPrivacy(level=two_points.total_variation(guarantee))


def _pinsker(guarantee: ZCDP | KullbackLeiblerPrivacy) -> TotalVariationPrivacy:
  """Pinsker's, and of one divergence Bretagnolle's and Huber's."""
  nats, = vars(guarantee).values()
  return TotalVariationPrivacy(level=min(
      math.sqrt(nats / 2), math.sqrt(-math.expm1(-nats))))


def _chi_square(guarantee) -> ChiSquarePrivacy:
  return ChiSquarePrivacy(level=disclosure.chi_square(guarantee))


def _range_zcdp(guarantee: BoundedRange) -> ZCDP:
  return notions.zcdp_from_mechanism(PureDP(epsilon=guarantee.width),
                                     'exponential')


def _of_gaussian(function: Callable[..., Any]) -> Callable[..., Any]:
  """Through zCDP, whose worst pair is the Gaussian one."""
  return lambda guarantee, **at: function(
      ZCDP(rho=guarantee.shift**2 / 2), **at)


_DONG = 'Dong, Durfee and Rogers 2020'
_RHO = 'thesis 000, section 2.2.2'

TABLE: dict[tuple[type, type], Conversion] = {
    (PureDP, TotalVariationPrivacy): Conversion(
        _variation, 'paper 004, equation 3, sharp', True),
    (PureDP, KullbackLeiblerPrivacy): Conversion(
        lambda known: KullbackLeiblerPrivacy(
            level=notions.zcdp_from_pure(known).rho),
        'thesis 000, Fact 3.3.11', True),
    (PureDP, ZCDP): Conversion(
        notions.zcdp_from_pure, _RHO, True,
        printed=notions.zcdp_from_pure_printed),
    (PureDP, ChiSquarePrivacy): Conversion(_chi_square, 'item DEF-CONV', True),
    (PureDP, RenyiDP): Conversion(
        renyi.renyi_from_pure, _RHO, True, 'order',
        renyi.renyi_from_pure_printed),
    (PureDP, ApproxDP): Conversion(
        notions.approx_from_pure, 'item DEF-03', True, 'delta'),
    (PureDP, BoundedRange): Conversion(
        lambda known: BoundedRange(width=2 * known.epsilon), _DONG, True),
    (PureDP, ConditionalTesting): Conversion(
        lambda known: conditional(
            ApproxDP(epsilon=known.epsilon, delta=0.0), mass=0.0),
        'paper 004, Theorem 1, sharp', True),
    (ApproxDP, TotalVariationPrivacy): Conversion(
        lambda known: TotalVariationPrivacy(
            level=tradeoff.total_variation(known)),
        'paper 004, equation 3, corrected', True),
    (ApproxDP, ConditionalTesting): Conversion(
        conditional, 'paper 004, Theorem 1, sharp', True, 'mass'),
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
        approx_from_conditional, 'paper 004, Theorem 1', True),
    (ZCDP, KullbackLeiblerPrivacy): Conversion(
        lambda known: KullbackLeiblerPrivacy(level=known.rho), _RHO, True),
    (ZCDP, ChiSquarePrivacy): Conversion(_chi_square, 'order 2', True),
    (ZCDP, RenyiDP): Conversion(renyi.renyi_from_zcdp, _RHO, True, 'order'),
    (ZCDP, TotalVariationPrivacy): Conversion(
        _variation, 'item LB-13', True, printed=_pinsker),
    (ZCDP, ApproxDP): Conversion(
        notions.approx_from_zcdp, _RHO, False, 'delta'),
    (RenyiDP, KullbackLeiblerPrivacy): Conversion(
        lambda known: KullbackLeiblerPrivacy(level=known.divergence),
        'orders increase', False),
    (RenyiDP, ApproxDP): Conversion(
        renyi.approx_from_renyi, 'Canonne, Kamath and Steinke 2020', False,
        'delta', renyi.approx_from_renyi_printed),
    (KullbackLeiblerPrivacy, TotalVariationPrivacy): Conversion(
        _variation, 'both divergences; paper 004, section 2.2', True,
        printed=_pinsker),
    (ChiSquarePrivacy, KullbackLeiblerPrivacy): Conversion(
        lambda known: KullbackLeiblerPrivacy(level=math.log1p(known.level)),
        "Jensen's inequality", False),
    (TotalVariationPrivacy, ApproxDP): Conversion(
        lambda known: ApproxDP(epsilon=0.0, delta=known.level),
        'paper 004, Definition 4', True),
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
        _of_gaussian(renyi.renyi_from_zcdp), _RHO, True, 'order'),
    (GaussianPrivacy, TotalVariationPrivacy): Conversion(
        lambda known: TotalVariationPrivacy(
            level=math.erf(known.shift / math.sqrt(8))),
        '2 Phi(shift / 2) - 1', True),
}
"""(given, wanted) -> what follows."""
