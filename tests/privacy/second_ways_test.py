"""Tests quantities of this package that can be computed in a second way."""

from fractions import Fraction
import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import blocks
from dpjax.privacy import discrete
from dpjax.privacy import divergences
from dpjax.privacy import exact
from dpjax.privacy import integers
from dpjax.privacy import k_norm
from dpjax.privacy import langevin
from dpjax.privacy import lattice
from dpjax.privacy import mechanism
from dpjax.privacy import smooth
from dpjax.privacy import tradeoff
from dpjax.privacy.notions import ApproxDP
from experiments.methods.mechanisms import inverse_scores
from experiments.methods.mechanisms import renyi_steps
from experiments.methods.statistics import local_queries as queries
from tests.privacy.spending import ADD
from tests.privacy.spending import REPLACE

KEY = jax.random.key(12)


# -- Composition.


def test_many_small_epsilons_are_composed_on_a_fine_grid():
  """Composing 100 small epsilons is within 2 percent of the exact binomial."""
  one, uses, delta = 1.05e-3, 100, 1e-3
  truth, number = 1 / (1 + math.exp(-one)), np.arange(uses + 1)
  ways = np.array([float(math.comb(uses, k)) for k in number])
  p = ways * truth**number * (1 - truth)**(uses - number)
  epsilon = accounting.optimal_composition(
    [ApproxDP(epsilon=one, delta=0.0)] * uses, delta=delta)
  p /= p.sum()
  assert divergences.hockey_stick(p, p[::-1], epsilon=epsilon) <= delta
  assert divergences.hockey_stick(p, p[::-1], epsilon=0.98 * epsilon) > delta


def test_equal_releases_count_as_often_as_they_are_made():
  """Equal events count as often as they are released."""
  once = additive.GaussianMechanism(record_norm=1.0, noise_multiplier=4.0,
                                    adjacency=ADD)
  joint = accounting.gaussian_event(noise_multiplier=2.0)
  actual, wanted = (accounting.epsilon(
    event, delta=1e-5, adjacency=ADD, accountant='rdp')
                    for event in (mechanism.compose(*[once] * 4), joint))
  assert actual == pytest.approx(wanted)


@pytest.mark.every(1)
@pytest.mark.parametrize('accountant', accounting.ACCOUNTANTS)
def test_k_norm_noise_is_calibrated_by_the_accountant_that_is_asked(accountant):
  """Calibration costs at most its target, within 3 parts in 10^3."""
  given = dict(sampling_prob=0.1, num_steps=20)
  noise = k_norm.calibrate_noise_multiplier(
    target_epsilon=0.5, target_delta=1e-5, order=2, adjacency=ADD,
    accountant=accountant, **given)
  run = accounting.poisson_event(k_norm.event(
    noise_multiplier=noise, order=2), **given)
  spent = accounting.epsilon(run, delta=1e-5, adjacency=ADD,
                             accountant=accountant)
  assert 0.5 * (1 - 3e-3) < spent <= 0.5


def test_curves_of_points_are_the_lines_of_each():
  """A curve of points is the lines of each; points with delta 1 add nothing."""
  alpha, pure = np.linspace(0, 1, 41), ApproxDP(epsilon=0.7, delta=0.0)
  np.testing.assert_array_equal(
    tradeoff.from_curve(alpha, [0.7, 0.1], [0.0, 1.0]),
    tradeoff.approx(alpha, pure))
  np.testing.assert_array_equal(tradeoff.from_curve(alpha, [0.7], [1.0]),
                                np.zeros(41))


def test_groups_of_gaussians_at_all_sizes():
  """A Gaussian group of 2^c costs 1.5^c times the exact divergence."""
  one = renyi_steps.gaussian(noise_multiplier=3.0, order=32.0)
  for doublings in range(5):
    claim = renyi_steps.group(one, doublings=doublings)
    single = renyi_steps.gaussian(noise_multiplier=3.0 / 2**doublings,
                           order=claim.order)
    assert claim.divergence == pytest.approx(1.5**doublings * single.divergence)


# -- Blocks.


@pytest.mark.every(1)
@pytest.mark.parametrize('rule', blocks.ALLOCATIONS)
def test_units_of_sensitivities_do_not_matter(rule):
  """Scaling all bounds scales the noise, even where
  squares over- or underflow."""
  bounds = jnp.array([1.0, 0.25, 3.0], jnp.float32)
  split = lambda scale: np.asarray(blocks.allocate(
    bounds * jnp.float32(scale), noise_multiplier=1.5, sizes=(4, 1, 9),
    rule=rule), np.float64)
  usual = split(1.0)
  for power in (-90, 90):
    np.testing.assert_allclose(split(2.0**power), usual * 2.0**power,
                               rtol=1e-6)


# -- Tables of integers.


