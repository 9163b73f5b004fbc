"""Chooses private quantiles from among public candidates.

Use these where few answers make sense and all are known (ratings, ages,
prices). The choice needs no bounds on gaps, and atoms of the distribution do no
harm: the cost of a candidate is that of a window of radius 0, so an atom under
the quantile costs 0. Source: item QB-04; McKenna and Sheldon 2020.
"""

from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import draws
from dpjax.stats.quantile_methods import choice
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey
from experiments.methods.statistics import window_quantiles as window

RULES = ('exponential', 'permute_and_flip')


class GridParameters(NamedTuple):
  """Arrays of m choices from candidates.

  Attributes:
    probs: [m] quantile levels.
    rates: [m] rates of the cost.
    candidates: [k] candidates, increasing.
  """
  probs: np.ndarray
  rates: np.ndarray
  candidates: np.ndarray


def log_weights(data: Records, prob: Array, rate: Array,
                candidates: Array) -> Array:
  """Returns -rate times the cost of each candidate [k], exact if n < 10^16."""
  # Records equal to a candidate may count as below it or not: a window of
  # radius 0.
  below, up_to = (jnp.searchsorted(data.ordered, candidates, side=side)
                  for side in ('left', 'right'))
  target = quantile_levels.target(prob, data.count, 'real')
  return -rate * window.cost(jnp.minimum(below, data.count),
                             jnp.minimum(up_to, data.count), target)


def _draw(rule: str) -> mechanism.Draw:
  """Returns the sampler of one rule."""
  def draw(key: PRNGKey, data: Records, parameters: GridParameters) -> Array:
    candidates = jnp.asarray(parameters.candidates)

    def choose_one(level: tuple[PRNGKey, Array, Array]) -> Array:
      key, prob, rate = level
      weights = log_weights(data, prob, rate, candidates)
      if rule == 'exponential':
        return candidates[choice.choose(key, weights)]
      # Exponential noise and the maximum: permute-and-flip in one pass.
      noise = draws.standard_exponential(key, weights.shape, jnp.float64)
      return candidates[draws.place_of_largest(weights + noise)]

    keys = jax.random.split(key, len(parameters.probs))
    return jnp.sort(jax.lax.map(choose_one, (
        keys, jnp.asarray(parameters.probs), jnp.asarray(parameters.rates))))
  return draw


_DRAWS = {rule: _draw(rule) for rule in RULES}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridQuantiles(mechanism.PureQuantiles):
  """Chooses one public candidate for each quantile level and sorts the answers.

  A candidate may be chosen for several levels. Privacy: epsilon-DP under
  `adjacency`, epsilon / m for each level; sensitivity as in `window.cost`. The
  low-order bits of an answer carry no information, because it is one of the
  public candidates.

  Attributes:
    candidates: public, increasing, between the bounds.
    rule: one of `RULES`. Permute-and-flip never has a larger expected cost than
      the exponential mechanism; it gains at most 12 %, less with more
      candidates.
  """
  candidates: Sequence[float]
  rule: str = 'permute_and_flip'

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_choice('rule', self.rule, RULES)
    candidates = np.asarray(self.candidates, np.float64)
    if candidates.ndim != 1 or not candidates.size or not np.all(
        np.diff(candidates) > 0):
      raise ValueError('candidates must be an increasing sequence of at least '
                       f'one value, got an array of shape {candidates.shape}')
    if not (self.lower <= candidates[0] and candidates[-1] <= self.upper):
      raise ValueError(f'candidates must lie between {self.lower} and '
                       f'{self.upper}, got {candidates[0]} to {candidates[-1]}')

  @property
  def draw(self) -> mechanism.Draw:
    """Returns a jittable sampler (key, records, parameters) -> quantiles."""
    return _DRAWS[self.rule]

  @property
  def parameters(self) -> GridParameters:
    """Returns the quantile levels, rates and candidates, as arrays."""
    return GridParameters(
        quantile_levels.check_levels(self.probs), rates.singles(
            self.probs, epsilon=self.epsilon / len(self.probs),
            adjacency=self.adjacency), np.asarray(self.candidates, np.float64))
