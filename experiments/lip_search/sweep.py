"""Settings that search the hyperparameters of Table 5.2 of Barczewski (2025).

Budgets are the epsilons of Table 5.4 there.

  python -m launch.sweep --experiment=lip_search --data_dir=data \
    --output_dir=experiments/lip_search/results           all searches
  python -m launch.report --experiment=lip_search
  python -m experiments.lip_search.selected       writes results/selected.json,
                                                  which `lip_tabular` reads

A setting is one whole search and takes a few minutes. `--shard=1/2` gives half
of the searches to each of two processes; `--only=dataset=german_credit` runs
those of one data set. The noise multiplier is solved for epsilon, never
searched. All methods have the same number of trials. They are scored by
cross-validation inside the training part of one split; its held-out fifth is
used once, after the choice.

Expected: linear models for most methods, on crossed columns with the ordinal
loss for nursery and on bins for adult; on Android permissions, networks with a
hidden layer.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from experiments import papers

PAPERS = ('003',)
QUICK_IS_SMOKE = True
ARTEFACT = ('Table 5.2 of Barczewski (2025): hyperparameters by Bayesian '
            'optimisation')
COST = '1.3 h on 2 CPU cores'
HEADLINES = ('privacy loss by the search',)

METHODS = ('dp_sgd', 'lip_dp_sgd', 'fix_lip_dp_sgd', 'layer_clipped',
           'dp_sgd_per_layer', 'dp_sgd_automatic', 'dp_sgd_adaptive',
           'lip_propagated', 'lip_normalised', 'lip_adaptive',
           'lip_unclipped')
_UNCLIPPED = {'method': 'lip_dp_sgd', 'logit_clip': 100.0}


def fixed(method: str) -> Mapping[str, Any]:
  """Returns the fields of a `TrainingConfig` that a method fixes.

  'lip_unclipped' is Lip-DP-SGD without any clipping: the norm of the gradient
  in the logits is below 15, that in a score at most 80, at all temperatures of
  the search, so that `logit_clip` has no effect.
  """
  return _UNCLIPPED if method == 'lip_unclipped' else {'method': method}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One search.

  Attributes:
    dataset: name of the data set.
    method: name of the method.
    epsilon: epsilon of each run, as Table 5.4 prints it, at delta = 1/n.
    num_trials: number of configurations to try; the first ones are those of
      the recipes, see `run.starts`.
    num_folds: number of parts of the training records for cross-validation.
    folds: number of these parts that are validated on.
    repeats: number of runs on each fold, each with fresh noise.
    steps: numbers of steps to choose from.
    features: features of records to choose from, see `runs.run_features`.
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
  features: tuple[str, ...]
  num_tests: int
  split: int
  seed: int


# Options of a search by the size of the data set. With a few hundred records a
# score needs many runs to be meaningful; with tens of thousands each run is
# long.
_TINY = dict(folds=5, repeats=2, steps=(25, 50, 100, 200))
_SMALL = dict(folds=5, repeats=1, steps=(100, 200, 400))
_LARGE = dict(folds=1, repeats=1, steps=(100, 200, 400))
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
                    'num_trials': 16, 'features': _features(dataset),
                    **BUDGETS[dataset], **changes})


def _features(dataset: str) -> tuple[str, ...]:
  """Returns the features to choose from; most tables have too many crosses."""
  crossed = ('crossed',) if dataset == 'nursery' else ()
  return ('none', 'unit', 'binned', *crossed)


def losses(dataset: str) -> tuple[str, ...]:
  """Returns the losses to choose from.

  The classes of nursery are recommendations, from none to the strongest one.
  """
  return ('cross_entropy', *(('ordinal',) if dataset == 'nursery' else ()))


SETTINGS = tuple(_setting(dataset, method)
                 for dataset in BUDGETS for method in METHODS)
SMOKE = (_setting('breast_cancer', 'lip_dp_sgd', num_trials=3, folds=2,
                  repeats=1, steps=(20,), features=('none', 'unit'),
                  num_tests=2),)

TAGS = {
    'small': lambda setting: BUDGETS[setting.dataset] is not _LARGE,
    'large': lambda setting: BUDGETS[setting.dataset] is _LARGE,
}
