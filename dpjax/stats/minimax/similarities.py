"""What no private test of K given data sets can err less than.

A similarity is a function of the Hamming distances of X_1 .. X_K that is at
most the mean of the K errors P(guess != k | X_k), whatever the private
mechanism and the guess. Its mean over a coupling of K laws of data bounds the
tests of the laws (thesis 000, Theorem 3.3.2; item LB-MASTER). A value below 0
says nothing. Source: thesis 000, Section 3.3 (item SIM-1 to SIM-7, E-05);
`star`, `pairs` and `decoding` are ours, and sharper.

Adjacency: REPLACE_ONE. An anchor is one more data set; a rectangle of data sets
is closed under taking any record from any of them, so that anchors between data
sets exist.
"""

from collections.abc import Callable
import math

import numpy as np

from dpjax.privacy import notions
from dpjax.stats.minimax import groups
from dpjax.stats.minimax import testing
from dpjax.stats.minimax.bounds import Guarantee

# Weights e^t that are tried: so many steps of epsilon, and so many apart from
# them; then so many between the neighbours of the best.
_STEPS, _COARSE, _FINE = 24, 65, 33

Similarity = Callable[[np.ndarray, Guarantee], float]
"""(distances [K, K], guarantee) -> the mean of K errors, at least."""


def global_anchor(distances: np.ndarray, guarantee: Guarantee) -> float:
  """SIM-1: (K - 1) / K e^(-epsilon m) - e^-epsilon delta m.

  The errors of an anchor sum to K - 1, and those of X_k are no less than
  e^(-epsilon d) as large. `star` is the best that is known of one anchor.

  Args:
    distances: [K], of the data sets from the anchor; m is the largest.
    guarantee: pure or approximate.
  """
  epsilon, delta = _levels(guarantee)
  many, most = len(distances), float(np.max(distances))
  return ((many - 1) / many * math.exp(-epsilon * most)
          - math.exp(-epsilon) * delta * most)


def projection_anchor(distances: np.ndarray, guarantee: Guarantee) -> float:
  """SIM-2: one of the data sets is the anchor, the best of them; [K, K]."""
  return max(global_anchor(line, guarantee) for line in _square(distances))


def midpoint_anchor(distances: np.ndarray, guarantee: Guarantee) -> float:
  """SIM-3: two data sets, and one between them; [2, 2]."""
  distances = _square(distances)
  if len(distances) != 2:
    raise ValueError(f'there must be 2 data sets, got {len(distances)}')
  return float(_between(distances[0, 1], guarantee))


def pairwise_anchor(distances: np.ndarray, guarantee: Guarantee) -> float:
  """SIM-4: half of that mean over pairs i != j, corrected; [K, K].

  The thesis (Lemma 3.3.8) takes i = j into the mean over K^2 pairs, where it
  claims that twice an error is at least 1: `printed.printed_pairwise_anchor`.
  """
  apart = _off(_square(distances))
  return float(np.mean(_between(apart, guarantee)))


def _between(distance: np.ndarray, guarantee: Guarantee) -> np.ndarray:
  epsilon, delta = _levels(guarantee)
  half = np.ceil(np.asarray(distance) / 2)
  return np.exp(-epsilon * half) / 2 - math.exp(-epsilon) * delta * half


def le_cam(distances: np.ndarray, guarantee: Guarantee) -> float:
  """SIM-6: two data sets under zCDP, (1 - sqrt(rho / 2) d) / 2; [2, 2]."""
  distances = _square(distances)
  if len(distances) != 2:
    raise ValueError(f'there must be 2 data sets, got {len(distances)}')
  if not isinstance(guarantee, notions.ZCDP):
    raise ValueError(f'zCDP is needed, got {type(guarantee).__name__}')
  return float(testing.le_cam_zcdp(distances[0, 1], num_records=1,
                                   rho=guarantee.rho))


def fano(distances: np.ndarray, guarantee: Guarantee) -> float:
  """SIM-5, SIM-7: 1 - (1 + mean of epsilon d, or rho d^2) / ln K; [K, K]."""
  distances = _square(distances)
  match guarantee:
    case notions.PureDP(epsilon=epsilon):
      divergences = epsilon * distances
    case notions.ZCDP(rho=rho):
      divergences = rho * np.square(distances)
    case _:
      raise ValueError('pure privacy or zCDP is needed, got '
                       f'{type(guarantee).__name__}')
  return testing.fano(np.mean(divergences, 1))


