"""What no private estimator of a 1-Lipschitz density on [0, 1]^d can go below.

Integrated squared error, of n records under REPLACE_ONE. Densities are 1 and
bumps that bits turn up or down:
  slopes   one bit for each coordinate, 1 +- c (x_a - 1/2)
  cells    one for each pair of cubes of side s, a pyramid up in the one and
           down in the other, as high as the distance to the border
  packing  the same pyramids, words of a code, all of them one from another
Bits of the first two do not interact: errors add up, and each is that of an
estimate at two points. A record differs in a bit with a probability t, so t^d
of `two_points`; without privacy their affinity counts. Source: paper 004,
Proposition 5, whose constant c_d is left open there, and is explicit here (spec
MOD-DENS of minimax.md, erratum E-07). For d = 1 `cells` is `lower_bounds.cells`
with a sawtooth, of any even or odd number of teeth.
"""

import numpy as np

from dpjax import errors
from dpjax.stats.minimax import two_points
from dpjax.stats.minimax.bounds import Bound, Guarantee

_AMPLITUDES = np.geomspace(1e-3, 1, 61)
_SIDES = np.unique(np.round(np.geomspace(2, 1e5, 500)))
# Records that differ, in units of one that privacy hides, where nothing is
# left; beyond it no bound is computed.
_FAR = 60.0
# Bits of a pair of words of a code that differ at least, of all.
_APART = np.linspace(0.02, 0.48, 24)


def bounds(*, dimension: int, num_examples: int, guarantee: Guarantee
           ) -> tuple[Bound, ...]:
  """All of them, with and without the guarantee.

  What holds on [0, 1]^j holds on more coordinates, of which a density then
  takes no notice.

  Args:
    dimension: d.
    num_examples: n, public.
    guarantee: of the estimate.
  """
  errors.check_at_least('dimension', dimension, 1)
  errors.check_at_least('num_examples', num_examples, 1)
  found = []
  for privacy in dict.fromkeys((guarantee, None)):
    text = '' if privacy is None else ', private'
    known = dict(num_examples=num_examples, guarantee=privacy)
    found.append(Bound(max(slopes(dimension=used, **known)
                           for used in range(1, dimension + 1)),
                       'slopes' + text))
    found.append(Bound(max(cells(dimension=used, **known)
                           for used in range(1, dimension + 1)),
                       'pairs of cells' + text))
  return tuple(found)


def slopes(*, dimension: int, num_examples: int, guarantee: Guarantee
           ) -> float:
  """By one bit for each coordinate; arguments as of `bounds`."""
  # Gradients of norm 1, and densities that stay positive.
  most = min(dimension**-0.5, 2 / dimension)
  slope = most * _AMPLITUDES
  return _largest(
      np.full(slope.shape, dimension), slope**2 / 12, slope / 4, slope / 2,
      1 - (dimension - 1) * slope / 2, num_examples, guarantee)


def cells(*, dimension: int, num_examples: int, guarantee: Guarantee) -> float:
  """By one bit for each pair of cubes; arguments as of `bounds`."""
  bits, energy, mass, top = _pairs(dimension)
  return _largest(bits, energy, mass, top, np.ones(top.shape), num_examples,
                  guarantee)


def _pairs(dimension: int) -> tuple[np.ndarray, ...]:
  """Bits, energies, masses and heights of bumps, for any number of cubes.

  Of a pyramid of side s the part above t is a cube of side s - 2 t.
  """
  side = 1 / _SIDES
  known = _SIDES**dimension < 1e15
  side = side[known]
  return (_SIDES[known]**dimension // 2,
          side**(dimension + 2) / ((dimension + 1) * (dimension + 2)),
          side**(dimension + 1) / (dimension + 1), side / 2)


def _largest(bits: np.ndarray, energy: np.ndarray, mass: np.ndarray,
             top: np.ndarray, least: np.ndarray, num_examples: int,
             guarantee: Guarantee) -> float:
  """Errors of bits added up, the largest of all sizes.

  Args:
    bits: their number.
    energy: integral of the squared bump of a bit.
    mass: of its absolute value: the total variation of its two laws.
    top: of its absolute value.
    least: what the other bits leave of the density.
    num_examples: n.
    guarantee: of the estimate.
  """
  if guarantee is None:
    # sqrt(f^2 - b^2) falls with b^2 / f, which is most where f is least.
    apart = energy / (least + np.sqrt(np.maximum(least**2 - top**2, 0)))
    share = np.exp(2 * num_examples * np.log1p(-np.minimum(apart, 1 - 1e-12)))
    return float(np.max(bits * energy * share))
  hidden = two_points.total_variation(guarantee)
  near = num_examples * mass * hidden <= _FAR
  if not near.any():
    return 0.0
  share = two_points.product_share(mass[near], num_examples=num_examples,
                                   guarantee=guarantee)
  return float(np.max(bits[near] * energy[near] * share))
