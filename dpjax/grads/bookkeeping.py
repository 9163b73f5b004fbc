"""Book-keeping: norms and clipped sums from one ordinary backward pass.

One forward pass keeps the inputs of each operation that reads parameters (a
site, see `tracing`). One backward pass gives the cotangents of its outputs, but
no gradients by parameters. Contractions of inputs and cotangents then give the
norms of the records' gradients and the sums of clipped gradients. No second
pass is needed, and most layers form no gradient of a single record. Source: Bu
et al. (2023), extended to any JAX function and every convolution.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import logging
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import floats
from dpjax import tree
from dpjax.grads import contractions
from dpjax.grads import jaxprs
from dpjax.grads import passes as passes_lib
from dpjax.grads import tracing
from dpjax.grads.contractions import Layer
from dpjax.grads.contractions import Table
from dpjax.grads.passes import Pass
from dpjax.grads.records import RecordGradients
from dpjax.grads.sites import Site
from dpjax.grads.tracing import Origin
from dpjax.grads.tracing import Program
from dpjax.typing import ApplyFn, Array, Batch, LossFn, Params, PyTree

_LOGGER = logging.getLogger(__name__)

# Norms are products of two factors. Next to a factor above this, the other one
# may be so small that its squares underflow; such records count as unusable.
_LARGEST_NORM = 1e10


def record_gradients(apply: ApplyFn, loss: LossFn, params: Params, batch: Batch,
                     kept: Array, *,
                     gram_is_cheaper: Callable[[Layer], bool] | None = None
                     ) -> RecordGradients:
  """Returns `of_record_loss` for a network and a loss of its outputs.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    params: float arrays.
    batch: b records.
    kept: [b] bool; the gradients of other records count as zero.
    gram_is_cheaper: see `of_record_loss`.
  """

  def record_loss(params: Params, record: tuple[PyTree, Array]) -> Array:
    x, y = jax.tree.map(lambda leaf: leaf[None], record)
    return loss(apply(params, x), y)[0]

  return of_record_loss(record_loss, params, (batch.x, batch.y), kept,
                        gram_is_cheaper=gram_is_cheaper)


def of_record_loss(record_loss: Callable[[Params, PyTree], Array],
                   params: Params, records: PyTree, kept: Array, *,
                   gram_is_cheaper: Callable[[Layer], bool] | None = None
                   ) -> RecordGradients:
  """Returns norms and weighted sums of the gradients of the records of a batch.

  The function of *one* record is differentiated and mapped over records, so a
  layer that mixes records, such as batch normalisation, sees one at a time.

  For a dense layer, convolution or embedding whose parameter is read once, no
  gradient of a record is formed, unless that is cheapest. For biases, scales
  and all other parameters the gradient of each record is formed, by `vmap` of
  the operation that reads the parameter. This is correct for any function, but
  slow for a large parameter; the log then names it.

  Args:
    record_loss: (params, one record) -> loss of this record, a scalar.
    params: float arrays.
    records: b records, a tree of arrays [b, ...].
    kept: [b] bool; the gradients of other records count as zero.
    gram_is_cheaper: decides for a layer of several positions whether Gram
      matrices give its norms; None is `contractions.gram_is_cheaper`. Results
      differ by rounding.
  """
  shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape[1:], leaf.dtype), records)
  program = tracing.trace(record_loss, params, shapes)
  known = _known_reads(program,
                       gram_is_cheaper or contractions.gram_is_cheaper)
  _say_what_is_formed(program, params, known)
  leaves, structure = jax.tree.flatten(params)
  losses, passes = passes_lib.backward(program, leaves, records, kept)
  formed = _formed_gradients(program, leaves, passes, known)
  lengths = [length for site, each in zip(program.sites, passes, strict=True)
             for length in _lengths(site, each, known)]
  sound = _sound(kept, formed, known, lengths)
  parts = [_unread(kept, leaf) for leaf in leaves]
  # Zeros stay where no site reads a leaf.
  for number, gradient in formed.items():
    if number not in known:
      parts[number] = _kept_part(gradient, sound)
  # A known leaf has one site; its sums are converted to its own layout.
  for site, each in zip(program.sites, passes, strict=True):
    number = site.leaves[0]
    if number in known:
      read = known[number]
      part = (_kept_part(formed[number], sound, read.is_stacked)
              if number in formed else
              _measured_part(read, sound, passes_lib.arranged(site, each)))
      parts[number] = _restored(part, known[number], leaves[number])
  usable = kept & sound & jnp.isfinite(losses)
  return RecordGradients(
      losses, usable,
      jax.tree.unflatten(structure, [part.squares for part in parts]),
      lambda weights: jax.tree.unflatten(structure, [
          _total(part, weight, sound) for part, weight in zip(
              parts, tree.blocks(params, weights), strict=True)]))


def _sound(kept: Array, formed: Mapping[int, Array],
           known: Mapping[int, '_Read'], lengths: Sequence[Array]) -> Array:
  """Returns [b] bool: True for records whose norms can be measured.

  Args:
    kept: gives the shape [b].
    formed: gradients that are formed, [b, ...] or stacked [steps, b, ...].
    known: says which of them are stacked.
    lengths: [b] norms of the factors of gradients that are not formed.
  """
  sound = jnp.ones(kept.shape, jnp.bool_)
  for number, gradient in formed.items():
    is_stacked = number in known and known[number].is_stacked
    sound = sound & jnp.isfinite(_norms(gradient, int(is_stacked)))
  for length in lengths:
    # Also False for NaN.
    sound = sound & (length < _LARGEST_NORM)
  return sound


class _Read(NamedTuple):
  """A parameter that a single dense layer, convolution or embedding reads.

  Attributes:
    origin: the parameter leaf.
    operation: the operation that reads it.
    is_kept: whether gradients of records are formed because that is cheapest.
    is_stacked: whether the parameter is stacked over the steps of a loop, each
      of which reads its own slice.
  """
  origin: Origin
  operation: Layer | Table
  is_kept: bool
  is_stacked: bool


class _Part(NamedTuple):
  """Gradients of the records by one parameter leaf.

  Attributes:
    squares: [b] squared norms.
    values: arrays [b, ...] from which weighted sums are computed.
    total: (weights [b], *values) -> weighted sum of the gradients.
    axis: of the records in `values`: 1 if they are stacked, [steps, b, ...].
  """
  squares: Array
  values: tuple[Array, ...]
  total: Callable[..., Array]
  axis: int = 0


def _known_reads(program: Program, gram_is_cheaper: Callable[[Layer], bool]
                 ) -> dict[int, _Read]:
  """Returns the leaves that one known operation reads, by number."""
  origins = dict(zip(program.boundary, program.origins, strict=True))
  reads = {}
  for site in program.sites:
    operand = site.operands[0]
    origin = origins[site.reads[0]]
    if origin is None or len(site.operands) > 1 or _is_complex(site):
      continue
    operation = (contractions.as_layer(site.equation, operand)
                 or contractions.as_table(site.equation, operand))
    if operation is not None and not all(site.sliced[0]):
      operation = passes_lib.over_steps(operation, math.prod(
          length for length, sliced in zip(site.lengths, site.sliced[0])
          if not sliced))
    if operation is not None:
      reads[origin.leaf] = _Read(
          origin, operation,
          isinstance(operation, Layer) and not _is_outer(operation)
          and not gram_is_cheaper(operation), any(site.sliced[0]))
  return reads


def _is_complex(site: Site) -> bool:
  """Returns whether a site reads or returns complex numbers (Fourier layers).

  The contractions are for real numbers.
  """
  return any(jnp.issubdtype(jaxprs.aval(var).dtype, jnp.complexfloating)
             for var in (*site.equation.invars, *site.equation.outvars))


def _say_what_is_formed(program: Program, params: Params,
                        known: Mapping[int, _Read]) -> None:
  """Logs the parameters with slow gradients, once for each model."""
  paths = [jax.tree_util.keystr(path) for path, _ in
           jax.tree_util.tree_leaves_with_path(params)]
  slow = {paths[leaf]: site.name for site in program.sites
          for leaf in site.leaves
          # Forming gradients of biases and scales is cheap.
          if leaf not in known and site.name not in tracing.ELEMENTWISE}
  if slow:
    _say(', '.join(f'{path} ({name})' for path, name in slow.items()))


@functools.cache
def _say(names: str) -> None:
  """Logs these parameters, once in a process."""
  _LOGGER.warning('gradients are formed for every record, as by vmap, in '
                  'parameters that are shared or not read by a dense layer, '
                  'convolution or embedding: %s', names)


def _formed_gradients(program: Program, leaves: Sequence[Array],
                      passes: Sequence[Pass],
                      known: Mapping[int, _Read]) -> dict[int, Array]:
  """Returns the gradients [b, ...] that are formed, by number of the leaf.

  These are the leaves that are not in `known`, and those with `is_kept`, whose
  gradients come in the layout of `contractions.products`.
  """
  formed = {}
  for site, each in zip(program.sites, passes, strict=True):
    if site.leaves[0] in known:
      read = known[site.leaves[0]]
      if read.is_kept and isinstance(read.operation, Layer):
        each = passes_lib.arranged(site, each)
        formed[site.leaves[0]] = passes_lib.by_steps(
            functools.partial(contractions.products, read.operation),
            read.is_stacked)(*each.inputs, *each.cotangents)
      continue
    pull_back = functools.partial(passes_lib.pull_back, program, site, leaves)
    gradients = jax.vmap(pull_back, len(site.lengths))(each.inputs,
                                                       each.cotangents)
    for number, gradient in zip(site.leaves, gradients, strict=True):
      gradient = gradient.astype(jnp.float32)
      formed[number] = (formed[number] + gradient if number in formed
                        else gradient)
  # Without the barrier XLA might form a gradient twice, with different
  # rounding: once for its norm and once for the sum.
  return {number: jax.lax.optimization_barrier(gradient)
          for number, gradient in formed.items()}


def _is_outer(operation: Layer) -> bool:
  """Returns whether a record's gradient is a single outer product."""
  return operation.num_sites == operation.sizes[0] == 1


