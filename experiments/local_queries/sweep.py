"""Settings to study queries in the local model.

Catalogue items EXP-09 and SQ-02. The text is the lecture notes, chapter 7.

  python -m launch.sweep --experiment=local_queries \
    --output_dir=experiments/local_queries/results

The query takes the values -1 and 1 equally often, which is the hardest case.
`method` is the randomiser of one person; `printed` is the Laplace noise with
1/(epsilon tau)^2 people for each of T answers, as in the text. An answer fails
if its error exceeds tau.

Expected number of people for each answer at tau 0.1, beta 0.05, T = 20, epsilon
1: 6261 (bernoulli), 94436 (laplace), 100 (printed). A single answer of
`printed` fails with probability 0.73 to 0.77; with the other methods, all T
answers succeed in 95 % of the runs.
"""

import dataclasses

PAPERS = ('002',)
ARTEFACT = ('Proposition 7.35 of the lecture notes, chapter 7: statistical '
            'queries under local privacy')
COST = '30 s on a CPU core'
HEADLINES = ('Proposition 7.35',)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One oracle, with its tolerance and budget.

  Attributes:
    method: 'bernoulli', 'laplace' or 'printed'.
    epsilon: budget of one person's answer.
    tolerance: tau, the allowed error of an answer.
    failure_prob: beta, the probability that any of the T answers fails.
    num_queries: T, the number of queries.
    repetitions: number of simulated answers; fewer if they need many people.
    seed: seed of people and noise.
  """
  method: str
  epsilon: float
  tolerance: float = 0.1
  failure_prob: float = 0.05
  num_queries: int = 20
  repetitions: int = 10_000
  seed: int = 0

  dataset = 'signs'


METHODS = ('bernoulli', 'laplace', 'printed')
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)

SETTINGS = tuple(Setting(method=method, epsilon=epsilon)
                 for method in METHODS for epsilon in EPSILONS)

SMOKE = tuple(Setting(method=method, epsilon=epsilon, repetitions=1000)
              for method in METHODS for epsilon in (1.0, 2.0))

TAGS = {'quick': lambda setting: (
    setting.epsilon in (0.5, 2.0))}
