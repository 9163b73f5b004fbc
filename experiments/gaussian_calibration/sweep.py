"""Settings to study Gaussian noise.

Catalogue items EXP-07 and MECH-04. Printed bounds are those of the lecture
notes, chapter 7.

  python -m launch.sweep --experiment=gaussian_calibration \
    --output_dir=experiments/gaussian_calibration/results

Kinds of settings:
  noise    the standard deviation of the classical formula at (epsilon, delta),
           the epsilon that it attains, and the least standard deviation that is
           (epsilon, delta)-DP
  utility  how often the error of `size` numbers exceeds the printed bound of
           confidence 0.95, which does not depend on epsilon and delta (here 1
           and 1e-5)

Expected at delta 1e-5: at epsilon 1, standard deviations of 4.845 (classical)
and 3.731 (least); from epsilon 8.42 on, the classical noise is too small.
"""

import dataclasses

PAPERS = ('002',)
ARTEFACT = ('Definition 7.17 and Propositions 7.18, 7.19 of the lecture notes, '
            'chapter 7: Gaussian noise')
COST = '1 s on a CPU core'
HEADLINES = ('Proposition 7.18', 'Proposition 7.19')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One release, with its target guarantee.

  Attributes:
    kind: name from the list above.
    epsilon: target epsilon.
    delta: target delta.
    size: number of values that are released.
  """
  kind: str
  epsilon: float
  delta: float
  size: int = 1

  seed = 0
  method = 'gaussian'
  dataset = 'none'


# The spacing is finer near epsilon 8.42, where classical noise at delta 1e-5
# becomes too small, and near the corresponding epsilon of other deltas.
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.75, 6.8, 7.0, 8.0,
            8.4, 8.45, 8.75, 8.8, 9.0, 10.0, 12.0, 16.0, 20.0)
DELTAS = (1e-2, 1e-5, 1e-6)
SIZES = (1, 10, 100)

SETTINGS = (
    *(Setting(kind='noise', epsilon=epsilon, delta=delta) for delta in DELTAS
      for epsilon in EPSILONS),
    *(Setting(kind='utility', epsilon=1.0, delta=1e-5, size=size)
      for size in SIZES))

SMOKE = tuple(setting for setting in SETTINGS if setting.delta == 1e-5)
