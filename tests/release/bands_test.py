"""Tests band widths in closed form, and effects of units and noise."""

import decimal
import fractions

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import bands
from dpjax.release import calibration
from dpjax.release import density_bands
from dpjax.release import registry
from dpjax.release import trees
from dpjax.release.costs import Cost
from dpjax.release.query import Query
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency


def _tree(num_bins, epsilon, num_classes=1):
  return trees.Tree(num_bins=num_bins, num_classes=num_classes,
                    cost=Cost(epsilon=Fraction(epsilon)), replacing=False,
                    known=False)


@pytest.mark.parametrize('miss', [.02, .1, .5])
def test_widths_of_counts_are_quantiles_of_the_largest_noise(miss):
  """Widths are quantiles of the largest bin noise, to 5 standard errors."""
  tree = _tree(5, 1 / 10)
  assert len(tree.shape) == 1
  width, other = bands.widths(tree, lambda counts: counts, miss, .25)
  held = stats.dlaplace(1 / float(tree.noise.scale)).cdf(np.floor(width))
  together = np.prod(2 * held - 1)
  assert abs(together - (1 - miss)) < 5 * np.sqrt(miss * (1 - miss) / 999)
  assert np.all(width < other) == (miss > .25)


def _closed(fit, masses):
  """Returns deviations of all function sums [L, POINTS], and of the number."""
  counted = fit.counted
  size = len(counted.bins)
  linear = fit.functions.partial(np.eye(size))  # [M, L, POINTS]
  covariance = counted.variance * np.eye(size)
  far = ((1 - counted.trust)**2 * size * counted.variance
         + counted.trust**2 * counted.noise_of_number.deviation**2)
  if masses is not None:
    covariance += counted.number * (np.diag(masses)
                                    - np.multiply.outer(masses, masses))
  return np.sqrt(np.einsum('alp,ab,blp->lp', linear, covariance,
                           linear)), np.sqrt(far)


@pytest.mark.parametrize('whose', ['file', 'population'])
def test_widths_of_curves_are_as_many_deviations_everywhere(whose):
  """Widths are a constant multiple of exact deviations at all points."""
  plan = registry.plan(Query(
      statistic='density', adjacency=_AR, epsilon=Fraction(1, 2), column='x',
      lower=Decimal(0), upper=Decimal(1)))
  bin_noise, own = plan.noise_of_bins(7), plan.noise_of_records
  masses = np.diff(stats.beta(2, 3).cdf(np.arange(12) / 11))
  fit = density_bands.Fit(
      density_bands.counted(np.rint(7 * 400 * masses), unit=1 / 7,
                            bin_noise=bin_noise, num_records=None,
                            noisy_records=400, noise_of_number=own), 'spline')
  drawn_from = None if whose == 'file' else masses
  width, far = fit._widths(.2, drawn_from)
  wanted, wanted_far = _closed(fit, drawn_from)
  # It is the largest of many correlated ones; scales use 200 draws.
  ratio = np.append(width / wanted, far / wanted_far)
  assert ratio.max() < 1.35 * ratio.min()
  assert 2 < ratio.mean() < 3.5


def test_a_density_is_the_same_in_any_unit(monkeypatch):
  """A column from 5 to 29 gives the same density as from 0 to 1, rescaled."""
  monkeypatch.setattr(bands, 'num_runs', lambda miss: 39)
  answers = []
  for lower, upper in ((0, 1), (5, 29)):
    plan = registry.plan(Query(
        statistic='density', adjacency=_RO, epsilon=Fraction(1), column='x',
        lower=Decimal(lower), upper=Decimal(upper)))
    measured = plan.measure(str(lower + (upper - lower) * k / 400)
                            for k in range(200))
    parts = plan.noise_of_bins(1)
    size = density_bands.bases.adaptive_bins(200, parts.deviation**2, most=999)
    counts = np.bincount(np.arange(200) * size // 400, minlength=size)
    unit = registry.densities.bin_shares({}, 10**6, size)[1]
    answers.append(plan.view(drawing.chosen(
        plan, measured, [int(count) * unit for count in counts])))
  one, other = answers
  assert other['thresholds'] == pytest.approx(
      [5 + 24 * each for each in one['thresholds']])
  for path in (('value',), ('histogram', 'heights'), ('interval', 'lower'),
               ('interval', 'upper'), ('population_interval', 'lower'),
               ('population_interval', 'upper')):
    narrow, wide = one, other
    for name in path:
      narrow, wide = narrow[name], wide[name]
    assert np.array(wide) * 24 == pytest.approx(np.array(narrow)), path
  heights = np.array(one['histogram']['heights'])
  assert heights.mean() == pytest.approx(1)
  assert heights[0] == pytest.approx(counts[0] * size / 200)
  assert np.mean(one['value']) == pytest.approx(1)
  assert np.all(np.array(one['interval']['upper']) <= np.array(
      one['population_interval']['upper']) * 1.5)


@pytest.mark.parametrize('epsilon, low, high', [(10**6, .9, 1.1), (1, 1.3, 9)])
def test_the_null_law_of_calibration_is_chi_squared_without_noise(
    monkeypatch, epsilon, low, high):
  """Without noise the calibration statistic is chi-squared, with one degree
  per group as nothing is fitted; noise makes it larger."""
  monkeypatch.setattr(calibration, 'RUNS', 299)
  tree = _tree(16, epsilon, num_classes=2)
  centres = (np.arange(16) + .5) / 16
  records = np.full(16, 60.)
  counts = np.stack([records * (1 - centres), records * centres])
  groups = calibration.grouped(counts, centres, 6)
  simulated = calibration.null_statistics(tree, counts, centres, 6,
                             np.random.default_rng(0))
  assert len(groups.ends) == 6 and len(simulated) == 299
  assert low < simulated.mean() / 6 < high
  assert low < np.quantile(simulated, .9) / stats.chi2.isf(.1, 6) < 1.15 * high


@pytest.mark.parametrize('adjacency', Adjacency)
def test_a_band_of_a_population_has_half_of_its_miss_for_noise(
    adjacency, monkeypatch):
  """Half of the miss is for noise, half for sampling, by the DKW inequality."""
  monkeypatch.setattr(bands, 'num_runs', lambda miss: 99)
  plan = registry.plan(Query(
      statistic='ecdf', adjacency=adjacency, epsilon=Fraction(1, 2),
      column='x', lower=Decimal(0), upper=Decimal(1), thresholds=5,
      confidence=Fraction(4, 5)))
  counts = [30, 60, 5, 80, 25]
  nodes = plan.tree.nodes(counts)
  assert len(nodes) == 1
  released = drawing.chosen(plan, counts, nodes[0][plan.tree._used[0]].tolist())
  answer = plan.view(released)
  fit = bands.Fit(plan.tree, released)
  (whole,), (half,) = fit.bands(.2), fit.bands(.1)
  least = 200 if adjacency is _RO else half.lower[0, 0, -1]
  far = np.sqrt(np.log(4 / .2) / (2 * least))
  for name, band, shift in (('interval', whole, 0.0),
                            ('population_interval', half, far)):
    low, high = (ends[0] for ends in band.shares())
    assert answer[name]['lower'] == pytest.approx(np.clip(low - shift, 0, 1))
    assert answer[name]['upper'] == pytest.approx(np.clip(high + shift, 0, 1))
  assert np.any(whole.lower != half.lower)
