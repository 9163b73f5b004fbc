"""Finds the constants in the code of a release, as records of interest.

A leak may concern one value only, such as a threshold that the code compares
records with. No search by chance meets that value, but the code contains it.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
import functools
import inspect
import math
import textwrap
import types
from typing import Any

import jax
import numpy as np

from dpjax.typing import PRNGKey, PyTree

# Functions that a release calls are read down to this depth of calls.
_DEPTH = 2
# Numbers in almost every program, which are tried anyway.
_TRIVIAL = (0.0, 1.0, -1.0, 2.0)
# The code of these packages has many constants, none about records.
_LIBRARIES = ('jax', 'jaxlib', 'numpy', 'scipy', 'math', 'builtins',
              'functools', 'dpjax')


def constants(release: Callable[[PRNGKey, PyTree], PyTree], data: PyTree, *,
              most: int = 12) -> tuple[float, ...]:
  """Returns numbers in the code of a release, those of its source first.

  Args:
    release: function (key, data); it need not be one that JAX can trace.
    data: a data set, at which the release is traced.
    most: number of constants at most.
  """
  kept: dict[float, None] = {}
  for value in (*_of_source(release, _DEPTH), *_of_trace(release, data)):
    if math.isfinite(value) and value not in _TRIVIAL:
      kept.setdefault(value)
  return tuple(kept)[:most]


def _of_source(function: Any, depth: int) -> Iterator[float]:
  """Yields number literals, and numbers in variables, of Python source."""
  if isinstance(function, functools.partial):
    yield from _numbers((*function.args, *function.keywords.values()))
    function = function.func
  if inspect.ismethod(function):
    yield from _numbers(getattr(function.__self__, '__dict__', {}).values())
    function = function.__func__
  elif not inspect.isfunction(function) and hasattr(type(function),
                                                    '__call__'):
    # A compiled function wraps a Python function.
    function = inspect.unwrap(function)
  if not inspect.isfunction(function) or (
      function.__module__.partition('.')[0] in _LIBRARIES):
    return
  try:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
  # The source of a lambda may be part of a line, and need not be there at all.
  except (OSError, TypeError, SyntaxError):
    tree = ast.parse('')
    yield from _numbers(function.__code__.co_consts)
  yield from _literals(tree)
  variables = inspect.getclosurevars(function)
  used = [*variables.nonlocals.values(), *variables.globals.values()]
  yield from _numbers(used)
  if depth:
    for value in used:
      if callable(value):
        yield from _of_source(value, depth - 1)


def _literals(tree: ast.AST) -> Iterator[float]:
  """Yields the number literals of a syntax tree, and the negative ones."""
  for node in ast.walk(tree):
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and (
        isinstance(node.operand, ast.Constant)):
      yield from (-value for value in _numbers([node.operand.value]))
    elif isinstance(node, ast.Constant):
      yield from _numbers([node.value])


def _of_trace(release: Callable[[PRNGKey, PyTree], PyTree],
              data: PyTree) -> Iterator[float]:
  """Yields the constants of the traced program, but those of random draws."""
  try:
    traced = jax.make_jaxpr(release)(jax.random.key(0), data)
  except Exception:  # A function may raise any error when given a tracer.
    return
  yield from _numbers(traced.consts)
  yield from _of_program(traced.jaxpr)


def _of_program(program: Any) -> Iterator[float]:
  """Yields the literals of a traced program and of the programs in it."""
  for equation in program.eqns:
    # Names of JAX's own functions, such as _uniform, begin like this.
    if equation.primitive.name.startswith('random_') or str(
        equation.params.get('name', '')).startswith('_'):
      continue
    yield from _numbers(getattr(variable, 'val', None)
                        for variable in equation.invars)
    for value in equation.params.values():
      for inner in value if isinstance(value, tuple) else (value,):
        inner = getattr(inner, 'jaxpr', inner)
        if hasattr(inner, 'eqns'):
          yield from _of_program(inner)


def _numbers(values: Iterable[Any]) -> Iterator[float]:
  """Yields the numbers among values, and those of tiny arrays."""
  for value in values:
    if isinstance(value, (bool, types.NoneType, str, bytes)):
      continue
    if isinstance(value, (int, float)):
      # float() of a huge integer overflows.
      yield float(value) if abs(value) < 1e300 else math.inf
    elif isinstance(value, (np.ndarray, np.generic, jax.Array)) and (
        isinstance(value.dtype, np.dtype) and value.dtype.kind in 'iuf' and
        0 < value.size <= 8):
      yield from (float(number) for number in np.asarray(value).ravel())
