"""Score bounds: golden values, and below what private estimates reach."""

import math

import numpy as np
import pytest

from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from dpjax.stats.minimax import proportions_exact
from dpjax.stats.minimax import scores


def _gaussian(dimension, num_examples, guarantee):
  return scores.private(dimension=dimension, num_examples=num_examples,
                        guarantee=guarantee, information=1.0,
                        prior_information=0.0)


@pytest.mark.parametrize('dimension, n, guarantee, wanted', [
    (66, 10**4, PureDP(epsilon=.05), 1.742e-2),
    (100, 10**4, PureDP(epsilon=.1), 9.992e-3),
    (66, 10**4, PureDP(epsilon=1.0), 4.01e-5),
    (66, 10**4, ZCDP(rho=.005), 4.334e-3),
    (100, 10**4, ZCDP(rho=.005), 9.950e-3),
    (500, 10**5, ZCDP(rho=.1), 1.129e-4)])
def test_gaussian_means_are_the_golden_ones(dimension, n, guarantee, wanted):
  assert _gaussian(dimension, n, guarantee) == pytest.approx(wanted, rel=5e-4)


@pytest.mark.parametrize('n, epsilon, radius, wanted', [
    (10, .5, .45, .00315), (20, .25, .4, .00295), (40, .25, .3, .00104),
    (60, .2, .2, .00062)])
def test_proportions_are_the_golden_ones(n, epsilon, radius, wanted):
  information = scores.cosine_mean(lambda p: 1 / (p * (1 - p)), centre=0.5,
                                   radius=radius)
  found = scores.private(
      dimension=1, num_examples=n, guarantee=PureDP(epsilon=epsilon),
      information=information,
      prior_information=scores.cosine_information(dimension=1, radius=radius))
  assert found == pytest.approx(wanted, abs=1e-5)
  assert found < proportions_exact.solve(num_examples=n, epsilon=epsilon).lower


def test_chi_squares_are_attained():
  epsilon, p = 0.7, 1 / (1 + math.exp(0.7))
  laws = np.array([p, 1 - p])
  assert scores.chi_square(PureDP(epsilon=epsilon)) == pytest.approx(
      np.sum(laws[::-1]**2 / laws) - 1)
  assert scores.chi_square(ZCDP(rho=0.3)) == pytest.approx(math.expm1(0.6))
  assert _gaussian(3, 10, ApproxDP(epsilon=1.0, delta=1e-6)) == 0
  assert _gaussian(3, 10, None) == 0


def test_the_gaussian_mechanism_of_a_clipped_mean_is_above():
  # Means of d coordinates in [-1, 1]: noise d^2 / (n^2 2 rho) 4, and no less.
  for d, rho in ((1, 0.01), (30, 0.3)):
    assert _gaussian(d, 100, ZCDP(rho=rho)) < 4 * d**2 / (2e4 * rho)


def test_priors_integrate():
  assert scores.cosine_mean(np.ones_like, centre=0.3, radius=0.1
                            ) == pytest.approx(1)
  found = scores.cosine_mean(lambda u: u**2, centre=0.0, radius=2.0)
  assert found == pytest.approx(4 * (1 / 3 - 2 / math.pi**2), rel=1e-4)
  assert scores.van_trees(
      dimension=2, num_examples=50, information_trace=2.0,
      prior_information=scores.cosine_information(dimension=2, radius=1e9)
      ) == pytest.approx(2 / 50)
