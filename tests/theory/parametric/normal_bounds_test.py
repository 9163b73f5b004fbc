"""Tests lower bounds of normal means: golden values, errata, validity."""

import math

import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.privacy import notions
from dpjax.theory.minimax import scores
from dpjax.theory.minimax import two_points
from dpjax.theory.parametric import normal_bounds
from experiments.methods.theory import testing

_PURE, _ZCDP = notions.PureDP, notions.ZCDP
_N = 10**4


def _bound_of(d, guarantee, version, radius=math.inf, n=_N):
  return normal_bounds.proposition(
      num_examples=n, guarantee=guarantee, dimension=d, radius=radius,
      gamma=0.5, version=version)


def _term(d, guarantee, words):
  return normal_bounds.fano(words, num_examples=_N, guarantee=guarantee,
                            dimension=d, radius=math.inf, gamma=0.5)


def test_proposition_has_the_golden_values():
  for guarantee in (None, _PURE(epsilon=1.0), _ZCDP(rho=0.5)):
    assert _bound_of(66, guarantee,
                     'printed') == pytest.approx(1.01e-7, rel=0.01)
  for d, guarantee, few, many in (
      (66, None, 1.71e-6, 2.84e-5), (66, _PURE(epsilon=1.0), 5.4e-11, 8.4e-9),
      (66, _ZCDP(rho=0.5), 7.0e-11, 2.1e-9), (100, None, 4.52e-6, 4.46e-5),
      (100, _PURE(epsilon=0.1), 2.84e-8, 2.01e-6),
      (100, _ZCDP(rho=0.005), 4.22e-8, 4.35e-7)):
    words = normal_bounds._log_words(d)
    assert _term(d, guarantee, d / 32) == pytest.approx(few, rel=0.01)
    assert _term(d, guarantee, words) == pytest.approx(many, rel=0.01)
    assert _bound_of(d, guarantee, 'words') >= _term(d, guarantee, d / 32)
    assert _bound_of(d, guarantee, 'optimised') >= _term(d, guarantee, words)
  assert normal_bounds._log_words(66) == pytest.approx(11.0, abs=0.05)


def test_scores_and_packings_have_the_golden_values():
  for d, n, guarantee, wanted in (
      (66, _N, _PURE(epsilon=0.05), 1.742e-2), (66, _N, _PURE(epsilon=1.0),
                                                4.01e-5),
      (100, _N, _PURE(epsilon=0.1), 9.992e-3), (66, _N, _ZCDP(rho=0.005),
                                                4.334e-3),
      (100, _N, _ZCDP(rho=0.005), 9.950e-3), (500, 10**5, _ZCDP(rho=0.1),
                                              1.129e-4)):
    bounds = {bound.name: bound.value for bound in normal_bounds.lower(
        num_examples=n, guarantee=guarantee, dimension=d, radius=1e6,
        sigma=1.0)}
    # It is d^2 / (n^2 chi^2) of LB-15 plus sampling; under pure privacy a
    # record pulls .4 epsilon and not epsilon.
    gained = bounds['scores'] - d / n
    assert gained > wanted * (0.99 if isinstance(guarantee, _ZCDP) else 2)
    assert gained < wanted * (1.01 if isinstance(guarantee, _ZCDP) else 6.5)
    assert bounds['van Trees'] == pytest.approx(d / n, rel=1e-6)
  for d, epsilon, wanted in ((66, 0.05, 2.82e-3), (100, 0.1, 1.63e-3),
                             (66, 1.0, 5.35e-6)):
    known = dict(num_examples=_N, guarantee=_PURE(epsilon=epsilon), dimension=d,
                 radius=2.0)
    bounds = normal_bounds.packing(**known)
    # A finer grid gains a tenth at most.
    assert wanted * 0.999 < bounds < 1.1 * wanted
    assert normal_bounds.ball(**known) > bounds


