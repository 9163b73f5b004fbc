"""Says for each parameter how `bookkeeping` treats the gradients of records.

For a model that trains slowly: which parameters are to blame, and why.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax

from dpjax.grads import bookkeeping
from dpjax.grads import contractions
from dpjax.grads import tracing
from dpjax.grads.contractions import Table
from dpjax.grads.tracing import Program
from dpjax.typing import Array, Params, PyTree

PRODUCT, GRAM, LOOKUP, KEPT, SMALL, FORMED, UNREAD = (
    'product of norms', 'Gram matrices', 'lookups', 'kept', 'small', 'formed',
    'unread')
_FAST = (PRODUCT, GRAM, LOOKUP, KEPT, SMALL, UNREAD)


class Leaf(NamedTuple):
  """How the gradients of records by one parameter leaf are treated.

  Attributes:
    path: path of the leaf in the parameters.
    way: 'product of norms', 'Gram matrices' or 'lookups', by which norms are
      found without a gradient of a record; 'kept' where forming gradients is
      less work; 'small' for biases and scales, whose gradients are formed at
      the cost of an activation; 'unread' where the loss ignores the leaf;
      'formed' for gradients as by `vmap`.
    reason: why, in a few words.
  """
  path: str
  way: str
  reason: str

  @property
  def is_fast(self) -> bool:
    """Whether the leaf is treated without gradients as by `vmap`."""
    return self.way in _FAST


def explain(record_loss: Callable[[Params, PyTree], Array], params: Params,
            record: PyTree) -> list[Leaf]:
  """Returns how `bookkeeping.of_record_loss` treats each parameter leaf.

  Nothing is computed: the loss is traced.

  Args:
    record_loss: (params, one record) -> loss of this record, a scalar.
    params: float arrays or their shapes.
    record: arrays of one record, or their shapes.

  Examples:
    >>> from dpjax.grads import explain
    >>> params = {'w': jnp.ones([3, 2]), 'b': jnp.zeros(2)}
    >>> for leaf in explain.explain(
    ...     lambda p, x: jnp.sum((x @ p['w'] + p['b'])**2), params,
    ...     jnp.ones(3)):
    ...   print(leaf.path, '|', leaf.way, '|', leaf.reason)
    ['b'] | small | read by add
    ['w'] | product of norms | read by dot_general at one position
  """
  program = tracing.trace(record_loss, params, record)
  known = bookkeeping._known_reads(program, contractions.gram_is_cheaper)
  paths = [jax.tree_util.keystr(path) for path, _ in
           jax.tree_util.tree_leaves_with_path(params)]
  return [Leaf(path, *(_of_known(known[i]) if i in known
                       else _of_other(program, i)))
          for i, path in enumerate(paths)]


def _of_known(read: bookkeeping._Read) -> tuple[str, str]:
  """Returns the way and the reason of a leaf with a known operation."""
  operation = read.operation
  if isinstance(operation, Table):
    return LOOKUP, f'read by gather at {operation.num_sites} positions'
  name = 'convolution' if operation.has_windows else 'dot_general'
  if read.is_kept:
    return KEPT, (f'read by {name} at {operation.num_sites} positions, which '
                  'are many for its size')
  if bookkeeping._is_outer(operation):
    return PRODUCT, f'read by {name} at one position'
  return GRAM, f'read by {name} at {operation.num_sites} positions'


def _of_other(program: Program, leaf: int) -> tuple[str, str]:
  """Returns the way and the reason of a leaf without a known operation."""
  sites = [site for site in program.sites if leaf in site.leaves]
  if not sites:
    return UNREAD, 'the loss does not depend on it'
  names = _several([site.name for site in sites])
  if all(site.name in tracing.ELEMENTWISE for site in sites):
    return SMALL, f'read by {names}'
  if len(sites) > 1:
    return FORMED, f'read by several operations: {names}'
  before = [equation.primitive.name for equation in program._sources(sites[0])]
  if before:
    return FORMED, f'changed by {_several(before)} before {names} reads it'
  return FORMED, f'read by {names}'


def _several(names: Sequence[str]) -> str:
  """Returns the names, each once, with how often it occurs."""
  return ', '.join(name if names.count(name) == 1
                   else f'{name} ({names.count(name)} times)'
                   for name in dict.fromkeys(names))
