"""Refuses networks and losses whose output for one record reads another one.

The bound of a gradient bounder is one on what one record adds to a sum. It
holds only if nothing else in the sum moves with that record. Batch
normalisation in training mode, other statistics of a batch and attention
across examples break this: the engine would differentiate them on batches of
one record, where normalisation is a constant and only biases are trained, and
a plain sum of gradients would have no bound at all.

The check runs the network on a few records of random features, replaces one
record and compares what comes out for the others, bit for bit on CPU. It reads
shapes and public random numbers only. It also refuses a network whose output
depends on the place of a record in the batch, such as dropout with one mask for
[b, ...]: the place depends on which other records were sampled. One mask that
all records of the batch share, of shape [1, ...], is fine.
"""

from collections.abc import Callable, Iterator
import math
from typing import Any

import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np

from dpjax.grads import tracing
from dpjax.typing import Array, Batch, LossFn, Params, PyTree

# Even, so that statistics of pairs of records are seen too.
_RECORDS = 4
_PLACES = (0, _RECORDS - 1)
_SCALES = (1.0, 1e3)

# Of the largest output: by which equal records may differ in other places of a
# batch, where products are rounded differently. bfloat16 has 8 bits.
_PLACE_TOLERANCE = 0.05
# Accelerators may add in another order each time.
_ACCELERATOR_TOLERANCE = 1e-3

_REMEDY = ('use group or layer normalisation, batch normalisation with frozen '
           'running statistics (in Flax use_running_average=True), attention '
           'within one record')


def checker(apply: Callable[[Params, PyTree], Array],
            loss: LossFn) -> Callable[[Params, Batch], None]:
  """Returns a check of (params, batch) that looks at each shape only once.

  The check reads shapes alone, so it may be called while a function is traced,
  and records never enter it.

  Args:
    apply: (params, x [b, ...]) -> logits [b, ...].
    loss: (logits, labels) -> [b].
  """
  seen = set()

  def check(params: Params, batch: Batch) -> None:
    shapes = jax.tree.map(_shape, (params, jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((_RECORDS, *leaf.shape[1:]),
                                          leaf.dtype), batch)))
    leaves, structure = jax.tree.flatten(shapes)
    known = (structure, *((leaf.shape, leaf.dtype) for leaf in leaves))
    if known not in seen:
      check_isolated(apply, loss, *shapes)
      seen.add(known)

  return check


def check_isolated(apply: Callable[[Params, PyTree], Array], loss: LossFn,
                   params: Params, batch: Batch) -> None:
  """Refuses a network or a loss that mixes the records of a batch.

  Args:
    apply: (params, x [b, ...]) -> logits [b, ...].
    loss: (logits, labels) -> [b].
    params: shapes of the parameters.
    batch: shapes of a batch of `_RECORDS` records.

  Raises:
    ValueError: if logits or losses are not one for each record, if those of
      one record change with another record, or with its place in the batch.
  """
  logits = jax.eval_shape(apply, params, batch.x)
  if getattr(logits, 'shape', ())[:1] != (_RECORDS,):
    raise ValueError(
        'the network must give an array of logits with one row for each '
        f'record, [b, ...]; for {_RECORDS} records it gave {_described(logits)}'
        )
  values = jax.eval_shape(loss, logits, batch.y)
  if getattr(values, 'shape', None) != (_RECORDS,):
    raise ValueError(
        f'the loss must give one value for each record, [b]; for {_RECORDS} '
        f'records it gave {_described(values)}: leave out the mean or the sum '
        'over records, the public mean is taken after the noise')

  def outputs(params, batch):
    logits = apply(params, batch.x)
    return logits, loss(logits, batch.y)

  # Compiled also under `jax.disable_jit`, with which one looks for mistakes.
  with jax.disable_jit(False), jax.ensure_compile_time_eval():
    _check_outputs(outputs, params, batch)


def _check_outputs(outputs: Callable, params: Params, batch: Batch) -> None:
  """Compares what comes out for the other records, and in other places."""
  rng = np.random.default_rng(0)
  closed = jax.make_jaxpr(outputs)(params, batch)
  consts = [_concrete(const, rng) for const in closed.consts]
  run = _compiled(closed, consts, params, batch)
  for params_scale in (1.0, 0.1):
    drawn = _parameters(rng, params, params_scale)
    before = _records(rng, batch, 1.0)
    found = run(consts, drawn, before)
    for place in _PLACES:
      others = np.arange(_RECORDS) != place
      for scale in _SCALES:
        after = _replaced(before, _records(rng, batch, scale), place)
        if not _same(found, run(consts, drawn, after), others):
          raise ValueError(
              'the network or the loss mixes records: what it gives for one '
              'record changes with another record of the batch'
              f'{_where(closed, consts, drawn, before, after, others)}, so no '
              f'record has a gradient of its own to bound; {_REMEDY}, or a '
              'loss that compares no records')
    equal = jax.tree.map(lambda leaf: np.repeat(leaf[:1], _RECORDS, 0), before)
    if not _equal_rows(run(consts, drawn, equal)):
      raise ValueError(
          'what the network gives for a record depends on its place in the '
          'batch, which depends on the other records that were sampled: draw '
          'masks such as those of dropout once for all records, of shape '
          '[1, ...], or not at all')