def _unread(kept: Array, leaf: Array) -> _Part:
  """Returns the zero gradients of a leaf that no site reads."""
  return _Part(jnp.zeros(kept.shape, jnp.float32), (),
               lambda weights: jnp.zeros(leaf.shape, jnp.float32))


def _kept_part(gradients: Array, sound: Array,
               is_stacked: bool = False) -> _Part:
  """Returns the part of a leaf whose gradients [b, ...] were formed.

  Stacked ones are [steps, b, ...].
  """

  def total(weights: Array, gradients: Array) -> Array:
    return passes_lib.by_steps(lambda each: jnp.tensordot(
        weights, each, 1, precision=jax.lax.Precision.HIGHEST), is_stacked)(
            gradients)

  squares = jnp.square(_norms(gradients, int(is_stacked)))
  return _Part(jnp.where(sound, squares, 0.0), (gradients,), total,
               int(is_stacked))


def _measured_part(read: _Read, sound: Array, each: Pass) -> _Part:
  """Returns the part of a leaf whose gradients are not formed.

  Its totals are in the layout of the operation's input, see `_restored`.
  """
  operation = read.operation
  values: tuple[Array, ...] = *each.inputs, *each.cotangents
  total: Callable[[Array, Array], Array]
  squares: Callable[[Array, Array], Array]
  if isinstance(operation, Table):
    squares = functools.partial(contractions.table_squares, operation)
    total = functools.partial(contractions.table_total, operation)
  elif _is_outer(operation):
    factors = functools.partial(contractions.factors, operation)
    # [b, k] and [b, n].
    values = passes_lib.by_steps(factors, read.is_stacked)(*values)
    squares = lambda *factors: jnp.square(math.prod(map(_norms, factors)))
    total = functools.partial(contractions.outer_total, operation)
  else:
    squares = functools.partial(contractions.gram_squares, operation)
    total = operation.total

  def weighted(weights: Array, *values: Array) -> Array:
    # sum_i w_i X_i^T D_i = sum_i X_i^T (w_i D_i): only cotangents are weighted.
    return passes_lib.by_steps(lambda x, cotangent: total(
        x, _rows(weights, cotangent) * cotangent.astype(jnp.float32)),
                     read.is_stacked)(*values)

  norms = passes_lib.by_steps(squares, read.is_stacked)(*values)
  if read.is_stacked:
    norms = jnp.sum(norms, 0)
  return _Part(jnp.where(sound, norms, 0.0), values, weighted,
               int(read.is_stacked))


