"""Tests intervals of a normal mean: widths, coverage and failures."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.theory.parametric import normal_intervals

_PURE, _ZCDP = notions.PureDP(epsilon=1.0), notions.ZCDP(rho=0.1)


def _interval(maker, n=500, epsilon=1.0, radius=1000.0):
  return maker(num_examples=n, radius=radius, sigma=1.0,
               guarantee=notions.PureDP(epsilon=epsilon))


@pytest.mark.every(2)
@pytest.mark.parametrize('case', [(500, 1.0, 0.326, 0.110),
                                  (5000, 0.1, 0.268, 0.0575),
                                  (5000, 1.0, 0.057, 0.0288)])
def test_half_widths_are_the_golden_ones_and_ours_are_a_fifth_to_a_half(case):
  n, epsilon, wanted, ours = case
  printed = _interval(normal_intervals.karwa_vadhan, n, epsilon)
  assert printed.half == pytest.approx(wanted, abs=6e-4)
  assert (printed.finder, printed.step) == ('histogram', printed.sigma)
  tuned = _interval(normal_intervals.tuned, n, epsilon)
  assert 1.96 / n**0.5 < tuned.half < ours


@pytest.mark.slow
def test_intervals_cover_as_often_as_proved_and_little_more():
  estimator = _interval(normal_intervals.tuned, n=300, radius=10.0)
  repeated = 1500
  intervals = estimator.simulated(jax.random.key(2), 3.37,
                                  num_repetitions=repeated)
  low, high = np.asarray(intervals.low), np.asarray(intervals.high)
  held = np.mean((low <= 3.37) & (3.37 <= high))
  error = math.sqrt(0.05 * 0.95 / repeated)
  assert 0.95 - 4 * error < held < 0.985
  assert -10 <= low.min() and high.max() <= 10


def test_the_published_interval_may_lose_its_centre():
  """With a small n epsilon the published interval often has a wrong centre."""
  estimator = _interval(normal_intervals.karwa_vadhan, n=200, epsilon=0.1,
                        radius=100.0)
  intervals = estimator.simulated(jax.random.key(4), 31.72, num_repetitions=200)
  held = np.mean((np.asarray(intervals.low) <= 31.72)
                 & (31.72 <= np.asarray(intervals.high)))
  # The share was .17 in 800 runs; four standard errors are allowed.
  assert 0.06 < held < 0.28


def test_gaussian_noise_gives_intervals_too_and_costs_rho():
  estimator = normal_intervals.tuned(num_examples=2000, radius=50.0, sigma=2.0,
                                     guarantee=_ZCDP)
  assert estimator.finder == 'median'
  centre = normal_intervals.centre_epsilon(_ZCDP, estimator.share)
  mean = 2 * estimator.clip / 2000 / estimator.scale
  assert centre**2 / 8 + mean**2 / 2 == pytest.approx(0.1)
  assert 2 * 1.96 / 2000**0.5 < estimator.half < 1.2 * 2 * 1.96 / 2000**0.5
  spent = accounting.epsilon(estimator.event, delta=1e-6, accountant='rdp',
                             adjacency=Adjacency.REPLACE_ONE)
  assert spent < notions.approx_from_zcdp(_ZCDP, delta=1e-6).epsilon * 1.001


@pytest.mark.parametrize('maker', ['karwa_vadhan', 'tuned'])
def test_a_release_costs_epsilon(maker):
  estimator = _interval(getattr(normal_intervals, maker))
  assert accounting.epsilon(estimator.event, delta=1e-12,
                            adjacency=Adjacency.REPLACE_ONE
                            ) == pytest.approx(1.0, rel=1e-3)


def test_one_record_moves_scores_by_one_and_counts_of_two_bins():
  estimator = _interval(normal_intervals.tuned, n=4, radius=2.0, epsilon=8.0)
  grid = np.arange(-2, 2.1, 0.5)
  values = np.linspace(-2.5, 2.5, 6)
  data = np.array(np.meshgrid(*[values] * 4, indexing='ij')).reshape(4, -1)
  below = np.sum(data[..., None] <= grid, 0)
  scores = -np.abs(below - 2).reshape(6, 6, 6, 6, -1)
  assert np.max(np.ptp(scores, axis=0)) == 1
  counts = np.sum(np.round(data[..., None] / 0.5) == np.round(grid / 0.5), 0)
  gaps = counts.reshape(6, -1, grid.size)
  assert np.max(np.sum(np.abs(gaps[:, None] - gaps[None]), -1)) == 2
  assert estimator.scale == pytest.approx(
      2 * estimator.clip / 4 / (8 * (1 - estimator.share)))


def test_far_centres_are_as_rare_as_bounded():
  n, radius, step, epsilon = 60, 20.0, 0.5, 1.2
  grid = step * (np.arange(math.ceil(2 * radius / step) + 1) - 40)
  generator = np.random.default_rng(1)
  for distance in (1.0, 2.0):
    missed = []
    for _ in range(300):
      data = np.sort(generator.normal(0.24, 1, n))
      scores = -np.abs(np.searchsorted(data, grid, side='right') - n / 2)
      probs = special.softmax(epsilon / 2 * scores)
      missed.append(np.sum(probs[np.abs(grid - 0.24) > distance]))
    bound = normal_intervals.miss_bound(distance, num_examples=n, radius=radius,
                                        step=step, epsilon=epsilon)
    assert np.mean(missed) < bound < np.mean(missed)**0.3


def test_what_clipping_moves_is_as_rare_as_bounded():
  margin, prob = np.array([0.5, 2.0, 3.0]), np.array([1e-2, 1e-3, 1e-3])
  one = normal_intervals.clip_shift(margin, prob, num_examples=1)
  assert (special.ndtr(-margin - one) <= prob).all()
  n = 100
  shift = normal_intervals.clip_shift(margin, prob, num_examples=n)
  excess = np.maximum(np.random.default_rng(0).normal(size=(20_000, n)), 0.5)
  mean = np.mean(excess - 0.5, -1)
  assert np.mean(mean > shift[0]) < 1e-2
  assert np.mean(mean > 0.85 * shift[0]) > 1e-2


@pytest.mark.every(1)
@pytest.mark.parametrize('n, radius, guarantee', [
    (100, 30.0, notions.PureDP(epsilon=0.5)), (3000, 9.0, _PURE),
    (60, 500.0, notions.PureDP(epsilon=3.0)), (300, 40.0, _ZCDP),
    (5000, 5.0, notions.ZCDP(rho=1e-4))])
def test_intervals_are_as_wide_as_noise_and_sampling_need(n, radius, guarantee):
  """Noise and sampling alone miss almost as often as
  allowed, due to clipping."""
  estimator = normal_intervals.tuned(num_examples=n, radius=radius, sigma=2.0,
                                     guarantee=guarantee, confidence=0.9)
  records = 2 / math.sqrt(n) * np.random.default_rng(0).normal(size=200_000)
  noise = (stats.laplace if isinstance(guarantee, notions.PureDP)
           else stats.norm)(scale=estimator.scale)
  missed = np.mean(
      noise.sf(estimator.half - records) + noise.cdf(-estimator.half - records))
  assert 0.02 < missed < 0.1
  # The noise is for clipped records, at the remaining budget.
  spent = (2 * estimator.clip / n / estimator.scale,
           (2 * estimator.clip / n)**2 /
           (2 * estimator.scale**2))[isinstance(guarantee, notions.ZCDP)]
  budget, = vars(guarantee).values()
  assert spent == pytest.approx((1 - estimator.share) * budget)


def test_few_records_get_an_interval_without_a_centre():
  estimator = _interval(normal_intervals.tuned, n=200, epsilon=0.1)
  assert estimator.finder == 'none' and estimator.share == 0
  assert estimator.clip > 1000 and estimator.half > 100


@pytest.mark.parametrize('wrong, match', [
    (dict(confidence=1.0), '^confidence must'),
    (dict(radius=0.0), '^radius must'), (dict(sigma=-1.0), '^sigma must'),
    (dict(num_examples=0), '^num_examples must'),
    (dict(guarantee=notions.ApproxDP(epsilon=1.0, delta=0.1)),
     '^the guarantee must be PureDP or ZCDP'),
    (dict(guarantee=notions.PureDP(epsilon=0.0)), '^budget must')])
def test_bad_input_is_refused(wrong, match):
  known = dict(num_examples=10, radius=1.0, sigma=1.0, guarantee=_PURE)
  with pytest.raises(ValueError, match=match):
    normal_intervals.tuned(**known | wrong)
  with pytest.raises(ValueError, match=match.replace('or ZCDP', '')):
    normal_intervals.karwa_vadhan(**known | wrong)


@pytest.mark.parametrize('wrong, match', [
    (dict(finder='mode'), '^finder must be one of'),
    (dict(clip=0.0), '^clip must'), (dict(num_examples=0), '^num_examples must'),
    (dict(step=0.0), '^step must'), (dict(half=-1.0), '^half must'),
    *((dict(finder='median', share=share), '^share must')
      for share in (0.0, -0.5, 1.0, math.nan)),
    *((dict(finder='none', share=share), '^share must') for share in (-.5, 1.0))])
def test_bad_plans_are_refused(wrong, match):
  with pytest.raises(ValueError, match=match):
    dataclasses.replace(_interval(normal_intervals.tuned, n=200), **wrong)
  with pytest.raises(ValueError, match='^the guarantee must be PureDP, got'):
    normal_intervals.karwa_vadhan(num_examples=10, radius=1.0, sigma=1.0,
                                  guarantee=_ZCDP)
