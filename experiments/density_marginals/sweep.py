"""Settings for densities of four attributes of eight bins each.

Catalogue items DEN-B13 and X14.

  python -m launch.sweep --experiment=density_marginals \
    --output_dir=experiments/density_marginals/results

The measure is the squared error of the density on the 4096 cells. Methods:
  flat           Laplace noise on every cell; closed form
  flat_simplex   the density nearest to `flat`
  independent    four tables of one attribute, with epsilon / 4 each
  tree           the three pair tables of the true tree, with epsilon / 3 each
  private_tree   a privately chosen tree: 10 % of the budget for the tables of
                 single attributes, 20 % for choices, 70 % for pair tables
  not_private    all cells without noise; closed form

Expected: the error of a private tree is 4 to 10 times less than that of the
best flat table, and at epsilon = 1 less than that of a flat table without
privacy.
"""

import dataclasses

PAPERS = ('001',)
ARTEFACT = 'Item DEN-B13, which no paper has: densities of several attributes'
COST = '30 s on a CPU core'
HEADLINES = ('a private tree gains over',)

METHODS = ('flat', 'flat_simplex', 'independent', 'tree', 'private_tree',
           'not_private')
EXACT = ('flat', 'not_private')
RECORDS = (10**3, 10**4, 10**5, 10**6)
EPSILONS = (0.1, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One method at one size and budget.

  Attributes:
    method: name from the list above.
    num_records: n, the number of records.
    epsilon: budget of a release.
    repetitions: number of simulated releases; 0 for closed forms.
    seed: seed of records and noise.
  """
  method: str
  num_records: int
  epsilon: float
  repetitions: int = 0
  seed: int = 0

  dataset = 'chain'


def _all(sizes, epsilons, repetitions):
  return tuple(
      Setting(method=method, num_records=size, epsilon=epsilon,
              repetitions=0 if method in EXACT else repetitions)
      for method in METHODS for size in sizes for epsilon in epsilons)


SETTINGS = _all(RECORDS, EPSILONS, 200)
SMOKE = tuple(setting for setting in _all((10**4,), (1.0,), 20)
              if setting.method not in ('flat_simplex', 'tree'))
