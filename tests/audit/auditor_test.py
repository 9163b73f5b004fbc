"""These tests audit small mechanisms: honest
ones pass, planted faults do not."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.audit import auditor
from dpjax.audit import claims
from dpjax.audit import wrapping
from dpjax.audit.target import Noise
from dpjax.audit.target import Pair
from dpjax.audit.target import Query
from dpjax.audit.target import Target
from dpjax.audit.target import toggles
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import selection
from dpjax.privacy.adjacency import Adjacency

_AR, _RO = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_GAUSSIAN = accounting.gaussian_event(noise_multiplier=1.0)
_KEY = jax.random.key(0)


def _rng(key):
  return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _clip(x):
  with np.errstate(invalid='ignore'):
    x = np.where(np.isfinite(x).all(-1, keepdims=True), x, 0.0)
  return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1.0)


def _total(x):
  return _clip(x).sum(0)


def _clip_after_sum(x):
  return _clip(np.where(np.isfinite(x), x, 0.0).sum(0))


def _clip_coordinates(x):
  return np.clip(np.where(np.isfinite(x), x, 0.0), -1, 1).sum(0)


def _nan_kept(x):
  return _total(x) + 0 * x.sum(0)


def _nan_empties_the_batch(x):
  return _total(x) if np.isfinite(x).all() else np.zeros(2)


def _fresh(rng, size, data):
  del data
  return rng.normal(size=(size, 2))


def _shared(rng, size, data):
  del data
  return np.repeat(rng.normal(size=(size, 1)), 2, axis=1)


def _one_coordinate(rng, size, data):
  del data
  return np.stack([rng.normal(size=size), np.zeros(size)], 1)


def _one_key(rng, size, data):
  del rng, data
  return np.tile(np.random.default_rng(5).normal(size=(1, 2)), (size, 1))


def _scaled_by_data(rng, size, data):
  largest = np.linalg.norm(_clip(data), axis=1).max(initial=0.1)
  return largest * rng.normal(size=(size, 2))


def _scaled(factor):
  return lambda rng, size, data: factor * _fresh(rng, size, data)


_AXIS = np.array([1.0, 0.0])
_RECORDS = np.array([[50.0, 0.0], [0.0, -1.0], [0.7, 0.7], [-9.0, 9.0],
                     [np.nan, 1.0], [np.inf, 0.0]])
_PAIRS = (*toggles(np.tile(-9 * _AXIS, (3, 1)), _RECORDS, replace=False),
          *toggles(np.zeros([2, 2]), _RECORDS[:4], replace=False))


def _sum(total=_total, noise=_fresh, *, pairs=_PAIRS, **changes):
  """Returns a target that sums with Gaussian noise, with faults planted."""
  def sample(key, data, size):
    return total(data)[None] + noise(_rng(key), size, data)

  fields = dict(name='sum', release=None, sample=sample, pairs=pairs,
                claim=claims.of_event(_GAUSSIAN, delta=1e-5, adjacency=_AR))
  return Target(**fields | changes)


def _audit(target, num_runs=4096, seed=0):
  return auditor.audit(jax.random.key(seed), target, num_runs=num_runs)


@pytest.mark.every(2)
def test_an_honest_sum_is_consistent():
  report = _audit(_sum())
  assert report.verdict == auditor.CONSISTENT and not report.failed
  assert 0.5 < report.epsilon_lower < report.claim.epsilon < report.cap
  assert report.claim.epsilon < report.detectable < 1.4 * report.claim.epsilon


@pytest.mark.every(5)
@pytest.mark.parametrize('total, noise', [
    (_total, _scaled(0.5)), (_total, _scaled(0.8)), (_total, _shared),
    (_total, _one_coordinate), (_total, _one_key), (_total, _scaled_by_data),
    (_clip_after_sum, _fresh), (_clip_coordinates, _fresh),
    (_nan_kept, _fresh), (_nan_empties_the_batch, _fresh),
    (lambda x: x[:, :2].sum(0), _fresh),
    (lambda x: np.array([_total(x)[0], len(x)]), _one_coordinate)])
def test_planted_faults_are_found_by_a_black_box(total, noise):
  with np.errstate(invalid='ignore'):
    report = _audit(_sum(total, noise))
  assert report.verdict == auditor.VIOLATED
  assert [check.name for check in report.failed] == ['distinguishing event']


@pytest.mark.every(2)
def test_the_figure_of_another_adjacency_is_found():
  pairs = (Pair(np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]])),)
  replaced = claims.of_event(_GAUSSIAN, delta=1e-5, adjacency=_RO)
  report = _audit(_sum(pairs=pairs, claim=replaced))
  assert report.verdict == auditor.UNDERPOWERED  # Of epsilon 10, by its cap.
  assert _audit(_sum(pairs=pairs)).verdict == auditor.VIOLATED


@pytest.mark.every(3)
def test_declared_noise_is_tested():
  noise = Noise(stats.norm(), value=_total)
  honest = dataclasses.replace(_sum(), noise=noise)
  assert not _audit(honest).failed
  for fault in (_scaled(1.05), _shared, _one_key, lambda rng, size, data:
                rng.laplace(scale=0.5**0.5, size=(size, 2))):
    report = auditor.audit(_KEY, dataclasses.replace(
        _sum(_total, fault), noise=noise), num_runs=4096)
    assert any(check.name.startswith('noise') for check in report.failed)


@pytest.mark.every(6)
def test_a_query_beyond_its_sensitivity_is_found():
  for value, verdict in ((_total, auditor.CONSISTENT),
                         (_clip_after_sum, auditor.VIOLATED),
                         (_nan_kept, auditor.VIOLATED)):
    with np.errstate(invalid='ignore'):
      report = _audit(_sum(query=Query(value, 1.0)))
    assert report.verdict == verdict
    assert [check.name for check in report.failed] == (
        ['sensitivity'] if verdict == auditor.VIOLATED else [])


def test_a_claim_below_its_event_is_refuted_before_anything_is_drawn():
  def never(key, data, size):
    raise AssertionError('drawn')

  target = dataclasses.replace(_sum(), sample=never, claim=claims.Claim(
      epsilon=4.0, delta=1e-5, adjacency=_AR, event=_GAUSSIAN))
  report = _audit(target)
  assert report.verdict == auditor.VIOLATED
  assert [check.name for check in report.failed] == ['claim']


def _exponential(factor=1.0, ratio=1.0):
  mechanism = selection.ExponentialMechanism(sensitivity=1.0, epsilon=1.0,
                                             adjacency=_RO)

  def sample(key, scores, size):
    gumbel = _rng(key).gumbel(size=(size, scores.size))
    return np.argmax(factor * scores / 2 + gumbel, 1)

  return dataclasses.replace(
      wrapping.of_mechanism(mechanism, delta=0.0), release=None, sample=sample,
      log_probs=lambda scores: jax.nn.log_softmax(ratio * scores / 2))


@pytest.mark.every(2)
def test_exact_laws_and_what_is_drawn_from_them():
  assert not _audit(_exponential()).failed
  names = lambda target: {check.name for check in _audit(target).failed}
  # The count is off by two in both, in the probabilities, or in the draws.
  assert names(_exponential(2.0, 2.0)) == {
      'exact distribution', 'distinguishing event'}
  assert names(_exponential(1.0, 2.0)) == {
      'exact distribution', 'distribution of outcomes'}
  assert names(_exponential(2.0, 1.0)) == {
      'distribution of outcomes', 'distinguishing event'}
  # Less privacy than claimed is a fault; more privacy is none.
  assert names(_exponential(0.5, 0.5)) == set()


def test_a_density_that_is_too_steep_is_found():
  pair = (Pair(np.zeros([1]), np.ones([1])),)

  def laplace(scale):
    return Target(
        name='laplace', release=None, pairs=pair,
        claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_AR),
        sample=lambda key, data, size: data + _rng(key).laplace(
            scale=scale, size=(size, 1)),
        log_density=lambda data, y: stats.laplace.logpdf(
            y[:, 0], data[0], scale))

  assert not _audit(laplace(1.0)).failed
  assert {check.name for check in _audit(laplace(0.8)).failed} == {
      'density ratio', 'distinguishing event'}


@pytest.mark.every(2)
def test_lowest_bits_count_where_it_is_claimed():
  def target(floating_point, spacing=0.0):
    def sample(key, data, size):
      noise = np.float32(_rng(key).laplace(size=(size, 1)))
      outputs = np.float32(data) + noise
      return np.round(outputs / spacing) * spacing if spacing else outputs

    return Target(name='float32', release=None, sample=sample,
                  pairs=(Pair(np.ones(1), np.zeros(1)),),
                  floating_point=floating_point, claim=claims.Claim(
                      epsilon=1.0, delta=0.0, adjacency=_AR))

  assert _audit(target(True)).verdict == auditor.VIOLATED
  report = _audit(target(False))
  assert report.verdict == auditor.CONSISTENT
  assert any('not counted' in check.detail for check in report.checks)
  assert _audit(target(True, 2.0**-9)).verdict == auditor.CONSISTENT


@pytest.mark.every(2)
def test_outputs_off_the_declared_grid_are_found():
  mechanism = additive.GaussianMechanism(record_norm=1.0, noise_multiplier=1.0,
                                         adjacency=_AR)
  target = dataclasses.replace(
      wrapping.of_mechanism(mechanism), release=None,
      sample=lambda key, data, size: data + _rng(key).normal(size=(size, 3)))
  assert 'grid' in {check.name for check in _audit(target).failed}


def test_few_runs_cannot_refute_a_large_epsilon():
  target = dataclasses.replace(_sum(), claim=claims.Claim(
      epsilon=8.0, delta=1e-5, adjacency=_AR))
  report = _audit(target, num_runs=200)
  assert report.verdict == auditor.UNDERPOWERED and report.cap < 8


def test_what_happens_rarely_is_no_violation():
  # This releases the record itself with probability delta: (0, delta)-DP.
  def target(prob, delta):
    return Target(
        name='lottery', release=None, pairs=(Pair(1.0, 0.0),),
        sample=lambda key, data, size: np.where(
            _rng(key).random(size) < prob, data, 0.5)[:, None],
        claim=claims.Claim(epsilon=0.1, delta=delta, adjacency=_RO))

  assert _audit(target(0.01, 0.01)).verdict == auditor.CONSISTENT
  assert _audit(target(0.03, 0.01)).verdict == auditor.VIOLATED


@pytest.mark.every(2)
def test_nothing_is_claimed_and_nothing_refuted():
  target = dataclasses.replace(_sum(), claim=claims.Claim(
      epsilon=math.inf, delta=1e-5, adjacency=_AR))
  report = _audit(target)
  assert not report.failed and report.verdict == auditor.UNDERPOWERED


@pytest.mark.every(3)
def test_false_alarms_are_within_the_significance():
  # 30 audits of a tight mechanism with tests of its noise, at 20 %: more than
  # 16 false alarms have probability 2e-5.
  target = dataclasses.replace(
      _sum(pairs=_PAIRS[:2]), noise=Noise(stats.norm(), value=_total))
  reports = [auditor.audit(jax.random.key(seed), target, num_runs=400,
                           significance=0.2) for seed in range(30)]
  assert stats.binom.sf(16, 30, 0.2) < 2e-5
  assert sum(report.verdict == auditor.VIOLATED for report in reports) <= 16


@pytest.mark.slow
def test_one_key_gives_one_report():
  one, other, third = (_audit(_sum(), seed=seed) for seed in (3, 3, 4))
  assert one.details == other.details != third.details
  np.testing.assert_array_equal(one.scores['with_canary'],
                                other.scores['with_canary'])


@pytest.mark.slow
def test_released_in_one_program_or_one_by_one():
  """Sampling gives the same distribution
  whether or not JAX can trace the release."""
  def traced(key, data):
    return data.sum() + additive.standard_normal(key, ())

  def host(key, data):
    return float(data.sum()) + _rng(key).normal()

  def impure(key, data):
    del key
    return data.sum() + np.random.normal()

  for release, can in ((traced, True), (host, False), (impure, False)):
    target = Target(name='x', release=release, claim=claims.Claim(
        epsilon=1.0, delta=0.0, adjacency=_AR),
        pairs=(Pair(np.ones(2, np.float32), np.zeros(3, np.float32)),))
    assert target.traced is can
    draws = target.draw(_KEY, jnp.ones(2), 300)
    assert draws.shape == (300, 1) and np.unique(draws).size == 300
    assert abs(draws.mean() - 2) < 0.4 and abs(draws.std() - 1) < 0.3
