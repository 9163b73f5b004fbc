"""Settings to study private proportions.

Catalogue items MOD-INTRO, MOD-BERN, EXP-1 and EXP-2.

  python -m launch.sweep --experiment=price_proportion \
    --output_dir=experiments/price_proportion/results

For each n and budget (epsilon or rho), a setting has the largest measured error
of an estimator over the probability of a one, its closed form, and a lower
bound for every estimator with this budget.

  laplace, geometric   noise on the count, pure DP
  gaussian             calibrated noise, zCDP
  printed              the noise of Lalanne (2023), 2 / (n sqrt rho)
  shrunk_laplace, shrunk_geometric, shrunk_gaussian
                       the same three, shrunk towards 1/2
  table                the minimax estimate from geometric counts, by numerical
                       optimisation

Expected: while the privacy term dominates, slope -2 in epsilon and -1 in rho;
slope 0 above epsilon = sqrt(8 / n) and rho = 2 / n, or above rho = 16 / n with
the printed noise.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('sections 3.1.2 and 4.1.1 of Lalanne (2023): the cost of privacy '
            'for one proportion')
COST = '1 min on a CPU core'
GALLERY = 'The price of privacy of a proportion'
HEADLINES = (
    'risks lie between the lower bound and the closed form',
    'the Gaussian mechanism with noise')

PURE = ('laplace', 'geometric', 'shrunk_laplace', 'shrunk_geometric', 'table')
ZCDP = ('gaussian', 'printed', 'shrunk_gaussian')
SIZES = (20, 200, 1000, 10_000, 100_000)
REPETITIONS = 20_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One estimator at one n and one budget.

  Attributes:
    notion: 'pure' or 'zcdp'.
    method: name from the list above.
    num_examples: n, the number of records.
    budget: epsilon (pure DP) or rho (zCDP).
    repetitions: simulations for each of a few probabilities.
    seed: seed of counts and noise.
  """
  notion: str
  method: str
  num_examples: int
  budget: float
  repetitions: int = REPETITIONS
  seed: int = 0

  dataset = 'bernoulli'


def _settings(sizes, powers, repetitions=REPETITIONS):
  """Returns settings at budgets 10^(k / 4), squared for zCDP.

  Squared budgets give both notions noise of equal variance.
  """
  return tuple(
      Setting(notion=notion, method=method, num_examples=size,
              budget=float(f'{10**(power / 4 * scale):.4g}'),
              repetitions=repetitions)
      for notion, scale, methods in (('pure', 1, PURE), ('zcdp', 2, ZCDP))
      for size in sizes for power in powers
      # From n = 10^5 on, where the minimax risk takes seconds to compute, only
      # whole decades are run; `table` is run where all counts fit its
      # programme.
      if size < 10**5 or power % 4 == 0
      for method in methods
      if method != 'table' or size <= 200)


SETTINGS = _settings(SIZES, range(-12, 3))
SMOKE = _settings((20, 1000), (-12, -8, -4, 0), 2000)
