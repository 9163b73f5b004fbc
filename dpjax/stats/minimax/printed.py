"""Lower bounds as printed, where that is false or loose: in quarantine.

Nothing of this is a bound to rely on; experiments draw it beside the true ones,
and tests show what contradicts it. Adjacency: REPLACE_ONE. Source: spec
minimax.md, section 10 (E-05 to E-07, E-23) and LB-ACH. What is merely
loose in a constant is a `statement=` or `printed=` of the true function (E-21:
`testing.assouad`).
"""

import math

import numpy as np

from dpjax.privacy import notions
from dpjax.stats.minimax import similarities
from dpjax.stats.minimax import testing


def printed_pairwise_anchor(distances: np.ndarray,
                            guarantee: notions.PureDP | notions.ApproxDP
                            ) -> float:
  """`similarities.pairwise_anchor` over all K^2 pairs, i = j with them.

  FALSE (thesis 000, Lemma 3.3.8; E-05): at least 1 / (2 K) for every mechanism,
  whereas randomised response errs little.

  Args:
    distances: [K, K].
    guarantee: pure or approximate.
  """
  many = len(distances)
  return ((many - 1) * similarities.pairwise_anchor(distances, guarantee)
          + 0.5) / many


def printed_pairwise(variations: np.ndarray, *, num_examples: int,
                     guarantee: notions.PureDP | notions.ApproxDP,
                     joint: bool = False) -> float:
  """`hypotheses.pairwise` over all K^2 pairs.

  FALSE (thesis 000, Theorem 3.2.3, second term, and first term for products;
  E-05).

  Args:
    variations: [K, K], t of one record, or TV_n of all of them if `joint`.
    num_examples: n.
    guarantee: pure or approximate.
    joint: whether laws of data sets are given.
  """
  moved, n = testing.moves(variations), num_examples
  lost = 2 * n * math.exp(-guarantee.epsilon) * getattr(guarantee, 'delta', 0.0)
  if joint:
    return float(0.5 - np.mean((-math.expm1(-n * guarantee.epsilon) + lost)
                               * moved) / 2)
  alike = np.power(1 + math.expm1(-guarantee.epsilon) * moved, n)
  return float(np.mean(alike - lost * moved) / 2)


def printed_fano(variations: np.ndarray, *, num_examples: int, epsilon: float
                 ) -> float:
  """Fano's term of Theorem 3.2.3 for any laws, with ln K where 1 + TV belongs.

  FALSE (thesis 000; E-23): a thousand hypotheses, epsilon = 8.

  Args:
    variations: [K, K], TV_n of all records.
    num_examples: n.
    epsilon: of the release.
  """
  size = math.log(len(variations))
  mean = float(np.mean(2 * np.asarray(variations, np.float64))) / size
  return 1 - (1 + num_examples * epsilon * mean) / size


def printed_packing_risk(separation: float, error: float) -> float:
  """Separation squared times `hypotheses.packing`: a squared error.

  FALSE (paper 004, Theorem 3; E-07): balls of that radius are not disjoint. The
  middle of two points, whatever the data, is never as far from either; half of
  the separation is right, a fourth of this.
  """
  return separation**2 * error


def printed_contraction(variations: np.ndarray, *, level: float) -> float:
  """Twice `hypotheses.contraction`: true, loose (004, Theorem 2; E-06)."""
  return 2 * level * float(np.sum(np.asarray(variations, np.float64)))


def printed_two(variation: np.ndarray, *, num_examples: int, epsilon: float,
                delta: float = 0.0) -> np.ndarray:
  """(.9 e^(-10 epsilon n t) - 10 delta n t) / 2: true, loose (LB-ACH).

  Acharya, Sun and Zhang 2021, Theorem 1, as thesis 000 quotes it. In ln of the
  error ten times `testing.le_cam_pure`.
  """
  moved = num_examples * np.asarray(variation, np.float64)
  return (0.9 * np.exp(-10 * epsilon * moved) - 10 * delta * moved) / 2


def printed_many(num_hypotheses: int, distance: float, *, epsilon: float
                 ) -> float:
  """.9 min(1, K e^(-10 epsilon D)), the largest of K errors (LB-ACH).

  FALSE for less than 10 hypotheses as thesis 000 quotes it (3.13): at D = 0 a
  guess by lot errs with 1 - 1/K < .9.

  Args:
    num_hypotheses: K.
    distance: D, records that differ, at most in mean.
    epsilon: of the release.
  """
  return 0.9 * min(1.0, num_hypotheses * math.exp(-10 * epsilon * distance))
