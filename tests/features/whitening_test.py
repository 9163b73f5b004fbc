"""Tests the mechanism that whitens features by private second moments."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax import privacy
from dpjax.features import sums
from dpjax.features import whitening
from dpjax.features.whitening import PrivateWhitening
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_DRAWS = 1000


def _mechanism(**fields):
  return PrivateWhitening(**{**dict(noise_multiplier=3.0, num_examples=2,
                                    adjacency=ADD), **fields})


def _features(num, seed=0, shape=(2, 3, 4)):
  """Returns features [num, 2, 3, 4] of unequal channels and places."""
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(num, *shape)) * [1, 3, 0.3, 2] + [0, 1, 2, 0]
  return (x * np.arange(1, 7).reshape(2, 3, 1)).astype(np.float32)


# Records of two places and two channels: zero, along one axis or another, tiny,
# huge, and not numbers.
_DOMAIN = [((0.0, 0.0), (0.0, 0.0)), ((50.0, 0.0), (0.0, 0.0)),
           ((-50.0, 0.0), (0.0, 0.0)), ((0.0, 1e-30), (0.0, 0.0)),
           ((1e38, 1e38), (1e38, -1e38)), ((np.inf, 1.0), (np.nan, 1e30)),
           ((0.0, 0.0), (0.3, -0.4))]
_RELEASED = (jnp.float32([[0.4, 0.1], [-0.2, 0.3]]),
             jnp.float32([[1.3, 0.4], [0.4, 0.9]]))


@pytest.mark.sound
@pytest.mark.parametrize('number', range(3))
@pytest.mark.parametrize('adjacency, sizes', [(ADD, (0, 1, 2)), (REPLACE, (2,))])
def test_the_sensitivity_by_enumeration(adjacency, sizes, number):
  """Of each of the three sums, given what was released before."""
  mechanism = _mechanism(adjacency=adjacency)

  def total(dataset):
    data = np.float32(dataset).reshape(len(dataset), 2, 2)
    return np.asarray(list(mechanism.totals(data))[number](
        *_RELEASED[:number]), np.float64)

  found = neighbours.sensitivity(total, _DOMAIN, sizes, adjacency, order=2)
  claimed = mechanism.noise.l2_sensitivity
  # Opposite records are the farthest means. Second moments have norm 1 if a
  # record is of rank one, which few are after centring.
  attained = 1 if number == 0 else 0.5
  assert attained * claimed * (1 - 1e-5) <= found <= claimed


@pytest.mark.sound
def test_no_contribution_exceeds_the_record_norm():
  """Norms are at most 1 to the last digit, for many channels and sizes."""
  rng = np.random.default_rng(0)
  for places, channels in ((1, 1), (9, 81)):
    mean = jnp.asarray(rng.normal(size=(places, channels)) * 0.01, jnp.float32)
    matrix = jnp.asarray(rng.normal(size=(channels, channels)), jnp.float32)
    for scale in (1e-37, 1e-20, 1.0, 1e20, 1e36):
      x = (rng.standard_normal((1, places, channels)) * scale).astype('f')
      x[0, 0, 0] = scale  # Never all zeros, even if small numbers vanish.
      for total, given in zip(_mechanism().totals(x), (
          (), (mean,), (mean, matrix)), strict=True):
        norm = np.linalg.norm(np.asarray(total(*given), np.float64))
        # A matrix of rank r and trace 1 has norm 1 / sqrt(r) at least.
        assert min(places, channels)**-0.5 * 0.99 < norm <= 1


def test_a_record_of_zeros_contributes_nothing():
  """So blocks may be padded, and the sums do not depend on the blocks."""
  x = _features(sums._BLOCK + 3)
  zeros = np.concatenate([x, np.zeros_like(x)])
  mean = jnp.full((6, 4), 0.1, jnp.float32)
  given = (), (mean,), (mean, jnp.eye(4, dtype=jnp.float32))
  for one, two, values in zip(_mechanism().totals(x),
                              _mechanism().totals(zeros), given, strict=True):
    np.testing.assert_array_equal(one(*values), two(*values))


def test_second_moments_are_those_of_numpy():
  x = _features(10)
  unit = x.reshape(10, 24) / np.linalg.norm(x.reshape(10, 24), axis=1)[:, None]
  of_mean, of_channels, of_places = _mechanism().totals(x)
  np.testing.assert_allclose(of_mean(), unit.sum(0), atol=1e-5)
  mean = unit.mean(0) * 0.9
  centred = unit - mean
  rows = (centred / np.linalg.norm(centred, axis=1)[:, None]).reshape(10, 6, 4)
  mean = jnp.float32(mean.reshape(6, 4))
  np.testing.assert_allclose(
      whitening._matrix(of_channels(mean), 4),
      np.einsum('npc,npd->cd', rows, rows), atol=1e-5)
  identity = jnp.eye(4, dtype=jnp.float32)
  np.testing.assert_allclose(
      whitening._matrix(of_places(mean, identity), 6),
      np.einsum('npc,nqc->pq', rows, rows), atol=1e-5)


def _sums_have_the_noise(release):
  """Whether the three sums of no records are noise of the claimed law.

  Args:
    release: (mechanism, key) -> (mean, matrix of channels, of places), all of
      them sums.

  Returns:
    False with probability 1e-6 for noise as claimed.
  """
  mechanism = _mechanism()
  drawn = jax.vmap(lambda key: release(mechanism, key))(
      jax.random.split(jax.random.key(5), _DRAWS))
  scaled = np.concatenate([np.reshape(each, (_DRAWS, -1)) for each in drawn],
                          1) / mechanism.noise_multiplier
  law = stats.chi2(_DRAWS)
  squares = [*np.square(scaled).sum(0), *np.square(
      scaled @ np.linalg.qr(np.random.default_rng(0).normal(
          size=(scaled.shape[1], 3)))[0]).sum(0)]
  most = 1e-6 / 2 / len(squares)
  return all(law.ppf(most) < each < law.isf(most) for each in squares)


def _released(mechanism, key, splits=3):
  """Returns the three noisy sums of a release, with their matrices as vectors.

  It repeats what `release` does, so `test_a_release_is_that_of_its_sums` holds
  both against each other.
  """
  x = jnp.zeros((2, 2, 2), jnp.float32)
  keys = jax.random.split(key, 3)
  keys = [keys[min(i, splits - 1)] for i in range(3)]
  of_mean, of_channels, of_places = mechanism.totals(x)
  mean = mechanism.noise.release(keys[0], of_mean())
  given = (mean / 2).reshape(2, 2)
  channels = mechanism.noise.release(keys[1], of_channels(given))
  root = mechanism._root(channels, 2)
  places = mechanism.noise.release(keys[2], of_places(given, root))
  return mean, channels, places


@pytest.mark.sound
def test_noise_is_that_of_the_event():
  gaussian = privacy.gaussian_event(noise_multiplier=3.0)
  assert _mechanism().event == privacy.repeated_event(gaussian, 3)
  assert _sums_have_the_noise(_released)


def test_one_noise_for_two_sums_is_noticed():
  assert not _sums_have_the_noise(
      lambda mechanism, key: _released(mechanism, key, splits=2))


@pytest.mark.sound
def test_a_release_is_that_of_its_sums():
  """Nothing but the noisy sums reaches a whitening."""
  mechanism = _mechanism()
  for key in jax.random.split(jax.random.key(1), 5):
    released = mechanism.release(key, jnp.zeros((2, 2, 2), jnp.float32))
    mean, channels, places = _released(mechanism, key)
    np.testing.assert_allclose(released.mean.ravel(), mean / 2, 1e-6)
    np.testing.assert_allclose(released.channels,
                               mechanism._root(channels, 2), 1e-5, 1e-6)
    np.testing.assert_allclose(released.places, mechanism._root(places, 2),
                               1e-5, 1e-6)


@pytest.mark.every(3)
def test_with_much_budget_channels_and_places_are_equally_large():
  x = _features(3000)
  before = np.einsum('npc,npd->cd', *[x.reshape(3000, 6, 4)] * 2)
  assert np.linalg.cond(before) > 10
  mechanism = _mechanism(noise_multiplier=1e-6, num_examples=3000, floor=1e-3)
  rows = np.asarray(mechanism.release(jax.random.key(0), x)(x))
  assert rows.shape == x.shape
  np.testing.assert_allclose(np.linalg.norm(rows.reshape(3000, -1), axis=1), 1,
                             rtol=1e-5)
  rows = rows.reshape(3000, 6, 4)
  for moments in (np.einsum('npc,npd->cd', rows, rows),
                  np.einsum('npc,nqc->pq', rows, rows)):
    assert np.linalg.cond(moments) < 2


def test_noise_alone_changes_no_direction_much():
  """With more noise than signal, the floor is that of the noise."""
  x = _features(20)
  whiten = _mechanism(num_examples=20, noise_multiplier=1e4).release(
      jax.random.key(0), x)
  for matrix in (whiten.channels, whiten.places):
    values = np.linalg.eigvalsh(np.asarray(matrix, np.float64))
    assert values.min() > 0 and values.max() / values.min() < 2
  assert np.isfinite(whiten(x)).all()


def test_a_row_is_a_function_of_one_record():
  x = _features(9)
  whiten = _mechanism(num_examples=9).release(jax.random.key(0), x)
  order = np.array([4, 1, 8])
  np.testing.assert_allclose(whiten(x[order]), whiten(x)[order], rtol=1e-6,
                             atol=1e-7)


def test_records_of_zeros_remain_zero_and_others_that_are_not_finite_are_nan():
  x = _features(4)
  whiten = _mechanism(num_examples=4).release(jax.random.key(0), x)
  x[0] = 0
  x[1, 0, 1, 2], x[2, 1, 0, 0] = np.nan, -np.inf
  rows = np.asarray(whiten(x))
  assert not rows[0].any() and np.isnan(rows[1:3]).all()
  np.testing.assert_allclose(np.linalg.norm(rows[3]), 1, rtol=1e-5)


def test_the_interface_of_mechanisms():
  mechanism = _mechanism()
  assert isinstance(mechanism, privacy.Mechanism)
  assert mechanism.risk(4) is None
  whiten = jax.jit(mechanism.release)(jax.random.key(0),
                                      np.ones((2, 3), np.float32))
  assert len(jax.tree.leaves(whiten)) == 3


def test_refusals():
  for fields, message in (
      (dict(noise_multiplier=0.0), 'noise_multiplier must be a positive'),
      (dict(floor=0.0), 'floor must be a positive'),
      (dict(num_examples=0), 'num_examples must be an integer >= 1'),
      (dict(adjacency='replace_one'), 'adjacency')):
    with pytest.raises((ValueError, TypeError), match=message):
      _mechanism(**fields)
  mechanism = _mechanism(adjacency=REPLACE)
  with pytest.raises(ValueError, match='2'):
    mechanism.release(jax.random.key(0), np.ones((3, 2, 2), np.float32))
  with pytest.raises(ValueError, match='floats'):
    mechanism.release(jax.random.key(0), np.ones((2, 2), np.int32))
  assert dataclasses.replace(mechanism, floor=0.5).floor == 0.5
