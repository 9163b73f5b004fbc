"""Rectangular butterfly layers: matrices that are products of sparse factors.

The parameters are the non-zeros of each factor, [a_i, r_i, s_i, t_i] as in
`chains.Chain.shapes`; entries outside of a support do not exist. The shapes
determine the chain. Lalanne (2023, section 1.2.2), item MIA-08.
"""

import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, PRNGKey
from experiments.methods.sparsity.chains import Chain

Factors = tuple[Array, ...]
"""Non-zeros of each factor, [a_i, r_i, s_i, t_i], in order of application."""


def init(key: PRNGKey, chain: Chain,
         variance: float | None = None) -> Factors:
  """Returns uniform factors whose product has entries of a given variance.

  An entry is a product of L independent coefficients of mean zero, one of each
  factor. Variances multiply, so each factor has the L-th root of the variance.
  Lalanne (2023, section 1.3) does not give the initialisation. Bounds of
  1 / sqrt(s_i) for each factor, as for a layer of s_i inputs, would make the
  variance 3^(L-1) times too small (item M-E09). Entries of the product are
  uncorrelated, but neither independent nor uniform.

  Args:
    key: random key of this layer.
    chain: chain of the matrix.
    variance: variance of an entry of the product. The default 1 / (3 n) is
      that of a dense layer of n inputs, uniform between +- 1 / sqrt(n).

  Raises:
    ValueError: the variance is not positive.
  """
  return scaled(jax.random.uniform(key, (chain.num_parameters,), jnp.float32,
                                   -1.0, 1.0), chain, variance)


def scaled(drawn: Array, chain: Chain,
           variance: float | None = None) -> Factors:
  """Returns the factors of `init` from numbers uniform between -1 and 1.

  Several layers can then share one random draw, which compiles faster.

  Args:
    drawn: [num_parameters], uniform between -1 and 1.
    chain: chain of the matrix.
    variance: as for `init`.
  """
  if variance is None:
    variance = 1 / (3 * chain.size[1])
  errors.check_positive('variance', variance)
  bound = math.sqrt(3 * variance ** (1 / len(chain.rows)))
  parts = jax.lax.split(bound * drawn, [math.prod(shape)
                                        for shape in chain.shapes])
  return tuple(map(jnp.reshape, parts, chain.shapes))


def apply(factors: Factors, x: Array) -> Array:
  """Multiplies vectors [..., q] by the matrix, factor by factor, to [..., p].

  Each vector costs as many multiplications as there are parameters.

  Raises:
    ValueError: the vectors do not have length q.
  """
  if x.shape[-1] != _size(factors)[1]:
    raise ValueError(f'x must have {_size(factors)[1]} entries in its last '
                     f'axis, got the shape {x.shape}')
  for factor in factors:
    # Split the index into (a, s, t); the factor replaces s by r.
    a, _, s, t = factor.shape
    x = x.reshape(*x.shape[:-1], a, s, t)
    x = jnp.einsum('arst,...ast->...art', factor, x)
    x = x.reshape(*x.shape[:-3], -1)
  return x


def dense(factors: Factors) -> Array:
  """Returns the matrix [p, q].

  Each entry is one product, without a sum. The product of the first i factors
  consists of a_i blocks of t_{i+1} rows and s_1 ... s_i columns; its entries
  are those of the first i - 1 factors times one coefficient each. The last
  step costs p q multiplications, all earlier steps together less.
  """
  product = jnp.ones((_size(factors)[1], 1, 1), factors[0].dtype)
  for factor in factors:
    a, r, s, t = factor.shape
    before = product.reshape(a, s, t, -1).swapaxes(1, 2)
    product = factor.swapaxes(2, 3)[..., None] * before[:, None]
    product = product.reshape(a, r * t, -1)
  return product[0]


def kernel(factors: Factors, shape: tuple[int, int, int, int]) -> Array:
  """Returns the matrix as a convolution kernel, [kh, kw, c_in, c_out].

  Rows are output channels. Columns are (c_in, kh, kw), the last index fastest,
  as in a flattened kernel of shape [c_out, c_in, kh, kw].

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
  """Returns (p, q), the size of the product."""
  _, r, _, t = factors[-1].shape
  a, _, s, _ = factors[0].shape
  return r * t, a * s
