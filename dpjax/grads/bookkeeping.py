"""Book-keeping: gradients of records at the price of an ordinary backward pass.

One forward pass keeps what enters each operation that reads parameters, one
backward pass gives the cotangents of what leaves it; gradients in parameters
are not asked for. Norms come from these by contractions, and so do the sums of
clipped gradients: no second pass, and for most layers no gradient of a record
at all. Source: Bu et al. 2023, for any JAX function and every convolution.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import logging
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import floats
from dpjax.grads import contractions
from dpjax.grads import precision
from dpjax.grads import tracing
from dpjax.grads.contractions import Layer, Table
from dpjax.grads.records import RecordGradients
from dpjax.grads.tracing import Origin, Program, Site
from dpjax.typing import Array, Batch, LossFn, Params

_LOGGER = logging.getLogger(__name__)

# Squares of what is beside norms above lose too much to underflow.
_LARGEST_NORM = 1e10


def record_gradients(apply: Callable[[Params, Array], Array], loss: LossFn,
                     params: Params, batch: Batch, kept: Array, *,
                     gram_is_cheaper: Callable[[Layer], bool] | None = None
                     ) -> RecordGradients:
  """Norms and weighted sums of the gradients of the records of a batch.

  What is differentiated is the function of one record, mapped over records: a
  layer that mixes them, such as batch normalisation, sees one at a time. A
  dense layer, convolution or embedding whose parameter is read once costs no
  gradient of a record, unless keeping it is cheapest. Gradients in biases,
  scales and anything else are formed for each record, by `vmap` of the one
  operation that reads them: right for any function, and slow for a large
  parameter, which the log then names.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    params: float arrays.
    batch: b records.
    kept: [b] bool; the others have gradients of zero.
    gram_is_cheaper: which layers of several sites have norms by Gram matrices;
      `contractions.gram_is_cheaper` when None. Results differ by rounding.
  """

  def record_loss(params, record):
    x, y = jax.tree.map(lambda leaf: leaf[None], record)
    return loss(apply(params, x), y)[0]

  shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape[1:], leaf.dtype), (batch.x, batch.y))
  program = tracing.trace(record_loss, params, shapes)
  known = _known_reads(program,
                       gram_is_cheaper or contractions.gram_is_cheaper)
  _say_what_is_formed(program, params, known)
  leaves, structure = jax.tree.flatten(params)
  losses, passes = _backward(program, leaves, batch, kept)
  formed = _formed_gradients(program, leaves, passes, known)
  lengths = [length for site, each in zip(program.sites, passes, strict=True)
             for length in _lengths(site, each, known)]
  sound = _sound(kept, formed, lengths)
  parts = [_unread(kept, leaf) for leaf in leaves]
  for number, gradient in formed.items():
    parts[number] = _kept_part(gradient, sound)
  for site, each in zip(program.sites, passes, strict=True):
    number = site.leaves[0]
    if number in known:
      part = (parts[number] if number in formed else
              _measured_part(known[number].operation, sound, each))
      parts[number] = _restored(part, known[number], leaves[number])
  usable = kept & sound & jnp.isfinite(losses)
  return RecordGradients(
      losses, usable,
      jax.tree.unflatten(structure, [part.squares for part in parts]),
      lambda weights: jax.tree.unflatten(structure, [
          _total(part, weight, sound) for part, weight in zip(
              parts, structure.flatten_up_to(weights), strict=True)]))


def _sound(kept: Array, formed: Mapping[int, Array],
           lengths: Sequence[Array]) -> Array:
  """[b] bool: whose gradients, and what they are made of, can be measured."""
  sound = jnp.ones(kept.shape, jnp.bool_)
  for gradient in formed.values():
    sound = sound & jnp.isfinite(_norms(gradient))
  for length in lengths:
    # Not what is NaN, either.
    sound = sound & (length < _LARGEST_NORM)
  return sound


class _Read(NamedTuple):
  """A parameter that one known operation reads.

  Attributes:
    origin: of what is read.
    operation: that reads it.
    is_kept: whether gradients of records are formed, though there are other
      ways.
  """
  origin: Origin
  operation: Layer | Table
  is_kept: bool


class _Pass(NamedTuple):
  """What came by a site: [b, ...] of each input and each cotangent."""
  inputs: Sequence[Array]
  cotangents: Sequence[Array]


class _Part(NamedTuple):
  """One leaf.

  Attributes:
    squares: [b] squared norms.
    values: [b, ...] what its sums are made of.
    total: (weights [b], *values) -> the sum by weights.
  """
  squares: Array
  values: tuple[Array, ...]
  total: Callable[..., Array]


def _known_reads(program: Program, gram_is_cheaper: Callable[[Layer], bool]
                 ) -> dict[int, _Read]:
  """The parameter leaves that need no gradient of a record, by number."""
  origins = dict(zip(program.boundary, program.origins, strict=True))
  found = {}
  for site in program.sites:
    operand = site.operands[0]
    origin = origins[site.equation.invars[operand]]
    if origin is None or len(site.operands) > 1 or _is_complex(site):
      continue
    operation = (contractions.layer(site.equation, operand)
                 or contractions.table(site.equation, operand))
    if operation is not None:
      found[origin.leaf] = _Read(
          origin, operation,
          isinstance(operation, Layer) and not _is_outer(operation)
          and not gram_is_cheaper(operation))
  return found


def _is_complex(site: Site) -> bool:
  """Whether a site reads or gives complex numbers, as of a Fourier transform.

  Contractions take products of real ones.
  """
  return any(jnp.issubdtype(var.aval.dtype, jnp.complexfloating)
             for var in (*site.equation.invars, *site.equation.outvars))


def _say_what_is_formed(program: Program, params: Params,
                        known: Mapping[int, _Read]) -> None:
  """Names the parameters that are slow, once for each model."""
  paths = [jax.tree_util.keystr(path) for path, _ in
           jax.tree_util.tree_leaves_with_path(params)]
  slow = {paths[leaf]: site.name for site in program.sites
          for leaf in site.leaves
          # Biases and scales are as small as what they are sums of.
          if leaf not in known and site.name not in tracing.ELEMENTWISE}
  if slow:
    _say(', '.join(f'{path} ({name})' for path, name in slow.items()))


@functools.lru_cache(maxsize=None)
def _say(names: str) -> None:
  _LOGGER.warning('gradients are formed for every record, as by vmap, in '
                  'parameters that are shared or not read by a dense layer, '
                  'convolution or embedding: %s', names)


def _backward(program: Program, leaves: Sequence[Array], batch: Batch,
              kept: Array) -> tuple[Array, list[_Pass]]:
  """(losses [b], what came by each site).

  Cotangents are gradients in zeros that are added to what leaves the sites:
  those in parameters are not asked for, and not computed.
  """
  at_sites = program.at_sites(leaves)
  record = jax.tree.leaves((batch.x, batch.y))

  def total_loss(taps):
    losses, inputs = jax.vmap(program.run, (None, 0, 0))(at_sites, record,
                                                         taps)
    return jnp.sum(jnp.where(kept, losses, 0.0)), (losses, inputs)

  zeros = [[None if tap is None else jnp.zeros((*kept.shape, *tap.shape),
                                               tap.dtype)
            for tap in site.taps()] for site in program.sites]
  cotangents, (losses, inputs) = jax.grad(total_loss, has_aux=True)(zeros)
  return losses, [
      _Pass(*precision.settled((read, [value for value in arrived
                                       if value is not None])))
      for read, arrived in zip(inputs, cotangents, strict=True)]


def _formed_gradients(program: Program, leaves: Sequence[Array],
                      passes: Sequence[_Pass],
                      known: Mapping[int, _Read]) -> dict[int, Array]:
  """[b, ...] gradients that are formed, by number of their leaves.

  Of leaves that are not known, and of those whose gradients are cheapest kept:
  these as products.
  """
  found = {}
  for site, each in zip(program.sites, passes, strict=True):
    if site.leaves[0] in known:
      read = known[site.leaves[0]]
      if read.is_kept:
        found[site.leaves[0]] = contractions.products(
            read.operation, *each.inputs, *each.cotangents)
      continue
    gradients = jax.vmap(functools.partial(_pull_back, program, site, leaves))(
        each.inputs, each.cotangents)
    for number, gradient in zip(site.leaves, gradients, strict=True):
      gradient = gradient.astype(jnp.float32)
      found[number] = (found[number] + gradient if number in found
                       else gradient)
  # What is measured is to be what is summed: a compiler might form it twice,
  # with different rounding.
  return {number: jax.lax.optimization_barrier(gradient)
          for number, gradient in found.items()}


def _is_outer(operation: Layer) -> bool:
  """Whether a record's gradient is one outer product."""
  return operation.num_sites == operation.sizes[0] == 1