def decoding(distances: np.ndarray, guarantee: Guarantee) -> float:
  """Fano's lemma in full, with what divergences really are; [K, K].

  Each X_j serves as the centre: the least of K means of divergences counts.
  Pure privacy: epsilon d tanh(epsilon d / 2) is above `groups.divergence`.
  """
  distances = _square(distances)
  means = np.mean(groups.divergence(distances, guarantee), 0)
  return float(testing.decoding(means.min(), math.log(len(distances))))


def star(distances: np.ndarray, guarantee: Guarantee) -> float:
  """One anchor, at its best; exact if the data sets were joined by it alone.

  With s_k the success at X_k and p_k the probability of guess k at the anchor,
  s_k - e^t p_k is at most `groups.excess`; the p_k sum to 1.

  Args:
    distances: [K], of the data sets from the anchor.
    guarantee: of the release.
  """
  found, counts = np.unique(distances, return_counts=True)
  many = len(distances)

  def error(log_weight):
    excess = groups.excess(log_weight[..., None], found, guarantee)
    return 1 - np.exp(log_weight) / many - excess @ counts / many
  return float(largest(error, guarantee, math.log(many)))


def pairs(distances: np.ndarray, guarantee: Guarantee) -> float:
  """All data sets are anchors of each other; [K, K].

  With s_ij the probability of guess i at X_j, s_ii - e^t s_ij is at most the
  excess at d_ij. Over all i != j, s_ij sums to K less the sum of successes:

    error >= (K - 1) / (K - 1 + e^t) (1 - mean excess),  for every t.

  Randomised response is the case of equality at d = 1; with K = 2 and t = 0 it
  is `two_points.path_error`. Twice (K - 1) / K of `pairwise_anchor`, or more.
  """
  found, counts = np.unique(_off(_square(distances)), return_counts=True)

  def error(log_weight):
    excess = groups.excess(log_weight[..., None], found, guarantee)
    return share(log_weight, math.log(len(distances))) * (
        1 - excess @ counts / counts.sum())
  return float(largest(error, guarantee, math.log(len(distances))))


SIMILARITIES: dict[str, Similarity] = {
    'projection_anchor': projection_anchor, 'midpoint_anchor': midpoint_anchor,
    'pairwise_anchor': pairwise_anchor, 'fano': fano, 'le_cam': le_cam,
    'decoding': decoding, 'pairs': pairs}


def share(log_weight: np.ndarray, log_hypotheses: float) -> np.ndarray:
  """(K - 1) / (K - 1 + e^t)."""
  others = log_hypotheses + math.log(-math.expm1(-log_hypotheses))
  return 1 / (1 + np.exp(np.minimum(log_weight - others, 700.0)))


def largest(error: Callable[[np.ndarray], np.ndarray], guarantee: Guarantee,
            log_hypotheses: float) -> np.ndarray:
  """The largest of a bound over its weights e^t; every t is valid.

  Args:
    error: of t [M], or [..., M], values of the same shape or with more axes in
      front.
    guarantee: kinks are at multiples of epsilon.
    log_hypotheses: ln K.

  Returns:
    The values without their last axis.
  """
  reach = log_hypotheses + 3
  grid = np.linspace(-reach, reach, _COARSE)
  if isinstance(guarantee, (notions.PureDP, notions.ApproxDP)):
    grid = np.concatenate([grid, guarantee.epsilon * np.arange(
        -_STEPS, _STEPS + 1)])
  grid = np.unique(np.append(grid, 0.0))
  values = error(grid)
  place = np.argmax(values, -1)
  low, high = (grid[np.clip(place + step, 0, grid.size - 1)]
               for step in (-1, 1))
  fine = error(np.linspace(low, high, _FINE, axis=-1))
  return np.maximum(values.max(-1), fine.max(-1))


def _levels(guarantee: Guarantee) -> tuple[float, float]:
  match guarantee:
    case notions.PureDP(epsilon=epsilon):
      return epsilon, 0.0
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      return epsilon, delta
    case _:
      raise ValueError('pure or approximate privacy is needed, got '
                       f'{type(guarantee).__name__}')


def _square(distances: np.ndarray) -> np.ndarray:
  found = np.asarray(distances, np.float64)
  if found.ndim != 2 or found.shape[0] != found.shape[1] or len(found) < 2:
    raise ValueError('distances must be [K, K] of two data sets at least, got '
                     f'shape {found.shape}')
  return found


def _off(square: np.ndarray) -> np.ndarray:
  """[K (K - 1)]: all but the diagonal."""
  return square[~np.eye(len(square), dtype=bool)]
