"""Tests quantiles by splitting: scores, privacy, cuts, ranks, enumerated."""

import collections
import dataclasses
import decimal
import fractions
import functools
import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import registry
from dpjax.release import splitting
from dpjax.release.query import Query
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
_THREE = (Fraction(1, 3), Fraction(1, 2), Fraction(3, 4))


def _tree(adjacency, *, orders=_THREE, epsilon=Fraction(2), size=3, parts=2):
  return splitting.Splitting(
      orders=orders, epsilon=epsilon, replacing=adjacency is _RO, size=size,
      parts=parts)


def _counts(data):
  return sorted(collections.Counter(data).items())


def _mass(data, cut, parts):
  """Returns the parts of records below a cut, by definition."""
  return sum(min(max(cut - parts * value, 0), parts) for value in data)


def _scores(tree, data, node, cuts):
  """Returns {cut: score} of a node, by definition."""
  left, right = cuts[node.left], cuts[node.right]
  mass = {cut: _mass(data, cut, tree.parts) - _mass(data, left, tree.parts)
          for cut in range(left, right + 1)}
  return {cut: node.share.denominator * abs(
      mass[cut] - node.share * mass[right]) for cut in mass}


def _of_runs(runs):
  scores = collections.Counter()
  for run in runs:
    for step in range(run.cuts):
      cut = run.start + run.step * step
      assert cut not in scores
      scores[cut] = run.score + run.slope * step
  return dict(scores)


@pytest.mark.parametrize('seed', range(20))
def test_runs_and_pieces_are_all_cuts_with_their_scores(seed):
  draw = random.Random(seed)
  tree = _tree(_AR, size=5, parts=draw.choice([1, 3, 50]))
  data = sorted(draw.choices(range(5), k=draw.randrange(1, 9)))
  left, right = sorted(draw.choices(range(5 * tree.parts + 1), k=2))
  for node in tree.nodes:
    wanted = _scores(tree, data, node, {node.left: left, node.right: right})
    runs = tree.runs(_counts(data), left, right, node.share)
    assert _of_runs(runs) == wanted
    for rate in (Fraction(1, 100), Fraction(1, 7), Fraction(5)):
      cut = [list(splitting.pieces(run, rate)) for run in runs]
      assert _of_runs(itertools.chain(*cut)) == wanted
      # A proposal is accepted at least every other time.
      for run, parts in zip(runs, cut, strict=True):
        share = sum(math.exp(-rate * (run.slope * step))
                    for step in range(run.cuts)) / sum(
                        part.cuts * math.exp(-rate * (part.score - run.score))
                        for part in parts)
        assert share > .5


def _cut_probs(tree, data):
  """Returns {cuts: probability} of all nodes, exactly, with e replaced by 2."""
  probs = {((0, 0), (len(tree.orders) + 1, tree.size * tree.parts)):
           Fraction(1)}
  for node in tree.nodes:
    rate, grown = tree.rate(node), {}
    for cuts, probability in probs.items():
      known = dict(cuts)
      runs = tree.runs(_counts(data), known[node.left], known[node.right],
                       node.share)
      scores = _of_runs(runs)
      assert all((rate * score).denominator == 1 for score in scores.values())
      weights = {cut: Fraction(1, 2**int(rate * score))
                 for cut, score in scores.items()}
      total = sum(weights.values())
      for cut, weight in weights.items():
        grown[*cuts, (node.place, cut)] = probability * weight / total
    probs = grown
  return probs


@pytest.mark.sound
@pytest.mark.parametrize('orders, size, sizes, parts, attained', [
    ((Fraction(1, 2),), 3, (5, 6), 2, (.99, .85)),
    ((Fraction(1, 3),), 3, (5, 6), 2, (.98, .9)),
    ((Fraction(1, 4), Fraction(1, 2)), 3, (7, 8), 1, (.8, .6)),
    (_THREE, 3, (7, 8), 1, (.999, .75)), (_THREE, 2, (4, 5), 2, (.55, .5))],
    ids=str)
