"""Bins of a fine noisy histogram, merged where heights may well be equal.

The cut into runs of bins of least squared error, each run at a price: one
dynamic programme over all cuts, exact. Good for a density with jumps, and for
no other: what is smooth needs many runs. Source: NoiseFirst of Xu et al. 2013
and the v-optimal histograms of Jagadish et al. 1998 (item DEN-B11).
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.density import mechanism
from dpjax.stats.density import noisy_counts
from dpjax.typing import Array, PRNGKey


class Parameters(NamedTuple):
  """Numbers of a release.

  Attributes:
    counts: of the noisy counts.
    penalty: price of a run, in variances of a count.
  """
  counts: noisy_counts.Parameters
  penalty: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergedHistogram(noisy_counts.CountsMechanism):
  """Noisy counts of fine bins, averaged over runs of bins.

  Guarantee: that of the counts; runs are chosen from noisy counts alone.

  Attributes:
    penalty: price of a run, in variances V + n / m of a noisy count of n / m
      records. Below 2 every bin that stands out by chance is a run.
  """
  penalty: float = 4.0

  def __post_init__(self):
    super().__post_init__()
    errors.check_non_negative('penalty', self.penalty)

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _law(self.law, self.knows_total)

  @property
  def parameters(self) -> Parameters:
    """Numbers that the law takes."""
    return Parameters(super().parameters, np.float64(self.penalty))


@functools.cache
def _law(law: str | None, known: bool) -> mechanism.Draw:
  def draw(key: PRNGKey, counts: Array, numbers: Parameters) -> Array:
    size, (parameters, penalty) = counts.size, numbers
    noisy = noisy_counts.noisy(key, counts, jnp.asarray(parameters.scale), law)
    total = noisy_counts.total(noisy, parameters, known)
    # Runs keep the sum, so that it is 1 if it is now.
    centred = noisy - jnp.mean(noisy)
    price = penalty * (parameters.variance + total / size)
    return 1 + merged(centred, price) * size / total
  return draw


def merged(values: Array, price: Array) -> Array:
  """Means of runs [m] that minimise squared error plus price per run.

  Exact in O(m^2) time and O(m) memory, by the best cut of each prefix.

  Args:
    values: [m]; near 0, as sums of squares are subtracted.
    price: of a run, >= 0.
  """
  size = values.size
  sums, squares = (jnp.pad(jnp.cumsum(each), (1, 0))
                   for each in (values, values**2))
  places = jnp.arange(size + 1)

  def best_cut(best, end):
    length = jnp.maximum(end - places, 1).astype(values.dtype)
    error = squares[end] - squares - (sums[end] - sums)**2 / length
    cost = jnp.where(places < end, best + error + price, jnp.inf)
    start = jnp.argmin(cost)
    return best.at[end].set(cost[start]), start

  first = jnp.zeros(size + 1, values.dtype)
  _, starts = jax.lax.scan(best_cut, first, jnp.arange(1, size + 1))

  def unwind(run, place):
    # Bin `place` belongs to the run [start, end) that is being read.
    start, end = run
    new = place < start
    end = jnp.where(new, start, end)
    start = jnp.where(new, starts[end - 1], start)
    return (start, end), (sums[end] - sums[start]) / (end - start).astype(
        values.dtype)

  run = (starts[-1], jnp.asarray(size, starts.dtype))
  return jax.lax.scan(unwind, run, jnp.arange(size), reverse=True)[1]
