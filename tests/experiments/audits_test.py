"""These tests check audit targets by name and
file, faults, scores and reports."""

import json

import jax
import numpy as np
import pytest

from dpjax.audit import auditor
from dpjax.audit import canary
from dpjax.audit import claims
from dpjax.audit.suite import calibration
from dpjax.audit.suite import finished
from dpjax.audit.suite import loading
from dpjax.audit.suite import mutations
from dpjax.audit.suite import reference
from dpjax.audit.suite import reports
from dpjax.audit.suite import showcases
from dpjax.audit.suite import targets
from dpjax.audit.target import Target
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import options

_AR = Adjacency.ADD_OR_REMOVE_ONE
_LEVEL = 1e-3 / len(reference.CHECKS)


@pytest.mark.slow
def test_the_reference_is_refuted_by_nothing():
  assert reference.findings(reference.Trainer(), seed=0) == set()


@pytest.mark.every(18)
@pytest.mark.parametrize('name', mutations.MUTANTS)
def test_every_mutant_is_caught_by_its_checks(name):
  mutant = mutations.MUTANTS[name]
  assert mutant.caught_by
  for check in mutant.caught_by:
    assert reference.CHECKS[check](mutant.trainer, np.random.default_rng(0),
                                   _LEVEL), check


@pytest.mark.every(2)
@pytest.mark.parametrize('change, name', [
    (dict(noise_multiplier=0.9), 'noise std x 0.9'),
    (dict(sampling_prob=0.02), 'rate doubled, unaccounted'),
    (dict(num_steps=2000), 'steps doubled, event tells')])
def test_true_epsilons_of_mutants(change, name):
  event = accounting.poisson_gaussian_event(**dict(
      sampling_prob=0.01, noise_multiplier=1.0, num_steps=1000) | change)
  assert accounting.epsilon(event, delta=1e-5, adjacency=_AR) == (
      pytest.approx(mutations.MUTANTS[name].true_epsilon, abs=2e-3))


def test_every_method_with_a_bound_has_a_name():
  # lip_printed shows a violation, and plain sgd has no claim.
  named = {name.removesuffix('_1').removesuffix('_inf')
           for name in targets.METHODS}
  assert named == set(options.METHODS) - {'sgd', 'lip_printed'}


# Showcases of quantiles are refuted in `quantile_audits_test`, not here.
@pytest.mark.slow
@pytest.mark.every(4)
@pytest.mark.parametrize('name', sorted(
    name for name in showcases.SHOWCASES
    if 'quantile' not in name and name != 'shuffled_as_poisson'))
def test_showcases_are_refuted(name):
  report = auditor.audit(jax.random.key(0), loading.load(name), num_runs=4096)
  assert report.verdict == targets.expected(name) == auditor.VIOLATED


def test_a_showcase_mended_is_not_refuted():
  target = loading.load('answers_counted_once_unseen', epsilon=8.0)
  report = auditor.audit(jax.random.key(0), target, num_runs=8192)
  assert target.claim.epsilon == 8 and not report.failed


@pytest.mark.slow
@pytest.mark.parametrize('name', ['laplace', 'exponential',
                                  'randomized_response'])
def test_mechanisms_are_not_refuted(name):
  report = auditor.audit(jax.random.key(0), loading.load(name), num_runs=2048)
  assert report.verdict == targets.expected(name) == auditor.CONSISTENT


_FILE = '''
import dataclasses
import jax, jax.numpy as jnp, numpy as np
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

EPSILON, ADJACENCY = 1.0, 'replace_one'

def noisy_count(key, data):
  return data.sum() + jax.random.laplace(key)

@dataclasses.dataclass(frozen=True)
class Sum:
  scale: float = 2.0
  adjacency = Adjacency.REPLACE_ONE
  record_shape = ()

  @property
  def event(self):
    return accounting.laplace_event(noise_multiplier=2.0)

  def release(self, key, data):
    kept = jnp.where(jnp.isfinite(data), data, 0.0)
    return jnp.clip(kept, -1, 1).sum() + self.scale * jax.random.laplace(key)

class Bare:
  record_shape, record_bounds = (), (0.0, 1.0)
  def release(self, key, data):
    return data.sum() + jax.random.laplace(key)

half = Sum(scale=1.0)
needs = lambda key: key

class Demanding:
  def __init__(self, something):
    pass
'''