def test_the_printed_proposition_sees_no_privacy_and_is_too_small():
  """The printed bound is 65536 too small, and private below n epsilon^2 =
  d/8192 (erratum E-19)."""
  assert 66 / _N / _bound_of(66, None, 'printed') == pytest.approx(65536)
  at = math.sqrt(66 / 8192 / _N)
  free = _bound_of(66, None, 'printed')
  assert _bound_of(66, _PURE(epsilon=1.01 * at), 'printed') == free
  assert _bound_of(66, _PURE(epsilon=0.99 * at), 'printed') > free
  rho = 1 / (2 * 128**2 * _N)
  assert _bound_of(66, _ZCDP(rho=1.01 * rho), 'printed') == free
  assert _bound_of(66, _ZCDP(rho=0.99 * rho), 'printed') > free
  # The rate d / (n^2 rho) lacks a factor d, which the scores have.
  grown = [_bound_of(d, _ZCDP(rho=rho / 1e3), 'printed') for d in (100, 400)]
  assert grown[1] / grown[0] == pytest.approx(4)
  best = [scores.private(dimension=d, num_examples=_N, guarantee=_ZCDP(
      rho=rho / 1e3), information=1.0, prior_information=0.0)
          for d in (100, 400)]
  assert best[1] / best[0] == pytest.approx(16)
  with pytest.raises(ValueError, match='66'):
    _bound_of(65, None, 'printed')


def test_sixty_six_is_the_least_dimension_of_the_proof():
  def factor(d, guarantee):
    a = max(normal_bounds._printed(_N, guarantee, d, 0.5)) if (
        guarantee is None) else list(normal_bounds._printed(
            _N, guarantee, d, 0.5))[1]
    return 1 - (1 + normal_bounds.information(
        a, num_examples=_N, guarantee=guarantee, dimension=d, gamma=0.5)
                ) / (d / 32)
  for guarantee in (None, _PURE(epsilon=0.5), _ZCDP(rho=0.9)):
    assert factor(66, guarantee) >= 0.5
  assert factor(65, None) < 0.5


def test_information_bounds_what_words_tell():
  """Information bounds use sqrt 2, where 2 sqrt 2 is printed (E-26)."""
  words, a, rho, n = testing.varshamov_gilbert(16, seed=0), 1e-3, 1e-4, 100
  gaps = np.sqrt(np.sum(words[:, None] != words, -1)) * a
  variations = 2 * stats.norm.cdf(gaps / 2) - 1
  log = math.log(len(words))
  for guarantee, error in (
      (_PURE(epsilon=0.1), testing.fano_pure(variations, num_records=n,
                                             epsilon=0.1)),
      (_ZCDP(rho=rho), testing.fano_zcdp(variations, num_records=n, rho=rho))):
    information = (1 - error) * log - 1
    bound = normal_bounds.information(a, num_examples=n, guarantee=guarantee,
                                      dimension=16, gamma=0.5)
    # It is within the loss of Pinsker's inequality and the mean distance.
    assert information <= bound < 3 * information


def test_the_prior_of_least_information():
  assert normal_bounds._first_zero(-0.5) == pytest.approx(math.pi / 2)
  assert normal_bounds._first_zero(0.0) == pytest.approx(2.404825557695773)
  assert normal_bounds._first_zero(0.5) == pytest.approx(math.pi)
  assert normal_bounds._first_zero(255.0) == pytest.approx(267.0, abs=0.5)
  # For d = 3, f = sin(pi r) / r; 4 int |f'|^2 / int f^2 on the unit ball.
  r = (np.arange(4000) + 0.5) / 4000
  slope = (math.pi * r * np.cos(math.pi * r) - np.sin(math.pi * r)) / r**2
  energy = 4 * np.sum(slope**2 * r**2) / np.sum(np.sin(math.pi * r)**2)
  assert energy == pytest.approx(4 * math.pi**2, rel=1e-3)


def test_without_any_information_the_ball_is_that_of_its_uniform_law():
  for d in (1, 4):
    known = dict(num_examples=7, dimension=d, radius=3.0)
    assert normal_bounds.ball(**known, guarantee=_PURE(epsilon=0.0)
                              ) == pytest.approx(9 * d / (d + 2))
    # With one record of any distribution, privacy is the only limit.
    wide = dict(known, num_examples=1, radius=1e6)
    assert normal_bounds.ball(**wide, guarantee=_PURE(epsilon=2.0)
                              ) == pytest.approx(
        1e12 * d / (d + 2) * math.exp(-4 / d), rel=1e-3)


