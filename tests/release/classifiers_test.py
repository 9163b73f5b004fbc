"""Tests curves, areas and calibration of scores, and their intervals."""

import decimal
import fractions
import functools
import random
import types

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import bands
from dpjax.release import calibration
from dpjax.release import classifiers
from dpjax.release import registry
from dpjax.release.costs import Cost
from dpjax.release.query import Query
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
_HUGE = Fraction(10**9)
_SCORES = {'column': 's', 'label': 'y', 'positive': '1', 'lower': Decimal(0),
           'upper': Decimal(1), 'thresholds': 16}


def _plan(adjacency, *, epsilon=Fraction(1), **fields):
  return registry.plan(Query(adjacency=adjacency, epsilon=epsilon,
                             **{**_SCORES, **fields}))


def _records(number, seed, slope=1.5):
  """Returns scores that are the probabilities of their labels."""
  generator = np.random.default_rng(seed)
  probs = np.round(1 / (1 + np.exp(-slope * generator.normal(size=number))), 4)
  return probs, (generator.random(number) < probs).astype(int)


def _answer(plan, scores, labels, below):
  fields = zip(map(str, scores), labels, strict=True)
  released = drawing.draw(plan, plan.measure(fields), below)
  return plan.view(released)


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('statistic', [
  'classifier', 'roc', 'auc', 'hosmer_lemeshow'])
def test_sensitivities_by_enumeration(statistic, adjacency):
  """Noised counts have the stated sensitivity, also if a label flips."""
  plan = _plan(adjacency, statistic=statistic, thresholds=120)
  domain = (('.1', '1'), ('.1', '0'), ('NA', '1'), ('9', ''), ('.6', 'no'))

  def nodes(dataset):
    # Two public records ensure that each view has a score.
    measured = plan.measure([*dataset, ('.2', '1'), ('.3', '0')])
    return np.concatenate(plan.tree.nodes(measured)).tolist()

  for order in (1, 2):
    assert neighbours.sensitivity(
        nodes, domain, range(3), adjacency, order=order
    )**order == pytest.approx(plan.tree.sensitivity)
  assert plan.cost == Cost(
      epsilon=plan.tree.sensitivity / plan.tree.noise.scale) == Cost(
          epsilon=Fraction(1))


class _UniformErrors:
  """A tree whose errors add evenly spaced numbers to one count."""

  def errors(self, number, generator):
    """Yields [number] errors [2, 2], in random order."""
    for share in generator.permutation(np.linspace(-.5, 1.5, number)):
      yield np.array([[0.0, 0.0], [1_000 * share, 0.0]])


@pytest.mark.parametrize('miss', [.02, .2, .5])
def test_areas_miss_by_half_of_the_budget_on_either_side(miss):
  """Area intervals miss by half on either side, by uniform asymmetric gaps."""
  counts = np.array([[1_000.0, 0], [1_000, 1_000]])
  fit = types.SimpleNamespace(tree=_UniformErrors(), counts=counts,
                              linear=counts)
  near, far = classifiers._area_intervals(fit, .75, miss)
  # A share of 1 moves the area by 1/8; shares have quantiles -1/2 + 2 u.
  assert near == pytest.approx((.75 - (.5 - miss) / 8,
                                .75 + (1.5 - miss) / 8), abs=1e-9)
  # Draws of 3,000 records move it by a few hundredths more.
  assert far == pytest.approx(near, abs=.02) and far != near


