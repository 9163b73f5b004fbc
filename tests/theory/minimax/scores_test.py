"""Tests score bounds: golden values, and below private estimates' risks."""

import math

import numpy as np
import pytest

from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from dpjax.theory.minimax import disclosure
from dpjax.theory.minimax import proportions_exact
from dpjax.theory.minimax import scores


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
  bound = scores.private(
      dimension=1, num_examples=n, guarantee=PureDP(epsilon=epsilon),
      information=information,
      prior_information=scores.cosine_information(dimension=1, radius=radius))
  assert bound == pytest.approx(wanted, abs=1e-5)
  assert bound < proportions_exact.solve(num_examples=n, epsilon=epsilon).lower


def test_chi_squares_are_attained():
  epsilon, p = 0.7, 1 / (1 + math.exp(0.7))
  probs = np.array([p, 1 - p])
  assert disclosure.chi_square(PureDP(epsilon=epsilon)) == pytest.approx(
      np.sum(probs[::-1]**2 / probs) - 1)
  assert disclosure.chi_square(ZCDP(rho=0.3)) == pytest.approx(math.expm1(0.6))
  assert _gaussian(3, 10, ApproxDP(epsilon=1.0, delta=1e-6)) == 0
  assert _gaussian(3, 10, None) == 0


def test_the_gaussian_mechanism_of_a_clipped_mean_is_above():
  # Means of d coordinates in [-1, 1] have noise 4 d^2 / (2 n^2 rho).
  for d, rho in ((1, 0.01), (30, 0.3)):
    assert _gaussian(d, 100, ZCDP(rho=rho)) < 4 * d**2 / (2e4 * rho)


def test_pure_privacy_pulls_half_as_far():
  # For a two-valued record and one number, enumeration over channels with two
  # outputs gives the squared shift over the variance.
  epsilon = 0.3
  for low in np.linspace(0.02, 0.7, 30):
    high = min(low * math.exp(epsilon), 1 - (1 - low) * math.exp(-epsilon))
    variance = (low * (1 - low) + high * (1 - high)) / 2
    # Scores are +-1 with information 1, so a = (high - low) / 2.
    pull = disclosure.pull(PureDP(epsilon=epsilon))
    assert ((high - low) / 2)**2 <= pull * variance * (1 + 1e-12)
  assert disclosure.pull(PureDP(epsilon=1e-3)) == pytest.approx(2.5e-7,
                                                                rel=1e-5)
  assert disclosure.pull(PureDP(epsilon=9.0)) == disclosure.chi_square(
      PureDP(epsilon=9.0))


def test_priors_integrate():
  assert scores.cosine_mean(np.ones_like, centre=0.3, radius=0.1
                            ) == pytest.approx(1)
  cosine_mean = scores.cosine_mean(lambda u: u**2, centre=0.0, radius=2.0)
  assert cosine_mean == pytest.approx(4 * (1 / 3 - 2 / math.pi**2), rel=1e-4)
  assert scores.bound(
      dimension=2, num_examples=50, guarantee=None, information=1.0,
      information_trace=2.0, prior_information=scores.cosine_information(
          dimension=2, radius=1e9)) == pytest.approx(2 / 50)


def test_sampling_and_privacy_add_up():
  known = dict(dimension=3, num_examples=100, information=1.0,
               information_trace=3.0, prior_information=0.0)
  guarantee = ZCDP(rho=0.01)
  alone = scores.private(dimension=3, num_examples=100, guarantee=guarantee,
                         information=1.0, prior_information=0.0)
  assert scores.bound(guarantee=guarantee, **known) == pytest.approx(
      alone + 3 / 100)
  # With a prior it is never below the square of sums.
  for prior in (0.1, 10.0, 1e4):
    known['prior_information'] = prior
    assert scores.bound(guarantee=guarantee, **known) >= scores.private(
        dimension=3, num_examples=100, guarantee=guarantee, information=1.0,
        prior_information=prior)


@pytest.mark.slow
@pytest.mark.parametrize('num_examples', (1, 2, 7, 40, 1000, 10**5))
def test_proportions_stay_below_what_is_reached(num_examples):
  n = num_examples
  for epsilon in (1e-3, 0.1, 1.0, 5.0) if n <= 1000 else ():
    exact = proportions_exact.solve(num_examples=n, epsilon=epsilon)
    for guarantee in (PureDP(epsilon=epsilon),
                      ApproxDP(epsilon=epsilon, delta=1e-6)):
      assert scores.proportion(num_examples=n, guarantee=guarantee
                               ) <= exact.upper
  for rho in (1e-7, 1e-4, 1e-2, 1.0, 10.0):
    # This is the worst risk of the shrunk mean with Gaussian noise.
    noise = 1 / (2 * n**2 * rho)
    risks = [max(s**2 * (1 / (4 * n) + noise), s**2 * noise + (1 - s)**2 / 4)
             for s in np.linspace(0, 1, 201)]
    bound = scores.proportion(num_examples=n, guarantee=ZCDP(rho=rho))
    assert bound <= min(risks)
    private = n**2 * rho
    if private > 1e4 and rho < 1e-3:
      assert bound >= 0.9 * min(risks)
  assert scores.proportion(num_examples=n, guarantee=None
                           ) <= proportions_exact.non_private_risk(n)


def test_discriminations_are_attained():
  def seen(p, q):
    return np.sum((p - q)**2 / (p + q)) / 2
  e = 1 / (1 + math.exp(0.8))
  response = np.array([e, 1 - e])
  assert disclosure.discrimination(PureDP(epsilon=0.8)) == pytest.approx(
      seen(response, response[::-1]))
  leaking = np.concatenate([[0.1], 0.9 * response, [0.0]])
  discrimination = disclosure.discrimination(ApproxDP(epsilon=0.8, delta=0.1))
  assert discrimination == pytest.approx(seen(leaking, leaking[::-1]))
  divergence = (1 - 2 * e) * math.log((1 - e) / e)
  assert disclosure.discrimination(ZCDP(rho=divergence)) == pytest.approx(
      seen(response, response[::-1]))
  # No distributions with those divergences are easier to distinguish.
  generator = np.random.default_rng(1)
  for _ in range(300):
    p, q = generator.dirichlet(np.full(3, 0.5), 2) + 1e-9
    level = max(np.sum(p * np.log(p / q)), np.sum(q * np.log(q / p)))
    assert seen(p, q) <= disclosure.discrimination(ZCDP(rho=level)) + 1e-6
