"""These tests check the sparse vector technique and its faulty versions."""

import importlib

import jax
import numpy as np
import pytest
from scipy import stats

from experiments.audit_zoo import registry
from experiments.audit_zoo import sparse_vector


def test_the_exact_distribution_of_sparse_vectors_is_that_of_the_releases():
  version = sparse_vector.Version(2.0, 3.0, 2)
  queries = np.float32([1, -1, 0, 2])
  probs = sparse_vector.distribution(queries, version)
  assert probs.sum() == pytest.approx(1, abs=1e-9)
  draws = np.asarray(jax.vmap(lambda key: sparse_vector.above(
      key, queries, version)[0])(jax.random.split(jax.random.key(0), 20000)))
  possible = sparse_vector.outcomes(4, 2)
  counts = np.array([(draws == row).all(1).sum() for row in possible])
  assert counts.sum() == 20000
  # Fails with probability 1e-6 for a right distribution.
  assert stats.chisquare(counts, 20000 * probs).pvalue > 1e-6
  wrong = sparse_vector.distribution(queries, version._replace(query_scale=4.0))
  assert stats.chisquare(counts, 20000 * wrong).pvalue < 1e-6


def test_versions_of_sparse_vectors_cost_what_they_say():
  for name in ('svt_cutoff_not_paid', 'svt_unlimited_answers',
               'svt_noiseless_queries'):
    bug = registry.load(name)
    module = importlib.import_module(f'experiments.audit_zoo.bugs.{name}')
    assert sparse_vector.epsilon_of(*bug.worst[:2], module.FAULTY) == (
        pytest.approx(bug.true_epsilon))
    assert sparse_vector.epsilon_of(*bug.worst[:2], module.FIXED) <= 1
  # The bound of Lyu, Su and Li for Algorithm 4 with three positive answers.
  assert registry.load('svt_cutoff_not_paid').true_epsilon <= (1 + 6 * 3) / 4


def test_private_sparse_vectors_are_private_on_many_pairs():
  rng = np.random.default_rng(0)
  largest = 0.0
  for _ in range(40):
    base, shift = rng.uniform(-3, 3, 4), rng.choice([-1.0, 1.0], 4)
    largest = max(largest, sparse_vector.epsilon_of(
        base, base + shift, sparse_vector.private(1.0, cutoff=1)))
  assert 0.4 < largest <= 1


def test_a_released_answer_costs_all_answers():
  bug = registry.load('svt_releases_noisy_answer')
  one, two = np.zeros(8), np.ones(8)
  # Thresholds below v, for a v far below all exact answers.
  points = np.linspace(-40, -20, 4001)
  logs = [np.log(np.trapezoid(
      stats.laplace.pdf(points, scale=1) *
      stats.laplace.cdf(points[:, None], loc=side[:-1], scale=1).prod(1),
      points)) + stats.laplace.logpdf(-20, loc=side[-1], scale=1)
          for side in (one, two)]
  assert logs[0] - logs[1] == pytest.approx(bug.true_epsilon, rel=1e-6)
