"""Private selection of one of m public candidates, by noisy scores.

Floating point: the release is the index of a candidate, so no low-order bits
leak the scores. What remains is the float32 rounding of scores and noise.
"""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from scipy import special

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import draws
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.typing import Array, PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Selection:
  """Scores and their rate, shared by the mechanisms of this module.

  Attributes:
    sensitivity: largest change of any score between neighbouring data sets;
      callers enforce it, for the scores as computed.
    epsilon: budget of one release, positive.
    adjacency: neighbouring relation of the guarantee.
    monotone: True if adding a record never lowers a score, or never raises one,
      as for counts. This halves the noise. Only for add-or-remove-one: a
      replacement changes scores in both directions.
  """
  sensitivity: float
  epsilon: float
  adjacency: Adjacency
  monotone: bool = False

  def __post_init__(self) -> None:
    errors.check_scale('sensitivity', self.sensitivity)
    errors.check_positive('epsilon', self.epsilon)
    check_adjacency(self.adjacency)
    if self.monotone and self.adjacency is not Adjacency.ADD_OR_REMOVE_ONE:
      raise ValueError('monotone scores need adjacency add_or_remove_one, got '
                       f'{self.adjacency.value}')

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  def rate(self) -> float:
    """Increase of the log-weight per unit of the score."""
    # Without monotonicity a record may raise one score and lower all others.
    return self.epsilon / (self.sensitivity * (1 if self.monotone else 2))

  def log_weights(self, scores: Array) -> Array:
    """Returns the logarithms of the weights [m], 0 for the best candidate.

    Args:
      scores: [m] float32. A score that is not finite is never chosen, so
        whether a score is finite must not depend on the data.
    """
    finite = jnp.isfinite(scores)
    # Relative to the best score, float32 is most precise where the
    # probabilities are largest.
    best = jnp.max(jnp.where(finite, scores, -jnp.inf))
    weights = (scores - best) * self.rate
    return jnp.where(finite, weights, -jnp.inf)

  def gap_bound(self, num_candidates: int, *, failure_prob: float,
                num_best: int = 1) -> float:
    """Returns a bound on best score minus chosen score, with high probability.

    ln(m / (failure_prob num_best)) / rate. Source: Lalanne (2023, Fact 2.3.10);
    lecture notes (chapter 7, Proposition 7.26; item MECH-05).

    Args:
      num_candidates: m.
      failure_prob: probability that the bound fails, in (0, 1).
      num_best: number of candidates with the best score.
    """
    errors.check_at_least('num_best', num_best, 1)
    errors.check_at_least('num_candidates', num_candidates, num_best)
    errors.check_open_unit('failure_prob', failure_prob)
    return math.log(num_candidates / (failure_prob * num_best)) / self.rate

  def risk(self, num_values: int) -> None:
    """Returns None: the release is an index, without squared error."""
    del num_values


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(_Selection):
  """Releases the index of a candidate, more likely the higher its score.

  Candidate o has probability proportional to exp(epsilon s(o) / (2
  sensitivity)), without the 2 for monotone scores. Guarantee: epsilon-DP under
  `adjacency`. Source: McSherry and Talwar (2007); Barczewski (2025, Algorithm
  4; item DP-12, DP-09, MECH-05), whose Definition 3.1.10 must take the maximum
  over neighbouring data sets. Theorem 3.1.9 there allows an epsilon of 0, which
  would ignore the data and is rejected here (erratum E23).

  Examples:
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.privacy.selection import ExponentialMechanism
    >>> votes = jnp.array([30.0, 50.0, 20.0])
    >>> pick = ExponentialMechanism(sensitivity=1.0, epsilon=0.2, monotone=True,
    ...                             adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    >>> np.exp(pick.log_probs(votes)).round(3)
    array([0.018, 0.98 , 0.002])
    >>> # Reproducible: for research, not for a release.
    >>> int(pick.release(jax.random.key(0), votes))
    1
  """

  @property
  def zcdp_event(self) -> accounting.DpEvent:
    """Privacy cost of one release for composing many; for 'rdp'.

    The log-ratios of one pair of data sets lie in an interval of length
    epsilon, not 2 epsilon. This gives at most epsilon^2 / 8 of zCDP, a quarter
    of what epsilon alone implies. A single release costs less by `event`.
    Source: Dong, Durfee and Rogers (2020; item MECH-05).
    """
    spent = notions.zcdp_from_mechanism(
        notions.PureDP(epsilon=self.epsilon), 'exponential')
    return accounting.concentrated_event(rho=spent.rho,
                                         adjacency=self.adjacency)

  def log_probs(self, data: Array) -> np.ndarray:
    """Returns the log-probabilities [m], float64; `data` are the scores."""
    weights = np.asarray(self.log_weights(data), np.float64)
    return weights - np.logaddexp.reduce(weights)

  def release(self, key: PRNGKey, data: Array) -> Array:
    """Returns the index of the chosen candidate, int32.

    Adds Gumbel noise and takes the maximum. Candidates more than 45 below the
    best in log-weight cannot be drawn; they have probability 3e-20 each.

    Args:
      key: fresh for this call.
      data: scores [m], float32.
    """
    noise = draws.standard_gumbel(key, data.shape)
    return draws.place_of_largest(self.log_weights(data) + noise)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PermuteAndFlip(_Selection):
  """Releases a candidate's index; never worse than the exponential mechanism.

  Its expected score is at least that of `ExponentialMechanism`. Candidates are
  visited in random order, and each is accepted with probability
  exp(rate (s(o) - best)). Computed as report-noisy-max with exponential noise,
  which has the same distribution. Guarantee: epsilon-DP under `adjacency`; no
  bounded range is claimed. Sources: McKenna and Sheldon (2020); Ding et al.
  (2021; item MECH-06).
  """

  def log_probs(self, data: Array) -> np.ndarray:
    """Returns the log-probabilities [m], float64; `data` are the scores.

    With independent random times in [0, 1] as the order, candidate o of weight
    w is accepted first with probability w_o times the integral of prod_(j != o)
    (1 - w_j t). This is a polynomial, for which m / 2 Gauss-Legendre nodes are
    exact.
    """
    logs = np.asarray(self.log_weights(data), np.float64)
    nodes, weights = special.roots_legendre((logs.size + 1) // 2)
    missed = np.log1p(-np.exp(logs)[:, None] * (nodes[None] + 1) / 2)
    # The sum over all candidates minus one's own term: the product over j != o.
    log_integrals = special.logsumexp(
        missed.sum(0)[None] - missed, b=weights[None] / 2, axis=1)
    return logs + log_integrals

  def release(self, key: PRNGKey, data: Array) -> Array:
    """Returns the index of the chosen candidate, int32.

    Adds exponential noise and takes the maximum (report-noisy-max). Candidates
    more than 45 below the best in log-weight cannot be drawn.

    Args:
      key: fresh for this call.
      data: scores [m], float32.
    """
    noise = draws.standard_exponential(key, data.shape)
    return draws.place_of_largest(self.log_weights(data) + noise)
