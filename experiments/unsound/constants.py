"""Compares constants of Table 5.1 and line 5 with what they should bound.

The table and Algorithm 8, whose line 5 is meant, are of Barczewski (2025). Each
case has the number to which Algorithm 8 scales the noise of a layer (`printed`)
and the largest contribution of one record there (`needed`), both in units of
tau. Single contributions are measured at a witness, by a Jacobian, a singular
value or a Fourier transform; products of such numbers are computed from them.
"""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import blocks
from dpjax.typing import Array

_LINE_5 = 'line 5'
_ALPHA_RANGE = (1.0, 10.0)


class Constant(NamedTuple):
  """One claim about a sensitivity.

  Attributes:
    printed: [K] bounds as printed.
    needed: [K] attained contributions, or tight bounds.
    erratum: number of the erratum.
    place: place of the printed bound.
  """
  printed: tuple[float, ...]
  needed: tuple[float, ...]
  erratum: str
  place: str

  @property
  def multiplier_ratio(self) -> float:
    """Returns the joint noise multiplier divided by the accounted sigma.

    It is below 1 if the release has too little noise, and 0 if there is no
    noise at all or no finite scale.
    """
    printed = np.asarray(self.printed, np.float64)
    needed = np.asarray(self.needed, np.float64)
    if not printed.all() or not np.isfinite(needed).all():
      return 0.0
    # Ratios are scaled to a largest of 1, because alpha reaches 10^148, whose
    # square overflows.
    largest = float((needed / printed).max())
    ratio = blocks.joint_noise_multiplier(needed / largest, printed)
    return float(ratio) / largest


def products(norms: tuple[float, ...], *, inclusive: bool) -> tuple:
  """Returns prod_{i >= k} c_i, as in line 5, or prod_{i > k} c_i (E3)."""
  start = 0 if inclusive else 1
  return tuple(math.prod(norms[k + start:]) for k in range(len(norms)))


def line_5(norms: tuple[float, ...]) -> Constant:
  """Returns erratum E3: the product starts at layer k instead of k + 1."""
  return Constant(products(norms, inclusive=True),
                  products(norms, inclusive=False), 'E3', 'line 5')


def bias(largest: float, *, input_norm: float,
         num_positions: int = 1) -> Constant:
  """Returns erratum E6: X_k has no 1 for the bias, but its gradient is scaled.

  Measured on y = x W + b at each of `num_positions` places of a map.

  Args:
    largest: X_k, the largest input norm of the batch.
    input_norm: input norm of the record.
    num_positions: places h_out w_out to which a convolution adds its bias.
  """
  x = jnp.full([num_positions, 1], input_norm / num_positions**0.5)
  weights = (jnp.ones([1, 1]), jnp.zeros([1]))
  # The cotangent has norm 1 over all places, like that bounded by Delta_k.
  cotangent = jnp.full([num_positions, 1], num_positions**-0.5)
  _, pull = jax.vjp(lambda w, b: x @ w + b[None], *weights)
  gradient = jnp.concatenate([g.ravel() for g in pull(cotangent)])
  return Constant((1.0,), (float(jnp.linalg.norm(gradient)) / largest,), 'E6',
                  'Table 5.1, line 11')


def spectral_norm(function: Callable[[Array], Array], point: Array) -> float:
  """Returns the largest singular value of a Jacobian at one point."""
  jacobian = jax.jacobian(lambda x: function(x.reshape(point.shape)).ravel())
  return float(np.linalg.norm(np.asarray(jacobian(point.ravel())), 2))


def layer(function: Callable[[Array], Array], point: Array,
          place: str = 'line 23') -> Constant:
  """Returns erratum E11: c_k = 1 without parameters, and a Jacobian's norm."""
  return Constant((1.0,), (spectral_norm(function, point),), 'E11', place)


