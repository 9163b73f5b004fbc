"""Follows gradients from the sites to the parameter leaves, see `reads`.

Where an operation on parameters has a rule here, the gradient by its input is a
`Read` as the gradient by its output is. The gradients of a leaf that is reached
through any other operation must be formed.
"""

from collections.abc import Callable, Mapping, Sequence
import math
from typing import Any

import jax
from jax.extend import core
import jax.numpy as jnp

from dpjax.grads import contractions
from dpjax.grads import jaxprs
from dpjax.grads import reads as reads_lib
from dpjax.grads import tracing
from dpjax.grads.jaxprs import Values
from dpjax.grads.reads import Axis
from dpjax.grads.reads import NotFollowed
from dpjax.grads.reads import Read
from dpjax.grads.tracing import Program
from dpjax.typing import Array

# With more uses of one leaf, its gradients are formed.
_MOST_READS = 64


def uses(program: Program, values: Values
         ) -> dict[int, list[Read | str]]:
  """Returns all uses of each leaf, up to the first that is not followed.

  That one is a text that says why: then the gradients of the leaf must be
  formed. The last one of too many uses says so.

  Args:
    program: of one record.
    values: of `program.parameter_values`.
  """
  walk = _Walk(program, values)
  for number, site in enumerate(program.sites):
    for var in site.reads:
      try:
        walk.spread(reads_lib.at_site(number, site), var)
      except NotFollowed as error:
        walk.refuse(var, str(error))
  return walk.uses


def _is_refused(uses: Sequence[Read | str]) -> bool:
  """Returns whether the uses of a leaf are known to be not followed."""
  return bool(uses) and isinstance(uses[-1], str)


class _Walk:
  """Walks from arrays of parameters back to the leaves.

  Attributes:
    uses: see `uses`.
  """

  def __init__(self, program: Program, values: Values):
    self.uses: dict[int, list[Read | str]] = {
        leaf: [] for leaf in range(len(program.parameters))}
    self._sites = program.sites
    self._values = values
    self._number: dict[Any, int] = {
        var: i for i, var in enumerate(program.parameters)}
    self._makers: dict[Any, core.JaxprEqn] = {
        out: equation for equation in program.weights
        for out in equation.outvars}
    self._leaves: dict[Any, frozenset[int]] = {
        var: frozenset([i]) for var, i in self._number.items()}
    for equation in program.weights:
      leaves: frozenset[int] = frozenset().union(*map(
          self.leaves, equation.invars))
      if equation.primitive.name == 'stop_gradient':
        leaves = frozenset()
      self._leaves.update({out: leaves for out in equation.outvars})

  def leaves(self, var: jaxprs.Atom) -> frozenset[int]:
    """Returns the numbers of the leaves that have a gradient through `var`."""
    if isinstance(var, core.Literal):
      return frozenset()
    return self._leaves.get(var, frozenset())

  def refuse(self, var: jaxprs.Atom, reason: str) -> None:
    """Says why a use of the leaves behind `var` is not followed."""
    for leaf in self.leaves(var):
      if not _is_refused(self.uses[leaf]):
        self.uses[leaf].append(reason)

  def spread(self, read: Read, var: jaxprs.Atom) -> None:
    """Adds what a site adds to the gradient by `var` to the leaves' uses."""
    # Ends the walk where a few equations have very many paths.
    if all(_is_refused(self.uses[leaf]) for leaf in self.leaves(var)):
      return
    name = self._sites[read.site].name
    if var in self._number:
      own = self.uses[self._number[var]]
      own.append(read if len(own) < _MOST_READS else
                 f'{name} reads it after {_MOST_READS} other uses')
      return
    equation = self._makers[var]
    out = [each is var for each in equation.outvars].index(True)
    for operand, source in enumerate(equation.invars):
      if not self.leaves(source):
        continue
      try:
        found = _pulled(read, equation, out, operand, self._values)
      except NotFollowed:
        self.refuse(source, f'{equation.primitive.name} changes it before '
                    f'{name} reads it')
      else:
        if found is not None:
          self.spread(found, source)


def _pulled(read: Read, equation: core.JaxprEqn, out: int, operand: int,
            values: Mapping[Any, Any]) -> Read | None:
  """Returns the gradient by an input of an equation; None if it is zero.

  Args:
    read: the gradient by its output number `out`.
    equation: it is linear in the input, given the values of the others.
    out: number of an output.
    operand: number of the input.
    values: of parameters and what is computed from them.

  Raises:
    NotFollowed: if the gradient does not have the form of a `Read`.
  """
  name = equation.primitive.name
  source = jaxprs.aval(equation.invars[operand])
  if not jnp.issubdtype(source.dtype, jnp.floating) or 0 in source.shape:
    raise NotFollowed
  if name in tracing.REARRANGING:
    if operand != out:  # A barrier of several values.
      return None
    whole = bool(read.chain) or read.is_whole
    if not whole:
      try:
        return reads_lib.rearranged(read, equation, source.shape)
      except NotFollowed:
        whole = read.is_plain and read.widths == read.shape
    if not whole or source.size != jaxprs.aval(equation.outvars[out]).size:
      raise NotFollowed
    return read._replace(chain=(equation, *read.chain))
  others = [None if i == operand else jaxprs.value_of(values, var)
            for i, var in enumerate(equation.invars)]
  if read.chain or read.is_whole:
    return _whole(read, equation, operand, others)
  if name not in _RULES:
    raise NotFollowed
  return _RULES[name](read, equation, out, operand, others)


