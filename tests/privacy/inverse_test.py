"""Tests dpjax.privacy.inverse against its definition by enumeration."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import divergences
from dpjax.privacy import inverse
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.mechanisms import inverse_scores

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(8)
CELLS = 3
ENDS = tuple(np.arange(CELLS + 1) / CELLS)
MIDDLES = tuple((np.arange(CELLS) + .5) / CELLS)


def make(**fields):
  return inverse.InverseSensitivityQuantile(**{
    'lower': 0., 'upper': 1., 'num_examples': 3, 'epsilon': 2.,
    'num_cells': CELLS, **fields})


def probs_of(mechanism):
  """Returns a function from data sets on the lattice to cell probabilities."""
  cache = {}
  for data in itertools.product(ENDS, repeat=mechanism.num_examples):
    key = tuple(sorted(data))
    if key not in cache:
      cache[key] = np.exp(mechanism.log_probs(jnp.asarray(data, jnp.float32)))
  return lambda data: cache[tuple(sorted(data))]


@pytest.mark.every(3)
@pytest.mark.parametrize('prob, rank', [(.01, 1), (.5, 2), (1., 3)])
def test_closed_form_is_the_definition(prob, rank):
  """The closed form equals scores over all ways to change records (MECH-07)."""
  mechanism, domain = make(prob=prob), ENDS + MIDDLES
  for data in itertools.combinations_with_replacement(ENDS, 3):
    scores = inverse_scores.scores_by_enumeration(
      lambda other: sorted(other)[rank - 1], data, domain=domain,
      candidates=MIDDLES, sizes=[3], adjacency=REPLACE)
    weights = np.exp(scores)  # The rate is epsilon / 2 = 1.
    np.testing.assert_allclose(
      np.exp(mechanism.log_probs(jnp.asarray(data, jnp.float32))),
      weights / weights.sum(), rtol=1e-6)


@pytest.mark.parametrize('epsilon', [.3, 2.])
def test_pure_for_all_neighbours(epsilon):
  probs = probs_of(make(epsilon=epsilon))
  worst = max(divergences.max_divergence(probs(one), probs(other))
              for one, other in neighbours.pairs(ENDS, [3], REPLACE))
  assert .5 * epsilon < worst <= epsilon * (1 + 1e-6)
  # Twice the rate, which scores without a normaliser would allow, fails.
  double = probs_of(make(epsilon=2 * epsilon))
  assert max(divergences.max_divergence(double(one), double(other))
             for one, other in neighbours.pairs(ENDS, [3], REPLACE)) > epsilon


@pytest.mark.every(2)
@pytest.mark.parametrize('adjacency', Adjacency)
def test_scores_of_any_function_move_by_one(adjacency):
  """Scores move by one even for the maximum, whose sensitivity is the range."""
  sizes = [2] if adjacency is REPLACE else [0, 1, 2]
  function = lambda data: max(data, default=0)
  scores = lambda data: inverse_scores.scores_by_enumeration(
    function, data, domain=(0, 1, 5), candidates=(0, 1, 5, 7), sizes=sizes,
    adjacency=adjacency)
  assert scores((0, 0)).tolist() == [
    0, -1, -1, -math.inf] if adjacency is REPLACE else True
  sensitivity = neighbours.sensitivity(
    lambda data: scores(data)[:3], (0, 1, 5), sizes, adjacency,
    order=math.inf)
  assert sensitivity == 1
  assert scores((5, 1))[3] == -math.inf


@pytest.mark.every(2)
def test_law_of_draws_with_ties_and_ends():
  """Draws pass chi-square at 1e-6 with ties, out-of-range
  values and many cells."""
  mechanism = make(num_examples=5, num_cells=64, epsilon=1.)
  data = jnp.array([-3., .3, .3, .80, jnp.nan])
  released = jax.jit(jax.vmap(mechanism.release, (0, None)))(
    jax.random.split(KEY, 40_000), data)
  counts = np.bincount(np.floor(np.float64(released) * 64).astype(int),
                       minlength=64)
  expected = 40_000 * np.exp(mechanism.log_probs(data))
  statistic = np.sum((counts - expected)**2 / expected)
  assert statistic < stats.chi2(63).isf(1e-6)
  # A shift by one rank is detected.
  shifted = 40_000 * np.exp(make(num_examples=5, num_cells=64, epsilon=1.,
                                 prob=.7).log_probs(data))
  assert np.sum((counts - shifted)**2 / shifted) > stats.chi2(63).isf(1e-6)
  np.testing.assert_array_equal(
    np.sort(np.unique(np.float64(released) * 64 % 1)), [.5])


@pytest.mark.every(2)
def test_many_records_are_found_closely():
  data = jnp.linspace(2., 4., 1001)
  mechanism = make(lower=-5., upper=9., num_examples=1001, epsilon=1., prob=.25,
                   num_cells=2**16)
  released = jax.jit(jax.vmap(mechanism.release, (0, None)))(
    jax.random.split(KEY, 500), data)
  # Ranks are off by about 2 / epsilon, with 500 ranks per unit.
  assert np.abs(np.asarray(released) - 2.5).mean() < .01
  assert mechanism.risk(1) is None


def test_ranks():
  assert inverse.quantile_rank(.29, 100) == 29
  assert inverse.quantile_rank(.5, 4) == 2 and inverse.quantile_rank(.5, 5) == 3
  assert inverse.quantile_rank(1e-9, 7) == 1


@pytest.mark.parametrize('fields, message', [
  ({'lower': 1.}, 'lower must be below upper, got 1.0 and 1.0'),
  ({'upper': math.inf}, 'lower must be below upper'),
  ({'prob': 0.}, r'prob must lie in \(0, 1\]'),
  ({'num_examples': 0}, 'num_examples must be an integer >= 1'),
  ({'num_cells': 2**21}, r'num_cells must be at most 2\^20'),
  ({'epsilon': 0.}, 'epsilon must be a positive number')])
def test_refusals(fields, message):
  with pytest.raises(ValueError, match=message):
    make(**fields)


def test_another_number_of_records_is_refused():
  with pytest.raises(ValueError, match='^there must be 3 records, got an array '
                     r'of shape \(4,\)$'):
    make().release(KEY, jnp.zeros(4))
