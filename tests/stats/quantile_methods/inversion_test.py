"""Tests inverses of curves by definition, isotonic regression by SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy import stats

from dpjax.stats.quantile_methods import inversion

_INVERSES = ['inverse', 'smooth_inverse']
_COMPILED = {name: jax.jit(getattr(inversion, name)) for name in _INVERSES}


@pytest.fixture(autouse=True)
def _double():
  with jax.enable_x64(True):
    yield


def _inverted(inverse, curve, edges, probs):
  """Returns inverses at levels padded to 100, so that few lengths compile."""
  padded = np.resize(np.asarray(probs), 100)
  return np.asarray(_COMPILED[inverse](
      *(jnp.asarray(each) for each in (curve, edges, padded))))[:len(probs)]


def test_golden_of_a_curve_that_falls():
  """The inverse of a falling curve has the golden values (QF-17)."""
  answers = _inverted('inverse', [0, .1, .05, .4, .35, .9],
                      np.linspace(0, 1, 6), [.08, .2, .38, .5, .95])
  np.testing.assert_allclose(answers, [.16, .485714, .588571, .854545, 1],
                             atol=1e-6)


@pytest.mark.every(2)
def test_the_inverse_is_the_least_point_that_reaches_an_order():
  rng = np.random.default_rng(0)
  edges = np.linspace(-2.0, 3.0, 8)
  points = np.linspace(-2.0, 3.0, 7 * 2**12 + 1)
  probs = np.linspace(0.02, 0.98, 33)
  curves = np.cumsum(rng.normal(0.15, 0.3, (40, 8)), 1)
  curves[0], curves[1, 3:5] = 0.0, 0.5
  answers = jax.jit(jax.vmap(inversion.inverse, (0, None, None)))(
      jnp.asarray(curves), jnp.asarray(edges), jnp.asarray(probs))
  reached = np.stack([np.interp(points, edges, curve) for curve in curves])
  reached = reached[:, None] >= probs[:, None]
  least = np.where(reached.any(-1), points[reached.argmax(-1)], edges[-1])
  assert np.max(least - answers) <= points[1] - points[0]
  assert np.min(least - answers) >= -1e-9


def test_how_far_an_inverse_is_off():
  """Inverses differ by alpha / pi_min at most (lemma 6.2.9), not by half."""
  rng = np.random.default_rng(1)
  edges, probs = np.linspace(0, 1, 9), np.linspace(0.3, 0.7, 41)
  alpha, ratios = 0.1, []
  for _ in range(200):
    density = rng.uniform(0.6, 1.4, 8)
    density *= 8 / density.sum()
    noisy = density + alpha * rng.choice([-1, 1], 8)
    both = [
        _inverted('inverse', np.append(0, np.cumsum(each)) / 8, edges, probs)
        for each in (density, noisy)]
    ratios.append(np.max(np.abs(both[0] - both[1])) * density.min() / alpha)
  assert 0.5 < max(ratios) <= 1


@pytest.mark.parametrize('inverse', _INVERSES)
def test_inverses_meet_the_edges_increase_and_stay_inside(inverse):
  edges, probs = np.linspace(0.0, 8.0, 9), np.linspace(0.001, 0.999, 100)
  curve = np.array([0.0, 0.1, 0.2, 0.2, 0.2, 0.7, 0.8, 0.9, 1.0])
  answers = _inverted(inverse, curve, edges, probs)
  assert np.all(np.diff(answers) > 0) and answers[0] > 0 and answers[-1] < 8
  np.testing.assert_allclose(_inverted(inverse, curve, edges, [0.1, 0.2, 0.7]),
                             [1, 2, 5], atol=1e-12)
  # The inverse jumps over the plateau.
  assert np.all(answers[probs > 0.2] > 4) and np.all(answers[probs <= 0.2] <= 2)
  jump = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
  answers = _inverted(inverse, jump, edges, probs)
  assert np.all((answers > 1) & (answers < 2)) and np.all(np.isfinite(answers))
  np.testing.assert_allclose(_inverted(inverse, edges / 8, edges, probs),
                             8 * probs, atol=1e-12)


def test_the_smooth_inverse_is_that_of_a_rational_quadratic():
  """The smooth inverse inverts the spline of Gregory and Delbourgo."""
  rng = np.random.default_rng(2)
  rises = rng.dirichlet(np.ones(8))
  curve = np.append(0, np.cumsum(rises))
  probs = np.linspace(0.01, 0.99, 99)
  answers = _inverted('smooth_inverse', curve, np.arange(9.0), probs)
  place = np.floor(answers).astype(int)
  share, rise = answers - place, rises[place]
  slope = np.concatenate([
      [np.clip(1.5 * rises[0] - rises[1] / 2, 0, 3 * rises[0])],
      stats.hmean(np.stack([rises[1:], rises[:-1]])),
      [np.clip(1.5 * rises[-1] - rises[-2] / 2, 0, 3 * rises[-1])]])
  left, right = slope[place], slope[place + 1]
  both = share * (1 - share)
  value = curve[place] + rise * (rise * share**2 + left * both) / (
      rise + (left + right - 2 * rise) * both)
  np.testing.assert_allclose(value, probs, atol=1e-12)


def test_errors_of_the_smooth_inverse_fall_faster_than_those_of_lines():
  distribution, probs = stats.beta(2, 5), np.linspace(0.25, 0.75, 50)
  worst = {}
  for size in (8, 32):
    edges = np.linspace(0, 1, size + 1)
    for inverse in _INVERSES:
      answers = _inverted(inverse, distribution.cdf(edges), edges, probs)
      worst[inverse, size] = np.max(np.abs(answers - distribution.ppf(probs)))
  lines, smooth = (worst[each, 8] / worst[each, 32] for each in _INVERSES)
  assert 8 < lines < 20 and smooth > 50


def test_isotonic_regression():
  rng = np.random.default_rng(3)
  rows = [rng.normal(size=40).cumsum() for _ in range(6)]
  rows += [np.zeros(40), np.arange(40.0), -np.arange(40.0),
           np.repeat(rng.normal(size=8), 5), 1e9 + rng.normal(size=40)]
  fits = jax.jit(jax.vmap(inversion.isotonic))(jnp.asarray(np.stack(rows)))
  for row, fit in zip(rows, fits, strict=True):
    wanted = optimize.isotonic_regression(row).x
    np.testing.assert_allclose(fit, wanted, atol=1e-12 * (
        40 + np.abs(row).sum()))
  assert np.all(np.diff(fits) >= 0)


def test_the_nearest_distribution_function():
  """No other distribution function is nearer, and valid ones are kept."""
  rng = np.random.default_rng(4)
  ranks = rng.normal(size=7).cumsum() * 4 + 5
  nearest = jax.jit(inversion.distribution)
  fitted = np.asarray(nearest(jnp.asarray(ranks), 10.0))
  assert fitted[0] == 0 and fitted[-1] == 1 and np.all(np.diff(fitted) >= 0)
  gap = lambda inner: np.sum(np.square(inner - ranks[1:-1] / 10))
  others = np.sort(np.clip(fitted[1:-1] + 0.1 * rng.normal(size=(2000, 5)), 0,
                           1), 1)
  assert min(map(gap, others)) >= gap(fitted[1:-1]) - 1e-12
  good = np.array([0, .3, .3, .5, .8, .8, 1])
  np.testing.assert_allclose(nearest(jnp.asarray(10 * good), 10.0), good,
                             atol=1e-15)
