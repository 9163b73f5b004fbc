"""Audit targets for quantile mechanisms, with their output densities.

The densities are independent NumPy implementations that use the mechanism's
parameters. They are valid between records, where releases lie almost surely.
"""

from collections.abc import Callable
import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpjax.audit import claims
from dpjax.audit import wrapping
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import recursive
from dpjax.stats.quantile_methods.mechanism import QuantileMechanism

# With this seed some pair comes within 0.15 of epsilon 1 for every mechanism.
_RECORDS, _SEED = 6, 8
# Standard deviations of the logarithms of gaps: the interval with most weight
# may be a wide one, or one near the quantile.
_STDDEVS = (0.5, 3.0, 8.0)
_PAIRS_EACH = 4

LogDensity = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]
"""(mechanism, data, outputs [n, m]) -> log-densities [n]."""
Cost = Callable[[np.ndarray, int, np.ndarray], np.ndarray]
"""(ranks [..., m], number of records, levels [m]) -> costs [...]."""


def target(mechanism: QuantileMechanism, *,
           claim: claims.Claim | None = None) -> Target:
  """Returns the target of a mechanism on [0, 1], with its density if known.

  The audited claim is by default that of the mechanism's event.
  """
  density: LogDensity | None = _DENSITIES.get(type(mechanism))
  return wrapping.of_mechanism(
      mechanism, delta=0.0, claim=claim, pairs=neighbours(mechanism.adjacency),
      log_density=(None if density is None
                   else functools.partial(density, mechanism)))


def neighbours(adjacency: Adjacency) -> tuple[Pair, ...]:
  """Returns neighbouring data sets on random grids with log-normal gaps.

  One of them lacks a point of the grid; the other has it, or lacks another one.
  """
  rng = np.random.default_rng(_SEED)
  pairs: list[Pair] = []
  for stddev in np.repeat(_STDDEVS, _PAIRS_EACH):
    grid = np.cumsum(np.exp(stddev * rng.standard_normal(_RECORDS + 2)))
    grid = grid[:-1] / grid[-1]
    one, other = rng.choice(_RECORDS + 1, 2, replace=False)
    if adjacency is Adjacency.REPLACE_ONE:
      pairs.append(Pair(np.delete(grid, one), np.delete(grid, other),
                        f'{grid[other]:.3g} for {grid[one]:.3g}'))
    else:
      pairs.append(Pair(grid, np.delete(grid, one),
                        f'with {grid[one]:.3g} or without'))
  return tuple(pairs)


def _node(data: np.ndarray, cuts: tuple[ArrayLike, ArrayLike], prob: float,
          rate: float, cost: str, points: np.ndarray) -> np.ndarray:
  """Returns log-densities [n] of one quantile between two cuts.

  Each of the two cuts is a number or an array [n].
  """
  low, high = (np.broadcast_to(cut, points.shape)[:, None] for cut in cuts)
  edges = np.concatenate([[0.0], data, [1.0]])
  widths = np.diff(np.clip(edges, low, high))
  first, last = (np.sum(data < cut, -1, keepdims=True) for cut in (low, high))
  place = np.sum(data < points[:, None], -1, keepdims=True)
  # Intervals outside the cuts have width 0: their log-weight is -inf.
  with np.errstate(divide='ignore'), jax.enable_x64(True):
    target_rank = first + np.asarray(independent.target(
        jnp.float64(prob), jnp.asarray(last - first), cost))
    masses = np.log(widths) + np.asarray(independent.log_decline(
        jnp.arange(data.size + 1.0)[None], jnp.asarray(target_rank),
        jnp.asarray(rate), cost))
  lead = place - target_rank
  if cost == 'interpolated':
    # The cost changes linearly within an interval, not only at records.
    start = np.maximum(edges[place], low)
    lead = lead + (points[:, None] - start) / (
        np.minimum(edges[place + 1], high) - start)
  return -rate * np.abs(lead)[:, 0] - special.logsumexp(masses, axis=-1)


def _of_tree(mechanism: recursive.RecursiveQuantiles, data: np.ndarray,
             outputs: np.ndarray) -> np.ndarray:
  """Returns log-densities [n] of recursive quantiles, summed over the tree."""
  probs, rates = mechanism.parameters
  # The bound 0 comes first, so the cut of quantile i has index i + 1.
  cuts = [0.0, *outputs.T, 1.0]
  logs = np.zeros(len(outputs))
  for level in quantile_levels.halvings(len(probs)):
    for low, middle, high in level:
      logs += _node(data, (cuts[low], cuts[high]), probs[middle - 1],
                    rates[middle - 1], mechanism.cost, cuts[middle])
  return logs


def _of_one(mechanism: independent.IndependentQuantiles, data: np.ndarray,
            outputs: np.ndarray) -> np.ndarray:
  """Returns log-densities [n] of one independent quantile."""
  (prob,), (rate,) = mechanism.parameters
  return _node(data, (0.0, 1.0), prob, rate, mechanism.cost, outputs[:, 0])


def _of_blocks(cost: Cost) -> LogDensity:
  """Returns the density of a joint cost of all ranks, by enumeration."""
  def density(mechanism: QuantileMechanism, data: np.ndarray,
              outputs: np.ndarray) -> np.ndarray:
    probs, rate = mechanism.parameters
    blocks = np.array(list(itertools.combinations_with_replacement(
        range(data.size + 1), len(probs))))
    # k quantiles in one interval are sorted draws: k! orders of the same draws.
    shared = [sum(math.lgamma(list(block).count(i) + 1) for i in set(block))
              for block in blocks.tolist()]
    logs = np.log(np.diff(np.concatenate([[0.0], data, [1.0]])))
    total = special.logsumexp(logs[blocks].sum(-1) - shared
                              - rate * cost(blocks, data.size, probs))
    ranks = np.sum(data < outputs[..., None], -1)
    return -rate * cost(ranks, data.size, probs) - total
  return density


def _counts(ranks: np.ndarray, number: int) -> np.ndarray:
  """Returns the numbers of records between consecutive ranks."""
  return np.diff(ranks, prepend=0, append=number, axis=-1)


def _joint_cost(ranks: np.ndarray, number: int,
                probs: np.ndarray) -> np.ndarray:
  """Returns the cost of JointExp: distances of counts from target counts."""
  return np.abs(_counts(ranks, number)
                - number * quantile_levels.gaps(probs.tolist())).sum(-1)


def _inverse_cost(ranks: np.ndarray, number: int,
                  probs: np.ndarray) -> np.ndarray:
  """Returns how many records must be replaced to obtain the target ranks."""
  # Rounding of n p must not raise a target to the next rank.
  targets = np.diff(np.ceil(number * probs - 1e-9), prepend=0, append=number)
  excess = _counts(ranks, number) - targets
  return np.abs(excess).sum(-1) / 2 + (excess[..., :-1] >= 0).sum(-1)


_DENSITIES: dict[type[QuantileMechanism], LogDensity] = {
    independent.IndependentQuantiles: _of_one,
    recursive.RecursiveQuantiles: _of_tree,
    joint.JointQuantiles: _of_blocks(_joint_cost),
    joint.InverseQuantiles: _of_blocks(_inverse_cost)}