def convolution(kernel: np.ndarray, *, size: int) -> Constant:
  """Returns erratum E7: norms of the reshaped kernel and of the operator.

  The operator is the zero-padded convolution, embedded in a torus of side
  size + k - 1 on which it is diagonal; the torus is attained as size grows.

  Args:
    kernel: [k, k, c_in, c_out].
    size: side of the map.
  """
  side = size + kernel.shape[0] - 1
  spectrum = np.fft.fft2(np.asarray(kernel, np.float64), (side, side), (0, 1))
  operator = np.linalg.norm(spectrum, 2, axis=(2, 3)).max()
  reshaped = np.linalg.norm(kernel.reshape(-1, kernel.shape[-1]), 2)
  return Constant((float(reshaped),), (float(operator),), 'E7',
                  'lines 11 and 20')


def convnet(*, norm_factors: tuple[float, ...],
            place: str = 'lines 11 and 20') -> Constant:
  """Returns erratum E7 for two 3x3 convolutions and two dense layers, K = 4.

  All printed norms are 1. A convolution's parameter factor lacks sqrt(h' w') =
  3; `norm_factors` are true norms over printed ones.
  """
  parameters = (3.0, 3.0, 1.0, 1.0)
  after = products(norm_factors, inclusive=False)
  return Constant((1.0,) * 4, tuple(
      factor * rest for factor, rest in zip(parameters, after, strict=True)),
      'E7', place)


def residual(num_blocks: int) -> float:
  """Returns the norm of blocks x + F(x) with F(x) = x, of norm 1 (E12)."""
  def network(x):
    return jax.lax.fori_loop(0, num_blocks, lambda _, h: h + h, x)
  return spectral_norm(network, jnp.ones([2]))


def alpha(group_size: int, num_layers: int = 37) -> Constant:
  """Returns erratum E17: 1 / alpha of all normalisation layers together.

  alpha is the mildest of Table 5.2.
  """
  mildest = _ALPHA_RANGE[0] * group_size
  return Constant((1.0,), (mildest**num_layers,), 'E17', 'Table 5.2, line 23')


def _overlapping_pool(x: Array) -> Array:
  return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (1, 1),
                               'VALID')


def _normalise(x: Array, smallest: float = 0.1) -> Array:
  centred = x - jnp.mean(x)
  spread = jnp.sqrt(jnp.mean(jnp.square(centred)) + 1e-12)
  return centred / jnp.maximum(smallest, spread)


def _tempered_sigmoid(x: Array, height: float = 4.0,
                      slope: float = 2.0) -> Array:
  return height * jax.nn.sigmoid(slope * x)


def _peak() -> Array:
  return jnp.zeros([3, 3]).at[1, 1].set(1.0)


def _gaussian_kernel() -> np.ndarray:
  return np.random.default_rng(0).standard_normal((3, 3, 32, 64))


_CASES: dict[str, Callable[[], Constant]] = {
    'own_norm_half': lambda: line_5((0.5,)),
    'own_norm_two': lambda: line_5((2.0,)),
    'own_norm_zero': lambda: line_5((0.0,)),
    'own_norm_chain': lambda: line_5((0.5, 2.0, 0.25)),
    'bias_unit_input': lambda: bias(1.0, input_norm=1.0),
    'bias_small_input': lambda: bias(0.1, input_norm=0.1),
    'bias_conv': lambda: bias(1.0, input_norm=1.0, num_positions=28 * 28),
    'conv_reshape': lambda: convnet(norm_factors=(3.0, 3.0, 1.0, 1.0)),
    'conv_operator': lambda: convnet(norm_factors=(1.0,) * 4,
                                     place='line 11'),
    'conv_ones': lambda: convolution(np.ones((3, 3, 1, 1)), size=8),
    'conv_gaussian': lambda: convolution(_gaussian_kernel(), size=14),
    'pool_overlapping': lambda: layer(_overlapping_pool, _peak()),
    'normalisation': lambda: layer(_normalise, jnp.full([4], 1.0)),
    'tempered_sigmoid': lambda: layer(_tempered_sigmoid, jnp.zeros([2])),
    'residual_sum': lambda: layer(lambda x: x + x, jnp.ones([2])),
    'residual_18': lambda: Constant((1.0,), (residual(18),), 'E12',
                                    'line 5 as a chain'),
    'alpha_1024': functools.partial(alpha, 1024),
    'alpha_6272': functools.partial(alpha, 6272),
}


def compute(name: str) -> Constant:
  """Returns the case of a name in `sweep.CONSTANTS`."""
  return _CASES[name]()
