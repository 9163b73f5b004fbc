"""Training loop: many whole runs at once, in one compiled program."""

from collections.abc import Callable, Mapping, Sequence
import functools
import itertools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax import errors
from dpjax.grads import inputs
from dpjax.grads.bounder import Method
from dpjax.models.model import Model
from dpjax.privacy import accounting
from dpjax.train import array_chunks as arrays
from dpjax.train import checkpoint
from dpjax.train import placement
from dpjax.train import requirements
from dpjax.train import sharding
from dpjax.train import state as states
from dpjax.train import step as steps
from dpjax.train import streaming
from dpjax.train import used_keys
from dpjax.train.averaging import Averaging
from dpjax.train.checkpoint import Checkpoints
from dpjax.train.checkpoint import Part
from dpjax.train.checkpoint import Saver
from dpjax.train.placement import Place
from dpjax.train.placement import Placement
from dpjax.train.plan import TrainingPlan
from dpjax.train.sources import Source
from dpjax.train.state import StepInfo
from dpjax.train.state import TrainState
from dpjax.typing import Array, Batch, PRNGKey, PyTree


class FitResult(NamedTuple):
  """The result of L finished runs.

  Attributes:
    state: final state; every leaf has a leading axis [L].
    info: diagnostics of every step, leaves [num_steps, L, ...]. Some fields are
      PRIVATE, see `StepInfo`.
    events: the event of each run, for an accountant.
    joint_noise_multipliers: [L] smallest joint multiplier of any step, measured
      from the noise scales and sensitivities that were used.
    compile_seconds: time for tracing and compiling.
    train_seconds: time for running all L runs, including the time before a
      resume.
  """
  state: TrainState
  info: StepInfo
  events: tuple[accounting.DpEvent, ...]
  joint_noise_multipliers: np.ndarray
  compile_seconds: float
  train_seconds: float


