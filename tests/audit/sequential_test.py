"""These tests check sequential audits: fair bets, false alarms and speed."""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.audit import betting
from dpjax.audit import claims
from dpjax.audit import curves
from dpjax.audit import sequential
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

pytestmark = pytest.mark.every(1)

_ADD = Adjacency.ADD_OR_REMOVE_ONE


def _points(*points):
  return curves.PrivacyCurve(*np.array(points, float).T)


def _laplace(scale, *, width=1, epsilon=1.0, faulty=0.0):
  """Returns a sum with Laplace noise, and a claim of epsilon."""
  def release(key, data):
    noise = scale * jax.random.laplace(key, (width,))
    return noise + data.sum() * (1 + faulty)
  return Target(name='sum', release=release, claim=claims.Claim(
      epsilon=epsilon, delta=0.0, adjacency=_ADD), pairs=(
          Pair(np.array([0.0, 1.0]), np.array([0.0, 0.0]), 'one'),))


@pytest.mark.parametrize('epsilon, delta', [(0.0, 0.0), (1.0, 0.1), (3.0, 0.0),
                                            (0.0, 1.0)])
def test_no_bet_wins_on_average(epsilon, delta):
  test = sequential.init(_points((epsilon, delta)), 0.05)
  claimed = slice(0, test.bets.starts[1])
  table, rows = betting.log_gains(test.bets, *np.array(
      [(0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.25)], float).T)
  factors = np.exp(table[rows])[:, claimed]
  assert factors.min() > 0.04  # No bet loses everything.
  best = np.zeros(factors.shape[1])
  for alarm in np.linspace(0, 1, 21):
    largest = min(math.exp(epsilon) * alarm + delta,
                  1 - (1 - delta - alarm) / math.exp(epsilon), 1)
    probs = np.outer([1 - largest, largest], [1 - alarm, alarm]).ravel()
    means = probs @ factors[:4]
    assert (means <= 1 + 1e-12).all()
    best = np.maximum(best, means)
  if delta < 1:  # Each bet is fair on some pair of rates that the claim allows.
    np.testing.assert_allclose(best, 1)


def test_the_wealth_is_a_fair_game_however_it_is_spread():
  # All outcomes of three batches of two runs, at rates that attain the claim.
  # Between batches the bets are spread by earlier runs, as in an audit.
  epsilon, alarm = 1.0, 0.2
  hit = math.exp(epsilon) * alarm
  cells = {(h, a): (hit if h else 1 - hit) * (alarm if a else 1 - alarm)
           for h in (0, 1) for a in (0, 1)}
  start = sequential.init(_points((epsilon, 0.0)), 0.5)
  mean = total = 0.0
  for runs in itertools.product(cells, repeat=4):
    test, (hits, alarms) = start, np.array(runs).T
    for at in (0, 2):
      test = sequential.rebalance(test, hits[:at], alarms[:at])
      test = sequential.update(test, hits[at:at + 2], alarms[at:at + 2])
    prob = math.prod(cells[run] for run in runs)
    total += prob
    mean += prob * (np.exp(test.log_invested[0]) + 1 / (test.num_updates + 1))
  assert total == pytest.approx(1)
  # Bets on the reverse inequality lose at these rates, so the mean is below 1.
  assert 0.8 < mean <= 1 + 1e-12


def test_false_alarms_at_whatever_run_one_stops():
  # Of 200 games at a significance of 20 %, more than 69 alarms have
  # probability 1e-6. Rates attain the claim, so that bets are fair.
  assert stats.binom.sf(69, 200, 0.2) < 1e-6
  rng, epsilon = np.random.default_rng(0), 1.0
  right = special.expit(epsilon)
  start = sequential.init(_points((epsilon, 0.0)), 0.2)
  alarms = too_large = 0
  for _ in range(200):
    test, (hit, alarm) = start, rng.random((2, 150)) < np.array(
        [[right], [1 - right]])
    for at in range(0, 150, 50):
      test = sequential.rebalance(test, hit[:at], alarm[:at])
      test = sequential.update(test, hit[at:at + 50], alarm[at:at + 50])
    alarms += test.violated
    too_large += test.epsilon_lower > epsilon
  assert 0 < alarms <= 69 and too_large <= 69


