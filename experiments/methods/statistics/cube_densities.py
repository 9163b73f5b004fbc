"""Test densities on the cube [0, 1]^d, for comparisons of histograms.

Source: Barber and Duchi (2014, section 3.2.2; item EST-HIST, erratum E-14).
"""

import dataclasses
import functools

import numpy as np

from dpjax.stats.density_methods import cubes
from dpjax.stats.density_methods import densities
from experiments.methods.statistics import compared_densities


@dataclasses.dataclass(frozen=True, kw_only=True)
class AxisMixture:
  """A density on [0, 1]^d: f(x) = (1/d) sum_a f_a(x_a).

  It has the exact quantities that errors of histograms need, like
  `densities.Density`.

  Attributes:
    parts: f_a, a density on [0, 1] for each coordinate.
  """
  parts: tuple[densities.Density, ...]

  @property
  def name(self) -> str:
    """Returns the names of the parts, joined."""
    return '+'.join(part.name for part in self.parts)

  @property
  def square(self) -> float:
    """Returns the integral of f^2 over the cube."""
    # Parts are independent coordinates: products of f_a - 1 integrate to 0.
    return 1 + sum(part.energy for part in self.parts) / len(self.parts)**2

  @property
  def lipschitz(self) -> float:
    """Returns an upper bound of the norm of the gradient."""
    slopes = [part.lipschitz for part in self.parts]
    return float(np.linalg.norm(slopes)) / len(self.parts)

  @functools.lru_cache
  def masses(self, num_bins: int) -> np.ndarray:
    """Returns the probabilities [m] of m equal cells, read-only."""
    count = len(self.parts)
    side = cubes.side_of(num_bins, count)
    # Axis a of the table has the cells of coordinate a.
    heights = [side * part.masses(side).reshape(
        (-1,) + (1,) * (count - 1 - axis))
               for axis, part in enumerate(self.parts)]
    probabilities = np.ravel(sum(heights) / (count * num_bins))
    probabilities.setflags(write=False)
    return probabilities

  counts = densities.Density.counts


def worst(num_bins: int, dimension: int) -> densities.Density | AxisMixture:
  """Returns a 1-Lipschitz density whose cell masses are those of the uniform.

  It zigzags along the first coordinate. A histogram of m cells has an
  integrated squared bias of m^(-2/d) / 12, the largest possible for d = 1.

  Args:
    num_bins: m, the number of cells.
    dimension: d, the dimension.
  """
  side = cubes.side_of(num_bins, dimension)
  if dimension == 1:
    return compared_densities.zigzag(side)
  if dimension > 2 * side:
    raise ValueError(f'dimension must be at most {2 * side}, twice the cells '
                     f'per axis, got {dimension}')
  return AxisMixture(parts=(compared_densities.zigzag(side, float(dimension)),
                            *(dimension - 1) * (densities.uniform(),)))
