"""Settings to study local histograms.

Catalogue items EXP-03, LDP-07 and LDP-08.

  python -m launch.sweep --experiment=local_histograms \
    --output_dir=experiments/local_histograms/results

Each of K categories has an equal share of the records; the measure is the error
of the estimated frequencies. Expected: slope -1 in n in the local model and -2
in the central model; the ratio of the two errors is about n K / 8 for small
epsilon. K = 10, n = 10^4, epsilon 1: 4.10e-3 and 8.0e-7.
"""

import dataclasses

PAPERS = ('002',)
ARTEFACT = ('Example 7.34 of the lecture notes, chapter 7: histograms, LDP '
            'against DP')
COST = '20 s on a CPU core'
HEADLINES = (
    '(LDP) mean squared loss',
    '(DP) the Laplace mechanism',
    'local privacy costs a factor over central privacy')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One histogram.

  Attributes:
    num_categories: K, the number of categories.
    num_examples: n, the number of records.
    epsilon: budget of the release, or of each local answer.
    repetitions: number of simulations.
    seed: seed of the noise.
  """
  num_categories: int
  num_examples: int
  epsilon: float
  repetitions: int
  seed: int = 0

  method = 'histogram'
  dataset = 'equal_shares'


EPSILONS = (0.1, 0.5, 1.0, 2.0)
SIZES = (100, 1000, 10_000, 100_000, 1_000_000)


def _setting(size, epsilon, most=1000):
  return Setting(num_categories=10, num_examples=size, epsilon=epsilon,
                 repetitions=min(most, max(20, 5 * 10**6 // size)))


SETTINGS = tuple(_setting(size, epsilon) for size in SIZES
                 for epsilon in EPSILONS)

SMOKE = tuple(_setting(size, epsilon, 200) for size in (100, 1000)
              for epsilon in (0.1, 1.0))

TAGS = {'quick': lambda setting: (
    setting.num_examples <= 10_000
    and setting.epsilon in (0.1, 1.0))}
