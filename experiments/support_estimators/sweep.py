"""Settings to study the support of a uniform distribution.

Catalogue items EXP-04 and EST-04 to 08.

  python -m launch.sweep --experiment=support_estimators \
    --output_dir=experiments/support_estimators/results

Records are uniform on [0, 0.7]. Methods:
  largest, doubled_mean              without privacy; epsilon is infinite
  noisy_largest, noisy_doubled_mean  central model
  top_quantile                       central model, by inverse sensitivity
  local_largest, local_doubled_mean  local model

Expected: without privacy, the error of the largest record is smaller by a
factor of order n. The error of noisy_largest stays at 2 / epsilon^2 and that of
local_largest grows with n, so that with noise the mean is better. top_quantile
has the rate of the largest record up to a factor (ln n / epsilon)^2.
"""

import dataclasses
import math

PAPERS = ('002',)
ARTEFACT = ('Exercise 7.36 of the lecture notes, chapter 7: the upper end of a '
            'uniform distribution under four models')
COST = '2 min on a CPU core'
HEADLINES = ('(PAC)', '(DP) the maximum', '(LDP) the maximum')

THETA = 0.7
_MOST_DRAWS = 5 * 10**6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One estimator.

  Attributes:
    method: name from the list above.
    num_examples: n, the number of records.
    epsilon: budget of the release, or of each local answer.
    repetitions: number of simulations.
    seed: seed of data and noise.
  """
  method: str
  num_examples: int
  epsilon: float
  repetitions: int
  seed: int = 0

  dataset = 'uniform'


OPEN = ('largest', 'doubled_mean')
CENTRAL = ('noisy_largest', 'noisy_doubled_mean', 'top_quantile')
LOCAL = ('local_largest', 'local_doubled_mean')
EPSILONS = (0.1, 1.0, 4.0)
SIZES = (100, 1000, 10_000, 100_000)


def _settings(sizes, epsilons, most):
  return tuple(
      Setting(method=method, num_examples=size, epsilon=epsilon,
              repetitions=min(most, _MOST_DRAWS // size))
      for method in (*OPEN, *CENTRAL, *LOCAL) for size in sizes
      for epsilon in ((math.inf,) if method in OPEN else epsilons))


SETTINGS = _settings(SIZES, EPSILONS, 1000)
SMOKE = _settings((100, 1000), (1.0,), 400)

TAGS = {'quick': lambda setting: (
    setting.num_examples in (100, 10_000)
    and setting.epsilon in (1.0, math.inf))}
