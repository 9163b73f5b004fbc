"""Default hyperparameters of a run, for fields that its configuration leaves.

They are the values that the search of `lip_search` selected for a method on a
data set, if there are any. Otherwise they depend on the method and the number
of training records, with one exception tuned on validation folds. All were
chosen by looking at these data sets. A run's epsilon assumes that
hyperparameters are public inputs. The rows of `lip_search` state the privacy
cost of choosing them (erratum E30 of experiments/ERRATA.md).
"""

import functools
import json
import pathlib
from typing import Any

from dpjax.runs import training_methods

# Option -> value; the types are those of `options.TrainingConfig`.
Recipe = dict[str, Any]

SELECTED = pathlib.Path(__file__).parent / 'selected.json'
"""Written by `experiments.lip_search.selected`; this file is optional."""

# What all methods share; num_steps, batch_size and learning_rate always differ.
_SHARED: Recipe = dict(
    clip_norm=1.0, temperature=1.0, weight_norm=4.0, input_radius=2.5,
    hidden_radius=3.0, logit_clip=0.35, depth=1, width=16, activation='tanh',
    optimizer='sgd', schedule='cosine', allocation='optimal')
# Exceptions by data set. Android permissions are binary features that matter in
# pairs, hence the wider hidden layer.
_CHOSEN: dict[tuple[str | None, str], Recipe] = {
    ('android_permissions', 'layer_clipped'): dict(
        width=64, activation='relu', batch_size=4096.0, temperature=0.5),
}
# Numbers of training records at which the defaults change.
_LARGE = 8000
_SMALL = 2000
_TINY = 600
# Largest default batch.
_MOST_RECORDS = 1024


def recipe(method: str, *, num_train: int, dataset: str | None = None,
           images: bool = False, features: bool = False) -> Recipe:
  """Returns the default hyperparameters of a method: option -> value.

  Args:
    method: a name of `training_methods.METHODS`.
    num_train: number n of training records, public.
    dataset: name of a data set whose selected values are used if the search
      had at least n / 2 and at most 2 n records; None for the general values.
    images: whether records are images; selected values are for tables only.
    features: whether records are features of norm 1, see `run_features`.
  """
  method = training_methods.METHODS[method].same_recipe_as or method
  if images:
    return _of_images(method, num_train)
  if features:
    return _of_features(method, num_train)
  general = _general(method, num_train)
  if num_train >= _LARGE:
    general |= _CHOSEN.get((dataset, method), {})
  by_dataset = _read(SELECTED)
  selected = by_dataset.get(dataset, {}).get(method) if dataset else None
  if not selected or not 0.5 <= num_train / selected['num_train'] <= 2:
    return general
  values = {name: value for name, value in selected.items()
            if name not in ('num_train', 'sampling_prob')}
  batch_size = max(1.0, round(selected['sampling_prob'] * num_train))
  return {**general, 'batch_size': float(batch_size), **values}


def _general(method: str, num_train: int) -> Recipe:
  """Returns defaults for all data sets: large batches and few steps.

  At a fixed budget, the noise in the mean gradient falls with the batch size.
  With a few hundred records, dp_sgd uses all of them in each step, and the
  Lipschitz methods use a smaller learning rate.
  """
  declared = training_methods.METHODS[method]
  changes = {'learning_rate': declared.learning_rate}
  batch_size = max(1, min(num_train // 2, _MOST_RECORDS))
  num_steps = 100 if num_train < _SMALL else 400
  if num_train < _TINY and method == 'dp_sgd':
    batch_size = num_train
    changes = {'learning_rate': 4.0, 'clip_norm': 0.5}
  elif num_train < _TINY and method != 'sgd':
    changes = {'learning_rate': 0.6}
  elif num_train < _SMALL and method == 'lip_normalised':
    changes = {'learning_rate': 4.0}
  elif num_train >= _LARGE and method != 'sgd' and not declared.linear:
    num_steps = 800
    changes = {'learning_rate': 1.5 * declared.learning_rate
               if declared.clips else 2.0}
  return {
      **_SHARED, 'num_steps': num_steps, 'batch_size': float(batch_size),
      'depth': 0 if declared.linear else 1,
      'temperature': declared.temperature, **changes}


def _of_images(method: str, num_train: int) -> Recipe:
  """Returns defaults for images: ReLU, larger balls, 128 hidden units."""
  return {
      **_general(method, num_train), 'depth': 2, 'width': 128,
      'activation': 'relu', 'input_radius': 10.0, 'hidden_radius': 5.0,
      'weight_norm': 1.5,
      'batch_size': float(max(1, min(num_train // 4, _MOST_RECORDS)))}


def _of_features(method: str, num_train: int) -> Recipe:
  """Returns defaults for features of norm 1: a linear model, large rates.

  The sensitivity of a single layer does not depend on the norm of its weights,
  so their limit is wide.
  """
  rate = 32.0 if num_train >= _LARGE else 4.0
  clips = training_methods.METHODS[method].clips
  return {
      **_general(method, num_train), 'depth': 0, 'input_radius': 1.0,
      'weight_norm': 200.0, 'temperature': 1.0,
      # The mean of clipped gradients is as small as the clip norm.
      'clip_norm': 0.3, 'learning_rate': rate / 0.3 if clips else rate}


@functools.cache
def _read(path: pathlib.Path) -> dict[str, dict[str, dict[str, Any]]]:
  """Reads selected values: data set -> method -> field -> value."""
  return json.loads(path.read_text()) if path.exists() else {}
