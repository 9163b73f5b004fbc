"""Times the steps of several methods in turn; each is compiled once."""

from collections.abc import Callable, Mapping
import math
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.sampling import PoissonSampler
from dpjax.train import step as steps
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch


class Program(NamedTuple):
  """A compiled training step and its initial state.

  Attributes:
    advance: state -> state, one step of ordinary training.
    state: state after initialisation.
    compile_seconds: seconds of tracing, lowering and compiling the step.
    megabytes: scratch memory of the step in MB.
  """
  advance: Callable
  state: object
  compile_seconds: float
  megabytes: float


class Samples(NamedTuple):
  """Times of the steps of one method.

  Attributes:
    step_seconds: [rounds], mean seconds of a step in each sample.
    num_steps: number of steps of each sample.
  """
  step_seconds: np.ndarray
  num_steps: int


def sampler(num_examples: int, batch_size: int,
            most_rows: int) -> PoissonSampler:
  """Returns a sampler of batches in parts of at most `most_rows` records."""
  whole = PoissonSampler(num_examples=num_examples, batch_size=batch_size)
  if whole.part_size <= most_rows:
    return whole
  return PoissonSampler(num_examples=num_examples, batch_size=batch_size,
                        max_batch_size=most_rows)


def compile_step(config: configuration.TrainingConfig,
                 dataset: building.Dataset, records: Batch, rows: Array,
                 batches: PoissonSampler) -> Program:
  """Returns the compiled step of `train.loop`, by itself.

  Args:
    config: resolved configuration.
    dataset: data set, which determines the shapes of the model.
    records: all records.
    rows: [n] row in `records` of each training record.
    batches: sampler of the batches.
  """
  model = building.make_model(config, dataset)
  method = building.make_method(config, model, dataset)
  plan = TrainingPlan(
      sampler=batches, num_steps=config.num_steps,
      noise_multiplier=1.0 if method.private else None,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  optimizer = building.make_optimizer(config)

  def transform_of(key):
    return steps.make_transform(
        method, plan.sampler, optimizer, key=key,
        noise_multiplier=plan.noise_multiplier or 0.0,
        allocation=config.allocation)

  records = records._replace(x=jax.jit(model.prepare)(records.x))
  step = steps.make_step(method=method, sampler=plan.sampler,
                         transform_of=transform_of)
  state = jax.jit(lambda key: steps.init_state(
      key, model=model, method=method,
      transform_of=transform_of))(jax.random.key(0))
  started = time.perf_counter()
  compiled = jax.jit(lambda state, records, rows: step(
      state, records, rows, None)[0], donate_argnums=0).lower(
          state, records, rows).compile()
  seconds = time.perf_counter() - started
  megabytes = compiled.memory_analysis().temp_size_in_bytes / 1e6
  return Program(lambda state: compiled(state, records, rows), state, seconds,
                 megabytes)


def time_in_turn(programs: Mapping[str, Program], *, unit: str,
                 num_rounds: int, sample_seconds: float, steps_per_epoch: int,
                 on_round: Callable[[int], None] = lambda done: None,
                 ) -> dict[str, Samples]:
  """Times each method once in every round, after two steps to warm up.

  Every sample has as many steps as `unit` takes in `sample_seconds`, at most an
  epoch. All methods start from one key, so that in each round they process the
  same batches, divided into equally many parts.

  Args:
    programs: compiled programs by the name of the method.
    unit: name of the method that sets the number of steps of a sample.
    num_rounds: number of samples of each method.
    sample_seconds: seconds that a sample of `unit` should take.
    steps_per_epoch: largest number of steps of a sample.
    on_round: called with the number of rounds done.
  """
  states, warm = {}, {}
  for name, program in programs.items():
    states[name], _ = _sample(program, program.state, 1)
    states[name], warm[name] = _sample(program, states[name], 1)
  length = max(1, min(steps_per_epoch, math.ceil(sample_seconds / warm[unit])))
  values = {name: [] for name in programs}
  for done in range(num_rounds):
    for name, program in programs.items():
      states[name], seconds = _sample(program, states[name], length)
      values[name].append(seconds / length)
    on_round(done + 1)
  return {name: Samples(np.asarray(seconds), length)
          for name, seconds in values.items()}


def _sample(program: Program, state, num_steps: int):
  """Runs some steps and waits for the last; returns (state, seconds)."""
  started = time.perf_counter()
  for _ in range(num_steps):
    state = program.advance(state)
  jax.block_until_ready(state)
  return state, time.perf_counter() - started


def row_numbers(num_examples: int, num_images: int) -> Array:
  """Returns the image of each record, [n] int32; images may be repeated."""
  return jnp.arange(num_examples, dtype=jnp.int32) % num_images
