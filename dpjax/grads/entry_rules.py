"""Dependence rules: which input entries each operation reads for each output.

A rule maps an equation and the entries of its inputs to the entries of its
outputs. It must be sound: it may report that an entry reads more than it does,
never less. An operation such as a maximum counts as reading all its operands,
even if the result does not change with some of them.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import itertools
import operator
from typing import Any

import jax
from jax.extend import core
import numpy as np

from dpjax.grads import entries as entries_lib
from dpjax.grads import jaxprs
from dpjax.grads.entries import Entries
from dpjax.grads.entries import UNKNOWN

Parts = Sequence[Entries]
Rule = Callable[[core.JaxprEqn, Parts], list[Entries]]

_ELEMENTWISE = frozenset('''
abs acos acosh add add_any add_jaxvals and asin asinh atan atan2 atanh
bessel_i0e bessel_i1e cbrt ceil clamp clz complex conj convert_element_type cos
cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma
igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p
logistic lt lt_to max min mul ne neg nextafter not or polygamma
population_count pow random_clone random_fold_in random_seed real
reduce_precision regularized_incomplete_beta rem round rsqrt shift_left
shift_right_arithmetic shift_right_logical sign sin sinh sqrt square
stop_gradient sub tan tanh threefry2x32 xor zeta'''.split())

_IDENTITIES = frozenset('''
copy copy_p device_put layout_constraint mesh_cast name optimization_barrier
pvary reshard sharding_constraint'''.split())

# Operations on matrices or vectors -> the number of last axes that they mix.
_LAST_AXES = dict.fromkeys('''
cholesky eig eigh hessenberg householder_product lu qr schur svd
triangular_solve tridiagonal tridiagonal_solve'''.split(), 2) | {
    'lu_pivots_to_permutation': 1}

# NumPy functions for known integers and booleans. Division by zero is avoided;
# its value does not matter.
_NUMPY: dict[str, Callable[..., Any]] = {
    'add': np.add, 'and': np.bitwise_and, 'eq': np.equal,
    'ge': np.greater_equal, 'gt': np.greater, 'le': np.less_equal,
    'lt': np.less, 'max': np.maximum, 'min': np.minimum, 'mul': np.multiply,
    'ne': np.not_equal, 'neg': np.negative, 'not': np.invert,
    'or': np.bitwise_or, 'sign': np.sign, 'sub': np.subtract,
    'xor': np.bitwise_xor,
    'clamp': lambda low, x, high: np.clip(x, low, high),
    'convert_element_type': lambda x: x,
    'div': lambda x, y: np.sign(x) * np.sign(y) * (
        np.abs(x) // np.maximum(np.abs(y), 1)),
    'rem': lambda x, y: np.fmod(x, np.where(y == 0, 1, y)),
}


def rule_of(equation: core.JaxprEqn) -> Rule | None:
  """Returns the rule of an operation, or None if this module has none."""
  name = equation.primitive.name
  if name in _ELEMENTWISE:
    return _elementwise
  if name in _IDENTITIES:
    return lambda equation, inputs: list(inputs)
  if name in _LAST_AXES:
    return _last_axes
  if name.startswith(('reduce_window', 'select_and_')):
    return _windows
  return _RULES.get(name)


def shapes_of(equation: core.JaxprEqn) -> list[tuple[int, ...]]:
  """Returns the shapes of the outputs of an operation."""
  return [tuple(jaxprs.aval(var).shape) for var in equation.outvars]


def _elementwise(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns the entries of an elementwise operation, with values if known."""
  # Parameters such as an exponent belong to the name of the operation.
  key = equation.primitive.name, *(
      value for value in equation.params.values()
      if isinstance(value, (int, float, str)))
  outputs = [entries_lib.combined(inputs, shape, (key, number))
             for number, shape in enumerate(shapes_of(equation))]
  function = _NUMPY.get(equation.primitive.name)
  dtype = jaxprs.aval(equation.outvars[0]).dtype
  if (function is None or dtype.kind not in 'biu'
      or any(part.value is None for part in inputs)):
    return outputs
  with np.errstate(all='ignore'):
    value = function(*(entries_lib.narrowed(np.asarray(part.value))
                       for part in inputs))
  return [entries_lib.with_value(outputs[0], np.asarray(value).astype(dtype))]


