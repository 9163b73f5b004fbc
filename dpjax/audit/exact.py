"""Deterministic checks: exact distributions, densities and sensitivities.

These checks use the distribution or density that a mechanism declares, not
samples, so a claim that fails here is refuted with certainty. Other checks test
whether the mechanism's releases follow the declared distribution.
"""

from collections.abc import Callable, Hashable, Sequence
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dpjax.audit import curves
from dpjax.audit.target import Pair
from dpjax.audit.target import Query
from dpjax.audit.target import Target
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import PyTree

_TOLERANCE = 1e-6
# Allowance for float32 rounding of logarithms and sums.
_LOG_TOLERANCE = 1e-5
# The chi-square test pools outcomes with a smaller expected count.
_LEAST_EXPECTED = 10


class Worst(NamedTuple):
  """The largest excess over a claim, among all pairs of neighbours.

  Attributes:
    amount: the excess; a value above 0 refutes the claim.
    what: description of the pair that attains it.
  """
  amount: float
  what: str


def finite_distributions(curve: curves.PrivacyCurve, pairs: Sequence[Pair],
                         log_probs: Callable[[PyTree], ArrayLike]) -> Worst:
  """Returns the largest excess over a claim, by exact finite distributions.

  It compares both orders of every pair, at every epsilon of the curve.
  `log_probs(data)` returns the logarithms [m] of the probabilities of all
  outcomes.
  """
  worst = Worst(-math.inf, 'no pair')
  for pair in pairs:
    distributions = [_probabilities(log_probs(data)) for data in pair[:2]]
    excess, epsilon = curves.exact_excess(curve, *distributions)
    worst = max(worst, Worst(excess - _TOLERANCE,
                             f'epsilon {epsilon:.4g}, {pair.what}'))
  return worst


def enumerated(curve: curves.PrivacyCurve,
               distribution: Callable[[tuple[Any, ...]], np.ndarray],
               domain: Sequence[Hashable], sizes: Sequence[int],
               adjacency: Adjacency) -> Worst:
  """Applies `finite_distributions` to all neighbours over a small domain.

  `distribution` maps a tuple of records to the probabilities [m] of all
  outcomes. `domain` has all values of a record, `sizes` those of data sets.
  """
  pairs = [Pair(one, other, f'{one} and {other}') for one, other
           in neighbours.pairs(domain, sizes, adjacency)]
  with np.errstate(divide='ignore'):  # ln 0 marks impossible outcomes.
    return finite_distributions(curve, pairs,
                                lambda data: np.log(distribution(data)))


def _probabilities(logs: ArrayLike) -> np.ndarray:
  """Returns normalised probabilities; their sum may be off by rounding."""
  probs = np.exp(np.asarray(logs, np.float64)).ravel()
  if abs(probs.sum() - 1) > 1e-4:
    raise ValueError(f'log_probs must be of probabilities that sum to 1, got '
                     f'{probs.sum():.6g}')
  return probs / probs.sum()


def outcome_p_value(outputs: np.ndarray, logs: ArrayLike) -> float:
  """Returns the chi-square p-value of released integers 0..m-1.

  The hypothesis is that they are drawn with the declared probabilities.
  Outcomes with a small expected count are pooled. An outcome of probability 0
  gives p-value 0.

  Args:
    outputs: [n] or [n, 1] released integers.
    logs: [m] logarithms of the declared probabilities.
  """
  probs = _probabilities(logs)
  values = np.asarray(outputs, np.float64).ravel()
  # Casts of NaN and infinity are undefined, so they become the invalid -1.
  places = np.where(np.isfinite(values), values, -1).astype(np.int64)
  valid = (places >= 0) & (places < probs.size) & (places == values)
  # Validity is checked first, as other places must not index `probs`.
  if not valid.all() or (probs[places] == 0).any():
    return 0.0
  counts = np.bincount(places, minlength=probs.size)
  expected = probs * values.size
  common = expected >= _LEAST_EXPECTED
  observed = np.append(counts[common], counts[~common].sum())
  expected = np.append(expected[common], expected[~common].sum())
  possible = expected > 0
  # One class of outcomes has probability 1 and leaves nothing to test.
  if possible.sum() < 2:
    return 1.0
  statistic = np.sum(
      np.square(observed - expected)[possible] / expected[possible])
  return float(stats.chi2.sf(statistic, possible.sum() - 1))


def density_ratio(target: Target, pair: Pair, outputs: np.ndarray,
                  epsilon: float) -> Worst:
  """Returns the largest excess of a log-ratio of declared densities.

  That is over epsilon; the claimed delta is 0. Densities are compared at the
  `outputs` [n, ...], where any points give a valid check.
  """
  if target.log_density is None:
    raise ValueError(f'{target.name} declares no log_density')
  logs = [np.asarray(target.log_density(data, outputs), np.float64)
          for data in pair[:2]]
  possible = np.isfinite(logs[0]) | np.isfinite(logs[1])
  # An output that is possible for one data set only gives an infinite ratio.
  ratio = np.abs(logs[0][possible] - logs[1][possible]).max(initial=0.0)
  slack = _LOG_TOLERANCE * (1 + epsilon)
  return Worst(float(ratio) - epsilon - slack, pair.what)


def largest_change(query: Query, pairs: Sequence[Pair]) -> Worst:
  """Returns by how much a query's change exceeds its claimed sensitivity.

  A change of NaN counts as infinite, because a record that makes a sum NaN is
  visible in every release.
  """
  worst = Worst(-math.inf, 'no pair')
  for pair in pairs:
    one, other = (np.asarray(query.value(data), np.float64).ravel()
                  for data in pair[:2])
    # Coordinates that differ. Equal infinities would subtract to NaN.
    differ = ~((one == other) | (np.isnan(one) & np.isnan(other)))
    change = float(np.linalg.norm((one - other)[differ], query.order)
                   if differ.any() else 0.0)
    change = math.inf if math.isnan(change) else change
    # float32 sums are off by about their size times 1e-7 for each addition.
    size = max(np.abs(one).max(initial=0), np.abs(other).max(initial=0))
    slack = query.sensitivity * _LOG_TOLERANCE + 1e-6 * (
        size if math.isfinite(size) else 0)
    worst = max(worst, Worst(change - query.sensitivity - slack, pair.what))
  return worst


def isolated(contributions: Callable[[np.ndarray], ArrayLike],
             records: np.ndarray, other: np.ndarray) -> bool:
  """Returns whether a record's contribution ignores the other records.

  It replaces the first record and compares all other contributions bit by bit.

  Args:
    contributions: function of records [n, ...] that returns their
      contributions [n, ...].
    records: a data set, [n, ...].
    other: the record that replaces the first.
  """
  records = np.asarray(records)
  changed = np.concatenate([np.asarray(other)[None], records[1:]])
  return np.array_equal(np.asarray(contributions(records))[1:],
                        np.asarray(contributions(changed))[1:],
                        equal_nan=True)
