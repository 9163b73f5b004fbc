"""Tests group normalisation, and the mechanism of private normalisation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax import privacy
from dpjax.features import normalisation
from dpjax.features.normalisation import GroupNormalisation
from dpjax.features.normalisation import PrivateNormalisation
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_DRAWS = 4000


def _mechanism(**fields):
  return PrivateNormalisation(**{**dict(
    mean_norm=1.5, square_norm=2.0, noise_multiplier=3.0, num_examples=2,
    adjacency=ADD), **fields})


def test_groups_have_mean_zero_and_variance_one():
  x = np.random.default_rng(0).normal(3, 2, (5, 4, 4, 6)).astype(np.float32)
  rows = np.asarray(GroupNormalisation(groups=3)(x)).reshape(5, 16, 3, 2)
  np.testing.assert_allclose(rows.mean((1, 3)), 0, atol=1e-6)
  np.testing.assert_allclose(rows.var((1, 3)), 1, rtol=1e-4)
  torch_like = (x[0, ..., :2] - x[0, ..., :2].mean()) / x[0, ..., :2].std()
  np.testing.assert_allclose(rows[0, :, 0], torch_like.reshape(16, 2),
                             rtol=1e-4, atol=1e-5)


# Records of two places and two channels: tiny, long, in one channel, not
# numbers, and long in means but not in squares.
_DOMAIN = [((0.0, 0.0), (0.0, 0.0)), ((50.0, 0.0), (50.0, 0.0)),
           ((-50.0, 0.0), (-50.0, 0.0)), ((1.0, -1.0), (0.5, 2.0)),
           ((np.inf, 1.0), (np.nan, 1e30)), ((9.0, 9.0), (-9.0, -9.0)),
           ((0.01, 1.5), (0.02, 1.4))]


def _total(mechanism):
  total = jax.jit(mechanism.total)

  def of(dataset):
    data = np.float32(dataset).reshape(len(dataset), 2, 2)
    return np.asarray(total(data), np.float64)
  return of


@pytest.mark.sound
@pytest.mark.parametrize('adjacency, sizes', [(ADD, (0, 1, 2)), (REPLACE, (2,))])
def test_the_sensitivity_by_enumeration(adjacency, sizes):
  mechanism = _mechanism(adjacency=adjacency)
  found = neighbours.sensitivity(_total(mechanism), _DOMAIN, sizes, adjacency,
                                 order=2)
  claimed = mechanism.noise.l2_sensitivity
  # Opposite means with equal squares are the farthest pair: sqrt(2) of 2.
  attained = 1 if adjacency is ADD else 0.7
  assert attained * claimed * (1 - 1e-5) <= found <= claimed


@pytest.mark.sound
def test_no_contribution_exceeds_the_record_norm():
  """Norms are at most 1 to the last digit, for many channels and sizes."""
  rng = np.random.default_rng(0)
  for channels in (1, 3, 81, 1000):
    mechanism = _mechanism(num_examples=1)
    for scale in (1e-20, 1e-3, 1.0, 1e6, 1e18, 1e37):
      x = (rng.standard_normal((1, 3, channels)) * scale).astype(np.float32)
      total = np.asarray(mechanism.total(x), np.float64)
      assert np.linalg.norm(total) <= 1
      assert np.isfinite(total).all()


def test_the_sum_is_exact():
  """Sums of many numbers are those of integers, in any order."""
  values = np.random.default_rng(0).uniform(-1, 1, (50_000, 2)).astype(
    np.float32)
  exact = np.trunc(values.astype(np.float64) * 2**24).sum(0) / 2**24
  for order in (values, values[::-1]):
    total = np.asarray(normalisation._exact_sum(jnp.asarray(order)))
    np.testing.assert_allclose(total, exact, rtol=2e-7, atol=1e-4)
  # Small numbers are not lost beside large ones.
  many = np.concatenate([np.ones((50_000, 1)), np.full((50_000, 1), 2.0**-20),
                         -np.ones((50_000, 1))]).astype(np.float32)
  np.testing.assert_array_equal(
    normalisation._exact_sum(jnp.asarray(many)), np.float32([50_000 / 2**20]))


def _noise_is_as_claimed(mechanism, release):
  """Whether each half of the released sum has noise of the claimed scale.

  For noise as claimed it returns False with probability 1e-6.
  """
  x = np.float32([[0.5, 0.1], [0.2, 0.3]])
  released = jax.vmap(release, (0, None))(
    jax.random.split(jax.random.key(3), _DRAWS), x)
  halves = jnp.stack([released.mean / mechanism.mean_norm,
                      released.second_moment / mechanism.square_norm])
  sums = np.asarray(halves, np.float64) * mechanism.num_examples / 2**0.5
  exact = np.asarray(mechanism.total(x), np.float64).reshape(2, 1, 2)
  scaled = (sums - exact) / mechanism.noise_multiplier
  # Four sums of squares, and that of the sum of all coordinates.
  squares = [*np.square(scaled).sum(1).ravel(),
             np.square(scaled.sum((0, 2)) / 2).sum()]
  law = stats.chi2(_DRAWS)
  return all(law.ppf(1e-7) < each < law.isf(1e-7) for each in squares)


@pytest.mark.sound
def test_noise_is_that_of_the_event():
  mechanism = _mechanism()
  assert mechanism.event == privacy.gaussian_event(noise_multiplier=3.0)
  assert _noise_is_as_claimed(mechanism, mechanism.release)


def _half(mechanism, key, x):
  """A planted fault: second moments have no noise."""
  released = mechanism.release(key, x)
  exact = mechanism.total(x)[2:] * (
    2**0.5 * mechanism.square_norm / mechanism.num_examples)
  return dataclasses.replace(released, second_moment=exact)


def _shared(mechanism, key, x):
  """A planted fault: both halves have the same noise."""
  released = mechanism.release(key, x)
  exact = mechanism.total(x) * (2**0.5 / mechanism.num_examples)
  noise = released.mean / mechanism.mean_norm - exact[:2]
  return dataclasses.replace(released, second_moment=(
    exact[2:] + noise) * mechanism.square_norm)


@pytest.mark.parametrize('fault', [_half, _shared])
def test_planted_faults_are_noticed(fault):
  mechanism = _mechanism()
  assert not _noise_is_as_claimed(
    mechanism, lambda key, x: fault(mechanism, key, x))


def test_with_much_budget_it_is_plain_normalisation():
  rng = np.random.default_rng(0)
  x = (rng.normal(size=(500, 3, 3, 4)) * [1, 2, 3, 0.1] + [0, 1, -2, 3]).astype(
    np.float32)
  mechanism = _mechanism(mean_norm=50.0, square_norm=500.0, num_examples=500,
                         noise_multiplier=1e-6)
  rows = np.asarray(mechanism.release(jax.random.key(0), x)(x))
  plain = (x - x.mean((0, 1, 2))) / x.std((0, 1, 2))
  np.testing.assert_allclose(rows, plain, rtol=5e-3, atol=5e-3)


def test_noise_never_gives_a_variance_of_zero():
  mechanism = _mechanism(noise_multiplier=100.0)
  x = np.ones((2, 3), np.float32)
  for key in jax.random.split(jax.random.key(1), 20):
    normalise = mechanism.release(key, x)
    assert (np.asarray(normalise.variance) >= 100 * 2**0.5 * 0.999).all()
    assert np.isfinite(normalise(x)).all()


def test_the_interface_of_mechanisms():
  mechanism = _mechanism()
  assert isinstance(mechanism, privacy.Mechanism)
  assert mechanism.risk(4) is None
  # A released normalisation is a tree of arrays: it passes compiled functions.
  normalise = jax.jit(mechanism.release)(jax.random.key(0),
                                         np.ones((2, 3), np.float32))
  assert len(jax.tree.leaves(normalise)) == 3


def test_refusals():
  for fields, message in (
      (dict(mean_norm=0.0), 'mean_norm must be a positive'),
      (dict(square_norm=-1.0), 'square_norm must be a positive'),
      (dict(noise_multiplier=0.0), 'noise_multiplier must be a positive'),
      (dict(num_examples=0), 'num_examples must be an integer >= 1'),
      (dict(adjacency='replace_one'), 'write Adjacency')):
    with pytest.raises(ValueError, match=message):
      _mechanism(**fields)
  with pytest.raises(ValueError, match='there must be 2 records'):
    _mechanism(adjacency=REPLACE).total(np.zeros((3, 2), np.float32))
  # A refusal would tell the number of records, which is private here.
  _mechanism(adjacency=ADD).total(np.zeros((3, 2), np.float32))
  with pytest.raises(ValueError, match='must be floats'):
    _mechanism().total(np.zeros((3, 2), np.int32))
  with pytest.raises(ValueError, match='groups must divide the 4 channels'):
    GroupNormalisation(groups=3)(np.zeros((3, 4), np.float32))
