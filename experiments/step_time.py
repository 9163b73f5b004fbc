"""What a training step costs, method beside method in one process.

Times are read between the chunks of ordinary runs, so a step here is a step
there: sampling, gradients, noise, optimiser and constraint.
"""

from collections.abc import Sequence
import dataclasses
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.data import arrays
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train.plan import TrainingPlan
from experiments import building
from experiments import recipes
from experiments import configuration


METHODS = tuple(method for method in configuration.METHODS if method not in (
    'lip_norm', 'lip_k_norm', 'bassily', 'lip_printed'))
"""Those for a perceptron with Gaussian noise and hidden layers."""


class StepTime(NamedTuple):
  """One method's cost.

  Attributes:
    method: name.
    microseconds: of one step of one run, median over chunks, best round.
    ratio: over the same of the first method.
    compile_seconds: of the last round.
  """
  method: str
  microseconds: float
  ratio: float
  compile_seconds: float


def measure(*, num_examples: int, num_features: int, batch_size: float,
            depth: int, width: int, num_steps: int, rounds: int,
            num_runs: int = 1,
            methods: Sequence[str] = METHODS) -> list[StepTime]:
  """Times methods in turn on synthetic records, the first as the unit.

  Args:
    num_examples: records n.
    num_features: p; two classes.
    batch_size: expected.
    depth: hidden layers.
    width: units of each.
    num_steps: in one round; its chunks are the samples.
    rounds: how often to go through all methods.
    num_runs: trained at once; times are for one of them.
    methods: names, the unit first.
  """
  dataset = _synthetic(num_examples, num_features)
  best = {method: np.inf for method in methods}
  compiled = {}
  for _ in range(rounds):
    for method in methods:
      config = _config(method, num_examples, batch_size, depth, width,
                       num_steps)
      seconds, compiled[method] = _time_chunks(config, dataset, num_runs)
      best[method] = min(best[method], seconds)
  unit = best[methods[0]]
  return [StepTime(method, 1e6 * best[method] / num_runs,
                   best[method] / unit, compiled[method])
          for method in methods]


def _synthetic(num_examples: int, num_features: int) -> arrays.Dataset:
  key = jax.random.key(0)
  x = jax.random.uniform(key, (num_examples, num_features), minval=-1.0)
  y = (jnp.sum(x[:, :2], 1) > 0).astype(jnp.int32)
  return arrays.Dataset('synthetic', x, y, 2, ())


def _config(method, num_examples, batch_size, depth, width, num_steps):
  recipe = recipes.recipe(method, num_train=num_examples)
  return configuration.TrainingConfig(
      dataset='synthetic', method=method, num_examples=num_examples,
      **{**dataclasses.asdict(recipe), 'batch_size': batch_size,
         'num_steps': num_steps, 'depth': depth, 'width': width})


def _time_chunks(config, dataset, num_runs: int) -> tuple[float, float]:
  """Median seconds of a step over the chunks of one fit, and of compiling."""
  private = config.method != 'sgd'
  plan = TrainingPlan(
      sampler=PoissonSampler(num_examples=config.num_examples,
                             batch_size=config.batch_size),
      num_steps=config.num_steps, noise_multiplier=2.0 if private else None,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  dataset = building.prepare(config, dataset)
  model = building.make_model(config, dataset)
  rows = jnp.arange(config.num_examples, dtype=jnp.int32)
  stamps = []
  result = loop.fit(
      jax.random.split(jax.random.key(0), num_runs), plans=[plan] * num_runs,
      model=model, method=building.make_method(config, model),
      optimizer=building.make_optimizer(config),
      records=dataset.records,
      rows=jnp.tile(rows[None], (num_runs, 1)),
      on_progress=lambda done, total: stamps.append(
          (done, time.perf_counter())))
  done, times = np.asarray(stamps).T
  return (float(np.median(np.diff(times) / np.diff(done))),
          result.compile_seconds)
