"""Settings to study post-processing (DEN-X10, DEN-B8 and DEN-B9).

  python -m launch.sweep --experiment=density_post_processing \
    --output_dir=experiments/density_post_processing/results

Mean integrated squared errors under replace_one, pure privacy, of densities
that are Lipschitz. Methods that are given the same release share their data and
noise:
  printed          Theorem 1
  fix_mass         shifted to a mean of 1 (a)
  clip             negative heights raised to 0, the others rescaled (b)
  simplex          the nearest density (c)
  james_stein      shrunk towards the uniform density (d)
  tuned            bins for the Lipschitz constant
  tuned_simplex    of these the nearest density
  tuned_shrunk     of these by James-Stein
  polygon          lines between the heights of tuned_simplex
  oracle           the best bins for the density itself, in closed form
  unimodal         64 bins, the nearest unimodal density (e)
beta25 is taken to have L = 12, though it is as steep as 30 at 0.

Grid `ladder`: n epsilon from 10 to 10^4. Grid `table`: settings of the last
table of section 8.4.

Expected: (d), (c), (b), (a) in this order where n epsilon is 100 or less, and
next to nothing above; lines halve the error everywhere.
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Section 3 of Lalanne, Garivier and Gribonval (2023): its '
            'histogram, with what can be done '
            'after the release')
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
    """Name of the data set in the rows."""
    return self.density


def _made(grid, cases, repetitions, methods=METHODS):
  return tuple(
      Setting(grid=grid, method=method, density=density, num_records=size,
              epsilon=epsilon, repetitions=repetitions)
      for density, size, epsilon in cases for method in methods)


def _ladder(densities, sizes, signals):
  return tuple((density, size, float(f'{signal / size:.6g}'))
               for density in densities for size in sizes for signal in signals)


SETTINGS = (*_made('ladder', _ladder(LIPSCHITZ, (10**3, 10**4, 10**5),
                                     SIGNALS), 1000),
            *_made('table', TABLE, 2000))
SMOKE = _made('ladder', _ladder(('beta22',), (10**3,), (100,)), 200)

TAGS = {'quick': lambda setting: (
    setting.grid == 'table' or setting.num_records == 10**4
    and setting.density in ('beta22', 'tent2'))}
