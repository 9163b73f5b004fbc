"""Runs a traced release and records where random draws meet data.

The jaxpr of a release is run equation by equation. Every value carries what it
depends on: data, random draws, and earlier noised values. Where data that were
not noised meet a draw that does not depend on data in a sum or a comparison,
there is a site. Its output can be replaced by a recorded one, which makes it
public: what follows depends on it, not on the data behind it.
"""

import contextlib
import dataclasses
import functools
from typing import Any

import jax
from jax.extend import core
import jax.numpy as jnp

from dpjax.audit.recording import samplers
from dpjax.audit.recording.values import Leaf
from dpjax.audit.recording.values import Site
from dpjax.audit.recording.values import Trace
from dpjax.audit.recording.values import Value
from dpjax.typing import Array

# Loops in which data meet draws are unrolled up to this length.
_LONGEST_LOOP = 64
_COMPARISONS = {'lt', 'le', 'gt', 'ge', 'eq', 'ne'}
_SEEDS = {'random_seed', 'random_wrap', 'random_fold_in', 'threefry2x32',
          'random_bits', 'random_split'}
_CALLS = {'jit', 'pjit', 'closed_call', 'core_call', 'custom_jvp_call',
          'custom_vjp_call', 'remat', 'checkpoint', 'custom_vjp_call_jaxpr',
          'remat2', 'custom_lin'}


def interpret(trace: Trace, jaxpr: Any, consts: list[Value],
               inputs: list[Value], line: str) -> list[Value]:
  """Runs a jaxpr on values; `line` is that of the caller, for inner code."""
  environment: dict[Any, Value] = dict(
      zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *inputs], strict=True))

  def read(atom: Any) -> Value:
    return (Value(atom.val) if isinstance(atom, core.Literal)
            else environment[atom])

  places = [samplers.place(eqn) for eqn in jaxpr.eqns]
  leaving = _leaving(jaxpr, places)
  for eqn, where in zip(jaxpr.eqns, places, strict=True):
    args = [read(atom) for atom in eqn.invars]
    if where.family == 'discrete_laplace' and eqn.primitive.name == 'mul':
      _note_scale(trace, eqn, args)
    results = _apply(trace, eqn, args, where, where.line or line)
    for var, value in zip(eqn.outvars, results, strict=True):
      if var in leaving and value.draws and not value.data:
        value = _leaf(trace, value, where.sampler, where.family,
                      where.line or line)
      environment[var] = dataclasses.replace(
          value, line=where.line or value.line or line)
  return [read(atom) for atom in jaxpr.outvars]


def _leaving(jaxpr: Any, places: list[samplers.Place]) -> set[Any]:
  """Returns the variables that samplers return to their callers."""
  within = {var: place.sampler for eqn, place in zip(
      jaxpr.eqns, places, strict=True) if place.sampler for var in eqn.outvars
            if _is_number(var.aval)}
  used = [(atom, place.sampler) for eqn, place in zip(
      jaxpr.eqns, places, strict=True) for atom in eqn.invars]
  used += [(atom, '') for atom in jaxpr.outvars]
  return {atom for atom, user in used if not isinstance(atom, core.Literal)
          and atom in within and within[atom] != user}


def _is_number(aval: Any) -> bool:
  """Returns whether a value is of numbers that a sampler could return."""
  return jnp.issubdtype(aval.dtype, jnp.floating) or aval.dtype == jnp.int32


def _note_scale(trace: Trace, eqn: Any, args: list[Value]) -> None:
  """Notes the scale by which a discrete Laplace sampler multiplies a draw."""
  scales = [arg for arg in args if not arg.draws]
  if len(scales) == 1 and scales[0].array.ndim == 0 and eqn.outvars[
      0].aval.ndim > 0 or len(scales) == 1 and jnp.ndim(
          scales[0].array) > 0:
    trace.scales['discrete_laplace'] = scales[0].array


