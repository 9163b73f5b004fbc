"""Tests of record and replay on traced releases: faults and their sound twins.

The false alarm probability of every check here is at most 1e-6 for each pair
and 1e-4 for the identification of a noise family; keys are fixed.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.audit import claims
from dpjax.audit import replay
from dpjax.audit.suite import showcases
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency

_DATA = np.array([0.0, 0.5, 0.25, 1.0], np.float32)
_PAIR = Pair(_DATA, np.array([1.0, 0.5, 0.25, 1.0], np.float32), '0 or 1')


def _replay(release, *, epsilon=1.0, delta=0.0, pair=_PAIR, claim=None,
            num_runs=0):
  claim = claim or claims.Claim(epsilon=epsilon, delta=delta,
                                adjacency=Adjacency.REPLACE_ONE)
  return replay.audit(jax.random.key(0), Target(
      name='release', release=release, claim=claim, pairs=(pair,)),
                      sampled_runs=num_runs)


def _laplace(scale):
  return lambda key, data: jnp.sum(data) + scale * jax.random.laplace(key)


def test_a_sum_with_the_right_noise_is_judged():
  result = _replay(_laplace(1.0))
  assert result.judged and not result.violated and len(result.sites) == 1


def test_half_the_noise_is_a_proof_that_names_line_and_numbers():
  finding, = _replay(_laplace(0.5)).findings
  assert finding.how == 'proof' and 'laplace' in finding.draw
  assert finding.line.startswith('replay_test.py:')
  np.testing.assert_allclose(
      (finding.sensitivity, finding.scale, finding.allowed, finding.epsilon),
      (1.0, 0.5, 0.5, 2.0), rtol=1e-4)
  assert '\n' not in str(finding) and finding.line in str(finding)


@pytest.mark.parametrize('bound, violated', [(2.0, True), (1.0, False)])
def test_clipping_the_sum_does_not_clip_records(bound, violated):
  far = Pair(np.zeros(4, np.float32), np.full(4, 9.0, np.float32), '0 or 9')
  result = _replay(lambda key, data: jnp.clip(jnp.sum(data), 0, bound)
                   + jax.random.laplace(key), pair=far)
  assert result.violated == violated and result.judged


def test_a_coordinate_without_noise():
  def release(key, data):
    sums = jnp.stack([jnp.sum(data), jnp.sum(data**2)])
    return sums.at[0].add(2 * jax.random.laplace(key))
  finding, = _replay(release, epsilon=9.0).findings
  assert 'without noise' in finding.what and math.isinf(finding.epsilon)


def test_noise_that_is_zero_in_one_coordinate():
  def release(key, data):
    noise = jnp.array([1.0, 0.0]) * jax.random.laplace(key, (2,))
    return jnp.stack([jnp.sum(data), jnp.sum(data**2)]) + noise
  assert _replay(release, epsilon=9.0).violated


def _two_queries(scale):
  def release(key, data):
    first, second = jax.random.split(key)
    centre = jnp.mean(data) + 0.5 * jax.random.laplace(first)
    spread = jnp.mean(jnp.clip(data - centre, -1, 1))
    return centre, spread + scale * jax.random.laplace(second)
  return release


@pytest.mark.parametrize('scale, violated', [(0.1, True), (1.0, False)])
def test_a_second_query_that_depends_on_the_first_answer(scale, violated):
  result = _replay(_two_queries(scale))
  assert result.violated == violated and len(result.sites) == 2


def test_a_scale_that_was_released_before_is_public():
  def release(key, data):
    first, second = jax.random.split(key)
    centre = jnp.sum(data) + 2 * jax.random.laplace(first)
    scale = 2.0 + jnp.abs(centre)
    return centre, jnp.sum(data) + scale * jax.random.laplace(second)
  result = _replay(release)
  assert result.judged and not result.violated


@pytest.mark.parametrize('factor, violated', [(2.0, True), (1.0, False)])
def test_one_draw_for_two_values(factor, violated):
  # Equal changes cancel in the difference, so the second answer adds nothing.
  def release(key, data):
    noise = 2 * jax.random.laplace(key)
    return jnp.sum(data) + noise, factor * jnp.sum(data) + noise
  result = _replay(release, epsilon=0.5)
  assert result.violated == violated
  assert not violated or 'key reuse' in result.findings[0].what


def test_a_noisy_value_that_is_not_released_costs_nothing():
  def release(key, data):
    noise = jax.random.laplace(key)
    both = jnp.stack([jnp.sum(data), 2 * jnp.sum(data)]) + noise
    3 * jnp.sum(data) + noise  # A value that goes nowhere.
    return both[0]
  assert not _replay(release).violated


def test_one_key_for_two_draws():
  result = _replay(lambda key, data: (
      jnp.sum(data) + 2 * jax.random.laplace(key),
      2 * jnp.sum(data) + 5 * jax.random.laplace(key)), epsilon=5.0)
  assert 'key reuse' in result.findings[0].what


def test_a_seed_made_from_data():
  def release(key, data):
    del key
    seed = jnp.int32(100 * jnp.sum(data))
    return jnp.sum(data) + jax.random.laplace(jax.random.key(seed))
  finding, = _replay(release, epsilon=9.0).findings
  assert 'random bits that depend on data' in finding.what


def _branching(low, high):
  def release(key, data):
    total = jnp.sum(data)
    return jax.lax.cond(total > 2,
                        lambda: total + low * jax.random.laplace(key),
                        lambda: total + high * jax.random.laplace(key))
  return release


@pytest.mark.every(2)
def test_a_branch_on_data_that_changes_the_noise():
  result = _replay(_branching(0.01, 5.0), num_runs=4000)
  assert result.violated
  assert any('a branch on data' in str(finding)
             for finding in (*result.findings, *result.suspects))


def test_a_branch_without_effect_is_no_violation():
  assert not _replay(_branching(1.0, 1.0)).violated


def test_two_noises_of_one_distribution_are_not_accused():
  # Which of the noises is used depends on data, and nobody can tell.
  def release(key, data):
    both = data[None] + jax.random.laplace(key, (2, 4))
    return jnp.where(data > 0.5, both[0], both[1])
  result = _replay(release)
  assert not result.violated and not result.judged


_ROWS = np.array([[1, 0], [0, 1], [0.6, 0.8], [0.8, 0.6]], np.float32)
_POISSON = Pair((_ROWS, np.ones(4, bool)),
                (_ROWS, np.array([False, True, True, True])), 'first or none')


def _sampled(rate, scale, divided=False):
  def release(key, data):
    rows, present = data
    which, noise = jax.random.split(key)
    mask = jax.random.bernoulli(which, rate, (4,)) & present
    total = jnp.sum(jnp.where(mask[:, None], rows, 0.0), 0)
    noisy = total + scale * jax.random.normal(noise, total.shape)
    size = jnp.maximum(jnp.sum(mask), 1).astype(jnp.float32)
    return noisy / size if divided else noisy
  return release


def _poisson_replay(release):
  event = accounting.poisson_gaussian_event(
      sampling_prob=0.3, noise_multiplier=1.0, num_steps=1)
  return _replay(release, pair=_POISSON, claim=claims.of_event(
      event, delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE_ONE))


@pytest.mark.slow
@pytest.mark.parametrize('rate, scale, violated', [
    (0.3, 1.0, False), (0.3, 0.5, True), (0.6, 1.0, True)])
def test_a_poisson_sample_against_the_noise_inside_the_event(
    rate, scale, violated):
  result = _poisson_replay(_sampled(rate, scale))
  assert result.violated == violated and result.judged
  assert not violated or ('more often' in result.findings[0].what) == (
      rate > 0.3)


@pytest.mark.slow
def test_more_samples_than_the_event_has():
  def release(key, data):
    return [_sampled(0.3, 1.0)(k, data) for k in jax.random.split(key, 3)]
  assert '3 sampled values' in _poisson_replay(release).findings[0].what


@pytest.mark.slow
def test_laplace_noise_under_a_gaussian_claim_is_not_passed_over():
  def release(key, data):
    which, noise = jax.random.split(key)
    mask = jax.random.bernoulli(which, 0.3, (4,)) & data[1]
    total = jnp.sum(jnp.where(mask[:, None], data[0], 0.0), 0)
    return total + 0.1 * jax.random.laplace(noise, total.shape)
  result = _poisson_replay(release)
  assert not result.judged and 'not Gaussian' in result.suspects[0].what


@pytest.mark.slow
def test_division_by_the_drawn_batch_size_is_suspect():
  suspect, = _poisson_replay(_sampled(0.3, 1.0, divided=True)).suspects
  assert 'without noise' in suspect.what and 'bernoulli' in suspect.what


def _own_laplace(factor):
  def release(key, data):
    uniform = jax.random.uniform(key, minval=-0.5, maxval=0.5)
    noise = jnp.sign(uniform) * jnp.log(1 - 2 * jnp.abs(uniform))
    return factor * jnp.sum(data) - noise
  return release


@pytest.mark.parametrize('factor, violated', [(1.0, False), (2.0, True)])
def test_a_sampler_of_the_user_is_recognised(factor, violated):
  result = _replay(_own_laplace(factor))
  assert result.violated == violated and result.judged


@pytest.mark.slow
def test_gaussian_noise_through_a_matrix():
  # Correlated noise hides less along the direction in which it is small.
  root = np.array([[1.0, 0.0], [1.0, 0.1]], np.float32)

  def release(key, data):
    noise = root @ additive.standard_normal(key, (2,))
    return jnp.stack([jnp.sum(data), factor * jnp.sum(data)]) + noise
  shift = {factor: float(np.linalg.norm(np.linalg.solve(root, [1, factor])))
           for factor in (1.0, 2.0)}
  for factor, mu in shift.items():
    spent = accounting.gaussian_epsilon(shift=mu, delta=1e-5)
    assert not _replay(release, epsilon=1.01 * spent, delta=1e-5).violated
    finding, = _replay(release, epsilon=0.95 * spent, delta=1e-5).findings
    np.testing.assert_allclose(finding.epsilon, spent, rtol=1e-3)


def _voting(rate):
  def release(key, data):
    scores = rate * jnp.stack([data[0], 1 - data[0], data[1]])
    return jnp.argmax(scores + draws.standard_gumbel(key, (3,)))
  return release


@pytest.mark.parametrize('rate, violated', [(0.5, False), (1.5, True)])
def test_the_exponential_mechanism_costs_its_log_ratio(rate, violated):
  result = _replay(_voting(rate))
  assert result.violated == violated and result.judged


def test_noisy_scores_that_are_released_are_no_choice():
  result = _replay(lambda key, data: (
      data + draws.standard_gumbel(key, (4,)),), epsilon=0.1)
  assert not result.judged


@pytest.mark.parametrize('prob, violated', [
    (math.e / (1 + math.e), False), (0.9, True)])
def test_randomised_response_by_comparison(prob, violated):
  result = _replay(lambda key, data: jax.random.uniform(
      key, data.shape) < jnp.where(data > 0.5, prob, 1 - prob))
  assert result.violated == violated and result.judged


@pytest.mark.slow
def test_the_sparse_vector_is_not_accused():
  def release(key, data):
    keys = jax.random.split(key, 9)
    threshold = 1.0 + 2 * jax.random.laplace(keys[0])
    answers = jnp.stack([jnp.sum(data) + 4 * jax.random.laplace(k)
                         for k in keys[1:]])
    return jnp.argmax(jnp.append(answers >= threshold, True))
  result = _replay(release, num_runs=4000)
  assert not result.violated and not result.judged and result.sampled


def test_sums_that_overflow_have_a_large_sensitivity():
  def release(key, data):
    total = jnp.sum(data.astype(jnp.int8), dtype=jnp.int8)
    return total.astype(jnp.float32) + draws.discrete_laplace(key, (1,), 2.0)
  base = np.full(2, 64, np.int32)
  result = _replay(release, pair=Pair(base, base - [1, 0], '64 or 63'))
  assert result.findings[0].sensitivity == 255


def test_nan_counts_as_an_infinite_change():
  pair = Pair(_DATA, np.array([np.nan, 0.5, 0.25, 1], np.float32), 'NaN')
  assert math.isinf(_replay(_laplace(9.0), pair=pair).findings[0].epsilon)


@pytest.mark.slow
@pytest.mark.parametrize('name', [
    'classical_gaussian', 'printed_algorithm_8', 'exponential_without_half'])
def test_published_mistakes_of_sensitivity(name):
  result = replay.audit(jax.random.key(0), showcases.SHOWCASES[name](),
                        sampled_runs=0)
  assert result.violated and result.findings[0].how == 'proof'


def test_a_target_that_only_samples_is_refused():
  target = Target(name='sampler', release=None, pairs=(_PAIR,),
                  sample=lambda key, data, size: np.zeros([size, 1]),
                  claim=claims.Claim(epsilon=1.0, delta=0.0,
                                     adjacency=Adjacency.REPLACE_ONE))
  with pytest.raises(ValueError, match='no `release`'):
    replay.audit(jax.random.key(0), target)
