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
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.grads import contractions
from dpjax.grads import tracing
from dpjax.grads.contractions import Layer, Table
from dpjax.grads.records import RecordGradients
from dpjax.grads.tracing import Origin, Program, Site
from dpjax.typing import Array, Batch, LossFn, Params

_LOGGER = logging.getLogger(__name__)

# Squares of what is beside norms above lose too much to underflow.
_LARGEST_NORM = 1e10

# What reads biases and scales; their gradients are as small as they are.
_ELEMENTWISE = ('add', 'add_any', 'div', 'mul', 'neg', 'select_n', 'sub')


def record_gradients(apply: Callable[[Params, Array], Array], loss: LossFn,
                     params: Params, batch: Batch,
                     kept: Array) -> RecordGradients:
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
  """

  def record_loss(params, record):
    x, y = jax.tree.map(lambda leaf: leaf[None], record)
    return loss(apply(params, x), y)[0]

  shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape[1:], leaf.dtype), (batch.x, batch.y))
  program = tracing.trace(record_loss, params, shapes)
  known = _known_reads(program)
  _say_what_is_formed(program, params, known)
  leaves, structure = jax.tree.flatten(params)
  losses, passes = _backward(program, leaves, batch, kept)
  sound = jnp.ones(kept.shape, jnp.bool_)
  for site, each in zip(program.sites, passes, strict=True):
    # Not what is NaN, either.
    for length in _lengths(site, each, known):
      sound = sound & (length < _LARGEST_NORM)
  formed = _formed_gradients(program, leaves, passes, known)
  for gradient in formed.values():
    sound = sound & jnp.isfinite(_norms(gradient))
  parts = [_unread(kept, leaf) for leaf in leaves]
  for number, gradient in formed.items():
    parts[number] = _kept_part(_on_sound(sound, lambda value: value, gradient))
  for site, each in zip(program.sites, passes, strict=True):
    if site.leaves[0] in known:
      read = known[site.leaves[0]]
      parts[read.origin.leaf] = _read_part(
          read, leaves[read.origin.leaf], sound, each)
  usable = kept & sound & jnp.isfinite(losses)
  return RecordGradients(
      losses, usable,
      jax.tree.unflatten(structure, [part.squares for part in parts]),
      lambda weights: jax.tree.unflatten(structure, [
          part.total(weight) for part, weight in zip(
              parts, structure.flatten_up_to(weights), strict=True)]))


class _Read(NamedTuple):
  """A parameter that one known operation reads."""
  origin: Origin
  operation: Layer | Table


class _Pass(NamedTuple):
  """What came by a site: [b, ...] of each input and each cotangent."""
  inputs: Sequence[Array]
  cotangents: Sequence[Array]


class _Part(NamedTuple):
  """One leaf: squared norms [b], and sums by weights [b]."""
  squares: Array
  total: Callable[[Array], Array]


def _known_reads(program: Program) -> dict[int, _Read]:
  """The parameter leaves that need no gradient of a record, by number."""
  origins = dict(zip(program.boundary, program.origins, strict=True))
  found = {}
  for site in program.sites:
    operand = site.operands[0]
    origin = origins[site.equation.invars[operand]]
    if origin is None or len(site.operands) > 1:
      continue
    operation = (contractions.layer(site.equation, operand)
                 or contractions.table(site.equation, operand))
    if operation is not None:
      found[origin.leaf] = _Read(origin, operation)
  return found


def _say_what_is_formed(program: Program, params: Params,
                        known: Mapping[int, _Read]) -> None:
  """Names the parameters that are slow, once for each model."""
  paths = [jax.tree_util.keystr(path) for path, _ in
           jax.tree_util.tree_leaves_with_path(params)]
  slow = {paths[leaf]: site.name for site in program.sites
          for leaf in site.leaves
          if leaf not in known and site.name not in _ELEMENTWISE}
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
      _Pass(read, [value for value in arrived if value is not None])
      for read, arrived in zip(inputs, cotangents, strict=True)]


def _formed_gradients(program: Program, leaves: Sequence[Array],
                      passes: Sequence[_Pass],
                      known: Mapping[int, _Read]) -> dict[int, Array]:
  """[b, ...] gradients in the leaves that are not known, by number."""
  found = {}
  for site, each in zip(program.sites, passes, strict=True):
    if site.leaves[0] in known:
      continue
    gradients = jax.vmap(functools.partial(_pull_back, program, site, leaves))(
        each.inputs, each.cotangents)
    for number, gradient in zip(site.leaves, gradients, strict=True):
      gradient = gradient.astype(jnp.float32)
      found[number] = (found[number] + gradient if number in found
                       else gradient)
  return found


def _pull_back(program: Program, site: Site, leaves: Sequence[Array],
               inputs: Sequence[Array],
               cotangents: Sequence[Array]) -> list[Array]:
  """Gradients of one record in the leaves that one site depends on."""

  def outputs(own):
    every = list(leaves)
    for number, leaf in zip(site.leaves, own, strict=True):
      every[number] = leaf
    values = dict(zip(program.boundary, program.at_sites(every), strict=True))
    return program.outputs(site, values, inputs)

  return jax.vjp(outputs, [leaves[i] for i in site.leaves])[1](
      list(cotangents))[0]


def _unread(kept: Array, leaf: Array) -> _Part:
  """Of a leaf that no record depends on."""
  return _Part(jnp.zeros(kept.shape, jnp.float32),
               lambda weights: jnp.zeros(leaf.shape, jnp.float32))


def _kept_part(gradients: Array) -> _Part:
  """Of gradients [b, ...]: what is measured is what is summed.

  Without the barrier a compiler may form them twice, with different rounding.
  """
  gradients = jax.lax.optimization_barrier(gradients)
  return _Part(jnp.square(_norms(gradients)),
               lambda weights: jnp.tensordot(weights, gradients, 1))


def _read_part(read: _Read, leaf: Array, sound: Array, each: _Pass) -> _Part:
  """Of a leaf whose one operation is known."""
  operation, (x,), (cotangent,) = read.operation, each.inputs, each.cotangents
  on_sound = functools.partial(_on_sound, sound)
  if isinstance(operation, Table):
    squares = on_sound(functools.partial(
        contractions.table_squares, operation), x, cotangent)
    total = functools.partial(contractions.table_total, operation)
  elif operation.num_sites == operation.sizes[0] == 1:
    squares = jnp.where(sound, jnp.square(_norms(x) * _norms(cotangent)), 0.0)
    total = operation.total
  elif contractions.gram_is_cheaper(operation):
    squares = on_sound(functools.partial(
        contractions.gram_squares, operation), x, cotangent)
    total = operation.total
  else:
    part = _kept_part(on_sound(functools.partial(
        contractions.products, operation), x, cotangent))
    return part._replace(total=lambda weights: read.origin.restore(
        operation.to_weight(part.total(weights)), leaf))

  def weighted(weights):
    return on_sound(lambda x, cotangent: total(
        x, _rows(weights, cotangent) * cotangent.astype(jnp.float32)),
                    x, cotangent)

  return _Part(squares, lambda weights: read.origin.restore(weighted(weights),
                                                            leaf))


def _lengths(site: Site, each: _Pass,
             known: Mapping[int, _Read]) -> list[Array]:
  """[b] norms of what a site's gradients are made of."""
  values = list(each.cotangents)
  if site.leaves[0] in known and isinstance(known[site.leaves[0]].operation,
                                            Layer):
    values += each.inputs
  return [_norms(value) for value in values]


def _on_sound(sound: Array, function: Callable[..., Array],
              *values: Array) -> Array:
  """`function` of values [b, ...] in which other records are zero.

  On CPU, where to copy activations takes as long as to use them, values are
  cleaned only if there is something to clean.
  """
  clean = lambda *values: function(*(_only(sound, each) for each in values))
  if jax.default_backend() != 'cpu':
    return clean(*values)
  return jax.lax.cond(jnp.all(sound), lambda found, *values: found,
                      lambda found, *values: clean(*values),
                      function(*values), *values)


def _norms(x: Array) -> Array:
  """[b] Euclidean norms of [b, ...], in float32."""
  flat = x.reshape((x.shape[0], -1)).astype(jnp.float32)
  return jnp.sqrt(jnp.einsum('bi,bi->b', flat, flat,
                             precision=jax.lax.Precision.HIGHEST))


def _rows(values: Array, like: Array) -> Array:
  return values.reshape((-1,) + (1,) * (like.ndim - 1))


def _only(usable: Array, x: Array) -> Array:
  return jnp.where(_rows(usable, x), x, jnp.zeros([], x.dtype))
