"""Tests truncated means: privacy, golden values, and simulated risks."""

import math

import jax
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import KullbackLeiblerPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.theory.parametric import moment_risks
from dpjax.theory.parametric import truncated_means
from experiments.methods.theory import definitions
from experiments.methods.theory import tradeoffs

_PURE = PureDP(epsilon=0.8)


@pytest.fixture(name='x64')
def _x64():
  with jax.enable_x64(True):
    yield


def _mean(noise='l2', guarantee=_PURE, **changes):
  return truncated_means.TruncatedMean(**dict(
      num_examples=5, dimension=3, threshold=2.0, guarantee=guarantee,
      noise=noise) | changes)


def _sets(generator, num_examples=5, dimension=3):
  """Returns pairs of data sets with some records equal and some large."""
  first = generator.normal(size=(num_examples, dimension)) * 3
  second = np.where(generator.random((num_examples, 1)) < 0.6, first,
                    generator.normal(size=first.shape) * 3)
  return first, second


@pytest.mark.every(3)
@pytest.mark.parametrize('noise', ('l2', 'laplace'))
def test_smooth_privacy_holds_for_all_pairs(noise, x64):
  """Log-ratios are at most epsilon times a distance of
  data sets (DEF-SMOOTH)."""
  mean, generator = _mean(noise), np.random.default_rng(0)
  tightest = -math.inf
  for _ in range(60):
    first, second = _sets(generator)
    outputs = generator.normal(size=(30, 3)) * 4
    ratio = np.asarray(mean.log_density(first, outputs)
                       - mean.log_density(second, outputs))
    apart = definitions.smooth_distance(first, second, radius=4.0)
    slack = np.abs(ratio).max() - 0.8 * apart
    assert slack < 1e-9
    tightest = max(tightest, slack)
  # One record crosses the ball, seen along that line, and attains it.
  first[:], second[:] = 0, 0
  first[0], second[0] = (9.0, 9, 9), (-9.0, -9, -9)
  far = np.full((1, 3), 50.0)
  assert float(mean.log_density(first, far)[0] - mean.log_density(
      second, far)[0]) == pytest.approx(0.8)


@pytest.mark.slow
def test_densities_are_those_of_the_draws(x64):
  """Releases of one coordinate have the stated densities, by histograms."""
  data = np.array([[1.0], [5.0], [-1.0], [0.5], [0.0]])
  for noise, guarantee in (('l2', _PURE), ('laplace', _PURE),
                           ('gaussian', ZCDP(rho=0.5))):
    mean = _mean(noise, guarantee, dimension=1, shrinkage=0.7)
    statistic = mean.statistic(data)
    assert float(statistic[0]) == pytest.approx((1 + 2 - 1 + 0.5) / 5)
    estimates = np.asarray(mean.estimates(
        jax.random.key(1), np.tile(statistic, (40_000, 1))))[:, 0]
    edges = np.linspace(-3, 3.5, 14)
    grid = np.linspace(-3, 3.5, 1301)
    density = np.exp(np.asarray(mean.log_density(data, grid[:, None])))
    masses = np.array([np.trapezoid(density[i:i + 101], grid[i:i + 101])
                       for i in range(0, 1300, 100)])
    counts = np.histogram(estimates, edges)[0]
    error = np.sqrt(40_000 * masses) + 1
    assert (np.abs(counts - 40_000 * masses) < 4.5 * error).all()


@pytest.mark.slow
def test_densities_of_vectors_integrate_to_1(x64):
  data = np.zeros((5, 2))
  side = np.linspace(-25, 25, 501)
  places = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
  for noise in ('l2', 'laplace'):
    mean = _mean(noise, dimension=2, shrinkage=0.9)
    total = np.exp(np.asarray(mean.log_density(data, places))).sum() * (
        side[1] - side[0])**2
    assert total == pytest.approx(1, rel=5e-3)


@pytest.mark.parametrize('noise, guarantee, cost', [
    ('l2', _PURE, 0.8), ('laplace', _PURE, 0.8),
    ('appendix_laplace', _PURE, 1.6)])
def test_events_of_pure_noise_say_what_it_costs(noise, guarantee, cost):
  """Pure events state the cost; the appendix' rate costs 2 epsilon (E-13)."""
  mean = _mean(noise, guarantee, allow_unsound=True)
  epsilon = accounting.epsilon(mean.event, delta=1e-12,
                               adjacency=mean.adjacency)
  assert epsilon == pytest.approx(cost, rel=1e-3)


@pytest.mark.parametrize('epsilon, delta, multiple, printed', [
    (1, 1e-5, 3.73, 1.84e-3), (0.5, 1e-6, 8.06, 3.25e-4),
    (0.1, 1e-4, 24.5, 2.8e-4), (1, 1e-2, 1.88, 2.9e-2)])
