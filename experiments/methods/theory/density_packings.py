"""Families of close densities: 1 plus bumps that bits switch on and off.

  f_w = 1 + sum_i w_i (b((x - c_i) / width) - mass),  b = L width^beta k

k is a kernel on [-1/2, 1/2] and mass the integral of a bump, so that f_w
integrates to 1. Kernels:
  triangle  slope 1: single spikes, and packing 2 of Lipschitz densities
  smooth    nu exp(-1 / (1 - 4 u^2)): packing 3 of periodic Sobolev densities
  wave      u^beta (1 - u)^beta (1 - 2 u), of mean 0: bits do not interact
  sawtooth  a triangle up and one down, slope 1: the same, Lipschitz densities

The derivative of order beta of `smooth` and `wave` has norm 1. Bits are 0 and
1, or -1 and 1 for kernels of mean 0. Computed on the host. Source: Lalanne,
Garivier and Gribonval (2023, Appendices E, F and H); Lalanne (2023, sections
5.1.3 and 5.2.3; items DEN-L8..L11, errata DEN-E11..E14, DEN-E18, DEN-E20).
"""

from collections.abc import Callable
import dataclasses
import functools
import math

import numpy as np
from numpy import polynomial

from dpjax import errors

_NODES = 24
_PARTS = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernel:
  """A bump of width 1.

  Attributes:
    name: name of the kernel.
    smoothness: beta, the order of the bounded derivative.
    value: u [...] -> k(u), 0 outside [-1/2, 1/2].
    kinks: points where k is not smooth, increasing, with both ends.
    lipschitz: whether its largest slope is 1; else its derivative of order beta
      has norm 1.
  """
  name: str
  smoothness: int
  value: Callable[[np.ndarray], np.ndarray]
  kinks: tuple[float, ...]
  lipschitz: bool = False

  @functools.cached_property
  def _on_rule(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns the values of k at the quadrature nodes, and the weights."""
    nodes, weights = rule(np.array(self.kinks))
    return self.value(nodes), weights

  @functools.cached_property
  def mass(self) -> float:
    """Returns the integral of the kernel k."""
    values, weights = self._on_rule
    return 0.0 if self.balanced else float(values @ weights)

  @functools.cached_property
  def absolute(self) -> float:
    """Returns the integral of the absolute value |k|."""
    values, weights = self._on_rule
    return float(np.abs(values) @ weights)

  @functools.cached_property
  def energy(self) -> float:
    """Returns the integral of the square k^2."""
    values, weights = self._on_rule
    return float(values**2 @ weights)

  @functools.cached_property
  def top(self) -> float:
    """Returns the largest absolute value of the kernel."""
    return float(np.max(np.abs(self.value(np.linspace(-0.5, 0.5, 20001)))))

  @property
  def balanced(self) -> bool:
    """Returns whether the mean of k is 0."""
    return self.name in ('wave', 'sawtooth')


def rule(breaks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns Gauss-Legendre nodes and weights [G] between increasing breaks."""
  edges = np.concatenate([
      np.linspace(low, high, _PARTS, endpoint=False)
      for low, high in zip(breaks[:-1], breaks[1:])] + [breaks[-1:]])
  nodes, weights = np.polynomial.legendre.leggauss(_NODES)
  half = np.diff(edges)[:, None] / 2
  return ((edges[:-1, None] + half * (1 + nodes)).ravel(),
          (half * weights).ravel())


def triangle() -> Kernel:
  """Returns the kernel 1/2 - |u|."""
  return Kernel(name='triangle', smoothness=1, kinks=(-0.5, 0.0, 0.5),
                lipschitz=True,
                value=lambda u: np.maximum(0.5 - np.abs(u), 0))


def sawtooth() -> Kernel:
  """Returns 1/4 - |u + 1/4| on the left half, and its negative on the right."""
  def value(u):
    return np.maximum(0.25 - np.abs(u + 0.25), 0) - np.maximum(
        0.25 - np.abs(u - 0.25), 0)
  return Kernel(name='sawtooth', smoothness=1, value=value, lipschitz=True,
                kinks=(-0.5, -0.25, 0.0, 0.25, 0.5))


@functools.cache
def wave(smoothness: int) -> Kernel:
  """Returns a kernel of mean 0; beta - 1 derivatives vanish at both ends."""
  errors.check_at_least('smoothness', smoothness, 1)
  v = polynomial.Polynomial([0, 1])
  shape = (v * (1 - v))**smoothness * (1 - 2 * v)
  squared = (shape.deriv(smoothness)**2).integ()
  scale = (squared(1) - squared(0))**-0.5

  def value(u):
    place = np.asarray(u) + 0.5
    return np.where((place > 0) & (place < 1), scale * shape(place), 0)
  return Kernel(name='wave', smoothness=smoothness, value=value,
                kinks=(-0.5, 0.0, 0.5))


@functools.cache
def smooth(smoothness: int) -> Kernel:
  """Returns nu e^(-1 / (1 - 4 u^2)); all derivatives vanish at both ends."""
  errors.check_at_least('smoothness', smoothness, 1)
  scale = bump_energy(smoothness)**-0.5

  def value(u):
    distance = np.maximum(1 - 4 * np.square(u), 1e-300)
    return scale * np.exp(-1 / distance)
  return Kernel(name='smooth', smoothness=smoothness, value=value,
                kinks=(-0.5, -0.25, 0.0, 0.25, 0.5))


def bump_energy(smoothness: int) -> float:
  """Returns the squared norm of derivative beta of e^(-1 / (1 - 4 u^2)).

  With y = 2 u, derivatives are P(y) (1 - y^2)^(-2 beta) times the bump, for
  polynomials P that follow from each other.
  """
  # `factor` is P for the current order, by the product rule.
  y = polynomial.Polynomial([0, 1])
  factor, distance = polynomial.Polynomial([1]), 1 - y**2
  for order in range(smoothness):
    factor = (distance**2 * factor.deriv() + (4 * order * distance * y - 2 * y)
              * factor)
  nodes, weights = rule(np.array([-1, -0.5, 0, 0.5, 1]))
  left = 1 - nodes**2
  derivative = factor(nodes) * np.exp(-1 / left - 2 * smoothness * np.log(left))
  return float(derivative**2 @ weights) * 2.0**(2 * smoothness - 1)


def bump_scale(smoothness: int) -> float:
  """Returns the largest nu that the class allows."""
  return bump_energy(smoothness)**-0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
  """A family of densities f_w, one for each word w of bits.

  Attributes:
    kernel: k, the shape of a bump.
    radius: L, the norm that defines the class.
    width: width of a bump.
    centres: [m], increasing, at least a width apart.
  """
  kernel: Kernel
  radius: float
  width: float
  centres: tuple[float, ...]

  @property
  def mass(self) -> float:
    """Returns the integral of one bump over [0, 1]."""
    return self.kernel.mass * self._unit * self.width

  @property
  def absolute(self) -> float:
    """Returns the integral of the absolute value of a bump."""
    return self.kernel.absolute * self._unit * self.width

  @property
  def energy(self) -> float:
    """Returns the integral of the square of a bump."""
    return self.kernel.energy * self._unit**2 * self.width

  @property
  def _unit(self) -> float:
    """Returns the scale L width^beta of a bump."""
    return self.radius * self.width**self.kernel.smoothness

  def rule(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns quadrature nodes and weights [G] with breaks at all kinks."""
    kinks = np.add.outer(self.centres,
                         self.width * np.array(self.kernel.kinks)).ravel()
    # Rounding merges ends of neighbouring cells, which differ by float errors.
    return rule(np.unique(np.round(np.concatenate([
        [0, 1], np.clip(kinks, 0, 1)]), 14)))

  def densities(self, words: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Returns f_w(x), [M, G], for words [M, m] and x [G]."""
    # [G, m]: the place of each point within each bump.
    places = np.subtract.outer(x, self.centres) / self.width
    bumps = self.bump_of(self.kernel.value(places))
    words = np.asarray(words)
    return 1 - self.mass * np.sum(words, -1)[:, None] + words @ bumps.T

  def bump_of(self, kernel: np.ndarray) -> np.ndarray:
    """Scales values of k to those of a bump: times L width^beta."""
    return self._unit * kernel

  def roughness(self, words: np.ndarray) -> np.ndarray:
    """Returns integrals [M] of the squared derivative of order beta, <= L^2."""
    if self.kernel.lipschitz:
      raise ValueError(f'{self.kernel.name} is bounded by its slope: it has no '
                       'roughness')
    return self.radius**2 * self.width * np.sum(np.square(words), -1)

  def variation_bound(self, words: np.ndarray) -> np.ndarray:
    """Returns upper bounds [M, M] of total variations; equations (21), (28)."""
    changes, total = _differences(words)
    return (np.sum(np.abs(changes), -1) * self.absolute
            + np.abs(total) * self.mass) / 2

  def divergence_bound(self, words: np.ndarray, *, printed: bool = False
                       ) -> np.ndarray:
    """Returns upper bounds [M] of KL divergences from 1; equations (23), (30).

    Args:
      words: [M, m], words of bits.
      printed: whether to use the integral of the kernel instead of its square,
        as published (erratum DEN-E12).
    """
    ones = np.sum(words, -1)
    taken = ones**2 * self.mass**2
    if printed:
      taken = ones**2 * self._unit**2 * self.width**2 * self.kernel.mass
    return np.sum(np.square(words), -1) * self.energy - taken

  def squared_distances(self, words: np.ndarray) -> np.ndarray:
    """Returns exact squared L2 distances [M, M]."""
    changes, total = _differences(words)
    return np.sum(changes**2, -1) * self.energy - total**2 * self.mass**2

  def separation(self) -> float:
    """Returns tau: squared distances are at least 2 tau d_H."""
    if self.kernel.balanced:
      return 2 * self.energy
    return separation(self.energy, self.mass, len(self.centres))


def separation(energy: np.ndarray, mass: np.ndarray, num_bumps: np.ndarray, *,
               printed: bool = False) -> np.ndarray:
  """Returns tau of `bumps`: squared distances are at least 2 tau d_H.

  The closest words are those whose bits all change the same way. The published
  version, (24) and (31), subtracts twice as much for the common level.
  """
  return (energy - (2 if printed else 1) * num_bumps * mass**2) / 2


def _differences(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns differences of all pairs of words [M, M, m], and their sums."""
  changes = np.asarray(words)[:, None] - np.asarray(words)[None]
  return changes, np.sum(changes, -1)


def spike(*, lipschitz: float, centre: float, half_width: float) -> Packing:
  """Returns packing 1: 1 plus one spike of slope L on centre +- h.

  Equation (15).

  Args:
    lipschitz: L, the largest slope of a density.
    centre: x_0, the point of the spike.
    half_width: h, at most the distance of x_0 to an end.
  """
  errors.check_positive('lipschitz', lipschitz)
  if not 0 < half_width <= min(centre, 1 - centre):
    raise ValueError('half_width must be positive and keep to [0, 1], got '
                     f'{half_width} at centre {centre}')
  if lipschitz * half_width**2 > 1:
    raise ValueError('densities fall below 0: the spike weighs '
                     f'{lipschitz * half_width**2:.3g}')
  return Packing(kernel=triangle(), radius=lipschitz, width=2 * half_width,
                 centres=(centre,))


def bumps(kernel: Kernel, *, radius: float, num_bumps: int, width: float
          ) -> Packing:
  """Returns bumps at i / (m + 1), i = 1..m, in the class for all words.

  Args:
    kernel: `triangle` (packing 2, of spikes of width 2 h) or `smooth`.
    radius: L, the norm that bounds the class.
    num_bumps: m, the number of bumps.
    width: width of a bump, at most 1 / (m + 1).
  """
  errors.check_positive('radius', radius)
  errors.check_at_least('num_bumps', num_bumps, 1)
  if not 0 < width <= 1 / (num_bumps + 1):
    raise ValueError(f'width must lie in (0, 1/{num_bumps + 1}], got {width}')
  packing = Packing(kernel=kernel, radius=radius, width=width, centres=tuple(
      (np.arange(1, num_bumps + 1) / (num_bumps + 1)).tolist()))
  if num_bumps * packing.mass > 1:
    raise ValueError(f'densities fall below 0: {num_bumps} bumps weigh '
                     f'{num_bumps * packing.mass:.3g}')
  return packing


def cells(kernel: Kernel, *, radius: float, num_cells: int) -> Packing:
  """Returns [0, 1] in 1 / w cells, with a bump of mean 0 in each (DEN-L11).

  Args:
    kernel: `wave` or `sawtooth`.
    radius: L, the norm that bounds the class.
    num_cells: 1 / w, the number of cells.
  """
  errors.check_positive('radius', radius)
  errors.check_at_least('num_cells', num_cells, 1)
  packing = Packing(kernel=kernel, radius=radius, width=1 / num_cells,
                    centres=tuple(((np.arange(num_cells) + 0.5)
                                   / num_cells).tolist()))
  least = 1 - radius * packing.width**kernel.smoothness * kernel.top
  if least < 0:
    raise ValueError(f'densities fall to {least:.3g} in {num_cells} cells')
  return packing


def lipschitz_maximum(lipschitz: float, *, printed: bool = False) -> float:
  """Returns the largest value of a density of slope at most L.

  Attained at an end: by a line, or by half a spike over 0 (DEN-E20). The
  published bound is L + 1.
  """
  errors.check_non_negative('lipschitz', lipschitz)
  if printed:
    return 1 + lipschitz
  return 1 + lipschitz / 2 if lipschitz <= 2 else math.sqrt(2 * lipschitz)
