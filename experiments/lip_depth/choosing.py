"""Chooses hyperparameters of networks of orthogonal layers on a fold.

  python -m experiments.lip_depth.choosing --data_dir=data

For each method of the kind 'orthogonal' there are twelve candidates at four
hidden layers: four learning rates around the recipe's, times three bounds of a
gradient, the clip norm or the bound of cotangents. The split is none of those
that the sweep tests on. `fold_choices` trains them and writes
results/chosen.json, which `run` reads for all depths.
"""

import dataclasses
import itertools
import sys

from absl import app

from experiments import fold_choices
from experiments.lip_depth import run
from experiments.lip_depth import sweep

_DEPTH, _SPLIT = 4, 1000
_RATES = (0.25, 0.5, 1.0, 2.0)
_BOUNDS = (0.25, 0.5, 1.0)


def cells() -> list[fold_choices.Cell]:
  """Returns the candidates of every method, at one depth."""
  chosen = [setting for setting in sweep.SETTINGS if setting.seed == 0 and (
      setting.kind, setting.depth) == ('orthogonal', _DEPTH)]
  return [_cell(setting) for setting in chosen]


def _cell(setting: sweep.Setting) -> fold_choices.Cell:
  config = dataclasses.replace(run.config(setting, chosen={}),
                               split_seed=_SPLIT)
  rates = [factor * config.learning_rate for factor in _RATES]
  if setting.method == 'sgd':
    return fold_choices.Cell(
        'sgd', config, [dict(learning_rate=rate) for rate in rates])
  name = 'logit_clip' if setting.method == 'lip_dp_sgd' else 'clip_norm'
  return fold_choices.Cell(setting.method, config, [
      {'learning_rate': rate, name: factor * config.logit_clip}
      for rate, factor in itertools.product(rates, _BOUNDS)])


if __name__ == '__main__':
  app.run(
      lambda args: sys.exit(fold_choices.main(cells(), args)),
      flags_parser=lambda argv: fold_choices.parse(
          argv, description=__doc__, output=run.CHOSEN))
