"""Tests dpjax.privacy.lattice: exact rounding, samples, and the attack.

The attack: of the 2^23 outcomes of `jax.random.normal` most give sums that a
neighbour cannot reach, so that one released number identifies the data set.
"""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import special

from dpjax.privacy import integers
from dpjax.privacy import lattice

KEY = jax.random.key(4)
COUNT = 20_000
STDDEVS = [1., 3.730632, .0137, 1 - 2.**-24, 4096., 1e-6]


def scales(stddev):
  """Returns (spacing, m) for noise of this standard deviation."""
  step = lattice.spacing(jnp.float32(stddev))
  return step, lattice.outer_multiplier(jnp.float32(stddev), step)


def release(values, stddev, key=KEY):
  return lattice.add_noise(key, values, *scales(stddev))


@pytest.mark.parametrize('stddev', STDDEVS)
def test_widths(stddev):
  """The noise is at least as wide as asked for, by at
  most 0.04 percent more."""
  step, outer = scales(stddev)
  step = float(step)
  assert math.frexp(step)[0] == .5
  assert 2.**19 <= np.float32(stddev) / step < 2.**20
  exact = step * math.sqrt(180**2 * (1 + 104**2 + int(outer)**2) - 1 / 12)
  assert np.float32(stddev) * (1 - 1e-6) <= exact <= stddev * 1.0005
  assert float(lattice.real_stddev(outer, jnp.float32(step))
               ) == pytest.approx(exact, rel=3e-7)
  assert (1 < int(outer) <= 11_000) and outer.dtype == jnp.int32


def test_more_than_there_is_does_not_count_as_more():
  step = lattice.spacing(jnp.float32(1.))
  outer = lattice.outer_multiplier(jnp.float32(8.), step)
  assert int(outer) == 11_000
  assert float(lattice.real_stddev(outer, step)) < 4
  missing = lattice.outer_multiplier(jnp.float32(jnp.nan), step)
  assert int(missing) <= 1 and float(lattice.real_stddev(missing, step)) < 1


@pytest.mark.every(2)
def test_rounding_is_exact_and_clamped():
  step = jnp.float32(2.**-20)
  values = jnp.array([0., 1., -1., 1 + 2.**-20, 2.**-21, 3 * 2.**-21, 2.**-22,
                      -.75 * 2.**-20, 1e30, -1e30, 1024., jnp.inf, jnp.nan],
                     jnp.float32)
  top = 2**30
  np.testing.assert_array_equal(
    lattice.rounded(values, step),
    [0, 2**20, -2**20, 2**20 + 1, 0, 2, 0, -1, top, -top, top, top, 0])
  rng = np.random.default_rng(0)
  values = np.float32(rng.normal(size=1000) * 10.**rng.uniform(-8, 2, 1000))
  units = np.float64(lattice.rounded(jnp.asarray(values), step))
  assert np.abs(units - np.float64(values) * 2**20).max() <= .5


def moved_by(rng, size, norm):
  """Returns two float32 vectors at this l2 distance."""
  here = rng.normal(size=size) * 10.**rng.uniform(-3, 1)
  shift = rng.normal(size=size)
  shift *= norm / np.linalg.norm(shift)
  return np.float32(here), np.float32(here + shift)


@pytest.mark.every(3)
@pytest.mark.parametrize('size', [1, 7, 400])
def test_sensitivity_of_rounded_values(size):
  """Rounding raises sensitivity to D + sqrt(d) s, which is attained."""
  rng = np.random.default_rng(size)
  step = jnp.float32(2.**-7)
  for norm in (.01, 1., 10.):
    here, there = moved_by(rng, size, norm)
    units = [np.float64(lattice.rounded(jnp.asarray(v), step))
             for v in (here, there)]
    distance = np.linalg.norm(np.float64(here) - np.float64(there))
    change = np.linalg.norm(units[0] - units[1]) * 2.**-7
    assert change <= distance + math.sqrt(size) * 2.**-7
  # These lie just below and just above half a step.
  edge = jnp.full([size], 2.**-8)
  pair = [np.float64(lattice.rounded(edge * (1 + sign * 2.**-20), step))
          for sign in (-1, 1)]
  worst = np.linalg.norm(pair[1] - pair[0]) * 2.**-7
  assert worst == pytest.approx(math.sqrt(size) * 2.**-7)
  assert worst > 1e5 * math.sqrt(size) * 2.**-28


def integers_of(values, stddev):
  """Returns the released noise on zeros in units of the spacing."""
  step = float(scales(stddev)[0])
  units = np.float64(release(jnp.zeros(values.shape), stddev)) / step
  np.testing.assert_array_equal(units, np.round(units))
  return units, step


