"""Tests the mean of a normal distribution: sensitivity, failures, coverage."""

import decimal
import fractions
import random

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import combinations
from dpjax.release import noise
from dpjax.release import normal_means
from dpjax.release import registry
from dpjax.release.query import Query
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency


def _plan(adjacency, *, epsilon=Fraction(1), far=50, sigma='2', **fields):
  return registry.plan(Query(
      statistic='normal_mean', adjacency=adjacency, epsilon=epsilon, column='x',
      lower=Decimal(-far), upper=Decimal(far), sigma=Decimal(sigma), **fields))


@pytest.mark.sound
@pytest.mark.parametrize('delta', [None, Fraction(1, 100)])
@pytest.mark.parametrize('adjacency, missing', [
    (_AR, None), (_RO, None), (_RO, 'absent')])
def test_sensitivities_by_enumeration(adjacency, missing, delta):
  plan = _plan(adjacency, far=4, granularity=Decimal('0.02'), delta=delta,
               missing=missing)
  domain = ('-1e9', '-3', '0.5', '4', '700', 'NA')

  def sensitivity(vector, order):
    return neighbours.sensitivity(
        lambda data: vector(plan.measure([*data, '1'])), domain, range(3),
        adjacency, order=order)**order

  def sums(values):
    return list(plan.sums(values, 40, 150).values())

  stated = plan.sensitivity(150)
  for order, name in ((1, 'l1_sensitivity'), (2, 'l2_sensitivity_squared')):
    change = 1 + (adjacency is _RO)
    assert sensitivity(plan.counts, order) == pytest.approx(change)
    assert plan.histogram_noise(plan.cost) == noise.calibrated(
        plan.cost, l1_sensitivity=change, l2_sensitivity_squared=change)
    assert sensitivity(sums, order) == pytest.approx(stated[name])


