"""These tests check packings by quadrature against what is printed."""

import numpy as np
import pytest
from scipy import integrate
from scipy import optimize

from experiments.methods.theory import density_packings as packings
from experiments.methods.theory import testing

BUMPS = {
    'triangle': packings.bumps(packings.triangle(), radius=3.0, num_bumps=12,
                               width=0.05),
    'tall': packings.bumps(packings.triangle(), radius=8.0, num_bumps=4,
                           width=0.2),
    **{f'smooth{beta}': packings.bumps(
        packings.smooth(beta), radius=radius, num_bumps=9, width=0.09)
       for beta, radius in ((1, 20.0), (2, 900.0), (3, 6e4))}}
CELLS = {
    'sawtooth': packings.cells(packings.sawtooth(), radius=12.0, num_cells=9),
    **{f'wave{beta}': packings.cells(
        packings.wave(beta), radius=radius, num_cells=9)
       for beta, radius in ((1, 20.0), (2, 1500.0), (3, 1.5e5))}}
PACKINGS = {**BUMPS, **CELLS}


def _words(packing):
  """Returns 22 words: 20 random ones, all zeros and all ones."""
  size = len(packing.centres)
  drawn = np.random.default_rng(1).integers(0, 2, (20, size))
  words = np.concatenate([drawn, np.zeros((1, size), int),
                          np.ones((1, size), int)])
  return 2 * words - 1 if packing.kernel.balanced else words


@pytest.fixture(scope='module', params=PACKINGS)
def case(request):
  packing = PACKINGS[request.param]
  words = _words(packing)
  x, weights = packing.rule()
  return packing, words, packing.densities(words, x), weights


def test_densities_are_densities(case):
  _, _, densities, weights = case
  np.testing.assert_allclose(densities @ weights, 1, atol=1e-13)
  assert densities.min() > 0


@pytest.mark.every(3)
def test_variations_and_divergences_are_below_their_bounds(case):
  packing, words, densities, weights = case
  variations = testing.variations(densities, weights)
  bounds = packing.variation_bound(words)
  assert np.all(variations <= bounds * (1 + 1e-9) + 1e-15)
  apart = bounds > 0
  assert np.max(variations[apart] / bounds[apart]) > 0.6
  assert np.all(bounds <= len(packing.centres) * packing.absolute * (1 + 1e-12))
  if packing.kernel.balanced:
    np.testing.assert_allclose(variations, bounds, atol=1e-6)
  uniform = np.ones((1, weights.size))
  divergences = testing.divergences(
      np.concatenate([uniform, densities]), weights)[1:, 0]
  limits = packing.divergence_bound(words)
  assert np.all(divergences <= limits + 1e-15)
  # The integral of (f - 1)^2 is twice the divergence of densities near 1.
  np.testing.assert_allclose(limits, np.square(densities - 1) @ weights,
                             atol=1e-13)


def test_squares_are_exact_and_far_enough(case):
  packing, words, densities, weights = case
  squares = testing.distances(densities, weights)**2
  np.testing.assert_allclose(squares, packing.squared_distances(words),
                             atol=1e-13)
  hamming = np.sum(words[:, None] != words[None], -1)
  least = 2 * packing.separation() * hamming
  assert np.all(squares >= least * (1 - 1e-9))
  # Words that differ in all bits are as near as stated.
  assert squares[-1, -2] == pytest.approx(least[-1, -2])
  if not packing.kernel.balanced:
    printed = packings.separation(packing.energy, packing.mass,
                                  len(packing.centres), printed=True)
    assert printed < packing.separation()
    # DEN-E18: values between bumps count, and only "at least" is true.
    x, _ = packing.rule()
    inside = np.min(np.abs(np.subtract.outer(x, packing.centres)), 1) < (
        packing.width / 2)
    gaps = np.square(densities[-1] - densities[-2])
    assert gaps @ (weights * inside) < 0.95 * squares[-1, -2]


def test_classes_hold(case):
  """Packings stay in their class, by differences around the circle."""
  packing, words, _, _ = case
  size = 2**14
  values = packing.densities(words, np.arange(size) / size)
  beta = packing.kernel.smoothness
  slopes = values
  for _ in range(beta):
    slopes = size * (np.roll(slopes, -1, -1) - slopes)
  if packing.kernel.lipschitz:
    steepest = np.max(np.abs(slopes))
    assert 0.99 * packing.radius < steepest <= packing.radius * (1 + 1e-9)
    return
  measured = np.mean(slopes**2, -1)
  np.testing.assert_allclose(measured, packing.roughness(words), rtol=0.01,
                             atol=1e-6)
  assert np.max(packing.roughness(words)) <= packing.radius**2 * (1 + 1e-9)


