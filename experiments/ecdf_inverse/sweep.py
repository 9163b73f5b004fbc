"""Settings to study inverses of private curves.

Catalogue items EC-14, EC-32 and C23. Printed scales and Algorithm 9 are those
of Barczewski (2025).

  python -m launch.sweep --experiment=ecdf_inverse \
    --output_dir=experiments/ecdf_inverse/results

Data are X_pois(3) on N = 2^15 values, drawn anew in every repetition, under
replace_one. The first group of methods releases one curve, which then answers
any number of quantiles by Algorithm 9:
  paper_raw, paper_p2  dyadic noise of the printed scale, without smoothing and
                       with smoothing in the norm p2
  paper_p1             the same, smoothed in the norm p1
  tight_raw, tight_p2  dyadic noise of the scale that privacy needs
  tree                 a tree of counts, post-processed to the nearest
                       nonnegative counts
The second group answers each quantile separately:
  search               binary search with Laplace noise at each of its L steps;
                       every quantile gets an equal share of epsilon
  exponential          the exponential mechanism on all N values, with the same
                       shares
  recursive            RecExp, which uses all of epsilon for all quantiles

With one quantile, every decile is estimated on its own with all of epsilon.
"""

import dataclasses

import numpy as np

PAPERS = ('003',)
ARTEFACT = ('Figure 6.6.3 and Algorithm 9 of Barczewski (2025): errors of '
            'inverses of private distribution functions')
COST = '3 min on two CPU cores'
HEADLINES = (
    'errors of',
    'values computed by other programs are reproduced',
    'a single quantile is best released by a quantile mechanism',
    'nine quantiles')
BATCHED = ('method',)

CURVES = ('paper_raw', 'paper_p2', 'paper_p1', 'tight_raw', 'tight_p2', 'tree')
ASKED = ('search', 'exponential', 'recursive')
EPSILONS = tuple(float(f'{value:.3g}') for value in np.logspace(-2, 1, 7))
DECILES = tuple(step / 10 for step in range(1, 10))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One method to estimate quantiles, at one size and budget.

  Attributes:
    method: name from the list above.
    num_quantiles: number of quantiles released together: 9, or 1; always 9 for
      a curve, where more quantiles cost no privacy.
    num_thresholds: N, the number of values.
    epsilon: total budget of all quantiles.
    repetitions: number of data sets.
    rate: lambda, the mean of each count.
    seed: seed of data and noise.
  """
  method: str
  num_quantiles: int
  epsilon: float
  num_thresholds: int = 2**15
  repetitions: int = 100
  rate: float = 3.0
  seed: int = 0

  dataset = 'poisson'


def _settings(epsilons, **fields):
  return (
      *(Setting(method=method, num_quantiles=9, epsilon=epsilon, **fields)
        for epsilon in epsilons for method in (*CURVES, *ASKED)),
      *(Setting(method=method, num_quantiles=1, epsilon=epsilon, **fields)
        for epsilon in epsilons for method in ASKED[:2]))


SETTINGS = _settings(EPSILONS)
SMOKE = _settings((0.5, 5.0), num_thresholds=2**4, repetitions=6)

TAGS = {'quick': lambda setting: (
    setting.epsilon == 1.0)}