def test_printed_gaussian_noise_has_another_delta(epsilon, delta, multiple,
                                                  printed):
  """Printed Gaussian noise exceeds delta (E-12), the appendix' more (E-13)."""
  guarantee = ApproxDP(epsilon=epsilon, delta=delta)
  scales = [truncated_means.relative_scale(noise, guarantee, 3) for noise in (
      'gaussian', 'printed_gaussian', 'appendix_gaussian')]
  assert scales[0] == pytest.approx(multiple, rel=2e-3)
  deltas = [tradeoffs.gaussian_delta(epsilon, shift=1 / scale)
            for scale in scales]
  assert deltas[0] == pytest.approx(delta, rel=1e-6)
  assert deltas[1] == pytest.approx(printed, rel=2e-2)
  assert deltas[2] > 3 * deltas[1]
  assert 1.3 <= (scales[0] / scales[1])**2 <= 2.5
  with pytest.raises(ValueError, match='allow_unsound'):
    _mean('printed_gaussian', guarantee)
  event = _mean('printed_gaussian', guarantee, allow_unsound=True).event
  cost = accounting.gaussian_epsilon(shift=2 / event.noise_multiplier,
                                     delta=delta)
  assert cost > 1.15 * epsilon
  if delta == 1e-5:
    assert cost == pytest.approx(1.63, abs=5e-3)


def test_the_printed_noise_of_the_appendix_has_half_the_variance():
  # E-13: the divergence is twice as large.
  level = KullbackLeiblerPrivacy(level=0.02)
  scale = truncated_means.relative_scale('appendix_gaussian', level, 1)
  assert 1 / (2 * scale**2) == pytest.approx(0.04)


def _three(mean, moment):
  """Returns risks at outliers, a Pareto distribution and two signs."""
  prob = min(1, ((moment - 1) / (moment * mean.threshold))**moment)
  known = dict(num_examples=mean.num_examples, threshold=mean.threshold,
               shrinkage=1.0, noise_factor=mean.noise_factor)
  return (moment_risks.risk(moment_risks.two_points(
      prob, moment=moment, radius=1.0), **known),
          moment_risks.pareto_risk(moment + 0.2, moment=moment, radius=1.0,
                                   **known),
          moment_risks.risk(moment_risks.signs(1.0), **known))


@pytest.mark.every(3)
@pytest.mark.parametrize('moment, dimension, n, guarantee, simulated, bound', [
    (2, 1, 500, KullbackLeiblerPrivacy(level=0.1), 1.41e-2, 2.10e-2),
    (2, 5, 1000, KullbackLeiblerPrivacy(level=0.01), 4.85e-2, 6.81e-2),
    (4, 5, 1000, KullbackLeiblerPrivacy(level=0.01), 7.36e-3, 8.06e-3),
    (8, 20, 500, KullbackLeiblerPrivacy(level=0.05), 7.71e-3, 9.23e-3),
    (2, 1, 500, ApproxDP(epsilon=1, delta=1e-5), 3.37e-2, 4.16e-2),
    (2, 5, 1000, ApproxDP(epsilon=0.5, delta=1e-6), 8.11e-2, 9.57e-2),
    (4, 5, 2000, ApproxDP(epsilon=0.5, delta=1e-6), 3.91e-3, 4.15e-3),
    (8, 20, 2000, ApproxDP(epsilon=1, delta=1e-5), 1.09e-3, 1.45e-3)])
def test_printed_thresholds_have_the_golden_bounds_and_are_not_the_best(
    moment, dimension, n, guarantee, simulated, bound):
  known = dict(num_examples=n, dimension=dimension, moment=moment, radius=1.0,
               guarantee=guarantee)
  mean = truncated_means.printed(**known)
  upper = moment_risks.bound(
      num_examples=n, threshold=mean.threshold, noise_factor=mean.noise_factor,
      moment=moment, radius=1.0, printed=True)
  assert upper == pytest.approx(bound, rel=2e-3)
  worst = mean.worst(moment=moment, radius=1.0).value
  risks = _three(mean, moment)
  assert max(risks) <= worst <= upper
  # The simulated risk is between these, or within 6 % of the worst.
  assert min(risks) * 0.95 < simulated < worst * 1.06
  # E-13: the appendix drops r, so that T would have other units than records.
  assert truncated_means.printed(**known | dict(radius=3.0)
                                 ).threshold == pytest.approx(
                                     3 * mean.threshold)
  best = truncated_means.tuned(**known, noise='gaussian')
  assert best.worst(moment=moment, radius=1.0).value < 0.75 * worst


@pytest.mark.slow
@pytest.mark.parametrize('noise, guarantee', [
    ('l2', PureDP(epsilon=1.0)), ('laplace', PureDP(epsilon=1.0)),
    ('gaussian', ZCDP(rho=0.05))])
def test_simulated_risks_are_the_exact_ones(noise, guarantee):
  n, dimension, repetitions = 40, 3, 20_000
  mean = truncated_means.tuned(num_examples=n, dimension=dimension, moment=3,
                               radius=1.5, guarantee=guarantee, noise=noise)
  worst = mean.worst(moment=3, radius=1.5)
  counts = np.random.default_rng(2).multinomial(n, worst.distribution.probs, repetitions)
  statistics = np.zeros((repetitions, dimension))
  statistics[:, 0] = counts @ np.clip(
      worst.distribution.places, -mean.threshold, mean.threshold) / n
  estimates = np.asarray(mean.estimates(jax.random.key(0), statistics))
  truth = np.array([worst.distribution.mean, 0, 0])
  squares = np.sum((estimates - truth)**2, 1)
  error = squares.std(ddof=1) / math.sqrt(repetitions)
  assert abs(squares.mean() - worst.value) < 4 * error
  assert mean.risk(3) == pytest.approx(
      mean.shrinkage**2 * mean.noise_factor * mean.threshold**2)


