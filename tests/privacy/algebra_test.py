"""Tests composition of unequal and disjoint releases, and of adjacencies."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy import neighbours
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import PureDP
from experiments.methods.theory import compared_notions
from experiments.methods.theory import composition

AR, RO = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def _response(epsilon):
  truth = 1 / (1 + math.exp(-epsilon))
  return np.array([truth, 1 - truth]), np.array([1 - truth, truth])


def _product(pairs):
  first, second = np.ones(1), np.ones(1)
  for p, q in pairs:
    first, second = np.outer(first, p).ravel(), np.outer(second, q).ravel()
  return first, second


# -- Composition of unequal releases.


@pytest.mark.parametrize('one, uses, simple, with_constant, without, exact', [
  (0.1, 10, 1.0, 1.6414, 1.7122, 0.99937),
  (0.1, 100, 10.0, 5.7561, 5.7561, 4.77457),
  (0.01, 1000, 10.0, 1.6415, 1.7123, 1.36545)])
def test_golden_compositions(one, uses, simple, with_constant, without, exact):
  """Compositions give the golden epsilons at slack 1e-6 (ALG-09, ALG-10)."""
  composed = composition.heterogeneous(
    [ApproxDP(epsilon=one, delta=0.0)] * uses, slack=1e-6)
  assert composed.epsilon == pytest.approx(min(simple, with_constant, without),
                                           abs=1e-4)
  assert composed.delta == pytest.approx(1e-6)
  tight = accounting.optimal_composition(
    [ApproxDP(epsilon=one, delta=0.0)] * uses, delta=1e-6)
  assert exact - 1e-5 <= tight <= composed.epsilon
  assert tight == pytest.approx(exact, abs=2e-4)


def test_optimal_composition_of_unequal_guarantees():
  """Optimal composition matches its golden value and enumeration (ALG-10)."""
  total = 1 - (1 - 1e-6) * (1 - 1e-7)**20
  epsilon = accounting.optimal_composition(
    [ApproxDP(epsilon=0.1, delta=1e-7)] * 20, delta=total)
  assert epsilon == pytest.approx(1.78861, abs=2e-4)
  epsilons = [0.3, 0.7, 0.7, 0.1]
  p, q = _product([_response(e) for e in epsilons])
  epsilon = accounting.optimal_composition(
    [ApproxDP(epsilon=e, delta=0.0) for e in epsilons], delta=0.05)
  assert divergences.hockey_stick(p, q, epsilon=epsilon) <= 0.05 + 1e-12
  assert divergences.hockey_stick(p, q, epsilon=epsilon - 1e-3) > 0.05


def test_heterogeneous_dominates_exact_composition():
  """The composed epsilon covers the exact one, for random epsilons."""
  rng = np.random.default_rng(0)
  used = set()
  for _ in range(200):
    epsilons = rng.uniform(0.01, 1.0, rng.integers(2, 11)) * rng.choice(
      [0.1, 1.0])
    slack = 10.0**rng.uniform(-6, -1)
    composed = composition.heterogeneous(
      [ApproxDP(epsilon=e, delta=0.0) for e in epsilons], slack=slack)
    p, q = _product([_response(e) for e in epsilons])
    assert divergences.hockey_stick(p, q, epsilon=composed.epsilon) <= (
      slack * (1 + 1e-9))
    used.add(composed.epsilon < sum(epsilons) - 1e-12)
  assert used == {True, False}


def test_the_least_of_three_forms_and_the_exact_one():
  """The least of three forms exceeds the exact epsilon. T-E09: min(A, B, B)
  is a misprint, and forms are linear in small epsilons, not of root order."""
  many = lambda epsilon: [ApproxDP(epsilon=epsilon, delta=0.0)] * 1000
  forms = composition.heterogeneous_forms(many(0.1), slack=1e-6)
  assert forms[:3] == pytest.approx((100.0, 22.2972, 21.6184), abs=1e-4)
  assert composition.heterogeneous(many(0.1), slack=1e-6).epsilon == (
    forms.without_constant)
  exact = accounting.optimal_composition(many(0.1), delta=1e-6)
  assert exact == pytest.approx(19.34467, abs=1e-3)
  small, large = (composition.advanced(
    many(epsilon)[0], num_uses=1000, slack=1e-6).epsilon
    for epsilon in (1e-6, 1e-4))
  assert large == pytest.approx(100 * small, rel=1e-2)


def test_deltas_multiply():
  parts = [ApproxDP(epsilon=0.1, delta=0.01), ApproxDP(epsilon=0.2, delta=0.02)]
  composed = composition.heterogeneous(parts, slack=1e-3)
  assert composed.delta == pytest.approx(1 - 0.999 * 0.99 * 0.98)


# -- Disjoint parts.


def _geometric(counts, epsilon, span=25):
  """Returns the noisy counts' distribution, truncated and normalised."""
  values = np.arange(-span, span + 1)
  probs = np.ones(1)
  for count in counts:
    each = np.exp(-epsilon * np.abs(values - count))
    probs = np.outer(probs, each / each.sum()).ravel()
  return probs


