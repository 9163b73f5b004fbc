"""Runs quantile mechanisms on many data sets of a distribution at once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.stats.quantile_methods import curves
from dpjax.stats.quantile_methods import knots
from dpjax.stats.quantile_methods import mechanism as mechanisms
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods.records import Records
from dpjax.studies import quantile_distributions
from dpjax.studies.quantile_distributions import Distribution
from dpjax.typing import Array, PRNGKey, PyTree

# Curves only read quantiles off, so one program padded to this many levels
# serves every smaller number.
_MOST_ORDERS = 200


class Asked(NamedTuple):
  """A sampler of quantiles and its parameters, see `stats.mechanisms`."""
  draw: mechanisms.Draw
  parameters: PyTree


def asked(mechanism: mechanisms.QuantileMechanism) -> Asked:
  """Returns the sampler of a mechanism, padded to more levels if possible."""
  parameters = mechanism.parameters
  if isinstance(mechanism, (curves.CurveQuantiles, knots.KnotQuantiles)):
    spare = max(0, _MOST_ORDERS - len(parameters.probs))
    parameters = parameters._replace(
        probs=np.pad(parameters.probs, (0, spare), 'edge'))
  return Asked(mechanism.draw, parameters)


def without_privacy(probs: np.ndarray) -> Asked:
  """Returns the sampler of the exact quantiles of the records."""
  return Asked(_empirical, probs)


def measure(distribution: Distribution, probs: np.ndarray, sampler: Asked, *,
            method: str, num_examples: int, repetitions: int, seed: int
            ) -> dict[str, float]:
  """Returns mean errors over data sets and the mechanism's noise.

  Data sets are the same for all mechanisms and levels. Noise depends on the
  method's name and the number of levels.

  Args:
    distribution: distribution of the records.
    probs: quantile levels [m].
    sampler: from `asked`, for these levels or for more.
    method: name of the method, which seeds its noise.
    num_examples: n.
    repetitions: number of data sets, 2 or more.
    seed: seed of data and noise.

  Returns:
    value_sup, the largest error against the distribution's quantiles, and its
    standard error value_sup_se; rank_sup and rank_mean, the largest and mean
    error of ranks against n p. All are means over data sets.
  """
  keys = quantile_distributions.keys(seed, distribution.name, num_examples,
                                     repetitions)
  noise_keys = quantile_distributions.method_keys(
      keys, f'{method}/{len(probs)}')
  data = quantile_distributions.datasets(distribution, seed, num_examples,
                                         repetitions)
  with jax.enable_x64(True):
    answers = mechanisms.repeated(sampler.draw)(noise_keys, data,
                                                sampler.parameters)
    values, worst, mean = map(np.asarray, _errors(
        np.asarray(answers)[:, :len(probs)], data, probs,
        distribution.quantiles(probs)))
  return dict(value_sup=values.mean(),
              value_sup_se=values.std(ddof=1) / repetitions**0.5,
              rank_sup=worst.mean(), rank_mean=mean.mean())


def _empirical(key: PRNGKey, data: Records, probs: Array) -> Array:
  del key  # Nothing is drawn.
  return records.empirical(data, probs)


@jax.jit
def _errors(answers: Array, data: Records, probs: Array,
            quantiles: Array) -> tuple[Array, Array, Array]:
  """Returns value_sup, rank_sup and rank_mean of each data set."""
  def one(answer: Array, ordered: Array) -> tuple[Array, Array, Array]:
    ranks = quantile_levels.rank_errors(answer, ordered, probs, data.count)
    return (quantile_levels.value_sup(answer, quantiles), jnp.max(ranks),
            jnp.mean(ranks))
  return jax.vmap(one)(answers, data.ordered)
