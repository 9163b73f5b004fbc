"""Hyperparameters a run uses where its configuration is silent.

Public inputs: fixed once for all tabular data sets, from the method and the
number of training records alone. They were chosen by looking at accuracies on
these data sets; the privacy cost of such a search is not charged to a run, as
in the papers.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
  """Defaults of one method; see `training.TrainingConfig` for the fields."""
  num_steps: int
  batch_size: float
  learning_rate: float
  clip_norm: float = 1.0
  temperature: float = 1.0
  weight_norm: float = 4.0
  input_radius: float = 2.5
  hidden_radius: float = 3.0
  logit_clip: float = 0.35


_LEARNING_RATES = {
    'sgd': 1.0,
    'dp_sgd': 2.0,
    'lip_dp_sgd': 0.8,
    'fix_lip_dp_sgd': 0.8,
}
# With bounded weights the logits are small; dividing them by a half lets a
# record count as settled, and its cotangent fade, at smaller weights.
_TEMPERATURES = {'lip_dp_sgd': 0.5, 'fix_lip_dp_sgd': 0.5}
_SMALL = 2000
_TINY = 600
_MOST_RECORDS = 1024


def recipe(method: str, *, num_train: int) -> Recipe:
  """The defaults of `method` on `num_train` records.

  Large batches and few steps: at a fixed budget the noise of a step counts
  for less the more records share it. Of a few hundred records each step of
  dp_sgd takes all, and the Lipschitz methods step more gently.
  """
  changes = {'learning_rate': _LEARNING_RATES[method]}
  batch_size = max(1, min(num_train // 2, _MOST_RECORDS))
  if num_train < _TINY and method == 'dp_sgd':
    batch_size = num_train
    changes = {'learning_rate': 4.0, 'clip_norm': 0.5}
  elif num_train < _TINY and method != 'sgd':
    changes = {'learning_rate': 0.6}
  return Recipe(
      num_steps=100 if num_train < _SMALL else 400,
      batch_size=float(batch_size),
      temperature=_TEMPERATURES.get(method, 1.0), **changes)
