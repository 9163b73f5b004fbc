"""Counts the multiplications and additions of products in a traced program.

XLA's own count takes a loop for one pass through it, so it cannot compare a
scanned network with another program. Here each pass of a scan counts.
"""

from collections.abc import Callable, Iterator, Sequence
import math
from typing import Any

import jax
from jax.extend import core


def of_products(function: Callable[..., Any], *arguments: Any) -> float:
  """Returns the operations of all products and convolutions of a function.

  Those whose results nothing uses do not count; of the branches of a condition
  the dearest counts, and of a loop of unknown length one pass.

  Args:
    function: a function of arrays.
    *arguments: arrays or their shapes.
  """
  jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
  return _of(jaxpr, [True] * len(jaxpr.outvars))


def _of(jaxpr: core.Jaxpr, used: Sequence[bool]) -> float:
  """Returns the operations for those outputs of a jaxpr that are used."""
  live = {var for var, is_used in zip(jaxpr.outvars, used, strict=True)
          if is_used and not isinstance(var, core.Literal)}
  total = 0.0
  for equation in reversed(jaxpr.eqns):
    wanted = [var in live for var in equation.outvars]
    if any(wanted) or equation.effects:
      live |= {var for var in equation.invars
               if not isinstance(var, core.Literal)}
      total += _of_equation(equation, wanted)
  return total


def _of_equation(equation: core.JaxprEqn, wanted: Sequence[bool]) -> float:
  """Returns the operations of one equation, with those that it calls."""
  name, params = equation.primitive.name, equation.params
  shapes = [var.aval.shape for var in equation.invars]
  if name == 'dot_general':
    (contracted, _), _ = params['dimension_numbers']
    return (2.0 * math.prod(equation.outvars[0].aval.shape)
            * math.prod(shapes[0][i] for i in contracted))
  if name == 'conv_general_dilated':
    outputs = params['dimension_numbers'].rhs_spec[0]
    return (2.0 * math.prod(equation.outvars[0].aval.shape)
            * math.prod(shapes[1]) / shapes[1][outputs])
  # Only a plain call returns the outputs of its function and nothing else.
  each = [_of(inner, wanted if name in ('jit', 'checkpoint')
              else [True] * len(inner.outvars)) for inner in _inner(params)]
  if name == 'cond':
    return max(each)
  return sum(each) * (params['length'] if name == 'scan' else 1)


def _inner(params: dict[str, Any]) -> Iterator[core.Jaxpr]:
  """Yields the functions among the parameters of an equation."""
  for value in params.values():
    for each in value if isinstance(value, (tuple, list)) else (value,):
      if isinstance(each, core.ClosedJaxpr):
        yield each.jaxpr
      elif isinstance(each, core.Jaxpr):
        yield each
