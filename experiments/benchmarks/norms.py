"""Gradient norms and clipped sums of one layer, with a forced or free choice.

The inputs and cotangents of the layer are given: the loss is the product of its
outputs with fixed cotangents, so nothing else is computed.
"""

from collections.abc import Callable
import functools
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.grads import bookkeeping
from dpjax.grads import contractions
from dpjax.grads.records import RecordGradients
from dpjax.typing import Array, Batch
from experiments.benchmarks import layers
from experiments.benchmarks import methods
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

_FORCED = {'gram': True, 'kept': False}
_TOLERANCE = 5e-5
"""Relative tolerance of each way, so that both agree to 10^-4."""


class Finding(NamedTuple):
  """Result of a check.

  Attributes:
    norm_error: largest relative error of the norm of a record.
    sum_error: relative error of the clipped sum.
    passed: whether both are within rounding.
  """
  norm_error: float
  sum_error: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """Returns the cells of this finding in the printed table."""
    return f'{self.norm_error:.1e}', f'{self.sum_error:.1e}'


def make(spec: Spec) -> Program:
  """Returns the program of a layer."""
  choice: dict[str, float] = {}
  kernel, batch = _inputs(spec)
  jitted = jax.jit(functools.partial(_measure, spec, choice))
  started = time.perf_counter()
  lowered = jitted.lower(kernel, batch)
  traced = time.perf_counter()
  compiled = lowered.compile()
  info = {'trace_seconds': traced - started,
          'compile_seconds': time.perf_counter() - traced,
          'temp_kib': compiled.memory_analysis().temp_size_in_bytes / 1024,
          **choice}

  def audit():
    norms, total = jax.device_get(compiled(kernel, batch))
    return {'norms': norms, 'sums': total}

  return Program(step=lambda: jax.block_until_ready(compiled(kernel, batch)),
                 info=info, audit=audit)


def _measure(spec: Spec, choice: dict[str, float], kernel: Array,
             batch: Batch) -> tuple[Array, Array]:
  """Returns norms [b] and the clipped sum; writes the choice to `choice`."""
  gradients = _record_gradients(spec, kernel, batch, _noted(spec, choice))
  norms = jnp.sqrt(gradients.squares)
  return norms, gradients.weighted(jnp.minimum(1.0, spec.clip_norm / norms))


def _record_gradients(spec: Spec, kernel: Array, batch: Batch,
                      gram_is_cheaper: Callable) -> RecordGradients:
  """Returns the gradients of records in the form of book-keeping."""
  return bookkeeping.record_gradients(
      functools.partial(_apply, layers.LAYERS[spec.model]), _product, kernel,
      batch, jnp.ones([spec.size], jnp.bool_), gram_is_cheaper=gram_is_cheaper)


def _noted(spec: Spec, choice: dict[str, float]
           ) -> Callable[[contractions.Layer], bool]:
  """Returns a method's choice, which notes itself and the number behind it."""

  def choose(layer: contractions.Layer) -> bool:
    base, _ = methods.split(spec.method)
    chosen = _FORCED.get(base)
    if chosen is None:
      chosen = contractions.gram_is_cheaper(layer)
    _, width, out = layer.sizes
    choice['by_gram'] = float(chosen)
    choice['products_per_number'] = (layer.num_sites**2 * (width + out)
                                     / (width * out))
    return chosen

  return choose


def _apply(layer: layers.Layer, kernel: Array, x: Array) -> Array:
  """Applies a layer to x [b, ...]."""
  if len(layer.kernel) == 2:
    return x @ kernel
  return jax.lax.conv_general_dilated(
      x, kernel, (layer.stride,) * 2, [(layer.pad, layer.pad)] * 2,
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
      feature_group_count=layer.groups)


def _product(out: Array, cotangent: Array) -> Array:
  """Returns the loss [b] that has these cotangents."""
  return jnp.sum(out * cotangent, tuple(range(1, out.ndim)))


def _inputs(spec: Spec) -> tuple[Array, Batch]:
  """Returns a random kernel, and a batch of random inputs and cotangents."""
  layer = layers.LAYERS[spec.model]
  keys = jax.random.split(jax.random.key(0), 3)
  kernel = jax.random.normal(keys[0], layer.kernel)
  x = jax.random.normal(keys[1], (spec.size, *layer.input_shape))
  shape = jax.eval_shape(functools.partial(_apply, layer), kernel, x).shape
  return jax.block_until_ready((kernel, Batch(x, jax.random.normal(
      keys[2], shape) / math.sqrt(math.prod(shape[1:])))))


@functools.cache
def _reference(model: str, size: int) -> np.ndarray:
  """Returns gradients [b, ...] of each record by itself, in float64."""
  kernel, batch = _inputs(Spec(suite='norms', model=model, size=size,
                               method='kept'))
  apply = functools.partial(_apply, layers.LAYERS[model])
  with jax.default_matmul_precision('highest'):
    one = jax.jit(jax.grad(lambda kernel, x, y: _product(
        apply(kernel, x), y)[0]))
    return np.stack([np.asarray(one(kernel, batch.x[i:i + 1],
                                    batch.y[i:i + 1]), np.float64)
                     for i in range(size)])


def _norms(gradients: np.ndarray) -> np.ndarray:
  """Returns the l2 norm of each gradient."""
  return np.linalg.norm(gradients.reshape((len(gradients), -1)), axis=1)


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """Returns the program to check, which clips at the median norm."""
  return Spec(suite='norms', model=model, size=size, method=method,
              clip_norm=float(np.median(_norms(_reference(model, size)))))


def judge(spec: Spec, audit: dict[str, Any]) -> Finding:
  """Compares what a program computed with a loop over records.

  Args:
    spec: specification of the program, from `make_spec`.
    audit: the 'norms' and 'sums' of the program.
  """
  gradients = _reference(spec.model, spec.size)
  norms = _norms(gradients)
  wanted = np.tensordot(np.minimum(1.0, spec.clip_norm / norms), gradients, 1)
  norm_error = float(np.max(np.abs(audit['norms'] - norms) / norms))
  sum_error = float(np.linalg.norm(audit['sums'] - wanted)
                    / np.linalg.norm(wanted))
  return Finding(norm_error, sum_error,
                 max(norm_error, sum_error) <= _TOLERANCE)
