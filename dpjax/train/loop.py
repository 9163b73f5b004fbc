"""Whole runs, many at once, compiled once."""

from collections.abc import Callable, Sequence
from typing import NamedTuple
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax.grads.bounder import Method
from dpjax.models.model import Model
from dpjax.privacy import accounting
from dpjax.train import step as steps
from dpjax.train.plan import TrainingPlan
from dpjax.train.state import StepInfo, TrainState
from dpjax.typing import Array, Batch, PRNGKey


class FitResult(NamedTuple):
  """L finished runs.

  Attributes:
    state: final state, every leaf with a leading axis [L].
    info: of every step, leaves [num_steps, L, ...]; see `StepInfo` for which
      fields are private.
    events: what each run cost, from what ran.
    joint_noise_multipliers: [L] smallest joint multiplier of any step, as
      measured from the scales and sensitivities really used.
    compile_seconds: tracing and compiling.
    train_seconds: running all L runs.
  """
  state: TrainState
  info: StepInfo
  events: tuple[accounting.DpEvent, ...]
  joint_noise_multipliers: np.ndarray
  compile_seconds: float
  train_seconds: float


def fit(keys: PRNGKey, *, plans: Sequence[TrainingPlan], model: Model,
        method: Method, optimizer: optax.GradientTransformation,
        records: Batch, rows: Array, allocation: str = 'optimal',
        on_progress: Callable[[int, int], None] | None = None) -> FitResult:
  """Trains L models at once: seeds, splits and noise levels, one program.

  Args:
    keys: [L] typed keys, one for each run.
    plans: [L] plans that differ in their noise multiplier at most.
    model: initialised anew for each run.
    method: see `methods`.
    optimizer: any optax optimiser; it sees noisy means only.
    records: all records, shared by the runs.
    rows: [L, n] int32; which records each run trains on, n the
      `num_examples` of the plans.
    allocation: split of the noise over blocks, see `privacy.blocks`.
    on_progress: called between chunks with (steps done, steps in all).

  Raises:
    ValueError: if the plans disagree with each other, with `rows` or with the
      method; or if a run was noised less than planned.
  """
  _check(keys, plans, method, rows)
  plan = plans[0]
  multipliers = jnp.asarray([p.noise_multiplier or 0.0 for p in plans],
                            jnp.float32)

  def transform_with(multiplier):
    return lambda key: steps.make_transform(
        method, plan.sampler, optimizer, key=key, noise_multiplier=multiplier,
        allocation=allocation)

  def init(key, multiplier):
    return steps.init_state(key, model=model, method=method,
                            transform_of=transform_with(multiplier))

  def run_chunk(length, state, multiplier, run_rows, records):
    step = steps.make_step(method=method, sampler=plan.sampler,
                           transform_of=transform_with(multiplier))
    return jax.lax.scan(lambda s, _: step(s, records, run_rows), state,
                        length=length)

  started = time.perf_counter()
  state = jax.jit(jax.vmap(init))(keys, multipliers)
  lengths = chunk_lengths(plan.num_steps)
  chunks = {
      length: jax.jit(jax.vmap(lambda *a, n=length: run_chunk(n, *a),
                               (0, 0, 0, None), (0, 1)), donate_argnums=0)
              .lower(state, multipliers, rows, records).compile()
      for length in set(lengths)
  }
  compiled = time.perf_counter()
  infos, done = [], 0
  for length in lengths:
    state, info = chunks[length](state, multipliers, rows, records)
    infos.append(jax.tree.map(np.asarray, info))
    done += length
    if on_progress is not None:
      on_progress(done, plan.num_steps)
  jax.block_until_ready(state.params)
  finished = time.perf_counter()
  info = jax.tree.map(lambda *parts: np.concatenate(parts), *infos)
  return FitResult(state, info, tuple(p.event for p in plans),
                   _measured_multipliers(info, plans, method),
                   compiled - started, finished - compiled)


def chunk_lengths(num_steps: int, *, most: int = 20) -> list[int]:
  """Splits a run into chunks of one compiled length, and a rest if needed.

  Between chunks the host sees progress. A divisor that gives between `most`/2
  and `most` chunks needs no second program for the rest.
  """
  if num_steps <= most:
    return [num_steps]
  for chunks in range(most, most // 2 - 1, -1):
    if num_steps % chunks == 0:
      return [num_steps // chunks] * chunks
  length = -(-num_steps // most)
  full, rest = divmod(num_steps, length)
  return [length] * full + ([rest] if rest else [])


def _check(keys, plans, method, rows) -> None:
  if not len(plans) == rows.shape[0] == keys.shape[0]:
    raise ValueError(f'{keys.shape[0]} keys, {len(plans)} plans and '
                     f'{rows.shape[0]} row sets; there must be one of each '
                     'for every run')
  first = plans[0]
  for plan in plans:
    if (plan.sampler, plan.num_steps, plan.adjacency) != (
        first.sampler, first.num_steps, first.adjacency):
      raise ValueError('plans of runs trained together may differ in their '
                       'noise multiplier only')
    if method.private != (plan.noise_multiplier is not None):
      kind = 'a private' if method.private else 'a non-private'
      raise ValueError(f'{method.name} needs {kind} plan')
  if rows.shape[1] != first.sampler.num_examples:
    raise ValueError(f'the plan samples from {first.sampler.num_examples} '
                     f'examples, rows has {rows.shape[1]}')


def _measured_multipliers(info: StepInfo, plans, method) -> np.ndarray:
  """What really ran; a shortfall against the plan is an error, not a note."""
  measured = np.min(info.joint_noise_multiplier, axis=0)
  if method.private:
    for value, plan in zip(measured, plans, strict=True):
      if not value >= plan.noise_multiplier * (1 - 1e-6):
        raise ValueError(f'a run was noised with joint multiplier {value}, '
                         f'less than the planned {plan.noise_multiplier}')
  return measured