def test_wealth_and_bound_grow_if_the_claim_is_false():
  rng, truth = np.random.default_rng(1), 2.0
  right = special.expit(truth)
  hits, alarms = rng.random((2, 3000)) < np.array([[right], [1 - right]])
  test = sequential.init(_points((1.0, 0.0)), 0.05)
  lowers = []
  for at in range(0, 3000, 250):
    test = sequential.rebalance(test, hits[:at], alarms[:at])
    test = sequential.update(test, hits[at:at + 250], alarms[at:at + 250])
    lowers.append(test.epsilon_lower)
  assert test.violated and test.stopped_at < 250 < test.num_runs == 3000
  assert test.wealth > 1e20
  assert lowers == sorted(lowers) and 1.7 < lowers[-1] < truth
  # The bound itself is refuted, and the next larger epsilon is not.
  lower = sequential.update(test._replace(), hits[:0], alarms[:0]).epsilon_lower
  once = sequential.update(sequential.init(_points((1.0, 0.0)), 0.05), hits,
                           alarms)
  assert lower == lowers[-1] and once.epsilon_lower > 1.5
  for epsilon, refuted in ((once.epsilon_lower, True),
                           (once.epsilon_lower + 0.05, False)):
    claimed = sequential.init(_points((epsilon, 0.0)), 0.05)
    assert sequential.update(claimed, hits, alarms).violated == refuted


def test_stopping_is_at_the_run_at_which_the_wealth_suffices():
  hits, alarms = np.ones(40, bool), np.zeros(40, bool)
  start = sequential.init(_points((1.0, 0.0)), 0.05)
  at_once = sequential.update(start, hits, alarms)
  runs = at_once.stopped_at
  assert 5 < runs < 40
  before = sequential.update(start, hits[:runs - 1], alarms[:runs - 1])
  after = sequential.update(start, hits[:runs], alarms[:runs])
  assert before.wealth < 20 <= after.wealth
  assert not before.violated and after.stopped_at == runs


def test_nothing_claimed_is_never_refuted():
  test = sequential.init(curves.NOTHING, 0.05, delta=0.0)
  test = sequential.update(test, np.ones(500), np.zeros(500))
  assert not test.violated and test.wealth == 1 and test.epsilon_lower > 4


@pytest.mark.parametrize('hits, alarms, message', [
    ([1.0, 0.0], [1.0], 'as many hits as alarms, got 2 and 1'),
    ([1.5], [0.0], r'must lie in \[0, 1\]'),
    ([np.nan], [0.0], r'must lie in \[0, 1\]')])
def test_what_is_no_pair_of_events_is_refused(hits, alarms, message):
  test = sequential.init(_points((1.0, 0.0)), 0.05)
  with pytest.raises(ValueError, match=message):
    sequential.update(test, np.array(hits), np.array(alarms))


def test_gross_faults_take_a_hundred_runs():
  none = sequential.audit(jax.random.key(0), _laplace(0.0), significance=1e-3)
  assert none.violated and none.num_runs < 60 and none.num_drawn == 256
  assert none.wealth >= 1000 and none.epsilon_lower > 1
  halved = sequential.audit(jax.random.key(0), _laplace(1 / 3),
                            significance=0.05)
  assert halved.violated and halved.num_runs < 500
  assert 1 <= halved.epsilon_lower < 3


def test_small_faults_take_thousands_and_sound_releases_stand():
  small = sequential.audit(jax.random.key(3), _laplace(1 / 1.5),
                           significance=0.05)
  assert small.violated and small.num_runs < 5000
  sound = sequential.audit(jax.random.key(3), _laplace(1.0), significance=1e-3,
                           max_runs=2000)
  assert not sound.violated and sound.num_runs == 2000
  assert sound.epsilon_lower < 1


def test_whole_curves_and_several_pairs():
  event = accounting.gaussian_event(noise_multiplier=1.0)

  def target(scale):
    same = np.zeros(2)
    return Target(
        name='gauss', release=lambda key, data: data.sum() + scale *
        jax.random.normal(key), claim=claims.of_event(
            event, delta=1e-5, adjacency=_ADD), pairs=(
                Pair(same, same, 'equal'), Pair(same, np.array([0.0, 1.0]), '')))
  wrong = sequential.audit(jax.random.key(1), target(0.5), significance=1e-3)
  assert wrong.violated and wrong.pair.what == ''
  # Its epsilon at 1e-5 is far above what 2000 runs show: the curve refutes it.
  assert wrong.num_runs < 2000 and wrong.epsilon_lower < 4.4
  assert not sequential.audit(jax.random.key(1), target(1.0), max_runs=1000,
                              significance=1e-3).violated


@pytest.mark.slow
def test_false_alarms_of_whole_audits():
  # Both data sets release the same, with a hundred scores to be misled by, and
  # then a Laplace sum that attains its claim. Of 200 audits at 20 %, more than
  # 71 alarms have probability 1e-7.
  assert stats.binom.sf(71, 200, 0.2) < 2e-7
  equal = Target(
      name='equal', release=lambda key, data: jax.random.normal(key, (24,)),
      claim=claims.Claim(epsilon=0.0, delta=0.0, adjacency=_ADD),
      pairs=(Pair(np.zeros(1), np.ones(1), ''),))
  for target in (equal, _laplace(1.0)):
    alarms = sum(sequential.audit(key, target, significance=0.2, max_runs=400,
                                  batch=32).violated
                 for key in jax.random.split(jax.random.key(5), 200))
    assert alarms <= 71
