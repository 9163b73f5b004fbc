"""Checks curves: least objectives, distributions, opened comparisons.

Smoothing is compared with the optimum of the same problem, written densely by
the definition of the noise of nodes; releases with draws in NumPy; secure
comparisons with comparisons of the plain numbers.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from experiments.benchmarks import curve_peers as peers
from experiments.benchmarks import curve_work as work
from experiments.benchmarks import quantile_checks
from experiments.benchmarks.program import Spec

_MOST_ERROR = 1e-3
_SLACK = 0.02
"""Records by which ranks of a solver may violate the constraints."""

_TOTAL_WEIGHT = 1e5


class Finding(NamedTuple):
  """Result of a check.

  Attributes:
    error: relative error of an objective, or the fraction of wrong comparisons.
      Infinite for ranks that are not monotone or have a wrong total, NaN for
      releases.
    least_p_value: `quantile_checks.least_p_value` for releases; otherwise NaN.
    passed: whether error or p-value are within the tolerances.
  """
  error: float
  least_p_value: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """Returns the cells of this finding in the printed table."""
    return tuple('-' if np.isnan(value) else f'{value:.1e}'
                 for value in self[:2])


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """Returns the program to check."""
  return Spec(suite='curves', model=model, size=size, method=method)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares the results or draws of a program with the correct ones.

  Args:
    spec: specification of the program.
    audit: 'results', ranks [N] or opened numbers; for releases 'draws' [R, N].
  """
  if spec.model.startswith('release'):
    least = _p_value(spec, audit['draws'])
    return Finding(np.nan, least, least >= quantile_checks.ERROR_RATE)
  smoothed = spec.model in ('squares', 'absolute')
  error = (_excess if smoothed else _wrong)(spec, audit['results'])
  return Finding(error, np.nan, error <= (_MOST_ERROR if smoothed else 0))


def _excess(spec: Spec, smoothed: np.ndarray) -> float:
  """Returns |objective / least objective - 1| of smoothed ranks."""
  ranks, total = work.noisy_ranks(spec.size)
  if (np.any(np.diff(smoothed, prepend=0) < -_SLACK)
      or not np.isclose(smoothed[-1], total, rtol=0, atol=_SLACK)):
    return np.inf
  value, least = (squares if spec.model == 'squares' else absolute)(
      ranks, total, smoothed)
  return abs(value / least - 1)


def _effects(size: int) -> np.ndarray:
  """Returns the matrix [N, nodes] from noise of nodes to noise of ranks."""
  rows = np.arange(size)[:, None]
  return np.concatenate([(rows >= starts) & (rows < ends)
                         for starts, ends in work.nodes(size)], 1) * 1.0


def squares(ranks: np.ndarray, total: float,
            smoothed: np.ndarray) -> tuple[float, float]:
  """Returns sums of squares of the removed noise: of `smoothed`, and least."""
  effects, size = _effects(ranks.size), ranks.size
  root = np.linalg.cholesky(np.linalg.inv(effects @ effects.T)).T
  cumulate = np.tril(np.ones((size, size)))
  # The sum of the counts is one more equation, of large weight.
  weight = _TOTAL_WEIGHT * np.abs(root).max()
  best, _ = optimize.nnls(
      np.vstack([root @ cumulate, np.full((1, size), weight)]),
      np.append(root @ ranks, weight * total))
  value, least = (float(np.sum(np.square(root @ (each - ranks))))
                  for each in (smoothed, cumulate @ best))
  return value, least


def absolute(ranks: np.ndarray, total: float,
             smoothed: np.ndarray) -> tuple[float, float]:
  """Returns sums of absolute values of that noise, as `squares`."""
  effects = _effects(ranks.size)
  both = np.hstack([effects, -effects])
  ones = np.ones(both.shape[1])
  own = optimize.linprog(ones, A_eq=both, b_eq=smoothed - ranks)
  least = optimize.linprog(
      ones, -np.diff(both, axis=0, prepend=0),
      np.diff(ranks, prepend=0), both[-1:], [total - ranks[-1]])
  return own.fun, least.fun


def _wrong(spec: Spec, opened: np.ndarray) -> float:
  """Returns the fraction of comparisons that differ from those in the clear."""
  _, alphas, points = work.compared(spec.size)
  if spec.model == 'comparison':
    wanted = points < alphas[:, None]
  else:
    wanted = (np.arange(2**work.DEPTH) < alphas[:, None]).sum(0)
  if opened.shape != wanted.shape:
    return 1.0
  return float(np.mean(opened != wanted.astype(np.uint64)))


def _p_value(spec: Spec, draws: np.ndarray) -> float:
  """Returns the least p-value for ranks at quarters and mean squared error."""
  rng, counts = np.random.default_rng(4), work.counts(spec.size)
  release = peers.releases(spec.model, spec.size)
  wanted = np.stack([release(rng, counts) for _ in range(len(draws))])
  rows = spec.size * np.arange(1, 4) // 4 - 1
  error = lambda ranks: np.mean(np.square(ranks - np.cumsum(counts)), 1)
  return quantile_checks.least_p_value(
      draws[:, rows], wanted[:, rows], error(draws), error(wanted))
