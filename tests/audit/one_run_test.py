"""These tests compare bounds from one run with
published figures and coverage."""

import numpy as np
import pytest
from scipy import spatial
from scipy import special
from scipy import stats

from dpjax.audit import bounds
from dpjax.audit import one_run
from dpjax.audit.suite import calibration

pytestmark = pytest.mark.every(1)


@pytest.mark.parametrize('true, false, shift, epsilon', [
    (500, 10, 2.01099, 10.0650), (900, 100, 2.34710, 12.1976)])
def test_gaussian_bound_from_many_runs(true, false, shift, epsilon):
  lower_bound = bounds.gaussian_shift_lower_bound(
      true_positives=true, num_in=1000, false_positives=false, num_out=1000)
  assert lower_bound == pytest.approx(shift, abs=1e-5)
  assert bounds.shift_to_epsilon(lower_bound, delta=1e-5) == pytest.approx(
      epsilon, abs=1e-4)


def test_gaussian_bound_of_a_useless_test_is_zero():
  # With an absolute value instead, noise alone would show epsilon above 3.
  counts = dict(num_in=100, num_out=100)
  for true, false in ((50, 50), (10, 90), (0, 100), (49, 55)):
    assert bounds.gaussian_shift_lower_bound(
        true_positives=true, false_positives=false, **counts) == 0
  miss, alarm = bounds.error_upper_bounds(
      true_positives=50, false_positives=50, **counts)
  wrong = abs(float(stats.norm.isf(alarm) + stats.norm.isf(miss)))
  assert bounds.shift_to_epsilon(wrong, delta=1e-5) > 2
  assert bounds.shift_to_epsilon(0.0, delta=1e-5) == 0


@pytest.mark.parametrize('m, r, v, delta, expected', [
    (1000, 100, 100, 0.0, 3.49297), (1000, 100, 95, 0.0, 2.17243),
    (1000, 100, 95, 1e-5, 2.16518), (1000, 1000, 750, 0.0, 0.97667),
    (1000, 200, 160, 1e-5, 1.08503), (10000, 100, 100, 1e-5, 3.20230)])
def test_one_run_bound(m, r, v, delta, expected):
  assert one_run.epsilon_lower_bound(
      num_canaries=m, num_guesses=r, num_correct=v, delta=delta) == (
          pytest.approx(expected, abs=1e-5))


@pytest.mark.parametrize('guesses, cap', [(10, 1.05), (100, 3.49),
                                          (1000, 5.81)])
def test_one_run_is_capped(guesses, cap):
  assert one_run.largest_bound(num_guesses=guesses) == pytest.approx(
      cap, abs=5e-3)


@pytest.mark.parametrize('m, r, v, shift, epsilon', [
    (1000, 100, 95, 0.78681, 3.32330), (1000, 1000, 750, 0.46063, 1.81890),
    (1000, 200, 160, 0.44016, 1.72923)])
def test_gaussian_bound_from_one_run(m, r, v, shift, epsilon):
  lower_bound = one_run.gaussian_shift_lower_bound(
      num_canaries=m, num_guesses=r, num_correct=v)
  assert lower_bound == pytest.approx(shift, abs=1e-5)
  assert bounds.shift_to_epsilon(lower_bound, delta=1e-5) == pytest.approx(
      epsilon, abs=1e-4)


def test_p_value_is_the_binomial_tail_and_delta_adds_to_it():
  kwargs = dict(num_canaries=50, num_guesses=20, num_correct=15)
  pure = one_run.p_value(1.0, delta=0.0, **kwargs)
  assert pure == pytest.approx(
      stats.binom.sf(14, 20, special.expit(1.0)))
  assert pure < one_run.p_value(1.0, delta=1e-3, **kwargs) < pure + 0.1
  assert one_run.p_value(1.0, delta=0.5, **kwargs) == 1.0


def test_one_run_keeps_its_level_where_delta_leaks_the_coins():
  # The game is randomised response that reveals each coin with probability
  # delta, with m = r = 500. In 1000 runs at the true parameters, more than 78
  # rejections at 5 % have probability 1e-4.
  rng, size, epsilon, delta = np.random.default_rng(0), 500, 1.0, 1e-3
  leaked = rng.random((1000, size)) < delta
  right = leaked | (rng.random((1000, size)) < special.expit(epsilon))
  counts = dict(num_canaries=size, num_guesses=size, delta=delta)
  rejected = [one_run.p_value(epsilon, num_correct=int(v), **counts) <= 0.05
              for v in right.sum(1)]
  assert stats.binom.sf(78, 1000, 0.05) < 1e-4
  assert sum(rejected) <= 78


