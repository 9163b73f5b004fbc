"""Queries: the public parameters of a release, and how it is answered."""

from collections.abc import Callable, Iterable, Iterator, Mapping
import dataclasses
from dataclasses import field
import decimal
import fractions
from typing import Any, Protocol, TypeVar

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.release import costs
from dpjax.release import lattice
from dpjax.release import parameters
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.release.parameters import as_text
from dpjax.release.parameters import COLUMN
from dpjax.release.parameters import declared
from dpjax.release.parameters import fraction
from dpjax.release.parameters import number
from dpjax.release.parameters import PRIVACY
from dpjax.stats.density_methods import bases
from dpjax.stats.ecdf_methods import grids

Decimal = decimal.Decimal
Fraction = fractions.Fraction

MISSING = ('absent', 'lower', 'middle', 'upper')
METHODS = ('independent', 'recursive', 'auto')
THRESHOLDS = 1024
"""Default number of thresholds of a curve."""
GROUPS = 10
"""Default number of groups of a calibration table."""

_PLACES = {'lower': 'the lower bound', 'upper': 'the upper bound',
           'middle': 'the middle of the bounds'}
# Below this, noisy counts exceed 64 bits and intervals cannot be computed.
_LEAST_EPSILON = Fraction(1, 10**12)


def _check_epsilon(name: str, value: Fraction) -> None:
  if value <= 0:
    raise ValueError(f'{name} must be positive, got {value}')
  if value < _LEAST_EPSILON:
    raise ValueError(f'{name} must be at least {float(_LEAST_EPSILON):g}, '
                     f'got {float(value):g}')


def _check_positive(name: str, value: Decimal) -> None:
  if value <= 0:
    raise ValueError(f'{name} must be positive, got {value}')


def _method(name: str, value: str) -> str | None:
  """Returns the name of a quantile method, or None for the default 'auto'."""
  del name
  return None if value == 'auto' else str(value)


