"""Tests the exact cost of privacy for a proportion by linear programs."""

import math

import numpy as np
import pytest
from scipy import optimize
from scipy import sparse
from scipy import stats

from dpjax.privacy.notions import PureDP
from dpjax.theory.minimax import proportions_exact
from dpjax.theory.minimax import two_points


def _program(num_examples, epsilon, atoms, weights, actions):
  """Returns the least Bayes risk of mechanisms by a linear program."""
  counts = stats.binom.pmf(np.arange(num_examples + 1), num_examples,
                           atoms[:, None])
  costs = np.einsum('t,tk,ta->ka', weights, counts,
                    (actions - atoms[:, None])**2)
  size = len(actions)
  step = sparse.identity(size)
  zero = sparse.csr_matrix((size, size))
  rows = []
  for k in range(num_examples):
    for first, second in ((k, k + 1), (k + 1, k)):
      blocks = [zero] * (num_examples + 1)
      blocks[first], blocks[second] = step, -math.exp(epsilon) * step
      rows.append(sparse.hstack(blocks))
  whole = sparse.kron(sparse.identity(num_examples + 1), np.ones((1, size)))
  solved = optimize.linprog(
      costs.ravel(), A_ub=sparse.vstack(rows), b_ub=np.zeros(
          2 * num_examples * size), A_eq=whole, b_eq=np.ones(num_examples + 1),
      bounds=(0, 1), method='highs')
  assert solved.success
  return solved.fun


def _thresholds(n, epsilon):
  """Returns P(noisy count >= j | count k) in row j = 0
  .. n + 1 (equation 1)."""
  q, counts = math.exp(-epsilon), np.arange(n + 1.0)
  return np.array([np.where(
      counts < j, q**(j - counts) / (1 + q), 1 - q**(counts - j + 1) / (1 + q))
      for j in range(1, n + 1)] + [np.ones(n + 1), np.zeros(n + 1)])[
          np.r_[n, :n, n + 1]]


def _least(weights, epsilon):
  """Returns the least weighted sum over private sequences (linear program)."""
  n, growth = len(weights) - 1, math.exp(epsilon)
  steps = np.eye(n + 1)
  rows = np.array([steps[a] - growth * steps[b] for k in range(n)
                   for a, b in ((k, k + 1), (k + 1, k))])
  solved = optimize.linprog(
      weights, A_ub=np.concatenate([rows, -rows]), b_ub=np.concatenate(
          [np.zeros(2 * n), np.full(2 * n, growth - 1)]), bounds=(0, 1))
  assert solved.success
  return solved.fun


def _noisy_count(n, epsilon):
  """Returns P(Y = y | count k) [k, y] of geometric noise clipped to [0, n]."""
  q, far = math.exp(-epsilon), np.arange(-400, 401)
  probs = q**np.abs(far) * (1 - q) / (1 + q)
  return np.array([np.bincount(np.clip(k + far, 0, n), probs, minlength=n + 1)
                   for k in range(n + 1)])


def test_equation_1_is_the_noisy_count():
  for n, epsilon in ((1, 0.3), (4, 1.0), (7, 2.5)):
    tails = np.cumsum(_noisy_count(n, epsilon)[:, ::-1], axis=1)[:, ::-1]
    assert _thresholds(n, epsilon)[:-1].T == pytest.approx(tails, abs=1e-12)


def test_thresholds_are_optimal_for_weights_of_one_change_of_sign():
  """Thresholds attain the linear program (lemma 2,
  docs/theory/proportions.md)."""
  generator = np.random.default_rng(0)
  for _ in range(250):
    n = int(generator.integers(1, 8))
    epsilon = float(generator.choice([0.05, 0.3, 1.0, 2.0, 4.0]))
    weights = generator.exponential(size=n + 1) * generator.choice(
        [0.0, 0.01, 1.0, 5.0], n + 1)
    weights[generator.integers(0, n + 2):] *= -1
    assert np.min(_thresholds(n, epsilon) @ weights) == pytest.approx(
        _least(weights, epsilon), abs=1e-8)


def test_thresholds_are_not_enough_for_more_changes_of_sign():
  weights = np.array([-1.0, 1.0, -1.0, 1.0])
  assert np.min(_thresholds(3, 1.0) @ weights) > _least(weights, 1.0) + 0.01


@pytest.mark.parametrize('t, change', [(.6, 2), (.61, 2)])
def test_the_best_threshold_is_not_where_the_weights_change_sign(t, change):
  """The best threshold is not where the weights change sign.

  The sum is convex in one value, and not linear in two. For n = 2, epsilon = 1,
  theta ~ Beta(2, 1), counts have probabilities 1/6, 1/3, 1/2 and posterior
  means 2/5, 3/5, 4/5. Linearity would put the least value at 0, at 1 or at the
  threshold where the weights change sign.
  """
  weights = np.array([1, 2, 3]) / 6 * (t - np.array([2, 3, 4]) / 5)
  assert np.all(weights[:change] >= -1e-12) and np.all(weights[change:] < 0)
  sums = _thresholds(2, 1.0) @ weights
  assert np.argmin(sums) == 1
  assert sums[1] < min(sums[0], sums[change], sums[-1]) - 8e-3
  assert sums[1] == pytest.approx(_least(weights, 1.0), abs=1e-9)


@pytest.mark.parametrize('num_examples, epsilon', [(3, 0.4), (6, 1.0),
                                                   (12, 0.2)])
