"""Predictions of a classifier for labelled records, real or simulated.

The classifier is that of Barczewski (2025, section 6.6): logistic regression by
scikit-learn on one-hot and standardised features, untuned, fitted and evaluated
on the same records. It counts as public.

A stand-in matches the size, the share of positives and the area under the curve
of a real data set, and needs no file (item EC-29). It draws a standard normal
z, predicts p = sigmoid(a + b z), and sets the label to 1 with probability p, so
that its predictions are calibrated.
"""

import functools
from typing import NamedTuple

import numpy as np
from scipy import optimize
from scipy import special
from scipy import stats

from dpjax import errors
from dpjax.data import registry


class Scores(NamedTuple):
  """Predictions and labels of n records.

  Attributes:
    predictions: [n] float64 in (0, 1), probability that the label is 1.
    labels: [n] int64, 0 or 1.
  """
  predictions: np.ndarray
  labels: np.ndarray


class Shape(NamedTuple):
  """Properties of real data that a stand-in copies (Table 6.1 of that work).

  Attributes:
    num_examples: n, the number of records.
    positive_share: expected share of labels that are 1.
    auc: expected area under the ROC curve.
  """
  num_examples: int
  positive_share: float
  auc: float


STAND_INS = {
    'framingham_stand_in': Shape(4_238, 0.152, 0.76),
    'bank_full_stand_in': Shape(45_211, 0.117, 0.90),
    'diabetes_130_stand_in': Shape(101_766, 0.460, 0.68),
}
FILES = ('framingham', 'bank_full', 'diabetes_130')
NAMES = (*FILES, *STAND_INS)

_POINTS = np.linspace(-8.0, 8.0, 4001)
_WEIGHTS = stats.norm.pdf(_POINTS) / np.sum(stats.norm.pdf(_POINTS))


@functools.cache
def scores(name: str, *, data_dir: str | None = None, seed: int,
           holdout: float = 0.0) -> Scores:
  """Returns the scores of a data set or stand-in, as read-only arrays.

  Results are cached in the process.

  Args:
    name: a name of `NAMES`.
    data_dir: folder with the files; default $DPJAX_DATA_DIR.
    seed: seed of the split, or of a stand-in.
    holdout: share of the records held out for evaluation; 0 evaluates on the
      records that the model is fitted on. Stand-ins ignore it, because their
      predictions are the true probabilities.

  Raises:
    ValueError: for an unknown name, or a share outside [0, 1).
    FileNotFoundError: for a missing file.
  """
  errors.check_choice('scores', name, NAMES)
  if not 0 <= holdout < 1:
    raise ValueError(f'holdout must lie in [0, 1), got {holdout}')
  if name in STAND_INS:
    scored = stand_in(STAND_INS[name], seed=seed)
  else:
    dataset = registry.load(name, data_dir=data_dir)
    scored = fitted(np.asarray(dataset.x), np.asarray(dataset.y),
                    holdout=holdout, seed=seed)
  for array in scored:
    array.setflags(write=False)
  return scored


def fitted(x: np.ndarray, y: np.ndarray, *, seed: int,
           holdout: float = 0.0) -> Scores:
  """Returns predictions of a logistic regression of y [n] on x [n, p]."""
  # Imported here because scikit-learn is slow to import.
  from sklearn import linear_model
  from sklearn import pipeline
  from sklearn import preprocessing
  permutation = np.random.default_rng(seed).permutation(len(y))
  held_out = permutation[:round(holdout * len(y))]
  chosen = held_out if held_out.size else np.arange(len(y))
  fit_on = np.setdiff1d(np.arange(len(y)), held_out)
  model = pipeline.make_pipeline(
      preprocessing.StandardScaler(),
      linear_model.LogisticRegression(max_iter=1000))
  model.fit(x[fit_on].astype(np.float64), y[fit_on])
  predicted = model.predict_proba(x[chosen].astype(np.float64))[:, 1]
  return Scores(predicted, y[chosen].astype(np.int64))


def stand_in(shape: Shape, *, seed: int) -> Scores:
  """Returns scores drawn from p = sigmoid(a + b z), z standard normal."""
  generator = np.random.default_rng(seed)
  intercept, slope = coefficients(shape.positive_share, shape.auc)
  predicted = special.expit(
      intercept + slope * generator.standard_normal(shape.num_examples))
  labels = generator.uniform(size=shape.num_examples) < predicted
  return Scores(predicted, labels.astype(np.int64))


@functools.cache
def coefficients(positive_share: float, auc: float) -> tuple[float, float]:
  """Returns a and b of p = sigmoid(a + b z), z standard normal.

  Raises:
    ValueError: for a share outside (0, 1) or an area outside (1/2, 1).
  """
  errors.check_open_unit('positive_share', positive_share)
  if not 0.5 < auc < 1:
    raise ValueError(f'auc must lie in (1/2, 1), got {auc}')
  slope = optimize.brentq(
      lambda slope: expected(_intercept(positive_share, slope), slope)[1] - auc,
      1e-6, 100.0, xtol=1e-10)
  return _intercept(positive_share, slope), slope


def _intercept(positive_share: float, slope: float) -> float:
  """Returns the a for which a share of labels is expected to be 1."""
  bound = 20.0 + 10.0 * slope

  def excess(intercept):
    return _WEIGHTS @ special.expit(intercept + slope * _POINTS) - (
        positive_share)
  return optimize.brentq(excess, -bound, bound, xtol=1e-12)


def expected(intercept: float, slope: float) -> tuple[float, float]:
  """Returns the share of positives and the area under the ROC curve.

  Both are expected values, by quadrature over z.
  """
  chance = special.expit(intercept + slope * _POINTS)
  positive, negative = _WEIGHTS * chance, _WEIGHTS * (1 - chance)
  share = positive.sum()
  # Chance that a negative scores below each point; a tie counts half.
  below = np.cumsum(negative) - negative / 2
  return share, (positive @ below) / (share * negative.sum())
