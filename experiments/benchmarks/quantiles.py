"""Private quantiles by dpjax: a release at a time, or many by vmap.

Records come in no order, as NumPy has them, and answers go back to it: sorting
and padding on the host is part of a step.
"""

from collections.abc import Callable
import functools
import itertools

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
"""In a step of `ours_repeated`."""

_FAMILIES = {
    'independent': independent.IndependentQuantiles,
    'joint': joint.JointQuantiles, 'inverse': joint.InverseQuantiles,
    'recursive': recursive.RecursiveQuantiles, 'tree': trees.TreeQuantiles,
}


_ASKED = dict(epsilon=peers.EPSILON, lower=peers.LOWER, upper=peers.UPPER,
              adjacency=Adjacency.REPLACE_ONE)


def made(model: str, size: int) -> mechanism.QuantileMechanism:
  """The mechanism of a model, for data sets of `size` records."""
  family, num_orders = methods.quantile_model(model)
  probs = tuple(peers.probs(num_orders).tolist())
  if family in _FAMILIES:
    return _FAMILIES[family](probs=probs, **_ASKED)
  make = histogram.coarse if family == 'histogram' else api.plan
  return make(probs, num_examples=size, **_ASKED)


def make(spec: Spec) -> Program:
  """A release, or `REPETITIONS` of them."""
  name, _ = methods.split(spec.method)
  found = made(spec.model, spec.size)
  if name == 'ours_repeated':
    return _repeated(found, spec.size)
  automatic = methods.quantile_model(spec.model)[0] == 'auto'
  return _single(found, spec.size, functools.partial(
      api.quantiles, probs=found.probs, **_ASKED) if automatic
      else found.estimate)


def _keys(count: int) -> list[PRNGKey]:
  return list(jax.random.split(jax.random.key(0), count))


def _compile(law: Callable, *arguments) -> dict[str, float]:
  """What it took; calls of the law need no more compiling."""
  with jax.enable_x64(True):
    return programs.compiled(law, *arguments)[1]


def _single(found: mechanism.QuantileMechanism, size: int,
            release: Callable) -> Program:
  (data,), keys = peers.data(size), _keys(256)
  info = _compile(mechanisms.compiled(found.draw), keys[0],
                  records.padded(data, found.lower, found.upper),
                  found.parameters)
  turn = itertools.cycle(keys)  # times do not mind

  def audit():
    return {'draws': np.stack([release(key, data) for key in _keys(
        methods.CHECKED_DRAWS)])}

  return Program(step=lambda: release(next(turn), data), info=info,
                 audit=audit)


def _repeated(found: mechanism.QuantileMechanism, size: int) -> Program:
  law = mechanism.repeated(found.draw)

  def stacked(data: np.ndarray) -> Records:
    each = [records.padded(row, found.lower, found.upper) for row in data]
    return each[0]._replace(ordered=np.stack([of.ordered for of in each]))

  def release(keys: PRNGKey, data: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
      return np.asarray(law(keys, stacked(data), found.parameters))

  data = peers.data(size, REPETITIONS)
  keys = [jax.random.split(key, REPETITIONS) for key in _keys(16)]
  info = _compile(law, keys[0], stacked(data), found.parameters)
  turn = itertools.cycle(keys)

  def audit():
    same = np.broadcast_to(data[:1], data.shape)
    return {'draws': np.concatenate([
        release(jax.random.split(key, REPETITIONS), same)
        for key in _keys(methods.CHECKED_DRAWS // REPETITIONS)])}

  return Program(step=lambda: release(next(turn), data), info=info,
                 repeats=REPETITIONS, audit=audit)
