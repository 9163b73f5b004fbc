"""Tests histograms and lower bounds of Lipschitz densities (EST-HIST)."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest

from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import bandwidths
from dpjax.stats.density_methods import cubes
from dpjax.theory.minimax import cube_bounds
from dpjax.theory.minimax import two_points
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import cube_densities
from experiments.methods.theory import density_lower_bounds as lower_bounds
from experiments.methods.theory import density_packings as packings

_RO = Adjacency.REPLACE_ONE
_LAPLACE = dict(noise='laplace', fix_mass=False, adjacency=_RO)


def _mechanism(**fields):
  return cubes.CubeHistogram(**dict(dimension=2, adjacency=_RO) | fields)


@pytest.mark.parametrize('n, epsilon, bins, bound, best, least', [
    (500, 1.0, 8, 1.735e-2, 4, 1.172e-2), (2000, 0.1, 13, 4.03e-2, 4, 9.91e-3),
    (10_000, 0.1, 22, 6.14e-3, 9, 2.477e-3),
    (10_000, 1.0, 22, 2.31e-3, 12, 1.690e-3)])
def test_golden_bounds(n, epsilon, bins, bound, best, least):
  """Bounds match G-9, and a line's risk is its closed form."""
  known = dict(num_records=n, variance=8 / epsilon**2, lipschitz=1.0,
               fix_mass=False)
  assert bandwidths.histogram_bound(bins, **known) == pytest.approx(
      bound, rel=2e-3)
  assert bandwidths.tuned_bins(**known) == best
  assert bandwidths.histogram_bound(best, **known) == pytest.approx(
      least, rel=1e-3)
  mechanism = _mechanism(dimension=1, num_bins=bins, num_records=n,
                         epsilon=epsilon, **_LAPLACE)
  assert mechanism.expected(
      compared_densities.linear(1.0)).total == pytest.approx(bound, rel=1e-2)


def test_golden_bound_of_gaussian_noise():
  mechanism = _mechanism(dimension=1, num_bins=8, num_records=2000, rho=0.01,
                         fix_mass=False)
  assert mechanism.noise_variance == pytest.approx(1 / 0.01)
  assert bandwidths.histogram_bound(
      8, num_records=2000, variance=mechanism.noise_variance, lipschitz=1.0,
      fix_mass=False) == pytest.approx(6.40e-3, rel=1e-3)


def test_printed_cells_are_cells_of_one_axis():
  """The printed cells of Barber and Duchi (2014) are per axis (E-14)."""
  known = dict(num_records=10**6, budget=1e9, dimension=2)
  assert bandwidths.printed_bins(**known) == 32**2
  assert bandwidths.printed_bins(total=True, **known) == 6**2
  bound = lambda cells: cells / 1e6 + 1 / cells
  assert bound(1e6**(1 / 4)) == pytest.approx(0.032, rel=0.02)
  assert bound(1e6**(2 / 4)) == pytest.approx(0.002, rel=0.02)
  # Constants included, tuned cells are better than both.
  risk = lambda cells: bandwidths.histogram_bound(
      cells, num_records=10**6, variance=0.0, lipschitz=1.0, dimension=2)
  tuned = bandwidths.tuned_bins(num_records=10**6, variance=0.0, lipschitz=1.0,
                                dimension=2)
  assert risk(tuned) < risk(32**2) < risk(6**2) / 2
  # For noise the exponents are 2 / 3, and 1 / 3 per axis.
  noisy = dict(num_records=10**6, budget=1e-3, dimension=2)
  assert bandwidths.printed_bins(**noisy) == 10**2
  assert bandwidths.printed_bins(total=True, **noisy) == 4**2


def test_one_axis_is_the_histogram_of_a_line():
  for cells in (1, 5, 8):
    one = _mechanism(dimension=1, num_bins=cells, num_records=9, epsilon=1.0)
    x = np.random.default_rng(0).random(9)
    np.testing.assert_array_equal(one.statistic(x[:, None]), np.bincount(
        np.minimum((x * cells).astype(int), cells - 1), minlength=cells))


def test_records_move_two_counts_by_one():
  """Replacing a record moves two counts by one; counts
  are of the right cells."""
  mechanism = _mechanism(num_bins=9, num_records=1, epsilon=1.0)
  places = np.array(list(itertools.product((0, .2, .34, .5, .8, 1), repeat=2)))
  counts = np.stack([mechanism.statistic(place[None]) for place in places])
  cells = np.argmax(counts, 1)
  wanted = np.minimum(3 * places, 2).astype(int) @ (3, 1)
  np.testing.assert_array_equal(cells, wanted)
  distances = np.abs(counts[:, None] - counts[None]).sum(-1)
  assert distances.max() == 2 and set(counts.sum(1)) == {1.0}


