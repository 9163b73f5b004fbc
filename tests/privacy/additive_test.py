"""Tests dpjax.privacy.additive: calibration, samples, the attack on floats.

Statistical thresholds state their false-alarm probability, at most 1e-6. By the
inequality of Dvoretzky, Kiefer and Wolfowitz the Kolmogorov-Smirnov distance of
n draws exceeds 2.7 / sqrt(n) with probability below 1e-6.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import chacha
from dpjax.privacy.adjacency import Adjacency

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(7)
KS_BOUND = 2.7
DRAWS = 2_000_000


def kolmogorov_distance(draws, cdf):
  """Returns the largest distance of the empirical distribution from `cdf`."""
  levels = cdf(np.sort(np.ravel(draws)))
  steps = np.arange(levels.size + 1) / levels.size
  return max((steps[1:] - levels).max(), (levels - steps[:-1]).max())


def from_words(monkeypatch, words, function):
  """Returns `function()` with the random words replaced by `words`."""
  words = jnp.asarray(words, jnp.uint32)
  with monkeypatch.context() as patch:
    patch.setattr(additive, 'random_words',
                  lambda key, shape, start: words.reshape(shape))
    return function()


@pytest.fixture(scope='module')
def normals():
  return np.asarray(additive.standard_normal(KEY, (DRAWS,)), np.float64)


def test_normal_moments(normals):
  # Five standard errors have a false-alarm rate of 6e-7 each.
  for power, mean, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
    error = abs(np.mean(normals**power) - mean)
    assert error < 5 * math.sqrt(variance / DRAWS), power


@pytest.mark.every(2)
def test_normal_law(normals):
  assert kolmogorov_distance(normals, special.ndtr) < KS_BOUND / DRAWS**.5
  # The test detects a standard deviation that is off by one percent.
  assert kolmogorov_distance(normals * 1.01,
                             special.ndtr) > KS_BOUND / DRAWS**.5
  neighbours = normals[1:] * normals[:-1]
  assert abs(neighbours.mean()) < 5 / math.sqrt(DRAWS)


@pytest.mark.parametrize('cut', [3., 4., 5.])
@pytest.mark.parametrize('sign', [1, -1])
def test_normal_tail_counts(normals, cut, sign):
  count = np.sum(sign * normals > cut)
  tail = stats.binom(DRAWS, special.ndtr(-cut))
  assert tail.ppf(5e-7) <= count <= tail.isf(5e-7)


def magnitudes(monkeypatch, words):
  """Returns the draws for even words; odd words give their negatives."""
  draw = from_words(monkeypatch, 2 * words, lambda: additive.standard_normal(
      KEY, (len(words),)))
  return np.asarray(draw, np.float64)


@pytest.mark.every(2)
def test_normal_is_the_quantile_function_of_the_word(monkeypatch):
  rng = np.random.default_rng(0)
  words = np.unique(np.concatenate([
      np.arange(4096), np.uint64(2)**np.arange(31),
      rng.integers(0, 2**31, 4096)])).astype(np.uint64)
  draws = magnitudes(monkeypatch, words)
  exact = -special.ndtri((words + .5) * 2.**-32)
  np.testing.assert_allclose(draws, exact, rtol=2e-6, atol=2e-7)
  odd = from_words(monkeypatch, 2 * words + 1, lambda: additive.standard_normal(
      KEY, (len(words),)))
  np.testing.assert_array_equal(np.asarray(odd, np.float64), -draws)
  assert np.isfinite(draws).all() and 6.3 < draws.max() < 6.4


@pytest.mark.slow
@pytest.mark.parametrize('impl', ['threefry2x32', 'rbg'])
def test_words_of_one_key_are_all_others(impl):
  """No word repeats, however the sequence is cut. 10^4 of 2^32 words collide
  with probability 0.012; this key's do not."""
  key = jax.random.key(3, impl=impl)
  sizes, words, start = (3333, 1, 2, 5001, 1664), [], 0
  for size in sizes:
    words.append(np.asarray(additive.random_words(key, (size,), start)))
    start += size
  joined = np.concatenate(words)
  assert len(np.unique(joined)) == len(joined) == 10001
  bits = np.unpackbits(joined.view(np.uint8)).reshape(-1, 32).mean(0)
  assert np.abs(bits - 0.5).max() < 6 * 0.5 / 10001**0.5
  other = additive.random_words(jax.random.key(4, impl=impl), (3333,))
  assert not np.intersect1d(joined, other).size
  again = additive.random_words(key, (5001,), 3336)
  np.testing.assert_array_equal(words[3], again)
  with pytest.raises(ValueError, match='one key has 2.32 draws'):
    additive.random_words(key, (1,), 2**32 - 1)