def _whole(read: Read, equation: core.JaxprEqn, operand: int,
           others: Sequence[Any]) -> Read:
  """Returns the read of a term or a multiple of an array without factors.

  The array is stacked over the steps of a loop, or its entries were rearranged.
  """
  name = equation.primitive.name
  if jaxprs.aval(equation.invars[operand]).shape != jaxprs.aval(
      equation.outvars[0]).shape:
    raise NotFollowed
  if name in ('add', 'add_any', 'sub'):
    return _neg(read) if (name, operand) == ('sub', 1) else read
  if name == 'neg':
    return _neg(read)
  if name == 'mul' and others[1 - operand].size == 1:
    return _scaled(read, jnp.asarray(others[1 - operand]))
  if (name, operand) == ('div', 0) and others[1].size == 1:
    return _scaled(read, 1 / jnp.asarray(others[1], jnp.float32))
  raise NotFollowed


def _neg(read: Read, *_: Any) -> Read:
  """Returns the read before a change of sign."""
  return _scaled(read, jnp.float32(-1))


def _scaled(read: Read, factor: Array) -> Read:
  """Returns the read times a number."""
  factor = factor.astype(jnp.float32).reshape(())
  return read._replace(
      scale=factor if read.scale is None else factor * read.scale)


def _narrowed(read: Read, shape: Sequence[int]) -> Read:
  """Returns the read before its input was broadcast from axes of size 1."""
  if not shape and read.shape:  # A number beside an array.
    shape = (1,) * len(read.shape)
    return _narrowed(read, shape)._replace(shape=(), axes=(), starts=())
  for i, size in enumerate(shape):
    if size == 1 and read.shape[i] > 1:
      read = reads_lib.summed(read, i)
      read = read._replace(starts=reads_lib.replaced(read.starts, i, 0))
  return read._replace(shape=tuple(shape))


def _add(read: Read, equation: core.JaxprEqn, out: int, operand: int,
         others: Sequence[Any]) -> Read:
  """Returns the read of one term of a sum or difference."""
  if equation.primitive.name == 'sub' and operand == 1:
    read = _neg(read)
  return _narrowed(read, jaxprs.aval(equation.invars[operand]).shape)


def _mul(read: Read, equation: core.JaxprEqn, out: int, operand: int,
         others: Sequence[Any]) -> Read:
  """Returns the read of one factor, or of the numerator of a ratio.

  Raises:
    NotFollowed: if the other factor varies along axes of both factors of the
      gradient, as a mask does.
  """
  other = others[1 - operand]
  if equation.primitive.name == 'div':
    if operand == 1:
      raise NotFollowed
    other = 1 / jnp.asarray(other, jnp.float32)
  other = _part(read, jnp.asarray(other))
  along = [i for i, size in enumerate(other.shape) if size > 1]
  if along:
    axes = [axis for i in along if (axis := read.axes[i]) is not None]
    values = other.reshape([axis.size for axis in axes]).astype(jnp.float32)

    def multiplied(rows: Array) -> Array:
      others = (1,) * (rows.ndim - 1 - values.ndim)
      return rows.astype(jnp.float32) * values.reshape(
          (1, *values.shape, *others))

    read = reads_lib.changed(read, axes, axes, multiplied, False)
  else:
    read = _scaled(read, other)
  return _narrowed(read, jaxprs.aval(equation.invars[operand]).shape)


def _part(read: Read, values: Array, places: Sequence[int] | None = None
          ) -> Array:
  """Returns the entries of `values` that meet the part of the read.

  Args:
    read: of an array.
    values: its axes are those of the array, or have size 1.
    places: axes of the array that those of `values` meet; None for all.
  """
  for i, at in enumerate(range(values.ndim) if places is None else places):
    if values.shape[i] > 1 or read.shape[at] == 1:
      values = jax.lax.slice_in_dim(values, read.starts[at],
                                    read.starts[at] + read.widths[at], axis=i)
  return values


def _slice(read: Read, equation: core.JaxprEqn, out: int, operand: int,
           others: Sequence[Any]) -> Read:
  """Returns the read of the array that was sliced."""
  if any(step != 1 for step in equation.params['strides'] or ()):
    raise NotFollowed
  return _moved(read, equation.params['start_indices'],
                jaxprs.aval(equation.invars[0]).shape)


