"""Settings to study post-processing.

Catalogue items DEN-X10, DEN-B8 and DEN-B9. Theorem 1 is of Lalanne, Garivier
and Gribonval (2023).

  python -m launch.sweep --experiment=density_post_processing \
    --output_dir=experiments/density_post_processing/results

The measure is the mean integrated squared error under replace_one and pure DP,
on Lipschitz densities. Methods that start from the same release share its data
and noise:
  printed          the histogram of Theorem 1
  fix_mass         `printed`, shifted to a mean of 1 (a)
  clip             `printed`, negative heights raised to 0 and the others
                   rescaled (b)
  simplex          the density nearest to `printed` (c)
  james_stein      `printed`, shrunk towards the uniform density (d)
  tuned            a histogram with the bins for the Lipschitz constant
  tuned_simplex    the density nearest to `tuned`
  tuned_shrunk     `tuned`, shrunk by James-Stein
  polygon          lines that join the heights of `tuned_simplex`
  oracle           the best number of bins for the density itself, in closed
                   form
  unimodal         the unimodal density nearest to a histogram of 64 bins (e)
For beta25, L is set to 12, although its slope at 0 is 30.

Grid `ladder`: n epsilon from 10 to 10^4. Grid `table`: settings of the
catalogue item DEN-8.4.

Expected: where n epsilon is 100 or less, (d) gains most, then (c), (b) and (a);
above, they gain next to nothing. Joining heights by lines halves the error
everywhere.
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Section 3 of Lalanne, Garivier and Gribonval (2023): its '
            'histogram, with post-processing of the release')
COST = '1 min on a CPU core'
HEADLINES = (
    'projecting onto densities never increases the error',
    'lines err less than the printed')
BATCHED = ('method',)

POSTS = ('fix_mass', 'clip', 'simplex', 'james_stein')
METHODS = ('printed', *POSTS, 'tuned', 'tuned_simplex', 'tuned_shrunk',
           'polygon', 'oracle', 'unimodal')
LIPSCHITZ = {'tent2': 2.0, 'linear1.5': 1.5, 'beta22': 6.0, 'beta25': 12.0}
SIGNALS = (10, 31.6, 100, 316, 1000, 3160, 10000)
FINE = 64
TABLE = (('tent2', 10**3, 0.1), ('tent2', 10**4, 0.1), ('tent2', 10**5, 0.1),
         ('beta22', 10**4, 0.1), ('linear1.5', 10**4, 0.02),
         ('linear1.5', 10**5, 0.1), ('beta25', 10**5, 0.1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One estimate of one density.

  Attributes:
    grid: 'ladder' or 'table'.
    method: name from the list above.
    density: name of the density.
    num_records: n, the number of records.
    epsilon: budget of one release.
    repetitions: number of data sets.
    seed: seed of data and noise.
  """
  grid: str
  method: str
  density: str
  num_records: int
  epsilon: float
  repetitions: int
  seed: int = 0

  @property
  def dataset(self) -> str:
    """Returns the name of the data set in the rows."""
    return self.density


def _settings(grid, cases, repetitions, methods=METHODS):
  return tuple(
      Setting(grid=grid, method=method, density=density, num_records=size,
              epsilon=epsilon, repetitions=repetitions)
      for density, size, epsilon in cases for method in methods)


def _ladder(densities, sizes, signals):
  return tuple((density, size, float(f'{signal / size:.6g}'))
               for density in densities for size in sizes for signal in signals)


SETTINGS = (*_settings('ladder', _ladder(LIPSCHITZ, (10**3, 10**4, 10**5),
                                         SIGNALS), 1000),
            *_settings('table', TABLE, 2000))
SMOKE = _settings('ladder', _ladder(('beta22',), (10**3,), (100,)), 200)

TAGS = {'quick': lambda setting: (
    setting.grid == 'table' or setting.num_records == 10**4
    and setting.density in ('beta22', 'tent2'))}
