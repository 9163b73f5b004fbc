"""The packings of the settings, and the classes of their densities."""

import numpy as np

from experiments.density_packings import sweep
from experiments.methods.theory import density_packings as packings

_POINTS = 2**14


def packing(setting: sweep.Setting) -> packings.Packing:
  """Returns the packing of a setting.

  Raises a ValueError if one of its functions is negative somewhere.
  """
  if setting.kernel == 'spike':
    return packings.spike(lipschitz=setting.radius, centre=0.5,
                          half_width=setting.width / 2)
  options = dict(radius=setting.radius)
  if setting.kernel in ('sawtooth', 'wave'):
    kernel = (packings.sawtooth() if setting.kernel == 'sawtooth'
              else packings.wave(setting.smoothness))
    return packings.cells(kernel, num_cells=setting.num_bumps, **options)
  kernel = (packings.triangle() if setting.kernel == 'triangle'
            else packings.smooth(setting.smoothness))
  return packings.bumps(kernel, num_bumps=setting.num_bumps,
                        width=setting.width, **options)


def norm(cells: packings.Packing, words: np.ndarray) -> float:
  """Returns the norm that L bounds: of the slope or a derivative.

  It is computed from finite differences.
  """
  values = cells.densities(words, np.arange(_POINTS) / _POINTS)
  for _ in range(cells.kernel.smoothness):
    values = _POINTS * (np.roll(values, -1, -1) - values)
  if cells.kernel.lipschitz:
    return float(np.max(np.abs(values)))
  return float(np.max(np.sqrt(np.mean(np.square(values), -1))))


def check(cells: packings.Packing, word: np.ndarray) -> None:
  """Raises if a packing has a function that is not a density of its class."""
  x, weights = cells.rule()
  density, = cells.densities(word[None], x)
  if abs(density @ weights - 1) > 1e-12 or density.min() < 0:
    raise ValueError(f'not a density: integral {density @ weights}, least '
                     f'{density.min()}')
  # Differences on a grid are off by some thousandths.
  if norm(cells, word[None]) > 1.005 * cells.radius:
    raise ValueError('not in the class: the norm is '
                     f'{norm(cells, word[None]):.4g}, L {cells.radius:g}')