@pytest.mark.every(2)
@pytest.mark.parametrize('impl', ['threefry2x32', 'rbg'])
def test_pairs_of_one_key_are_all_others(impl):
  """No word of the pairs repeats; 10^4 of 2^32 words
  collide with chance 0.012."""
  key = jax.random.key(3, impl=impl)
  parts = [additive.random_pairs(key, shape, start)
           for shape, start in (((3000,), 0), ((20, 100), 3000), ((1,), 5000))]
  words = np.concatenate([np.ravel(word) for pair in parts for word in pair])
  assert len(np.unique(words)) == len(words) == 10002
  bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 32).mean(0)
  assert np.abs(bits - 0.5).max() < 6 * 0.5 / 10002**0.5
  with pytest.raises(ValueError, match='one key has 2.32 draws'):
    additive.random_pairs(key, (1,), 2**32 - 1)


def test_noise_of_leaves_is_independent():
  """Noise is uncorrelated between leaves of one shape and halves of a leaf."""
  noise = additive.unit_noise(KEY, {'a': jnp.zeros(10001),
                                    'b': jnp.zeros((10001, 1))})
  values = np.stack([noise['a'][:5000], noise['a'][5000:10000],
                     noise['b'][:5000, 0], noise['b'][5000:10000, 0]])
  values = np.concatenate([values, values[:, ::-1]]).astype(np.float64)
  correlations = np.corrcoef(values)[~np.eye(8, dtype=bool)]
  # 28 pairs, each twice, exceed 6 deviations with chance 1e-7 in all.
  assert np.abs(correlations).max() < 6 / 5000**0.5


@pytest.mark.every(9)
@pytest.mark.parametrize('together', [2**16, 40, 1])
@pytest.mark.parametrize('key', [
    jax.random.key(3), jax.random.key(3, impl='rbg'),
    jax.random.key(3, impl=chacha.GENERATOR)])
