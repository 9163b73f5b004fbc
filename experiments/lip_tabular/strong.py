"""Strong models without privacy, which show what the tables allow.

Boosted trees, and a logistic regression on crossed columns. A grid of
hyperparameters is scored by three folds of the training part of the first
split, and the best ones serve all splits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from dpjax.data import registry
from dpjax.data import splits
from dpjax.features import tables
from dpjax.runs import configuration
from dpjax.runs import training

_FOLDS = 3
# Most crossed features of a record; more are hashed.
_MOST = 4000


class Scored(NamedTuple):
  """A model on a split.

  Attributes:
    accuracy: on the test part.
    num_train: number of training records.
    seconds: time of the fit.
  """
  accuracy: float
  num_train: int
  seconds: float


def accuracies(name: str, dataset: registry.Dataset, seeds: Iterable[int]
               ) -> Iterator[Scored]:
  """Yields the accuracies of a model on the test parts of splits.

  Args:
    name: one of `MODELS`.
    dataset: a table of the registry.
    seeds: of the splits; methods with the same seed have the same one.
  """
  model = MODELS[name]
  x, y = model.prepare(dataset), np.asarray(dataset.y)
  first = _split(dataset, 0).train
  chosen = _best(name, x[first], y[first])
  for seed in seeds:
    rows = _split(dataset, seed)
    started = time.perf_counter()
    estimator = model.make(**chosen).fit(x[rows.train], y[rows.train])
    seconds = time.perf_counter() - started
    yield Scored(estimator.score(x[rows.test], y[rows.test]), len(rows.train),
                 seconds)


def _split(dataset: registry.Dataset, seed: int) -> splits.Split:
  """Returns the split that all methods of the sweep have at a seed."""
  config = configuration.TrainingConfig(dataset=dataset.name, method='sgd',
                                        seed=seed)
  config = configuration.resolve(
      config, num_available=training.num_available(config, dataset))
  return jax.tree.map(np.asarray, training.split_rows(config, dataset))


def _best(name: str, x: Any, y: np.ndarray) -> Mapping[str, Any]:
  """Returns the hyperparameters with the best mean score over folds."""
  from sklearn import model_selection
  model = MODELS[name]
  return model_selection.GridSearchCV(
      model.make(), model.grid, refit=False, cv=model_selection.KFold(
          _FOLDS, shuffle=True, random_state=0)).fit(x, y).best_params_


def _columns(dataset: registry.Dataset) -> np.ndarray:
  return np.asarray(dataset.x)


def _crossed(dataset: registry.Dataset) -> Any:
  """Returns crossed columns [n, p] as a sparse matrix of ones."""
  from scipy import sparse
  crossed = tables.crossed(registry.DATASETS[dataset.name].schema, most=_MOST)
  places = np.asarray(crossed.indices(dataset.x))
  starts = np.arange(0, places.size + 1, places.shape[1])
  return sparse.csr_matrix((np.ones(places.size), places.ravel(), starts),
                           shape=(len(places), *crossed.output_shape))


def _trees(**options: Any) -> Any:
  from sklearn import ensemble
  # Early stopping would hold out records of each class; one class has two.
  return ensemble.HistGradientBoostingClassifier(
      early_stopping=False, max_iter=200, random_state=0, **options)


def _logistic(**options: Any) -> Any:
  from sklearn import linear_model
  return linear_model.LogisticRegression(max_iter=300, **options)


class Model(NamedTuple):
  """A kind of model.

  Attributes:
    prepare: data set -> what it reads, rows in the order of records.
    make: hyperparameters -> the estimator of scikit-learn.
    grid: name of a hyperparameter -> values that are tried.
  """
  prepare: Callable[[registry.Dataset], Any]
  make: Callable[..., Any]
  grid: Mapping[str, list[Any]]


MODELS: Mapping[str, Model] = {
    'gradient_boosting': Model(_columns, _trees, {
        'learning_rate': [0.05, 0.2], 'max_leaf_nodes': [7, 31]}),
    'crossed_logistic': Model(_crossed, _logistic, {
        'C': [0.003, 0.03, 0.3, 3.0]})}
"""Name of a model -> the model."""
