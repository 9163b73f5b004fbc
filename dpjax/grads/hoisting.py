"""Moves all that does not depend on the record out of loops and remat.

After this, the body of a `lax.scan` reads a parameter only as an input: as a
constant of the loop, or as the slice of an array that is stacked over the
steps. Casts, transposes, masks and other functions of parameters stand outside,
computed for all steps at once. The same is done for bodies of
`jax.checkpoint` (remat), which remain remat, and calls of `jax.jit` are
replaced by their equations.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax.extend import core
from jax.extend.core import primitives as p
import jax.numpy as jnp

from dpjax.grads import jaxprs
from dpjax.grads.jaxprs import Atom
from dpjax.grads.jaxprs import Values
from dpjax.typing import Array

ENTRY = p.copy_p
"""Copies a parameter into a state that depends on the record.

A traced function has this primitive nowhere else. An example is a learned
first state of a recurrent network: there the parameter meets the record.
"""

# Over all steps at once, both branches of a cond would be computed.
_INSIDE = ('cond', 'while')

_Flags = Sequence[bool]


def hoisted(function: Callable[..., Any],
            shapes: Sequence[jax.ShapeDtypeStruct],
            varying: _Flags) -> core.ClosedJaxpr:
  """Returns the traced function with its loops and calls rewritten.

  Args:
    function: pure, of arrays.
    shapes: of its arguments.
    varying: for each argument whether it depends on the record.
  """
  return _rewritten(jax.make_jaxpr(function)(*shapes), varying, False)


def _rewritten(closed: core.ClosedJaxpr, varying: _Flags,
               inside: bool) -> core.ClosedJaxpr:
  """Returns a rewritten function; `inside`: whether it is a body."""
  return jax.make_jaxpr(lambda *args: _evaluated(
      closed.jaxpr, closed.consts, args, varying, inside)[0])(*closed.in_avals)


def _evaluated(jaxpr: core.Jaxpr, consts: Sequence[Any], args: Sequence[Any],
               flags: _Flags, inside: bool) -> tuple[list[Any], list[bool]]:
  """Evaluates a jaxpr, rewritten; returns outputs and whether they vary."""
  values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args),
                    strict=True))
  varying = {var for var, flag in zip(jaxpr.invars, flags, strict=True)
             if flag}
  for equation in jaxpr.eqns:
    inputs = [jaxprs.value_of(values, var) for var in equation.invars]
    given = [_is_in(var, varying) for var in equation.invars]
    out_flags: _Flags
    if equation.primitive in jaxprs.INLINED:
      outs, out_flags = _evaluated(*jaxprs.called(equation), inputs, given,
                                   inside)
    else:
      outs, out_flags = _equation(equation, inputs, given, inside)
    values.update(zip(equation.outvars, outs, strict=True))
    varying.update(var for var, flag in zip(equation.outvars, out_flags,
                                            strict=True) if flag)
  return ([jaxprs.value_of(values, var) for var in jaxpr.outvars],
          [_is_in(var, varying) for var in jaxpr.outvars])


def _equation(equation: core.JaxprEqn, inputs: Sequence[Any], flags: _Flags,
              inside: bool) -> tuple[list[Any], _Flags]:
  """Evaluates an equation that is no inlined call, see `_evaluated`."""
  if equation.primitive is ENTRY:  # Copies of the user do nothing.
    return list(inputs), flags
  if any(flags) and equation.primitive in (p.scan_p, p.remat_p):
    rewrite = _scan if equation.primitive is p.scan_p else _remat
    # A literal is no array yet.
    return rewrite(equation, [
        _array_of({}, var) if isinstance(var, core.Literal) else value
        for var, value in zip(equation.invars, inputs, strict=True)], flags)
  varies = any(flags) or _stays(equation, inside)
  return jaxprs.bind(equation, inputs), [varies] * len(equation.outvars)


def _stays(equation: core.JaxprEqn, inside: bool) -> bool:
  """Returns whether an equation varies even if none of its inputs does."""
  return equation.primitive is ENTRY or inside and (
      equation.primitive.name in _INSIDE or bool(equation.effects))


def _varying(jaxpr: core.Jaxpr, flags: _Flags) -> set[Atom]:
  """Returns the variables of a rewritten body that depend on the record."""
  varying: set[Atom] = {
      var for var, flag in zip(jaxpr.invars, flags, strict=True) if flag}
  for equation in jaxpr.eqns:
    if _stays(equation, True) or any(_is_in(var, varying)
                                     for var in equation.invars):
      varying.update(equation.outvars)
  return varying


def _is_in(var: Atom, variables: Iterable[Atom]) -> bool:
  return not isinstance(var, core.Literal) and var in variables


def _needed(equations: Sequence[core.JaxprEqn],
            outputs: Iterable[Atom]) -> list[core.JaxprEqn]:
  """Returns the equations on which these variables depend, in order."""
  wanted = {var for var in outputs if not isinstance(var, core.Literal)}
  needed: list[core.JaxprEqn] = []
  for equation in reversed(equations):
    if wanted & set(equation.outvars):
      needed.insert(0, equation)
      wanted |= {var for var in equation.invars
                 if not isinstance(var, core.Literal)}
  return needed


class _Body:
  """A rewritten body, divided by whether its equations vary.

  Attributes:
    jaxpr: of the body.
    varying: its variables that depend on the record.
    data: its equations that depend on the record.
    others: its other equations.
    reads: variables that do not vary and that `data` or a state read.
  """

  def __init__(self, closed: core.ClosedJaxpr, flags: _Flags,
               states: slice = slice(0)):
    self.jaxpr = closed.jaxpr
    self.consts = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    self.varying = _varying(self.jaxpr, flags)
    is_data = lambda equation: any(
        _is_in(var, self.varying) for var in equation.outvars)
    self.data = [each for each in self.jaxpr.eqns if is_data(each)]
    self.others = [each for each in self.jaxpr.eqns if not is_data(each)]
    # Outputs in `states` are the inputs of the next step.
    after = [out for out, var in zip(self.jaxpr.outvars,
                                     self.jaxpr.invars[states])
             if var in self.varying]
    read = [*after, *(var for each in self.data for var in each.invars)]
    self.reads = list(dict.fromkeys(
        var for var in read if not isinstance(var, core.Literal)
        and var not in self.varying))

  def outputs(self, values: Values) -> list[Any]:
    """Evaluates `data` and returns the outputs that vary; None for others."""
    values = self.consts | values
    jaxprs.evaluate(self.data, values)
    return [values[var] if _is_in(var, self.varying) else None
            for var in self.jaxpr.outvars]


def _remat(equation: core.JaxprEqn, inputs: Sequence[Any],
           flags: _Flags) -> tuple[list[Any], list[bool]]:
  """Evaluates remat with what does not vary moved in front of it."""
  closed = core.ClosedJaxpr(*jaxprs.called(equation))
  body = _Body(_rewritten(closed, flags, True), flags)
  values = body.consts | {
      var: value for var, value, flag in zip(body.jaxpr.invars, inputs, flags,
                                             strict=True) if not flag}
  jaxprs.evaluate(body.others, values)
  given = [var for var, flag in zip(body.jaxpr.invars, flags, strict=True)
           if flag] + body.reads
  arguments = [value for value, flag in zip(inputs, flags, strict=True)
               if flag] + [values[var] for var in body.reads]
  outs = jax.checkpoint(
      lambda *args: body.outputs(dict(zip(given, args, strict=True))),
      prevent_cse=equation.params['prevent_cse'],
      policy=equation.params['policy'])(*arguments)
  outvars = body.jaxpr.outvars
  return ([jaxprs.value_of(values, var) if out is None else out
           for var, out in zip(outvars, outs, strict=True)],
          [out is not None for out in outs])


def _scan(equation: core.JaxprEqn, inputs: Sequence[Any],
          given: _Flags) -> tuple[list[Any], list[bool]]:
  """Evaluates a scan with what does not vary moved in front of it."""
  params = equation.params
  body, flags = _fixed_point(params, given)
  num_consts, first = params['num_consts'], (
      params['num_consts'] + params['num_carry'])
  variables, outvars = body.jaxpr.invars, body.jaxpr.outvars
  values, sliced, finals = _outside(body, params, inputs, flags)
  slices = [var for var in body.reads if var in sliced]
  carried = [i for i in range(num_consts, first) if flags[i]]
  scanned = [i for i in range(first, len(variables)) if flags[i]]
  constants = {var: value for var, value in values.items()
               if var not in sliced}
  constants |= {variables[i]: inputs[i] for i in range(num_consts) if flags[i]}

  def step(carry: Sequence[Any], xs: tuple[Sequence[Any], Sequence[Any]]
           ) -> tuple[list[Any], list[Any]]:
    own = constants | dict(zip(slices, xs[0], strict=True))
    own |= {variables[i]: value for i, value in zip(
        (*carried, *scanned), (*carry, *xs[1]), strict=True)}
    outs = body.outputs(own)
    after = [(outs[i - num_consts], outvars[i - num_consts]) for i in carried]
    return [_entered(own, var) if out is None else out
            for out, var in after], outs[first - num_consts:]

  # A state that varies later may begin as a parameter.
  init = [inputs[i] if given[i] else ENTRY.bind(inputs[i]) for i in carried]
  carry, ys = jax.lax.scan(
      step, init, ([values[var] for var in slices],
                   [inputs[i] for i in scanned]), length=params['length'],
      reverse=params['reverse'], unroll=params['unroll'])
  remaining = iter(carry)
  last = [next(remaining) if flag else final for flag, final in zip(
      flags[num_consts:first], finals, strict=True)]
  ys = [_over_steps(values, sliced, var, params['length']) if y is None else y
        for y, var in zip(ys, outvars[first - num_consts:], strict=True)]
  return last + ys, [_is_in(var, body.varying) for var in outvars]


def _entered(values: Values, var: Atom) -> Array:
  """Returns what does not vary as a value of a state that does."""
  return ENTRY.bind(_array_of(values, var))


def _array_of(values: Values, var: Atom) -> Any:
  """Returns the value of a variable; a literal as an array."""
  value = jaxprs.value_of(values, var)
  if isinstance(var, core.Literal):
    return jnp.asarray(value, jaxprs.aval(var).dtype)
  return value


def _over_steps(values: Values, sliced: set[Atom], var: Atom,
                length: int) -> Array:
  """Returns an output of all steps that does not vary, [length, ...]."""
  value = jaxprs.value_of(values, var)
  if _is_in(var, sliced):
    return value
  return jnp.broadcast_to(value, (length, *jnp.shape(value)))


def _fixed_point(params: dict[str, Any],
                 given: _Flags) -> tuple[_Body, list[bool]]:
  """Returns the rewritten body of a scan, and which of its inputs vary.

  A state that varies after some step is one that varies from the first step.
  """
  flags = list(given)
  first, count = params['num_consts'], params['num_carry']
  while True:
    body = _Body(_rewritten(params['jaxpr'], flags, True), flags,
                 slice(first, first + count))
    after = [_is_in(var, body.varying) for var in body.jaxpr.outvars[:count]]
    before = flags[first:first + count]
    if all(was or not now for was, now in zip(before, after, strict=True)):
      return body, flags
    flags[first:first + count] = [
        was or now for was, now in zip(before, after, strict=True)]


def _outside(body: _Body, params: dict[str, Any], inputs: Sequence[Any],
             flags: _Flags) -> tuple[Values, set[Atom], list[Any]]:
  """Evaluates what does not vary, for all steps of a scan.

  Returns:
    (values by variable, the variables whose values are stacked over the steps,
    for each state its last value if it does not vary).
  """
  num_consts, first = params['num_consts'], (
      params['num_consts'] + params['num_carry'])
  variables, outvars = body.jaxpr.invars, body.jaxpr.outvars
  fixed = [i for i, flag in enumerate(flags) if not flag]
  # A state that no step changes is a constant.
  states = [i for i in fixed if num_consts <= i < first
            and outvars[i - num_consts] is not variables[i]]
  values = body.consts | {variables[i]: inputs[i] for i in fixed}
  sliced = {variables[i] for i in fixed if i >= first or i in states}
  finals = list(inputs[num_consts:first])
  if states:
    xs = [variables[i] for i in fixed if i >= first]
    last = _follow(body, params, values, states, xs)
    for i, (final, stacked) in zip(states, last, strict=True):
      finals[i - num_consts], values[variables[i]] = final, stacked
  wanted = [*body.reads, *outvars[first - num_consts:]]
  for equation in _needed(body.others, wanted):
    axes = [0 if _is_in(var, sliced) else None for var in equation.invars]
    given = [jaxprs.value_of(values, var) for var in equation.invars]
    bind = lambda *args, equation=equation: jaxprs.bind(equation, args)
    if 0 in axes:
      bind = jax.vmap(bind, axes, axis_size=params['length'])
      sliced.update(equation.outvars)
    values.update(zip(equation.outvars, bind(*given), strict=True))
  return values, sliced, finals


def _follow(body: _Body, params: dict[str, Any], values: Values,
            states: Sequence[int],
            xs: Sequence[core.Var]) -> list[tuple[Array, Array]]:
  """Follows states that do not vary through a scan.

  Args:
    body: of the scan.
    params: of the scan.
    values: of what does not vary, slices stacked; states as they begin.
    states: numbers of inputs of the body.
    xs: variables that are slices.

  Returns:
    For each state its last value, and its values before each step, stacked.
  """
  variables = [body.jaxpr.invars[i] for i in states]
  after = [body.jaxpr.outvars[i - params['num_consts']] for i in states]
  equations = _needed(body.others, after)

  def step(state: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
    own = values | dict(zip(xs, slices, strict=True))
    own |= dict(zip(variables, state, strict=True))
    jaxprs.evaluate(equations, own)
    return [_array_of(own, var) for var in after], state

  last, stacked = jax.lax.scan(
      step, [values[var] for var in variables], [values[var] for var in xs],
      length=params['length'], reverse=params['reverse'])
  return list(zip(last, stacked, strict=True))
