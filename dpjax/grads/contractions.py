"""Norms and sums of gradients of dense layers and convolutions.

The gradient of record i is X_i^T D_i: X_i [t, k] holds its inputs at t
positions (windows of an image, tokens of a sequence), D_i [t, n] the cotangents
of its outputs. If t = 1, the norm is a product of two norms. Otherwise we take
what is less work: form X_i^T D_i and keep it for the sum, or use
||X^T D||^2 = <X X^T, D D^T>, an inner product of two Gram matrices.
Sources: Goodfellow (2015); Li et al. (2022; ghost norms); Bu et al. (2022; a
choice for each layer); Bu et al. (2023; keeping products).
"""

from collections.abc import Callable, Mapping, Sequence
import math
from typing import Any, NamedTuple

import jax
from jax.extend import core
import jax.numpy as jnp

from dpjax import floats
from dpjax.grads import jaxprs
from dpjax.grads import windows
from dpjax.typing import Array, PyTree

UNIT_ROUNDOFF = 2.0**-24
"""Largest relative rounding error of a float32 operation."""

# How many multiplications for Gram matrices take as long as writing one number
# of a gradient and reading it again: at most the first constant, and one for
# each `_NUMBERS_PER_PRODUCT` numbers of a gradient, since small gradients stay
# in a cache. In 40 layers with 16 and 64 records on CPU, this choice took at
# most 1.3 times the time of the better way (one threshold for all: 4.4 times).
_PRODUCTS_PER_NUMBER = 100
_NUMBERS_PER_PRODUCT = 2**10
# The same for dense layers on CPU, where windows need not be formed first. In
# 26 layers of 8 to 400 positions with 8 and 32 records, the choice took at most
# 1.2 times the time of the better way.
_DENSE_LEAST, _DENSE_MOST = 3, 30
_DENSE_NUMBERS_PER_PRODUCT = 2**15

# Number of intermediate values that stay in a cache of a CPU.
_CACHED_VALUES = 2**21


class Layer(NamedTuple):
  """An operation that multiplies the record's values by one parameter.

  Attributes:
    rows: (input, cotangent) of one record -> X [g, t, k] and D [g, t, n], for g
      independent groups.
    to_weight: gradient [g, k, n] -> the layout of the parameter.
    total: (inputs [b, ...], cotangents [b, ...]) -> the sum of the gradients,
      in the layout of the parameter.
    num_sites: t, the number of positions.
    sizes: (g, k, n).
    has_windows: whether X repeats values of the input, as windows do.
    split: a faster way to the gradient of one record, or None.
    gram: a faster way from the input to X X^T [g, t, t], or None.
    axes: the axes of the parameter that X has and those that D has, in the
      order of `rows`; None for several groups.
  """
  rows: Callable[[Array, Array], tuple[Array, Array]]
  to_weight: Callable[[Array], Array]
  total: Callable[[Array, Array], Array]
  num_sites: int
  sizes: tuple[int, int, int]
  has_windows: bool = False
  split: windows.Split | None = None
  gram: Callable[[Array], Array] | None = None
  axes: tuple[Sequence[int], Sequence[int]] | None = None


def as_layer(equation: core.JaxprEqn, operand: int) -> Layer | None:
  """Returns a dense layer or convolution as a `Layer`, None for all others.

  Args:
    equation: an operation of the program for one record.
    operand: which input is the parameter.
  """
  if equation.primitive.name == 'dot_general':
    return _dense(equation, operand)
  if (equation.primitive.name == 'conv_general_dilated' and operand == 1
      and equation.params['batch_group_count'] == 1):
    return _convolution(equation)
  return None


