"""Tests that merged bins are the best of all cuts, trying all of them."""

import itertools

import jax
import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import merging
from experiments.methods.statistics import compared_densities

SIZE = 7


def best_of_all_cuts(values, penalty):
  """Returns cost and means of the cheapest of 2^(m - 1) cuts."""
  fits = []
  for cuts in itertools.product((0, 1), repeat=len(values) - 1):
    runs = np.concatenate([[0], np.cumsum(cuts)])
    means = (np.bincount(runs, values) / np.bincount(runs))[runs]
    fits.append((np.sum((values - means)**2) + penalty * (runs[-1] + 1), means))
  return min(fits, key=lambda pair: pair[0])


def test_no_cut_is_cheaper():
  rng = np.random.default_rng(1)
  values = rng.normal(size=(40, SIZE)) * 2
  penalties = rng.uniform(0, 4, 40)
  with jax.enable_x64(True):
    fits = np.asarray(jax.jit(jax.vmap(merging.merged))(values, penalties))
  sizes = set()
  for line, penalty, means in zip(values, penalties, fits, strict=True):
    np.testing.assert_allclose(means, best_of_all_cuts(line, penalty)[1],
                               atol=1e-12)
    sizes.add(len(np.unique(np.round(means, 9))))
  assert len(sizes) > 3


def mechanism_of(**options):
  return merging.MergedHistogram(**(dict(
      num_records=1000, num_bins=100, epsilon=1.0,
      adjacency=Adjacency.REPLACE_ONE) | options))


def release(mechanism, seed, counts):
  """Returns one release, compiled."""
  return mechanism.coefficients(jax.random.key(seed), counts[None])[0]


@pytest.mark.slow
@pytest.mark.parametrize('adjacency', Adjacency)
def test_jumps_are_found_and_mass_is_kept(adjacency):
  """Almost without noise, all twelve runs of `blocks` are found, of mass 1."""
  density = compared_densities.blocks()
  counts = np.round(density.masses(100) * 10**7)
  heights = release(mechanism_of(num_records=10**7, epsilon=100.0,
                                 adjacency=adjacency), 4, counts)
  assert heights.mean() == pytest.approx(1)
  assert np.count_nonzero(np.abs(np.diff(heights)) > 1e-3) == 11
  assert np.count_nonzero(np.diff(heights)) == 11
  np.testing.assert_allclose(heights, density.masses(100) * 100, atol=1e-5)


def test_a_high_price_leaves_one_run_and_none_leaves_all_bins():
  counts = np.arange(100.0) * 1000 / 4950
  flat = release(mechanism_of(penalty=1e4), 1, counts)
  np.testing.assert_allclose(flat, 1, atol=1e-12)
  free = release(mechanism_of(penalty=0.0), 1, counts)
  # It is Laplace noise of scale 2 on counts, less its mean.
  noise = free * 10 - counts
  assert noise.mean() == pytest.approx(0, abs=1e-9)
  assert 4 < noise.var() < 14
  with pytest.raises(ValueError, match='penalty'):
    mechanism_of(penalty=-1.0)


@pytest.mark.parametrize('height,runs', [(20, 3), (18, 1)])
def test_a_bin_stands_out_by_what_two_runs_cost(height, runs):
  """A bin stands out if its squared excess exceeds the penalty of two runs."""
  counts = np.full(100, 10.0)
  counts[40] = height
  heights = release(mechanism_of(num_records=990 + height, epsilon=1e3), 1,
                    counts)
  assert np.count_nonzero(np.diff(heights)) == runs - 1


def test_an_unknown_total_is_that_of_noisy_counts():
  counts = np.full(100, 30.0)
  heights = release(
      mechanism_of(epsilon=0.5, penalty=0.0,
                   adjacency=Adjacency.ADD_OR_REMOVE_ONE), 1, counts)
  assert heights.mean() == pytest.approx(1)
  # These are shares of about 3000 records, whatever the guess is.
  assert np.std(heights) == pytest.approx(np.sqrt(7.8) / 30, rel=0.3)
