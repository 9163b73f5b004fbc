"""Settings to study many quantiles of a beta distribution.

Catalogue items QF-19 and QB-14. Printed methods are those of Lalanne (2023).

  python -m launch.sweep --experiment=quantile_beta \
    --output_dir=experiments/quantile_beta/results

Quantile levels are 1/4 + j/(2 (m + 1)), j = 1..m, of n = 10^4 records, at
epsilon 0.1. Methods use the setting's `adjacency`; those that know only one use
replace_one:
  emp                      without privacy; epsilon is infinite
  ind                      IndExp as printed, m up to 100
  rec_printed, rec_kaplan  RecExp as printed, and as its authors have it; under
                           add_or_remove_one, epsilon is not halved
  rec_depth                RecExp with the integer depth and real targets
  hist_raw                 200 bins and the generalised inverse, as printed
  hist_bridge, hist_clipnorm, hist_simplex
                           the same with counts that are: corrected evenly to
                           sum n; clipped at 0 and rescaled; or projected on the
                           nonnegative counts of sum n
  joint                    JointExp, m of 5, 10, 20 and 40
  coarse                   few bins, counts that add up to n, a smooth inverse
  knots                    JointExp for five levels, and interpolation between
  tree                     a tree of counts, by least squares

Expected (Beta(2,5), m = 100): emp .0036, coarse .0040, knots .0049, hist_raw
.0154, rec_depth .082, rec_printed .111, ind .591. RecExp as printed, with half
of epsilon, is worse than hist_raw from m = 6 on for Beta(.5,.5) and from 3 on
for Beta(2,5). With all of epsilon, and compared with hist_simplex, it is worse
from m = 7 and from m = 31 on.
"""

import dataclasses
import math

import numpy as np

from dpjax.privacy.adjacency import Adjacency

PAPERS = ('000',)
ARTEFACT = ('Figure 6.1 of Lalanne (2023): error of private quantiles of beta '
            'distributions against their number')
COST = '2.5 min on two CPU cores'
HEADLINES = (
    'values computed by other programs are reproduced',
    'with the printed formulas and epsilon for one adjacency, the histogram '
    'overtakes RecExp at m about 10 for Beta(.5,.5) and 40 for Beta(2,5)',
    'RecExp has the best',
    'at m = 100')

_REPLACE = Adjacency.REPLACE_ONE.value
_ADD = Adjacency.ADD_OR_REMOVE_ONE.value
DATASETS = ('beta_0.5_0.5', 'beta_1_1', 'beta_2_2', 'beta_2_5', 'beta_5_1',
            'beta_1_3')
SIZES = (1, 2, 5, 10, 20, 30, 40, 60, 80, 100, 150, 200)
# Methods that run under other adjacencies than replace_one, and methods that
# run at fewer m.
_ADJACENCIES = {'rec_printed': (_REPLACE, _ADD), 'rec_kaplan': (_ADD,)}
_SIZES = {'ind': SIZES[:-2], 'joint': (5, 10, 20, 40)}
POSTS = ('raw', 'bridge', 'clipnorm', 'simplex')
METHODS = ('emp', 'ind', 'rec_printed', 'rec_kaplan', 'rec_depth',
           *(f'hist_{post}' for post in POSTS), 'joint', 'coarse', 'knots',
           'tree')
BATCHED = ('method', 'adjacency', 'num_orders', 'repetitions')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One estimator on records of one distribution.

  Attributes:
    dataset: name of a distribution of `quantile_distributions`.
    method: name from the list above.
    adjacency: notion of neighbouring data sets, for epsilon.
    num_orders: m, the number of quantile levels.
    num_examples: n, the number of records.
    epsilon: total budget of all quantile levels.
    repetitions: number of data sets, which all methods and m share.
    seed: seed of data and noise.
  """
  dataset: str
  method: str
  adjacency: str
  num_orders: int
  num_examples: int = 10_000
  epsilon: float = 0.1
  repetitions: int = 50
  seed: int = 0


def orders(num_orders: int) -> np.ndarray:
  """Returns the quantile levels [m] of Figure 6.1."""
  return 0.25 + np.arange(1, num_orders + 1) / (2 * (num_orders + 1))


def _settings(datasets, sizes, **fields):
  return tuple(
      Setting(dataset=dataset, method=method, adjacency=adjacency,
              num_orders=size, **fields | (
                  dict(epsilon=math.inf) if method == 'emp' else {}))
      for dataset in datasets for method in METHODS
      for adjacency in _ADJACENCIES.get(method, (_REPLACE,))
      for size in sizes if size in _SIZES.get(method, sizes))


# The claims about these means need more than 50 data sets.
CLOSE = tuple(
    dataclasses.replace(setting, repetitions=400)
    for setting in _settings(('beta_2_5',), (100,))
    if setting.method in ('emp', 'coarse', 'knots', 'tree')
    or setting.method == 'rec_printed' and setting.adjacency == _REPLACE)

SETTINGS = _settings(DATASETS, SIZES) + CLOSE
SMOKE = _settings(('beta_2_5',), (1, 5), num_examples=500, epsilon=1.0,
                  repetitions=8)

TAGS = {'quick': lambda setting: (
    setting.dataset == 'beta_2_5' and setting.num_orders == 100)}
