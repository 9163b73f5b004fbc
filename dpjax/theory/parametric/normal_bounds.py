"""Lower bounds for private estimates of a normal mean, and its study.

The class: N(theta, s^2 I_d), |theta| <= R, squared error. Without a bound on
theta the risk without privacy is d s^2 / n exactly, and under pure privacy it
is infinite. `lower` returns these bounds:

* Van Trees' inequality, without privacy, and its form by scores under privacy
  (`minimax.scores`). Of all priors on the ball, density f^2 has the least
  information, where f is the first eigenfunction of the Laplacian: 4 (j / R)^2,
  with j the first zero of the Bessel function J of order d/2 - 1; near (d /
  R)^2 where d is large.
* A cube of k <= d coordinates +-a: a two-point problem for each coordinate,
  given the others.
* A ball, for pure and approximate privacy. Records of N(theta, s^2 I) and of
  N(0, s^2 I) differ in at most m records, except with probability q. So an
  estimate is within t of a theta drawn from the ball of radius r with
  probability at most e^(epsilon m) (t / r)^d + delta_m + q. The mean squared
  error is then at least r^2 d / (d + 2) e^(-2 epsilon m / d) (1 - delta_m -
  q)^(1 + 2/d). `packing` is the weaker form by points r / c apart.

Proposition 4.2.2 of Lalanne (2023) is true but too small by 10^5; as printed it
shows no effect of privacy above n epsilon^2 = d / 8192. Source: item MOD-GAUSS,
MOD-PROP422, LB-14, LB-15, errata E-19, E-26.
"""

from collections.abc import Iterator
import math

import numpy as np
from scipy import optimize
from scipy import special
from scipy import stats

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax import scores
from dpjax.theory.minimax import two_points
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.minimax.bounds import Setting
from dpjax.theory.parametric import coinpress
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric.study import Parameter
from dpjax.theory.parametric.study import Study
from dpjax.theory.parametric.study import Upper

# Grids of the searches: sizes of a cube, numbers m of differing records in
# standard deviations above the mean, and distances r / c of a packing.
_GRID = 40
_CUTS = np.linspace(0, 8, 33)
_SPACINGS = np.geomspace(1.05, 1e6, 200)


def lower(*, num_examples: int, guarantee: Guarantee, dimension: int,
          radius: float, sigma: float) -> tuple[Bound, ...]:
  """Returns all lower bounds that hold for the guarantee.

  Args:
    num_examples: n, public; REPLACE_ONE.
    guarantee: guarantee of the estimate; None for any estimate.
    dimension: d.
    radius: R.
    sigma: s.
  """
  normal_means.check_model(dimension, radius, sigma)
  prior = 4 * (_first_zero(dimension / 2 - 1) / radius)**2
  setting = Setting(num_examples=num_examples, guarantee=guarantee)
  bounds = [Bound(scores.bound(
      dimension=dimension, num_examples=num_examples, guarantee=None,
      information=1 / sigma**2, information_trace=dimension / sigma**2,
      prior_information=prior), 'van Trees')]
  if guarantee is None:
    return tuple(bounds)
  ratio = radius / sigma
  bounds += [Bound(scores.bound(
      **setting, dimension=dimension, information=1 / sigma**2,
      information_trace=dimension / sigma**2, prior_information=prior,
      scores='gaussian'), 'scores'), Bound(sigma**2 * cube(
          **setting, dimension=dimension, radius=ratio), 'cube')]
  if isinstance(guarantee, (notions.PureDP, notions.ApproxDP)):
    bounds.append(Bound(sigma**2 * ball(
        num_examples=num_examples, guarantee=guarantee, dimension=dimension,
        radius=ratio), 'ball'))
  return tuple(bounds)


def _first_zero(order: float) -> float:
  """Returns the first zero of the Bessel function of this order >= -1/2."""
  # The first zero is near order + 1.856 order^(1/3) and below this bracket.
  high = order + 1.86 * max(order, 0.0)**(1 / 3) + 2.45
  return optimize.brentq(lambda x: special.jv(order, x), max(order, 0.5), high)


def cube(*, num_examples: int, guarantee: Guarantee, dimension: int,
         radius: float) -> float:
  """Returns max k a^2 `two_points.product_risk` over a sqrt k <= R; s = 1."""
  # Search the whole range of a coarsely, then finely around the best value.
  def values(sizes: np.ndarray) -> np.ndarray:
    shares = two_points.product_risk(
        special.erf(sizes / math.sqrt(2)), num_examples=num_examples,
        guarantee=guarantee)
    # The slack keeps `floor` from losing a coordinate to rounding.
    used = np.minimum(dimension, np.floor((radius / sizes)**2 * (1 + 1e-12)))
    return used * sizes**2 * shares
  low = radius / math.sqrt(dimension)
  sizes = np.unique(np.minimum(radius, np.concatenate([
      np.geomspace(1e-3 / num_examples, 1, _GRID) * min(radius, 4.0),
      radius / np.sqrt(np.arange(1, min(dimension, 16) + 1)), [low]])))
  values_at = values(sizes)
  best = sizes[np.argmax(values_at)]
  refined = np.minimum(radius, best * np.geomspace(0.7, 1.4, 15))
  return float(max(np.max(values_at), np.max(values(refined))))


