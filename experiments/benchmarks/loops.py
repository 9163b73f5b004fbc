"""Times a step of every method inside `loop.fit`, in whole training runs.

Times are read between the chunks of ordinary runs, so a step includes sampling,
gradients, noise, optimiser and constraint. Times of compiling are left out.
"""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.data import arrays
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import recipes
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train.plan import TrainingPlan
from experiments.benchmarks import methods
from experiments.benchmarks import sweep
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec


class _Fit(NamedTuple):
  """Times of one run.

  Attributes:
    times: (wall, cpu) seconds of a step in each chunk.
    compile_seconds: seconds of compiling.
  """
  times: list[tuple[float, float]]
  compile_seconds: float


def make(spec: Spec) -> Program:
  """Returns a program that trains on synthetic records; a sample is a run."""
  work = sweep.LOOP_WORK[spec.model]
  first = _fit(spec, work)
  return Program(step=lambda: _fit(spec, work),
                 info={'compile_seconds': first.compile_seconds},
                 times=lambda seconds: _fit(spec, work).times)


def _fit(spec: Spec, work: sweep.LoopWork) -> _Fit:
  """Runs a training once and times its chunks."""
  name, _ = methods.split(spec.method)
  recipe = recipes.recipe(name, num_train=work.num_examples)
  config = configuration.TrainingConfig(
      dataset='synthetic', method=name, num_examples=work.num_examples,
      **{**recipe, 'batch_size': float(spec.size),
         'num_steps': work.num_steps, 'depth': work.depth,
         'width': work.width})
  plan = TrainingPlan(
      sampler=PoissonSampler(num_examples=config.num_examples,
                             batch_size=config.batch_size),
      num_steps=config.num_steps,
      noise_multiplier=None if name == 'sgd' else 2.0,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  dataset = building.prepare(config, _synthetic(work))
  model = building.make_model(config, dataset)
  rows = jnp.arange(config.num_examples, dtype=jnp.int32)
  stamps = []
  result = loop.fit(
      jax.random.split(jax.random.key(0), work.num_runs),
      plans=[plan] * work.num_runs, model=model,
      method=building.make_method(config, model, dataset),
      optimizer=building.make_optimizer(config), records=dataset.records,
      rows=jnp.tile(rows[None], (work.num_runs, 1)),
      on_progress=lambda done, total: stamps.append(
          (done, time.perf_counter(), time.process_time())))
  done, walls, cpus = np.diff(np.asarray(stamps).T)
  steps = done * work.num_runs
  return _Fit(list(zip((walls / steps).tolist(), (cpus / steps).tolist())),
              result.compile_seconds)


def _synthetic(work: sweep.LoopWork) -> arrays.Dataset:
  """Returns synthetic records with two classes."""
  key = jax.random.key(0)
  x = jax.random.uniform(key, (work.num_examples, work.num_features),
                         minval=-1.0)
  y = (jnp.sum(x[:, :2], 1) > 0).astype(jnp.int32)
  return arrays.Dataset('synthetic', x, y, 2, ())