def _distribution(parts):
  """Returns outcome -> probability of a sum of multiples of draws."""
  total = {0: Fraction(1)}
  for table, multiplier in parts:
    weights = [(table.first + i, Fraction(w, 2**integers.RESOLUTION))
               for i, w in enumerate(table.weights) if w]
    added = {}
    for x, p in total.items():
      for y, q in weights:
        z = x + multiplier * y
        added[z] = added.get(z, 0) + p * q
    total = added
  return total


def _variation(total, log_weight, bound):
  """Returns the total variation from these log-weights
  on -bound, ..., bound."""
  with mpmath.workprec(200):
    masses = {z: mpmath.exp(log_weight(mpmath.mpf(z)))
              for z in range(-bound, bound + 1)}
    scale = mpmath.fsum(masses.values())
    return float(mpmath.fsum(
      abs(masses.get(z, 0) / scale - mpmath.mpf(p.numerator) / p.denominator)
      for z, p in ((z, total.get(z, Fraction(0)))
                   for z in set(masses) | set(total))) / 2)


def test_sums_of_tables_are_as_near_as_mechanisms_say(monkeypatch):
  """Sums of narrow tables are within the mechanism's stated distance."""
  monkeypatch.setattr(integers, 'LARGEST_STDDEV', 2.0)
  for noise in (1.9, 3.0, 4.0):
    mechanism = discrete.DiscreteGaussianMechanism(
      record_norm=1.0, noise_multiplier=noise, adjacency=ADD)
    total = _distribution(
        zip(mechanism._tables(), (1, mechanism._parts()[1]), strict=False))
    distance = _variation(total, lambda z, s=noise: -(z / s)**2 / 2, 120)
    assert distance <= mechanism.total_variation <= 5 * distance + 1e-24
    assert (distance > 1e-16) == (noise > 2)


def test_digits_are_as_near_as_mechanisms_say(monkeypatch):
  """Each of four digit tables is charged; their sum is two-sided geometric."""
  monkeypatch.setattr(integers, 'LARGEST_SCALE', 0.3)
  monkeypatch.setattr(discrete, '_DIGIT', 4)
  mechanism = discrete.GeometricMechanism(record_norm=1, epsilon=2.0,
                                          adjacency=ADD)
  tables = mechanism._tables()
  total = _distribution(zip(tables, (1, 4, -1, -4), strict=True))
  distance = _variation(total, lambda z: -abs(z) * 2, 140)
  charged = sum(table.total_variation for table in tables)
  assert len(tables) == 4 and charged == pytest.approx(
      mechanism.total_variation)
  assert distance <= charged < 1e-25


@pytest.mark.every(2)
def test_every_table_of_a_release_is_charged(monkeypatch):
  """Every drawn table, and every word that decides lattice ties, is charged."""
  drawn, ties = [], []
  monkeypatch.setattr(integers, 'draw', lambda table, key, shape, start: (
    drawn.append(table), jnp.zeros(shape, jnp.int32))[1])
  for epsilon in (1.0, 0.02):
    mechanism = discrete.GeometricMechanism(record_norm=1, epsilon=epsilon,
                                            adjacency=REPLACE)
    drawn.clear()
    mechanism.release(KEY, jnp.zeros(2, jnp.int32))
    assert mechanism.total_variation >= sum(
        table.total_variation for table in drawn)
  monkeypatch.setattr(integers, 'draw_rows', lambda table, key, shape: (
    ties.extend([(table, shape[1])] * shape[0]),
    jnp.zeros(shape, jnp.int32))[1])
  count = 10**9
  lattice.add_noise(KEY, jnp.zeros(2), 2.0**-19, jnp.int32(3000))
  charged = (lattice.total_variation(num_values=count, num_steps=1)
             - count * lattice.total_variation(num_values=1, num_steps=1))
  assert len(ties) == 3 and ties[0][1] == 2
  assert charged >= 0.999 * sum(integers.tie_variation(table, count)
                                for table, _ in ties)


# -- Decisions between integers.


def test_exponentials_lie_between_integers_that_are_near():
  for rate, bits in itertools.product(
      (Fraction(0), Fraction(1, 10**9), Fraction(2, 3), Fraction(1),
       Fraction(77, 2), Fraction(10**6, 7)), (8, 128, 200)):
    low, high = exact.exp_between(rate, bits)
    with mpmath.workprec(1000):
      value = mpmath.ldexp(
        mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator), bits)
      assert low <= value <= high <= low + 3


def test_a_coin_of_a_large_rate_is_one_of_many_coins(monkeypatch):
  """A coin of a large rate is split into coins whose rates add up to it."""
  for rate in (Fraction(0), Fraction(5, 2), Fraction(40), Fraction(199, 3)):
    rates = []
    monkeypatch.setattr(exact, '_bernoulli_exp_unit', lambda part, below: (
      rates.append(part), True)[1])
    assert exact.bernoulli_exp(rate)
    assert sum(rates) == rate and max(rates) <= 1