def _compiled(closed: core.ClosedJaxpr, consts: list[Any], params: Params,
              batch: Batch) -> Callable:
  """The function as a quickly compiled program of leaves."""
  function = lambda consts, params, batch: core.jaxpr_as_fun(
      core.ClosedJaxpr(closed.jaxpr, consts))(*jax.tree.leaves((params, batch)))
  lowered = jax.jit(function).lower(consts, params, batch)
  return lowered.compile({'xla_backend_optimization_level': 0}
                         if jax.default_backend() == 'cpu' else None)


def _same(before: list[Array], after: list[Array], others: np.ndarray) -> bool:
  """Whether the other rows of all outputs are what they were."""
  for old, new in zip(before, after, strict=True):
    old, new = np.asarray(old)[others], np.asarray(new)[others]
    if jax.default_backend() == 'cpu':
      same = np.array_equal(old, new, equal_nan=old.dtype.kind in 'fc')
    else:
      same = np.allclose(old, new, rtol=_ACCELERATOR_TOLERANCE,
                         atol=_ACCELERATOR_TOLERANCE * _largest(old),
                         equal_nan=True)
    if not same:
      return False
  return True


def _equal_rows(found: list[Array]) -> bool:
  """Whether all rows of all outputs are equal up to rounding."""
  for leaf in found:
    rows = np.asarray(leaf).astype(np.float64)
    if np.isfinite(rows).all() and not np.allclose(
        rows, rows[:1], rtol=0, atol=_PLACE_TOLERANCE * _largest(rows)):
      return False
  return True


def _largest(values: np.ndarray) -> float:
  finite = np.abs(values[np.isfinite(values)])
  return float(finite.max()) if finite.size else 0.0


def _parameters(rng: np.random.Generator, shapes: Params,
                scale: float) -> Params:
  """Random parameters that keep numbers in range: no zeros, as some inits."""

  def draw(leaf):
    fan_in = math.prod(leaf.shape[:-1])
    values = (rng.normal(size=leaf.shape) / math.sqrt(max(fan_in, 1))
              if len(leaf.shape) > 1 else rng.uniform(0.5, 1.5, leaf.shape))
    return (scale * values).astype(leaf.dtype)

  return jax.tree.map(draw, shapes)


def _records(rng: np.random.Generator, shapes: Batch, scale: float) -> Batch:
  """Random records; integers are 0 or 1, which any table has."""

  def draw(leaf):
    if jnp.issubdtype(leaf.dtype, jnp.floating):
      return (scale * rng.normal(size=leaf.shape)).astype(leaf.dtype)
    return rng.integers(0, 2, leaf.shape).astype(leaf.dtype)

  return jax.tree.map(draw, shapes)


def _replaced(before: Batch, other: Batch, place: int) -> Batch:
  """`before` with one record of `other`."""

  def leaf(old, new):
    joined = old.copy()
    # 0 and 1 might be drawn again.
    joined[place] = (1 - old[place] if old.dtype.kind in 'iu' else
                     ~old[place] if old.dtype.kind == 'b' else new[place])
    return joined

  return jax.tree.map(leaf, before, other)


def _concrete(const: Any, rng: np.random.Generator) -> Any:
  """What the network closes over; numbers for values that are being traced."""
  if not isinstance(const, jax.core.Tracer):
    return const
  if jnp.issubdtype(const.dtype, jax.dtypes.prng_key):
    return jax.random.split(
        jax.random.key(0, impl=jax.random.key_impl(const)), const.shape)
  return rng.uniform(0.5, 1.5, const.shape).astype(const.dtype)


def _where(closed: core.ClosedJaxpr, consts: list[Any], params: Params,
           before: Batch, after: Batch, others: np.ndarray) -> str:
  """Names the first operation that lets a record into the rows of others."""
  sides = zip(*(_rows(closed, consts, params, batch, others)
                for batch in (before, after)), strict=True)
  for (equation, old), (_, new) in sides:
    if not _same([old], [new], np.ones(len(old), bool)):
      scope = str(equation.source_info.name_stack)
      return f', first in {scope or equation.primitive.name}'
  return ''


def _rows(closed: core.ClosedJaxpr, consts: list[Any], params: Params,
          batch: Batch, others: np.ndarray
          ) -> Iterator[tuple[core.JaxprEqn, np.ndarray]]:
  """Each operation whose output has a row for each record, with its rows."""
  values = dict(zip((*closed.jaxpr.constvars, *closed.jaxpr.invars),
                    (*consts, *jax.tree.leaves((params, batch))), strict=True))
  for equation in closed.jaxpr.eqns:
    outs = tracing.bind(equation, [tracing.value_of(values, var)
                                   for var in equation.invars])
    values.update(zip(equation.outvars, outs, strict=True))
    for out in outs:
      if jnp.shape(out)[:1] == (_RECORDS,) and not jnp.issubdtype(
          out.dtype, jax.dtypes.prng_key):
        yield equation, np.asarray(out)[others]


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _described(value: Any) -> str:
  if hasattr(value, 'shape'):
    return f'an array of shape {list(value.shape)}'
  return f'a {type(value).__name__}'
