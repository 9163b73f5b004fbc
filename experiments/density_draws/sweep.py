"""Settings whose private densities are drawn (DEN-X16).

  python -m launch.sweep --experiment=density_draws \
    --output_dir=experiments/density_draws/results

20 releases, epsilon-DP under replace_one, each of records of its own. Methods:
  printed   Theorem 4, given beta
  spectral  the tapered spectral histogram, given beta and L
  default   adaptive, on a circle; needs no constants

Expected: errors in this order, the printed one's an order of magnitude above.
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Theorem 4 of Lalanne, Garivier and Gribonval (2023) beside '
            'what is better: private '
            'densities as they look')
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
