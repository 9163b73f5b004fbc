"""Says for each parameter how `bookkeeping` treats the gradients of records.

For a model that trains slowly: which parameters are to blame, and why.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.grads import bookkeeping
from dpjax.grads import contractions
from dpjax.grads import pullbacks
from dpjax.grads import tracing
from dpjax.grads.shared import Group
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

  The loss is traced; only what it computes from parameters alone is evaluated,
  with zeros.

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
    ['b'] | small | add reads it
    ['w'] | product of norms | read by dot_general at 1 position
  """
  program = tracing.trace(record_loss, params, record)
  leaves = [jnp.zeros(leaf.shape, leaf.dtype)
            for leaf in jax.tree.leaves(params)]
  known, reasons = bookkeeping.known_leaves(
      pullbacks.uses(program, program.parameter_values(leaves)),
      contractions.gram_is_cheaper)
  paths = [jax.tree_util.keystr(path) for path, _ in
           jax.tree_util.tree_leaves_with_path(params)]
  return [Leaf(path, *_of_leaf(program, i, known[i], reasons.get(i, '')))
          for i, path in enumerate(paths)]


def _of_leaf(program: Program, leaf: int, groups: list[Group] | None,
             reason: str) -> tuple[str, str]:
  """Returns the way and the reason of a leaf."""
  if groups is None:
    if program.is_cheap(leaf):
      return SMALL, reason
    return (KEPT if reason == bookkeeping.FORMED_LOOKUPS else FORMED), reason
  if not groups:
    return UNREAD, 'the loss does not depend on it'
  reads = [read for group in groups for read in group.reads]
  names = _several([program.sites[read.site].name for read in reads])
  positions = sum(read.operation.num_sites for read in reads)
  where = f'read by {names} at {positions} position' + 's' * (positions != 1)
  if any(group.is_kept for group in groups):
    return KEPT, f'{where}, which are many for its size'
  if all(group.has_outer for group in groups):
    return PRODUCT, where
  if all(not group.dense for group in groups):
    return LOOKUP, where
  return GRAM, where


def _several(names: Sequence[str]) -> str:
  """Returns the names, each once, with how often it occurs."""
  return ', '.join(name if names.count(name) == 1
                   else f'{name} ({names.count(name)} times)'
                   for name in dict.fromkeys(names))
