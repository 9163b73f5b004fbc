"""The exact amount of Gaussian noise that keeps a guarantee, in any notion.

Releases with shifts mu_i (sensitivity over standard deviation), adaptively
chosen or not, compose to one with mu^2 = sum mu_i^2. So neither (epsilon,
delta) nor total variation needs a detour through zCDP.
"""

import functools

from scipy import special

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.theory.minimax.bounds import Guarantee


@functools.lru_cache(maxsize=1024)
def shift(guarantee: Guarantee) -> float:
  """Returns the largest mu that keeps the guarantee; 0 if no finite noise does.

  Raises:
    ValueError: if the guarantee needs no noise.
  """
  match guarantee:
    case notions.ZCDP(rho=level) | notions.KullbackLeiblerPrivacy(level=level):
      return (2 * level)**0.5
    case notions.ApproxDP(epsilon=0, delta=level) | (
        notions.TotalVariationPrivacy(level=level)) if level < 1:
      # N(0, 1) and N(mu, 1) have total variation 2 Phi(mu / 2) - 1.
      return 2 * float(special.ndtri((1 + level) / 2))
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      return accounting.gaussian_shift(epsilon=epsilon, delta=delta) if (
          delta) else 0.0
    case notions.PureDP():
      return 0.0
  raise ValueError(f'{guarantee} needs no noise')


def rho(guarantee: Guarantee) -> float:
  """Returns the zCDP budget mu^2 / 2 of a release of that shift."""
  return shift(guarantee)**2 / 2
