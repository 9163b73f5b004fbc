"""Randomised responses of the lecture notes, and the epsilon of any channel.

The library has `local.RandomizedResponse`. Items LDP-01 to LDP-04, EST-03.
"""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from dpjax.typing import Array, PRNGKey

_WORDS = 2**32


def epsilon_of_matrix(matrix: np.ndarray) -> float:
  """Returns the least epsilon for which a randomiser is epsilon-LDP (LDP-01).

  Args:
    matrix: [inputs, outputs] probabilities, rows that sum to 1.

  Returns:
    The largest log-ratio over outputs and pairs of inputs; infinite if an
    output is possible for one input and impossible for another.
  """
  matrix = np.asarray(matrix, np.float64)
  if matrix.ndim != 2 or (matrix < 0).any() or not np.allclose(
      matrix.sum(1), 1, rtol=0, atol=1e-9):
    raise ValueError('matrix must have rows of probabilities that sum to 1')
  most, least = matrix.max(0), matrix.min(0)
  possible = most > 0  # An impossible output distinguishes nothing.
  if (least[possible] == 0).any():
    return math.inf
  return float(np.log(most[possible] / least[possible]).max())


def epsilon_of_truth_prob(truth_prob: float) -> float:
  """Returns |ln(phi / (1 - phi))|, the epsilon of a poll true with prob. phi.

  It is 0 at phi = 1/2, where answers carry no information, and infinite at 0
  and 1, which are equally non-private. Source: lecture notes (chapter 7,
  Exercise 7.30; item LDP-02, EST-03, erratum L-E01: privacy is monotone in
  |phi - 1/2|, not in phi).
  """
  if not 0 <= truth_prob <= 1:
    raise ValueError(f'truth_prob must lie in [0, 1], got {truth_prob}')
  if truth_prob in (0, 1):
    return math.inf
  return abs(math.log(truth_prob / (1 - truth_prob)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForcedYes:
  """A poll in which some people must say yes; a no is always true.

  Z = max(X, Y) with Y Bernoulli: two heads of a coin (lecture notes, chapter 7,
  footnote 2; LDP-03), or one of two questions (the drowning poll, LDP-04). No
  epsilon holds: a no reveals that X = 0. The guarantee is (0, 1 - yes_prob)-DP
  under REPLACE_ONE and no more; for a yes alone the log-ratio is at most ln(1 /
  yes_prob).

  It has no event and is no `Mechanism`: accountants do not cover it.

  Attributes:
    yes_prob: probability of a forced yes, in (0, 1 - 2^-32].
  """
  yes_prob: float

  def __post_init__(self) -> None:
    errors.check_open_unit('yes_prob', self.yes_prob)
    if self.forced_words == _WORDS:
      raise ValueError('yes_prob must be at most 1 - 2^-32, got '
                       f'{self.yes_prob}')

  @property
  def adjacency(self) -> Adjacency:
    """Returns REPLACE_ONE, because one person's data changes."""
    return Adjacency.REPLACE_ONE

  @property
  def guarantee(self) -> ApproxDP:
    """Returns (0, 1 - yes_prob), whose delta is attained at every epsilon."""
    return ApproxDP(epsilon=0.0, delta=1 - self.yes_prob)

  @property
  def forced_words(self) -> int:
    """Returns how many of 2^32 words force a yes, rounded for privacy."""
    return math.ceil(self.yes_prob * _WORDS)

  @property
  def epsilon_of_yes(self) -> float:
    """Returns the largest log-ratio for people who say yes."""
    return -math.log(self.yes_prob)

  @property
  def matrix(self) -> np.ndarray:
    """Returns P(answer | truth), [truth, answer], with no before yes."""
    return np.array([[1 - self.yes_prob, self.yes_prob], [0.0, 1.0]])

  def release(self, key: PRNGKey, data: Array) -> Array:
    """Returns answers [n] int32 of 0 and 1 to truths [n]; non-zero means yes.
    """
    words = additive.random_words(key, data.shape)
    forced = words < jnp.uint32(self.forced_words)
    return (forced | (data != 0)).astype(jnp.int32)
