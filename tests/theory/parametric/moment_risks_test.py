"""Tests exact risks of truncated means: enumeration, random, golden values."""

import math

import numpy as np
import pytest
from scipy import integrate
from scipy import stats

from dpjax.theory.parametric import moment_risks

_L2 = lambda dimension, n, epsilon: (
    4 * dimension * (dimension + 1) / (n * epsilon)**2)
_LAPLACE = lambda dimension, n, epsilon: 8 * dimension**2 / (n * epsilon)**2


@pytest.mark.parametrize(
    'moment, dimension, n, epsilon, threshold, l2, smooth', [
        (2, 1, 200, 1.0, 4.204, (8.303e-3, 1.207e-2), (4.156e-2, 5.000e-2)),
        (4, 5, 1000, 1.0, 2.021, (7.294e-4, 1.653e-3), (2.855e-3, 3.868e-3)),
        (2, 5, 1000, 0.5, 3.378, (1.1199e-2, 1.1954e-2), (8.087e-2, 9.1e-2))])
def test_risks_at_outliers_and_bounds_are_the_golden_ones(
    moment, dimension, n, epsilon, threshold, l2, smooth):
  best = moment_risks.best_threshold(noise_factor=_L2(dimension, n, epsilon),
                                     moment=moment, radius=1.0)
  assert best == pytest.approx(threshold, rel=3e-4)
  printed = (n * epsilon / dimension)**(1 / moment)
  for value, wanted, factor, loose in (
      (best, l2, _L2, False), (printed, smooth, _LAPLACE, True)):
    known = dict(num_examples=n, threshold=value,
                 noise_factor=factor(dimension, n, epsilon))
    prob = ((moment - 1) / (moment * value))**moment
    distribution = moment_risks.two_points(prob, moment=moment, radius=1.0)
    actual = (moment_risks.risk(distribution, **known, shrinkage=1.0),
              moment_risks.bound(**known, moment=moment, radius=1.0,
                                 printed=loose))
    assert actual == pytest.approx(wanted, rel=4e-4)
    worst = moment_risks.worst(**known, moment=moment, radius=1.0).value
    assert actual[0] <= worst <= actual[1]


def test_risk_is_the_enumerated_one():
  n, distribution = 4, moment_risks.FiniteDistribution(
      np.array([-1.0, 0.5, 3.0]), np.array([0.2, 0.5, 0.3]))
  known = dict(threshold=1.5, shrinkage=0.8)
  clipped, risk = np.clip(distribution.places, -1.5, 1.5), 0.0
  for i in range(n + 1):
    for j in range(n + 1 - i):
      counts = np.array([i, j, n - i - j])
      risk += stats.multinomial.pmf(counts, n, distribution.probs) * (
          0.8 * counts @ clipped / n - distribution.mean)**2
  assert moment_risks.risk(
      distribution, **known, num_examples=n,
      noise_factor=0.1) == pytest.approx(risk + 0.8**2 * 0.1 * 1.5**2)


def _vector_risks(generator, count, n, threshold, shrinkage, factor, moment):
  """Returns the worst risk of random plane distributions of moment 1."""
  size = generator.integers(1, 5, count)
  worst = 0.0
  for atoms in size:
    places = generator.normal(size=(atoms, 2)) * np.exp(
        generator.normal(size=(atoms, 1)) * 1.5)
    if generator.random() < 0.5:
      places[:, 1] = 0
    probs = generator.dirichlet(np.full(atoms, 0.5))
    norms = np.linalg.norm(places, axis=1)
    scale = norms.max() if math.isinf(moment) else (
        norms**moment @ probs)**(1 / moment)
    places, norms = places / scale, norms / scale
    inside = places * np.minimum(1, threshold / norms)[:, None]
    bias = shrinkage * probs @ inside - probs @ places
    variance = probs @ (inside**2).sum(1) - ((probs @ inside)**2).sum()
    worst = max(worst, bias @ bias + shrinkage**2 * variance / n)
  return worst + shrinkage**2 * factor * threshold**2


@pytest.mark.parametrize('moment', (2, 3, 8, math.inf))
@pytest.mark.parametrize('n, threshold, shrinkage', [
    (1, 0.4, 1.0), (5, 0.8, 0.7), (5, 1.5, 0.95), (300, 2.0, 1.0)])
def test_no_law_of_vectors_has_a_larger_risk(moment, n, threshold, shrinkage):
  worst = moment_risks.worst(
      num_examples=n, threshold=threshold, shrinkage=shrinkage,
      noise_factor=0.01, moment=moment, radius=1.0)
  largest = _vector_risks(np.random.default_rng(0), 1500, n, threshold,
                          shrinkage, 0.01, moment)
  assert largest <= worst.value * (1 + 1e-9)
  # A distribution of the class attains it.
  distribution, noise = worst.distribution, 0.01
  assert moment_risks.risk(
      distribution, num_examples=n, threshold=threshold, shrinkage=shrinkage,
      noise_factor=noise) == pytest.approx(worst.value)
  assert distribution.probs.sum() == pytest.approx(1)
  assert (distribution.probs >= 0).all()
  used = distribution.places[distribution.probs > 0]
  size = np.abs(used).max() if math.isinf(moment) else (
      np.abs(used)**moment @ distribution.probs[distribution.probs > 0])
  assert size <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize('moment, n, threshold, shrinkage', [
    (2, 10**6, 272.9, 0.99984), (2, 200, 3.95, 0.985), (3, 20, 0.965, 0.909),
    (8, 50, 1.07, 0.885), (3, 10, 0.5, 0.99), (4, 1000, 1.59, 0.98)])
