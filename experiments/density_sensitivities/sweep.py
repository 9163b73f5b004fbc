"""Settings to study sensitivities of sums of basis functions.

Catalogue item DEN-X7. Printed sensitivities are those of Lalanne, Garivier and
Gribonval (2023).

  python -m launch.sweep --experiment=density_sensitivities \
    --output_dir=experiments/density_sensitivities/results

Methods:
  sums      sums of N trigonometric functions: the printed sensitivity, the
            certified one, and the largest change that a search over pairs of
            records attains
  counts    counts of N bins: the l1, l2 and largest change over all pairs of
            bins
  inverse   N frequencies with weights 1/k: the supremum of DEN-B5
  pinsker   N frequencies, below W = N, with weights 1 - (k/W)^beta: the privacy
            error over the bound 4 (sum of weights)^2 / (n^2 rho), for each
            allocation of the noise; beta is the setting's `order`
  cosine    cosines on an interval with these weights, beta = 1: the sensitivity
            over the sum of weights

Expected: the sensitivity of N functions is 1.3876 N in l1 and sqrt(2.4345 N) in
l2.
"""

import dataclasses

from dpjax.privacy.adjacency import Adjacency

PAPERS = ('001', '000')
ARTEFACT = ('Sensitivities of Lalanne, Garivier and Gribonval (2023), section '
            '4.2 and Equation (3): printed and exact')
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
    size: N, the number of functions or bins.
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
