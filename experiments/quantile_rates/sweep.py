"""Settings to study rates of quantiles.

Catalogue items QF-29, QB-01 and QB-03. Printed targets are those of Lalanne
(2023).

  python -m launch.sweep --experiment=quantile_rates \
    --output_dir=experiments/quantile_rates/results

Records are uniform. Methods:
  real          QExp for one median; under add_or_remove_one with half the cost
  rounded       the same with the printed target floor(n p)
  interpolated  the same with ranks interpolated linearly between records
  recursive     RecExp for the five levels j/6
  joint         JointExp for the same levels

Expected: squared errors p (1 - p) / n + 8 / (n epsilon)^2 for one level, and
that rate for five. Under add_or_remove_one at epsilon 0.1, rank errors are 20.5
(rounded) and 10.5 (real). Interpolation reduces the error by 2 % at epsilon 0.1
and by a factor of 2 or more from epsilon 10 on.
"""

import dataclasses

from dpjax.privacy.adjacency import Adjacency

PAPERS = ('000',)
ARTEFACT = ('Conclusion of Lalanne (2023): quantiles at the parametric rate; '
            'and the gain by unrounded and interpolated ranks')
COST = '2 min on a CPU core'
GALLERY = 'Private quantiles: errors against n'

DATASET = 'mixed_0_0'
SINGLE = ('real', 'rounded', 'interpolated')
SEVERAL = ('recursive', 'joint')
_REPLACE = Adjacency.REPLACE_ONE.value
_ADD = Adjacency.ADD_OR_REMOVE_ONE.value
_MOST_RECORDS = 10**7
BATCHED = ('method', 'adjacency', 'epsilon', 'num_orders')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One mechanism at one n and epsilon.

  Attributes:
    method: name from the list above.
    adjacency: notion of neighbouring data sets.
    num_orders: m, the number of quantile levels.
    num_examples: n, the number of records.
    epsilon: total budget of all quantile levels.
    repetitions: number of data sets, which all methods share.
    seed: seed of data and noise.
  """
  method: str
  adjacency: str
  num_orders: int
  num_examples: int
  epsilon: float
  repetitions: int
  seed: int = 0

  dataset = DATASET


def _settings(methods, sizes, epsilons, most, adjacency=_REPLACE):
  return tuple(
      Setting(method=method, adjacency=adjacency,
              num_orders=5 if method in SEVERAL else 1, num_examples=size,
              epsilon=epsilon, repetitions=min(most, _MOST_RECORDS // size))
      for method in methods for size in sizes for epsilon in epsilons
      if size * epsilon >= 30)


SETTINGS = (
    *_settings(('real',), (300, 1000, 3000, 10_000, 30_000),
               (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0), 2000),
    *_settings(SEVERAL, (1000, 3000, 10_000), (0.03, 0.1, 1.0, 3.0), 500),
    *_settings(('rounded', 'real'), (10_000,), (0.1,), 2000, _ADD),
    *_settings(('interpolated',), (1000,), (0.1, 1.0, 3.0, 10.0, 20.0), 2000),
    *_settings(('real',), (1000,), (10.0, 20.0), 2000))
SMOKE = (*_settings(('real', 'joint', 'recursive'), (100, 400), (1.0,), 50),
         *_settings(('rounded', 'real'), (400,), (0.1,), 50, _ADD),
         *_settings(('interpolated',), (100, 400), (1.0,), 50))

TAGS = {'quick': lambda setting: (
    setting.num_examples in (1000, 10_000)
    and setting.epsilon in (0.1, 1.0, 3.0, 10.0, 20.0))}