def _leaf(trace: Trace, value: Value, name: str, family: str,
          line: str) -> Value:
  """Records the numbers that a sampler returns."""
  label = f'{name.lstrip("_")} at {line}' if line else name.lstrip('_')
  scale = trace.scales.pop('discrete_laplace', None)
  trace.leaves.append(Leaf(label, family, line, scale if (
      family == 'discrete_laplace') else None))
  trace.draws.append(value.array)
  return dataclasses.replace(value, draws=frozenset([label]))


def _apply(trace: Trace, eqn: Any, args: list[Value], where: samplers.Place,
           line: str) -> list[Value]:
  """Runs one equation."""
  name = eqn.primitive.name
  mixed = any(arg.data for arg in args) and any(arg.draws for arg in args)
  if name in _CALLS:
    family = samplers.jax_sampler(eqn)
    if family is not None and not mixed and not where.sampler:
      drawn = any(arg.draws for arg in args)
      return [_leaf(trace, value, eqn.params['name'], family, line)
              if drawn and not value.data else value
              for value in _opaque(eqn, args)]
    inner = _inner(eqn)
    if inner is not None and (not where.sampler or mixed):
      return interpret(trace, inner.jaxpr,
                        [Value(const) for const in inner.consts], args, line)
  # Draws also start inside of loops and branches.
  if name == 'scan' and (mixed or _has_draws(args)) and eqn.params[
      'length'] <= _LONGEST_LOOP and not where.sampler:
    return _unroll(trace, eqn, args, line)
  if name == 'cond' and (mixed or any(a.data for a in args)):
    return _both_branches(trace, eqn, args, line)
  if mixed:
    if name in ('add', 'sub', 'add_any'):
      site = _site(trace, eqn, args, 'sum', line)
      if site is not None:
        return [site]
    if name in _COMPARISONS:
      site = _site(trace, eqn, args, 'threshold', line)
      if site is not None:
        return [site]
  if name == 'select_n' and _is_known(args[0]) and jnp.ndim(
      args[0].array) == 0:
    return [args[1 + int(args[0].array)]]
  if name == 'scatter-add' and args[0].data and args[2].draws and not (
      args[1].data or args[1].draws or args[2].data):
    return [_scattered(trace, eqn, args, line)]
  return _ordered(trace, eqn, args, _noted(eqn, args, line))


def _noted(eqn: Any, args: list[Value], line: str) -> list[Value]:
  """Runs an equation, and notes seeds that are made from data."""
  results = _opaque(eqn, args)
  if eqn.primitive.name in _SEEDS and any(arg.data for arg in args):
    note = frozenset([f'random bits that depend on data at {line}'])
    return [dataclasses.replace(value, notes=value.notes | note)
            for value in results]
  return results


def _has_draws(args: list[Value]) -> bool:
  """Returns whether any argument depends on data, and any on draws."""
  return any(arg.draws for arg in args) and any(arg.data for arg in args)


def _opaque(eqn: Any, args: list[Value]) -> list[Value]:
  """Runs an equation whose results depend on all its arguments."""
  bound = eqn.primitive.get_bind_params(eqn.params)
  # Before JAX 0.10 the functions came apart from the parameters.
  functions, params = bound if isinstance(bound, tuple) else ((), bound)
  # Public scalars are computed now, so that a branch on one is not on data.
  known = all(map(_is_known, args)) and all(
      var.aval.size == 1 for var in eqn.outvars if hasattr(var.aval, 'size'))
  with jax.ensure_compile_time_eval() if known else contextlib.nullcontext():
    results = eqn.primitive.bind(*functions, *(arg.array for arg in args),
                                 **params)
  results = results if eqn.primitive.multiple_results else [results]
  return [dataclasses.replace(_joined(args), array=result)
          for result in results]


def _is_known(value: Value) -> bool:
  """Returns whether a value is the same number in all runs."""
  return not (value.data or value.draws or value.sites
              or isinstance(value.array, jax.core.Tracer))


