"""Rejects networks and losses that mix the records of a batch.

A gradient bounder bounds the contribution of one record to a sum. The bound is
the sensitivity only if no other contribution changes with that record. Batch
normalisation in training mode, other batch statistics and attention across
records violate this. Per-record gradients would treat them on batches of one
record, where normalisation is constant and only biases are trained; a plain sum
of gradients would have no bound at all.

The check traces the network for batches of two sizes and follows which records
each entry of each array reads (`dependence`). It runs nothing on records, so it
finds what a comparison of outputs would miss: batch statistics in front of
saturating layers, outputs that are NaN, and effects of large features or rare
integers only. It also rejects a network whose output depends on the position of
a record in the batch, such as dropout with a mask [b, ...], because the
position depends on which other records were sampled. A mask [1, ...] that all
records share is fine.

A network that reads other records without effect is rejected too, such as
attention over the merged records of a batch with a mask between them. Written
for one record and mapped with `jax.vmap`, it is accepted.

The check does not find:
- a network that behaves differently for batch sizes other than those traced,
  such as one that moves rows by a multiple of 28 places;
- a `jax.custom_vjp` in the network whose backward rule mixes records (those in
  the loss are followed);
- in an operation without a rule, such as a callback: dependence on positions,
  and dependence on other records for rare values only;
- state that a callback keeps between calls.
"""

from collections.abc import Callable
import functools
from typing import Any

import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.grads import dependence
from dpjax.grads import entries as entries_lib
from dpjax.typing import ApplyFn, Array, Batch, LossFn, Params, PyTree

# Batch sizes to trace. The first is even, so that statistics of pairs of
# records can be traced. Moving rows by 4 places does nothing to a batch of 4,
# but is found with 7.
_SIZES = (4, 7)

REMEDY = ('use group or layer normalisation, batch normalisation with frozen '
          'running statistics (in Flax use_running_average=True), attention '
          'within one record, or a loss that compares no records; a function '
          'of one record, mapped by jax.vmap, is accepted')
"""Advice for networks and losses that mix records."""

_PLACE_REMEDY = ('draw masks such as those of dropout once for all records, of '
                 'shape [1, ...], or not at all')

_UNTRACED = (jax.errors.ConcretizationTypeError,
             jax.errors.TracerArrayConversionError,
             jax.errors.TracerIntegerConversionError,
             jax.errors.NonConcreteBooleanIndexError)


class _WrongOutput(ValueError):
  """An output does not have one row or one value for each record."""


def checker(apply: ApplyFn, loss: LossFn) -> Callable[[Params, Batch], None]:
  """Returns a function check(params, batch), which runs once for each shape.

  The check reads shapes only, never records, so it can be called while a
  function is traced. It raises as `check_isolated` does.

  Args:
    apply: (params, x [b, ...]) -> logits [b, ...].
    loss: (logits, labels) -> [b].
  """
  seen = set()

  def check(params: Params, batch: Batch) -> None:
    shapes = jax.tree.map(_shape, (params, batch))
    leaves, structure = jax.tree.flatten(
        (shapes[0], _resized(shapes[1], _SIZES[0])))
    known = (structure, *((leaf.shape, leaf.dtype) for leaf in leaves))
    if known not in seen:
      check_isolated(apply, loss, *shapes)
      seen.add(known)

  return check


def check_isolated(apply: ApplyFn, loss: LossFn, params: Params, batch: Batch
                   ) -> None:
  """Checks that a network and a loss do not mix the records of a batch.

  Args:
    apply: (params, x [b, ...]) -> logits [b, ...].
    loss: (logits, labels) -> [b].
    params: shapes of the parameters.
    batch: shapes of a batch of any number of records.

  Raises:
    TypeError: if the network or the loss branches on values in Python.
    ValueError: if there is not one row of logits and one loss for each record;
      if the logits of a record, its loss, or the gradient of its loss by its
      logits may depend on another record or on the position in the batch; or if
      only some batch sizes work.
  """
  given: list[jax.ShapeDtypeStruct] = []  # Of logits and labels.

  def outputs(params: Params, batch: Batch) -> tuple[Array, Array]:
    size = batch.y.shape[0]
    logits = apply(params, batch.x)
    if getattr(logits, 'shape', ())[:1] != (size,):
      raise _WrongOutput(
          'the network must give an array of logits with one row for each '
          f'record, [b, ...]; for {size} records it gave {_described(logits)}')
    values = loss(logits, batch.y)
    if getattr(values, 'shape', None) != (size,):
      raise _WrongOutput(
          f'the loss must give one value for each record, [b]; for {size} '
          f'records it gave {_described(values)}: leave out the mean or the '
          'sum over records, which is taken after the noise')
    given[:] = map(_shape, (logits, batch.y))  # Recorded while tracing.
    return logits, values

  def gradients(_: PyTree, given: list[Array]) -> Array:
    # A `jax.custom_vjp` may mix records in its gradients only.
    return jax.grad(lambda logits: jnp.sum(loss(logits, given[1])))(given[0])

  check = functools.partial(check_rows, remedy=REMEDY,
                            place_remedy=_PLACE_REMEDY)
  check(outputs, params, batch, what='the network or the loss')
  if jnp.issubdtype(given[0].dtype, jnp.floating):
    check(gradients, (), given,
          what='the function that gives gradients of the loss')


