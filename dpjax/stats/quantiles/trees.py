"""Quantiles of hierarchical counts, made consistent by least squares.

Bins, bins of bins and so on are counted with noise, which a rank of a fine grid
crosses few of; `ecdf.hierarchy` has the least squares. The root is left out:
under REPLACE_ONE it is public, and otherwise the estimate of n is free
(`curves.total`). Source: Hay et al. 2010 (item QB-07).
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import draws
from dpjax.stats.ecdf import hierarchy
from dpjax.stats.quantiles import curves
from dpjax.stats.quantiles import inversion
from dpjax.stats.quantiles import rates
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey


def noisy_counts(key: PRNGKey, data: Records, parameters: curves.Parameters,
                 shape: hierarchy.Shape) -> list[Array]:
  """Counts of all nodes but the root with discrete Laplace noise."""
  exact = hierarchy.levels(jnp.diff(curves.ranks(
      data, jnp.asarray(parameters.shares))), shape)
  keys = jax.random.split(key, len(exact))
  return [count + draws.discrete_laplace(each, count.shape, parameters.scale,
                                         jnp.float64)
          for count, each in zip(exact, keys, strict=True)]


@functools.cache
def _curve(shape: tuple[int, ...], knows_total: bool) -> curves.Curve:
  def curve(key: PRNGKey, data: Records,
            parameters: curves.Parameters) -> Array:
    noisy = noisy_counts(key, data, parameters, shape)
    counts = hierarchy.least_squares(noisy, shape, (1.0,) * len(shape),
                                     jnp.ones_like(noisy[-1]))
    total = curves.total(data, jnp.sum(counts), knows_total)
    # All leaves have one covariance with the sum: what corrects it is even.
    ranks = curves.from_counts(curves.with_total(counts, total))
    return inversion.distribution(ranks, total)
  return curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeQuantiles(curves.CurveQuantiles):
  """Hierarchical counts of equal bins, cumulated and inverted.

  Guarantee: epsilon-DP under `adjacency`. A record is counted once on every
  level: of l levels the counts move by l in l1, and by 2 l where one is
  replaced. Better than `HistogramQuantiles` from some 60 bins on.

  Attributes:
    shape: into how many parts the nodes of each level are cut, the root first;
      the product is the number of bins.
  """
  shape: tuple[int, ...] = (16, 16)

  def __post_init__(self):
    hierarchy.check_shape(self.shape)
    super().__post_init__()

  @property
  def num_bins(self) -> int:
    """N."""
    return math.prod(self.shape)

  @property
  def scale(self) -> float:
    """Of the discrete Laplace noise of each count."""
    return 1 / rates.counts(epsilon=self.epsilon, adjacency=self.adjacency,
                            levels=len(self.shape))

  @property
  def curve(self) -> curves.Curve:
    """The law of the curve."""
    return _curve(self.shape, self.knows_total)

  def stddevs(self) -> np.ndarray:
    """Of the noise of ranks [N + 1]."""
    variance = draws.discrete_laplace_variance(self.scale)
    return np.sqrt(np.append(0.0, hierarchy.prefix_variances(
        self.shape, (variance,) * len(self.shape), self.num_bins, known=True)))