def test_no_mechanism_has_a_smaller_bayes_risk(num_examples, epsilon):
  generator = np.random.default_rng(num_examples)
  game = proportions_exact._game(num_examples, epsilon)
  for _ in range(3):
    atoms, weights = generator.random(4), generator.dirichlet(np.ones(4))
    risk, means = proportions_exact._bayes(atoms, weights, game.likelihoods(atoms))
    # With the posterior means among its actions, the program gains no more.
    actions = np.unique(np.concatenate([means + 0.5, np.linspace(0, 1, 25)]))
    assert _program(num_examples, epsilon, atoms, weights, actions
                    ) == pytest.approx(risk, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize('num_examples, epsilon, program', [
    (10, .5, .04758), (10, 1., .02374), (20, .25, .04589), (20, 1., .01137),
    (40, .25, .01766), (40, 1., .00560)])
def test_the_minimax_risk_is_that_of_discretised_programs(num_examples, epsilon,
                                                          program):
  # With 41 answers and 31 probabilities it is off by a few percent.
  solution = proportions_exact.solve(num_examples=num_examples, epsilon=epsilon)
  assert solution.lower <= solution.upper <= solution.lower * 1.005
  assert solution.upper == pytest.approx(program, rel=0.02)
  share = two_points.product_risk(np.linspace(0, 1, 40),
                                   num_examples=num_examples,
                                   guarantee=PureDP(epsilon=epsilon))
  assert np.max(np.linspace(0, 1, 40)**2 / 4 * share) < solution.lower


@pytest.mark.every(3)
@pytest.mark.parametrize('num_examples, epsilon', [
    (1, 3.0), (7, 0.01), (60, 0.3), (1000, 0.003), (3000, 1.0), (20_000, 1e-3)])
def test_both_sides_meet(num_examples, epsilon):
  solution = proportions_exact.solve(num_examples=num_examples, epsilon=epsilon)
  assert solution.lower <= solution.upper <= solution.lower * 1.006
  assert solution.lower <= 0.25 + 1e-9
  assert solution.lower >= 0.999 * proportions_exact.non_private_risk(
      num_examples)
  affine, _ = proportions_exact.affine_risk(num_examples=num_examples,
                                            epsilon=epsilon)
  bayes = proportions_exact.bayes_bound(num_examples=num_examples,
                                        epsilon=epsilon)
  assert solution.upper <= affine * (1 + 1e-9)
  assert bayes <= solution.upper and affine <= 1.12 * solution.lower


def test_the_estimate_has_the_worst_risk_that_is_said():
  # The noisy count is enumerated from its definition.
  n, epsilon = 15, 0.6
  solution = proportions_exact.solve(num_examples=n, epsilon=epsilon)
  q, counts = math.exp(-epsilon), np.arange(n + 1)
  noise = q**np.abs(counts[:, None] - counts) * np.where(
      (counts == 0) | (counts == n), 1, 1 - q) / (1 + q)
  assert noise.sum(1) == pytest.approx(1)
  assert np.max(noise[1:] / noise[:-1]) <= math.exp(epsilon) * (1 + 1e-12)
  thetas = np.linspace(0, 1, 501)
  probs = stats.binom.pmf(counts, n, thetas[:, None]) @ noise
  risks = np.sum(probs * (solution.values - thetas[:, None])**2, 1)
  assert np.max(risks) == pytest.approx(solution.upper, rel=1e-4)
  assert (np.diff(solution.values) >= -1e-9).all()


def test_steps_of_the_noisy_count_cost_nothing(monkeypatch):
  coarse = proportions_exact.bayes_bound(num_examples=2000, epsilon=0.003)
  assert len(proportions_exact._game(2000, 0.003).places) < 200
  monkeypatch.setattr(proportions_exact, '_STEP', 0.0)
  fine = proportions_exact.bayes_bound(num_examples=2000, epsilon=0.003)
  assert coarse == pytest.approx(fine, rel=2e-5)


def test_refuses_what_it_cannot_solve():
  with pytest.raises(ValueError, match='num_examples must be at most'):
    proportions_exact.solve(num_examples=10**6, epsilon=1.0)
  with pytest.raises(ValueError, match='epsilon must be at least'):
    proportions_exact.solve(num_examples=10, epsilon=0.0)


@pytest.mark.every(1)
@pytest.mark.parametrize('shape', [0.4, 1.0, 1.9, 2.0, 3.0, 17.0, 400.0])
def test_atoms_stand_for_a_beta_law(shape):
  """The prior on atoms has the moments 1, 2 and 4 of Beta(a, a)."""
  atoms, weights = proportions_exact._beta_prior(shape, 200)
  beta = stats.beta(shape, shape)
  assert weights.sum() == pytest.approx(1) and (weights >= 0).all()
  assert ((0 <= atoms) & (atoms <= 1)).all()
  for power in (1, 2, 4):
    assert weights @ atoms**power == pytest.approx(beta.moment(power), rel=2e-3)
  assert weights @ (atoms - 0.5)**2 == pytest.approx(beta.var(), rel=2e-3)


@pytest.mark.parametrize('num_examples, epsilon', [(5, 2.0), (60, 0.3),
                                                   (900, 1.0)])
def test_bayes_bounds_are_within_a_tenth(num_examples, epsilon):
  known = dict(num_examples=num_examples, epsilon=epsilon)
  bound = proportions_exact.bayes_bound(**known)
  solved = proportions_exact.solve(**known)
  assert 0.9 * solved.lower < bound <= solved.upper
