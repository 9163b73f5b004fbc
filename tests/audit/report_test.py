"""These tests recompute a report of the auditor from what it says of itself."""

import dataclasses
import math
from unittest import mock

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.audit import auditor
from dpjax.audit import blackbox
from dpjax.audit import canary
from dpjax.audit import claims
from dpjax.audit import curves
from dpjax.audit import partitions
from dpjax.audit.auditor import Check
from dpjax.audit.auditor import Report
from dpjax.audit.target import Noise
from dpjax.audit.target import Pair
from dpjax.audit.target import Query
from dpjax.audit.target import Target
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train.plan import TrainingPlan

pytestmark = pytest.mark.every(1)

_ADD = Adjacency.ADD_OR_REMOVE_ONE
_CLAIM = claims.Claim(
    epsilon=accounting.gaussian_epsilon(shift=1.0, delta=1e-4), delta=1e-4,
    adjacency=_ADD)
_RUNS, _LEVEL = 400, 0.08


def _rng(key):
  return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _gaussian(**changes):
  """Returns a target that adds Gaussian noise to two numbers, with changes."""
  sample = lambda key, data, size: data[None] + _rng(key).normal(
      size=(size, 2))
  return Target(**{**dict(
      name='sum', release=None, sample=sample,
      pairs=(Pair(np.eye(2)[0], np.zeros(2), 'one more'),
             Pair(np.zeros(2), np.eye(2)[1], 'one less')),
      claim=_CLAIM), **changes})


def _coin(**changes):
  """Returns a target of randomised response of
  epsilon 1, with probabilities."""
  truth = 1 / (1 + math.exp(-1))
  log_probs = lambda data: np.log([truth, 1 - truth]
                                  if data else [1 - truth, truth])
  sample = lambda key, data, size: (
      _rng(key).random(size) < np.exp(log_probs(data)[1])).astype(int)
  return Target(**{**dict(
      name='coin', release=None, sample=sample, log_probs=log_probs,
      pairs=(Pair(True, False), Pair(False, True)),
      claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_ADD)), **changes})


_TARGETS = {'plain': _gaussian(), 'noise': _gaussian(noise=Noise(stats.norm())),
            'exact': _coin(),
            'leaks': _gaussian(sample=lambda key, data, size: (
                9 * data[None] + _rng(key).normal(size=(size, 2))))}


@pytest.fixture(name='reports', scope='module')
def _reports():
  return {name: auditor.audit(jax.random.key(2), target, num_runs=_RUNS,
                              significance=_LEVEL)
          for name, target in _TARGETS.items()}


def _upper(count, level, runs=_RUNS):
  """Returns Clopper and Pearson's upper confidence limit of a rate."""
  return 1.0 if count == runs else stats.beta.isf(level, count + 1,
                                                  runs - count)


def _lower_epsilon(hits, alarms, levels, delta, runs=_RUNS):
  """Returns the lower bound of epsilon from upper limits of both error rates.

  The limits have the given levels; the roles may be swapped.
  """
  miss, alarm = (_upper(count, level, runs) for count, level in
                 zip((runs - hits, alarms), levels, strict=True))
  gains = [(1 - miss - delta) / alarm, (1 - alarm - delta) / miss]
  return max(0.0, *(math.log(gain) for gain in gains if gain > 0))


def test_levels_of_all_tests_add_up_to_the_significance(reports):
  for name, report in reports.items():
    levels = [check.level for check in report.checks if check.level]
    assert sum(levels) == pytest.approx(_LEVEL), name
    assert (len(levels) > 1) == (name in ('noise', 'exact'))
    # Tests of noise share one half of the level; the event has the other.
    assert levels[-1] == pytest.approx(_LEVEL / (1 + (len(levels) > 1)))
    assert report.details['level'] == levels[-1]
    for check in report.checks:
      if check.p_value is not None:
        assert check.failed == (check.p_value <= check.level)


def test_bounds_follow_from_the_counts(reports):
  for name, report in reports.items():
    details, claim = report.details, report.claim
    hits, alarms = details['true_positives'], details['false_positives']
    level = details['level']
    levels = details['miss_level'], level - details['miss_level']
    assert details['num_in'] == details['num_out'] == _RUNS
    assert report.epsilon_lower == pytest.approx(
        _lower_epsilon(hits, alarms, levels, claim.delta)), name
    # A perfect attack gives most of the level to the alarms it never has.
    assert report.cap == pytest.approx(_lower_epsilon(
        _RUNS, 0, (.1 * level, .9 * level), claim.delta)), name
    miss, alarm = (_upper(count, part) for count, part in
                   zip((_RUNS - hits, alarms), levels, strict=True))
    excess, = curves.excesses(claims.curve(claim), [1 - miss], [alarm])
    assert details['excess'] == pytest.approx(excess)
    event, = [check for check in report.checks
              if check.name == 'distinguishing event']
    assert event.failed == (excess > 0) == (name == 'leaks')


