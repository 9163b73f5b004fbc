"""Settings to study private tests of two proportions.

Catalogue items EXP-8 and G-1.

  python -m launch.sweep --experiment=price_samples \
    --output_dir=experiments/price_samples/results

The worked example of Lalanne (2023), section 3.2.1: records are B(.50) or
B(.51), and the mean of both error probabilities may be 1 % at most. Metrics are
numbers n of records, all exact. Lower bounds, below which no test succeeds:
  quoted    Acharya, Sun and Zhang 2021, as quoted there (pure)
  theorem   Theorems 3.2.1 and 3.2.2 (LB-3, LB-4)
  midpoint  the same with half of the distance, ceil(d / 2) (LB-3b, pure)
  path      the bound by errors on a path (LB-12, exact; sharper than LB-13)
  sampling  the best test without privacy (LB-1)
Numbers at which a test succeeds:
  test      the best pure test (a geometric threshold), or two answers along the
            path of the bound (zCDP)
  gaussian  a Gaussian count at its best threshold (zCDP)
error_quoted and error_theorem are the errors of `test` at the n of `quoted` and
`theorem`.

Expected: at epsilon = .1 the bounds are 381, 4109, 7969 and 8019, and 54112 by
sampling alone (erratum E-20); privacy increases n only below epsilon = .015.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('section 3.2.1 of Lalanne (2023), worked example: participants of '
            'a private test')
COST = '30 s on a CPU core'
HEADLINES = ('4109 participants', 'no test needs fewer records than the bounds')

PROBS = (0.5, 0.51)
TARGET = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One budget of a test.

  Attributes:
    notion: 'pure' or 'zcdp'.
    amount: epsilon (pure DP) or rho (zCDP).
    seed: unused, since results are exact.
  """
  notion: str
  amount: float
  seed: int = 0

  method = 'test'
  dataset = 'bernoulli'


EPSILONS = (0.1, 0.07, 0.05, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005, 0.003,
            0.002, 0.001)
RHOS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)


def _all(epsilons, rhos):
  return (*(Setting(notion='pure', amount=amount) for amount in epsilons),
          *(Setting(notion='zcdp', amount=amount) for amount in rhos))


SETTINGS = _all(EPSILONS, RHOS)
SMOKE = _all((0.1, 0.01), (1e-2,))
