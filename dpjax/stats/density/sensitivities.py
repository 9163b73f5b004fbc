"""How far one record moves sums of trigonometric functions, exactly.

The papers add up largest values of all functions, which no record attains at
once (paper 001, lines 565-574; item DEN-P3, erratum E19). Here the supremum
over all pairs of records is found and certified: a sum of |h_k| with |h_k''| at
most b_k, plus half of the sum of b_k times the square of the place, is convex,
so that on a cell of side s in D dimensions it exceeds its corners by at most
D s^2 sum b_k / 8. Cells that cannot hold the supremum are dropped, others are
halved. What is returned is above the supremum by 2e-10 of it at most.
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
# Cells of the first grid along half a wave of the highest frequency.
_CELLS = 8

_Factor = Callable[[np.ndarray], np.ndarray]


@functools.lru_cache(maxsize=None, typed=True)
def trigonometric(num_functions: int, *, order: int,
                  adjacency: Adjacency,
                  printed: bool = False) -> float:
  """Sensitivity of sums of 1, sqrt 2 sin 2 pi k x, sqrt 2 cos 2 pi k x, k <= K.

  Exact, 1.39 N in l1 and sqrt(2.43 N) in l2 under REPLACE_ONE, rounded up. The
  constant is not counted: a sum of ones that is released is under
  ADD_OR_REMOVE_ONE one number more, that moves by 1.

  Args:
    num_functions: N = 2 K + 1, odd: a sine without its cosine costs more than
      it tells.
    order: of the norm, 1 or 2.
    adjacency: which data sets are neighbours.
    printed: by the largest values of all N functions, the constant among them,
      as in paper 001; 2 sqrt 2 N and 2 sqrt 2 sqrt N. Safe, and twice as much.
  """
  top = frequencies_of(num_functions)
  check_adjacency(adjacency)
  if order not in (1, 2):
    raise ValueError(f'order must be 1 or 2, got {order}')
  if printed:
    return sum_sensitivity(adjacency, record_norm=_SQRT2) * (
        num_functions if order == 1 else math.sqrt(num_functions))
  squares = np.pi**2 * np.arange(1, top + 1)**2
  if order == 2:
    return math.sqrt(num_functions - 1 if adjacency is not Adjacency.REPLACE_ONE
                     else _equal_weights(num_functions, 16 * squares.sum()))
  if adjacency is Adjacency.REPLACE_ONE:
    # Of the difference and the sum of both places.
    return _supremum(np.full(top, 2 * _SQRT2), (_sine, _both), (0.5, 0.25),
                     4 * squares.sum())
  return _supremum(np.full(top, _SQRT2), (_both,), (0.25,), 2 * squares.sum())


def frequencies_of(num_functions: int) -> int:
  """K of N = 2 K + 1 functions; refuses N that is even or below 3."""
  errors.check_at_least('num_functions', num_functions, 3)
  if num_functions % 2 == 0:
    raise ValueError('num_functions must be odd, a constant and pairs of sine '
                     f'and cosine; got {num_functions}')
  return num_functions // 2


def weighted_circle(weights: Sequence[float], *,
                    adjacency: Adjacency) -> float:
  """Largest sum of w_k (4 - 4 cos 2 pi k d) over d: a squared sensitivity.

  Of sums of sqrt 2 sin 2 pi k x and sqrt 2 cos 2 pi k x, each times the square
  root of w_k. With noise of variance kappa / w_k the squared distance between
  neighbours is this over kappa, so that kappa is this over 2 rho under rho-zCDP
  (item DEN-B4). Under ADD_OR_REMOVE_ONE it is 2 sum w_k, wherever the record.

  Args:
    weights: [K], of frequencies 1..K, at least 0.
    adjacency: which data sets are neighbours.
  """
  return _weighted('circle', as_weights(weights), check_adjacency(adjacency))


def weighted_cosine(weights: Sequence[float], *,
                    adjacency: Adjacency) -> float:
  """Largest sum of 2 w_k (cos pi k x - cos pi k y)^2 over pairs in [0, 1].

  As `weighted_circle`, for sums of sqrt 2 cos pi k x.
  """
  return _weighted('cosine', as_weights(weights), check_adjacency(adjacency))


def as_weights(weights: Sequence[float]) -> tuple[float, ...]:
  """Weights of frequencies 1..K, checked; refuses negative ones, all 0."""
  found = np.asarray(weights, np.float64)
  if found.ndim != 1 or not np.isfinite(found).all() or (
      found < 0).any() or not found.any():
    raise ValueError('weights must be numbers >= 0, not all of them 0, got '
                     f'{weights}')
  return tuple(found.tolist())


@functools.cache
def _weighted(basis: str, weights: tuple[float, ...],
              adjacency: Adjacency) -> float:
  found = np.array(weights)
  if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
    return 2 * float(found.sum())
  squares = np.pi**2 * np.arange(1, found.size + 1)**2
  if basis == 'circle':
    return _supremum(4 * found, (_double_wave,), (0.5,),
                     16 * np.sum(found * squares))
  # (cos x - cos y)^2 = (1 - cos(x + y)) (1 - cos(x - y)); of the matrix of
  # second derivatives entries are 2 at most on the diagonal, and 1 beside it.
  return _supremum(2 * found, (_wave, _wave), (1.0, 1.0),
                   6 * np.sum(found * squares))


def _equal_weights(num_functions: int, curvature: float) -> float:
  """`weighted_circle` of ones, by the kernel of Dirichlet."""
  def value(places):
    places = places[..., 0]
    return 2 * num_functions * (1 - np.sinc(num_functions * places)
                                / np.sinc(places))
  size = _CELLS * num_functions
  grid = value(np.arange(size // 2 + 1)[:, None] / size)
  return _refined(value, grid, 1 / size, curvature)


def _sine(phases):
  return np.abs(np.sin(phases))


def _both(phases):
  return np.abs(np.cos(phases)) + np.abs(np.sin(phases))


def _wave(phases):
  return 2 * np.sin(phases / 2)**2


def _double_wave(phases):
  return 2 * np.sin(phases)**2


def _supremum(scales: np.ndarray, factors: tuple[_Factor, ...],
              lengths: tuple[float, ...], curvature: float) -> float:
  """Supremum over places t of sum_k scales_k prod_i factors_i(pi k t_i).

  Args:
    scales: [K].
    factors: one or two functions of phases.
    lengths: of the box [0, l_1] x ... that holds a supremum.
    curvature: b; the function plus b |t|^2 / 2 is convex.
  """
  phases = np.pi * np.arange(1, scales.size + 1)

  def value(places):
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


def _refined(value, grid: np.ndarray, side: float, curvature: float) -> float:
  """Halves the cells that may hold the supremum until nothing is left."""
  dims = grid.ndim
  offsets = np.array(list(itertools.product((0, 1), repeat=dims)))
  tops = grid
  for axis in range(dims):
    before, after = (np.delete(tops, end, axis) for end in (-1, 0))
    tops = np.maximum(before, after)
  places, best = None, grid.max()
  while True:
    slack = dims * curvature * side**2 / 8
    if slack <= _TOLERANCE * best:
      # As much again for rounding: K terms, each to a few units of 2^-53.
      return float((best + slack) * (1 + _TOLERANCE))
    kept = tops + slack >= best
    places = np.argwhere(kept) * side if places is None else places[kept]
    side /= 2
    places = (places[:, None] + side * offsets).reshape(-1, dims)
    values = value(places[:, None] + side * offsets)
    tops, best = values.max(-1), max(best, values.max())
