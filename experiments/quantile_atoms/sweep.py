"""Settings to study quantiles of distributions with atoms.

Catalogue items QF-21 to 27 and QB-12.

  python -m launch.sweep --experiment=quantile_atoms --data_dir=data \
    --output_dir=experiments/quantile_atoms/results

Quantile levels are j/9, j = 1..8, at epsilon 1; neighbours are by replacement.

Methods:
  emp              without privacy; epsilon is infinite
  joint, inverse   JointExp, and inverse sensitivity
  hs_uniform, hs_gaussian
                   JointExp on records with added noise of standard deviation
                   `sigma`; reports use the sigma with the least measured error,
                   a choice that is neither private nor unbiased, and say so
  hs_printed       uniform noise on [-a, a], a = e^(-n epsilon / 48), as
                   recommended in general
  joint_floor, rec_floor
                   JointExp and RecExp with the cost by depth and noise on
                   [-a, a], where a is the range times the larger of
                   e^(-n epsilon / 48) / 2 and 1e-6
  hist_raw         a histogram of 200 bins, as printed for other distributions
  coarse, tree     few bins whose sum is right, and a tree of counts

The source is ambiguous about its values of sigma. They are read as eight, two
decades apart from 1e-10 to 1e4; for uniform noise at n = 1000 (Figure 6.5),
also as two a decade. Earnings and dividends replace the file of Lalanne (2023),
see `quantile_distributions`. Tag `synthetic` needs no files.

Expected at n = 10^4 on mixed_0.5_0.25: joint .33, best hs .0047, rec_floor
.0048; hs_printed .31, since a = 3e-91 changes no record.
"""

import dataclasses
import math

PAPERS = ('000',)
ARTEFACT = ('Figures 6.4 and 6.5 of Lalanne (2023): quantiles of distributions '
            'with atoms, against n and against the noise')
COST = '4 min on two CPU cores'
HEADLINES = (
    'values computed by other programs are reproduced',
    'with atoms',
    'smoothing reduces the error on Dividends by orders of magnitude',
    'the recommended noise a = e^(-n epsilon/48) is as good as the best')

NUM_ORDERS = 8
MIXED = ('mixed_0_0', 'mixed_0.1_0.05', 'mixed_0.2_0.1', 'mixed_0.5_0.25')
FILES = ('ratings', 'pages', 'earnings', 'dividends')
SURROGATES = ('earnings_surrogate', 'dividends_surrogate')
SIZES = (32, 100, 316, 1000, 3162, 10_000)
# Number of records in Figure 6.5.
SIZE = 1000
METHODS = ('emp', 'joint', 'inverse', 'hs_printed', 'joint_floor', 'rec_floor',
           'hist_raw', 'coarse', 'tree')
SMOOTHED = ('hs_uniform', 'hs_gaussian')
SIGMAS = tuple(10.0**power for power in range(-10, 5, 2))
FINE_SIGMAS = tuple(float(f'{10**(half / 2):.4g}') for half in range(-20, 9))
BATCHED = ('method', 'sigma')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One estimator on records of one distribution.

  Attributes:
    dataset: name of a distribution of `quantile_distributions`.
    method: name from the list above.
    num_examples: n, the number of records.
    sigma: standard deviation of the noise of hs_uniform and hs_gaussian; 0 for
      others.
    epsilon: total budget of all quantile levels.
    repetitions: number of data sets, which all methods share.
    seed: seed of data and of all noise.
  """
  dataset: str
  method: str
  num_examples: int
  sigma: float = 0.0
  epsilon: float = 1.0
  repetitions: int = 50
  seed: int = 0


TAGS = {'quick': lambda setting: (
            setting.dataset in (MIXED[0], MIXED[-1])
            and setting.num_examples == SIZE
            and setting.sigma in (0.0, *SIGMAS)),
        'synthetic': lambda setting: setting.dataset not in FILES,
        'mixed': lambda setting: setting.dataset in MIXED}


def _settings(datasets, sizes, **fields):
  def of(dataset, size):
    for method in METHODS:
      yield Setting(dataset=dataset, method=method, num_examples=size,
                    **fields | (dict(epsilon=math.inf) if method == 'emp'
                                else {}))
    for method in SMOOTHED:
      fine = method == 'hs_uniform' and size == SIZE
      for sigma in FINE_SIGMAS if fine else SIGMAS:
        yield Setting(dataset=dataset, method=method, num_examples=size,
                      sigma=sigma, **fields)
  return tuple(setting for dataset in datasets for size in sizes
               for setting in of(dataset, size))


SETTINGS = _settings((*MIXED, *FILES, *SURROGATES), SIZES)
SMOKE = tuple(setting for setting in _settings(
    ('mixed_0_0', 'mixed_0.5_0.25'), (100,), repetitions=8)
              if setting.sigma in (0.0, 1e-2))
