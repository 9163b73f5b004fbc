"""Risks and bounds of the mean of normal vectors.

Catalogue item EXP-4. Propositions are those of Lalanne (2023).

  python -m launch.sweep --experiment=price_dimension \
    --output_dir=experiments/price_dimension/results

Records are N(theta, I_d) with |theta| <= R. Kinds of settings:
  dimension  R = sqrt d, d from 2 to 512, at rho = .01 and epsilon = .5
  radius     d = 10, n = 10^4, R from 1 to 10^4
  rounds     the four settings of the comparison with CoinPress
Upper bounds at the worst theta of the ball:
  once     clipping at R + g, with Gaussian or K-norm noise; exact
  shrunk   clipping and a factor, both of least worst risk; exact
  rounds   our rounds, by their proven bound
Measured, where n d is small: the larger of the risks at theta = 0 and
|theta| = R of
  coinpress, ours
Lower bounds: the best one, and Proposition 4.2.2 as printed and optimised.

Expected: the risk is d / n, then d^2 / (n^2 rho). That of one clipped K-norm
mean is d^3 / (n epsilon)^2, where lower bounds have d^2. The printed
proposition does not depend on the privacy budget and is d / n divided by 65536.
The error of one round grows with R^2, that of several rounds does not.
"""

import dataclasses

from dpjax.privacy import notions

PAPERS = ('000',)
ARTEFACT = ('Proposition 4.2.2 of Lalanne (2023): a normal mean in dimension '
            'd, beside the best estimators and bounds')
COST = '2 min on a CPU core'
HEADLINES = (
    'the lower bound of Proposition 4.2.2 exceeds the non-private risk',
    'rounds beat')

_MOST_NUMBERS = 400_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One model and one budget.

  Attributes:
    kind: name from the list above.
    notion: 'pure' or 'zcdp'.
    num_examples: n, the public number of records.
    dimension: d, the dimension of a record.
    radius: R, bound on the norm of theta.
    budget: epsilon (pure DP) or rho (zCDP).
    repetitions: number of simulations of measured risks, at each of two means.
    seed: seed of records and noise.
  """
  kind: str
  notion: str
  num_examples: int
  dimension: int
  radius: float
  budget: float
  repetitions: int = 100
  seed: int = 0

  method = 'all'
  dataset = 'normal'

  @property
  def guarantee(self) -> notions.PureDP | notions.ZCDP:
    """Returns the privacy guarantee of the estimators."""
    if self.notion == 'pure':
      return notions.PureDP(epsilon=self.budget)
    return notions.ZCDP(rho=self.budget)

  @property
  def simulated(self) -> bool:
    """Returns whether n d is small enough to simulate."""
    return self.num_examples * self.dimension <= _MOST_NUMBERS


BUDGETS = {'zcdp': 0.01, 'pure': 0.5}


def _dimensions(sizes, powers):
  return tuple(
      Setting(kind='dimension', notion=notion, num_examples=n, dimension=2**k,
              radius=round(2**(k / 2), 4), budget=budget)
      for notion, budget in BUDGETS.items() for n in sizes for k in powers)


def _radii(radii):
  return tuple(
      Setting(kind='radius', notion=notion, num_examples=10**4, dimension=10,
              radius=radius, budget=budget)
      for notion, budget in BUDGETS.items() for radius in radii)


ROUNDS = tuple(
    Setting(kind='rounds', notion='zcdp', num_examples=n, dimension=d,
            radius=radius, budget=rho)
    for n, d, radius, rho in ((1000, 10, 10.0, 0.5), (1000, 10, 100.0, 0.5),
                              (5000, 50, 50.0, 0.5), (5000, 50, 500.0, 0.05)))
SETTINGS = (*_dimensions((10**3, 10**4, 10**5), range(1, 10)),
            *_radii((1.0, 10.0, 100.0, 1000.0, 10**4)), *ROUNDS)
SMOKE = (*_dimensions((10**3,), (1, 7)), *_radii((10.0, 100.0)), *ROUNDS[:1])

TAGS = {'quick': lambda setting: (
    setting.radius in (1.0, 100.0, 10**4)
    if setting.kind == 'radius'
    else setting.kind == 'rounds' or setting.dimension >= 256)}
