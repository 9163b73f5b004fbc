"""Settings to study the table of rates.

Catalogue items DEN-T1 and DEN-X15. The table and the theorems are those of
Lalanne, Garivier and Gribonval (2023).

  python -m launch.sweep --experiment=density_table \
    --output_dir=experiments/density_table/results

A rate is the slope of ln(error) against ln(scale), in half decades. The scale
is n alpha from 10^3 to 10^6 with n infinite ('pure', 'zcdp'), or n from 10^4 to
10^10 without noise ('sampling'). The prefactor C is the geometric mean of error
/ scale^(theory). Upper bounds are closed-form errors on tent2 (Lipschitz, L =
2) and on sobrand (which just has smoothness beta). Lower bounds are those of
the class of that density (DEN-L11), and for the Lipschitz class also at one
point (Theorem 2). Methods:
  printed    Theorems 1 and 4 with the printed tuning
  oracle     the same, tuned for the density
  exact      exact sensitivities, tuned for the density
  relaxed    Corollary 2 at delta = 10^-12, tuned for the density
  spectral   pure DP by a noisy histogram, tuned for the density
  cells      a lower bound of the integrated error
  pointwise  a lower bound at one point

Expected: the exponents of the table, except for pure DP on Sobolev classes,
where `spectral` attains the exponent of the lower bound.
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Table 1 of Lalanne, Garivier and Gribonval (2023) (Lalanne '
            '(2023), Table 5.1): rates of private density estimation, measured')
COST = '10 s on a CPU core'
HEADLINES = ('upper bounds of Table 1, Lipschitz', 'updated row',
             'near-optimal', 'no error is below')

UPPER = {
    ('lipschitz', 'sampling'): ('printed', 'oracle'),
    ('lipschitz', 'pure'): ('printed', 'oracle'),
    ('lipschitz', 'zcdp'): ('printed', 'oracle'),
    ('sobolev', 'sampling'): ('printed', 'oracle'),
    ('sobolev', 'pure'): ('printed', 'oracle', 'exact', 'relaxed', 'spectral'),
    ('sobolev', 'zcdp'): ('printed', 'oracle', 'exact')}
LOWER = {'lipschitz': ('cells', 'pointwise'), 'sobolev': ('cells',)}
TERMS = ('sampling', 'pure', 'zcdp')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One rate: the slope of ln(error) in ln(scale).

  Attributes:
    dataset: the density whose class it is about.
    term: name from the list above.
    method: name from the list above.
    seed: unused, since results are exact.
  """
  dataset: str
  term: str
  method: str
  seed: int = 0

  @property
  def kind(self) -> str:
    """Returns the class: 'lipschitz' or 'sobolev'."""
    return 'lipschitz' if self.dataset == 'tent2' else 'sobolev'

  @property
  def smoothness(self) -> int:
    """Returns beta, the number of derivatives; 1 for the Lipschitz class."""
    return 1 if self.kind == 'lipschitz' else int(self.dataset[-1])

  @property
  def lower(self) -> bool:
    """Returns whether the method is a lower bound."""
    return self.method in LOWER[self.kind]


def _settings(datasets):
  return tuple(
      Setting(dataset=dataset, term=term, method=method)
      for dataset in datasets for term in TERMS
      for kind in ('lipschitz' if dataset == 'tent2' else 'sobolev',)
      for method in (*UPPER[kind, term], *LOWER[kind]))


SETTINGS = _settings(('tent2', 'sobrand1', 'sobrand2', 'sobrand3'))
SMOKE = _settings(('tent2', 'sobrand2'))
