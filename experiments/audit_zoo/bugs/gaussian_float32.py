"""Gaussian noise is added in floating point, and low-order bits tell the sum.

Noise near zero is finer than the rounding of a sum near 1. So a large part of
the releases of the sum 0 is impossible for the sum 1. The twin rounds the
release to a public grid, on which both sums lie, see
`additive.add_gaussian_noise`.
"""

import math

import jax
import jax.numpy as jnp

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug

SIGMA = 2.0
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def box_muller(key: PRNGKey, shape: tuple[int, ...]) -> Array:
  """Draws normal numbers of standard deviation SIGMA, by Box and Muller."""
  # Uniform on (0, 1]: the logarithm of 0 would be infinite.
  radius, angle = 1 - jax.random.uniform(key, (2, *shape))
  cosine = jnp.cos(2 * jnp.pi * angle)
  # The cosine stands below the root, because XLA fuses a last product with the
  # sum and rounds once, which hides the leak of libraries that round twice.
  return jnp.sign(cosine) * jnp.sqrt(
      -2 * SIGMA**2 * jnp.log(radius) * jnp.square(cosine))


BUG = bug.Bug(
    name='gaussian_float32',
    title='Gaussian noise in floating point reveals the sum in its low-order '
          'bits.',
    source='Jin et al. (2022), https://arxiv.org/abs/2112.05307',
    claim=claims.of_event(accounting.gaussian_event(noise_multiplier=SIGMA),
                          delta=1e-5, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf,
    faulty=lambda key, data: data + box_muller(key, data.shape),
    fixed=lambda key, data: additive.add_gaussian_noise(key, data, SIGMA),
    space=spaces.Sums(adjacency=_ADD_OR_REMOVE, sensitivity=1.0, order=2,
                      width=1),
    worst=Pair(arrays.float32([1]), arrays.float32([0]), '1 or 0'),
    floating_point=True)
