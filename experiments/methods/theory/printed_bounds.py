"""Printed lower bounds that are false or loose, kept apart from the true ones.

Do not rely on anything here. Experiments draw these beside the true bounds, and
tests show counterexamples. Adjacency: REPLACE_ONE. Errata E-05 to E-07 and
E-23, item LB-ACH. Bounds that are only loose in a constant are a `statement=`
or `printed=` of the true function (E-21: `testing.assouad`).
"""

import math

import numpy as np

from dpjax.privacy import notions
from experiments.methods.theory import similarities
from experiments.methods.theory import testing


def printed_pairwise_anchor(distances: np.ndarray,
                            guarantee: notions.PureDP | notions.ApproxDP
                            ) -> float:
  """Returns `similarities.pairwise_anchor` over all K^2 pairs, with i = j.

  FALSE (Lalanne, 2023, Lemma 3.3.8; erratum E-05): it is at least 1 / (2 K) for
  every mechanism, whereas randomised response errs little.

  Args:
    distances: [K, K], Hamming distances between data sets.
    guarantee: pure or approximate guarantee of the release.
  """
  many = len(distances)
  return ((many - 1) * similarities.pairwise_anchor(distances, guarantee)
          + 0.5) / many


def printed_pairwise(variations: np.ndarray, *, num_examples: int,
                     guarantee: notions.PureDP | notions.ApproxDP,
                     joint: bool = False) -> float:
  """Returns `hypotheses.pairwise` over all K^2 pairs.

  FALSE (Lalanne, 2023, Theorem 3.2.3, second term, and first term for products;
  erratum E-05).

  Args:
    variations: [K, K], t of one record, or TV_n of all of them if `joint`.
    num_examples: n, the number of records.
    guarantee: pure or approximate guarantee of the release.
    joint: whether distributions of data sets are given.
  """
  coupled, n = testing.moves(variations), num_examples
  loss = 2 * n * math.exp(-guarantee.epsilon) * getattr(guarantee, 'delta', 0.0)
  if joint:
    return float(0.5 - np.mean((-math.expm1(-n * guarantee.epsilon) + loss)
                               * coupled) / 2)
  alike = np.power(1 + math.expm1(-guarantee.epsilon) * coupled, n)
  return float(np.mean(alike - loss * coupled) / 2)


def printed_fano(variations: np.ndarray, *, num_examples: int, epsilon: float
                 ) -> float:
  """Returns Fano's term of Theorem 3.2.3 with ln K where 1 + TV belongs.

  FALSE (Lalanne, 2023; erratum E-23), for example for a thousand hypotheses and
  epsilon = 8.

  Args:
    variations: [K, K], TV_n of all records.
    num_examples: n, the number of records.
    epsilon: privacy budget of the release.
  """
  size = math.log(len(variations))
  mean = float(np.mean(2 * np.asarray(variations, np.float64))) / size
  return 1 - (1 + num_examples * epsilon * mean) / size


def printed_packing_risk(separation: float, error: float) -> float:
  """Returns the separation squared times `hypotheses.packing`: a squared error.

  FALSE (Barber and Duchi, 2014, Theorem 3; erratum E-07): balls of that radius
  are not disjoint. The midpoint of two points is never as far from either. Half
  of the separation is right, which gives a fourth of this.
  """
  return separation**2 * error


def printed_contraction(variations: np.ndarray, *, level: float) -> float:
  """Returns twice `hypotheses.contraction`: true, but loose.

  Source: Barber and Duchi (2014, Theorem 2; E-06).
  """
  return 2 * level * float(np.sum(np.asarray(variations, np.float64)))


def printed_two(variation: np.ndarray, *, num_examples: int, epsilon: float,
                delta: float = 0.0) -> np.ndarray:
  """Returns (.9 e^(-10 epsilon n t) - 10 delta n t) / 2: true, but loose.

  Item LB-ACH.

  Acharya, Sun and Zhang 2021, Theorem 1, as Lalanne (2023) quotes it. The log
  of the error is ten times that of `testing.le_cam_pure`.
  """
  differing = num_examples * np.asarray(variation, np.float64)
  return (0.9 * np.exp(-10 * epsilon * differing) - 10 * delta * differing) / 2


def printed_many(num_hypotheses: int, distance: float, *, epsilon: float
                 ) -> float:
  """Returns .9 min(1, K e^(-10 epsilon D)), for the largest of K errors.

  Item LB-ACH.

  FALSE for fewer than 10 hypotheses as Lalanne (2023, (3.13)) quotes it: at D =
  0 a random guess errs with probability 1 - 1/K < .9.

  Args:
    num_hypotheses: K, the number of hypotheses.
    distance: D, largest mean number of records that differ.
    epsilon: privacy budget of the release.
  """
  return 0.9 * min(1.0, num_hypotheses * math.exp(-10 * epsilon * distance))
