"""Tests sparse spectra: sensitivity, choice probabilities, errors, ledger."""

import jax
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import sparse
from experiments.methods.statistics import compared_densities

REPLACE = Adjacency.REPLACE_ONE


def mechanism_of(**options):
  return sparse.SparseFourier(**(dict(
      num_records=2000, rho=0.02, num_rounds=1, num_frequencies=3,
      adjacency=REPLACE) | options))


def test_one_record_moves_sums_and_scores_by_two_at_most():
  """One record moves sums and scores by at most two, over a grid of records."""
  size, top = 48, 5
  sums = sparse.wave_sums(np.eye(size), top).reshape(size, 2, top)
  distances = np.linalg.norm(sums[:, None] - sums[None], axis=2)
  assert distances.max() == pytest.approx(2)
  current = np.random.default_rng(0).normal(size=(20, 1, 2, top))
  scores = np.linalg.norm(7 * sums[0] + sums - current, axis=2)
  changes = np.ptp(scores, axis=1)
  assert 1 < changes.max() <= 2
  asked = mechanism_of()
  assert asked.selection.sensitivity == 2
  # A pair that moves by 2 costs the remaining budget.
  assert 2**2 / (2 * asked.stddev**2) == pytest.approx(0.4 * asked.rho)


def test_statistics_are_sums_over_records():
  x = np.random.default_rng(2).random(50)
  waves = np.exp(-2j * np.pi * np.outer(np.arange(1, 4), x)).sum(1)
  sums = mechanism_of(num_records=50).statistic(x)
  np.testing.assert_allclose(sums[:3] + 1j * sums[3:], waves, atol=0.05)


@pytest.mark.slow
def test_choices_have_the_law_of_the_exponential_mechanism():
  asked = mechanism_of(num_rounds=1)
  statistic = np.array([90.0, 40.0, 0.0, 0.0, -60.0, 65.0])
  coefficients = asked.coefficients(jax.random.key(1),
                                    np.tile(statistic, (4000, 1)))
  counts = np.count_nonzero(coefficients, 0)
  assert counts.sum() == 4000
  probs = np.exp(asked.selection.log_probs(np.hypot(
      statistic[:3], statistic[3:]).astype(np.float32)))
  # Chi-square with 2 degrees exceeds this with probability 1e-5.
  assert np.sum((counts - 4000 * probs)**2 / (4000 * probs)) < 23.1
  assert counts.min() > 100
  noise = coefficients[coefficients[:, 0] != 0, 0] * 2000 - 90.0
  for part in (noise.real, noise.imag):
    assert part.var() == pytest.approx(asked.stddev**2, rel=0.15)
    assert abs(part.mean()) < 4 * asked.stddev / np.sqrt(counts[0])


@pytest.mark.slow
def test_one_peak_is_found_and_its_error_is_that_of_a_measurement():
  density = compared_densities.cosine_wave(3)
  counts = density.counts(np.random.default_rng(3), num_records=2000,
                          num_bins=1024, repetitions=2000)
  asked = mechanism_of(rho=0.5)
  errors = estimate.errors_of('fourier', asked.coefficients(
      jax.random.key(2), sparse.wave_sums(counts, 3)), density)
  wanted = (2 * (1 - 0.45**2) + 4 * asked.stddev**2 / 2000) / 2000
  assert errors.mean() == pytest.approx(wanted,
                                        abs=4 * errors.std() / 2000**0.5)


def test_what_is_fitted_is_not_asked_again():
  """Two rounds measure the two larger of three sums, each once."""
  statistic = np.array([900.0, 300.0, 600.0, 0.0, 0.0, 0.0])
  coefficients = mechanism_of(rho=50.0, num_rounds=2).coefficients(
      jax.random.key(5), np.tile(statistic, (50, 1)))
  np.testing.assert_allclose(coefficients.real * 2000, np.tile(
      [900, 0, 600], (50, 1)), atol=5)


@pytest.mark.slow
def test_what_is_measured_again_is_averaged():
  asked = mechanism_of(num_rounds=4, num_frequencies=1)
  coefficients = asked.coefficients(jax.random.key(1), np.zeros((1500, 2)))
  assert (coefficients.real * 2000).var() == pytest.approx(
      asked.stddev**2 / 4, rel=0.15)


def test_the_ledger_sums_to_rho():
  asked = mechanism_of(num_rounds=5, rho=0.3)
  spent = 5 * (asked.selection.epsilon**2 / 8 + 2 / asked.stddev**2)
  assert spent == pytest.approx(0.3)
  whole = accounting.concentrated_event(rho=0.3, adjacency=REPLACE)
  actual, limit = (accounting.epsilon(event, delta=1e-6, adjacency=REPLACE,
                                      accountant='rdp')
                   for event in (asked.event, whole))
  assert 0.99 * limit < actual <= limit


def test_bad_input_is_refused():
  for options, match in [
      (dict(rho=None), 'rho'), (dict(rho=None, epsilon=1.0), 'rho'),
      (dict(num_rounds=0), 'num_rounds'), (dict(selection_share=1.0), 'share'),
      (dict(num_frequencies=2**14), 'frequencies'),
      (dict(adjacency=Adjacency.ADD_OR_REMOVE_ONE), 'replace_one')]:
    with pytest.raises(ValueError, match=match):
      mechanism_of(**options)
