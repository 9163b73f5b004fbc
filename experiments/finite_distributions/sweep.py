"""Settings to study finite distributions.

Catalogue items EXP-02 and MECH-10.

  python -m launch.sweep --experiment=finite_distributions \
    --output_dir=experiments/finite_distributions/results

Each setting measures the noisy frequencies without post-processing (raw) and
projected on the simplex. Expected: raw risks match the closed form, and
projected risks are never above them; at k = 1000, n = 1000, epsilon 1 the two
risks are 0.0090 and 0.0031.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('Example 2.3.5 of Lalanne (2023), equations (2.3)-(2.7): learning '
            'a finite distribution')
COST = '1 min on a CPU core'
HEADLINES = (
    'risk at the uniform distribution',
    'the estimate needs a projection onto the simplex')
BATCHED = ('epsilon',)

REPETITIONS = 600


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One histogram.

  Attributes:
    dataset: 'uniform', or 'zipf' with probabilities as 1/rank.
    num_categories: k, the number of categories.
    num_examples: n, the public number of records.
    epsilon: budget of the release.
    repetitions: number of simulations.
    seed: seed of data and noise.
  """
  dataset: str
  num_categories: int
  num_examples: int
  epsilon: float
  repetitions: int = REPETITIONS
  seed: int = 0

  method = 'laplace'


EPSILONS = (0.1, 1.0)
CATEGORIES = (2, 10, 100, 1000)
SIZES = (100, 500, 1000, 5000, 20_000)


def _settings(dataset, categories, sizes, repetitions=REPETITIONS):
  return tuple(Setting(dataset=dataset, num_categories=k, num_examples=size,
                       epsilon=epsilon, repetitions=repetitions)
               for k in categories for size in sizes for epsilon in EPSILONS)


SETTINGS = (*_settings('uniform', CATEGORIES, SIZES),
            *_settings('zipf', (100,), SIZES))

SMOKE = (*_settings('uniform', (10,), (100, 500), 300),
         *_settings('zipf', (100,), (500,), 300))

TAGS = {'quick': lambda setting: (
    setting.num_categories == 10
    and setting.num_examples in (100, 1000, 20_000)
    or setting.dataset == 'zipf' and setting.num_examples == 1000)}
