"""Tests dpjax.privacy.draws: samples, quantiles of chosen words, tails.

By the inequality of Dvoretzky, Kiefer and Wolfowitz the Kolmogorov-Smirnov
distance of n draws exceeds 2.7 / sqrt(n) with probability below 1e-6.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import additive
from dpjax.privacy import draws

KEY = jax.random.key(3)
COUNT = 400_000
DISTRIBUTIONS = {
  'standard_exponential': stats.expon(), 'standard_laplace': stats.laplace(),
  'standard_gumbel': stats.gumbel_r(), 'standard_uniform': stats.uniform(-1, 2)}


def distance(values, distribution):
  levels = distribution.cdf(np.sort(np.ravel(values)))
  steps = np.arange(levels.size + 1) / levels.size
  return max((steps[1:] - levels).max(), (levels - steps[:-1]).max())


def from_words(monkeypatch, function, high, low):
  """Returns the draws that the given key bits produce."""
  words = jnp.stack([jnp.asarray(high, jnp.uint32),
                     jnp.asarray(low, jnp.uint32)])
  with monkeypatch.context() as patch:
    patch.setattr(additive, 'random_words', lambda key, shape: words)
    return np.asarray(function(KEY, (len(high),)), np.float64)


@pytest.mark.every(3)
@pytest.mark.parametrize('name', DISTRIBUTIONS)
def test_law(name):
  values = np.asarray(getattr(draws, name)(KEY, (COUNT,)), np.float64)
  assert distance(values, DISTRIBUTIONS[name]) < 2.7 / COUNT**.5
  # The test detects a scale that is off by three percent.
  assert distance(1.03 * values, DISTRIBUTIONS[name]) > 2.7 / COUNT**.5
  neighbours = np.corrcoef(values[1:], values[:-1])[0, 1]
  assert abs(neighbours) < 5 / COUNT**.5


@pytest.mark.every(2)
def test_whole_numbers_have_their_law():
  """Draws have weights exp(-|z| / scale), by chi-square, and their variance."""
  for number, scale in enumerate((.4, 3.)):
    values = np.asarray(draws.discrete_laplace(
      jax.random.fold_in(KEY, number), (100_000,), scale))
    np.testing.assert_array_equal(values, np.round(values))
    distribution = stats.dlaplace(1 / scale)
    assert draws.discrete_laplace_variance(scale) == pytest.approx(
        distribution.var())
    bound = int(5 * scale) + 1
    counts = np.bincount(np.int64(np.clip(values, -bound, bound)) + bound,
                         minlength=2 * bound + 1)
    wanted = distribution.pmf(np.arange(-bound, bound + 1))
    wanted[[0, -1]] = distribution.cdf(-bound)
    assert stats.chisquare(counts, wanted * values.size).pvalue > 1e-6


def tails(count=3000):
  """Returns words over all scales of the 63-bit
  probability, and that itself."""
  rng = np.random.default_rng(0)
  full = 2.**rng.uniform(0, 63, count)
  full = np.concatenate([full, [0., 1., 2.**31, 2.**62, 2.**63 - 2.**11]])
  whole = full.astype(np.uint64)
  high, low = whole >> np.uint64(31), whole % np.uint64(2**31)
  return high, low, (whole + .5) * 2.**-64


@pytest.mark.every(2)
@pytest.mark.parametrize('side', [0, 1])
def test_draws_are_quantiles_of_their_words(monkeypatch, side):
  high, low, tail = tails()
  low = 2 * low + side
  get = lambda function: from_words(monkeypatch, function, high, low)
  exponential = -np.log1p(-tail) if side else -np.log(tail)
  np.testing.assert_allclose(get(draws.standard_exponential), exponential,
                             rtol=1e-6)
  sign = -1 if side else 1
  np.testing.assert_allclose(get(draws.standard_laplace),
                             -sign * np.log(2 * tail), rtol=1e-6, atol=2e-7)
  np.testing.assert_allclose(get(draws.standard_gumbel),
                             -np.log(exponential), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(get(draws.standard_uniform), sign * 2 * tail,
                             rtol=1e-6)


def test_extreme_words(monkeypatch):
  ends = [0, 0, 2**32 - 1, 2**32 - 1], [0, 1, 2**32 - 2, 2**32 - 1]
  get = lambda function: from_words(monkeypatch, function, *ends)
  assert np.isfinite(get(draws.standard_gumbel)).all()
  exponential = get(draws.standard_exponential)
  assert (exponential > 0).all() and 45 < exponential.max() < 45.1
  assert 44 < get(draws.standard_laplace).max() < 44.4
  assert 45 < get(draws.standard_gumbel).max() < 45.1
  assert np.abs(get(draws.standard_uniform)).max() <= 1


@pytest.mark.every(2)
def test_cauchy(monkeypatch):
  """Cauchy draws have uniform angles, a scale on which heavy tails are seen."""
  values = np.float64(draws.standard_cauchy(KEY, (COUNT,)))
  angles = np.arctan(values) / np.pi
  assert distance(angles, stats.uniform(-.5, 1)) < 2.7 / COUNT**.5
  assert distance(np.arctan(1.03 * values) / np.pi,
                  stats.uniform(-.5, 1)) > 2.7 / COUNT**.5
  high, low, tail = tails()
  cauchy = from_words(monkeypatch, draws.standard_cauchy, high, 2 * low)
  np.testing.assert_allclose(cauchy, stats.cauchy.isf(tail), rtol=2e-5,
                             atol=2e-7)


@pytest.mark.every(3)
@pytest.mark.parametrize('count', [1, 2, 7, 100])
def test_gamma(count):
  keys = jax.random.split(KEY, 20_000)
  values = jax.jit(jax.vmap(lambda k: draws.standard_gamma(k, count)))(keys)
  assert distance(np.float64(values), stats.gamma(count)) < 2.7 / 20_000**.5
  assert distance(1.1 * np.float64(values), stats.gamma(count)) > (
    2.7 / 20_000**.5)


def test_direction_is_uniform_on_the_sphere():
  keys = jax.random.split(KEY, 40_000)
  draw = jax.jit(jax.vmap(lambda k: draws.standard_direction(k, 3)))
  units = np.float64(draw(keys))
  np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1, rtol=1e-6)
  # By Archimedes every coordinate of the sphere in space is uniform.
  for axis in range(3):
    assert distance(units[:, axis], stats.uniform(-1, 2)) < 2.7 / 200
  moments = units.T @ units / len(units)
  assert np.abs(moments - np.eye(3) / 3).max() < 5 * .3 / 200


def test_refuses_a_gamma_of_nothing():
  with pytest.raises(ValueError, match='^count must be an integer >= 1, got 0$'):
    draws.standard_gamma(KEY, 0)


@pytest.mark.every(3)
@pytest.mark.parametrize('dtype', [jnp.float32, jnp.float64])
def test_the_largest_is_found_though_it_is_rounded_otherwise(dtype):
  with jax.enable_x64(True):
    noisy = jnp.asarray([[-3.0, 1.5, 40.0, -jnp.inf, 40.0],
                         [-2e4, -1e5, -jnp.inf, -3e4, -2e4 - .5]], dtype)
    top = jnp.nextafter(jnp.max(noisy, -1, keepdims=True),
                        jnp.asarray(jnp.inf, dtype))
    assert jnp.any(draws.is_largest(noisy, top), -1).all()
    assert not draws.is_largest(noisy, top + jnp.asarray(.1, dtype)).any()
    np.testing.assert_array_equal(draws.place_of_largest(noisy), [2, 0])
    assert draws.place_of_largest(noisy[0]) == 2
