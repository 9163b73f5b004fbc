"""Settings of the figure that draws private densities.

Catalogue item DEN-X16. Theorem 4 is of Lalanne, Garivier and Gribonval (2023).

  python -m launch.sweep --experiment=density_draws \
    --output_dir=experiments/density_draws/results

Each setting has 20 releases, epsilon-DP under replace_one, each from fresh
records. Methods:
  printed   Theorem 4, which is given beta
  spectral  the tapered spectral histogram, which is given beta and L
  default   the adaptive estimator on a circle, which needs no constants

Expected: the mean error of `printed` is at least ten times that of the others.
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Theorem 4 of Lalanne, Garivier and Gribonval (2023) and better '
            'estimators: curves of private densities')
COST = '10 s on a CPU core'
HEADLINES = ('errors are below those of the printed estimator',)

METHODS = ('printed', 'spectral', 'default')
DATASETS = ('tent2', 'wrapmix')
NUM_EXAMPLES, EPSILON = 10**4, 0.1
DRAWS = 20
BATCHED = ('draw',)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One release.

  Attributes:
    method: name from the list above.
    dataset: name of the density.
    draw: number of the release; -1 is the true density.
    num_examples: n, the number of records.
    epsilon: budget of the release.
    seed: seed of data and noise.
  """
  method: str
  dataset: str
  draw: int
  num_examples: int = NUM_EXAMPLES
  epsilon: float = EPSILON
  seed: int = 0


def _settings(datasets, draws):
  return tuple(
      Setting(method=method, dataset=dataset, draw=draw)
      for dataset in datasets for method, numbers in (
          ('truth', (-1,)), *((name, range(draws)) for name in METHODS))
      for draw in numbers)


SETTINGS = _settings(DATASETS, DRAWS)
SMOKE = _settings(DATASETS[1:], 3)
