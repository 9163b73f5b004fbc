"""Rectangular butterfly layers: matrices that are products of sparse factors.

Factors are kept as their non-zeros, [a_i, r_i, s_i, t_i] of each as in
`chains.Chain.shapes`, and those are the parameters: what is outside of a
support is not there to be trained (MIA-08; thesis 000, section 1.2.2). The
shapes tell the chain.
"""

import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.sparsity.chains import Chain
from dpjax.typing import Array, PRNGKey

Factors = tuple[Array, ...]
"""Non-zeros of each factor, [a_i, r_i, s_i, t_i]; the first acts first."""


def init(key: PRNGKey, chain: Chain,
         variance: float | None = None) -> Factors:
  """Uniform factors whose product has entries of a given variance.

  An entry is a product of L independent coefficients of mean zero, one of each
  factor: variances multiply, so each factor has the L-th root. The thesis does
  not say; bounds 1 / sqrt(s_i) of each factor alone, as a layer of s_i inputs
  has them, make the variance 3^(L-1) times too small (M-E09). Entries of the
  product are uncorrelated, neither independent nor uniform.

  Args:
    key: of this layer.
    chain: of its matrix.
    variance: of an entry of the product; that of a dense layer of n inputs by
      default, uniform between +- 1 / sqrt(n), which is 1 / (3 n).

  Raises:
    ValueError: the variance is not positive.
  """
  return scaled(jax.random.uniform(key, (chain.num_parameters,), jnp.float32,
                                   -1.0, 1.0), chain, variance)


def scaled(drawn: Array, chain: Chain,
           variance: float | None = None) -> Factors:
  """As `init`, of numbers [num_parameters] uniform between -1 and 1.

  Layers can share one draw so: draws are what takes long to compile.
  """
  if variance is None:
    variance = 1 / (3 * chain.size[1])
  errors.check_positive('variance', variance)
  bound = math.sqrt(3 * variance ** (1 / len(chain.rows)))
  parts = jax.lax.split(bound * drawn, [math.prod(shape)
                                        for shape in chain.shapes])
  return tuple(map(jnp.reshape, parts, chain.shapes))


def apply(factors: Factors, x: Array) -> Array:
  """Multiplies vectors [..., q] by the matrix, [..., p], factor by factor.

  A vector costs as many multiplications as there are parameters.

  Raises:
    ValueError: the vectors have another length than q.
  """
  if x.shape[-1] != _size(factors)[1]:
    raise ValueError(f'x must have {_size(factors)[1]} entries in its last '
                     f'axis, got the shape {x.shape}')
  for factor in factors:
    a, _, s, t = factor.shape
    x = x.reshape(*x.shape[:-1], a, s, t)
    x = jnp.einsum('arst,...ast->...art', factor, x)
    x = x.reshape(*x.shape[:-3], -1)
  return x


def dense(factors: Factors) -> Array:
  """The matrix [p, q].

  There is one path per entry, so nothing is summed: the first i factors are
  a_i blocks of t_{i+1} rows and s_1 ... s_i columns, whose entries are those
  of the first i - 1 times one coefficient each. The last of these products
  costs p q multiplications, those before it together less.
  """
  product = jnp.ones((_size(factors)[1], 1, 1), factors[0].dtype)
  for factor in factors:
    a, r, s, t = factor.shape
    before = product.reshape(a, s, t, -1).swapaxes(1, 2)
    product = factor.swapaxes(2, 3)[..., None] * before[:, None]
    product = product.reshape(a, r * t, -1)
  return product[0]


def kernel(factors: Factors, shape: tuple[int, int, int, int]) -> Array:
  """The matrix as the kernel of a convolution, [kh, kw, c_in, c_out].

  Rows are channels that leave; columns are (c_in, kh, kw), the last of them
  fastest, as kernels of shape [c_out, c_in, kh, kw] are flattened.

  Raises:
    ValueError: the matrix is not c_out x (c_in kh kw).
  """
  height, width, entering, leaving = shape
  if _size(factors) != (leaving, entering * height * width):
    raise ValueError('a kernel of shape {} cannot be made of a {} x {} '
                     'matrix'.format(shape, *_size(factors)))
  matrix = dense(factors).reshape(leaving, entering, height, width)
  return matrix.transpose(2, 3, 1, 0)


def _size(factors: Factors) -> tuple[int, int]:
  _, r, _, t = factors[-1].shape
  a, _, s, _ = factors[0].shape
  return r * t, a * s
