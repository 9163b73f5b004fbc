"""Compares book-keeping of a layer with `jax.vmap(jax.grad)`."""

from collections.abc import Callable
import functools
import importlib
import importlib.util
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.grads import bookkeeping
from dpjax.grads import explain
from dpjax.typing import Array, Params, PyTree
from experiments.layer_table.cases import Case

LIBRARIES = {'Linen': ('flax', 'linen_layers'), 'NNX': ('flax', 'nnx_layers'),
             'Equinox': ('equinox', 'equinox_layers')}
"""Maps a library to its package and to the module of its layers."""

TOLERANCE = 1e-5
# Some gradients are zero up to rounding: attention ignores a bias of its keys.
_FLOOR = 0.1


class Compared(NamedTuple):
  """How the gradients of a layer compare with those of the reference.

  Attributes:
    norm_error: largest difference of the norms of a leaf and a record, over the
      norm plus a tenth of that of the record's whole gradient.
    sum_error: the same of weighted sums.
    leaves: how each parameter is treated.
  """
  norm_error: float
  sum_error: float
  leaves: list[explain.Leaf]

  @property
  def is_equal(self) -> bool:
    """Whether norms and sums agree up to rounding."""
    return max(self.norm_error, self.sum_error) <= TOLERANCE


def is_installed(library: str) -> bool:
  """Returns whether a library of `LIBRARIES` can be imported."""
  return importlib.util.find_spec(LIBRARIES[library][0]) is not None


def case(library: str, layer: str) -> Case:
  """Returns a layer of a library."""
  module = importlib.import_module(
      f'experiments.layer_table.{LIBRARIES[library][1]}')
  with jax.numpy_rank_promotion('allow'), jax.numpy_dtype_promotion('standard'):
    return module.case(layer)


def compare(case: Case, kept: Array | None = None) -> Compared:
  """Returns the errors of norms and sums.

  Args:
    case: a layer.
    kept: [b] bool; False for records whose gradients count as zero, whatever
      their values. None keeps all.
  """
  kept = np.ones(len(case.records), bool) if kept is None else np.asarray(kept)
  # Libraries may broadcast, which tests of dpjax forbid.
  with jax.numpy_rank_promotion('allow'), jax.numpy_dtype_promotion('standard'):
    # A new function each time, so that nothing compiled before is used again.
    ours, theirs = (jax.jit(functools.partial(of, case.loss))(
        case.params, case.records, kept, _weights(kept))
        for of in (by_bookkeeping, by_vmap))
    leaves = explain.explain(case.loss, case.params, case.records[0])
  whole = np.sqrt(sum(theirs[0]))
  return Compared(
      max(float(np.max(np.abs(np.sqrt(a) - np.sqrt(b))
                       / (np.sqrt(b) + _FLOOR * whole.max())))
          for a, b in zip(ours[0], theirs[0], strict=True)),
      max(float(np.linalg.norm(a - b) / (np.linalg.norm(b) + _FLOOR
                                         * whole.max()))
          for a, b in zip(ours[1], theirs[1], strict=True)), leaves)


def _weights(kept: np.ndarray) -> np.ndarray:
  """Returns positive weights [b], zero for records that are not kept."""
  return np.where(kept, np.random.default_rng(2).uniform(
      0.5, 1.5, len(kept)), 0.0).astype(np.float32)


def by_bookkeeping(loss: Callable[[Params, PyTree], Array], params: Params,
                   records: Array, kept: Array, weights: Array
                   ) -> tuple[list[Array], list[Array]]:
  """Returns squared norms [b] and weighted sums of each leaf."""
  gradients = bookkeeping.of_record_loss(loss, params, records, kept)
  sums = gradients.weighted(jax.tree.map(lambda leaf: weights, params))
  return ([jnp.where(kept, each, 0.0)
           for each in jax.tree.leaves(gradients.squares)],
          jax.tree.leaves(sums))


def by_vmap(loss: Callable[[Params, PyTree], Array], params: Params,
            records: Array, kept: Array, weights: Array
            ) -> tuple[list[Array], list[Array]]:
  """Returns what `by_bookkeeping` returns, from one gradient per record."""
  gradients = jax.tree.leaves(jax.vmap(jax.grad(loss), (None, 0))(
      params, records))
  clean = [jnp.where(kept.reshape((-1,) + (1,) * (leaf.ndim - 1)),
                     leaf.astype(jnp.float32), 0.0) for leaf in gradients]
  return ([jnp.sum(jnp.square(leaf), tuple(range(1, leaf.ndim)))
           for leaf in clean],
          [jnp.tensordot(weights, leaf, 1) for leaf in clean])
