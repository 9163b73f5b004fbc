"""Slopes of Table 1: means with k moments under five notions.

Catalogue item EXP-6. Table 1 is of Barber and Duchi (2014).

  python -m launch.sweep --experiment=price_table \
    --output_dir=experiments/price_table/results

A rate is the slope of ln(risk) against the logarithm of n, of d or of the
privacy level, where the privacy term dominates. Risks are the largest over
E |X|^k <= 1, and exact; thresholds balance bias and noise. Methods by notion:
  none       the shrunk mean, and the minimax risk
  pure       Laplace noise (smooth, Definition 2) and l2 noise
  approx     Gaussian noise, calibrated exactly at delta = 10^-12
  kl         Gaussian noise
  zcdp       Gaussian noise, with a lower bound of its own; not in the table
  tv         Gaussian noise, and a subsample released without noise
  lower      the largest known lower bound, for every notion

Expected: the exponents of the table, except that lower bounds for tv have
exponent 0 in d. For kl, and for approx above ln(1 / delta), the table has 0,
and the best known lower bound grows. The subsample has slope 0 in d and -1 in n
and in the level, for every k.
"""

import dataclasses
import math

import numpy as np

PAPERS = ('004',)
ARTEFACT = 'Table 1 of Barber and Duchi (2014): rates of private means'
COST = '1 min on a CPU core'
HEADLINES = ('upper bounds of Table 1', 'lower bounds of Table 1',
             'the lower bound of total variation')

METHODS = {'none': ('shrunk',), 'pure': ('laplace', 'l2'),
           'approx': ('gaussian',), 'kl': ('gaussian',), 'zcdp': ('gaussian',),
           'tv': ('gaussian', 'subsample')}
MOMENTS = (2.0, 4.0, math.inf)
AXES = ('num_examples', 'dimension', 'level')
DELTA = 1e-12
# n, d and level in the middle of an axis.
BASE = {'none': (10**6, 64, 1.0), 'pure': (5 * 10**6, 64, 2e-3),
        'approx': (10**7, 512, 5e-4), 'kl': (10**9, 64, 1e-10),
        'zcdp': (10**8, 64, 1e-9), 'tv': (10**9, 64, 1e-6)}
FACTORS = {'num_examples': np.geomspace(0.25, 4, 6),
           'level': np.geomspace(0.25, 4, 6),
           'dimension': 2.0**np.arange(-1, 5)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One slope of risks.

  Attributes:
    notion: name from the list above.
    method: name from the list above.
    axis: one of `AXES`.
    moment: k, the order of the bounded moment.
    seed: unused, since results are exact.
  """
  notion: str
  method: str
  axis: str
  moment: float
  seed: int = 0

  dataset = 'moments'

  @property
  def places(self) -> list[tuple[int, int, float]]:
    """Returns the points (n, d, level) along the axis."""
    here = [np.full(len(FACTORS[self.axis]), value, np.float64)
            for value in BASE[self.notion]]
    here[AXES.index(self.axis)] *= FACTORS[self.axis]
    return [(round(n), round(d), float(level)) for n, d, level in zip(*here)]

  @property
  def theory(self) -> float:
    """Returns the exponent of the table, or of the row added beside it."""
    part = 1 - 1 / self.moment
    if self.method == 'subsample':
      return 0.0 if self.axis == 'dimension' else -1.0
    if self.notion == 'none':
      return -1.0
    if self.axis == 'num_examples':
      return -2 * part
    if self.axis == 'level':
      return -part if self.notion in ('kl', 'zcdp') else -2 * part
    if self.method == 'lower' and self.notion in ('tv', 'approx'):
      return 0.0
    return 2 * part if self.notion == 'pure' else part


def _settings(moments):
  return tuple(
      Setting(notion=notion, method=method, axis=axis, moment=moment)
      for notion, methods in METHODS.items() for method in (*methods, 'lower')
      for moment in moments for axis in (
          AXES if notion != 'none' else ('num_examples',)))


SETTINGS = _settings(MOMENTS)
SMOKE = tuple(setting for setting in _settings((4.0,))
              if setting.axis == 'num_examples' and setting.notion == 'pure')

TAGS = {'quick': lambda setting: (
    setting.moment == 2.0)}