def _joined(args: list[Value]) -> Value:
  """Returns a value without an array that depends on all arguments."""
  join = lambda field: frozenset().union(*(getattr(arg, field)
                                           for arg in args))
  return Value(None, any(arg.data for arg in args), join('draws'),
               join('sites'), join('order'), join('notes'))


def _inner(eqn: Any) -> Any:
  """Returns the closed jaxpr that an equation calls; None if there is none."""
  for field in ('jaxpr', 'call_jaxpr', 'fun_jaxpr'):
    inner = eqn.params.get(field)
    if inner is not None:
      return (inner if isinstance(inner, core.ClosedJaxpr)
              else core.ClosedJaxpr(inner, ()))
  return None


def _unroll(trace: Trace, eqn: Any, args: list[Value],
            line: str) -> list[Value]:
  """Runs a scan step by step."""
  params = eqn.params
  fixed = params['num_consts']
  split = fixed + params['num_carry']
  consts, carry, steps = args[:fixed], args[fixed:split], args[split:]
  collected: list[list[Value]] = []
  order = range(params['length'])
  for step in (reversed(order) if params['reverse'] else order):
    sliced = [dataclasses.replace(x, array=x.array[step]) for x in steps]
    results = interpret(
        trace, params['jaxpr'].jaxpr,
        [Value(const) for const in params['jaxpr'].consts],
        [*consts, *carry, *sliced], line)
    carry, outs = results[:params['num_carry']], results[params['num_carry']:]
    collected.append(outs)
  if params['reverse']:
    collected.reverse()
  if not collected:
    return [*carry, *_opaque(eqn, args)[len(carry):]]
  return [*carry, *(dataclasses.replace(
      _joined(list(parts)), array=jnp.stack([part.array for part in parts]))
                    for parts in zip(*collected, strict=True))]


def _both_branches(trace: Trace, eqn: Any, args: list[Value],
                   line: str) -> list[Value]:
  """Runs all branches of a cond and selects, so that each site is seen."""
  index, operands = args[0], args[1:]
  branches = [interpret(trace, branch.jaxpr,
                         [Value(const) for const in branch.consts], operands,
                         line) for branch in eqn.params['branches']]
  if index.data:
    index = dataclasses.replace(
        index, notes=index.notes | {f'a branch on data at {line}'})
  which = jnp.clip(jnp.asarray(index.array, jnp.int32), 0, len(branches) - 1)
  results = []
  for cases in zip(*branches, strict=True):
    chosen = functools.reduce(
        lambda rest, item: jax.lax.select(
            jnp.broadcast_to(which == item[0], jnp.shape(item[1].array)),
            jnp.asarray(item[1].array), rest),
        enumerate(cases), jnp.asarray(cases[-1].array))
    results.append(dataclasses.replace(_joined([index, *cases]), array=chosen))
  return results


def _site(trace: Trace, eqn: Any, args: list[Value], kind: str,
          line: str) -> Value | None:
  """Records a site, if one argument is data and the other pure noise."""
  noise = [arg for arg in args if not arg.data]
  clean = [arg for arg in args if arg.data]
  if len(noise) != 1 or len(clean) != 1 or not noise[0].draws:
    return None
  output = _opaque(eqn, args)[0]
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


def _scattered(trace: Trace, eqn: Any, args: list[Value],
               line: str) -> Value:
  """Records noise that is added to some coordinates of an array.

  The others stay as they are, so the result still depends on data.
  """
  zeros = jnp.zeros_like(args[0].array)
  into = lambda updates: _opaque(eqn, [
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


def _ordered(trace: Trace, eqn: Any, args: list[Value],
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
  if name in _COMPARISONS:
    for arg in args:
      if arg.order != tags:
        _break_all(trace, tags)
  if name in _COMPARISONS or name == 'argmax':
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