@pytest.mark.parametrize('delta', [None, Fraction(1, 100)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_sums_tell_what_they_are_solved_for(adjacency, delta):
  plan = _plan(adjacency, delta=delta)
  values = [30, 50, 190, 191, -500]
  sums = np.array(list(plan.sums(values, 40, 150).values()))
  size, total = plan._solution(150) @ sums
  assert total == pytest.approx(-10 + 10 + 150 + 150 - 150)
  assert size == pytest.approx(5 if adjacency is _AR else 0)


@pytest.mark.parametrize('delta, c_squared, d_squared', [
  (None, 4, 4), (Fraction(1, 10**6), 5 / 4, 5)])
def test_noise_of_a_private_number_is_as_said(delta, c_squared, d_squared):
  plan = _plan(_AR, delta=delta)
  stages = plan.stages(10**4, plan.cost, .05)
  distribution = noise.calibrated(plan.cost, **plan.sensitivity(stages.clamp))
  for d in (0, 100, 300):
    variance = plan.error(stages._replace(noise=distribution), d).deviation**2
    wanted = c_squared * stages.clamp**2 + d_squared * d**2
    wanted /= 1 if delta is None else 2 * float(plan.cost.rho)
    assert variance == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
def test_a_private_number_of_records_does_not_widen_the_interval(delta):
  """A private n gives a shorter interval, since adding one moves sums less."""
  values = np.random.default_rng(1).normal(3, 2, 800).tolist()
  widths = {}
  for adjacency in Adjacency:
    plan = _plan(adjacency, delta=delta)
    interval = drawing.draw(plan, plan.measure(values), random.Random(
        5).randrange)['population_interval']
    widths[adjacency] = interval['upper'] - interval['lower']
  assert widths[_AR] < widths[_RO]


def test_a_far_record_moves_the_sum_by_what_is_clamped_only():
  plan = _plan(_RO)
  near = np.random.default_rng(0).normal(3, 2, 900).tolist()
  one, other = (drawing.draw(plan, plan.measure(data), random.Random(0).randrange)
                ['stages']['sum'] for data in (near, [*near[:-1], 50.0]))
  assert one['window'] == other['window']
  difference = abs(Fraction(one['noisy_sums']['from_centre']) - Fraction(
      other['noisy_sums']['from_centre']))
  assert 1 < difference <= one['window'][1] - one['window'][0] < 20


@pytest.mark.parametrize('statistic', ['normal_mean', 'support_max'])
def test_a_private_number_of_records_has_noise(statistic, monkeypatch):
  # Intervals are slow, and do not matter for the noise.
  monkeypatch.setattr(normal_means.NormalMean, '_estimates', lambda *_: {})
  fields = dict(sigma=Decimal(2)) if statistic == 'normal_mean' else {}
  plan = registry.plan(Query(
      statistic=statistic, adjacency=_AR, epsilon=Fraction(1), column='x',
      lower=Decimal('0.1'), upper=Decimal(50), **fields))
  values = plan.measure(np.random.default_rng(0).normal(8, 2, 300).tolist())
  stages_seen = []
  for seed in range(30):
    answer = drawing.draw(plan, values, random.Random(seed).randrange)
    stages_seen.append(answer.get('stages', answer)['number'])
  scale = float(Fraction(stages_seen[0]['scale']))
  noise_seen = np.array([one['noisy_count'] for one in stages_seen]) - 300
  # It is a sum of 30 exponential sizes; each side fails with chance 10^-6.
  assert stats.gamma.ppf(1e-6, 30) < np.sum(np.abs(noise_seen)) / scale < (
      stats.gamma.isf(1e-6, 30))


@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
def test_stages_cost_what_the_plan_says(delta):
  """The drawn noise, read off the release, costs what the plan says."""
  for adjacency in Adjacency:
    plan = _plan(adjacency, delta=delta)
    values = plan.measure(np.random.default_rng(0).normal(3, 2, 900).tolist())
    stages = drawing.draw(plan, values, random.Random(0).randrange)['stages']
    change = 1 + (adjacency is _RO)
    clamp = round((stages['sum']['window'][1] - stages['sum']['window'][0])
                  / 2 / float(plan.lattice.unit))
    assert len(stages['histogram']['noisy_counts']) == plan.num_bins
    sizes = {'number': (1, 1), 'histogram': (change, change),
             'sum': tuple(plan.sensitivity(clamp).values())}
    epsilons = [l1 / Fraction(stages[name]['scale']) if delta is None else
                squared / (2 * Fraction(stages[name]['variance']))
                for name, (l1, squared) in sizes.items() if name in stages]
    assert len(epsilons) == 2 + (adjacency is _AR)
    assert sum(epsilons) == (plan.cost.epsilon or plan.cost.rho)


def test_no_other_clamp_has_a_much_shorter_interval(monkeypatch):
  """The chosen clamp's interval is within 8 % of the shortest."""
  plan = _plan(_AR, delta=Fraction(1, 10**6), epsilon=Fraction(1, 2))
  chosen = plan.stages(900, plan.cost, .05)
  assert chosen.share
  monkeypatch.setattr(normal_means, '_SHARES', (chosen.share,))
  for clamp in normal_means._CLAMPS[::3]:
    monkeypatch.setattr(normal_means, '_CLAMPS', (clamp,))
    other = plan.stages(900, plan.cost, .05)
    assert plan.half_width(chosen, 900) < 1.08 * plan.half_width(other, 900)


@pytest.mark.parametrize('distribution', [
  noise.LaplaceNoise(scale=Fraction(8)),
  noise.GaussianNoise(variance=Fraction(40))])
def test_exponential_moments_of_noise(distribution):
  z, rates = np.arange(-900, 901), np.array([.02, .07, .1])
  weights = (np.exp(-np.abs(z) / 8) if hasattr(distribution, 'scale')
             else np.exp(-z**2 / 80))
  wanted = np.log(np.exp(rates[:, None] * z) @ (weights / weights.sum()))
  np.testing.assert_allclose(distribution.log_moment(rates), wanted, rtol=1e-6)


def test_exponential_moments_end():
  distribution = noise.LaplaceNoise(scale=Fraction(8))
  assert np.isinf(distribution.log_moment(np.array([.125, .2]))).all()


@pytest.mark.parametrize('distribution', [
    noise.LaplaceNoise(scale=Fraction(4)),
    noise.GaussianNoise(variance=Fraction(32))
])
@pytest.mark.parametrize('at', [0.0, .5])
def test_far_bins_are_chosen_as_seldom_as_said(distribution, at):
  """Far bins are chosen at most as often as the bound, at
  the worst place too."""
  number, runs, generator = 100, 20_000, np.random.default_rng(5)
  edges = np.arange(-12, 13) - at
  probs = np.diff(stats.norm.cdf(edges))
  counts = generator.multinomial(number, probs / probs.sum(), runs)
  noisy = counts + distribution.simulated(generator, counts.shape)
  middle = (edges[:-1] + .5)[np.argmax(noisy, 1)]
  share = np.mean(np.abs(middle) > 1.5)
  bound = normal_means.wrong_bin(number, len(probs), distribution)
  assert 0 < share <= bound < 1


def test_clamped_sums_are_as_small_as_said():
  """At most 2 % of clamped sums exceed their bound; fails once in 10^5 runs."""
  generator = np.random.default_rng(6)
  values = np.abs(generator.standard_normal((20_000, 80)))
  for clamp in (1.5, 2.5):
    bound = normal_means.clamped_sum(clamp, 80, .02)
    missed = np.mean(np.sum(np.maximum(values - clamp, 0), 1) > bound)
    assert 1e-4 < missed <= .02


@pytest.mark.parametrize('distribution', [
    noise.LaplaceNoise(scale=Fraction(30)),
    noise.GaussianNoise(variance=Fraction(900))
])
def test_half_widths_are_those_of_the_sum_of_two_laws(distribution):
  """Half-widths are exact for a normal mean plus noise, by plain sums."""
  number, deviation, miss = 50, 5.0, .07
  half_width = normal_means.half_width(
      combinations.Combination(noise=distribution, coefficients=(1.0,)),
      deviation * np.sqrt(number), miss) / number
  z = np.arange(-2_000, 2_001)
  weights = (np.exp(-np.abs(z) / 30) if hasattr(distribution, 'scale')
             else np.exp(-z**2 / 1_800))
  tail = weights / weights.sum() @ stats.norm.sf(
      (half_width - z / number) * np.sqrt(number) / deviation)
  assert .97 * miss / 2 < tail <= miss / 2


@pytest.mark.parametrize('far, two', [(2, False), (100, True)])
def test_population_intervals_cover(far, two):
  """Population intervals cover in 4000 simulated runs, at nominal 0.8."""
  plan, number, runs = _plan(_RO, far=far), 400, 4_000
  stages = plan.stages(number, plan.cost, .2)
  assert bool(stages.share) is two
  generator = np.random.default_rng(3)
  mean, sigma, clamp = 1.7, 2.0, stages.clamp * float(plan.lattice.unit)
  values = mean + sigma * generator.standard_normal((runs, number))
  centre = np.zeros(runs)
  if two:
    edges = -far + sigma * np.arange(-1, plan.num_bins)
    counts = np.stack([np.sum((values >= a) & (values < a + sigma), 1)
                       for a in edges[45:57]], 1)
    noisy = generator.standard_normal((runs, plan.num_bins)) * 0
    noisy[:, 45:57] = counts
    noisy += plan.histogram_noise(plan.cost.part(stages.share)).simulated(
        generator, noisy.shape)
    centre = (edges + sigma / 2)[np.argmax(noisy, 1)]
  clamped = np.clip(values - centre[:, None], -clamp, clamp).mean(1)
  estimates = centre + clamped + stages.noise.simulated(
      generator, (runs,)) * float(plan.lattice.unit) / number
  far_off = np.abs(estimates - mean) > plan.half_width(
      stages, number) * float(plan.lattice.unit)
  assert np.mean(far_off) <= .2
  assert np.mean(far_off) > .1  # It is not much too long, either.


@pytest.mark.slow
@pytest.mark.parametrize('adjacency', Adjacency)
def test_intervals_of_releases_cover(adjacency):
  """Intervals of releases cover at nominal 0.6; the test fails once in 10^5."""
  generator, below = np.random.default_rng(9), random.Random(9).randrange
  plan = _plan(adjacency, confidence=Fraction(3, 5), epsilon=Fraction(2),
               far=9)
  covered = np.zeros(2)
  for _ in range(25):
    values = generator.normal(-4.3, 2, 300)
    answer = drawing.draw(plan, plan.measure(values.tolist()), below)
    interval = answer['population_interval']
    covered[0] += interval['lower'] <= -4.3 <= interval['upper']
    clamped = np.clip(values, *answer['stages']['sum']['window']).mean()
    interval = answer['interval']
    covered[1] += interval['lower'] <= clamped <= interval['upper']
    assert abs(answer['value'] + 4.3) < 1
  assert covered.min() >= stats.binom.ppf(1e-5, 25, .6)


def test_shorter_than_the_published_interval():
  """Half-widths are at most 53 % of those of item EXT-KVCI at level 0.95."""
  for number, epsilon, published in ((500, 1, .326), (5_000, Fraction(1, 10),
                                                      .268), (5_000, 1, .057)):
    plan = _plan(_RO, epsilon=Fraction(epsilon), far=1000, sigma='1')
    stages = plan.stages(number, plan.cost, .05)
    half_width = plan.half_width(stages, number) * float(plan.lattice.unit)
    assert stats.norm.isf(.025) / np.sqrt(number) < half_width < .53 * published


@pytest.mark.parametrize('fields, message', [
  ({'sigma': '0'}, 'sigma must be positive'),
  ({'granularity': Decimal(1)}, 'a hundredth of sigma')])
def test_refusals(fields, message):
  with pytest.raises(ValueError, match=message):
    _plan(_RO, **fields)
