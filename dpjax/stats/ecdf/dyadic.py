"""Distribution functions with dyadic noise: each node's on all rows below it.

Rank i has the noise of the nodes that row i lies in, one of each level, so that
all ranks have noise of one variance, and ranks that are close share most of it.
What a change of ranks costs is told by `dyadic_calibration`; thesis 003 counts
nodes instead, and what it prints is kept as `accounting='paper'`. Source:
thesis 003, equation 6.3.1 and Theorems 6.3.1 and 6.3.2 (item EC-03, EC-05,
EC-07; corrections C1 to C3).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from dpjax import errors
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.stats.ecdf import dyadic_calibration
from dpjax.stats.ecdf import mechanism
from dpjax.stats.ecdf import smoothing
from dpjax.stats.ecdf import trees
from dpjax.typing import Array, PRNGKey

ACCOUNTING = ('tight', 'tuned', 'paper')

# Of Gaussian noise of least mean variance the deviations of the two lowest
# levels, and of the root and the two levels below it, over that of all others:
# nearly the same from 64 rows on.
_PROFILES = {'added': ((1.69, .45), (1.22, .71, .97)),
             'replaced': ((1.69, .45), (1.09, 0., .79))}
_FEWEST_LEVELS = 5


class Parameters(NamedTuple):
  """What the law takes besides counts.

  Attributes:
    scale: [], of the noise of a node; of Gaussian noise its deviation.
    regression: [N], of the noise of each rank on that of the last.
  """
  scale: np.ndarray
  regression: np.ndarray


class Layout(NamedTuple):
  """Which rows have noise, and of which nodes.

  Attributes:
    num_rows: the first so many.
    root: whether all rows share the noise of a node.
    profile: of the noise of levels, one of `_PROFILES`; '' is the same for all.
  """
  num_rows: int
  root: bool
  profile: str = ''

  @property
  def level_sizes(self) -> tuple[int, ...]:
    """Nodes of each level, leaves first: ceil(num_rows / 2^l)."""
    levels = dyadic_calibration.num_levels(self.num_rows) - (not self.root)
    return tuple(-(-self.num_rows // 2**level) for level in range(levels))

  @property
  def weights(self) -> np.ndarray:
    """Scales of the levels over that of the law, leaves first."""
    found = np.ones(len(self.level_sizes))
    if self.profile:
      lowest, highest = _PROFILES[self.profile]
      found[:2], found[-3:] = lowest, highest[::-1]
    return found

  def rows(self, nodes: Array) -> Array:
    """Noise of rows [num_rows], of draws of all nodes, leaves first."""
    ends = np.cumsum(self.level_sizes)
    total = jnp.zeros([1], nodes.dtype)
    for size, end, weight in reversed(list(zip(
        self.level_sizes, ends.tolist(), self.weights.tolist(), strict=True))):
      total = jnp.repeat(total, -(-size // total.size))[:size]
      total += weight * nodes[end - size:end]
    return total

  def covariances(self) -> np.ndarray:
    """Of noise of rows [num_rows] with that of the last, at scale 1."""
    row = np.arange(self.num_rows)
    return sum(weight**2 * ((row >> level) == (row[-1] >> level))
               for level, weight in enumerate(self.weights))


def signed_nodes(first: int, last: int,
                 num_rows: int) -> list[tuple[int, int, int]]:
  """The fewest nodes whose signed sum is 1 on rows first..last and 0 elsewhere.

  A shortest path between two boundaries: of intervals that start or end with a
  block of 2^L rows as many as the non-adjacent form has digits, ceil((L+1)/2)
  at most. Source: thesis 003, Lemma 6.3.1 (item EC-04, correction C21).

  Args:
    first: row, from 1 on.
    last: row, up to `num_rows`.
    num_rows: N.

  Returns:
    (sign, j, level) of each; node j of a level, from 1 on, holds rows
    (j - 1) 2^level + 1 .. j 2^level that there are.
  """
  if not 1 <= first <= last <= num_rows:
    raise ValueError(f'rows must be in order, from 1 to {num_rows}, got '
                     f'{first} and {last}')
  sizes = Layout(num_rows, True).level_sizes
  starts = np.concatenate([np.arange(size) * 2**level
                           for level, size in enumerate(sizes)])
  ends = np.concatenate([np.minimum(np.arange(1, size + 1) * 2**level, num_rows)
                         for level, size in enumerate(sizes)])
  graph = sparse.coo_matrix((np.ones(starts.size), (starts, ends)),
                            (num_rows + 1,) * 2).tocsr()
  before = csgraph.shortest_path(graph, directed=False, unweighted=True,
                                 indices=first - 1, return_predecessors=True)[1]
  found, place = [], last
  while place != first - 1:
    ahead = int(before[place])
    low, high = sorted((ahead, place))
    level = (high - low - 1).bit_length()
    found.append((1 if ahead < place else -1, (low >> level) + 1, level))
    place = ahead
  return found[::-1]


# What the last row that has noise is, once it is known what is public.
_ENDS = {'': 'free', 'regressed': 'equal', 'left out': 'at_most'}


@functools.cache
def _law(pure: bool, root: bool, profile: str, known: str,
         monotone: bool) -> mechanism.Draw:
  """The law of noise on all rows, or on all but a known last one.

  `known` is what is done with a public total: '' nothing, 'regressed' the noise
  of the last row is taken off the others, 'left out' that row has none.
  """
  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
    layout = Layout(counts.size - (known == 'left out'), root, profile)
    ranks, size = jnp.cumsum(counts), sum(layout.level_sizes)
    if pure:
      nodes = draws.discrete_laplace(key, (size,), parameters.scale,
                                     jnp.float64)
    else:
      nodes = parameters.scale * additive.standard_normal(
          key, (size,)).astype(jnp.float64)
    # Or else all draws are compiled once for each level.
    noisy = ranks[:layout.num_rows] + layout.rows(
        jax.lax.optimization_barrier(nodes))
    if not pure:
      noisy = additive.on_grid(noisy, parameters.scale)
    if monotone:
      variances = np.append(layout.weights**2, [0.0] * (not root))
      noisy = smoothing.least_squares(noisy, ranks[-1], jnp.asarray(variances),
                                      _ENDS[known])
    elif known == 'regressed':
      noisy -= jnp.asarray(parameters.regression) * (noisy[-1] - ranks[-1])
    if known == 'left out':
      noisy = jnp.append(noisy, ranks[-1])
    return trees.ended(noisy, ranks[-1] if known else None, monotone=monotone)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class DyadicEcdf(mechanism.EcdfMechanism):
  """All ranks with dyadic noise: discrete Laplace, or Gaussian under rho.

  Guarantee: epsilon-DP or rho-zCDP of the whole curve, under `adjacency`.

  Attributes:
    accounting: 'tight', exact noise, of the layout that errs least: with a root
      or without, and under REPLACE_ONE with noise on the last rank that is then
      taken off the others, or with none. 'paper', the printed noise, all ranks
      and the root: more than enough. Under rho and REPLACE_ONE nothing is
      printed, and what the same argument would give is taken.
    root: whether all ranks share the noise of a node; None for the better.
    monotone: whether ranks are those of the nonnegative counts from which the
      least squared noise of nodes is taken off (`smoothing`).
  """
  accounting: str = 'tight'
  root: bool | None = None

  def __post_init__(self):
    super().__post_init__()
    errors.check_choice('accounting', self.accounting, ACCOUNTING)
    if self.accounting == 'tuned' and self.pure:
      raise ValueError("accounting='tuned' is for a budget of rho")
    if self.accounting == 'paper' and self.root is False:
      raise ValueError("accounting='paper' has a root")

  def _price(self, layout: Layout) -> float:
    """Epsilon, or 2 rho, of noise of scale 1."""
    return dyadic_calibration.calibrate(
        self.num_thresholds, adjacency=self.adjacency,
        norm='l1' if self.pure else 'l2', root=layout.root,
        known_last_row=layout.num_rows < self.num_thresholds,
        level_scales=(*layout.weights, *[0.0] * (not layout.root)))

  def _scale(self, layout: Layout) -> float:
    price = self._price(layout)
    if self.accounting == 'paper':
      price = dyadic_calibration.num_levels(self.num_thresholds)
      if not self.knows_total:
        price = -(-price // 2)
    return price / self.epsilon if self.pure else math.sqrt(
        price / (2 * self.rho))

  def _variances(self, layout: Layout) -> np.ndarray:
    scale = self._scale(layout)
    one = draws.discrete_laplace_variance(scale) if self.pure else scale**2
    shared = layout.covariances()
    left = np.full(layout.num_rows, shared[-1])
    if self._known(layout) == 'regressed':
      left -= shared**2 / shared[-1]
    return np.append(one * left,
                     np.zeros(self.num_thresholds - layout.num_rows))

  def _known(self, layout: Layout) -> str:
    if not self.knows_total or self.accounting == 'paper':
      return ''
    return ('regressed' if layout.num_rows == self.num_thresholds
            else 'left out')

  @functools.cached_property
  def layout(self) -> Layout:
    """Of the noise."""
    if self.accounting == 'paper':
      return Layout(self.num_thresholds, True)
    roots = (True, False) if self.root is None else (self.root,)
    found = [Layout(self.num_thresholds - less, root)
             for less in range(1 + self.knows_total) for root in roots
             if root or self.num_thresholds - less > 1]
    if self.accounting == 'tuned':
      profile = 'replaced' if self.knows_total else 'added'
      found += [layout._replace(profile=profile) for layout in found
                if layout.root and len(layout.level_sizes) >= _FEWEST_LEVELS]
    return min(found, key=lambda layout: np.mean(self._variances(layout)))

  @property
  def scale(self) -> float:
    """Of the noise of a node; of Gaussian noise its standard deviation."""
    return self._scale(self.layout)

  @property
  def achieved(self) -> float:
    """The budget that is really spent: of printed noise less than all."""
    price = self._price(self.layout)
    return price / self.scale if self.pure else price / (2 * self.scale**2)

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    known = self._known(self.layout)
    if self.monotone and self.knows_total and not known:
      known = 'regressed'
    return _law(self.pure, self.layout.root, self.layout.profile, known,
                self.monotone)

  @property
  def parameters(self) -> Parameters:
    """Of the law."""
    regression = np.zeros(self.num_thresholds)
    if self._known(self.layout) == 'regressed':
      shared = self.layout.covariances()
      regression = shared / shared[-1]
    return Parameters(np.float64(self.scale), regression)

  def variances(self) -> np.ndarray:
    """Of the errors of the ranks [N], exact, before they are made monotone."""
    return self._variances(self.layout)
