"""Settings to study private histograms.

Catalogue items DEN-X1, DEN-X2, DEN-X3 and DEN-X12. The paper is Lalanne,
Garivier and Gribonval (2023).

  python -m launch.sweep --experiment=density_histograms \
    --output_dir=experiments/density_histograms/results

The measure is the mean integrated squared error in closed form, under
replace_one. Parts:
  records  against n, at four values of epsilon (X1)
  budgets  against epsilon and sqrt(rho), at n = 10^7 (X2)
  bins     against the number m of bins, at three pairs of n and epsilon (X3)
  table    the settings of catalogue item DEN-8.1
  largest  the largest error over [0, 1], simulated, against n or n alpha (X12);
           with a budget n is 10^12, so that noise is most of the error
Methods, which differ in how they choose m; all but the last use the noise of
the paper and do not fix the mass:
  printed  the m of Theorem 1
  tuned    the m with the least bound over Lipschitz densities, L known
  oracle   the m with the least error on the density itself
  fixed    the m of the setting
  polygon  the m of `tuned`; the released curve joins the heights by lines, the
           noise is integer-valued, and the mass is fixed to 1

Expected: the printed m has the rates n^(-2/3) and (n alpha)^-1, and up to 5
times the error of the tuned m; the largest errors have a logarithmic factor.
"""

import dataclasses

import numpy as np

PAPERS = ('001', '000')
ARTEFACT = ('Theorem 1 of Lalanne, Garivier and Gribonval (2023), histograms: '
            'rates in n, epsilon and rho, the number of bins, and the largest '
            'error')
COST = '1 min on a CPU core'
HEADLINES = (
    'errors of the printed',
    'where noise dominates, errors fall with n epsilon',
    'linear interpolation of tuned heights has a smaller error than the '
    'printed histogram',
    'histograms are rate-optimal')

TAGS = {'X1': lambda setting: setting.part == 'records',
        'X2': lambda setting: setting.part == 'budgets',
        'X3': lambda setting: setting.part == 'bins',
        'X12': lambda setting: setting.part == 'largest'}

METHODS = ('printed', 'tuned', 'oracle', 'polygon')
DENSITIES = ('tent1', 'tent2', 'beta22')
EPSILONS = (10.0, 1.0, 0.1, 0.01)
CURVES = ((10**4, 1.0), (10**4, 0.1), (10**5, 0.01))
BINS = tuple(sorted({*range(1, 61), *(
    int(value) for value in np.geomspace(61, 400, 15).round())}))
# Density, n, and epsilon or rho.
PURE = (('tent1', 10**3, 0.1), ('tent1', 10**5, 0.01), ('tent2', 10**3, 1.0),
        ('tent2', 10**3, 0.1), ('tent2', 10**4, 1.0), ('tent2', 10**4, 0.1),
        ('tent2', 10**4, 0.01), ('tent2', 10**5, 0.1), ('tent2', 10**6, 0.01),
        ('beta22', 10**4, 0.1), ('beta22', 10**6, 0.01),
        ('tent1', 10**3, 0.01))
CONCENTRATED = (('tent2', 10**4, 1e-2), ('tent2', 10**4, 1e-4),
                ('tent2', 10**6, 1e-6))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One histogram on one density.

  Attributes:
    part: name from the list above.
    method: name from the list above.
    density: name of the density.
    notion: 'pure', 'zcdp', or 'none' for no privacy.
    num_records: n, the number of records.
    budget: epsilon, or rho; 0 for no privacy.
    num_bins: m where it is given, else 0.
    repetitions: data sets that are simulated; 0: closed form.
    seed: seed of data and noise.
  """
  part: str
  method: str
  density: str
  notion: str
  num_records: int
  budget: float
  num_bins: int = 0
  repetitions: int = 0
  seed: int = 0

  @property
  def dataset(self) -> str:
    """Returns the name of the data set in the rows."""
    return self.density


def _records(sizes, epsilons, densities):
  return tuple(
      Setting(part='records', method=method, density=density, notion='pure',
              num_records=size, budget=epsilon)
      for method in METHODS for density in densities for epsilon in epsilons
      for size in sizes)


def _budgets(alphas):
  return tuple(
      Setting(part='budgets', method=method, density='tent2', notion=notion,
              num_records=10**7,
              budget=alpha if notion == 'pure' else float(f'{alpha**2:.6g}'))
      for method in METHODS for notion in ('pure', 'zcdp') for alpha in alphas)


def _bins(curves, bins):
  of = dict(part='bins', density='tent2', notion='pure')
  return (*(Setting(method='fixed', num_records=size, budget=epsilon,
                    num_bins=num_bins, **of)
            for size, epsilon in curves for num_bins in bins),
          *(Setting(method=method, num_records=size, budget=epsilon, **of)
            for method in METHODS[:3] for size, epsilon in curves))


def _table(pure, concentrated):
  return tuple(
      Setting(part='table', method=method, density=density, notion=notion,
              num_records=size, budget=budget)
      for notion, lines in (('pure', pure), ('zcdp', concentrated))
      for density, size, budget in lines for method in METHODS)


def _largest(sizes, signals, repetitions):
  of = dict(part='largest', method='printed', density='tent1',
            repetitions=repetitions)
  return (*(Setting(notion='none', num_records=size, budget=0.0, **of)
            for size in sizes),
          *(Setting(notion=notion, num_records=10**12, budget=float(
              f'{(signal / 10**12)**(1 if notion == "pure" else 2):.6g}'), **of)
            for notion in ('pure', 'zcdp') for signal in signals))


SIZES = tuple(10**power for power in range(3, 9))
SIGNALS = tuple(10**power for power in range(2, 7))
ALPHAS = tuple(float(f'{value:.4g}') for value in np.logspace(-5, 0, 11))
SETTINGS = (*_records(SIZES, EPSILONS, DENSITIES), *_budgets(ALPHAS),
            *_bins(CURVES, BINS), *_table(PURE, CONCENTRATED),
            *_largest(SIZES, SIGNALS, 2000))
SMOKE = (*_records((10**3, 10**5), (10.0, 0.01), ('tent2',)),
         *_budgets((1e-4, 1e-1)), *_bins(CURVES[1:2], range(10, 17)),
         *_table(PURE[5:6], CONCENTRATED[:1]),
         *_largest((10**3,), (100,), 200))
