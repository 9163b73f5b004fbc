"""These tests compare mixtures' curves with closed forms and the accountant."""

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.attacks import mixtures


def _gaussian_delta(mu, epsilon):
  # This is Theorem 5 of Balle and Wang (2018).
  return (stats.norm.cdf(mu / 2 - epsilon / mu) -
          np.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu)))


@pytest.mark.parametrize('mu', [0.25, 1.0, 2.75, 25.0])
@pytest.mark.parametrize('share', [0.0, 0.5, 1.0])
def test_two_gaussians_have_the_closed_form(mu, share):
  here, there = mixtures.mixture(1, 0, 1), mixtures.mixture(1, mu, 1)
  epsilon = share * (mu**2 / 2 + 3 * mu)
  for pair in ((here, there), (there, here)):
    assert mixtures.delta(*pair, epsilon=epsilon) == pytest.approx(
        _gaussian_delta(mu, epsilon), rel=2e-3, abs=1e-12)


@pytest.mark.parametrize('scale', [1e-3, 1e4])
def test_epsilon_knows_no_unit_and_no_order(scale):
  def epsilon_in(unit, order):
    pair = (mixtures.mixture([0.3, 0.7], [0.0, unit], [unit, 2 * unit]),
            mixtures.mixture(1, unit, unit))
    return mixtures.epsilon(*pair[::order], delta=1e-5)
  assert epsilon_in(scale, 1) == pytest.approx(epsilon_in(1.0, 1), rel=1e-9)
  assert epsilon_in(scale, 1) == epsilon_in(scale, -1) > 5


@pytest.mark.every(3)
@pytest.mark.parametrize('prob, sigma', [(0.1, 1.0), (0.01, 0.7)])
def test_one_poisson_step_is_what_the_accountant_says(prob, sigma):
  event = accounting.poisson_gaussian_event(
      sampling_prob=prob, noise_multiplier=sigma, num_steps=1)
  expected = accounting.epsilon(event, delta=1e-5,
                                adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  without = mixtures.mixture(1, 0, sigma)
  within = mixtures.mixture([1 - prob, prob], [0, 1], sigma)
  epsilon = mixtures.epsilon(without, within, delta=1e-5)
  # The accountant rounds up on a grid of 1e-4.
  assert epsilon - 5e-5 <= expected <= epsilon + 2e-4


def test_epsilon_inverts_delta():
  here, there = mixtures.mixture(1, 0, 1), mixtures.mixture(1, 1.3, 0.8)
  epsilon = mixtures.epsilon(here, there, delta=1e-6)
  both = (mixtures.delta(here, there, epsilon=epsilon),
          mixtures.delta(there, here, epsilon=epsilon))
  assert max(both) == pytest.approx(1e-6, rel=1e-6)
  assert min(both) < 1e-6
  assert mixtures.epsilon(here, here, delta=1e-6) == 0.0


def test_log_tail_reaches_where_probabilities_underflow():
  mixture = mixtures.mixture([0.25, 0.75], [-2.0, 0.0], [1.0, 1.0])
  assert np.exp(mixtures.log_tail(mixture, 0.5)) == pytest.approx(
      0.25 * stats.norm.sf(2.5) + 0.75 * stats.norm.sf(0.5))
  assert mixtures.log_tail(mixture, 60.0) == pytest.approx(
      np.log(0.75) + stats.norm.logsf(60.0))


def test_density_is_the_mixture():
  mixture = mixtures.mixture([1, 3], [0, 2], [1, 0.5])
  points = np.linspace(-3, 4, 9)
  np.testing.assert_allclose(
      np.exp(mixtures.log_density(mixture, points)),
      0.25 * stats.norm.pdf(points) + 0.75 * stats.norm.pdf(points, 2, 0.5))
  assert mixtures.mixture([1, 0], [0, 9], 1).means.tolist() == [0]


@pytest.mark.parametrize('arguments', [
    ([0.0], 0, 1), (1, np.nan, 1), (1, 0, 0), (1, 0, -1)])
def test_refuses_what_is_no_mixture(arguments):
  with pytest.raises(ValueError, match='a mixture must have positive'):
    mixtures.mixture(*arguments)


@pytest.mark.parametrize('value', [0.0, 0.4, 1.5])
def test_deltas_of_mixtures_are_integrals(value):
  """Deltas of two mixtures are integrals, in the direction asked for."""
  one = mixtures.mixture([0.2, 0.8], [0.0, 1.5], [0.7, 1.2])
  other = mixtures.mixture([0.5, 0.5], [-1.0, 0.5], [1.5, 0.9])
  points = np.linspace(-20, 20, 400_001)
  density = lambda mixture: sum(
      weight * stats.norm.pdf(points, mean, stddev)
      for weight, mean, stddev in zip(*mixture, strict=True))
  wanted = [np.maximum(0, density(p) - np.exp(value) * density(q)).sum() * 1e-4
            for p, q in ((one, other), (other, one))]
  deltas = [mixtures.delta(one, other, epsilon=value),
            mixtures.delta(other, one, epsilon=value)]
  assert deltas == pytest.approx(wanted, rel=1e-4)
  assert not value or abs(wanted[0] - wanted[1]) > 0.05 * max(wanted)
