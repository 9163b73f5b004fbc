"""Settings to study sensitivities (DEN-X7).

  python -m launch.sweep --experiment=density_sensitivities \
    --output_dir=experiments/density_sensitivities/results

Methods:
  sums      of N trigonometric functions: printed, certified, and the farthest
            that a search over pairs of records found
  counts    of N bins: all pairs of bins, in l1, l2 and the largest
  inverse   weights 1/k of N frequencies: the supremum of DEN-B5
  pinsker   1 - (k/W)^beta below W = N: kappa over that of the mean pair; the
            same for the least noise; beta is the order
  cosine    the same of an interval, beta = 1, over 4 times the sum of weights

Expected: 1.3876 N in l1, sqrt(2.4345 N) in l2.
"""

import dataclasses

from dpjax.privacy.adjacency import Adjacency

PAPERS = ('001', '000')
ARTEFACT = ('Sensitivities of Lalanne, Garivier and Gribonval (2023), section '
            '4.2 and Equation (3): printed '
            'and exact')
COST = '10 s on a CPU core'
HEADLINES = ('the l1 sensitivity', 'the l2 sensitivity')

_REPLACE = Adjacency.REPLACE_ONE.value
_ADD = Adjacency.ADD_OR_REMOVE_ONE.value
FUNCTIONS = (3, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257)
BINS = (1, 2, 3, 10, 64)
INVERSE = (2, 6, 13, 23, 49, 105)
WIDTHS = (10, 50, 200)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One family of functions.

  Attributes:
    method: name from the list above.
    size: N.
    order: order of the norm (1 or 2) for sums; beta for pinsker.
    adjacency: notion of neighbouring data sets.
  """
  method: str
  size: int
  order: int = 2
  adjacency: str = _REPLACE

  seed = 0
  dataset = 'none'


def _sums(sizes):
  return tuple(Setting(method='sums', size=size, order=order,
                       adjacency=adjacency)
               for adjacency in (_REPLACE, _ADD) for order in (1, 2)
               for size in sizes)


def _others(bins, inverse, widths):
  return (*(Setting(method='counts', size=size, adjacency=adjacency)
            for adjacency in (_REPLACE, _ADD) for size in bins),
          *(Setting(method='inverse', size=size) for size in inverse),
          *(Setting(method='pinsker', size=size, order=beta)
            for beta in (0, 1, 2, 3) for size in widths),
          *(Setting(method='cosine', size=size, order=1) for size in widths))


SETTINGS = (*_sums(FUNCTIONS), *_others(BINS, INVERSE, WIDTHS))
SMOKE = (*_sums((3, 9)), *_others((1, 3), (2, 6), (10,)))
