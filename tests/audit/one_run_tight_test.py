"""These tests compare tight one-run p-values with exact optima and games."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize
from scipy import special
from scipy import stats

from dpjax.audit import curves
from dpjax.audit import one_run
from dpjax.audit import one_run_program
from dpjax.audit import one_run_tight

pytestmark = pytest.mark.every(1)


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
