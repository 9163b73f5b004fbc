"""One of m public candidates, by noisy scores.

Floating point: candidates are told by their number, so no bits betray the
scores; what is left is the float32 rounding of scores and noise.
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
  """What the mechanisms here share: scores, and the rate they count at.

  Attributes:
    sensitivity: largest change of any score between neighbours; callers
      enforce it, for the scores as computed.
    epsilon: of one release, positive.
    adjacency: which data sets are neighbours.
    monotone: whether a record that is added moves no score down, or none up,
      as counts do. Then noise is halved. Of add-or-remove-one only: a
      replacement moves scores both ways.
  """
  sensitivity: float
  epsilon: float
  adjacency: Adjacency
  monotone: bool = False

  def __post_init__(self):
    errors.check_scale('sensitivity', self.sensitivity)
    errors.check_positive('epsilon', self.epsilon)
    check_adjacency(self.adjacency)
    if self.monotone and self.adjacency is not Adjacency.ADD_OR_REMOVE_ONE:
      raise ValueError('monotone scores are of add_or_remove_one, got '
                       f'{self.adjacency.value}')

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  def rate(self) -> float:
    """Log-weight of a unit of the score."""
    return self.epsilon / (self.sensitivity * (1 if self.monotone else 2))

  def log_weights(self, scores: Array) -> Array:
    """Logarithms of the weights [m], 0 for the best candidate.

    Args:
      scores: [m] float32. A score that is not finite is never chosen, so
        whether it is finite must not depend on the data.
    """
    finite = jnp.isfinite(scores)
    # From the best score down float32 is exact where it matters.
    best = jnp.max(jnp.where(finite, scores, -jnp.inf))
    weights = (scores - best) * self.rate
    return jnp.where(finite, weights, -jnp.inf)

  def gap_bound(self, num_candidates: int, *, failure_prob: float,
                num_best: int = 1) -> float:
    """How far below the best score the release is at most, but for bad luck.

    ln(m / (failure_prob num_best)) / rate. Source: thesis 000, Fact 2.3.10;
    lecture 002, Proposition 7.26 (item MECH-05).

    Args:
      num_candidates: m.
      failure_prob: in (0, 1).
      num_best: how many candidates have the best score.
    """
    errors.check_at_least('num_best', num_best, 1)
    errors.check_at_least('num_candidates', num_candidates, num_best)
    errors.check_open_unit('failure_prob', failure_prob)
    return math.log(num_candidates / (failure_prob * num_best)) / self.rate

  def risk(self, num_values: int) -> None:
    """No squared error: the release is no number."""
    del num_values


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(_Selection):
  """Releases the number of a candidate, more likely the higher its score.

  Candidate o has probability proportional to exp(epsilon s(o) / (2
  sensitivity)), without the 2 for monotone scores. Guarantee: epsilon-DP under
  `adjacency`. Source: McSherry and Talwar 2007 (thesis 003, Algorithm 4; its
  Definition 3.1.10 must take the maximum over adjacent pairs; item DP-12,
  DP-09, MECH-05). An epsilon of 0 (Theorem 3.1.9) would ignore the data and is
  refused (erratum E23).

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
    """What one release costs where many are composed; for 'rdp'.

    Log-ratios of one pair of data sets lie in an interval of length epsilon,
    not 2 epsilon: at most epsilon^2 / 8 of zCDP, a quarter of what epsilon
    alone says. One release alone costs less by `event`. Source: Dong, Durfee
    and Rogers 2020 (item MECH-05).
    """
    spent = notions.zcdp_from_mechanism(
        notions.PureDP(epsilon=self.epsilon), 'exponential')
    return accounting.concentrated_event(rho=spent.rho,
                                         adjacency=self.adjacency)

  def log_probs(self, data: Array) -> np.ndarray:
    """Logarithms of the probabilities [m], float64; `data` are the scores."""
    weights = np.asarray(self.log_weights(data), np.float64)
    return weights - np.logaddexp.reduce(weights)

  def release(self, key: PRNGKey, data: Array) -> Array:
    """The number of the chosen candidate, int32; `data` are the scores [m].

    By adding Gumbel noise and taking the maximum. Candidates below the best by
    45 in log-weight cannot be drawn: of probability 3e-20 each.
    """
    noise = draws.standard_gumbel(key, data.shape)
    return draws.place_of_largest(self.log_weights(data) + noise)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PermuteAndFlip(_Selection):
  """The same, with a score that is never worse on average.

  Candidates are asked in random order and each accepts with probability exp(
  rate (s(o) - best)). Told as report-noisy-max with exponential noise, which
  has the same law. Guarantee: epsilon-DP under `adjacency`; of bounded range
  nothing is claimed. Sources: McKenna and Sheldon 2020; Ding et al. 2021 (item
  MECH-06).
  """

  def log_probs(self, data: Array) -> np.ndarray:
    """Logarithms of the probabilities [m], float64; `data` are the scores.

    With random times in [0, 1] for an order, candidate o of weight w accepts
    first with probability w_o times the integral of prod_(j != o) (1 - w_j t):
    a polynomial, for which m / 2 nodes of Gauss and Legendre are exact.
    """
    logs = np.asarray(self.log_weights(data), np.float64)
    nodes, weights = special.roots_legendre((logs.size + 1) // 2)
    missed = np.log1p(-np.exp(logs)[:, None] * (nodes[None] + 1) / 2)
    log_integrals = special.logsumexp(
        missed.sum(0)[None] - missed, b=weights[None] / 2, axis=1)
    return logs + log_integrals

  def release(self, key: PRNGKey, data: Array) -> Array:
    """The number of the chosen candidate, int32; `data` are the scores [m].

    By adding exponential noise and taking the maximum, as report-noisy-max.
    Candidates below the best by 45 in log-weight cannot be drawn.
    """
    noise = draws.standard_exponential(key, data.shape)
    return draws.place_of_largest(self.log_weights(data) + noise)
