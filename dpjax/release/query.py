"""Queries: the public parameters of a release, and how it is answered."""

from collections.abc import Callable, Iterable, Iterator, Mapping
import dataclasses
import decimal
import fractions
from typing import Protocol

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.release import costs
from dpjax.release import lattice
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter

Decimal = decimal.Decimal
Fraction = fractions.Fraction

MISSING = ('absent', 'lower', 'middle', 'upper')
_PLACES = {'lower': 'the lower bound', 'upper': 'the upper bound',
           'middle': 'the middle of the bounds'}
# Below this, noisy counts exceed 64 bits and intervals cannot be computed.
_LEAST_EPSILON = Fraction(1, 10**12)
# Parameters added after the first ledgers were written. They are left out of
# the JSON where they are None, so that entries of old ledgers still match.
_LATER = ('quantile_method', 'thresholds', 'grid', 'label', 'positive',
          'groups', 'boundary', 'sigma')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
  """The parameters of one release. All of them are public.

  Attributes:
    statistic: name of the statistic, a key of `registry.STATISTICS`.
    adjacency: which data sets are neighbours.
    epsilon: exact privacy parameter, at least 1e-12.
    delta: None for pure epsilon-DP, else in [1e-12, 1) for (epsilon, delta)-DP
      with discrete Gaussian noise.
    confidence: level of the confidence intervals, in (0, 1).
    column: name of the column, or None for a statistic of whole records.
    lower: public lower bound, in the unit of the column.
    upper: public upper bound, > lower.
    granularity: spacing of the lattice that values are rounded to; None for
      at most a millionth of the range.
    missing: how a record without a number is treated, one of `MISSING`. If
      'absent' it is left out, so that the number of records that remain is
      private under either adjacency; else its value is a bound or the middle
      of the bounds. None declares that no number is missing.
    categories: public values of a histogram.
    bins: public edges of a histogram or thresholds of a curve, increasing.
    quantiles: quantile levels in (0, 1), increasing.
    value_interval: True to release also a lower and an upper end that bracket
      each sample quantile; None to state the error in ranks only.
    quantile_method: 'independent' or 'recursive'; None for the method with
      the smaller guaranteed rank error.
    thresholds: number of thresholds of a public grid.
    grid: 'uniform' or 'geometric' spacing of the thresholds.
    label: column with the label of a record whose score is in `column`.
    positive: value of the label, or of the column of a proportion, that is
      positive; every other value is negative.
    groups: number of groups of a calibration table.
    boundary: for a density, 'interval', or 'circle' if both bounds are the
      same point.
    sigma: public standard deviation of a normal distribution.
  """
  statistic: str
  adjacency: Adjacency
  epsilon: Fraction
  delta: Fraction | None = None
  confidence: Fraction = Fraction(19, 20)
  column: str | None = None
  lower: Decimal | None = None
  upper: Decimal | None = None
  granularity: Decimal | None = None
  missing: str | None = None
  categories: tuple[str, ...] = ()
  bins: tuple[Decimal, ...] = ()
  quantiles: tuple[Fraction, ...] = ()
  value_interval: bool | None = None
  quantile_method: str | None = None
  thresholds: int | None = None
  grid: str | None = None
  label: str | None = None
  positive: str | None = None
  groups: int | None = None
  boundary: str | None = None
  sigma: Decimal | None = None

  def __post_init__(self):
    check_adjacency(self.adjacency)
    if self.epsilon <= 0:
      raise ValueError(f'epsilon must be positive, got {self.epsilon}')
    if self.epsilon < _LEAST_EPSILON:
      raise ValueError(f'epsilon must be at least {float(_LEAST_EPSILON):g}, '
                       f'got {float(self.epsilon):g}')
    if self.delta is not None:
      accounting.check_delta(float(self.delta))
    if not 0 < self.confidence < 1:
      raise ValueError(f'confidence must lie strictly between 0 and 1, got '
                       f'{float(self.confidence)}')
    if self.lower is not None and self.upper is not None:
      errors.check_range(self.lower, self.upper)
    if self.missing is not None:
      errors.check_choice('missing', self.missing, MISSING)

  @property
  def replacing(self) -> bool:
    """Whether neighbours replace one record, instead of adding one."""
    return self.adjacency is Adjacency.REPLACE_ONE

  @property
  def knows_size(self) -> bool:
    """Whether the number of records that enter the statistic is public.

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
    """Returns a sentence on how missing numbers are treated."""
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
    """Returns the largest cost that the release may have in all."""
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

  def lattice(self) -> lattice.Lattice:
    """Returns the lattice that values of the column are rounded to."""
    return lattice.Lattice(
        lower=self.lower, upper=self.upper,
        granularity=self.spacing(self.lower, self.upper))

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

    Never raises, whatever the fields are, so that no record can change what
    others see. Where `missing` is None, the reader of the file has refused a
    file with missing numbers. Here they count as the middle of the bounds under
    replace-one and as absent under add-or-remove-one, so that privacy does not
    rely on the reader.
    """
    return (value for value, _ in self.labelled(
        ((field, None) for field in fields), lower, upper))

  def labelled(self, fields: Iterable[tuple[object, object]], lower: Decimal,
               upper: Decimal) -> Iterator[tuple[Decimal, object]]:
    """Yields (number, label) pairs by the same rule as `numbers`."""
    with decimal.localcontext(prec=200):  # exact: bounds have few digits
      middle = (lower + upper) / 2
    rule = self.missing or ('middle' if self.replacing else 'absent')
    instead = {'absent': None, 'lower': lower, 'upper': upper,
               'middle': middle}[rule]
    for field, label in fields:
      value = lattice.number(field)
      value = instead if value is None else value
      if value is not None:
        yield value, label

  def to_json(self) -> dict[str, object]:
    """Returns all parameters in a canonical form: equal queries, equal JSON.

    Parameters of `_LATER` are left out where they are None.
    """
    def text(value):
      if isinstance(value, tuple):
        return [text(part) for part in value]
      if isinstance(value, Decimal):
        value = Fraction(value)
      return value.value if isinstance(value, Adjacency) else (
          value if value is None else str(value))
    return {field.name: text(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in _LATER or
            getattr(self, field.name) is not None}


class Plan(Protocol):
  """How a query will be answered; made from public parameters alone.

  Attributes:
    reads: fields that `measure` takes: 'numbers' or 'texts' of the column,
      'labels' for (number, label) pairs, or 'records' for a count of them.
    asked: the query under which the ledger stores the answer. Queries that
      share one release are views of it, and cost nothing more.
    cost: privacy cost of the release, from the noise that it will draw.
  """
  reads: str

  @property
  def asked(self) -> Query:
    """Returns the query under which the ledger stores the answer."""

  @property
  def cost(self) -> Cost:
    """Returns the cost of the noise that will be drawn."""

  def facts(self) -> dict[str, object]:
    """Returns public facts: sensitivity, noise, unit and rules for values."""

  def measure(self, fields: Iterable[object]) -> object:
    """Returns the exact, private statistics of the fields of all records.

    It is total: it returns a value for any fields, and for none at all.
    """

  def draw(self, measured: object, meter: Meter) -> dict[str, object]:
    """Returns the release; all noise comes from `meter` and costs `cost`.

    It is total on the values of `measure`. Its branches and the keys that it
    returns depend on public and on noisy numbers alone.
    """

  def view(self, released: Mapping[str, object]) -> dict[str, object]:
    """Returns post-processing of a release, from public numbers alone."""


class Direct:
  """Base class of plans whose release is their answer."""
  query: Query

  @property
  def asked(self) -> Query:
    """Returns the query itself."""
    return self.query

  def view(self, released: Mapping[str, object]) -> dict[str, object]:
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
  plan: Callable[[Query], Plan]


def interval(lower: Fraction | float, upper: Fraction | float, *,
             level: Fraction | float, covers: str) -> dict[str, object]:
  """Returns a confidence interval in the form that the release JSON has."""
  return {'lower': float(lower), 'upper': float(upper), 'level': float(level),
          'covers': covers}