def fit(keys: PRNGKey, *, plans: Sequence[TrainingPlan], model: Model,
        method: Method, optimizer: optax.GradientTransformation,
        records: Batch | Source, rows: Array | None,
        init_keys: PRNGKey | None = None, allocation: str = 'optimal',
        max_parallel: int | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        averaging: Averaging | None = None,
        mesh: jax.sharding.Mesh | None = None, place: Place | None = None,
        checkpoints: Checkpoints | None = None) -> FitResult:
  """Trains L models in one compiled program.

  The runs may differ in their keys, records and noise multipliers. Guarantee of
  a private method: run r is (epsilon, delta)-DP with epsilon =
  `plans[r].epsilon(delta)` under the adjacency of its plan. It covers the
  parameters of every step, `result.state.average` and the public fields of
  `info`.

  Args:
    keys: [L] typed keys, one for each run, all different; batches, noise and
      views are drawn from them. Use a key for one fit only: two fits with one
      key share batches and noise (`used_keys` says which fits are rejected).
      The guarantee holds against an adversary who does not know the key. For a
      release take `keys.system_keys(L)`, which nobody can guess.
      `jax.random.key(seed)` is for research: trying all seeds finds it.
    plans: [L] plans; they may differ in their noise multiplier only.
    model: initialised separately for each run, see `init_keys`; its parameters
      must be floating-point.
    method: one of `methods`.
    optimizer: any optax optimiser; it sees noisy means only.
    records: all records, shared by the runs: a `Batch` or a pair (x, y), where
      x is an array or a tree of arrays. Or a `sources.source` of such pairs, or
      of {'x': x, 'y': y}, whose records are read part by part, for one run
      after the other.
    rows: [L, n] integers, the numbers of the records that each run trains on,
      without repeats; n is the `num_examples` of the plans. None for a source,
      of which each run trains on all records.
    init_keys: [L] typed keys of the initial parameters, of any generator. They
      count as public, so they must not be derived from `keys`. None uses
      parts of `keys` from which nothing else is drawn.
    allocation: how noise is split over blocks, see `privacy.blocks`.
    max_parallel: number of runs to advance at once; None for all. The results
      do not depend on it.
    on_progress: called between chunks with (steps done, total steps), summed
      over the groups of runs.
    averaging: also keep this average of the parameters (REG-05), in
      `result.state.average.mean`; evaluate it like `result.state.params`.
    mesh: divides each batch over these devices (`sharding.data_mesh`); every
      process calls `fit` with the same arguments. None for one device.
    place: divides parameters too, and all that has their shape, over the mesh,
      which may have more axes then. It gets the shapes of the parameters of a
      run and returns them with shardings, for example
      `functools.partial(placement.divided, mesh)`. Runs are trained one after
      the other, and the state of the result stays divided. With None every
      device has all parameters.
    checkpoints: save the runs from time to time, and resume them if a
      checkpoint exists. A resumed fit gives the same bits as an uninterrupted
      one. With several processes only the first one reads and writes.

  Raises:
    TypeError: if a parameter is not floating-point.
    ValueError: if keys are unsafe (two runs share a key; a fit without
      checkpoints gets a secret key that this process has used; an init_key is
      one of `keys`, or keys are derived from it); if `rows` are empty or repeat
      a record; if the plans disagree with each other, with `rows`, the method
      or the mesh; if adaptive radii cost more than a plan allows; if the
      network, the loss, the preparation or views mix records
      (`grads.isolation`) or work for some batch sizes only; if the optimizer's
      first step is not finite; if the checkpoint is of another fit; or if a run
      got less noise than planned.

  Examples:
    >>> import optax
    >>> from dpjax.data import registry
    >>> from dpjax.lipschitz import losses
    >>> from dpjax.models import mlp
    >>> from dpjax.privacy import keys
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.train import loop, methods, plan
    >>> data = registry.load('breast_cancer')
    >>> rows = jnp.arange(569, dtype=jnp.int32)[None]
    >>> model = mlp.mlp(num_features=30, num_classes=2, depth=0)
    >>> run = plan.private_plan(num_examples=569, batch_size=128, num_steps=40,
    ...                         epsilon=2.0, delta=1e-4,
    ...                         adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    >>> result = loop.fit(
    ...     keys.system_keys(1), plans=[run], model=model,
    ...     method=methods.dp_sgd(model, losses.cross_entropy(), clip_norm=1.0),
    ...     optimizer=optax.sgd(1.0), records=data.records, rows=rows)
    >>> result.state.params['dense_00']['kernel'].shape  # Of one run.
    (1, 30, 2)
  """
  batch, rows, source, placed = _checked(
      records, rows, mesh, place, (keys, plans, model, method, optimizer))
  init_keys = _init_keys(keys, init_keys, checkpoints is not None)
  groups = _run_groups(len(plans), 1 if source or placed else max_parallel)
  lengths = _lengths(plans[0].num_steps, checkpoints)
  saver = None if checkpoints is None else Saver(
      checkpoints, checkpoint.fingerprint(
          (keys, init_keys), plans=plans, method_name=method.name, rows=rows,
          records=batch, allocation=allocation, num_groups=len(groups),
          chunks=lengths, devices=sharding.described(mesh, placed)))
  started = time.perf_counter()
  batch = sharding.replicate(
      mesh, batch._replace(x=jax.jit(model.prepare)(batch.x)))
  multipliers = jnp.asarray([p.noise_multiplier or 0.0 for p in plans],
                            jnp.float32)
  arguments = sharding.replicate(
      mesh, [((keys[g], init_keys[g]), multipliers[g], rows[g])
             for g in groups])
  program = _compile(arguments[0], plans[0], model, method, optimizer,
                     source or batch, allocation, averaging, mesh, placed,
                     frozenset(lengths))
  compiled = time.perf_counter()
  parts = _train(program, arguments, batch, lengths, saver, on_progress)
  seconds = time.perf_counter() - compiled + (saver.seconds if saver else 0.0)
  # Divided states stay on the mesh.
  state, info = _joined(parts, None if placed else mesh, len(plans))
  used_keys.add(keys)  # Only now: a fit that failed has released nothing.
  return FitResult(state, info, tuple(p.event for p in plans),
                   _measured_multipliers(info, plans, method),
                   compiled - started, seconds)


