"""Scored records: what a classifier says of each, and the true label.

The classifier of thesis 003, section 6.6: logistic regression by scikit-learn,
one-hot and standardised features, untuned, fitted on all records and evaluated
on the same; it counts as public. Stand-ins have the size, the share of
positives and the area under the curve of the real ones, and need no file: z is
standard normal, p = sigmoid(a + b z), and a label is 1 with probability p (item
EC-29). Their labels follow from what is predicted, so they are calibrated.
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
  """Of n records.

  Attributes:
    predictions: [n] float64 in (0, 1), that the label is 1.
    labels: [n] int64, 0 or 1.
  """
  predictions: np.ndarray
  labels: np.ndarray


class Shape(NamedTuple):
  """What a stand-in has of the data it stands for (Table 6.1 of thesis 003).

  Attributes:
    num_examples: n.
    positive_share: of labels, expected.
    auc: of predictions, expected.
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
  """Scores of a name of `NAMES`, made once in a process; not to be written to.

  Args:
    name: a data set, or its stand-in.
    data_dir: folder with the files; default $DPJAX_DATA_DIR.
    seed: of the split, or of a stand-in.
    holdout: share of the records that the model is not fitted on, and alone
      evaluated on; 0 evaluates on those that it is fitted on. Stand-ins have a
      true model, so that they have no use for it.

  Raises:
    ValueError: for an unknown name, or a share outside [0, 1).
    FileNotFoundError: for a missing file.
  """
  errors.check_choice('scores', name, NAMES)
  if not 0 <= holdout < 1:
    raise ValueError(f'holdout must lie in [0, 1), got {holdout}')
  if name in STAND_INS:
    made = stand_in(STAND_INS[name], seed=seed)
  else:
    dataset = registry.load(name, data_dir=data_dir)
    made = fitted(np.asarray(dataset.x), np.asarray(dataset.y), holdout=holdout,
                  seed=seed)
  for array in made:
    array.setflags(write=False)
  return made


def fitted(x: np.ndarray, y: np.ndarray, *, seed: int,
           holdout: float = 0.0) -> Scores:
  """Predictions of a logistic regression of y [n] on x [n, p]."""
  # Slow to import, and needed here alone.
  from sklearn import linear_model
  from sklearn import pipeline
  from sklearn import preprocessing
  order = np.random.default_rng(seed).permutation(len(y))
  held_out = order[:round(holdout * len(y))]
  chosen = held_out if held_out.size else np.arange(len(y))
  fit_on = np.setdiff1d(np.arange(len(y)), held_out)
  model = pipeline.make_pipeline(
      preprocessing.StandardScaler(),
      linear_model.LogisticRegression(max_iter=1000))
  model.fit(x[fit_on].astype(np.float64), y[fit_on])
  predicted = model.predict_proba(x[chosen].astype(np.float64))[:, 1]
  return Scores(predicted, y[chosen].astype(np.int64))


def stand_in(shape: Shape, *, seed: int) -> Scores:
  """Records drawn by the closed form."""
  generator = np.random.default_rng(seed)
  intercept, slope = coefficients(shape.positive_share, shape.auc)
  predicted = special.expit(
      intercept + slope * generator.standard_normal(shape.num_examples))
  labels = generator.uniform(size=shape.num_examples) < predicted
  return Scores(predicted, labels.astype(np.int64))


@functools.cache
def coefficients(positive_share: float, auc: float) -> tuple[float, float]:
  """a and b of p = sigmoid(a + b z), z standard normal.

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
  bound = 20.0 + 10.0 * slope

  def excess(intercept):
    return _WEIGHTS @ special.expit(intercept + slope * _POINTS) - (
        positive_share)
  return optimize.brentq(excess, -bound, bound, xtol=1e-12)


def expected(intercept: float, slope: float) -> tuple[float, float]:
  """Share of positives and area under the curve, by quadrature over z."""
  chance = special.expit(intercept + slope * _POINTS)
  positive, negative = _WEIGHTS * chance, _WEIGHTS * (1 - chance)
  share = positive.sum()
  # A tie counts half.
  below = np.cumsum(negative) - negative / 2
  return share, (positive @ below) / (share * negative.sum())
