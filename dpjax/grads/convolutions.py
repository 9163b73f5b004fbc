"""Convolutions inside loops, as fast as outside of them.

XLA's compiler for CPUs has a fast convolution for images with channels last
and kernels with channels last. Others, such as gradients, it rearranges for
it, but only in the outermost computation: in the body of a loop, where
training is, they take tens of times as long.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend import core
from jax.extend.core import primitives as p

from dpjax.grads import tracing
from dpjax.typing import Array, PyTree

_CALLS = (*tracing.INLINED, p.custom_jvp_call_p, p.custom_vjp_call_p)
# Parameters of loops and branches that hold what they run.
_BODIES = ('jaxpr', 'cond_jaxpr', 'body_jaxpr', 'branches')


def fast_in_loops(function: Callable) -> Callable:
  """The same function, its convolutions rearranged by transpositions.

  On CPU only. To be applied to what has been differentiated, such as the sums
  of a `GradientBounder`: the gradients of a convolution are convolutions too.

  Args:
    function: of arrays and trees of them, pure.
  """

  def rearranged(*args):
    if jax.default_backend() != 'cpu':
      return function(*args)
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    if not _has_convolution(closed.jaxpr):
      found = core.jaxpr_as_fun(closed)(*jax.tree.leaves(args))
    else:
      found = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(shape), found)

  return rearranged


def num_outputs(function: Callable, *args: PyTree) -> int:
  """Values that leave the convolutions of a function of these arguments."""
  return sum(equation.outvars[0].aval.size for equation in _convolutions(
      jax.make_jaxpr(function)(*args)))


def _evaluate(jaxpr: core.Jaxpr, consts: Sequence[Any],
              args: Sequence[Any]) -> list[Any]:
  values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args),
                    strict=True))
  for equation in jaxpr.eqns:
    inputs = [tracing.value_of(values, var) for var in equation.invars]
    if equation.primitive is p.conv_general_dilated_p:
      outs = [_channels_last(*inputs, equation.params)]
    elif not _has_convolution(equation):
      outs = tracing.bind(equation, inputs)
    elif equation.primitive in _CALLS:
      outs = _evaluate(*tracing.called(equation), inputs)
    else:
      outs = tracing.bind(_with_bodies(equation), inputs)
    values.update(zip(equation.outvars, outs, strict=True))
  return [tracing.value_of(values, var) for var in jaxpr.outvars]


def _channels_last(x: Array, kernel: Array, params: dict[str, Any]) -> Array:
  """The convolution of these parameters."""
  numbers = params['dimension_numbers']
  axes = range(x.ndim)
  image = lambda spec: (spec[0], *spec[2:], spec[1])
  found = jax.lax.conv_general_dilated(
      x.transpose(image(numbers.lhs_spec)),
      kernel.transpose((*numbers.rhs_spec[2:], *numbers.rhs_spec[1::-1])),
      **params | {'dimension_numbers': jax.lax.ConvDimensionNumbers(
          (0, axes[-1], *axes[1:-1]), (axes[-1], axes[-2], *axes[:-2]),
          (0, axes[-1], *axes[1:-1]))})
  order = image(numbers.out_spec)
  return found.transpose([order.index(axis) for axis in axes])


def _with_bodies(equation: core.JaxprEqn) -> core.JaxprEqn:
  """A loop or a choice with its bodies rearranged."""

  def body(closed):
    if isinstance(closed, tuple):
      return tuple(map(body, closed))
    if not isinstance(closed, core.ClosedJaxpr):
      return closed
    return jax.make_jaxpr(lambda *args: _evaluate(
        closed.jaxpr, closed.consts, args))(*closed.in_avals)

  return equation.replace(params=equation.params | {
      name: body(equation.params[name]) for name in _BODIES
      if name in equation.params})


def _has_convolution(item) -> bool:
  return any(True for _ in _convolutions(item))


def _convolutions(item) -> Iterator[core.JaxprEqn]:
  """Those in an equation, or in what it runs; of loops each one once."""
  if isinstance(item, core.ClosedJaxpr):
    item = item.jaxpr
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
