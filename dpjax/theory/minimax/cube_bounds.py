"""Lower bounds for private estimators of a 1-Lipschitz density on [0, 1]^d.

For the integrated squared error with n records under REPLACE_ONE. The densities
are 1 plus bumps whose signs are bits:
  slopes   one bit for each coordinate, 1 +- c (x_a - 1/2)
  cells    one bit for each pair of cubes of side s: a pyramid up in one and
           down in the other, as high as the distance to the boundary
  packing  the same pyramids, with the words of a code as hypotheses

In the first two the bits do not interact: errors add up, and each is that of an
estimate at two points. One record differs in a bit with probability t, the
total variation `t` of `two_points`; without privacy the affinity is used
instead. Source: Barber and Duchi (2014, Proposition 5), who leave the constant
c_d open; it is explicit here (item MOD-DENS, erratum E-07). For d = 1 `cells`
is `lower_bounds.cells` with a sawtooth of any number of teeth.
"""

from collections.abc import Callable
import math

import numpy as np

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax import hypotheses
from dpjax.theory.minimax import two_points
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.minimax.bounds import Setting

_AMPLITUDES = np.geomspace(0.1, 1, 17)
_SIDES = np.unique(np.round(np.geomspace(2, 1e5, 500)))
# Above this product of the number of differing records and the total variation
# that the guarantee allows, the bound is negligible and is not computed.
_FAR = 60.0
_COARSE = 8
# Relative minimum distances delta of the codes.
_APART = (0.1, 0.2, 0.3)
# Number of cube sizes that are tried for codes, from the largest useful one.
_CODES = 80


def bounds(*, dimension: int, num_examples: int, guarantee: Guarantee
           ) -> tuple[Bound, ...]:
  """Returns all lower bounds, with and without the guarantee.

  A bound on [0, 1]^j also holds in more dimensions, for densities that do not
  depend on the other coordinates.

  Args:
    dimension: d.
    num_examples: n, public.
    guarantee: guarantee of the estimate.
  """
  errors.check_at_least('dimension', dimension, 1)
  errors.check_at_least('num_examples', num_examples, 1)
  parts = []
  for privacy in dict.fromkeys((guarantee, None)):
    text = '' if privacy is None else ', private'
    setting = Setting(num_examples=num_examples, guarantee=privacy)
    parts.append(Bound(max(slopes(dimension=size, **setting)
                           for size in range(1, dimension + 1)),
                       'slopes' + text))
    parts.append(Bound(max(cells(dimension=size, **setting)
                           for size in range(1, dimension + 1)),
                       'pairs of cells' + text))
  if isinstance(guarantee, notions.PureDP):
    parts.append(Bound(packing(dimension=dimension, num_examples=num_examples,
                               guarantee=guarantee), 'code of cells, private'))
  return tuple(parts)


def slopes(*, dimension: int, num_examples: int, guarantee: Guarantee
           ) -> float:
  """Returns the bound from one bit per coordinate; arguments as in `bounds`."""
  # The largest slope for gradients of norm at most 1 and positive densities.
  most = min(dimension**-0.5, 2 / dimension)
  slope = most * _AMPLITUDES
  # On [0, 1], x - 1/2 has mean square 1/12, mean size 1/4, maximum 1/2.
  return _largest(
      np.full(slope.shape, dimension), slope**2 / 12, slope / 4, slope / 2,
      1 - (dimension - 1) * slope / 2, num_examples, guarantee)


def cells(*, dimension: int, num_examples: int, guarantee: Guarantee) -> float:
  """Returns the bound from one bit per pair of cubes; arguments as in `bounds`.
  """
  bits, energy, mass, top = _pairs(dimension)
  return _largest(bits, energy, mass, top, np.ones(top.shape), num_examples,
                  guarantee)


