"""Hyperparameters a run uses where its configuration is silent.

Those that the search of `lip_search` has selected for a method on a data set,
where there are any; else ones from the method and the number of training
records, and for one data set from tries on validation folds. All were chosen
by looking at these data sets. A run's epsilon
holds for hyperparameters that are public inputs; what the choice costs, if it
is to be charged (erratum E30), is in the rows of `lip_search`.
"""

import dataclasses
import functools
import json
import pathlib
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
  """Defaults of one method; the fields are those of `TrainingConfig`."""
  num_steps: int
  batch_size: float
  learning_rate: float
  clip_norm: float = 1.0
  temperature: float = 1.0
  weight_norm: float = 4.0
  input_radius: float = 2.5
  hidden_radius: float = 3.0
  logit_clip: float = 0.35
  depth: int = 1
  width: int = 16
  activation: str = 'tanh'
  optimizer: str = 'sgd'
  schedule: str = 'cosine'
  allocation: str = 'optimal'


SELECTED = (pathlib.Path(__file__).parent / 'lip_search' / 'results' /
            'selected.json')
"""Made by `experiments.lip_search.selected`; need not be there."""

_LEARNING_RATES = {
    'sgd': 1.0,
    'dp_sgd': 2.0,
    'dp_sgd_per_layer': 2.0,
    'dp_sgd_automatic': 1.0,
    'dp_sgd_adaptive': 2.0,
    'layer_clipped': 2.0,
    'lip_dp_sgd': 0.8,
    'fix_lip_dp_sgd': 0.8,
    'lip_normalised': 2.0,
    'lip_propagated': 0.8,
    'lip_norm': 0.8,
    'lip_adaptive': 0.8,
    'lip_printed': 0.8,
    'lip_k_norm': 0.8,
    'bassily': 0.8,
}
# With bounded weights the logits are small; dividing them by a half lets a
# record count as settled, and its cotangent fade, at smaller weights.
_TEMPERATURES = {'lip_dp_sgd': 0.5, 'fix_lip_dp_sgd': 0.5,
                 'lip_propagated': 0.5, 'lip_adaptive': 0.5,
                 'lip_normalised': 0.5}
# Other ways to compute the same sums.
_SAME = {'dp_sgd_vmap': 'dp_sgd'}
# Many ones and zeros that matter in pairs.
_CHOSEN = {
    ('android_permissions', 'layer_clipped'): dict(
        width=64, activation='relu', batch_size=4096.0, temperature=0.5),
}
_CLIPPING = ('dp_sgd', 'dp_sgd_per_layer', 'dp_sgd_automatic',
             'dp_sgd_adaptive', 'layer_clipped')
_LARGE = 8000
_SMALL = 2000
_TINY = 600
_MOST_RECORDS = 1024


def recipe(method: str, *, num_train: int, dataset: str | None = None,
           images: bool = False) -> Recipe:
  """The defaults of `method` on `num_train` records.

  Args:
    method: a name of `configuration.METHODS`.
    num_train: n.
    dataset: whose selected values to use, if there are any for this method,
      found with at least half and at most twice as many records; None for
      those that are for all data sets.
    images: whether records are images.
  """
  method = _SAME.get(method, method)
  if images:
    return _of_images(method, num_train)
  general = _general(method, num_train)
  if num_train >= _LARGE:
    general = dataclasses.replace(general,
                                  **_CHOSEN.get((dataset, method), {}))
  found = _read(SELECTED).get(dataset, {}).get(method)
  if not found or not 0.5 <= num_train / found['num_train'] <= 2:
    return general
  values = {name: value for name, value in found.items()
            if name not in ('num_train', 'sampling_prob')}
  batch_size = max(1.0, round(found['sampling_prob'] * num_train))
  return dataclasses.replace(general, batch_size=float(batch_size), **values)


def _general(method: str, num_train: int) -> Recipe:
  """Large batches and few steps.

  At a fixed budget the noise of a step counts for less the more records share
  it. Of a few hundred records each step of dp_sgd takes all, and the Lipschitz
  methods step more gently.
  """
  changes = {'learning_rate': _LEARNING_RATES[method]}
  batch_size = max(1, min(num_train // 2, _MOST_RECORDS))
  num_steps = 100 if num_train < _SMALL else 400
  if num_train < _TINY and method == 'dp_sgd':
    batch_size = num_train
    changes = {'learning_rate': 4.0, 'clip_norm': 0.5}
  elif num_train < _TINY and method != 'sgd':
    changes = {'learning_rate': 0.6}
  elif num_train < _SMALL and method == 'lip_normalised':
    changes = {'learning_rate': 4.0}
  elif num_train >= _LARGE and method not in ('sgd', 'bassily'):
    num_steps = 800
    changes = {'learning_rate': 1.5 * _LEARNING_RATES[method]
               if method in _CLIPPING else 2.0}
  return Recipe(
      num_steps=num_steps, batch_size=float(batch_size),
      depth=0 if method == 'bassily' else 1,
      temperature=_TEMPERATURES.get(method, 1.0), **changes)


def _of_images(method: str, num_train: int) -> Recipe:
  """For the ConvNet: ReLU, larger balls, a hidden layer of 128 units."""
  table = _general(method, num_train)
  return dataclasses.replace(
      table, depth=2, width=128, activation='relu', input_radius=10.0,
      hidden_radius=5.0, weight_norm=1.5,
      batch_size=float(max(1, min(num_train // 4, _MOST_RECORDS))))


@functools.cache
def _read(path: pathlib.Path) -> dict[str, dict[str, dict[str, Any]]]:
  """Selected values by data set and method."""
  return json.loads(path.read_text()) if path.exists() else {}