@pytest.mark.parametrize('adjacency', Adjacency)
def test_privacy_by_enumeration(adjacency, orders, size, sizes, parts,
                                attained):
  """Ratios of cut probabilities are exact and within epsilon = N ln 2."""
  # N is the least number for which all log-weights are whole.
  tree = _tree(adjacency, orders=orders, size=size, parts=parts)
  steps = math.lcm(*((tree.epsilon / tree.rate(node)).numerator
                     for node in tree.nodes))
  tree = dataclasses.replace(tree, epsilon=Fraction(steps))
  assert sum(tree.level_costs) == tree.epsilon
  probs_of = functools.cache(lambda data: _cut_probs(tree, data))
  worst = Fraction(0)
  # If a record may be replaced by one without a number, it may also go.
  relations = [adjacency, _AR] if len(orders) < 3 else [adjacency]
  for pair in {tuple(sorted(tuple(sorted(data)) for data in pair))
               for relation in relations
               for pair in neighbours.pairs(range(size), sizes, relation)}:
    one, other = map(probs_of, pair)
    worst = max(worst, *(max(one[cuts] / other[cuts], other[cuts] / one[cuts])
                         for cuts in one))
  assert worst <= 2**steps
  # It is no larger than necessary.
  assert math.log2(worst) > attained[adjacency is _RO] * steps


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', Adjacency)
def test_ranges_of_levels_by_enumeration(adjacency):
  """Given the cuts above, a level's log-ratio ranges over its cost at most."""
  tree = _tree(adjacency, orders=_THREE, size=2, parts=2)
  tree = dataclasses.replace(tree, epsilon=Fraction(math.lcm(
      *((tree.epsilon / tree.rate(node)).numerator for node in tree.nodes))))
  probs_of = functools.cache(lambda data: _cut_probs(tree, data))
  widest = [0.0] * tree.num_levels
  for one, other in neighbours.pairs(range(2), (3, 4), adjacency):
    p, q = probs_of(tuple(sorted(one))), probs_of(tuple(sorted(other)))
    for level, cost in enumerate(tree.level_costs):
      # These are two ends, then cuts of nodes, parents first.
      above, upto = (2 + sum(node.level < last for node in tree.nodes)
                     for last in (level, level + 1))
      sums = collections.defaultdict(lambda: [0, 0])
      for cuts in p:
        sums[cuts[:upto]][0] += p[cuts]
        sums[cuts[:upto]][1] += q[cuts]
      ratios = collections.defaultdict(list)
      for cuts, (mine, others) in sums.items():
        ratios[cuts[:above]].append(math.log2(mine / others))
      width = max(max(row) - min(row) for row in ratios.values())
      widest[level] = max(widest[level], width)
      assert width <= cost + 1e-9
  assert all(width > .5 * cost for width, cost in zip(
      widest, tree.level_costs, strict=True))


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', Adjacency)
def test_sensitivities_by_enumeration(adjacency):
  """Each node has its stated sensitivity, given any cuts around it."""
  tree = _tree(adjacency, orders=(Fraction(1, 5), Fraction(1, 2)), size=2,
               parts=2)
  for node in tree.nodes:
    change, parts = Fraction(0), tree.parts
    for left, right in itertools.combinations(range(2 * parts + 1), 2):
      if not node.level and (left, right) != (0, 2 * parts):
        continue
      for one, other in neighbours.pairs(range(2), (1, 2, 3), adjacency):
        scores = [_scores(tree, data, node, {node.left: left,
                                             node.right: right})
                  for data in (one, other)]
        change = max(change, *(abs(scores[0][cut] - scores[1][cut])
                               for cut in scores[0]))
    # If replacing takes a record from one node, another node gets one.
    apart = 1 + (adjacency is _RO and node.level > 0)
    assert tree.sensitivity(node) / apart <= change <= tree.sensitivity(node)
  root, child = tree.nodes
  assert (root.share, child.share) == (Fraction(1, 5), Fraction(3, 8))
  assert tree.sensitivity(root) == (5 if adjacency is _RO else 4) * parts
  assert tree.sensitivity(child) == (10 if adjacency is _RO else 5) * parts


@pytest.mark.slow
def test_drawn_cuts_have_the_law():
  """Cuts have the exact distribution, also for a shared
  atom; fails 1 in 10^5."""
  tree = _tree(_AR, orders=(Fraction(1, 3), Fraction(1, 2)), size=4, parts=32,
               epsilon=Fraction(20))
  data, below = [0, 2, 2, 2], random.Random(5).randrange
  node = tree.nodes[0]
  runs = tree.runs(_counts(data), 0, 128, node.share)
  scores = _of_runs(runs)
  weights = np.array([math.exp(-tree.rate(node) * scores[cut])
                      for cut in range(129)])
  drawn = [splitting.choose(runs, tree.rate(node), below) for _ in range(800)]
  assert stats.chisquare(*_pooled(
      np.bincount(drawn, minlength=129),
      800 * weights / weights.sum())).pvalue > 1e-5
  # For both levels the second choice lies between the first cut and the end.
  tree = dataclasses.replace(tree, epsilon=Fraction(3), parts=4)
  points = [tree.draw(data, below) for _ in range(200)]
  assert all(one <= other for one, other in points)
  counts = np.bincount([4 * one + other for one, other in points], minlength=16)
  assert stats.chisquare(*_pooled(counts, 200 * _joint(tree, data)
                                  )).pvalue > 1e-5


