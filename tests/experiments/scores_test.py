"""These tests check experiments.scores."""

import numpy as np
import pytest
from scipy import special
from sklearn import metrics

from experiments import scores


@pytest.mark.parametrize('name', scores.STAND_INS)
def test_stand_ins_have_the_share_and_area_they_are_made_for(name):
  shape = scores.STAND_INS[name]
  scored = scores.scores(name, seed=0)
  assert len(scored.labels) == len(scored.predictions) == shape.num_examples
  # Five standard errors; that of the area by Hanley and McNeil is below
  # 1 / (2 sqrt(positives)).
  positives = scored.labels.sum()
  assert abs(scored.labels.mean() - shape.positive_share) < 5 * np.sqrt(
      shape.positive_share / shape.num_examples)
  area = metrics.roc_auc_score(scored.labels, scored.predictions)
  assert abs(area - shape.auc) < 2.5 / np.sqrt(positives)
  assert scores.scores(name, seed=0) is scored
  with pytest.raises(ValueError, match='read-only'):
    scored.labels[0] = 1


def test_a_model_that_is_true_is_found():
  generator = np.random.default_rng(0)
  x = np.stack([generator.standard_normal(4000),
                generator.integers(0, 2, 4000).astype(float)], 1)
  chance = special.expit(x @ [1.5, -1.0] + 0.3)
  y = (generator.uniform(size=4000) < chance).astype(int)
  scored = scores.fitted(x, y, seed=0)
  np.testing.assert_array_equal(scored.labels, y)
  assert np.sqrt(np.mean(np.square(scored.predictions - chance))) < 0.03
  # In-sample, the intercept's score equation holds.
  assert scored.predictions.mean() == pytest.approx(y.mean(), abs=1e-4)
  held_out = scores.fitted(x, y, holdout=0.25, seed=1)
  assert len(held_out.labels) == 1000
  # Held-out labels do not move the model, so flipping them keeps scores.
  order = np.random.default_rng(1).permutation(4000)[:1000]
  flipped = y.copy()
  flipped[order] = 1 - y[order]
  np.testing.assert_array_equal(
      scores.fitted(x, flipped, holdout=0.25, seed=1).predictions,
      held_out.predictions)


def test_refusals():
  with pytest.raises(ValueError, match='scores must be one of bank_full, '):
    scores.scores('heart', seed=0)
  with pytest.raises(ValueError, match=r'auc must lie in \(1/2, 1\), got 0.4'):
    scores.coefficients(0.2, 0.4)
  with pytest.raises(ValueError, match=r'holdout must lie in \[0, 1\), got 1'):
    scores.scores('framingham', seed=0, holdout=1)
