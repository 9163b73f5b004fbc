"""Scattering coefficients of images: fixed wavelets, moduli and averages.

A scattering transform of scale J and L angles convolves an image with Morlet
wavelets of J sizes and L directions, takes the modulus, does so once more with
larger wavelets, and averages over 2^J x 2^J pixels (Mallat, 2012). A linear
model on these features is a strong private classifier, because nothing of them
is learned (Tramer and Boneh, 2021).

Wavelets, padding and order of the coefficients are those of Kymatio (Andreux et
al., 2020), to rounding in float32. The averages are computed as products with a
small matrix along each axis, without Fourier transforms, because the Gaussian
is separable.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.features import images
from dpjax.typing import Array, ArrayLike

# Images that are transformed at once: on a CPU, as many as fit into its caches.
_TOGETHER, _TOGETHER_ON_CPU = 256, 8
# Kymatio normalises its Gaussians with this number. With more digits of pi,
# coefficients of order two would differ by 9e-5 of their size.
_PI = 3.1415
_HIGHEST = jax.lax.Precision.HIGHEST


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scattering:
  """Maps images [b, h, w, c] to their scattering coefficients.

  Guarantee: a row of the result is a function of the same row of the images and
  of public numbers, so the features of a private data set are as private as the
  data set, and computing them costs no budget.

  The result is [b, h / 2^J, w / 2^J, c K] float32, rounded down, with K = 1 +
  J L + L^2 J (J - 1) / 2 coefficients for each channel: order zero, then order
  one by scale and angle, then order two by both pairs.

  Attributes:
    image_shape: height h, width w and channels c of an image; h and w are at
      least 2^J.
    scale: J, at least 1; averages are over 2^J x 2^J pixels.
    angles: L, the number of directions in 180 degrees.
    order: 1, or 2 for moduli of moduli, too.

  Examples:
    >>> from dpjax.features.scattering import Scattering
    >>> scattering = Scattering(image_shape=(28, 28, 1))
    >>> scattering(np.ones((3, 28, 28, 1), np.float32)).shape
    (3, 7, 7, 81)
  """
  image_shape: tuple[int, int, int]
  scale: int = 2
  angles: int = 8
  order: int = 2

  def __post_init__(self) -> None:
    images.check_shape(self.image_shape)
    errors.check_at_least('scale', self.scale, 1)
    errors.check_at_least('angles', self.angles, 1)
    if self.order not in (1, 2):
      raise ValueError(f'order must be 1 or 2, got {self.order}')
    if 2**self.scale > min(self.image_shape[:2]):
      raise ValueError(
        f'2^scale must be at most the sides of the image {self.image_shape}, '
        f'got scale {self.scale}')

  @property
  def num_coefficients(self) -> int:
    """Number K of coefficients of one channel at one place."""
    first = self.scale * self.angles
    second = self.angles * first * (self.scale - 1) // 2
    return 1 + first + (second if self.order == 2 else 0)

  @property
  def output_shape(self) -> tuple[int, int, int]:
    """Shape of the features of one image."""
    height, width, channels = self.image_shape
    return (height >> self.scale, width >> self.scale,
            channels * self.num_coefficients)

  def __call__(self, x: ArrayLike) -> Array:
    """Returns the coefficients of images [b, h, w, c] of floats.

    Raises:
      ValueError: if the images have another shape, or are no floats.
    """
    together = (_TOGETHER_ON_CPU if jax.default_backend() == 'cpu'
                else _TOGETHER)
    return _scatter(images.check(x, self.image_shape), self, together)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _scatter(x: Array, scattering: Scattering, together: int) -> Array:
  """Returns the coefficients of images, `together` at once."""
  bank = _bank(scattering.image_shape[:2], scattering.scale, scattering.angles)
  one = functools.partial(_scattered, bank=bank, order=scattering.order)
  return jax.lax.map(one, x, batch_size=together)


class _Axis(NamedTuple):
  """Padding and averages along one axis of an image.

  Attributes:
    pad: numbers of the pixels of the padded axis, [m].
    averages: for each level r, a matrix [out, m_r] that averages, subsamples
      and cuts off the padding; float32.
  """
  pad: np.ndarray
  averages: tuple[np.ndarray, ...]


class _Bank(NamedTuple):
  """Filters and matrices of a transform.

  Attributes:
    wavelets: for each scale j and level r <= j, the Fourier transforms of the
      wavelets of all angles, [L, m_r, n_r] float32; r is the number of times
      that the image was subsampled by 2 before.
    rows: matrices along the height.
    columns: matrices along the width.
  """
  wavelets: tuple[tuple[np.ndarray, ...], ...]
  rows: _Axis
  columns: _Axis


@functools.lru_cache(maxsize=16)
def _bank(size: tuple[int, int], scale: int, angles: int) -> _Bank:
  """Returns the filters for images of this height and width."""
  padded = (((size[0] >> scale) + 2) << scale,
            ((size[1] >> scale) + 2) << scale)
  wavelets = []
  for j in range(scale):
    hats = np.stack([_wavelet(padded, j, angle, angles)
                     for angle in range(angles)])
    wavelets.append(tuple(_cropped(_cropped(hats, r, 1), r, 2)
                          .astype(np.float32) for r in range(j + 1)))
  return _Bank(tuple(wavelets), *(
    _axis(side, whole, scale)
    for side, whole in zip(size, padded, strict=True)))


def _axis(side: int, padded: int, scale: int) -> _Axis:
  """Returns padding and averages along an axis of `side` pixels."""
  before = (padded - side) // 2
  pad = np.pad(np.arange(side), (before, padded - side - before), 'reflect')
  blur = np.fft.fft(_gaussian(padded, 0.8 * 2**(scale - 1))).real
  averages = []
  for r in range(scale):
    # The circulant matrix of the filter, from the transform of each unit.
    units = np.fft.fft(np.eye(padded >> r))
    filtered = np.fft.ifft(units * _cropped(blur, r, 0)).real.T
    averages.append(filtered[::2**(scale - r)][1:-1].astype(np.float32))
  return _Axis(pad, tuple(averages))


def _gaussian(size: int, deviation: float) -> np.ndarray:
  """Returns a Gaussian on a circle of `size` pixels, [size]."""
  places = np.arange(-2 * size, 3 * size)
  values = np.exp(-places**2 / (2 * deviation**2)).reshape(5, size).sum(0)
  # In two dimensions the constant is 2 pi deviation^2.
  return values / np.sqrt(2 * _PI * deviation**2)


def _wavelet(size: tuple[int, int], j: int, angle: int, angles: int
             ) -> np.ndarray:
  """Returns the Fourier transform of a Morlet wavelet, real [m, n].

  It is a Gaussian of deviation 0.8 2^j along the wave and L / 4 times that
  across, times a wave of frequency 3 pi / 4 / 2^j minus the constant that makes
  its sum zero.
  """
  theta = (int(angles - angles / 2 - 1) - angle) * np.pi / angles
  deviation, slant = 0.8 * 2**j, 4 / angles
  # The image is a torus: copies of the wavelet at five shifts are added.
  y, x = np.meshgrid(*(np.arange(-2 * each, 3 * each) for each in size),
                     indexing='ij')
  along = y * np.cos(theta) + x * np.sin(theta)
  across = y * np.sin(theta) - x * np.cos(theta)
  envelope = slant / (2 * _PI * deviation**2) * np.exp(
    -(along**2 + (slant * across)**2) / (2 * deviation**2))
  wave = envelope * np.exp(0.75j * np.pi / 2**j * along)
  folded = (wave - wave.sum() / envelope.sum() * envelope).reshape(
    5, size[0], 5, size[1]).sum((0, 2))
  return np.fft.fft2(folded).real


def _cropped(hats: np.ndarray, level: int, axis: int) -> np.ndarray:
  """Returns a filter for an image that was subsampled `level` times by 2.

  It keeps the frequencies -m / 2, ..., m / 2 - 1 of the m of that image, which
  the filter hardly exceeds.
  """
  size = hats.shape[axis] >> level
  frequencies = (np.arange(size) + size // 2) % size - size // 2
  return np.take(hats, frequencies % hats.shape[axis], axis)


def _average(rows: np.ndarray, columns: np.ndarray, values: Array) -> Array:
  """Multiplies values [..., m, n] by a matrix along each of both axes."""
  return jnp.einsum('am,...mn,bn->...ab', jnp.asarray(rows), values,
                    jnp.asarray(columns), precision=_HIGHEST)


def _folded(spectrum: Array, times: int) -> Array:
  """Returns the spectrum [..., m, n] of every 2^times-th value on both axes."""
  *lead, m, n = spectrum.shape
  factor = 2**times
  return spectrum.reshape(*lead, factor, m // factor, factor,
                          n // factor).mean((-4, -2))


def _scattered(image: Array, *, bank: _Bank, order: int) -> Array:
  """Returns the coefficients [h', w', c K] of one image [h, w, c]."""
  scale = len(bank.wavelets)
  x = jnp.moveaxis(image, -1, 0)[:, bank.rows.pad][:, :, bank.columns.pad]

  def average(values: Array, j: int) -> Array:
    return _average(bank.rows.averages[j], bank.columns.averages[j], values)

  def moduli(spectrum: Array, j: int, level: int) -> Array:
    """Returns |image * wavelet| for all angles: [..., L, m_j, n_j]."""
    wavelets = jnp.asarray(bank.wavelets[j][level])
    wavelets = wavelets.reshape((1,) * (spectrum.ndim - 2) + wavelets.shape)
    # Transforms of the wavelets are real, which saves half of the products.
    product = jax.lax.complex(spectrum.real[..., None, :, :] * wavelets,
                              spectrum.imag[..., None, :, :] * wavelets)
    return jnp.abs(jnp.fft.ifft2(_folded(product, j - level)))

  parts, second = [average(x, 0)[:, None]], []
  spectrum = jnp.fft.fft2(x)
  for j in range(scale):
    waves = moduli(spectrum, j, 0)
    parts.append(average(waves, j))
    if order == 2 and j + 1 < scale:
      hats = jnp.fft.fft2(waves)
      # For each angle of the first wavelet, the second ones by scale and angle.
      both = jnp.concatenate([average(moduli(hats, k, j), k)
                              for k in range(j + 1, scale)], axis=2)
      second.append(both.reshape(both.shape[0], -1, *both.shape[-2:]))
  coefficients = jnp.concatenate(parts + second, axis=1)
  return jnp.moveaxis(coefficients.reshape(-1, *coefficients.shape[-2:]), 0, -1)
