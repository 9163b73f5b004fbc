"""These tests check composition by exact enumeration."""

import functools
import itertools
import math

import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from experiments.methods.theory import composition
from experiments.methods.theory import printed_guarantees

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE


def response(epsilon):
  truth = 1 / (1 + math.exp(-epsilon))
  return np.array([truth, 1 - truth]), np.array([1 - truth, truth])


def product(pairs):
  """Returns the joint distributions of independent releases."""
  outer = lambda a, b: np.multiply.outer(a, b).ravel()
  return tuple(functools.reduce(outer, side) for side in zip(*pairs))


def repeated_response_delta(one, num_uses, epsilon):
  """Returns the exact delta of K uses of randomised response."""
  truth = 1 / (1 + math.exp(-one))
  return math.fsum(
      math.comb(num_uses, k) * max(0., (
          truth**k * (1 - truth)**(num_uses - k) - math.exp(epsilon) *
          truth**(num_uses - k) * (1 - truth)**k))
      for k in range(num_uses + 1))


# The tests below check composition.


def test_basic_is_exact_for_products_of_randomised_response():
  """Basic composition is exact for products of randomised response (DP-03)."""
  epsilons = (.2, .5, 1.3)
  p, q = product([response(e) for e in epsilons])
  claim = composition.basic([ApproxDP(epsilon=e, delta=0.) for e in epsilons])
  assert claim == ApproxDP(epsilon=math.fsum(epsilons), delta=0.)
  assert divergences.max_divergence(p, q) == pytest.approx(claim.epsilon)


def test_basic_holds_with_deltas():
  rng = np.random.default_rng(0)
  for _ in range(100):
    pairs = [(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3)))
             for _ in range(3)]
    parts = [ApproxDP(epsilon=e, delta=divergences.hockey_stick(
        p, q, epsilon=e)) for e, (p, q) in zip((.1, .4, .8), pairs)]
    if sum(part.delta for part in parts) < 1:
      claim = composition.basic(parts)
      assert divergences.hockey_stick(
          *product(pairs), epsilon=claim.epsilon) <= claim.delta + 1e-12


def test_basic_holds_where_the_second_release_follows_the_first():
  """Basic composition holds for dependent releases, by enumeration (ALG-07).

  Releases need not be independent (erratum L-E16).
  """
  def chosen(first, seconds):
    """Returns joint distributions whose first outcome picks the second pair."""
    return [np.concatenate([mass * pair[side] for mass, pair in zip(
        first[side], seconds, strict=True)]) for side in (0, 1)]

  p, q = chosen(response(.3), [response(.5), response(.5)[::-1]])
  assert divergences.max_divergence(p, q) == pytest.approx(.8)
  assert divergences.max_divergence(q, p) == pytest.approx(.8)
  rng, tried = np.random.default_rng(1), 0
  for _ in range(200):
    first, *seconds = rng.dirichlet(np.ones(3), (4, 2))
    parts = [ApproxDP(epsilon=e, delta=max(divergences.hockey_stick(
        *pair, epsilon=e) for pair in pairs))
        for e, pairs in ((.1, [first]), (.6, seconds))]
    if sum(part.delta for part in parts) < 1:
      claim, tried = composition.basic(parts), tried + 1
      assert divergences.hockey_stick(
          *chosen(first, seconds),
          epsilon=claim.epsilon) <= claim.delta + 1e-12
  assert tried > 50


@pytest.mark.parametrize('one, num_uses, slack', [
  (.1, 40, 1e-5), (.5, 10, 1e-3), (.02, 200, 1e-6), (1., 5, .1)])
def test_advanced_dominates_exact_composition(one, num_uses, slack):
  """Advanced composition is its formula and exceeds the exact cost (DP-04)."""
  claim = composition.advanced(ApproxDP(epsilon=one, delta=0.),
                               num_uses=num_uses, slack=slack)
  assert claim.epsilon == pytest.approx(
      math.sqrt(2 * num_uses * math.log(1 / slack)) * one +
      num_uses * one * (math.exp(one) - 1))
  assert claim.delta == slack
  assert repeated_response_delta(one, num_uses, claim.epsilon) <= slack
  event = accounting.repeated_event(
      accounting.pure_event(epsilon=one, adjacency=REPLACE), num_uses)
  assert accounting.epsilon(event, delta=slack,
                            adjacency=REPLACE) <= claim.epsilon
  # With delta, K of them are added.
  with_delta = composition.advanced(ApproxDP(epsilon=one, delta=1e-7),
                                    num_uses=num_uses, slack=slack)
  assert with_delta.delta == pytest.approx(slack + num_uses * 1e-7)
  assert with_delta.epsilon == claim.epsilon


