"""Tests exact bin noise, the curves that follow from it, and coverage."""

import decimal
import fractions
import math
import random

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import exact
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import bands
from dpjax.release import densities
from dpjax.release import density_bands
from dpjax.release import registry
from dpjax.release.query import Query
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods.estimate import DensityEstimate
from dpjax.stats.ecdf_methods import hierarchy
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency


def _plan(adjacency, **fields):
  return registry.plan(Query(**{
      'statistic': 'density', 'adjacency': adjacency, 'epsilon': Fraction(1),
      'column': 'x', 'lower': Decimal(0), 'upper': Decimal(1), **fields}))


def _released(plan, numbers, seed=0):
  return drawing.draw(plan, plan.measure(map(str, numbers)),
                      random.Random(seed).randrange)


@pytest.mark.parametrize('num_bins', [1, 2, 3, 5, 6])
@pytest.mark.parametrize('num_cells', [6, 7, 12])
def test_records_are_shared_out_by_length(num_cells, num_bins):
  """Records are divided among bins by exact intersection lengths."""
  cells = {0: 3, num_cells // 2: 1, num_cells - 1: 5}
  shares, parts = densities.bin_shares(cells, num_cells, num_bins)
  for place, share in enumerate(shares):
    low, high = (Fraction(place + end, num_bins) for end in (0, 1))
    assert Fraction(share, parts) == sum(
        count * num_cells * max(0, min(high, Fraction(cell + 1, num_cells))
                                - max(low, Fraction(cell, num_cells)))
        for cell, count in cells.items())


@pytest.mark.sound
@pytest.mark.parametrize('num_bins', [3, 5])
@pytest.mark.parametrize('adjacency, missing', [
    (_AR, None), (_RO, None), (_RO, 'absent')])
def test_sensitivities_by_enumeration(adjacency, missing, num_bins):
  """Bins have the stated sensitivity, whether or not they cut cells."""
  plan = _plan(adjacency, upper=Decimal(6), granularity=Decimal(1),
               missing=missing)

  def shares(dataset):
    return densities.bin_shares(plan.measure([*dataset, '2']), 6, num_bins)[0]

  parts = densities.bin_shares({}, 6, num_bins)[1]
  for order, name in ((1, 'l1_sensitivity'), (2, 'l2_sensitivity_squared')):
    sensitivity = neighbours.sensitivity(
        shares, ('-1', '0', '3.5', '6', 'NA'), range(3), adjacency, order=order)
    assert sensitivity**order == pytest.approx(plan._sensitivities(parts)[name])


@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_noise_costs_what_is_asked(adjacency, delta):
  plan = _plan(adjacency, delta=delta, epsilon=Fraction(1, 3))
  assert plan.cost == plan.query.cost()
  if adjacency is _RO:
    assert plan.noise_of_records is None
  else:
    assert plan.noise_of_records.cost(
        l1_sensitivity=1, l2_sensitivity_squared=1) == plan.query.cost(
        ).part(Fraction(1, 20))
  for parts in (1, 21):
    spent = plan.noise_of_bins(parts).cost(**plan._sensitivities(parts))
    share = Fraction(1) if adjacency is _RO else Fraction(19, 20)
    assert spent == plan.query.cost().part(share)


@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_every_bin_has_exact_noise(adjacency, delta):
  plan = _plan(adjacency, delta=delta, epsilon=Fraction(1, 10))
  measured = plan.measure(['.1', '.9', '.50001', '1', '-3'] * 80)
  released = drawing.draw(plan, measured, random.Random(5).randrange)
  below = random.Random(5).randrange

  def draw(distribution):
    return (exact.discrete_laplace(distribution.scale, below) if delta is None
            else exact.discrete_gaussian(distribution.variance, below))

  number = 400
  if adjacency is _AR:
    number += draw(plan.noise_of_records)
    assert released['noisy_records'] == number
    assert 'num_records' not in released
  # The size uses the noisy number alone.
  size, exactly = (bases.adaptive_bins(
      of, plan.noise_of_bins(1).deviation**2) for of in (number, 400))
  assert delta or (size != exactly) == (adjacency is _AR)
  shares, parts = densities.bin_shares(measured, 10**6, size)
  distribution = plan.noise_of_bins(parts)
  assert released['noisy_counts'] == [
      share + draw(distribution) for share in shares
  ]
  facts = released['noise']['bins']
  assert facts['unit'] == str(Fraction(1, parts))
  parameter = distribution.scale if delta is None else distribution.variance
  assert str(parameter) in facts.values()


def test_numbers_of_any_size_have_a_cell():
  plan = _plan(_RO, lower=Decimal(-1), upper=Decimal(1),
               granularity=Decimal('0.5'))
  assert plan.measure(['-Infinity', '-1', '-0.50', '-0.25', '-1e-999999999',
                       '1e-999999999', '0', '0.5', '1', '9e999999', 'NA']
                      ) == {0: 2, 1: 2, 2: 4, 3: 3}


def _parity(boundary, num_records, density):
  """Returns a release's curve, and the research mode's on the same counts."""
  plan = _plan(_RO, boundary=boundary, granularity=Decimal('0.001'))
  draws = density.rvs(num_records, random_state=3)
  released = _released(plan, np.round(draws, 3))
  estimator = adaptive.adaptive(num_records, epsilon=1.0, adjacency=_RO,
                                boundary=boundary)
  counts = np.array(released['noisy_counts']) * float(
      Fraction(released['noise']['bins']['unit']))
  assert estimator.num_bins == len(counts)
  with jax.enable_x64(True):
    # This draws no noise, but uses the variances of the noise.
    draw = jax.jit(adaptive._draw(None, True))
    coefficients = draw(jax.random.key(0), counts, estimator.parameters)
  estimate = DensityEstimate(kind=estimator.kind,
                             coefficients=np.asarray(coefficients))
  curve = estimate((np.arange(2048) + .5) / 2048).reshape(256, 8).mean(1)
  return plan.view(released), hierarchy.nonnegative(
      [curve], (256,), (1.0,), np.ones(256), 256.0)


@pytest.mark.slow
@pytest.mark.parametrize('boundary', bases.BOUNDARIES)
def test_the_curve_is_that_of_the_research_mode(monkeypatch, boundary):
  monkeypatch.setattr(bands, 'num_runs', lambda miss: 19)
  answer, other = _parity(boundary, 2000, stats.beta(2, 3))
  # Noise on parts has a slightly larger variance than on whole records.
  assert np.max(np.abs(answer['value'] - other)) < .01 * np.max(other)
  assert np.ptp(answer['value']) > 1


@pytest.mark.slow
@pytest.mark.parametrize('boundary', bases.BOUNDARIES)
@pytest.mark.parametrize('adjacency', Adjacency)
def test_a_curve_is_a_density_within_its_bands(monkeypatch, adjacency,
                                               boundary):
  """A curve is a density in column units, within its
  bands, closed on circles."""
  monkeypatch.setattr(bands, 'num_runs', lambda miss: 99)
  plan = _plan(adjacency, boundary=boundary, upper=Decimal(24))
  draws = np.random.default_rng(1).normal(0, 4, 3000) % 24
  draws = draws[draws < 12] if boundary == 'interval' else draws
  answer = plan.view(_released(plan, draws))
  value, ends = np.array(answer['value']), np.array(answer['thresholds'])
  assert (ends[0], ends[-1], len(ends)) == (0, 24, 257)
  assert value @ np.diff(ends) == pytest.approx(1) and value.min() >= 0
  heights = np.array(answer['histogram']['heights'])
  assert np.mean(heights) * 24 == pytest.approx(1, abs=.05)
  for name in ('interval', 'population_interval'):
    lower, upper = (np.array(answer[name][end]) for end in ('lower', 'upper'))
    assert np.all((0 <= lower) & (lower <= value) & (value <= upper))
    assert np.all(upper - lower > 1e-4)
  truth = stats.norm(0, 4).pdf(np.minimum(ends, 24 - ends))
  truth = truth if boundary == 'circle' else 2 * stats.norm(0, 4).pdf(ends)
  assert np.max(np.abs(value - truth[1:])) < .03
  if boundary == 'circle':
    assert abs(value[0] - value[-1]) < .005


def test_whole_numbers_are_no_comb(monkeypatch):
  """Uniform ages give a flat curve with granularity 1, and
  a rough one without."""
  monkeypatch.setattr(bands, 'num_runs', lambda miss: 19)
  ages = np.repeat(np.arange(40), 500)
  kept = {}
  for granularity in (Decimal(1), None):
    plan = _plan(_AR, upper=Decimal(40), granularity=granularity)
    answer = plan.view(_released(plan, ages))
    kept[granularity] = answer['components']['kept']
    if granularity:
      assert np.max(np.abs(np.array(answer['value']) * 40 - 1)) < .05
      assert len(answer['histogram']['heights']) == 39
  assert kept[1] == 1 < 20 < kept[None]


@pytest.mark.parametrize('kind, size', [('fourier', 30), ('spline', 60)])
def test_sums_of_functions(kind, size):
  """Function sums add one function after the other, a tenth more each time."""
  functions = density_bands.Functions(kind, 61)
  counts = np.random.default_rng(9).normal(size=(2, 61))
  integrals = functions.partial(counts)
  ends = functions.ends.tolist()
  assert ends[:10] == [*range(1, 11)] and ends[-1] == size
  assert all(b <= max(a + 1, 1.2 * a) for a, b in zip(ends, ends[1:]))
  total = np.zeros((2, density_bands.POINTS))
  for k, shape in enumerate(functions.shapes):
    coefficient = counts @ functions.basis.analysis[:, k]
    total += (coefficient[:, np.newaxis] * shape).real
    if k + 1 in ends:
      np.testing.assert_allclose(integrals[:, ends.index(k + 1)], total,
                                 atol=1e-9)


_MASSES = np.diff(stats.beta(2, 3).cdf(np.arange(12) / 11))


def _counted(plan, counts, generator):
  """Returns a release of 300 records, with noise by NumPy in sevenths."""
  bin_noise, own = plan.noise_of_bins(7), plan.noise_of_records
  known = {'num_records': 300, 'noisy_records': None}
  if own:
    known = {'num_records': None, 'noisy_records': 300 + float(
        own.simulated(generator, ()))}
  return density_bands.counted(
      7 * counts + bin_noise.simulated(generator, counts.shape), unit=1 / 7,
      bin_noise=bin_noise, **known, noise_of_number=own)


@pytest.mark.slow
@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_widths_hold_as_often_as_they_say(adjacency, delta):
  """Widths hold for all sums and the number at once, at nominal 0.8.

  Widths are of 999 draws and hold in .75 to .85 of 1000 other draws; then the
  test fails by chance once in 10^5.
  """
  plan, generator = _plan(adjacency, delta=delta), np.random.default_rng(6)
  fit = density_bands.Fit(_counted(plan, 300 * _MASSES, generator), 'spline')
  width, far = fit._widths(.2, None)
  bins = plan.noise_of_bins(7).simulated(generator, (1000, 11)) / 7
  held = np.all(np.abs(fit.functions.partial(bins)) <= width, (1, 2))
  if adjacency is _AR:
    # This is the best mean of a noisy number and noisy bins.
    parts = np.array([11 / 7**2 * plan.noise_of_bins(7).deviation**2,
                      plan.noise_of_records.deviation**2])
    held &= np.abs(plan.noise_of_records.simulated(generator, (1000,)) * (
        parts[0] / parts.sum()) + bins.sum(1) * parts[1] / parts.sum()) <= far
  assert stats.binom.ppf(1e-5, 1000, .75) <= held.sum() <= (
      stats.binom.isf(1e-5, 1000, .85))


def test_the_number_of_records_is_the_best_mean():
  """The number's error is that of the best mean of bins and noisy number."""
  plan, generator = _plan(_AR), np.random.default_rng(8)
  noisy = _counted(plan, np.ones(400), generator)
  parts = [400 / 7**2 * plan.noise_of_bins(7).deviation**2,
           plan.noise_of_records.deviation**2]
  far = noisy.errors(4000, generator, None)[1]
  assert np.mean(far**2) == pytest.approx(
      parts[0] * parts[1] / sum(parts), rel=5 * math.sqrt(5 / 4000))


def test_bands_allow_for_every_number_of_records():
  generator = np.random.default_rng(7)
  fit = density_bands.Fit(_counted(_plan(_AR, epsilon=Fraction(1, 5)),
                                   300 * _MASSES, generator), 'spline')
  (width, far), (lower, upper) = fit._widths(.2, None), fit.band(.2, None)
  middle = fit.functions.partial(fit.counted.bins)[fit.place]
  assert 0 < far < fit.counted.number
  for number in fit.counted.number + np.array([-far, 0, far]):
    for sign in (-1, 1):
      curve = np.maximum(1 + (middle + sign * width[fit.place]) / number, 0)
      assert np.all((lower <= curve + 1e-9) & (curve <= upper + 1e-9))


@pytest.mark.slow
@pytest.mark.parametrize('whose', ['file', 'population'])
@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_bands_cover(monkeypatch, adjacency, delta, whose):
  """Bands cover all points at nominal 0.8; the test fails once in 10^5."""
  monkeypatch.setattr(bands, 'num_runs', lambda miss: 99)
  plan, generator = _plan(adjacency, delta=delta), np.random.default_rng(2)
  hit, runs = 0, 40
  for _ in range(runs):
    counts = generator.multinomial(300, _MASSES)
    fit = density_bands.Fit(_counted(plan, counts, generator), 'spline')
    truth = counts / 300 if whose == 'file' else _MASSES
    lower, upper = fit.band(.2, None if whose == 'file' else fit.masses())
    curve = np.maximum(0, 1 + fit.functions.partial(truth)[fit.place])
    hit += np.all((lower <= curve + 1e-9) & (curve <= upper + 1e-9))
  assert hit >= stats.binom.ppf(1e-5, runs, .8)


def test_synthetic_records_are_of_the_curve():
  plan = _plan(_RO, lower=Decimal(18), upper=Decimal(98),
               granularity=Decimal(1))
  ages = np.random.default_rng(4).gamma(4, 5, 2000) + 18
  released = _released(plan, np.floor(ages))
  value = np.array(plan.view(released)['value'])
  drawn = plan.synthetic(released, 20_000)
  assert drawn == plan.synthetic(released, 20_000) and '20' in drawn
  assert set(drawn) <= {str(age) for age in range(18, 98)}
  wanted = np.diff(np.interp(np.arange(81), np.linspace(0, 80, 257),
                             np.append(0, np.cumsum(value)))) * 80 / 256
  counts = np.bincount(np.array(drawn, int) - 18, minlength=80)
  kept = wanted * 20_000 > 5
  assert stats.chisquare(
      np.append(counts[kept], counts[~kept].sum() + 1e-9),
      20_000 * np.append(wanted[kept], wanted[~kept].sum()) + 1e-9 / 40,
      sum_check=False).pvalue > 1e-5
  fine = _plan(_RO).synthetic(_released(_plan(_RO), ages / 100), 3)
  assert all(0 <= float(text) < 1 and len(text) <= 8 for text in fine)


def test_other_views_are_of_one_release():
  asked = {_plan(_RO, **change).asked for change in (
      {}, {'boundary': 'circle'}, {'boundary': 'interval'},
      {'confidence': Fraction(1, 2)})}
  assert len(asked) == 1
  assert 'boundary' not in asked.pop().to_json()
  assert _plan(_RO, granularity=Decimal('.1')).asked != _plan(_RO).asked


@pytest.mark.parametrize('fields, message', [
  ({'column': None}, 'density needs column'),
  ({'upper': None}, 'density needs upper'),
  ({'boundary': 'ring'}, 'boundary must be one of circle, interval'),
  ({'granularity': Decimal('0.3')}, 'granularity must divide upper - lower'),
  ({'granularity': Decimal('0.5')}, 'granularity must divide upper - lower'),
  ({'granularity': Decimal(-1)}, 'granularity must divide upper - lower'),
  ({'confidence': Fraction(9999, 10000)}, 'at most 0.999 for density'),
  ({'bins': (Decimal(0), Decimal(1))}, 'density takes no bins'),
  ({'statistic': 'ecdf', 'boundary': 'circle'}, 'ecdf takes no boundary'),
])
def test_refusals(fields, message):
  with pytest.raises(ValueError, match=message):
    _plan(_RO, **fields)
