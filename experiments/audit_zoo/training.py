"""Parts of private training that the zoo's bugs share, and exact epsilons.

The model of all training bugs is linear, with loss -<weights, record>, so that
a record is its own negative gradient. A bug then shows in the sums of records.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize
from scipy import stats

from dpjax.audit import claims
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey

ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
DELTA = 1e-5
# No epsilon of the zoo is larger, unless it is infinite.
_LARGEST_EPSILON = 500.0


def clipped(gradients: Array, norm: Array | float) -> Array:
  """Returns gradients [n, d] scaled to l2 norms of at most `norm`.

  It is the usual line of code, for bounded records: NaN passes it.
  """
  norms = jnp.linalg.norm(gradients, axis=1, keepdims=True)
  return gradients * jnp.minimum(1.0, norm / jnp.maximum(norms, 1e-30))


def safely_clipped(gradients: Array, norm: float) -> Array:
  """Returns `clipped` gradients, with zeros for those that are not finite."""
  norms = jnp.linalg.norm(gradients, axis=1, keepdims=True)
  return jnp.where(jnp.isfinite(norms), clipped(gradients, norm), 0.0)


def in_batch(key: PRNGKey, gradients: Array, sampling_prob: float) -> Array:
  """Returns [n, 1] ones for the records of a Poisson batch, zeros for others.
  """
  return jax.random.bernoulli(key, sampling_prob,
                              (len(gradients), 1)).astype(jnp.float32)


def gaussian_claim(noise_multiplier: float, *, sampling_prob: float = 1.0,
                   num_steps: int = 1, delta: float = DELTA) -> claims.Claim:
  """Returns the claim of Gaussian noise on Poisson samples, with its event."""
  return claims.of_event(
      accounting.poisson_gaussian_event(
          sampling_prob=sampling_prob, noise_multiplier=noise_multiplier,
          num_steps=num_steps), delta=delta, adjacency=ADD_OR_REMOVE)


def pure_claim(epsilon: float, adjacency: Adjacency) -> claims.Claim:
  """Returns the claim of pure DP with this epsilon."""
  return claims.Claim(epsilon=epsilon, delta=0.0, adjacency=adjacency)


def shift_epsilon(shift: float) -> float:
  """Returns epsilon at `DELTA` of a Gaussian release.

  `shift` is the change of its mean in standard deviations.
  """
  return accounting.gaussian_epsilon(shift=shift, delta=DELTA)


def widths_epsilon(ratio: float, size: int) -> float:
  """Returns epsilon at `DELTA` of normals [size] with mean 0.

  Their standard deviations are 1 and `ratio` > 1. The likelihood ratio is a
  function of the length of the vector, whose square is chi-square distributed.
  """
  gain = size * np.log(ratio)
  slope = 2 / (1 - ratio**-2)

  def delta_of(epsilon: float) -> float:
    # The wide one is likelier far out, the narrow one near zero.
    out, near = slope * (gain + epsilon), max(slope * (gain - epsilon), 0.0)
    wide = stats.chi2.sf(out / ratio**2, size) - (
        np.exp(epsilon) * stats.chi2.sf(out, size))
    narrow = stats.chi2.cdf(near, size) - (
        np.exp(epsilon) * stats.chi2.cdf(near / ratio**2, size))
    return float(max(wide, narrow))

  return epsilon_at(delta_of, DELTA)


def densities_epsilon(first: np.ndarray, second: np.ndarray, cell: float,
                      delta: float = DELTA) -> float:
  """Returns epsilon at `delta` of two densities on a grid.

  Args:
    first: densities at the points of a grid.
    second: densities of the other distribution at the same points.
    cell: length, area or volume of a cell of the grid.
    delta: delta in (0, 1).
  """
  def delta_of(epsilon: float) -> float:
    growth = np.exp(epsilon)
    return cell * float(max(np.maximum(first - growth * second, 0).sum(),
                            np.maximum(second - growth * first, 0).sum()))

  return epsilon_at(delta_of, delta)


def epsilon_at(delta_of: Callable[[float], float], delta: float) -> float:
  """Returns the epsilon at which a decreasing function of it is `delta`."""
  return float(optimize.brentq(lambda epsilon: delta_of(epsilon) - delta, 0.0,
                               _LARGEST_EPSILON))
