"""These tests check couplings: marginals, disagreements and optimality."""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy import optimize
from scipy import stats

from experiments.methods.theory import couplings

# Chi-square tests of fixed keys have this level.
_ERROR_RATE = 1e-4
_DISTRIBUTIONS = np.array([[0.5, 0.3, 0.2, 0.0], [0.1, 0.3, 0.3, 0.3],
                           [0.0, 0.0, 0.5, 0.5], [0.5, 0.3, 0.2, 0.0]])
# Each is on two of three values: Lalanne (2023), Example 3.4.3.
_TWO_OF_THREE = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]]) / 2


def _variations(probs):
  return np.abs(probs[:, None] - probs[None]).sum(-1) / 2


def _has_distribution(values, probs):
  counts = np.bincount(values, minlength=len(probs))
  assert not counts[probs == 0].any()
  return stats.chisquare(counts[probs > 0], len(values) * probs[probs > 0]
                         ).pvalue > _ERROR_RATE


def _differ(values):
  return np.mean(values[:, :, None] != values[:, None], axis=0)


def _close(actual, wanted, size):
  return np.abs(actual - wanted) <= 4.5 * np.sqrt(wanted * (1 - wanted) / size
                                                  ) + 1e-12


@pytest.mark.every(2)
def test_maximal_couplings_differ_with_the_total_variation():
  for p, q in itertools.product(_DISTRIBUTIONS, _DISTRIBUTIONS):
    joint = couplings.maximal(p, q)
    np.testing.assert_allclose(joint.sum(1), p, atol=1e-15)
    np.testing.assert_allclose(joint.sum(0), q, atol=1e-15)
    assert 1 - np.trace(joint) == pytest.approx(np.abs(p - q).sum() / 2,
                                                abs=1e-12)
  draws = np.asarray(couplings.draw_pairs(
      jax.random.key(1), couplings.maximal(*_DISTRIBUTIONS[:2]),
      num_draws=20000))
  assert draws.shape == (20000, 2)
  for place in (0, 1):
    assert _has_distribution(draws[:, place], _DISTRIBUTIONS[place])
  assert _close(_differ(draws)[0, 1], 0.4, 20000)


def test_bits_differ_with_the_total_variation_all_at_once():
  probs = np.array([0.0, 0.2, 0.25, 0.9, 1.0])
  bits = np.asarray(couplings.draw_bernoulli(jax.random.key(2), probs,
                                             num_draws=20000))
  assert _close(bits.mean(0), probs, 20000).all()
  assert _close(_differ(bits), np.abs(probs[:, None] - probs), 20000).all()


@pytest.mark.every(3)
@pytest.mark.parametrize('seed, probs', [
    (3, _DISTRIBUTIONS), (4, _TWO_OF_THREE)])
def test_one_stream_serves_all_laws(seed, probs):
  draws = np.asarray(couplings.draw(jax.random.key(seed), probs,
                                    num_draws=20000))
  for values, row in zip(draws.T, probs):
    assert _has_distribution(values, row)
  exact = couplings.disagreements(probs)
  assert _close(_differ(draws), exact, 20000).all()
  bound = 2 * _variations(probs) / (1 + _variations(probs))
  assert (exact <= bound + 1e-12).all()
  # No coupling differs less often than the total variation.
  assert (exact >= _variations(probs) - 1e-12).all()
  if len(probs) == 3:
    np.testing.assert_allclose(exact, bound)
    assert exact.sum() / 2 == pytest.approx(2)
  else:
    assert exact[0, 3] == 0 and exact[0, 1] < bound[0, 1]


def _best(probs, weights):
  """Returns the least t with P(X_i != X_j) <= t w_ij, by a linear programme."""
  count, size = probs.shape
  values = np.array(list(itertools.product(range(size), repeat=count)))
  pairs = list(itertools.combinations(range(count), 2))
  differ = np.array([values[:, i] != values[:, j] for i, j in pairs], float)
  rows = np.hstack([differ, -np.array([[weights[pair]] for pair in pairs])])
  margins = np.array([values[:, i] == x for i in range(count)
                      for x in range(size)], float)
  solved = optimize.linprog(
      np.append(np.zeros(len(values)), 1), rows, np.zeros(len(pairs)),
      np.pad(margins, ((0, 0), (0, 1))), probs.ravel())
  return solved.fun


def test_programs_over_couplings_of_three_laws():
  """Linear programmes find couplings as Angel and Spinka promise (ORC-5).

  One triple of distributions admits nothing better.
  """
  rng = np.random.default_rng(5)
  for _ in range(20):
    probs = rng.dirichlet(np.ones(rng.integers(2, 5)), 3)
    t = _variations(probs)
    ours = couplings.disagreements(probs)
    best = _best(probs, 2 * t / (1 + t))
    pairs = ~np.eye(3, dtype=bool)
    assert best <= np.max(ours[pairs] / (2 * t / (1 + t))[pairs]) + 1e-9
    assert best < 1 and _best(probs, t) > 1 - 1e-9
  t = _variations(_TWO_OF_THREE)
  assert _best(_TWO_OF_THREE, 2 * t / (1 + t)) == pytest.approx(1)
  # No coupling is maximal for all pairs: 2/3 each sums to 2, not 3/2.
  assert _best(_TWO_OF_THREE, t) == pytest.approx(4 / 3)


@pytest.mark.parametrize('n, t, epsilon', [(1, 0.3, 0.5), (7, 0.02, 2.0),
                                           (40, 0.9, 0.0), (5, 1.0, 800.0)])
def test_moments_of_differences(n, t, epsilon):
  """Moments equal sums over Bin(n, t) and bound the joint ones.

  They are Lemmas 3.4.5 and 3.4.6 of Lalanne (2023).
  """
  d = np.arange(n + 1)
  probs = stats.binom.pmf(d, n, t)
  moments = couplings.product_moments(np.float64(t), num_examples=n,
                                      epsilon=epsilon)
  exact = [probs @ d, probs @ d**2, probs @ np.exp(-epsilon * d)]
  np.testing.assert_allclose(moments, exact, rtol=1e-9, atol=1e-300)
  assert exact[2] >= math.exp(-epsilon * n * t) * (1 - 1e-9)
  whole = couplings.joint_moments(np.float64(1 - probs[0]), num_examples=n,
                                  epsilon=epsilon)
  assert exact[0] <= whole.mean * (1 + 1e-9)
  assert exact[1] <= whole.square * (1 + 1e-9)
  assert exact[2] >= whole.decay * (1 - 1e-9) - 1e-300
  # Data sets that differ in all records or in none attain the bound.
  half = couplings.joint_moments(np.float64(0.5), num_examples=n,
                                 epsilon=epsilon)
  np.testing.assert_allclose(half, [n / 2, n * n / 2,
                                    0.5 + 0.5 * math.exp(-epsilon * n)])


@pytest.mark.parametrize('call, message', [
    (lambda: couplings.maximal(np.array([0.5, 0.6]), np.array([0.5, 0.5])),
     'probs must be .K, m. probabilities'),
    (lambda: couplings.disagreements(np.array([1.0])), 'probs must be'),
    (lambda: couplings.product_moments(1.5, num_examples=3, epsilon=1.0),
     'disagreement must lie in'),
    (lambda: couplings.joint_moments(0.5, num_examples=0, epsilon=1.0),
     'num_examples must be an integer >= 1')])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=message):
    call()
