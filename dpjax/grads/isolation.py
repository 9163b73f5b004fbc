"""Refuses networks and losses whose output for one record reads another one.

The bound of a gradient bounder is one on what one record adds to a sum. It
holds only if nothing else in the sum moves with that record. Batch
normalisation in training mode, other statistics of a batch and attention
across examples break this: the engine would differentiate them on batches of
one record, where normalisation is a constant and only biases are trained, and
a plain sum of gradients would have no bound at all.

The check traces the network for batches of two sizes and follows which records
each entry of each array reads (`dependence`). It computes nothing of records,
so it sees what no comparison of outputs does: statistics of a batch in front
of layers that saturate, outputs that are NaN, and what happens only for large
features or rare integers. It also refuses a network whose output depends on
the place of a record in the batch, such as dropout with one mask for [b, ...]:
the place depends on which other records were sampled. One mask that all
records of the batch share, of shape [1, ...], is fine.

A network that reads other records to no effect, such as attention over the
merged records of a batch with a mask between them, is refused as well; written
for one record and mapped with `jax.vmap` it is not.

What is not seen: a network that does something else for batches of another
size than those traced, such as one that moves rows by a multiple of 28 places;
a `jax.custom_vjp` in the network whose backward rule mixes records (those of
the loss are followed); in an operation without a rule, such as a callback, a
dependence on places, or on other records for rare values only; and what a
callback remembers from one call to the next.
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
from dpjax.typing import Array, Batch, LossFn, Params, PyTree

# The first is even, so that statistics of pairs can be traced, too; what moves
# rows by as many places as there are records is seen with the other.
_SIZES = (4, 7)

_REMEDY = ('use group or layer normalisation, batch normalisation with frozen '
           'running statistics (in Flax use_running_average=True), attention '
           'within one record, or a loss that compares no records; what is '
           'written for one record and mapped by jax.vmap is accepted')

_PLACE_REMEDY = ('draw masks such as those of dropout once for all records, of '
                 'shape [1, ...], or not at all')

_UNTRACED = (jax.errors.ConcretizationTypeError,
             jax.errors.TracerArrayConversionError,
             jax.errors.TracerIntegerConversionError,
             jax.errors.NonConcreteBooleanIndexError)


class _WrongOutput(ValueError):
  """Of the shape of an output."""


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
    shapes = jax.tree.map(_shape, (params, batch))
    leaves, structure = jax.tree.flatten(
        (shapes[0], _resized(shapes[1], _SIZES[0])))
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
    batch: shapes of a batch of any number of records.

  Raises:
    TypeError: if the network or the loss branches on values in Python.
    ValueError: if logits or losses are not one for each record, if those of
      one record or the loss's gradient in its logits may change with another
      record, or with its place in the batch, or if only batches of some sizes
      can be taken.
  """

  given = []  # Shapes of logits and labels.

  def outputs(params, batch):
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
          'sum over records, the public mean is taken after the noise')
    given[:] = map(_shape, (logits, batch.y))
    return logits, values

  def gradients(_, given):
    # Those of `jax.custom_vjp` need not be those of the values.
    return jax.grad(lambda logits: jnp.sum(loss(logits, given[1])))(given[0])

  check = functools.partial(check_rows, remedy=_REMEDY,
                            place_remedy=_PLACE_REMEDY)
  check(outputs, params, batch, what='the network or the loss')
  if jnp.issubdtype(given[0].dtype, jnp.floating):
    check(gradients, (), given,
          what='the function that gives gradients of the loss')


def check_rows(function: Callable[[PyTree, PyTree], PyTree], public: PyTree,
               records: PyTree, *, what: str, remedy: str,
               place_remedy: str | None = None) -> None:
  """Refuses (public, records) -> arrays [b, ...] that mixes records.

  Args:
    function: of a batch of any size.
    public: shapes of what it reads besides.
    records: shapes of a batch, a tree of [b, ...].
    what: the function, in words.
    remedy: what to do if it is refused, in words.
    place_remedy: what to do if outputs depend on places; `remedy` if None.

  Raises:
    TypeError: if the function branches on values in Python.
    ValueError: if a row may change with another record, or with its place, or
      if only batches of some sizes can be taken.
  """
  # Functions called by name also under `jax.disable_jit`, with which one looks
  # for mistakes.
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
        _check_places(entries, what, place_remedy or remedy)


def _traced(function: Callable, public: PyTree, records: PyTree, size: int,
            what: str, remedy: str) -> core.ClosedJaxpr:
  """The function for a batch of this size, or an error in one sentence."""
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
      # Wrong for any batch: what it says is what to mend.
      raise error from None
    raise ValueError(
        f'{what} must take any number of records, each on its own; statistics '
        'of groups of records, such as ghost batch normalisation, cannot be '
        f'used: {remedy} (for {size} records it failed: '
        f'{errors.one_line(error)})') from error


def _check_reads(entries: entries_lib.Entries, what: str, first: str,
                 remedy: str) -> None:
  """Refuses outputs of which a row reads another record."""
  reads = entries_lib.narrowed(entries.reads) & ~entries_lib.UNKNOWN
  own = np.uint32(1) << np.arange(entries.reads.shape[0], dtype=np.uint32)
  if np.any(reads & ~own.reshape((-1,) + (1,) * (reads.ndim - 1))):
    where = f', first in {first}' if first else ''
    raise ValueError(
        f'{what} mixes records: what it gives for one record may change with '
        f'another record of the batch{where}, so no record has a contribution '
        f'of its own to bound; {remedy}')


def _check_places(entries: entries_lib.Entries, what: str,
                  remedy: str) -> None:
  """Refuses outputs whose rows differ though all records are equal."""
  codes = entries_lib.narrowed(entries.codes)
  if np.any(codes != codes[:1]):
    raise ValueError(
        f'what {what} gives for a record depends on its place in the batch, '
        f'which depends on the other records that were sampled: {remedy}')


def _resized(records: PyTree, size: int) -> PyTree:
  """Shapes of a batch of `size` records."""
  return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
      (size, *leaf.shape[1:]), leaf.dtype), records)


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _described(value: Any) -> str:
  if hasattr(value, 'shape'):
    return f'an array of shape {list(value.shape)}'
  return f'a {type(value).__name__}'
