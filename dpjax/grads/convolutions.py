"""Makes convolutions inside of loops as fast as outside of them, on CPU.

XLA's CPU compiler has a fast convolution for one layout: images and kernels
with channels last. It transposes other convolutions, such as gradients, to this
layout, but only in the outermost computation. In the body of a loop, where
training runs, they take tens of times as long. So we transpose them ourselves.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
from jax.extend import core
from jax.extend.core import primitives as p

from dpjax.grads import jaxprs
from dpjax.typing import Array, PyTree

# Primitives that call a function once, which we can evaluate in place. Not that
# of `jax.checkpoint`, which would lose its barrier against keeping values.
_CALLS = (*jaxprs.INLINED, p.custom_jvp_call_p, p.custom_vjp_call_p)
# Parameters of loops and branches that hold the functions they run.
_BODIES = ('jaxpr', 'cond_jaxpr', 'body_jaxpr', 'branches')


def fast_in_loops(function: Callable[..., PyTree]
                  ) -> Callable[..., PyTree]:
  """Returns the function with all its convolutions in XLA's fast CPU layout.

  On other backends nothing changes. Apply it after differentiation, for
  instance to the sums of a `GradientBounder`, because the gradients of a
  convolution are convolutions too.

  Args:
    function: pure, of arrays and trees of arrays.
  """

  def rearranged(*args: PyTree) -> PyTree:
    if jax.default_backend() != 'cpu':
      return function(*args)
    return traced(function, *args)[0](*args)

  return rearranged


def traced(function: Callable[..., PyTree], *args: PyTree
           ) -> tuple[Callable[..., PyTree], PyTree]:
  """Returns `fast_in_loops`, traced already, and the shapes of its outputs.

  Args:
    function: see `fast_in_loops`.
    *args: arguments or their shapes.
  """
  closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
  in_place = jax.default_backend() == 'cpu' and _has_convolution(closed.jaxpr)

  def evaluated(*args: PyTree) -> PyTree:
    leaves = jax.tree.leaves(args)
    outputs = (_evaluate(closed.jaxpr, closed.consts, leaves) if in_place
               else core.jaxpr_as_fun(closed)(*leaves))
    return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

  return evaluated, shapes


def num_outputs(function: Callable[..., PyTree], *args: PyTree) -> int:
  """Returns the number of output values of all convolutions of a function."""
  return sum(jaxprs.aval(equation.outvars[0]).size
             for equation in _convolutions(jax.make_jaxpr(function)(*args)))


def _evaluate(jaxpr: core.Jaxpr, consts: Sequence[Any],
              args: Sequence[Any]) -> list[Any]:
  """Evaluates a jaxpr with its convolutions in the fast layout."""
  values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args),
                    strict=True))
  for equation in jaxpr.eqns:
    inputs = [jaxprs.value_of(values, var) for var in equation.invars]
    if equation.primitive is p.conv_general_dilated_p:
      x, kernel = inputs
      outs = [_channels_last(x, kernel, equation.params)]
    elif not _has_convolution(equation):
      outs = jaxprs.bind(equation, inputs)
    elif equation.primitive in _CALLS:
      outs = _evaluate(*jaxprs.called(equation), inputs)
    else:
      outs = jaxprs.bind(_with_bodies(equation), inputs)
    values.update(zip(equation.outvars, outs, strict=True))
  return [jaxprs.value_of(values, var) for var in jaxpr.outvars]


def _channels_last(x: Array, kernel: Array, params: dict[str, Any]) -> Array:
  """Computes a convolution by transposing to and from channels last.

  Args:
    x: images, with axes as `params['dimension_numbers']` says.
    kernel: likewise.
    params: parameters of the convolution primitive.

  Returns:
    The output, with its axes as `params['dimension_numbers']` says.
  """
  numbers = params['dimension_numbers']
  axes = range(x.ndim)
  # A spec lists axis numbers as (batch, channels, *spatial); for kernels as
  # (out, in, *spatial). Here: (batch, *spatial, channels), (*spatial, in, out).
  image = lambda spec: (spec[0], *spec[2:], spec[1])
  output = jax.lax.conv_general_dilated(
      x.transpose(image(numbers.lhs_spec)),
      kernel.transpose((*numbers.rhs_spec[2:], *numbers.rhs_spec[1::-1])),
      **params | {'dimension_numbers': jax.lax.ConvDimensionNumbers(
          (0, axes[-1], *axes[1:-1]), (axes[-1], axes[-2], *axes[:-2]),
          (0, axes[-1], *axes[1:-1]))})
  order = image(numbers.out_spec)
  return output.transpose([order.index(axis) for axis in axes])


def _with_bodies(equation: core.JaxprEqn) -> core.JaxprEqn:
  """Returns a loop or branch whose bodies convolve in the fast layout."""

  def body(closed: Any) -> Any:
    if isinstance(closed, tuple):
      return tuple(map(body, closed))
    if isinstance(closed, core.Jaxpr):  # Of `jax.checkpoint`, no constants.
      return body(core.ClosedJaxpr(closed, ())).jaxpr
    if not isinstance(closed, core.ClosedJaxpr):
      return closed
    return jax.make_jaxpr(lambda *args: _evaluate(
        closed.jaxpr, closed.consts, args))(*closed.in_avals)

  return equation.replace(params=equation.params | {
      name: body(equation.params[name]) for name in _BODIES
      if name in equation.params})


def _has_convolution(item: Any) -> bool:
  """Returns whether `_convolutions` yields anything."""
  return any(True for _ in _convolutions(item))


def _convolutions(item: Any) -> Iterator[core.JaxprEqn]:
  """Yields the convolutions in a jaxpr, an equation, or the functions it runs.

  A convolution in the body of a loop is yielded once.
  """
  if isinstance(item, core.ClosedJaxpr):
    item = item.jaxpr
  inner: Iterable[Any]
  if isinstance(item, core.JaxprEqn):
    if item.primitive is p.conv_general_dilated_p:
      yield item
    inner = item.params.values()
  elif isinstance(item, core.Jaxpr):
    inner = item.eqns
  else:
    inner = item if isinstance(item, tuple) else ()
  for each in inner:
    yield from _convolutions(each)
