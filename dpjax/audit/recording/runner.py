"""Compiled runs of a traced release on data of one shape."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from dpjax.audit.recording import interpreter
from dpjax.audit.recording.values import Trace
from dpjax.audit.recording.values import Value
from dpjax.typing import PRNGKey, PyTree


class Runner:
  """Compiled runs of a release on data of one shape, over many keys.

  Attributes:
    trace: sites and leaves of the run, without its arrays.
    released: what each released array depends on.
  """

  def __init__(self, release: Any, key: PRNGKey, data: PyTree):
    self._closed = jax.make_jaxpr(lambda key, data: jax.tree.leaves(
        release(key, data)))(key, data)
    self.trace = Trace()
    self.released: list[Value] = []
    shapes = jax.eval_shape(functools.partial(self._run, None, False), key,
                            data)
    self.frozen_shapes = [(w.shape, w.dtype) for w in shapes['outputs']]
    self._mapped = jax.jit(jax.vmap(
        lambda key, data, frozen, flag: self._run(frozen, flag, key, data),
        (0, None, 0, None)))

  def __call__(self, keys: PRNGKey, data: PyTree,
               frozen: list[Any] | None = None) -> dict[str, Any]:
    """Returns arrays with leading axis [keys]: values, noises, outputs, ..."""
    flag = frozen is not None
    if frozen is None:
      frozen = [jnp.zeros((keys.shape[0], *shape), dtype)
                for shape, dtype in self.frozen_shapes]
    return self._mapped(keys, data, frozen, flag)

  def _run(self, frozen: list[Any] | None, flag: Any, key: PRNGKey,
           data: PyTree) -> dict[str, Any]:
    """Runs the release once; notes what it meets in `trace`."""
    trace = Trace(frozen=frozen, use_frozen=flag)
    inputs = [Value(key, draws=frozenset(['the key']))]
    inputs += [Value(leaf, data=True) for leaf in jax.tree.leaves(data)]
    released = interpreter.interpret(trace, self._closed.jaxpr,
                          [Value(const) for const in self._closed.consts],
                          inputs, '')
    for value in released:
      interpreter.break_order(trace, value)
    self.trace = dataclasses.replace(trace, frozen=None, use_frozen=False,
                                     draws=[], values=[], noises=[],
                                     outputs=[], scales={})
    self.released = [dataclasses.replace(value, array=None)
                     for value in released]
    return dict(released=[value.array for value in released],
                draws=trace.draws, values=trace.values, noises=trace.noises,
                outputs=trace.outputs,
                scales=[leaf.scale for leaf in trace.leaves])
