"""Tests a point on a sphere by a linear programme and by mechanisms."""

import math

import numpy as np
import pytest
from scipy import optimize
from scipy import special

from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import KullbackLeiblerPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from dpjax.theory.minimax import spheres


def _programme(growth, num_points):
  """Returns the least square of M on rings in a circle, with P <= growth Q.

  By rotation Q is the same at all angles, and theta = (1, 0).
  """
  radii = np.linspace(0, 1, 26)
  angles = 2 * np.pi * np.arange(num_points) / num_points
  cost = 1 + radii[:, None]**2 - 2 * radii[:, None] * np.cos(angles)
  rings, size = len(radii), cost.size
  caps = np.hstack([np.eye(size), -growth / num_points * np.kron(
      np.eye(rings), np.ones((num_points, 1)))])
  masses = np.zeros((2, size + rings))
  masses[0, :size] = masses[1, size:] = 1
  return optimize.linprog(
      np.r_[cost.ravel(), np.zeros(rings)], caps, np.zeros(size), masses,
      np.ones(2), method='highs').fun


@pytest.mark.slow
@pytest.mark.parametrize('log_ratio', (0.05, 0.4, 0.8, 2.0))
@pytest.mark.parametrize('dimension, num_points', ((1, 2), (2, 90)))
def test_caps_are_the_least_a_linear_programme_finds(dimension, num_points,
                                                     log_ratio):
  cap = spheres.caps(np.float64(log_ratio), dimension=dimension)
  least = _programme(math.exp(log_ratio), num_points)
  # Using rings, and points instead of a circle, changes less than that.
  assert least == pytest.approx(cap, abs=2e-3)


@pytest.mark.parametrize('dimension', (1, 2, 3, 7, 60, 2000))
def test_shares_fall_from_1(dimension):
  x = np.concatenate([np.linspace(0, 30, 400), np.linspace(31, 3000, 400)])
  for share in (spheres.caps(x, dimension=dimension),
                spheres.information(x, dimension=dimension)):
    assert share[0] == pytest.approx(1, abs=1e-3) and share[0] <= 1
    assert (np.diff(share) <= 1e-12).all() and (share >= 0).all()


def test_information_of_two_points_is_that_of_a_binary_source():
  means = np.linspace(0.01, 0.999, 50)
  high, low = (1 + means) / 2, (1 - means) / 2
  nats = math.log(2) + high * np.log(high) + low * np.log(low)
  information = spheres.information(nats, dimension=1)
  # This is the information of posterior means +-m, convex in m^2.
  assert (information <= 1 - means**2 + 1e-12).all()
  assert information == pytest.approx(1 - means**2, abs=3e-3)


@pytest.mark.parametrize('dimension', (2, 5, 40))
def test_information_is_between_a_ball_s_entropy_and_a_normal_law_s(dimension):
  nats = np.linspace(0.5, 4, 20) * dimension
  information = spheres.information(nats, dimension=dimension)
  most = np.exp(-2 * nats / dimension)
  # A sphere has no volume; it is most of a ball only in many dimensions.
  assert (information <= most).all()
  assert information[0] > most[0] * (1 - 1.5 / dimension)


@pytest.mark.parametrize('dimension', (1, 2, 8, 100, 3000))
@pytest.mark.parametrize('size', (0.03, 0.3, 1.0, 4.0))
def test_mechanisms_leave_no_less(dimension, size):
  """Shrunk noise on theta attains no less than the bounds."""
  b, scale = 6, size * dimension
  norm = dimension * (dimension + 1) / scale**2
  pure = PureDP(epsilon=scale / b)
  # Noise of density exp(-|w| epsilon b); b records move theta from 0 by 1.
  assert spheres.relative_risk(b, pure, dimension=dimension) <= norm / (1 + norm)
  for delta in (0.0, 1e-6, 1e-2):
    relaxed = spheres.relative_risk(b, ApproxDP(epsilon=scale / b, delta=delta),
                            dimension=dimension)
    assert relaxed <= spheres.relative_risk(b, pure, dimension=dimension) + 1e-12
  rho = size**2 * dimension / b**2
  normal = dimension / (2 * rho * b**2)
  assert spheres.relative_risk(b, ZCDP(rho=rho), dimension=dimension) <= (
      normal / (1 + normal))


@pytest.mark.parametrize('dimension', (40, 100, 3000))
def test_shares_go_on_where_caps_are_beyond_floats(dimension):
  before, after = spheres.caps(np.array([299.9, 300.1]), dimension=dimension)
  assert before >= after >= 0.99 * before * math.exp(-0.4 / (dimension - 1))
  far = spheres.caps(np.float64(5000.0), dimension=dimension)
  # Caps of share q have a squared sine of about q^(2 / (d - 1)).
  assert far == pytest.approx(math.exp(-1e4 / (dimension - 1)), rel=0.02,
                              abs=1e-30)


@pytest.mark.every(1)
@pytest.mark.parametrize('dimension', (2, 3, 5, 40, 2000))
def test_caps_beyond_exponents_are_below_those_of_their_formula(dimension):
  """Caps for shares of a sphere down to e^-690 are below their formula."""
  for log_ratio in (301.0, 400.0, 690.0):
    height = special.betaincinv((dimension - 1) / 2, 0.5,
                                2 * math.exp(-log_ratio))
    if not height:
      continue  # Squares of such shares are beyond floats.
    # The mean cosine in a cap whose half-angle has this squared sine.
    half = (dimension - 1) / 2
    mean = math.exp(half * math.log(height) - special.betaln(half, 0.5)
                    + log_ratio) / (2 * half)
    cap = float(spheres.caps(np.float64(log_ratio), dimension=dimension))
    # The first term is used where rounding loses what is left of 1.
    exact = 1 - mean**2 if height > 1e-6 else height * (dimension - 1) / (
        dimension + 1)
    assert 0.9 * exact <= cap <= exact * (1 + 1e-6)


def test_a_delta_that_explains_all_leaves_nothing():
  assert spheres.relative_risk(5, ApproxDP(epsilon=0.1, delta=0.2), dimension=3) == 0
  assert spheres.relative_risk(5, ApproxDP(epsilon=0.0, delta=0.1), dimension=3
                       ) == pytest.approx(0.5 * spheres.caps(
                           np.log(2.0), dimension=3))
  assert spheres.relative_risk(5, KullbackLeiblerPrivacy(level=0.1), dimension=3) == 0
