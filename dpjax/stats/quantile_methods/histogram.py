"""Releases quantiles of a histogram: as printed, or coarse and better.

Integer noise is added to integer counts. True counts sum to n and none is
negative; several ways of post-processing restore this. The number of bins
dominates the error. Source: Lalanne (2023, section 6.2.3), and Wasserman and
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
from dpjax.stats.quantile_methods import curves
from dpjax.stats.quantile_methods import inversion
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey

POSTS = ('raw', 'bridge', 'simplex', 'clipnorm', 'isotonic')


def noisy_counts(key: PRNGKey, data: Records,
                 parameters: curves.CurveParameters) -> Array:
  """Returns bin counts [N] with independent discrete Laplace noise, float64."""
  # Integers: discrete noise then has no low-order bits that could leak.
  exact = jnp.diff(curves.ranks(data, jnp.asarray(parameters.shares)))
  return exact + draws.discrete_laplace(key, exact.shape, parameters.scale,
                                        jnp.float64)


def processed(noisy: Array, total: Array, post: str) -> Array:
  """Returns a distribution function [N + 1] from noisy counts [N].

  Args:
    noisy: noisy counts.
    total: n, or an estimate of it; positive.
    post: 'raw', cumulated as printed; 'bridge', corrected evenly to sum n;
      'simplex', the nearest non-negative counts of sum n; 'clipnorm', negative
      counts set to 0 and the others rescaled; 'isotonic', 'bridge' and then the
      nearest distribution function. Only the last three are monotone.
  """
  if post == 'simplex':
    return curves.from_counts(frequencies.project_on_simplex(noisy / total))
  if post == 'clipnorm':
    # If no count is positive, the bins are equally likely.
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
  """Returns the sampler of the curve for one way of post-processing."""
  def curve(key: PRNGKey, data: Records,
            parameters: curves.CurveParameters) -> Array:
    noisy = noisy_counts(key, data, parameters)
    total = curves.total(data, jnp.sum(noisy), knows_total)
    return processed(noisy, total, post)
  return curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class HistogramQuantiles(mechanism.PureQuantiles, curves.CurveQuantiles):
  """Cumulates and inverts the noisy counts of equal bins.

  Privacy: epsilon-DP under `adjacency`. Under REPLACE_ONE two counts change
  by 1. Under ADD_OR_REMOVE_ONE one count does, and the sum of the noisy counts
  estimates n. 200 bins and 'raw' give the histogram of Figure 6.1 in Lalanne
  (2023); `coarse` chooses the number of bins.

  Attributes:
    num_bins: number of bins, N.
    post: one of `POSTS`, see `processed`.
  """
  num_bins: int
  post: str = 'isotonic'

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_choice('post', self.post, POSTS)
    if self.interpolation != 'linear' and self.post in POSTS[:2]:
      raise ValueError(f'interpolation must be linear if post is {self.post}, '
                       f'whose curve may decrease')

  @property
  def scale(self) -> float:
    """Scale of the discrete Laplace noise of each count."""
    return 1 / rates.counts(epsilon=self.epsilon, adjacency=self.adjacency)

  @property
  def curve(self) -> curves.Curve:
    """Jittable sampler of the curve."""
    return _curve(self.post, self.knows_total)

  def stddevs(self) -> np.ndarray:
    """Returns sqrt(v k (N - k) / N) [N + 1], v the variance of the noise."""
    # The sum of the noise of k bins, less k / N of the sum over all N.
    below = np.arange(self.num_bins + 1.0)
    return np.sqrt(draws.discrete_laplace_variance(self.scale) * below
                   * (self.num_bins - below) / self.num_bins)


def coarse_bins(num_examples: int, *, epsilon: float, adjacency: Adjacency,
                interpolation: str = 'smooth') -> int:
  """Returns a number of bins that balances noise and bias.

  Suits a density of moderate slope. The noise of a curve grows with sqrt(N) /
  (n epsilon). The error between edges falls with N^-2 for straight lines and
  with N^-3 for the smooth inverse. So N is about (n epsilon)^(2/5) or 1.3 (n
  epsilon)^(2/7) under REPLACE_ONE, whose noise is twice that of
  ADD_OR_REMOVE_ONE. The error is within a third of the least one for the
  distributions of Figure 6.1. Minimising the proved bounds
  (`histogram_bounds.direct_error`) would choose too few bins.

  Args:
    num_examples: n, or a public guess of it, which affects only this number.
    epsilon: privacy budget of the release.
    adjacency: which data sets are neighbours.
    interpolation: between edges, one of `curves.INTERPOLATIONS`.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_choice('interpolation', interpolation, curves.INTERPOLATIONS)
  # n epsilon under REPLACE_ONE, 2 n epsilon under ADD_OR_REMOVE_ONE.
  signal = 2 * num_examples * rates.counts(epsilon=epsilon,
                                           adjacency=adjacency)
  return max(4, round(signal**0.4 if interpolation == 'linear'
                      else 1.3 * signal**(2 / 7)))


def coarse(probs: Sequence[float], *, epsilon: float, lower: float,
           upper: float, adjacency: Adjacency, num_examples: int,
           interpolation: str = 'smooth') -> HistogramQuantiles:
  """Returns the histogram mechanism with the bins of `coarse_bins`.

  Arguments are those of `coarse_bins` and `HistogramQuantiles`.
  """
  return HistogramQuantiles(
      probs=tuple(probs), epsilon=epsilon, lower=lower, upper=upper,
      adjacency=adjacency, interpolation=interpolation, num_bins=coarse_bins(
          num_examples, epsilon=epsilon, adjacency=adjacency,
          interpolation=interpolation))