@pytest.mark.parametrize('adjacency', Adjacency)
def test_without_noise_the_curve_and_its_area(adjacency):
  scores, labels = _records(700, 1)
  binned = np.ceil(scores * 16)
  below = random.Random(0).randrange
  answer = _answer(_plan(adjacency, epsilon=_HUGE, statistic='roc'), scores,
                   labels, below)
  fpr, tpr, cuts = metrics.roc_curve(labels, binned, drop_intermediate=False)
  # scikit-learn counts scores at or above bin b, so above threshold b - 1.
  ours = {point: pair for point, *pair in zip(
      [*answer['thresholds'][:-1], 0], *answer['value'].values(), strict=True)}
  for cut, *pair in zip(cuts[1:], fpr[1:], tpr[1:], strict=True):
    assert ours[(cut - 1) / 16] == pytest.approx(pair, abs=1e-12)
  assert ours[1] == [0, 0] and answer['thresholds'][-1] is None
  for name, values in answer['value'].items():
    for end in ('lower', 'upper'):
      assert answer['interval'][name][end] == pytest.approx(values)
  assert answer['positives']['value'] == pytest.approx(labels.sum())
  assert answer['negatives']['interval']['upper'] == 700 - labels.sum()
  answer = _answer(_plan(adjacency, epsilon=_HUGE, statistic='auc'), scores,
                   labels, below)
  area = metrics.roc_auc_score(labels, binned)
  assert answer['value'] == pytest.approx(area, abs=1e-12)
  for name in ('interval', 'band_interval'):
    assert answer[name]['lower'] == pytest.approx(area, abs=1e-9)
    assert answer[name]['upper'] == pytest.approx(area, abs=1e-9)
  ties = np.mean(binned[labels == 1][:, None] == binned[labels == 0])
  assert answer['ties'] == pytest.approx(ties)
  assert answer['population_interval']['upper'] - area > .01


@pytest.mark.parametrize('adjacency', Adjacency)
def test_without_noise_hosmer_and_lemeshow(adjacency):
  scores, labels = _records(2_000, 2)
  plan = _plan(adjacency, epsilon=_HUGE, statistic='hosmer_lemeshow', groups=4)
  answer = _answer(plan, scores, labels, random.Random(0).randrange)
  bins = np.ceil(scores * 16).astype(int)
  order = np.sort(bins)
  edges = np.unique([0, *(order[q * 500 - 1] for q in (1, 2, 3)), 16])
  total = 0.0
  for start, end, group in zip(edges[:-1], edges[1:], answer['groups'],
                               strict=True):
    inside = (start < bins) & (bins <= end)
    expected = np.sum((bins[inside] - .5) / 16)
    gap = np.sum(labels[inside]) - expected
    total += gap**2 / expected + gap**2 / (inside.sum() - expected)
    assert (group['above'], group['up_to']) == (start / 16, end / 16)
    assert group['records'] == pytest.approx(inside.sum())
    assert group['predicted'] == pytest.approx(expected / inside.sum())
    assert group['observed'] == pytest.approx(labels[inside].mean())
    assert group['interval']['upper'] == pytest.approx(labels[inside].mean())
  assert answer['value'] == pytest.approx(total)
  # Without noise the null is nearly chi-squared, one degree per group.
  assert answer['critical_value'] == pytest.approx(
      stats.chi2.isf(.05, len(edges) - 1), rel=.15)
  assert answer['p_value'] == pytest.approx(
      stats.chi2.sf(total, len(edges) - 1), abs=.1)


def test_groups_join_until_they_expect_enough():
  centres = (np.arange(8) + .5) / 8
  counts = np.array([[40., 9, 0, 0, 0, 2, 1, 0], [2., 1, 0, 0, 0, 5, 9, 30]])
  groups = calibration.grouped(counts, centres, 8)
  assert np.all(np.minimum(groups.expected, groups.records - groups.expected)
                >= calibration.LEAST)
  assert groups.records.sum() == counts.sum() and groups.ends[-1] == 7
  assert groups.observed.sum() == counts[1].sum()
  assert groups.expected.sum() == pytest.approx(counts.sum(0) @ centres)
  # Groups consist of whole bins, each counted once.
  starts = np.append(0, groups.ends[:-1] + 1)
  assert groups.records.tolist() == np.add.reduceat(
      counts.sum(0), starts).tolist()
  few = calibration.grouped(counts / 100, centres, 8)
  assert len(few.ends) == 1 and np.isfinite(few.statistic)
  none = calibration.grouped(0 * counts, centres, 8)
  assert none.statistic == 0 and none.ends.tolist() == [7]


def _contains(band, truth):
  """Returns whether a whole curve lies within its band, up to rounding."""
  truth = np.array(truth)
  return bool(np.all((np.array(band['lower']) <= truth + 1e-12)
                     & (truth - 1e-12 <= np.array(band['upper']))))


@pytest.mark.slow
@pytest.mark.parametrize('adjacency, delta', [
  (_AR, None), (_RO, None), (_RO, Fraction(1, 10**6))])