def _pull_back(program: Program, site: Site, leaves: Sequence[Array],
               inputs: Sequence[Array],
               cotangents: Sequence[Array]) -> list[Array]:
  """Gradients of one record in the leaves that one site depends on."""
  if program.is_wide(site):
    leaves, inputs, cotangents = jax.tree.map(
        precision.widened, (list(leaves), list(inputs), list(cotangents)))

  def outputs(own):
    every = list(leaves)
    for number, leaf in zip(site.leaves, own, strict=True):
      every[number] = leaf
    return program.outputs(site, every, inputs)

  return jax.vjp(outputs, [leaves[i] for i in site.leaves])[1](
      list(cotangents))[0]


def _unread(kept: Array, leaf: Array) -> _Part:
  """Of a leaf that no record depends on."""
  return _Part(jnp.zeros(kept.shape, jnp.float32), (),
               lambda weights: jnp.zeros(leaf.shape, jnp.float32))


def _kept_part(gradients: Array, sound: Array) -> _Part:
  """Of gradients [b, ...] that were formed."""
  return _Part(jnp.where(sound, jnp.square(_norms(gradients)), 0.0),
               (gradients,), lambda weights, each: jnp.tensordot(
                   weights, each, 1, precision=jax.lax.Precision.HIGHEST))


