"""Tests of dpjax.stats.roc."""

import jax
import numpy as np
import pytest
from sklearn import metrics

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import roc
from dpjax.stats.ecdf.grids import Grid

GRID = Grid(lower=0.0, upper=1.0, num_thresholds=16)
GENERATOR = np.random.default_rng(5)
SCORES = np.append(GENERATOR.beta(2, 3, 200), [0.0, 0.25, 0.25, 1.0, 1.5])
LABELS = (GENERATOR.uniform(size=205) < SCORES).astype(int)
ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


@pytest.mark.parametrize('positive', roc.POSITIVE)
def test_without_noise_it_is_the_curve_of_scikit_learn(positive):
  counts = roc.counts(GRID, SCORES, LABELS)
  with jax.enable_x64(True):
    curve = jax.tree.map(np.asarray, roc.of_ranks(
        np.cumsum(counts, 1).astype(float), GRID.thresholds,
        positive=positive))
  binned = GRID.bins(SCORES) * (1 if positive == 'high' else -1)
  fpr, tpr, _ = metrics.roc_curve(LABELS, binned, drop_intermediate=False)
  # Of thresholds in an empty bin it has no point.
  kept = np.append(True, np.diff(curve.fpr) + np.diff(curve.tpr) > 0)
  np.testing.assert_allclose(curve.fpr[kept], fpr, atol=1e-12)
  np.testing.assert_allclose(curve.tpr[kept], tpr, atol=1e-12)
  assert float(curve.auc) == pytest.approx(
      metrics.roc_auc_score(LABELS, binned), abs=1e-12)
  assert (curve.positives, curve.negatives) == (LABELS.sum(),
                                                (1 - LABELS).sum())
  # Thresholds mean what they say, of records on them too.
  for k in (0, 4, 8, 16):
    cut = curve.thresholds[k]
    chosen = SCORES > cut if positive == 'high' else SCORES <= cut
    assert float(curve.tpr[k]) == pytest.approx(chosen[LABELS == 1].mean())
