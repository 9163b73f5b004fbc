"""Quantiles of a private histogram: as printed, and coarse with its sum right.

Whole noise on whole counts. What is known of counts, that they sum to n and
that none is negative, is put back in one of several ways, and the number of
bins decides on the error. Source: thesis 000, section 6.2.3, and Wasserman and
Zhou 2010 (item QF-16, QF-17, QF-19, QB-06).
"""

from collections.abc import Sequence
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import frequencies
from dpjax.stats.quantiles import curves
from dpjax.stats.quantiles import inversion
from dpjax.stats.quantiles import rates
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey

POSTS = ('raw', 'bridge', 'simplex', 'clipnorm', 'isotonic')


def noisy_counts(key: PRNGKey, data: Records,
                 parameters: curves.Parameters) -> Array:
  """Counts [N] of bins with independent discrete Laplace noise, float64."""
  exact = jnp.diff(curves.ranks(data, jnp.asarray(parameters.shares)))
  return exact + draws.discrete_laplace(key, exact.shape, parameters.scale,
                                        jnp.float64)


def processed(noisy: Array, total: Array, post: str) -> Array:
  """A distribution function [N + 1] from noisy counts [N].

  Args:
    noisy: counts.
    total: n, or an estimate, positive.
    post: 'raw', cumulated as printed; 'bridge', of sum n; 'simplex', the
      nearest of sum n without negative ones; 'clipnorm', negative ones set to 0
      and the others rescaled; 'isotonic', 'bridge' and then the nearest
      distribution function. Only the last three are monotone.
  """
  if post == 'simplex':
    return curves.from_counts(frequencies.project_on_simplex(noisy / total))
  if post == 'clipnorm':
    positive = jax.nn.relu(noisy)
    amount = jnp.sum(positive)
    return curves.from_counts(jnp.where(
        amount > 0, positive / jnp.where(amount > 0, amount, 1.0),
        1.0 / noisy.size))
  if post == 'raw':
    return curves.from_counts(noisy) / total
  bridge = curves.from_counts(curves.with_total(noisy, total))
  return (bridge / total if post == 'bridge'
          else inversion.distribution(bridge, total))


@functools.cache
def _curve(post: str, knows_total: bool) -> curves.Curve:
  def curve(key: PRNGKey, data: Records,
            parameters: curves.Parameters) -> Array:
    noisy = noisy_counts(key, data, parameters)
    total = curves.total(data, jnp.sum(noisy), knows_total)
    return processed(noisy, total, post)
  return curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class HistogramQuantiles(curves.CurveQuantiles):
  """Noisy counts of equal bins, cumulated and inverted.

  Guarantee: epsilon-DP under `adjacency`. Under REPLACE_ONE two counts move by
  1, under ADD_OR_REMOVE_ONE one, and n is then the sum of the noisy counts.
  200 bins and 'raw' are the histogram of Figure 6.1; `coarse` chooses bins.

  Attributes:
    num_bins: N.
    post: one of `POSTS`, see `processed`.
  """
  num_bins: int
  post: str = 'isotonic'

  def __post_init__(self):
    super().__post_init__()
    errors.check_choice('post', self.post, POSTS)
    if self.interpolation != 'linear' and self.post in POSTS[:2]:
      raise ValueError(f'interpolation must be linear where post is '
                       f'{self.post}: the curve may fall')

  @property
  def scale(self) -> float:
    """Of the discrete Laplace noise of each count."""
    return 1 / rates.counts(epsilon=self.epsilon, adjacency=self.adjacency)

  @property
  def curve(self) -> curves.Curve:
    """The law of the curve."""
    return _curve(self.post, self.knows_total)

  def stddevs(self) -> np.ndarray:
    """sqrt(v k (N - k) / N), v the variance of a count's noise."""
    below = np.arange(self.num_bins + 1.0)
    return np.sqrt(draws.discrete_laplace_variance(self.scale) * below
                   * (self.num_bins - below) / self.num_bins)


def coarse_bins(num_examples: int, *, epsilon: float, adjacency: Adjacency,
                interpolation: str = 'smooth') -> int:
  """How many bins a law of moderate slope wants: noise against bias.

  Noise of a curve grows with sqrt(N) / (n epsilon) and the error between edges
  falls with N^-2 by straight lines and N^-3 by the smooth inverse, so that N is
  about (n epsilon)^(2/5) or 1.3 (n epsilon)^(2/7) under REPLACE_ONE, whose
  noise is twice that of ADD_OR_REMOVE_ONE. Within a third of the least error
  for the laws of Figure 6.1; the minimum of proved bounds
  (`histogram_bounds.direct_error`) asks for too few.

  Args:
    num_examples: n, or a public guess of it: it decides on nothing else.
    epsilon: of the release.
    adjacency: which data sets are neighbours.
    interpolation: between edges, one of `curves.INTERPOLATIONS`.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_choice('interpolation', interpolation, curves.INTERPOLATIONS)
  signal = 2 * num_examples * rates.counts(epsilon=epsilon,
                                           adjacency=adjacency)
  return max(4, round(signal**0.4 if interpolation == 'linear'
                      else 1.3 * signal**(2 / 7)))


def coarse(probs: Sequence[float], *, epsilon: float, lower: float,
           upper: float, adjacency: Adjacency, num_examples: int,
           interpolation: str = 'smooth') -> HistogramQuantiles:
  """The histogram of `coarse_bins`; arguments as there and of the class."""
  return HistogramQuantiles(
      probs=tuple(probs), epsilon=epsilon, lower=lower, upper=upper,
      adjacency=adjacency, interpolation=interpolation, num_bins=coarse_bins(
          num_examples, epsilon=epsilon, adjacency=adjacency,
          interpolation=interpolation))
