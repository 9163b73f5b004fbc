"""Finds the operations of a network in which parameters meet a record.

The function of one record is traced once. Its equations are split by whether
they depend on the parameters only, on the record, or on neither. An equation
that reads both is a *site*: a parameter acts on a record only through sites.
This works on traced equations, so it needs no special layers, and networks of
any library can be used.

The bodies of `lax.scan` and `jax.checkpoint` are split likewise (`hoisting`
first moves what does not depend on the record out of them). A site inside a
loop is run once for each step.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core
import jax.numpy as jnp

from dpjax.grads import hoisting
from dpjax.grads import jaxprs
from dpjax.grads import precision
from dpjax.grads import shards
from dpjax.grads import sites as sites_lib
from dpjax.grads.jaxprs import Atom
from dpjax.grads.jaxprs import Values
from dpjax.grads.sites import Block
from dpjax.grads.sites import Site
from dpjax.typing import Array, PyTree

# Operations that only rearrange the entries of one operand, or cast them.
REARRANGING = ('broadcast_in_dim', 'convert_element_type', 'copy', 'copy_p',
                'optimization_barrier', 'reshape', 'rev', 'squeeze',
                'transpose')

ELEMENTWISE = ('add', 'add_any', 'copy', 'copy_p', 'div', 'mul', 'neg',
               'select_n', 'sub')
"""Operations that usually read biases and scales."""

CHEAP = (*ELEMENTWISE, *REARRANGING, 'concatenate', 'dynamic_update_slice',
         'stack')
"""Operations whose gradients are no larger than the cotangents."""


class Program(NamedTuple):
  """A traced function of (parameter leaves, record leaves), split into parts.

  Attributes:
    parameters: variables of the parameter leaves.
    record: variables of the record's leaves.
    known: values of variables that depend on neither.
    weights: equations that depend on parameters only, in order.
    data: equations that depend on the record, including sites, in order.
    nodes: sites and blocks in `data`, by number of their equation.
    sites: all sites in order, those inside blocks too.
    boundary: variables that `data` reads and that depend on parameters only.
    output: variable of the result.
  """
  parameters: Sequence[core.Var]
  record: Sequence[core.Var]
  known: Values
  weights: Sequence[core.JaxprEqn]
  data: Sequence[core.JaxprEqn]
  nodes: Mapping[int, Site | Block]
  sites: Sequence[Site]
  boundary: Sequence[Atom]
  output: core.Var

  def at_sites(self, leaves: Sequence[Array]) -> list[Array]:
    """Returns the values of `boundary` for these parameter leaves.

    A leaf may be a `shards.Part`, then values may be too.
    """
    values = self.parameter_values(leaves)
    return [values[var] for var in self.boundary]

  def parameter_values(self, leaves: Sequence[Array]) -> Values:
    """Returns the values of all variables that depend on no record."""
    values = self.known | dict(zip(self.parameters, leaves, strict=True))
    shards.evaluate(self.weights, values)
    return values

  def run(self, at_sites: Sequence[Array], record: Sequence[Array],
          taps: Sequence[Sequence[Array | None]]
          ) -> tuple[Array, list[list[Array]]]:
    """Evaluates the function for one record.

    Args:
      at_sites: from `at_sites`.
      record: leaves of the record.
      taps: for each site, arrays [*lengths, ...] that are added to its outputs.
        With zeros, the gradients by these arrays are the cotangents of the
        site.

    Returns:
      (result, for each site its inputs that depend on the record,
      [*lengths, ...]).
    """
    values = self.known | dict(zip(self.boundary, at_sites, strict=True))
    values |= dict(zip(self.record, record, strict=True))
    seen = sites_lib.run(self.data, self.nodes, values, iter(taps))
    return values[self.output], seen

  def operands(self, site: Site, leaves: Sequence[Array]) -> list[Array]:
    """Returns the values of `site.reads`; leaves are float32 if `is_wide`."""
    bind = bind_any if self.is_wide(site) else jaxprs.bind
    values = self.known | dict(zip(self.parameters, leaves, strict=True))
    for equation in self.sources(site):
      outs = bind(equation, [jaxprs.value_of(values, var)
                             for var in equation.invars])
      values.update(zip(equation.outvars, outs, strict=True))
    return [values[var] for var in site.reads]

  def is_wide(self, site: Site) -> bool:
    """Returns whether a site of a short type can be evaluated in float32.

    True for biases and scales: operations that add, multiply or rearrange
    contain no type, so the gradients of all places that read a bias can be
    summed in float32.
    """
    is_plain = lambda equation: equation.primitive.name in (
        *ELEMENTWISE, *REARRANGING)
    sources = self.sources(site)
    return (all(precision.is_short(jaxprs.aval(out))
                for out in site.equation.outvars)
            and len(site.operands) + len(site.inputs) == len(
                site.equation.invars) and is_plain(site.equation)
            and not any(isinstance(var, core.Literal) or var in self.known
                        for source in sources for var in source.invars)
            and all(map(is_plain, sources)))

  def is_cheap(self, leaf: int) -> bool:
    """Returns whether gradients of a leaf are no larger than cotangents.

    True for biases and scales, which operations of `CHEAP` read.
    """
    sites = [site for site in self.sites if leaf in site.leaves]
    size = jaxprs.aval(self.parameters[leaf]).size
    return all(site.name in CHEAP and size <= max(
        jaxprs.aval(out).size for out in site.equation.outvars)
               for site in sites)

  def sources(self, site: Site) -> list[core.JaxprEqn]:
    """Returns the equations of `weights` that a site depends on, in order."""
    needed = set(site.reads)
    sources: list[core.JaxprEqn] = []
    for equation in reversed(self.weights):
      if needed & set(equation.outvars):
        sources.insert(0, equation)
        needed |= {var for var in equation.invars
                   if not isinstance(var, core.Literal)}
    return sources


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
  return _split(hoisting.hoisted(
      flat, shapes, [i >= count for i in range(len(shapes))]), count)


def _split(closed: core.ClosedJaxpr, num_params: int) -> Program:
  """Splits the equations of a function of flat arguments."""
  jaxpr = closed.jaxpr
  parameters, record = jaxpr.invars[:num_params], jaxpr.invars[num_params:]
  known = dict(zip(jaxpr.constvars, closed.consts, strict=True))
  # Variable of parameters only -> numbers of the leaves that it depends on.
  origins = {var: frozenset([i]) for i, var in enumerate(parameters)}
  varying = set(record)  # Variables that depend on the record.
  weights: list[core.JaxprEqn] = []
  data: list[core.JaxprEqn] = []
  nodes: dict[int, Site | Block] = {}
  for equation in jaxpr.eqns:
    read = [var for var in equation.invars if not isinstance(var, core.Literal)]
    leaves = frozenset().union(*(origins.get(var, ()) for var in read))
    if equation.primitive is hoisting.ENTRY or any(
        var in varying for var in read):
      reads = {var: sites_lib.Input(var, (), origins[var]) for var in read
               if var in origins}
      node = sites_lib.node_of(equation, reads, known, ())
      if node is not None:
        nodes[len(data)] = node
      data.append(equation)
      varying.update(equation.outvars)
    elif leaves:
      weights.append(equation)
      origins.update({var: leaves for var in equation.outvars})
    else:
      jaxprs.evaluate([equation], known)  # Neither: computed once, now.
  sites_lib.share_cotangents(data, nodes, jaxpr.outvars)
  sites = sites_lib.all_sites(nodes)
  # Inputs of sites that depend on parameters only, repeated for each use.
  uses = [var for site in sites for var in site.reads]
  boundary = list(dict.fromkeys(uses + [
      var for equation in data for var in equation.invars
      if not isinstance(var, core.Literal) and var in origins]))
  output, = jaxpr.outvars
  if isinstance(output, core.Literal) or output not in varying:
    raise ValueError('the loss does not depend on the records')
  return Program(parameters, record, known, weights, data, nodes, sites,
                 boundary, output)


def bind_any(equation: core.JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
  """Evaluates an equation in the type of its inputs; casts do nothing."""
  if equation.primitive.name == 'convert_element_type':
    return list(inputs)
  return jaxprs.bind(equation, inputs)