def _mixture():
  return cube_densities.AxisMixture(parts=(compared_densities.tent(2.0), compared_densities.linear(1.0)))


def test_mixtures_are_what_they_say():
  """Mixtures have the stated masses, squares and slopes, by quadrature."""
  density, fine = _mixture(), 240
  middles = (np.arange(fine) + 0.5) / fine
  heights = (density.parts[0].pdf(middles)[:, None]
             + density.parts[1].pdf(middles)[None]) / 2
  np.testing.assert_allclose(density.masses(36), heights.reshape(
      6, 40, 6, 40).mean((1, 3)).ravel() / 36, atol=1e-6)
  assert density.square == pytest.approx(np.mean(heights**2), rel=1e-5)
  slopes = np.gradient(heights, 1 / fine)
  assert np.hypot(*slopes).max() == pytest.approx(density.lipschitz)


@pytest.mark.parametrize('bins', [1, 2, 3, 8])
def test_zigzags_are_the_worst(bins):
  """Zigzags attain the bound on a line, and match it by quadrature."""
  density = compared_densities.zigzag(bins)
  middles = (np.arange(4800) + 0.5) / 4800
  heights = density.pdf(middles)
  np.testing.assert_allclose(density.masses(2 * bins), heights.reshape(
      2 * bins, -1).mean(1) / (2 * bins), atol=1e-9)
  np.testing.assert_allclose(density.masses(bins), 1 / bins, atol=1e-12)
  assert density.square == pytest.approx(np.mean(heights**2), rel=1e-6)
  assert np.abs(np.diff(density.pdf(np.arange(4801) / 4800))).max() * 4800 == (
      pytest.approx(density.lipschitz))
  for fix_mass in (True, False):
    mechanism = _mechanism(dimension=1, num_bins=bins, num_records=300,
                           epsilon=0.5, fix_mass=fix_mass)
    assert mechanism.expected(density).total == pytest.approx(
        bandwidths.histogram_bound(bins, num_records=300,
                                   variance=mechanism.noise_variance,
                                   lipschitz=1.0, fix_mass=fix_mass))
    # No other density of the class has a larger risk.
    for other in (compared_densities.linear(1.0), compared_densities.tent(1.0), compared_densities.zigzag(bins + 1)):
      assert mechanism.expected(
          other).total <= mechanism.expected(density).total + 1e-12


def test_bounds_of_squares_hold_and_are_not_loose():
  """Bounds on a square are at most 1.22 times the worst density's risk."""
  for bins in (4, 16, 49):
    mechanism = _mechanism(num_bins=bins, num_records=1000, epsilon=1.0)
    bound = bandwidths.histogram_bound(bins, num_records=1000,
                                       variance=mechanism.noise_variance,
                                       lipschitz=1.0, dimension=2)
    density = cube_densities.worst(bins, 2)
    assert density.lipschitz == pytest.approx(1)
    worst = mechanism.expected(density).total
    assert worst <= bound <= 12 / np.pi**2 * worst
    tents = cube_densities.AxisMixture(parts=(compared_densities.tent(2**0.5),) * 2)
    assert tents.lipschitz == pytest.approx(1)
    assert mechanism.expected(tents).total < worst + 1e-12


@pytest.mark.every(3)
@pytest.mark.parametrize('budget', [dict(epsilon=0.5), dict(rho=0.2)])
def test_simulated_errors_are_the_closed_form(budget):
  """Simulated errors match the closed form to 4 errors, below one twentieth."""
  mechanism, density = _mechanism(num_bins=9, num_records=200,
                                  **budget), _mixture()
  counts = density.counts(np.random.default_rng(0), num_records=200, num_bins=9,
                          repetitions=20_000)
  heights = mechanism.coefficients(jax.random.key(0), counts)
  expected = mechanism.expected(density)
  errors = np.mean((heights - 9 * density.masses(9))**2, -1) + expected.bias
  off = errors.mean() - expected.total
  standard_error = errors.std() / len(errors)**0.5
  assert abs(off) < 4 * standard_error < 0.05 * expected.total


