"""Estimates the memory of book-keeping, to choose how many records it takes.

An ordinary backward pass frees what it has used, and with `jax.checkpoint` it
keeps little. Book-keeping keeps the inputs and the cotangents of all sites
until the norms are known. A few records at a time need as much memory as an
ordinary pass over all of them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import jax
from jax.extend import core
from jax.extend.core import primitives as p
import jax.numpy as jnp

from dpjax.grads import jaxprs
from dpjax.grads import microbatches
from dpjax.grads import tracing
from dpjax.grads.jaxprs import Atom
from dpjax.grads.shared import Group
from dpjax.grads.sites import Block
from dpjax.grads.sites import Site
from dpjax.grads.tracing import Program
from dpjax.typing import Array

# Book-keeping may take this times the memory of an ordinary pass.
_MOST = 1.25
# Records are not divided below the first number of bytes: products of few rows
# are slow, and accelerators need more of them. More than the second at a time
# are no faster.
_BYTES_ON_CPU = 2**23, 2**30
_BYTES_ELSEWHERE = 2**28, 2**32

_LINEAR = {*tracing.CHEAP, 'cumsum', 'dynamic_slice', 'iota', 'max', 'min',
           'pad', 'reduce_max', 'reduce_sum', 'slice', 'split',
           'stop_gradient'} - {'mul', 'div'}
"""Operations of which a backward pass keeps nothing, or a mask."""


class Kept(NamedTuple):
  """Bytes of the values of one record.

  Attributes:
    inputs: inputs of sites, which book-keeping keeps.
    cotangents: of sites.
    outside: inputs of sites that are not in `jax.checkpoint`.
    others: what an ordinary backward pass keeps besides them.
    inside: what it keeps of the largest `jax.checkpoint` for a while.
    convolved: numbers that convolutions return.
  """
  inputs: int = 0
  cotangents: int = 0
  outside: int = 0
  others: int = 0
  inside: int = 0
  convolved: int = 0

  @property
  def ordinary(self) -> int:
    """All that an ordinary backward pass keeps."""
    return self.outside + self.others + self.inside


def kept(program: Program) -> Kept:
  """Returns the bytes of the values that passes over one record keep."""
  return _of_body(program.data, program.nodes, set(program.record))


def num_records(program: Program, known: Mapping[int, Sequence[Group] | None],
                leaves: Sequence[Array], count: int) -> int:
  """Returns how many records of a batch book-keeping takes at a time.

  Args:
    program: of one record.
    known: see `bookkeeping.planned`.
    leaves: parameter leaves.
    count: number of records of the batch.
  """
  each = kept(program)
  formed = 4 * sum(leaves[i].size for i, groups in known.items()
                   if groups is None or any(each.is_kept for each in groups))
  own = each.others + each.inside + max(each.inputs + each.cotangents, formed)
  sums = 4 * sum(leaf.size for leaf in leaves)
  limit = _MOST * (count * each.ordinary + sums)
  least, most = (_BYTES_ON_CPU if jax.default_backend() == 'cpu'
                 else _BYTES_ELSEWHERE)
  size = min(microbatches.of_convolved(each.convolved, count),
             max(most // max(own, 1), 1))
  if count * own + sums > max(limit, least):
    # The sums of a part and of all parts are there together.
    size = min(size, max(int((limit - 2 * sums) // own), least // own, 1))
  return _even(size, count)


def _even(size: int, count: int) -> int:
  """Returns a size of parts of at most `size` that needs little padding."""
  divisor = max(i for i in range(1, size + 1) if count % i == 0)
  if 4 * divisor >= 3 * size:
    return divisor
  # Round the number of parts up, then their size.
  return -(-count // -(-count // size))


def _of_body(equations: Sequence[core.JaxprEqn],
             nodes: Mapping[int, Site | Block],
             varying: Collection[Atom]) -> Kept:
  """Returns `kept` of a body; `varying`: those inputs that are the record's."""
  varying = {*varying, *(out for each in equations for out in each.outvars)}
  of_sites: set[Atom] = set()
  others: set[Atom] = set()
  total = Kept()
  for number, equation in enumerate(equations):
    node = nodes.get(number)
    read = [var for var in equation.invars
            if not isinstance(var, core.Literal) and var in varying]
    if isinstance(node, Block):
      total = _added(total, _of_block(node, varying))
      continue
    if equation.primitive is p.conv_general_dilated_p:
      total = total._replace(convolved=total.convolved + jaxprs.aval(
          equation.outvars[0]).size)
    if isinstance(node, Site):
      total = total._replace(cotangents=total.cotangents + (
          0 if node.same else sum(map(_size, equation.outvars))))
      if node.name not in ('add', 'add_any', 'sub'):
        of_sites.update(read)
    elif equation.primitive.name in ('mul', 'div', 'dot_general',
                                     'conv_general_dilated'):
      if len(set(read)) > 1:
        others.update(read)
    elif equation.primitive.name not in _LINEAR:
      others.update(equation.outvars)
  inputs = sum(map(_size, of_sites))
  return total._replace(
      inputs=total.inputs + inputs, outside=total.outside + inputs,
      others=total.others + sum(map(_size, others - of_sites)))


def _of_block(block: Block, varying: Collection[Atom]) -> Kept:
  """Returns `kept` of a loop or remat."""
  equation = block.equation
  jaxpr, _ = jaxprs.called(equation)
  given = [inner for var, inner in zip(equation.invars, jaxpr.invars,
                                       strict=True)
           if not isinstance(var, core.Literal) and var in varying]
  each = _of_body(jaxpr.eqns, block.nodes, given)
  if equation.primitive is p.remat_p:
    return each._replace(outside=0, others=sum(map(_size, given)),
                         inside=each.ordinary)
  length = equation.params['length']
  return Kept(*(length * value for value in each))._replace(inside=each.inside)


def _added(one: Kept, other: Kept) -> Kept:
  """Returns the sum; of what is kept for a while, the larger."""
  return Kept(*(a + b for a, b in zip(one, other, strict=True)))._replace(
      inside=max(one.inside, other.inside))


def _size(var: Atom) -> int:
  """Returns the bytes of a variable with a gradient, or 0."""
  shaped = jaxprs.aval(var)
  if not jnp.issubdtype(shaped.dtype, jnp.inexact):
    return 0
  return shaped.size * shaped.dtype.itemsize