@pytest.mark.parametrize('beta, rough, scale, mass, energy', [
    (1, 0.819174, 1.104872, 0.245278, 0.0812319),
    (2, 86.6741, 0.1074126, 0.0238453, 7.67738e-4),
    (3, 1.024933e5, 3.123578e-3, 6.93425e-4, 6.49243e-7),
    (4, 6.05816e8, 4.06284e-5, 9.01938e-6, 1.0984e-10)])
def test_constants_of_smooth_bumps(beta, rough, scale, mass, energy):
  """Smooth bumps have the constants of DEN-L10."""
  kernel = packings.smooth(beta)
  assert packings.bump_energy(beta) == pytest.approx(rough, rel=1e-5)
  assert packings.bump_scale(beta) == pytest.approx(scale, rel=1e-5)
  assert kernel.mass == pytest.approx(mass, rel=1e-5)
  assert kernel.absolute == pytest.approx(mass, rel=1e-5)
  assert kernel.energy == pytest.approx(energy, rel=2e-5)
  assert kernel.energy / (2 * kernel.mass**2) == pytest.approx(0.675, abs=1e-3)
  assert kernel.top == pytest.approx(scale / np.e)


@pytest.mark.parametrize('beta, energy, absolute', [
    (1, 2.381e-2, 0.13975), (2, 2.525e-4, 0.01378), (3, 1.388e-6, 9.766e-4)])
def test_constants_of_waves(beta, energy, absolute):
  """Waves have the constants of DEN-L11 and integrate to zero."""
  kernel = packings.wave(beta)
  assert kernel.energy == pytest.approx(energy, rel=5e-4)
  assert kernel.absolute == pytest.approx(absolute, rel=5e-4)
  nodes, weights = packings.rule(np.array(kernel.kinks))
  assert kernel.value(nodes) @ weights == pytest.approx(0, abs=1e-15)


def test_constants_of_spikes_and_sawtooths():
  """Spikes and sawtooths have their norms and masses in closed form."""
  spike = packings.spike(lipschitz=2.0, centre=0.3, half_width=0.02)
  assert spike.energy == pytest.approx(2 * 4 * 0.02**3 / 3)
  assert spike.mass == pytest.approx(2 * 0.02**2)
  teeth = packings.cells(packings.sawtooth(), radius=2.0, num_cells=10)
  assert teeth.energy == pytest.approx(4 * 0.1**3 / 48)
  assert teeth.absolute == pytest.approx(2 * 0.1**2 / 8)


def test_the_spike_is_that_of_theorem_2():
  """The spike of Theorem 2 has its golden distances (DEN-L8).

  L is 2 and h is .02.
  """
  spike = packings.spike(lipschitz=2.0, centre=0.5, half_width=0.02)
  x, weights = spike.rule()
  densities = spike.densities([[0], [1]], x)
  assert testing.variations(densities, weights)[0, 1] == pytest.approx(
      7.683e-4, rel=1e-3)
  assert testing.divergences(densities, weights)[0, 1] == pytest.approx(
      1.0155e-5, rel=1e-4)
  top, = spike.densities([[1]], np.array([0.5])) - 1
  assert top == pytest.approx(2 * (0.02 - 0.02**2))
  assert spike.variation_bound([[0], [1]])[0, 1] == pytest.approx(8e-4)


def test_anchors_of_theorem_3():
  """The packing of Theorem 3 has its golden distances.

  L is 3, m is 12 and h is .025.
  """
  packing = BUMPS['triangle']
  words = np.random.default_rng(0).integers(0, 2, (2, 12))
  x, weights = packing.rule()
  densities = packing.densities(words, x)
  assert testing.variations(densities, weights)[0, 1] == pytest.approx(
      0.00759, abs=5e-6)
  assert packing.variation_bound(words)[0, 1] == pytest.approx(0.00937,
                                                               abs=6e-6)
  assert densities[0] * np.log(densities[0]) @ weights == pytest.approx(
      2.15e-4, abs=5e-7)
  assert packing.divergence_bound(words)[0] == pytest.approx(4.36e-4, abs=5e-7)
  # This is the printed form of (23).
  ones = words[0].sum()
  assert packing.divergence_bound(words)[0] == pytest.approx(
      9 / 3 * ones * 0.025**3 * (2 - 3 * ones * 0.025))


def test_kernels_are_scaled_as_they_say():
  """Kernels are scaled to a largest slope, or a derivative's norm, of 1."""
  for kernel, lipschitz in ((packings.triangle(), True),
                            (packings.sawtooth(), True),
                            (packings.wave(1), False)):
    places = np.linspace(-0.5, 0.5, 2**16 + 1)
    slopes = np.diff(kernel.value(places)) * 2**16
    assert kernel.lipschitz == lipschitz
    size = np.max(np.abs(slopes)) if lipschitz else np.sqrt(np.mean(slopes**2))
    assert size == pytest.approx(1, rel=1e-3), kernel.name


