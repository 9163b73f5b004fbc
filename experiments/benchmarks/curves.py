"""Curves by dpjax: smoothing of ranks, releases, secure comparisons."""

from collections.abc import Callable
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.mpc import comparison
from dpjax.stats import mechanisms
from dpjax.stats.ecdf_methods import smoothing
from dpjax.typing import Array
from experiments.benchmarks import curve_work as work
from experiments.benchmarks import methods
from experiments.benchmarks import program as programs
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec
from experiments.methods.statistics import flows


def make(spec: Spec) -> Program:
  """Returns a program of one call on prepared inputs."""
  if spec.model in ('squares', 'absolute'):
    return _smoothed(spec.model, spec.size)
  if spec.model.startswith('release'):
    return _released(spec.model, spec.size)
  return _compared(spec.model, spec.size)


def _smoothed(model: str, size: int) -> Program:
  """Returns a program that smooths noisy ranks."""
  def smooth(ranks: Array, total: Array) -> Array:
    if model == 'absolute':
      return flows.least_absolute(ranks, total)
    variances = jnp.ones([len(work.nodes(size))], ranks.dtype)
    return smoothing.least_squares(ranks, total, variances)

  call, info = _compiled(jax.jit(smooth), *work.noisy_ranks(size))
  return Program(step=call, info=info, audit=lambda: {'results': call()})


def _compiled(function: Callable, *arguments: Any
              ) -> tuple[Callable[[], np.ndarray], dict[str, float]]:
  """Returns a call with these arguments, and metrics of compiling."""
  with jax.enable_x64(True):
    compiled, info = programs.compiled(function, *arguments)

  def call() -> np.ndarray:
    with jax.enable_x64(True):
      return np.asarray(compiled(*arguments))
  return call, info


def _released(model: str, size: int) -> Program:
  """Returns a program that releases a curve."""
  mechanism, counts = work.released(model, size), work.counts(size)
  keys = list(jax.random.split(jax.random.key(0), 256))
  # The time of a release does not depend on the key.
  turn = itertools.cycle(keys)
  _, info = _compiled(mechanisms.compiled(mechanism.draw), keys[0], counts,
                      mechanism.parameters)

  def audit():
    many = jax.random.split(jax.random.key(1), methods.CHECKED_DRAWS)
    with jax.enable_x64(True):
      return {'draws': np.asarray(mechanisms.repeated(mechanism.draw)(
          many, counts, mechanism.parameters))}

  return Program(step=lambda: mechanism.estimate(next(turn), counts), info=info,
                 audit=audit)


def _compared(model: str, size: int) -> Program:
  """Returns a program with one server's part of a comparison."""
  given = work.compared(size)
  answer = (comparison.sums if model == 'comparison_everywhere'
            else lambda keys: comparison.evaluate(keys, given.points))
  return Program(step=lambda: answer(given.keys[0]), info={},
                 audit=lambda: {'results': work.opened(
                     [answer(keys) for keys in given.keys])})
