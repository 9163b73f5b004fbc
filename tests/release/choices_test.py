"""Tests which candidates are drawn, and weights, over all draws."""

import collections
import decimal
import fractions
import random

import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import meter as meters
from dpjax.release import registry
from dpjax.release import splitting
from dpjax.release.costs import Cost
from dpjax.release.query import Query

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction


class _Draws:
  """Replaces `privacy.exact`: each draw returns what was planned.

  Attributes:
    planned: (run or piece, place in it, number of rejected tries).
    asked: arguments of each kind of draw.
  """

  def __init__(self, planned):
    self.planned, self.refused = planned, planned[2]
    self.asked = collections.defaultdict(list)

  def choice(self, counts, scores, rate, below):
    del below
    self.asked['choice'].append((list(counts), list(scores), rate))
    return self.planned[0]

  def below(self, number):
    self.asked['below'].append(number)
    return self.planned[1]

  def bernoulli_exp(self, gamma, below):
    del below
    self.asked['gamma'].append(gamma)
    self.refused -= 1
    return self.refused < 0


def test_all_points_of_a_run_are_drawn_alike(monkeypatch):
  runs, scores = [(-3, 2), (-1, 1), (0, 5)], [2, 0, 1]
  drawn = []
  for place, (_, size) in enumerate(runs):
    for step in range(size):
      draws = _Draws((place, step, 0))
      monkeypatch.setattr(meters, 'exact', draws)
      meter = meters.Meter(Cost(choices=(Fraction(3),)), draws.below)
      drawn.append(meter.point(runs, scores, rate=Fraction(1, 2),
                               sensitivity=3))
      assert draws.asked == {'below': [size], 'choice': [
          ([2, 1, 5], scores, Fraction(1, 2))]}
  assert drawn == list(range(-3, 5))


@pytest.mark.parametrize('rate', [Fraction(1, 90), Fraction(1, 7), Fraction(3)])
def test_cuts_have_weights_of_their_scores(rate, monkeypatch):
  """Proposal times acceptance gives each cut the weight e^(-rate score)."""
  tree = splitting.Splitting(orders=(Fraction(1, 3),), epsilon=Fraction(1),
                             replacing=False, size=4, parts=12)
  runs = tree.runs([(0, 1), (2, 5), (3, 2)], 3, 48, Fraction(1, 3))
  scores = {run.start + run.step * k: run.score + run.slope * k
            for run in runs for k in range(run.cuts)}
  pieces = [piece for run in runs for piece in splitting.pieces(run, rate)]
  drawn = []
  for place, piece in enumerate(pieces):
    for step in range(piece.cuts):
      draws = _Draws((place, step, 2))
      monkeypatch.setattr(splitting, 'exact', draws)
      drawn.append(splitting.choose(runs, rate, draws.below))
      # Rejected draws are proposed anew, from all pieces.
      asked = [([each.cuts for each in pieces],
                [each.score for each in pieces], rate)]
      assert draws.asked['choice'] == 3 * asked
      assert draws.asked['below'] == [piece.cuts] * 3
      gamma, = set(draws.asked['gamma'])
      assert rate * piece.score + gamma == rate * scores[drawn[-1]]
  assert sorted(drawn) == sorted(scores) == list(range(3, 49))


@pytest.mark.parametrize('seed', range(4))
def test_a_tree_draws_every_cut_between_those_around_it(seed, monkeypatch):
  """Each node draws from all cuts between its ancestors, at its own rate."""
  chance, asked = random.Random(seed), []
  tree = splitting.Splitting(
      orders=tuple(Fraction(j, 7) for j in (1, 2, 3, 5, 6)), replacing=True,
      epsilon=Fraction(1), size=5, parts=4)
  values = sorted(chance.choices(range(5), k=9))

  def choose(runs, rate, below):
    cuts = sorted(run.start + run.step * k for run in runs
                  for k in range(run.cuts))
    asked.append((runs, rate, cuts[-1] if not seed else chance.choice(cuts)))
    assert below == 'below'
    return asked[-1][2]

  monkeypatch.setattr(splitting, 'choose', choose)
  points = tree.draw(values, 'below')
  counts = sorted(collections.Counter(values).items())
  cuts = {0: 0, 6: 20}
  for node, (runs, rate, cut) in zip(tree.nodes, asked, strict=True):
    assert runs == tree.runs(counts, cuts[node.left], cuts[node.right],
                             node.share)
    assert rate == tree.rate(node)
    cuts[node.place] = cut
  assert points == [min(cuts[place] // 4, 4) for place in range(1, 6)]
  assert seed or points == [4] * 5


class _Best(meters.Meter):
  """Charges everything, and draws the first of the best points."""

  def point(self, runs, scores, **how):
    """Returns the first point of the least score."""
    super().point([(0, 1)], [0], **how)
    assert min(scores) == 0  # Bounds have equal numbers of public values.
    start, _ = runs[min(range(len(runs)), key=scores.__getitem__)]
    return start


@pytest.mark.parametrize('adjacency', Adjacency)
def test_ends_of_quantiles_are_sought_as_many_ranks_away(adjacency):
  """Interval ends lie `spare` ranks away, for records 0, 1, ..., 1000."""
  levels = (Fraction(1, 100), Fraction(2, 5), Fraction(99, 100))
  plan = registry.plan(Query(
      statistic='quantiles', adjacency=adjacency, epsilon=Fraction(4),
      column='x', lower=Decimal(0), upper=Decimal(1000), quantiles=levels,
      granularity=Decimal(1), value_interval=True))
  meter = _Best(plan.cost, random.Random(0).randrange)
  answer = plan.draw(plan.measure(map(str, range(1001))), meter)
  meter.check_spent()
  for level in levels:
    spare, rank = plan.spare(level), int(1001 * level)
    assert answer['value'][str(level)] == rank
    assert 20 < spare < 400
    assert answer['value_interval']['ends'][str(level)] == [
        max(0, rank - spare), min(1000, rank + spare)]
