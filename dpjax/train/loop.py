"""Whole runs, many at once, compiled once."""

from collections.abc import Callable, Sequence
import functools
import itertools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax import errors
from dpjax import tree
from dpjax.grads import convolutions
from dpjax.grads import lattice_privatizer
from dpjax.grads.bounder import Method
from dpjax.models.model import Model
from dpjax.privacy import accounting
from dpjax.sampling import PoissonSampler
from dpjax.train import checkpoint
from dpjax.train import requirements
from dpjax.train import sharding
from dpjax.train import state as states
from dpjax.train import step as steps
from dpjax.train import used_keys
from dpjax.train.averaging import Averaging
from dpjax.train.checkpoint import Checkpoints, Part, Saver
from dpjax.train.plan import TrainingPlan
from dpjax.train.state import StepInfo, TrainState
from dpjax.typing import Array, Batch, PRNGKey


# Values drawn ahead of a chunk by one run, 4 bytes each: 16 MiB.
_MAX_AHEAD = 2**22


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
    train_seconds: running all L runs; before they were resumed as well.
  """
  state: TrainState
  info: StepInfo
  events: tuple[accounting.DpEvent, ...]
  joint_noise_multipliers: np.ndarray
  compile_seconds: float
  train_seconds: float


def fit(keys: PRNGKey, *, plans: Sequence[TrainingPlan], model: Model,
        method: Method, optimizer: optax.GradientTransformation,
        records: Batch, rows: Array, init_keys: PRNGKey | None = None,
        allocation: str = 'optimal', max_parallel: int | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        averaging: Averaging | None = None,
        mesh: jax.sharding.Mesh | None = None,
        checkpoints: Checkpoints | None = None) -> FitResult:
  """Trains L models: seeds, splits and noise levels, one compiled program.

  Args:
    keys: [L] typed keys, one for each run, all different, of which batches,
      noise and views are drawn. A key is for one run ever: two fits that are
      given one key share batches and noise (`used_keys` says which of them are
      refused). What a run guarantees, it
      guarantees against whoever does not know its key: a release takes
      `keys.system_keys(L)`, which nobody can guess. `jax.random.key(seed)` is
      found by trying seeds; it is for research.
    plans: [L] plans that differ in their noise multiplier at most.
    model: initialised anew for each run, see `init_keys`; its parameters are
      floating numbers.
    method: see `methods`.
    optimizer: any optax optimiser; it sees noisy means only.
    records: all records, shared by the runs: a `Batch` or a pair (x, y), x an
      array or a tree of them.
    rows: [L, n] integers; which records each run trains on, each once, n the
      `num_examples` of the plans.
    init_keys: [L] typed keys of the initial parameters, which count as public:
      of any generator, and not to be made from `keys`. None: parts of `keys`
      that nothing else is drawn from.
    allocation: split of the noise over blocks, see `privacy.blocks`.
    max_parallel: how many runs to advance at once; all by default. The
      results do not depend on it.
    on_progress: called between chunks with (steps done, steps in all), summed
      over the batches of runs.
    averaging: also keep this average of the parameters (REG-05), in the
      field `average.mean` of the state; evaluate it like its `params`.
    mesh: divide each batch over these devices (`sharding.data_mesh`); every
      process calls `fit` with the same arguments. None: one device.
    checkpoints: save the runs now and then, and resume them if they were. A
      resumed fit gives the bits that it would have given in one go. Of many
      processes the first one reads and writes them.

  Raises:
    TypeError: if a parameter is not a floating number.
    ValueError: if two runs have one key; if a fit without checkpoints is given
      a secret key that another fit of this process was given; if an init_key
      is one of `keys` or they are made from it; if rows repeat a record or are
      none;
      if the plans disagree with each other, with `rows`, with the method or
      with the mesh; if adaptive radii cost more than a plan has; if the
      network, the loss, the preparation or views mix records
      (`grads.isolation`); if the optimizer's first step is not finite; if the
      network or the loss takes batches of some sizes only; if the checkpoint
      is of another fit; or if a run was noised less than planned.

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
  records, rows = requirements.check(keys, plans, model, method, optimizer,
                                     records, rows)
  init_keys = _init_keys(keys, init_keys, checkpoints is not None)
  sharding.check(mesh, plans[0].sampler.max_batch_size)
  groups = _run_groups(len(plans), max_parallel)
  lengths = chunk_lengths(plans[0].num_steps)
  saver = None if checkpoints is None else Saver(
      checkpoints, checkpoint.fingerprint(
          (keys, init_keys), plans=plans, method_name=method.name,
          records=records, rows=rows, allocation=allocation,
          num_groups=len(groups), chunks=lengths,
          num_devices=1 if mesh is None else mesh.size))
  started = time.perf_counter()
  records = sharding.replicate(
      mesh, records._replace(x=jax.jit(model.prepare)(records.x)))
  multipliers = jnp.asarray([p.noise_multiplier or 0.0 for p in plans],
                            jnp.float32)
  arguments = sharding.replicate(
      mesh, [((keys[g], init_keys[g]), multipliers[g], rows[g])
             for g in groups])
  program = _compile(arguments[0], plans[0], model, method, optimizer, records,
                     allocation, averaging, mesh)
  compiled = time.perf_counter()
  parts = _train(program, arguments, records, lengths, saver, on_progress)
  seconds = time.perf_counter() - compiled + (saver.seconds if saver else 0.0)
  state = _concatenate([sharding.local(mesh, p.state) for p in parts], 0,
                       len(plans), jnp.concatenate)
  info = _concatenate([p.info for p in parts], 1, len(plans), np.concatenate)
  used_keys.add(keys)
  return FitResult(state, info, tuple(p.event for p in plans),
                   _measured_multipliers(info, plans, method),
                   compiled - started, seconds)