# -- Enumerations.


def test_candidates_that_are_given_twice_are_scored_twice():
  scores = inverse_scores.scores_by_enumeration(
    max, (0, 1), domain=(0, 1, 2), candidates=(2, 0, 2), sizes=[2],
    adjacency=REPLACE)
  np.testing.assert_array_equal(scores, [-1, -1, -1])


def test_probabilities_that_are_none_are_refused():
  for wrong in ([0.5, math.nan], [0.5, 0.5 + 1e-6], [0.5, 0.5 - 1e-6],
                [1 + 1e-3, -1e-3]):
    for pair in ((wrong, [0.5, 0.5]), ([0.5, 0.5], wrong)):
      with pytest.raises(ValueError, match='probabilities that sum to 1'):
        divergences.max_divergence(*pair)


def test_a_floor_keeps_the_scale_smooth_where_one_term_is_left():
  """The floor keeps the scale smooth for equal records and one at the end."""
  bound = jax.jit(lambda records: smooth.smooth_sensitivity(
    jnp.asarray(records, jnp.float32), 2, lower=0.0, upper=3.0,
    smoothing=15.0))
  here, there = (bound(records) for records in ([0, 0, 0], [0, 0, 3]))
  assert there == 3.0
  assert here >= there * math.exp(-15) * (1 - 1e-6)


# -- Descents and oracles.


def test_a_descent_starts_on_the_set_and_takes_gradients_there():
  """The almost noiseless descent follows the NumPy
  recursion in a box of 1/2."""
  gradient = lambda params, data: params**3 + 9 * params + data
  descent = langevin.LangevinDescent(
    gradient=gradient, start=jnp.array([4.0, -3.0]), num_examples=2,
    strong_convexity=1.0, smoothness=12.0, gradient_bound=1.0,
    learning_rate=0.1, stddev=1e-6, num_steps=2,
    project=langevin.project_box(0.5))
  data, params = np.array([0.3, -0.1]), np.array([0.5, -0.5])
  for _ in range(2):
    params = np.clip(params - 0.1 / 2 * gradient(params, data), -0.5, 0.5)
  iterate = descent.release(KEY, jnp.asarray(data, jnp.float32))
  np.testing.assert_allclose(iterate, params, atol=1e-5)


def test_enough_steps_is_its_formula_and_at_least_one():
  for strong, smooth_of, rho, count, values in itertools.product(
      (0.1, 1.0), (1.0, 7.0), (1e-4, 0.5), (1, 10, 500), (1, 20)):
    odds = rho * count**2 / values
    wanted = math.ceil(2 * smooth_of / strong * math.log(odds)
                       ) if odds > 1 else 1
    assert langevin.enough_steps(
      strong_convexity=strong, smoothness=smooth_of, rho=rho,
      num_examples=count, num_values=values) == max(1, wanted)


@pytest.mark.every(2)
def test_people_are_asked_in_a_random_order_and_for_themselves():
  """Everyone may be asked, in random order, also if more people than needed."""
  oracle = queries.LocalOracle(num_queries=1, tolerance=1.0, failure_prob=0.5,
                               epsilon=4.0)
  extra = 3 * oracle.num_examples
  states = [oracle.init(jax.random.key(seed), jnp.arange(extra))
            for seed in (0, 1)]
  for state in states:
    assert len(set(state.records.tolist())) == oracle.num_examples
  assert states[0].records.tolist() != states[1].records.tolist()
  # All are of the first third with chance below 1e-4.
  assert max(states[0].records.tolist()) >= oracle.num_examples
  for query in (lambda x: jnp.tile(x, 2), jnp.sum, lambda x: x[None]):
    with pytest.raises(ValueError, match='one value for each of'):
      oracle.ask(states[0], query)


def test_releases_of_k_norm_noise_lie_on_the_grid_of_a_coordinate(monkeypatch):
  unit = jnp.asarray(np.random.default_rng(0).laplace(size=13), jnp.float32)
  monkeypatch.setattr(k_norm, 'unit_noise', lambda key, size, order: (
    unit if size == 13 else None))
  data = {'a': jnp.ones((3, 4)), 'b': jnp.zeros(())}
  for order, typical in ((1, 1.0), (2, 13**0.5), (math.inf, 13.0)):
    noisy = k_norm.add_noise(KEY, data, 1.5, order=order)
    flat = np.append(np.ravel(noisy['a']), noisy['b'])
    spacing = float(additive.grid_spacing(1.5 * typical))
    np.testing.assert_array_equal(flat / spacing, np.round(flat / spacing))
    assert len(np.unique(flat)) > 9
