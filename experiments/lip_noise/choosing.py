"""Chooses the learning rate of each method, schedule and way on a fold.

  python -m experiments.lip_noise.choosing --data_dir=data

Each has the same five candidates. The split is none of those that the sweep
tests on, and four fifths of the records train. `fold_choices` writes
results/chosen.json, which `run` reads.
"""

import dataclasses
import sys

from absl import app

from experiments import fold_choices
from experiments.lip_noise import run
from experiments.lip_noise import sweep

_SPLIT = 1000
_RATES = (1.0, 3.0, 10.0, 30.0, 100.0)
# Of four fifths of the training part, and a multiple of 16 and of 200.
_NUM_EXAMPLES = 31_200


def cells() -> list[fold_choices.Cell]:
  """Returns the candidates of every method, schedule and way."""
  return [
      fold_choices.Cell(
          run.cell_name(setting), dataclasses.replace(
              run.config(setting, chosen={}, num_examples=_NUM_EXAMPLES),
              split_seed=_SPLIT),
          [dict(learning_rate=rate) for rate in _RATES])
      for setting in sweep.SETTINGS if setting.seed == 0]


if __name__ == '__main__':
  app.run(
      lambda args: sys.exit(fold_choices.main(cells(), args)),
      flags_parser=lambda argv: fold_choices.parse(
          argv, description=__doc__, output=run.CHOSEN))
