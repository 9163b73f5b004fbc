"""Rounds of a normal mean: each is clipped around the last one's answer.

`printed` is CoinPress (Biswas, Dong, Kamath and Ullman 2020) for covariance
s^2 I. `tuned` is ours, with a proven risk (`risk_bound`):

Let z_i = x_i - theta, g with P(max |z_i| > g) <= b, and let round k start
within R_k of theta. Clipped at T = R_k + g no record moves, so its centre is
off by mean(z) + w_k, a vector whose norm has a known law: within R_{k+1} but
for another b. Nothing is said of how centres depend on records, so nothing is
lost by using the same records again. In the last round T = R_k + h may clip:
the mean moves by no more than the mean of (|z_i| - h)+, whose mean square m is
exact. With centres kept in the public ball,

  risk <= (sqrt(d s^2 / n) + sqrt m)^2 + E |w|^2 + (2 R)^2 b (rounds).

Shares, rounds and h are of least bound; they see public numbers alone. Both for
Gaussian noise and for pure privacy, whose noise is shorter than its quantile of
Gamma(d). Source: item EXT-COINPRESS.
"""

import functools
import math

import numpy as np
from scipy import optimize
from scipy import special

from dpjax.privacy import notions
from dpjax.stats.minimax.bounds import Guarantee
from dpjax.stats.parametric import clipped_normals
from dpjax.stats.parametric import normal_means
from dpjax.stats.parametric.normal_means import NormalMean, Round

SHARES = (1 / 8, 1 / 8, 1 / 8, 5 / 8)
# What failures may add to the risk, as a share of d s^2 / n.
_SLACK = 1e-3
_EARLY = tuple(np.geomspace(0.002, 0.3, 12).tolist())
_MOST = 4


def tail(dimension: int, *, failure_prob: float) -> float:
  """g, g^2 = d + 2 sqrt(d ln(1/b)) + 2 ln(1/b): chi_d exceeds it less often."""
  log = math.log(1 / failure_prob)
  return math.sqrt(dimension + 2 * math.sqrt(dimension * log) + 2 * log)


def printed(*, num_examples: int, dimension: int, radius: float, sigma: float,
            guarantee: Guarantee, shares: tuple[float, ...] = SHARES,
            failure_prob: float = 0.01) -> NormalMean:
  """CoinPress: clip at R + g, go on with R = g sqrt(s^2 / n + noise).

  Args:
    num_examples: n.
    dimension: d.
    radius: R.
    sigma: s.
    guarantee: one that Gaussian noise can give.
    shares: of rho; public.
    failure_prob: b of a record, and of a round.
  """
  reach, far, turns = radius, tail(dimension, failure_prob=failure_prob), []
  for share in shares:
    turns.append(Round(reach + sigma * far, share))
    noise = normal_means.noise_scale(*turns[-1], num_examples=num_examples,
                                     guarantee=guarantee)
    reach = far * math.sqrt(sigma**2 / num_examples + noise**2)
  return NormalMean(num_examples=num_examples, dimension=dimension,
                    radius=radius, sigma=sigma, guarantee=guarantee,
                    rounds=tuple(turns))


def tuned(*, num_examples: int, dimension: int, radius: float, sigma: float,
          guarantee: Guarantee) -> NormalMean:
  """Rounds of the least proven risk; one at least, four at most."""
  return _tuned(num_examples, dimension, radius, sigma, guarantee)[0]


def risk_bound(*, num_examples: int, dimension: int, radius: float,
               sigma: float, guarantee: Guarantee) -> float:
  """Of `tuned`, for every mean in the ball; see above."""
  return _tuned(num_examples, dimension, radius, sigma, guarantee)[1]


@functools.lru_cache(maxsize=1024)
def _tuned(num_examples, dimension, radius, sigma, guarantee):
  normal_means.check_model(dimension, radius, sigma)
  plans = [_plan(num_examples, dimension, radius, sigma, guarantee,
                 (share,) * early + (1 - early * share,))
           for early in range(_MOST) for share in _EARLY[:1 + 11 * bool(early)]]
  bound, turns = min(plan for plan in plans if plan)
  return NormalMean(
      num_examples=num_examples, dimension=dimension, radius=radius,
      sigma=sigma, guarantee=guarantee, rounds=turns, projected=True), bound


def _plan(n, d, radius, sigma, guarantee, shares):
  """The bound, and rounds of these shares; None where a share is not left."""
  if shares[-1] <= 0.05:
    return None
  sampling = d * sigma**2 / n
  # As many failures as rounds: each but the last has one, records have one.
  prob = min(0.1, _SLACK * sampling / (4 * radius**2 * len(shares)))
  scale_of = functools.partial(normal_means.noise_scale, num_examples=n,
                               guarantee=guarantee)
  every = sigma * math.sqrt(2 * special.gammainccinv(d / 2, prob / n))
  reach, turns = radius, []
  for share in shares[:-1]:
    turns.append(Round(float(reach + every), share))
    reach = _reach(scale_of(*turns[-1]), n, d, sigma, guarantee, prob)

  def last(margin):
    scale = scale_of(reach + margin, shares[-1])
    moved = clipped_normals.excess(margin, dimension=d, sigma=sigma)
    return ((math.sqrt(sampling) + _mean_square(moved, n)**0.5)**2
            + normal_means.noise_risk(scale, dimension=d, guarantee=guarantee))
  best = optimize.minimize_scalar(last, bounds=(0.0, every), method='bounded')
  turns.append(Round(float(reach + best.x), shares[-1]))
  failures = prob * (len(shares) if turns[1:] else 0)
  return best.fun + 4 * radius**2 * failures, tuple(turns)


def _mean_square(moments: tuple[float, float], n: int) -> float:
  """Of a mean of n, from mean and mean square of one."""
  mean, square = moments
  return square / n + mean**2 * (1 - 1 / n)


def _reach(scale, n, d, sigma, guarantee, prob):
  """What |mean(z) + w| exceeds with this probability at most."""
  if not isinstance(guarantee, notions.PureDP):
    return math.sqrt((sigma**2 / n + scale**2)
                     * 2 * special.gammainccinv(d / 2, prob))
  return (sigma * math.sqrt(2 * special.gammainccinv(d / 2, prob / 2) / n)
          + scale * special.gammainccinv(d, prob / 2))