@pytest.mark.slow
def test_a_release_is_the_shrunk_mean_of_projected_records(x64):
  data = np.array([[3.0, 4.0, 0], [0, 0, 1], [np.nan, 1, 1], [1e200, 0, 0],
                   [np.inf, 0, 0]])
  mean = _mean('gaussian', ZCDP(rho=1e12), shrinkage=0.5)
  wanted = np.array([1.2 + 2, 1.6, 1]) / 5
  assert np.asarray(mean.statistic(data)) == pytest.approx(wanted)
  estimate = np.asarray(mean.release(jax.random.key(0), data))
  assert estimate == pytest.approx(wanted / 2, abs=1e-5)
  with pytest.raises(ValueError, match='must be'):
    mean.release(jax.random.key(0), data[:, :2])
  with pytest.raises(ValueError, match='5 records'):
    mean.release(jax.random.key(0), data[:4])


def test_no_replacement_moves_the_mean_further_than_its_sensitivity(x64):
  mean, generator, farthest = _mean(), np.random.default_rng(3), 0.0
  for _ in range(40):
    first = generator.normal(size=(5, 3)) * 3
    for other in (-first[0] * 5, generator.normal(size=3)):
      second = np.concatenate([[other], first[1:]])
      farthest = max(farthest, np.linalg.norm(
          mean.statistic(first) - mean.statistic(second)))
  assert farthest <= mean.l2_sensitivity * (1 + 1e-12)
  assert farthest > mean.l2_sensitivity * 0.999


@pytest.mark.every(2)
def test_a_subsample_has_the_risk_of_few_records():
  few = truncated_means.subsampled(num_examples=12, level=0.5)
  assert (few.size, few.guarantee) == (6, TotalVariationPrivacy(level=0.5))
  # For signs, the shrunk mean of 6 has the exact risk 1 / (1 + sqrt 6)^2.
  signs = np.random.default_rng(4).choice([-1.0, 1.0], (4000, 12, 2))
  signs[:, :, 1] = 0
  keys = jax.random.split(jax.random.key(5), 4000)
  estimates = np.asarray(jax.jit(jax.vmap(few.release))(
      keys, signs.astype(np.float32)))
  squares = np.sum(estimates**2, 1)
  exact = [upper.value for upper in truncated_means.upper(
      num_examples=12, guarantee=TotalVariationPrivacy(level=0.5), dimension=2,
      moment=2, radius=1.0) if 'subsample' in upper.name]
  assert exact == pytest.approx([1 / (1 + math.sqrt(6))**2])
  error = squares.std() / math.sqrt(4000)
  assert abs(squares.mean() - exact[0]) < 4 * error


@pytest.mark.every(2)
def test_every_notion_has_its_estimators():
  known = dict(num_examples=400, dimension=2, moment=4, radius=1.0)
  names = lambda guarantee: [u.name.split(',')[-1] for u in (
      truncated_means.STUDY.upper(guarantee=guarantee, **known))]
  assert names(_PURE) == [' l2 noise', ' laplace noise']
  assert names(ApproxDP(epsilon=1.0, delta=1e-6)) == [' gaussian noise',
                                                      ' l2 noise']
  assert names(ApproxDP(epsilon=1.0, delta=0.0)) == [' l2 noise']
  assert names(ZCDP(rho=0.1)) == names(KullbackLeiblerPrivacy(level=0.1)) == [
      ' gaussian noise']
  assert names(TotalVariationPrivacy(level=0.1)) == [' gaussian noise',
                                                     'mean of a subsample']
  assert names(TotalVariationPrivacy(level=1.0)) == ['mean of a subsample']
  assert names(None) == ['shrunk mean']
  for guarantee in (PureDP(epsilon=0), ZCDP(rho=0),
                    TotalVariationPrivacy(level=0)):
    assert not names(guarantee)


@pytest.mark.parametrize('change, text', [
    (dict(noise='gaussian'), "noise 'gaussian' cannot give"),
    (dict(noise='uniform'), 'noise must be'),
    (dict(guarantee=ZCDP(rho=1.0)), 'cannot give'),
    (dict(threshold=0.0), 'threshold'), (dict(shrinkage=0.0), 'shrinkage'),
    (dict(dimension=0), 'dimension'),
    (dict(guarantee=PureDP(epsilon=0.0)), 'epsilon')])
def test_bad_estimators_are_refused(change, text):
  with pytest.raises(ValueError, match=text):
    _mean(**change)
  with pytest.raises(ValueError, match='dimension must be an integer'):
    truncated_means.STUDY.upper(num_examples=5, guarantee=_PURE, dimension=1.5,
                                moment=2, radius=1.0)
