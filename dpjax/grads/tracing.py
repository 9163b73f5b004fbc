"""Where parameters meet records: a function taken apart into equations.

The function of one record is traced once and split into what depends on
parameters alone, on the record, and on neither. The equations that read both
are its sites: all that a parameter does to a record goes through one. No layer
has to be written for it, so networks of any library will do.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core
from jax.extend.core import primitives as p
import jax.numpy as jnp

from dpjax.grads import precision
from dpjax.typing import Array, PyTree

Values = dict[core.Var, Any]

# Their equations are taken out of them. Of `jax.checkpoint` nothing is left:
# what it would compute again is needed to form gradients.
INLINED = (p.jit_p, p.closed_call_p, p.remat_p)

# Rearrange the entries of one operand, or change their type.
_REARRANGING = ('broadcast_in_dim', 'convert_element_type', 'copy', 'copy_p',
                'optimization_barrier', 'reshape', 'rev', 'squeeze',
                'transpose')

ELEMENTWISE = ('add', 'add_any', 'div', 'mul', 'neg', 'select_n', 'sub')
"""What reads biases and scales."""


class Site(NamedTuple):
  """An equation that reads parameters and the record.

  Attributes:
    equation: as traced.
    operands: which of its inputs depend on parameters and not on the record.
    leaves: numbers of the parameter leaves that these depend on.
  """
  equation: core.JaxprEqn
  operands: tuple[int, ...]
  leaves: tuple[int, ...]

  @property
  def name(self) -> str:
    """Of the operation."""
    return self.equation.primitive.name

  def taps(self) -> list[jax.ShapeDtypeStruct | None]:
    """Shapes of the outputs, None for those that have no gradients."""
    return [jax.ShapeDtypeStruct(out.aval.shape, out.aval.dtype)
            if jnp.issubdtype(out.aval.dtype, jnp.inexact)
            and not isinstance(out, core.DropVar) else None
            for out in self.equation.outvars]


class Origin(NamedTuple):
  """A parameter leaf, and equations that rearrange its entries.

  Attributes:
    leaf: its number.
    chain: from the leaf to what a site reads.
  """
  leaf: int
  chain: Sequence[core.JaxprEqn]

  def restore(self, gradient: Array, leaf: Array) -> Array:
    """A float32 gradient in what a site reads, as one in the leaf."""

    def rearranged(value):
      for equation in self.chain:
        value, = _bind_any(equation, [value])
      return value

    like = jax.ShapeDtypeStruct(leaf.shape, jnp.float32)
    return jax.linear_transpose(rearranged, like)(gradient)[0]


class Program(NamedTuple):
  """A function of (parameter leaves, record leaves), taken apart.

  Attributes:
    parameters: variables of the parameter leaves.
    record: variables of the record's leaves.
    known: values that depend on neither.
    weights: equations of parameters alone.
    data: equations that depend on the record, sites among them, in order.
    sites: of `data`, in order.
    boundary: variables of parameters alone that sites read.
    origins: for each variable of `boundary`, the one parameter leaf whose
      entries it holds, each once and nowhere else read; or None.
    output: the result.
  """
  parameters: Sequence[core.Var]
  record: Sequence[core.Var]
  known: Values
  weights: Sequence[core.JaxprEqn]
  data: Sequence[core.JaxprEqn]
  sites: Sequence[Site]
  boundary: Sequence[core.Var]
  origins: Sequence[Origin | None]
  output: core.Var

  def at_sites(self, leaves: Sequence[Array]) -> list[Array]:
    """What sites read of these parameters: the values of `boundary`."""
    values = self.known | dict(zip(self.parameters, leaves, strict=True))
    _evaluate(self.weights, values)
    return [values[var] for var in self.boundary]

  def run(self, at_sites: Sequence[Array], record: Sequence[Array],
          taps: Sequence[Sequence[Array | None]]
          ) -> tuple[Array, list[list[Array]]]:
    """(result, what each site read of the record) for one record.

    Args:
      at_sites: from `at_sites`.
      record: leaves.
      taps: for each site what is added to its outputs; gradients in these are
        the cotangents of the site.
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
    """Of the inputs of a site, those that depend on the record."""
    return [values[var] for i, var in enumerate(site.equation.invars)
            if i not in site.operands and self._varies(var)]

  def outputs(self, site: Site, leaves: Sequence[Array],
              inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a site with a gradient, of one record.

    Args:
      site: of this program.
      leaves: of the parameters, in float32 if the site `is_wide`.
      inputs: as `record_inputs` gave them, or as many in float32.
    """
    if self.is_wide(site):
      values = dict(zip(self.parameters, leaves, strict=True))
      for equation in self._sources(site):
        outs = _bind_any(equation, [values[var] for var in equation.invars])
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
    """Whether a site of fewer bits means the same in float32.

    Biases and scales do: what adds, multiplies or rearranges names no type, so
    their gradients can be summed over the places that read them in float32.
    """
    return all(
        precision.is_short(out.aval) for out in site.equation.outvars) and all(
            equation.primitive.name in (*ELEMENTWISE, *_REARRANGING)
            and not any(isinstance(var, core.Literal) or var in self.known
                        for var in equation.invars)
            for equation in (*self._sources(site), site.equation))

  def _sources(self, site: Site) -> list[core.JaxprEqn]:
    """The equations of parameters alone that a site depends on, in order."""
    needed = {site.equation.invars[i] for i in site.operands}
    found = []
    for equation in reversed(self.weights):
      if needed & set(equation.outvars):
        found.insert(0, equation)
        needed |= {var for var in equation.invars
                   if not isinstance(var, core.Literal)}
    return found

  def _varies(self, var) -> bool:
    return not isinstance(var, core.Literal) and var not in self.known


def trace(function: Callable[[PyTree, PyTree], Array], params: PyTree,
          record: PyTree) -> Program:
  """Takes `function` of (params, record) -> scalar apart.

  Args:
    function: pure; of one record.
    params: arrays or shapes.
    record: arrays or shapes of one record.
  """
  structures = jax.tree.structure(params), jax.tree.structure(record)
  leaves = jax.tree.leaves(params), jax.tree.leaves(record)
  count = len(leaves[0])

  def flat(*args):
    return function(jax.tree.unflatten(structures[0], args[:count]),
                    jax.tree.unflatten(structures[1], args[count:]))

  shapes = [jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype)
            for leaf in (*leaves[0], *leaves[1])]
  nested = jax.make_jaxpr(flat)(*shapes)
  closed = jax.make_jaxpr(lambda *args: _inlined(
      nested.jaxpr, nested.consts, args))(*shapes)
  return _split(closed, count)


def _split(closed: core.ClosedJaxpr, num_params: int) -> Program:
  jaxpr = closed.jaxpr
  parameters, record = jaxpr.invars[:num_params], jaxpr.invars[num_params:]
  known = dict(zip(jaxpr.constvars, closed.consts, strict=True))
  origins = {var: frozenset([i]) for i, var in enumerate(parameters)}
  varying = set(record)
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
      _evaluate([equation], known)
  uses = [site.equation.invars[i] for site in sites for i in site.operands]
  boundary = list(dict.fromkeys(uses))
  output, = jaxpr.outvars
  if isinstance(output, core.Literal) or output not in varying:
    raise ValueError('the loss does not depend on the records')
  return Program(parameters, record, known, weights, data, sites, boundary,
                 [_origin(var, uses, parameters, weights, origins)
                  for var in boundary],
                 output)


def _origin(var, uses, parameters, weights, origins) -> 'Origin | None':
  """Where the entries of `var` come from, if nothing else reads them."""
  if sum(len(origins[var] & origins[other]) for other in uses) > 1:
    return None
  makers = {out: equation for equation in weights for out in equation.outvars}
  chain = []
  while var in makers:
    equation = makers[var]
    if equation.primitive.name not in _REARRANGING or len(
        equation.invars) > 1:
      return None
    before, after = equation.invars[0].aval, var.aval
    if before.size != after.size or not all(
        jnp.issubdtype(aval.dtype, jnp.floating) for aval in (before, after)):
      return None
    chain.insert(0, equation)
    var = equation.invars[0]
  return Origin(parameters.index(var), chain)


def value_of(values: Values, var: core.Var | core.Literal) -> Any:
  """Of a variable or a literal."""
  return var.val if isinstance(var, core.Literal) else values[var]


def bind(equation: core.JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
  """Outputs of one equation; of those that nothing reads, None."""
  variables, operands = [], []
  for var, value in zip(equation.invars, inputs, strict=True):
    if not isinstance(var, core.Literal) and var not in variables:
      variables.append(var)
      operands.append(value)
  read = [var for var in equation.outvars if not isinstance(var, core.DropVar)]
  alone = core.Jaxpr((), variables, read, [equation], equation.effects,
                     core.DebugInfo('jit', equation.primitive.name, None, None))
  found = iter(core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))(*operands))
  return [None if isinstance(var, core.DropVar) else next(found)
          for var in equation.outvars]


def _bind_any(equation: core.JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
  """Of an equation that names no type, or else leaves the type alone."""
  if equation.primitive.name == 'convert_element_type':
    return list(inputs)
  return bind(equation, inputs)


def called(equation: core.JaxprEqn) -> tuple[core.Jaxpr, Sequence[Any]]:
  """What a call runs, and its constants."""
  inner = equation.params.get('jaxpr', equation.params.get('call_jaxpr'))
  if isinstance(inner, core.ClosedJaxpr):
    return inner.jaxpr, inner.consts
  return inner, ()


def _evaluate(equations: Sequence[core.JaxprEqn], values: Values) -> None:
  """Adds what the equations make to `values`."""
  for equation in equations:
    outs = bind(equation, [value_of(values, var) for var in equation.invars])
    values.update(zip(equation.outvars, outs, strict=True))


def _inlined(jaxpr: core.Jaxpr, consts: Sequence[Any],
             args: Sequence[Any]) -> list[Any]:
  """Evaluates with the equations of calls in the place of the calls."""
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
