"""Dependence rules of gathers, scatters and dynamic slices.

A known index determines which entry is read. An unknown index may have any
value, so the output may read all entries along its axis.
"""

from collections.abc import Mapping, Sequence
import functools
import operator

from jax.extend import core
import numpy as np

from dpjax.grads import entries as entries_lib
from dpjax.grads import entry_rules
from dpjax.grads.entries import Entries


def rule_of(equation: core.JaxprEqn) -> entry_rules.Rule | None:
  """Returns the rule of an operation, or None if this module has none."""
  name = equation.primitive.name
  if name.startswith('scatter'):
    return _scatter
  return _RULES.get(name)


def _dynamic_slice(equation: core.JaxprEqn,
                   inputs: entry_rules.Parts) -> list[Entries]:
  """Returns the entries of a slice whose start may be known or not."""
  operand, *starts = inputs
  sizes, (shape,) = equation.params['slice_sizes'], entry_rules.shapes_of(
      equation)
  places, unknown = _places(starts, sizes, operand.reads.shape)
  part = _blurred(operand, unknown)
  part = entries_lib.rearranged(part, lambda array: array[places])
  return [_with_indices(part, starts, shape, unknown)]


def _dynamic_update_slice(equation: core.JaxprEqn,
                          inputs: entry_rules.Parts) -> list[Entries]:
  """Returns the entries of an array in which a slice is overwritten."""
  operand, update, *starts = inputs
  shape = operand.reads.shape
  places, unknown = _places(starts, update.reads.shape, shape)
  if not unknown:
    return [entries_lib.by_field(
        lambda old, new: _assigned(old, places, new),
        *entries_lib.comparable([operand, update]))]
  # The update may land anywhere along the axes of unknown start, so every entry
  # there is either the old one or any of the new ones.
  update = entries_lib.reduced(update, unknown, 'update', keepdims=True)
  places = tuple(slice(None) if axis in unknown else place
                 for axis, place in enumerate(places))
  update = _with_indices(update, starts, update.reads.shape)
  part = operand.reads[places].shape
  both = entries_lib.spread(entries_lib.combined(
      [Entries(*(each[places] for each in operand[:2])), update], part,
      'update'), part, unknown)
  return [Entries(*(_assigned(old, places, new)
                    for old, new in zip(operand[:2], both[:2], strict=True)))]


def _assigned(old: np.ndarray, places: tuple[slice, ...],
              new: np.ndarray) -> np.ndarray:
  """Returns a copy of `old` with `new` at these places."""
  out = np.array(old)
  out[places] = new
  return out


def _places(starts: Sequence[Entries], sizes: Sequence[int],
            shape: Sequence[int]) -> tuple[tuple[slice, ...], list[int]]:
  """Returns the slices of these sizes, and the axes with an unknown start."""
  places, unknown = [], []
  for axis, (start, size, whole) in enumerate(
      zip(starts, sizes, shape, strict=True)):
    # Starts are clamped, so that of a slice of the whole axis must be 0.
    known = np.zeros((), int) if size == whole else start.known()
    if known is None:
      unknown.append(axis)
    first = 0 if known is None else int(np.clip(known, 0, whole - size))
    places.append(slice(first, first + size))
  return tuple(places), unknown


def _blurred(entries: Entries, axes: Sequence[int]) -> Entries:
  """Returns entries of the same shape that each read all along the axes."""
  if not axes:
    return entries
  one = entries_lib.reduced(entries, axes, 'blurred', keepdims=True)
  return entries_lib.rearranged(one, lambda array: np.broadcast_to(
      array, entries.reads.shape))


def _with_indices(part: Entries, indices: Sequence[Entries],
                  shape: Sequence[int], axes: Sequence[int] = ()) -> Entries:
  """Returns the entries that were read, which also read unknown indices.

  Args:
    part: the entries that were read.
    indices: broadcast to `shape`; known ones add nothing.
    shape: shape of the result.
    axes: axes of the result, along which successive entries were read from an
      unknown start.
  """
  indices = [index for index in indices if index.known() is None]
  if not indices:
    return part
  return entries_lib.spread(entries_lib.combined(
      [part, *indices], shape, 'indexed'), shape, axes)


def _columns(indices: Entries) -> list[Entries]:
  """Splits indices [..., k] into k arrays [...]."""
  return [entries_lib.rearranged(indices, operator.itemgetter((..., i)))
          for i in range(indices.reads.shape[-1])]


def _gather(equation: core.JaxprEqn,
            inputs: entry_rules.Parts) -> list[Entries]:
  """Returns the entries of a gather.

  The axes of its output are either window axes or axes of the indices.
  """
  (operand, indices), (shape,) = inputs, entry_rules.shapes_of(equation)
  numbers = equation.params['dimension_numbers']
  sizes = equation.params['slice_sizes']
  windows = [int(axis) for axis in numbers.offset_dims]
  others = [axis for axis in range(len(shape)) if axis not in windows]
  taken = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
  kept = [axis for axis in range(operand.reads.ndim) if axis not in taken]
  offsets = dict(zip(kept, windows, strict=True))
  places, unknown = _coordinates(
      operand.reads.shape, sizes, _columns(indices), numbers.start_index_map,
      dict(zip(numbers.operand_batching_dims,
               numbers.start_indices_batching_dims, strict=True)),
      offsets, others, shape)
  # Along axes of unknown index every entry reads all places.
  operand = _blurred(operand, unknown)
  part = entries_lib.rearranged(
      operand, lambda array: _fancy(array, places, shape))
  columns = [_in_place(column, others, len(shape))
             for column in _columns(indices)]
  return [_with_indices(part, columns, shape, [
      offsets[axis] for axis in unknown if axis in offsets])]


