"""Trees of counts: least squares, their variances, and shapes; no JAX.

A tree cuts all bins into shape[0] parts, each into shape[1] parts and so on; a
leaf is a bin, and leaves beyond the N-th are known to be empty. Nodes of every
level are counted with noise, all but the root: it is n, public or unknown. What
computes uses operators and methods alone, so that it takes arrays of NumPy and
of JAX. Source: Hay et al. 2010, Qardaji et al. 2013 (item EC-44, EC-45).
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
# Of NumPy or of JAX, which is not imported here.
Array = Any


def check_shape(shape: Shape, num_thresholds: int = 1) -> Shape:
  """Returns a shape that has a leaf for every threshold."""
  if not isinstance(shape, tuple) or not shape:
    raise ValueError('shape must be a tuple of one number of parts or more, '
                     f'got {shape}')
  for parts in shape:
    errors.check_at_least('shape', parts, 2)
  if math.prod(shape) < num_thresholds:
    raise ValueError(f'a tree of {math.prod(shape)} leaves is too small for '
                     f'{num_thresholds} thresholds, got shape {shape}')
  return shape


def noise_scales(shares: Sequence[float], *, adjacency: Adjacency,
                 epsilon: float | None = None,
                 rho: float | None = None) -> np.ndarray:
  """Of the noise of each level [h], Laplace for epsilon, Gaussian for rho.

  A record is counted once on every level: a level moves by 1 in l1 and in
  squared l2, and by 2 where one is replaced.

  Args:
    shares: of the budget, by level; they sum to 1.
    adjacency: which data sets are neighbours.
    epsilon: of all levels together, or None.
    rho: the same, if the budget is not epsilon.
  """
  moved = sum_sensitivity(adjacency, record_norm=1)
  if epsilon is not None:
    return moved / (np.asarray(shares) * epsilon)
  return np.sqrt(moved / (2 * rho * np.asarray(shares)))


def levels(counts: Array, shape: Shape) -> list[Array]:
  """Counts of the leaves summed to the nodes of each level, top down."""
  return [counts.reshape(int(size), -1).sum(1) for size in np.cumprod(shape)]


def upward(noisy: Sequence[Array], shape: Shape,
           variances: Sequence[Array | float], alive: Array
           ) -> tuple[list[tuple[Array, Array]], list[tuple[Array, Array]]]:
  """Counts of nodes as estimated from all that lies below them.

  Of a node's own count and the sum of its children's estimates, the mean by
  inverse variances. Arguments as of `least_squares`.

  Returns:
    Estimates and their variances, by level from the top down; and the same of
    the sums of children, for all levels but the leaves.
  """
  value, spread = noisy[-1] * alive, variances[-1] * alive
  found, sums = [(value, spread)], []
  for level in range(len(shape) - 1, 0, -1):
    below, width = (each.reshape(-1, shape[level]).sum(1)
                    for each in (value, spread))
    sums.append((below, width))
    own = variances[level - 1]
    value = (width * noisy[level - 1] + own * below) / (width + own)
    spread = own * width / (width + own)
    found.append((value, spread))
  return found[::-1], sums[::-1]


def least_squares(noisy: Sequence[Array], shape: Shape,
                  variances: Sequence[Array | float], alive: Array,
                  total: Array | float | None = None) -> Array:
  """Counts of the leaves nearest to noisy counts of all nodes but the root.

  After the pass up, one down: children share what they lack of their parent, by
  their variances. Linear time.

  Args:
    noisy: counts of each level, from the top down, as `levels` gives them.
    shape: of the tree.
    variances: of their noise, by level; only ratios matter.
    alive: by leaf, 1, or 0 where the count is known to be 0; in the type of
      counts.
    total: the sum of all leaves, if it is known.
  """
  found, sums = upward(noisy, shape, variances, alive)
  value, spread = found[0]
  if total is not None:
    value = value + spread * _quotient(total - value.sum(), spread.sum())
  for parts, (below, spread), (under, width) in zip(
      shape[1:], found[1:], sums, strict=True):
    value = below + spread * _quotient(value - under, width).repeat(parts)
  return value


def _quotient(amount: Array, width: Array) -> Array:
  """0 where all leaves below are known."""
  return amount / (width + (width == 0).astype(width.dtype))


def nonnegative(noisy: Sequence[np.ndarray], shape: Shape,
                variances: Sequence[float], alive: np.ndarray,
                total: float | None = None) -> np.ndarray:
  """Least squares among counts >= 0, exactly; arguments as `least_squares`.

  Leaves that come out negative are known to be 0 from then on, until none is:
  the inverse covariance of nodes by leaves is that of common ancestors, whose
  inverse has no positive entry off the diagonal, so that no leaf would come
  back (item EC-45). Some ten rounds.

  An unknown total is kept at its estimate, or at 0: what is cut off of negative
  counts would else be added to it, and at little budget ranks would be two to
  five times as far off as before.
  """
  counts = least_squares(noisy, shape, variances, alive, total)
  if total is None:
    total = max(0.0, counts.sum())
  while np.any(counts < 0):
    alive = alive * (counts >= 0)
    counts = least_squares(noisy, shape, variances, alive, total)
  return counts


def prefix_variances(shape: Shape, variances: Sequence[float],
                     num_thresholds: int, *, known: bool) -> np.ndarray:
  """Of ranks [N] by least squares, exact, before they are made nonnegative.

  From the leaves up: the variance of a prefix inside a node as estimated from
  that node alone, its covariance with the node's sum, and the variance of that.

  Args:
    shape: of the tree.
    variances: of the noise, by level from the top down.
    num_thresholds: N.
    known: whether n is.
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
      gain = (1 / np.maximum(total + own, 1e-300)).repeat(repeats * parts)
      prefix, shared = prefix - shared**2 * gain, shared * own * gain
      width = total * own / np.maximum(total + own, 1e-300)
  found = np.maximum(prefix[:num_thresholds], 0.0)
  if known:  # And not up to rounding.
    found[-1] = 0.0
  return found


