"""Settings to study private tests of two proportions (EXP-8, G-1).

  python -m launch.sweep --experiment=price_samples \
    --output_dir=experiments/price_samples/results

The worked example of Lalanne (2023), section 3.2.1: records are B(.50) or
B(.51), and the mean of both errors is to be 1 % at most. The number n of
records, all exact:
  quoted    Acharya, Sun and Zhang 2021, as quoted there (pure)
  theorem   Theorems 3.2.1 and 3.2.2 (LB-3, LB-4)
  midpoint  the same with half of the distance, ceil(d / 2) (LB-3b, pure)
  path      errors on a path (LB-12, exact; sharper than LB-13)
  sampling  the best test without privacy (LB-1)
below which no test will do, and
  test      that does: the best pure test (a geometric threshold), or two
            answers along the path of the bound (zCDP)
  gaussian  that does too: a Gaussian count at its best threshold (zCDP)
What `test` errs with at the n of quoted and theorem: error_quoted,
error_theorem.

Expected: at epsilon = .1 bounds of 381, 4109, 7969 and 8019, and 54112 by
sampling alone (erratum E-20); privacy is felt below epsilon = .015.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('section 3.2.1 of Lalanne (2023), worked example: participants of a'
            ' '
            'private test')
COST = '30 s on a CPU core'
HEADLINES = ('4109 participants', 'no test needs fewer records than the bounds')

PROBS = (0.5, 0.51)
TARGET = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One budget.

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