def _split(read: Read, equation: core.JaxprEqn, out: int, operand: int,
           others: Sequence[Any]) -> Read:
  """Returns the read of the array of which output number `out` is a part."""
  offsets = [0] * len(read.shape)
  offsets[equation.params['axis']] = sum(equation.params['sizes'][:out])
  return _moved(read, offsets, jaxprs.aval(equation.invars[0]).shape)


def _moved(read: Read, offsets: Sequence[int], shape: Sequence[int]) -> Read:
  """Returns the read of an array that holds the present one at `offsets`."""
  return read._replace(shape=tuple(shape), starts=tuple(
      map(sum, zip(read.starts, offsets, strict=True))))


def _concatenate(read: Read, equation: core.JaxprEqn, out: int, operand: int,
                 others: Sequence[Any]) -> Read | None:
  """Returns the read of one of the arrays that were joined."""
  at = equation.params['dimension']
  shapes = [jaxprs.aval(var).shape for var in equation.invars]
  start = read.starts[at] - sum(shape[at] for shape in shapes[:operand])
  stop = start + read.widths[at]
  low, high = max(start, 0), min(stop, shapes[operand][at])
  if low >= high:
    return None
  axis = read.axes[at]
  if axis is not None and (low, high) != (start, stop):
    new = [Axis(high - low)] if high - low > 1 else []

    def cut(rows: Array) -> Array:
      rows = jax.lax.slice_in_dim(rows, low - start, high - start, axis=1)
      return rows if new else rows[:, 0]

    read = reads_lib.changed(read, [axis], new, cut, False)
    read = read._replace(axes=reads_lib.replaced(
        read.axes, at, new[0] if new else None))
  return read._replace(shape=shapes[operand],
                       starts=reads_lib.replaced(read.starts, at, low))


def _stack(read: Read, equation: core.JaxprEqn, out: int, operand: int,
           others: Sequence[Any]) -> Read | None:
  """Returns the read of one of the arrays that were stacked."""
  at = equation.params['axis']
  if not read.starts[at] <= operand < read.starts[at] + read.widths[at]:
    return None
  axis = read.axes[at]
  if axis is not None:
    place = operand - read.starts[at]
    read = reads_lib.changed(read, [axis], [], lambda rows: rows[:, place],
                             False)
  drop = lambda values: (*values[:at], *values[at + 1:])
  return read._replace(shape=drop(read.shape), axes=drop(read.axes),
                       starts=drop(read.starts))


def _dot_general(read: Read, equation: core.JaxprEqn, out: int, operand: int,
                 others: Sequence[Any]) -> Read:
  """Returns the read of one factor of a matrix product of parameters.

  The gradient by A of A B is X^T (D B^T), that by B is (X A)^T D.
  """
  contracted, shared = equation.params['dimension_numbers']
  other = jnp.asarray(others[1 - operand])
  shape = jaxprs.aval(equation.invars[operand]).shape
  if shared[0]:
    raise NotFollowed
  own, its = ([i for i in range(ndim) if i not in contracted[side]]
              for ndim, side in ((len(shape), operand),
                                 (other.ndim, 1 - operand)))
  # Axes of the product: those of the left factor come first.
  places = range(len(read.shape))
  mine, theirs = ((places[:len(own)], places[len(own):]) if operand == 0 else
                  (places[len(its):], places[:len(its)]))
  matrix = _part(read, other.transpose((*its, *contracted[1 - operand])),
                 theirs)
  old = [axis for i in theirs if (axis := read.axes[i]) is not None]
  new = {i: Axis(shape[i]) for i in contracted[operand] if shape[i] > 1}
  read = reads_lib.changed(read, old, list(new.values()), _product(
      matrix.reshape((math.prod(axis.size for axis in old), -1)),
      len(old), [axis.size for axis in new.values()]), False)
  axes: list[Axis | None] = [new.get(i) for i in range(len(shape))]
  starts = [0] * len(shape)
  for i, place in zip(own, mine, strict=True):
    axes[i], starts[i] = read.axes[place], read.starts[place]
  return read._replace(shape=shape, axes=tuple(axes), starts=tuple(starts))


def _product(matrix: Array, count: int, sizes: Sequence[int]
             ) -> Callable[[Array], Array]:
  """Returns the product of the `count` axes after the first with a matrix."""

  def multiplied(rows: Array) -> Array:
    others = rows.shape[1 + count:]
    flat = rows.reshape((rows.shape[0], len(matrix), math.prod(others)))
    return contractions.contract('tio,ij->tjo', flat, matrix).reshape(
        (rows.shape[0], *sizes, *others))

  return multiplied


_RULES: dict[str, Callable[..., Read | None]] = {
    'add': _add, 'add_any': _add, 'concatenate': _concatenate, 'div': _mul,
    'dot_general': _dot_general, 'mul': _mul, 'neg': _neg, 'slice': _slice,
    'split': _split, 'stack': _stack, 'sub': _add}
