"""Tests dpjax.stats.roc_bands."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy import special

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import roc_bands
from dpjax.stats import roc_curves as roc
from dpjax.stats.ecdf_methods.grids import Grid

GRID = Grid(lower=0.0, upper=1.0, num_thresholds=32)
FPRS = np.array([0.05, 0.1, 0.3, 0.5, 0.8])
RELEASE = roc.make(GRID, epsilon=2.0, adjacency=Adjacency.REPLACE_ONE)


def _cells(size):
  """Returns expected counts of a calibrated model with area about .75."""
  z = np.linspace(-4, 4, 20_001)
  chance = special.expit(-1 + 1.2 * z)
  bins, weights = GRID.bins(chance), np.exp(-z**2 / 2)
  cells = np.stack([np.bincount(bins, weights * part, 32)
                    for part in (1 - chance, chance)])
  return cells * size / cells.sum()


def _curve(counts):
  with jax.enable_x64(True):
    curve = RELEASE.of_ranks(np.cumsum(counts, 1))
    return np.asarray(roc.tpr_at(curve, FPRS)), float(curve.auc)


@pytest.mark.slow
@pytest.mark.parametrize('of', roc_bands.OF)
def test_bands_cover_what_they_are_of(of):
  """Bands cover in at least 51 of 60 releases, at nominal .95.

  At .95 fewer than 51 have probability 3e-4, for each of the four numbers; at
  .7, 51 have 1 %.
  """
  population = _cells(2000)
  generator, covered = np.random.default_rng(2), np.zeros(2)
  widths = []
  for seed in range(60):
    counts = generator.poisson(population)
    true_tpr, true_auc = _curve(population if of == 'population' else counts)
    key, other = jax.random.split(jax.random.key(seed))
    bands = roc_bands.bands(RELEASE, other, RELEASE.estimate(key, counts),
                            fprs=FPRS, of=of, num_draws=100)
    covered += (np.all((bands.tpr.low <= true_tpr)
                       & (true_tpr <= bands.tpr.high)),
                bands.auc.low <= true_auc <= bands.auc.high)
    widths.append(float(bands.auc.high - bands.auc.low))
  assert covered.min() >= 51, covered
  # Bands are not vacuous: records alone have a standard error of .013.
  assert np.mean(widths) < {'records': 0.07, 'population': 0.09}[of]


@pytest.mark.every(2)
def test_without_noise_the_records_are_known_and_the_population_is_not():
  release = dataclasses.replace(RELEASE, curve=dataclasses.replace(
      RELEASE.curve, epsilon=1e6))
  counts = np.round(_cells(2000))
  ranks = np.cumsum(counts, 1)
  known, guessed = (
      roc_bands.bands(release, jax.random.key(0), ranks, fprs=FPRS, of=of,
                      num_draws=400) for of in roc_bands.OF)
  assert float(known.auc.high - known.auc.low) < 1e-9
  assert np.abs(known.tpr.high - known.tpr.low).max() < 1e-9
  # Hanley and McNeil's standard error holds within the error of 400 draws.
  _, auc = _curve(counts)
  negatives, positives = counts.sum(1)
  first, second = auc / (2 - auc), 2 * auc**2 / (1 + auc)
  variance = (auc * (1 - auc) + (positives - 1) * (first - auc**2)
              + (negatives - 1) * (second - auc**2)) / (positives * negatives)
  assert float(guessed.auc.high - guessed.auc.low) / 2 == pytest.approx(
      1.96 * np.sqrt(variance), rel=0.15)