def _restored(part: _Part, read: _Read, leaf: Array) -> _Part:
  """Returns the part with its totals in the layout of the leaf."""

  def total(weights: Array, *values: Array) -> Array:
    gradient = part.total(weights, *values)
    if read.is_kept and isinstance(read.operation, Layer):
      gradient = passes_lib.by_steps(functools.partial(
          contractions.product_to_weight, read.operation), read.is_stacked)(
              gradient)
    # Nested loops slice one axis each.
    return read.origin.restore(gradient.reshape(read.origin.shape(leaf)), leaf)

  return part._replace(total=total)


def _lengths(site: Site, each: Pass,
             known: Mapping[int, _Read]) -> list[Array]:
  """Returns [b] norms of the factors of gradients that are not formed."""
  read = known.get(site.leaves[0])
  if read is None or read.is_kept:
    return []
  values = [*each.cotangents]
  if isinstance(read.operation, Layer):
    values += each.inputs
  return [_norms(value, len(site.lengths)) for value in values]


def _total(part: _Part, weights: Array, sound: Array) -> Array:
  """Returns the weighted sum of a leaf; unsound records contribute zero.

  Their values may be NaN, and 0 NaN is not 0, so they are replaced. On CPU that
  copy takes as long as the sum, so it is made only if some record is unsound.
  """

  def cleaned(sound: Array, *arrays: Array) -> Array:
    weights, *values = arrays
    return part.total(_only(sound, weights), *(
        _only(sound, each, part.axis) for each in values))

  arrays = weights, *part.values
  if jax.default_backend() != 'cpu':
    return cleaned(sound, *arrays)
  return jax.lax.cond(jnp.all(sound), lambda total, *_: total,
                      lambda total, *arrays: cleaned(*arrays),
                      part.total(*arrays), sound, *arrays)


