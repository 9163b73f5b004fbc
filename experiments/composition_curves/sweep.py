"""Settings to study composition.

Catalogue items EXP-05 and ALG-10. Fact 2.2.4 is of Lalanne (2023).

  python -m launch.sweep --experiment=composition_curves \
    --output_dir=experiments/composition_curves/results

Every setting composes k releases with one guarantee. It computes the closed
forms A, B and C of Fact 2.2.4; the first advanced composition theorem; the
exact epsilon that the guarantees alone allow; and, where one of these is
smaller, the epsilon by zCDP for any pure mechanism, the epsilon of Laplace
noise, and that of the exponential mechanism.

Expected at epsilon 0.1, k = 100, delta 1e-6: A, B and C are 10, 5.756 and
5.756, advanced composition 6.308, the exact epsilon 4.775, Laplace noise 4.693,
the exponential mechanism 2.419.
"""

import dataclasses

PAPERS = ('000', '002')
ARTEFACT = ('section 2.2.4 of Lalanne (2023) and section 7.2.3 of the lecture '
            'notes, chapter 7: composition')
COST = '10 s on a CPU core'
GALLERY = 'Composition: bounds and the exact curve'
HEADLINES = ('the smallest of A, B and C', 'Fact 2.2.4 is sharp')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """A number of releases that each have the same guarantee.

  Attributes:
    epsilon: budget of each release.
    num_uses: k, the number of releases.
    release_delta: delta of each release.
    slack: amount that composition adds to delta.
  """
  epsilon: float
  num_uses: int
  release_delta: float = 0.0
  slack: float = 1e-6

  seed = 0
  method = 'composition'
  dataset = 'none'


EPSILONS = (0.01, 0.1, 1.0)
USES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

SETTINGS = (
    *(Setting(epsilon=epsilon, num_uses=uses) for epsilon in EPSILONS
      for uses in USES),
    Setting(epsilon=0.05, num_uses=20, slack=0.01),
    Setting(epsilon=0.1, num_uses=20, release_delta=1e-7))

SMOKE = tuple(setting for setting in SETTINGS
              if setting.num_uses in (10, 20, 100) and setting.epsilon < 1)