def _measured_part(operation: Layer | Table, sound: Array,
                   each: _Pass) -> _Part:
  """Of gradients that are not formed; totals as the operation has them."""
  values = *each.inputs, *each.cotangents
  if isinstance(operation, Table):
    squares = contractions.table_squares(operation, *values)
    total = functools.partial(contractions.table_total, operation)
  elif _is_outer(operation):
    values = contractions.factors(operation, *values)
    squares = jnp.square(math.prod(map(_norms, values)))
    total = functools.partial(contractions.outer_total, operation)
  else:
    squares = contractions.gram_squares(operation, *values)
    total = operation.total
  return _Part(
      jnp.where(sound, squares, 0.0), values,
      lambda weights, x, cotangent: total(
          x, _rows(weights, cotangent) * cotangent.astype(jnp.float32)))


def _restored(part: _Part, read: _Read, leaf: Array) -> _Part:
  """The part with totals as the leaf is laid out."""

  def total(weights, *values):
    found = part.total(weights, *values)
    if read.is_kept:
      found = contractions.product_to_weight(read.operation, found)
    return read.origin.restore(found, leaf)

  return part._replace(total=total)


def _lengths(site: Site, each: _Pass,
             known: Mapping[int, _Read]) -> list[Array]:
  """[b] norms of what products are made of that are not formed."""
  read = known.get(site.leaves[0])
  if read is None or read.is_kept:
    return []
  values = [*each.cotangents]
  if isinstance(read.operation, Layer):
    values += each.inputs
  return [_norms(value) for value in values]


def _total(part: _Part, weights: Array, sound: Array) -> Array:
  """The sum of a leaf; what values of unsound records are does not matter.

  On CPU, where to copy activations takes as long as to use them, values are
  cleaned only if there is something to clean.
  """

  def cleaned(sound, *arrays):
    return part.total(*(_only(sound, each) for each in arrays))

  arrays = weights, *part.values
  if jax.default_backend() != 'cpu':
    return cleaned(sound, *arrays)
  return jax.lax.cond(jnp.all(sound), lambda found, *_: found,
                      lambda found, *arrays: cleaned(*arrays),
                      part.total(*arrays), sound, *arrays)


def _norms(x: Array) -> Array:
  """[b] Euclidean norms of [b, ...], in float32; never too small by underflow.

  A norm that is multiplied by a large one must not be 0 for small entries.
  """
  size = math.prod(x.shape[1:])
  flat = x.reshape((x.shape[0], size)).astype(jnp.float32)
  return jnp.sqrt(jnp.einsum('bi,bi->b', flat, flat,
                             precision=jax.lax.Precision.HIGHEST)
                  + floats.SMALLEST_NORMAL * size)


def _rows(values: Array, like: Array) -> Array:
  return values.reshape((-1,) + (1,) * (like.ndim - 1))


def _only(usable: Array, x: Array) -> Array:
  return jnp.where(_rows(usable, x), x, jnp.zeros([], x.dtype))
