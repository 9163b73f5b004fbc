"""Settings to study the upper end theta of uniform distributions on [0, theta].

Catalogue items MOD-UNIF and EXP-3.

  python -m launch.sweep --experiment=price_support \
    --output_dir=experiments/price_support/results

The measure is the largest measured error over theta in (0, 1]. Methods:
  ranks     a record near the largest, by the exponential mechanism, uniform in
            ln t; pure, or zCDP by epsilon = sqrt(8 rho)
  linear    the same, uniform in t
  doubled   twice the noisy mean
  subset    the largest of n level records; total variation privacy
  largest   (n + 2) / (n + 1) times the largest record; no privacy

Part n varies n at one budget, part budget the budget at one n. Closed forms,
upper bounds, and lower bounds for every estimator are stored too.

Expected: slope -2 in n and in epsilon with no plateau, since the squared error
of the largest record itself is of order 1 / n^2; twice the mean has slope -1 in
n above n epsilon = sqrt(n).
"""

import dataclasses

PAPERS = ('000', '004')
ARTEFACT = ('section 4.1.2 of Lalanne (2023) and Proposition 3 of Barber and '
            'Duchi (2014): the cost of privacy for the upper end of a uniform '
            'distribution')
COST = '1 min on a CPU core'
HEADLINES = (
    'risks lie between the lower and the upper bound',
    'privacy always costs')

METHODS = {'pure': ('ranks', 'linear', 'doubled'), 'zcdp': ('ranks', 'doubled'),
           'variation': ('subset',), 'none': ('largest',)}
REPETITIONS = 4000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One estimator at one n and one budget.

  Attributes:
    part: field that varies: 'n' or 'budget'.
    notion: 'pure', 'zcdp', 'variation' or 'none'.
    method: name from the list above.
    num_examples: n, the number of records.
    budget: epsilon, rho or level; 0 for none.
    repetitions: largest number of simulations, for each of a few theta.
    seed: seed of records and noise.
  """
  part: str
  notion: str
  method: str
  num_examples: int
  budget: float
  repetitions: int = REPETITIONS
  seed: int = 0

  dataset = 'uniform'


def _settings(sizes, fixed, epsilons, repetitions=REPETITIONS):
  """Returns settings; zCDP gets rho = epsilon^2 / 8.

  With this rho, `ranks` draws the same ranks under both notions.
  """
  budget = {'pure': lambda e: e, 'zcdp': lambda e: float(f'{e * e / 8:.5g}'),
            'variation': lambda e: min(e, 1.0), 'none': lambda e: 0.0}
  size, epsilon = fixed
  places = [('n', n, epsilon) for n in sizes] + [
      ('budget', size, e) for e in epsilons]
  return tuple(dict.fromkeys(
      Setting(part=part, notion=notion, method=method, num_examples=n,
              budget=budget[notion](e), repetitions=repetitions)
      for part, n, e in places for notion, methods in METHODS.items()
      if not (notion == 'none' and part == 'budget')
      if not (notion == 'variation' and n * e < 1)
      for method in methods))


SETTINGS = _settings((100, 215, 464, 1000, 2154, 4642, 10_000), (2000, 0.5),
                     (0.01, 0.0215, 0.0464, 0.1, 0.215, 0.464, 1.0, 2.15))
SMOKE = _settings((200, 1000), (500, 0.5), (0.1, 1.0), 400)

TAGS = {'quick': lambda setting: (
    setting.part == 'budget' or setting.num_examples == 100)}