@pytest.mark.every(2)
def test_noise_is_added_as_integers_after_rounding():
  """Values are rounded to the lattice first, so nothing finer is released."""
  stddev = 1.
  rng = np.random.default_rng(1)
  step = float(scales(stddev)[0])
  units = np.round(rng.normal(size=COUNT) * 3 / step)
  noise, _ = integers_of(units, stddev)
  # Float32 is exact for noise below 2^24 units.
  kept = np.abs(noise) < 2**24
  for inside in (0., .45, -.45):
    values = np.float32((units + inside * (np.abs(units) < 2**19)) * step)
    sums = np.float64(release(jnp.asarray(values), stddev))
    np.testing.assert_array_equal(
      sums[kept], np.float64(np.float32(units + noise))[kept] * step)


def kolmogorov_distance(draws):
  levels = special.ndtr(np.sort(draws))
  steps = np.arange(levels.size + 1) / levels.size
  return max((steps[1:] - levels).max(), (levels - steps[:-1]).max())


def check_distribution(draws):
  """Checks distance, variance, mean and independence, each at 1e-6."""
  size = draws.size
  assert kolmogorov_distance(draws) < 2.7 / size**.5
  assert abs(draws.mean()) < 5 / size**.5
  assert abs(draws.var() - 1) < 5 * (2 / size)**.5
  assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 5 / size**.5


@pytest.fixture(scope='module')
def noise():
  """Returns noise of two leaves and two blocks, over its deviation."""
  pair = [scales(s) for s in (2., 30.)]
  steps, outers = ({'a': a, 'b': b} for a, b in zip(*pair, strict=True))
  values = {'a': [jnp.zeros(150_000), jnp.zeros((100, 1500))],
            'b': jnp.zeros(1000)}
  noisy = jax.jit(lattice.add_noise)(KEY, values, steps, outers)
  assert jax.tree.map(jnp.shape, noisy) == jax.tree.map(jnp.shape, values)
  return np.float64(noisy['a'][0]) / 2, np.float64(
    noisy['a'][1]).ravel() / 2, np.float64(noisy['b']) / 30


def test_noise_law(noise):
  for draws in noise:
    check_distribution(draws)
  first, second, _ = noise
  assert abs(np.corrcoef(first, second)[0, 1]) < 5 / first.size**.5
  # Low bits are as uniform as those of the table.
  counts = np.bincount(np.int64(first * 2**19) % 64, minlength=64)
  assert np.abs(counts - first.size / 64).max() < 6 * (first.size / 64)**.5


def test_noise_fills_what_is_between_its_multiples():
  """Noise is uniform between the multiples of each term, which moments miss."""
  step, outer = scales(1.)
  units, _ = integers_of(np.zeros(COUNT), 1.)
  for gap in (104, int(outer)):
    shares = np.sort(units % gap + .5) / gap
    even = (np.arange(COUNT) + .5) / COUNT
    assert np.abs(shares - even).max() < 2.7 / COUNT**.5 + 1 / gap


def test_faults_of_the_law_are_seen(noise):
  """Ten percent less noise, a sign bias of 1 in 20 and a shift are detected."""
  first = noise[0]
  biased = np.where(np.arange(first.size) % 20 == 0, np.abs(first), first)
  for draws in (.9 * first, biased, first + .02):
    with pytest.raises(AssertionError):
      check_distribution(draws)


def test_sheppards_correction():
  """A rounded Gaussian of r is near a discrete one of r^2 +
  1/12, to r^-4 / 100."""
  for r in (1., 2.7, 6.):
    rounded = integers.rounded_gaussian(r)
    corrected, plain = (integers.discrete_gaussian(math.sqrt(square))
                        for square in (r**2 + 1 / 12, r**2))
    variations = []
    for shape in (corrected, plain):
      both = [{each.first + i: w for i, w in enumerate(each.weights)}
              for each in (rounded, shape)]
      variations.append(sum(
        abs(both[0].get(x, 0) - both[1].get(x, 0))
        for x in set(both[0]) | set(both[1])) / 2**97)
    assert 1e-4 * r**-4 < variations[0] < 1e-2 * r**-4
    # Without 1/12 the distributions are r^-2 apart.
    assert variations[1] > 1e-2 * r**-2
  with mpmath.workprec(200):
    # Logarithms at single points are as close as the proof states.
    r, x = mpmath.mpf(50), mpmath.mpf(330)
    width = r * mpmath.sqrt(2)
    exact = (mpmath.erfc((x - .5) / width) - mpmath.erfc((x + .5) / width)) / 2
    square = r**2 + mpmath.mpf(1) / 12
    near = mpmath.exp(-x**2 / (2 * square)) / mpmath.sqrt(
      2 * mpmath.pi * square)
    y = x / r
    bound = (y**4 / 2880 + y**2 / 150 + mpmath.mpf(1) / 300) / r**4
    assert abs(mpmath.log(exact / near)) < bound


