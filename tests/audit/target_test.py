"""These tests draw releases in one program, one by one, or in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.audit import claims
from dpjax.audit import target as targets
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency

pytestmark = pytest.mark.every(1)

_KEY = jax.random.key(5)


def _target(release, data=(1.0, 2.0), **changes):
  data = np.array(data, np.float32)
  return Target(name='x', release=release, claim=claims.Claim(
      epsilon=1.0, delta=0.0, adjacency=Adjacency.ADD_OR_REMOVE_ONE),
      pairs=(Pair(data, 0 * data, 'data or none'),), **changes)


def _words(key, data):
  """Returns a release of two leaves: uniform draws and the sum of the data."""
  return {'a': jax.random.bits(key, (2,)).astype(jnp.float32) / 2.0**32,
          'b': jnp.sum(data)}


def _host(key, data):
  """Returns the same release by NumPy, which JAX cannot trace."""
  bits = np.asarray(jax.random.bits(key, (2,)))
  return {'a': bits.astype(np.float32) / 2.0**32, 'b': float(data.sum())}


def test_what_can_be_traced_is_found_out():
  assert _target(_words).traced and not _target(_host).traced
  # Random numbers that do not come from the key are constants of the program.
  assert not _target(lambda key, data: data + np.random.normal()).traced
  assert not _target(lambda key, data: data + jnp.asarray(
      np.random.normal(size=3))[:2].astype(jnp.float32)).traced
  assert not _target(None, sample=lambda key, data, n: np.zeros(n)).traced


def test_releases_are_rows_each_of_a_key_of_its_own():
  for release in (_words, _host):
    draws = _target(release).draw(_KEY, np.array([3., 4.], np.float32), 40)
    assert draws.shape == (40, 3) and draws.dtype == np.float64
    assert np.unique(draws[:, :2]).size == 80 and np.all(draws[:, 2] == 7)
    assert .3 < draws[:, :2].mean() < .7
  given = _target(None, sample=lambda key, data, n: [
      np.full((n, 2, 2), data), np.arange(n)]).draw(_KEY, 2.5, 3)
  assert given.tolist() == [[2.5] * 4 + [k] for k in range(3)]


@pytest.mark.parametrize('numbers, size', [(30, 10), (9, 2), (2, 1)])
def test_batches_hold_so_many_numbers_at_most(monkeypatch, numbers, size):
  """A batch holds at most `_NUMBERS` numbers, and at least one release."""
  monkeypatch.setattr(targets, '_NUMBERS', numbers)
  monkeypatch.setattr(targets, '_DATA_SETS', 2)
  monkeypatch.setattr(targets, '_RUNS', 5)
  target = _target(_words)
  compiled, sizes = target._side_by_side, []
  target.__dict__['_side_by_side'] = lambda keys, data: sizes.append(
      keys.size) or compiled(keys, data)
  draws = target.draw(_KEY, np.ones(2, np.float32), 11)
  assert draws.shape == (11, 3) and np.unique(draws[:, :2]).size == 22
  assert sizes == [size] * -(-11 // size)


def test_releases_with_the_same_keys_differ_by_the_data_only():
  one, two, three = (np.array(data, np.float32)
                     for data in ([1., 2.], [3., 4.], [5.]))
  for release in (_words, _host):
    target = _target(release)
    drawn = target.draw_alike(_KEY, [one, three, two], 5)
    assert [outputs.shape for outputs in drawn] == [(5, 3)] * 3
    np.testing.assert_array_equal(drawn[0][:, :2], drawn[2][:, :2])
    assert [set(outputs[:, 2]) for outputs in drawn] == [{3.0}, {5.0}, {7.0}]
    assert np.unique(drawn[0][:, :2]).size == 10


def test_errors_of_a_release_are_returned_for_its_data_sets():
  def release(key, data):
    if data.size == 1:
      raise ValueError('one record')
    return data.sum()
  for given in (release, lambda key, data: float(release(key, data))):
    drawn = _target(given).draw_alike(
        _KEY, [np.zeros(2, np.float32), np.zeros(1, np.float32)], 3)
    assert drawn[0].shape == (3, 1) and isinstance(drawn[1], ValueError)


def test_64_bits_are_for_those_who_ask():
  for double in (True, False):
    target = _target(lambda key, data: data / 3, double_precision=double)
    output = target.draw(_KEY, np.array([1.0, 2.0]), 1)[0, 0]
    assert (output == 1 / 3) == double and output == pytest.approx(1 / 3)


def test_data_are_arrays_of_jax():
  converted = targets.arrays([1.5, 2.5])
  assert isinstance(converted, jax.Array) and converted.tolist() == [1.5, 2.5]
  converted = targets.arrays({'x': np.arange(2), 'y': 3, 'z': (True, _KEY)})
  assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(converted))
  assert converted['z'][1] is _KEY and converted['x'].tolist() == [0, 1]


def test_a_target_has_a_release_and_neighbours():
  with pytest.raises(ValueError, match='neither release nor sample'):
    _target(None)
  with pytest.raises(ValueError, match='no pairs of neighbours'):
    Target(name='x', release=_words, claim=_target(_words).claim, pairs=())


def test_constant_keys_may_be_part_of_a_release():
  """A release may use a constant key, which is equal in every trace.

  Keys cannot be compared as numbers.
  """
  fixed = jax.random.key(9)
  release = lambda key, data: jnp.sum(data) + jax.random.uniform(
      jax.random.fold_in(fixed, jax.random.bits(key)))
  target = _target(release)
  assert target.traced
  draws = target.draw(_KEY, np.ones(2, np.float32), 30)
  assert np.unique(draws).size == 30 and (draws >= 2).all()
