"""Tests of record and replay on releases in NumPy: faults and sound twins."""

import random

import jax
import numpy as np
import pytest

from dpjax.audit import claims
from dpjax.audit import replay
from dpjax.audit.recording import generators
from dpjax.audit.recording import tapes
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

_DATA = np.array([0.0, 0.5, 0.25, 1.0])
_PAIR = Pair(_DATA, np.array([1.0, 0.5, 0.25, 1.0]), '0 or 1')


def _replay(release, *, epsilon=1.0, delta=0.0, pair=_PAIR, num_runs=0):
  return replay.audit(jax.random.key(0), Target(
      name='release', release=release, pairs=(pair,), claim=claims.Claim(
          epsilon=epsilon, delta=delta, adjacency=Adjacency.REPLACE_ONE)),
                      sampled_runs=num_runs)


@replay.with_generator
def _sound(rng, data):
  return np.sum(data) + rng.laplace(scale=1.0)


@replay.with_generator
def _half(rng, data):
  return float(data.sum() + 0.5 * rng.laplace())


def _legacy(key, data):
  del key
  return data.sum() + np.random.laplace(0.0, 0.5)


def _python(key, data):
  del key
  return float(data.sum()) + random.gauss(0.0, 1.0)


@pytest.mark.parametrize('release, draw', [
    (_half, 'laplace'), (_legacy, 'laplace'), (_python, 'normal')])
def test_too_little_noise_names_the_line_and_the_draw(release, draw):
  finding, = _replay(release).findings
  assert finding.how == 'proof' and finding.draw.startswith(draw)
  assert finding.line.startswith('replay_python_test.py:')
  np.testing.assert_allclose(finding.sensitivity, 1.0)


def test_a_sound_sum_is_judged():
  result = _replay(_sound)
  assert result.judged and not result.violated and len(result.sites) == 1


@pytest.mark.parametrize('part, violated', [(1.02, False), (0.9, True)])
def test_gaussian_noise_against_its_exact_curve(part, violated):
  shift = accounting.gaussian_shift(epsilon=1.0, delta=1e-5)
  release = replay.with_generator(lambda rng, data: float(
      np.mean(data) + rng.normal(0, 0.25 * part / shift)))
  assert _replay(release, delta=1e-5).violated == violated


def test_a_public_offset_of_the_noise_does_not_matter():
  release = replay.with_generator(
      lambda rng, data: data.sum() + (3.0 - rng.laplace()) / 1.0)
  result = _replay(release)
  assert result.judged and not result.violated


def test_a_number_without_noise():
  release = replay.with_generator(
      lambda rng, data: [data.sum() + rng.laplace(), np.square(data).sum()])
  assert 'without noise' in _replay(release, epsilon=9.0).findings[0].what


def _adaptive(scale):
  @replay.with_generator
  def release(rng, data):
    centre = float(data.mean() + rng.laplace(scale=0.5))
    spread = np.clip(data - centre, -1, 1).mean()
    return [centre, float(spread + rng.laplace(scale=scale))]
  return release


@pytest.mark.parametrize('scale, violated', [(1.0, False), (0.1, True)])
def test_a_second_query_that_depends_on_the_first(scale, violated):
  assert _replay(_adaptive(scale)).violated == violated


def test_two_generators_without_seeds_are_independent():
  def release(key, data):
    del key
    return [data.sum() + np.random.default_rng().laplace(scale=2.0),
            2 * data.sum() + np.random.default_rng().laplace(scale=4.0)]
  result = _replay(release)
  assert result.judged and not result.violated


def test_one_draw_for_two_values():
  @replay.with_generator
  def release(rng, data):
    noise = rng.laplace()
    return [data.sum() + noise, 2 * data.sum() + noise]
  assert 'key reuse' in _replay(release, epsilon=9.0).findings[0].what


def test_a_noisy_value_that_is_not_released_is_not_accused():
  @replay.with_generator
  def release(rng, data):
    noise = rng.laplace()
    unused = 2 * data.sum() + noise
    return [data.sum() + noise, 0 * int(unused > 1e9)]
  assert not _replay(release).violated


@pytest.mark.parametrize('seed, word', [
    (lambda data: int(100 * data.sum()), 'data-dependent'),
    (lambda data: 3, 'fixed')])
def test_a_seed_that_is_no_secret(seed, word):
  def release(key, data):
    del key
    return float(data.sum() + np.random.default_rng(seed(data)).laplace())
  finding, = _replay(release, epsilon=9.0).findings
  assert word in finding.what


@pytest.mark.slow
def test_a_branch_on_data():
  @replay.with_generator
  def release(rng, data):
    total = float(data.sum())
    if total > 2:
      return total + rng.laplace(scale=0.1)
    return total + float(rng.laplace(scale=5.0, size=1)[0])
  result = _replay(release, num_runs=4000)
  assert result.violated and 'a branch on data' in result.findings[0].what


def test_noise_that_is_not_recorded_is_not_judged():
  def release(key, data):
    return float(np.sum(data)) + float(np.float32(jax.random.laplace(key)))
  result = _replay(release)
  assert not result.violated and not result.judged


@pytest.mark.parametrize('scale, violated', [(1.0, False), (0.5, True)])
def test_noise_of_other_libraries_is_reported(scale, violated):
  rng = np.random.default_rng(1)

  def release(key, data):
    del key
    return replay.noisy('mine', np.sum(data), rng.laplace(scale=scale),
                        scale=scale, family='laplace')
  result = _replay(release)
  assert result.violated == violated and len(result.sites) == 1


def test_a_sample_keeps_the_value_clean():
  @replay.with_generator
  def release(rng, data):
    return float(data[rng.random(len(data)) < 0.5].sum() + rng.laplace())
  assert not _replay(release).violated


def test_generators_are_restored_after_an_error():
  before = np.random.default_rng, np.random.laplace, random.gauss
  with pytest.raises(ZeroDivisionError):
    with generators.recording(tapes.Tape(0)):
      assert np.random.laplace is not before[1]
      raise ZeroDivisionError
  assert (np.random.default_rng, np.random.laplace, random.gauss) == before


def test_draws_behave_like_arrays():
  with generators.recording(tapes.Tape(0)) as tape:
    noise = np.random.default_rng(1).normal(size=(3,))
    noisy = 2 * noise + np.arange(3)
    assert noisy.shape == (3,) and len(noisy) == 3 and not tape.sites[1:]
    values = np.asarray(noisy)
    assert np.array_equal(np.round(noisy, 1), np.round(values, 1))
    assert (noisy > 0).dtype == bool and float(noisy[0]) == values[0]
  assert len(tape.sites) == 1
