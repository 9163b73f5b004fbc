"""These tests compare bounds from counts with
published figures and coverage."""

import math

import numpy as np
import pytest

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
