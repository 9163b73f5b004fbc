"""Whether what is timed is right: least objectives, laws, opened comparisons.

Smoothing is compared with the same program written densely, by the definition
of noise of nodes, and solved apart; releases with draws of those in NumPy;
comparisons with numbers in the clear.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from experiments.benchmarks import curve_peers as peers
from experiments.benchmarks import curve_work as work
from experiments.benchmarks import quantile_checks
from experiments.benchmarks.program import Spec

_MOST_OFF = 1e-3
_SLACK = 0.02
"""Records that a solver may be off what ranks have to keep."""

_TOTAL_WEIGHT = 1e5


class Finding(NamedTuple):
  """What a check saw.

  Attributes:
    off: of an objective, over the least one; of comparisons, the fraction that
      is wrong. inf for ranks that are not monotone or end wrong, NaN for
      releases.
    least_p_value: of `quantile_checks.least_p_value` of releases; or NaN.
    passed: whether it is as it should be.
  """
  off: float
  least_p_value: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """As it is printed."""
    return tuple('-' if np.isnan(value) else f'{value:.1e}'
                 for value in self[:2])


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """What is checked."""
  return Spec(suite='curves', model=model, size=size, method=method)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares what a program found, or drew.

  Args:
    spec: of the program.
    audit: 'found', ranks [N] or opened numbers; of releases 'draws' [R, N].
  """
  if spec.model.startswith('release'):
    least = _p_value(spec, audit['draws'])
    return Finding(np.nan, least, least >= quantile_checks.ERROR_RATE)
  smoothed = spec.model in ('squares', 'absolute')
  off = (_excess if smoothed else _wrong)(spec, audit['found'])
  return Finding(off, np.nan, off <= (_MOST_OFF if smoothed else 0))


def _excess(spec: Spec, found: np.ndarray) -> float:
  """|objective / least objective - 1| of ranks."""
  ranks, total = work.noisy_ranks(spec.size)
  if (np.any(np.diff(found, prepend=0) < -_SLACK)
      or not np.isclose(found[-1], total, rtol=0, atol=_SLACK)):
    return np.inf
  value, least = (squares if spec.model == 'squares' else absolute)(
      ranks, total, found)
  return abs(value / least - 1)


def _effects(size: int) -> np.ndarray:
  """Z [N, nodes], from the rows of each node."""
  rows = np.arange(size)[:, None]
  return np.concatenate([(rows >= starts) & (rows < ends)
                         for starts, ends in work.nodes(size)], 1) * 1.0


def squares(ranks: np.ndarray, total: float,
            found: np.ndarray) -> tuple[float, float]:
  """Sums of squares of the noise that is taken off: for `found`, the least."""
  effects, size = _effects(ranks.size), ranks.size
  root = np.linalg.cholesky(np.linalg.inv(effects @ effects.T)).T
  cumulate = np.tril(np.ones((size, size)))
  # The sum of counts as one more equation, of much weight.
  weight = _TOTAL_WEIGHT * np.abs(root).max()
  best, _ = optimize.nnls(
      np.vstack([root @ cumulate, np.full((1, size), weight)]),
      np.append(root @ ranks, weight * total))
  return tuple(float(np.sum(np.square(root @ (each - ranks))))
               for each in (found, cumulate @ best))


def absolute(ranks: np.ndarray, total: float,
             found: np.ndarray) -> tuple[float, float]:
  """Sums of absolute values of that noise: for `found`, and the least."""
  effects = _effects(ranks.size)
  both = np.hstack([effects, -effects])
  ones = np.ones(both.shape[1])
  of_found = optimize.linprog(ones, A_eq=both, b_eq=found - ranks)
  least = optimize.linprog(
      ones, -np.diff(both, axis=0, prepend=0),
      np.diff(ranks, prepend=0), both[-1:], [total - ranks[-1]])
  return of_found.fun, least.fun


def _wrong(spec: Spec, opened: np.ndarray) -> float:
  """Fraction of comparisons that are not those of numbers in the clear."""
  _, alphas, points = work.compared(spec.size)
  if spec.model == 'comparison':
    wanted = points < alphas[:, None]
  else:
    wanted = (np.arange(2**work.DEPTH) < alphas[:, None]).sum(0)
  if opened.shape != wanted.shape:
    return 1.0
  return float(np.mean(opened != wanted.astype(np.uint64)))


def _p_value(spec: Spec, draws: np.ndarray) -> float:
  """Of ranks at quarters, and of the mean squared error of all."""
  rng, counts = np.random.default_rng(4), work.counts(spec.size)
  release = peers.releases(spec.model, spec.size)
  wanted = np.stack([release(rng, counts) for _ in range(len(draws))])
  rows = spec.size * np.arange(1, 4) // 4 - 1
  error = lambda ranks: np.mean(np.square(ranks - np.cumsum(counts)), 1)
  return quantile_checks.least_p_value(
      draws[:, rows], wanted[:, rows], error(draws), error(wanted))
