"""Lower bounds for private tests of K given data sets.

A similarity is a function of the Hamming distances of X_1 .. X_K that is at
most the mean of the K errors P(guess != k | X_k), for every private mechanism
and guess. Its mean over a coupling of K data distributions bounds the tests of
the distributions (Lalanne, 2023, Theorem 3.3.2; item LB-MASTER). A value below
0 proves nothing. Source: Lalanne (2023, section 3.3) (item SIM-1 to SIM-7,
E-05); `star`, `pairs` and `decoding` are our own, and
sharper.

Adjacency: REPLACE_ONE. An anchor is one more data set. The set of data sets
should contain all mixtures of their records, position by position, so that
anchors between data sets exist.
"""

from collections.abc import Callable
import math

import numpy as np

from dpjax.privacy import notions
from dpjax.theory.minimax.bounds import Guarantee
from experiments.methods.theory import groups
from experiments.methods.theory import testing

# Grid of t: multiples of epsilon up to _STEPS on either side and _COARSE evenly
# spaced values; then _FINE values between the neighbours of the best.
_STEPS, _COARSE, _FINE = 24, 65, 33

Similarity = Callable[[np.ndarray, Guarantee], float]
"""(distances [K, K], guarantee) -> lower bound of the mean of K errors."""


def global_anchor(distances: np.ndarray, guarantee: Guarantee) -> float:
  """Returns (K - 1) / K e^(-epsilon m) - e^-epsilon delta m (SIM-1).

  The errors at an anchor sum to K - 1, and those at X_k are at least
  e^(-epsilon d) times as large. `star` is the best known bound by one anchor.

  Args:
    distances: [K], distances of data sets from the anchor; m is the largest.
    guarantee: pure or approximate guarantee of the release.
  """
  epsilon, delta = _levels(guarantee)
  many, most = len(distances), float(np.max(distances))
  return ((many - 1) / many * math.exp(-epsilon * most)
          - math.exp(-epsilon) * delta * most)


def projection_anchor(distances: np.ndarray, guarantee: Guarantee) -> float:
  """Takes the best of the data sets as anchor; distances [K, K] (SIM-2)."""
  return max(global_anchor(line, guarantee) for line in _square(distances))


def midpoint_anchor(distances: np.ndarray, guarantee: Guarantee) -> float:
  """Takes an anchor between two data sets; distances [2, 2] (SIM-3)."""
  distances = _square(distances)
  if len(distances) != 2:
    raise ValueError(f'there must be 2 data sets, got {len(distances)}')
  return float(_between(distances[0, 1], guarantee))


def pairwise_anchor(distances: np.ndarray, guarantee: Guarantee) -> float:
  """Averages over anchors of pairs i != j; distances [K, K] (SIM-4).

  Lalanne (2023, Lemma 3.3.8) includes i = j in the mean over K^2 pairs, where
  it claims that twice an error is at least 1; corrected here.
  """
  apart = _off(_square(distances))
  return float(np.mean(_between(apart, guarantee)))


def _between(distance: np.ndarray, guarantee: Guarantee) -> np.ndarray:
  """Returns the bound by an anchor in the middle of two data sets."""
  epsilon, delta = _levels(guarantee)
  # The farther of the two is this far from the anchor.
  half = np.ceil(np.asarray(distance) / 2)
  return np.exp(-epsilon * half) / 2 - math.exp(-epsilon) * delta * half


def le_cam(distances: np.ndarray, guarantee: Guarantee) -> float:
  """Bounds the error for two data sets under zCDP; [2, 2] (SIM-6).

  It is (1 - sqrt(rho / 2) d) / 2.
  """
  distances = _square(distances)
  if len(distances) != 2:
    raise ValueError(f'there must be 2 data sets, got {len(distances)}')
  if not isinstance(guarantee, notions.ZCDP):
    raise ValueError(f'zCDP is needed, got {type(guarantee).__name__}')
  return float(testing.le_cam_zcdp(distances[0, 1], num_records=1,
                                   rho=guarantee.rho))


def fano(distances: np.ndarray, guarantee: Guarantee) -> float:
  """Bounds the error by Fano's lemma; distances [K, K] (SIM-5, SIM-7).

  It is 1 - (1 + mean of epsilon d, or rho d^2) / ln K.
  """
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
  """Bounds the error by Fano's lemma in full, with exact divergences; [K, K].

  Each X_j serves as centre, and the least of the K mean divergences counts. For
  pure privacy epsilon d tanh(epsilon d / 2) would exceed `groups.divergence`.
  """
  distances = _square(distances)
  means = np.mean(groups.divergence(distances, guarantee), 0)
  return float(testing.decoding(means.min(), math.log(len(distances))))


