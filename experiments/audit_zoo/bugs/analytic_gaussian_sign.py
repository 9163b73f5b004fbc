"""The analytic Gaussian mechanism with the wrong sign in its scale.

Balle and Wang (2018, Algorithm 1) solve for v and take alpha = sqrt(1 + v / 2)
+ sqrt(v / 2) where delta is small, with a minus where it is large. The two
alphas are reciprocal, so with the minus the noise is far too small. The twin
has the plus, which is exact.
"""

import math

import jax
import jax.numpy as jnp
from scipy import optimize
from scipy import stats

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug

EPSILON, DELTA = 1.0, 1e-5
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def sigma(sign: int) -> float:
  """Returns the scale for sensitivity 1, with `sign` before sqrt(v / 2).

  Valid where delta is below that of v = 0, as it is here.
  """
  def excess(v: float) -> float:
    tails = stats.norm.cdf([-math.sqrt(EPSILON * v),
                            -math.sqrt(EPSILON * (v + 2))])
    return float(tails[0] - math.exp(EPSILON) * tails[1] - DELTA)
  v = optimize.brentq(excess, 0.0, 1000.0)
  alpha = math.sqrt(1 + v / 2) + sign * math.sqrt(v / 2)
  return alpha / math.sqrt(2 * EPSILON)


def _released(key: PRNGKey, data: Array, stddev: float) -> Array:
  """Returns the sum of numbers in [0, 1] with Gaussian noise."""
  return jnp.sum(data) + stddev * jax.random.normal(key)


FAULTY_SIGMA, FIXED_SIGMA = sigma(-1), sigma(1)

BUG = bug.Bug(
    name='analytic_gaussian_sign',
    title='The scale of the analytic Gaussian mechanism has a minus instead of '
          'a plus.',
    source='smartnoise-core, issue 316, '
           'https://github.com/opendp/smartnoise-core/issues/316; '
           'Balle and Wang (2018, Algorithm 1)',
    claim=claims.Claim(epsilon=EPSILON, delta=DELTA, adjacency=_ADD_OR_REMOVE),
    true_epsilon=accounting.gaussian_epsilon(shift=1 / FAULTY_SIGMA,
                                             delta=DELTA),
    faulty=lambda key, data: _released(key, data, FAULTY_SIGMA),
    fixed=lambda key, data: _released(key, data, FIXED_SIGMA),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(0.0, 1.0)),
    worst=Pair(arrays.float32([0, 1]), arrays.float32([0]),
               'with 1 or without'))
