"""Tests dpjax.stats.quantile_methods.unbounded: samples, privacy, bounds."""

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.stats import mechanisms
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import unbounded
from tests.stats.quantile_methods import pairs

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def stops(lacking, rate):
  """Returns the probabilities [k] that a scan stops first at each candidate.

  They are integrated numerically over the noise of the threshold, between the
  kinks where noise of the ranks has to make up for a difference.

  Args:
    lacking: [k], n p less the rank of each candidate; the last one stops.
    rate: rate of both noises.
  """
  ends = np.unique(np.concatenate([
      [0.0, 45 / rate], np.clip(-lacking, 0.0, 45 / rate),
      np.linspace(0.0, 45 / rate, 12)]))
  middle, half = (ends[1:] + ends[:-1]) / 2, np.diff(ends) / 2
  noise = (middle[:, None] + half[:, None] * NODES).ravel()
  weights = (half[:, None] * WEIGHTS).ravel() * rate * np.exp(-rate * noise)
  missing = np.maximum(lacking[:, None] + noise, 0.0)
  goes_on = -np.expm1(-rate * missing)
  goes_on[-1] = 0.0
  before = np.cumprod(np.concatenate([np.ones((1, noise.size)), goes_on[:-1]]),
                      axis=0)
  return before * (1 - goes_on) @ weights


def largest_losses(adjacency, prob, rate, *, seed=3):
  """Returns the largest log-ratios: over all pairs, and from larger ranks."""
  rng = np.random.default_rng(seed)
  both = []
  for _ in range(150):
    size, last = rng.integers(1, 12), rng.integers(2, 30)
    entered = rng.integers(0, last, size)
    changed = entered.copy()
    if adjacency is pairs.REPLACE:
      changed[0] = rng.integers(entered[0], last + 5)
    else:
      changed = changed[1:]
    lacking = [prob * of.size - np.sum(of[:, None] <= np.arange(last), 0)
               for of in (entered, changed)]
    first, second = (np.log(stops(of, rate)) for of in lacking)
    both.append([np.max(second - first), np.max(first - second)])
  return np.max(both, 0)


@pytest.mark.sound
@pytest.mark.parametrize('prob', [0.5, 0.9])
def test_noise_is_just_enough(prob):
  rate = rates.scan(prob, epsilon=1.0, adjacency=pairs.REPLACE)
  up, down = largest_losses(pairs.REPLACE, prob, rate)
  # Where ranks fell, the threshold counts; where they rose, only the stop.
  assert 0.95 <= up <= 1 + 1e-9
  assert 0.4 <= down <= 0.5 + 1e-9
  rate = rates.scan(prob, epsilon=1.0, adjacency=pairs.ADD)
  loss = max(largest_losses(pairs.ADD, prob, rate))
  assert 0.95 <= loss <= 1 + 1e-9


def test_draws_have_the_law():
  asked = unbounded.UnboundedQuantiles(
      probs=(0.6,), epsilon=2.0, adjacency=pairs.REPLACE, bound=-1.0, base=1.3,
      scale=2.0, num_candidates=12)
  data = np.array([-1.0, -1.0, 0.5, 0.6, 3.0, 8.0, 40.0, 1e9])
  candidates = -1.0 + 2.0 * (1.3**np.arange(12) - 1)
  assert asked.upper == pytest.approx(candidates[-1])
  lacking = 0.6 * 8 - np.sum(data[:, None] < candidates, 0)
  answers = pairs.answers(asked, data, 8000)[:, 0]
  nearest = np.argmin(np.abs(answers[:, None] - candidates), 1)
  np.testing.assert_allclose(answers, candidates[nearest], rtol=1e-12)
  expected = 8000 * stops(lacking, 1.0)
  assert expected.sum() == pytest.approx(8000, rel=1e-6)
  counts = np.bincount(nearest, minlength=12)
  assert np.all(expected[1:] > 5)
  assert stats.chisquare(counts, expected * 8000 / expected.sum()
                         ).pvalue > 1e-4


@pytest.mark.slow
def test_downwards_is_upwards_reflected():
  data = np.random.default_rng(4).normal(size=30)
  kwargs = dict(epsilon=5.0, adjacency=pairs.ADD)
  down = unbounded.UnboundedQuantiles(probs=(0.25,), bound=4.0, downwards=True,
                                      **kwargs)
  up = unbounded.UnboundedQuantiles(probs=(0.75,), bound=-4.0, **kwargs)
  key = jax.random.key(5)
  first, second = down.estimate(key, data), up.estimate(key, -data)
  np.testing.assert_array_equal(first, -second)
  # The size of the arrays does not matter.
  with jax.enable_x64(True):
    roomy = mechanisms.compiled(down.draw)(key, records.of(
        data, down.lower, down.upper, 40), down.parameters)
  np.testing.assert_array_equal(first, roomy)


@pytest.mark.slow
def test_bounds_too_wide_do_no_harm():
  rng = np.random.default_rng(6)
  data = np.exp(rng.normal(size=(20, 2000)))
  truth = np.exp(stats.norm.ppf(0.99))
  kwargs = dict(probs=(0.99,), epsilon=0.5, adjacency=pairs.REPLACE)
  scan = unbounded.UnboundedQuantiles(bound=0.0, **kwargs)
  wide = independent.IndependentQuantiles(lower=0.0, upper=1e6, **kwargs)
  assert scan.upper > 1e20
  answers = pairs.answers(scan, data, 20)
  assert np.mean(answers < 3 * truth) == 1.0
  assert np.mean(answers > truth / 3) == 1.0
  assert np.median(pairs.answers(wide, data, 20)) > 100 * truth


def test_odd_records_and_an_end_that_is_reached():
  asked = unbounded.UnboundedQuantiles(
      probs=(0.2, 0.5), epsilon=40.0, adjacency=pairs.ADD, bound=0.0)
  key = jax.random.key(7)
  step = 1e-3
  for value, low, high in ((0.0, 0.0, step), (-5.0, 0.0, step),
                           (np.nan, 0.0, step), (10.0, 9.9, 10.1),
                           (np.inf, asked.upper, asked.upper)):
    answers = asked.estimate(key, np.full(30, value))
    assert np.all(answers >= low), value
    assert np.all(answers <= high * (1 + 1e-9)), value
  assert np.all(asked.estimate(key, np.array([2.0])) >= 0)


def test_bad_candidates_are_refused():
  kwargs = dict(probs=(0.5,), epsilon=1.0, adjacency=pairs.ADD)
  make = unbounded.UnboundedQuantiles
  for bad, said in ((dict(base=1.0), 'base - 1 must be'),
                    (dict(scale=0.0), 'scale must be'),
                    (dict(num_candidates=1), 'num_candidates must be'),
                    (dict(base=2.0, num_candidates=2000), 'overflows'),
                    (dict(bound=np.nan), 'lower must be below')):
    with pytest.raises(ValueError, match=said):
      make(**{'bound': 0.0, **kwargs, **bad})
