"""Settings to study smoothing.

Catalogue items EC-12, EC-31 and C14 to C16. Figures and printed scales are
those of Barczewski (2025).

  python -m launch.sweep --experiment=ecdf_smoothing \
    --output_dir=experiments/ecdf_smoothing/results

Data are X_pois(lambda), drawn anew in every repetition. Methods, under
replace_one:
  paper   dyadic noise of the printed scale (L + 1) / epsilon
  tight   dyadic noise of the scale that privacy needs
  tree    a tree of counts with the best base
Post-processing of the released ranks:
  none    no smoothing; a tree is estimated by least squares
  p2, p1  the ranks that rise from 0 to n and are nearest in that norm; if p1
          has many solutions, one in the middle (C16)
  pava    isotonic regression, as if errors were independent
  native  for a tree: the nearest nonnegative counts in the metric of its noise

Figure 6.6.1 is lambda 3 at N = 2^15 (figure: epsilon); Figure 6.6.2 is epsilon
1 (figure: lambda). The settings of figure `check`, at N = 2^12, are compared
with stored solutions of independent solvers.
"""

import dataclasses

import numpy as np

PAPERS = ('003',)
ARTEFACT = ('Figures 6.6.1 and 6.6.2 of Barczewski (2025): smoothing of '
            'private distribution functions, against epsilon and lambda')
COST = '5 min on two CPU cores'
GALLERY = 'Smoothed distribution functions'
HEADLINES = ('2-norm smoothing', '1-norm smoothing', 'values for p = 2')
BATCHED = ('smoothing',)

SMOOTHINGS = {'paper': ('none', 'p2', 'p1', 'pava'),
              'tight': ('none', 'p2', 'p1', 'pava'),
              'tree': ('none', 'native')}
EPSILONS = tuple(sorted({0.2, *(float(f'{value:.3g}')
                                for value in np.logspace(-2, 1, 13))}))
RATES = tuple(float(f'{value:.3g}') for value in np.logspace(-2, 3, 11))
CHECKED_EPSILONS = (0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0)
CHECKED_RATES = (0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One mechanism and one smoothing.

  Attributes:
    figure: the variable of the figure, 'epsilon' or 'lambda'; or 'check'.
    method: mechanism, a name from the list above.
    smoothing: name from the list above.
    num_thresholds: N, a power of two.
    rate: lambda, the mean of each count.
    epsilon: budget of the curve.
    repetitions: number of data sets.
    seed: seed of data and noise.
  """
  figure: str
  method: str
  smoothing: str
  num_thresholds: int
  rate: float
  epsilon: float
  repetitions: int
  seed: int = 0

  dataset = 'poisson'


def _settings(figure, *, methods=tuple(SMOOTHINGS), rates=(3.0,),
              epsilons=(1.0,), repetitions=100, few=20,
              num_thresholds=2**15):
  """Returns settings of all smoothings; p1, the slowest, repeats less often."""
  return tuple(
      Setting(figure=figure, method=method, smoothing=smoothing, rate=rate,
              epsilon=epsilon, num_thresholds=num_thresholds,
              repetitions=few if smoothing == 'p1' else repetitions)
      for method in methods for smoothing in SMOOTHINGS[method]
      for rate in rates for epsilon in epsilons)


SETTINGS = (
    *_settings('epsilon', epsilons=EPSILONS),
    *_settings('lambda', rates=RATES),
    *dict.fromkeys((
        *_settings('check', methods=('paper',), epsilons=CHECKED_EPSILONS,
                   num_thresholds=2**12),
        *_settings('check', methods=('paper',), rates=CHECKED_RATES,
                   num_thresholds=2**12))))
SMOKE = (*_settings('epsilon', epsilons=(0.1, 10.0), repetitions=6, few=6,
                    num_thresholds=2**4),
         *_settings('lambda', rates=(0.1, 100.0), repetitions=6, few=6,
                    num_thresholds=2**4))

TAGS = {'quick': lambda setting: (
    setting.figure == 'check' and setting.smoothing != 'p1'
    or setting.figure == 'check' and setting.epsilon in (0.2, 1.0)
    and setting.rate in (3.0, 30.0)
    or setting.figure == 'epsilon' and setting.epsilon == 1.0
    and setting.method in ('paper', 'tree')
    and setting.smoothing in ('none', 'p2', 'native'))}
