"""These tests compare bounds from one run with
published figures, exact optima and coverage."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize
from scipy import spatial
from scipy import special
from scipy import stats

from dpjax.audit import bounds
from dpjax.audit import curves
from dpjax.audit import one_run
from dpjax.audit import one_run_program
from dpjax.audit import one_run_tight
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


def _largest_over_mechanisms(curve, coins, guesses, correct):
  """Returns the largest P(V >= v) over all mechanisms, by brute force.

  The variables are the probabilities of every guess given all coins, and the
  positive parts of every constraint of differential privacy.
  """
  inputs = list(itertools.product((0, 1), repeat=coins))
  outputs = [dict(zip(places, values, strict=True))
             for places in itertools.combinations(range(coins), guesses)
             for values in itertools.product((0, 1), repeat=guesses)]
  width, inside = len(outputs), len(inputs) * len(outputs)
  pairs = [(one, one ^ (1 << place)) for one in range(len(inputs))
           for place in range(coins)]
  size = inside + curve.epsilons.size * len(pairs) * width
  rows, limits, slack = [], [], inside
  for (epsilon, delta), (one, other) in itertools.product(
      zip(*curve, strict=True), pairs):
    total = np.zeros(size)
    total[slack:slack + width] = 1
    for place in range(width):
      row = np.zeros(size)
      row[one * width + place], row[slack + place] = 1, -1
      row[other * width + place] = -math.exp(epsilon)
      rows.append(row)
    rows.append(total)
    limits += [0.0] * width + [delta]
    slack += width
  wins = [sum(coin[place] == value for place, value in output.items()) >=
          correct for coin in inputs for output in outputs]
  whole = np.kron(np.eye(len(inputs)), np.ones(width))
  solved = optimize.linprog(
      -np.append(wins, np.zeros(size - inside)) / len(inputs), np.array(rows),
      limits, np.pad(whole, ((0, 0), (0, size - inside))),
      np.ones(len(inputs)))
  return -solved.fun


def _points(*points):
  return curves.PrivacyCurve(*np.array(points, float).T)


@pytest.mark.parametrize('points, m, r, v', [
    ([(1.0, .05)], 2, 2, 2), ([(1.0, .05)], 3, 2, 2), ([(.5, .1)], 3, 3, 2),
    ([(.5, 0.0)], 3, 3, 2), ([(.5, .3)], 3, 1, 1), ([(0.0, .1)], 3, 2, 1),
    ([(0.0, .2), (1.0, .02)], 3, 3, 3),
    ([(0.0, .3), (.7, .1), (1.5, .01)], 3, 3, 2),
    ([(0.0, .3), (.7, .1), (1.5, .01)], 3, 2, 2)])
def test_p_values_are_the_largest_over_all_mechanisms(points, m, r, v):
  curve = _points(*points)
  counts = dict(num_canaries=m, num_guesses=r, num_correct=v)
  largest = _largest_over_mechanisms(curve, m, r, v)
  assert one_run_tight.curve_p_value(curve, **counts) == pytest.approx(
      largest, abs=1e-8)
  singles = [one_run_tight.p_value(epsilon, delta=delta, **counts)
             for epsilon, delta in points]
  assert min(singles) >= largest - 1e-9
  if len(points) == 1:
    assert singles[0] == pytest.approx(largest, abs=1e-8)
  # Independent games are some of the mechanisms; 0.3 % is for quadrature.
  assert one_run_tight.independent_p_value(curve, **counts) <= 1.003 * largest


def test_tight_p_values_are_below_published_ones():
  rng = np.random.default_rng(3)
  for _ in range(200):
    m = int(rng.integers(1, 300))
    r = int(rng.integers(1, m + 1))
    counts = dict(num_canaries=m, num_guesses=r,
                  num_correct=int(rng.integers(0, r + 1)),
                  delta=float(10**rng.uniform(-7, -1)))
    epsilon = rng.uniform(0, 4)
    tight = one_run_tight.p_value(epsilon, **counts)
    published = one_run.p_value(epsilon, **counts)
    assert tight <= published + 1e-12 or published > 0.7
    assert tight >= one_run.p_value(epsilon, **counts | dict(delta=0.0)) - 1e-12
  # Near 1, where no test rejects, the published value is too small: brute force
  # finds a mechanism with a larger probability.
  counts = dict(num_canaries=3, num_guesses=3, num_correct=1)
  assert one_run.p_value(2.0, delta=1e-3, **counts) < 0.99832 < 0.99844 < (
      _largest_over_mechanisms(_points((2.0, 1e-3)), 3, 3, 1))
  # A mechanism that reveals all coins with probability delta is allowed.
  perfect = one_run_tight.p_value(1.0, num_canaries=300, num_guesses=300,
                                  num_correct=300, delta=3e-4)
  assert perfect == pytest.approx(3e-4, rel=1e-6)


@pytest.mark.parametrize('m, r, v, delta', [
    (1000, 100, 95, 0.0), (1000, 100, 95, 1e-4), (200, 200, 150, 1e-3),
    (300, 150, 150, 3e-4), (60, 40, 35, 0.02)])
def test_tight_bounds_are_where_the_program_reaches_the_level(m, r, v, delta):
  counts = dict(num_canaries=m, num_guesses=r, num_correct=v)
  bound = one_run_tight.epsilon_lower_bound(**counts, delta=delta)
  assert bound >= one_run.epsilon_lower_bound(**counts, delta=delta) - 1e-6
  # The solver knows nothing of the closed form.
  programmed = one_run_program.p_value(_points((bound, delta)), m, r, v)
  assert programmed == pytest.approx(0.05, rel=1e-4)


def test_coins_that_leak_together_refute_only_the_independent_bound():
  # All 50 coins leak with probability 10 %: this is (0, 0.1)-DP.
  delta, counts = 0.1, dict(num_canaries=50, num_guesses=50, num_correct=50)
  assert one_run_tight.p_value(0.0, delta=delta, **counts) >= delta
  curve = _points((0.0, delta))
  assert one_run_tight.curve_p_value(curve, **counts) >= delta
  assert one_run_tight.independent_p_value(curve, **counts) < 1e-9


@pytest.mark.parametrize('m, r, v', [(12, 5, 4), (12, 5, 5), (12, 12, 9),
                                     (40, 10, 9), (40, 39, 30)])
def test_independent_games_attain_their_p_value(m, r, v):
  # Each game reveals its coin with probability delta, which shows, and else
  # answers by randomised response: the best r guesses are the revealed ones.
  epsilon, delta = 0.8, 0.15
  seen = np.minimum(np.arange(m + 1), r)
  tails = stats.binom.sf(v - seen - 1, r - seen, special.expit(epsilon))
  exact = stats.binom.pmf(np.arange(m + 1), m, delta) @ tails
  value = one_run_tight.independent_p_value(
      _points((epsilon, delta)), num_canaries=m, num_guesses=r, num_correct=v)
  assert exact <= value <= 1.01 * exact


def test_independent_gaussian_games_keep_their_level_and_use_it():
  # Of 2000 audits at 5 %, more than 140 reject with probability 5e-5 if the
  # level is kept. Steps of the count cost some of it.
  assert stats.binom.sf(140, 2000, 0.05) < 5e-5
  rng, shift, size, guesses = np.random.default_rng(4), 0.8, 200, 60
  curve = one_run_tight.gaussian_curve(shift)
  values = np.array([one_run_tight.independent_p_value(
      curve, num_canaries=size, num_guesses=guesses, num_correct=v)
                     for v in range(guesses + 1)])
  coins = rng.random((2000, size)) < 0.5
  right = [one_run.count_guesses(shift * coin + noise, coin, guesses)
           for coin, noise in zip(coins, rng.normal(size=coins.shape),
                                  strict=True)]
  assert 40 <= np.sum(values[right] <= 0.05) <= 140


def test_gaussian_bounds_are_in_order():
  for m, r, v in ((1000, 100, 92), (300, 60, 52), (200, 200, 130)):
    counts = dict(num_canaries=m, num_guesses=r, num_correct=v)
    published = one_run.gaussian_shift_lower_bound(**counts)
    tight = one_run_tight.gaussian_shift_lower_bound(**counts)
    separate = one_run_tight.gaussian_shift_lower_bound(**counts,
                                                        independent=True)
    assert published - 2e-3 < tight < separate
    for shift, rejected in ((0.98 * tight, True), (1.02 * tight + .01, False)):
      assert one_run_tight.rejects_curve(
          one_run_tight.gaussian_curve(shift), **counts) == rejected