def test_bands_and_intervals_cover(monkeypatch, adjacency, delta):
  """Bands and intervals cover at nominal 0.8; each fails once in 10^5."""
  monkeypatch.setattr(bands, 'widths', functools.cache(bands.widths))
  monkeypatch.setattr(bands, 'num_runs', lambda miss: 199)
  scores, labels = _records(800, 3)
  runs, below = 50, random.Random(5).randrange
  plans = [_plan(adjacency, delta=delta, statistic=name,
                 confidence=Fraction(8, 10)) for name in ('roc', 'auc')]
  measured = plans[0].measure(zip(map(str, scores), labels, strict=True))
  ranks = np.cumsum(np.reshape(measured, (2, 16)), 1)
  rates = [[0, *(1 - row[-2::-1] / row[-1]), 1] for row in ranks]
  area = metrics.roc_auc_score(labels, np.ceil(scores * 16))
  covered = dict.fromkeys(('fpr', 'tpr', 'interval', 'band_interval'), 0)
  inside, areas, widths = np.zeros(runs, bool), [], np.zeros(runs)
  for run in range(runs):
    released = drawing.draw(plans[0], measured, below)
    answer = plans[0].view(released)
    both = True
    for name, truth in zip(('fpr', 'tpr'), rates, strict=True):
      fine = _contains(answer['interval'][name], truth)
      covered[name] += fine
      both &= fine
      values = answer['value'][name]
      assert np.all(np.diff(values) >= -1e-12)
      assert values[0] == 0 and values[-1] == 1
    answer = plans[1].view(released)
    for name in ('interval', 'band_interval'):
      covered[name] += answer[name]['lower'] <= area <= answer[name]['upper']
    inside[run] = both
    part = answer['interval']
    assert part['lower'] <= answer['value'] <= part['upper']
    widths[run] = part['upper'] - part['lower']
  assert np.sum(inside) >= stats.binom.ppf(1e-5, runs, .8)
  assert min(covered.values()) >= stats.binom.ppf(1e-5, runs, .8)
  # The simulated interval is no wider than necessary.
  for error in plans[0].tree.errors(1_000, np.random.default_rng(7)):
    counts = np.reshape(measured, (2, 16)) + error
    areas.append(classifiers._wins(counts) / np.prod(counts.sum(1)))
  assert np.mean(widths) == pytest.approx(
      2 * stats.norm.isf(.1) * np.std(areas), rel=.12)
  assert covered['interval'] <= stats.binom.isf(1e-5, runs, .8)


@pytest.mark.slow
def test_observed_shares_cover_though_groups_are_chosen(monkeypatch):
  """Observed shares cover at nominal 0.8; the test fails once in 10^5."""
  monkeypatch.setattr(bands, 'num_runs', lambda miss: 199)
  monkeypatch.setattr(calibration, 'RUNS', 1)
  scores, labels = _records(2_000, 4)
  below, covered = random.Random(7).randrange, 0
  plan = _plan(_RO, statistic='hosmer_lemeshow', confidence=Fraction(8, 10),
               groups=5)
  measured = plan.measure(zip(map(str, scores), labels, strict=True))
  for _ in range(40):
    answer = plan.view(drawing.draw(plan, measured, below))
    covered += all(
        group['interval']['lower'] <= np.mean(labels[
            (group['above'] < scores) & (scores <= group['up_to'])])
        <= group['interval']['upper'] for group in answer['groups'])
  assert covered >= stats.binom.ppf(1e-5, 40, .8)


@pytest.mark.slow
@pytest.mark.parametrize('adjacency', Adjacency)
def test_size_and_power_of_the_test(monkeypatch, adjacency):
  """Calibrated records are refused in 5 % of runs; the
  test fails once in 10^5."""
  monkeypatch.setattr(calibration, 'RUNS', 59)
  generator = np.random.default_rng(6)
  plan = _plan(adjacency, statistic='hosmer_lemeshow', epsilon=Fraction(1, 8))
  centres = (np.arange(16) + .5) / 16
  p_values = {}
  for shift, runs in ((0.0, 100), (.4, 15)):
    values = np.zeros(runs)
    for run in range(runs):
      bins = generator.binomial(15, .4, 3_000)
      labels = generator.random(3_000) < np.clip(centres[bins] + shift, 0, 1)
      cells = np.bincount(16 * labels + bins, minlength=32)
      noisy = [node + z for node, z in zip(
          plan.tree.nodes(cells), plan.tree.simulated(generator), strict=True)]
      total = 3_000 if adjacency is _RO else None
      counts = plan.tree.nonnegative(noisy, total)
      simulated = calibration.null_statistics(plan.tree, counts, centres, 5,
                                              generator)
      value = calibration.grouped(counts, centres, 5).statistic
      values[run] = (1 + np.sum(simulated >= value)) / 60
    p_values[shift] = values
  assert np.sum(p_values[0.0] <= .05) <= stats.binom.isf(1e-5, 100, .05)
  assert .5 - .21 < np.mean(p_values[0.0] <= .5) < .5 + .21
  assert np.mean(p_values[.4] <= .05) > .9


