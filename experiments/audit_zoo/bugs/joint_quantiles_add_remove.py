"""Joint quantiles with the sensitivity of replacement, under addition.

The utility of quantiles is minus half the distance of the counts between them
from n times the gaps of the levels. A replaced record changes it by 1 at most.
For an added one, sensitivity 1/2 was printed, but n moves too, and with it all
targets: the sensitivity is 1 less the smallest gap, here 2/3. So the rate is
epsilon where it should be 3 epsilon / 4, as in the twin.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import divergences
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug

EPSILON = 3.0
GRID = np.arange(6, dtype=np.float32) / np.float32(5)
LEVELS = np.arange(4) / 3
PAIRS = np.array(list(itertools.combinations_with_replacement(range(6), 2)))
PRINTED, CORRECT = 1 / 2, 2 / 3
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def utilities(data: Array) -> Array:
  """Returns the utilities [21] of all pairs of candidates on the grid."""
  size = data.shape[0]
  # Numbers of records up to each candidate, [6].
  below = jnp.sum(data[:, None] <= GRID[None], axis=0).astype(jnp.float32)
  ends = jnp.concatenate([jnp.zeros([len(PAIRS), 1]), below[PAIRS],
                          jnp.full([len(PAIRS), 1], size)], axis=1)
  targets = np.float32(size * np.diff(LEVELS))[None]
  return -jnp.sum(jnp.abs(jnp.diff(ends, axis=1) - targets), axis=1) / 2


def _released(key: PRNGKey, data: Array, sensitivity: float) -> Array:
  """Returns two quantiles [2], by the exponential mechanism."""
  rate = EPSILON / (2 * sensitivity)
  gumbel = jax.random.gumbel(key, (len(PAIRS),))
  return jnp.asarray(GRID)[jnp.asarray(PAIRS)[
      jnp.argmax(rate * utilities(data) + gumbel)]]


def epsilon_of(pair: Pair, sensitivity: float) -> float:
  """Returns the exact epsilon on a pair, by enumeration of the 21 outcomes."""
  def probabilities(data: np.ndarray) -> np.ndarray:
    # In NumPy: float64, and nothing is compiled on import.
    below = np.sum(data[:, None] <= GRID, axis=0)
    ends = np.pad(below[PAIRS], ((0, 0), (1, 1)),
                  constant_values=((0, 0), (0, len(data))))
    costs = np.abs(np.diff(ends, axis=1) - len(data) * np.diff(LEVELS)).sum(1)
    weights = np.exp(-EPSILON / (2 * sensitivity) * costs / 2)
    return weights / weights.sum()
  p, q = map(probabilities, pair[:2])
  return max(divergences.max_divergence(p, q), divergences.max_divergence(q, p))


# Among data sets of at most 9 records of the grid, a search of all found no
# larger excess over epsilon.
WORST = Pair(GRID[[0, 0, 1, 1, 3, 3, 3, 5]],
             GRID[[0, 0, 1, 1, 3, 3, 3]], 'with 1 or without')

BUG = bug.Bug(
    name='joint_quantiles_add_remove',
    title='The joint exponential mechanism for quantiles forgets that an '
          'added record moves all target counts.',
    source='Barczewski (2025, Section 6.1.4), on the mechanism of Gillenwater, '
           'Joseph and Kulesza (2021), https://arxiv.org/abs/2102.08244',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=epsilon_of(WORST, PRINTED),
    faulty=lambda key, data: _released(key, data, PRINTED),
    fixed=lambda key, data: _released(key, data, CORRECT),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(0.0, 1.0),
                         constants=tuple(GRID.tolist())),
    worst=WORST)
