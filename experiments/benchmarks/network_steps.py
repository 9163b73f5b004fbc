"""Steps of the networks of `--suite=models`, each beside the plain step.

A step computes the sum of the gradients, clipped or not, and moves the
parameters. No noise is drawn: its cost is that of the suite `step`. The plain
step is compiled and timed in the process of each method, so a ratio is of two
programs that share the state of the machine.
"""

from collections.abc import Callable
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import tree
from dpjax.grads import clipping
from dpjax.grads import explain
from dpjax.grads import weighted
from dpjax.typing import Array, Batch, Params, PyTree
from experiments.benchmarks import methods
from experiments.benchmarks import network_work
from experiments.benchmarks import networks
from experiments.benchmarks.networks_base import Parts
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

_LEARNING_RATE = 1e-3
_COMPILATIONS = 2
RecordLoss = Callable[[Params, PyTree], Array]
Sums = Callable[[RecordLoss, Params, PyTree], Params]
"""(loss of one record, parameters, records) -> sum of the gradients."""


def make(spec: Spec) -> Program:
  """Returns the program of a step, for methods without a library."""
  name, _ = methods.split(spec.method)
  return program(spec, {'plain': plain, 'vmap': vmapped(spec.clip_norm),
                        'ours': ours(spec.clip_norm)}[name])


def plain(loss: RecordLoss, params: Params, records: PyTree) -> Params:
  """Returns the gradient of the summed loss."""
  return jax.grad(lambda params: jnp.sum(
      jax.vmap(loss, (None, 0))(params, records)))(params)


def vmapped(clip_norm: float) -> Sums:
  """Returns clipped sums by `jax.vmap` and `jax.grad`."""

  def sums(loss: RecordLoss, params: Params, records: PyTree) -> Params:
    gradients = jax.vmap(jax.grad(loss), (None, 0))(params, records)
    squares = sum(jnp.sum(jnp.square(leaf), tuple(range(1, leaf.ndim)))
                  for leaf in jax.tree.leaves(gradients))
    weights = clipping.flat_weights(jnp.sqrt(squares), clip_norm=clip_norm)
    return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), gradients)

  return sums


def ours(clip_norm: float) -> Sums:
  """Returns clipped sums by this library, as a training step computes them."""

  def sums(loss: RecordLoss, params: Params, records: PyTree) -> Params:
    mask = jnp.ones([len(jax.tree.leaves(records)[0])], jnp.bool_)
    bounder = weighted.of_record_loss(loss, clip_norm=clip_norm)
    return bounder.sums(params, Batch(records, mask), mask).total

  return sums


class _Compiled(NamedTuple):
  """A compiled step, and the metrics of compiling it."""
  step: Callable[[Params, PyTree, PyTree], Params]
  info: dict[str, float]


def _compiled(sums: Sums, parts: Parts, records: PyTree,
              size: int) -> _Compiled:
  """Traces and compiles a step; the seconds are the least of two times."""
  seconds = []
  for _ in range(_COMPILATIONS):

    def step(params: Params, frozen: PyTree, records: PyTree) -> Params:
      loss = lambda params, record: parts.loss(params, frozen, record)
      total = sums(loss, params, records)
      return jax.tree.map(
          lambda leaf, slope: leaf - _LEARNING_RATE / size * slope, params,
          total)

    started = time.perf_counter()
    executable = jax.jit(step, donate_argnums=0).lower(
        parts.params, parts.frozen, records).compile()
    seconds.append(time.perf_counter() - started)
  return _Compiled(executable, {
      'compile_seconds': min(seconds),
      'temp_kib': executable.memory_analysis().temp_size_in_bytes / 1024,
      'xla_flops': executable.cost_analysis().get('flops', 0.0),
      'flops': network_work.of_products(step, parts.params, parts.frozen,
                                        records)})


def _running(compiled: _Compiled, parts: Parts,
             records: PyTree) -> Callable[[], None]:
  """Returns the function that runs a step on parameters of its own."""
  state = [jax.tree.map(jnp.copy, parts.params)]

  def run() -> None:
    state[0] = jax.block_until_ready(
        compiled.step(state[0], parts.frozen, records))

  return run


def program(spec: Spec, sums: Sums) -> Program:
  """Returns the program of a step, with the plain step beside it."""
  # Networks are written as users write them, who do not forbid broadcasting.
  with jax.numpy_rank_promotion('allow'), jax.numpy_dtype_promotion('standard'):
    parts = networks.build(spec.model)
    records = parts.records(spec.size, jax.random.key(1))
    # The first compilation of a process also starts XLA.
    jax.block_until_ready(jax.jit(lambda x: x + 1)(jnp.ones(3)))
    unit, own = (_compiled(each, parts, records, spec.size)
                 for each in (plain, sums))
    info = own.info | {
        f'{short}_ratio': own.info[name] / unit.info[name]
        for short, name in (('compile', 'compile_seconds'),
                            ('temp', 'temp_kib'), ('flops', 'flops'),
                            ('xla_flops', 'xla_flops'))
        if unit.info[name]}
    if methods.split(spec.method)[0] == 'ours':
      info |= _counted(parts, records)
  beside = _running(unit, parts, records)
  beside()
  peak = (None if jax.default_backend() == 'cpu'
          else lambda: own.info['temp_kib'])
  return Program(step=_running(own, parts, records), info=info, unit=beside,
                 peak_kib=peak, audit=lambda: _audit(spec, sums, parts,
                                                     records))


def _counted(parts: Parts, records: PyTree) -> dict[str, float]:
  """Returns the number of parameter leaves, and of those that are slow."""
  leaves = explain.explain(
      lambda params, record: parts.loss(params, parts.frozen, record),
      parts.params, jax.tree.map(lambda leaf: leaf[0], records))
  return {'leaves': len(leaves),
          'leaves_formed': sum(not leaf.is_fast for leaf in leaves)}


def _audit(spec: Spec, sums: Sums, parts: Parts,
           records: PyTree) -> dict[str, Any]:
  """Returns the sums, and the right ones: a loop over records in float64.

  The right sums clip at `spec.clip_norm`, unless the method is the plain step.
  """
  def loss(params: Params, record: PyTree) -> Array:
    return parts.loss(params, parts.frozen, record)

  with jax.numpy_rank_promotion('allow'), jax.numpy_dtype_promotion('standard'):
    total = jax.jit(lambda params, records: sums(loss, params, records))(
        parts.params, records)
    one = jax.jit(jax.grad(loss))
    gradients = [
        jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), one(
            parts.params, jax.tree.map(lambda leaf, i=i: leaf[i], records)))
        for i in range(spec.size)]
  bound = spec.clip_norm if methods.split(spec.method)[0] != 'plain' else np.inf
  return {'sums': jax.tree.map(np.asarray, total),
          'wanted': _clipped_sum(gradients, bound)}


def _clipped_sum(gradients: list[Params], bound: float) -> Params:
  """Returns the sum of the gradients, each clipped to an l2 norm."""
  total = jax.tree.map(np.zeros_like, gradients[0])
  for gradient in gradients:
    norm = np.sqrt(sum(np.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    total = tree.add(total, tree.scale(min(1.0, bound / norm), gradient))
  return total