def ball(*, num_examples: int, guarantee: notions.PureDP | notions.ApproxDP,
         dimension: int, radius: float) -> float:
  """Returns the bound of a ball at the best radius r <= R and best m; s = 1."""
  radii, failures, log_ratios = _anchored(num_examples, guarantee, dimension,
                                          radius)
  values = (np.square(radii) * dimension / (dimension + 2)
            * np.exp(-2 * log_ratios / dimension)
            * np.maximum(0.0, 1 - failures)**(1 + 2 / dimension))
  return float(np.max(values))


def packing(*, num_examples: int, guarantee: notions.PureDP | notions.ApproxDP,
            dimension: int, radius: float) -> float:
  """Returns the bound by c^d points r / c apart: max (r / 2c)^2 (error); s = 1.

  A test of the points errs with probability at least 1 - e^(epsilon m) / c^d -
  delta_m - q (LB-14). Smaller than `ball`, which `lower` uses instead.
  """
  radii, failures, log_ratios = _anchored(num_examples, guarantee, dimension,
                                          radius)
  c = _SPACINGS[:, None, None]
  hit = np.exp(np.minimum(0.0, log_ratios - dimension * np.log(c)))
  return float(np.max(np.square(radii / (2 * c)) * np.maximum(
      0.0, 1 - failures - hit)))


def _anchored(n: int, guarantee: notions.PureDP | notions.ApproxDP,
              dimension: int, radius: float) -> tuple[np.ndarray, ...]:
  """Returns radii [G, 1], delta_m + q and epsilon m [G, K], for many m."""
  epsilon, delta = guarantee.epsilon, getattr(guarantee, 'delta', 0.0)
  # At radii of this size the differing records cost about ln c a coordinate.
  scale = dimension / (n * max(epsilon, 1e-300))
  radii = np.minimum(radius, np.append(
      min(scale, 4.0) * np.geomspace(0.02, 8, 3 * _GRID), radius))[:, None]
  t = special.erf(radii / math.sqrt(8))
  # m from the mean of the binomial number of differing records upwards; m = n
  # is always valid, with q = 0.
  m = np.ceil(n * t + _CUTS * np.sqrt(n * t * (1 - t)))
  m = np.minimum(n, np.concatenate([m, np.full_like(radii, n)], 1))
  failures = stats.binom.sf(m, n, t)
  if delta:
    exponents = np.minimum(epsilon * m, 700.0)
    failures = failures + delta * (np.expm1(exponents) / math.expm1(epsilon)
                                   if epsilon else m)
  return radii, failures, epsilon * m


def proposition(*, num_examples: int, guarantee: Guarantee, dimension: int,
                radius: float, gamma: float, version: str = 'optimised'
                ) -> float:
  """Returns the lower bound of Lalanne (2023, Proposition 4.2.2).

  It applies Fano's lemma to words that differ in at least d/4 places, scaled by
  a; divergences are at most gamma |theta - theta'|^2. 'printed' has the a of
  the proof and e^(d/32) words; 'optimised' the best a, and the number of words
  that Varshamov and Gilbert prove.

  Args:
    num_examples: n.
    guarantee: None, pure or zCDP.
    dimension: d; at least 66 for the printed version.
    radius: r_0 of a ball within the class; may be infinite.
    gamma: 1 / (2 s^2) for normal records.
    version: 'printed', 'optimised', or 'words' for the best a alone.
  """
  errors.check_choice('version', version, ('printed', 'optimised', 'words'))
  largest = radius / math.sqrt(dimension)
  if version == 'printed':
    if dimension < 66:
      raise ValueError(f'the proposition needs d >= 66, got {dimension}')
    return min(largest, max(_printed(num_examples, guarantee, dimension, gamma))
               )**2 * dimension / 32
  words = dimension / 32
  if version == 'optimised':
    words = max(words, _log_words(dimension))
  if words <= 1:
    return 0.0
  guarantees = {None, guarantee}
  return max(fano(words, num_examples=num_examples, guarantee=each,
                  dimension=dimension, radius=radius, gamma=gamma)
             for each in guarantees)


