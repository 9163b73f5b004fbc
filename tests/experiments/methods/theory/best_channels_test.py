"""These tests compare programmes over private channels with closed forms."""

import itertools
import math

import numpy as np
import pytest

from dpjax.privacy import divergences
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.theory.minimax import two_points
from experiments.methods.theory import best_channels as oracles
from experiments.methods.theory import testing


def _pair(p, q):
  return np.array([[1 - p, p], [1 - q, q]])


def test_randomised_response_is_best_for_one_record():
  for many in (2, 3, 5):
    for epsilon in (0.1, 1.0, 4.0):
      best = oracles.testing_error(np.eye(many), num_examples=1,
                                   guarantee=PureDP(epsilon=epsilon))
      assert best.value == pytest.approx(
          (many - 1) / (many - 1 + math.exp(epsilon)), abs=1e-7)
      # With delta, answers are certain in a part delta of the runs.
      best = oracles.testing_error(np.eye(many), num_examples=1, guarantee=(
          ApproxDP(epsilon=epsilon, delta=0.05)))
      assert best.value == pytest.approx(
          (many - 1) * 0.95 / (many - 1 + math.exp(epsilon)), abs=1e-7)


@pytest.mark.parametrize('n, probs, epsilon, delta, wanted', [
    (10, (.3, .7), .5, 0, .23100), (20, (.4, .6), .5, 0, .26859),
    (50, (.5, .6), .1, 0, .40509), (100, (.5, .55), .2, 0, .37144),
    (40, (.5, .9), .1, 0, .23232), (20, (.4, .6), .5, 1e-3, .26788),
    (50, (.5, .6), .1, 1e-3, .40329)])
def test_golden_programmes_and_the_order_of_bounds(n, probs, epsilon, delta,
                                                   wanted):
  """Bounds keep the order LB-3 <= LB-3b <= LB-12 <= programme (G-2).

  The golden values include LB-1, without privacy.
  """
  guarantee = ApproxDP(epsilon=epsilon, delta=delta) if delta else PureDP(
      epsilon=epsilon)
  best = oracles.testing_error(_pair(*probs), num_examples=n,
                               guarantee=guarantee).value
  assert best == pytest.approx(wanted, abs=6e-6)
  d = np.arange(n + 1)
  t = probs[1] - probs[0]
  mass = oracles.multinomial(np.stack([n - d, d], 1), np.array([1 - t, t]))
  half = np.ceil(d / 2)
  midpoint = mass @ np.maximum(0, np.exp(-epsilon * half) / 2
                               - math.exp(-epsilon) * delta * half)
  le_cam = testing.le_cam_pure(t, num_records=n, epsilon=epsilon, delta=delta)
  path = two_points.product_error(t, num_examples=n, guarantee=guarantee)
  free = oracles.testing_error(_pair(*probs), num_examples=n, guarantee=None)
  assert le_cam <= midpoint <= path <= best + 1e-7
  assert free.value <= best
  golden = {.23100: (.09021, .17609, .09881), .26859: (.09706, .17991, .18609),
            .40509: (.30998, .38202, .23696), .37144: (.20117, .29557, .30776),
            .23232: (.10588, .22182, .00129), .26788: (.09464, .17855, .18609),
            .40329: (.30546, .37953, .23696)}[wanted]
  assert (le_cam, midpoint, free.value) == pytest.approx(golden, abs=6e-6)


@pytest.mark.parametrize('guarantee', [
    PureDP(epsilon=0.6), ApproxDP(epsilon=0.4, delta=0.03),
    TotalVariationPrivacy(level=0.2)])
def test_channels_are_private_on_every_event(guarantee):
  probs = np.array([[.7, .2, .1], [.2, .7, .1], [.1, .2, .7]])
  best = oracles.testing_error(probs, num_examples=3, guarantee=guarantee)
  states = oracles.histograms(3, 3)
  np.testing.assert_allclose(best.probs.sum(1), 1)
  epsilon = getattr(guarantee, 'epsilon', 0.0)
  delta = getattr(guarantee, 'delta', getattr(guarantee, 'level', 0.0))
  spent = 0.0
  for here, there in itertools.permutations(range(len(states)), 2):
    if np.abs(states[here] - states[there]).sum() == 2:
      p, q = (np.maximum(best.probs[k], 0) for k in (here, there))
      spent = max(spent, divergences.hockey_stick(
          p / p.sum(), q / q.sum(), epsilon=epsilon))
  assert spent == pytest.approx(delta, abs=1e-6)
  # The private test is no better than one without privacy.
  assert best.value > oracles.testing_error(
      probs, num_examples=3, guarantee=None).value


def test_without_privacy_the_larger_likelihood_is_best():
  probs = np.random.default_rng(0).dirichlet(np.ones(3), 4)
  states = oracles.histograms(2, 3)
  masses = np.stack([oracles.multinomial(states, row) for row in probs])
  np.testing.assert_allclose(masses.sum(1), 1)
  best = oracles.testing_error(probs, num_examples=2, guarantee=None)
  assert best.value == pytest.approx(1 - masses.max(0).sum() / 4, abs=1e-9)


