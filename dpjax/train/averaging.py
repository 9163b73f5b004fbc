"""Averages of the parameters over steps: post-processing, free of cost."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, Params


class AverageState(NamedTuple):
  """What an average has seen.

  Attributes:
    mean: averaged parameters, to be evaluated beside the last ones.
    count: number of updates, int32.
  """
  mean: Params
  count: Array


class Averaging(NamedTuple):
  """An average of the noisy iterates, as an init/update pair (REG-05).

  Guarantee: a function of released parameters only, so post-processing.

  Attributes:
    init: initial params -> AverageState.
    update: (AverageState, params after a step) -> AverageState.
  """
  init: Callable[[Params], AverageState]
  update: Callable[[AverageState, Params], AverageState]


def ema(decay: float = 0.9999, *, warm_up: bool = True) -> Averaging:
  """Exponential moving average, mean <- d mean + (1 - d) params.

  With `warm_up` d = min(decay, (1 + t) / (10 + t)) after t updates, so that the
  initial parameters are soon forgotten. Source: De et al. 2022, section 3.

  Args:
    decay: in (0, 1).
    warm_up: let the decay grow from 1/10.
  """
  errors.check_open_unit('decay', decay)

  def share(count: Array) -> Array:
    if not warm_up:
      return jnp.float32(1 - decay)
    # 1 - (1 + t) / (10 + t) without cancellation.
    steps = count.astype(jnp.float32)
    return jnp.maximum(jnp.float32(1 - decay), 9 / (10 + steps))

  return _averaging(share)


def polyak() -> Averaging:
  """The plain mean of the parameters after each step (Polyak and Juditsky).

  The initial parameters are not part of it.
  """
  return _averaging(lambda count: 1 / (1 + count.astype(jnp.float32)))


def _averaging(share: Callable[[Array], Array]) -> Averaging:
  """mean <- mean + share(t) (params - mean) after t updates."""

  def update(state: AverageState, params: Params) -> AverageState:
    weight = share(state.count)
    mean = jax.tree.map(lambda old, new: old + weight * (new - old),
                        state.mean, params)
    return AverageState(mean, state.count + 1)

  return Averaging(lambda params: AverageState(params, jnp.int32(0)), update)