def _bitcast(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Splits words into shorter ones along a new last axis, or joins them."""
  (part,), (shape,) = inputs, shapes_of(equation)
  part = part._replace(value=None)
  if part.reads.ndim > len(shape):
    return [entries_lib.reduced(part, [len(shape)], 'bitcast')]
  if part.reads.ndim < len(shape):
    return [_widened(part, shape, range(part.reads.ndim))]
  return [part]


def _select(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns the entries of `select_n`; of the chosen case where it is known."""
  (which, *cases), (shape,) = inputs, shapes_of(equation)
  out = entries_lib.combined(inputs, shape, 'select_n')
  if which.value is None:
    return [out]
  known = np.broadcast_to(which.reads == 0, shape)
  number = np.broadcast_to(which.value, shape).astype(np.int32)
  cases = entries_lib.comparable(cases)
  for index, case in enumerate(cases):
    chosen = known & (number == index)
    out = Entries(np.where(chosen, case.reads, out.reads),
                  np.where(chosen, case.codes, out.codes),
                  None if case.value is None else np.where(
                      chosen, case.value, 0 if out.value is None
                      else out.value))
  return [out if out.value is None else out._replace(
      reads=np.where(known, out.reads, out.reads | UNKNOWN))]


def _mover(move: Callable[[np.ndarray, Mapping[str, Any]], np.ndarray]
           ) -> Rule:
  """Returns the rule of an operation that only rearranges one operand.

  Args:
    move: (array, parameters of the equation) -> rearranged array.
  """
  return lambda equation, inputs: [entries_lib.rearranged(
      inputs[0], lambda array: move(array, equation.params))]


def _broadcast(array: np.ndarray, params: Mapping[str, Any]) -> np.ndarray:
  """Broadcasts an array whose axes go to given axes of the result."""
  shape = params['shape']
  kept = [int(axis) for axis in params['broadcast_dimensions']]
  new = [axis for axis in range(len(shape)) if axis not in kept]
  return np.broadcast_to(np.expand_dims(array, new), shape)


def _sliced(array: np.ndarray, params: Mapping[str, Any]) -> np.ndarray:
  """Slices an array with public starts, limits and strides."""
  strides = params['strides'] or (1,) * array.ndim
  return array[tuple(map(slice, params['start_indices'],
                         params['limit_indices'], strides))]


def _split(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Cuts an array along one axis into parts of given sizes."""
  sizes, axis = equation.params['sizes'], equation.params['axis']
  # Slices are views, so broadcast arrays stay small.
  return [entries_lib.rearranged(inputs[0], operator.itemgetter(
      (slice(None),) * axis + (slice(stop - size, stop),)))
          for size, stop in zip(sizes, itertools.accumulate(sizes),
                                strict=True)]


def _concatenate(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Joins arrays along one axis."""
  axis = equation.params['dimension']
  return [entries_lib.by_field(lambda *fields: np.concatenate(fields, axis),
                               *entries_lib.comparable(inputs))]


def _pad(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns the entries of an array with any padding, also negative."""
  shape, = shapes_of(equation)
  lows, highs, insides = zip(*equation.params['padding_config'], strict=True)
  # Sizes with the padding between entries.
  inner = [size + max(size - 1, 0) * inside for size, inside in zip(
      inputs[0].reads.shape, insides, strict=True)]
  # Positive padding first, then negative padding, which cuts the array.
  whole = [max(low, 0) + max(high, 0) + size
           for low, high, size in zip(lows, highs, inner, strict=True)]
  places = tuple(slice(max(low, 0), max(low, 0) + size, inside + 1)
                 for low, inside, size in zip(lows, insides, inner,
                                              strict=True))
  cut = tuple(slice(max(-low, 0), max(-low, 0) + size)
              for low, size in zip(lows, shape, strict=True))

  def padded(array: np.ndarray, padding: np.ndarray) -> np.ndarray:
    out = np.array(np.broadcast_to(padding, whole))
    out[places] = array
    return out[cut]

  return [entries_lib.by_field(padded, *entries_lib.comparable(inputs))]


def _iota(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns numbers that count along one axis, with their values."""
  del inputs
  shape, axis = equation.params['shape'], equation.params['dimension']
  constant = entries_lib.of_constant(np.arange(shape[axis]).reshape(
      [-1 if i == axis else 1 for i in range(len(shape))]))
  if np.dtype(equation.params['dtype']).kind not in 'iu':
    constant = constant._replace(value=None)
  return [entries_lib.rearranged(constant, lambda a: np.broadcast_to(a, shape))]


def _platform(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns the known index of the program that runs on this platform."""
  del inputs
  backend = jax.default_backend()
  names = {backend, *(('cuda', 'rocm') if backend == 'gpu' else ())}
  number = next(i for i, group in enumerate(equation.params['platforms'])
                if group is None or names & set(group))
  return [entries_lib.of_constant(np.int32(number))]


def _reduction(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns the entries of a reduction of one or several operands."""
  params, name = equation.params, equation.primitive.name
  axes = params['axes' if 'axes' in params else 'dimensions']
  parts = [entries_lib.reduced(part, axes, (name, number)) if part.reads.ndim
           else part for number, part in enumerate(inputs)]
  return [entries_lib.combined(parts, shape, (name, number))
          for number, shape in enumerate(shapes_of(equation))]


def _along_axis(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns the entries of scans, sorts and top-k along one axis."""
  params, name = equation.params, equation.primitive.name
  names = 'dimension', 'axis', 'reduction_dimension'
  axis = next((params[key] for key in names if key in params), -1)
  axis %= inputs[0].reads.ndim
  parts = [entries_lib.reduced(part, [axis], (name, number), keepdims=True)
           for number, part in enumerate(inputs)]
  return _over(equation, parts, [axis])


def _last_axes(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns outputs that read all entries along the last axes."""
  count = _LAST_AXES.get(equation.primitive.name) or len(
      equation.params['fft_lengths'])
  return _of_leading(equation, inputs, max(
      part.reads.ndim for part in inputs) - count)


def _of_leading(equation: core.JaxprEqn, inputs: Parts,
                count: int) -> list[Entries]:
  """Returns outputs that read all entries with the same first `count` axes."""
  name = equation.primitive.name
  parts = [entries_lib.reduced(part, range(min(count, part.reads.ndim),
                                           part.reads.ndim), (name, number))
           for number, part in enumerate(inputs)]
  return [_widened(entries_lib.combined(parts, shape[:count], (name, number)),
                   shape, range(count))
          for number, shape in enumerate(shapes_of(equation))]


def _widened(entries: Entries, shape: Sequence[int],
             axes: Sequence[int]) -> Entries:
  """Returns entries with new axes, along which all codes differ.

  Args:
    entries: with the axes `axes` of `shape`.
    shape: shape of the result.
    axes: axes of `shape` that `entries` already has, in order.
  """
  others = [axis for axis in range(len(shape)) if axis not in axes]
  return entries_lib.spread(entries_lib.rearranged(
      entries, lambda array: np.expand_dims(array, others)), shape, others)


def _random(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns bits or keys [..., new axes], drawn from keys [...]."""
  shape, = shapes_of(equation)
  like = inputs[0].reads
  one = entries_lib.combined(inputs, like.shape, equation.primitive.name)
  return [_widened(one, shape, range(like.ndim))]


def _random_gamma(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns gamma variables, from keys and a parameter with more axes."""
  (key, alpha), (shape,) = inputs, shapes_of(equation)
  new = tuple(range(key.reads.ndim, len(shape)))
  key = entries_lib.rearranged(key, lambda a: np.expand_dims(a, new))
  return [entries_lib.spread(entries_lib.combined(
      [key, alpha], shape, 'random_gamma'), shape, new)]


def _wrap(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns keys, each of which reads all its words."""
  shape, = shapes_of(equation)
  words = range(len(shape), inputs[0].reads.ndim)
  return [entries_lib.reduced(inputs[0], words, 'wrap')]


def _windows(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns the entries of a window operation, such as pooling.

  Along an axis each output may read all inputs, unless windows have size 1.
  """
  params, name = equation.params, equation.primitive.name
  operands = [part for part in inputs if part.reads.ndim]
  sizes = params['window_dimensions']
  axes = [axis for axis, (size, stride, pads, base) in enumerate(zip(
      sizes, params['window_strides'], params['padding'],
      params.get('base_dilation') or (1,) * len(sizes), strict=True))
          if (size, stride, tuple(pads), base) != (1, 1, (0, 0), 1)]
  return _over(equation, [entries_lib.reduced(
      part, axes, (name, number), keepdims=True)
                          for number, part in enumerate(operands)], axes)


def _over(equation: core.JaxprEqn, parts: Parts,
          axes: Sequence[int]) -> list[Entries]:
  """Returns outputs that read reduced parts; codes differ along the axes."""
  name = equation.primitive.name
  shape = np.broadcast_shapes(*(part.reads.shape for part in parts))
  return [entries_lib.spread(entries_lib.combined(
      parts, shape, (name, number)), out, axes)
          for number, out in enumerate(shapes_of(equation))]


def _dot(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns the entries of a matrix product over any axes."""
  contracted, batched = equation.params['dimension_numbers']
  shape, = shapes_of(equation)
  # The output's axes: batch axes, free axes of the left, then of the right.
  parts, first = [], len(batched[0])
  for part, axes, batch in zip(inputs, contracted, batched, strict=True):
    kept = [axis for axis in range(part.reads.ndim)
            if axis not in axes and axis not in batch]
    part = entries_lib.rearranged(part, functools.partial(
        np.transpose, axes=(*batch, *kept, *axes)))
    part = entries_lib.reduced(part, range(len(batch) + len(kept),
                                           part.reads.ndim))
    new = [axis for axis in range(len(batch), len(shape))
           if not first <= axis < first + len(kept)]
    parts.append(entries_lib.rearranged(
        part, functools.partial(np.expand_dims, axis=tuple(new))))
    first += len(kept)
  return [entries_lib.combined(parts, shape, 'dot_general')]


def _convolution(equation: core.JaxprEqn, inputs: Parts) -> list[Entries]:
  """Returns the entries of a convolution; each reads all spatial places."""
  params, (shape,) = equation.params, shapes_of(equation)
  numbers = params['dimension_numbers']
  order = lambda spec: lambda array: np.transpose(array, spec)
  x = entries_lib.rearranged(inputs[0], order(numbers.lhs_spec))
  kernel = entries_lib.rearranged(inputs[1], order(numbers.rhs_spec))
  kernel = entries_lib.reduced(kernel, range(1, kernel.reads.ndim), 'kernel')
  x = entries_lib.reduced(x, range(2, x.reads.ndim), 'spatial')
  features, rows = params['feature_group_count'], params['batch_group_count']
  num_rows, num_features = shape[numbers.out_spec[0]], kernel.reads.shape[0]
  x = entries_lib.rearranged(x, lambda a: np.reshape(
      a, (rows, a.shape[0] // rows, features, -1)))
  x = entries_lib.reduced(x, [3], 'features')  # [groups, rows, groups].
  groups = rows * features
  x = entries_lib.rearranged(x, lambda a: np.repeat(np.reshape(
      np.moveaxis(a, 1, 0), (num_rows, groups)), num_features // groups, 1))
  out = entries_lib.combined(
      [x, entries_lib.rearranged(kernel, lambda a: a[None])],
      (num_rows, num_features), 'convolution')
  spatial = tuple(range(2, len(shape)))
  plain = entries_lib.rearranged(out, lambda a: np.broadcast_to(
      np.expand_dims(a, spatial), [shape[axis] for axis in numbers.out_spec]))
  return [entries_lib.rearranged(plain, order(np.argsort(numbers.out_spec)))]


_RULES: dict[str, Rule] = {
    'bitcast_convert_type': _bitcast,
    'broadcast_in_dim': _mover(_broadcast),
    'expand_dims': _mover(lambda a, params: np.expand_dims(
        a, params['dimensions'])),
    'reshape': _mover(lambda a, params: np.reshape(a, params['new_sizes'])),
    'rev': _mover(lambda a, params: np.flip(
        a, tuple(map(int, params['dimensions'])))),
    'slice': _mover(_sliced),
    'squeeze': _mover(lambda a, params: np.squeeze(
        a, tuple(map(int, params['dimensions'])))),
    'tile': _mover(lambda a, params: np.tile(a, params['reps'])),
    'transpose': _mover(lambda a, params: np.transpose(
        a, params['permutation'])),
    'concatenate': _concatenate, 'conv_general_dilated': _convolution,
    'dot_general': _dot, 'fft': _last_axes, 'iota': _iota, 'pad': _pad,
    'platform_index': _platform, 'random_bits': _random,
    'random_gamma': _random_gamma, 'random_split': _random,
    'random_unwrap': _random, 'random_wrap': _wrap, 'select_n': _select,
    'split': _split,
} | dict.fromkeys('''
argmax argmin reduce reduce_and reduce_max reduce_min reduce_or reduce_prod
reduce_sum reduce_xor'''.split(), _reduction) | dict.fromkeys('''
approx_top_k cumlogsumexp cummax cummin cumprod cumsum sort
top_k'''.split(), _along_axis)