def test_worst_risks_are_those_of_a_fine_grid(moment, n, threshold, shrinkage):
  """Worst risks match a fine grid of outliers at y with the rest at +-s."""
  prob = np.geomspace(1e-9, 1 - 1e-7, 500)[:, None, None]
  far = threshold * np.geomspace(1, 100, 300)[None, :, None]
  mean = np.linspace(-1, 1, 41)[None, None]
  spare = 1 - prob * far**moment
  near = np.minimum(threshold, (np.maximum(spare, 0) / (1 - prob))**(
      1 / moment))
  inside = prob * threshold + (1 - prob) * near * mean
  square = prob * threshold**2 + (1 - prob) * near**2
  truth = inside + prob * (far - threshold)
  risks = (shrinkage * inside - truth)**2 + shrinkage**2 * (
      square - inside**2) / n
  worst_risk = moment_risks.worst(
      num_examples=n, threshold=threshold, shrinkage=shrinkage,
      noise_factor=0.0, moment=moment, radius=1.0).value
  assert worst_risk == pytest.approx(np.max(np.where(spare >= 0, risks, 0)),
                                     rel=6e-3)
  assert worst_risk >= np.max(np.where(spare >= 0, risks, 0)) * (1 - 1e-5)


def test_the_largest_bias_is_less_than_printed():
  for moment, kappa in ((2, 0.25), (4, 27 / 256)):
    assert moment_risks.bias_constant(moment) == pytest.approx(kappa)
    assert kappa < 1 / (moment - 1)
    for threshold in (0.2, 0.9, 3.0):
      probs = np.geomspace(1e-6, 1, 200_000)
      wanted = np.max(probs * np.maximum(0, probs**(-1 / moment) - threshold))
      assert moment_risks.largest_bias(
          threshold=threshold, moment=moment, radius=1.0
          ) == pytest.approx(wanted, rel=1e-6)
  assert moment_risks.largest_bias(threshold=2, moment=math.inf, radius=3) == 1


def test_a_tail_integral_misses_a_term():
  """With mass p at y, E Y 1{Y >= T} is p y, not p (y - T) (erratum E-18)."""
  distribution = moment_risks.two_points(0.01, moment=2, radius=1.0)
  y, threshold = distribution.places[1], 4.0
  tail = integrate.quad(lambda t: 0.01 * (t <= y), threshold, y)[0]
  assert 0.01 * y == pytest.approx(tail + threshold * 0.01)
  # The norm less T has that integral as its mean, so the lemma holds.
  assert 0.01 * (y - threshold) == pytest.approx(tail)


@pytest.mark.parametrize('threshold', (0.3, 1.7))
def test_pareto_laws_by_quadrature(threshold):
  moment, tail, n = 3, 3.2, 50
  first = (1 - moment / tail)**(1 / moment)
  density = lambda x: tail / x * (first / x)**tail

  def mean(function):
    return sum(integrate.quad(lambda x: function(x) * density(x), *ends)[0]
               for ends in ((first, max(first, threshold)),
                            (max(first, threshold), np.inf)))
  assert mean(lambda x: x**2.9) < 1
  inside = mean(lambda x: min(x, threshold))
  wanted = (0.9 * inside - mean(lambda x: x))**2 + 0.81 * (
      mean(lambda x: min(x, threshold)**2) - inside**2) / n
  known = dict(moment=moment, radius=1.0, num_examples=n, threshold=threshold,
               shrinkage=0.9, noise_factor=0.0)
  assert moment_risks.pareto_risk(tail, **known) == pytest.approx(wanted)
  assert wanted < moment_risks.worst(
      num_examples=n, threshold=threshold, shrinkage=0.9, noise_factor=0.0,
      moment=moment, radius=1.0).value
  with pytest.raises(ValueError, match='tail'):
    moment_risks.pareto_risk(2.0, **known)


@pytest.mark.every(3)
@pytest.mark.parametrize('moment, n, factor', [
    (2, 200, 2e-4), (4, 1000, 1.2e-4), (3, 20, 0.08), (math.inf, 50, 0.02),
    (2, 2, 50.0)])
def test_no_other_threshold_and_shrinkage_has_a_smaller_worst_risk(moment, n,
                                                                   factor):
  known = dict(num_examples=n, noise_factor=factor, moment=moment)
  tuned = moment_risks.tuned(**known, radius=2.0)
  wanted = min(moment_risks.worst(
      **known, radius=2.0, threshold=tuned.threshold * t, shrinkage=c).value
               for t in np.geomspace(0.4, 2, 9) for c in (
                   0.5, 0.8, 0.95, 0.99, 1.0, tuned.shrinkage))
  assert wanted >= tuned.risk * (1 - 1e-4)
  assert moment_risks.worst(
      **known, radius=2.0, threshold=tuned.threshold,
      shrinkage=tuned.shrinkage).value == pytest.approx(tuned.risk)
  assert tuned.risk <= 4 * (1 + 1e-9)


def test_without_noise_nothing_is_truncated():
  tuned = moment_risks.tuned(num_examples=16, noise_factor=0.0, moment=2,
                             radius=3.0)
  assert tuned == (math.inf, 0.8, 9 / 25)
