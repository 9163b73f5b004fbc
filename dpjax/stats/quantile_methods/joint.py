"""JointExp and inverse sensitivity: draws all quantiles at once.

JointExp scores sorted points by how far the numbers of records between them are
from the wanted ones. Inverse sensitivity scores them by how many records must
be replaced until the points are the quantiles. Both distributions are sampled
exactly (`paths`), in time n m + n m^2 / 2.

Neither is consistent for a distribution with atoms (Lalanne, 2023, Proposition
6.3.1); `smoothing` mends that. Where m exceeds about epsilon n / (2 ln of the
ratio of the widest interval to a typical one), both put quantiles into the
empty space at the ends of the range (item QF-06).
"""

from collections.abc import Callable
import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import paths
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey


class JointParameters(NamedTuple):
  """Arrays that both mechanisms take.

  Attributes:
    probs: [m] quantile levels.
    rate: rate of the cost, scalar.
  """
  probs: np.ndarray
  rate: np.float64


def joint_bins(probs: Array, count: Array, rate: Array) -> paths.Bins:
  """Returns the bins with phi_j(d) = exp(-rate |d - n (p_j - p_(j-1))|)."""
  # 0 before the levels and 1 behind them.
  edges = jnp.pad(jnp.pad(probs, (1, 0)), (0, 1), constant_values=1.0)
  expected = jnp.diff(edges) * count.astype(jnp.float64)
  return paths.Bins(rate, -rate * expected, rate * expected,
                    quantile_levels.floor_rank(expected).astype(jnp.int32))


def inverse_bins(probs: Array, count: Array, rate: Array) -> paths.Bins:
  """Returns phi_j(d) = exp(-rate (|d - T_j| / 2 + 1{d >= T_j and j <= m})).

  T_j is ceil(n p_j) - ceil(n p_(j-1)). As printed, the indicator has the wrong
  sign and no rate, which is not private (erratum QE-03).
  """
  number = count.astype(jnp.float64)
  ranks = quantile_levels.target(probs, count, 'ceil')
  targets = jnp.diff(jnp.concatenate([jnp.zeros([1]), ranks, number[None]]))
  last = jnp.arange(targets.size) == targets.size - 1
  penalty = jnp.where(last, 0.0, rate)
  slope = rate / 2
  # The penalty applies from d = T_j on, so the rising side ends one before.
  split = jnp.maximum(targets - 1, 0.0).astype(jnp.int32)
  return paths.Bins(slope, -slope * targets, slope * targets - penalty, split)


def _draw(bins: Callable[[Array, Array, Array], paths.Bins]) -> mechanism.Draw:
  """Returns the sampler with these bins."""
  def draw(key: PRNGKey, data: Records, parameters: JointParameters) -> Array:
    probs, rate = map(jnp.asarray, parameters)
    return paths.quantiles(key, data, bins(probs, data.count, rate))
  return draw


_JOINT = _draw(joint_bins)
_INVERSE = _draw(inverse_bins)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointQuantiles(mechanism.ExponentialQuantiles):
  """JointExp: density proportional to exp(-rate cost) of sorted points.

  cost(q) = sum over the m + 1 bins of |n (p_j - p_(j-1)) - #bin_j|, the first
  bin closed at the lower bound (erratum QE-15). Privacy: epsilon-DP under
  `adjacency`, and no smaller epsilon holds. Source: Lalanne (2023, section
  6.1.4), whose sensitivity under addition and deletion is too small (erratum
  QE-02); Gillenwater, Joseph and Kulesza 2021 (item QF-06).
  """

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, records, parameters) -> quantiles."""
    return _JOINT

  @property
  def parameters(self) -> JointParameters:
    """Quantile levels and rate, as arrays."""
    return JointParameters(
        quantile_levels.check_levels(self.probs), np.float64(rates.joint(
            self.probs, epsilon=self.share(1), adjacency=self.adjacency)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class InverseQuantiles(mechanism.ExponentialQuantiles):
  """Inverse sensitivity of m quantiles: density exp(-rate replaced records).

  The cost is the number of records to replace until X_(ceil(n p_j)) = q_j for
  all j, for points that are not records. It is half the sum over bins of
  |#bin_j - T_j|, plus one for each of the first m bins that has T_j records or
  more.
  Privacy: epsilon-DP under REPLACE_ONE, the only adjacency it is defined for.
  Source: Asi and Duchi 2020; Lalanne (2023, section 6.1.6) (item QF-10).
  """

  def __post_init__(self) -> None:
    super().__post_init__()
    _ = self.parameters  # Raises for the other adjacency.

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, records, parameters) -> quantiles."""
    return _INVERSE

  @property
  def parameters(self) -> JointParameters:
    """Quantile levels and rate, as arrays."""
    return JointParameters(quantile_levels.check_levels(self.probs), np.float64(
        rates.inverse_sensitivity(epsilon=self.share(1),
                                  adjacency=self.adjacency)))

  def check_size(self, num_examples: int) -> None:
    """Checks that different levels mean different records, and raises if not.
    """
    errors.check_at_least('num_examples', num_examples, 1)
    # The slack is that of `quantile_levels.ceil_rank`.
    ranks = np.ceil(np.asarray(self.probs) * num_examples - 1e-9)
    if np.any(np.diff(ranks) <= 0):
      raise ValueError(f'{len(self.probs)} probs have fewer than '
                       f'{len(self.probs)} distinct ranks among {num_examples} '
                       'records: inverse sensitivity needs levels at least '
                       '1 / n apart')
