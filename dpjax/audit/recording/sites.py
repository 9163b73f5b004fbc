"""Single equations of a run: what their results depend on, and new sites."""

import contextlib
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from dpjax.audit.recording.values import Site
from dpjax.audit.recording.values import Trace
from dpjax.audit.recording.values import Value
from dpjax.typing import Array

COMPARISONS = {'lt', 'le', 'gt', 'ge', 'eq', 'ne'}


def run(eqn: Any, args: list[Value]) -> list[Value]:
  """Runs an equation whose results depend on all its arguments."""
  bound = eqn.primitive.get_bind_params(eqn.params)
  # Before JAX 0.10 the functions came apart from the parameters.
  functions, params = bound if isinstance(bound, tuple) else ((), bound)
  # Public scalars are computed now, so that a branch on one is not on data.
  known = all(map(is_known, args)) and all(
      var.aval.size == 1 for var in eqn.outvars if hasattr(var.aval, 'size'))
  with jax.ensure_compile_time_eval() if known else contextlib.nullcontext():
    results = eqn.primitive.bind(*functions, *(arg.array for arg in args),
                                 **params)
  results = results if eqn.primitive.multiple_results else [results]
  return [dataclasses.replace(joined(args), array=result)
          for result in results]


def is_known(value: Value) -> bool:
  """Returns whether a value is the same number in all runs."""
  return not (value.data or value.draws or value.sites
              or isinstance(value.array, jax.core.Tracer))


def joined(args: list[Value]) -> Value:
  """Returns a value without an array that depends on all arguments."""
  join = lambda field: frozenset().union(*(getattr(arg, field)
                                           for arg in args))
  return Value(None, any(arg.data for arg in args), join('draws'),
               join('sites'), join('order'), join('notes'))


def site(trace: Trace, eqn: Any, args: list[Value], kind: str,
          line: str) -> Value | None:
  """Records a site, if one argument is data and the other pure noise."""
  noise = [arg for arg in args if not arg.data]
  clean = [arg for arg in args if arg.data]
  if len(noise) != 1 or len(clean) != 1 or not noise[0].draws:
    return None
  output = run(eqn, args)[0]
  number = len(trace.sites)
  break_order(trace, clean[0])
  shape = jnp.shape(output.array)
  # A minus sign changes no distance: `sub` only flips the noise or the value.
  trace.sites.append(Site(kind, line, noise[0].draws, clean[0].draws,
                          clean[0].sites | noise[0].sites, shape,
                          bool(noise[0].sites)))
  flip = eqn.primitive.name == 'sub' and args[1] is noise[0]
  sign = -1 if flip else 1
  trace.values.append(_wide(clean[0].array, shape))
  trace.noises.append(sign * _wide(noise[0].array, shape)
                      if kind == 'sum' and flip
                      else _wide(noise[0].array, shape))
  array: Array = output.array
  if trace.frozen is not None:
    array = jnp.where(trace.use_frozen, trace.frozen[number].astype(
        array.dtype), array)
  trace.outputs.append(array)
  order = frozenset([number]) if kind == 'sum' else frozenset()
  return Value(array, False, frozenset(), frozenset([number]), order)


def scattered(trace: Trace, eqn: Any, args: list[Value],
               line: str) -> Value:
  """Records noise that is added to some coordinates of an array.

  The others stay as they are, so the result still depends on data.
  """
  zeros = jnp.zeros_like(args[0].array)
  into = lambda updates: run(eqn, [
      Value(zeros), args[1], dataclasses.replace(args[2], array=updates)])[
          0].array
  reached = into(jnp.ones_like(args[2].array)) != 0
  clean, noise = args[0].array, into(args[2].array)
  number = len(trace.sites)
  break_order(trace, args[0])
  trace.sites.append(Site('sum', line, args[2].draws, args[0].draws,
                          args[0].sites | args[2].sites, clean.shape,
                          bool(args[2].sites), scores=False))
  trace.values.append(jnp.where(reached, clean, zeros))
  trace.noises.append(noise)
  array = clean + noise
  if trace.frozen is not None:
    array = jnp.where(trace.use_frozen & reached, trace.frozen[number].astype(
        array.dtype), array)
  trace.outputs.append(jnp.where(reached, array, zeros))
  return dataclasses.replace(args[0], array=array,
                             sites=args[0].sites | {number})


def _wide(array: Any, shape: tuple[int, ...]) -> Array:
  """Returns an array with the shape of the site."""
  return jnp.broadcast_to(jnp.asarray(array), shape)


def ordered(trace: Trace, eqn: Any, args: list[Value],
             results: list[Value]) -> list[Value]:
  """Follows noisy scores to the comparison that finds the largest."""
  tags = frozenset().union(*(arg.order for arg in args))
  if not tags:
    return results
  name = eqn.primitive.name
  if name in ('reduce_max', 'argmax'):
    for tag in tags:
      # A second search in the same scores shows more than one place.
      trace.sites[tag].scores &= trace.sites[tag].axes is None
      trace.sites[tag].axes = tuple(eqn.params['axes'])
  if name in COMPARISONS:
    for arg in args:
      if arg.order != tags:
        _break_all(trace, tags)
  if name in COMPARISONS or name == 'argmax':
    return [dataclasses.replace(value, order=frozenset())
            for value in results]
  return results


def break_order(trace: Trace, value: Value) -> None:
  """Notes that more of noisy scores is used than the place of the largest."""
  _break_all(trace, value.order)


def _break_all(trace: Trace, tags: frozenset[int]) -> None:
  """Marks sites as sums of which more than the largest place is used."""
  for tag in tags:
    trace.sites[tag].scores = False
