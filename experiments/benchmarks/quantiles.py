"""Private quantiles by dpjax: one release at a time, or many by `vmap`.

Records are unsorted NumPy arrays, and so are the answers: a step includes
sorting and padding on the host.
"""

from collections.abc import Callable
import functools
import itertools
from typing import Any

import jax
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats.quantile_methods import api
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import recursive
from dpjax.stats.quantile_methods import trees
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import PRNGKey
from experiments.benchmarks import methods
from experiments.benchmarks import program as programs
from experiments.benchmarks import quantile_peers as peers
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

REPETITIONS = 50
"""Number of releases in a step of `ours_repeated`."""

_FAMILIES = {
    'independent': independent.IndependentQuantiles,
    'joint': joint.JointQuantiles, 'inverse': joint.InverseQuantiles,
    'recursive': recursive.RecursiveQuantiles, 'tree': trees.TreeQuantiles,
}


_PUBLIC = dict(epsilon=peers.EPSILON, lower=peers.LOWER, upper=peers.UPPER,
               adjacency=Adjacency.REPLACE_ONE)


def mechanism_of(model: str, size: int) -> mechanism.QuantileMechanism:
  """Returns the mechanism of a model for `size` records."""
  family, num_levels = methods.quantile_model(model)
  probs = tuple(peers.probs(num_levels).tolist())
  if family in _FAMILIES:
    return _FAMILIES[family](probs=probs, **_PUBLIC)
  make = histogram.coarse if family == 'histogram' else api.plan
  return make(probs, num_examples=size, **_PUBLIC)


def make(spec: Spec) -> Program:
  """Returns a program of one release, or of `REPETITIONS` of them."""
  name, _ = methods.split(spec.method)
  estimator = mechanism_of(spec.model, spec.size)
  if name == 'ours_repeated':
    return _repeated(estimator, spec.size)
  automatic = methods.quantile_model(spec.model)[0] == 'auto'
  return _single(estimator, spec.size, functools.partial(
      api.quantiles, probs=estimator.probs, **_PUBLIC) if automatic
      else estimator.estimate)


def _keys(count: int) -> list[PRNGKey]:
  """Returns `count` different keys."""
  return list(jax.random.split(jax.random.key(0), count))


def _compile(function: Callable, *arguments: Any) -> dict[str, float]:
  """Compiles a function, so that its calls need not; returns the metrics."""
  with jax.enable_x64(True):
    return programs.compiled(function, *arguments)[1]


def _single(estimator: mechanism.QuantileMechanism, size: int,
            release: Callable) -> Program:
  (data,), keys = peers.data(size), _keys(256)
  info = _compile(mechanisms.compiled(estimator.draw), keys[0],
                  records.padded(data, estimator.lower, estimator.upper),
                  estimator.parameters)
  # The time of a release does not depend on the key.
  turn = itertools.cycle(keys)

  def audit():
    return {'draws': np.stack([release(key, data) for key in _keys(
        methods.CHECKED_DRAWS)])}

  return Program(step=lambda: release(next(turn), data), info=info,
                 audit=audit)


def _repeated(estimator: mechanism.QuantileMechanism, size: int) -> Program:
  """Returns a program of `REPETITIONS` releases by `vmap`."""
  draw = mechanism.repeated(estimator.draw)

  def stacked(data: np.ndarray) -> Records:
    each = [records.padded(row, estimator.lower, estimator.upper)
            for row in data]
    return each[0]._replace(ordered=np.stack([of.ordered for of in each]))

  def release(keys: PRNGKey, data: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
      return np.asarray(draw(keys, stacked(data), estimator.parameters))

  data = peers.data(size, REPETITIONS)
  keys = [jax.random.split(key, REPETITIONS) for key in _keys(16)]
  info = _compile(draw, keys[0], stacked(data), estimator.parameters)
  turn = itertools.cycle(keys)

  def audit():
    same = np.broadcast_to(data[:1], data.shape)
    return {'draws': np.concatenate([
        release(jax.random.split(key, REPETITIONS), same)
        for key in _keys(methods.CHECKED_DRAWS // REPETITIONS)])}

  return Program(step=lambda: release(next(turn), data), info=info,
                 repeats=REPETITIONS, audit=audit)
