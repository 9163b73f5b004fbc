"""Linear operations whose parameter gradients take a weight per record.

The forward pass is the ordinary operation. With a `WeightRule`, the backward
pass returns the exact cotangent of the input, and multiplies each record's
parameter gradient by the weight that the rule gives it. Items LDP-04, LDP-09,
NET-12.
"""

from collections.abc import Callable
import functools
import math

import jax
import jax.numpy as jnp

from dpjax import floats
from dpjax.lipschitz import convolution
from dpjax.lipschitz.rules import RecordNorms
from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array

_HIGHEST = jax.lax.Precision.HIGHEST
_UNIT_ROUNDOFF = 2.0**-24
# For records with larger norms, too many squares may underflow.
_LARGEST_NORM = 1e10

# Input, kernel and bias, kept for the backward pass.
_Residuals = tuple[Array, Array, Array | None]


def dense(x: Array, kernel: Array, bias: Array | None,
          rule: WeightRule | None = None) -> Array:
  """Returns x W + b, with optional per-record weights of the gradient. NET-01.

  The gradient in (W, b) of one record is the outer product of (x, 1) and the
  cotangent, of norm sqrt(||x||^2 + 1) ||delta||. Barczewski (2025, equation
  5.2.3).

  Args:
    x: [b, n_in].
    kernel: W, [n_in, n_out].
    bias: [n_out] or None.
    rule: weight rule of the gradient; None for the plain one.

  Returns:
    [b, n_out].
  """
  if rule is not None:
    return _weighted_dense(x, kernel, bias, rule)
  product = x @ kernel
  return product if bias is None else product + bias[None]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _weighted_dense(x: Array, kernel: Array, bias: Array | None,
                    rule: WeightRule) -> Array:
  """Returns `dense`, whose gradients the rule weights."""
  del rule
  return dense(x, kernel, bias)


def _dense_forward(x: Array, kernel: Array, bias: Array | None,
                   rule: WeightRule) -> tuple[Array, _Residuals]:
  del rule
  return dense(x, kernel, bias), (x, kernel, bias)


def _dense_backward(rule: WeightRule, residuals: _Residuals, cotangent: Array
                    ) -> tuple[Array, Array, Array | None]:
  x, kernel, bias = residuals
  backward = cotangent @ kernel.T
  factors = lambda squares: jnp.sqrt(squares + (0 if bias is None else 1))
  # The gradient is linear in x, so weighting x weights it; the bias, which does
  # not read x, gets the weights themselves.
  x, cotangent, weights = _weigh(rule, x, cotangent, factors, None)
  rows = cotangent.T
  return backward, (rows @ x).T, None if bias is None else rows @ weights


_weighted_dense.defvjp(_dense_forward, _dense_backward)


def conv(x: Array, kernel: Array, bias: Array | None,
         shape: convolution.ConvShape,
         rule: WeightRule | None = None) -> Array:
  """Returns the cross-correlation plus a bias per channel. NET-02.

  The gradient of one record has norm at most
  sqrt(m ||x||^2 + h_out w_out) ||delta||, with m the largest number of windows
  that contain a pixel. Barczewski (2025, equations 5.2.4 to 5.2.6).

  Args:
    x: [b, h, w, c_in].
    kernel: [kh, kw, c_in, c_out].
    bias: [c_out] or None.
    shape: size of x, strides and padding.
    rule: weight rule of the gradient; None for the plain one.

  Returns:
    [b, h_out, w_out, c_out].
  """
  if rule is not None:
    return _weighted_conv(x, kernel, bias, shape, rule)
  product = convolution.convolve(x, kernel, shape)
  return product if bias is None else product + bias[None, None, None]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _weighted_conv(x: Array, kernel: Array, bias: Array | None,
                   shape: convolution.ConvShape, rule: WeightRule) -> Array:
  """Returns `conv`, whose gradients the rule weights."""
  del rule
  return conv(x, kernel, bias, shape)


def _conv_forward(x: Array, kernel: Array, bias: Array | None,
                  shape: convolution.ConvShape,
                  rule: WeightRule) -> tuple[Array, _Residuals]:
  del rule
  return conv(x, kernel, bias, shape), (x, kernel, bias)