@pytest.mark.parametrize('adjacency, factor', [(AR, 1), (RO, 2)])
def test_disjoint_cells_by_enumeration(adjacency, factor):
  """Disjoint cells of the 2 x 2 table compose in parallel (ALG-13, L-E07)."""
  epsilon, cells = 0.8, ((0, 0), (0, 1), (1, 0), (1, 1))
  parts = [ApproxDP(epsilon=epsilon, delta=0.0)] * 4
  claim = composition.parallel(parts, adjacency=adjacency)
  assert claim.epsilon == pytest.approx(factor * epsilon)
  table = lambda dataset: [dataset.count(cell) for cell in cells]
  worst = max(
    divergences.max_divergence(*(
      # Each cell is compared alone, since independent cells have a product.
      _geometric([table(d)[cell]], epsilon) for d in pair)) for pair in
    neighbours.pairs(cells, (0, 1, 2), adjacency) for cell in range(4))
  assert worst == pytest.approx(epsilon)
  summed = max(
    sum(divergences.max_divergence(*(
      _geometric([table(d)[cell]], epsilon) for d in pair))
        for cell in range(4))
    for pair in neighbours.pairs(cells, (0, 1, 2), adjacency))
  assert summed == pytest.approx(claim.epsilon)


def test_a_marginal_is_one_more_release():
  """Noisy row sums beside noisy cells double the cost, by
  enumeration (ALG-13)."""
  epsilon, cells = 0.8, ((0, 0), (0, 1), (1, 0), (1, 1))
  table, rows = (composition.parallel(
    [ApproxDP(epsilon=epsilon, delta=0.0)] * size, adjacency=AR)
    for size in (4, 2))
  counts_of = lambda dataset: [
    *(dataset.count(cell) for cell in cells),
    *(sum(first == row for first, _ in dataset) for row in (0, 1))]
  worst = max(
    sum(divergences.max_divergence(*(
      _geometric([count], epsilon) for count in both))
        for both in zip(*map(counts_of, pair), strict=True))
    for pair in neighbours.pairs(cells, (0, 1, 2), AR))
  assert worst == pytest.approx(2 * epsilon)
  assert composition.basic([table, rows]).epsilon == pytest.approx(worst)


def test_parts_of_unequal_price():
  parts = [ApproxDP(epsilon=e, delta=d) for e, d in (
    (0.5, 0.01), (1.0, 0.0), (0.2, 0.03))]
  assert composition.parallel(parts, adjacency=AR) == ApproxDP(
    epsilon=1.0, delta=0.03)
  assert composition.parallel(parts, adjacency=RO, alike=True) == ApproxDP(
    epsilon=1.5, delta=0.04)
  # In the most expensive part a record is removed and another one added.
  composed = composition.parallel(parts, adjacency=RO)
  assert composed.epsilon == 2.0
  assert composed.delta == pytest.approx(0.03 * (1 + math.exp(0.2)))


def test_a_record_may_change_within_its_part():
  """A replacement within a part costs all its counts, enumerated (ALG-13)."""
  epsilons = {'a': 1.0, 'b': 1.0, 'c': 0.2}
  parts = [ApproxDP(epsilon=e, delta=0.0) for e in (1.0, 0.2)]
  losses = [sum(divergences.max_divergence(*(
    _geometric([dataset.count(kind)], epsilon, span=40) for dataset in pair))
      for kind, epsilon in epsilons.items())
    for pair in neighbours.pairs('abc', (1, 2), RO)]
  assert max(losses) == pytest.approx(2.0)
  claim = composition.parallel(parts, adjacency=RO)
  assert claim.epsilon == pytest.approx(max(losses))
  apart = [loss for loss in losses if loss < 1.9]
  assert max(apart) == pytest.approx(composition.parallel(
    parts, adjacency=RO, alike=True).epsilon, abs=1e-4)


