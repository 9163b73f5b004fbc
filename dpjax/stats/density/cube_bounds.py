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
Proposition 5, whose constant c_d is left open there, and is explicit here (item
MOD-DENS of minimax.md, erratum E-07). For d = 1 `cells` is `lower_bounds.cells`
with a sawtooth, of any even or odd number of teeth.
"""

from collections.abc import Callable
import math

import numpy as np

from dpjax import errors
from dpjax.privacy import notions
from dpjax.stats.minimax import hypotheses
from dpjax.stats.minimax import two_points
from dpjax.stats.minimax.bounds import Bound, Guarantee

_AMPLITUDES = np.geomspace(0.1, 1, 17)
_SIDES = np.unique(np.round(np.geomspace(2, 1e5, 500)))
# Records that differ, times what privacy lets one of them tell, where nothing
# is left; beyond it no bound is computed.
_FAR = 60.0
_COARSE = 8
# Bits of two words of a code that differ at least, of all.
_APART = (0.1, 0.2, 0.3)
# Sizes of cubes, from the largest that can be of use, that codes are tried on.
_CODES = 80


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
  if isinstance(guarantee, notions.PureDP):
    found.append(Bound(packing(dimension=dimension, num_examples=num_examples,
                               guarantee=guarantee), 'code of cells, private'))
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
  told = two_points.total_variation(guarantee)
  near = np.flatnonzero(num_examples * mass * told <= _FAR)
  return _peak(lambda place: bits[place] * energy[place]
               * two_points.product_share(mass[place], guarantee=guarantee,
                                          num_examples=num_examples), near)


def _peak(bound: Callable[[np.ndarray], np.ndarray], places: np.ndarray
          ) -> float:
  """The largest bound: of every eighth place, and then around that."""
  if not places.size:
    return 0.0
  coarse = np.arange(0, places.size, _COARSE)
  found = bound(places[coarse])
  around = coarse[np.argmax(found)]
  fine = places[max(0, around - _COARSE + 1):around + _COARSE]
  return float(max(found.max(), bound(fine).max()))


def packing(*, dimension: int, num_examples: int, guarantee: notions.PureDP
            ) -> float:
  """By words of a code, all of them told apart; arguments as of `bounds`.

  Of m bits there are V words with delta m of them between any two, ln V >= m
  (ln 2 - H(delta)) (Gilbert and Varshamov). All laws are half the masses away
  from the uniform one, which is the anchor (`hypotheses.packing_lemma_around`),
  and squared distances are 4 delta m energies: the risk is a quarter of that
  times the error of a test, half of a distance being what tests bear (erratum
  E-07).
  """
  bits, energy, mass, _ = _pairs(dimension)

  def error(place, apart):
    words = bits[place] * _code_rate(apart)
    if words < 1:
      return 0.0
    return max(0.0, hypotheses.packing_lemma_around(
        words, bits[place] * mass[place] / 2, num_examples=num_examples,
        guarantee=guarantee))

  # No code tells more than all bits do.
  moved = num_examples * mass / 2 * guarantee.epsilon
  known = np.flatnonzero((bits >= 8) & (moved <= math.log(2)))[:_CODES]
  return max((bits[place] * energy[place] * apart * error(place, apart)
              for place in known[::_CODES // 10] for apart in _APART),
             default=0.0)


def _code_rate(apart: float) -> float:
  """ln 2 - H(delta): logarithms of words for each bit."""
  return math.log(2) + apart * math.log(apart) + (1 - apart) * math.log1p(
      -apart)
