"""Vector norms, and the operator norms they induce where a closed form exists.

For a matrix A and the map x -> A x, ||A||_{p,q} = sup ||A x||_q / ||x||_p.
"""

import math

import jax.numpy as jnp

from dpjax.lipschitz import norms
from dpjax.typing import Array

ORDERS = (1, 2, math.inf)
_UNIT_ROUNDOFF = 2.0**-24


def vector_norm(x: Array, order: float) -> Array:
  """Returns the l_p norm over the last axis, for p in {1, 2, inf}.

  Barczewski (2025, equation 2.7.1) also allows p < 1, which is not a norm.
  Item NORM-01.
  """
  check_order(order)
  return jnp.linalg.norm(x, order, axis=-1)


def induced_norm(matrix: Array, input_order: float,
                 output_order: float) -> Array:
  """Returns ||A||_{p,q} where a closed form exists, rounded up.

  | p, q      | value                                        |
  |-----------|----------------------------------------------|
  | 1, 1      | largest column sum of absolute values        |
  | inf, inf  | largest row sum of absolute values           |
  | 1, inf    | largest absolute entry                       |
  | 2, inf    | largest l2 norm of a row                     |
  | 1, 2      | largest l2 norm of a column                  |
  | 2, 2      | `norms.spectral_upper_bound`                 |

  The (2, 2) value is a certified upper bound. (2, 1), (inf, 1) and (inf, 2)
  are NP-hard. Norms compose:
  ||A B||_{a,c} <= ||A||_{b,c} ||B||_{a,b}. Barczewski (2025, section 2.7);
  items NORM-02, NORM-03, NORM-05.

  Args:
    matrix: A of y = A x, [m, n]; for a layer that computes x W it is W^T.
    input_order: p, one of 1, 2, inf.
    output_order: q, one of 1, 2, inf.

  Raises:
    ValueError: the pair (p, q) has no closed form.
  """
  check_order(input_order)
  check_order(output_order)
  if input_order == output_order == 2:
    return norms.spectral_upper_bound(matrix)
  margin = 1 + (max(matrix.shape) + 4) * _UNIT_ROUNDOFF
  if output_order == math.inf:
    # ||A||_{p,inf} is the largest dual norm of a row.
    dual = {1: math.inf, 2: 2, math.inf: 1}[input_order]
    return margin * jnp.max(row_norms(matrix, dual))
  if input_order == 1:
    return margin * jnp.max(row_norms(matrix.T, output_order))
  raise ValueError(f'the induced ({input_order}, {output_order}) norm has no '
                   'closed form')


def row_norms(matrix: Array, order: float) -> Array:
  """Returns the l_p norm of each row, without overflow or underflow."""
  if order != 2:
    return vector_norm(matrix, order)
  # Entries are divided by the largest, so that squares stay within float32.
  largest = jnp.max(jnp.abs(matrix), axis=1)
  scale = jnp.where(largest == 0, 1.0, largest)
  return largest * vector_norm(matrix / scale[:, None], 2)


def check_order(order: float) -> float:
  """Returns p = `order`; raises ValueError unless it is 1, 2 or infinity."""
  if order not in ORDERS:
    raise ValueError(f'p must be 1, 2 or inf, got {order}')
  return order
