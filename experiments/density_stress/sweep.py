"""Settings to compare baselines on densities that are hard for them.

Catalogue items DEN-B10, B11, B12 and X13: densities with jumps, densities with
Theorems are those of Lalanne, Garivier and Gribonval (2023).
one high frequency, and smooth ones.

  python -m launch.sweep --experiment=density_stress \
    --output_dir=experiments/density_stress/results

The measure is the mean integrated squared error. Methods under epsilon-DP:
  printed           the histogram of Theorem 1; closed form
  oracle            the histogram with the best number of bins; closed form
  dyadic            the best histogram with 2, 4, 8, ... bins; closed form
  tree, leaves      a least-squares tree of 8 levels, read at the level that is
                    best for the density, or at its leaves; closed forms
  haar, haar_all    Haar wavelets, thresholded; or all of them, in closed form
  merged            a fine histogram whose neighbouring bins are merged, with a
                    penalty of 4 variances for each run of bins
  merged_dear       the same with a penalty of 2 ln m variances
  adaptive          the default estimator, which knows neither bins nor jumps
Methods under zCDP with rho = epsilon^2 / 2, on the circle:
  projection        Theorem 4 with the best N; closed form
  exact             the same with exact sensitivities; closed form
  sparse_T          T rounds, which each choose and measure one frequency
  sums              the adaptive estimator

Expected: trees and wavelets lose everywhere; merging gains on jumps alone. One
round of `sparse_T` reduces the error on one high frequency by a factor of 37 to
92; more rounds lose on smooth densities.
"""

import dataclasses

PAPERS = ('001',)
ARTEFACT = ('Baselines DEN-B10 to B12: trees, wavelets, merged bins, sparse '
            'spectra')
COST = '30 s on a CPU core'
HEADLINES = ('a tree errs', 'one round gains')

PURE = ('printed', 'oracle', 'dyadic', 'tree', 'leaves', 'haar', 'haar_all',
        'merged', 'merged_dear', 'adaptive')
ROUNDS = (1, 2, 4, 8)
ZCDP = ('projection', 'exact', *(f'sparse_{count}' for count in ROUNDS),
        'sums')
EXACT = ('printed', 'oracle', 'dyadic', 'tree', 'leaves', 'haar_all',
         'projection', 'exact')
DENSITIES = {'pure': ('tent2', 'beta22', 'blocks'),
             'zcdp': ('tent2', 'sobrand2', 'cos30')}
# n and epsilon: those of DEN-B10, and more of one n for figures.
CELLS = ((10**4, 0.1), (10**4, 0.5), *(
    (10**5, epsilon) for epsilon in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One method on one density.

  Attributes:
    method: name from the list above.
    notion: 'pure' or 'zcdp'.
    density: name of the density of the records.
    num_records: n, the number of records.
    epsilon: epsilon of the release, or that of rho = epsilon^2 / 2.
    repetitions: number of simulated releases; 0 for closed forms.
    seed: seed of records and noise.
  """
  method: str
  notion: str
  density: str
  num_records: int
  epsilon: float
  repetitions: int = 0
  seed: int = 0

  @property
  def dataset(self) -> str:
    """Returns the name of the density that records are drawn from."""
    return self.density


def _all(cells, repetitions, densities):
  return tuple(
      Setting(method=method, notion=notion, density=density, num_records=size,
              epsilon=epsilon,
              repetitions=0 if method in EXACT else repetitions)
      for notion, methods in (('pure', PURE), ('zcdp', ZCDP))
      for density in densities[notion] for method in methods
      for size, epsilon in cells)


SETTINGS = _all(CELLS, 200, DENSITIES)
SMOKE = tuple(setting for setting in _all(
    ((1000, 0.5),), 10, {'pure': ('blocks',), 'zcdp': ('cos30',)})
              if setting.method not in ('sparse_2', 'sparse_4', 'sparse_8'))

TAGS = {'quick': lambda setting: (
    setting.num_records == 10**4)}
