"""Local differential privacy: each person's answer is randomised at the source.

Every person randomises one answer themselves, and all computations on the
answers are post-processing. A randomiser that is epsilon-LDP for all pairs of
values is epsilon-DP for data sets of n persons under REPLACE_ONE; not under
add-or-remove-one, since the number of answers is visible. Source: lecture notes
(chapter 7, Definitions 7.27 to 7.32 and Proposition 7.31; item LDP-01, LDP-06,
erratum L-E11).

Probabilities are multiples of 2^-32. They are realised exactly by comparing
random words, and rounded so that no ratio exceeds e^epsilon.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey

_WORDS = 2**32
_MAX_CATEGORIES = 2**16

# More than the float64 rounding error of products below 2^32, in words.
_SLACK = 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomizedResponse:
  """Each person reports their category, or at random one of all K.

  The answer is the true category with probability e^epsilon p, and each other
  category with p, p = 1 / (e^epsilon + K - 1). Guarantee: epsilon-LDP, so
  epsilon-DP under REPLACE_ONE. Source: lecture notes (chapter 7, Definition
  7.32 and Proposition 7.33; item LDP-05); with K = 2 the poll by coin flips
  (LDP-02).

  Attributes:
    num_categories: K, from 2 to 65536.
    epsilon: budget of one answer, in (0, 20].

  Examples:
    >>> from dpjax.privacy import keys
    >>> from dpjax.privacy.local import RandomizedResponse
    >>> poll = RandomizedResponse(num_categories=2, epsilon=1.0)
    >>> round(poll.truth_prob, 3)
    0.731
    >>> truths = jnp.minimum(jnp.arange(10000) % 4, 1)
    >>> key, = keys.system_keys(1)  # In fact each has a key of their own.
    >>> answers = poll.release(key, truths)
    >>> bool(abs(poll.frequencies(answers)[1] - 0.75) < 0.07)
    True
  """
  num_categories: int
  epsilon: float

  def __post_init__(self) -> None:
    errors.check_at_least('num_categories', self.num_categories, 2)
    if self.num_categories > _MAX_CATEGORIES:
      raise ValueError(f'num_categories must be at most {_MAX_CATEGORIES}, got '
                       f'{self.num_categories}')
    errors.check_positive('epsilon', self.epsilon)
    if self.epsilon > 20:
      raise ValueError(f'epsilon must be at most 20, got {self.epsilon}: '
                       'above, nearly all answers would be true')

  @property
  def adjacency(self) -> Adjacency:
    """Replace-one: one person's data changes."""
    return Adjacency.REPLACE_ONE

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one answer of each person."""
    return accounting.randomized_response_event(
        uniform_prob=self.num_categories * self.other_prob,
        num_categories=self.num_categories)

  @property
  def other_prob(self) -> float:
    """Probability of each category that is not the true one."""
    return 1 / (math.exp(self.epsilon) + self.num_categories - 1)

  @property
  def truth_prob(self) -> float:
    """Probability of the true category."""
    return math.exp(self.epsilon) * self.other_prob

  @property
  def matrix(self) -> np.ndarray:
    """[K, K] probabilities of answers (columns) given true categories (rows).
    """
    matrix = np.full((self.num_categories,) * 2, self.other_prob)
    np.fill_diagonal(matrix, self.truth_prob)
    return matrix

  @functools.cached_property
  def forced_words(self) -> int:
    """Number T of 2^32 words that force the truth, rounded towards privacy.

    Each category corresponds to at least floor(2^32 / K) words, so ratios of
    probabilities are at most 1 + T 2^32 / ((2^32 - T) floor(2^32 / K)).
    """
    least = _WORDS // self.num_categories
    odds = math.expm1(self.epsilon) * least / _WORDS
    return math.floor(_WORDS * odds / (1 + odds) - _SLACK)

  def release(self, key: PRNGKey, data: Array) -> Array:
    """Returns answers [n] int32 to true categories [n] from 0 to K - 1.

    Other integers are clipped to this range, so that no answer is possible for
    one person only.
    """
    # Independent words: whether the truth is forced, and the answer if not.
    forced, other = additive.random_words(key, (2, *data.shape))
    truths = jnp.clip(data.astype(jnp.int32), 0, self.num_categories - 1)
    # An answer that is not forced is uniform over all K categories.
    return jnp.where(forced < jnp.uint32(self.forced_words), truths,
                     _category(other, self.num_categories))

  def risk(self, num_values: int) -> None:
    """Returns None: answers are categories, see `variance`."""
    del num_values

  def frequencies(self, answers: Array) -> Array:
    """Returns unbiased estimates [K] of true frequencies; may leave [0, 1].

    Source: lecture notes (chapter 7, Example 7.34; item LDP-07).
    """
    counts = jnp.bincount(answers, length=self.num_categories)
    observed = counts.astype(jnp.float32) / answers.size
    return (observed - self.other_prob) / (self.truth_prob - self.other_prob)

  def variance(self, frequency: float, num_examples: int) -> float:
    """Returns the exact variance of one estimated frequency (LDP-07).

    The variance is conditional on the true categories. The bound of Example
    7.34 is twice as large at K = 5 and epsilon = 1.

    Args:
      frequency: true frequency of this category, in [0, 1].
      num_examples: n.
    """
    growth = math.expm1(self.epsilon)
    numerator = (self.num_categories - 1 + growth
                 + frequency * (self.num_categories - 2) * growth)
    return numerator / (num_examples * growth**2)

  def variance_printed(self, num_examples: int) -> float:
    """Returns the bound on `variance` of the lecture notes: valid, and looser.

    Source: lecture notes (chapter 7, Example 7.34).
    """
    p = self.other_prob
    return (1 - p) * math.exp(self.epsilon) / (
        num_examples * p * math.expm1(self.epsilon)**2)


def _category(word: Array, num_categories: int) -> Array:
  """Returns floor(word K / 2^32), int32, without numbers above 2^32."""
  # Long multiplication in two halves of 16 bits.
  high = jax.lax.shift_right_logical(word, jnp.uint32(16))
  low = word & jnp.uint32(0xffff)
  count = jnp.uint32(num_categories)
  carried = jax.lax.shift_right_logical(low * count, jnp.uint32(16))
  # At most 65535 * 65536 + 65535: no overflow.
  return jax.lax.shift_right_logical(high * count + carried,
                                     jnp.uint32(16)).astype(jnp.int32)


def truth_prob_of_epsilon(epsilon: float) -> float:
  """Returns the truth probability of an epsilon-LDP binary poll (EST-03)."""
  return 1 / (1 + math.exp(-errors.check_non_negative('epsilon', epsilon)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnaryEncoding:
  """Each person sends K randomised bits, one for each category.

  The bit of the true category is 1 with probability p, each other bit with q.
  Guarantee: epsilon-LDP for ln(p (1 - q) / (q (1 - p))) <= epsilon, so
  epsilon-DP under REPLACE_ONE. Symmetric: p = 1 - q = expit(epsilon / 2), the
  basic RAPPOR of Erlingsson et al. (2014). Optimised: p = 1/2, q = 1 /
  (e^epsilon + 1) of Wang et al. (2017), which has the least variance for rare
  categories. This variance does not grow with K, so it is below that of
  `RandomizedResponse` once K > 3 e^epsilon + 2.

  Attributes:
    num_categories: K, at least 2.
    epsilon: budget of all bits of one person, in (0, 20].
    symmetric: True for the symmetric, False for the optimised probabilities.
  """
  num_categories: int
  epsilon: float
  symmetric: bool = False

  def __post_init__(self) -> None:
    errors.check_at_least('num_categories', self.num_categories, 2)
    errors.check_positive('epsilon', self.epsilon)
    if self.epsilon > 20:
      raise ValueError(f'epsilon must be at most 20, got {self.epsilon}')

  @property
  def adjacency(self) -> Adjacency:
    """Replace-one: one person's data changes."""
    return Adjacency.REPLACE_ONE

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of all persons' bits."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  def threshold_words(self) -> tuple[int, int]:
    """Numbers of 2^32 words that set the bit of the truth, and other bits."""
    # Rounded towards privacy: p down, q up.
    if self.symmetric:
      # p and 1 - q are one number of words.
      own = math.floor(_WORDS * truth_prob_of_epsilon(self.epsilon / 2)
                       - _SLACK)
      return own, _WORDS - own
    return _WORDS // 2, math.ceil(
        _WORDS / (math.exp(self.epsilon) + 1) + _SLACK)

  @property
  def probs(self) -> tuple[float, float]:
    """Probabilities (p, q) as realised."""
    own, other = self.threshold_words
    return own / _WORDS, other / _WORDS

  def release(self, key: PRNGKey, data: Array) -> Array:
    """Returns bits [n, K] bool of true categories [n] from 0 to K - 1."""
    own, other = map(jnp.uint32, self.threshold_words)
    words = additive.random_words(key, (*data.shape, self.num_categories))
    is_own = data[:, None] == jnp.arange(self.num_categories)[None]
    return words < jnp.where(is_own, own, other)

  def risk(self, num_values: int) -> None:
    """Returns None: answers are bits, see `variance`."""
    del num_values

  def frequencies(self, bits: Array) -> Array:
    """Returns unbiased estimates [K] of true frequencies; may leave [0, 1]."""
    p, q = self.probs
    return (jnp.mean(bits.astype(jnp.float32), 0) - q) / (p - q)

  def variance(self, frequency: float, num_examples: int) -> float:
    """Returns the exact variance of one estimated frequency.

    The variance is conditional on the true categories.

    Args:
      frequency: true frequency of this category, in [0, 1].
      num_examples: n.
    """
    p, q = self.probs
    bit_variance = frequency * p * (1 - p) + (1 - frequency) * q * (1 - q)
    return bit_variance / (num_examples * (p - q)**2)
