"""Settings that search the hyperparameters of Table 5.2 of Barczewski (2025).

Budgets are the epsilons of Table 5.4 there.

  python -m launch.sweep --experiment=lip_search --data_dir=data \
    --output_dir=experiments/lip_search/results           all searches
  python -m launch.report --experiment=lip_search
  python -m experiments.lip_search.selected       writes results/selected.json,
                                                  which `recipes` reads

A setting is one whole search and takes a few minutes. `--shard=1/2` gives half
of the searches to each of two processes; `--only=dataset=german_credit` runs
those of one data set. The noise multiplier is solved for epsilon, never
searched. Trials are scored by cross-validation inside the training part of one
split; its held-out fifth is used once, after the choice.

Expected, with few trials: accuracies differ from the defaults by about one
standard error, except for dp_sgd on nursery, which gains 0.02 with two narrow
layers and momentum.
"""

import dataclasses

from experiments import papers

PAPERS = ('003',)
QUICK_IS_SMOKE = True
ARTEFACT = ('Table 5.2 of Barczewski (2025): hyperparameters by Bayesian '
            'optimisation')
COST = '0.8 h on 2 CPU cores'
HEADLINES = ('privacy loss by the search',)

METHODS = ('dp_sgd', 'lip_dp_sgd', 'fix_lip_dp_sgd')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One search.

  Attributes:
    dataset: name of the data set.
    method: name of the method.
    epsilon: epsilon of each run, as Table 5.4 prints it, at delta = 1/n.
    num_trials: number of configurations to try; the first is that of the
      recipes.
    num_folds: number of parts of the training records for cross-validation.
    folds: number of these parts that are validated on.
    repeats: number of runs on each fold, each with fresh noise.
    steps: numbers of steps to choose from.
    num_tests: number of runs, of the winner and of the recipe, that are tested
      on the held-out part.
    split: seed of the split into training and held-out part.
    seed: seed of the search.
  """
  dataset: str
  method: str
  epsilon: float
  num_trials: int
  num_folds: int
  folds: int
  repeats: int
  steps: tuple[int, ...]
  num_tests: int
  split: int
  seed: int


# Options of a search by the size of the data set. With a few hundred records a
# score needs many runs to be meaningful; with tens of thousands each run is
# long.
_TINY = dict(num_trials=30, folds=5, repeats=2, steps=(25, 50, 100, 200))
_SMALL = dict(num_trials=30, folds=5, repeats=1, steps=(100, 200, 400, 800))
_LARGE = dict(num_trials=20, folds=2, repeats=1, steps=(200, 400, 800))
BUDGETS = {
    'breast_cancer': _TINY,
    'german_credit': _TINY,
    'dropout': _SMALL,
    'nursery': _SMALL,
    'adult': _LARGE,
    'android_permissions': _LARGE,
    'default_credit': _LARGE,
}
_EPSILONS = {line.dataset: line.epsilon for line in papers.TABLE_5_4}


def _setting(dataset, method, **changes):
  return Setting(dataset=dataset, method=method, epsilon=_EPSILONS[dataset],
                 **{'num_folds': 5, 'num_tests': 10, 'split': 0, 'seed': 0,
                    **BUDGETS[dataset], **changes})


SETTINGS = tuple(_setting(dataset, method)
                 for dataset in BUDGETS for method in METHODS)
SMOKE = (_setting('breast_cancer', 'lip_dp_sgd', num_trials=2, folds=2,
                  repeats=1, steps=(20,), num_tests=2),)

OLDER = {'made before the noise of today, and the recipes are what they chose':
         lambda setting: True}
TAGS = {
    'small': lambda setting: BUDGETS[setting.dataset] is not _LARGE,
    'large': lambda setting: BUDGETS[setting.dataset] is _LARGE,
}
