"""Flat clipping without a gradient of every record: ghost norms, book-keeping.

One forward and one backward pass, to what leaves the parameter layers and no
further, give for each record what entered a layer, x, and the cotangent delta
of what left it. The norm of the record's gradient in all parameters follows
from these, and so does the sum of the clipped gradients, by one contraction
for each layer:

  dense        rank one: ||(x, 1)|| ||delta||, sum_i w_i delta_i x_i^T
  affine       [b, c] products, which are gradients already
  convolution  the smaller of gradients of every kernel, kept for the sum, and
               Gram matrices of sites, <U U^T, delta delta^T>

A dense kernel, where most parameters are, is never formed for a record.
"""

from collections.abc import Callable, Mapping
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.grads import ball
from dpjax.grads import clipping
from dpjax.grads import per_example
from dpjax.grads.bounder import BoundedSums, GradientBounder
from dpjax.lipschitz import convolution
from dpjax.lipschitz import layers
from dpjax.lipschitz import primitives
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Context, Node, Path, Shape
from dpjax.typing import Array, Batch, Params, PyTree

# Squares of what is beside norms above lose too much to underflow.
_LARGEST_NORM = 1e10
_UNIT_ROUNDOFF = 2.0**-24


class _Outlet(NamedTuple):
  """A parameter layer, and the shape of what leaves it for one record."""
  layer: Node
  shape: Shape


class _Seen(NamedTuple):
  """What a layer saw: inputs and cotangents [b, ...], their norms [b]."""
  x: Array
  cotangent: Array
  input_norms: Array
  cotangent_norms: Array


class _Part(NamedTuple):
  """A layer's gradients: norms [b], and weights [b] -> their weighted sum."""
  norms: Array
  total: Callable[[Array], Params]


def flat_clipped(network: Network, loss: LipschitzLoss, *,
                 clip_norm: float) -> GradientBounder:
  """DP-SGD's bounder with one clip norm, by one pass over the batch. DP-16.

  The sums of `per_example.clipped` up to rounding. Guarantee: one record
  contributes at most `clip_norm` in l2 to all parameters together, whatever
  the network and the record. A record whose activations or cotangents have a
  norm above 1e10, which float32 cannot tell, contributes nothing and is
  counted as not finite. Norms of sums over pixels, in which a gradient may
  cancel, are rounded up by all that may have been lost: a record that is
  clipped ends up to about 1e-3 shorter than it could. Source: ghost norms, Li
  et al. 2022; both kinds of norms and the kept gradients, Bu et al. 2023; for
  the runs of EXP-F5.3.2.

  Args:
    network: of dense layers, convolutions and affine layers, and anything
      without parameters; names its layers.
    loss: any; its Lipschitz constant is not used.
    clip_norm: C.

  Raises:
    ValueError: a layer whose gradients are not known here; it is named.
  """
  errors.check_positive('clip_norm', clip_norm)
  outlets = _outlets(network)

  def sums(params, batch, mask):
    # Accelerators round the inputs of products to less than float32.
    with jax.default_matmul_precision('highest'):
      return _sums(network, loss, outlets, clip_norm, params, batch, mask)

  return GradientBounder(sums, lambda certificate: jnp.float32(clip_norm))


def _outlets(network: Network) -> Mapping[Path, _Outlet]:
  """All parameter layers by path; refuses those that are not known here."""
  found = {}

  def tap(path, layer, x, out):
    del x
    if type(layer) not in _PARTS:
      raise ValueError(f'the gradients of layer {"/".join(path)!r} are not '
                       'known record by record; use dp_sgd')
    found[path] = _Outlet(layer, out.shape[1:])
    return out

  params = jax.eval_shape(network.init, jax.random.key(0))
  x = jax.ShapeDtypeStruct((1, *network.input_shape), jnp.float32)
  jax.eval_shape(
      lambda p, x: network.apply(p, x, Context(tap=tap)), params, x)
  certified = jax.tree_util.tree_flatten_with_path(network.fill(1.0))[0]
  for keys, _ in certified:
    path = tuple(key.key for key in keys)
    if path not in found:
      raise ValueError(f'layer {"/".join(path)!r} does not call the tap of '
                       'its context; use dp_sgd')
  return found


def _sums(network: Network, loss: LipschitzLoss,
          outlets: Mapping[Path, _Outlet], clip_norm: float, params: Params,
          batch: Batch, mask: Array) -> BoundedSums:
  """Norms of whole gradients, their weights, weighted sums of every layer."""
  x, finite = per_example.clean_features(batch.x, mask)
  kept = finite & mask
  losses, inputs, cotangents = _backward(
      network, loss, outlets, params, batch._replace(x=x), kept)
  usable = kept & jnp.isfinite(losses)
  lengths = {path: (_norms(inputs[path]), _norms(cotangents[path]))
             for path in outlets}
  for pair in lengths.values():
    # Not what is NaN, either.
    usable = usable & (jnp.maximum(*pair) < _LARGEST_NORM)
  clean = functools.partial(_only, usable)
  parts = {}
  for path, outlet in outlets.items():
    own = functools.reduce(lambda values, name: values[name], path, params)
    parts[path] = _PARTS[type(outlet.layer)](outlet.layer, own, _Seen(
        clean(inputs[path]), clean(cotangents[path]),
        *map(clean, lengths[path])))
  norms = jnp.sqrt(sum(jnp.square(part.norms) for part in parts.values()))
  usable = usable & jnp.isfinite(norms)
  weights = jnp.where(
      usable, clipping.flat_weights(norms, clip_norm=clip_norm), 0.0)
  total = _nest({path: part.total(weights) for path, part in parts.items()})
  return BoundedSums(total, jnp.sum(jnp.where(usable, losses, 0.0)),
                     jnp.sum(mask & ~usable))