def test_wealth_is_a_fair_game_and_grows_when_guesses_are_too_good():
  # The expected bet over one guess is exactly 1.
  epsilon = 1.0
  right = special.expit(epsilon)
  won, lost = (one_run.wealth(np.array([outcome]), epsilon=epsilon)[0]
               for outcome in (True, False))
  assert right * won + (1 - right) * lost == pytest.approx(1.0)
  assert one_run.wealth(np.zeros(2000, bool), epsilon=epsilon).min() >= 0
  # These are published medians of guesses until epsilon 1 is refuted.
  rng = np.random.default_rng(1)
  for truth, median in ((1.5, 158), (2.0, 58), (3.0, 25)):
    games = rng.random((400, 1000)) < special.expit(truth)
    first = [int(np.argmax(one_run.wealth(game, epsilon=epsilon) >= 20))
             for game in games]
    assert np.median(first) == pytest.approx(median, rel=0.25)


def test_stopping_at_will_keeps_the_level():
  rng = np.random.default_rng(2)
  games = rng.random((1000, 400)) < special.expit(1.0)
  stopped = [one_run.wealth(game, epsilon=1.0).max() >= 20 for game in games]
  assert sum(stopped) <= 78  # See above.
  bound = one_run.anytime_lower_bound(np.ones(100, bool))
  assert one_run.wealth(np.ones(100, bool), epsilon=bound)[-1] == (
      pytest.approx(20, rel=1e-6))


def _hull(labels):
  """Returns guesses and right guesses at corners of the empirical ROC curve."""
  points = np.stack([np.append(0, np.cumsum(~labels)),
                     np.append(0, np.cumsum(labels))], 1)
  # With this corner added, points below the diagonal are no corners.
  hull = spatial.ConvexHull(np.append(points, [[points[-1, 0], 0]], 0))
  corners = points[[v for v in hull.vertices if 0 < v < len(points)]]
  return corners.sum(1), corners[:, 1]


@pytest.mark.slow
def test_correcting_for_corners_of_the_hull_alone_is_wrong():
  # Coins have no scores here. Of 4000 audits at 1 %, more than 65 reject with
  # probability 1e-4 if the level is kept.
  size, trials, level = 1000, 4000, 0.01
  grid = np.unique([max(1, round(f * size)) for f in one_run.FRACTIONS])
  labels = np.random.default_rng(0).random((trials, size)) < 0.5
  by_hull = 0
  for coins in labels:
    counts, right = _hull(coins)
    by_hull += (special.bdtrc(right - 1.0, counts, 0.5).min() <=
                level / counts.size)
  right = np.cumsum(labels, 1)[:, grid - 1]
  by_grid = np.sum(special.bdtrc(right - 1.0, grid[None], 0.5).min(1) <=
                   level / grid.size)
  assert stats.binom.sf(65, trials, level) < 1e-4
  assert by_hull > 65 >= by_grid


def test_guesses_are_counted_from_both_ends():
  scores = np.array([0.1, 5.0, -3.0, 2.0, np.nan])
  included = np.array([True, True, False, False, True])
  for guesses, right in ((1, 1), (2, 2), (3, 3), (4, 3), (5, 3)):
    assert one_run.count_guesses(scores, included, guesses) == right


def test_grid_pays_for_its_size():
  included = np.arange(1000) < 500
  scores = 1.0 * included
  assert one_run.grid_lower_bound(scores, included, delta=0.0) == (
      pytest.approx(one_run.largest_bound(num_guesses=1000,
                                          significance=0.05 / 6), abs=1e-6))


@pytest.mark.parametrize('epsilon, expected', [
    (1.0, (0.124, 0.381, 0.141)), (2.0, (0.495, 1.311, 0.534)),
    (4.0, (1.302, 3.209, 1.312)), (8.0, (2.694, 6.977, 2.648))])
def test_power_table(epsilon, expected):
  # Expected counts are rounded. Published one-run bounds guess inclusion only;
  # guesses at both ends show more.
  *powers, separate = calibration.expected_power(epsilon)[1:]
  np.testing.assert_allclose(powers[:2], expected[:2], atol=3e-3, rtol=3e-3)
  assert expected[2] < powers[2] < separate < epsilon


@pytest.mark.parametrize('change, message', [
    (dict(num_correct=5), 'num_correct must be at most num_guesses'),
    (dict(num_guesses=11), 'at most num_canaries; got 3, 11 and 10'),
    (dict(num_canaries=0), 'num_canaries must be an integer >= 1'),
    (dict(delta=1.0), r'delta must lie in \[0, 1\)'),
    (dict(significance=0.0), 'significance must lie strictly'),
])
def test_refuses_bad_counts(change, message):
  good = dict(num_canaries=10, num_guesses=4, num_correct=3, delta=0.0)
  with pytest.raises(ValueError, match=message):
    one_run.epsilon_lower_bound(**{**good, **change})
