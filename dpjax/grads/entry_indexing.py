"""Which entries gathers, scatters and slices at computed places may read.

An index that is known says which entry is read. One that is not may be any, so
all entries along its axis are read.
"""

from collections.abc import Sequence

from jax.extend import core
import numpy as np

from dpjax.grads import entries as entries_lib
from dpjax.grads.entries import Entries
from dpjax.grads import entry_rules


def rule_of(equation: core.JaxprEqn) -> entry_rules.Rule | None:
  """Returns the rule of an operation, None if there is none."""
  name = equation.primitive.name
  if name.startswith('scatter'):
    return _scatter
  return _RULES.get(name)


def _dynamic_slice(equation, inputs) -> list[Entries]:
  operand, *starts = inputs
  sizes, (shape,) = equation.params['slice_sizes'], entry_rules.shapes_of(
      equation)
  places, unknown = _places(starts, sizes, operand.reads.shape)
  part = _blurred(operand, unknown)
  part = entries_lib.moved(part, lambda array: array[places])
  return [_with_indices(part, starts, shape, unknown)]


def _dynamic_update_slice(equation, inputs) -> list[Entries]:
  operand, update, *starts = inputs
  shape = operand.reads.shape
  places, unknown = _places(starts, update.reads.shape, shape)
  if not unknown:
    return [Entries(*(None if old is None else _assigned(old, places, new)
                      for old, new in zip(*entries_lib.comparable(
                          [operand, update]), strict=True)))]
  # It may land anywhere along these axes.
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


def _assigned(old: np.ndarray, places: tuple, new: np.ndarray) -> np.ndarray:
  out = np.array(old)
  out[places] = new
  return out


def _places(starts: Sequence[Entries], sizes: Sequence[int],
            shape: Sequence[int]) -> tuple[tuple[slice, ...], list[int]]:
  """Slices of these sizes, and the axes whose start is not known."""
  places, unknown = [], []
  for axis, (start, size, whole) in enumerate(
      zip(starts, sizes, shape, strict=True)):
    known = start.known()
    if size == whole:
      known = 0
    if known is None:
      unknown.append(axis)
    first = int(np.clip(known or 0, 0, whole - size))
    places.append(slice(first, first + size))
  return tuple(places), unknown


def _blurred(entries: Entries, axes: Sequence[int]) -> Entries:
  """Entries of the same shape that read all along the axes."""
  if not axes:
    return entries
  one = entries_lib.reduced(entries, axes, 'blurred', keepdims=True)
  return entries_lib.moved(one, lambda array: np.broadcast_to(
      array, entries.reads.shape))


def _with_indices(part: Entries, indices: Sequence[Entries],
                  shape: Sequence[int], axes: Sequence[int] = ()) -> Entries:
  """Entries [shape] of what was read and where, as far as it was unknown.

  Args:
    part: what was read.
    indices: that broadcast to `shape`.
    shape: of the result.
    axes: along which entries lie that were read from unknown places on.
  """
  indices = [index for index in indices if index.known() is None]
  if not indices:
    return part
  return entries_lib.spread(entries_lib.combined(
      [part, *indices], shape, 'indexed'), shape, axes)


def _columns(indices: Entries) -> list[Entries]:
  """Indices [..., k] as k arrays."""
  return [entries_lib.moved(indices, lambda array, i=i: array[..., i])
          for i in range(indices.reads.shape[-1])]


def _gather(equation, inputs) -> list[Entries]:
  """Output axes are those of windows, and the others, of the indices."""
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
  operand = _blurred(operand, unknown)
  part = entries_lib.moved(operand, lambda array: _fancy(array, places, shape))
  columns = [_in_place(column, others, len(shape))
             for column in _columns(indices)]
  return [_with_indices(part, columns, shape, [
      offsets[axis] for axis in unknown if axis in offsets])]


def _fancy(array: np.ndarray, places: Sequence[np.ndarray],
           shape: Sequence[int]) -> np.ndarray:
  """array[places], without reading one entry of a broadcast view twice."""
  narrow = entries_lib.narrowed(array)
  places = [np.zeros([1] * len(shape), int) if narrow.shape[axis] == 1 else
            place for axis, place in enumerate(places)]
  return np.broadcast_to(narrow[tuple(places)] if places else narrow, shape)


def _in_place(column: Entries, axes: Sequence[int], ndim: int) -> Entries:
  """Entries [...] with their axes among those of an output."""
  new = [axis for axis in range(ndim) if axis not in axes]
  return entries_lib.moved(column, lambda array: np.expand_dims(array, new))


def _coordinates(sizes, windows, columns, mapped, batched, offsets, others,
                 shape) -> tuple[list[np.ndarray], list[int]]:
  """For each axis of an operand where outputs or updates are in it.

  Args:
    sizes: of the operand.
    windows: of what is read or written at one index, along each axis.
    columns: [...] indices, one for each of `mapped`.
    mapped: axes of the operand that these count along.
    batched: {axis of the operand: axis of `columns` that it goes with}.
    offsets: {axis of the operand: axis of `shape` that windows lie along}.
    others: axes of `shape` that are those of `columns`.
    shape: of the outputs or updates.

  Returns:
    (integers that broadcast to `shape` for each axis; the axes along which
    they are not known, where all are offsets alone).
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


def _scatter(equation, inputs) -> list[Entries]:
  """What was there and what may have been written or added there."""
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
  inside = not unknown and all(
      np.all((column.value >= 0)
             & (column.value <= sizes[axis] - extents[axis]))
      if column.known() is not None else extents[axis] == sizes[axis]
      for axis, column in zip(numbers.scatter_dims_to_operand_dims, columns,
                              strict=True))
  replaces = (inside and equation.primitive.name == 'scatter'
              and equation.params['update_jaxpr'] is None)
  return [_written(operand, updates, places, unknown, replaces)]


def _written(operand: Entries, updates: Entries, places: Sequence[np.ndarray],
             unknown: Sequence[int], replaces: bool) -> Entries:
  """The operand with updates in their places, anywhere along some axes.

  Args:
    operand: what was there.
    updates: what is written.
    places: for each axis of the operand, where updates go.
    unknown: axes along which that is not known.
    replaces: whether nothing of what was there stays in these places.
  """
  sizes = operand.reads.shape
  places = tuple(np.broadcast_to(
      np.zeros_like(place) if axis in unknown else place, updates.reads.shape)
                 for axis, place in enumerate(places))
  written = [1 if axis in unknown else size for axis, size in enumerate(sizes)]
  reads, codes, touched = (np.zeros(written, dtype) for dtype in (
      np.uint32, np.uint64, bool))
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
