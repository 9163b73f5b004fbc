"""Densities of four attributes of eight bins each (DEN-B13, X14).

  python -m launch.sweep --experiment=density_marginals \
    --output_dir=experiments/density_marginals/results

Squared errors of the density of the 4096 cells, of methods:
  flat           Laplace noise on every cell; closed form
  flat_simplex   the nearest density to it
  independent    four tables of one attribute, epsilon / 4 each
  tree           the three tables of pairs of the true tree, epsilon / 3 each
  private_tree   the tree chosen privately: 10 % of the budget for single
                 attributes, 20 % for choices, 70 % for tables
  not_private    all cells without noise; closed form

Expected: a private tree errs 4 to 10 times less than the best flat table, and
less than a flat table without any privacy at epsilon = 1.
"""

import dataclasses

PAPERS = ('001',)
ARTEFACT = 'Table DEN-B13 of several attributes, which no paper has'
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
