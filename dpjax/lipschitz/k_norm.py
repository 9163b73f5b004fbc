"""Perceptrons whose gradients are bounded in the l1 or l_infinity norm."""

import math

import jax
import jax.numpy as jnp

from dpjax.grads import inputs
from dpjax.grads import isolation
from dpjax.grads import per_example
from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.bounder import WeightConstraint
from dpjax.lipschitz import induced
from dpjax.lipschitz.layers import Dense
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Scalar
from dpjax.lipschitz.node import UnknownConstant
from dpjax.lipschitz.pointwise import Fixed
from dpjax.typing import Array, Batch, Params, PyTree

_ROUNDING_MARGIN = 1 + 1e-5


def certified(network: Network, loss: LipschitzLoss, *,
              order: float) -> GradientBounder:
  """Returns perceptron gradient sums with *vector* p-norm sensitivity. LDP-03.

  The gradient of a dense layer is the outer product of (x, 1) and the
  cotangent delta, so its p-norm over all entries is ||(x, 1)||_p ||delta||_p,
  and

    ||delta_k||_p <= ||W_{k+1}||_{p->p} ||delta_{k+1}||_p

  with the largest row sum of absolute values of a [n_in, n_out] kernel for
  p = inf, and the largest column sum for p = 1. Noise of density proportional
  to exp(-epsilon ||b||_p / D_p) needs this sensitivity D_p. That noise grows
  with the dimension, Gaussian noise with its root, so use it for tiny models
  only. Gaussian noise does not need it for any p (NORM-06). Follows Barczewski
  (2025, section 5.2.3).

  Guarantee: a record's gradient in layer k has p-norm (not l2 norm) at most
  `l2_sensitivity(certificate)[k]`; the name is that of `GradientBounder`.

  Args:
    network: a chain of dense layers and elementwise activations, in which the
      input of every layer has a public l2 bound.
    loss: loss with a known Lipschitz constant.
    order: p, 1 or inf.

  Raises:
    UnknownConstant: a layer is not covered, or its input has no public bound.
  """
  induced.check_order(order)
  steps = _steps(network)

  def l2_sensitivity(certificate: PyTree) -> PyTree:
    classes = network.root.output_shape(network.input_shape)[0]
    cotangent, bounds = _convert(loss.lipschitz, classes, order), {}
    for node, radius, size in reversed(steps):
      if isinstance(node, Dense):
        # The p-norm of (x, 1), or of x without a bias.
        input_bound = _convert(radius, size, order)
        factor = (max(input_bound, float(node.use_bias)) if order == math.inf
                  else (input_bound**order + node.use_bias)**(1 / order))
        bounds[node.name] = cotangent * factor * _ROUNDING_MARGIN
        cotangent = cotangent * certificate[node.name]
      else:
        cotangent = cotangent * node.lipschitz((size,))
    return jax.tree.map(lambda bound: jnp.asarray(bound, jnp.float32), bounds)

  check = isolation.checker(network.apply, loss.values)

  def sums(params: Params, batch: Batch, mask: Array) -> BoundedSums:
    params, batch = inputs.as_parameters(params), inputs.as_batch(batch)
    check(params, batch)
    with jax.default_matmul_precision('highest'):
      return per_example.plain_sums(network.apply, loss.values, params, batch,
                                    mask)

  return GradientBounder(sums, l2_sensitivity)


def clip_weights(network: Network, *, weight_norm: float,
                 order: float) -> WeightConstraint:
  """Returns the constraint that scales each kernel to ||W||_{p->p} <= norm.

  Args:
    network: as in `certified`.
    weight_norm: public limit of each kernel's operator norm.
    order: p, 1 or inf; these norms are exact and cheap.
  """
  names = [node.name for node, _, _ in _steps(network)
           if isinstance(node, Dense)]

  def constrain(params: Params) -> tuple[Params, PyTree]:
    constrained, certificate = dict(params), {}
    for name in names:
      kernel = params[name]['kernel']
      bound = induced.induced_norm(kernel, order, order)
      # The floor avoids dividing by the norm of a zero kernel.
      scale = jnp.minimum(1.0, weight_norm / jnp.maximum(bound, 1e-30))
      constrained[name] = {**params[name], 'kernel': kernel * scale}
      # The floor keeps the bounds of all earlier layers above zero.
      certificate[name] = jnp.maximum(bound * scale * _ROUNDING_MARGIN,
                                      1e-6 * weight_norm)
    return constrained, certificate

  return WeightConstraint(constrain)


def _steps(network: Network) -> list[tuple[Dense | Fixed, Scalar, int]]:
  """Returns (node, l2 bound of its input, input size) for each node.

  Raises UnknownConstant for a network that `certified` does not cover.
  """
  known = network.input_radius
  radius: Scalar = math.inf if known is None else known
  steps: list[tuple[Dense | Fixed, Scalar, int]] = []
  # After a dense layer the bound is unknown, until an activation bounds it.
  for node, shape in zip(network.root.nodes,
                         network.root.shapes(network.input_shape)):
    if not (isinstance(node, Dense)
            or isinstance(node, Fixed) and node.elementwise):
      raise UnknownConstant(f'layer {node.name!r} has no constant in l1 or '
                            'l_infinity: use dense layers and elementwise '
                            'activations only')
    if isinstance(node, Dense) and radius == math.inf:
      raise UnknownConstant('no public radius is known for the input of layer '
                            f'{node.name!r}: set input_radius, or a bounded '
                            'activation before it')
    steps.append((node, radius, shape[0]))
    radius = (math.inf if isinstance(node, Dense)
              else node.ceiling(radius, shape))
  return steps


def _convert(l2_bound: Scalar, size: int, order: float) -> Scalar:
  """Converts a bound of the l2 norm of [size] numbers to one of the p-norm."""
  return l2_bound * (size**0.5 if order == 1 else 1.0)
