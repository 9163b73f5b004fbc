"""Means in R^5 with E |X|^k <= 1 under epsilon-DP.

Catalogue items EXP-5 and MOD-KMOM. Propositions are those of Barber and Duchi
(2014).

  python -m launch.sweep --experiment=price_moments \
    --output_dir=experiments/price_moments/results

Kinds of settings: `records`, against n at epsilon = .001; `budgets`, against
epsilon at n = 10^6; `border`, the epsilon at which the risk of `optimal` is
twice the risk without privacy. Risks are the largest over the class, exact, and
simulated at the distribution that attains it:
  tuned      l2 noise, with the threshold and the shrinkage of least worst risk
  optimal    l2 noise, with the closed-form threshold that balances bias and
             noise
  threshold  l2 noise, with the printed threshold (n epsilon / d)^(1/k)
  printed    Proposition 6: that threshold with independent Laplace noise
  measured   `tuned`, simulated
`tuned` is also evaluated on three distributions: outliers, pareto (of tail
k + 1/5) and signs. Bounds:
  lower          the largest valid lower bound; its parts are two_points, sphere
                 and scores
  proposition_4  with the printed constant, where it is stated
  proposition_6  the explicit upper bound of `printed`
  non_private    1 / (1 + sqrt n)^2, the minimax risk

Expected: slopes of - 2 (k - 1) / k in n and epsilon while the privacy term
dominates, then of -1 in n; for k = 2 the privacy term always dominates. The
border is at epsilon of order n^((2 - k) / (2 k - 2)).
"""

import dataclasses
import math

PAPERS = ('004',)
ARTEFACT = ('Propositions 4 and 6 of Barber and Duchi (2014): means with k '
            'moments under epsilon-DP')
COST = '1 min on a CPU core'
HEADLINES = ('every measured risk', 'tuned thresholds')

DIMENSION = 5
MOMENTS = (2.0, 3.0, 4.0, 8.0, math.inf)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One class of distributions, with n and a budget.

  Attributes:
    kind: name from the list above.
    moment: k, the order of the bounded moment.
    num_examples: n, the number of records.
    epsilon: budget of the release; 0 for `border`, which searches for it.
    repetitions: number of simulations.
    seed: seed of the simulation.
  """
  kind: str
  moment: float
  num_examples: int
  epsilon: float
  repetitions: int = 20_000
  seed: int = 0

  method = 'truncated_mean'
  dataset = 'moments'


def _all(exponents, budgets, borders, repetitions):
  return tuple(
      Setting(kind=kind, moment=moment, num_examples=round(n), epsilon=epsilon,
              repetitions=repetitions)
      for moment in MOMENTS for kind, n, epsilon in (
          *(('records', 10**exponent, 1e-3) for exponent in exponents),
          *(('budgets', 10**6, 10**budget) for budget in budgets),
          *(('border', 10**exponent, 0.0) for exponent in borders)))


SETTINGS = _all([half / 2 for half in range(6, 25)],
                [half / 2 for half in range(-10, 3)], (4, 6, 8, 10), 20_000)
SMOKE = tuple(setting for setting in _all([6], [], [6], 2000)
              if setting.moment == 4)

TAGS = {'quick': lambda setting: (
    setting.moment in (2.0, 4.0))}