def test_counts_are_enough():
  """A test of all ordered data sets errs as much as one of their counts."""
  probs, guarantee = _pair(0.3, 0.6), PureDP(epsilon=0.5)
  states = oracles.data_sets(4, 2)
  masses = np.stack([np.prod(row[states], 1) for row in probs])
  costs = (masses.sum(0)[:, None] - masses.T)[None] / 2
  whole = oracles.least(costs, oracles.replaced(states), guarantee).value
  for symbols in (probs, np.pad(probs, ((0, 0), (0, 1)))):
    best = oracles.testing_error(symbols, num_examples=4, guarantee=guarantee)
    assert best.value == pytest.approx(whole, abs=1e-7)


def test_hundreds_of_counts_are_solved():
  error = oracles.testing_error(_pair(0.5, 0.6), num_examples=300,
                                guarantee=PureDP(epsilon=0.1)).value
  bound = two_points.product_error(0.1, num_examples=300,
                                   guarantee=PureDP(epsilon=0.1))
  assert bound <= error <= 1.5 * bound


def test_golden_bayes_risks():
  """Bayes risks have golden values for the prior cos^2 (G-11, ORC-3)."""
  for n, epsilon, half_width, wanted in ((10, .5, .45, .02028),
                                         (20, .25, .4, .01635)):
    thetas = np.linspace(0.5 - half_width, 0.5 + half_width, 63)[1:-1]
    prior = np.cos(math.pi * (thetas - 0.5) / (2 * half_width))**2
    risk = oracles.bayes_risk(
        thetas, prior / prior.sum(), num_examples=n, num_actions=81,
        guarantee=PureDP(epsilon=epsilon)).value
    assert risk == pytest.approx(wanted, rel=0.02)


def test_bayes_risk_without_privacy_is_that_of_the_posterior_mean():
  thetas, prior = np.array([0.2, 0.5, 0.9]), np.array([0.5, 0.3, 0.2])
  masses = np.array([[math.comb(6, k) * p**k * (1 - p)**(6 - k)
                      for k in range(7)] for p in thetas])
  joint = prior[:, None] * masses
  means = (joint * thetas[:, None]).sum(0) / joint.sum(0)
  exact = np.sum(joint * (thetas[:, None] - means)**2)
  risk = oracles.bayes_risk(thetas, prior, num_examples=6,
                            guarantee=None, num_actions=101).value
  assert exact <= risk <= exact + 0.01**2 / 4


def _disagreements(many, num_symbols):
  """Returns whether the values of each pair differ, [pairs, m, .., m]."""
  values = np.indices((num_symbols,) * many)
  return np.stack([values[i] != values[j]
                   for i, j in itertools.combinations(range(many), 2)])


def test_all_distributions_are_coupled_at_once_within_twice_the_variation():
  """All pairs can be coupled at once with disagreement 2 t / (1 + t) (CPL-AS).

  Random triples are feasible; three overlapping ones are tight.
  """
  generator = np.random.default_rng(4)
  for _ in range(15):
    size = int(generator.integers(2, 5))
    probs = generator.dirichlet(np.ones(size), 3)
    caps = np.array([testing.moves(np.abs(probs[i] - probs[j]).sum() / 2)
                     for i, j in itertools.combinations(range(3), 2)])
    coupled = oracles.coupling(probs, _disagreements(3, size), -caps)
    assert coupled.value < 0
    for k, row in enumerate(probs):
      others = tuple(axis for axis in range(3) if axis != k)
      np.testing.assert_allclose(coupled.probs.sum(others), row, atol=1e-8)
  overlap = np.array([[.5, .5, 0], [0, .5, .5], [.5, 0, .5]])
  tight = oracles.coupling(overlap, _disagreements(3, 3))
  assert tight.value == pytest.approx(2 / 3)
  assert testing.moves(0.5) == pytest.approx(2 / 3)


def test_transport_of_a_similarity_bounds_the_best_test():
  """The best coupling of two distributions bounds the best test (LB-MASTER)."""
  probs, guarantee = _pair(0.2, 0.7), PureDP(epsilon=0.8)
  states = oracles.data_sets(2, 2)
  masses = np.stack([np.prod(row[states], 1) for row in probs])
  far = np.sum(states[:, None] != states[None], -1)
  value = -oracles.coupling(masses, -two_points.path_error(
      far, guarantee)[None]).value
  best = oracles.testing_error(probs, num_examples=2, guarantee=guarantee).value
  product = two_points.product_error(0.5, num_examples=2, guarantee=guarantee)
  assert product <= value + 1e-9 and value <= best + 1e-7


@pytest.mark.every(1)
@pytest.mark.parametrize('call, message', [
    (lambda: oracles.testing_error(np.ones((2, 2)), num_examples=1,
                                   guarantee=None), 'sum to 1'),
    (lambda: oracles.testing_error(np.eye(2), num_examples=1,
                                   guarantee=ZCDP(rho=1.0)), 'no linear'),
    (lambda: oracles.bayes_risk([0.5], [0.9], num_examples=1, guarantee=None),
     'prior must'),
    (lambda: oracles.coupling(np.eye(2), np.zeros((1, 2, 3))), 'costs must'),
    (lambda: oracles.least(np.zeros((1, 3000, 1000)), np.zeros((0, 2)), None),
     'too many')])
def test_bad_input_is_named(call, message):
  with pytest.raises(ValueError, match=message):
    call()
