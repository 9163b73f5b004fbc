"""These tests compare bounds from counts with
published figures and coverage."""

import math

import numpy as np
import pytest
from scipy import stats

from dpjax.audit import bounds

pytestmark = pytest.mark.every(1)


@pytest.mark.parametrize('true, false, expected',
                         [(500, 10, 3.24200), (900, 100, 1.98969)])
def test_reference_figures(true, false, expected):
  lower_bound = bounds.epsilon_lower_bound(
      true_positives=true, num_in=1000, false_positives=false, num_out=1000,
      delta=1e-5)
  assert lower_bound == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize('runs, cap', [(100, 3.281), (1000, 5.601),
                                       (10000, 7.905)])
def test_a_perfect_attack_is_capped(runs, cap):
  assert bounds.largest_bound(num_in=runs, num_out=runs, delta=1e-5) == (
      pytest.approx(cap, abs=1e-3))


def test_both_directions_count():
  counts = dict(num_in=1000, num_out=1000, delta=0.0)
  rare_alarm = bounds.epsilon_lower_bound(
      true_positives=300, false_positives=5, **counts)
  rare_miss = bounds.epsilon_lower_bound(
      true_positives=995, false_positives=700, **counts)
  assert rare_alarm == pytest.approx(rare_miss) and rare_alarm > 2


def test_no_signal_gives_zero_and_the_bound_covers():
  # The bound exceeds the known epsilon of randomised response in at most 5 % of
  # audits. With 2000 audits, a false alarm at 7.7 % has probability below 1e-6.
  epsilon, audits, runs = 1.0, 2000, 400
  rng = np.random.default_rng(0)
  truth = math.exp(epsilon) / (1 + math.exp(epsilon))
  hits = rng.binomial(runs, truth, audits)
  alarms = rng.binomial(runs, 1 - truth, audits)
  lower_bounds = np.array([
      bounds.epsilon_lower_bound(
          true_positives=int(h), num_in=runs, false_positives=int(a),
          num_out=runs, delta=0.0) for h, a in zip(hits, alarms, strict=True)
  ])
  assert np.mean(lower_bounds > epsilon) < 0.077
  assert np.median(lower_bounds) > 0.7  # and it has power
  assert bounds.epsilon_lower_bound(
      true_positives=50, num_in=100, false_positives=50, num_out=100,
      delta=0.0) == 0.0


def test_upper_rate_is_the_binomial_inverse():
  rate = bounds.rate_upper_bound(3, 50, significance=0.01)
  tail = sum(math.comb(50, k) * rate**k * (1 - rate)**(50 - k)
             for k in range(4))
  assert tail == pytest.approx(0.01, rel=1e-6)
  assert bounds.rate_upper_bound(50, 50, significance=0.01) == 1.0


@pytest.mark.parametrize('change, message', [
    (dict(true_positives=11), r'count must lie in \[0, 10\]'),
    (dict(false_positives=-1), r'count must lie in \[0, 10\], got -1'),
    (dict(num_out=0), 'trials must be an integer >= 1'),
    (dict(delta=1.0), r'delta must lie in \[0, 1\)'),
    (dict(significance=2.0), 'significance must lie strictly'),
])
def test_refuses_bad_counts(change, message):
  good = dict(true_positives=5, num_in=10, false_positives=1, num_out=10,
              delta=0.0)
  with pytest.raises(ValueError, match=message):
    bounds.epsilon_lower_bound(**{**good, **change})


@pytest.mark.parametrize('share', bounds.SHARES)
def test_levels_of_both_rates_add_up_to_the_significance(share):
  """The miss rate gets its share of the significance, the alarm rate the rest.

  Of 4000 audits of randomised response at 20 %, more than 906 wrong bounds have
  probability 1e-5.
  """
  counts = dict(true_positives=300, num_in=400, false_positives=90, num_out=500)
  miss, alarm = bounds.error_upper_bounds(
      **counts, significance=0.2, miss_share=share)
  assert miss == bounds.rate_upper_bound(100, 400, significance=0.2 * share)
  assert alarm == pytest.approx(bounds.rate_upper_bound(
      90, 500, significance=0.2 * (1 - share)))
  rng, truth = np.random.default_rng(1), math.exp(1) / (1 + math.exp(1))
  lower = bounds.epsilon_lower_bounds(
      true_positives=rng.binomial(400, truth, 4000), num_in=400,
      false_positives=rng.binomial(400, 1 - truth, 4000), num_out=400,
      delta=0.0, significance=0.2, miss_share=share)
  assert stats.binom.sf(906, 4000, 0.2) < 2e-5
  assert (lower > 1).sum() <= 906


def test_a_perfect_attack_gives_most_of_the_level_to_alarms():
  counts = dict(num_in=1000, num_out=1000, delta=0.0)
  best = bounds.largest_bound(**counts, shares=bounds.SHARES)
  assert best == bounds.epsilon_lower_bound(
      true_positives=1000, false_positives=0, miss_share=0.1, **counts)
  assert best > bounds.largest_bound(**counts) + 0.1
  with pytest.raises(ValueError, match='miss_share must lie strictly'):
    bounds.epsilon_lower_bound(true_positives=1, false_positives=1,
                               miss_share=1.0, **counts)
