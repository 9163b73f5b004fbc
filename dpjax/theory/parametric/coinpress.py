"""Private normal mean in rounds: each clips around the last round's answer.

`printed` is CoinPress (Biswas, Dong, Kamath and Ullman 2020) for covariance s^2
I. `tuned` is our variant with a proven risk (`risk_bound`). Proof.

1. Let z_i = x_i - theta, take g with P(max |z_i| > g) <= b, and let round k
   start within R_k of theta. Clipped at T = R_k + g no record moves. So the new
   centre is off by mean(z) + w_k, a vector whose norm has a known distribution:
   it is within R_{k+1}, except with probability b.
2. No step assumes that centres are independent of the records, so all rounds
   may use the same records.
3. In the last round T = R_k + h may clip. The mean moves by at most the mean of
   (|z_i| - h)+, whose mean square m is exact.
4. With centres kept in the public ball,

  risk <= (sqrt(d s^2 / n) + sqrt m)^2 + E |w|^2 + (2 R)^2 b (rounds).

Budget fractions, number of rounds and h minimise the bound; they depend on
public numbers only. Both work with Gaussian noise and with pure privacy, whose
noise norm is bounded by a quantile of Gamma(d). Source: item EXT-COINPRESS.
"""

import functools
import math

import numpy as np
from scipy import optimize
from scipy import special

from dpjax.privacy import notions
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import clipped_normals
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric.normal_means import NormalMean
from dpjax.theory.parametric.normal_means import Round

SHARES = (1 / 8, 1 / 8, 1 / 8, 5 / 8)
# Failures may add this fraction of d s^2 / n to the risk.
_SLACK = 1e-3
# Budget fractions tried for each early round, and the most rounds.
_EARLY = tuple(np.geomspace(0.002, 0.3, 12).tolist())
_MOST = 4


def tail(dimension: int, *, failure_prob: float) -> float:
  """Returns g with g^2 = d + 2 sqrt(d ln(1/b)) + 2 ln(1/b).

  A chi_d variable exceeds g with probability at most b, `failure_prob`.
  """
  log = math.log(1 / failure_prob)
  return math.sqrt(dimension + 2 * math.sqrt(dimension * log) + 2 * log)


def printed(*, num_examples: int, dimension: int, radius: float, sigma: float,
            guarantee: Guarantee, shares: tuple[float, ...] = SHARES,
            failure_prob: float = 0.01) -> NormalMean:
  """Returns CoinPress: clip at R + g, then R = g sqrt(s^2 / n + noise).

  `guarantee` must be one that Gaussian noise can give, `shares` are public
  fractions of rho, one for each round, `failure_prob` is b, for a record and
  for a round. Other Args as for `NormalMean`.
  """
  radius_bound, tail_norm, schedule = radius, tail(
      dimension, failure_prob=failure_prob), []
  for share in shares:
    schedule.append(Round(radius_bound + sigma * tail_norm, share))
    noise = normal_means.noise_scale(*schedule[-1], num_examples=num_examples,
                                     guarantee=guarantee)
    radius_bound = tail_norm * math.sqrt(sigma**2 / num_examples + noise**2)
  return NormalMean(num_examples=num_examples, dimension=dimension,
                    radius=radius, sigma=sigma, guarantee=guarantee,
                    rounds=tuple(schedule))


def tuned(*, num_examples: int, dimension: int, radius: float, sigma: float,
          guarantee: Guarantee) -> NormalMean:
  """Returns the mechanism of one to four rounds with the least proven risk."""
  return _tuned(num_examples, dimension, radius, sigma, guarantee)[0]


def risk_bound(*, num_examples: int, dimension: int, radius: float,
               sigma: float, guarantee: Guarantee) -> float:
  """Returns the proven risk of `tuned`, for every mean in the ball."""
  return _tuned(num_examples, dimension, radius, sigma, guarantee)[1]


@functools.lru_cache(maxsize=1024)
def _tuned(num_examples: int, dimension: int, radius: float, sigma: float,
           guarantee: Guarantee) -> tuple[NormalMean, float]:
  """Returns the best plan as a mechanism, with its bound; cached."""
  normal_means.check_model(dimension, radius, sigma)
  # With no early round all fractions give one plan: only the first is used.
  plans = [_plan(num_examples, dimension, radius, sigma, guarantee,
                 (share,) * early + (1 - early * share,))
           for early in range(_MOST) for share in _EARLY[:1 + 11 * bool(early)]]
  bound, schedule = min(plan for plan in plans if plan)
  return NormalMean(
      num_examples=num_examples, dimension=dimension, radius=radius,
      sigma=sigma, guarantee=guarantee, rounds=schedule, projected=True), bound


def _plan(n: int, d: int, radius: float, sigma: float, guarantee: Guarantee,
          shares: tuple[float, ...]) -> tuple[float, tuple[Round, ...]] | None:
  """Returns bound and rounds for these budget fractions, or None.

  None means that too little budget is left for the last round.
  """
  if shares[-1] <= 0.05:
    return None
  sampling = d * sigma**2 / n
  # One failure event for each round but the last, and one for the records.
  # Failures then add 4 R^2 prob (rounds) = _SLACK d s^2 / n to the risk.
  prob = min(0.1, _SLACK * sampling / (4 * radius**2 * len(shares)))
  scale_of = functools.partial(normal_means.noise_scale, num_examples=n,
                               guarantee=guarantee)
  # No record's |z_i| exceeds this, except with probability `prob` (step 1).
  no_clip = sigma * math.sqrt(2 * special.gammainccinv(d / 2, prob / n))
  radius_bound, schedule = radius, []
  for share in shares[:-1]:
    schedule.append(Round(float(radius_bound + no_clip), share))
    radius_bound = _error_bound(scale_of(*schedule[-1]), n, d, sigma, guarantee,
                                prob)

  def last_round_risk(margin: float) -> float:
    scale = scale_of(radius_bound + margin, shares[-1])
    excess = clipped_normals.excess(margin, dimension=d, sigma=sigma)
    return ((math.sqrt(sampling) + _mean_square(excess, n)**0.5)**2
            + normal_means.noise_risk(scale, dimension=d, guarantee=guarantee))
  best = optimize.minimize_scalar(last_round_risk, bounds=(0.0, no_clip),
                                  method='bounded')
  schedule.append(Round(float(radius_bound + best.x), shares[-1]))
  # If a bound fails, the error is at most 2 R: centres stay in the ball.
  failures = prob * (len(shares) if schedule[1:] else 0)
  return best.fun + 4 * radius**2 * failures, tuple(schedule)


def _mean_square(moments: tuple[float, float], n: int) -> float:
  """Returns the mean square of a mean of n from mean and mean square of one."""
  mean, square = moments
  return square / n + mean**2 * (1 - 1 / n)


def _error_bound(scale: float, n: int, d: int, sigma: float,
                 guarantee: Guarantee, prob: float) -> float:
  """Returns a bound on |mean(z) + w| that fails with probability `prob`."""
  if not isinstance(guarantee, notions.PureDP):
    return math.sqrt((sigma**2 / n + scale**2)
                     * 2 * special.gammainccinv(d / 2, prob))
  return (sigma * math.sqrt(2 * special.gammainccinv(d / 2, prob / 2) / n)
          + scale * special.gammainccinv(d, prob / 2))
