"""Parameter layers with their true constants: dense, convolution, affine."""

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz import convolution
from dpjax.lipschitz import norms
from dpjax.lipschitz import node as nodes
from dpjax.lipschitz import primitives
from dpjax.lipschitz.node import Context, Limits, Scalar, Shape
from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array, Params, PRNGKey, PyTree

# Rounding of the forward and backward pass in float32, for each layer.
_ROUNDING_MARGIN = 1 + 1e-6
_LECUN = nn.initializers.lecun_normal()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dense:
  """x W + b on vectors: NET-01.

  Lipschitz constant ||W||_2; Jacobian in (W, b) of norm exactly
  sqrt(||x||^2 + 1).

  Attributes:
    name: key in the parameter tree.
    width: n_out.
    use_bias: whether there is a b.
    bias_norm: bound on ||b||_2 that `constrain` keeps; None: not bounded, and
      nothing is known of the norm of what leaves.
    kernel_init: initialiser of W.
  """
  name: str
  width: int
  use_bias: bool = True
  bias_norm: float | None = None
  kernel_init: nn.initializers.Initializer = _LECUN

  def __post_init__(self):
    errors.check_at_least(f'width of {self.name!r}', self.width, 1)
    _check_bias_norm(self)

  def output_shape(self, shape: Shape) -> Shape:
    """[width]; refuses anything but vectors."""
    if len(shape) != 1:
      raise ValueError(f'{self.name!r} takes vectors, got records of shape '
                       f'{list(shape)}; flatten them first')
    return (self.width,)

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """{'kernel': [n_in, n_out], 'bias': [n_out]}."""
    kernel = self.kernel_init(key, (shape[0], self.width), jnp.float32)
    return _with_bias(self, kernel, self.width)

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """See `primitives.dense`."""
    return primitives.dense(
        x, params['kernel'], params.get('bias'), context.rule)

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, Array]:
    """W to its limit by its certified spectral norm."""
    del shape
    bound = norms.spectral_upper_bound(
        params['kernel'], num_iterations=limits.num_iterations,
        any_scale=limits.any_scale)
    return _rescaled(self, params, bound, limits)

  def reach(self, certificate: Array, radius: Scalar, shape: Shape) -> Scalar:
    """||W|| B + ||b||."""
    del shape
    return _affine_reach(self, certificate, radius, 1.0)

  def backward(self, certificate: Array, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """||W|| D, and D sqrt(B^2 + 1): biases count (E6)."""
    del shape
    factor = _root(radius, 1.0, float(self.use_bias))
    return (cotangent * certificate,
            nodes.gradient_bound(self.name, rule, cotangent, factor))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv:
  """A convolution with a bias for each channel: NET-02.

  Lipschitz constant: the certified norm of the map on whole images, by
  embedding in a torus (SPEC-05, SPEC-06), not that of the kernel as a matrix
  (E7). Jacobian in (theta, b) of norm at most
  sqrt(m ||x||^2 + h_out w_out), m = ceil(kh/sh) ceil(kw/sw).

  Attributes:
    name: key in the parameter tree.
    channels: c_out.
    kernel_size: (kh, kw).
    strides: (sh, sw).
    padding: one of `convolution.PADDINGS`.
    use_bias: whether there is a b.
    bias_norm: as for `Dense`, in the l2 norm over channels.
    kernel_init: initialiser of the kernel.
    grid: frequencies an axis of the certificate, or None for all of the torus;
      16 cost a factor of 1.04 for 3 x 3 kernels of any stride and save most of
      the work on large images.
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

  def __post_init__(self):
    errors.check_at_least(f'channels of {self.name!r}', self.channels, 1)
    for stride in self.strides:
      errors.check_at_least(f'stride of {self.name!r}', stride, 1)
    _check_bias_norm(self)

  def geometry(self, shape: Shape) -> convolution.ConvShape:
    """Where the kernel is applied; refuses images that it does not fit."""
    _check_image(self, shape)
    found = convolution.ConvShape(shape[:2], self.strides, self.padding)
    convolution.check_shape((*self.kernel_size, shape[2], self.channels), found)
    return found

  def output_shape(self, shape: Shape) -> Shape:
    """[h_out, w_out, c_out]."""
    return (*self.geometry(shape).output_size(self.kernel_size),
            self.channels)

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """{'kernel': [kh, kw, c_in, c_out], 'bias': [c_out]}."""
    kernel = self.kernel_init(
        key, (*self.kernel_size, shape[2], self.channels), jnp.float32)
    return _with_bias(self, kernel, self.channels)

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """See `primitives.conv`."""
    return primitives.conv(
        x, params['kernel'], params.get('bias'), self.geometry(x.shape[1:]),
        context.rule)

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, Array]:
    """The kernel to its limit by the certified norm of the convolution."""
    bound = convolution.fourier_upper_bound(
        params['kernel'], self.geometry(shape),
        num_iterations=limits.num_iterations, grid=self.grid)
    return _rescaled(self, params, bound, limits)

  def reach(self, certificate: Array, radius: Scalar, shape: Shape) -> Scalar:
    """c B + sqrt(h_out w_out) ||b||."""
    return _affine_reach(self, certificate, radius, self.num_sites(shape)**0.5)

  def backward(self, certificate: Array, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """c D, and D sqrt(m B^2 + h_out w_out)."""
    factor = _root(
        radius,
        float(convolution.multiplicity(self.kernel_size, self.strides)),
        float(self.num_sites(shape)) if self.use_bias else 0.0)
    return (cotangent * certificate,
            nodes.gradient_bound(self.name, rule, cotangent, factor))

  def num_sites(self, shape: Shape) -> int:
    """h_out w_out, for what enters."""
    return math.prod(self.output_shape(shape)[:2])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Affine:
  """gamma x + beta for each channel, after a normalisation: NET-07.

  Lipschitz constant max |gamma|; Jacobian in (gamma, beta) of norm at most
  sqrt(channel_norm^2 + h w).

  Attributes:
    name: key in the parameter tree.
    bias_norm: bound on ||beta||_2, as for `Dense`.
  """
  name: str
  bias_norm: float | None = None
  use_bias: bool = dataclasses.field(default=True, init=False)

  def __post_init__(self):
    _check_bias_norm(self)

  def output_shape(self, shape: Shape) -> Shape:
    """The same; refuses anything but images."""
    _check_image(self, shape)
    return shape

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """{'kernel': ones [c], 'bias': zeros [c]}."""
    del key
    return _with_bias(self, jnp.ones([shape[-1]], jnp.float32), shape[-1])

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """See `primitives.scale_shift`."""
    return primitives.scale_shift(
        x, params['kernel'], params['bias'], context.rule)

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, Array]:
    """The largest |gamma| to its limit."""
    del shape
    return _rescaled(self, params, jnp.max(jnp.abs(params['kernel'])), limits)

  def reach(self, certificate: Array, radius: Scalar, shape: Shape) -> Scalar:
    """max |gamma| B + sqrt(h w) ||beta||."""
    return _affine_reach(self, certificate, radius,
                         math.prod(shape[:2])**0.5)

  def backward(self, certificate: Array, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """max |gamma| D, and D sqrt(B^2 + h w)."""
    factor = _root(radius, 1.0, float(math.prod(shape[:2])))
    return (cotangent * certificate,
            nodes.gradient_bound(self.name, rule, cotangent, factor))


def _check_bias_norm(layer) -> None:
  if layer.bias_norm is not None:
    errors.check_scale(f'bias_norm of {layer.name!r}', layer.bias_norm)


def _check_image(layer, shape: Shape) -> None:
  if len(shape) != 3:
    raise ValueError(f'{layer.name!r} takes images [h, w, c], got records of '
                     f'shape {list(shape)}')


def _with_bias(layer, kernel: Array, width: int) -> Params:
  if not layer.use_bias:
    return {'kernel': kernel}
  return {'kernel': kernel, 'bias': jnp.zeros([width], jnp.float32)}


def _rescaled(layer, params: Params, bound: Array,
              limits: Limits) -> tuple[Params, Array]:
  """Kernel times its factor, bias projected, with the certified norm."""
  scale = limits.rescale(bound)
  found = {**params, 'kernel': params['kernel'] * scale}
  if layer.use_bias and layer.bias_norm is not None:
    length = jnp.sqrt(jnp.einsum('i,i->', params['bias'], params['bias'],
                                 precision=jax.lax.Precision.HIGHEST))
    aim = layer.bias_norm / _ROUNDING_MARGIN
    found['bias'] = params['bias'] * (aim / jnp.maximum(length, aim))
  return found, limits.certify(bound, scale)


def _affine_reach(layer, certificate: Array, radius: Scalar,
                  bias_factor: float) -> Scalar:
  if not layer.use_bias:
    shift = 0.0
  elif layer.bias_norm is None:
    return math.inf
  else:
    shift = bias_factor * layer.bias_norm
  if isinstance(radius, float) and math.isinf(radius):
    return math.inf
  return certificate * radius * _ROUNDING_MARGIN + shift


def _root(radius: Scalar, multiplicity: float, sites: float) -> Scalar:
  """sqrt(multiplicity B^2 + sites), as a float where B is one."""
  # A product of floats overflows to infinity, where a power raises.
  return (multiplicity * radius * radius + sites)**0.5