def _joint(tree, data):
  first, second = tree.nodes
  probs = np.zeros(16)
  scores = _scores(tree, data, first, {0: 0, 3: 16})
  total = sum(math.exp(-tree.rate(first) * each) for each in scores.values())
  for cut, score in scores.items():
    ends = {0: 0, 3: 16, first.place: cut}
    others = _scores(tree, data, second, ends)
    inner = sum(math.exp(-tree.rate(second) * each)
                for each in others.values())
    for other, each in others.items():
      low, high = sorted((cut, other))
      probs[4 * min(low // 4, 3) + min(high // 4, 3)] += math.exp(
          -tree.rate(first) * score - tree.rate(second) * each) / total / inner
  assert probs.sum() == pytest.approx(1)
  return probs


def _pooled(counts, expected):
  """Returns the frequently expected cells, and one cell of all others."""
  kept = expected >= 5
  assert counts[expected == 0].sum() == 0
  counts, expected = (np.append(each[kept], each[~kept].sum())
                      for each in (counts, expected))
  return counts[expected > 0], expected[expected > 0]


def test_errors_of_ancestors_shrink():
  """A node's rank error is its own plus shares of its ancestors' errors."""
  draw = random.Random(2)
  tree = _tree(_AR, orders=tuple(Fraction(j, 9) for j in (1, 3, 4, 5, 8)),
               size=4, parts=4)
  levels = [Fraction(0), *tree.orders, Fraction(1)]
  for _ in range(50):
    data = draw.choices(range(4), k=7)
    cuts = [0, *sorted(draw.choices(range(17), k=5)), 16]
    missed = [Fraction(_mass(data, cut, 4), 4) - 7 * level
              for cut, level in zip(cuts, levels, strict=True)]
    for node in tree.nodes:
      own = _scores(tree, data, node, cuts)[cuts[node.place]]
      left = missed[node.place] - (1 - node.share) * missed[node.left] - (
          node.share * missed[node.right])
      assert abs(left) == Fraction(own, node.share.denominator * 4)


@pytest.mark.parametrize('data', [[0] * 12, [3] * 12, [0, 1, 1, 1, 3] * 3,
                                  [0] * 4 + [3] * 8])
def test_a_node_misses_no_more_often_than_it_says(data):
  """A node's exact distribution misses at most as often as stated."""
  for level in (Fraction(1, 2), Fraction(1, 5)):
    tree = _tree(_AR, orders=(level,), size=4, parts=64)
    node = tree.nodes[0]
    scores = _scores(tree, data, node, {0: 0, 2: 256})
    weights = {cut: math.exp(-tree.rate(node) * score)
               for cut, score in scores.items()}
    ranks = {cut: float(score) / level.denominator / 64
             for cut, score in scores.items()}
    tails = []
    for miss in (.02, .2, .5, 1.):
      for number in (None, len(data)):
        far, = tree.errors(miss, number)
        tail = sum(weights[cut] for cut in weights if ranks[cut] > far)
        tails.append(tail / sum(weights.values()) / miss)
    assert max(tails) <= 1


def test_errors_of_a_tree_by_hand():
  """Errors of small trees match hand computations with
  half the root's error."""
  tree = _tree(_AR, orders=tuple(Fraction(j, 4) for j in (1, 2, 3)), size=3,
               parts=8)
  own = 1 + math.log(25 * 3 / .1)
  assert tree.errors(.1) == pytest.approx([1.5 * own, own, 1.5 * own])
  known = 1 + math.log(25 * 3 / .1 / 4)
  assert tree.errors(.1, 2) == pytest.approx([1.5 * known, known, 1.5 * known])
  # For levels 1/5 and 1/2, the second lies 3/8 of the way from the first to 1.
  tree = dataclasses.replace(tree, orders=(Fraction(1, 5), Fraction(1, 2)))
  odds = math.log(25 * 2 / .1)
  first = 1 + odds * 2 * .8
  assert tree.errors(.1) == pytest.approx(
      [first, 5 / 8 * first + 1 + odds * 2 * 5 / 8])


def _plan(adjacency, **fields):
  return registry.plan(Query(
      statistic='quantiles', adjacency=adjacency, column='x',
      lower=Decimal(-2), upper=Decimal(4), granularity=Decimal(1),
      confidence=Fraction(9, 10), **dict(epsilon=Fraction(2)) | fields))


_MANY = tuple(Fraction(j, 8) for j in range(1, 8))


@pytest.mark.slow
@pytest.mark.parametrize('adjacency', Adjacency)
def test_released_quantiles_are_as_near_as_they_say(adjacency):
  """Quantiles of large atoms cover at nominal 0.9; the
  test fails once in 10^5."""
  plan = _plan(adjacency, quantiles=_MANY, quantile_method='recursive')
  assert plan.cost.pure == 2
  # Each level is one exponential mechanism, and none of its parts is.
  assert plan.cost.choices == plan.tree.level_costs
  below, rng = random.Random(3).randrange, np.random.default_rng(0)
  data = np.clip(np.round(rng.normal(1, 1.5, 300)), -2, 4)
  measured, covered = plan.measure(map(str, data)), 0
  for _ in range(12):
    answer = drawing.draw(plan, measured, below)
    points = list(answer['value'].values())
    assert points == sorted(points)
    assert set(points) <= set(range(-2, 5))
    error = answer['interval']['rank_error']
    covered += all(np.sum(data <= point) >= level * 300 - error and
                   np.sum(data < point) <= level * 300 + error
                   for point, level in zip(points, _MANY, strict=True))
  assert covered >= stats.binom.ppf(1e-5, 12, .9)
  assert ('orders' in answer['interval']) == (adjacency is _RO)


def test_much_budget_finds_the_quantiles():
  """A large budget finds all quantiles in and beside an atom."""
  plan = _plan(_AR, quantiles=_MANY, quantile_method='recursive',
               epsilon=Fraction(10**4))
  data = ['-1'] * 10 + ['1'] * 60 + ['3'] * 10
  answer = drawing.draw(plan, plan.measure(data), random.Random(0).randrange)
  assert list(answer['value'].values())[1:-1] == [1.0] * 5
  assert answer['interval']['rank_error'] < 3


def test_the_method_is_the_one_that_promises_more():
  few, many = (Fraction(1, 2),), tuple(Fraction(j, 201)
                                       for j in range(1, 201))
  for adjacency in Adjacency:
    assert _plan(adjacency, quantiles=few).method == 'independent'
    plan = _plan(adjacency, quantiles=many)
    assert plan.facts()['method'] == 'recursive'
    other = _plan(adjacency, quantiles=many, quantile_method='independent')
    assert other.method == 'independent'
    assert max(plan.errors()) < max(other.errors())
    assert plan.cost.pure == other.cost.pure == plan.query.epsilon
    # A public number of records makes the errors no larger.
    assert max(plan.errors(1000)) < max(plan.errors())
  assert _plan(_AR, quantiles=many,
               value_interval=True).method == 'independent'
  with pytest.raises(ValueError, match='value_interval needs'):
    _plan(_AR, quantiles=few, value_interval=True,
          quantile_method='recursive')
  with pytest.raises(ValueError, match='quantile_method must be one of'):
    _plan(_AR, quantiles=few, quantile_method='joint')
  with pytest.raises(ValueError, match='mean takes no quantile_method'):
    registry.plan(Query(statistic='mean', adjacency=_AR, epsilon=Fraction(1),
                        column='x', lower=Decimal(0), upper=Decimal(1),
                        quantile_method='recursive'))


def test_every_choice_is_told():
  plan = _plan(_RO, quantiles=_THREE, quantile_method='recursive')
  noise = plan.facts()['noise']
  assert noise['1/2']['between'] == ['lower', 'upper']
  assert noise['3/4']['between'] == ['1/2', 'upper']
  assert noise['3/4']['relative_order'] == '1/2'
  assert Fraction(noise['1/2']['rate']) == plan.tree.rate(plan.tree.nodes[0])


def test_queries_of_old_ledgers_are_known():
  query = _plan(_AR, quantiles=_THREE).query
  assert 'quantile_method' not in query.to_json()
  assert _plan(_AR, quantiles=_THREE, quantile_method='recursive'
               ).query.to_json()['quantile_method'] == 'recursive'