def fano(log_words: float, *, num_examples: int, guarantee: Guarantee,
         dimension: int, radius: float, gamma: float) -> float:
  """Returns max (a^2 d / 16) (1 - (1 + `information`) / ln K), a sqrt d <= r_0.
  """
  def left(a: np.ndarray | float) -> np.ndarray:
    nats = information(a, num_examples=num_examples, guarantee=guarantee,
                       dimension=dimension, gamma=gamma)
    return 1 - (1 + nats) / log_words
  largest = log_words / math.sqrt(num_examples * gamma * dimension)
  while left(largest) > 0:
    largest *= 2
  # Larger a than the zero of `left` prove nothing.
  largest = min(radius / math.sqrt(dimension),
                optimize.brentq(left, 0.0, largest))
  a = largest * np.linspace(0.01, 1, 2000)
  return float(np.max(a**2 * dimension / 16 * left(a)))


def information(size: np.ndarray | float, *, num_examples: int,
                guarantee: Guarantee, dimension: int, gamma: float
                ) -> np.ndarray:
  """Bounds the information of n records about words scaled by a, in nats.

  Two words differ in at most d bits: n gamma a^2 d. Under privacy also 2 n
  epsilon a sqrt(gamma d / 2), or sqrt 2 n rho a sqrt(gamma d) + 2 n^2 rho gamma
  a^2 d. Lalanne (2023) has 2 sqrt 2 in the first term (erratum E-26).
  """
  squares = gamma * dimension * np.square(size)
  match guarantee:
    case None:
      return num_examples * squares
    case notions.PureDP(epsilon=epsilon):
      return num_examples * epsilon * np.sqrt(2 * squares)
    case notions.ZCDP(rho=rho):
      return rho * (num_examples * np.sqrt(2 * squares)
                    + 2 * num_examples**2 * squares)
    case _:
      raise ValueError(f'the proposition covers pure privacy and zCDP, got '
                       f'{guarantee}')


def _printed(n: int, guarantee: Guarantee, dimension: int, gamma: float
             ) -> Iterator[float]:
  """Yields the values of a that the proof chooses."""
  yield 1 / (64 * math.sqrt(n * gamma))
  match guarantee:
    case notions.PureDP(epsilon=epsilon):
      yield math.sqrt(dimension / (2 * gamma)) / (4096 * n * epsilon)
    case notions.ZCDP(rho=rho):
      yield 1 / (8192 * n * math.sqrt(2 * rho * gamma))


def _log_words(dimension: int) -> float:
  """Returns ln K for words d/4 apart: d ln 2 - ln sum_{i < d/4} C(d, i)."""
  below = math.ceil(dimension / 4)
  return dimension * math.log(2) - math.log(
      sum(math.comb(dimension, i) for i in range(below)))


def upper(*, num_examples: int, guarantee: Guarantee, dimension: int,
          radius: float, sigma: float) -> tuple[Upper, ...]:
  """Returns the estimators that keep the guarantee, see `lower`."""
  if guarantee is None:
    return (Upper(non_private(num_examples=num_examples, dimension=dimension,
                              radius=radius, sigma=sigma), 'shrunk mean', True),
            )
  if not normal_means.budget(guarantee):
    return ()
  once = normal_means.clipped_once(
      num_examples=num_examples, guarantee=guarantee, dimension=dimension,
      radius=radius, sigma=sigma)
  rounds = coinpress.risk_bound(
      num_examples=num_examples, guarantee=guarantee, dimension=dimension,
      radius=radius, sigma=sigma)
  return (Upper(once.worst_risk(), 'clipped mean', True),
          Upper(rounds, 'rounds', False))


def non_private(*, num_examples: int, dimension: int, radius: float,
                sigma: float, guarantee: Guarantee = None) -> float:
  """Returns the risk of the best multiple of the mean, without privacy.

  It is v R^2 / (v + R^2) with v = d s^2 / n.
  """
  del guarantee
  v = dimension * sigma**2 / num_examples
  return v * radius**2 / (v + radius**2)


def trivial(*, dimension: int, radius: float, sigma: float) -> float:
  """Returns R^2, the largest risk of the centre of the ball."""
  normal_means.check_model(dimension, radius, sigma)
  return radius**2


STUDY = Study(
    name='normal_mean',
    help='mean of normal records of known covariance s^2 I in R^d, within R '
         'of 0', loss='squared error',
    parameters={
        'dimension': Parameter(1, 'd, coordinates of a record'),
        'radius': Parameter(10.0, 'R, public bound of the norm of the mean'),
        'sigma': Parameter(1.0, 's, standard deviation of a coordinate')},
    lower=lower, upper=upper, non_private=non_private, trivial=trivial,
    notions=normal_means.NOTIONS)
