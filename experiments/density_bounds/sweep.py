"""Lower and upper bounds of the risk of private densities.

Catalogue items DEN-L7 to L11 and DEN-X11. Theorems are those of Lalanne,
Garivier and Gribonval (2023).

  python -m launch.sweep --experiment=density_bounds \
    --output_dir=experiments/density_bounds/results

There are no records and no noise: every bound is a closed form for the worst
density of a class. The classes are `lipschitz` (L = 2) and the periodic
`sobolev1`, `sobolev2` and `sobolev3` (L = 2, 12 and 75, for which the error of
the uniform density is about .1 in each); `point` is the error at 1/2 over
`lipschitz`. Kinds of settings:
  privacy  against n alpha, with n so large that the sampling error is 0
  records  against n, at alpha = .1
alpha is epsilon ('pure') or the square root of rho ('zcdp').

Lower bounds; each but `fano` is the larger of the bounds with and without
privacy:
  printed    Theorems 2, 3 and 5 with the constants of their proofs
  fano       the private part alone, by Fano's lemma with the best m and h
  corrected  Assouad's lemma with tau / 4 and the best m and h
  cells      the same with bumps of mean 0 (DEN-L11)
  sharp      the same, but bounding the squared error between two densities
             directly instead of the error of a test between them
Upper bounds, by estimators that know the class:
  histogram  the tuned histogram; for `point`, its bound at one point
  spectral   frequencies of a noisy histogram, with a taper (DEN-B3)
  weighted   Gaussian noise with the best weights, under zCDP alone (DEN-B4)
  theorem_4  trigonometric sums with the printed noise and the best N
  uniform    the uniform density, without data

Expected at n alpha = 10^6, in units of
L^(2 / (beta + 1)) (n alpha)^(-2 beta / (beta + 1)), for beta = 1, 2, 3: the
lower bound `cells` is .031, .015, .009 (pure) and .030, .012, .007 (zcdp); the
best estimators have 1.11, 1.20, 1.23 (pure) and .32, .25, .22 (zcdp).
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Theorems 2, 3 and 5 and Corollary 1 of Lalanne, Garivier and '
            'Gribonval (2023): lower bounds of private densities, with upper '
            'bounds')
COST = '10 s on a CPU core'
HEADLINES = (
    'lower bounds stay',
    'last line of the proof of Theorem 5',
    'upper and lower bounds have the same rates')

RADII = {'lipschitz': 2.0, 'sobolev1': 2.0, 'sobolev2': 12.0, 'sobolev3': 75.0,
         'point': 2.0}
SMOOTHNESS = {'lipschitz': 1, 'sobolev1': 1, 'sobolev2': 2, 'sobolev3': 3,
              'point': 1}
# Limits of the lower bound `cells` by beta, in units of L^(2 - q) (n alpha)^-q
# with q = 2 beta / (beta + 1); item DEN-L11.
LIMITS = {'pure': {1: 0.0313, 2: 0.0148, 3: 0.00932},
          'zcdp': {1: 0.0301, 2: 0.0123, 3: 0.00711}}
_MANY = 10**15
_SHARE = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One class of densities and one budget.

  Attributes:
    kind: name from the list above.
    dataset: name of the class.
    notion: 'pure' or 'zcdp'.
    num_records: n, the number of records.
    amount: n alpha, the number of records times the budget.
  """
  kind: str
  dataset: str
  notion: str
  num_records: int
  amount: float

  seed = 0
  method = 'bounds'

  @property
  def alpha(self) -> float:
    """Returns alpha: epsilon (pure DP), or the square root of rho (zCDP)."""
    return self.amount / self.num_records


def _all(exponents, sizes):
  return tuple(
      Setting(kind=kind, dataset=name, notion=notion, num_records=n,
              amount=amount)
      for notion in ('pure', 'zcdp') for name in RADII
      for kind, n, amount in (
          *(('privacy', _MANY, 10.0**exponent) for exponent in exponents),
          *(('records', n, _SHARE * n) for n in sizes)))


SETTINGS = _all([half / 2 for half in range(2, 13)],
                [10**power for power in range(2, 11)])
SMOKE = _all([1, 4], [10**4])
