"""Exact sensitivities of sums of trigonometric functions.

The publications add up the largest values of all functions, which no record
attains at once (Lalanne, Garivier and Gribonval 2023, section 4.2; item DEN-P3,
erratum DEN-E19). Here the supremum over all pairs of records is computed with a
certificate.

Certificate:
1. The function f(t) is a sum of |h_k(t)| with |h_k''| <= b_k, so that f(t) +
   (sum b_k) |t|^2 / 2 is convex.
2. So on a cell of side s in D dimensions f exceeds its largest value at a
   corner by at most D s^2 sum b_k / 8.
3. Cells that cannot hold the supremum are dropped; the others are halved.
4. The returned value is above the supremum, by at most a relative 2e-10.
"""

from collections.abc import Callable, Sequence
import functools
import itertools
import math

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.adjacency import sum_sensitivity

_SQRT2 = math.sqrt(2)
_TOLERANCE = 1e-10
# Grid cells per half wave of the highest frequency, at the start.
_CELLS = 8

_Function = Callable[[np.ndarray], np.ndarray]


@functools.lru_cache(maxsize=None, typed=True)
def trigonometric(num_functions: int, *, order: int,
                  adjacency: Adjacency,
                  printed: bool = False) -> float:
  """Returns the sensitivity of sums of sqrt 2 sin and cos 2 pi k x, k <= K.

  Exact and rounded up: 1.39 N in l1 and sqrt(2.43 N) in l2 under REPLACE_ONE.
  The constant is not included: under ADD_OR_REMOVE_ONE a released sum of ones
  is one more number that changes by 1.

  Args:
    num_functions: N = 2 K + 1, odd, because a sine without its cosine is not
      worth its cost.
    order: order of the norm, 1 or 2.
    adjacency: which data sets are neighbours.
    printed: whether to add the largest values of all N functions with the
      constant, as published: 2 sqrt 2 N and 2 sqrt 2 sqrt N. Safe, and twice as
      much.
  """
  top = frequencies_of(num_functions)
  check_adjacency(adjacency)
  if order not in (1, 2):
    raise ValueError(f'order must be 1 or 2, got {order}')
  if printed:
    return sum_sensitivity(adjacency, record_norm=_SQRT2) * (
        num_functions if order == 1 else math.sqrt(num_functions))
  # Second derivatives of the waves, by which `_refined` bounds the curvature.
  squares = np.pi**2 * np.arange(1, top + 1)**2
  if order == 2:
    return math.sqrt(num_functions - 1 if adjacency is not Adjacency.REPLACE_ONE
                     else _equal_weights(num_functions, 16 * squares.sum()))
  if adjacency is Adjacency.REPLACE_ONE:
    # |sin| of the records' difference times |cos| + |sin| of their sum.
    return _supremum(np.full(top, 2 * _SQRT2), (_sine, _both), (0.5, 0.25),
                     4 * squares.sum())
  return _supremum(np.full(top, _SQRT2), (_both,), (0.25,), 2 * squares.sum())


def frequencies_of(num_functions: int) -> int:
  """Returns K for N = 2 K + 1 functions; raises if N is even or below 3."""
  errors.check_at_least('num_functions', num_functions, 3)
  if num_functions % 2 == 0:
    raise ValueError('num_functions must be odd, a constant and pairs of sine '
                     f'and cosine; got {num_functions}')
  return num_functions // 2


def weighted_circle(weights: Sequence[float] | np.ndarray, *,
                    adjacency: Adjacency) -> float:
  """Returns the largest sum of w_k (4 - 4 cos 2 pi k d) over d.

  This is the squared sensitivity of the sums of sqrt 2 sin 2 pi k x and sqrt 2
  cos 2 pi k x, each times the square root of w_k. With noise of variance kappa
  / w_k the squared shift is this over kappa, so rho-zCDP needs kappa = this /
  (2 rho) (item DEN-B4). Under ADD_OR_REMOVE_ONE it is 2 sum w_k, for any
  record.

  Args:
    weights: [K], weights of frequencies 1..K, at least 0.
    adjacency: which data sets are neighbours.
  """
  return _weighted('circle', as_weights(weights), check_adjacency(adjacency))


def weighted_cosine(weights: Sequence[float] | np.ndarray, *,
                    adjacency: Adjacency) -> float:
  """Returns the largest sum of 2 w_k (cos pi k x - cos pi k y)^2 over pairs.

  As `weighted_circle`, for sums of sqrt 2 cos pi k x with x in [0, 1].
  """
  return _weighted('cosine', as_weights(weights), check_adjacency(adjacency))