def test_the_printed_kernel_is_no_bump():
  """The printed kernel has mass -L h^2, so it is no bump (DEN-E11)."""
  slope, h = 3.0, 0.1

  def printed(t):
    return slope * t * ((-h <= t) & (t <= 0)) - slope * t * ((0 < t) & (t <= h))
  mass, _ = integrate.quad(printed, -h, h, points=[0])
  assert mass == pytest.approx(-slope * h**2)
  spike = packings.spike(lipschitz=slope, centre=0.5, half_width=h)
  assert spike.mass == pytest.approx(slope * h**2)


def test_the_printed_divergence_bound_is_wrong():
  """The printed divergence bound is negative, so it is wrong (DEN-E12)."""
  packing = packings.bumps(packings.smooth(1), radius=0.2, num_bumps=5,
                           width=0.16)
  words = np.ones((1, 5), int)
  x, weights = packing.rule()
  density, = packing.densities(words, x)
  divergence = density * np.log(density) @ weights
  assert packing.divergence_bound(words, printed=True)[0] < 0 < divergence
  assert divergence < packing.divergence_bound(words)[0]


def test_the_condition_of_energy_does_not_make_densities_positive():
  """The energy condition m h <= 1 permits a negative density (DEN-E13)."""
  loose = dict(radius=300.0, num_bumps=3, width=0.24)
  packing = packings.Packing(
      kernel=packings.smooth(1), radius=loose['radius'], width=loose['width'],
      centres=(0.25, 0.5, 0.75))
  x, weights = packing.rule()
  density, = packing.densities(np.ones((1, 3)), x)
  assert packing.roughness(np.ones((1, 3)))[0] <= packing.radius**2
  assert density @ weights == pytest.approx(1)
  assert density.min() < 0
  with pytest.raises(ValueError, match='below 0'):
    packings.bumps(packings.smooth(1), **loose)


def test_the_printed_variation_is_only_loose():
  """A kernel's mass is below 1, so the printed variation is loose (DEN-E14)."""
  masses = [packings.smooth(beta).mass for beta in (1, 2, 3, 4)]
  assert masses == sorted(masses, reverse=True)
  assert masses[0] < 1


@pytest.mark.parametrize('lipschitz', [0.5, 2.0, 3.0, 8.0])
def test_the_largest_value_of_a_lipschitz_density(lipschitz):
  """The largest value of a Lipschitz density solves a programme (DEN-E20)."""
  size = 100
  steps = np.eye(size + 1)[1:] - np.eye(size + 1)[:-1]
  weights = np.full(size + 1, 1 / size)
  weights[[0, -1]] /= 2
  solved = optimize.linprog(
      -np.eye(size + 1)[0], np.vstack([steps, -steps]),
      np.full(2 * size, lipschitz / size), weights[None], [1.0])
  assert -solved.fun == pytest.approx(packings.lipschitz_maximum(lipschitz),
                                      rel=2e-3)
  assert -solved.fun < packings.lipschitz_maximum(lipschitz, printed=True)


@pytest.mark.every(1)
@pytest.mark.parametrize('call', [
    lambda: packings.spike(lipschitz=2.0, centre=0.1, half_width=0.2),
    lambda: packings.spike(lipschitz=20.0, centre=0.5, half_width=0.4),
    lambda: packings.bumps(packings.smooth(1), radius=1.0, num_bumps=4,
                           width=0.21),
    lambda: packings.bumps(packings.smooth(1), radius=1.0, num_bumps=0,
                           width=0.2),
    lambda: packings.cells(packings.wave(1), radius=100.0, num_cells=2),
    lambda: packings.cells(packings.wave(1), radius=-1.0, num_cells=2),
    lambda: packings.wave(0),
    lambda: packings.smooth(1.5),
    lambda: packings.lipschitz_maximum(-1.0),
    lambda: BUMPS['tall'].roughness(np.ones((1, 4)))])
def test_bad_input_is_named(call):
  with pytest.raises(ValueError):
    call()


@pytest.mark.parametrize('centre', [0.1, 0.9])
def test_spikes_that_leave_the_interval_at_either_end_are_refused(centre):
  build = lambda half_width: packings.spike(
      lipschitz=1.0, centre=centre, half_width=half_width)
  assert build(0.0999).width == pytest.approx(0.1998)
  for half_width in (0.1001, 0.5, 0.0, -0.1):
    with pytest.raises(ValueError, match='keep to'):
      build(half_width)
