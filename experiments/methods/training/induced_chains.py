"""Gradient bounds from operator norms induced by other norms than l2.

A loss is a number, so the (2, p) norm of its parameter gradient is the l2 norm
of that gradient for every p. The noise is Gaussian and sensitivities are l2
for all p (Barczewski 2025, equations (5.2.11)-(5.2.14); item NORM-06, erratum
E14). The choice of p sets the norm in which the cotangent (the loss gradient at
a layer's output) is bounded through the layers. Each p gives a valid bound, so
the smallest of them is valid too. Notation as in `dpjax.lipschitz.induced`.
"""

from collections.abc import Mapping, Sequence
import itertools
import math

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.lipschitz import convolution
from dpjax.lipschitz import norms
from dpjax.lipschitz.induced import check_order
from dpjax.lipschitz.induced import induced_norm
from dpjax.lipschitz.induced import row_norms
from dpjax.typing import Array

_MOST_SIGNS = 14
_UNIT_ROUNDOFF = 2.0**-24


def sign_enumeration(matrix: np.ndarray) -> float:
  """Computes ||A||_{2,1}: the largest ||A^T e||_2 over sign vectors e.

  The time is exponential in the number of rows; at most 14 rows are allowed.
  Barczewski (2025, section 5.2.3) says that this norm takes linear time, which
  holds for the entrywise L21 norm of `bound_2_1`. Item NORM-04, erratum E14.
  """
  rows = matrix.shape[0]
  if rows > _MOST_SIGNS:
    raise ValueError(f'at most {_MOST_SIGNS} rows can be enumerated, got '
                     f'{rows}')
  signs = np.array(list(itertools.product((-1.0, 1.0), repeat=rows)))
  return float(np.linalg.norm(signs @ np.asarray(matrix, np.float64),
                              axis=1).max())


def bound_2_1(matrix: Array) -> Array:
  """Returns an upper bound of ||A||_{2,1}.

  It is the smaller of sum_i ||row_i||_2 and sqrt(m) ||A||_2. Item NORM-04.
  """
  margin = 1 + (sum(matrix.shape) + 4) * _UNIT_ROUNDOFF
  rows = margin * jnp.sum(row_norms(matrix, 2))
  spectral = norms.spectral_upper_bound(matrix)
  return jnp.minimum(rows, matrix.shape[0]**0.5 * (1 + 1e-6) * spectral)


def dense_norm(kernel: Array, order: float) -> Array:
  """Returns ||x -> x W||_{p,p} of an [n_in, n_out] kernel. Item NORM-02."""
  return induced_norm(kernel.T, order, order)


