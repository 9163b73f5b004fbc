"""Vector norms, the operator norms they induce, and chains of them.

For a matrix A and the map x -> A x, ||A||_{p,q} = sup ||A x||_q / ||x||_p.
What has a closed form is computed; what has none is bounded and says so.

A loss is a number, so the (2, p) norm of its gradient in the parameters is
the l2 norm of that gradient, whatever p: noise is Gaussian and sensitivities
are l2 for all p (NORM-06, erratum E14). What p chooses is the norm in which
the cotangent is followed through the layers; each p gives a valid bound, and
the least of them is one too.
"""

from collections.abc import Mapping, Sequence
import itertools
import math

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.lipschitz import convolution
from dpjax.lipschitz import norms
from dpjax.typing import Array

ORDERS = (1, 2, math.inf)
_MOST_SIGNS = 14
_UNIT_ROUNDOFF = 2.0**-24


def vector_norm(x: Array, order: float) -> Array:
  """(sum |x_i|^p)^(1/p) over the last axis; p in {1, 2, inf}.

  Below 1 it would be no norm, which the text allows. Source: (2.7.1) of thesis
  003; NORM-01.
  """
  check_order(order)
  return jnp.linalg.norm(x, order, axis=-1)


def induced_norm(matrix: Array, input_order: float,
                 output_order: float) -> Array:
  """||A||_{p,q} where it has a closed form, rounded up; certified for (2, 2).

  | p, q      | value                                        |
  |-----------|----------------------------------------------|
  | 1, 1      | largest column sum of absolute values        |
  | inf, inf  | largest row sum of absolute values           |
  | 1, inf    | largest absolute entry                       |
  | 2, inf    | largest l2 norm of a row                     |
  | 1, 2      | largest l2 norm of a column                  |
  | 2, 2      | `norms.spectral_upper_bound`                 |

  (2, 1), (inf, 1) and (inf, 2) are NP-hard: see `sign_enumeration` and
  `bound_2_1`. Norms compose: ||A B||_{a,c} <= ||A||_{b,c} ||B||_{a,b}.
  Source: thesis 003, section 2.7; NORM-02, NORM-03, NORM-05.

  Args:
    matrix: [m, n], A of y = A x; for a layer that computes x W it is W^T.
    input_order: p.
    output_order: q.
  """
  check_order(input_order)
  check_order(output_order)
  if input_order == output_order == 2:
    return norms.spectral_upper_bound(matrix)
  margin = 1 + (max(matrix.shape) + 4) * _UNIT_ROUNDOFF
  if output_order == math.inf:
    # The dual norm of each row.
    dual = {1: math.inf, 2: 2, math.inf: 1}[input_order]
    return margin * jnp.max(_row_norms(matrix, dual))
  if input_order == 1:
    return margin * jnp.max(_row_norms(matrix.T, output_order))
  raise ValueError(f'the induced ({input_order}, {output_order}) norm has no '
                   'closed form; bound it')


def _row_norms(matrix: Array, order: float) -> Array:
  """Norms of rows, of any scale."""
  if order != 2:
    return vector_norm(matrix, order)
  largest = jnp.max(jnp.abs(matrix), axis=1)
  scale = jnp.where(largest == 0, 1.0, largest)
  return largest * vector_norm(matrix / scale[:, None], 2)


def sign_enumeration(matrix: np.ndarray) -> float:
  """||A||_{2,1} exactly: the largest ||A^T e||_2 over sign vectors e.

  Exponential in the number of rows, of which 14 at most are allowed. The text
  (section 5.2.3) calls this norm linear-time; that is the entrywise L21 norm
  of `bound_2_1`. Source: NORM-04, erratum E14.
  """
  rows = matrix.shape[0]
  if rows > _MOST_SIGNS:
    raise ValueError(f'at most {_MOST_SIGNS} rows can be enumerated, got '
                     f'{rows}')
  signs = np.array(list(itertools.product((-1.0, 1.0), repeat=rows)))
  return float(np.linalg.norm(signs @ np.asarray(matrix, np.float64),
                              axis=1).max())


def bound_2_1(matrix: Array) -> Array:
  """An upper bound of ||A||_{2,1}, at the price of a spectral norm.

  The smaller of sum_i ||row_i||_2 and sqrt(m) ||A||_2. Source: NORM-04.
  """
  margin = 1 + (sum(matrix.shape) + 4) * _UNIT_ROUNDOFF
  rows = margin * jnp.sum(_row_norms(matrix, 2))
  spectral = norms.spectral_upper_bound(matrix)
  return jnp.minimum(rows, matrix.shape[0]**0.5 * (1 + 1e-6) * spectral)


def dense_norm(kernel: Array, order: float) -> Array:
  """||x -> x W||_{p,p} of a [n_in, n_out] kernel: that of W^T. NORM-02."""
  return induced_norm(kernel.T, order, order)