def _init_keys(keys: PRNGKey, init_keys: PRNGKey | None,
               resumable: bool) -> PRNGKey:
  """Those of the initial parameters; refuses secret ones, and used keys."""
  if not resumable:
    used_keys.check(keys)
  if init_keys is None:
    return jax.vmap(lambda key: states.streams(key).init)(keys)
  requirements.check_init_keys(init_keys, keys)
  return init_keys


def _train(program: '_Program', arguments, records: Batch, lengths: list[int],
           saver: Saver | None, on_progress) -> list[Part]:
  """Runs every group to its end, from where it was saved."""
  started = time.perf_counter()
  parts = []
  if saver is not None:
    parts = saver.restore(program.init(*arguments[0][:2]),
                          program.chunks[lengths[0]].out_tree)
  done = sum(part.num_steps for part in parts)
  for number, group in enumerate(arguments):
    if number == len(parts):
      parts.append(Part(program.init(*group[:2]), ()))
    ends = list(itertools.accumulate(lengths, initial=0))
    for length in lengths[ends.index(parts[number].num_steps):]:
      state, infos = parts[number]
      state, info = program.chunks[length](state, *group[1:], records)
      parts[number] = Part(state, (*infos, jax.tree.map(np.asarray, info)))
      done += length
      if saver is not None:
        saver.after_chunk(done, parts, time.perf_counter() - started)
      if on_progress is not None:
        on_progress(done, sum(lengths) * len(arguments))
  return jax.block_until_ready(parts)


class _Program(NamedTuple):
  """Compiled for one number of runs: their start, and chunks by length."""
  init: Callable
  chunks: dict[int, Callable]