def _joined(parts: Sequence[Part], mesh: jax.sharding.Mesh | None,
            num_runs: int) -> tuple[TrainState, Any]:
  """Returns states and diagnostics of all runs, on one device without a mesh.
  """
  return (_concatenate([sharding.local(mesh, part.state) for part in parts], 0,
                       num_runs, jnp.concatenate),
          _concatenate([part.info for part in parts], 1, num_runs,
                       np.concatenate))


def _checked(records: Batch | Source, rows: Array | None,
             mesh: jax.sharding.Mesh | None, place: Place | None,
             rest: tuple[Any, Sequence[TrainingPlan], Any, Any, Any]
             ) -> tuple[Batch, Array, Source | None, Placement | None]:
  """Returns checked arguments: records, rows, source and placement.

  With a source the records are two of its own.
  """
  source = records if isinstance(records, Source) else None
  if source is not None:
    batch, rows = streaming.check(*rest, source, rows)
  else:
    batch, rows = requirements.check(*rest, records, rows)
  sharding.check(mesh, rest[1][0].sampler.max_batch_size,
                 data_only=place is None)
  return batch, rows, source, placement.chosen(
      mesh, place, inputs.as_parameters(
          jax.eval_shape(rest[2].init, jax.random.key(0))))


def _init_keys(keys: PRNGKey, init_keys: PRNGKey | None,
               resumable: bool) -> PRNGKey:
  """Returns the keys of the initial parameters; raises if keys are unsafe."""
  if not resumable:
    used_keys.check(keys)
  if init_keys is None:
    return jax.vmap(lambda key: states.streams(key).init)(keys)
  requirements.check_init_keys(init_keys, keys)
  return init_keys


def _train(program: '_Program', arguments: Sequence['_Arguments'],
           records: Batch, lengths: list[int], saver: Saver | None,
           on_progress: Callable[[int, int], None] | None) -> list[Part]:
  """Runs every group of runs to its end, from its checkpoint if there is one.

  Args:
    program: the compiled functions.
    arguments: arguments of each group of runs.
    records: all records.
    lengths: numbers of steps of the chunks, in order.
    saver: restores and saves; None without checkpoints.
    on_progress: see `fit`.
  """
  started = time.perf_counter()
  parts = []
  if saver is not None:
    parts = saver.restore(program.init(*arguments[0][:2]),
                          program.chunks[lengths[0]].out_tree)
  done = sum(part.num_steps for part in parts)
  for number, group in enumerate(arguments):
    if number == len(parts):
      parts.append(Part(program.init(*group[:2]), ()))
    # Checkpoints are written between chunks, so a group resumes between two.
    boundaries = list(itertools.accumulate(lengths, initial=0))
    for length in lengths[boundaries.index(parts[number].num_steps):]:
      state, infos = parts[number]
      state, info = program.chunks[length](state, *group[1:], records)
      # Diagnostics of all steps are kept on the host, not on the device.
      parts[number] = Part(state, (*infos, jax.tree.map(np.asarray, info)))
      done += length
      if saver is not None:
        saver.after_chunk(done, parts, time.perf_counter() - started)
      if on_progress is not None:
        on_progress(done, sum(lengths) * len(arguments))
  # JAX returns before it has computed; the time is taken afterwards.
  return jax.block_until_ready(parts)


_Arguments = tuple[tuple[PRNGKey, PRNGKey], Array, Array]
"""((keys, init_keys), noise multipliers, rows) of one group of runs."""


class _Program(NamedTuple):
  """Compiled functions for one number of runs: start, and chunks by length."""
  init: jax.stages.Compiled
  chunks: Mapping[int, Any]


