"""Computes the rows of the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import rates
from dpjax.studies import quantile_distributions
from dpjax.typing import Array, PRNGKey
from experiments import records
from experiments import rows
from experiments.effective_privacy import sweep

# Laplace noise is clipped at this many standard deviations.
_MARGIN = 5.0
_CHUNK = 4
_GRID = 101


class Effective(NamedTuple):
  """Effective privacy of one data set.

  Attributes:
    largest: largest log-ratio of densities over neighbours and points, where
      densities are averaged over the noise.
    fresh: log-ratio at the same neighbour and point on independent noise,
      which removes the bias of the maximum.
    error: standard error of `fresh`.
  """
  largest: Array
  fresh: Array
  error: Array


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.dataset} {setting.sigma:g}')
    distribution = quantile_distributions.named(setting.dataset, data_dir)
    metrics = _effective(setting, distribution)
    many = setting.repetitions**0.5
    yield setting, rows.released(setting, dict(
        largest=metrics.largest.mean(),
        largest_se=metrics.largest.std(ddof=1) / many,
        least_of_sets=metrics.largest.min(), most_of_sets=metrics.largest.max(),
        fresh=metrics.fresh.mean(),
        # The standard error of the noise alone, conditional on the data sets.
        fresh_se=np.sqrt(np.mean(metrics.error**2)) / many,
        excess_se=np.max((metrics.fresh - setting.epsilon) / np.maximum(
            metrics.error, 1e-9))), n=setting.num_examples,
                                 epsilon=setting.epsilon)


def _effective(setting: sweep.Setting,
               distribution: quantile_distributions.Distribution) -> Effective:
  size, width = setting.num_examples, distribution.upper - distribution.lower
  known = quantile_distributions.datasets(distribution, setting.seed, size,
                                          setting.repetitions)
  data = (known.ordered[:, :size] - distribution.lower) / width
  keys = quantile_distributions.method_keys(quantile_distributions.keys(
      setting.seed, distribution.name, size,
      setting.repetitions), setting.method)
  rate = rates.single(.5, epsilon=setting.epsilon,
                      adjacency=Adjacency.REPLACE_ONE)
  with jax.enable_x64(True):
    return Effective(*map(np.asarray, _of_all(
        keys, data, setting.sigma, rate, setting.num_values,
        setting.noise_draws)))


@functools.partial(jax.jit, static_argnums=(4, 5))
def _of_all(keys, data, sigma, rate, num_values, noise_draws):
  return jax.lax.map(lambda each: effective(
      *each, sigma, rate, num_values=num_values, noise_draws=noise_draws),
                     (keys, data))


def effective(key: PRNGKey, data: Array, sigma: Array, rate: Array, *,
              num_values: int, noise_draws: int) -> Effective:
  """Returns the largest log-ratio of one data set against all neighbours.

  Both densities are averaged over the same noise.

  Args:
    key: key of the noise.
    data: sorted records [n] in [0, 1].
    sigma: standard deviation of the noise.
    rate: factor of the cost |#{X < q} - n / 2| in the exponent.
    num_values: number of values, evenly in [0, 1], that replace a record.
    noise_draws: number of noise vectors.
  """
  values = jnp.linspace(0.0, 1.0, num_values, dtype=jnp.float64)
  points = _points(data, values, sigma)
  keys = jax.random.split(key)

  def noise(key):
    return sigma * jax.random.laplace(
        key, data.shape, jnp.float64) / jnp.sqrt(jnp.float64(2))

  def total(key):
    at, near = jax.vmap(lambda each: densities(
        noise(each), data, values, points, sigma, rate))(
            jax.random.split(key, _CHUNK))
    return jnp.sum(at, 0), jnp.sum(near, 0)

  sums = jax.lax.scan(lambda carry, each: (
      jax.tree.map(jnp.add, carry, total(each)), None),
                      jax.tree.map(jnp.zeros_like, jax.eval_shape(
                          total, keys[0])),
                      jax.random.split(keys[0], -(-noise_draws // _CHUNK)))[0]
  ratios = jnp.log(sums[0])[None, None] - jnp.log(sums[1])
  record, value, point = jnp.unravel_index(jnp.argmax(ratios), ratios.shape)
  one, other = jax.vmap(lambda each: densities(
      noise(each), data, values[value][None], points[point][None], sigma,
      rate))(jax.random.split(keys[1], noise_draws))
  one, other = one[:, 0], other[:, record, 0, 0]
  means = jnp.mean(one), jnp.mean(other)
  # Delta method for the log-ratio; both densities share the noise.
  spread = jnp.std(one / means[0] - other / means[1])
  return Effective(jnp.max(ratios), jnp.log(means[0] / means[1]),
                   spread / noise_draws**0.5)


def _points(data: Array, values: Array, sigma: Array) -> Array:
  """Returns points to compare densities at: a grid, and near all records."""
  margin = _MARGIN * sigma
  ends = jnp.sort(jnp.concatenate([data, values]))
  near = data[:, None] + sigma * jnp.array([[-1.5, -.5, 0.0, .5, 1.5]])
  share = jnp.linspace(0.0, 1.0, _GRID, dtype=jnp.float64)
  return jnp.concatenate([
      share, share * (1 + 2 * margin) - margin, (ends[1:] + ends[:-1]) / 2,
      near.ravel()])


def densities(noise: Array, data: Array, values: Array, points: Array,
              sigma: Array, rate: Array) -> tuple[Array, Array]:
  """Returns densities of X and of all neighbours, for one noise vector.

  Args:
    noise: [n]; a record and its replacement get the same noise.
    data: records [n].
    values: [k], values that replace a record.
    points: [g], where the densities are computed.
    sigma: standard deviation of the noise; bounds are widened by 5 sigma.
    rate: factor of the cost in the exponent.

  Returns:
    densities [g], and [n, k, g] of record by value.
  """
  low, high = -_MARGIN * sigma, 1 + _MARGIN * sigma
  count = data.shape[0]
  noisy_data = jnp.clip(data + noise, low, high)
  ranks = jnp.arange(count + 1, dtype=jnp.float64)
  weights = jnp.exp(-rate * jnp.abs(ranks - count / 2))

  def normaliser(known):
    edges = jnp.concatenate([low[None], jnp.sort(known), high[None]])
    return jnp.sum(weights * jnp.diff(edges))

  below = noisy_data[:, None] < points[None]
  rank = jnp.sum(below, 0)
  fewer, same, more = (weights[jnp.clip(rank + change, 0, count)]
                       for change in (-1, 0, 1))

  def near(place, value):
    instead = jnp.clip(value + noise[place], low, high)
    known = noisy_data.at[place].set(instead)
    # A replacement changes a rank by at most one: selecting among three values
    # is faster than a lookup.
    weight = jnp.where(instead < points, jnp.where(
        below[place], same, more), jnp.where(below[place], fewer, same))
    return weight / normaliser(known)

  return same / normaliser(noisy_data), jax.vmap(lambda place: jax.vmap(
      lambda value: near(place, value))(values))(jnp.arange(count))