# -- Changes of adjacency.


def test_the_delta_of_a_replacement_is_attained():
  """A linear program attains the delta of a replacement (ALG-12) and exceeds
  the printed 2 delta (erratum T-E08)."""
  epsilon, delta = 1.0, 0.01
  claim = composition.replace_one_from_add_or_remove(
    ApproxDP(epsilon=epsilon, delta=delta))
  assert claim.epsilon == pytest.approx(2.0)
  assert claim.delta == pytest.approx((1 + math.e) * delta)
  # p, m, q are distributions on two outcomes; maximise p_1 - e^2 q_1.
  growth, rows, bounds = math.exp(epsilon), [], []
  for a, b in ((0, 1), (1, 0), (1, 2), (2, 1)):
    for sign in (1, -1):  # These are outcome 1, and outcome 0 = 1 - it.
      row = np.zeros(3)
      row[a], row[b] = sign, -sign * growth
      rows.append(row)
      bounds.append(delta if sign == 1 else delta + growth - 1)
  optimum = optimize.linprog([-1, 0, math.exp(2 * epsilon)], A_ub=rows,
                             b_ub=bounds, bounds=[(0, 1)] * 3)
  assert -optimum.fun == pytest.approx(claim.delta, rel=1e-6)
  assert -optimum.fun > 1.5 * 2 * delta


# -- From pure to concentrated, for mechanisms that are known.


def _largest_slope(p, q, orders):
  return max(divergences.renyi(*pair, order=a) / a for a in orders
             for pair in ((p, q), (q, p)))


@pytest.mark.sound
@pytest.mark.parametrize('epsilon', [0.5, *(
  pytest.param(each, marks=pytest.mark.slow) for each in (0.1, 1.0, 3.0))])
@pytest.mark.parametrize('kind', ['geometric', 'exponential', 'laplace'])
def test_concentration_of_known_mechanisms(epsilon, kind):
  """Mechanisms keep their stated rho, attained as the
  order nears 1 (ALG-02)."""
  pure = PureDP(epsilon=epsilon)
  rho = notions.zcdp_from_mechanism(pure, kind).rho
  orders = np.concatenate([1 + np.geomspace(1e-4, 1, 30), np.linspace(2, 40, 60)])
  if kind == 'geometric':
    values = np.arange(-int(60 / epsilon), int(60 / epsilon) + 1)
    p, q = (np.exp(-epsilon * np.abs(values - shift)) for shift in (0, 1))
    p, q = p / p.sum(), q / q.sum()
    assert _largest_slope(p, q, orders) == pytest.approx(rho, rel=1e-3)
  elif kind == 'laplace':
    for a in orders:
      divergence = math.log(
        a / (2 * a - 1) * math.exp((a - 1) * epsilon)
        + (a - 1) / (2 * a - 1) * math.exp(-a * epsilon)) / (a - 1)
      assert divergence <= rho * a * (1 + 1e-9)
    assert rho == pytest.approx(epsilon + math.exp(-epsilon) - 1)
  else:
    # Bounded range has log-ratios t - epsilon and t, for two outcomes.
    worst = 0.0
    for t in np.linspace(1e-3, epsilon - 1e-3, 200):
      low, high = math.exp(t - epsilon), math.exp(t)
      share = (1 - low) / (high - low)
      q = np.array([share, 1 - share])
      worst = max(worst, _largest_slope(q * [high, low], q, orders))
    assert worst <= rho * (1 + 1e-9) and worst == pytest.approx(rho, rel=1e-2)
    assert rho <= epsilon**2 / 8
  assert rho <= notions.zcdp_from_pure(pure).rho * (1 + 1e-12)


