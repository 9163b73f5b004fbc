"""Settings to study intervals of a normal mean.

Catalogue item EXP-11.

  python -m launch.sweep --experiment=price_intervals \
    --output_dir=experiments/price_intervals/results

Records are N(theta, 1) with |theta| <= 100; intervals have confidence 95 %:
  karwa_vadhan  the fullest noisy bin, a clipped mean, and separate bounds for
                each of its errors
  tuned         a private median, a clipped mean, and the distribution of the
                sum of its errors; pure DP
  gaussian      the same under zCDP with rho = epsilon^2 / 2
theta lies between two bins and between two points of the grids.

Expected at (n, epsilon) = (500, 1), (5000, .1) and (5000, 1): `karwa_vadhan`
has coverage .997, .992 and .9995, half-widths .326, .268 and .057, and risks
8.5e-3, 7.3e-3 and 2.6e-4; without privacy the half-widths are .088, .028, .028.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('Table 4.1 of Lalanne (2023), the line of Karwa and Vadhan: '
            'intervals of a normal mean under pure privacy')
COST = '2 min on a CPU core'
HEADLINES = (
    'the printed interval covers theta in 95 % of runs',
    "dpjax's intervals are shorter at the same guarantee")

RADIUS = 100.0
MEAN = 31.72
CONFIDENCE = 0.95
METHODS = ('karwa_vadhan', 'tuned', 'gaussian')
# (n, epsilon) -> coverage, half-width and risk of `karwa_vadhan`, computed
# separately.
PRINTED = {(500, 1.0): (0.997, 0.326, 8.5e-3),
           (5000, 0.1): (0.992, 0.268, 7.3e-3),
           (5000, 1.0): (0.9995, 0.057, 2.6e-4)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One interval at one n and budget.

  Attributes:
    method: name from the list above.
    num_examples: n, the public number of records.
    epsilon: epsilon of the release, or that of rho = epsilon^2 / 2.
    repetitions: number of simulations.
    seed: seed of records and noise.
  """
  method: str
  num_examples: int
  epsilon: float
  repetitions: int = 800
  seed: int = 0

  dataset = 'normal'


EPSILONS = (0.1, 0.3, 1.0)
SETTINGS = tuple(
    Setting(method=method, num_examples=n, epsilon=epsilon)
    for method in METHODS for n in (200, 500, 1000, 2000, 5000)
    for epsilon in EPSILONS)
SMOKE = tuple(
    Setting(method=method, num_examples=n, epsilon=1.0, repetitions=100)
    for method in METHODS for n in (200, 500))

TAGS = {'quick': lambda setting: (
    setting.num_examples == 500)}
