"""Chunks of steps of `loop.fit` on records that are arrays."""

from collections.abc import Callable
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from dpjax import tree
from dpjax.grads.bounder import Method
from dpjax.sampling import Sampler
from dpjax.train import sharding
from dpjax.train import step as steps
from dpjax.train.averaging import Averaging
from dpjax.train.placement import Placement
from dpjax.train.plan import TrainingPlan
from dpjax.train.state import StepInfo
from dpjax.train.state import TrainState
from dpjax.typing import Array, Batch

# Most random values, of 4 bytes, that one run draws before a chunk: 16 MiB.
_MAX_AHEAD = 2**22


def chunk(length: int, plan: TrainingPlan, mesh: jax.sharding.Mesh | None,
          placed: Placement | None, where: Any, *, method: Method,
          averaging: Averaging | None,
          transform_with: Callable[[Array], steps.TransformOf],
          noised: Callable[[Array], Any]) -> jax.stages.Wrapped:
  """Returns a number of steps of groups of runs on arrays, not compiled yet.

  Args:
    length: number of steps.
    plan: of all runs.
    mesh: devices that share each batch.
    placed: where the parameters are, if they may be divided.
    where: where the arrays of the state are, see `placement.of_runs`.
    method: its sums are divided over the mesh.
    averaging: see `step.make_step`.
    transform_with: noise multiplier -> noise key -> the transform.
    noised: noise multiplier -> see `step.make_step`.

  Returns:
    (states, noise multipliers, rows, records) -> (states, infos), of L runs.
  """
  sampler = sharding.split_sampler(mesh, plan.sampler)

  def run(state: TrainState, multiplier: Array, run_rows: Array | None,
          records: Batch) -> tuple[TrainState, StepInfo]:
    if mesh is None and sampler.takes_all:
      # Copying all records in each step would take longer than the step.
      records = jax.tree.map(lambda leaf: leaf[run_rows], records)
      run_rows = None
    step = steps.make_step(method=method, sampler=sampler,
                           transform_of=transform_with(multiplier),
                           averaging=averaging,
                           noised_sensitivity=noised(multiplier))
    gaussian = method.noise_order is None and plan.lattice_size is None
    draw = functools.partial(_draw_in_parts, sampler=sampler, placed=placed,
                             noise=gaussian)
    ahead = None if placed else _draw_ahead(state, sampler, length, gaussian)
    return jax.lax.scan(
        lambda s, drawn: step(s, records, run_rows,
                              draw(s) if placed else drawn),
        state, ahead, length=length)

  over = _over_one_run if placed else _over_runs
  whole = PartitionSpec()
  # The state is donated, so that only one copy of it is held.
  return sharding.jit(mesh, over(run), arguments=(where, whole, whole, whole),
                      results=(where, whole), donate_argnums=0)


def _draw_ahead(state: TrainState, sampler: Sampler, length: int,
                gaussian: bool) -> steps.Ahead | None:
  """Returns `step.draw_ahead`, or None if that would take too much memory.

  With None each step draws its own randomness; the values are the same.
  """
  if length * (sampler.num_examples + tree.count(state.params)) > _MAX_AHEAD:
    return None
  return steps.draw_ahead(state, sampler, length, noise=gaussian)


def _draw_in_parts(state: TrainState, sampler: Sampler,
                   placed: Placement | None, noise: bool) -> steps.Ahead:
  """Returns the randomness of the next step, its noise in parts.

  If noise is False, or no parameter is divided, the step draws its noise.
  """
  drawn = sharding.noise_in_parts(
      placed, state.keys.noise, state.step, state.params,
      state.radii) if noise else None
  return steps.Ahead(steps.draw(state.keys.batch, state.step, sampler), drawn)


def _over_one_run(run: Callable[..., tuple[TrainState, StepInfo]]
                 ) -> Callable[..., tuple[TrainState, StepInfo]]:
  """Returns `_over_runs` for L = 1, without a loop and without batching."""

  def one_run(states: TrainState, multipliers: Array, rows: Array,
              records: Batch) -> tuple[TrainState, StepInfo]:
    state, infos = run(jax.tree.map(lambda leaf: leaf[0], states),
                       multipliers[0], rows[0], records)
    return (jax.tree.map(lambda leaf: leaf[None], state),
            jax.tree.map(lambda leaf: leaf[:, None], infos))

  return one_run


def _over_runs(run: Callable[..., tuple[TrainState, StepInfo]]
               ) -> Callable[..., tuple[TrainState, StepInfo]]:
  """Returns `run` for L states, multipliers and rows; infos [num_steps, L].

  An accelerator runs them side by side. A CPU runs them one after the other,
  which is faster there: batched products of small matrices are slow, and fused
  code computes a nonlinearity again for each of its uses.
  """

  def all_runs(states: TrainState, multipliers: Array, rows: Array,
               records: Batch) -> tuple[TrainState, StepInfo]:
    if jax.default_backend() == 'cpu':
      states, infos = jax.lax.map(lambda args: run(*args, records),
                                  (states, multipliers, rows))
    else:
      states, infos = jax.vmap(run, (0, 0, 0, None))(states, multipliers, rows,
                                                     records)
    return states, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), infos)

  return all_runs