@parameters.documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
  """The parameters of one release. All of them are public."""
  statistic: str = field(metadata=declared(
      'Name of the statistic; it determines which other parameters apply.',
      as_text, common=True))
  adjacency: Adjacency = field(metadata=declared(
      'Which data sets are neighbours: add_or_remove_one or replace_one. It '
      'has no default.', parameters.adjacency, group=PRIVACY, common=True,
      check=lambda _, value: check_adjacency(value)))
  epsilon: Fraction = field(metadata=declared(
      'Privacy parameter of this release, at least 1e-12, taken exactly: 0.1 '
      'is 1/10.', fraction, group=PRIVACY, common=True, check=_check_epsilon))
  delta: Fraction | None = field(default=None, metadata=declared(
      'In [1e-12, 1): discrete Gaussian noise by zCDP, and quantiles that '
      'compose by Renyi divergences. Default: pure epsilon-DP, with discrete '
      'Laplace noise.', fraction, group=PRIVACY, common=True,
      check=lambda _, value: accounting.check_delta(float(value))))
  confidence: Fraction = field(default=Fraction(19, 20), metadata=declared(
      'Level of the confidence intervals, in (0, 1). Default: 0.95.', fraction,
      group=PRIVACY, common=True,
      check=lambda name, value: errors.check_open_unit(name, float(value))))
  column: str | None = field(default=None, metadata=declared(
      'Name of the column; none for a statistic of whole records.', as_text,
      group=COLUMN))
  lower: Decimal | None = field(default=None, metadata=declared(
      'Public lower bound, in the unit of the column; values below it are '
      'clamped to it.', number, group=COLUMN))
  upper: Decimal | None = field(default=None, metadata=declared(
      'Public upper bound, above the lower one. The default bounds of '
      'hosmer_lemeshow are 0 and 1.', number, group=COLUMN))
  granularity: Decimal | None = field(default=None, metadata=declared(
      'Spacing of the lattice that values are rounded to. Default: a power of '
      'ten, at most a millionth of the range. For density: spacing of the '
      'numbers in the file from the lower bound on, 1 for integers.', number,
      group=COLUMN))
  missing: str | None = field(default=None, metadata=declared(
      'How a record without a number counts: absent, so that the number of '
      'the other records is private, or as lower, middle or upper of the '
      'bounds. Default: a file with a missing number is refused.', as_text,
      group=COLUMN, check=parameters.one_of(*MISSING)))
  categories: tuple[str, ...] = field(default=(), metadata=declared(
      'Public values of a histogram or of a mode; in a flag they are separated '
      'by commas, with quotation marks around one with a comma.', as_text,
      split=parameters.quoted))
  bins: tuple[Decimal, ...] = field(default=(), metadata=declared(
      'Public edges of a histogram, or thresholds of a curve, increasing; in '
      'a flag they are separated by commas.', number, split=parameters.commas))
  quantiles: tuple[Fraction, ...] = field(default=(), metadata=declared(
      'Quantile levels in (0, 1), increasing; in a flag they are separated by '
      'commas.', fraction, split=parameters.commas))
  value_interval: bool | None = field(default=None, metadata=declared(
      'For quantiles: spend two thirds of epsilon on two values that bracket '
      'each quantile of the file. Default: an interval of ranks.',
      parameters.switch))
  quantile_method: str | None = field(default=None, metadata=declared(
      'independent: an exponential mechanism for each level; recursive: '
      'recursive splitting of the records, better for many levels. Default: '
      'auto, the one with the smaller bound on rank errors.', _method,
      later=True,
      check=parameters.one_of(*METHODS)))
  thresholds: int | None = field(default=None, metadata=declared(
      'Number of thresholds of a curve, the last at the upper bound. Default: '
      f'{THRESHOLDS}.', parameters.whole, later=True))
  grid: str | None = field(default=None, metadata=declared(
      'uniform, or geometric: thresholds evenly spaced in logarithms. '
      'Default: uniform.', as_text, later=True,
      check=parameters.one_of(*grids.KINDS)))
  label: str | None = field(default=None, metadata=declared(
      'Column with the class of a record whose score is in the other column.',
      as_text, group=COLUMN, later=True))
  positive: str | None = field(default=None, metadata=declared(
      'Value of the label of the positive class, or of the column of a '
      'proportion; all others are negative.', as_text, group=COLUMN,
      later=True))
  groups: int | None = field(default=None, metadata=declared(
      f'Number of groups of a calibration table. Default: {GROUPS}.',
      parameters.whole, later=True))
  boundary: str | None = field(default=None, metadata=declared(
      'For density: interval, or circle for hours, angles and other values '
      'that start again at the upper bound. Default: interval.', as_text,
      later=True, check=parameters.one_of(*bases.BOUNDARIES)))
  sigma: Decimal | None = field(default=None, metadata=declared(
      'Public standard deviation of a normal distribution.', number,
      group=COLUMN, later=True, check=_check_positive))

  def __post_init__(self) -> None:
    for name, parameter in PARAMETERS.items():
      value = getattr(self, name)
      if value is not None and parameter.check is not None:
        parameter.check(name, value)
    if self.lower is not None and self.upper is not None:
      errors.check_range(self.lower, self.upper)

  @property
  def replacing(self) -> bool:
    """Returns whether neighbours replace one record, instead of adding one."""
    return self.adjacency is Adjacency.REPLACE_ONE

  @property
  def knows_size(self) -> bool:
    """Returns whether the number of records in the statistic is public.

    It is public under replace-one, unless records without a number are absent:
    replacing a record may then change how many records enter.
    """
    return self.replacing and self.missing != 'absent'

  @property
  def miss(self) -> float:
    """Returns the probability that an interval may miss, 1 - confidence."""
    return float(1 - self.confidence)

  @property
  def missing_text(self) -> str:
    """Returns how missing numbers are treated, for the release JSON."""
    if self.missing is None:
      return 'declared: no number is missing'
    place = _PLACES.get(self.missing, 'absent')
    return f'a record without a number counts as {place}'

  @property
  def missing_assumption(self) -> str:
    """Returns the assumption of population intervals on missing numbers."""
    if self.missing is None:
      return ''
    if self.missing == 'absent':
      return ('; assumes that whether a number is missing does not depend on '
              'it (missing completely at random)')
    return ('; of a distribution in which a missing number is '
            f'{_PLACES[self.missing]}')

  def cost(self) -> Cost:
    """Returns the largest total cost that the release may have."""
    if self.delta is None:
      return Cost(epsilon=self.epsilon)
    return costs.concentrated(epsilon=self.epsilon, delta=self.delta,
                              adjacency=self.adjacency)

  def choices(self, count: int, beside: Cost | None = None) -> Cost:
    """Returns the cost of equal exponential mechanisms within the budget.

    Args:
      count: number of exponential mechanisms.
      beside: cost of the other draws of the release, less than `cost()`.
    """
    return costs.choices(epsilon=self.epsilon, delta=self.delta, count=count,
                         adjacency=self.adjacency, beside=beside)

  @property
  def bounds(self) -> tuple[Decimal, Decimal]:
    """Returns both public bounds; raises ValueError unless both are given."""
    return needed('lower', self.lower), needed('upper', self.upper)

  def lattice(self) -> lattice.Lattice:
    """Returns the lattice that values of the column are rounded to."""
    lower, upper = self.bounds
    return lattice.Lattice(lower=lower, upper=upper,
                           granularity=self.spacing(lower, upper))

  def spacing(self, lower: Decimal, upper: Decimal) -> Decimal:
    """Returns the granularity; by default at most a millionth of the range."""
    if self.granularity is None:
      return lattice.default_granularity(lower, upper)
    if self.granularity <= 0:
      raise ValueError(f'granularity must be positive, got {self.granularity}')
    return self.granularity

  def numbers(self, fields: Iterable[object], lower: Decimal,
              upper: Decimal) -> Iterator[Decimal]:
    """Yields fields as numbers; the rule `missing` replaces all others.

    It never raises, so that no record can change what others see. Where
    `missing` is None, the reader has refused a file with missing numbers. Here
    they count as the middle of the bounds under replace-one, else as absent, so
    that privacy does not rely on the reader.
    """
    return (value for value, _ in self.labelled(
        ((text, None) for text in fields), lower, upper))

  def labelled(self, fields: Iterable[tuple[object, object]], lower: Decimal,
               upper: Decimal) -> Iterator[tuple[Decimal, object]]:
    """Yields (number, label) pairs by the same rule as `numbers`."""
    with decimal.localcontext(prec=200):  # exact: bounds have few digits
      middle = (lower + upper) / 2
    # Under replace-one an absent record would change n, which is public.
    rule = self.missing or ('middle' if self.replacing else 'absent')
    replacement = {'absent': None, 'lower': lower, 'upper': upper,
               'middle': middle}[rule]
    for text, label in fields:
      value = lattice.number(text)
      value = replacement if value is None else value
      if value is not None:
        yield value, label

  def to_json(self) -> dict[str, object]:
    """Returns all parameters in a canonical form: equal queries, equal JSON."""
    # The ledger finds an earlier answer by this JSON. So a parameter that is
    # newer than the first ledgers is left out where it is None.
    def text(value: object) -> object:
      if isinstance(value, tuple):
        return [text(part) for part in value]
      if isinstance(value, Decimal):
        value = Fraction(value)
      return value.value if isinstance(value, Adjacency) else (
          value if value is None else str(value))
    return {name: text(getattr(self, name))
            for name, parameter in PARAMETERS.items()
            if not parameter.later or getattr(self, name) is not None}