def _dense(equation: core.JaxprEqn, operand: int) -> Layer:
  """Returns the layer of a product over any axes; batch axes are groups."""
  contracted, shared = equation.params['dimension_numbers']
  data = 1 - operand
  record, weight = (jaxprs.aval(equation.invars[i]).shape
                    for i in (data, operand))
  free, weight_free = (
      [i for i in range(len(shape))
       if i not in (*shared[side], *contracted[side])]
      for shape, side in ((record, data), (weight, operand)))
  groups, num_sites, width = (math.prod(record[i] for i in axes)
                              for axes in (shared[data], free,
                                           contracted[data]))
  out = math.prod(weight[i] for i in weight_free)

  def rows(x: Array, cotangent: Array) -> tuple[Array, Array]:
    x = x.transpose((*shared[data], *free, *contracted[data]))
    x = x.reshape((groups, num_sites, width))
    if data == 0:
      return x, cotangent.reshape((groups, num_sites, out))
    return x, cotangent.reshape((groups, out, num_sites)).transpose((0, 2, 1))

  order = (*shared[operand], *contracted[operand], *weight_free)

  def to_weight(gradient: Array) -> Array:
    return gradient.reshape([weight[i] for i in order]).transpose(
        _inverse(order))

  def total(x: Array, cotangent: Array) -> Array:
    x, cotangent = jax.vmap(rows)(x, cotangent)
    if groups > 1:
      return to_weight(contract('bgtk,bgtn->gkn', x, cotangent))
    # With other than two axes XLA would transpose first.
    return to_weight(contract('sk,sn->kn', x.reshape((-1, width)),
                               cotangent.reshape((-1, out))))

  return Layer(rows, to_weight, total, num_sites, (groups, width, out),
               axes=(contracted[operand], weight_free) if groups == 1 else None)


def _convolution(equation: core.JaxprEqn) -> Layer:
  """Returns the layer of a convolution with any parameters."""
  params = equation.params
  numbers, groups = params['dimension_numbers'], params['feature_group_count']
  kernel, out = (jaxprs.aval(var).shape for var in (equation.invars[1],
                                            equation.outvars[0]))
  num_out, num_in, *taps = (kernel[i] for i in numbers.rhs_spec)
  num_out //= groups
  num_sites = math.prod(out) // (groups * num_out)
  width = num_in * math.prod(taps)
  last = [(spec[0], *spec[2:], spec[1])
          for spec in (numbers.lhs_spec, numbers.out_spec)]
  sides = [out[i] for i in numbers.out_spec[2:]]

  def rows(x: Array, cotangent: Array) -> tuple[Array, Array]:
    x = windows.by_slices(x.transpose(last[0]), taps, params, sides)
    x = x.reshape((num_sites, -1, groups, num_in))
    x = x.transpose((2, 0, 1, 3)).reshape((groups, num_sites, width))
    cotangent = cotangent.transpose(last[1]).reshape(
        (num_sites, groups, num_out))
    return x, cotangent.transpose((1, 0, 2))

  def to_weight(gradient: Array) -> Array:
    split = gradient.reshape((groups, -1, num_in, num_out))
    return jnp.transpose(split.transpose((0, 3, 2, 1)).reshape(
        (groups * num_out, num_in, *taps)), _inverse(numbers.rhs_spec))

  def total(x: Array, cotangent: Array) -> Array:
    convolve = lambda kernel: jax.vmap(lambda one: _convolve(
        one, kernel, params))(x.astype(jnp.float32))
    pull = jax.vjp(convolve, jnp.zeros(kernel, jnp.float32))[1]
    return pull(cotangent.astype(jnp.float32))[0]

  gram = lambda x: windows.gram(x.transpose(last[0]), taps, params, sides)[None]
  image = [jaxprs.aval(equation.invars[0]).shape[i] for i in last[0]]
  of_pixels = windows.num_pixels(image, params)**2 * num_in
  return Layer(
      rows, to_weight, total, num_sites, (groups, width, num_out),
      has_windows=True, split=_faster_split(equation, last),
      gram=gram if groups == 1 and of_pixels <= num_sites**2 * width else None,
      axes=_kernel_axes(numbers.rhs_spec) if groups == 1 else None)


