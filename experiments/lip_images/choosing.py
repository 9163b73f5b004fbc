"""Chooses hyperparameters of the small networks on a validation fold.

  python -m experiments.lip_images.choosing --data_dir=data

For each data set and method of the profile 'cpu' there are nine candidates:
three learning rates, times three sizes of what bounds a gradient, the clip norm
or the norm of weights. The budgets are `sweep.CHOICE_EPSILONS`.
`fold_choices` trains them and writes results/chosen.json, which
`hyperparameters` reads.
"""

import itertools
import math
import sys

from absl import app

from experiments import fold_choices
from experiments.lip_images import hyperparameters
from experiments.lip_images import run
from experiments.lip_images import sweep

_FACTORS = (0.5, 1.0, 2.0)
_CLIP_NORMS = (0.1, 0.3, 1.0)


def settings() -> list[sweep.Setting]:
  """Returns one setting for each data set and method, at one budget."""
  return [setting for setting in sweep.SETTINGS
          if setting.profile == 'cpu' and setting.seed == 0 and
          setting.epsilon in (math.inf,
                              sweep.CHOICE_EPSILONS[setting.dataset])]


def cell(setting: sweep.Setting) -> fold_choices.Cell:
  """Returns the candidates for a setting, around the fields of all data sets.
  """
  config = run.config(setting, chosen={})
  return fold_choices.Cell(setting.method, config, _candidates(setting))


def _candidates(setting: sweep.Setting) -> list[dict[str, float]]:
  """Returns the fields that are tried."""
  fields = hyperparameters.fields(setting, chosen={})
  rates = [factor * fields['learning_rate'] for factor in _FACTORS]
  if setting.method == 'sgd':
    return [dict(learning_rate=rate) for rate in rates]
  if 'weight_norm' in fields:
    name, values = 'weight_norm', [
        factor * fields['weight_norm'] for factor in _FACTORS]
  else:
    name, values = 'clip_norm', list(_CLIP_NORMS)
  return [{'learning_rate': rate, name: value}
          for rate, value in itertools.product(rates, values)]


if __name__ == '__main__':
  app.run(
      lambda args: sys.exit(fold_choices.main(list(map(cell, settings())),
                                              args)),
      flags_parser=lambda argv: fold_choices.parse(
          argv, description=__doc__, output=hyperparameters.CHOSEN))
