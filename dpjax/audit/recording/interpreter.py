"""Runs a traced release and records where random draws meet data.

The jaxpr of a release is run equation by equation. Every value carries what it
depends on: data, random draws, and earlier noised values. Where data that were
not noised meet a draw that does not depend on data in a sum or a comparison,
there is a site. Its output can be replaced by a recorded one, which makes it
public: what follows depends on it, not on the data behind it.
"""

import dataclasses
import functools
from typing import Any

import jax
from jax.extend import core
import jax.numpy as jnp

from dpjax.audit.recording import samplers
from dpjax.audit.recording import sites
from dpjax.audit.recording.values import Leaf
from dpjax.audit.recording.values import Trace
from dpjax.audit.recording.values import Value

# Loops in which data meet draws are unrolled up to this length.
_LONGEST_LOOP = 64

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
              for value in sites.run(eqn, args)]
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
      found = sites.site(trace, eqn, args, 'sum', line)
      if found is not None:
        return [found]
    if name in sites.COMPARISONS:
      found = sites.site(trace, eqn, args, 'threshold', line)
      if found is not None:
        return [found]
  if name == 'select_n' and sites.is_known(args[0]) and jnp.ndim(
      args[0].array) == 0:
    return [args[1 + int(args[0].array)]]
  if name == 'scatter-add' and args[0].data and args[2].draws and not (
      args[1].data or args[1].draws or args[2].data):
    return [sites.scattered(trace, eqn, args, line)]
  return sites.ordered(trace, eqn, args, _noted(eqn, args, line))


def _noted(eqn: Any, args: list[Value], line: str) -> list[Value]:
  """Runs an equation, and notes seeds that are made from data."""
  results = sites.run(eqn, args)
  if eqn.primitive.name in _SEEDS and any(arg.data for arg in args):
    note = frozenset([f'random bits that depend on data at {line}'])
    return [dataclasses.replace(value, notes=value.notes | note)
            for value in results]
  return results


def _has_draws(args: list[Value]) -> bool:
  """Returns whether any argument depends on data, and any on draws."""
  return any(arg.draws for arg in args) and any(arg.data for arg in args)


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
    return [*carry, *sites.run(eqn, args)[len(carry):]]
  stacked = [dataclasses.replace(
      sites.joined(list(parts)),
      array=jnp.stack([part.array for part in parts]))
             for parts in zip(*collected, strict=True)]
  return [*carry, *stacked]


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
    results.append(dataclasses.replace(sites.joined([index, *cases]),
                                       array=chosen))
  return results
