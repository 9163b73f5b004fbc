"""Averages of the parameters over steps; post-processing, no privacy cost."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, Params


class AverageState(NamedTuple):
  """The running average of the parameters.

  Attributes:
    mean: averaged parameters; a model to evaluate next to the last iterate.
    count: number of updates so far, int32.
  """
  mean: Params
  # Checkpoints name this field, so it hides `tuple.count`.
  count: Array  # type: ignore[assignment]


class Averaging(NamedTuple):
  """An average of the noisy iterates, as a pair of functions (REG-05).

  Guarantee: the average is a function of released parameters only, so it is
  post-processing and costs no privacy.

  Attributes:
    init: initial params -> AverageState.
    update: (AverageState, params after a step) -> AverageState.
    name: one of `NAMES`, for references; '' for any other average.
  """
  init: Callable[[Params], AverageState]
  update: Callable[[AverageState, Params], AverageState]
  name: str = ''


def ema(decay: float = 0.9999, *, warm_up: bool = True) -> Averaging:
  """Returns the exponential moving average, mean <- d mean + (1 - d) params.

  With `warm_up`, d = min(decay, (1 + t) / (10 + t)) after t updates, so the
  weight of the initial parameters decays fast. Source: De et al. (2022,
  section 3).

  Args:
    decay: d, in (0, 1).
    warm_up: let d grow from 1/10 to `decay`.
  """
  errors.check_open_unit('decay', decay)

  def weight_of_new(count: Array) -> Array:
    if not warm_up:
      return jnp.float32(1 - decay)
    # 9 / (10 + t) = 1 - (1 + t) / (10 + t), without cancellation.
    steps = count.astype(jnp.float32)
    return jnp.maximum(jnp.float32(1 - decay), 9 / (10 + steps))

  return _averaging('ema', weight_of_new)


def polyak() -> Averaging:
  """Returns the plain mean of all iterates (Polyak and Juditsky, 1992).

  The initial parameters are left out.
  """
  # The first update has weight 1, so the initial parameters drop out.
  return _averaging('polyak',
                    lambda count: 1 / (1 + count.astype(jnp.float32)))


def named(average: Averaging | str | None) -> Averaging | None:
  """Returns the average of this name, one of `NAMES`; others as they are."""
  if not isinstance(average, str):
    return average
  return NAMES[errors.check_choice('average', average, NAMES)]()


NAMES: Mapping[str, Callable[[], Averaging]] = {'ema': ema, 'polyak': polyak}
"""The averages that have a name."""


def _averaging(name: str,
               weight_of_new: Callable[[Array], Array]) -> Averaging:
  """Returns mean <- mean + w(t) (params - mean), t the updates before."""

  def update(state: AverageState, params: Params) -> AverageState:
    weight = weight_of_new(state.count)
    mean = jax.tree.map(lambda old, new: old + weight * (new - old),
                        state.mean, params)
    return AverageState(mean, state.count + 1)

  return Averaging(lambda params: AverageState(params, jnp.int32(0)), update,
                   name)