def test_estimates_are_heights_of_cells():
  mechanism = _mechanism(num_bins=4, num_records=3, epsilon=1e6)
  heights = mechanism.estimate(jax.random.key(0), np.array(
      [[0.1, 0.9], [0.2, 0.8], [0.9, 1.0]]))
  np.testing.assert_allclose(heights, [[0, 8 / 3], [0, 4 / 3]], atol=1e-3)


@pytest.mark.parametrize('call, message', [
    (lambda: _mechanism(num_bins=5, num_records=3, epsilon=1.0), 'power of 2'),
    (lambda: _mechanism(num_bins=4, num_records=3, epsilon=1.0).estimate(
        jax.random.key(0), np.zeros(3)), r'\[n, 2\]'),
    (lambda: cube_densities.worst(1, 3), 'dimension must be at most'),
    (lambda: compared_densities.zigzag(1, 3.0), 'slope'),
    (lambda: cube_bounds.bounds(dimension=0, num_examples=3, guarantee=None),
     'dimension')])
def test_what_cannot_be_is_refused(call, message):
  with pytest.raises(ValueError, match=message):
    call()


def test_bumps_are_pyramids():
  """Bumps are pyramids, with the stated energy, mass and
  height by quadrature."""
  for dimension, fine in ((1, 4000), (2, 400), (3, 80)):
    bits, energy, mass, top = cube_bounds._pairs(dimension)
    x = (np.arange(fine) + 0.5) / fine
    edge = np.minimum(x, 1 - x)
    grid = functools.reduce(np.minimum.outer, [edge] * dimension)
    for place, side in ((0, 1 / 2), (1, 1 / 3)):
      assert bits[place] == round(1 / side)**dimension // 2
      # Two of them make a bump, and half of the bumps are up.
      assert energy[place] == pytest.approx(
          2 * side**(dimension + 2) * np.mean(grid**2), rel=2e-3)
      assert mass[place] == pytest.approx(
          2 * side**(dimension + 1) * np.mean(grid), rel=2e-3)
      assert top[place] == pytest.approx(side / 2)


def test_bounds_on_a_line_contain_those_of_teeth():
  """Bounds on a line equal the sawtooth's, and are no lower with privacy."""
  tooth = packings.sawtooth()
  for n in (50, 3000, 10**5):
    old = lambda **budget: lower_bounds.cells(
        tooth, radius=1.0, num_records=n, sharp=True, **budget).value
    new = lambda guarantee: cube_bounds.cells(
        dimension=1, num_examples=n, guarantee=guarantee)
    assert new(None) == pytest.approx(old(), rel=2e-2)
    assert new(notions.PureDP(epsilon=0.1)) >= old(epsilon=0.1)
    assert new(notions.ZCDP(rho=0.01)) >= old(rho=0.01)


def test_slopes_without_data_are_the_whole_class():
  for dimension in (1, 2, 3):
    bound = cube_bounds.slopes(dimension=dimension, num_examples=10,
                               guarantee=notions.PureDP(epsilon=0.0))
    assert bound == pytest.approx(1 / 12)


@pytest.mark.parametrize('epsilon', [0.3, 2.0])
def test_bits_lose_what_a_randomised_response_loses(epsilon):
  """With one record, a bit loses at most what randomised response loses.

  Randomised response on x < 1/2, for the densities 1 +- (x - 1/2), is an exact
  oracle that no bound may exceed.
  """
  share = two_points.product_risk(0.25, num_examples=1,
                                   guarantee=notions.PureDP(epsilon=epsilon))
  keep = 1 / (1 + np.exp(-epsilon))
  up = np.array([3 / 8, 5 / 8]) @ [[keep, 1 - keep], [1 - keep, keep]]
  down = up[::-1]
  attained = 2 * np.sum(up * down / (up + down))
  assert share <= attained
  assert cube_bounds.slopes(
      dimension=1, num_examples=1, guarantee=notions.PureDP(
          epsilon=epsilon)) <= attained / 12


def test_tuned_ones_are_of_their_dimension():
  mechanism = cubes.CubeHistogram.tuned(num_records=10**4, lipschitz=1.0,
                                        dimension=2, epsilon=1.0, adjacency=_RO)
  sizes = [
      dataclasses.replace(mechanism, num_bins=side**2) for side in range(1, 40)
  ]
  bounds = [bandwidths.histogram_bound(
      each.num_bins, num_records=10**4, variance=each.noise_variance,
      lipschitz=1.0, dimension=2) for each in sizes]
  assert mechanism.num_bins == sizes[int(np.argmin(bounds))].num_bins
