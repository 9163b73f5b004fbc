"""These tests check notions on finite distributions, by enumeration."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import divergences
from dpjax.privacy import notions
from dpjax.privacy import renyi
from dpjax.theory.minimax import two_points
from experiments.methods.theory import compared_notions
from experiments.methods.theory import conversions
from experiments.methods.theory import definitions

_APPROX = notions.ApproxDP


def _pairs(seed, count=12, size=4):
  rng = np.random.default_rng(seed)
  return [tuple(rng.dirichlet(np.ones(size), 2)) for _ in range(count)]


def _tests(size):
  return np.array(list(itertools.product((0, 1), repeat=size)))


@pytest.mark.parametrize('epsilon', [0.0, 0.4, 1.5])
def test_privacy_is_what_all_tests_say(epsilon):
  """The level of approximate privacy is the worst over all tests.

  This is Proposition 1 of Barber and Duchi (2014), by enumeration.
  """
  for p, q in _pairs(0):
    weight = math.exp(epsilon)
    errors = [psi @ p + weight * (1 - psi) @ q for psi in _tests(4)]
    least = definitions.weighted_errors(p, q, weight=weight)
    assert least == pytest.approx(min(errors), abs=1e-12)
    delta = max(1 - least, 1 - definitions.weighted_errors(q, p, weight=weight))
    assert definitions.level(p, q, _APPROX, at=epsilon) == pytest.approx(
        delta, abs=1e-12)
    assert definitions.holds(p, q, _APPROX(epsilon=epsilon, delta=delta))
    if delta > 1e-3:
      assert not definitions.holds(
          p, q, _APPROX(epsilon=epsilon, delta=delta * 0.99))


@pytest.mark.parametrize('epsilon, delta, achieved, printed', [
    (0.0, 0.1, 0.900, 0.950), (0.5, 0.1, 0.6796, 0.7173)])
def test_the_printed_sum_of_errors_is_not_true(epsilon, delta, achieved,
                                               printed):
  """The printed sum of errors fails for a pair with the guarantee (E-02)."""
  guarantee = _APPROX(epsilon=epsilon, delta=delta)
  p, q = definitions.extremal(guarantee)
  assert definitions.holds(p, q, guarantee)
  errors = min(psi @ p + (1 - psi) @ q for psi in _tests(4))
  assert errors == pytest.approx(achieved, abs=1e-4)
  assert definitions.printed_errors(guarantee) == pytest.approx(printed,
                                                                abs=1e-4)
  assert errors < definitions.printed_errors(guarantee) - 0.03
  assert errors == pytest.approx(2 * two_points.path_error(1, guarantee))
  assert errors >= 1 - epsilon / 2 - delta


def test_half_of_the_printed_function_is_total_variation():
  """The printed function gives twice the total variation (E-03).

  Other divergences equal their formulas.
  """
  printed = divergences.Generator(lambda t: np.abs(t - 1), 1.0)
  for p, q in [*_pairs(1), (np.array([0.5, 0.5, 0]), np.array([0.2, 0.3, 0.5])
                            )]:
    largest = max(psi @ (p - q) for psi in _tests(len(p)))
    variation = definitions.level(p, q, notions.TotalVariationPrivacy)
    assert variation == pytest.approx(largest, abs=1e-12)
    assert divergences.f_divergence(p, q, printed) == pytest.approx(2 * largest)
    with np.errstate(divide='ignore', invalid='ignore'):
      nats, square = (max(np.nansum(p * f(p, q)), np.nansum(q * f(q, p)))
                      for f in (lambda a, b: np.log(a / b),
                                lambda a, b: a / b - 1))
    assert definitions.level(p, q, notions.KullbackLeiblerPrivacy) == (
        pytest.approx(nats))
    assert definitions.level(p, q, compared_notions.ChiSquarePrivacy) == (
        pytest.approx(square))


def test_the_printed_exponent_of_renyi_is_wrong():
  """The Renyi divergence of Gaussians is a shift^2 / 2 (T-E04).

  The printed exponent gives less, even negative values.
  """
  edges = np.linspace(-7.5, 7.5, 2001)
  p, q = (np.diff(stats.norm.cdf(edges - at)) for at in (0.5, 0.0))
  p, q = p / p.sum(), q / q.sum()
  for order in (1.5, 2.0, 4.0):
    assert divergences.renyi(p, q, order=order) == pytest.approx(
        order / 8, rel=1e-3)
    printed = math.log(q @ (p / q)**(order - 1)) / (order - 1)
    assert printed == pytest.approx((order - 2) / 8, rel=1e-3, abs=1e-6)
    assert printed < order / 8 - 0.2


def _search(p, q, mass, rng, count=60000):
  """Returns the largest conditional variation over random events."""
  # These are probabilities of an event given the outcome, many of them 0 or 1.
  weights = np.clip(np.exp(rng.normal(size=(count, len(p))) * 3), 0, 1)
  least = np.minimum(weights @ p, weights @ q)
  return definitions.tilted(p, q, weights[least >= max(mass, 1e-12)]).max()


@pytest.mark.slow
def test_given_any_event_the_range_decides():
  """Given any event, the variation is at most tanh(R / 4) and attains it."""
  rng = np.random.default_rng(2)
  for p, q in _pairs(3):
    wanted = definitions.conditional(p, q)
    ratios = np.log(p / q)
    assert wanted == pytest.approx(math.tanh(np.ptp(ratios) / 4))
    assert _search(p, q, 0, rng, 2000) <= wanted + 1e-12
    weights = np.zeros(4)
    for place in (np.argmax(ratios), np.argmin(ratios)):
      weights[place] = 1 / math.sqrt(p[place] * q[place])
    assert definitions.tilted(p, q, weights) == pytest.approx(wanted)
    if p.min() > 1e-2 < q.min():
      assert definitions.conditional(p, q, mass=1e-4) == pytest.approx(
          wanted, rel=1e-3)
    # Processing lowers the level, and events of the outcomes do not exceed it.
    channel = rng.dirichlet(np.ones(3), 4)
    assert definitions.conditional(p @ channel, q @ channel) <= wanted + 1e-12
    assert definitions.conditional_of_events(p, q) <= wanted + 1e-12


@pytest.mark.every(3)
@pytest.mark.parametrize('epsilon', [0.01, 1.0])
def test_choices_are_half_as_telling(epsilon):
  """The exponential mechanism has conditional variation tanh(epsilon / 4)."""
  p = np.full(8, 1 / 8)
  q = np.exp(epsilon * np.eye(8)[0])
  for pair in ((p, q / q.sum()), (q / q.sum(), p)):
    assert definitions.conditional(*pair, mass=1e-3) == pytest.approx(
        math.tanh(epsilon / 4), rel=1e-4)


def test_conditional_testing_is_not_inherited():
  """Conditional testing is not inherited by processing.

  A random number beside the outcome reveals more (Barber and Duchi 2014).
  """
  p, q = np.array([0.01, 0.99]), np.array([0.1, 0.9])
  assert definitions.conditional_of_events(p, q) == pytest.approx(0.09)
  # A number of 1000 is drawn apart, so outcomes split into thousandths.
  beside = [np.repeat(distribution, 5) / 5 for distribution in (p, q)]
  assert definitions.conditional_of_events(*beside) > 0.3
  assert definitions.conditional(p, q) == pytest.approx(
      math.tanh(2.398 / 4), abs=1e-4)
  assert definitions.conditional(p, q) == pytest.approx(0.537, abs=1e-3)
  assert definitions.less_informative(np.stack(beside), np.stack([p, q]))


@pytest.mark.parametrize('epsilon, delta, exact, printed', [
    (0.1, 1e-3, 0.160, 0.345), (0.3, 1e-2, 0.551, 0.785),
    (0.45, 1e-3, 0.915, 0.972)])
def test_conditional_testing_under_approximate_privacy(epsilon, delta, exact,
                                                       printed):
  """Theorem 1 of Barber and Duchi (2014) holds, but is not sharp.

  A linear programme gives the sharp level.
  """
  guarantee = _APPROX(epsilon=epsilon, delta=delta)
  claim = conversions.printed_conditional(guarantee)
  assert claim.level == pytest.approx(printed, abs=1e-3)
  assert claim.level <= 4 * epsilon and claim.mass <= delta / epsilon
  p, q = definitions.extremal(guarantee)
  program = definitions.conditional(p, q, mass=claim.mass)
  assert program == pytest.approx(exact, abs=1e-3)
  assert program < claim.level
  sharp = conversions.conditional(guarantee, mass=claim.mass)
  assert sharp.level == pytest.approx(program, rel=1e-6)
  rng = np.random.default_rng(4)
  assert _search(p, q, claim.mass, rng) <= sharp.level + 1e-12


def test_the_printed_level_says_nothing_from_the_golden_ratio_on():
  """The printed level is vacuous above log of the golden ratio (E-22).

  For small budgets it is eight times too much.
  """
  vacuous = math.log((1 + math.sqrt(5)) / 2)
  level = lambda epsilon: conversions.printed_conditional(
      _APPROX(epsilon=epsilon, delta=0.0)).level
  assert level(vacuous) == pytest.approx(1)
  assert level(vacuous * 0.999) < 1 < level(vacuous * 1.001)
  sharp = conversions.convert(notions.PureDP(epsilon=1e-4),
                              compared_notions.ConditionalTesting).level
  assert level(1e-4) / sharp == pytest.approx(8, rel=1e-3)


@pytest.mark.every(2)
@pytest.mark.parametrize('epsilon, wanted', [(0.2, 0.0997), (1.0, 0.4621)])
def test_posteriors_move_by_the_hyperbolic_tangent(epsilon, wanted):
  """Posteriors with a record and with it replaced differ by tanh(epsilon / 2).

  Data sets of 3 bits with any prior keep this bound.
  """
  prior = np.linspace(0, 1, 2001)
  ratios = np.exp(np.array([epsilon, -epsilon]))
  tilted = definitions.tilted(ratios, np.ones(2), np.stack(
      [prior, 1 - prior], 1))
  assert tilted.max() == pytest.approx(wanted, abs=1e-4)
  assert tilted.max() == pytest.approx(math.tanh(epsilon / 2), rel=1e-5)
  assert tilted.max() < math.expm1(epsilon) / 2
  # Data sets have 3 bits and any prior; every bit gets a randomised answer.
  rng = np.random.default_rng(5)
  data = _tests(3)
  truth = 1 / (1 + math.exp(-epsilon))
  for output in data:
    likely = np.where(data == output, truth, 1 - truth)
    replaced = np.where(0 == output, truth, 1 - truth)[0]
    priors = rng.dirichlet(np.ones(8) / 4, 200)
    moved = definitions.tilted(likely.prod(1), likely[:, 1:].prod(1) * replaced,
                               priors)
    assert moved.max() <= math.tanh(epsilon / 2) + 1e-12


def test_one_record_at_random():
  """One record released at random has total variation 1/n.

  Its conditional level is 1. This is Example 2 of Barber and Duchi (2014).
  """
  for n in (1, 4, 10):
    p, q = (np.bincount(data, minlength=n + 1) / n
            for data in (np.arange(n), np.arange(n) + 1))
    assert definitions.level(p, q, notions.TotalVariationPrivacy) == (
        pytest.approx(1 / n))
    assert definitions.holds(p, q, notions.TotalVariationPrivacy(level=1 / n))
    assert definitions.level(p, q, notions.PureDP) == math.inf
    assert definitions.conditional(p, q) == 1
    assert definitions.conditional(p, q, mass=1 / n) == pytest.approx(1)
    if n > 1:
      assert definitions.conditional(p, q, mass=2 / n) == pytest.approx(0.5)
    # Equation 26 without its factor 2 is attained: n (1/n) t (erratum E-06).
    distributions = np.array([[0.4, 0.6], [0.6, 0.4]])
    share = two_points.total_variation(
        notions.TotalVariationPrivacy(level=1 / n))
    assert definitions.level(*distributions, notions.TotalVariationPrivacy) == (
        pytest.approx(n * share * 0.2))


def test_the_printed_ratio_of_a_gaussian_mean_is_too_small():
  """The log-ratio is |theta| / sigma^2, twice the printed one (E-17)."""
  theta = 20.0
  ratio = stats.norm.logpdf(theta, 1) - stats.norm.logpdf(theta, 0)
  assert ratio == pytest.approx(19.5)
  assert ratio > theta / 2 + 1
  assert ratio <= theta + 1


def test_less_informative_channels_inherit():
  rng = np.random.default_rng(6)
  for p, q in _pairs(7, 6):
    channel = rng.dirichlet(np.ones(3), 4)
    after = p @ channel, q @ channel
    assert definitions.less_informative(np.stack(after), np.stack([p, q]))
    assert not definitions.less_informative(np.stack([p, q]), np.stack(after))
    for notion, at in ((notions.PureDP, 0), (_APPROX, 0.2), (notions.ZCDP, 0),
                       (renyi.RenyiDP, 3.0), (notions.TotalVariationPrivacy, 0),
                       (notions.KullbackLeiblerPrivacy, 0),
                       (compared_notions.ChiSquarePrivacy, 0),
                       (notions.BoundedRange, 0),
                       (compared_notions.ConditionalTesting, 0)):
      assert definitions.level(*after, notion, at=at) <= definitions.level(
          p, q, notion, at=at) + 1e-12


@pytest.mark.parametrize('power', [1, 2])
def test_smooth_privacy_of_noisy_means(power):
  """Noisy means are smoothly private for all pairs, not only neighbours."""
  rng = np.random.default_rng(8)
  n, d, epsilon, radius = 5, 3, 0.7, 1.5
  rate = epsilon * n / (2 * radius)
  slack = []
  for size in np.geomspace(0.05, 20, 300):
    one, other = rng.normal(size=(2, n, d)) * size
    other -= one[0]
    same = rng.integers(1, n + 1)
    other[same:] = one[same:]
    means = [np.mean(x * np.minimum(1, radius / np.linalg.norm(
        x, axis=1, keepdims=True)), 0) for x in (one, other)]
    apart = np.linalg.norm(means[0] - means[1], power)
    # This is the largest log-ratio of densities exp(-rate |w|).
    ratio = apart * rate / (math.sqrt(d) if power == 1 else 1)
    smooth = definitions.smooth_distance(one, other, radius=2 * radius)
    assert smooth <= np.sum(np.any(one != other, 1)) + 1e-12
    slack.append(ratio - epsilon * smooth)
  assert -0.2 < max(slack) <= 1e-12
  # The rate of Barber and Duchi (2014)'s appendix is twice too large (erratum E-13).
  near = np.zeros((n, d)), np.eye(1, n, 0).T * np.full(d, 0.1)
  apart = np.linalg.norm(near[1].mean(0), power) * rate / (
      math.sqrt(d) if power == 1 else 1)
  smooth = epsilon * definitions.smooth_distance(*near, radius=2 * radius)
  assert apart == pytest.approx(smooth) and 2 * apart > smooth


def test_what_has_no_level_is_refused():
  p, q = _pairs(9, 1)[0]
  with pytest.raises(ValueError, match='have no level of GaussianPrivacy'):
    definitions.level(p, q, notions.GaussianPrivacy)
  with pytest.raises(ValueError, match='16 outcomes at most, got 17'):
    definitions.conditional_of_events(*np.full((2, 17), 1 / 17))
  with pytest.raises(ValueError, match='radius must be a positive number'):
    definitions.smooth_distance(np.zeros((2, 1)), np.ones((2, 1)), radius=0)
