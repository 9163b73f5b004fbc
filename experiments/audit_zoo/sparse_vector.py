"""The sparse vector technique with any scales, and its exact distribution.

The technique says for each query in turn whether its noisy answer exceeds one
noisy threshold, and stops after `cutoff` positive answers. Lyu, Su and Li
(2017) compare six published versions, of which four are not private. The
versions differ in the scales of the noise and in the cutoff alone.
"""

import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.typing import Array, PRNGKey

# Nodes of each piece of the integral over the noise of the threshold, and how
# many of its scales the pieces cover: e^-40 of the mass is left out.
_NODES, _REACH = 48, 40.0


class Version(NamedTuple):
  """One version of the technique, for the threshold 0.

  Attributes:
    threshold_scale: scale of the Laplace noise of the threshold.
    query_scale: scale of the Laplace noise of each answer; 0 for none.
    cutoff: number of positive answers after which it stops.
  """
  threshold_scale: float
  query_scale: float
  cutoff: int


def above(key: PRNGKey, queries: Array,
          version: Version) -> tuple[Array, Array]:
  """Runs the technique on the exact answers [w].

  Returns:
    Answers [w]: 1 above, 0 below, -1 after the stop; and noisy answers [w].
  """
  threshold_key, query_key = jax.random.split(key)
  threshold = version.threshold_scale * jax.random.laplace(threshold_key)
  noisy = queries + version.query_scale * jax.random.laplace(query_key,
                                                             queries.shape)
  positive = (noisy >= threshold).astype(jnp.int32)
  # An answer is given as long as fewer than `cutoff` before it were positive.
  before = jnp.cumsum(positive) - positive
  return jnp.where(before < version.cutoff, positive, -1), noisy


def outcomes(width: int, cutoff: int) -> np.ndarray:
  """Returns all possible answers [m, width] to `width` queries."""
  answers = np.array(list(itertools.product((0, 1), repeat=width)))
  before = np.cumsum(answers, 1) - answers
  return np.unique(np.where(before < cutoff, answers, -1), axis=0)


def distribution(queries: np.ndarray, version: Version) -> np.ndarray:
  """Returns the exact probabilities of `outcomes`, by Gauss quadrature.

  Given the noise of the threshold, answers are independent, so the integral is
  over one number; its integrand is analytic between 0 and the exact answers.
  """
  queries = np.asarray(queries, np.float64)
  ends = _REACH * version.threshold_scale
  kinks = np.unique([-ends, *np.minimum(queries, ends), 0.0, ends])
  nodes, weights = np.polynomial.legendre.leggauss(_NODES)
  halves = np.diff(kinks)[:, None] / 2
  points = (kinks[:-1, None] + halves * (1 + nodes)).ravel()
  mass = (halves * weights).ravel() * _density(points, version.threshold_scale)
  # P(query + noise < point), [points, w].
  below = _below(points[:, None] - queries, version.query_scale)
  answers = outcomes(queries.size, version.cutoff)[:, None]
  return np.prod(np.where(answers < 0, 1.0, np.where(
      answers == 1, 1 - below, below)), axis=2) @ mass


def _density(values: np.ndarray, scale: float) -> np.ndarray:
  """Returns the density of Laplace noise."""
  return np.exp(-np.abs(values) / scale) / (2 * scale)


def _below(values: np.ndarray, scale: float) -> np.ndarray:
  """Returns the probability that Laplace noise is below; 0 and 1 at scale 0."""
  if scale == 0:
    return (values > 0).astype(np.float64)
  tails = np.exp(-np.abs(values) / scale) / 2
  return np.where(values > 0, 1 - tails, tails)


def private(epsilon: float, cutoff: int) -> Version:
  """Returns the private version: Algorithm 1 of Lyu, Su and Li (2017).

  Half of epsilon hides the threshold, which moves by 1 at most together with
  all negative answers. The other half hides the positive answers, of which
  there are `cutoff`: each may cross by 1 while the threshold moves by 1, which
  costs 2 / query_scale each.
  """
  return Version(threshold_scale=2 / epsilon, query_scale=4 * cutoff / epsilon,
                 cutoff=cutoff)


def epsilon_of(one: np.ndarray, other: np.ndarray, version: Version) -> float:
  """Returns the exact epsilon of the answers on a pair of exact answers."""
  probs = [distribution(queries, version) for queries in (one, other)]
  with np.errstate(divide='ignore', invalid='ignore'):
    ratios = np.abs(np.log(probs[0]) - np.log(probs[1]))
  # Outcomes that neither data set has are no evidence.
  return float(np.max(ratios[(probs[0] > 0) | (probs[1] > 0)],
                      initial=-math.inf))
