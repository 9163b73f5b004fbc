"""Settings to study errors of quantiles.

Catalogue items QF-02 to QF-20. Printed bounds are those of Lalanne (2023).

  python -m launch.sweep --experiment=quantile_bounds \
    --output_dir=experiments/quantile_bounds/results

Quantile levels are 1/4 + j/(2 (m + 1)), j = 1..m. Records are uniform
(mixed_0_0), where the theorems hold, or Beta(2, 5), where they do not apply,
because the density is 0 at the ends. Kinds of settings:
  upper  the error that 95 % of releases do not exceed: measured, and its bounds
  lower  the probability that the error exceeds 1/4, and its lower bounds
Methods, under replace_one:
  independent        IndExp with real targets
  recursive_printed  RecExp as printed, with half of epsilon
  recursive          RecExp with the integer depth and real targets
  joint              JointExp
  histogram          raw counts, with the number of bins of the direct bound

Expected (uniform, n = 10^4, epsilon 0.1): the printed bounds are .46 for one
level and above 5 for ten levels; the measured errors are .011 and below .06.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('Theorems 6.2.3, 6.2.5, 6.2.10 and 6.2.15 and Lemma 6.2.7 of '
            'Lalanne (2023): errors of private quantiles, proved and measured')
COST = '5 min on a CPU core'
HEADLINES = (
    'Figure 6.1',
    'RecExp has the smallest error for large m',
    'sharp bounds')

METHODS = ('independent', 'recursive_printed', 'recursive', 'joint',
           'histogram')
UNIFORM, BETA = 'mixed_0_0', 'beta_2_5'
LEVEL = 0.05
FAR = 0.25
_MOST_RECORDS = 10**7
# Largest number of quantile levels, for methods that run with fewer.
_FEWER = {'independent': 10, 'joint': 10}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One mechanism on records of one distribution.

  Attributes:
    kind: name from the list above.
    dataset: name of a distribution of `quantile_distributions`.
    method: name from the list above.
    num_orders: m, the number of quantile levels.
    num_examples: n, the number of records.
    epsilon: total budget of all quantile levels.
    repetitions: number of data sets, which all methods and m share.
    seed: seed of data and noise.
  """
  kind: str
  dataset: str
  method: str
  num_orders: int
  num_examples: int
  epsilon: float
  repetitions: int
  seed: int = 0


def _upper(datasets, sizes, numbers, epsilons, most):
  return tuple(
      Setting(kind='upper', dataset=dataset, method=method, num_orders=number,
              num_examples=size, epsilon=epsilon,
              repetitions=min(most, _MOST_RECORDS // size))
      for dataset in datasets for method in METHODS for size in sizes
      for number in numbers if number <= _FEWER.get(method, number)
      for epsilon in epsilons)


def _lower(sizes, numbers, epsilons, repetitions):
  return tuple(
      Setting(kind='lower', dataset=UNIFORM, method=method, num_orders=number,
              num_examples=size, epsilon=epsilon, repetitions=repetitions)
      for method in ('independent', 'recursive_printed') for number in numbers
      for size in sizes for epsilon in epsilons)


SETTINGS = (
    *_upper((UNIFORM,), (1000, 10_000, 100_000), (1, 10), (0.1, 1.0), 400),
    *_upper((UNIFORM,), (10_000,), (100,), (0.1, 1.0), 400),
    *_upper((BETA,), (1000, 10_000), (1, 10), (0.1, 1.0), 400),
    *_lower((5, 10, 20), (1, 3), (0.2, 1.0), 2000))
SMOKE = (*_upper((UNIFORM, BETA), (200,), (3,), (5.0,), 40),
         *_lower((5,), (3,), (1.0,), 40))

TAGS = {'quick': lambda setting: (
    setting.kind == 'lower' or setting.dataset == UNIFORM
    and setting.num_examples == 10_000 and setting.num_orders == 1)}
