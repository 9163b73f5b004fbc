"""Settings to study the private estimate of one proportion p.

Catalogue items EXP-01, INT-03 and INT-04.

  python -m launch.sweep --experiment=bernoulli_risk \
    --output_dir=experiments/bernoulli_risk/results

Expected: the risk is p (1 - p) / n + 2 / (n epsilon)^2 and lies above the lower
bounds everywhere; its slope in n is -2 where n epsilon^2 is below 1, and -1
where n epsilon^2 is above 10.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('sections 0.4.3 and 0.5 of Lalanne (2023), equations (4)-(11): a '
            'proportion under privacy')
COST = '1 min on a CPU core'
HEADLINES = (
    'equation (6): risk of the private estimator',
    'the lower bound at p_2')
BATCHED = ('epsilon',)

PROB = 0.5
REPETITIONS = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One sample size and one budget.

  Attributes:
    num_examples: n, the public number of records.
    epsilon: budget of the release.
    repetitions: number of simulations.
    seed: seed of data and noise.
  """
  num_examples: int
  epsilon: float
  repetitions: int = REPETITIONS
  seed: int = 0

  method = 'laplace'
  dataset = 'bernoulli'


EPSILONS = (0.01, 0.1, 1.0)
SIZES = (10, 32, 100, 316, 1000, 3162, 10_000, 31_623, 100_000)

SETTINGS = tuple(Setting(num_examples=size, epsilon=epsilon)
                 for size in SIZES for epsilon in EPSILONS)

SMOKE = tuple(Setting(num_examples=size, epsilon=epsilon, repetitions=400)
              for size in (10, 100, 1000) for epsilon in EPSILONS)

TAGS = {'quick': lambda setting: (
    setting.num_examples in (100, 1000, 10_000))}