def test_all_views_are_of_one_release():
  asked = {name: _plan(_RO, statistic=name, **fields).asked
           for name, fields in (
               ('classifier', {}), ('roc', {'grid': 'uniform'}),
               ('auc', {'confidence': Fraction(1, 2), 'positive': ' 1'}),
               ('hosmer_lemeshow', {'lower': None, 'upper': None,
                                    'groups': 5}))}
  assert len(set(asked.values())) == 1
  other = _plan(_RO, statistic='roc', missing='lower').asked
  assert other not in asked.values()
  assert _plan(_RO, statistic='roc', positive='0').asked not in asked.values()
  plan = _plan(_AR, statistic='classifier')
  scores, labels = _records(300, 8)
  answer = _answer(plan, scores, labels, random.Random(1).randrange)
  assert set(answer) == {'roc', 'auc', 'hosmer_lemeshow', 'negatives',
                         'positives', 'simulations'}
  wide = _plan(_AR, statistic='classifier', upper=Decimal(2))
  assert 'hosmer_lemeshow' not in _answer(wide, scores, labels,
                                          random.Random(1).randrange)


@pytest.mark.parametrize('positive, labels, wanted', [
  ('1', ['1', '1.0', 1, 1.0, True, ' 1 ', 0, '', None, 'one', 2], 6),
  ('yes', ['yes', ' yes', 'Yes', 'no', None, float('nan')], 2),
  ('None', ['None', None], 1), ('1.0', ['1', 1, '01', '1e0', '10'], 4)])
def test_what_is_positive(positive, labels, wanted):
  plan = _plan(_RO, statistic='roc', positive=positive)
  measured = plan.measure([('.5', label) for label in labels])
  assert sum(measured) == len(labels) and measured[16 + 7] == wanted


def test_records_without_a_score():
  fields = [('', '1'), ('NA', '0'), ('.1', '1'), ('7', '0')]
  measured = _plan(_AR, statistic='roc').measure(fields)
  assert sum(measured) == 2 and measured[16 + 1] == 1 and measured[15] == 1
  measured = _plan(_RO, statistic='roc', missing='upper').measure(fields)
  assert (measured[15], measured[31], measured[17]) == (2, 1, 1)
  measured = _plan(_RO, statistic='roc', missing='absent').measure(fields)
  assert sum(measured) == 2
  # Data without positives, and without scores, are counted like others.
  measured = _plan(_AR, statistic='roc').measure(fields[:2] + [('.1', '0')])
  assert sum(measured) == 1
  assert not any(_plan(_AR, statistic='roc').measure(fields[:2]))


@pytest.mark.parametrize('fields, message', [
  ({'label': None}, 'roc needs label'),
  ({'positive': None}, 'roc needs positive'),
  ({'positive': ' '}, 'positive must be a value'),
  ({'label': 's'}, "label must be another column than 's'"),
  ({'lower': None}, 'roc needs lower and upper'),
  ({'groups': 5}, 'roc takes no groups'),
  ({'statistic': 'hosmer_lemeshow', 'upper': Decimal(2)},
   r'must lie in \[0, 1\], got 0 and 2'),
  ({'statistic': 'hosmer_lemeshow', 'groups': 1}, 'groups must be 2 to 16'),
  ({'statistic': 'hosmer_lemeshow', 'groups': 17}, 'groups must be 2 to 16'),
  ({'statistic': 'auc', 'confidence': Fraction(99_999, 100_000)}, 'at most'),
])
def test_refusals(fields, message):
  with pytest.raises(ValueError, match=message):
    _plan(_RO, **{'statistic': 'roc', **fields})
