"""The most frequent of public categories, by the exponential mechanism.

It draws one category and releases no count. So the error grows only with the
logarithm of the number of categories. Probabilities are proportional to
e^(2 rate count) exactly, because `privacy.exact.choice` draws without floats.
"""

from collections.abc import Iterable
import dataclasses
import fractions
import math

from dpjax.release import counts
from dpjax.release import query as queries
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.release.query import Query

Fraction = fractions.Fraction


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mode(queries.Direct):
  """A category c, drawn with probability ~ e^(-rate score(c)).

  The score of c is the number of records in the other categories minus the
  number in c. It is least for the most frequent categories. A difference of
  two scores is twice that of the counts, so the draw is the exponential
  mechanism of the counts at 2 rate.

  Attributes:
    query: public parameters of the release.
  """
  query: Query

  reads = 'texts'

  @property
  def sensitivity(self) -> int:
    """Returns the largest change of any score between neighbours."""
    # One more record changes the score of its category by -1, of others by 1.
    # One that changes its category moves two scores by 2 and -2, no other.
    return 2 if self.query.replacing else 1

  @property
  def rate(self) -> Fraction:
    """Returns the factor of the score in the log-probability."""
    width, = self.query.choices(1).choices
    return width / (2 * self.sensitivity)

  @property
  def cost(self) -> Cost:
    """Returns the cost of the draw, from the rate it is made with."""
    return Cost(choices=(2 * self.sensitivity * self.rate,))

  def facts(self) -> dict[str, object]:
    """Returns public facts: rules for values, sensitivity and distribution."""
    return {
        'missing': 'a record whose value is no category counts for none',
        'noise': {'category': {
            'distribution': 'one of the categories, probability proportional '
                            'to exp(-rate * score)',
            'score': 'number of records in the other categories minus the '
                     'number in this one',
            'score_sensitivity': str(self.sensitivity),
            'rate': str(self.rate)}}}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """Returns the exact, private number of records of each category."""
    sizes = [0] * (len(self.query.categories) + 1)
    for place in counts.category_places(fields, self.query.categories):
      sizes[place] += 1
    return sizes[:-1]

  def scores(self, sizes: list[int]) -> list[int]:
    """Returns the score of each category, from the counts of all."""
    number = sum(sizes)
    return [number - 2 * size for size in sizes]

  def draw(self, measured: list[int], meter: Meter) -> dict[str, object]:
    """Returns one category, and how many records it may be behind the mode."""
    place = meter.point([(place, 1) for place in range(len(measured))],
                        self.scores(measured), rate=self.rate,
                        sensitivity=self.sensitivity)
    return {'value': self.query.categories[place], 'interval': {
        'count_error': self.count_error(),
        'level': float(self.query.confidence),
        'covers': 'the released category has at most count_error records '
                  'fewer than the most frequent one; noise only'}}

  def count_error(self) -> int:
    """Returns a bound of how many records the drawn category is behind."""
    # Let the most frequent of k categories have weight 1. Those that are t or
    # more records behind have together at most x = (k - 1) e^(-2 rate t), so
    # one of them is drawn with probability x / (1 + x) at most: solve for t.
    miss = self.query.miss
    num_others = len(self.query.categories) - 1
    largest_deficit = (math.log(num_others) + math.log1p(-miss)
                       - math.log(miss)) / (2 * float(self.rate))
    return max(0, math.floor(largest_deficit))


def mode(query: Query) -> Mode:
  """Returns the plan of the most frequent of public categories."""
  names = query.categories
  if len(names) < 2 or len(set(names)) < len(names):
    raise ValueError('mode needs two categories or more, all different, got '
                     f'{", ".join(names)}')
  return Mode(query=query)


STATISTICS = (
    queries.Statistic(
        name='mode', help='the most frequent of public categories',
        needs=('column', 'categories'), takes=(), plan=mode),
)
