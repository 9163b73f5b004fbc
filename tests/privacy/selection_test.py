"""Tests dpjax.privacy.selection by exact enumeration of a toy universe."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy import mechanism as mechanisms
from dpjax.privacy import selection
from dpjax.privacy.adjacency import Adjacency

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(5)
UNIVERSE = range(3)


KINDS = (selection.ExponentialMechanism, selection.PermuteAndFlip)


def make(epsilon=1., sensitivity=1., adjacency=REPLACE,
         kind=selection.ExponentialMechanism, monotone=False):
  return kind(sensitivity=sensitivity, epsilon=epsilon, adjacency=adjacency,
              monotone=monotone)


def counts(data):
  """Returns how often each candidate occurs: scores of sensitivity 1."""
  return jnp.asarray([data.count(o) for o in UNIVERSE], jnp.float32)


def neighbours(adjacency, size=4):
  for data in itertools.product(UNIVERSE, repeat=size):
    rest = data[1:]
    if adjacency is ADD:
      yield from ((data, rest), (rest, data))
    else:
      yield from ((data, (other, *rest)) for other in UNIVERSE)


def worst_loss(mechanism, scores, adjacency):
  """Returns the largest log-ratio over all adjacent pairs and candidates."""
  losses = {}

  def log_probs(data):
    if data not in losses:
      losses[data] = mechanism.log_probs(scores(data))
    return losses[data]

  return max((log_probs(a) - log_probs(b)).max()
             for a, b in neighbours(adjacency))


@pytest.mark.every(3)
@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('epsilon', [.1, 1., 6.])
def test_no_adjacent_pair_is_further_apart_than_epsilon(adjacency, epsilon,
                                                        kind):
  """Probabilities of adjacent data sets differ by epsilon at most (DP-12)."""
  mechanism = make(epsilon, adjacency=adjacency, kind=kind)
  change = max(np.abs(counts(a) - counts(b)).max()
               for a, b in neighbours(adjacency))
  assert change == mechanism.sensitivity
  worst = worst_loss(mechanism, counts, adjacency)
  assert worst <= epsilon * (1 + 1e-6)
  # Adding a record moves only one score, so half the budget is unused.
  assert worst >= epsilon * (.5 if adjacency is REPLACE else .3)


def test_the_bound_is_attained():
  # All scores move, one up and the others down.
  scores = lambda data: jnp.asarray(
      [1., -1., -1.] if data[0] == 0 else [0., 0., 0.], jnp.float32) * 20
  mechanism = make(1., sensitivity=20.)
  # A candidate of negligible probability gains the whole of epsilon.
  tilted = lambda data: scores(data) + jnp.array([-400., 0., 0.])
  assert worst_loss(mechanism, tilted, REPLACE) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize('factor', [.5, .9])
def test_fault_sensitivity_understated(factor):
  scores = lambda data: jnp.asarray(
      [-20., 1., 1.] if data[0] == 0 else [-19., 0., 0.], jnp.float32)
  assert worst_loss(make(1.), scores, REPLACE) <= 1 + 1e-6
  assert worst_loss(make(1., sensitivity=factor), scores, REPLACE) > 1.05


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('epsilon', [.1, 1., 6.])
def test_monotone_scores_need_half_the_noise(kind, epsilon):
  """Monotone scores use the whole of epsilon with half
  the noise, and no more."""
  mechanism = make(epsilon, adjacency=ADD, kind=kind, monotone=True)
  worst = worst_loss(mechanism, counts, ADD)
  assert .6 * epsilon <= worst <= epsilon * (1 + 1e-6)
  # Scores that move both ways are not monotone, and exceed epsilon.
  both = lambda data: 2 * counts(data) - len(data)
  assert worst_loss(mechanism, both, ADD) > epsilon * 1.05
  with pytest.raises(ValueError, match='^monotone scores need adjacency add'):
    make(kind=kind, monotone=True)


SCORES = jnp.array([3., 2.5, 1., 0.])


@pytest.mark.every(2)
@pytest.mark.parametrize('kind, probs, gap', [
  (KINDS[0], [.4961, .3409, .1107, .0523], .54871),
  (KINDS[1], [.5712, .3074, .0834, .0381], .43471)])
def test_golden_probabilities(kind, probs, gap):
  """Selection has the golden probabilities and gaps (MECH-05, MECH-06)."""
  actual = np.exp(make(1.5, kind=kind).log_probs(SCORES))
  np.testing.assert_allclose(actual, probs, atol=6e-5)
  assert actual @ (3 - np.asarray(SCORES)) == pytest.approx(gap, abs=6e-6)
  assert actual.sum() == pytest.approx(1, abs=1e-12)


def test_permute_and_flip_by_all_orders():
  """Permute-and-flip matches its definition, and is never worse on average."""
  rng = np.random.default_rng(0)
  for size in (1, 2, 3, 5, 6):
    scores = rng.normal(size=size).astype(np.float32) * 3
    scores[-1] = scores.max()  # This makes ties.
    mechanism = make(1.3, kind=KINDS[1])
    accept = np.exp(np.float64(mechanism.log_weights(jnp.asarray(scores))))
    expected = np.zeros(size)
    for order in itertools.permutations(range(size)):
      left = 1 / math.factorial(size)
      for one in order:
        expected[one] += left * accept[one]
        left *= 1 - accept[one]
    probs = np.exp(mechanism.log_probs(jnp.asarray(scores)))
    np.testing.assert_allclose(probs, expected, rtol=1e-10)
    other = np.exp(make(1.3).log_probs(jnp.asarray(scores)))
    assert probs @ scores >= other @ scores - 1e-9
  many = make(1., kind=KINDS[1]).log_probs(jnp.linspace(0., 20., 500))
  assert np.exp(many).sum() == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize('kind', KINDS)
def test_gap_bound(kind):
  """The chance of a gap above the bound is below the allowed failure."""
  rng = np.random.default_rng(1)
  for _ in range(30):
    scores = np.round(rng.exponential(size=7) * 4, 1).astype(np.float32)
    scores[:2] = scores.max()
    mechanism = make(1., kind=kind)
    probs = np.exp(mechanism.log_probs(jnp.asarray(scores)))
    for failure in (.5, .1):
      for best in (1, 2):
        bound = mechanism.gap_bound(7, failure_prob=failure, num_best=best)
        assert probs[scores.max() - scores > bound].sum() < failure
  assert mechanism.gap_bound(20, failure_prob=.1) == pytest.approx(
    2 * math.log(200))


def test_bounded_range_is_worth_a_quarter_of_zcdp():
  """Bounded range costs less than eps^2 / 8 of zCDP, attained (MECH-05)."""
  epsilon, orders = 1., (1.001, 1.5, 2., 8., 64.)
  rho = make(epsilon).zcdp_event.rho
  assert rho == pytest.approx(.123302, abs=1e-6) and rho < epsilon**2 / 8
  worst, rng = 0., np.random.default_rng(0)
  for trial in range(300):
    size = 2 if trial < 200 else 4
    here = rng.normal(size=size) * rng.choice([1, 6])
    there = here + rng.choice([-1., 1.], size=size)
    p, q = (np.exp(make(epsilon).log_probs(jnp.asarray(s, jnp.float32)))
            for s in (here, there))
    worst = max(worst, *(divergences.renyi(p, q, order=a) / a for a in orders))
  assert .9 * rho < worst <= rho * (1 + 1e-4)
  # 100 choices of epsilon 0.1 at delta = 1e-6 cost 2.4191 by eps^2 / 8.
  event = accounting.repeated_event(make(.1).zcdp_event, 100)
  spent = accounting.epsilon(event, delta=1e-6, adjacency=REPLACE,
                             accountant='rdp')
  assert spent == pytest.approx(2.4191, rel=2e-3)
  pure = accounting.repeated_event(make(.1).event, 100)
  assert spent < .6 * accounting.epsilon(pure, delta=1e-6, adjacency=REPLACE)


@pytest.mark.every(2)
def test_sampled_frequencies():
  """Frequencies of 200,000 draws pass chi-square; false alarm 1e-6."""
  mechanism, size = make(2.), 200_000
  scores = jnp.array([3., 1., 0., 2.5, -1.])
  draws = jax.jit(jax.vmap(mechanism.release, (0, None)))(
      jax.random.split(KEY, size), scores)
  counts = np.bincount(np.asarray(draws), minlength=5)
  weights = np.exp(np.array([3., 1., 0., 2.5, -1.]))
  chi2 = stats.chi2(4)

  def statistic(probs):
    return np.sum((counts - size * probs)**2 / (size * probs))

  assert statistic(weights / weights.sum()) < chi2.isf(1e-6)
  # It detects a missing factor 1/2, or five percent of epsilon.
  for fault in (2., 1.05):
    wrong = weights**fault
    assert statistic(wrong / wrong.sum()) > chi2.isf(1e-6)


def test_large_scores_keep_their_differences():
  scores = jnp.array([0., 1., -2.])
  expected = make().log_weights(scores)
  shifted = make().log_weights(scores + 2.**20)
  np.testing.assert_array_equal(expected, shifted)
  assert float(expected.max()) == 0


@pytest.mark.every(2)
def test_scores_that_are_not_finite_are_never_chosen():
  scores = jnp.array([jnp.nan, 1., -jnp.inf, .5, jnp.inf])
  draws = jax.jit(jax.vmap(make().release, (0, None)))(
      jax.random.split(KEY, 2000), scores)
  assert set(np.unique(draws)) == {1, 3}
  nothing = make().release(KEY, jnp.full((3,), jnp.nan))
  assert nothing.dtype == jnp.int32 and int(nothing) == 0


def test_contract():
  mechanism = make(1.5)
  assert isinstance(mechanism, mechanisms.Mechanism)
  assert mechanism.risk(1) is None
  assert mechanism.event == accounting.pure_event(epsilon=1.5,
                                                  adjacency=REPLACE)
  spent = mechanisms.epsilon(mechanism, delta=1e-12)
  assert 1.5 - 1e-9 <= spent <= 1.5 + 2e-4
  # A claim under replace-one does not hold under add-or-remove-one.
  with pytest.raises(ValueError, match='^the pld accountant does not cover '
                     'PureDpEvent under add_or_remove_one'):
    accounting.epsilon(mechanism.event, delta=1e-5, adjacency=ADD)


@pytest.mark.parametrize('arguments, message', [
  ({'sensitivity': 0.}, 'sensitivity must be a positive number, got 0.0'),
  ({'epsilon': 0.}, 'epsilon must be a positive number, got 0.0'),
  ({'epsilon': math.nan}, 'epsilon must be a positive number, got nan'),
])
def test_refusals(arguments, message):
  """Bad numbers are refused, and epsilon = 0, which
  Theorem 3.1.9 admits (E23)."""
  with pytest.raises(ValueError, match=f'^{message}$'):
    make(**arguments)
