"""Reads and evaluates the equations of a traced function."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.extend import core
from jax.extend.core import primitives as p

Atom = core.Var | core.Literal
Values = dict[Atom, Any]

# Calls that are replaced by their equations.
INLINED = (p.jit_p, p.closed_call_p)


def aval(atom: Atom) -> jax.core.ShapedArray:
  """Returns the shape and type of an input or output of an equation."""
  shaped: Any = atom.aval  # JAX declares the base class of all types here.
  return shaped


def value_of(values: Mapping[Any, Any], var: Atom) -> Any:
  """Returns the value of a variable or of a literal."""
  return var.val if isinstance(var, core.Literal) else values[var]


def bind(equation: core.JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
  """Evaluates one equation; outputs that nothing reads are None."""
  # As a jaxpr of its own, which handles calls and custom rules alike.
  variables, operands = [], []
  for var, value in zip(equation.invars, inputs, strict=True):
    if not isinstance(var, core.Literal) and var not in variables:
      variables.append(var)
      operands.append(value)
  read = [var for var in equation.outvars if not isinstance(var, core.DropVar)]
  alone = core.Jaxpr((), variables, read, [equation], equation.effects,
                     core.DebugInfo('jit', equation.primitive.name, None, None))
  outputs = iter(core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))(*operands))
  return [None if isinstance(var, core.DropVar) else next(outputs)
          for var in equation.outvars]


def called(equation: core.JaxprEqn) -> tuple[core.Jaxpr, Sequence[Any]]:
  """Returns the function that a call runs, and its constants."""
  params = equation.params
  inner = params['jaxpr'] if 'jaxpr' in params else params['call_jaxpr']
  if isinstance(inner, core.ClosedJaxpr):
    return inner.jaxpr, inner.consts
  return inner, ()


def evaluate(equations: Sequence[core.JaxprEqn], values: Values) -> None:
  """Evaluates equations and adds their outputs to `values`."""
  for equation in equations:
    outs = bind(equation, [value_of(values, var) for var in equation.invars])
    values.update(zip(equation.outvars, outs, strict=True))
