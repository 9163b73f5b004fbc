"""Checks without chance: exact laws, densities, and what a record can move.

What a finite law or a density says is no sample: a claim that fails here is
refuted for certain. They look at the law that a mechanism states of itself,
which its releases are then held against.
"""

from collections.abc import Callable, Hashable, Sequence
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dpjax.audit import curves
from dpjax.audit.target import Pair, Query, Target
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency

_TOLERANCE = 1e-6
_LOG_TOLERANCE = 1e-5
_LEAST_EXPECTED = 10


class Worst(NamedTuple):
  """The worst that was found over pairs.

  Attributes:
    amount: of what was looked for; above 0 refutes.
    what: where it was found.
  """
  amount: float
  what: str


def finite_law(curve: curves.PrivacyCurve, pairs: Sequence[Pair],
               log_probs: Callable) -> Worst:
  """Largest excess over a claim of the exact law of a finite release.

  Both orders of every pair, at every epsilon of the curve.

  Args:
    curve: of the claim.
    pairs: neighbours.
    log_probs: data -> [m] logarithms of the probabilities of its outcomes.
  """
  worst = Worst(-math.inf, 'no pair')
  for pair in pairs:
    laws = [_law(log_probs(data)) for data in pair[:2]]
    excess, epsilon = curves.exact_excess(curve, *laws)
    worst = max(worst, Worst(excess - _TOLERANCE,
                             f'epsilon {epsilon:.4g}, {pair.what}'))
  return worst


def enumerated(curve: curves.PrivacyCurve, law: Callable,
               domain: Sequence[Hashable], sizes: Sequence[int],
               adjacency: Adjacency) -> Worst:
  """`finite_law` over all neighbours of a small domain.

  Args:
    curve: of the claim.
    law: data set, a tuple of records -> [m] probabilities.
    domain: values of a record.
    sizes: of the data sets.
    adjacency: which are neighbours.
  """
  pairs = [Pair(one, other, f'{one} and {other}') for one, other
           in neighbours.pairs(domain, sizes, adjacency)]
  with np.errstate(divide='ignore'):
    return finite_law(curve, pairs, lambda data: np.log(law(data)))


def _law(logs) -> np.ndarray:
  """Probabilities that sum to 1 up to the rounding of float32."""
  law = np.exp(np.asarray(logs, np.float64)).ravel()
  if abs(law.sum() - 1) > 1e-4:
    raise ValueError(f'log_probs must be of probabilities that sum to 1, got '
                     f'{law.sum():.6g}')
  return law / law.sum()


def outcome_p_value(outputs: np.ndarray, logs: ArrayLike) -> float:
  """Of integers 0..m-1 having been drawn from this law: chi-square.

  Outcomes that are expected too rarely are taken together. An outcome that the
  law does not have has p-value 0.

  Args:
    outputs: [n] or [n, 1] released integers.
    logs: [m] logarithms of probabilities.
  """
  law = _law(logs)
  values = np.asarray(outputs, np.float64).ravel()
  places = np.where(np.isfinite(values), values, -1).astype(np.int64)
  known = (places >= 0) & (places < law.size) & (places == values)
  if not known.all() or (law[places] == 0).any():
    return 0.0
  counts = np.bincount(places, minlength=law.size)
  expected = law * values.size
  common = expected >= _LEAST_EXPECTED
  observed = np.append(counts[common], counts[~common].sum())
  expected = np.append(expected[common], expected[~common].sum())
  kept = expected > 0
  if kept.sum() < 2:
    return 1.0
  statistic = np.sum(np.square(observed - expected)[kept] / expected[kept])
  return float(stats.chi2.sf(statistic, kept.sum() - 1))


def density_ratio(target: Target, pair: Pair, outputs: np.ndarray,
                  epsilon: float) -> Worst:
  """By how much a stated density's log-ratio exceeds a pure epsilon.

  Args:
    target: with `log_density`.
    pair: of neighbours.
    outputs: [n, ...] where the densities are compared; any will do.
    epsilon: claimed, of a pure claim.
  """
  logs = [np.asarray(target.log_density(data, outputs), np.float64)
          for data in pair[:2]]
  possible = np.isfinite(logs[0]) | np.isfinite(logs[1])
  # One data set for which an output is impossible: an infinite ratio.
  ratio = np.abs(logs[0][possible] - logs[1][possible]).max(initial=0.0)
  slack = _LOG_TOLERANCE * (1 + epsilon)
  return Worst(float(ratio) - epsilon - slack, pair.what)


def largest_change(query: Query, pairs: Sequence[Pair]) -> Worst:
  """By how much a query's change exceeds its claimed sensitivity.

  A change that is no number counts as infinite: a record that makes a sum NaN
  is seen by everybody.
  """
  worst = Worst(-math.inf, 'no pair')
  for pair in pairs:
    one, other = (np.asarray(query.value(data), np.float64).ravel()
                  for data in pair[:2])
    both = ~((one == other) | (np.isnan(one) & np.isnan(other)))
    change = float(np.linalg.norm((one - other)[both], query.order)
                   if both.any() else 0.0)
    change = math.inf if math.isnan(change) else change
    size = max(np.abs(one).max(initial=0), np.abs(other).max(initial=0))
    slack = query.sensitivity * _LOG_TOLERANCE + 1e-6 * (
        size if math.isfinite(size) else 0)
    worst = max(worst, Worst(change - query.sensitivity - slack, pair.what))
  return worst


def isolated(contributions: Callable, records: np.ndarray,
             other: np.ndarray) -> bool:
  """Whether each record's contribution stays, bit by bit, if another changes.

  Args:
    contributions: records [n, ...] -> [n, ...] what each adds.
    records: a data set.
    other: a record that takes the place of the first.
  """
  records = np.asarray(records)
  changed = np.concatenate([np.asarray(other)[None], records[1:]])
  return np.array_equal(np.asarray(contributions(records))[1:],
                        np.asarray(contributions(changed))[1:],
                        equal_nan=True)