def _pairs(dimension: int) -> tuple[np.ndarray, ...]:
  """Returns bits, energies, masses and heights of bumps, for all cube sizes.

  The part of a pyramid of side s above height t is a cube of side s - 2 t.
  """
  side = 1 / _SIDES
  # Above this, numbers of cubes are not exact in float64.
  exact = _SIDES**dimension < 1e15
  side = side[exact]
  return (_SIDES[exact]**dimension // 2,
          side**(dimension + 2) / ((dimension + 1) * (dimension + 2)),
          side**(dimension + 1) / (dimension + 1), side / 2)


def _largest(bits: np.ndarray, energy: np.ndarray, mass: np.ndarray,
             top: np.ndarray, least: np.ndarray, num_examples: int,
             guarantee: Guarantee) -> float:
  """Returns the largest bound over all sizes, as a sum over bits.

  Args:
    bits: their number.
    energy: integral of the squared bump of a bit.
    mass: integral of its absolute value: the total variation of its two
      distributions.
    top: maximum of its absolute value.
    least: lower bound of the density, whatever the other bits are.
    num_examples: n.
    guarantee: guarantee of the estimate, or None.
  """
  if guarantee is None:
    # The affinity sqrt(f^2 - b^2) decreases in b^2 / f, which is largest where
    # f is smallest.
    apart = energy / (least + np.sqrt(np.maximum(least**2 - top**2, 0)))
    squared_affinity = np.exp(
        2 * num_examples * np.log1p(-np.minimum(apart, 1 - 1e-12)))
    return float(np.max(bits * energy * squared_affinity))
  variation = two_points.total_variation(guarantee)
  near = np.flatnonzero(num_examples * mass * variation <= _FAR)
  return _peak(lambda place: bits[place] * energy[place]
               * two_points.product_risk(mass[place], guarantee=guarantee,
                                          num_examples=num_examples), near)


def _peak(bound: Callable[[np.ndarray], np.ndarray], places: np.ndarray
          ) -> float:
  """Returns the largest bound: over every eighth place, then around the best.
  """
  if not places.size:
    return 0.0
  coarse = np.arange(0, places.size, _COARSE)
  coarse_bounds = bound(places[coarse])
  around = coarse[np.argmax(coarse_bounds)]
  fine = places[max(0, around - _COARSE + 1):around + _COARSE]
  return float(max(coarse_bounds.max(), bound(fine).max()))


def packing(*, dimension: int, num_examples: int, guarantee: notions.PureDP
            ) -> float:
  """Returns the bound from words of a code; arguments as in `bounds`.

  Construction:
  1. Of m bits there are V words, of which any two differ in delta m bits, with
     ln V >= m (ln 2 - H(delta)) (Gilbert and Varshamov).
  2. The uniform density is the centre: every word's distribution is at total
     variation m mass / 2 from it (`hypotheses.packing_lemma_around`).
  3. Squared distances are at least 4 delta m energies.
  4. The risk is at least a quarter of that times the error of a test, because a
     test needs half the distance (erratum E-07).
  """
  bits, energy, mass, _ = _pairs(dimension)

  def error(place: int, apart: float) -> float:
    words = bits[place] * _code_rate(apart)
    if words < 1:
      return 0.0
    return max(0.0, hypotheses.packing_lemma_around(
        words, bits[place] * mass[place] / 2, num_examples=num_examples,
        guarantee=guarantee))

  # A code has at most 2^m words, which limits the useful sizes.
  information = num_examples * mass / 2 * guarantee.epsilon
  useful = np.flatnonzero((bits >= 8) & (information <= math.log(2)))[:_CODES]
  return max((bits[place] * energy[place] * apart * error(place, apart)
              for place in useful[::_CODES // 10] for apart in _APART),
             default=0.0)


def _code_rate(apart: float) -> float:
  """Returns ln 2 - H(delta), the log number of words per bit."""
  return math.log(2) + apart * math.log(apart) + (1 - apart) * math.log1p(
      -apart)