def test_total_variation():
  once = lattice.total_variation(num_values=1, num_steps=1)
  assert 2e-25 < once < 1e-24
  many = lattice.total_variation(num_values=10**6, num_steps=1000)
  assert 1e9 * once <= many < 1e-14
  # Both convolutions are smooth enough at the module's ratios.
  for first, multiplier in ((180., 104), (180. * math.hypot(1, 104), 11_000)):
    assert integers.convolution_variation(first, 180., multiplier) < 4e-25
    assert integers.convolution_variation(first, 180., 2 * multiplier) > 1e-8


@pytest.mark.parametrize('terms, error', [(0, 0.), (256, .0078), (1024, .125)])
def test_sum_error(terms, error):
  assert lattice.sum_error(terms) == pytest.approx(error, rel=.01)
  with pytest.raises(ValueError, match='no bound for a float32 sum of 1677721'):
    lattice.sum_error(2**24)


def test_float_sums_move_less_than_said():
  """Neighbouring float32 sums differ by no more than the stated error."""
  rng = np.random.default_rng(3)
  for terms in (16, 256):
    rows = rng.normal(size=(terms, 30))
    rows = np.float32(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    with_all, without = (np.cumsum(part, 0, dtype=np.float32)[-1]
                         for part in (rows, rows[1:]))
    change = np.linalg.norm(np.float64(with_all) - without)
    assert change <= np.linalg.norm(np.float64(rows[0])) * (
      1 + lattice.sum_error(terms))


# -- The attack.

HERE, THERE, STDDEV = .3, .31, 1.


def library_normals():
  """Returns the 2^20 outcomes of `jax.random.normal` nearest to zero."""
  middle = jnp.arange(2**22 - 2**19, 2**22 + 2**19, dtype=jnp.uint32)
  fraction = jax.lax.bitcast_convert_type(
    middle | jnp.uint32(0x3F800000), jnp.float32) - 1.
  low = jnp.float32(np.nextafter(np.float32(-1), np.float32(0)))
  uniform = jnp.maximum(low, fraction * (1 - low) + low)
  return np.asarray(jnp.float32(2**.5) * jax.lax.erf_inv(uniform))


@pytest.mark.every(2)
def test_plain_noise_tells_neighbours_apart():
  outcomes = library_normals()
  drawn = np.asarray(jax.random.normal(KEY, (COUNT,)))
  drawn = drawn[np.abs(drawn) < .1]
  assert np.abs(outcomes).max() > .15 and drawn.size > 1000
  assert np.isin(drawn, outcomes).mean() > .999
  possible = np.float32(THERE) + np.float32(STDDEV) * outcomes
  released = np.float32(HERE) + np.float32(STDDEV) * drawn
  impossible = ~np.isin(released, possible)
  # Each is a proof; a vector of 20 has one except with chance 10^-13.
  assert .75 < impossible.mean() < .95


def largest(outer):
  """Returns the largest n such that the noise takes all of -n, ..., n.

  Z1 alone takes a whole run of integers; adding multiples closes all gaps of a
  sum if the run is at least as long as the multiplier.
  """
  table = lattice._noise_table()
  taken = np.flatnonzero(np.array(table.weights, object) > 0) + table.first
  most = taken[-1]
  np.testing.assert_array_equal(taken, np.arange(-most, most + 1))
  run = most
  for multiplier in (104, outer):
    assert 2 * run + 1 >= multiplier
    run += multiplier * most
  return run


def test_reach_is_of_every_integer():
  """Sums of runs and multiples take every integer,
  enumerated for small ones."""
  run = set(range(-3, 4))
  sums = {x + 5 * y + 30 * z for x in run for y in run for z in run}
  assert sums == set(range(-3 - 15 - 90, 3 + 15 + 90 + 1))


@pytest.mark.every(2)
def test_no_released_value_is_impossible_for_the_neighbour():
  """Each of 10^5 releases could come from the neighbour,
  up to 11 deviations."""
  step, outer = scales(STDDEV)
  released = np.float64(release(jnp.full((100_000,), HERE), STDDEV))
  origins = np.float64(lattice.rounded(jnp.array([HERE, THERE]), step))
  units = released / float(step)
  np.testing.assert_array_equal(units, np.round(units))
  assert origins[0] != origins[1]
  reached = largest(int(outer)) - 2  # Float32 is inexact from 2^24 units on.
  for origin in origins:
    assert np.abs(units - origin).max() <= reached
  assert reached * float(step) > 11 * STDDEV


def test_the_same_attack_sees_noise_of_floats():
  """Float32 Gaussian draws fall off the lattice, so the attack detects them."""
  step = float(scales(STDDEV)[0])
  noisy = np.float32(HERE) + jax.random.normal(KEY, (COUNT,))
  units = np.float64(noisy) / step
  assert np.mean(units != np.round(units)) > .5
