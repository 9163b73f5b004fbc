"""Loss functions of users, as losses of one record.

Whatever a user's function takes, what is differentiated is a function of *one*
record: its gradient is clipped, and nothing else of the batch can enter it. A
function of a batch is called with a batch of one.

Randomness, such as that of dropout, is drawn for each record from a key that
depends on the step and on the number of the record in the data set, so a
record's contribution does not change with the other records. A key by the place
in the batch would: the place depends on which other records were sampled.
"""

from collections.abc import Callable
import inspect
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import isolation
from dpjax.train.modules import Split
from dpjax.typing import Array, Params, PRNGKey, PyTree

PER = ('record', 'batch')
"""What a loss function may be a function of."""

# Generator of the keys of records. With the hardware generators (rbg), keys
# that are mapped together draw numbers that depend on each other.
_GENERATOR = 'threefry2x32'

# Batch sizes at which a loss function is tried.
_SIZES = (4, 7)
_NOT_TRIED = 'not tried'

_REMEDY = ('return the losses [b] of all records, without their mean or sum, '
           "or say per='record' if the function is the loss of one record; "
           'clipping needs the loss of each record by itself')


class _ChangedState(ValueError):
  """A call of the loss function changed state of the model."""


class Loss(NamedTuple):
  """A loss function, and how it is called.

  Attributes:
    function: (model, record or batch) or (model, record or batch, rng).
    per: one of `PER`, or None to find out.
    takes_rng: whether it takes a random key.
  """
  function: Callable[..., Array]
  per: str | None
  takes_rng: bool


def declared(function: Callable[..., Array], per: str | None = None) -> Loss:
  """Returns a loss function as it was declared.

  It takes a random key if its third positional parameter has no default, or is
  named `rng`, `rngs` or `key`.

  Args:
    function: (model, record or batch[, rng]) -> loss or losses.
    per: see `Loss`.

  Raises:
    TypeError: if `function` cannot be called.
    ValueError: if it takes fewer than two arguments, or if `per` is unknown.
  """
  if not callable(function):
    raise TypeError('loss_fn must be a function (model, record) -> loss, got a '
                    f'{type(function).__name__}')
  if per is not None:
    errors.check_choice('per', per, PER)
  try:
    parameters = list(inspect.signature(function).parameters.values())
  except ValueError:  # Some built-in functions have no signature.
    return Loss(function, per, False)
  places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY,
                                                p.POSITIONAL_OR_KEYWORD)]
  if len(places) < 2 and not any(p.kind == p.VAR_POSITIONAL
                                 for p in parameters):
    raise ValueError('loss_fn must take (model, record) or (model, record, '
                     f'rng), it takes {len(places)} arguments')
  third = places[2] if len(places) > 2 else None
  return Loss(function, per, third is not None and (
      third.default is third.empty or third.name in ('rng', 'rngs', 'key')))


def record_keys(key: PRNGKey, numbers: Array) -> Array:
  """Returns the words [b, 2] uint32 of a key for each record.

  Args:
    key: of the step, of any generator.
    numbers: [b] numbers of the records in the data set.
  """
  # Dropout needs no secret: the guarantee holds for each of its masks.
  words = jax.random.bits(key, (2,), jnp.uint32)
  base = jax.random.wrap_key_data(words, impl=_GENERATOR)
  return jax.vmap(lambda number: jax.random.key_data(
      jax.random.fold_in(base, number)))(numbers)


def derived_words(words: Array, count: int) -> Array:
  """Returns words [count, 2] of keys that are derived from one key.

  Args:
    words: [2] uint32, of a key of `record_keys`.
    count: number of keys.
  """
  base = jax.random.wrap_key_data(words, impl=_GENERATOR)
  return jax.vmap(lambda place: jax.random.key_data(
      jax.random.fold_in(base, place)))(jnp.arange(count, dtype=jnp.uint32))


def of_record(loss: Loss, parts: Split, params: Params, frozen: PyTree,
              records: PyTree) -> Callable[[Params, PyTree], Array]:
  """Returns the loss of one record, for `grads.weighted.of_record_loss`.

  Args:
    loss: the loss function.
    parts: the model.
    params: trainable arrays; only their shapes are read.
    frozen: the other arrays, as the function will read them.
    records: a batch of records, a tree of [b, ...]; only shapes are read.

  Returns:
    (params, (record, words [2] of its key)) -> scalar.

  Raises:
    ValueError: if the function is neither a loss of one record nor one of a
      batch with a value for each record; if it mixes the records of a batch; or
      if it changes state of the model.
  """

  def call(arrays: tuple[Params, PyTree], data: PyTree, key: PRNGKey) -> Array:
    model = parts.rebuild(*arrays, key)
    value = loss.function(model, data, *([key] if loss.takes_rng else []))
    _check_unchanged(parts.changed(model, arrays[1]))
    return value

  per = _resolved(loss, call, (params, frozen), records)

  def record_loss(params: Params, keyed: tuple[PyTree, Array]) -> Array:
    record, words = keyed
    key = jax.random.wrap_key_data(words, impl=_GENERATOR)
    if per == 'record':
      return call((params, frozen), record, key)
    one = jax.tree.map(lambda leaf: leaf[None], record)
    return call((params, frozen), one, key)[0]

  return record_loss