def _kernel_axes(spec: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
  """Returns the axes of a kernel that windows have, and those of outputs."""
  return (*spec[2:], spec[1]), spec[:1]


def _faster_split(equation: core.JaxprEqn,
                  last: Sequence[Sequence[int]]) -> windows.Split | None:
  """Returns `windows.split` if it forms fewer values than windows, or None.

  Only on accelerators, where access to memory takes the time.

  Args:
    equation: a convolution.
    last: orders of axes that put channels last, for image and for cotangent.
  """
  params = equation.params
  if jax.default_backend() == 'cpu' or params['feature_group_count'] > 1:
    return None
  image, out = (
      [jaxprs.aval(var).shape[i] for i in order] for var, order in zip(
          (equation.invars[0], equation.outvars[0]), last, strict=True))
  spec = params['dimension_numbers'].rhs_spec
  taps = [jaxprs.aval(equation.invars[1]).shape[i] for i in spec[2:]]
  split = windows.split(image, taps, params, out)
  product = lambda x, cotangent: split.product(x.transpose(last[0]),
                                               cotangent.transpose(last[1]))
  plain = math.prod(out[:-1]) * (math.prod(taps) * image[-1] + out[-1])
  return split._replace(product=product) if split.num_values < plain else None


def _convolve(x: Array, kernel: Array, params: Mapping[str, Any]) -> Array:
  """Convolves at the highest precision, whatever the network uses."""
  names = ('window_strides', 'padding', 'lhs_dilation', 'rhs_dilation',
           'dimension_numbers', 'feature_group_count')
  return jax.lax.conv_general_dilated(
      x, kernel, **{name: params[name] for name in names},
      precision=jax.lax.Precision.HIGHEST)


def _inverse(order: Sequence[int]) -> list[int]:
  return [order.index(i) for i in range(len(order))]


def is_outer(layer: Layer) -> bool:
  """Returns whether a record's gradient is a single outer product."""
  return layer.num_sites == layer.sizes[0] == 1


def gram_is_cheaper(layer: Layer) -> bool:
  """Returns whether Gram matrices are faster than keeping gradients.

  The sum needs as many products as the gradients. Keeping gradients also writes
  and reads k n numbers for each record; Gram matrices take t^2 (k + n) more
  products. Gradients of grouped convolutions are always kept: on CPU JAX's
  gradient, which the sum would need, takes longer. The same holds of strided
  convolutions in float32 on accelerators, where Gram matrices of pixels do not
  help (`layer.gram` is None).
  """
  groups, width, out = layer.sizes
  if groups > 1 and layer.has_windows:
    return False
  if (jax.default_backend() != 'cpu' and layer.has_windows
      and layer.gram is None):
    return False
  numbers = groups * width * out
  products = min(_PRODUCTS_PER_NUMBER, numbers / _NUMBERS_PER_PRODUCT)
  if jax.default_backend() == 'cpu' and not layer.has_windows:
    products = min(_DENSE_MOST, max(
        _DENSE_LEAST, numbers / _DENSE_NUMBERS_PER_PRODUCT))
  return layer.num_sites**2 * (width + out) < products * width * out


class GramNorms(NamedTuple):
  """Norms from Gram matrices.

  Attributes:
    squares: [b] upper bounds of squared norms of gradients.
    of_inputs: [b] squared norms of X.
    of_cotangents: [b] squared norms of D.
  """
  squares: Array
  of_inputs: Array
  of_cotangents: Array


def gram_norms(layer: Layer, x: Array, cotangent: Array) -> GramNorms:
  """Returns norms from Gram matrices.

  If contributions of positions cancel, rounding errors could make the norm too
  small, and a long gradient would not be clipped. Let q be the sum over
  positions of |x|^2 |d|^2. In all shapes tried, up to 256 positions of 2304
  numbers, the error was below 2^-22 q; four times that is added (about 10^-6 of
  a norm without cancellation). `clipping.ROUNDING_MARGIN` covers errors
  relative to the norm. The loss of products to underflow is added too; next to
  cotangents of 1e10 it can be a norm of 1e-8.

  Args:
    layer: the layer of one record.
    x: [b, ...] inputs.
    cotangent: [b, ...] cotangents of the outputs.
  """
  def one(x: Array, cotangent: Array) -> GramNorms:
    rows, cotangent = layer.rows(x, cotangent)
    second, of_second = contract_with_itself(cotangent)
    if layer.gram is None:
      first, of_first = contract_with_itself(rows)
    else:
      first = layer.gram(x)
      of_first = contract('gss->gs', first)
    sums = jnp.sum(of_first), jnp.sum(of_second)
    # Each entry of a Gram matrix may miss one least number for each product.
    missed = floats.SMALLEST_NORMAL * layer.num_sites * (
        rows.shape[-1] * sums[1] + cotangent.shape[-1] * sums[0] + first.size)
    squares = jnp.maximum(contract('gst,gst->', first, second), 0.0)
    return GramNorms(squares + 16 * UNIT_ROUNDOFF * jnp.sum(
        of_first * of_second) + missed, *sums)

  return _by_records(one, layer, 2 * layer.num_sites**2, x, cotangent)


def contract_with_itself(rows: Array) -> tuple[Array, Array]:
  """Returns the Gram matrices [g, t, t] of rows [g, t, k], and their diagonals.

  The diagonals are computed apart: to take them out takes longer.
  """
  rows = rows.astype(jnp.float32)
  return (contract('gsk,gtk->gst', rows, rows),
          jnp.sum(jnp.square(rows), 2))


def factors(layer: Layer, x: Array, cotangent: Array) -> tuple[Array, Array]:
  """Returns [b, k] and [b, n], whose outer products are the gradients.

  For t = g = 1.
  """
  rows, cotangents = jax.vmap(layer.rows)(x, cotangent)
  return (rows.reshape((rows.shape[0], -1)),
          cotangents.reshape((cotangents.shape[0], -1)))


def outer_total(layer: Layer, x: Array, cotangent: Array) -> Array:
  """Returns the sum of outer products of `factors`, like the parameter."""
  return layer.to_weight(contract('bk,bn->kn', x, cotangent)[None])


def products(layer: Layer, x: Array, cotangent: Array) -> Array:
  """Returns the gradient of each record, in the layout of the product.

  `product_to_weight` converts it to the layout of the parameter.
  """

  def product(*one: Array) -> Array:
    x, cotangent = layer.rows(*one)
    if x.dtype != cotangent.dtype:
      return contract('gtk,gtn->gkn', x, cotangent)
    # In the precision of the network: the same result is measured and summed.
    # (Gram matrices are not: `gram_norms` bounds float32 errors.)
    return jnp.einsum('gtk,gtn->gkn', x, cotangent,
                      preferred_element_type=jnp.float32)

  if layer.split is not None:
    return jax.vmap(layer.split.product)(x, cotangent)
  if not layer.has_windows:
    return jax.vmap(product)(x, cotangent)
  return _by_records(product, layer, 0, x, cotangent)


def product_to_weight(layer: Layer, gradient: Array) -> Array:
  """Converts one of `products`, or their sum, to the parameter's layout."""
  if layer.split is not None:
    gradient = layer.split.to_rows(gradient)[None]
  return layer.to_weight(gradient)


def norms(x: Array) -> Array:
  """Returns upper bounds [b] of the l2 norms of [b, ...], in float32.

  Squares of small entries may underflow, so the smallest normal number is added
  for each entry: a norm that is 0 by underflow could not be multiplied by a
  large one.
  """
  size = math.prod(x.shape[1:])
  flat = x.reshape((x.shape[0], size)).astype(jnp.float32)
  return jnp.sqrt(jnp.einsum('bi,bi->b', flat, flat,
                             precision=jax.lax.Precision.HIGHEST)
                  + floats.SMALLEST_NORMAL * size)


def by_record(values: Array, like: Array) -> Array:
  """Reshapes [b] to [b, 1, ..., 1], with as many axes as `like`."""
  return values.reshape((-1,) + (1,) * (like.ndim - 1))


def weighted_sum(weights: Array, gradients: Array) -> Array:
  """Returns the weighted sum of gradients [b, ...]."""
  return jnp.tensordot(weights, gradients, 1,
                       precision=jax.lax.Precision.HIGHEST)


def contract(spec: str, *operands: Array) -> Array:
  """Returns `einsum` in float32, whatever type the network computes in."""
  return jnp.einsum(spec, *(each.astype(jnp.float32) for each in operands),
                    precision=jax.lax.Precision.HIGHEST)


def _by_records(function: Callable[..., PyTree], layer: Layer, more: int,
                *args: Array) -> PyTree:
  """Maps over records; on CPU as many at a time as fit in a cache.

  Args:
    function: function of the input and the cotangent of one record.
    layer: the layer of one record.
    more: number of values per group that are formed besides X and D.
    *args: trees of arrays [b, ...].
  """
  groups, width, out = layer.sizes
  each = groups * (layer.num_sites * (width + out) + more)
  size = max(1, _CACHED_VALUES // max(1, each))
  if jax.default_backend() != 'cpu' or size >= len(jax.tree.leaves(args)[0]):
    return jax.vmap(function)(*args)
  return jax.lax.map(lambda one: function(*one), args, batch_size=size)
