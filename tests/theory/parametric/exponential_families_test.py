"""Tests exponential families: moments, maxima, constants of the box."""

import math

import numpy as np
import pytest
from scipy import special

from dpjax.theory.parametric import exponential_families as families

FAMILIES = (families.BERNOULLI, families.TRUNCATED_EXPONENTIAL)


def moments(family, theta):
  """Returns (mean, variance) of T, by sums over the density alone."""
  points = (np.array([0., 1.]) if family is families.BERNOULLI
            else (np.arange(200_000) + .5) / 200_000)
  weights = np.exp(theta * points)
  weights /= weights.sum()
  mean = weights @ points
  return mean, weights @ (points - mean)**2


@pytest.mark.every(2)
@pytest.mark.parametrize('family', FAMILIES, ids=lambda family: family.name)
def test_moments_are_those_of_the_density(family):
  model = families.Model(dimension=1, radius=9., family=family)
  for theta in (-8., -2., -.1, -.02, 0., .009, .05, .3, 3.):
    mean, variance = moments(family, theta)
    assert float(model.mean(theta)) == pytest.approx(mean, abs=5e-10)
    assert float(model.variance(theta)) == pytest.approx(variance, rel=1e-6)


@pytest.mark.every(3)
@pytest.mark.parametrize('family', FAMILIES, ids=lambda family: family.name)
def test_maxima_are_where_means_meet_or_at_the_ends(family):
  model = families.Model(dimension=1, radius=2., family=family)
  inside = np.linspace(-2, 2, 9)
  np.testing.assert_allclose(model.fit(model.mean(inside)), inside, atol=1e-9)
  np.testing.assert_allclose(model.fit(np.array([-.3, 0., 1., 7.])),
                             [-2, -2, 2, 2])


@pytest.mark.every(3)
@pytest.mark.parametrize('family', FAMILIES, ids=lambda family: family.name)
def test_constants_are_those_of_the_whole_box(family):
  """Constants L, beta, lambda are exact over the box, as are shifted maxima."""
  model = families.Model(dimension=3, radius=1.5, family=family)
  grid = np.linspace(-1.5, 1.5, 401)
  curvatures = model.variance(grid)
  assert model.smoothness == pytest.approx(curvatures.max(), rel=1e-9)
  assert model.strong_convexity == pytest.approx(curvatures.min(), rel=1e-9)
  gradients = np.abs(np.array([[0.], [1.]]) - model.mean(grid)).max()
  assert model.lipschitz == pytest.approx(math.sqrt(3) * gradients)
  assert model.diameter <= 2 * model.lipschitz
  for share in (.01, .2, .6):
    low = np.linspace(-.2, 1, 6001)
    change = (model.fit(low + share) - model.fit(low)).max()
    assert change <= model.steepest(share) * (1 + 1e-9)
    assert change == pytest.approx(model.steepest(share), rel=2e-3)
    assert model.steepest(share) <= share / model.strong_convexity
  if family is families.BERNOULLI:
    top = special.expit(1.5)
    assert model.strong_convexity == pytest.approx(top * (1 - top))


def test_erratum_24_constants_need_bounded_records_and_a_box():
  """Without a box the least curvature is 0, and L / lambda unbounded."""
  widths = [families.Model(dimension=1, radius=b) for b in (1., 5., 30.)]
  assert widths[2].strong_convexity < 1e-12 < 1e-3 < (
      widths[1].strong_convexity) < widths[0].strong_convexity
  with pytest.raises(ValueError, match='^radius must be a positive number'):
    families.Model(dimension=1, radius=math.inf)
  with pytest.raises(ValueError, match='^dimension must be an integer >= 1'):
    families.Model(dimension=0, radius=1.)
  # A normal mean is its own maximum, so unbounded records move it freely.
  assert max(abs(x) / 10 for x in (1., 1e6)) == 1e5
