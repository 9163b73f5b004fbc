"""Makes trees of noisy counts consistent by least squares; without JAX.

A tree splits all bins into shape[0] parts, each of these into shape[1] parts,
and so on. A leaf is a bin; leaves beyond the N-th are known to be empty. Nodes
of every level except the root are counted with noise; the root is n, public or
unknown. The numerical functions use only operators and methods, so they work on
NumPy and JAX arrays. Source: Hay et al. 2010, Qardaji et al. 2013 (items EC-44,
EC-45).
"""

from collections.abc import Callable, Sequence
import functools
import math
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import sum_sensitivity

Shape = tuple[int, ...]
"""Number of parts of the nodes of each level, the root first."""

# A NumPy or a JAX array; JAX is not imported here.
Array = Any


def check_shape(shape: Shape, num_thresholds: int = 1) -> Shape:
  """Returns the shape if it has a leaf for every threshold; raises otherwise.

  Raises:
    ValueError: if it is not a tuple of integers >= 2, or too small.
  """
  if not isinstance(shape, tuple) or not shape:
    raise ValueError('shape must be a tuple of one number of parts or more '
                     f'(one for each level), got {shape}')
  for parts in shape:
    errors.check_at_least('shape', parts, 2)
  if math.prod(shape) < num_thresholds:
    raise ValueError(f'a tree of {math.prod(shape)} leaves is too small for '
                     f'{num_thresholds} thresholds, got shape {shape}')
  return shape


def noise_scales(shares: Sequence[float], *, adjacency: Adjacency,
                 epsilon: float | None = None,
                 rho: float | None = None) -> np.ndarray:
  """Returns noise scales of the levels [h]: Laplace or standard deviations.

  A record is counted once on every level. So a level changes by 1 in l1 and in
  squared l2, and by 2 if a record is replaced.

  Args:
    shares: fractions of the budget, by level; they sum to 1.
    adjacency: which data sets are neighbours.
    epsilon: budget of all levels together, for Laplace noise; or None.
    rho: the same, for Gaussian noise; one of the two is given.
  """
  sensitivity = sum_sensitivity(adjacency, record_norm=1)
  if epsilon is not None:
    return sensitivity / (np.asarray(shares) * epsilon)
  if rho is None:
    raise ValueError('noise needs a budget: give epsilon or rho, got None')
  return np.sqrt(sensitivity / (2 * rho * np.asarray(shares)))


def levels(counts: Array, shape: Shape) -> list[Array]:
  """Sums counts of the leaves to the nodes of each level, top down."""
  return [counts.reshape(int(size), -1).sum(1) for size in np.cumprod(shape)]


def upward(noisy: Sequence[Array], shape: Shape,
           variances: Sequence[float] | Array, alive: Array
           ) -> tuple[list[tuple[Array, Array]], list[tuple[Array, Array]]]:
  """Estimates the nodes' counts from all counts at and below them.

  Each estimate is the inverse-variance mean of the node's own count and the sum
  of its children's estimates. Arguments as in `least_squares`.

  Returns:
    Estimates and their variances, by level from the top down; and the same of
    the sums of children, for all levels but the leaves.
  """
  value, variance = noisy[-1] * alive, variances[-1] * alive
  estimates, sums = [(value, variance)], []
  for level in range(len(shape) - 1, 0, -1):
    below, width = (part.reshape(-1, shape[level]).sum(1)
                    for part in (value, variance))
    sums.append((below, width))
    own = variances[level - 1]
    # Weights inverse to the variances: each estimate gets the other's variance.
    value = (width * noisy[level - 1] + own * below) / (width + own)
    variance = own * width / (width + own)
    estimates.append((value, variance))
  return estimates[::-1], sums[::-1]


def least_squares(noisy: Sequence[Array], shape: Shape,
                  variances: Sequence[float] | Array, alive: Array,
                  total: Array | float | None = None) -> Array:
  """Returns leaf counts nearest to the noisy counts of all nodes but the root.

  After the pass up, one down: children share their difference to the parent in
  proportion to their variances. Linear time.

  Args:
    noisy: counts of each level, from the top down, as `levels` gives them.
    shape: shape of the tree.
    variances: variances of their noise, by level; only ratios matter.
    alive: for each leaf 1, or 0 if its count is known to be 0; in the type of
      counts.
    total: sum of all leaves if public, else None.
  """
  estimates, sums = upward(noisy, shape, variances, alive)
  value, variance = estimates[0]
  if total is not None:
    # The top level shares the difference to n as children do below.
    value = value + variance * _quotient(total - value.sum(), variance.sum())
  for parts, (below, variance), (under, width) in zip(
      shape[1:], estimates[1:], sums, strict=True):
    value = below + variance * _quotient(value - under, width).repeat(parts)
  return value


