"""Bins of a fine noisy histogram, merged where heights are likely equal.

Among all partitions into runs of adjacent bins it finds the one of least
squared error plus a penalty per run, exactly, by dynamic programming. Good for
densities with jumps; smooth densities need many runs. Source: NoiseFirst of Xu
et al. 2013 and the v-optimal histograms of Jagadish et al. 1998 (item DEN-B11).
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import noisy_counts
from dpjax.typing import Array, PRNGKey


class MergingParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    counts: see `noisy_counts.CountParameters`.
    penalty: penalty of a run, in variances of a count.
  """
  counts: noisy_counts.CountParameters
  penalty: ArrayLike


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergedHistogram(noisy_counts.CountsMechanism):
  """Noisy counts of fine bins, averaged over runs of bins.

  Guarantee: that of the counts; runs are chosen from noisy counts alone.

  Attributes:
    penalty: penalty of a run, in variances V + n / m of a noisy count of n / m
      records. Below 2 every bin that stands out by chance becomes a run.
  """
  penalty: float = 4.0

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_non_negative('penalty', self.penalty)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, counts, parameters) -> heights."""
    return _sampler(self.noise_distribution, self.knows_total)

  @property
  def parameters(self) -> MergingParameters:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    return MergingParameters(self.count_parameters, np.float64(self.penalty))


@functools.cache
def _sampler(distribution: str | None, known: bool) -> mechanism.Draw:
  """Returns the sampler of `MergedHistogram`."""
  def draw(key: PRNGKey, counts: Array, parameters: MergingParameters) -> Array:
    size, public = counts.size, parameters.counts
    noisy = noisy_counts.noisy(key, counts, public.scale, distribution)
    total = noisy_counts.total(noisy, public.num_records, known)
    # Means over runs keep the sum, so the estimate integrates to 1.
    centred = noisy - jnp.mean(noisy)
    run_cost = (total / size + public.variance) * parameters.penalty
    return 1 + merged(centred, run_cost) * size / total
  return draw


def merged(values: Array, run_cost: Array) -> Array:
  """Returns the means of runs [m] that minimise squared error plus penalties.

  Exact in O(m^2) time and O(m) memory, by the best cut of each prefix.

  Args:
    values: [m]; near 0, because sums of squares are subtracted.
    run_cost: penalty of a run, at least 0.
  """
  size = values.size
  sums, squares = (jnp.pad(jnp.cumsum(powers), (1, 0))
                   for powers in (values, values**2))
  places = jnp.arange(size + 1)

  def best_cut(best: Array, end: Array) -> tuple[Array, Array]:
    # Squared error of one run [start, end) for every start, from prefix sums.
    length = jnp.maximum(end - places, 1).astype(values.dtype)
    error = squares[end] - squares - (sums[end] - sums)**2 / length
    cost = jnp.where(places < end, best + error + run_cost, jnp.inf)
    start = jnp.argmin(cost)
    return best.at[end].set(cost[start]), start

  first = jnp.zeros(size + 1, values.dtype)
  _, starts = jax.lax.scan(best_cut, first, jnp.arange(1, size + 1))

  def unwind(run: tuple[Array, Array], place: Array
             ) -> tuple[tuple[Array, Array], Array]:
    # From the last bin backwards: `place` belongs to the run [start, end).
    start, end = run
    new = place < start
    end = jnp.where(new, start, end)
    start = jnp.where(new, starts[end - 1], start)
    return (start, end), (sums[end] - sums[start]) / (end - start).astype(
        values.dtype)

  run = (starts[-1], jnp.asarray(size, starts.dtype))
  return jax.lax.scan(unwind, run, jnp.arange(size), reverse=True)[1]
