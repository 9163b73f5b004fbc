"""Runs of `loop.fit` on records that are read part by part from a source.

A `Chunk` takes the place of a compiled chunk of `loop`. Its steps are those of
`step.make_step`, with the loop over the parts of a batch on the host: a thread
reads parts, a compiled function adds the sums of a part, and another one adds
noise and updates the state. Bits of batches, noise and views are the same.
"""

from collections.abc import Callable, Iterable, Sequence
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
import numpy as np
import optax

from dpjax import tree
from dpjax.grads import inputs
from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import Method
from dpjax.models.model import Model
from dpjax.train import loading
from dpjax.train import placement
from dpjax.train import reading
from dpjax.train import requirements
from dpjax.train import sharding
from dpjax.train import step as steps
from dpjax.train.averaging import Averaging
from dpjax.train.plan import TrainingPlan
from dpjax.train.sources import Source
from dpjax.train.state import StepInfo
from dpjax.train.state import TrainState
from dpjax.typing import Array, Batch, PRNGKey, PyTree


def check(keys: PRNGKey, plans: Sequence[TrainingPlan], model: Model,
          method: Method, optimizer: optax.GradientTransformation,
          source: Source, rows: Any) -> tuple[Batch, Array]:
  """Checks the arguments of a fit whose records are a source.

  Args: see `loop.fit`.

  Returns:
    (first and last record as a `Batch`, rows [L, 0] of no meaning).

  Raises:
    TypeError: see `requirements.check`.
    ValueError: see `requirements.check`; or if there are rows, or another
      number of records than in the plans.
  """
  requirements.check_plans(plans, method, model)
  requirements.check_model(model, optimizer)
  requirements.check_optimizer(model, optimizer)
  requirements.check_keys(keys, len(plans))
  if rows is not None:
    raise ValueError('rows must be None if the records are a source: each run '
                     'trains on all of its records')
  loading.check_size(len(source), plans[0].sampler.num_examples,
                     'num_examples of the plans')
  records = _as_batch(source.load(np.array([0, len(source) - 1])))
  requirements.check_preparation(model, records)
  requirements.check_views(method.bounder, model, records)
  return records, jnp.zeros([len(plans), 0], jnp.int32)


def _as_batch(records: Any) -> Batch:
  """Returns (x, y), or {'x': x, 'y': y}, as a `Batch`."""
  if isinstance(records, dict) and set(records) == {'x', 'y'}:
    records = records['x'], records['y']
  return inputs.as_batch(records)


class _Functions(NamedTuple):
  """Compiled functions of a step, whose states have a leading axis [1]."""
  draw: Callable[..., Any]
  zeros: Callable[..., Any]
  add: Callable[..., Any]
  finish: Callable[..., Any]


class Chunk:
  """Runs a number of steps of one run.

  Attributes:
    out_tree: tree structure of what a call returns.
  """

  def __init__(self, length: int, program: 'Program', out_tree: Any):
    """Keeps the number of steps, and the program that makes them."""
    self.out_tree = out_tree
    self._length, self._program = length, program

  def __call__(self, state: TrainState, multiplier: Array, rows: Array,
               records: Any) -> tuple[TrainState, StepInfo]:
    """Returns the state after the steps, and infos [length, 1, ...].

    Args:
      state: leaves have a leading axis [1]; it is donated.
      multiplier: noise multiplier, [1].
      rows: not read.
      records: not read; the program has its source.
    """
    del rows, records
    infos = []
    # A copy, because the state and its keys are donated.
    words = np.array(jax.random.key_data(state.keys.batch))[0]
    key = jax.random.wrap_key_data(
        jnp.asarray(words), impl=jax.random.key_impl(state.keys.batch))
    first = int(state.step[0])
    for step in range(first, first + self._length):
      state, info = self._program.step(state, multiplier, key, step)
      infos.append(info)
    return state, jax.tree.map(lambda *leaves: np.stack(leaves), *infos)