def _check_unchanged(names: list[str]) -> None:
  """Raises if a call of the loss function changed state of the model."""
  if names:
    raise _ChangedState(
        f'the loss function changes state of the model: {", ".join(names)}. '
        'Training keeps no such state, and statistics of a batch mix records: '
        'use model.eval(), or ' + isolation.REMEDY)


def _resolved(loss: Loss, call: Callable[..., Array], arrays: PyTree,
              records: PyTree) -> str:
  """Returns 'record' or 'batch', see `of_record`."""
  tried = lambda *size: _outcome(call, arrays, jax.tree.map(
      lambda leaf: _shape((*size, *leaf.shape[1:]), leaf.dtype), records))
  # What was declared otherwise is not traced, which takes long for a network.
  one = _NOT_TRIED if loss.per == 'batch' else tried()
  many = [_NOT_TRIED if loss.per == 'record' else tried(size)
          for size in _SIZES]
  is_record, is_batch = one == (), many == [(size,) for size in _SIZES]
  scalar = many == [() for _ in _SIZES]
  if loss.per == 'record' and is_record:
    return 'record'
  if loss.per is None and is_record and not is_batch and not scalar:
    return 'record'
  if loss.per != 'record' and is_batch:
    _check_isolated(call, arrays, records, is_record)
    return 'batch'
  if loss.per != 'record' and scalar:
    raise ValueError(
        'loss_fn gives one number for a batch of records, not a loss for each'
        f'{" (and one number for one record)" if is_record else ""}: {_REMEDY}')
  _raise_neither(loss.per, one, many[0])


def _shape(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
  # A float64 array of NumPy becomes float32 on its way to JAX.
  return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))


def _outcome(call: Callable[..., Array], arrays: PyTree,
             data: PyTree) -> tuple[int, ...] | Exception | str:
  """Returns the shape of the loss for data of these shapes, or what is wrong.
  """
  key = jax.eval_shape(lambda: jax.random.key(0, impl=_GENERATOR))
  try:
    value = jax.eval_shape(call, arrays, data, key)
  except _ChangedState:
    raise
  except Exception as error:
    return error
  if not isinstance(value, jax.ShapeDtypeStruct):
    return f'a {type(value).__name__}'
  if not jnp.issubdtype(value.dtype, jnp.floating):
    return f'an array of type {value.dtype}'
  return value.shape


def _raise_neither(per: str | None, one: Any, many: Any) -> NoReturn:
  """Raises the error that tells the user most."""
  for outcome in {'record': [one], 'batch': [many], None: [many, one]}[per]:
    # State that changes, or an axis name of batch statistics.
    if isinstance(outcome, Exception) and (
        per is not None or isinstance(one, Exception)
        and isinstance(many, Exception)):
      raise ValueError('loss_fn fails for '
                       f'{"one record" if outcome is one else "a batch"}: '
                       f'{errors.one_line(outcome)}') from outcome
  described = [f'fails ({errors.one_line(each)})' if isinstance(each, Exception)
               else each if isinstance(each, str)
               else f'an array of shape {list(each)}' for each in (one, many)]
  raise ValueError(
      'loss_fn must give one number for one record, or one number [b] for each '
      f'record of a batch; for one record: {described[0]}; for a batch of '
      f'{_SIZES[0]}: {described[1]}. Return nothing else beside the loss')


def _check_isolated(call: Callable[..., Array], arrays: PyTree,
                    records: PyTree, is_record: bool) -> None:
  """Checks that the losses of a batch do not read each other's records.

  The function will run on one record at a time, so positions do not matter.
  """
  hint = ("say per='record' if it is the loss of one record; otherwise "
          if is_record else '')
  isolation.check_rows(
      lambda arrays, data: call(arrays, data, jax.random.key(
          0, impl=_GENERATOR)),
      arrays, records, what='loss_fn', remedy=hint + isolation.REMEDY,
      places=False)