def as_weights(weights: Sequence[float] | np.ndarray
               ) -> tuple[float, ...]:
  """Returns weights of frequencies 1..K as a tuple.

  Raises:
    ValueError: if one is negative or all are 0.
  """
  values = np.asarray(weights, np.float64)
  if values.ndim != 1 or not np.isfinite(values).all() or (
      values < 0).any() or not values.any():
    raise ValueError('weights must be numbers >= 0, not all of them 0, got '
                     f'{weights}')
  return tuple(values.tolist())


@functools.cache
def _weighted(basis: str, weights: tuple[float, ...],
              adjacency: Adjacency) -> float:
  """Returns `weighted_circle` or `weighted_cosine`, for valid arguments."""
  values = np.array(weights)
  if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
    return 2 * float(values.sum())
  squares = np.pi**2 * np.arange(1, values.size + 1)**2
  if basis == 'circle':
    return _supremum(4 * values, (_double_wave,), (0.5,),
                     16 * np.sum(values * squares))
  # (cos x - cos y)^2 = (1 - cos(x + y)) (1 - cos(x - y)); its second
  # derivatives are at most 2 on the diagonal and 1 off it.
  return _supremum(2 * values, (_wave, _wave), (1.0, 1.0),
                   6 * np.sum(values * squares))


def _equal_weights(num_functions: int, curvature: float) -> float:
  """Returns `weighted_circle` for weights 1, by the Dirichlet kernel."""
  def value(places: np.ndarray) -> np.ndarray:
    places = places[..., 0]
    return 2 * num_functions * (1 - np.sinc(num_functions * places)
                                / np.sinc(places))
  size = _CELLS * num_functions
  grid = value(np.arange(size // 2 + 1)[:, None] / size)
  return _refined(value, grid, 1 / size, curvature)


def _sine(phases: np.ndarray) -> np.ndarray:
  """Returns |sin| of the phases."""
  return np.abs(np.sin(phases))


def _both(phases: np.ndarray) -> np.ndarray:
  """Returns |cos| + |sin|, the l1 norm of a point of the circle."""
  return np.abs(np.cos(phases)) + np.abs(np.sin(phases))


def _wave(phases: np.ndarray) -> np.ndarray:
  """Returns 1 - cos of the phase."""
  return 2 * np.sin(phases / 2)**2


def _double_wave(phases: np.ndarray) -> np.ndarray:
  """Returns 1 - cos of twice the phase."""
  return 2 * np.sin(phases)**2


def _supremum(scales: np.ndarray, factors: tuple[_Function, ...],
              lengths: tuple[float, ...], curvature: float) -> float:
  """Returns the supremum over t of sum_k scales_k prod_i factors_i(pi k t_i).

  Args:
    scales: [K].
    factors: one or two functions of phases.
    lengths: side lengths of the box [0, l_1] x ... that holds a supremum.
    curvature: b; the function plus b |t|^2 / 2 is convex.
  """
  phases = np.pi * np.arange(1, scales.size + 1)

  def value(places: np.ndarray) -> np.ndarray:
    rows = scales
    for i, factor in enumerate(factors):
      rows = rows * factor(places[..., i, None] * phases)
    return rows.sum(-1)
  size = _CELLS * scales.size
  axes = [np.arange(math.ceil(length * size) + 1) / size for length in lengths]
  tables = [factor(np.multiply.outer(axis, phases))
            for factor, axis in zip(factors, axes, strict=True)]
  grid = tables[0] @ scales if len(axes) == 1 else (
      tables[0] * scales @ tables[1].T)
  return _refined(value, grid, 1 / size, curvature)


def _refined(value: _Function, grid: np.ndarray, side: float,
             curvature: float) -> float:
  """Returns the certified supremum of `value`, by halving cells.

  Args:
    value: the function of points [..., D].
    grid: its values at the corners of the first cells.
    side: side of these cells.
    curvature: as in `_supremum`.
  """
  dims = grid.ndim
  offsets = np.array(list(itertools.product((0, 1), repeat=dims)))
  # The largest value at the corners of each cell.
  tops = grid
  for axis in range(dims):
    before, after = (np.delete(tops, end, axis) for end in (-1, 0))
    tops = np.maximum(before, after)
  places, best = None, grid.max()
  while True:
    slack = dims * curvature * side**2 / 8
    if slack <= _TOLERANCE * best:
      # The same margin again covers rounding of the K terms, a few units of
      # 2^-53 each.
      return float((best + slack) * (1 + _TOLERANCE))
    # Step 3: a cell whose upper bound is below the best value has no supremum.
    viable = tops + slack >= best
    places = np.argwhere(viable) * side if places is None else places[viable]
    side /= 2
    places = (places[:, None] + side * offsets).reshape(-1, dims)
    values = value(places[:, None] + side * offsets)
    tops, best = values.max(-1), max(best, values.max())
