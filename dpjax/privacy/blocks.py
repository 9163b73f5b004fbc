"""Noise for several blocks of one release: joint multiplier, allocation.

A step that noises K blocks of the same subsample is one Gaussian mechanism. Let
D_k be the l2 bound of one record's contribution to block k, and s_k the
standard deviation of the noise in block k. Dividing block k by s_k gives unit
noise and a contribution of norm at most 1/z with

  z = (sum_k (D_k / s_k)^2)^(-1/2),

the joint noise multiplier: the only multiplier that may be passed to an
accountant. Noise of sigma D_k in each block gives z = sigma / sqrt(K).
Barczewski (2025) accounts for z = sigma instead (erratum E2; item DP-19).
"""

from collections.abc import Sequence

import jax.numpy as jnp

from dpjax import errors
from dpjax import floats
from dpjax.typing import Array

ALLOCATIONS = ('optimal', 'equal', 'global')


def joint_noise_multiplier(l2_sensitivities: Array, stddevs: Array) -> Array:
  """Returns the joint multiplier z of blocks noised on one subsample.

  Args:
    l2_sensitivities: [K] l2 bounds of one record's contribution.
    stddevs: [K] standard deviations of the noise, positive.
  """
  return jnp.sum(jnp.square(l2_sensitivities / stddevs))**-0.5


def allocate(l2_sensitivities: Array, *, noise_multiplier: Array | float,
             sizes: Sequence[int], rule: str = 'optimal') -> Array:
  """Returns standard deviations [K] with joint multiplier `noise_multiplier`.

  Source: item DP-20.

  Rules:
    'optimal': minimises the expected squared norm of all noise, sum_k d_k
      s_k^2; s_k = z sqrt(A) sqrt(D_k) d_k^(-1/4), A = sum_j D_j sqrt(d_j).
    'equal': the same multiplier for each block, s_k = z sqrt(K) D_k.
    'global': one standard deviation, s = z sqrt(sum_k D_k^2).

  Args:
    l2_sensitivities: [K] l2 bounds D_k, positive.
    noise_multiplier: target of the joint multiplier z.
    sizes: number of scalars d_k in each block.
    rule: one of `ALLOCATIONS`.
  """
  errors.check_choice('rule', rule, ALLOCATIONS)
  sensitivity = jnp.asarray(l2_sensitivities)
  if rule == 'equal':
    return noise_multiplier * len(sizes)**0.5 * sensitivity
  # Sensitivities are scaled to about 1, since squares of small ones would
  # underflow to 0 in float32, and the noise with them. Multiplication by a
  # power of two is exact.
  unit = floats.power_of_two_below(jnp.max(sensitivity))
  sensitivity = sensitivity * floats.inverse_power_of_two(unit).astype(
      sensitivity.dtype)
  unit = unit.astype(sensitivity.dtype)
  if rule == 'global':
    total = jnp.sqrt(jnp.sum(jnp.square(sensitivity)))
    return noise_multiplier * total * jnp.ones_like(sensitivity) * unit
  root_sizes = jnp.sqrt(jnp.asarray(sizes, sensitivity.dtype))
  total = jnp.sum(sensitivity * root_sizes)
  return (noise_multiplier * jnp.sqrt(total * sensitivity / root_sizes)) * unit