PARAMETERS = parameters.of(Query)
"""All parameters of a query, by name."""


_Value = TypeVar('_Value')
_Field = TypeVar('_Field', contravariant=True)
_Measured = TypeVar('_Measured')


class Plan(Protocol[_Field, _Measured]):
  """How a query will be answered; made from public parameters alone.

  `measure` takes a `_Field` for each record and returns a `_Measured`.
  """

  @property
  def reads(self) -> str:
    """Returns the fields that `measure` takes.

    These are 'numbers' or 'texts' of the column, 'labels' for (number, label)
    pairs, or 'records' for a count of them.
    """

  @property
  def asked(self) -> Query:
    """Returns the query under which the ledger stores the answer.

    Queries that share one release are views of it, and cost nothing more.
    """

  @property
  def cost(self) -> Cost:
    """Returns the cost of the release, from the noise that it will draw."""

  def facts(self) -> dict[str, object]:
    """Returns public facts: sensitivity, noise, unit and rules for values."""

  def measure(self, fields: Iterable[_Field]) -> _Measured:
    """Returns the exact, private statistics of the fields of all records.

    It is total: it returns a value for any fields, and for none at all.
    """

  def draw(self, measured: _Measured, meter: Meter) -> dict[str, object]:
    """Returns the release; all noise comes from `meter` and costs `cost`.

    It is total on the values of `measure`. Its branches and the keys that it
    returns depend on public and on noisy numbers alone.
    """

  def view(self, released: Mapping[str, Any]) -> dict[str, object]:
    """Returns post-processing of a release, from public numbers alone."""


AnyPlan = Plan[Any, Any]
"""A plan of any statistic; only the plan itself uses what it measures."""


class Direct:
  """Base class of plans whose answer is the release without post-processing."""
  query: Query

  @property
  def asked(self) -> Query:
    """Returns the query itself."""
    return self.query

  def view(self, released: Mapping[str, Any]) -> dict[str, object]:
    """Returns no post-processing."""
    del released
    return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistic:
  """A statistic that can be released.

  Attributes:
    name: name of the statistic.
    help: one line that describes it.
    needs: names of parameters of the query that must be given.
    takes: names of parameters that may be given.
    plan: returns the plan of a query, or raises ValueError.
  """
  name: str
  help: str
  needs: tuple[str, ...]
  takes: tuple[str, ...]
  plan: Callable[[Query], AnyPlan]


def needed(name: str, value: _Value | None) -> _Value:
  """Returns the value of a parameter; raises ValueError if it is not given."""
  if value is None:
    raise ValueError(f'{name} must be given')
  return value


def interval(lower: Fraction | float, upper: Fraction | float, *,
             level: Fraction | float, covers: str) -> dict[str, object]:
  """Returns a confidence interval in the form that the release JSON has."""
  return {'lower': float(lower), 'upper': float(upper), 'level': float(level),
          'covers': covers}
