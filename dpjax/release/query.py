"""What is asked: public parameters, and how a statistic answers."""

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
# Noise of less has counts beyond 64 bits, with which no interval is computed.
_LEAST_EPSILON = Fraction(1, 10**12)
# Of queries, after there were ledgers.
_LATER = ('quantile_method', 'thresholds', 'grid', 'label', 'positive',
          'groups', 'boundary', 'sigma')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
  """One release as asked for. All of it is public.

  Attributes:
    statistic: its name.
    adjacency: which data sets are neighbours.
    epsilon: at least 1e-12, exact.
    delta: None for pure noise, else in [1e-12, 1) for discrete Gaussian.
    confidence: level of the intervals, in (0, 1).
    column: its name, or None for whole records.
    lower: public bound.
    upper: public bound, > lower.
    granularity: of the lattice; None for a millionth of the range or less.
    missing: what a record without a number counts as, one of `MISSING`: as
      absent, so that the statistic is of the other records, whose number is
      then private under either adjacency; or as a number. None declares that
      no number is missing.
    categories: public values of a histogram.
    bins: public edges of a histogram, increasing.
    quantiles: orders in (0, 1), increasing.
    value_interval: True for two more points of each order, between which the
      quantile of the file lies; None for what follows of one.
    quantile_method: 'independent' or 'recursive'; None for the one that
      promises the smaller error.
    thresholds: how many of a public grid.
    grid: 'uniform' or 'geometric'.
    label: column of the label of a score.
    positive: the value of the label, or of the column of a proportion, that is
      positive; all others are not.
    groups: how many of a calibration table.
    boundary: of a density, 'interval', or 'circle' whose bounds are one point.
    sigma: public standard deviation of a normal law.
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
    """Whether neighbours have one record replaced; else one more."""
    return self.adjacency is Adjacency.REPLACE_ONE

  @property
  def knows_size(self) -> bool:
    """Whether the number of records that the statistic is of is public.

    It is under replace-one, unless records with missing numbers are absent: a
    record that is replaced may then be one of those that count or not.
    """
    return self.replacing and self.missing != 'absent'

  @property
  def miss(self) -> float:
    """1 - confidence."""
    return float(1 - self.confidence)

  @property
  def missing_text(self) -> str:
    """What a missing number counts as, in words."""
    if self.missing is None:
      return 'declared: no number is missing'
    place = _PLACES.get(self.missing, 'absent')
    return f'a record without a number counts as {place}'

  @property
  def missing_assumption(self) -> str:
    """What a statement about a population assumes of missing numbers."""
    if self.missing is None:
      return ''
    if self.missing == 'absent':
      return ('; assumes that whether a number is missing does not depend on '
              'it (missing completely at random)')
    return ('; of a distribution in which a missing number is '
            f'{_PLACES[self.missing]}')

  def cost(self) -> Cost:
    """What the release may cost in all."""
    if self.delta is None:
      return Cost(epsilon=self.epsilon)
    return costs.concentrated(epsilon=self.epsilon, delta=self.delta,
                              adjacency=self.adjacency)

  def choices(self, count: int, beside: Cost | None = None) -> Cost:
    """What equal exponential mechanisms may cost, with `beside` in all.

    Args:
      count: how many.
      beside: what else is drawn; less than `cost`.
    """
    return costs.choices(epsilon=self.epsilon, delta=self.delta, count=count,
                         adjacency=self.adjacency, beside=beside)

  def lattice(self) -> lattice.Lattice:
    """The lattice of the column."""
    return lattice.Lattice(
        lower=self.lower, upper=self.upper,
        granularity=self.spacing(self.lower, self.upper))

  def spacing(self, lower: Decimal, upper: Decimal) -> Decimal:
    """The granularity: as given, or a millionth of a range, or less."""
    if self.granularity is None:
      return lattice.default_granularity(lower, upper)
    if self.granularity <= 0:
      raise ValueError(f'granularity must be positive, got {self.granularity}')
    return self.granularity

  def numbers(self, fields: Iterable[object], lower: Decimal,
              upper: Decimal) -> Iterator[Decimal]:
    """Yields fields as numbers, by the rule for those that are none.

    Never raises, whatever the fields are: which records a file has decides on
    nothing that others see. Where `missing` is None a file with missing numbers
    has been refused by whoever read it; here they count as the middle where
    the number of records is public and as absent otherwise, so that privacy
    does not rely on the reader.
    """
    return (value for value, _ in self.labelled(
        ((field, None) for field in fields), lower, upper))

  def labelled(self, fields: Iterable[tuple[object, object]], lower: Decimal,
               upper: Decimal) -> Iterator[tuple[Decimal, object]]:
    """Yields the same of fields that have a label each, with their labels."""
    with decimal.localcontext(prec=200):  # exact: public and of few digits
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
    """All of it, in a form of which equal queries have one.

    What came after there were ledgers is left out where it is not given.
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
  """How a query will be answered; made without seeing the data.

  Attributes:
    reads: 'numbers' or 'texts' of the column, 'labels' for pairs of a number
      and its label, or 'records' alone.
    asked: the query that the ledger keeps the answer of. Where several have
      one release in common, their views of it are free.
    cost: what it costs, from the noise that it will draw.
  """
  reads: str

  @property
  def asked(self) -> Query:
    """The query whose answer the ledger keeps."""

  @property
  def cost(self) -> Cost:
    """What the noise that will be drawn costs."""

  def facts(self) -> dict[str, object]:
    """What is public of it: sensitivity, noise, unit, rules."""

  def measure(self, fields: Iterable[object]) -> object:
    """Returns what is exact and private, of the fields of all records.

    A total function: it has a value for any fields, also for none at all.
    """

  def draw(self, measured: object, meter: Meter) -> dict[str, object]:
    """Returns what is released; its noise is the meter's, at `cost` in all.

    A total function of what `measure` returns. What it decides on, and which
    keys it returns, follows from public and from noisy numbers alone.
    """

  def view(self, released: Mapping[str, object]) -> dict[str, object]:
    """What else is said, of what was released and public alone."""


class Direct:
  """Base of plans whose release is their answer."""
  query: Query

  @property
  def asked(self) -> Query:
    """The query."""
    return self.query

  def view(self, released: Mapping[str, object]) -> dict[str, object]:
    """Nothing more."""
    del released
    return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistic:
  """Something that can be released.

  Attributes:
    name: of the statistic.
    help: what it is, in a line.
    needs: parameters of the query that must be given.
    takes: parameters that may be.
    plan: makes the plan of a query, or refuses it.
  """
  name: str
  help: str
  needs: tuple[str, ...]
  takes: tuple[str, ...]
  plan: Callable[[Query], Plan]


def interval(lower: Fraction | float, upper: Fraction | float, *,
             level: Fraction | float, covers: str) -> dict[str, object]:
  """An interval of a release as it is written."""
  return {'lower': float(lower), 'upper': float(upper), 'level': float(level),
          'covers': covers}
