"""Tests numbers of bins: brute-force searches, limits, printed values."""

import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import bandwidths
from dpjax.stats.density_methods import densities
from dpjax.stats.density_methods import histograms
from experiments.methods.statistics import compared_densities

_KNOWN = dict(adjacency=Adjacency.REPLACE_ONE)
_INTEGERS = np.arange(1, 3000)


@pytest.mark.parametrize('first, step', [(1, 1), (3, 2), (2, 5)])
def test_the_search_finds_the_least(first, step):
  rng = np.random.default_rng(0)
  allowed = np.arange(first, 4000, step)
  for _ in range(200):
    fall, rise = np.exp(rng.uniform(0, 12)), np.exp(rng.uniform(-6, 6))
    bound = lambda m: fall / m**2 + rise * m
    assert bandwidths.smallest(bound, first=first, step=step) == allowed[
        np.argmin(bound(allowed))] or fall / rise > 1e10
  assert bandwidths.smallest(lambda m: float(m), first=first, step=step
                             ) == first


@pytest.mark.parametrize('lipschitz', [0.5, 2.0, 30.0])
@pytest.mark.parametrize('num_records', [10, 10**4, 10**9])
def test_tuned_bins_minimise_the_bound(num_records, lipschitz):
  """Tuned bins minimise the bound of DEN-H6, restated, over all integers."""
  for epsilon in (1e-9, 1e-4, 0.01, 1.0, 50.0):
    mechanism = dict(num_records=num_records, variance=8 / epsilon**2)
    bound = (lipschitz**2 / 12 / _INTEGERS**2.0 + _INTEGERS / num_records
             + 8 * (_INTEGERS / (epsilon * num_records))**2)
    best = int(_INTEGERS[np.argmin(bound)])
    num_bins = bandwidths.tuned_bins(lipschitz=lipschitz, fix_mass=False,
                                     **mechanism)
    assert num_bins == best or best == 2999
    # Fixing the mass leaves one noisy height less, so at most a bin more.
    assert 0 <= bandwidths.tuned_bins(lipschitz=lipschitz, **mechanism
                                      ) - num_bins <= 1


@pytest.mark.parametrize('lipschitz', [0.5, 2.0])
@pytest.mark.parametrize('budget, constant, bins', [
    ('epsilon', 1.633, 96**-0.25), ('rho', 0.577, 12**-0.25)])
def test_limits_of_tuned_bins(lipschitz, budget, constant, bins):
  """Tuned bins reach the limits of pure noise (DEN-H6) and pure sampling."""
  n, alpha = 10**15, 1e-9
  tuned = histograms.Histogram.tuned(
      num_records=n, lipschitz=lipschitz, noise='laplace', **_KNOWN,
      **{budget: alpha if budget == 'epsilon' else alpha**2})
  public = dict(num_records=n, variance=tuned.noise_variance,
                lipschitz=lipschitz)
  assert tuned.num_bins == pytest.approx(
      bins * (lipschitz * n * alpha)**0.5, rel=2e-3)
  assert bandwidths.limiting_bins(**public) == pytest.approx(
      tuned.num_bins, rel=2e-3)
  assert bandwidths.histogram_bound(
      tuned.num_bins, fix_mass=False, **public) == pytest.approx(
          constant * lipschitz / (n * alpha), rel=2e-3)
  free = dict(num_records=n, variance=0.0, lipschitz=lipschitz)
  assert bandwidths.tuned_bins(**free) == pytest.approx(
      bandwidths.limiting_bins(**free), abs=1)
  assert bandwidths.limiting_bins(**free) == pytest.approx(
      (lipschitz**2 * n / 6)**(1 / 3))


@pytest.mark.parametrize('n, alpha, wanted', [
    (10**3, 0.1, 10), (10**5, 0.01, 32), (10**4, 1.0, 22), (10**5, 0.1, 47),
    (10**6, 0.01, 100), (10**9, np.inf, 1000), (10**3, 0.01, 4),
    (10**3, 1e-5, 1), (10**3, 1e-3, 1), (1, np.inf, 1)])
