"""Releases quantiles of simulated data sets, once for each data set."""

import jax
import numpy as np

from dpjax.stats.quantile_methods import mechanism as mechanisms
from dpjax.studies import quantile_distributions


def answers(distribution: quantile_distributions.Distribution,
            mechanism: mechanisms.QuantileMechanism, *, coins: str,
            num_examples: int, repetitions: int, seed: int
            ) -> tuple[np.ndarray, np.ndarray]:
  """Returns private quantiles [R, m], and the sorted records [R, n].

  The data sets are the same for all mechanisms and quantile levels.

  Args:
    distribution: distribution of the records.
    mechanism: mechanism with its m quantile levels.
    coins: name of the noise stream; different names give different noise.
    num_examples: n, the number of records of a data set.
    repetitions: R, the number of data sets.
    seed: seed of all draws.
  """
  keys = quantile_distributions.keys(
      seed, distribution.name, num_examples, repetitions)
  data = quantile_distributions.datasets(
      distribution, seed, num_examples, repetitions)
  with jax.enable_x64(True):
    quantiles = np.asarray(mechanisms.repeated(mechanism.draw)(
        quantile_distributions.method_keys(keys, coins), data,
        mechanism.parameters))
  return quantiles, data.ordered[:, :num_examples]