def _conv_backward(shape: convolution.ConvShape, rule: WeightRule,
                   residuals: _Residuals, cotangent: Array
                   ) -> tuple[Array, Array, Array | None]:
  x, kernel, bias = residuals
  apply = lambda x, kernel: convolution.convolve(x, kernel, shape)
  backward, = jax.vjp(lambda x: apply(x, kernel), x)[1](cotangent)
  sites = 0 if bias is None else math.prod(cotangent.shape[1:3])
  multiplicity = convolution.multiplicity(kernel.shape[:2], shape.strides)
  x, cotangent, weights = _weigh(
      rule, x, cotangent,
      lambda squares: jnp.sqrt(multiplicity * squares + sites),
      lambda x, cotangent, ceilings: conv_gradient_norms(
          x, kernel, cotangent, ceilings, shape, bias is not None))
  kernel_gradient, = jax.vjp(lambda kernel: apply(x, kernel),
                             kernel)[1](cotangent)
  bias_gradient = None if bias is None else jnp.einsum(
      'bhwc,b->c', cotangent, weights)
  return backward, kernel_gradient, bias_gradient


_weighted_conv.defvjp(_conv_forward, _conv_backward)


def gram_is_smaller(kernel_shape: tuple[int, ...], num_sites: int) -> bool:
  """Returns whether two Gram matrices of sites are smaller than a kernel."""
  return 2 * num_sites**2 < math.prod(kernel_shape)


def conv_gradient_norms(x: Array, kernel: Array, cotangent: Array,
                        ceilings: Array, shape: convolution.ConvShape,
                        has_bias: bool) -> Array:
  """Returns upper bounds [b] of each record's parameter gradient norm.

  With U the windows [sites, k] and D the cotangents [sites, c], the squared
  norm is that of U^T D, or the inner product of U U^T and D D^T, whichever
  needs smaller arrays. Both sums, and the gradient itself, may cancel down to
  rounding errors, which are at most n 2^-24 of `ceilings` for n terms. These
  amounts are added, so the result stays an upper bound.

  Args:
    x: [b, h, w, c_in].
    kernel: array of the shape of the gradients.
    cotangent: [b, h_out, w_out, c_out].
    ceilings: [b], upper bounds of ||U|| ||D|| in Frobenius norms.
    shape: geometry of the convolution.
    has_bias: whether to include the gradient in a bias.
  """
  rows = cotangent.reshape((cotangent.shape[0], -1, cotangent.shape[-1]))
  sites = rows.shape[1]
  if gram_is_smaller(kernel.shape, sites):
    windows = convolution.windows(x, kernel.shape[:2], shape)
    first = jnp.einsum('bsk,btk->bst', windows, windows, precision=_HIGHEST)
    second = jnp.einsum('bsc,btc->bst', rows, rows, precision=_HIGHEST)
    squares = jnp.einsum('bst,bst->b', first, second, precision=_HIGHEST)
    # Numbers of terms of the three sums, each of which rounds.
    terms = windows.shape[-1] + rows.shape[-1] + sites**2
    squares = (jnp.maximum(squares, 0.0)
               + terms * _UNIT_ROUNDOFF * jnp.square(ceilings))
  else:
    products = convolution.kernel_gradients(x, cotangent, kernel.shape[:2],
                                            shape)
    squares = _squared_norms(products)
  if has_bias:
    sums = jnp.einsum('bsc->bc', rows)
    squares = squares + jnp.einsum('bc,bc->b', sums, sums, precision=_HIGHEST)
  return jnp.sqrt(squares) + 2 * sites * _UNIT_ROUNDOFF * ceilings


def scale_shift(x: Array, scale: Array, shift: Array,
                rule: WeightRule | None = None) -> Array:
  """Returns gamma x + beta for each channel. NET-07.

  The gradient of one record has norm at most
  sqrt(max_c ||x_c||^2 + h w) ||delta||.

  Args:
    x: [b, h, w, c].
    scale: gamma, [c].
    shift: beta, [c].
    rule: weight rule of the gradient; None for the plain one.
  """
  if rule is not None:
    return _weighted_scale_shift(x, scale, shift, rule)
  return x * scale[None, None, None] + shift[None, None, None]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _weighted_scale_shift(x: Array, scale: Array, shift: Array,
                          rule: WeightRule) -> Array:
  """Returns `scale_shift`, whose gradients the rule weights."""
  del rule
  return scale_shift(x, scale, shift)


