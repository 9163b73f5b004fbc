"""Tests supports by ranks: privacy by densities, risks by draws."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from scipy.stats import qmc

from dpjax.privacy import mechanism
from dpjax.privacy.notions import PureDP
from dpjax.theory.parametric import support_bounds
from dpjax.theory.parametric import support_ranks
from dpjax.theory.parametric import supports
from experiments.methods.statistics import doubled_means

_SIZE = 5
_POINTS = np.linspace(0, 1, 1501)[1:] - 1e-5


def _estimator(n=_SIZE, epsilon=1.3, **fields):
  return support_ranks.RankedSupport(num_examples=n, epsilon=epsilon, **fields)


def _log_density(estimator, data):
  """Returns log-probabilities of choices [1 + points]; first the lowest end."""
  weigh = (support_ranks.printed_log_weights if estimator.printed else
           support_ranks.log_weights)
  with jax.enable_x64(True):
    ends, weights = (np.asarray(part, np.float64) for part in weigh(
        np.sort(data), estimator.parameters))
  widths = np.diff(ends)
  heights = np.full(widths.size, -np.inf)
  some = widths > 0
  heights[some] = weights[some] - np.log(widths[some])
  heights -= np.log(np.sum(np.exp(weights)))
  points = _POINTS if estimator.printed else np.log(_POINTS)
  inside = heights[np.searchsorted(ends, points) - 1]
  return inside[points > (0 if estimator.printed else ends[1])], heights[0]


@pytest.mark.sound
@pytest.mark.parametrize('fields', [{}, {'printed': True}, {'above': 1}],
                         ids=str)
def test_densities_of_neighbours_differ_by_epsilon_at_most(fields):
  """Neighbours' log-ratios are at most epsilon, and so is their range."""
  estimator, rng = _estimator(**fields), np.random.default_rng(0)
  assert estimator.records_above == fields.get('above', 2)
  worst = widest = 0.0
  for trial in range(60):
    data = rng.uniform(0, 1, _SIZE) if trial % 2 else np.full(_SIZE, 0.6)
    other = data.copy()
    other[rng.integers(_SIZE)] = (0.0, 1.0, rng.uniform())[trial % 3]
    (here, low), (there, lower) = (_log_density(estimator, each)
                                   for each in (data, other))
    losses = here - there
    if not estimator.printed:
      losses = np.append(losses, low - lower)
    worst = max(worst, np.abs(losses).max())
    widest = max(widest, losses.max() - losses.min())
  assert 0.8 * 1.3 < worst <= 1.3 + 1e-9
  assert 0.8 * 1.3 < widest <= 1.3 + 1e-9


@pytest.mark.slow
def test_all_that_is_below_the_lowest_end_is_one_candidate():
  estimator = _estimator(n=40)
  lowest = math.exp(estimator.parameters.log_lowest)
  with jax.enable_x64(True):
    ends, weights = support_ranks.log_weights(np.full(40, lowest / 2),
                                              estimator.parameters)
  # All records are below, so the candidate has the best score, weight 1.
  assert float(weights[0]) == pytest.approx(0)
  assert np.asarray(weights)[1:].max() < -3
  assert estimator.release(jax.random.key(0), np.zeros(40)) == pytest.approx(
      estimator.parameters.factor * lowest)


def _uniform(rng, repeated, n):
  """Returns order statistics [R, n] by cumulative sums of exponentials."""
  sums = np.cumsum(rng.exponential(size=(repeated, n + 1)), 1)
  return sums[:, :-1] / sums[:, -1:]


@pytest.mark.slow
@pytest.mark.parametrize('n, epsilon', [(60, 1.0), (300, 0.3), (30, 4.0)])
def test_risks_are_those_of_draws(n, epsilon):
  """The integral is the risk of draws at theta = .6, and a bound elsewhere."""
  estimator, repeated = _estimator(n, epsilon), 6000
  ordered = _uniform(np.random.default_rng(1), repeated, n)
  errors = np.square(np.asarray(estimator.estimates(
      jax.random.key(2), 0.6 * ordered))[:, 0] - 0.6)
  wanted = float(estimator.risk_bound(np.array([0.6]))[0])
  error = errors.std() / repeated**0.5
  # Values far below the rank are bounded, and add at most a fifth here.
  assert errors.mean() - 4 * error <= wanted <= 1.2 * errors.mean() + 4 * error
  for theta in (1.0, 0.05, 1e-3):
    few = np.square(np.asarray(estimator.estimates(
        jax.random.key(3), theta * ordered))[:, 0] - theta)
    assert few.mean() - 4 * few.std() / repeated**0.5 <= float(
        estimator.risk_bound(np.array([theta]))[0])


