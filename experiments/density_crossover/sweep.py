"""Settings to study regimes of private densities.

Catalogue items DEN-X6 and DEN-R1. The paper is Lalanne, Garivier and Gribonval
(2023).

  python -m launch.sweep --experiment=density_crossover \
    --output_dir=experiments/density_crossover/results

For each n, these are the budgets alpha (epsilon, or the square root of rho) at
which the closed-form error of an estimator, with the best tuning for the
density, has one of these properties:
  doubling  it is twice the error without noise
  equal     the error due to noise equals that due to sampling
  trivial   it equals the error of the uniform density, which needs no data
Methods are those of `experiments/density_settings.py`.

Expected: the boundary is n^(-1/3) for histograms; n^(-(beta - 1/2) /
(2 beta + 1)) for the pure Fourier estimator; and n^(-beta / (2 beta + 1)) for
frequencies of a noisy histogram under pure DP and for zCDP. For zCDP the paper
prints the square of n^(-(beta + 1) / (2 beta + 1)) (erratum DEN-E2).
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Discussion of Theorems 1 and 4 of Lalanne, Garivier and Gribonval '
            '(2023): budgets above which privacy is free')
COST = '10 s on a CPU core'
HEADLINES = ('the crossover of the pure Fourier', 'the crossover of zCDP',
             'the crossover of pure privacy')

FOURIER = ('pure_printed', 'pure_exact', 'spectral', 'zcdp_printed',
           'zcdp_exact')
HISTOGRAMS = ('histogram', 'zcdp_histogram')
SMOOTHNESS = (1, 2, 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One estimator on one density at one n.

  Attributes:
    method: name from the list above.
    dataset: name of the density.
    num_examples: n, the number of records.
    seed: unused, since results are exact.
  """
  method: str
  dataset: str
  num_examples: int
  seed: int = 0


def _settings(sizes, orders=SMOOTHNESS):
  return tuple(
      Setting(method=method, dataset=dataset, num_examples=size)
      for methods, datasets in (
          (HISTOGRAMS, ('tent2',)),
          (FOURIER, tuple(f'sobdet{order}' for order in orders)))
      for method in methods for dataset in datasets for size in sizes)


SETTINGS = _settings(tuple(round(10**(half / 2)) for half in range(6, 19)))
SMOKE = _settings((10**3, 10**4, 10**5), (2, 3))
