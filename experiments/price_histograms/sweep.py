"""Settings to study histograms on cubes.

Catalogue items EXP-7, MOD-DENS and EST-HIST.

  python -m launch.sweep --experiment=price_histograms \
    --output_dir=experiments/price_histograms/results

The settings compute risks over 1-Lipschitz densities on [0, 1]^d: lower bounds
for any estimator, upper bounds of the histogram, and its error on the densities
that are worst for it, in closed form and simulated. Parts:
  records  alpha = 1, against n
  privacy  n = 10^7, against n alpha
  cells    against the number of cells
  golden   the line 1/2 + x with the noise of Barber and Duchi (2014)
alpha is epsilon ('pure') or the square root of rho ('zcdp'). Methods, by the
number of cells:
  tuned    the number with the least proved bound
  rate     n^(d/(d+2)) or (n alpha)^(d/(d+1)), the smaller one
  printed  n^(1/(d+2)) or (n alpha)^(1/(d+1)) (erratum E-14)
  fixed    the number of the setting

Expected: slopes -2/(d+2) in n and -2/(d+1) in n alpha, for lower and for upper
bounds; with printed cells, half of that for d = 2.
"""

import dataclasses

import numpy as np

PAPERS = ('004',)
ARTEFACT = ('Proposition 5 and equation (19) of Barber and Duchi (2014): '
            'Lipschitz densities on [0, 1]^d')
COST = '2 min on a CPU core'
HEADLINES = (
    'measured risks lie between the bounds',
    'the number of bins printed below equation (19) gives the rate of '
    'equation (18)')

REPETITIONS = 2000
MANY = 10**7
# (n, epsilon or rho, cells) -> simulated risk and bound, the stored values of
# catalogue item G-9.
GOLDEN = {(500, 1.0, 8): (1.73e-2, 1.735e-2),
          (2000, 0.1, 13): (3.95e-2, 4.03e-2),
          (10_000, 0.1, 22): (6.31e-3, 6.14e-3),
          (10_000, 1.0, 22): (2.31e-3, 2.31e-3)}
GOLDEN_ZCDP = {(2000, 0.01, 8): (6.28e-3, 6.40e-3)}
# Dimension -> (n, epsilon) of the panels against the number of cells.
PANELS = {1: (10**4, 0.1), 2: (10**6, 1.0)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One estimator at one n and one budget.

  Attributes:
    part: name from the list above.
    method: name from the list above.
    dimension: d, the dimension of a record.
    notion: 'pure' or 'zcdp'.
    num_records: n, the number of records.
    amount: n alpha, the number of records times the budget.
    num_bins: number of cells of method `fixed`; 0 for the others.
    repetitions: number of simulations.
    seed: seed of records and noise.
  """
  part: str
  method: str
  dimension: int
  notion: str
  num_records: int
  amount: float
  num_bins: int = 0
  repetitions: int = REPETITIONS
  seed: int = 0

  @property
  def dataset(self) -> str:
    """Returns the name of the data set in the rows."""
    return f'cube{self.dimension}'

  @property
  def alpha(self) -> float:
    """Returns alpha: epsilon (pure DP), or the square root of rho (zCDP)."""
    return self.amount / self.num_records


def _tuned(sizes, amounts, repetitions):
  return tuple(
      Setting(part=part, method='tuned', dimension=dimension, notion=notion,
              num_records=size, amount=amount, repetitions=repetitions)
      for dimension in (1, 2) for notion in ('pure', 'zcdp')
      for part, size, amount in (
          *(('records', size, float(size)) for size in sizes),
          *(('privacy', MANY, amount) for amount in amounts)))


def _rates(sizes, amounts):
  return tuple(
      Setting(part=part, method=method, dimension=2, notion='pure',
              num_records=size, amount=amount, repetitions=0)
      for method in ('rate', 'printed')
      for part, size, amount in (
          *(('records', size, float(size)) for size in sizes),
          *(('privacy', MANY, amount) for amount in amounts)))


def _cells(sides, repetitions):
  values = []
  for dimension, (size, epsilon) in PANELS.items():
    of = dict(part='cells', dimension=dimension, notion='pure',
              num_records=size, amount=size * epsilon)
    values += [Setting(method=method, repetitions=0, **of)
              for method in ('tuned', 'rate', 'printed')]
    values += [Setting(method='fixed', num_bins=side**dimension,
                      repetitions=repetitions, **of)
              for side in sides[dimension]]
  return tuple(values)


def _golden(repetitions):
  return tuple(
      Setting(part='golden', method='fixed', dimension=1, notion=notion,
              num_records=size, num_bins=bins, repetitions=repetitions,
              amount=size * (level if notion == 'pure' else level**0.5))
      for notion, known in (('pure', GOLDEN), ('zcdp', GOLDEN_ZCDP))
      for size, level, bins in known)


_SIZES = tuple(round(10**(half / 2)) for half in range(6, 15))
_AMOUNTS = tuple(float(f'{10**power:.6g}') for power in (
    1.5, 2, 2.4, 2.8, 3.2, 3.6, 4, 4.5, 5))
_SIDES = {1: (1, 2, 3, 5, 8, 13, 22, 36, 60, 100),
          2: tuple(np.unique(np.round(np.geomspace(1, 100, 13)).astype(
              int)).tolist())}
SETTINGS = (*_tuned(_SIZES, _AMOUNTS, REPETITIONS), *_rates(_SIZES, _AMOUNTS),
            *_cells(_SIDES, REPETITIONS), *_golden(20_000))
SMOKE = (*_tuned((10**4,), (1e2,), 200), *_rates((10**4, 10**6), (1e2,)),
         *_cells({1: (5,), 2: (6, 32)}, 200), *_golden(2000)[:1])

TAGS = {'quick': lambda setting: (
    setting.part != 'privacy' or setting.notion == 'pure'
    and setting.amount >= 1000)}