def check_rows(function: Callable[[PyTree, PyTree], PyTree], public: PyTree,
               records: PyTree, *, what: str, remedy: str,
               place_remedy: str | None = None, places: bool = True) -> None:
  """Checks that a function (public, records) -> [b, ...] does not mix records.

  Args:
    function: function of a batch of any size.
    public: shapes of its public argument, such as parameters.
    records: shapes of a batch, a tree of [b, ...].
    what: name of the function in messages.
    remedy: advice for a function that mixes records.
    place_remedy: advice if outputs depend on positions; `remedy` if None.
    places: whether outputs must not depend on positions; False for a function
      that will run on batches of one record only.

  Raises:
    TypeError: if the function branches on values in Python.
    ValueError: if a row may depend on another record or on its position, or if
      only some batch sizes work.
  """
  # Under `jax.disable_jit`, used for debugging, the trace would lack the names
  # of called functions.
  with jax.disable_jit(False):
    for size in _SIZES:
      closed = _traced(function, public, records, size, what, remedy)
      leaves = [entries_lib.of_public(leaf.shape, number)
                for number, leaf in enumerate(jax.tree.leaves(public))]
      leaves += [entries_lib.of_records((size, *leaf.shape[1:]),
                                        len(leaves) + number)
                 for number, leaf in enumerate(jax.tree.leaves(records))]
      for leaf in closed.out_avals:
        if leaf.shape[:1] != (size,):
          raise _WrongOutput(
              f'{what} must have one row for each record, [b, ...]; for {size} '
              f'records there was {_described(leaf)}')
      follower = dependence.Follower(size)
      with jax.ensure_compile_time_eval():
        outputs = follower.outputs(closed, leaves)
      for entries in outputs:
        _check_reads(entries, what, follower.first, remedy)
        if places:
          _check_places(entries, what, place_remedy or remedy)


def _traced(function: Callable[..., PyTree], public: PyTree, records: PyTree,
            size: int, what: str, remedy: str) -> core.ClosedJaxpr:
  """Traces the function for a batch of this size, or raises in one sentence."""
  try:
    return jax.make_jaxpr(function)(public, _resized(records, size))
  except _WrongOutput:
    raise
  except _UNTRACED as error:
    raise TypeError(
        f'{what} must be a function that JAX can trace: it may not branch on '
        'values, as `if x.sum() > 0` does, or make Python numbers or NumPy '
        'arrays of them; use jnp.where, jax.lax.cond and jax.numpy '
        f'({errors.one_line(error)})') from error
  except Exception as error:
    try:
      jax.eval_shape(function, public, records)
    except Exception:
      # The function fails for the user's own batch size too: its own error says
      # what to correct.
      raise error from None
    raise ValueError(
        f'{what} must take any number of records, each on its own; statistics '
        'of groups of records, such as ghost batch normalisation, cannot be '
        f'used: {remedy} (for {size} records it failed: '
        f'{errors.one_line(error)})') from error


def _check_reads(entries: entries_lib.Entries, what: str, first: str,
                 remedy: str) -> None:
  """Raises if row i of an output may read another record than i."""
  reads = entries_lib.narrowed(entries.reads) & ~entries_lib.UNKNOWN
  own = np.uint32(1) << np.arange(entries.reads.shape[0], dtype=np.uint32)
  if np.any(reads & ~own.reshape((-1,) + (1,) * (reads.ndim - 1))):
    where = f', first in {first}' if first else ''
    raise ValueError(
        f'{what} mixes records: its output for one record may change with '
        f'another record of the batch{where}, so the contribution of a single '
        f'record cannot be bounded; {remedy}')


def _check_places(entries: entries_lib.Entries, what: str,
                  remedy: str) -> None:
  """Raises if rows differ though all records are equal."""
  codes = entries_lib.narrowed(entries.codes)
  if np.any(codes != codes[:1]):
    raise ValueError(
        f'the output of {what} for a record depends on its place in the batch, '
        f'which depends on the other records that were sampled: {remedy}')


def _resized(records: PyTree, size: int) -> PyTree:
  """Returns the shapes of a batch of `size` records."""
  return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
      (size, *leaf.shape[1:]), leaf.dtype), records)


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _described(value: Any) -> str:
  """Returns the shape of an array, or the type of anything else, in words."""
  if hasattr(value, 'shape'):
    return f'an array of shape {list(value.shape)}'
  return f'a {type(value).__name__}'
