"""Lower bounds for means of records in R^d with a bounded k-th moment.

The class: E |X|^k <= r^k, Euclidean norm, k from 2 to infinity (then |X| <= r).
The risk is the largest expected squared distance. In all priors used, a record
is 0 except with probability g, where its norm is r g^(-1/k); the norm of the
mean is then at most r g^(1 - 1/k). An estimator that knows which records are
not 0 errs less, so bounds are means over their number b ~ Bin(n, g).

* Two points: a direction with either sign, b records apart (`two_points`).
* A sphere: all nonzero records equal one point, uniform on a sphere of radius r
  g^(-1/k) (`minimax.spheres`).
* Scores of products of signs (`minimax.sign_vectors`), where sampling and
  privacy add up.
* No privacy: r^2 / (1 + sqrt n)^2, the minimax risk itself. The mean shrunk by
  sqrt n / (1 + sqrt n) attains it in every dimension; the Beta prior of Hodges
  and Lehmann on two values +-r shows that no estimator does better.

Source: Barber and Duchi (2014, Propositions 2 and 4) (item MOD-KMOM) for the
distributions.
"""

from collections.abc import Callable
import functools
import math

import numpy as np

from dpjax import errors
from dpjax.theory.minimax import sign_vectors
from dpjax.theory.minimax import spheres
from dpjax.theory.minimax import two_points
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.minimax.bounds import Setting

# (distances b [m], guarantee) -> least share of the risk that remains [m].
_Path = Callable[[np.ndarray, Guarantee], np.ndarray]

# Points of the coarse and the fine search over g.
_COARSE, _FINE = 28, 21
# The search stops at distances where less than this fraction of risk is left.
_LEFT = 0.02


def check_class(moment: float, radius: float) -> None:
  """Checks that the moment is at least 2 and the radius positive, or raises."""
  if not moment >= 2:
    raise ValueError(f'moment must be a number >= 2 or inf, got {moment}')
  errors.check_positive('radius', radius)


def lower(*, num_examples: int, guarantee: Guarantee, dimension: int,
          moment: float, radius: float) -> tuple[Bound, ...]:
  """Returns all lower bounds for the guarantee; each is at most r^2.

  Args:
    num_examples: n, public; REPLACE_ONE.
    guarantee: guarantee of the estimator.
    dimension: d.
    moment: k, from 2 to infinity.
    radius: r.
  """
  setting = Setting(num_examples=num_examples, guarantee=guarantee)
  return (Bound(non_private(num_examples=num_examples, radius=radius),
                'minimax risk without privacy'),
          Bound(pair(**setting, moment=moment, radius=radius), 'two points'),
          Bound(sphere(**setting, dimension=dimension, moment=moment,
                       radius=radius), 'sphere'),
          Bound(sign_vectors.vectors(**setting, dimension=dimension,
                                     moment=moment, radius=radius), 'scores'))


def non_private(*, num_examples: int, radius: float) -> float:
  """Returns r^2 / (1 + sqrt n)^2, exact for every k and d."""
  errors.check_at_least('num_examples', num_examples, 1)
  return radius**2 / (1 + math.sqrt(num_examples))**2


def pair(*, num_examples: int, guarantee: Guarantee, moment: float,
         radius: float) -> float:
  """Returns the two-point bound: max over g of r^2 g^(2 - 2/k) E s(b)."""
  return _sparse(two_points.path_risk, num_examples=num_examples,
                 guarantee=guarantee, moment=moment, radius=radius)


def sphere(*, num_examples: int, guarantee: Guarantee, dimension: int,
           moment: float, radius: float) -> float:
  """Returns the sphere bound: max over g of r^2 g^(2 - 2/k) E s(b).

  s is `spheres.relative_risk`.
  """
  return _sparse(functools.partial(spheres.relative_risk, dimension=dimension),
                 num_examples=num_examples, guarantee=guarantee, moment=moment,
                 radius=radius)


def _sparse(path: _Path, *, num_examples: int, guarantee: Guarantee,
            moment: float, radius: float) -> float:
  """Returns max over g of r^2 g^(2 - 2/k) E path(b), b ~ Bin(n, g)."""
  errors.check_at_least('num_examples', num_examples, 1)
  check_class(moment, radius)
  power = 2 - 2 / moment
  # Beyond this number of differing records hardly any risk is left.
  far = _far(path, num_examples, guarantee)

  def risks(weights: np.ndarray) -> np.ndarray:
    return weights**power * two_points.product_mean(
        path, weights, num_examples=num_examples, guarantee=guarantee)

  # From one nonzero record in ten samples up to where no risk is left.
  weights = np.geomspace(0.1 / num_examples, min(1.0, 2 * far / num_examples),
                         _COARSE)
  top = int(np.argmax(risks(weights)))
  fine = np.linspace(weights[max(top - 1, 0)],
                     weights[min(top + 1, _COARSE - 1)], _FINE)
  return radius**2 * float(np.max(risks(fine), initial=0.0))


def _far(path: _Path, num_examples: int, guarantee: Guarantee) -> int:
  """Returns a power of two, or n, as a distance where almost no risk is left.
  """
  distance = 1
  # Doubling needs few calls and is fine enough for the search.
  while distance < num_examples and path(
      np.array([distance]), guarantee)[0] > _LEFT:
    distance *= 2
  return min(distance, num_examples)