def conv_norm(kernel: Array, shape: convolution.ConvShape,
              order: float) -> Array:
  """Returns an upper bound of ||x -> conv(x, kernel)||_{p,p}.

  p = inf: the largest sum of absolute taps of an output channel, since an
  output sees one patch. p = 1: the largest sum of absolute taps that one input
  pixel meets, over input channels and stride phases. Both are attained if some
  patch lies inside the image. p = 2: `convolution.fourier_upper_bound`.
  Barczewski (2025, Theorem 5.2.1) gives the largest tap alone for p = inf,
  which is too small: erratum E8.

  Args:
    kernel: [kh, kw, c_in, c_out].
    shape: geometry of the convolution.
    order: p, one of 1, 2, inf.
  """
  check_order(order)
  convolution.check_shape(kernel.shape, shape)
  if order == 2:
    return convolution.fourier_upper_bound(kernel, shape)
  sizes = jnp.abs(kernel)
  if order == 1:
    sizes = convolution.phases_as_channels(sizes, shape.strides)
  # Sums over all axes but one: output channels for inf, inputs for 1.
  kept = 3 if order == math.inf else 2
  added = tuple(axis for axis in range(4) if axis != kept)
  margin = 1 + (kernel.size // sizes.shape[kept] + 4) * _UNIT_ROUNDOFF
  return margin * jnp.max(jnp.sum(sizes, added))


def dense_parameter_factor(width: int, order: float) -> float:
  """Returns kappa_p, the norm of dW -> x dW (Frobenius to l_p) over ||x||_2.

  It is 1 for p = 2 and inf, and sqrt(n_out) for p = 1; Barczewski (2025,
  section 5.2.2) omits this factor. Item NORM-06, erratum E14.

  Args:
    width: n_out, at least 1.
    order: p, one of 1, 2, inf.
  """
  errors.check_at_least('width', width, 1)
  return math.sqrt(width) if check_order(order) == 1 else 1.0


def conv_parameter_factor(kernel_shape: tuple[int, ...],
                          shape: convolution.ConvShape,
                          order: float) -> float:
  """Returns an upper bound of kappa_p for a convolution without bias.

  It is sqrt(multiplicity) for p = 2, sqrt(multiplicity * number of outputs)
  for p = 1, and 1 for p = inf, where an output sees one patch of the image.
  Items NORM-06, NET-02. See `dense_parameter_factor`.
  """
  convolution.check_shape(kernel_shape, shape)
  if check_order(order) == math.inf:
    return 1.0
  taps = kernel_shape[:2]
  outputs = math.prod(shape.output_size(taps)) * kernel_shape[3]
  return math.sqrt(convolution.multiplicity(taps, shape.strides)
                   * (outputs if order == 1 else 1))


def cross_entropy_dual_norm(order: float, *, temperature: float = 1.0) -> float:
  """Returns the largest *dual* l_p* norm of the cross entropy's logit gradient.

  It is (1, sqrt(2), 2) / temperature for p = 1, 2, inf: softmax minus one-hot
  has one negative entry, above -1, and the others sum to its size. Barczewski
  (2025, Table 5.1) has one constant for all p. Item NORM-06, erratum E14.
  """
  errors.check_positive('temperature', temperature)
  return {1: 1.0, 2: math.sqrt(2), math.inf: 2.0}[
      check_order(order)] / temperature


def hinge_dual_norm(order: float, *, num_classes: int) -> float:
  """Returns the largest dual norm of the multiclass hinge's logit gradient.

  With c classes it is (c - 1) / c, sqrt((c - 1) / c), 2 (c - 1) / c for p = 1,
  2, inf, attained when all margins are active. The constant 1 of Barczewski
  (2025, Table 5.1) is too small for p = inf from three classes on. Items
  NORM-06, LOSS-04, errata E14 and E15.
  """
  # Size of the true class's gradient entry when all margins are active.
  active = 1 - 1 / errors.check_at_least('num_classes', num_classes, 2)
  return {1: active, 2: math.sqrt(active), math.inf: 2 * active}[
      check_order(order)]


def chain_bounds(operator_norms: Mapping[float, Sequence[Array]],
                 loss_norms: Mapping[float, float],
                 parameter_norms: Mapping[float, Sequence[Array]]
                 ) -> list[Array]:
  """Bounds the l2 norm of one record's gradient in each layer.

  For each p, with all factors of the same p,

    ||dL/dW_k||_2 <= tau_p* product over i > k of ||W_i||_{p,p} kappa_p(k) B_k

  and the smallest bound over p is returned. Elementwise 1-Lipschitz layers in
  between are covered for every p, normalisation layers for p = 2 only.
  Corrects Barczewski (2025, equation 5.2.14): item NORM-06, errata E3 and E14.

  Args:
    operator_norms: p -> ||W_i||_{p,p} of each layer, from input to output.
    loss_norms: p -> bound of the dual norm of the loss gradient.
    parameter_norms: p -> for each layer, kappa_p times a bound on the l2 norm
      of its input (of (x, 1) if the layer has a bias).

  Returns:
    One bound per layer, from input to output.

  Raises:
    ValueError: no p is given, or p is not 1, 2 or inf.
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
  # NaN for any p makes the minimum NaN: a bound is then unknown.
  return [jnp.min(jnp.stack(column)) for column in zip(*chains, strict=True)]