@pytest.fixture
def file(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(_FILE)
  return path


@pytest.mark.slow
@pytest.mark.parametrize('name, said, verdict', [
    ('Sum', {}, auditor.CONSISTENT), ('half', {}, auditor.VIOLATED),
    ('Sum', dict(epsilon=0.9), auditor.VIOLATED),
    ('Bare', {}, auditor.CONSISTENT),
    ('Bare', dict(record_bounds=(-1.0, 1.0)), auditor.VIOLATED),
    ('noisy_count', dict(pairs=((np.ones(2, np.float32),
                                 np.zeros(2, np.float32)),)),
     auditor.VIOLATED),
    ('noisy_count', dict(pairs=((np.ones(2, np.float32),
                                 np.eye(2, dtype=np.float32)[0]),)),
     auditor.CONSISTENT)])
def test_objects_of_a_file(file, name, said, verdict):
  target = loading.load(f'{file}:{name}', **said)
  assert isinstance(target, Target)
  report = auditor.audit(jax.random.key(0), target, num_runs=2048)
  assert report.verdict == verdict


@pytest.mark.parametrize('name, message', [
    ('nothing', "unknown target 'nothing': it must be one of"),
    ('{file}:missing', 'has no missing'),
    ('{file}:EPSILON', 'neither a mechanism'), ('{file}:Demanding', 'neither a mech'),
    ('no.such.module:x', 'No module named'),
    ('{file}:noisy_count', 'does not define neighbours')])
def test_refuses_what_it_cannot_load(file, name, message):
  with pytest.raises(ValueError, match=message):
    loading.load(name.format(file=file))


def test_refuses_what_makes_no_sense(file):
  with pytest.raises(ValueError, match='claim of a training method'):
    loading.load('dp_sgd', epsilon=1.0)
  with pytest.raises(FileNotFoundError, match='no file'):
    loading.load('absent.py:x')
  with pytest.raises(ValueError, match='unknown colour: attributes are eps'):
    loading.load('laplace', colour='red')


@pytest.mark.slow
def test_reports_say_all_that_another_auditor_needs(tmp_path):
  report = auditor.audit(jax.random.key(0), loading.load('laplace'),
                         num_runs=1024)
  path = reports.write(report, tmp_path / 'new', seed=0)
  audit = json.loads(path.read_text())
  assert audit['verdict'] == 'consistent' and audit['cap'] > 4
  assert audit['claim']['event'].startswith('LaplaceDpEvent')
  assert {'estimator', 'canary', 'true_positives', 'num_in', 'threshold_rule',
          'significance', 'detectable_epsilon', 'seed', 'versions',
          'scores_sha256'} <= set(audit)
  with np.load(path.with_suffix('.npz')) as kept:
    from_scores = [
        int(kept['flagged'][np.searchsorted(kept['edges'], kept[side],
                                            side='right')].sum())
        for side in ('with_canary', 'without_canary')]
  assert from_scores == [audit['true_positives'], audit['false_positives']]
  assert 'laplace' in reports.summary(report).lower()


@pytest.mark.every(2)
def test_scores_that_runs_left_behind():
  rng = np.random.default_rng(0)
  claim = claims.Claim(epsilon=1.0, delta=0.0, adjacency=_AR)
  strong, none = rng.normal(3, 1, 2000), rng.normal(0, 1, 2000)
  coins = rng.random(2000) < 0.5
  many = dict(with_canary=strong, without_canary=none)
  one = dict(scores=np.where(coins, strong, none) - 1.5, included=coins)
  for estimator, arrays in (('many_runs', many), ('one_run', one),
                            ('anytime', one), (None, many)):
    report = finished.audit(arrays, claim, estimator=estimator)
    assert report.verdict == auditor.VIOLATED
    assert 1 < report.epsilon_lower < report.cap
  same = finished.audit(dict(with_canary=none, without_canary=none[::-1]),
                        claim)
  assert same.verdict == auditor.CONSISTENT and same.epsilon_lower == 0
  few = {name: values[:20] for name, values in many.items()}
  assert finished.audit(few, claims.Claim(
      epsilon=4.0, delta=0.0, adjacency=_AR)).verdict == auditor.UNDERPOWERED
  gaussian = claims.Claim(epsilon=5.0, delta=1e-5, adjacency=_AR)
  for estimator, arrays in (('many_runs_gaussian', many),
                            ('one_run_gaussian', one)):
    assert finished.audit(arrays, gaussian, estimator=estimator
                          ).epsilon_lower > 5
  # Where each coin has its own run, the same scores show more.
  joint, separate = (finished.audit(one, gaussian, estimator=name)
                     for name in ('one_run_gaussian', 'separate_runs_gaussian'))
  assert joint.epsilon_lower + 4 < separate.epsilon_lower < 40
  assert separate.epsilon_lower < separate.cap
  assert finished.audit(one, claim, estimator='separate_runs'
                        ).verdict == auditor.VIOLATED
  with pytest.raises(ValueError, match='scores must be with_canary'):
    finished.audit(dict(x=strong), claim)
  with pytest.raises(ValueError, match='anytime bound needs delta 0, got 1e-05'):
    finished.audit(one, gaussian, estimator='anytime')


@pytest.mark.slow
def test_bounds_cover_what_is_known():
  # 20 audits of each; `holds` is false with probability 1e-4 at most for each
  # of 40.
  rows = list(calibration.coverages(trials=20, seed=0))
  assert len(rows) == 40 and all(row.holds for row in rows)
  assert all(row.median > 0 for row in rows if row.epsilon)


@pytest.mark.slow
def test_a_game_of_losses_is_judged():
  plan = loading.load('dp_sgd').plan
  rng = np.random.default_rng(0)

  def game(shift):
    return canary.LossGame(name='x', plan=plan, losses=lambda key: (
        rng.normal(shift, 1, 2000), rng.normal(-shift, 1, 2000)))

  quiet = auditor.audit(jax.random.key(0), game(0.1))
  assert quiet.verdict == auditor.CONSISTENT and quiet.target == 'x'
  loud = auditor.audit(jax.random.key(0), game(20.0))
  assert loud.verdict == auditor.VIOLATED and loud.epsilon_lower > 4


@pytest.mark.slow
@pytest.mark.every(4)
@pytest.mark.parametrize('name', ['gaussian', 'laplace', 'exponential',
                                  'randomized_response'])
def test_false_alarms_of_honest_audits(name):
  # 5 % are allowed: more than 8 of 40 have probability 3e-4. The zoo counts
  # those of a thousand audits.
  assert calibration.false_alarms(loading.load(name), trials=40,
                                  num_runs=2048, seed=7) <= 8


@pytest.mark.slow
@pytest.mark.every(15)
@pytest.mark.parametrize('name', targets.TARGETS)
def test_every_target_gets_its_verdict(name):
  report = auditor.audit(jax.random.key(0), loading.load(name),
                         significance=0.05 / len(targets.TARGETS))
  assert report.verdict == targets.expected(name)
