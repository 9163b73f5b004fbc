"""Layers with parameters and their Lipschitz constants.

Notation: B bounds the l2 norm of a layer's input, D that of the cotangent (the
loss gradient at the layer's output), c is the certified norm of its map.
"""

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz import convolution
from dpjax.lipschitz import node as nodes
from dpjax.lipschitz import norms
from dpjax.lipschitz import orthogonal
from dpjax.lipschitz import primitives
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.node import Limits
from dpjax.lipschitz.node import Scalar
from dpjax.lipschitz.node import Shape
from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array, Params, PRNGKey, PyTree

# Covers the rounding of one layer's forward and backward pass in float32.
_ROUNDING_MARGIN = 1 + 1e-6
_LECUN = nn.initializers.lecun_normal()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dense:
  """A dense layer x W + b on vectors. Item NET-01.

  Its Lipschitz constant is ||W||_2. Its Jacobian in (W, b) has norm exactly
  sqrt(||x||^2 + 1).

  Attributes:
    name: key in the parameter tree.
    width: n_out, the number of outputs.
    use_bias: whether the layer has a bias b.
    bias_norm: public bound on ||b||_2 that `constrain` keeps; None leaves b
      unbounded, and then the norm of the output has no bound.
    kernel_init: initialiser of W.
    orthogonal: whether `constrain` keeps W near orthogonal, by one step of
      `orthogonal.retract`, whatever the limits; its norm is then at most 1, and
      W keeps the norm of records, and of cotangents if it is square.
  """
  name: str
  width: int
  use_bias: bool = True
  bias_norm: float | None = None
  kernel_init: nn.initializers.Initializer = _LECUN
  orthogonal: bool = False

  def __post_init__(self) -> None:
    errors.check_at_least(f'width of {self.name!r}', self.width, 1)
    _check_bias_norm(self)

  def output_shape(self, shape: Shape) -> Shape:
    """Returns [width]; raises ValueError unless records are vectors."""
    if len(shape) != 1:
      raise ValueError(f'{self.name!r} takes vectors, got records of shape '
                       f'{list(shape)}; flatten them first')
    return (self.width,)

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Returns {'kernel': [n_in, n_out], 'bias': [n_out]}."""
    kernel = self.kernel_init(key, (shape[0], self.width), jnp.float32)
    return _with_bias(self, kernel, self.width)

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """Returns x W + b; see `primitives.dense`."""
    return primitives.dense(
        x, params['kernel'], params.get('bias'), context.rule)

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, Array]:
    """Rescales W by its certified spectral norm; see `Limits`."""
    del shape
    if self.orthogonal:
      kernel, bound = orthogonal.retract(params['kernel'])
      return ({**params, 'kernel': kernel, **_projected_bias(self, params)},
              bound * _ROUNDING_MARGIN)
    bound = norms.spectral_upper_bound(
        params['kernel'], num_iterations=limits.num_iterations,
        any_scale=limits.any_scale)
    return _rescaled(self, params, bound, limits)

  def output_bound(self, certificate: Array, radius: Scalar, shape: Shape
                   ) -> Scalar:
    """Returns the output bound ||W|| B + ||b||."""
    del shape
    return _affine_bound(self, certificate, radius, 1.0)

  def backward(self, certificate: Array, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """Returns ||W|| D and the gradient bound D sqrt(B^2 + 1).

    The 1 is the bias, which Barczewski (2025) leaves out: erratum E6.
    """
    del shape
    # The gradient of a record is the outer product of (x, 1) and delta.
    factor = _root(radius, 1.0, float(self.use_bias))
    return (cotangent * certificate,
            nodes.gradient_bound(self.name, rule, cotangent, factor))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv:
  """A convolution with one bias per channel. Item NET-02.

  Its Lipschitz constant is the certified norm of the map on whole images, by
  embedding in a torus (SPEC-05, SPEC-06). The norm of the kernel as a matrix
  is not a bound (erratum E7). Its Jacobian in (theta, b) has norm at most
  sqrt(m ||x||^2 + h_out w_out), m = ceil(kh/sh) ceil(kw/sw).

  Attributes:
    name: key in the parameter tree.
    channels: c_out, the number of output channels.
    kernel_size: (kh, kw).
    strides: (sh, sw).
    padding: one of `convolution.PADDINGS`.
    use_bias: whether the layer has a bias b.
    bias_norm: as for `Dense`, in the l2 norm over channels.
    kernel_init: initialiser of the kernel.
    grid: frequencies per axis for the certificate, or None for the whole
      torus; 16 frequencies enlarge the bound by a factor of 1.04 for 3 x 3
      kernels of any stride and save most of the work on large images.
  """
  name: str
  channels: int
  kernel_size: tuple[int, int] = (3, 3)
  strides: tuple[int, int] = (1, 1)
  padding: str = 'zero'
  use_bias: bool = True
  bias_norm: float | None = None
  kernel_init: nn.initializers.Initializer = _LECUN
  grid: int | None = 16

  def __post_init__(self) -> None:
    errors.check_at_least(f'channels of {self.name!r}', self.channels, 1)
    for stride in self.strides:
      errors.check_at_least(f'stride of {self.name!r}', stride, 1)
    _check_bias_norm(self)

  def geometry(self, shape: Shape) -> convolution.ConvShape:
    """Returns the geometry; raises ValueError if the kernel does not fit."""
    _check_image(self, shape)
    geometry = convolution.ConvShape(shape[:2], self.strides, self.padding)
    convolution.check_shape((*self.kernel_size, shape[2], self.channels),
                            geometry)
    return geometry

  def output_shape(self, shape: Shape) -> Shape:
    """Returns the shape [h_out, w_out, c_out] of output images."""
    return (*self.geometry(shape).output_size(self.kernel_size),
            self.channels)

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Returns {'kernel': [kh, kw, c_in, c_out], 'bias': [c_out]}."""
    kernel = self.kernel_init(
        key, (*self.kernel_size, shape[2], self.channels), jnp.float32)
    return _with_bias(self, kernel, self.channels)

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """Returns the convolved images; see `primitives.conv`."""
    return primitives.conv(
        x, params['kernel'], params.get('bias'), self.geometry(x.shape[1:]),
        context.rule)

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, Array]:
    """Rescales the kernel by the convolution's certified norm; see `Limits`."""
    bound = convolution.fourier_upper_bound(
        params['kernel'], self.geometry(shape),
        num_iterations=limits.num_iterations, grid=self.grid)
    return _rescaled(self, params, bound, limits)

  def output_bound(self, certificate: Array, radius: Scalar, shape: Shape
                   ) -> Scalar:
    """Returns the output bound c B + sqrt(h_out w_out) ||b||."""
    return _affine_bound(self, certificate, radius, self.num_sites(shape)**0.5)

  def backward(self, certificate: Array, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """Returns c D and the gradient bound D sqrt(m B^2 + h_out w_out)."""
    # A pixel enters at most m windows; each output pixel adds one bias.
    factor = _root(
        radius,
        float(convolution.multiplicity(self.kernel_size, self.strides)),
        float(self.num_sites(shape)) if self.use_bias else 0.0)
    return (cotangent * certificate,
            nodes.gradient_bound(self.name, rule, cotangent, factor))

  def num_sites(self, shape: Shape) -> int:
    """Returns h_out w_out, the number of output pixels."""
    return math.prod(self.output_shape(shape)[:2])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Affine:
  """Scale and shift of each channel, gamma x + beta. Item NET-07.

  It stands after a normalisation. Its Lipschitz constant is max |gamma|. Its
  Jacobian in (gamma, beta) has norm at most sqrt(channel_norm^2 + h w), where
  channel_norm is the largest l2 norm of a channel.

  Attributes:
    name: key in the parameter tree.
    bias_norm: public bound on ||beta||_2, as for `Dense`.
    use_bias: always True.
  """
  name: str
  bias_norm: float | None = None
  use_bias: bool = dataclasses.field(default=True, init=False)

  def __post_init__(self) -> None:
    _check_bias_norm(self)

  def output_shape(self, shape: Shape) -> Shape:
    """Returns `shape`; raises ValueError unless records are images."""
    _check_image(self, shape)
    return shape

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Returns {'kernel': ones [c], 'bias': zeros [c]}."""
    del key
    return _with_bias(self, jnp.ones([shape[-1]], jnp.float32), shape[-1])

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """Returns gamma x + beta; see `primitives.scale_shift`."""
    return primitives.scale_shift(
        x, params['kernel'], params['bias'], context.rule)

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, Array]:
    """Rescales gamma by its largest absolute entry; see `Limits`."""
    del shape
    return _rescaled(self, params, jnp.max(jnp.abs(params['kernel'])), limits)

  def output_bound(self, certificate: Array, radius: Scalar, shape: Shape
                   ) -> Scalar:
    """Returns the output bound max |gamma| B + sqrt(h w) ||beta||."""
    return _affine_bound(self, certificate, radius,
                         math.prod(shape[:2])**0.5)

  def backward(self, certificate: Array, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """Returns max |gamma| D and the gradient bound D sqrt(B^2 + h w)."""
    # A channel's norm is at most that of the image.
    factor = _root(radius, 1.0, float(math.prod(shape[:2])))
    return (cotangent * certificate,
            nodes.gradient_bound(self.name, rule, cotangent, factor))


_Affine = Dense | Conv | Affine


def _check_bias_norm(layer: _Affine) -> None:
  """Checks the bound on the bias, if there is one."""
  if layer.bias_norm is not None:
    errors.check_scale(f'bias_norm of {layer.name!r}', layer.bias_norm)


def _check_image(layer: _Affine, shape: Shape) -> None:
  """Checks that records are images [h, w, c]."""
  if len(shape) != 3:
    raise ValueError(f'{layer.name!r} takes images [h, w, c], got records of '
                     f'shape {list(shape)}')


def _with_bias(layer: _Affine, kernel: Array, width: int) -> Params:
  """Returns the kernel and, if the layer has one, a bias of zeros."""
  if not layer.use_bias:
    return {'kernel': kernel}
  return {'kernel': kernel, 'bias': jnp.zeros([width], jnp.float32)}


def _rescaled(layer: _Affine, params: Params, bound: Array,
              limits: Limits) -> tuple[Params, Array]:
  """Rescales the kernel and projects the bias; returns the certified norm too.
  """
  scale = limits.rescale(bound)
  rescaled = {**params, 'kernel': params['kernel'] * scale,
              **_projected_bias(layer, params)}
  return rescaled, limits.certify(bound, scale)


def _projected_bias(layer: _Affine, params: Params) -> Params:
  """Returns {'bias': the bias within its bound}, or {} if it has no bound."""
  if not layer.use_bias or layer.bias_norm is None:
    return {}
  length = jnp.sqrt(jnp.einsum('i,i->', params['bias'], params['bias'],
                               precision=jax.lax.Precision.HIGHEST))
  # Slightly below the bound, so that rounding does not exceed it.
  target = layer.bias_norm / _ROUNDING_MARGIN
  return {'bias': params['bias'] * (target / jnp.maximum(length, target))}


def _affine_bound(layer: _Affine, certificate: Array, radius: Scalar,
                  bias_factor: float) -> Scalar:
  """Returns certificate * B + bias_factor * bias_norm, infinite if unknown."""
  if not layer.use_bias:
    shift = 0.0
  elif layer.bias_norm is None:
    return math.inf
  else:
    shift = bias_factor * layer.bias_norm
  # Infinite bounds must stay floats, and inf times a traced norm would not.
  if isinstance(radius, float) and math.isinf(radius):
    return math.inf
  return certificate * radius * _ROUNDING_MARGIN + shift


def _root(radius: Scalar, multiplicity: float, sites: float) -> Scalar:
  """Returns sqrt(multiplicity B^2 + sites), a float if B is a float."""
  # B * B overflows to infinity; B**2 would raise OverflowError.
  return (multiplicity * radius * radius + sites)**0.5
