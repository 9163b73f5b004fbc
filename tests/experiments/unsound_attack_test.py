"""These tests audit Algorithm 8 and the sound method (AUD-01)."""

import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.audit import empirical
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.training import algorithm_8
from experiments.unsound import attack
from experiments.unsound import run
from experiments.unsound import sweep
from experiments.unsound import trained


@pytest.fixture(scope='module')
def problem():
  return attack.make_problem(jax.random.key(0), num_examples=1000,
                             num_features=20, canaries=(3.0, 10.0, 100.0))


@pytest.mark.slow
def test_attacked_sums_are_those_of_the_algorithm():
  # The simulated projection is compared with LDP-01 and LDP-04 in full.
  size, key = 12, jax.random.key(5)
  small = attack.make_problem(key, num_examples=size, num_features=4,
                              canaries=(3.0, 50.0))
  x, y, theta = attack.make_records(key, num_examples=size, num_features=4)
  labels = (y > 0).astype(jnp.int32)
  algorithm = algorithm_8.PrintedLipDpSgd(
      loss=lambda logits, labels: jax.nn.softplus(
          -(2 * labels - 1).astype(jnp.float32) * logits[:, 0]),
      loss_lipschitz=1.0, noise_multiplier=1.0, weight_norm=9.0,
      learning_rate=0.0, sampling_prob=0.5, allow_unsound=True)
  sums = jax.jit(lambda x, y, rows: algorithm.scaled_sums(
      (theta[:, None],), x, y, rows)[0][:, 0])
  gradient = sums(x, labels, jnp.ones([size], jnp.bool_))
  direction = gradient / jnp.linalg.norm(gradient)
  mask = jnp.arange(size) % 3 > 0
  outside, inside = attack._noiseless(small, mask[None])
  for canary in range(2):
    far = small.canary_norms[canary] * direction
    xs = jnp.concatenate([x, far[None]])
    ys = jnp.append(labels, jnp.int32(1))
    for present, simulated in ((False, outside), (True, inside)):
      rows = jnp.append(mask, present)
      np.testing.assert_allclose(simulated[0, 0, canary],
                                 sums(xs, ys, rows) @ direction, rtol=2e-4)
      single = sum(sums(xs, ys, jnp.arange(size + 1) == row) @ direction
                   for row in np.flatnonzero(rows))
      np.testing.assert_allclose(simulated[0, 1, canary], single, rtol=2e-4)


@pytest.mark.every(2)
def test_one_record_moves_the_sound_sum_by_at_most_one(problem):
  masks, _ = attack._batches(jax.random.key(2), problem, 0.1, 200)
  outside, inside = attack._noiseless(problem, masks)
  change = np.abs(np.asarray(inside - outside))
  assert change[:, 1].max() <= 1 + 1e-4  # LDP-04, and it is attained:
  assert change[:, 1].max() > 0.99
  assert change[:, 0].max() > 7  # LDP-01, at Delta = 1


_SIGMA = 3.944


def _audits(problem, runs, seed=0):
  keys = jax.random.split(jax.random.key(seed), 3)
  prob = 429496730 / 2**32
  moments = attack.estimate_moments(keys[0], problem, sampling_prob=prob,
                                    num_batches=1000)
  statistics = [attack.statistics(
      key, problem, moments, present=present, num_steps=100, num_runs=runs,
      noise_multipliers=jnp.asarray([_SIGMA]), sampling_prob=prob)
      for key, present in zip(keys[1:], (True, False), strict=True)]
  return {
      (method, canary, name): empirical.audit(
          *(f[name][:, place, number, 0] for f in statistics), delta=1e-5)
      for place, method in enumerate(attack.METHODS)
      for number, canary in enumerate((3, 10, 100))
      for name in attack.STATISTICS}


@pytest.fixture(scope='module')
def audits(problem):
  return _audits(problem, 1000)


def test_sigma_of_the_audit_claims_one():
  event = accounting.poisson_gaussian_event(
      sampling_prob=0.1, noise_multiplier=_SIGMA, num_steps=100)
  assert accounting.epsilon(event, delta=1e-5,
                            adjacency=Adjacency.ADD_OR_REMOVE_ONE) == (
      pytest.approx(1.0, abs=1e-3))


