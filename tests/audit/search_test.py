"""These tests check that audits find the neighbours at which a release leaks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.audit import auditor
from dpjax.audit import claims
from dpjax.audit import mining
from dpjax.audit import ranking
from dpjax.audit import search
from dpjax.audit import spaces
from dpjax.audit.suite import loading
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency

_AR, _RO = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_KEY = jax.random.key(0)
_UNIT = dict(bounds=(0.0, 1.0))
_THRESHOLD = 0.83


def _target(release, adjacency=_RO, epsilon=1.0, **fields):
  return Target(name='x', release=release, claim=claims.Claim(
      epsilon=epsilon, delta=0.0, adjacency=adjacency),
      space=spaces.Records(adjacency=adjacency, **fields))


def _noisy(value):
  """Returns the release of a function of data with Laplace noise of scale 1."""
  return lambda key, data: value(data) + jax.random.laplace(key)


def _count(condition):
  """Returns how many entries are true, as a float."""
  return jnp.sum(condition, dtype=jnp.float32)


def _one_noisy(size):
  """Returns a sum with too little noise for data sets of one size only."""
  return lambda key, data: data.sum() + jax.random.laplace(key) * (
      0.1 if data.shape[0] == size else 1.0)


def _sorted_ties(data):
  ordered = jnp.sort(data)
  return 6.0 * _count(jnp.any(ordered[1:] == ordered[:-1]))


# Faults that show at few neighbours, and what the worst pair then has.
_FAULTS = {
    'no noise, and equal at both ends': (
        _target(lambda key, data: jnp.sum(data * (1 - data)), **_UNIT)),
    'one category of twenty': _target(
        _noisy(lambda data: 5.0 * _count(data == 17)), num_categories=20),
    'one record': _target(_one_noisy(1), _AR, **_UNIT),
    'no record': _target(_one_noisy(0), _AR, **_UNIT),
    'all records equal': _target(
        _noisy(lambda data: 9.0 * _count(jnp.all(data == data[:1]))), **_UNIT),
    'a constant of the code': _target(
        _noisy(lambda data: 5.0 * _count(data == 0.37)), _AR, **_UNIT),
    'a constant in a variable': _target(
        _noisy(lambda data: 5.0 * _count(
            jnp.abs(data - _THRESHOLD) < 1e-6)), **_UNIT),
    'the largest values': _target(
        _noisy(lambda data: 5.0 * _count(data > 0.9)), _AR, **_UNIT),
    'an inner maximum': _target(
        _noisy(lambda data: 16.0 * jnp.sum(data**2 * (1 - data))), _AR, **_UNIT),
    'a narrow maximum': _target(_noisy(lambda data: 3.0 * jnp.sum(
        jnp.exp(-200 * jnp.square(data - 0.4326)))), **_UNIT),
    'overflow of int8': _target(_noisy(lambda data: jnp.sum(
        data, dtype=jnp.int8).astype(jnp.float32) / 20), dtype=np.int8, bounds=(0, 20)),
    'ties': _target(_noisy(_sorted_ties), **_UNIT),
    'two coordinates': _target(_noisy(lambda data: 3.0 * jnp.sum(
        data[:, 0] * (1 - data[:, 1]))), shape=(2,), **_UNIT),
    'NumPy, which is not traced': _target(
        lambda key, data: 5.0 * np.sum(np.asarray(data) == 17) +
        np.random.default_rng(np.asarray(
            jax.random.key_data(key))).laplace(), num_categories=20),
}


@pytest.mark.every(17)
@pytest.mark.parametrize('name', _FAULTS)
def test_a_fault_at_few_neighbours_is_found(name):
  report = auditor.audit(_KEY, _FAULTS[name], num_runs=2**12)
  assert report.verdict == auditor.VIOLATED
  assert report.epsilon_lower > 1 and report.influenced
  assert 'distinguishing event' in [check.name for check in report.failed]


_SOUND = {
    'sum': _target(_noisy(jnp.sum), **_UNIT),
    'sum, added': _target(_noisy(jnp.sum), _AR, **_UNIT),
    'integers': _target(_noisy(lambda data: jnp.sum(
        data, dtype=jnp.int32).astype(jnp.float32) / 20), dtype=np.int8, bounds=(0, 20)),
    'clipped': _target(_noisy(lambda data: jnp.sum(jnp.clip(
        jnp.nan_to_num(data), 0, 1))), _AR),
    'category': _target(_noisy(lambda data: _count(data == 17)), _AR,
                        num_categories=20),
}


@pytest.mark.every(5)
@pytest.mark.parametrize('name', _SOUND)
def test_a_sound_release_is_not_refuted_and_its_bound_is_near(name):
  report = auditor.audit(_KEY, _SOUND[name], num_runs=2**14)
  assert report.verdict == auditor.CONSISTENT
  assert 0.75 < report.epsilon_lower <= 1
  assert report.tried['num_pairs'] > 100
  assert 0 < len(report.tried['pairs']) <= 500
  # The worst pair is the one that was counted on, by larger pilots.
  assert report.tried['worst'] == report.details['canary']
  assert report.tried['worst'] in [
      one['pair'] for one in report.tried['pairs'][:50]]


@pytest.mark.slow
def test_the_search_does_not_raise_the_rate_of_false_alarms():
  """A tight release is refuted at most as often as the significance says."""
  target, trials, significance = _SOUND['sum'], 60, 0.2
  alarms = sum(auditor.audit(jax.random.key(seed), target, num_runs=500,
                             significance=significance).verdict ==
               auditor.VIOLATED for seed in range(trials))
  assert stats.binom.sf(alarms - 1, trials, significance) > 1e-3
  # A claim that is slightly too low is refuted far more often.
  low = _target(target.release, epsilon=0.6, **_UNIT)
  found = sum(auditor.audit(jax.random.key(seed), low, num_runs=500,
                            significance=significance).verdict ==
              auditor.VIOLATED for seed in range(10))
  assert found >= 5


@pytest.mark.every(2)
def test_outputs_that_never_differ_are_not_called_consistent():
  for release in (lambda key, data: jax.random.laplace(key),
                  lambda key, data: jnp.zeros(())):
    report = auditor.audit(_KEY, _target(release, **_UNIT), num_runs=2**12)
    assert report.verdict == auditor.UNDERPOWERED and not report.influenced
    assert any('no outputs of' in check.detail for check in report.checks)


@pytest.mark.slow
def test_shapes_of_outputs_can_be_a_violation():
  release = lambda key, data: data + jax.random.laplace(key, data.shape)
  report = auditor.audit(_KEY, _target(release, _AR, **_UNIT, sizes=(2,)),
                         num_runs=200)
  assert [check.name for check in report.failed] == ['shape of the outputs']
  report = auditor.audit(_KEY, _target(release, **_UNIT, sizes=(2,)),
                         num_runs=2**12)
  assert not report.failed


@pytest.mark.every(2)
def test_sizes_that_a_release_rejects_are_reported_and_left_out():
  def release(key, data):
    if data.shape[0] < 2:
      raise ValueError('at least 2 records')
    return data.sum() + jax.random.laplace(key)
  report = auditor.audit(_KEY, _target(release, **_UNIT), num_runs=2**12)
  assert report.verdict == auditor.CONSISTENT
  assert report.tried['num_rejected'] > 0
  assert 'at least 2 records' in report.tried['rejected'][0]['error']
  with pytest.raises(ValueError, match='at least 2 records'):
    auditor.audit(_KEY, _target(release, sizes=(1,), **_UNIT), num_runs=200)


def test_given_pairs_are_the_only_ones():
  data = np.zeros([3], np.float32)
  pair = Pair(data, data + np.eye(3, dtype=np.float32)[0], 'as given')
  target = Target(name='x', release=_noisy(jnp.sum), pairs=(pair,),
                  claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_RO))
  found = search.search(_KEY, target)
  assert [one.pair for one in found.candidates] == [pair] and found.influenced


@pytest.mark.slow
def test_an_audit_is_determined_by_its_key():
  target = _FAULTS['an inner maximum']
  one, other = (search.search(_KEY, target) for _ in range(2))
  assert one.tried() == other.tried()
  assert one.tried() != search.search(jax.random.key(1), target).tried()


@pytest.mark.slow
def test_a_budget_is_kept_and_buys_runs():
  lines = []
  report = auditor.audit(_KEY, _SOUND['sum'], budget_seconds=4.0,
                         progress=lines.append)
  assert report.details['num_in'] >= 2**10 and report.verdict in (
      auditor.CONSISTENT, auditor.UNDERPOWERED)
  assert any(line.startswith('search:') for line in lines)
  assert any(line.startswith('count:') for line in lines)


def test_distances_are_in_units_of_the_spread():
  rng = np.random.default_rng(0)
  noise = rng.normal(size=(4000, 2))
  shift = np.array([0.674, 0.0])  # median distance of a standard normal
  assert ranking.distance(noise, noise + shift) == pytest.approx(1.0, rel=0.05)
  assert ranking.distance(9 * noise, 9 * noise) == 0
  assert ranking.distance(np.zeros([5, 1]), np.ones([5, 1])) == 1e6
  hostile = np.array([[np.nan], [np.inf], [1.0]])
  assert ranking.distance(hostile, hostile) == 0
  assert ranking.distance(hostile, np.ones([3, 1])) > 1e5


def _uses_constants(key, data):
  cut = 0.25
  return jnp.where(data > cut, -3.5, data / 7).sum() + jax.random.normal(key)


def test_constants_come_from_source_and_trace():
  data = np.zeros([2], np.float32)
  assert {0.25, -3.5, 7.0} <= set(mining.constants(_uses_constants, data))
  assert {0.25, -3.5, 7.0} <= set(mining.constants(jax.jit(_uses_constants),
                                                   data))
  # Variables of the function, and numbers of functions that it calls.
  bound = 4.75
  inner = lambda key, data: _uses_constants(key, data) + bound
  assert {4.75, 0.25} <= set(mining.constants(inner, data))
  assert mining.constants(lambda key, data: data, data) == ()


@pytest.mark.every(2)
def test_attributes_of_a_file_describe_records(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text('''
import jax
EPSILON, ADJACENCY, NUM_CATEGORIES, NUM_RECORDS = 1.0, 'replace_one', 20, 3
def release(key, data):
  return 5.0 * (data == 17).astype('float32').sum() + jax.random.laplace(key)
''')
  target = loading.load(f'{path}:release')
  assert target.space.sizes == (3,) and target.space.num_categories == 20
  assert auditor.audit(_KEY, target, num_runs=2**12).verdict == (
      auditor.VIOLATED)
