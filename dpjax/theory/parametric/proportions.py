"""The cost of privacy for a proportion.

Has the mechanism of the mean with its interval, and a study of all estimators
of `noisy_shares`. Under REPLACE_ONE, n public. Risks are mean squared errors.
Source: Lalanne (2023, equations (4)-(11) and section 4.1.1) (item INT-03,
MOD-BERN).
"""

import math

from scipy import optimize

from dpjax.privacy import notions
from dpjax.stats.means import BoundedMean
from dpjax.theory.minimax import bounds
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import gaussian_noise
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import proportion_bounds
from dpjax.theory.parametric import study
from dpjax.theory.parametric import subsampling
from dpjax.theory.parametric.noisy_shares import NoisyShare
from dpjax.theory.parametric.study import Upper


def proportion(*, num_examples: int, epsilon: float, confidence: float = 0.95,
               interval: str = 'exact') -> BoundedMean:
  """Returns the mechanism of the share of ones among n zeros and ones.

  Its interval is for the probability of a one.
  """
  return BoundedMean(num_examples=num_examples, lower=0.0, upper=1.0,
                     epsilon=epsilon, confidence=confidence, interval=interval)


def risk(prob: float, *, num_examples: int, epsilon: float) -> float:
  """Returns the risk of `proportion`: p (1 - p) / n + 2 / (n epsilon)^2."""
  return proportion(num_examples=num_examples, epsilon=epsilon
                    ).population_risk(prob * (1 - prob))


def estimators(*, num_examples: int, guarantee: Guarantee
               ) -> tuple[NoisyShare, ...]:
  """Returns noisy means that keep a guarantee, and their shrunk versions.

  Empty for budgets of 0. Under total variation see `subsampling` too.
  """
  n, guarantee = num_examples, bounds.simplest(guarantee)
  plain: list[NoisyShare]
  match guarantee:
    case None:
      plain = [noisy_shares.EmpiricalShare(num_examples=n)]
    case notions.PureDP(epsilon=epsilon) if epsilon:
      plain = [noisy_shares.GeometricShare(num_examples=n, epsilon=epsilon),
               noisy_shares.LaplaceShare(num_examples=n, epsilon=epsilon)]
    case notions.ApproxDP(epsilon=epsilon, delta=delta) if epsilon:
      plain = [noisy_shares.GeometricShare(num_examples=n, epsilon=epsilon)]
      if delta:
        plain.append(noisy_shares.GaussianShare(
            num_examples=n, rho=gaussian_noise.rho(guarantee)))
    case notions.ZCDP(rho=rho) if rho:
      plain = [noisy_shares.GaussianShare(num_examples=n, rho=rho),
               noisy_shares.GeometricShare(num_examples=n,
                                           epsilon=_pure_of(rho))]
    case notions.KullbackLeiblerPrivacy(level=level) | (
        notions.TotalVariationPrivacy(level=level)) if level:
      plain = [noisy_shares.GaussianShare(
          num_examples=n, rho=gaussian_noise.rho(guarantee))]
    case _:
      plain = []
  return (*plain, *(share.shrunk() for share in plain))


def _pure_of(rho: float) -> float:
  """Returns the largest epsilon whose mechanisms are all rho-zCDP."""
  spent = lambda epsilon: notions.zcdp_from_pure(
      notions.PureDP(epsilon=epsilon)).rho - rho
  # epsilon tanh(epsilon / 2) is below epsilon^2 / 2, and above epsilon - 1.
  return optimize.brentq(spent, math.sqrt(rho), rho + 2 * math.sqrt(rho) + 1)


_NAMES = {noisy_shares.EmpiricalShare: 'mean',
          noisy_shares.LaplaceShare: 'Laplace',
          noisy_shares.GeometricShare: 'geometric',
          noisy_shares.GaussianShare: 'Gaussian'}


def _upper(*, num_examples: int, guarantee: Guarantee) -> tuple[Upper, ...]:
  """Returns the estimators that keep the guarantee, with their worst risks."""
  best: tuple[Upper, ...] = ()
  if isinstance(guarantee, notions.TotalVariationPrivacy) and (
      num_examples * guarantee.level >= 1):
    size = subsampling.subset_size(num_examples, guarantee.level)
    best = (Upper(proportion_bounds.non_private(size), 'subsample, shrunk',
                  True),)
  solution = proportion_bounds.solution(num_examples, guarantee)
  if solution is not None and solution.values is not None:
    best = (Upper(solution.upper, 'table of noisy counts', True),)
  # Exact: the risk of a shrunk share is linear in (p - 1/2)^2.
  return best + tuple(
      Upper(share.worst_risk(), _NAMES[type(share)] + (
          ', shrunk' if share.weight < 1 else ''), True)
      for share in estimators(num_examples=num_examples, guarantee=guarantee))


STUDY = study.Study(
    name='proportion',
    help='the probability p of a one, over all p in [0, 1]',
    loss='squared error', parameters={}, lower=proportion_bounds.lower,
    upper=_upper,
    non_private=lambda *, num_examples, guarantee=None: (
        proportion_bounds.non_private(num_examples)),
    trivial=proportion_bounds.trivial,
    notions=(notions.PureDP, notions.ApproxDP, notions.ZCDP,
             notions.TotalVariationPrivacy, notions.KullbackLeiblerPrivacy))
