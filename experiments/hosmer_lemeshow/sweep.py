"""Settings to study Hosmer-Lemeshow statistics.

Catalogue items EC-25, EC-26 and EC-34. Figures and algorithms are those of
Barczewski (2025).

  python -m launch.sweep --experiment=hosmer_lemeshow --data_dir=data \
    --output_dir=experiments/hosmer_lemeshow/results

A public logistic regression is evaluated on the records that it was fitted on,
with ten groups, under replace_one. Methods:
  paper    Algorithm 10 as it is meant, with noise (L + 9) / epsilon everywhere
  tight    the same with calibrated noise on the curve and on the cells
  release  one tree of counts over both classes, from which all cells are read

Figure 6.6.5 is bank_full. A stand-in is a synthetic data set whose labels are
drawn from the predictions, so that its statistic is small.
"""

import dataclasses

PAPERS = ('003',)
ARTEFACT = ('Algorithm 10 and Figure 6.6.5 of Barczewski (2025): errors of '
            'private Hosmer-Lemeshow statistics')
COST = '30 s on two CPU cores'
HEADLINES = (
    'errors vary',
    'the median error of one release is below that of Algorithm 10 with '
    'calibrated noise')
BATCHED = ('method', 'epsilon')

METHODS = ('paper', 'tight', 'release')
DATASETS = ('bank_full', 'diabetes_130', 'bank_full_stand_in')
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One statistic at one budget.

  Attributes:
    dataset: a name of `experiments.scores`.
    method: name from the list above.
    epsilon: total budget of the release.
    num_thresholds: N, the number of thresholds in [0, 1].
    num_groups: Q, the number of groups.
    min_expected: public floor of an expected count that divides.
    repetitions: number of releases.
    seed: seed of noise, and of stand-in data.
  """
  dataset: str
  method: str
  epsilon: float
  num_thresholds: int = 2**10
  num_groups: int = 10
  min_expected: float = 5.0
  repetitions: int = 100
  seed: int = 0


def _settings(datasets, epsilons, **fields):
  return tuple(Setting(dataset=dataset, method=method, epsilon=epsilon,
                       **fields)
               for dataset in datasets for method in METHODS
               for epsilon in epsilons)


SETTINGS = _settings(DATASETS, EPSILONS)
SMOKE = _settings(('framingham_stand_in',), (1.0, 10.0), num_thresholds=16,
                  num_groups=4, repetitions=6)
TAGS = {'quick': lambda setting: setting.epsilon in (0.1, 1.0, 10.0),
        'files': lambda setting: not setting.dataset.endswith('_stand_in'),
        'stand_ins': lambda setting: setting.dataset.endswith('_stand_in')}
