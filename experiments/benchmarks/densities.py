"""Densities by dpjax: repetitions of an experiment by `vmap`.

A step draws the counts of `REPETITIONS` data sets, releases an estimate from
each and computes its exact error: all the work behind a point of a figure.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.stats import mechanisms
from dpjax.stats.density_methods import estimate
from experiments.benchmarks import density_work as work
from experiments.benchmarks import program as programs
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec


def make(spec: Spec) -> Program:
  """Returns a program of repetitions of an estimator."""
  given = work.of_model(spec.model, spec.size)
  mechanism, rng = given.estimator, np.random.default_rng(0)
  keys = list(jax.random.split(jax.random.key(0), 64))
  # The time of a step does not depend on the keys.
  turn = itertools.cycle(keys)

  def statistics() -> np.ndarray:
    return given.statistics(work.counts(rng, given, work.REPETITIONS))

  with jax.enable_x64(True):
    _, info = programs.compiled(
        mechanisms.repeated(mechanism.draw, 0), jax.random.split(
            keys[0], work.REPETITIONS), jnp.asarray(statistics()),
        mechanism.parameters)

  def step() -> np.ndarray:
    coefficients = mechanism.coefficients(next(turn), statistics())
    return estimate.errors_of(mechanism.kind, coefficients, work.density())

  def audit() -> dict[str, np.ndarray]:
    return {'draws': mechanism.coefficients(jax.random.key(1), given.statistics(
        work.checked(given)))}

  return Program(step=step, info=info, repeats=work.REPETITIONS, audit=audit)