def _backward(network: Network, loss: LipschitzLoss,
              outlets: Mapping[Path, _Outlet], params: Params, batch: Batch,
              kept: Array) -> tuple[Array, PyTree, PyTree]:
  """(losses [b], what entered the layers, cotangents of what left), by path.

  Cotangents are gradients in zeros that are added there: those in parameters
  are not asked for, and not computed.
  """
  values = batch.x.values if isinstance(batch.x, ball.BallRecords) else batch.x
  if values.shape[1:] != network.input_shape:
    raise ValueError(f'records must have shape {list(network.input_shape)}, '
                     f'got {list(values.shape[1:])}; views of a record are '
                     'not bounded together here')

  def total_loss(zeros):
    inputs = {}

    def tap(path, layer, x, out):
      del layer
      inputs[path] = x
      return out + zeros[path]

    losses = loss.values(network.apply(params, batch.x, Context(tap=tap)),
                         batch.y)
    return jnp.sum(jnp.where(kept, losses, 0.0)), (losses, inputs)

  zeros = {path: jnp.zeros((kept.shape[0], *outlet.shape), jnp.float32)
           for path, outlet in outlets.items()}
  cotangents, (losses, inputs) = jax.grad(total_loss, has_aux=True)(zeros)
  return losses, inputs, cotangents


def _dense(layer: layers.Dense, params: Params, seen: _Seen) -> _Part:
  """Rank one: the norm is exact."""
  del params
  inputs = jnp.sqrt(jnp.square(seen.input_norms) + float(layer.use_bias))

  def total(weights):
    rows = (seen.cotangent * weights[:, None]).T
    found = {'kernel': (rows @ seen.x).T}
    return found | (
        {'bias': seen.cotangent.T @ weights} if layer.use_bias else {})

  return _Part(inputs * seen.cotangent_norms, total)


def _conv(layer: layers.Conv, params: Params, seen: _Seen) -> _Part:
  """Gradients, where they are no larger than Gram matrices of sites."""
  geometry = layer.geometry(seen.x.shape[1:])
  kernel, num_sites = params['kernel'], layer.num_sites(seen.x.shape[1:])
  if not primitives.gram_is_smaller(kernel.shape, num_sites):
    gradients = {'kernel': convolution.kernel_gradients(
        seen.x, seen.cotangent, layer.kernel_size, geometry)}
    if not layer.use_bias:
      return _kept(gradients, 0.0)
    gradients['bias'] = jnp.einsum('bhwc->bc', seen.cotangent)
    return _kept(gradients, _slack(num_sites, num_sites**0.5, seen))
  factors = jnp.sqrt(
      convolution.multiplicity(layer.kernel_size, layer.strides)
      * jnp.square(seen.input_norms) + float(num_sites))
  norms = primitives.conv_gradient_norms(
      seen.x, kernel, seen.cotangent, factors * seen.cotangent_norms, geometry,
      layer.use_bias)
  pull = jax.vjp(lambda p: layer.apply(p, seen.x, Context()), params)[1]
  return _Part(norms, lambda weights: pull(
      seen.cotangent * weights[:, None, None, None])[0])


def _affine(layer: layers.Affine, params: Params, seen: _Seen) -> _Part:
  """Gradients, two numbers for each channel."""
  del layer, params
  num_sites = math.prod(seen.x.shape[1:3])
  reach = jnp.sqrt(jnp.square(seen.input_norms) + float(num_sites))
  return _kept({
      'kernel': jnp.einsum('bhwc,bhwc->bc', seen.x, seen.cotangent),
      'bias': jnp.einsum('bhwc->bc', seen.cotangent)
  }, _slack(num_sites, reach, seen))


def _kept(gradients: Params, slack: Array | float) -> _Part:
  """Of gradients [b, ...] that were formed."""
  norms = jnp.sqrt(jax.vmap(tree.squared_norm)(gradients)) + slack
  return _Part(norms, lambda weights: jax.tree.map(
      lambda leaf: jnp.tensordot(weights, leaf, 1), gradients))


def _slack(num_sites: int, reach: Array | float, seen: _Seen) -> Array:
  """How far two sums over sites of one gradient can be apart, [b].

  A compiler may sum twice, in different orders, for the norm and for the
  release. Each is off by n 2^-24 of the sum of its absolute values, which is
  at most `reach` times the norm of the cotangent.
  """
  return 2 * num_sites * _UNIT_ROUNDOFF * reach * seen.cotangent_norms


_PARTS = {layers.Dense: _dense, layers.Conv: _conv, layers.Affine: _affine}


def _norms(x: Array) -> Array:
  flat = x.reshape((x.shape[0], -1))
  return jnp.sqrt(jnp.einsum('bi,bi->b', flat, flat))


def _only(usable: Array, x: Array) -> Array:
  return jnp.where(usable.reshape((-1,) + (1,) * (x.ndim - 1)), x, 0.0)


def _nest(values: Mapping[Path, Params]) -> Params:
  """Nested dicts from values by path."""
  found = {}
  for path, value in values.items():
    inner = found
    for name in path[:-1]:
      inner = inner.setdefault(name, {})
    inner[path[-1]] = value
  return found