def test_noise_of_each_leaf_starts_where_the_one_before_ends(
    key, together, monkeypatch):
  """However many leaves are drawn at once, up to the rounding of a program."""
  monkeypatch.setattr(additive, '_TOGETHER', together)
  sizes = (3, 4, 0, 1, 33, 2, 64, 17)
  noise = additive.unit_noise(key, [
      jnp.zeros((size // 2, 2) if size % 2 == 0 else size) for size in sizes])
  starts = itertools.accumulate(sizes[:-1], initial=0)
  for leaf, start in zip(noise, starts, strict=True):
    np.testing.assert_allclose(
        leaf, additive.standard_normal(key, leaf.shape, start), rtol=2e-6)


@pytest.mark.parametrize('key', [
    jax.random.key(5), jax.random.key(5, impl='rbg'),
    jax.random.key(5, impl=chacha.GENERATOR)])
def test_words_of_several_are_those_of_separate_calls(key):
  """And no word is used twice."""
  sizes = (5, 1, 0, 32, 16, 2, 31)
  together = np.asarray(additive.words_of_several(key, sizes, 7))
  column, used = 0, []
  for size, start in zip(sizes, itertools.accumulate(sizes, initial=7)):
    width = -(-size // len(together))
    own = together[:, column:column + width].reshape(-1)[:size]
    np.testing.assert_array_equal(own, additive.random_words(
        key, (size,), start))
    column += width
    used.extend(own)
  assert column == together.shape[1] and len(set(used)) == sum(sizes)
  with pytest.raises(ValueError, match='one key has 2.32 draws'):
    additive.words_of_several(key, (1, 1), 2**32 - 2)


def test_normal_tails_have_the_right_number_of_words(monkeypatch):
  # Magnitudes fall with the word, so those above a cut have smaller words.
  cuts = np.array([.5, 1., 2., 3., 4., 5., 5.5, 6.])
  wanted = special.ndtr(-cuts) * 2.**32 - .5
  slack = np.maximum(1, 2e-5 * wanted)
  for sign in (1, -1):
    words = np.round(wanted - sign * slack).astype(np.uint64)
    assert (sign * (magnitudes(monkeypatch, words) - cuts) > 0).all()


@pytest.mark.parametrize('stddev', [
  1., .5, 2., 3.7306, 1e-6, 1e8, 1 - 2.**-24, 1 + 2.**-23, 511.99, 512.])
def test_grid_spacing_is_a_power_of_two(stddev):
  spacing = float(additive.grid_spacing(stddev))
  assert math.frexp(spacing)[0] == .5
  assert np.float32(stddev) / 512 < spacing <= np.float32(stddev) / 256
  traced = jax.jit(additive.grid_spacing)(jnp.float32(stddev))
  assert float(traced) == spacing


@pytest.mark.slow
@pytest.mark.parametrize('stddev', [.7, 1., 1000.])
def test_releases_lie_on_the_grid(stddev):
  values = jax.random.normal(KEY, (1000,)) * stddev * 3
  noisy = additive.add_gaussian_noise(KEY, values, stddev)
  units = np.asarray(noisy, np.float64) / float(additive.grid_spacing(stddev))
  np.testing.assert_array_equal(units, np.round(units))
  assert len(np.unique(units)) > 700


def test_noise_is_independent_of_the_value_but_for_rounding():
  stddev = 2.5
  spacing = float(additive.grid_spacing(stddev))
  zeros = jnp.zeros((1000,))
  values = 10 * jax.random.normal(jax.random.key(1), (1000,))
  error = (additive.add_gaussian_noise(KEY, values, stddev) - values -
           additive.add_gaussian_noise(KEY, zeros, stddev))
  assert np.abs(error).max() <= spacing * 1.001


STDDEV = 3.730632  # This gives epsilon 1, delta 1e-5 for sensitivity 1.
HERE, THERE = 0., 1.


def all_library_normals():
  """Returns the 2^23 outputs of `jax.random.normal` in float32, sorted."""
  mantissa = jnp.arange(2**23, dtype=jnp.uint32) | jnp.uint32(0x3F800000)
  fraction = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - 1.
  low = jnp.float32(np.nextafter(np.float32(-1), np.float32(0)))
  uniform = jnp.maximum(low, fraction * (1 - low) + low)
  return np.asarray(jnp.float32(2**.5) * jax.lax.erf_inv(uniform))


@pytest.mark.slow
def test_naive_noise_gives_the_value_away():
  outputs = all_library_normals()
  # The enumeration is right, since it holds what the library draws.
  drawn = np.asarray(jax.random.normal(KEY, (20000,)))
  assert np.isin(drawn, outputs).mean() > .999
  possible = np.unique(np.float32(THERE) + np.float32(STDDEV) * outputs)
  released = np.float32(HERE) + np.float32(STDDEV) * drawn
  impossible = ~np.isin(released, possible)
  # Each such value proves which of the two data sets was used.
  assert .7 < impossible.mean() < .9


def reaching(monkeypatch, value, targets, stddev):
  """Returns which grid points `targets` some word turns `value` into."""
  targets = np.asarray(targets, np.float64)
  # One shape for all searches, so that they compile once.
  count, targets = targets.size, np.resize(targets, 8192)
  wanted = (targets - value) / stddev
  ideal = special.ndtr(-np.abs(wanted)) * 2.**32 - .5
  # A few words around the inverse, spread over the cell of one grid point.
  cell = float(additive.grid_spacing(stddev)) / stddev
  width = np.exp(-wanted**2 / 2) / math.sqrt(2 * math.pi) * cell * 2.**32
  steps = np.concatenate([np.linspace(-.45, .45, 9)[:, None] * width,
                          np.linspace(-1, 1, 3)[:, None] + 0 * width])
  words = np.clip(np.round(ideal + steps), 0, 2**31 - 1).astype(np.uint64)
  words = 2 * words + (wanted < 0)
  reached = from_words(
      monkeypatch, words, lambda: additive.add_gaussian_noise(
          KEY, jnp.full(words.shape, value, jnp.float32), stddev))
  return (np.asarray(reached, np.float64) == targets).any(axis=0)[:count]


@pytest.mark.every(5)
def test_every_released_value_is_possible_for_the_neighbour(monkeypatch):
  values = jnp.full((8192,), HERE, jnp.float32)
  released = additive.add_gaussian_noise(KEY, values, STDDEV)
  assert reaching(monkeypatch, THERE, released, STDDEV).all()
  # The search can fail: a point between two grid points is not found.
  between = released + additive.grid_spacing(STDDEV) / 2
  assert not reaching(monkeypatch, THERE, between, STDDEV).any()


@pytest.mark.parametrize('value, stddev', [
  (0., STDDEV), (1., STDDEV), (-.3337, 3.999), (1234.567, 3.999), (.1, 1.)])
def test_every_grid_point_in_the_bulk_is_reachable(monkeypatch, value, stddev):
  # The probability of noise beyond 5.4 standard deviations is 6.7e-8.
  spacing = float(additive.grid_spacing(stddev))
  first = math.ceil((value - 5.4 * stddev) / spacing)
  last = math.floor((value + 5.4 * stddev) / spacing)
  grid = np.arange(first, last + 1) * spacing
  assert reaching(monkeypatch, value, grid, stddev).all()


def test_naive_noise_does_not_cover_its_own_grid(monkeypatch):
  # Without rounding the search must fail, which shows its power.
  monkeypatch.setattr(additive, 'grid_spacing',
                      lambda stddev: jnp.float32(2.**-30))
  released = np.linspace(-1, 1, 100) + 2.**-30
  assert reaching(monkeypatch, THERE, released, STDDEV).mean() < .5


def exact_delta(mu, epsilon):
  return (special.ndtr(mu / 2 - epsilon / mu) -
          math.exp(epsilon) * special.ndtr(-mu / 2 - epsilon / mu))


def observed_delta(release, epsilon, direction, offset):
  """Returns P(S) - e^epsilon Q(S) for a half-line S, and its standard error."""
  with_record, without = (
      np.asarray(release(key, jnp.full((DRAWS,), value)), np.float64)
      for key, value in zip(jax.random.split(KEY), (1., 0.), strict=True))
  events = [np.mean(direction * (draws - offset) > 0)
            for draws in (with_record, without)]
  p, q = events[::direction]
  error = math.sqrt(
      (p * (1 - p) + math.exp(2 * epsilon) * q * (1 - q)) / DRAWS)
  return p - math.exp(epsilon) * q, error + 1 / DRAWS


@pytest.mark.every(4)
@pytest.mark.parametrize('direction', [1, -1])
@pytest.mark.parametrize('epsilon, multiplier', [(.5, 1.), (2., .7)])
def test_densities_keep_the_claim(direction, epsilon, multiplier):
  mechanism = additive.GaussianMechanism(
      record_norm=1., noise_multiplier=multiplier, adjacency=ADD)
  exact = exact_delta(1 / multiplier, epsilon)
  assert exact == pytest.approx(accounting.delta_for(
      mechanism.event, target_epsilon=epsilon, adjacency=ADD), abs=1e-4)
  # There the likelihood ratio passes e^epsilon, so no event does better.
  offset = .5 + direction * epsilon * multiplier**2
  estimate, error = observed_delta(mechanism.release, epsilon, direction,
                                   offset)
  # Five standard errors, on both sides, have a rate of 6e-7.
  assert abs(estimate - exact) < 5 * error


@pytest.mark.every(5)
@pytest.mark.parametrize('direction', [1, -1])
@pytest.mark.parametrize('factor', [.9, .97, 1 / 100])
def test_densities_flag_too_little_noise(direction, factor):
  # These noises are 10 or 3 percent too small, or divided by the number of
  # records; the claim for a multiplier of 1 visibly fails.
  estimate, error = observed_delta(
      lambda key, values: additive.add_gaussian_noise(key, values, factor),
      1., direction, .5 + direction * factor**2)
  assert estimate > exact_delta(1., 1.) + 5 * error


def test_each_block_has_its_own_noise():
  values = {'a': jnp.full((300, 200), 5.),
            'b': [jnp.zeros((50_000,)), jnp.zeros(())]}
  noisy = additive.add_gaussian_noise(KEY, values, {'a': 2., 'b': 30.})
  assert jax.tree.map(jnp.shape, noisy) == jax.tree.map(jnp.shape, values)
  first = (np.ravel(noisy['a']) - 5.) / 2
  second = np.append(noisy['b'][0], noisy['b'][1]) / 30
  for draws in (first, second):
    # Rounding to the grid moves the distribution by at most its half cell.
    bound = KS_BOUND / draws.size**.5 + .4 / 512
    assert kolmogorov_distance(draws, special.ndtr) < bound
  # Different leaves must not share their noise.
  pairs = first[:50_000] * second[:50_000]
  assert abs(pairs.mean()) < 5 / 50_000**.5


@pytest.mark.every(2)
def test_no_coordinate_shares_its_noise():
  noisy = additive.add_gaussian_noise(
      KEY, [jnp.zeros((64,)) for _ in range(8)], 1.)
  # 130,816 pairs of draws: on the grid of 1/256 a few meet by chance, each
  # with probability 0.0011; a repeated leaf would give 64 more at one shift.
  table = np.stack(noisy)
  equal = [np.sum(table[i] == table[j]) for i in range(8) for j in range(i)]
  assert max(equal) <= 6
  assert all(len(np.unique(row)) > 55 for row in table)


@pytest.mark.slow
def test_a_traced_stddev_for_each_block():
  stddevs = {'a': jnp.float32(2.), 'b': jnp.float32(.25)}
  values = {'a': jnp.ones((4,)), 'b': jnp.ones((3, 2))}
  plain = additive.add_gaussian_noise(KEY, values, {'a': 2., 'b': .25})
  traced = jax.jit(additive.add_gaussian_noise)(KEY, values, stddevs)
  jax.tree.map(np.testing.assert_array_equal, traced, plain)


@pytest.mark.slow
def test_no_noise_leaves_values_alone():
  values = {'a': jax.random.normal(KEY, (100,)), 'b': jnp.ones((2,))}
  same = additive.add_gaussian_noise(KEY, values, 0.)
  jax.tree.map(np.testing.assert_array_equal, same, values)
  partly = additive.add_gaussian_noise(KEY, values, {'a': 0., 'b': 1.})
  np.testing.assert_array_equal(partly['a'], values['a'])
  assert not np.array_equal(partly['b'], values['b'])


def test_a_stddev_that_is_no_number_does_not_release_the_value():
  values = jnp.array([1.25, -3.])
  for release in (additive.add_gaussian_noise,
                  jax.jit(additive.add_gaussian_noise)):
    noisy = release(KEY, values, jnp.float32(math.nan))
    assert not np.isin(noisy, values).any()