def _compile(example, plan: TrainingPlan, model: Model, method: Method,
             optimizer, records: Batch, allocation: str,
             averaging: Averaging | None,
             mesh: jax.sharding.Mesh | None) -> _Program:
  """Compiles everything a group of runs shaped like `example` needs."""
  keys, multipliers, rows = example  # Pairs of keys, see `init`.
  sampler = sharding.split_sampler(mesh, plan.sampler)
  method = _divided(method, mesh)
  moved = functools.partial(_moved, plan, method, allocation)

  def transform_with(multiplier):
    return lambda key: steps.make_transform(
        method, sampler, optimizer, key=key, noise_multiplier=multiplier,
        allocation=allocation, on_lattice=plan.lattice_size is not None)

  def init(keys, multiplier):
    key, init_key = keys
    return steps.init_state(key, model=model, method=method,
                            transform_of=transform_with(multiplier),
                            averaging=averaging, init_key=init_key)

  def chunk(length):

    def run(state, multiplier, run_rows, records):
      step = steps.make_step(method=method, sampler=sampler,
                             transform_of=transform_with(multiplier),
                             averaging=averaging, moved=moved(multiplier))
      gaussian = method.noise_order is None and plan.lattice_size is None
      ahead = _draw_ahead(state, sampler, length, gaussian)
      return jax.lax.scan(lambda s, drawn: step(s, records, run_rows, drawn),
                          state, ahead, length=length)

    return sharding.jit(mesh, _over_runs(run), donate_argnums=0)

  start = sharding.jit(mesh, jax.vmap(init))
  state = jax.eval_shape(start, keys, multipliers)
  return _Program(start.lower(keys, multipliers).compile(), {
      length: chunk(length).lower(state, multipliers, rows, records).compile()
      for length in set(chunk_lengths(plan.num_steps))
  })


def _draw_ahead(state: TrainState, sampler: PoissonSampler, length: int,
                gaussian: bool):
  """See `step.draw_ahead`; None, each step draws, where it takes too much."""
  if length * (sampler.num_examples + tree.count(state.params)) > _MAX_AHEAD:
    return None
  return steps.draw_ahead(state, sampler, length, noise=gaussian)


def _moved(plan: TrainingPlan, method: Method, allocation: str,
           multiplier: Array) -> Callable | None:
  """(sensitivity, sums) -> how far a record moves what is noised, for `info`.

  None where that is the bounder's sensitivity.
  """
  if plan.lattice_size is None:
    return None
  return lambda sensitivity, sums: lattice_privatizer.on_lattice(
      sensitivity, sums, noise_multiplier=multiplier, allocation=allocation,
      adaptive=method.bounder.adaptive)[0]


def _divided(method: Method, mesh: jax.sharding.Mesh | None) -> Method:
  """The method with its sums over the devices, as fast as they are alone."""
  bounder = method.bounder._replace(
      sums=convolutions.fast_in_loops(method.bounder.sums))
  return method._replace(bounder=sharding.split_sums(mesh, bounder))


def _over_runs(run: Callable) -> Callable:
  """`run` for [L] states, multipliers and rows; infos are [num_steps, L].

  Side by side on an accelerator. On CPU one after the other, which is faster:
  batched products of small matrices, and fusions that compute a nonlinearity
  once for each of its uses, cost more than they save.
  """

  def all_runs(states, multipliers, rows, records):
    if jax.default_backend() == 'cpu':
      states, infos = jax.lax.map(lambda each: run(*each, records),
                                  (states, multipliers, rows))
    else:
      states, infos = jax.vmap(run, (0, 0, 0, None))(states, multipliers, rows,
                                                     records)
    return states, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), infos)

  return all_runs


def _run_groups(num_runs: int, max_parallel: int | None) -> list[np.ndarray]:
  """Run numbers in groups of one size; the last repeats its last run."""
  count = -(-num_runs // errors.check_at_least(
      'max_parallel', max_parallel or num_runs, 1))
  size = -(-num_runs // count)
  numbers = np.minimum(np.arange(count * size), num_runs - 1)
  return list(numbers.reshape(count, size))


def _concatenate(trees, axis: int, num_runs: int, join):
  """Joins groups along the axis of runs and drops the repeated ones."""

  def leaf(*parts):
    joined = join(parts, axis)
    return joined[:num_runs] if axis == 0 else joined[:, :num_runs]

  return jax.tree.map(leaf, *trees)


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


def _measured_multipliers(info: StepInfo, plans, method) -> np.ndarray:
  """What really ran; a shortfall against the plan is an error, not a note."""
  measured = np.min(info.joint_noise_multiplier, axis=0)
  if method.private:
    for value, plan in zip(measured, plans, strict=True):
      if not value >= plan.noise_multiplier * (1 - 1e-6):
        raise ValueError(f'a run was noised with joint multiplier {value}, '
                         f'less than the planned {plan.noise_multiplier}')
  return measured
