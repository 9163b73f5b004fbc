"""Packings of densities and their distances.

Catalogue items DEN-L8 to L11 and DEN-F1 to F3. Equation (30) is of Lalanne,
Garivier and Gribonval (2023).

  python -m launch.sweep --experiment=density_packings \
    --output_dir=experiments/density_packings/results

Each packing has 20 random words and the two words that differ in all bits. All
distances are computed by quadrature, and stored with their bounds. Kernels:
  spike     one triangle at 1/2 (packing 1)
  triangle  triangles at i / (m + 1) (packing 2)
  smooth    smooth bumps with beta derivatives at i / (m + 1) (packing 3)
  sawtooth  cells of two triangles, one up and one down (DEN-L11)
  wave      cells of u^beta (1 - u)^beta (1 - 2 u) (DEN-L11)
The figure draws the packings of FIGURES, at the words that it lists.

Expected: every bound holds but the printed form of (30), which falls below 0.
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Figures 1, 2 and 3 of Lalanne, Garivier and Gribonval (2023) and '
            'equations (16)-(31): packings for lower bounds of private '
            'densities')
COST = '5 s on a CPU core'
HEADLINES = ('equation (30)',)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One packing.

  Attributes:
    kernel: name from the list above.
    smoothness: beta, the number of derivatives.
    radius: L, the radius of the class.
    num_bumps: m, the number of bumps.
    width: width of a bump: 2 h for triangles, 1 / m for cells.
    seed: seed of the words.
  """
  kernel: str
  smoothness: int
  radius: float
  num_bumps: int
  width: float
  seed: int = 0

  method = 'quadrature'

  @property
  def dataset(self) -> str:
    """Returns the name of the class."""
    return ('lipschitz' if self.kernel in ('spike', 'triangle', 'sawtooth')
            else f'sobolev{self.smoothness}')


def _bumps(kernel, radius, num_bumps, width, smoothness=1):
  return Setting(kernel=kernel, smoothness=smoothness, radius=float(radius),
                 num_bumps=num_bumps, width=width)


FIGURES = {
    'Figure 1': (_bumps('spike', 2, 1, 0.4), (1,)),
    'Figure 2': (_bumps('triangle', 4, 3, 0.2), (1, 0, 1)),
    'Figure 3': (_bumps('smooth', 150, 3, 0.2, 2), (1, 0, 1)),
    'Bumps of mean 0': (_bumps('wave', 500, 5, 0.2, 2), (1, 1, -1, 1, -1))}

SETTINGS = (
    *(setting for setting, _ in FIGURES.values()),
    _bumps('spike', 2, 1, 0.04),
    _bumps('triangle', 3, 12, 0.05), _bumps('triangle', 8, 4, 0.1),
    _bumps('triangle', 8, 4, 0.2),
    *(_bumps('smooth', radius, 9, 0.09, beta)
      for beta, radius in ((1, 20), (2, 900), (3, 6e4))),
    _bumps('smooth', 0.2, 5, 0.16), _bumps('smooth', 0.5, 9, 0.03),
    _bumps('sawtooth', 12, 9, 1 / 9),
    *(_bumps('wave', radius, 9, 1 / 9, beta)
      for beta, radius in ((1, 20), (2, 1500), (3, 1.5e5))))
SMOKE = (SETTINGS[1], SETTINGS[3])
