"""Releases quantiles of hierarchical counts, consistent by least squares.

Bins, groups of bins and so on are counted with noise, so that a rank is a sum
of few counts even on a fine grid; `ecdf.hierarchy` has the least squares. The
root is left out: under REPLACE_ONE it is public, and otherwise n is estimated
at no cost (`curves.total`). Source: Hay et al. 2010 (item QB-07).
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import draws
from dpjax.stats.ecdf_methods import hierarchy
from dpjax.stats.quantile_methods import curves
from dpjax.stats.quantile_methods import inversion
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey


def noisy_counts(key: PRNGKey, data: Records,
                 parameters: curves.CurveParameters,
                 shape: hierarchy.Shape) -> list[Array]:
  """Returns counts of all nodes but the root with discrete Laplace noise."""
  exact = hierarchy.levels(jnp.diff(curves.ranks(
      data, jnp.asarray(parameters.shares))), shape)
  keys = jax.random.split(key, len(exact))
  return [count + draws.discrete_laplace(subkey, count.shape, parameters.scale,
                                         jnp.float64)
          for count, subkey in zip(exact, keys, strict=True)]


@functools.cache
def _curve(shape: hierarchy.Shape, knows_total: bool) -> curves.Curve:
  """Returns the sampler of the curve for one shape of the tree."""
  def curve(key: PRNGKey, data: Records,
            parameters: curves.CurveParameters) -> Array:
    noisy = noisy_counts(key, data, parameters, shape)
    # Every count has the same noise, so all variances may be called 1.
    counts = hierarchy.least_squares(noisy, shape, (1.0,) * len(shape),
                                     jnp.ones_like(noisy[-1]))
    total = curves.total(data, jnp.sum(counts), knows_total)
    # All leaves have equal covariance with the sum, so an even correction is
    # the least-squares one.
    ranks = curves.from_counts(curves.with_total(counts, total))
    return inversion.distribution(ranks, total)
  return curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeQuantiles(mechanism.PureQuantiles, curves.CurveQuantiles):
  """Cumulates and inverts hierarchical counts of equal bins.

  Privacy: epsilon-DP under `adjacency`. A record is counted once on every
  level: with l levels the counts change by l in l1, and by 2 l if a record is
  replaced. Better than `HistogramQuantiles` from about 60 bins on.

  Attributes:
    shape: number of parts into which the nodes of each level are cut, the root
      first; the product is the number of bins.
  """
  shape: tuple[int, ...] = (16, 16)

  def __post_init__(self) -> None:
    hierarchy.check_shape(self.shape)
    super().__post_init__()

  @property
  def num_bins(self) -> int:
    """Number of bins, N: the leaves of the tree."""
    return math.prod(self.shape)

  @property
  def scale(self) -> float:
    """Scale of the discrete Laplace noise of each count."""
    return 1 / rates.counts(epsilon=self.epsilon, adjacency=self.adjacency,
                            levels=len(self.shape))

  @property
  def curve(self) -> curves.Curve:
    """Jittable sampler of the curve."""
    return _curve(self.shape, self.knows_total)

  def stddevs(self) -> np.ndarray:
    """Returns standard deviations of the noise of the ranks [N + 1]."""
    variance = draws.discrete_laplace_variance(self.scale)
    return np.sqrt(np.append(0.0, hierarchy.prefix_variances(
        self.shape, (variance,) * len(self.shape), self.num_bins, known=True)))