def test_counts_follow_from_the_scores(reports):
  for report in reports.values():
    cut = partitions.Partition('', lambda scores: scores,
                               report.scores['edges'])
    for name, count in (('with_canary', 'true_positives'),
                        ('without_canary', 'false_positives')):
      scores = report.scores[name]
      assert scores.shape == (_RUNS,)
      flagged = report.scores['flagged'][cut.cells(scores)]
      assert flagged.sum() == report.details[count]


def test_the_event_is_counted_on_fresh_runs_of_the_chosen_side():
  """The event is counted on fresh runs, with the sides that the pilot chose.

  On pure noise the fresh counts sometimes contradict that choice.
  """
  seen, reverse, sides = [], 0, set()
  pairs = (Pair(np.zeros(2), np.zeros(2), 'a'), Pair(np.zeros(2), np.zeros(2),
                                                     'b'))

  def sample(key, data, size):
    seen.append(data[None] + _rng(key).normal(size=(size, 2)))
    return seen[-1]

  for key in jax.random.split(jax.random.key(6), 12):
    seen.clear()
    report = blackbox.audit(key, _gaussian(sample=sample, pairs=pairs),
                            num_runs=100, significance=_LEVEL)
    values = np.concatenate(seen)
    # Pilots of two pairs, another pilot of the chosen one, and counted runs.
    assert len(seen) == 8 and np.unique(values).size == values.size
    likely, other = seen[6:][::-1] if report.event.swapped else seen[6:]
    assert report.event.count(likely) == report.true_positives
    assert report.event.count(other) == report.false_positives
    np.testing.assert_array_equal(report.scores, [
        report.event.partition.score(side) for side in (likely, other)])
    sides.add(report.event.swapped)
    reverse += report.true_positives < report.false_positives
  assert 0 < reverse < 12 and len(sides) == 2  # Each fails with 5e-4.


@pytest.mark.parametrize('telling', [0, 1])
def test_one_half_of_a_pilot_makes_cells_and_the_other_chooses(telling):
  """One half of a pilot learns cells and the other half chooses the event.

  Here the event distinguishes the sides in one half only.
  """
  present = np.zeros((200, 1))
  present[100 * telling:100 * (telling + 1)] = -5.0
  curve = claims.curve(claims.Claim(epsilon=0.5, delta=0.0, adjacency=_ADD))
  event = blackbox.choose(curve, present, np.zeros((200, 1)), low_bits=False)
  assert (event.score > 0) == bool(telling)
  assert not telling or (event.count(present), event.count(0 * present)) in (
      (100, 0), (100, 200))


def _failed(target):
  return [check.name for check in auditor.audit(
      jax.random.key(4), target, num_runs=2000).failed]


@pytest.mark.every(2)
def test_noise_is_tested_on_both_sides_of_the_first_and_the_last_pair():
  """Noise tests cover both sides of the first and the last pair.

  One data set has 15 percent too much noise; the test's name says which.
  """
  bases = 5.0 * np.arange(4)[:, None] * np.ones(2)
  pairs = (Pair(bases[0], bases[0] + np.eye(2)[0]),
           Pair(bases[1], bases[1]), Pair(bases[2], bases[2] - np.eye(2)[1]))
  for number, pair in ((0, pairs[0]), (1, pairs[-1])):
    for side, place in zip('ab', pair[:2], strict=True):
      sample = lambda key, data, size, at=place: data[None] + (
          1 + 0.15 * np.array_equal(data, at)) * _rng(key).normal(
              size=(size, 2))
      names = _failed(_gaussian(sample=sample, pairs=pairs,
                                noise=Noise(stats.norm())))
      assert f'noise: variance ({number}{side})' in names
      assert all(name.endswith(f'({number}{side})') for name in names)


@pytest.mark.every(2)
def test_what_is_wrong_with_any_pair_is_found():
  """Each exact check finds the one faulty pair,
  wherever it stands in the list."""
  fine, wrong = Pair(np.zeros(1), np.ones(1)), Pair(np.zeros(1), -np.ones(1))
  laplace = _gaussian(
      noise=Noise(stats.laplace()), claim=claims.Claim(
          epsilon=1.0, delta=0.0, adjacency=_ADD),
      sample=lambda key, data, size: data[None] + _rng(key).laplace(
          size=(size, 1)))
  steep = lambda data, y: stats.laplace.logpdf(
      y[:, 0], data[0], 0.7 if data[0] < 0 else 1.0)
  query = Query(lambda data: data * (3 if data[0] < 0 else 1), 1.0)
  log_probs = lambda data: np.log([0.8, 0.2] if data[0] < 0 else [0.6, 0.4])
  for changes, name in (({'log_density': steep}, 'density ratio'),
                        ({'query': query}, 'sensitivity'),
                        ({'log_probs': log_probs, 'noise': None},
                         'exact distribution')):
    for pairs in ((fine, wrong), (fine, fine, wrong), (wrong, fine)):
      target = dataclasses.replace(laplace, pairs=pairs, **changes)
      if name == 'exact distribution':
        target = dataclasses.replace(
            target, claim=claims.Claim(epsilon=0.5, delta=0.0, adjacency=_ADD),
            sample=lambda key, data, size: (_rng(key).random(size) < np.exp(
                log_probs(data)[1])).astype(int))
      assert name in _failed(target)
    target = dataclasses.replace(target, pairs=(fine, fine))
    assert name not in _failed(target)


