"""Models of any library as (trainable, frozen) pytrees and a way back.

A loss function of the user takes a model: a pytree of arrays, a module that is
a pytree (Equinox), or a module of Flax NNX. Training needs the trainable arrays
as a pytree of their own, and the loss function needs the model again, made
inside of the function that JAX traces.
"""

from collections.abc import Callable
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.grads import isolation
from dpjax.typing import Params, PRNGKey, PyTree

# A collection of Flax Linen variables that may be trained.
_TRAINED = 'params'


class Split(NamedTuple):
  """A model, split into what is trained and the rest.

  Attributes:
    params: trainable arrays, float.
    frozen: all other arrays of the model; public, and not changed.
    rebuild: (params, frozen, key) -> model. Random streams of the model start
      from that key; with None they are those of the given model.
    changed: (model after a call of the loss, frozen) -> names of the state that
      the call changed, other than random streams.
    static: what is not an array; two models of equal static parts differ in
      their arrays only.
  """
  params: Params
  frozen: PyTree
  rebuild: Callable[[Params, PyTree, PRNGKey | None], Any]
  changed: Callable[[Any, PyTree], list[str]]
  static: Any


def split(model: Any, trainable: Any = None) -> Split:
  """Splits a model into trainable arrays, frozen arrays, and the rest.

  Args:
    model: a pytree of arrays, of which other leaves (functions, numbers of
      Python) are kept as they are; or an `nnx.Module`.
    trainable: what is trained. For a pytree a tree prefix of booleans, by
      default all arrays of floating numbers. For an `nnx.Module` a filter, by
      default `nnx.Param`.

  Raises:
    ValueError: if nothing is trainable, or if `model` holds collections of Flax
      Linen beside its parameters.
  """
  nnx = sys.modules.get('flax.nnx')  # Whoever has a module has imported it.
  if nnx is not None and isinstance(model, nnx.Module):
    parts = _split_nnx(nnx, model, trainable)
  else:
    _check_collections(model)
    parts = _split_tree(model, trainable)
  if not jax.tree.leaves(parts.params):
    raise ValueError('the model has no trainable arrays of floating numbers'
                     + ('' if trainable is None else ' that trainable selects')
                     + '; numbers of Python are constants, jnp.asarray makes '
                     'arrays of them')
  return parts


def _check_collections(model: Any) -> None:
  """Rejects the variables of Flax Linen that are more than parameters."""
  if not isinstance(model, dict) or _TRAINED not in model:
    return
  others = [str(name) for name in model if name != _TRAINED]
  if others:
    raise ValueError(
        f"the variables have collections beside 'params': {', '.join(others)}. "
        "Give variables['params'] alone, and let the loss function close over "
        'the others, which are then constants. Statistics of batches mix '
        f'records: {isolation.REMEDY}')


def _is_none(value: Any) -> bool:
  return value is None


def _split_tree(model: PyTree, trainable: Any) -> Split:
  """Splits a pytree by leaves; `None` stands for a leaf of another part."""
  chosen = jax.tree.map(_is_trained, model)
  if trainable is not None:
    chosen = jax.tree.map(lambda wanted, block: jax.tree.map(
        lambda leaf: leaf and bool(wanted), block), trainable, chosen)
  select = lambda test: jax.tree.map(
      lambda leaf, train: leaf if test(leaf, train) else None, model, chosen)
  params = select(lambda leaf, train: train)
  frozen = select(lambda leaf, train: not train and _is_array(leaf))
  static = select(lambda leaf, train: not train and not _is_array(leaf))

  def rebuild(params: Params, frozen: PyTree, key: PRNGKey | None) -> PyTree:
    del key
    # Of the three, exactly one is not None at each leaf.
    return jax.tree.map(lambda *leaves: next(
        (leaf for leaf in leaves if leaf is not None), None), params, frozen,
                        static, is_leaf=_is_none)

  return Split(params, frozen, rebuild, lambda model, frozen: [],
               jax.tree.flatten(static, is_leaf=_is_none))


def _is_array(leaf: Any) -> bool:
  return hasattr(leaf, 'dtype') and hasattr(leaf, 'shape')


def _is_trained(leaf: Any) -> bool:
  """Returns whether a leaf is an array of floating numbers."""
  return _is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _split_nnx(nnx: Any, module: Any, trainable: Any) -> Split:
  """Splits a module of Flax NNX by the types of its variables."""
  graph, params, streams, rest = nnx.split(
      module, nnx.Param if trainable is None else trainable, nnx.RngState, ...)

  def placed(state: Any, values: PyTree) -> Any:
    # Mapping makes new variables, which belong to the trace of the caller. A
    # module from outside of it could not be changed (TraceContextError).
    state = jax.tree.map(lambda leaf: leaf, state)
    nnx.replace_by_pure_dict(state, values)
    return state

  def rebuild(values: Params, frozen: PyTree, key: PRNGKey | None) -> Any:
    return nnx.merge(graph, placed(params, values), _streams(streams, key),
                     placed(rest, frozen))

  def changed(after: Any, frozen: PyTree) -> list[str]:
    state = dict(nnx.to_flat_state(nnx.state(after)))
    paths = [path for path, _ in nnx.to_flat_state(rest)]
    return ['.'.join(map(str, path)) for path in paths
            if path in state and state[path].get_value() is not _at(
                frozen, path)]

  return Split(nnx.to_pure_dict(params), nnx.to_pure_dict(rest), rebuild,
               changed, graph)


def _at(tree: PyTree, path: tuple[Any, ...]) -> Any:
  """Returns the entry of nested dictionaries at a path."""
  for name in path:
    tree = tree[name]
  return tree


def _streams(streams: PyTree, key: PRNGKey | None) -> PyTree:
  """Returns the random streams of a module, started anew from a key.

  Each stream gets a key of its own and counts from zero. With their old keys
  the streams would draw the same for every record; None keeps them.
  """
  leaves, structure = jax.tree.flatten(streams)
  if key is None:
    return jax.tree.unflatten(structure, leaves)
  fresh = []
  for number, leaf in enumerate(leaves):
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      fresh.append(jnp.zeros_like(leaf))
      continue
    own = jax.random.fold_in(key, number)
    fresh.append(own if leaf.shape == () else jax.random.split(own, leaf.shape))
  return jax.tree.unflatten(structure, fresh)