def test_advanced_beats_basic_for_many_small_epsilons():
  part = ApproxDP(epsilon=.01, delta=0.)
  assert composition.advanced(part, num_uses=10_000, slack=1e-6).epsilon < (
      .07 * composition.basic([part] * 10_000).epsilon)


# The tests below check groups.


@pytest.mark.parametrize('size, sharp, printed', [
  (2, 2.649, 5.437), (5, 17.24, 60.91), (10, 227.2, 1484.)])
def test_golden_group_factors(size, sharp, printed):
  """Group factors of delta at epsilon 0.5 have golden values (DP-08)."""
  part = ApproxDP(epsilon=.5, delta=1e-6)
  for got, factor in [(composition.group(part, size=size), sharp),
                      (printed_guarantees.group_printed(part, size=size), printed)]:
    assert got.delta / 1e-6 == pytest.approx(factor, rel=5e-4)
    assert got.epsilon == size * .5


@pytest.mark.parametrize('epsilon, size', [(.5, 2), (.1, 6), (0., 4), (1., 3)])
def test_the_sharp_group_delta_is_attained(epsilon, size):
  """The sharp group delta is attained by a chain of data sets (DP-08)."""
  delta, masses = 1e-3, [0.]
  for _ in range(size):
    masses.append(math.exp(epsilon) * masses[-1] + delta)
  chain = [np.array([m, 1 - m]) for m in masses]
  for p, q in itertools.pairwise(chain):
    for pair in ((p, q), (q, p)):
      assert divergences.hockey_stick(*pair, epsilon=epsilon) <= delta + 1e-12
  # Erratum L-E08: the mean of the powers in the sum is above their geometric
  # mean.
  mean = np.mean(np.exp(epsilon * np.arange(size)))
  assert (mean > math.exp(epsilon * (size - 1) / 2)) == (epsilon > 0)
  claim = composition.group(ApproxDP(epsilon=epsilon, delta=delta), size=size)
  actual = divergences.hockey_stick(chain[-1], chain[0], epsilon=claim.epsilon)
  assert actual == pytest.approx(claim.delta, rel=1e-9)
  assert actual <= printed_guarantees.group_printed(
      ApproxDP(epsilon=epsilon, delta=delta), size=size).delta


def test_one_record_is_a_group_of_one():
  part = ApproxDP(epsilon=.7, delta=1e-4)
  assert composition.group(part, size=1) == part


# The tests below check subsampling.


def randomised_any(sample, epsilon):
  """Returns randomised response to 'is any record of the sample a one?'."""
  return response(epsilon)[0 if any(sample) else 1]


def poisson_release(data, prob, mechanism):
  """Returns the mixture of releases over all 2^n subsets."""
  return sum(
      math.prod(prob if kept else 1 - prob for kept in chosen) *
      mechanism([x for x, kept in zip(data, chosen, strict=True) if kept])
      for chosen in itertools.product((False, True), repeat=len(data)))


def fixed_size_release(data, size, mechanism):
  """Returns the mixture of releases over all subsets of one size."""
  subsets = list(itertools.combinations(data, size))
  return sum(mechanism(subset) for subset in subsets) / len(subsets)


def neighbours(num_examples, adjacency):
  """Yields all ordered pairs of neighbouring bit data sets."""
  for data in itertools.product((0, 1), repeat=num_examples):
    for i in range(num_examples):
      rest = data[:i] + data[i + 1:]
      if adjacency is ADD:
        yield from ((data, rest), (rest, data))
      else:
        yield data, data[:i] + (1 - data[i],) + data[i + 1:]


def worst_loss(release, num_examples, adjacency):
  release = functools.cache(release)
  return max(divergences.max_divergence(release(left), release(right))
             for left, right in neighbours(num_examples, adjacency))


