"""Lower bounds for means of records in R^d with a bounded k-th moment.

The class: E |X|^k <= r^k, Euclidean norm, k from 2 to infinity (|X| <= r). The
risk: the largest expected squared distance. In all of them a record is 0 but
with probability g, where its norm is r g^(-1/k), so that the mean has norm r
g^(1 - 1/k) at most; who is told which records are not 0 errs less, so bounds
are means over their number b ~ Bin(n, g).

* Two points, either sign of one direction: b records apart (`two_points`).
* A sphere: all records that are not 0 are one point of a sphere of radius r
  g^(-1/k), uniformly drawn (`minimax.spheres`).
* Scores of products of signs (`minimax.sign_vectors`), where sampling and
  privacy add up.
* No privacy: r^2 / (1 + sqrt n)^2, the minimax risk itself. The mean, shrunk by
  sqrt n / (1 + sqrt n), attains it in every dimension; the Beta prior of Hodges
  and Lehmann on two records +-r shows that none does better.

Source: paper 004, Propositions 2 and 4 (item MOD-KMOM), for the laws; their
constants are in `printed_moments`.
"""

import functools
import math

import numpy as np

from dpjax import errors
from dpjax.stats.minimax import sign_vectors
from dpjax.stats.minimax import spheres
from dpjax.stats.minimax import two_points
from dpjax.stats.minimax.bounds import Bound, Guarantee

_COARSE, _FINE = 28, 21
# Distances where less than this is left of the risk are not looked at.
_LEFT = 0.02


def check_class(moment: float, radius: float) -> None:
  """Refuses a moment below 2 and a radius that is not positive."""
  if not moment >= 2:
    raise ValueError(f'moment must be a number >= 2 or inf, got {moment}')
  errors.check_positive('radius', radius)


def lower(*, num_examples: int, guarantee: Guarantee, dimension: int,
          moment: float, radius: float) -> tuple[Bound, ...]:
  """All that hold for the guarantee; every one is r^2 at most.

  Args:
    num_examples: n, public; REPLACE_ONE.
    guarantee: of the estimator.
    dimension: d.
    moment: k, from 2 to infinity.
    radius: r.
  """
  known = dict(num_examples=num_examples, guarantee=guarantee, radius=radius)
  return (Bound(non_private(num_examples=num_examples, radius=radius),
                'minimax risk without privacy'),
          Bound(pair(**known, moment=moment), 'two points'),
          Bound(sphere(**known, moment=moment, dimension=dimension), 'sphere'),
          Bound(sign_vectors.vectors(**known, moment=moment,
                                     dimension=dimension), 'scores'))


def non_private(*, num_examples: int, radius: float) -> float:
  """r^2 / (1 + sqrt n)^2: exact, for every k and d."""
  errors.check_at_least('num_examples', num_examples, 1)
  return radius**2 / (1 + math.sqrt(num_examples))**2


def pair(*, num_examples: int, guarantee: Guarantee, moment: float,
         radius: float) -> float:
  """Two points: max over g of r^2 g^(2 - 2/k) E s(b)."""
  return _sparse(two_points.path_share, num_examples=num_examples,
                 guarantee=guarantee, moment=moment, radius=radius)


def sphere(*, num_examples: int, guarantee: Guarantee, dimension: int,
           moment: float, radius: float) -> float:
  """A sphere: max over g of r^2 g^(2 - 2/k) E of `spheres.share`(b)."""
  return _sparse(functools.partial(spheres.share, dimension=dimension),
                 num_examples=num_examples, guarantee=guarantee, moment=moment,
                 radius=radius)


def _sparse(path, *, num_examples: int, guarantee: Guarantee, moment: float,
            radius: float) -> float:
  """max over g of r^2 g^(2 - 2/k) E path(b), b ~ Bin(n, g)."""
  errors.check_at_least('num_examples', num_examples, 1)
  check_class(moment, radius)
  power = 2 - 2 / moment
  far = _far(path, num_examples, guarantee)

  def risks(weights):
    return weights**power * two_points.product_mean(
        path, weights, num_examples=num_examples, guarantee=guarantee)

  # All sizes between one record in ten samples, and where nothing is left.
  weights = np.geomspace(0.1 / num_examples, min(1.0, 2 * far / num_examples),
                         _COARSE)
  top = int(np.argmax(risks(weights)))
  fine = np.linspace(weights[max(top - 1, 0)],
                     weights[min(top + 1, _COARSE - 1)], _FINE)
  return radius**2 * float(np.max(risks(fine), initial=0.0))


def _far(path, num_examples: int, guarantee: Guarantee) -> int:
  """A power of two, or n, where next to nothing is left."""
  distance = 1
  while distance < num_examples and path(
      np.array([distance]), guarantee)[0] > _LEFT:
    distance *= 2
  return min(distance, num_examples)