def test_the_cube_of_one_coordinate_is_two_points():
  guarantee = _PURE(epsilon=0.3)
  sizes = np.geomspace(1e-3, 2, 400)
  shares = two_points.product_risk(
      2 * stats.norm.cdf(sizes) - 1, num_examples=50, guarantee=guarantee)
  bound = normal_bounds.cube(num_examples=50, guarantee=guarantee, dimension=1,
                             radius=2.0)
  assert bound == pytest.approx(np.max(sizes**2 * shares), rel=0.01)
  several = normal_bounds.cube(num_examples=50, guarantee=guarantee,
                               dimension=9, radius=6.0)
  assert several == pytest.approx(9 * np.max(sizes**2 * shares), rel=0.01)


def _points():
  generator = np.random.default_rng(5)
  for _ in range(9):
    budget = 10**generator.uniform(-4, 1)
    guarantee = (_PURE(epsilon=budget), _ZCDP(rho=budget), notions.ApproxDP(
        epsilon=budget, delta=1e-6), notions.KullbackLeiblerPrivacy(
            level=budget), notions.TotalVariationPrivacy(
                level=budget / 10))[generator.integers(5)]
    yield dict(num_examples=int(10**generator.uniform(0, 5)),
               guarantee=guarantee, dimension=int(2**generator.uniform(0, 7)),
               radius=10**generator.uniform(-1, 2), sigma=10**generator.uniform(
                   -1, 1))


@pytest.mark.slow
@pytest.mark.parametrize('point', list(_points()), ids=str)
def test_lower_bounds_are_below_upper_ones_and_the_constant(point):
  study = normal_bounds.STUDY
  lower, upper = study.best_lower(**point), study.best_upper(**point)
  model = {name: point[name] for name in study.parameters}
  every = study.lower(**point)
  assert max(bound.value for bound in every) <= study.trivial(**model) * (
      1 + 1e-9)
  assert 0 < lower.value <= upper.value <= study.trivial(**model)
  free = study.best_lower(**dict(point, guarantee=None)).value
  assert free <= study.non_private(**point) and free <= lower.value


def test_without_a_budget_there_is_the_constant_alone():
  point = dict(num_examples=9, guarantee=_PURE(epsilon=0.0), dimension=2,
               radius=3.0, sigma=1.0)
  assert normal_bounds.STUDY.best_upper(**point) == (9.0, 'best constant', True)
  assert normal_bounds.STUDY.best_lower(**point).value == pytest.approx(9)


def _by_integrals(n, epsilon, delta, d, radius):
  """Returns the best squares and packings, over all m and some radii."""
  squares, codes = [], []
  for r in radius * np.geomspace(0.01, 1, 60):
    t = special.erf(r / math.sqrt(8))
    m = np.arange(n + 1)
    group = delta * np.append(0.0, np.cumsum(np.exp(epsilon * m)))[:-1]
    missed = group + stats.binom.sf(m, n, t)
    near = np.linspace(0, r, 1500)
    hit = np.exp(epsilon * m[:, None]) * (near / r)**d + missed[:, None]
    squares.append(np.trapezoid(2 * near * np.maximum(0, 1 - hit), near).max())
    c = np.geomspace(1, 300, 120)
    error = 1 - np.exp(epsilon * m[:, None]) * c**-float(d) - missed[:, None]
    codes.append(np.max((r / (2 * c))**2 * np.maximum(0, error)))
  return max(squares), max(codes)


@pytest.mark.every(1)
@pytest.mark.parametrize('d, n, epsilon, delta', [
    (1, 40, 0.3, 0.0), (2, 30, 0.2, 3e-4), (5, 40, 0.8, 1e-4)])
def test_balls_and_packings_are_integrals_of_hits(d, n, epsilon, delta):
  """Balls and packings integrate hits e^(epsilon m) (t / r)^d plus failures."""
  square, code = _by_integrals(n, epsilon, delta, d, 3.0)
  known = dict(num_examples=n, dimension=d, radius=3.0,
               guarantee=notions.ApproxDP(epsilon=epsilon, delta=delta))
  assert normal_bounds.ball(**known) == pytest.approx(square, rel=0.02)
  assert normal_bounds.packing(**known) == pytest.approx(code, rel=0.03)
