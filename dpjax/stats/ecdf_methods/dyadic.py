"""Releases distribution functions with noise on dyadic blocks of ranks.

Row i is the rank at threshold i; a node is a block of 2^l rows. A rank gets the
sum of the noise of the nodes that contain its row, one on each level. So all
ranks have the same noise variance, and close ranks share most of their noise.
`dyadic_calibration` computes the exact privacy cost; Barczewski (2025) counts
nodes instead, and that bound is kept as `accounting='paper'`.
Source: Barczewski (2025, equation 6.3.1 and Theorems 6.3.1 and 6.3.2; items
EC-03, EC-05, EC-07; corrections C1 to C3).
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from dpjax import errors
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.stats.ecdf_methods import dyadic_calibration
from dpjax.stats.ecdf_methods import mechanism
from dpjax.stats.ecdf_methods import smoothing
from dpjax.stats.ecdf_methods import trees
from dpjax.typing import Array, PRNGKey

ACCOUNTING = ('tight', 'tuned', 'paper')

# Gaussian noise of least mean variance: standard deviations of the two lowest
# levels, and of the root and the two levels below it, relative to those of all
# other levels. They are nearly the same from 64 rows on.
_PROFILES = {'added': ((1.69, .45), (1.22, .71, .97)),
             'replaced': ((1.69, .45), (1.09, 0., .79))}
_FEWEST_LEVELS = 5  # A profile sets the noise of five levels.


class DyadicParameters(NamedTuple):
  """Public numbers that the sampler of dyadic noise takes.

  Attributes:
    scale: [], Laplace scale or standard deviation of the noise of a node.
    regression: [N], regression coefficients of the noise of each rank on that
      of the last rank.
  """
  scale: np.float64
  regression: np.ndarray


class Layout(NamedTuple):
  """States which rows and nodes have noise, and how much.

  Attributes:
    num_rows: rows with noise, the first ones.
    root: whether the node of all rows has noise.
    profile: relative noise of the levels, one of `_PROFILES`; '' for equal
      noise.
  """
  num_rows: int
  root: bool
  profile: str = ''

  @property
  def level_sizes(self) -> tuple[int, ...]:
    """Number of nodes of each level, leaves first: ceil(num_rows / 2^l)."""
    levels = dyadic_calibration.num_levels(self.num_rows) - (not self.root)
    return tuple(-(-self.num_rows // 2**level) for level in range(levels))

  @property
  def weights(self) -> np.ndarray:
    """Noise scales of the levels relative to `scale`, leaves first."""
    weights = np.ones(len(self.level_sizes))
    if self.profile:
      lowest, highest = _PROFILES[self.profile]
      weights[:2], weights[-3:] = lowest, highest[::-1]
    return weights

  def rows(self, nodes: Array) -> Array:
    """Returns the noise of rows [num_rows] from draws of all nodes.

    Args:
      nodes: [M] draws for all nodes, leaves first.
    """
    last = np.cumsum(self.level_sizes)
    # From the root down: each node's noise is repeated for its two children.
    total = jnp.zeros([1], nodes.dtype)
    for size, end, weight in reversed(list(zip(
        self.level_sizes, last.tolist(), self.weights.tolist(), strict=True))):
      total = jnp.repeat(total, -(-size // total.size))[:size]
      total += weight * nodes[end - size:end]
    return total

  def covariances(self) -> np.ndarray:
    """Returns covariances of the rows' noise with the last row's, at scale 1.
    """
    row = np.arange(self.num_rows)
    return sum(weight**2 * ((row >> level) == (row[-1] >> level))
               for level, weight in enumerate(self.weights))


def signed_nodes(first: int, last: int,
                 num_rows: int) -> list[tuple[int, int, int]]:
  """Returns the fewest nodes whose signed sum is 1 on rows first..last, else 0.

  This is a shortest path between two boundaries. For intervals that start or
  end with a block of 2^L rows it has as many nodes as the non-adjacent form has
  nonzero digits, at most ceil((L+1)/2). Source: Barczewski (2025, Lemma 6.3.1;
  item EC-04, correction C21).

  Args:
    first: first row, from 1 on.
    last: last row, up to `num_rows`.
    num_rows: N.

  Returns:
    (sign, j, level) of each node; node j of a level, from 1 on, has the rows
    (j-1) 2^level + 1 .. min(j 2^level, N).
  """
  if not 1 <= first <= last <= num_rows:
    raise ValueError(f'rows must be in order, from 1 to {num_rows}, got '
                     f'first={first} and last={last}')
  sizes = Layout(num_rows, True).level_sizes
  starts = np.concatenate([np.arange(size) * 2**level
                           for level, size in enumerate(sizes)])
  ends = np.concatenate([np.minimum(np.arange(1, size + 1) * 2**level, num_rows)
                         for level, size in enumerate(sizes)])
  graph = sparse.coo_matrix((np.ones(starts.size), (starts, ends)),
                            (num_rows + 1,) * 2).tocsr()
  before = csgraph.shortest_path(graph, directed=False, unweighted=True,
                                 indices=first - 1, return_predecessors=True)[1]
  path, place = [], last
  while place != first - 1:
    previous = int(before[place])
    low, high = sorted((previous, place))
    level = (high - low - 1).bit_length()
    path.append((1 if previous < place else -1, (low >> level) + 1, level))
    place = previous
  return path[::-1]


# Constraint on the last noisy rank, by the treatment of a public total.
_ENDS = {'': 'free', 'regressed': 'equal', 'left out': 'at_most'}


@functools.cache
def _sampler(pure: bool, root: bool, profile: str, known: str,
             monotone: bool) -> mechanism.Draw:
  """Returns the sampler with noise on all rows, or on all but the last.

  `known` is the treatment of a public total: '' ignores it, 'regressed'
  subtracts the noise of the last row from the others by regression, 'left out'
  gives the last row no noise.
  """
  def draw(key: PRNGKey, counts: Array, parameters: DyadicParameters) -> Array:
    layout = Layout(counts.size - (known == 'left out'), root, profile)
    ranks, size = jnp.cumsum(counts), sum(layout.level_sizes)
    if pure:
      nodes = draws.discrete_laplace(key, (size,), parameters.scale,
                                     jnp.float64)
    else:
      nodes = parameters.scale * additive.standard_normal(
          key, (size,)).astype(jnp.float64)
    # The barrier keeps XLA from compiling all draws once for each level.
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
  """All ranks with dyadic noise: discrete Laplace, or Gaussian for rho.

  Guarantee: epsilon-DP or rho-zCDP of the whole curve, under `adjacency`.

  Attributes:
    accounting: 'tight' has the exact noise scale and the layout of least error:
      with or without a root, and under REPLACE_ONE with noise on the last rank
      that is regressed out, or with none. 'tuned' also tries unequal Gaussian
      noise per level. 'paper' has the published noise on all ranks and the
      root, more than needed; for rho and REPLACE_ONE, where none is published,
      it uses what the same argument would give.
    root: whether the node of all rows has noise; None for the better choice.
    monotone: whether ranks are made those of nonnegative counts by subtracting
      the least squared noise of nodes (`smoothing`).
  """
  accounting: str = 'tight'
  root: bool | None = None

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_choice('accounting', self.accounting, ACCOUNTING)
    if self.accounting == 'tuned' and self.pure:
      raise ValueError("accounting='tuned' needs a budget of rho, not epsilon")
    if self.accounting == 'paper' and self.root is False:
      raise ValueError("accounting='paper' has a root: root must not be False")

  def _unit_cost(self, layout: Layout) -> float:
    """Returns the epsilon, or the 2 rho, of noise of scale 1."""
    return dyadic_calibration.calibrate(
        self.num_thresholds, adjacency=self.adjacency,
        norm='l1' if self.pure else 'l2', root=layout.root,
        known_last_row=layout.num_rows < self.num_thresholds,
        level_scales=(*layout.weights, *[0.0] * (not layout.root)))

  def _scale(self, layout: Layout) -> float:
    """Returns the noise scale of a node that spends the budget."""
    cost = self._unit_cost(layout)
    if self.accounting == 'paper':
      # Published: L + 1 nodes change, half of them (rounded up) if one record
      # is added.
      cost = dyadic_calibration.num_levels(self.num_thresholds)
      if not self.knows_total:
        cost = -(-cost // 2)
    return self.noise_scale(cost)

  def _variances(self, layout: Layout) -> np.ndarray:
    """Returns exact error variances of the ranks [N] for a layout."""
    scale = self._scale(layout)
    one = draws.discrete_laplace_variance(scale) if self.pure else scale**2
    shared = layout.covariances()
    own = np.full(layout.num_rows, shared[-1])
    if self._known(layout) == 'regressed':
      # Regression on the last rank's noise removes that part of the variance.
      own -= shared**2 / shared[-1]
    return np.append(one * own,
                     np.zeros(self.num_thresholds - layout.num_rows))

  def _known(self, layout: Layout) -> str:
    """Returns the treatment of a public total, see `_sampler`."""
    if not self.knows_total or self.accounting == 'paper':
      return ''
    return ('regressed' if layout.num_rows == self.num_thresholds
            else 'left out')

  @functools.cached_property
  def layout(self) -> Layout:
    """The allowed layout with the least mean variance of the ranks."""
    if self.accounting == 'paper':
      return Layout(self.num_thresholds, True)
    roots = (True, False) if self.root is None else (self.root,)
    candidates = [Layout(self.num_thresholds - num_without_noise, root)
                  for num_without_noise in range(1 + self.knows_total)
                  for root in roots
                  if root or self.num_thresholds - num_without_noise > 1]
    if self.accounting == 'tuned':
      profile = 'replaced' if self.knows_total else 'added'
      candidates += [
          layout._replace(profile=profile) for layout in candidates
          if layout.root and len(layout.level_sizes) >= _FEWEST_LEVELS]
    return min(candidates, key=lambda layout: np.mean(self._variances(layout)))

  @property
  def scale(self) -> float:
    """Laplace scale or standard deviation of the noise of a node."""
    return self._scale(self.layout)

  @property
  def achieved(self) -> float:
    """The budget that is spent; for 'paper' it is less than the stated one."""
    cost = self._unit_cost(self.layout)
    return cost / self.scale if self.pure else cost / (2 * self.scale**2)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, counts, parameters) -> ranks."""
    known = self._known(self.layout)
    if self.monotone and self.knows_total and not known:
      known = 'regressed'
    return _sampler(self.pure, self.layout.root, self.layout.profile, known,
                    self.monotone)

  @property
  def parameters(self) -> DyadicParameters:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    regression = np.zeros(self.num_thresholds)
    if self._known(self.layout) == 'regressed':
      shared = self.layout.covariances()
      regression = shared / shared[-1]
    return DyadicParameters(np.float64(self.scale), regression)

  def variances(self) -> np.ndarray:
    """Returns exact error variances of the ranks [N], before the projection."""
    return self._variances(self.layout)