@pytest.mark.parametrize('categories', [2, 3, 6])
@pytest.mark.parametrize('epsilon', [0.1, 1.0, 3.0])
def test_concentration_of_randomised_response(categories, epsilon):
  rho = compared_notions.zcdp_from_response(
      PureDP(epsilon=epsilon), categories).rho
  p = np.full(categories, 1.0)
  p[0] = math.exp(epsilon)
  p = p / p.sum()
  orders = 1 + np.geomspace(1e-4, 40, 80)
  assert _largest_slope(p, p[::-1], orders) == pytest.approx(rho, rel=1e-3)
  with pytest.raises(ValueError, match='from 2 to 6'):
    compared_notions.zcdp_from_response(PureDP(epsilon=epsilon), 7)


def test_golden_concentrations():
  one = PureDP(epsilon=1.0)
  assert notions.zcdp_from_mechanism(one, 'laplace').rho == (
    pytest.approx(0.367879, abs=1e-6))
  assert notions.zcdp_from_mechanism(one, 'exponential').rho == (
    pytest.approx(0.123302, abs=1e-6))
  for epsilon, rho in ((0.1, 0.004996), (0.5, 0.122459), (1, 0.462117),
                       (2, 1.523188), (4, 3.85611)):
    assert notions.zcdp_from_pure(PureDP(epsilon=epsilon)).rho == (
      pytest.approx(rho, abs=1e-5))
  with pytest.raises(ValueError, match='mechanism must be one of'):
    notions.zcdp_from_mechanism(one, 'gaussian')


def test_groups_of_concentrated_releases():
  """A group of 4 multiplies rho by 16, as Gaussian shifts do (ALG-06)."""
  group = compared_notions.zcdp_of_group(notions.ZCDP(rho=0.3), size=4)
  assert group.rho == pytest.approx(16 * 0.3)


def test_a_random_record_is_no_privacy():
  """Releasing a random record has delta 1 / n at every epsilon (DEF-08)."""
  for size in (1, 2, 4):
    worst = 0.0
    for one, other in neighbours.pairs('abc', (size,), RO):
      p, q = (np.array([d.count(record) for record in 'abc']) / size
              for d in (one, other))
      for epsilon in (0.0, 1.0, 20.0):
        delta = divergences.hockey_stick(p, q, epsilon=epsilon)
        assert delta <= 1 / size + 1e-12
        worst = max(worst, delta if epsilon == 20.0 else 0.0)
    assert worst == pytest.approx(1 / size)


def test_expected_utilities_are_sandwiched():
  """Expected utilities differ by e^epsilon, for
  utilities >= 0 only (DEF-09)."""
  rng = np.random.default_rng(1)
  epsilon = 0.7
  p, q = _response(epsilon)
  for _ in range(50):
    utility = rng.uniform(0, 3, 2)
    assert (math.exp(-epsilon) * q @ utility <= p @ utility * (1 + 1e-12)
            and p @ utility <= math.exp(epsilon) * q @ utility * (1 + 1e-12))
    first, second = rng.dirichlet(np.ones(3), 2)
    delta = max(divergences.hockey_stick(*pair, epsilon=0.3) for pair in (
      (first, second), (second, first)))
    value = rng.uniform(0, 3, 3)
    slack = delta * value.max() + 1e-12
    assert math.exp(-0.3) * second @ value - slack <= first @ value
    assert first @ value <= math.exp(0.3) * second @ value + slack
  signed = np.array([1.0, -1.0])
  assert p @ signed > math.exp(epsilon) * (q @ signed)


def test_post_processing_never_tells_more():
  """Random channels never raise divergences; knowing the noise undoes it."""
  rng = np.random.default_rng(2)
  for _ in range(100):
    p, q = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
    channel = rng.dirichlet(np.ones(3), 4)
    for epsilon in (0.0, 0.3):
      assert divergences.hockey_stick(
        p @ channel, q @ channel, epsilon=epsilon) <= (
          divergences.hockey_stick(p, q, epsilon=epsilon) + 1e-12)
    assert divergences.renyi(p @ channel, q @ channel, order=3.0) <= (
      divergences.renyi(p, q, order=3.0) + 1e-12)
  noise = rng.laplace(size=5)
  for value in (0.0, 1.0):
    np.testing.assert_allclose((value + noise) - noise, value, atol=1e-12)


def test_pairs_of_products_compose():
  """Products of two mechanisms add their epsilons (ALG-07)."""
  for one, other in itertools.product((0.2, 1.0), repeat=2):
    p, q = _product([_response(one), _response(other)])
    assert divergences.max_divergence(p, q) == pytest.approx(one + other)
