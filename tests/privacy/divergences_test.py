"""Tests dpjax.privacy.divergences by enumeration of small outcome spaces."""

import itertools
import math

import numpy as np
import pytest

from dpjax.privacy import divergences


def response(epsilon):
  """Returns the answer probabilities for a true and for a false bit."""
  truth = 1 / (1 + math.exp(-epsilon))
  return np.array([truth, 1 - truth]), np.array([1 - truth, truth])


def random_pairs(seed, count=50, size=4):
  rng = np.random.default_rng(seed)
  for _ in range(count):
    yield rng.dirichlet(np.ones(size) * .7), rng.dirichlet(np.ones(size) * .7)


def test_hockey_stick_is_the_worst_event():
  """The hockey-stick divergence is the worst of all 2^m events (DP-01)."""
  for p, q in random_pairs(0):
    for epsilon in (0., .3, 1.5):
      worst = max(sum(p[i] - math.exp(epsilon) * q[i] for i in event)
                  for size in range(5)
                  for event in itertools.combinations(range(4), size))
      assert divergences.hockey_stick(
          p, q, epsilon=epsilon) == pytest.approx(worst, abs=1e-12)


@pytest.mark.parametrize('epsilon', [.1, 1., 4.])
def test_randomised_response_is_tight(epsilon):
  p, q = response(epsilon)
  assert divergences.max_divergence(p, q) == pytest.approx(epsilon)
  assert divergences.hockey_stick(p, q, epsilon=epsilon) < 1e-12
  assert divergences.hockey_stick(p, q, epsilon=.9 * epsilon) > 1e-3


def test_f_divergences_count_outcomes_that_q_cannot_produce():
  p, q = np.array([.2, .1, .3, .4, 0]), np.array([0, 0, .2, .3, .5])
  assert divergences.f_divergence(p, q, divergences.TOTAL_VARIATION) == (
      pytest.approx(np.abs(p - q).sum() / 2))
  for generator in (divergences.KULLBACK_LEIBLER, divergences.CHI_SQUARE):
    assert divergences.f_divergence(p, q, generator) == math.inf
  p, q = q, np.array([.1, .1, .1, .2, .5])
  assert divergences.f_divergence(p, q, divergences.CHI_SQUARE) == (
      pytest.approx(np.sum((p - q)**2 / q)))
  assert divergences.f_divergence(p, q, divergences.KULLBACK_LEIBLER) == (
      pytest.approx(.2 * math.log(2) + .3 * math.log(1.5)))


def test_both_orders_matter():
  p, q = np.array([.5, .5, 0.]), np.array([.5, .4, .1])
  assert divergences.max_divergence(p, q) == pytest.approx(math.log(1.25))
  assert divergences.max_divergence(q, p) == math.inf
  assert divergences.hockey_stick(q, p, epsilon=5.) == pytest.approx(.1)
  assert divergences.hockey_stick(p, q, epsilon=5.) == 0
  assert divergences.renyi(q, p, order=2.) == math.inf


def test_no_post_processing_raises_a_divergence():
  """Random stochastic maps never raise a divergence (item DP-02)."""
  rng = np.random.default_rng(1)
  for number, (p, q) in enumerate(random_pairs(2)):
    channel = rng.dirichlet(np.ones(3) * .3, size=4)
    if number % 3 == 0:
      channel = np.eye(3)[rng.integers(0, 3, 4)]
    after = p @ channel, q @ channel
    for epsilon in (0., .5, 2.):
      assert divergences.hockey_stick(*after, epsilon=epsilon) <= (
          divergences.hockey_stick(p, q, epsilon=epsilon) + 1e-12)
    assert divergences.max_divergence(*after) <= (
        divergences.max_divergence(p, q) + 1e-12)
    for order in (1.1, 2., 20.):
      assert divergences.renyi(*after, order=order) <= (
          divergences.renyi(p, q, order=order) + 1e-9)


def test_a_map_that_reads_the_data_again_is_no_post_processing():
  # The test above has power: a channel that differs between data sets fails.
  p, q = response(.1)
  after = p, q @ np.array([[.9, .1], [.9, .1]])
  assert divergences.max_divergence(*after) > divergences.max_divergence(p, q)


def test_renyi_grows_with_its_order_to_the_largest_loss():
  """Renyi divergence grows with its order to the largest loss (DP-05)."""
  for p, q in random_pairs(3, count=10):
    by_order = [divergences.renyi(p, q, order=a) for a in (1.01, 2, 8, 1e4)]
    assert by_order == sorted(by_order)
    assert by_order[-1] == pytest.approx(divergences.max_divergence(p, q),
                                         abs=2e-3)
    assert divergences.renyi(p, q, order=2.) == pytest.approx(
        math.log(np.sum(p**2 / q)))


@pytest.mark.parametrize('num_examples', [2, 5, 40])
def test_releasing_one_random_record_has_delta_one_over_n(num_examples):
  """Releasing one random record has delta 1/n at every epsilon (E26)."""
  data = list(range(num_examples))
  other = [num_examples] + data[1:]
  release = lambda records: np.array(
      [records.count(r) for r in range(num_examples + 1)]) / num_examples
  for epsilon in (0., 1., 9.):
    assert divergences.hockey_stick(
        release(data), release(other), epsilon=epsilon) == pytest.approx(
            1 / num_examples)
  assert num_examples**-1.1 < divergences.hockey_stick(
      release(data), release(other), epsilon=9.)


def test_delta_is_not_the_probability_of_a_larger_loss():
  """(epsilon, delta)-DP does not bound the chance of a larger loss (E26)."""
  p, q, epsilon = np.array([.5, .5]), np.array([.4, .6]), math.log(1.1)
  delta = divergences.hockey_stick(p, q, epsilon=epsilon)
  above = p[np.log(p / q) > epsilon].sum()
  assert delta == pytest.approx(.06) and above == .5
  # The converse holds: delta is at most that probability.
  for p, q in random_pairs(4):
    for epsilon in (.1, 1.):
      assert divergences.hockey_stick(p, q, epsilon=epsilon) <= p[
          p > math.exp(epsilon) * q].sum() + 1e-12


@pytest.mark.every(1)
@pytest.mark.parametrize('call, message', [
  (lambda: divergences.hockey_stick([.5, .6], [.5, .5], epsilon=0.),
   'p must be probabilities that sum to 1, got a sum of 1.1'),
  (lambda: divergences.hockey_stick([.5, .5], [1.5, -.5], epsilon=0.),
   'q must be probabilities that sum to 1'),
  (lambda: divergences.max_divergence([1.], [.5, .5]),
   r'p and q must have one shape, got \(1,\) and \(2,\)'),
  (lambda: divergences.hockey_stick([1.], [1.], epsilon=-1.),
   'epsilon must be a number >= 0, got -1.0'),
  (lambda: divergences.renyi([1.], [1.], order=1.),
   'order must be a number > 1, got 1.0'),
])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    call()