def conv_norm(kernel: Array, shape: convolution.ConvShape,
              order: float) -> Array:
  """||x -> conv(x, kernel)||_{p,p}, an upper bound.

  p = inf: the largest sum of absolute taps of an output channel, an output
  seeing one patch. p = 1: the largest sum of absolute taps that one input
  pixel meets, over input channels and stride phases. Both are attained where
  some patch lies inside the image. p = 2: `convolution.fourier_upper_bound`.
  The printed constant for p = inf is the largest tap alone, and is below the
  truth. Source: Theorem 5.2.1 of thesis 003, corrected: erratum E8.

  Args:
    kernel: [kh, kw, c_in, c_out].
    shape: where it is applied.
    order: p.
  """
  check_order(order)
  convolution.check_shape(kernel.shape, shape)
  if order == 2:
    return convolution.fourier_upper_bound(kernel, shape)
  sizes = jnp.abs(kernel)
  if order == 1:
    sizes = convolution.phases_as_channels(sizes, shape.strides)
  kept = 3 if order == math.inf else 2
  added = tuple(axis for axis in range(4) if axis != kept)
  margin = 1 + (kernel.size // sizes.shape[kept] + 4) * _UNIT_ROUNDOFF
  return margin * jnp.max(jnp.sum(sizes, added))


def dense_parameter_factor(width: int, order: float) -> float:
  """kappa_p: the norm of dW -> x dW, Frobenius to l_p, over ||x||_2.

  1 for p = 2 and inf, sqrt(n_out) for p = 1, which the text leaves out.
  Source: NORM-06, erratum E14.

  Args:
    width: n_out.
    order: p.
  """
  errors.check_at_least('width', width, 1)
  return math.sqrt(width) if check_order(order) == 1 else 1.0


def conv_parameter_factor(kernel_shape: tuple[int, ...],
                          shape: convolution.ConvShape,
                          order: float) -> float:
  """`dense_parameter_factor` of a convolution without bias, an upper bound.

  sqrt(multiplicity) for p = 2; times the root of the number of outputs for
  p = 1; 1 for p = inf, where an output sees one patch of the image. Source:
  NORM-06, NET-02.
  """
  convolution.check_shape(kernel_shape, shape)
  if check_order(order) == math.inf:
    return 1.0
  taps = kernel_shape[:2]
  outputs = math.prod(shape.output_size(taps)) * kernel_shape[3]
  return math.sqrt(convolution.multiplicity(taps, shape.strides)
                   * (outputs if order == 1 else 1))


def cross_entropy_dual_norm(order: float, *, temperature: float = 1.0) -> float:
  """sup of the *dual* l_p* norm of the cross entropy's gradient in the logits.

  (1, sqrt(2), 2) / temperature for p = 1, 2, inf: softmax minus one-hot has
  one negative entry, above -1, and the others sum to its size. The constant
  changes with p, which the text overlooks. Source: NORM-06, erratum E14.
  """
  errors.check_positive('temperature', temperature)
  return {1: 1.0, 2: math.sqrt(2), math.inf: 2.0}[
      check_order(order)] / temperature


def hinge_dual_norm(order: float, *, num_classes: int) -> float:
  """sup of the dual norm of the multiclass hinge's gradient in the logits.

  With c classes (c - 1) / c, sqrt((c - 1) / c), 2 (c - 1) / c for p = 1, 2,
  inf, all margins active. The printed constant 1 is too small for p = inf from
  three classes on. Source: NORM-06, LOSS-04, errata E14 and E15.
  """
  share = 1 - 1 / errors.check_at_least('num_classes', num_classes, 2)
  return {1: share, 2: math.sqrt(share), math.inf: 2 * share}[
      check_order(order)]


def chain_bounds(operator_norms: Mapping[float, Sequence[Array]],
                 loss_norms: Mapping[float, float],
                 parameter_norms: Mapping[float, Sequence[Array]]
                 ) -> list[Array]:
  """l2 bounds of one record's gradient in each layer, the least over p.

    ||dL/dW_k||_2 <= tau_p* product over i > k of ||W_i||_{p,p} kappa_p(k) B_k

  for each p, with all factors of the same p. Elementwise 1-Lipschitz layers
  between are covered in every p; normalisation layers in p = 2 only.
  Source: (5.2.14) of thesis 003, corrected: NORM-06, errata E3 and E14.

  Args:
    operator_norms: p -> ||W_i||_{p,p} of each layer, from input to output.
    loss_norms: p -> bound of the dual norm of the loss's gradient.
    parameter_norms: p -> for each layer kappa_p times a bound on the l2 norm
      of its input, (x, 1) where there is a bias.

  Returns:
    One bound a layer, from input to output.
  """
  if not operator_norms:
    raise ValueError('a chain bound needs at least one of the orders 1, 2, inf')
  chains = []
  for order, sizes in operator_norms.items():
    check_order(order)
    cotangent, chain = jnp.float32(loss_norms[order]), []
    for size, factor in zip(reversed(sizes), reversed(parameter_norms[order]),
                            strict=True):
      chain.append(cotangent * factor)
      cotangent = cotangent * size
    chains.append(chain[::-1])
  # NaN in any order stays: what is not finite has no bound.
  return [jnp.min(jnp.stack(column)) for column in zip(*chains, strict=True)]


def check_order(order: float) -> float:
  """Returns `order` if it is 1, 2 or infinity."""
  if order not in ORDERS:
    raise ValueError(f'p must be 1, 2 or inf, got {order}')
  return order
