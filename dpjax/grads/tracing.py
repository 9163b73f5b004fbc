"""Finds the operations of a network in which parameters meet a record.

The function of one record is traced once. Its equations are split by whether
they depend on the parameters only, on the record, or on neither. An equation
that reads both is a *site*: a parameter acts on a record only through sites.
This works on traced equations, so it needs no special layers, and networks of
any library can be used.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core
from jax.extend.core import primitives as p
import jax.numpy as jnp

from dpjax.grads import precision
from dpjax.typing import Array, PyTree

Atom = core.Var | core.Literal
Values = dict[Atom, Any]

# Calls that are replaced by their equations. Inlining `jax.checkpoint` undoes
# it: its intermediate values are kept, because gradients of records need them.
INLINED = (p.jit_p, p.closed_call_p, p.remat_p)

# Operations that only rearrange the entries of one operand, or cast them.
REARRANGING = ('broadcast_in_dim', 'convert_element_type', 'copy', 'copy_p',
                'optimization_barrier', 'reshape', 'rev', 'squeeze',
                'transpose')

ELEMENTWISE = ('add', 'add_any', 'div', 'mul', 'neg', 'select_n', 'sub')
"""Operations that usually read biases and scales."""

CHEAP = (*ELEMENTWISE, *REARRANGING, 'concatenate', 'dynamic_update_slice',
         'stack')
"""Operations whose gradients are no larger than the cotangents."""


def aval(atom: Atom) -> jax.core.ShapedArray:
  """Returns the shape and type of an input or output of an equation."""
  shaped: Any = atom.aval  # JAX declares the base class of all types here.
  return shaped


class Site(NamedTuple):
  """An equation that reads both parameters and the record.

  Attributes:
    equation: as traced.
    operands: numbers of its inputs that depend on parameters only.
    leaves: numbers of the parameter leaves that these inputs depend on.
  """
  equation: core.JaxprEqn
  operands: tuple[int, ...]
  leaves: tuple[int, ...]

  @property
  def name(self) -> str:
    """Name of the operation, as JAX spells it."""
    return self.equation.primitive.name

  def taps(self) -> list[jax.ShapeDtypeStruct | None]:
    """Returns the shapes of the outputs; None for those without a gradient."""
    return [jax.ShapeDtypeStruct(aval(out).shape, aval(out).dtype)
            if jnp.issubdtype(aval(out).dtype, jnp.inexact)
            and not isinstance(out, core.DropVar) else None
            for out in self.equation.outvars]


class Program(NamedTuple):
  """A traced function of (parameter leaves, record leaves), split into parts.

  Attributes:
    parameters: variables of the parameter leaves.
    record: variables of the record's leaves.
    known: values of variables that depend on neither.
    weights: equations that depend on parameters only, in order.
    data: equations that depend on the record, including sites, in order.
    sites: the sites in `data`, in order.
    boundary: variables that sites read and that depend on parameters only.
    output: variable of the result.
  """
  parameters: Sequence[core.Var]
  record: Sequence[core.Var]
  known: Values
  weights: Sequence[core.JaxprEqn]
  data: Sequence[core.JaxprEqn]
  sites: Sequence[Site]
  boundary: Sequence[Atom]
  output: core.Var

  def at_sites(self, leaves: Sequence[Array]) -> list[Array]:
    """Returns the values of `boundary` for these parameter leaves."""
    values = self.parameter_values(leaves)
    return [values[var] for var in self.boundary]

  def parameter_values(self, leaves: Sequence[Array]) -> Values:
    """Returns the values of all variables that depend on no record."""
    values = self.known | dict(zip(self.parameters, leaves, strict=True))
    _evaluate(self.weights, values)
    return values

  def run(self, at_sites: Sequence[Array], record: Sequence[Array],
          taps: Sequence[Sequence[Array | None]]
          ) -> tuple[Array, list[list[Array]]]:
    """Evaluates the function for one record.

    Args:
      at_sites: from `at_sites`.
      record: leaves of the record.
      taps: for each site, arrays that are added to its outputs. With zeros, the
        gradients by these arrays are the cotangents of the site.

    Returns:
      (result, for each site its inputs that depend on the record).
    """
    values = self.known | dict(zip(self.boundary, at_sites, strict=True))
    values |= dict(zip(self.record, record, strict=True))
    sites = {id(site.equation): (site, tap)
             for site, tap in zip(self.sites, taps, strict=True)}
    seen = []
    for equation in self.data:
      _evaluate([equation], values)
      if id(equation) not in sites:
        continue
      site, tap = sites[id(equation)]
      seen.append(self.record_inputs(site, values))
      for var, added in zip(equation.outvars, tap, strict=True):
        if added is not None:
          values[var] = values[var] + added
    return values[self.output], seen

  def record_inputs(self, site: Site, values: Values) -> list[Array]:
    """Returns those inputs of a site that depend on the record."""
    return [values[var] for i, var in enumerate(site.equation.invars)
            if i not in site.operands and self._varies(var)]

  def outputs(self, site: Site, leaves: Sequence[Array],
              inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a site for one record, those with a gradient.

    Args:
      site: of this program.
      leaves: parameter leaves, in float32 if the site `is_wide`.
      inputs: from `record_inputs`, in float32 if the site `is_wide`.
    """
    values: Values
    if self.is_wide(site):
      values = dict(zip(self.parameters, leaves, strict=True))
      for equation in self._sources(site):
        outs = bind_any(equation, [values[var] for var in equation.invars])
        values.update(zip(equation.outvars, outs, strict=True))
    else:
      values = dict(zip(self.boundary, self.at_sites(leaves), strict=True))
    remaining = iter(inputs)
    read = [values[var] if i in site.operands
            else next(remaining) if self._varies(var)
            else value_of(self.known, var)
            for i, var in enumerate(site.equation.invars)]
    outs = bind(site.equation, read)
    return [out for out, tap in zip(outs, site.taps(), strict=True)
            if tap is not None]

  def is_wide(self, site: Site) -> bool:
    """Returns whether a site of a short type can be evaluated in float32.

    True for biases and scales: operations that add, multiply or rearrange
    contain no type, so the gradients of all places that read a bias can be
    summed in float32.
    """
    return all(
        precision.is_short(aval(out)) for out in site.equation.outvars) and all(
            equation.primitive.name in (*ELEMENTWISE, *REARRANGING)
            and not any(isinstance(var, core.Literal) or var in self.known
                        for var in equation.invars)
            for equation in (*self._sources(site), site.equation))

  def _sources(self, site: Site) -> list[core.JaxprEqn]:
    """Returns the equations of `weights` that a site depends on, in order."""
    needed = {site.equation.invars[i] for i in site.operands}
    sources: list[core.JaxprEqn] = []
    for equation in reversed(self.weights):
      if needed & set(equation.outvars):
        sources.insert(0, equation)
        needed |= {var for var in equation.invars
                   if not isinstance(var, core.Literal)}
    return sources

  def _varies(self, var: Atom) -> bool:
    """Returns whether the value of an input differs from record to record."""
    return not isinstance(var, core.Literal) and var not in self.known