def _quotient(amount: Array, width: Array) -> Array:
  """Returns amount / width; 0 if both are, where all leaves below are known."""
  return amount / (width + (width == 0).astype(width.dtype))


def nonnegative(noisy: Sequence[np.ndarray], shape: Shape,
                variances: Sequence[float] | np.ndarray, alive: np.ndarray,
                total: float | None = None) -> np.ndarray:
  """Returns the exact least squares counts >= 0; arguments as `least_squares`.

  Leaves that come out negative are set to 0 for good, until none is negative,
  after about ten rounds. No leaf would come back: the inverse of the inverse
  covariance, which is that of common ancestors, has no positive entry off the
  diagonal (item EC-45).

  A private total is kept at its estimate, or at 0. Otherwise the mass cut off
  negative counts would be added to it, and at small budgets the ranks' errors
  would be two to five times as large.
  """
  counts = least_squares(noisy, shape, variances, alive, total)
  if total is None:
    total = max(0.0, counts.sum())
  while np.any(counts < 0):
    alive = alive * (counts >= 0)
    counts = least_squares(noisy, shape, variances, alive, total)
  return counts


def prefix_variances(shape: Shape, variances: Sequence[float] | np.ndarray,
                     num_thresholds: int, *, known: bool) -> np.ndarray:
  """Returns exact variances of least squares ranks [N], before `nonnegative`.

  From the leaves up, it follows three quantities: the variance of a prefix
  inside a node as estimated from that node alone, its covariance with the
  node's sum, and the variance of that sum.

  Args:
    shape: shape of the tree.
    variances: variances of the noise, by level from the top down.
    num_thresholds: N.
    known: whether n is public.
  """
  size = math.prod(shape)
  width = variances[-1] * (np.arange(size) < num_thresholds)
  prefix = shared = width
  for parts, own in zip(shape[::-1],
                        [*variances[-2::-1], 0.0 if known else math.inf],
                        strict=True):
    rows = width.reshape(-1, parts)
    before = (np.cumsum(rows, 1) - rows).reshape(-1)
    repeats = size // before.size
    prefix = prefix + before.repeat(repeats)
    shared = shared + before.repeat(repeats)
    total = rows.sum(1)
    if math.isfinite(own):
      # The node's own count is one more observation of its sum: a rank-one
      # update (Kalman gain). Empty nodes have no variance, hence the floor.
      gain = (1 / np.maximum(total + own, 1e-300)).repeat(repeats * parts)
      prefix, shared = prefix - shared**2 * gain, shared * own * gain
      width = total * own / np.maximum(total + own, 1e-300)
  rank_variances = np.maximum(prefix[:num_thresholds], 0.0)
  if known:  # Exactly 0, not just up to rounding.
    rank_variances[-1] = 0.0
  return rank_variances


class _Block(NamedTuple):
  """Sums, over the prefixes in a node, of the quantities of `prefix_variances`.

  Attributes:
    rows: number of prefixes.
    prefix: sum of their variances.
    shared: sum of their covariances with the node's sum.
    squared: sum of the squares of those covariances.
    width: variance of the node's sum.
  """
  rows: float = 0.0
  prefix: float = 0.0
  shared: float = 0.0
  squared: float = 0.0
  width: float = 0.0


def _joined(full: _Block, count: int, last: _Block, own: float) -> _Block:
  """Returns the node of `count` equal children and one more, with noise `own`.
  """
  # Sums of 0 .. count - 1 and of their squares: child i has i children before
  # it, whose variances add to that of its prefixes.
  first = count * (count - 1) / 2
  second = first * (2 * count - 1) / 3
  before = count * full.width
  offset = full.width * full.rows * first + before * last.rows
  prefix = count * full.prefix + last.prefix + offset
  shared = count * full.shared + last.shared + offset
  squared = (count * full.squared + last.squared
             + full.rows * second * full.width**2
             + 2 * full.width * first * full.shared
             + last.rows * before**2 + 2 * before * last.shared)
  rows = count * full.rows + last.rows
  width = before + last.width
  # The same update as in `prefix_variances`, summed over the prefixes.
  if math.isinf(own) or not rows:
    return _Block(rows, prefix, shared, squared, width)
  weight = own / (width + own)
  return _Block(rows, prefix - squared / (width + own), shared * weight,
                squared * weight**2, width * weight)