def _scale_shift_forward(x: Array, scale: Array, shift: Array, rule: WeightRule
                         ) -> tuple[Array, tuple[Array, Array]]:
  del rule
  return scale_shift(x, scale, shift), (x, scale)


def _scale_shift_backward(rule: WeightRule, residuals: tuple[Array, Array],
                          cotangent: Array) -> tuple[Array, Array, Array]:
  x, scale = residuals
  backward = cotangent * scale[None, None, None]
  largest = jnp.max(jnp.einsum('bhwc,bhwc->bc', x, x, precision=_HIGHEST), 1)
  sites = math.prod(x.shape[1:3])

  def norms(x: Array, cotangent: Array, ceilings: Array) -> Array:
    scale_gradients = jnp.einsum('bhwc,bhwc->bc', x, cotangent,
                                 precision=_HIGHEST)
    shift_gradients = jnp.einsum('bhwc->bc', cotangent)
    squares = _squared_norms(scale_gradients) + _squared_norms(shift_gradients)
    return jnp.sqrt(squares) + 2 * sites * _UNIT_ROUNDOFF * ceilings

  x, cotangent, weights = _weigh(
      rule, x, cotangent, lambda squares: jnp.sqrt(largest + sites), norms)
  return (backward, jnp.einsum('bhwc,bhwc->c', x, cotangent),
          jnp.einsum('bhwc,b->c', cotangent, weights))


_weighted_scale_shift.defvjp(_scale_shift_forward, _scale_shift_backward)


def _weigh(rule: WeightRule, x: Array, cotangent: Array,
           factors: Callable[[Array], Array],
           gradient_norms: Callable[[Array, Array, Array], Array] | None
           ) -> tuple[Array, Array, Array]:
  """Returns (weighted x, cotangent, weights); overflowing records become zero.

  Args:
    rule: gives each record its weight.
    x: inputs [b, ...].
    cotangent: cotangents at the output [b, ...].
    factors: maps ||x||^2 [b] to bounds of the Jacobian norm [b].
    gradient_norms: maps (x, cotangent, upper bounds [b]) to gradient norms
      [b]; None if the norm is exactly factor times cotangent norm.
  """
  squares, energies = _squared_norms(x), _squared_norms(cotangent)
  usable = jnp.isfinite(squares) & jnp.isfinite(energies)
  x, cotangent = _only(usable, x), _only(usable, cotangent)
  squares, energies = (jnp.where(usable, v, 0.0) for v in (squares, energies))
  # Squares of small entries underflow to 0; adding what they can lose keeps
  # both upper bounds positive.
  factor, ceiling = factors(squares + _missed(x)), jnp.sqrt(
      energies + _missed(cotangent))
  inputs, length = jnp.sqrt(squares), jnp.sqrt(energies)

  def gradients() -> Array:
    bounds = factor * ceiling
    if gradient_norms is not None:
      bounds = gradient_norms(x, cotangent, bounds)
    accurate = jnp.maximum(inputs, length) < _LARGEST_NORM
    return jnp.where(accurate, bounds, jnp.inf)

  norms = RecordNorms(inputs=inputs, factors=factor, cotangents=length,
                      gradients=gradients)
  weights = jnp.where(usable, rule.weights(norms), 0.0)
  return x * _rows(weights, x), cotangent, weights


def _missed(x: Array) -> float:
  """Bounds what a record's sum of squares can lose to underflow, times 2^24.

  With the factor 2^24, the 2^-24 of `ceilings` that `conv_gradient_norms` adds
  for rounding also covers the underflow in its Gram matrices.
  """
  return math.prod(x.shape[1:]) * floats.SMALLEST_NORMAL / _UNIT_ROUNDOFF


def _squared_norms(x: Array) -> Array:
  """Returns the squared l2 norms [b] of records [b, ...]."""
  flat = x.reshape((x.shape[0], -1))
  return jnp.einsum('bi,bi->b', flat, flat, precision=_HIGHEST)


def _rows(values: Array, like: Array) -> Array:
  """Reshapes [b] to broadcast against `like` [b, ...]."""
  return values.reshape((-1,) + (1,) * (like.ndim - 1))


def _only(usable: Array, x: Array) -> Array:
  """Returns x with zeros in the records that are not usable."""
  return jnp.where(_rows(usable, x), x, 0.0)
