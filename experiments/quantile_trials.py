"""Quantile mechanisms on data sets of a law, all repetitions at once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.stats.quantiles import curves
from dpjax.stats.quantiles import knots
from dpjax.stats.quantiles import mechanism as mechanisms
from dpjax.stats.quantiles import orders
from dpjax.stats.quantiles import records
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey, PyTree
from experiments import quantile_laws

# Programs for that many orders serve fewer, where orders are only read off.
_MOST_ORDERS = 200


class Asked(NamedTuple):
  """A law of quantiles and what it takes, as `mechanism` has them."""
  draw: mechanisms.Draw
  parameters: PyTree


def asked(mechanism: mechanisms.QuantileMechanism) -> Asked:
  """What a mechanism draws, or what serves more orders than it has."""
  found = mechanism.parameters
  if isinstance(mechanism, (curves.CurveQuantiles, knots.KnotQuantiles)):
    spare = max(0, _MOST_ORDERS - len(found.probs))
    found = found._replace(probs=np.pad(found.probs, (0, spare), 'edge'))
  return Asked(mechanism.draw, found)


def without_privacy(probs: np.ndarray) -> Asked:
  """The quantiles of the records."""
  return Asked(_empirical, probs)


def measure(law: quantile_laws.Law, probs: np.ndarray, of: Asked, *,
            method: str, num_examples: int, repetitions: int, seed: int
            ) -> dict[str, float]:
  """Mean errors over data sets and coins.

  Data sets are the same for all mechanisms and orders; coins are those of the
  method and of how many orders there are.

  Args:
    law: of the records.
    probs: orders [m].
    of: what is drawn, for these orders or for more.
    method: name, of the coins.
    num_examples: n.
    repetitions: how many data sets, 2 or more.
    seed: of all.

  Returns:
    value_sup, against the quantiles of the law, with its standard error;
    rank_sup and rank_mean, against n p among the records.
  """
  keys = quantile_laws.keys(seed, law.name, num_examples, repetitions)
  coins = quantile_laws.method_keys(keys, f'{method}/{len(probs)}')
  data = quantile_laws.datasets(law, seed, num_examples, repetitions)
  with jax.enable_x64(True):
    found = mechanisms.repeated(of.draw)(coins, data, of.parameters)
    values, worst, mean = map(np.asarray, _errors(
        np.asarray(found)[:, :len(probs)], data, probs,
        law.quantiles(probs)))
  return dict(value_sup=values.mean(),
              value_sup_se=values.std(ddof=1) / repetitions**0.5,
              rank_sup=worst.mean(), rank_mean=mean.mean())


def _empirical(key: PRNGKey, data: Records, probs: Array) -> Array:
  del key
  return records.empirical(data, probs)


@jax.jit
def _errors(found: Array, data: Records, probs: Array,
            quantiles: Array) -> tuple[Array, Array, Array]:
  def one(found, ordered):
    ranks = orders.rank_errors(found, ordered, probs, data.count)
    return orders.value_sup(found, quantiles), jnp.max(ranks), jnp.mean(ranks)
  return jax.vmap(one)(found, data.ordered)