def mean_variance(shape: Shape, variances: Sequence[float] | np.ndarray,
                  num_thresholds: int, *, known: bool) -> float:
  """Returns the mean of `prefix_variances`, in one step for each level."""
  # Nodes of a level are alike but for the last one, which may be cut off by N.
  own = variances[-1]
  full, last, size = _Block(1, own, own, own**2, own), _Block(), 1
  for parts, own in zip(shape[:0:-1], variances[-2::-1], strict=True):
    last = _joined(full, num_thresholds // size % parts, last, own)
    full = _joined(full, parts, _Block(), own)
    size *= parts
  root = _joined(full, num_thresholds // size, last, 0.0 if known else math.inf)
  return root.prefix / num_thresholds


def even_cost(shape: Shape, num_thresholds: int, *, known: bool,
              pure: bool) -> float:
  """Returns `mean_variance` for an even budget of epsilon = 1 or 2 rho = 1.

  For noise scaled to one added record; a replacement doubles the sensitivity in
  l1 and in squared l2.
  """
  high = len(shape)
  return (2 * high**2 if pure else high) * mean_variance(
      shape, (1.0,) * high, num_thresholds, known=known)


def filled(lower: Shape, num_thresholds: int) -> Shape:
  """Adds a top level with as many parts as N leaves need."""
  return (max(2, -(-num_thresholds // math.prod(lower))), *lower)


def improved(shape: Shape, num_thresholds: int,
             cost: Callable[[Shape], float]) -> Shape:
  """Changes the parts of lower levels one at a time while the cost falls."""
  while len(shape) > 1:
    lower = shape[1:]
    near = [filled((*lower[:place], parts + step, *lower[place + 1:]),
                   num_thresholds)
            for place, parts in enumerate(lower) for step in (-2, -1, 1, 2)
            if parts + step >= 2]
    better = min(near, key=cost)
    if cost(better) >= cost(shape):
      break
    shape = better
  return shape


@functools.cache
def best_shape(num_thresholds: int, *, known: bool, pure: bool) -> Shape:
  """Returns the shape with N leaves or more of least mean variance.

  For an even budget; a local search from equal parts, for each height.

  Args:
    num_thresholds: N.
    known: whether n is public.
    pure: True for Laplace noise, whose scale grows with the height; False for
      Gaussian noise, whose variance does.
  """
  def cost(shape: Shape) -> float:
    return even_cost(shape, num_thresholds, known=known, pure=pure)

  most = num_thresholds.bit_length() + 1
  return min((improved(filled((max(2, round(num_thresholds**(1 / high))),)
                              * (high - 1), num_thresholds),
                       num_thresholds, cost) for high in range(1, most)),
             key=cost)


@functools.cache
def split_shape(num_thresholds: int, *, pure: bool) -> Shape:
  """Returns the best tree over two classes of N bins, without shared nodes.

  A node across both classes adds noise to all ranks of the second: in the tree
  that is best for all 2 N ranks those have 1.5 times the variance of the first
  (N = 1024). If N has no useful divisors, that tree is returned anyway.
  The number of records is public.

  Args:
    num_thresholds: N.
    pure: whether the budget is epsilon.
  """
  # The cost over all 2 N ranks. By symmetry it is that of either class, because
  # n is public and no node is in both classes.
  cost = {shape: even_cost(shape, 2 * num_thresholds, known=True, pure=pure)
          for shape in _split_shapes(2, num_thresholds)}
  least = min(cost.values())
  free = best_shape(2 * num_thresholds, known=True, pure=pure)
  if least >= 1.5 * even_cost(free, 2 * num_thresholds, known=True, pure=pure):
    return free
  # Among nearly equal costs take the widest lowest nodes: with few records and
  # nonnegative counts the errors of the classes' curves are up to a tenth
  # smaller, on the data sets of Barczewski (2025, Table 6.1).
  return max((shape for shape in cost if cost[shape] < 1.02 * least),
             key=lambda shape: shape[-1])


def _split_shapes(top: int, size: int) -> list[Shape]:
  """Returns the shapes whose first level is a multiple of `top`.

  Below the first level, parts multiply with the rest to `size`.
  """
  shapes: list[Shape] = [(top * size,)]
  for parts in range(2, min(size, 40) + 1):
    if size % parts == 0:
      shapes += [(*upper, parts) for upper in _split_shapes(top, size // parts)]
  return shapes


@functools.cache
def tuned_shares(shape: Shape, num_thresholds: int, *, known: bool,
                 pure: bool) -> tuple[float, ...]:
  """Returns the shares of the budget [h] of least mean variance for a shape.

  They reduce it by 1 % for Laplace noise and by 6 to 10 % for Gaussian noise,
  with more than two even shares for the leaves; if n is public, the top level
  takes half an even share.
  """
  def shares(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - np.max(logits))
    return weights / np.sum(weights)

  # Variances are share^-2 for Laplace and share^-1 for Gaussian noise.
  def cost(logits: np.ndarray) -> float:
    return math.log(mean_variance(
        shape, shares(logits)**-(2.0 if pure else 1.0), num_thresholds,
        known=known))

  optimum = optimize.minimize(cost, np.zeros(len(shape)), method='BFGS')
  return tuple(shares(optimum.x).tolist())