def trace(function: Callable[[PyTree, PyTree], Array], params: PyTree,
          record: PyTree) -> Program:
  """Traces a function and splits its equations, see `Program`.

  Args:
    function: pure, (params, one record) -> scalar.
    params: arrays or shapes.
    record: arrays or shapes of one record.

  Raises:
    ValueError: if the result does not depend on the record.
  """
  structures = jax.tree.structure(params), jax.tree.structure(record)
  leaves = jax.tree.leaves(params), jax.tree.leaves(record)
  count = len(leaves[0])

  def flat(*args: Array) -> Array:
    return function(jax.tree.unflatten(structures[0], args[:count]),
                    jax.tree.unflatten(structures[1], args[count:]))

  shapes = [jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype)
            for leaf in (*leaves[0], *leaves[1])]
  nested = jax.make_jaxpr(flat)(*shapes)
  closed = jax.make_jaxpr(lambda *args: _inlined(
      nested.jaxpr, nested.consts, args))(*shapes)
  return _split(closed, count)


def _split(closed: core.ClosedJaxpr, num_params: int) -> Program:
  """Splits the equations of a function of flat arguments."""
  jaxpr = closed.jaxpr
  parameters, record = jaxpr.invars[:num_params], jaxpr.invars[num_params:]
  known = dict(zip(jaxpr.constvars, closed.consts, strict=True))
  # Variable of parameters only -> numbers of the leaves that it depends on.
  origins = {var: frozenset([i]) for i, var in enumerate(parameters)}
  varying = set(record)  # Variables that depend on the record.
  weights, data, sites = [], [], []
  for equation in jaxpr.eqns:
    read = [var for var in equation.invars if not isinstance(var, core.Literal)]
    operands = tuple(i for i, var in enumerate(equation.invars)
                     if not isinstance(var, core.Literal) and var in origins)
    leaves = frozenset().union(*(origins.get(var, ()) for var in read))
    if any(var in varying for var in read):
      data.append(equation)
      varying.update(equation.outvars)
      if operands:
        sites.append(Site(equation, operands, tuple(sorted(leaves))))
    elif operands:
      weights.append(equation)
      origins.update({var: leaves for var in equation.outvars})
    else:
      _evaluate([equation], known)  # Neither: computed once, now.
  # Inputs of sites that depend on parameters only, repeated for each use.
  uses = [site.equation.invars[i] for site in sites for i in site.operands]
  boundary = list(dict.fromkeys(uses))
  output, = jaxpr.outvars
  if isinstance(output, core.Literal) or output not in varying:
    raise ValueError('the loss does not depend on the records')
  return Program(parameters, record, known, weights, data, sites, boundary,
                 output)


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


def bind_any(equation: core.JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
  """Evaluates an equation in the type of its inputs; casts do nothing."""
  if equation.primitive.name == 'convert_element_type':
    return list(inputs)
  return bind(equation, inputs)


def called(equation: core.JaxprEqn) -> tuple[core.Jaxpr, Sequence[Any]]:
  """Returns the function that a call runs, and its constants."""
  params = equation.params
  inner = params['jaxpr'] if 'jaxpr' in params else params['call_jaxpr']
  if isinstance(inner, core.ClosedJaxpr):
    return inner.jaxpr, inner.consts
  return inner, ()


def _evaluate(equations: Sequence[core.JaxprEqn], values: Values) -> None:
  """Evaluates equations and adds their outputs to `values`."""
  for equation in equations:
    outs = bind(equation, [value_of(values, var) for var in equation.invars])
    values.update(zip(equation.outvars, outs, strict=True))


def _inlined(jaxpr: core.Jaxpr, consts: Sequence[Any],
             args: Sequence[Any]) -> list[Any]:
  """Evaluates a jaxpr with the calls of `INLINED` replaced by equations."""
  values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args),
                    strict=True))
  for equation in jaxpr.eqns:
    inputs = [value_of(values, var) for var in equation.invars]
    if equation.primitive in INLINED:
      outs = _inlined(*called(equation), inputs)
    else:
      outs = bind(equation, inputs)
    values.update(zip(equation.outvars, outs, strict=True))
  return [value_of(values, var) for var in jaxpr.outvars]
