"""Book-keeping: norms and clipped sums from one ordinary backward pass.

One forward pass keeps the inputs of each operation that reads parameters (a
site, see `tracing`). One backward pass gives the cotangents of its outputs, but
no gradients by parameters. Contractions of inputs and cotangents then give the
norms of the records' gradients and the sums of clipped gradients. No second
pass is needed, and most layers form no gradient of a single record. Source: Bu
et al. (2023), extended to any JAX function and every convolution.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
import functools
import logging
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import tree
from dpjax.grads import bundles
from dpjax.grads import contractions
from dpjax.grads import memory
from dpjax.grads import passes as passes_lib
from dpjax.grads import pullbacks
from dpjax.grads import shards as shards_lib
from dpjax.grads import shared
from dpjax.grads import tracing
from dpjax.grads.bundles import Bundle
from dpjax.grads.contractions import Layer
from dpjax.grads.lookups import Table
from dpjax.grads.passes import Pass
from dpjax.grads.reads import Read
from dpjax.grads.records import RecordGradients
from dpjax.grads.shards import Shards
from dpjax.grads.shared import Group
from dpjax.grads.shared import Measured
from dpjax.grads.tracing import Program
from dpjax.typing import ApplyFn, Array, Batch, LossFn, Params, PyTree

_LOGGER = logging.getLogger(__name__)

FORMED_LOOKUPS = 'read by more lookups than are worth comparing'
"""Why gradients of a small embedding are formed."""


class Plan(NamedTuple):
  """How the gradients of a loss of one record are found.

  Attributes:
    program: the traced loss.
    known: the reads of each leaf by part; None if gradients are formed.
  """
  program: Program
  known: Mapping[int, Sequence[Group] | None]

  def num_records(self, params: Params, count: int) -> int:
    """Returns how many of `count` records to take at a time."""
    return memory.num_records(self.program, self.known,
                              jax.tree.leaves(params), count)


def record_gradients(apply: ApplyFn, loss: LossFn, params: Params, batch: Batch,
                     kept: Array, plan: Plan | None = None, *,
                     gram_is_cheaper: Callable[[Layer], bool] | None = None,
                     shards: Shards = shards_lib.WHOLE) -> RecordGradients:
  """Returns `of_record_loss` for a network and a loss of its outputs.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    params: float arrays.
    batch: b records.
    kept: [b] bool; the gradients of other records count as zero.
    plan: for `of_network`, if it has been made.
    gram_is_cheaper: see `of_record_loss`.
    shards: see `of_record_loss`.
  """
  return of_record_loss(of_network(apply, loss), params, (batch.x, batch.y),
                        kept, plan, gram_is_cheaper=gram_is_cheaper,
                        shards=shards)


def of_network(apply: ApplyFn, loss: LossFn
               ) -> Callable[[Params, tuple[PyTree, Array]], Array]:
  """Returns (params, (x, y)) -> loss of one record."""

  def record_loss(params: Params, record: tuple[PyTree, Array]) -> Array:
    x, y = jax.tree.map(lambda leaf: leaf[None], record)
    return loss(apply(params, x), y)[0]

  return record_loss


def of_record_loss(record_loss: Callable[[Params, PyTree], Array],
                   params: Params, records: PyTree, kept: Array,
                   plan: Plan | None = None, *,
                   gram_is_cheaper: Callable[[Layer], bool] | None = None,
                   shards: Shards = shards_lib.WHOLE) -> RecordGradients:
  """Returns norms and weighted sums of the gradients of the records of a batch.

  The function of *one* record is differentiated and mapped over records, so a
  layer that mixes records, such as batch normalisation, sees one at a time.

  For parameters that dense layers, convolutions and embeddings read, once or
  several times, as they are or transformed as in `pullbacks`, no gradient of a
  record is formed, unless that is cheapest. For biases, scales and all other
  parameters the gradient of each record is formed, by `vmap` of the operation
  that reads the parameter. This is correct for any function, but slow for a
  large parameter; the log then names it.

  Args:
    record_loss: (params, one record) -> loss of this record, a scalar.
    params: float arrays.
    records: b records, a tree of arrays [b, ...].
    kept: [b] bool; the gradients of other records count as zero.
    plan: of this loss for these parameters, if it has been made.
    gram_is_cheaper: see `planned`.
    shards: which parameters are parts; the weighted sums are parts likewise,
      added up over the devices. Sums of other parameters are not.
  """
  program, known = plan or planned(record_loss, shards.wholes(params), records,
                                   gram_is_cheaper=gram_is_cheaper)
  leaves, structure = jax.tree.flatten(params)
  leaves = shards.parts(leaves)
  unknown = [leaf for leaf, groups in known.items() if groups is None]
  losses, passes = passes_lib.backward(program, leaves, records, kept)
  formed = _formed_gradients(program, leaves, passes, unknown)
  arranged = [passes_lib.arranged(site, each) for site, each in zip(
      program.sites, passes, strict=True)]
  bundle = bundles.of_formed({} if shards.is_tensor else formed, len(kept))
  parts = [*([_of_bundle(bundle, shards)] if bundle.numbers else []), *(
      _of_leaf(i, _measured(kept, shards_lib.shape_of(leaf), known[i],
                            formed.get(i), arranged,
                            functools.partial(shards.own, i)))
      for i, leaf in enumerate(leaves) if i not in bundle.numbers)]
  squares = {i: square for part in parts
             for i, square in zip(part.numbers, part.squares, strict=True)}
  # A record counts for all leaves or for none.
  sound = functools.reduce(jnp.logical_and, [part.sound for part in parts],
                           jnp.ones(kept.shape, jnp.bool_))
  usable = kept & sound & jnp.isfinite(losses)
  return RecordGradients(
      losses, usable,
      jax.tree.unflatten(structure, [jnp.where(sound, squares[i], 0.0)
                                     for i in range(len(leaves))]),
      functools.partial(_weighted, params, parts, sound))


def planned(record_loss: Callable[[Params, PyTree], Array], params: Params,
            records: PyTree, *,
            gram_is_cheaper: Callable[[Layer], bool] | None = None) -> Plan:
  """Returns how the gradients of records of these shapes are found.

  Args:
    record_loss: (params, one record) -> loss of this record, a scalar.
    params: float arrays.
    records: a tree of arrays [b, ...].
    gram_is_cheaper: decides for a layer of several positions whether Gram
      matrices give its norms; None is `contractions.gram_is_cheaper`. Results
      differ by rounding.
  """
  shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape[1:], leaf.dtype), records)
  program = tracing.trace(record_loss, params, shapes)
  values = program.parameter_values(jax.tree.leaves(params))
  known, reasons = known_leaves(
      pullbacks.uses(program, values),
      gram_is_cheaper or contractions.gram_is_cheaper)
  _say_what_is_formed(program, params, [
      leaf for leaf, groups in known.items() if groups is None], reasons)
  return Plan(program, known)


def known_leaves(
    uses: Mapping[int, Sequence[Read | str]],
    gram_is_cheaper: Callable[[Layer], bool]
    ) -> tuple[dict[int, list[Group] | None], dict[int, str]]:
  """Returns how the gradients of each leaf are found.

  Args:
    uses: see `pullbacks.uses`.
    gram_is_cheaper: see `planned`.

  Returns:
    (the reads of each leaf by part, or None if gradients are formed; for those
    leaves the reason).
  """
  known: dict[int, list[Group] | None] = {}
  reasons: dict[int, str] = {}
  for leaf, each in uses.items():
    reads = [read for read in each if isinstance(read, Read)]
    if len(reads) < len(each):
      known[leaf], reasons[leaf] = None, str(each[-1])
      continue
    known[leaf] = shared.groups(reads, gram_is_cheaper) if reads else []
    if known[leaf] is None:
      reasons[leaf] = FORMED_LOOKUPS if all(
          isinstance(read.operation, Table) for read in reads) else (
              'several operations read overlapping parts of it')
  return known, reasons


def _say_what_is_formed(program: Program, params: Params,
                        unknown: Collection[int],
                        reasons: Mapping[int, str]) -> None:
  """Logs the parameters with slow gradients, once for each model."""
  paths = [jax.tree_util.keystr(path) for path, _ in
           jax.tree_util.tree_leaves_with_path(params)]
  # Forming gradients of biases, scales and small tables is cheap.
  slow = [leaf for leaf in unknown if not program.is_cheap(leaf)
          and reasons[leaf] != FORMED_LOOKUPS]
  if slow:
    _say(', '.join(
        f'{paths[leaf]} ({reasons[leaf]})' for leaf in sorted(slow)))


@functools.cache
def _say(names: str) -> None:
  """Logs these parameters, once in a process."""
  _LOGGER.warning('gradients are formed for every record, as by vmap, in '
                  'parameters that other operations read than dense layers, '
                  'convolutions and embeddings, or that are transformed before '
                  'in a way that is not followed: %s', names)


def _formed_gradients(program: Program, leaves: Sequence[Array],
                      passes: Sequence[Pass],
                      unknown: Collection[int]) -> dict[int, Array]:
  """Returns the gradients [b, ...] of the leaves `unknown`, by number."""
  formed: dict[int, Array] = {}
  for site, each in zip(program.sites, passes, strict=True):
    numbers = [number for number in site.leaves if number in unknown]
    if not numbers:
      continue
    own = [shards_lib.whole(leaf) if i in site.leaves else leaf
           for i, leaf in enumerate(leaves)]
    pull_back = functools.partial(passes_lib.pull_back, program, site, numbers,
                                  own)
    gradients = jax.vmap(pull_back, len(site.lengths))(each.inputs,
                                                       each.cotangents)
    for number, gradient in zip(numbers, gradients, strict=True):
      gradient = gradient.astype(jnp.float32)
      formed[number] = (formed[number] + gradient if number in formed
                        else gradient)
  return formed


class _Part(NamedTuple):
  """Gradients of the records by some leaves.

  Attributes:
    numbers: numbers of the leaves.
    squares: for each of them, [b] squared norms.
    sound: [b] bool, True for records whose norms can be measured.
    values: see `shared.Measured`.
    total: (for each leaf weights [b], values) -> weighted sums by leaf.
    axis: see `shared.Measured`.
  """
  numbers: Sequence[int]
  squares: Sequence[Array]
  sound: Array
  values: PyTree
  total: Callable[[Sequence[Array], PyTree], list[Array]]
  axis: PyTree


def _of_bundle(bundle: Bundle, shards: Shards) -> _Part:
  """Returns norms and sums by small leaves."""
  squares = bundles.squares(bundle)
  return _Part(bundle.numbers, list(squares.T),
               jnp.all(jnp.isfinite(squares), 1), bundle.values,
               lambda weights, values: list(map(
                   shards.own, bundle.numbers, bundles.totals(
                       bundle, weights, values))), 0)


def _of_leaf(number: int, part: Measured) -> _Part:
  """Returns norms and sums by one leaf."""
  return _Part([number], [part.squares], part.sound, part.values,
               lambda weights, values: [part.total(weights[0], values)],
               part.axis)


def _measured(kept: Array, leaf: Array, groups: Sequence[Group] | None,
              formed: Array | None, passes: Sequence[Pass],
              own: Callable[[Array], Array]) -> Measured:
  """Returns norms and sums of the gradients of the records by one leaf.

  Args:
    kept: gives the shape [b].
    leaf: the parameters.
    groups: from `known_leaves`; empty if the leaf has no gradient.
    formed: gradients of the records if they are formed.
    passes: inputs and cotangents of the sites, from `passes.arranged`.
    own: total of the leaf, or of a slice of it -> what this device keeps.
  """
  if formed is not None:
    # Without the barrier XLA might form a gradient twice, with different
    # rounding: once for its norm and once for the sum.
    formed = jax.lax.optimization_barrier(formed)
    norms = contractions.norms(formed)
    return Measured(jnp.square(norms), jnp.isfinite(norms), formed,
                    lambda *args: own(contractions.weighted_sum(*args)), 0)
  if groups and len(groups) == 1 and groups[0].reads[0].is_sliced(leaf.shape):
    return shared.measured(groups[0], passes, own)
  parts = [shared.measured(group, passes) for group in groups or ()]

  def total(weights: Array, values: Sequence[PyTree]) -> Array:
    return own(_placed(groups or (), [
        part.total(weights, value) for part, value in zip(
            parts, values, strict=True)], leaf.shape))

  sound = jnp.ones(kept.shape, jnp.bool_)
  squares = jnp.zeros(kept.shape, jnp.float32)
  for part in parts:
    sound, squares = sound & part.sound, squares + part.squares
  return Measured(squares, sound, [part.values for part in parts], total,
                  [part.axis for part in parts])


def _placed(parts: Sequence[Group], totals: Sequence[Array],
            shape: tuple[int, ...]) -> Array:
  """Returns a leaf with these parts, and zeros elsewhere."""
  if len(parts) == 1 and totals[0].shape == shape:
    return totals[0]
  leaf = jnp.zeros(shape, jnp.float32)
  for part, total in zip(parts, totals, strict=True):
    leaf = jax.lax.dynamic_update_slice(leaf, total, part.reads[0].starts)
  return leaf


def _weighted(params: Params, parts: Sequence[_Part], sound: Array,
              weights: PyTree) -> Params:
  """Returns the weighted sum of the gradients, see `RecordGradients`."""
  by_leaf = tree.blocks(params, weights)
  # Leaves of a block have the same array, which bundles make use of.
  finite = {id(each): _only(sound, 0, each) for each in by_leaf}
  totals: dict[int, Array] = {}
  for part, values in zip(parts, _cleaned(parts, sound), strict=True):
    totals.update(zip(part.numbers, part.total(
        [finite[id(by_leaf[i])] for i in part.numbers], values), strict=True))
  return jax.tree.unflatten(jax.tree.structure(params),
                            [totals[i] for i in range(len(by_leaf))])


def _cleaned(parts: Sequence[_Part], sound: Array) -> list[PyTree]:
  """Returns the values of the parts, zero for unsound records.

  Those may be NaN, and 0 NaN is not 0. On CPU a copy takes as long as the sum,
  so it is made only if some record is unsound: by a loop of at most one pass,
  for which XLA makes no copy as it does for a condition.
  """

  def clean(values: list[PyTree]) -> list[PyTree]:
    return [jax.tree.map(lambda axis, each: jax.tree.map(
        functools.partial(_only, sound, axis), each), part.axis, value)
            for part, value in zip(parts, values, strict=True)]

  values = [part.values for part in parts]
  if jax.default_backend() != 'cpu':
    return clean(values)
  return jax.lax.while_loop(
      lambda state: ~state[0],
      lambda state: (jnp.bool_(True), clean(state[1])),
      (jnp.all(sound), values))[1]


def _only(usable: Array, axis: int, x: Array) -> Array:
  """Replaces unusable records, along an axis of x, by zero."""
  like = jax.lax.index_in_dim(x, 0, 0, False) if axis else x
  return jnp.where(contractions.by_record(usable, like), x,
                   jnp.zeros([], x.dtype))