class Program:
  """The steps of the runs of a fit on a source."""

  def __init__(self, plan: TrainingPlan, source: Source,
               mesh: jax.sharding.Mesh | None,
               placed: placement.Placement | None = None):
    """Keeps what all steps share; `chunks` compiles them.

    Raises:
      ValueError: if devices of the mesh belong to several processes.
    """
    if mesh is not None and mesh.is_multi_process:
      raise ValueError('records of a source are read by one process: give '
                       'arrays to train with several processes')
    self._plan, self._source, self._mesh = plan, source, mesh
    self._placed = placed
    self._sampler = sharding.split_sampler(mesh, plan.sampler)
    self._ahead, self._sums = reading.ReadAhead(), reading.PartSums()

  def chunks(self, lengths: Iterable[int], state: TrainState,
             multiplier: Array, **given: Any) -> dict[int, Chunk]:
    """Compiles all functions; returns chunks by length.

    Args:
      lengths: numbers of steps.
      state: a state [1], or its shapes.
      multiplier: noise multiplier [1], or its shape.
      **given: model, method, transform_with, averaging and noised, as in
        `functions`.
    """
    method = given['method']
    noise = functools.partial(
        sharding.noise_in_parts, self._placed if method.noise_order is None
        and self._plan.lattice_size is None else None)
    self._functions, out_tree = self._compiled(
        functions(self._sampler, noise=noise, **given), state, multiplier)
    return {length: Chunk(length, self, out_tree) for length in set(lengths)}

  def _compiled(self, plain: tuple[Callable[..., Any], ...],
                state: TrainState, multiplier: Array) -> tuple[_Functions, Any]:
    """Returns the compiled functions, and the tree structure of results."""
    sums, add, finish = plain
    part = next(reading.parts(self._source.load, np.zeros([0], np.int32),
                              self._sampler.part_size))
    data = sharding.place_rows(self._mesh, part[:3])
    count = jax.ShapeDtypeStruct((), jnp.int32)
    shapes = jax.eval_shape(sums, state, *data)
    jit = functools.partial(sharding.jit, self._mesh)
    whole: Any = PartitionSpec()
    rows = PartitionSpec(placement.AXIS)
    where = placement.of_runs(self._placed, state)
    totals: Any = whole if self._placed is None else BoundedSums(
        self._placed.params, whole, whole, whole)
    zeros = jit(lambda: jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes), results=totals)
    # Each device gets its rows; the sums of all parts are in one memory.
    added = jit(add, arguments=(where, totals, rows, rows, rows),
                results=(totals, whole), donate_argnums=1)
    finished = jit(finish, arguments=(where, whole, totals, whole),
                   results=(where, whole), donate_argnums=0)
    compiled = _Functions(
        jit(self._sampler.batch), zeros.lower().compile(),
        added.lower(state, shapes, *data).compile(),
        finished.lower(state, multiplier, shapes, count).compile())
    return compiled, jax.tree.structure(
        jax.eval_shape(finish, state, multiplier, shapes, count))

  def step(self, state: TrainState, multiplier: Array, key: PRNGKey, step: int
           ) -> tuple[TrainState, StepInfo]:
    """Makes one step.

    Args:
      state: before the step, [1]; it is donated.
      multiplier: noise multiplier, [1].
      key: of all batches of the run.
      step: number of the step.
    """
    functions = self._functions
    run = np.asarray(jax.random.key_data(key)).tobytes()
    start = lambda: reading.Reader(
        functools.partial(reading.drawn, self._sampler, functions.draw, key),
        self._source.load, size=self._sampler.part_size,
        steps=(step, self._plan.num_steps), ahead=self._source.read_ahead)
    total, count = self._sums.total(
        self._ahead.batch(run, step, self._source, start),
        zeros=functions.zeros,
        add=lambda total, data: functions.add(state, total, *data),
        place=functools.partial(sharding.place_rows, self._mesh))
    return functions.finish(state, multiplier, total, count)


def functions(sampler: Any, *, model: Model, method: Method,
              transform_with: Callable[[Array], steps.TransformOf],
              noised: Callable[[Array], Any], averaging: Averaging | None,
              noise: Callable[..., PyTree]) -> tuple[Callable[..., Any], ...]:
  """Returns the functions of a step, pure: (sums, add, finish).

  Args:
    sampler: its expected batch size is the public divisor.
    model: prepares the records of a part.
    method: its sums may be divided over a mesh.
    transform_with: noise multiplier -> noise key -> the transform.
    noised: noise multiplier -> see `step.make_step`.
    averaging: see `step.make_step`.
    noise: (key, step, params, radii) -> noise of a step, or None.
  """
  one = lambda values: jax.tree.map(lambda leaf: leaf[0], values)

  def sums(state: TrainState, part: PyTree, numbers: Array,
           mask: Array) -> PyTree:
    batch = _as_batch(part)
    x: Any = model.prepare(batch.x)
    batch = batch._replace(x=x)
    return steps.sums_of(method, one(state), batch, numbers, mask)

  def add(state: TrainState, total: PyTree, part: PyTree, numbers: Array,
          mask: Array) -> tuple[PyTree, Array]:
    after = tree.add(total, sums(state, part, numbers, mask))
    # It is known when the sums are, and stays when their memory is reused.
    return after, after.num_nonfinite + 0

  def finish(state: TrainState, multiplier: Array, total: PyTree,
             num_selected: Array) -> PyTree:
    made = steps.make_finish(
        method=method, sampler=sampler,
        transform_of=transform_with(multiplier[0]), averaging=averaging,
        noised_sensitivity=noised(multiplier[0]))
    run = one(state)
    drawn = noise(run.keys.noise, run.step, run.params, run.radii)
    return jax.tree.map(lambda leaf: leaf[None],
                        made(run, total, num_selected, drawn))

  return sums, add, finish
