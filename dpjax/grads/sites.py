"""Sites: operations in which parameters meet a record, see `tracing`.

The bodies of `lax.scan` and `jax.checkpoint` are blocks with sites of their
own. A site inside a loop is run once for each step.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core
from jax.extend.core import primitives as p
import jax.numpy as jnp

from dpjax.grads import jaxprs
from dpjax.grads import shards
from dpjax.grads.jaxprs import Atom
from dpjax.grads.jaxprs import Values
from dpjax.typing import Array


class Site(NamedTuple):
  """An equation that reads both parameters and the record.

  Attributes:
    equation: as traced.
    operands: numbers of its inputs that depend on parameters only.
    leaves: numbers of the parameter leaves that these inputs depend on.
    inputs: numbers of its inputs that depend on the record.
    known: its other inputs, by number.
    reads: for each of `operands` the variable of `Program.boundary`.
    lengths: numbers of steps of the loops around the site, outermost first.
    sliced: for each of `operands`, for each loop, whether a step reads a slice
      along the first axis of what the loop reads. Otherwise all steps read the
      same.
    same: the cotangent of the output is that of the site so many places later:
      a bias that is added to the output. 0 if there is none.
  """
  equation: core.JaxprEqn
  operands: tuple[int, ...]
  leaves: tuple[int, ...]
  inputs: tuple[int, ...]
  known: Mapping[int, Any]
  reads: tuple[Atom, ...]
  lengths: tuple[int, ...] = ()
  sliced: tuple[tuple[bool, ...], ...] = ()
  same: int = 0

  @property
  def name(self) -> str:
    """Name of the operation, as JAX spells it."""
    return self.equation.primitive.name

  def taps(self) -> list[jax.ShapeDtypeStruct | None]:
    """Returns the shapes of the outputs of one step.

    None for outputs without a gradient.
    """
    return [jax.ShapeDtypeStruct(jaxprs.aval(out).shape,
                                 jaxprs.aval(out).dtype)
            if jnp.issubdtype(jaxprs.aval(out).dtype, jnp.inexact)
            and not isinstance(out, core.DropVar) else None
            for out in self.equation.outvars]

  def outputs(self, operands: Sequence[Array],
              inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs with a gradient, for one record.

    Args:
      operands: values of `reads`.
      inputs: inputs that depend on the record, [*lengths, ...].

    Returns:
      Arrays [*lengths, ...].
    """

    def step(operands: Sequence[Array],
             inputs: Sequence[Array]) -> list[Array]:
      values = (dict(self.known) | dict(zip(self.operands, operands))
                | dict(zip(self.inputs, inputs)))
      outs = jaxprs.bind(self.equation, [
          var.val if isinstance(var, core.Literal) else values[i]
          for i, var in enumerate(self.equation.invars)])
      return [out for out, tap in zip(outs, self.taps(), strict=True)
              if tap is not None]

    for level in reversed(range(len(self.lengths))):
      axes = [0 if sliced[level] else None for sliced in self.sliced]
      step = jax.vmap(step, (axes, 0), axis_size=self.lengths[level])
    return step(list(operands), list(inputs))