class _Block(NamedTuple):
  """Sums over the prefixes inside a node, of what `prefix_variances` follows.

  Attributes:
    rows: prefixes.
    prefix: sum of their variances.
    shared: of their covariances with the node's sum.
    squared: of the squares of those.
    width: variance of the node's sum.
  """
  rows: float = 0.0
  prefix: float = 0.0
  shared: float = 0.0
  squared: float = 0.0
  width: float = 0.0


def _joined(full: _Block, count: int, last: _Block, own: float) -> _Block:
  """A node of `count` equal children and one more, measured with noise."""
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
  if math.isinf(own) or not rows:
    return _Block(rows, prefix, shared, squared, width)
  kept = own / (width + own)
  return _Block(rows, prefix - squared / (width + own), shared * kept,
                squared * kept**2, width * kept)


def mean_variance(shape: Shape, variances: Sequence[float],
                  num_thresholds: int, *, known: bool) -> float:
  """The mean of `prefix_variances`, in one step for each level."""
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
  """`mean_variance` with an even budget: 1 / eps^2, or 1 / (2 rho), times it.

  For noise whose scale is that of one record, which a replacement doubles in
  l1 and in squared l2.
  """
  high = len(shape)
  return (2 * high**2 if pure else high) * mean_variance(
      shape, (1.0,) * high, num_thresholds, known=known)


def filled(lower: Shape, num_thresholds: int) -> Shape:
  """Lower levels with as many parts on top as N leaves need."""
  return (max(2, -(-num_thresholds // math.prod(lower))), *lower)


def improved(shape: Shape, num_thresholds: int,
             cost: Callable[[Shape], float]) -> Shape:
  """Moves the parts of lower levels as long as the cost falls."""
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
  """The shape of least mean variance, an even budget and N leaves or more.

  Of each height, from equal parts on.

  Args:
    num_thresholds: N.
    known: whether n is.
    pure: whether noise is Laplace, of a scale that grows with the height, or
      Gaussian, of a variance that does.
  """
  def cost(shape):
    return even_cost(shape, num_thresholds, known=known, pure=pure)

  most = num_thresholds.bit_length() + 1
  return min((improved(filled((max(2, round(num_thresholds**(1 / high))),)
                              * (high - 1), num_thresholds),
                       num_thresholds, cost) for high in range(1, most)),
             key=cost)


@functools.cache
def split_shape(num_thresholds: int, *, pure: bool) -> Shape:
  """The best tree over N bins of each of two classes, no node in both.

  A node across classes is in all ranks of the second: in the tree that is best
  for all 2 N ranks those have 1.5 times the variance of the first (N = 1024).
  If N has no useful divisors, it is that tree nevertheless. Their number is
  known.

  Args:
    num_thresholds: N.
    pure: whether the budget is epsilon.
  """
  # Of all 2 N ranks; where n is known and no node is in both classes, it is
  # that of either class, by symmetry.
  cost = {shape: even_cost(shape, 2 * num_thresholds, known=True, pure=pure)
          for shape in _split_shapes(2, num_thresholds)}
  least = min(cost.values())
  free = best_shape(2 * num_thresholds, known=True, pure=pure)
  if least >= 1.5 * even_cost(free, 2 * num_thresholds, known=True, pure=pure):
    return free
  # Of equals that of the widest lowest nodes: where records are few and counts
  # are made nonnegative, curves of classes err up to a tenth less, on the files
  # of Table 6.1.
  return max((shape for shape in cost if cost[shape] < 1.02 * least),
             key=lambda shape: shape[-1])


def _split_shapes(top: int, size: int) -> list[Shape]:
  """Of the numbers whose product is `size`, some on the first level."""
  found = [(top * size,)]
  for parts in range(2, min(size, 40) + 1):
    if size % parts == 0:
      found += [(*upper, parts) for upper in _split_shapes(top, size // parts)]
  return found


@functools.cache
def tuned_shares(shape: Shape, num_thresholds: int, *, known: bool,
                 pure: bool) -> tuple[float, ...]:
  """Shares of the budget [h] of least mean variance for a shape.

  Worth 1 % for Laplace noise and 6 to 10 % for Gaussian noise, where leaves
  take more than two shares; where n is known, the top takes half of one.
  """
  def shares(logits):
    weights = np.exp(logits - np.max(logits))
    return weights / np.sum(weights)

  def cost(logits):
    return math.log(mean_variance(
        shape, shares(logits)**-(2.0 if pure else 1.0), num_thresholds,
        known=known))

  found = optimize.minimize(cost, np.zeros(len(shape)), method='BFGS')
  return tuple(shares(found.x).tolist())