@pytest.mark.parametrize('cap, checks, verdict', [
    (2.0, [], auditor.CONSISTENT), (1.99, [], auditor.UNDERPOWERED),
    (math.nan, [], auditor.UNDERPOWERED),
    (1.0, ['exact distribution'], auditor.CONSISTENT),
    (1.0, ['privacy losses'], auditor.CONSISTENT),
    (1.0, ['grid'], auditor.UNDERPOWERED),
    (9.0, ['grid', '!grid'], auditor.VIOLATED),
    (1.0, ['exact distribution', '!distinguishing event'], auditor.VIOLATED)])
def test_verdicts(cap, checks, verdict):
  """A failed check means violated; a cap below the claim means underpowered.

  Otherwise the verdict is consistent.
  """
  report = Report(
      target='x', significance=0.05, cap=cap, claim=claims.Claim(
          epsilon=2.0, delta=1e-5, adjacency=_ADD),
      checks=tuple(Check(name.strip('!'), name[0] == '!', '')
                   for name in checks))
  assert report.verdict == verdict
  assert len(report.failed) == (verdict == auditor.VIOLATED)
  other = dataclasses.replace(report, beyond_cap=True).verdict
  assert other == (verdict if verdict == auditor.VIOLATED
                   else auditor.CONSISTENT)


def _game(shift, stddev=1.0):
  """Returns a game that releases a Gaussian
  with the given shift and deviation."""
  def losses(key):
    noise = stddev * _rng(key).normal(size=(2, 4000))
    return shift**2 / 2 + shift * noise[0], -shift**2 / 2 + shift * noise[1]
  return canary.LossGame(name='release', losses=losses, plan=TrainingPlan(
      sampler=PoissonSampler(num_examples=9, batch_size=9), num_steps=1,
      noise_multiplier=1.0, adjacency=_ADD))


def test_reports_of_games_follow_from_their_losses():
  key, honest = jax.random.key(7), _game(1.0)
  report = auditor.audit(key, honest, significance=_LEVEL)
  inside, outside = honest.losses(key)
  assert report.verdict == auditor.CONSISTENT and report.target == 'release'
  assert report.claim.event == honest.plan.event
  assert report.claim.num_examples == 9 and report.claim.adjacency is _ADD
  np.testing.assert_array_equal(report.scores['with_canary'], inside)
  np.testing.assert_array_equal(report.scores['without_canary'], outside)
  hits, alarms = (report.details[name] for name in (
      'true_positives', 'false_positives'))
  assert report.details['num_in'] == report.details['num_out'] == 2000
  # The threshold is counted on the second half of the runs, from either side.
  cuts = np.concatenate([inside[2000:], outside[2000:]])
  counts = [((inside[2000:] > cut).sum(), (outside[2000:] > cut).sum())
            for cut in cuts]
  assert (hits, alarms) in counts or (2000 - hits, 2000 - alarms) in counts
  assert report.epsilon_lower == pytest.approx(
      _lower_epsilon(hits, alarms, (_LEVEL / 2, _LEVEL / 2), 1e-5, 2000))
  assert report.cap == pytest.approx(
      _lower_epsilon(2000, 0, (_LEVEL / 2, _LEVEL / 2), 1e-5, 2000))
  assert 1 < report.epsilon_lower < report.claim.epsilon


def test_whatever_is_found_of_a_game_refutes_it():
  """Each finding of a game refutes it and becomes one failed check."""
  for shift in (1.0, 1.2, 4.0):
    game, key = _game(shift), jax.random.key(8)
    findings = canary.judge(game.plan, *game.losses(key)).findings
    report = auditor.audit(key, game)
    assert [check.detail for check in report.failed] == findings
    assert (report.verdict == auditor.VIOLATED) == bool(findings) == (
        shift > 1)
  for line in ('one', 'one, two'):
    played = canary.GameResult(line.split(', '), 0.0, *game.losses(key))
    with mock.patch.object(canary, 'judge', lambda *args, p=played: p):
      failed = auditor.audit(key, game).failed
    assert [check.detail for check in failed] == played.findings