def _fancy(array: np.ndarray, places: Sequence[np.ndarray],
           shape: Sequence[int]) -> np.ndarray:
  """Returns array[places]; reads a broadcast axis only once."""
  narrow = entries_lib.narrowed(array)
  # All places of a broadcast axis hold the same entry.
  places = [np.zeros([1] * len(shape), int) if narrow.shape[axis] == 1 else
            place for axis, place in enumerate(places)]
  return np.broadcast_to(narrow[tuple(places)] if places else narrow, shape)


def _in_place(column: Entries, axes: Sequence[int], ndim: int) -> Entries:
  """Returns entries with new axes of size 1, their own axes at `axes`."""
  new = [axis for axis in range(ndim) if axis not in axes]
  return entries_lib.rearranged(column, functools.partial(
      np.expand_dims, axis=new))


def _coordinates(sizes: Sequence[int], windows: Sequence[int],
                 columns: Sequence[Entries], mapped: Sequence[int],
                 batched: Mapping[int, int], offsets: Mapping[int, int],
                 others: Sequence[int], shape: Sequence[int]
                 ) -> tuple[list[np.ndarray], list[int]]:
  """Returns, for each axis of an operand, the places of outputs or updates.

  Args:
    sizes: sizes of the operand.
    windows: size, along each axis, of the window that one index reads or
      writes.
    columns: arrays [...] of indices, one for each axis in `mapped`.
    mapped: axes of the operand along which the indices count.
    batched: {axis of the operand: batch axis of `columns`}.
    offsets: {axis of the operand: axis of `shape` along which windows lie}.
    others: axes of `shape` that are the axes of `columns`.
    shape: shape of the outputs or updates.

  Returns:
    (for each axis of the operand, integers that broadcast to `shape`; the axes
    with unknown indices, whose integers are offsets within windows only).
  """
  ndim, places, unknown = len(shape), [], []
  along = lambda axis: np.arange(shape[axis]).reshape(
      [-1 if i == axis else 1 for i in range(ndim)])
  starts = dict(zip(map(int, mapped), columns, strict=True))
  for axis, size in enumerate(sizes):
    place = np.zeros([1] * ndim, int)
    if axis in offsets:
      place = place + along(offsets[axis])
    if axis in batched:
      place = place + along(others[batched[axis]])
    elif axis in starts and windows[axis] < size:
      known = starts[axis].known()
      if known is None:
        unknown.append(axis)
      else:
        place = place + np.expand_dims(
            np.clip(known.astype(int), 0, size - windows[axis]),
            [i for i in range(ndim) if i not in others])
    places.append(place)
  return places, unknown


def _scatter(equation: core.JaxprEqn,
             inputs: entry_rules.Parts) -> list[Entries]:
  """Returns the entries of an array after a scatter."""
  operand, indices, updates = inputs
  numbers = equation.params['dimension_numbers']
  shape, sizes = updates.reads.shape, operand.reads.shape
  windows = [int(axis) for axis in numbers.update_window_dims]
  others = [axis for axis in range(len(shape)) if axis not in windows]
  taken = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
  kept = [axis for axis in range(len(sizes)) if axis not in taken]
  offsets = dict(zip(kept, windows, strict=True))
  columns = _columns(indices)
  extents = [shape[offsets[axis]] if axis in offsets else 1
             for axis in range(len(sizes))]
  places, unknown = _coordinates(
      sizes, extents, columns, numbers.scatter_dims_to_operand_dims,
      dict(zip(numbers.operand_batching_dims,
               numbers.scatter_indices_batching_dims, strict=True)),
      offsets, others, shape)
  updates = _with_indices(Entries(*updates[:2]), [
      _in_place(column, others, len(shape)) for column in columns], shape)
  # Updates out of range are dropped or clamped; only if all are known to be in
  # range do they surely replace the old entries.
  inside = not unknown and all(
      extents[axis] == sizes[axis] if places_of is None else
      np.all((places_of >= 0) & (places_of <= sizes[axis] - extents[axis]))
      for axis, places_of in zip(
          numbers.scatter_dims_to_operand_dims,
          (column.known() for column in columns), strict=True))
  replaces = (inside and equation.primitive.name == 'scatter'
              and equation.params['update_jaxpr'] is None)
  return [_written(operand, updates, places, unknown, replaces)]


def _written(operand: Entries, updates: Entries, places: Sequence[np.ndarray],
             unknown: Sequence[int], replaces: bool) -> Entries:
  """Returns the operand with updates at their places.

  Args:
    operand: the old entries.
    updates: the entries to write.
    places: for each axis of the operand, the places of the updates.
    unknown: axes along which the place is unknown: any place may be written.
    replaces: whether updates surely replace the old entries at their places.
  """
  sizes = operand.reads.shape
  places = tuple(np.broadcast_to(
      np.zeros_like(place) if axis in unknown else place, updates.reads.shape)
                 for axis, place in enumerate(places))
  written = [1 if axis in unknown else size for axis, size in enumerate(sizes)]
  reads, codes, touched = (np.zeros(written, dtype) for dtype in (
      np.uint32, np.uint64, bool))
  # Unbuffered: several updates of one place add up, in any order.
  np.bitwise_or.at(reads, places, updates.reads)
  np.add.at(codes, places, updates.codes)
  touched[places] = True
  out = Entries(reads, codes)
  if not replaces:
    out = entries_lib.spread(entries_lib.combined(
        [Entries(*operand[:2]), out], sizes, 'scatter'), sizes, unknown)
  return Entries(*(np.where(touched, new, old) for new, old in zip(
      out[:2], operand[:2], strict=True)))


_RULES = {'dynamic_slice': _dynamic_slice,
          'dynamic_update_slice': _dynamic_update_slice, 'gather': _gather}
