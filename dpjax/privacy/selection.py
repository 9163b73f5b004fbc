"""The exponential mechanism: one of m public candidates, by noisy scores."""

import dataclasses

import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialMechanism:
  """Releases the number of a candidate, more likely the higher its score.

  Candidate o has probability proportional to exp(epsilon s(o) / (2
  sensitivity)). Guarantee: epsilon-DP under `adjacency`. Source: McSherry and
  Talwar 2007 (thesis 003, Algorithm 4; its Definition 3.1.10 must take the
  maximum over adjacent pairs; spec DP-12, DP-09). An epsilon of 0 (Theorem
  3.1.9) would ignore the data and is refused (erratum E23).

  Attributes:
    sensitivity: largest change of any score between neighbours; callers
      enforce it, for the scores as computed.
    epsilon: of one release, positive.
    adjacency: which data sets are neighbours.
  """
  sensitivity: float
  epsilon: float
  adjacency: Adjacency

  def __post_init__(self):
    errors.check_positive('sensitivity', self.sensitivity)
    errors.check_positive('epsilon', self.epsilon)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  def log_weights(self, scores: Array) -> Array:
    """Logarithms of the weights [m], 0 for the best candidate.

    Args:
      scores: [m] float32. A score that is not finite is never chosen, so
        whether it is finite must not depend on the data.
    """
    finite = jnp.isfinite(scores)
    # From the best score down float32 is exact where it matters.
    best = jnp.max(jnp.where(finite, scores, -jnp.inf))
    weights = (scores - best) * (self.epsilon / (2 * self.sensitivity))
    return jnp.where(finite, weights, -jnp.inf)

  def release(self, key: PRNGKey, data: Array) -> Array:
    """The number of the chosen candidate, int32; `data` are the scores [m].

    By adding Gumbel noise and taking the maximum. Candidates below the best by
    45 in log-weight cannot be drawn: of probability 3e-20 each.
    """
    noise = draws.standard_gumbel(key, data.shape)
    return jnp.argmax(self.log_weights(data) + noise).astype(jnp.int32)

  def risk(self, num_values: int) -> None:
    """No squared error: the release is no number."""
    del num_values