def _compile(example: _Arguments, plan: TrainingPlan, model: Model,
             method: Method, optimizer: optax.GradientTransformation,
             records: Batch | Source, allocation: str,
             averaging: Averaging | None, mesh: jax.sharding.Mesh | None,
             placed: Placement | None, lengths: frozenset[int]) -> _Program:
  """Compiles all functions for groups of runs with the shapes of `example`."""
  keys, multipliers, rows = example
  sampler = sharding.split_sampler(mesh, plan.sampler)
  method = sharding.split_method(mesh, method, placed)
  noised = functools.partial(steps.noised_sensitivity, method, allocation,
                             plan.lattice_size)

  # The multiplier is traced, so runs with other noise share a program.
  def transform_with(multiplier: Array) -> steps.TransformOf:
    return lambda key: steps.make_transform(
        method, sampler, optimizer, key=key, noise_multiplier=multiplier,
        allocation=allocation, strategy=plan.strategy,
        on_lattice=plan.lattice_size is not None,
        shardings=placed.params if placed and placed.is_divided else None)

  def init(keys: tuple[PRNGKey, PRNGKey], multiplier: Array) -> TrainState:
    return steps.init_state(keys[0], model=model, method=method,
                            transform_of=transform_with(multiplier),
                            averaging=averaging, init_key=keys[1])

  state = jax.eval_shape(jax.vmap(init), keys, multipliers)
  where = placement.of_runs(placed, state)
  start = sharding.jit(mesh, jax.vmap(init), results=where)
  given: dict[str, Any] = dict(
      method=method, transform_with=transform_with, noised=noised,
      averaging=averaging)
  chunks: Mapping[int, Any]
  if isinstance(records, Source):
    chunks = streaming.Program(plan, records, mesh, placed).chunks(
        lengths, state, multipliers, model=model, **given)
  else:
    chunks = {length: arrays.chunk(
        length, plan, mesh, placed, where, **given).lower(
            state, multipliers, rows, records).compile() for length in lengths}
  return _Program(start.lower(keys, multipliers).compile(), chunks)


def _run_groups(num_runs: int, max_parallel: int | None) -> list[np.ndarray]:
  """Splits run numbers into groups of equal size.

  The last group is filled up by repeating the last run, so that one program
  serves all groups.
  """
  count = -(-num_runs // errors.check_at_least(
      'max_parallel', max_parallel or num_runs, 1))
  size = -(-num_runs // count)
  numbers = np.minimum(np.arange(count * size), num_runs - 1)
  return list(numbers.reshape(count, size))


def _concatenate(trees: Sequence[PyTree], axis: int, num_runs: int,
                 join: Callable[..., Any]) -> PyTree:
  """Joins groups along the axis of runs and drops the repeated runs."""

  def leaf(*parts: Any) -> Any:
    joined = join(parts, axis)
    return joined[:num_runs] if axis == 0 else joined[:, :num_runs]

  return jax.tree.map(leaf, *trees)


def chunk_lengths(num_steps: int, *, most: int = 20) -> list[int]:
  """Returns the lengths of at most `most` chunks that make up a run.

  The host sees progress between chunks. If a number of chunks between `most`/2
  and `most` divides num_steps, then all lengths are equal and one program is
  compiled; otherwise the last chunk is shorter and needs a second program.

  Args:
    num_steps: number of steps of the run.
    most: largest number of chunks.
  """
  if num_steps <= most:
    return [num_steps]
  for chunks in range(most, most // 2 - 1, -1):
    if num_steps % chunks == 0:
      return [num_steps // chunks] * chunks
  length = -(-num_steps // most)
  full, rest = divmod(num_steps, length)
  return [length] * full + ([rest] if rest else [])


def _lengths(num_steps: int, checkpoints: Checkpoints | None) -> list[int]:
  """Returns the lengths of the chunks of a fit, see `chunk_lengths`."""
  most = None if checkpoints is None else checkpoints.most_chunks
  return (chunk_lengths(num_steps) if most is None else
          chunk_lengths(num_steps, most=most))


def _measured_multipliers(info: StepInfo, plans: Sequence[TrainingPlan],
                          method: Method) -> np.ndarray:
  """Returns the smallest joint noise multiplier [L] that each run had.

  Raises:
    ValueError: if one is below its plan's; the result must not be released.
  """
  measured = np.min(info.joint_noise_multiplier, axis=0)
  if method.private:
    for value, plan in zip(measured, plans, strict=True):
      planned = plan.noise_multiplier
      # Not `value < ...`, which a NaN would pass; 1e-6 is float32 rounding.
      if planned is None or not value >= planned * (1 - 1e-6):
        raise ValueError(f'a run was noised with joint multiplier {value}, '
                         f'less than the planned {planned}')
  return measured