@pytest.mark.parametrize('num_examples', [1, 3, 6])
@pytest.mark.parametrize('epsilon, prob', [(1., .1), (.3, .5), (2.5, .9)])
def test_poisson_amplification_is_exact(num_examples, epsilon, prob):
  """Poisson amplification is exact for add-or-remove-one (DP-17)."""
  loss = worst_loss(
      lambda data: poisson_release(
          data, prob, lambda s: randomised_any(s, epsilon)),
      num_examples, ADD)
  claim = composition.sampled_poisson(ApproxDP(epsilon=epsilon, delta=0.),
                                      sampling_prob=prob)
  assert loss == pytest.approx(claim.epsilon, rel=1e-9)


@pytest.mark.parametrize('num_examples, size', [(1, 1), (4, 1), (5, 3), (6, 2)])
@pytest.mark.parametrize('epsilon', [.3, 1., 2.5])
def test_amplification_without_replacement_is_exact(num_examples, size,
                                                    epsilon):
  """Amplification without replacement is exact for replace-one (DP-17)."""
  loss = worst_loss(
      lambda data: fixed_size_release(
          data, size, lambda s: randomised_any(s, epsilon)),
      num_examples, REPLACE)
  claim = composition.sampled_without_replacement(
      ApproxDP(epsilon=epsilon, delta=0.), sample_size=size,
      num_examples=num_examples)
  assert loss == pytest.approx(claim.epsilon, rel=1e-9)


def test_amplification_scales_delta():
  """Amplification scales delta, for a release
  that may leak the sample (DP-17)."""
  epsilon, leak, prob = 1., 1e-3, .2

  def mechanism(sample):
    # With probability `leak` the truth is released and marked as such.
    safe = (1 - leak) * randomised_any(sample, epsilon)
    return np.concatenate([safe, leak * np.array([any(sample),
                                                  not any(sample)])])

  part = ApproxDP(epsilon=epsilon, delta=leak)
  for release, claim in [
    (lambda d: poisson_release(d, prob, mechanism),
     composition.sampled_poisson(part, sampling_prob=prob)),
    (lambda d: fixed_size_release(d, 1, mechanism),
     composition.sampled_without_replacement(part, sample_size=1,
                                             num_examples=5))]:
    data, other = (1, 0, 0, 0, 0), (0, 0, 0, 0, 0)
    exact = divergences.hockey_stick(release(data), release(other),
                                     epsilon=claim.epsilon)
    assert exact <= claim.delta + 1e-12
    assert exact >= claim.delta * .99


def test_theorem_for_fixed_size_says_nothing_of_poisson_batches():
  """Replace-one and Poisson sampling give no amplification at all (E25)."""
  epsilon, prob = 1., .01

  def mechanism(sample):
    # Under replace-one this is epsilon-DP, since samples of one size are close.
    if not sample:
      return np.array([0., 0., 1.])
    return np.append(randomised_any(sample, epsilon), 0.)

  p, q = (poisson_release(data, prob, mechanism) for data in ((1,), (0,)))
  loss = divergences.max_divergence(p, q)
  printed = composition.sampled_without_replacement(
      ApproxDP(epsilon=epsilon, delta=0.), sample_size=1, num_examples=100)
  assert loss == pytest.approx(epsilon)
  assert printed.epsilon < .02 < loss


@pytest.mark.parametrize('call, message', [
  (lambda p: composition.advanced(p, num_uses=0, slack=.1), 'num_uses must be'),
  (lambda p: composition.advanced(p, num_uses=1, slack=0.), 'slack must lie st'),
  (lambda p: composition.group(p, size=0), 'size must be an integer >= 1'),
  (lambda p: printed_guarantees.group_printed(p, size=1.5), 'size must be an integer'),
  (lambda p: composition.group(p, size=99), r'delta must lie in \[0, 1\), got'),
  (lambda p: composition.sampled_poisson(p, sampling_prob=0.), 'sampling_prob '),
  (lambda p: composition.sampled_without_replacement(
      p, sample_size=3, num_examples=2), 'num_examples must be an integer >= 3'),
  (lambda p: composition.basic([p] * 3000), r'delta must lie in \[0, 1\)'),
])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    call(ApproxDP(epsilon=.5, delta=1e-3))