@pytest.mark.slow
@pytest.mark.parametrize('canary, area', [(3, .770), (10, .907), (100, .941)])
def test_ldp_01_is_refuted(audits, canary, area):
  # Reference areas come from other data: within 0.06 by either statistic.
  sum_, ratio = (audits['lip_printed', canary, name]
                 for name in attack.STATISTICS)
  assert sum_.area_under_curve - 0.03 < area < ratio.area_under_curve + 0.06
  assert max(sum_.epsilon_lower, ratio.epsilon_lower) > 1.0
  # The record shrinks the sum and makes the likelihood ratio large.
  assert sum_.threshold.side == -1 and ratio.area_under_curve > 0.7


@pytest.mark.slow
@pytest.mark.parametrize('canary', [3, 10, 100])
@pytest.mark.parametrize('name', attack.STATISTICS)
def test_ldp_04_is_not_refuted(audits, canary, name):
  result = audits['lip_scaled', canary, name]
  assert not result.refutes(1.0)
  # An attack that finds nothing may have an area on either side of 1/2.
  area = result.area_under_curve
  assert 0.5 < max(area, 1 - area) < 0.65


@pytest.mark.slow
def test_without_a_canary_there_is_nothing_to_find(problem):
  absent = lambda *args, present, **kwargs: _HONEST(
      *args, present=False, **kwargs)
  with mock.patch.object(attack, 'statistics', absent):
    by_case = _audits(problem, 500)
  assert all(result.epsilon_lower < 0.3 for result in by_case.values())


_HONEST = attack.statistics


# The tests below train with Algorithm 8.

@pytest.fixture(scope='module')
def experiment():
  return trained.load(seed=0)


@pytest.mark.slow
def test_the_added_record_is_within_public_bounds(experiment):
  x = np.asarray(experiment.records.x)
  assert x.shape == (456, 30) and set(np.abs(x[-1])) == {1.0}
  norms = np.linalg.norm(x, axis=1)
  assert norms[-1] == pytest.approx(math.sqrt(30))
  assert norms[:-1].max() < 0.7 * norms[-1]


def _train(experiment, runs, noise, present):
  algorithm = trained.make_algorithm(noise_multiplier=noise,
                                     sampling_prob=256 / 455)
  kernels = trained.initial_kernels(jax.random.key(1), num_features=30,
                                    num_classes=2, num_layers=1)
  return trained.run_many(jax.random.key(2 + present), algorithm, kernels,
                          experiment, present=present, num_steps=20,
                          num_runs=runs)


@pytest.mark.slow
def test_it_trains_and_is_caught(experiment):
  case = sweep.CASES['training']['smoke']
  noise = run._calibrate(case, case.sampling_prob, 1.0)
  outcomes = [_train(experiment, 120, noise, p) for p in (True, False)]
  assert outcomes[1].accuracies.mean() > 0.85
  result = empirical.audit(*(o.statistics for o in outcomes), delta=1e-5)
  assert result.refutes(1.0)
  same = empirical.audit(outcomes[1].statistics[:60],
                         outcomes[1].statistics[60:], delta=1e-5)
  assert same.epsilon_lower < 0.5


@pytest.mark.slow
def test_training_rows_say_that_epsilon_is_not_valid():
  setting = next(s for s in sweep.SMOKE if s.kind == 'training')
  rows = dict((row.metric, row) for row in run._training(
      setting, None, lambda *_: None))
  assert not any(row.epsilon_valid for row in rows.values())
  assert rows['epsilon_claimed'].value == 1.0
  assert rows['test_accuracy'].dataset == 'breast_cancer'


@pytest.mark.slow
def test_audit_rows_of_both_methods():
  group = tuple(s for s in sweep.SMOKE if s.kind == 'audit')
  by_method = {setting.method: rows for setting, rows in run.run(
      group, None, lambda *_: None)}
  assert set(by_method) == set(attack.METHODS)
  assert all(row.epsilon_valid for row in by_method['lip_scaled'])
  assert not any(row.epsilon_valid for row in by_method['lip_printed'])
  best = {method: max(row.value for row in rows
                      if row.metric.startswith('epsilon_lower'))
          for method, rows in by_method.items()}
  assert best['lip_scaled'] <= 1.0 < best['lip_printed']
