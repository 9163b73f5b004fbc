"""Tests hypothesis tests under zCDP along a path: bounds and attainment."""

import math

import numpy as np
import pytest
from scipy import integrate
from scipy import optimize
from scipy import special
from scipy import stats

from dpjax.privacy import divergences
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from dpjax.privacy.notions import zcdp_from_pure
from dpjax.theory.minimax import concentrated
from dpjax.theory.minimax import two_points
from experiments.methods.theory import best_channels as oracles


def _limit(total):
  """Returns the error of infinitely many steps."""
  speed = lambda x: math.sqrt(math.tanh(x / 2) / x) if x else math.sqrt(0.5)
  length = lambda x: integrate.quad(speed, 0, x)[0] - math.sqrt(total)
  return float(special.expit(-optimize.brentq(length, 0, 200)))


@pytest.mark.every(2)
@pytest.mark.parametrize('total', (0.05, 0.5, 2.0, 7.5, 30.0))
def test_more_steps_leave_larger_errors_up_to_the_limit(total):
  d = 64
  rho = total / d**2
  error = concentrated.path_error(np.array([d]), rho)[0]
  limit = _limit(total)
  path_error = two_points.path_error(1, ZCDP(rho=total))
  gaussian = stats.norm.cdf(-math.sqrt(total / 2))
  assert path_error < error <= limit < gaussian
  assert error > 0.92 * limit
  assert two_points.path_error(d, ZCDP(rho=rho)) == error


def test_a_channel_of_two_answers_reaches_the_error():
  """A channel of two answers attains the path error, and its rho to 1 %."""
  for total in (0.3, 2.0, 6.0):
    rho = total / 64
    half = [concentrated.logit(np.array([total * (k / 4)**2]), 2 * k)[0]
            for k in range(1, 5)]
    logits = np.array([*(-x for x in half[::-1]), 0.0, *half])
    probs = np.stack([special.expit(logits), special.expit(-logits)], 1)
    worst = max(divergences.renyi(p, q, order=order) / order
                for here, there in zip(probs, probs[1:])
                for p, q in ((here, there), (there, here))
                for order in np.concatenate([[1 + 1e-9], np.geomspace(
                    1.01, 400, 200)]))
    assert rho <= worst * (1 + 1e-6) < 1.01 * rho
    assert concentrated.path_error(np.array([8]), rho)[0] == pytest.approx(
        probs[0, 0], rel=1e-3)
    assert concentrated.path_error(np.array([8]), rho)[0] <= probs[0, 0]


def test_two_answers_of_the_limit_are_zcdp_at_every_order():
  places = np.arange(-30, 31)
  orders = np.concatenate([[1 + 1e-4], np.geomspace(1.01, 3000, 120)])
  for rho in (1e-3, 0.04, 0.5, 3.0):
    for offset in (0.0, 0.37):
      logits = concentrated.limit_logit(math.sqrt(rho) * (places + offset))
      logits = logits[np.abs(logits) < 300]
      here, there = logits[1:, None], logits[:-1, None]
      worst = max(np.max(concentrated.log_moment(orders, x, y)
                         / (orders - 1) / orders)
                  for x, y in ((here, there), (there, here)))
      assert 0.95 * rho < worst < rho * (1 + 1e-4)
  for total in (0.2, 3.0, 40.0):
    assert special.expit(-concentrated.limit_logit(
        math.sqrt(total) / 2)) == pytest.approx(_limit(total), rel=1e-6)
  ends = concentrated.limit_logit(np.array([-2.0, 0.0, 2.0]))
  assert ends[0] == -ends[2] and ends[1] == 0


def test_tables_are_below_what_they_hold():
  for steps in (2, 8):
    roots = np.random.default_rng(steps).uniform(0.003, 15.9, 60)
    logits = concentrated.logit(roots**2, steps)
    rho, d = (roots / steps)**2, np.array([steps])
    table = np.array([concentrated.path_error(d, value)[0] for value in rho])
    if steps == 8:
      assert (table <= special.expit(-logits)).all()
    assert table == pytest.approx(special.expit(-logits), rel=2e-3) or (
        steps == 2)
    # More than the largest step is not allowed, so halving did not end early.
    level = roots**2 / steps**2
    start = concentrated.logit(roots**2 * ((steps - 2) / steps)**2, steps - 2
                               ) if steps > 2 else np.zeros(60)
    assert not concentrated._allowed(start, logits + 1e-4, level).any()
    assert concentrated._allowed(start, logits - 1e-4, level).all()


def test_pure_tests_err_more_than_their_zcdp_allows():
  for epsilon, d in ((0.3, 4), (0.8, 6), (1.5, 3), (0.1, 20)):
    guarantee = PureDP(epsilon=epsilon)
    costs = np.zeros((1, d + 1, 2))
    costs[0, 0, 1] = costs[0, d, 0] = 0.5
    best = oracles.least(costs, oracles.chain(d + 1), guarantee).value
    assert two_points.path_error(d, zcdp_from_pure(guarantee)) <= best + 1e-7


def test_nothing_is_said_of_neighbours_or_beyond_the_table():
  assert concentrated.path_error(np.array([0, 1]), 0.5).tolist() == [0, 0]
  assert concentrated.path_error(np.array([100]), 1.0).tolist() == [0]
  assert concentrated.path_error(np.array([50]), 0.0).tolist() == [0.5]
  # Lengths that do not divide are rounded up.
  errors = concentrated.path_error(np.arange(2, 40), 0.01)
  assert (np.diff(errors) <= 1e-15).all()