class Block(NamedTuple):
  """A loop or remat with sites in its body.

  Attributes:
    equation: a rewritten scan or remat.
    nodes: sites and blocks of the body, by number of their equation.
    sites: all sites of the body in order, those of inner blocks too.
  """
  equation: core.JaxprEqn
  nodes: Mapping[int, Any]  # The type of itself would be a text.
  sites: Sequence[Site]

  def run(self, inputs: Sequence[Any], taps: Sequence[Sequence[Array | None]]
          ) -> tuple[list[Any], list[list[Array]]]:
    """Evaluates the block, see `Program.run`; taps are [*lengths, ...]."""
    params = self.equation.params
    if self.equation.primitive is p.remat_p:
      return jax.checkpoint(
          self._body, prevent_cse=params['prevent_cse'],
          policy=params['policy'])(inputs, taps)
    first = params['num_consts']
    count = params['num_carry']
    inputs = self._collected(inputs)
    orders: list[list[list[int]]] = []

    def step(carry: Sequence[Any], xs: tuple[Sequence[Any], Any]
             ) -> tuple[list[Any], tuple[list[Any], list[Array]]]:
      outs, seen = self._body([*inputs[:first], *carry, *xs[0]], xs[1])
      # What several sites read is stacked once.
      distinct = {id(value): value for values in seen for value in values}
      numbers = {key: i for i, key in enumerate(distinct)}
      orders.append([[numbers[id(value)] for value in values]
                     for values in seen])
      return outs[:count], (outs[count:], list(distinct.values()))

    carry, (ys, stacked) = jax.lax.scan(
        step, list(inputs[first:first + count]),
        (list(inputs[first + count:]), taps), length=params['length'],
        reverse=params['reverse'], unroll=params['unroll'])
    return [*carry, *ys], [[stacked[i] for i in order] for order in orders[-1]]

  def _body(self, inputs: Sequence[Any],
            taps: Sequence[Sequence[Array | None]]
            ) -> tuple[list[Any], list[list[Array]]]:
    """Evaluates the body once."""
    jaxpr, consts = jaxprs.called(self.equation)
    values: Values = dict(zip((*jaxpr.constvars, *jaxpr.invars),
                              (*consts, *inputs), strict=True))
    seen = run(jaxpr.eqns, self.nodes, values, iter(taps))
    return [shards.whole(jaxprs.value_of(values, var))
            for var in jaxpr.outvars], seen

  def _collected(self, inputs: Sequence[Any]) -> list[Any]:
    """Returns inputs of a loop with parts of parameters collected.

    But slices of a part are collected step by step, unless the dimension of the
    steps is divided.
    """
    params = self.equation.params
    first = params['num_consts'] + params['num_carry']
    return [value if i >= first and isinstance(value, shards.Part)
            and not value.chain and value.dim > -value.value.ndim
            else shards.whole(value) for i, value in enumerate(inputs)]


@jax.custom_jvp
def _tapped(out: Array, tap: Array) -> Array:
  """Returns an output of a site plus a tap that is zero.

  Only the derivative adds the tap, so no zeros are kept for all steps. The
  choice is made by XLA's compiler; it gives the result the tap's records.
  """
  return jax.lax.select_n(jnp.bool_(False), out, tap)


_tapped.defjvp(lambda primals, tangents: (
    _tapped(*primals), tangents[0] + tangents[1]))


def run(equations: Sequence[core.JaxprEqn],
        nodes: Mapping[int, Site | Block], values: Values,
        taps: Iterator[Sequence[Array | None]]) -> list[list[Array]]:
  """Evaluates equations, and returns the record inputs of their sites."""
  seen = []
  for number, equation in enumerate(equations):
    node = nodes.get(number)
    inputs = [jaxprs.value_of(values, var) for var in equation.invars]
    if isinstance(node, Block):
      outs, inner = node.run(inputs, [next(taps) for _ in node.sites])
      seen += inner
    else:
      outs = shards.bind(equation, inputs)
    if isinstance(node, Site):
      seen.append([inputs[i] for i in node.inputs])
      outs = [out if tap is None else _tapped(out, tap)
              for out, tap in zip(outs, next(taps), strict=True)]
    values.update(zip(equation.outvars, outs, strict=True))
  return seen


class Input(NamedTuple):
  """An input of a body that depends on parameters only.

  Attributes:
    outer: the variable outside all loops.
    sliced: for each loop whether it slices, see `Site.sliced`.
    leaves: numbers of the parameter leaves that it depends on.
  """
  outer: Atom
  sliced: tuple[bool, ...]
  leaves: frozenset[int]


def all_sites(nodes: Mapping[int, Site | Block]) -> list[Site]:
  """Returns the sites of a body in order, those of inner blocks too."""
  return [site for _, node in sorted(nodes.items()) for site in (
      node.sites if isinstance(node, Block) else [node])]