def star(distances: np.ndarray, guarantee: Guarantee) -> float:
  """Returns the best bound that one anchor gives.

  Exact if data sets are joined only through the anchor. With s_k the success
  probability at X_k and p_k the probability of guess k at the anchor, s_k - e^t
  p_k is at most `groups.excess`; the p_k sum to 1.

  Args:
    distances: [K], distances of the data sets from the anchor.
    guarantee: guarantee of the release.
  """
  distinct, counts = np.unique(distances, return_counts=True)
  many = len(distances)

  def error(log_weight: np.ndarray) -> np.ndarray:
    excess = groups.excess(log_weight[..., None], distinct, guarantee)
    return 1 - np.exp(log_weight) / many - excess @ counts / many
  return float(largest(error, guarantee, math.log(many)))


def pairs(distances: np.ndarray, guarantee: Guarantee) -> float:
  """Bounds the error with all data sets as anchors of each other; [K, K].

  With s_ij the probability of guess i at X_j, s_ii - e^t s_ij is at most the
  excess at d_ij. Over all i != j, s_ij sums to K minus the sum of successes:

    error >= (K - 1) / (K - 1 + e^t) (1 - mean excess),  for every t.

  Randomised response attains equality at d = 1; with K = 2 and t = 0 it is
  `two_points.path_error`. At least twice (K - 1) / K of `pairwise_anchor`.
  """
  distinct, counts = np.unique(_off(_square(distances)), return_counts=True)

  def error(log_weight: np.ndarray) -> np.ndarray:
    excess = groups.excess(log_weight[..., None], distinct, guarantee)
    return weight_of_others(log_weight, math.log(len(distances))) * (
        1 - excess @ counts / counts.sum())
  return float(largest(error, guarantee, math.log(len(distances))))


SIMILARITIES: dict[str, Similarity] = {
    'projection_anchor': projection_anchor, 'midpoint_anchor': midpoint_anchor,
    'pairwise_anchor': pairwise_anchor, 'fano': fano, 'le_cam': le_cam,
    'decoding': decoding, 'pairs': pairs}


def weight_of_others(log_weight: np.ndarray, log_hypotheses: float
                     ) -> np.ndarray:
  """Returns (K - 1) / (K - 1 + e^t), the weight of all hypotheses but one."""
  others = log_hypotheses + math.log(-math.expm1(-log_hypotheses))
  return 1 / (1 + np.exp(np.minimum(log_weight - others, 700.0)))


def largest(error: Callable[[np.ndarray], np.ndarray], guarantee: Guarantee,
            log_hypotheses: float) -> np.ndarray:
  """Maximises a bound over its weights e^t; every t is valid.

  Args:
    error: bound as a function of t [M] or [..., M]; its values have the same
      shape, or more axes in front.
    guarantee: bounds have kinks at multiples of its epsilon.
    log_hypotheses: ln K, where K is the number of hypotheses.

  Returns:
    The values without their last axis.
  """
  grid_end = log_hypotheses + 3
  grid = np.linspace(-grid_end, grid_end, _COARSE)
  if isinstance(guarantee, (notions.PureDP, notions.ApproxDP)):
    grid = np.concatenate([grid, guarantee.epsilon * np.arange(
        -_STEPS, _STEPS + 1)])
  grid = np.unique(np.append(grid, 0.0))
  # A coarse search, then a fine one between the neighbours of the best point.
  values = error(grid)
  place = np.argmax(values, -1)
  low, high = (grid[np.clip(place + step, 0, grid.size - 1)]
               for step in (-1, 1))
  fine = error(np.linspace(low, high, _FINE, axis=-1))
  return np.maximum(values.max(-1), fine.max(-1))


def _levels(guarantee: Guarantee) -> tuple[float, float]:
  """Returns epsilon and delta of a guarantee."""
  match guarantee:
    case notions.PureDP(epsilon=epsilon):
      return epsilon, 0.0
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      return epsilon, delta
    case _:
      raise ValueError('pure or approximate privacy is needed, got '
                       f'{type(guarantee).__name__}')


def _square(distances: np.ndarray) -> np.ndarray:
  """Checks distances [K, K] and returns them as float64."""
  square = np.asarray(distances, np.float64)
  if square.ndim != 2 or square.shape[0] != square.shape[1] or len(square) < 2:
    raise ValueError('distances must be [K, K] with K at least 2, got '
                     f'shape {square.shape}')
  return square


def _off(square: np.ndarray) -> np.ndarray:
  """Returns all but the diagonal, [K (K - 1)]."""
  return square[~np.eye(len(square), dtype=bool)]