def _norms(x: Array, axis: int = 0) -> Array:
  """Returns upper bounds [b] of the l2 norms of [b, ...], in float32.

  Squares of small entries may underflow, so the smallest normal number is added
  for each entry: a norm that is 0 by underflow could not be multiplied by a
  large one. `axis` is that of the records.
  """
  size = math.prod(x.shape) // max(1, x.shape[axis])

  def squares(x: Array) -> Array:
    flat = x.reshape((x.shape[0], math.prod(x.shape[1:]))).astype(jnp.float32)
    return jnp.einsum('bi,bi->b', flat, flat,
                      precision=jax.lax.Precision.HIGHEST)

  for _ in range(axis):
    squares = jax.vmap(squares)
  return jnp.sqrt(jnp.sum(squares(x), range(axis))
                  + floats.SMALLEST_NORMAL * size)


def _rows(values: Array, like: Array, axis: int = 0) -> Array:
  """Reshapes [b] to have as many axes as `like`, b at `axis`."""
  return values.reshape([-1 if i == axis else 1 for i in range(like.ndim)])


def _only(usable: Array, x: Array, axis: int = 0) -> Array:
  """Replaces the values of unusable records by zero."""
  return jnp.where(_rows(usable, x, axis), x, jnp.zeros([], x.dtype))