def test_printed_bins(n, alpha, wanted):
  assert bandwidths.printed_bins(num_records=n, budget=alpha) == wanted


@pytest.mark.parametrize('budget, ratio', [('epsilon', 4.95), ('rho', 1.9)])
def test_the_printed_bins_lack_constants(budget, ratio):
  """The printed bins give 4.95 and 1.9 times the bound at L = 1 (DEN-H6)."""
  n, alpha = 10**12, 1e-6
  public = {budget: alpha if budget == 'epsilon' else alpha**2,
            'num_records': n, **_KNOWN}
  printed = histograms.Histogram.printed(**public)
  bounds = [bandwidths.histogram_bound(
      num_bins, num_records=n, variance=printed.noise_variance, lipschitz=1.0)
            for num_bins in (printed.num_bins, histograms.Histogram.tuned(
                lipschitz=1.0, noise='laplace', **public).num_bins)]
  assert bounds[0] / bounds[1] == pytest.approx(ratio, rel=0.02)


def test_printed_bins_do_not_minimise_the_variance():
  """Printed bins do not minimise the variance; one bin does (DEN-E10)."""
  n, epsilon = 1000, 0.01
  variances = _INTEGERS / n + 8 * (_INTEGERS / (n * epsilon))**2
  assert np.argmin(variances) == 0
  printed = histograms.Histogram.printed(num_records=n, epsilon=epsilon,
                                         **_KNOWN)
  assert printed.expected(compared_densities.tent(2)).total == pytest.approx(1.30, rel=0.01)
  assert compared_densities.tent(2).energy == pytest.approx(0.0833, rel=0.01)
  tuned = histograms.Histogram.tuned(num_records=n, epsilon=epsilon,
                                     lipschitz=2.0, **_KNOWN)
  assert tuned.expected(compared_densities.tent(2)).total < 0.2 * 1.30
  assert tuned.expected(compared_densities.linear(2)).total < compared_densities.linear(2).energy
  assert histograms.Histogram.tuned(num_records=n, epsilon=epsilon / 10,
                                    lipschitz=2.0, **_KNOWN).num_bins == 1


def test_noise_and_sampling_weigh_the_same_at_the_crossover():
  n = 10**6
  num_bins = round((4 * n / 6)**(1 / 3))
  epsilon = bandwidths.crossover(num_records=n, num_bins=num_bins)
  assert epsilon == pytest.approx(2.64 * n**(-1 / 3), rel=0.01)
  risk = histograms.Histogram(
      num_records=n, num_bins=num_bins, epsilon=epsilon, noise='laplace',
      fix_mass=False, **_KNOWN).expected(densities.uniform())
  assert risk.privacy == pytest.approx(risk.sampling, rel=0.02)


@pytest.mark.every(1)
@pytest.mark.parametrize('given, text', [
    (dict(num_records=0, variance=1.0, lipschitz=1.0), 'num_records'),
    (dict(num_records=9, variance=-1.0, lipschitz=1.0), 'variance'),
    (dict(num_records=9, variance=1.0, lipschitz=np.inf), 'lipschitz')])
def test_bad_input_is_one_line(given, text):
  with pytest.raises(ValueError, match=text):
    bandwidths.tuned_bins(**given)


def test_a_bad_budget_is_one_line():
  with pytest.raises(ValueError, match='budget'):
    bandwidths.printed_bins(num_records=9, budget=0.0)


def test_the_best_bins_of_a_known_density_are_the_least_of_all():
  """The search finds the least of errors that rise and fall."""
  rng = np.random.default_rng(2)
  sizes = np.arange(1, 40)
  best = []
  for trial in range(40):
    rising = np.cumsum(rng.uniform(0.01, 0.1, sizes.size))
    rest = rng.uniform(0, 2, sizes.size) if trial > 3 else np.abs(
        sizes - 1 - trial) * 0.5
    total = rising + rest
    best.append(bandwidths.oracle_bins(
        lambda m, total=total: total[min(m, 39) - 1],
        lambda m, rising=rising: rising[min(m, 39) - 1]))
    assert best[-1] == np.argmin(total) + 1
  assert {1, 2, 3} < set(best)