def test_the_integral_is_the_mean_over_gaps():
  """The integral equals means over drawn gaps, without a choice."""
  n = 12
  rng = np.random.default_rng(5)
  gaps = rng.exponential(size=(200_000, n)) / np.arange(1, n + 1)
  weights = np.exp(-np.abs(np.arange(1, n + 1) - (n - 3.0)))
  low = 5  # This is half of the rank, rounded up.
  spread = -math.log(0.5)
  widths = gaps.copy()
  widths[:, -1] += spread
  masses = (widths * weights)[:, low - 1:]
  shares = masses / masses.sum(1, keepdims=True)
  lambdas = np.exp(np.arange(-20, 14, 0.2))
  sums, through = support_ranks._chain(lambdas, n, low, 1.0, n - 3.0)
  hit = lambdas * math.exp(-3.0)
  integral = np.sum(sums * np.exp(-hit * spread) * lambdas, 1) * 0.2
  gaps = gaps[:, low - 1:]
  depths = np.cumsum(gaps[:, ::-1], 1)[:, ::-1] - gaps
  for power in range(3):
    # The chosen point over theta is uniform in its gap of logarithms.
    inside = np.exp(-power * depths) * (
        -np.expm1(-power * gaps) / (power * gaps) if power else 1.0)
    wanted = (shares * inside)[:, :-1].sum(1).mean()
    assert integral[power] == pytest.approx(wanted, rel=2e-3)
  inverse = np.sum(through * np.exp(-hit * spread) * n / (n + hit) * lambdas
                   ) * 0.2
  assert inverse == pytest.approx((1 / masses.sum(1)).mean(), rel=3e-3)


@pytest.mark.slow
def test_a_choice_that_is_uniform_in_t_fails_where_theta_is_small():
  """A choice uniform in t keeps its rate only near theta = 1 (EXT-UNIF-EXP)."""
  n, epsilon = 300, 0.5
  ordered = _uniform(np.random.default_rng(0), 2000, n)
  theta, square = 1 / (n * epsilon)**2, (n * epsilon)**2

  def at(estimator, end):
    estimates = np.asarray(estimator.estimates(jax.random.key(1),
                                               end * ordered))[:, 0]
    return float(np.mean(np.square(estimates - end))) * square

  printed = _estimator(n, epsilon, printed=True)
  assert printed.records_above == math.ceil(12 * math.log(150))
  assert at(printed, 0.9) < 40
  assert at(printed, theta) > 500
  estimator = _estimator(n, epsilon)
  assert at(estimator, theta) < 1
  assert estimator.worst_risk() * square < 40
  with pytest.raises(ValueError, match='has no bound'):
    printed.worst_risk()


def test_room_is_near_the_best():
  n, epsilon = 1000, 1.0
  risks = {j: _estimator(n, epsilon, above=j).worst_risk()
           for j in (12, 24, 30, 36, 42, 54)}
  assert _estimator(n, epsilon).records_above == 36
  assert _estimator(n, epsilon).worst_risk() < 1.1 * min(risks.values())
  assert risks[12] > 3 * risks[36]  # This lies beyond theta.


def test_events():
  assert mechanism.epsilon(_estimator(),
                           delta=1e-9) == pytest.approx(1.3, rel=1e-4)
  estimator = support_ranks.of_zcdp(num_examples=9, rho=0.02)
  assert estimator.epsilon == pytest.approx(0.4)
  spent = mechanism.epsilon(estimator, delta=1e-6, accountant='rdp')
  assert 0.4 < spent < 1.1  # 2 sqrt(.02 ln 1e6) + .02 is 1.07.
  with pytest.raises(ValueError, match='above must be'):
    _estimator(above=3)
  with pytest.raises(ValueError, match='at least 2'):
    dataclasses.replace(_estimator(), num_examples=1)


def test_bayes_risk_without_privacy_is_that_of_a_sum():
  """The Bayes risk without privacy equals its sum over a grid, for n = 3."""
  a, n = 0.7 * 3, 3
  thetas = (np.arange(2000) + 0.5) / 2000
  prior = a * thetas**(a - 1) / 2000
  tops = (np.arange(2000) + 0.5) / 2000
  joint = np.where(tops[:, None] < thetas, prior * n * tops[:, None]**(n - 1)
                   / thetas**n, 0) / 2000
  mass = joint.sum(1)
  means = joint @ thetas / np.maximum(mass, 1e-300)
  wanted = joint.sum(0) @ thetas**2 - mass @ means**2
  assert support_bounds._bayes(n, 0.7) == pytest.approx(wanted, rel=5e-3)
  for size in (10, 10**4):
    ratio = support_bounds.bayes(size) * (size + 1)**2
    assert 0.5 < ratio < 1