def node_of(equation: core.JaxprEqn, reads: Mapping[Atom, Input],
          known: Values, lengths: tuple[int, ...]) -> Site | Block | None:
  """Returns the site or block of an equation that depends on the record.

  Args:
    equation: rewritten.
    reads: the variables that depend on parameters only.
    known: values of the variables that depend on neither.
    lengths: of the loops around it.

  Returns:
    None if it reads no parameter.
  """
  operands = [(i, reads[var]) for i, var in enumerate(equation.invars)
              if not isinstance(var, core.Literal) and var in reads]
  if not operands:
    return None
  if equation.primitive in (p.scan_p, p.remat_p):
    return _block(equation, reads, known, lengths)
  others = [(i, var) for i, var in enumerate(equation.invars)
            if not isinstance(var, core.Literal) and var not in reads]
  return Site(
      equation, tuple(i for i, _ in operands),
      tuple(sorted(frozenset().union(*(each.leaves for _, each in operands)))),
      tuple(i for i, var in others if var not in known),
      {i: known[var] for i, var in others if var in known},
      tuple(each.outer for _, each in operands), lengths,
      tuple(each.sliced for _, each in operands))


def _block(equation: core.JaxprEqn, reads: Mapping[Atom, Input],
           known: Values, lengths: tuple[int, ...]) -> Block:
  """Returns a loop or remat that reads parameters, see `node_of`."""
  params = equation.params
  jaxpr, consts = jaxprs.called(equation)
  # The first inputs are the same in all steps, the last ones are sliced.
  fixed = first = len(equation.invars)
  if equation.primitive is p.scan_p:
    fixed, first = params['num_consts'], (
        params['num_consts'] + params['num_carry'])
    lengths = (*lengths, params['length'])
  inner_reads: dict[Atom, Input] = {}
  inner_known: Values = dict(zip(jaxpr.constvars, consts, strict=True))
  for i, (var, inner) in enumerate(zip(equation.invars, jaxpr.invars,
                                       strict=True)):
    if isinstance(var, core.Literal):
      continue
    if var in reads:
      each = reads[var]
      if equation.primitive is p.scan_p:
        if fixed <= i < first:
          raise AssertionError('a state that depends on parameters only')
        each = each._replace(sliced=(*each.sliced, i >= first))
      inner_reads[inner] = each
    elif var in known and i < fixed:
      inner_known[inner] = known[var]
  nodes: dict[int, Site | Block] = {}
  for number, inner_equation in enumerate(jaxpr.eqns):
    node = node_of(inner_equation, inner_reads, inner_known, lengths)
    if node is not None:
      nodes[number] = node
  share_cotangents(jaxpr.eqns, nodes, jaxpr.outvars)
  return Block(equation, nodes, all_sites(nodes))


def share_cotangents(equations: Sequence[core.JaxprEqn],
                     nodes: dict[int, Site | Block],
                     outputs: Sequence[Atom]) -> None:
  """Sets `Site.same` of the sites of a body whose output is only added to.

  Args:
    equations: of the body.
    nodes: of the body; changed in place.
    outputs: variables that the body returns.
  """
  places: dict[int, int] = {}
  place = 0
  for number, node in sorted(nodes.items()):
    places[number] = place
    place += len(node.sites) if isinstance(node, Block) else 1
  users: dict[Atom, list[int]] = {}
  for number, equation in enumerate(equations):
    for var in equation.invars:
      if not isinstance(var, core.Literal):
        users.setdefault(var, []).append(number)
  for number, node in nodes.items():
    if isinstance(node, Block) or len(node.equation.outvars) > 1:
      continue
    out, = node.equation.outvars
    after = users.get(out, ())
    if (len(after) == 1 and isinstance(nodes.get(after[0]), Site)
        and out not in outputs and _passes_on(equations[after[0]], out)):
      nodes[number] = node._replace(same=places[after[0]] - places[number])


def _passes_on(equation: core.JaxprEqn, var: Atom) -> bool:
  """Returns whether the cotangent of a result is that of the input `var`."""
  name = equation.primitive.name
  return ((name in ('add', 'add_any')
           or name == 'sub' and equation.invars[0] is var)
          and jaxprs.aval(equation.outvars[0]).shape == jaxprs.aval(var).shape)

