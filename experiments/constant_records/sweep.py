"""Settings to study smoothed medians of zeros on [-1, 1].

Catalogue items QF-21 and QF-23. Printed statements are those of Lalanne (2023,
section 6.3.3).

  python -m launch.sweep --experiment=constant_records \
    --output_dir=experiments/constant_records/results

All records are 0, and M is the private median. Methods:
  cost      the cost |n / 2 - #{X + w < x}| at one point of one sample: Figure
            6.2
  raw       E M^2 of the exponential mechanism on the records without noise
  printed   E M^2 with uniform noise of amplitude e^(-n epsilon / 48)
  half      the same with e^(-n epsilon / 24), which minimises the bound

Two upper bounds are stored with E M^2: the printed one, and the one that
follows from the definition of the cost (erratum QE-08). In the second bound
epsilon has twice the exponent, and the event that the proof conditions on fails
with twice the probability.

Expected: without noise E M^2 is 1/3 for every n; with noise it is below both
bounds.
"""

import dataclasses

import numpy as np

PAPERS = ('000',)
ARTEFACT = ('Figure 6.2 of Lalanne (2023), and its analysis of constant data '
            '(section 6.3.3)')
COST = '1 min on a CPU core'
HEADLINES = (
    'without added noise',
    'with added noise, E M^2 is at most the printed bound',
    'the best noise amplitude is e^(-n epsilon / 48)')

SIZES = (50, 100, 200, 400, 800)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One risk, or one point of Figure 6.2.

  Attributes:
    method: name from the list above.
    num_examples: n, the number of records.
    epsilon: budget of the mechanism.
    place: x, the point of 'cost'; 0 for the other methods.
    repetitions: number of noise vectors.
    seed: seed of the noise.
  """
  method: str
  num_examples: int
  epsilon: float = .5
  place: float = 0.0
  repetitions: int = 4000
  seed: int = 0

  dataset = 'zeros'


# Points x of the figure, evenly spaced, inside and outside of [-alpha, alpha].
_PLACES = tuple(np.round(np.linspace(-.6, .6, 121), 3).tolist())


def _settings(sizes, places, repetitions):
  costs = tuple(Setting(method='cost', num_examples=100, place=place,
                        repetitions=1) for place in places)
  return costs + tuple(
      Setting(method=method, num_examples=size, epsilon=epsilon,
              repetitions=repetitions)
      for method in ('raw', 'printed', 'half') for size in sizes
      for epsilon in (.5, 1.0))


SETTINGS = _settings(SIZES, _PLACES, 4000)
SMOKE = _settings((50, 100), _PLACES[::10], 400)

TAGS = {'quick': lambda setting: (
    setting.method == 'cost' or setting.num_examples <= 200)}