def test_estimators_of_the_largest():
  """The largest record errs more than theta^2 / n^2 from n = 4 on (E-10)."""
  risk = doubled_means.largest_risk
  assert risk(1.0, num_examples=20) == pytest.approx(4.329e-3, rel=1e-3)
  assert risk(1.0, num_examples=20, factor=21 / 20) == pytest.approx(
      2.273e-3, rel=1e-3)
  for n in (4, 20, 300):
    assert risk(1.0, num_examples=n) > 1 / n**2
    assert risk(1.0, num_examples=n, factor=(n + 1) / n) < 1 / n**2
    least = risk(1.0, num_examples=n, factor=(n + 2) / (n + 1))
    assert least == pytest.approx(support_bounds.non_private(n))
  assert risk(1.0, num_examples=3) < 1 / 9
  # Rounding loses nothing.
  for n in (10**7, 10**9):
    assert risk(1.0, num_examples=n) == pytest.approx(
        2 / ((n + 1) * (n + 2)), rel=1e-7)
  draws = np.random.default_rng(0).beta(10, 1, 200_000)  # maxima of ten
  for factor in (1.0, 1.1, 2**(1 / 11)):
    errors = np.abs(factor * draws - 1)
    assert doubled_means.largest_absolute_risk(
        1.0, num_examples=10, factor=factor) == pytest.approx(
            errors.mean(), abs=4 * errors.std() / 200_000**0.5)


def test_twice_the_mean():
  estimator = supports.MeanSupport(num_examples=50,
                                   guarantee=PureDP(epsilon=1.0))
  totals = np.random.default_rng(0).uniform(size=(10_000, 50)).sum(1) * 0.5
  errors = np.square(np.asarray(estimator.estimates(
      jax.random.key(0), totals[:, None]))[:, 0] - 0.5)
  assert errors.mean() == pytest.approx(
      estimator.population_risk(0.5), abs=4 * (errors.std() / 100))
  assert estimator.population_risk(1.0) == doubled_means.DoubledMean(
      num_examples=50, epsilon=1.0).population_risk(1.0)
  with pytest.raises(ValueError, match='guarantee must be'):
    supports.MeanSupport(num_examples=5, guarantee=None)


@pytest.mark.every(2)
def test_weights_are_of_ranks_and_those_below_the_end_of_the_best_of_them():
  """Weights depend on ranks; below the lowest end the best rank counts."""
  estimator = _estimator(n=6, epsilon=1.3, above=2)
  lowest, rate = math.exp(estimator.parameters.log_lowest), 0.65
  for below in range(7):
    data = np.sort(np.append(np.full(below, lowest / 3),
                             np.linspace(0.2, 0.9, 6)[below:]))
    density, floor = _log_density(estimator, data)
    points = np.log(_POINTS[np.log(_POINTS) > estimator.parameters.log_lowest])
    ranks = np.sum(np.log(data)[:, None] < points, 0)
    # The lowest end counts as one unit of the logarithm at the best rank there.
    best = min(abs(rank - 4) for rank in range(below + 1))
    np.testing.assert_allclose(density - floor, rate * (
        best - np.abs(ranks - 4)), atol=1e-9)


def _risk_by_gaps(estimator, thetas, size=2**13):
  """Returns unclipped mean squares over a net of records, gap by gap."""
  factor, n = float(estimator.parameters.factor), estimator.num_examples
  net = qmc.Sobol(n, seed=0).random(size)
  lowest = float(estimator.parameters.log_lowest)
  risks = []
  for theta in thetas:
    logs = np.log(np.maximum(np.sort(net, 1) * theta, math.exp(lowest)))
    ends = np.concatenate([np.full((size, 1), lowest), logs,
                           np.zeros((size, 1))], 1)
    widths = np.diff(ends)
    weights = widths * np.exp(-float(estimator.parameters.rate) * np.abs(
        np.arange(n + 1) - float(estimator.parameters.rank)))
    some = np.where(widths > 1e-12, widths, 1.0)
    first, second = (np.where(widths > 1e-12, np.diff(
        np.exp(power * ends)) / (power * some), np.exp(power * ends[:, :-1]))
                     for power in (1, 2))
    squares = factor**2 * second - 2 * factor * theta * first + theta**2
    risks.append(np.mean(np.sum(weights * squares, 1) / weights.sum(1)))
  return np.array(risks)


@pytest.mark.every(1)
@pytest.mark.parametrize('n, epsilon, above', [(12, 7.0, 1), (20, 4.0, 2)])
def test_bounds_of_few_records_are_means_over_nets(n, epsilon, above):
  """Bounds for few records are means over nets, past the largest record too."""
  estimator = _estimator(n, epsilon, above=above)
  thetas = np.array([0.5, 0.8, 1.0])
  bounds = estimator.risk_bound(thetas)
  wanted = _risk_by_gaps(estimator, thetas)
  assert bounds == pytest.approx(wanted, rel=0.01)
