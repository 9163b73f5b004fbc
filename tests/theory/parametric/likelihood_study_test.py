"""Tests least favourable priors, closed-form risks, log-odds bounds."""

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.theory.parametric import exponential_families as families
from dpjax.theory.parametric import least_favourable
from dpjax.theory.parametric import likelihood
from dpjax.theory.parametric import likelihood_risks
from dpjax.theory.parametric import likelihood_study
from dpjax.theory.parametric import sgml
from experiments.methods.theory import best_channels as oracles
from tests import coupling

STUDY = likelihood_study.STUDY
MODEL = families.Model(dimension=5, radius=1.)


def test_the_game_has_its_known_value():
  """The game for n coins has the value 1 / (4 (1 + sqrt n)^2)."""
  thetas = np.linspace(-.5, .5, 81)
  for size in (4, 25):
    probs = stats.binom.pmf(np.arange(size + 1), size, thetas[:, None] + .5)
    solution = least_favourable.solve(probs, thetas)
    value = 1 / (4 * (1 + math.sqrt(size))**2)
    assert solution.lower <= value * (1 + 1e-9)
    assert solution.lower == pytest.approx(value, rel=5e-3)
    assert solution.upper == pytest.approx(value, rel=5e-3)
    again = least_favourable.bayes(probs, thetas, solution.prior)
    assert again.lower == pytest.approx(solution.lower)
    np.testing.assert_allclose(again.estimates, solution.estimates, atol=1e-9)


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('kind, changes', [
    (likelihood.MaximumLikelihood, {}),
    (likelihood.OutputPerturbation, {'rho': .01}),
    (likelihood.SufficientStatistics, {'guarantee': notions.ZCDP(rho=.01)}),
    (likelihood.MinimaxStatistics, {'guarantee': notions.ZCDP(rho=.01)}),
    (likelihood.SufficientStatistics, {'guarantee': notions.PureDP(
        epsilon=.3)}),
    (likelihood.MinimaxStatistics, {'guarantee': notions.PureDP(
        epsilon=.3)})])
def test_closed_forms_are_what_is_released(kind, changes):
  """Releases have their closed-form risk at the worst
  truth; alarms 6e-5 each."""
  estimator = kind(model=MODEL, num_examples=300, **changes)
  theta, worst = likelihood_risks.worst_theta(estimator)
  means = np.random.default_rng(5).binomial(
      300, special.expit(theta), (10_000, 5)) / 300
  errors = np.square(np.asarray(estimator.estimates(jax.random.key(0), means))
                     - theta).sum(1)
  assert errors.mean() == pytest.approx(worst, abs=4 * errors.std() / 100)
  for other in (0., .33, -.71, 1.):
    assert likelihood_risks.risk(other, estimator) <= worst * (1 + 1e-3)


@pytest.mark.slow
def test_the_rule_is_the_best_use_of_noisy_means():
  """The rule's risk is nearly the game's value, so no rule is much better."""
  for guarantee in (notions.ZCDP(rho=.002), notions.ZCDP(rho=.5),
                    notions.PureDP(epsilon=.3)):
    estimator = likelihood.MinimaxStatistics(model=MODEL, num_examples=500,
                                             guarantee=guarantee)
    risk = likelihood_risks.worst_theta(estimator)[1]
    assert 5 * estimator.design.game.lower == pytest.approx(risk, rel=.02)
    plain = likelihood.SufficientStatistics(model=MODEL, num_examples=500,
                                            guarantee=guarantee)
    assert risk < .9 * likelihood_risks.worst_theta(plain)[1]
  # theta_ML itself has a larger risk than the rule with noise.
  assert risk < 2.5 * STUDY.non_private(num_examples=500, d=5, b=1.)


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('size, epsilon, delta, radius', [
    (1, 1., 0., 1.), (3, .3, 0., 2.), (6, .7, 0., 1.), (6, 2., 0., .5),
    (5, .5, .05, 1.5), (10, .1, 0., 1.)])
def test_no_lower_bound_is_above_the_linear_programme(size, epsilon, delta,
                                                      radius):
  """Lower bounds are below the linear programme over all
  mechanisms on n coins."""
  guarantee = (notions.ApproxDP(epsilon=epsilon, delta=delta) if delta
               else notions.PureDP(epsilon=epsilon))
  thetas, actions = (np.linspace(-radius, radius, m) for m in (21, 41))
  masses = stats.binom.pmf(np.arange(size + 1), size,
                           special.expit(thetas)[:, None])
  costs = np.einsum('ts,ta->tsa', masses, np.square(actions - thetas[:, None]))
  value = oracles.least(costs, oracles.chain(size + 1), guarantee).value
  for bound in STUDY.lower(num_examples=size, guarantee=guarantee, d=1,
                           b=radius):
    assert bound.value <= value * (1 + 1e-6), bound.name
  best = STUDY.best_lower(num_examples=size, guarantee=guarantee, d=1, b=radius)
  assert best.value > .4 * value
  upper = STUDY.best_upper(num_examples=size, guarantee=guarantee, d=1,
                           b=radius)
  # Actions lie on a grid, which adds up to the square of half a step.
  assert upper.value >= value - (radius / 40)**2


@pytest.mark.every(5)
@settings(deadline=None, max_examples=10, derandomize=True)
@given(size=st.integers(1, 1000), d=st.integers(1, 40), b=st.floats(.1, 3.),
       power=st.floats(-9., 1.), kind=st.integers(0, 2))
def test_bounds_are_in_order(size, d, b, power, kind):
  """Lower bounds stay below the trivial risk, for budgets to 0, and a risk."""
  level = 10**power
  guarantee = (notions.ZCDP(rho=level), notions.PureDP(epsilon=level),
               notions.ApproxDP(epsilon=level, delta=1e-6))[kind]
  lower = STUDY.lower(num_examples=size, guarantee=guarantee, d=d, b=b)
  risk = likelihood_risks.worst_theta(likelihood.SufficientStatistics(
      model=families.Model(dimension=d, radius=b), num_examples=size,
      guarantee=guarantee))[1]
  for bound in lower:
    assert 0 <= bound.value <= min(d * b**2, risk) * (1 + 1e-6), bound.name


@pytest.mark.every(1)
@pytest.mark.parametrize('guarantee, names', [
    (None, []), (notions.PureDP(epsilon=0.), []), (notions.ZCDP(rho=0.), []),
    (notions.PureDP(epsilon=.8), ['noisy means', 'noisy means, minimax rule']),
    (notions.ApproxDP(epsilon=.8, delta=1e-5),
     ['noisy means', 'noisy means, minimax rule']),
    (notions.ZCDP(rho=.1), ['noisy means', 'noisy means, minimax rule',
                            'output perturbation', 'descent']),
    (notions.ZCDP(rho=1e-6), ['noisy means', 'noisy means, minimax rule',
                              'output perturbation'])])
def test_what_is_offered_exists_and_keeps_the_guarantee(guarantee, names):
  by_name = likelihood_study.estimators(MODEL, num_examples=200,
                                        guarantee=guarantee)
  assert list(by_name) == names
  for estimator in by_name.values():
    claimed = coupling.claim(estimator.event, estimator.adjacency)
    match guarantee:
      case notions.PureDP(epsilon=epsilon):
        assert claimed == pytest.approx((epsilon, 0))
      case notions.ZCDP(rho=rho):
        assert claimed == pytest.approx((0, rho))
      case notions.ApproxDP(epsilon=epsilon, delta=delta):
        assert accounting.delta_for(estimator.event, target_epsilon=epsilon,
                                    adjacency=estimator.adjacency,
                                   ) == pytest.approx(delta, rel=1e-2)
  # Without a rule of least worst risk, means are still offered.
  many = likelihood_study.estimators(MODEL, num_examples=10**9,
                                     guarantee=guarantee)
  assert list(many) == [name for name in names if not name.endswith('rule')
                        ] + ['descent'] * (names[2:] == [
                            'output perturbation'])


@pytest.mark.every(2)
@pytest.mark.parametrize('guarantee', [
    notions.PureDP(epsilon=.3), notions.PureDP(epsilon=5.),
    notions.ZCDP(rho=.05)])
def test_rules_rise_from_end_to_end(guarantee):
  estimator = likelihood.MinimaxStatistics(model=MODEL, num_examples=80,
                                           guarantee=guarantee)
  rule = estimator.design
  assert (np.diff(rule.places) > 0).all() and (np.diff(rule.thetas) > 0).all()
  assert (rule.thetas[0], rule.thetas[-1]) == (-1, 1)
  # The places cover all means of records, and noise in all but rare cases.
  low, high = special.expit([-1., 1.])
  margin = 2 * (estimator.noise + math.sqrt(.25 / 80))
  assert rule.places[0] <= low - margin and rule.places[-1] >= high + margin
  estimates = rule.game.estimates
  assert (np.diff(estimates) >= -2e-3).all() and estimates[-1] > .6
  np.testing.assert_allclose(estimates, -estimates[::-1], atol=5e-3)
  np.testing.assert_allclose(rule.places, 1 - rule.places[::-1], atol=1e-9)
  assert np.abs(estimates).max() <= 1
  # Its game is a close lower bound of its own exact risk.
  worst = likelihood_risks.worst_theta(estimator)[1] / MODEL.dimension
  assert .8 * worst < rule.game.lower < 1.1 * worst


def test_risks_that_are_offered_are_the_largest():
  guarantee = notions.ZCDP(rho=.02)
  upper = {each.name: each for each in STUDY.upper(
      num_examples=150, guarantee=guarantee, d=2., b=1.)}
  model = families.Model(dimension=2, radius=1.)
  by_name = likelihood_study.estimators(model, num_examples=150,
                                        guarantee=guarantee)
  assert upper.keys() == by_name.keys()
  for name, estimator in by_name.items():
    assert upper[name].exact == (name != 'descent')
    if name != 'descent':
      risks = [likelihood_risks.risk(theta, estimator)
               for theta in np.linspace(0, 1, 33)]
      assert upper[name].value == pytest.approx(max(risks), rel=1e-3)
  plain = likelihood.MaximumLikelihood(model=model, num_examples=150)
  means = np.array([[.2, .5], [.9, .5], [0., 1.]])
  estimates = np.asarray(plain.estimates(jax.random.key(0), means))
  np.testing.assert_allclose(estimates, np.clip(special.logit(np.clip(
      means, 1e-9, 1 - 1e-9)), -1, 1), atol=1e-9)
  free = STUDY.non_private(num_examples=150, d=2., b=1.)
  assert upper['descent'].value == pytest.approx(
      (math.sqrt(free) + math.sqrt(by_name['descent'].utility))**2)


@pytest.mark.every(2)
def test_where_nothing_can_be_learned_the_constant_is_best():
  for guarantee in (notions.ZCDP(rho=1e-10), notions.PureDP(epsilon=1e-6)):
    at = dict(num_examples=100, guarantee=guarantee, d=3, b=1.)
    assert STUDY.best_lower(**at).value == pytest.approx(3, rel=.01)
    assert STUDY.best_upper(**at).value == pytest.approx(3, rel=1e-3)


@pytest.mark.parametrize('centre, radius', [(0., 1.), (.6, .4), (.9, .05)])
def test_informations_are_means_under_the_prior(centre, radius):
  """Informations are means under the prior cos^2, by draws to four errors."""
  rng = np.random.default_rng(1)
  grid = np.linspace(-1, 1, 20_001)
  levels = (1 + grid + np.sin(math.pi * grid) / math.pi) / 2
  for dimension in (1, 3, 30):
    model = families.Model(dimension=dimension, radius=1.)
    u = np.interp(rng.random((20_000, dimension)), levels, grid)
    prob = special.expit(centre + radius * u)
    values = prob * (1 - prob)
    rare = values * np.maximum(prob, 1 - prob)
    informations = likelihood_study._informations(model, centre, radius)
    for mine, drawn in zip(informations,
                           (values.mean(1), values.max(1), rare.mean(1)),
                           strict=True):
      assert mine == pytest.approx(drawn.mean(), rel=1e-3, abs=4 * (
          drawn.std() / 20_000**.5))


def test_the_private_rate_has_a_square_of_d():
  """The private rate grows as d^2; (4.6) is valid, but too
  small by d and 10^5."""
  by_dimension = {}
  for d in (66, 264):
    at = dict(num_examples=100_000, guarantee=notions.ZCDP(rho=1e-6), d=d, b=1.)
    lower = dict((bound.name, bound.value) for bound in STUDY.lower(**at))
    printed = likelihood_study.printed(**at)
    estimator = likelihood.SufficientStatistics(
        model=families.Model(dimension=d, radius=1.), num_examples=100_000,
        guarantee=notions.ZCDP(rho=1e-6))
    by_dimension[d] = np.array([printed, lower['scores'], likelihood_risks.risk(
        0., estimator)])
    assert printed < 1e-5 * lower['scores'] < .4 * by_dimension[d][2]
  # Its private term counts where n rho is below 2^-15: gamma is 1 / 8.
  assert likelihood_study.printed(
      num_examples=100_000, guarantee=notions.ZCDP(rho=1e-11), d=66, b=1.) == (
          pytest.approx(66 / 32 / (2 * 8192**2 * 1e10 * 1e-11 / 8)))
  slopes = np.log(by_dimension[264] / by_dimension[66]) / math.log(4)
  assert slopes[0] == pytest.approx(1, abs=.01)
  assert (1.5 < slopes[1:]).all()


@pytest.mark.every(2)
def test_one_coordinate_has_the_constant_of_gaussian_noise():
  """One coordinate's bound is near 8 / (n^2 rho), Gaussian noise's constant."""
  at = dict(num_examples=10**6, guarantee=notions.ZCDP(rho=1e-8), d=1, b=1.)
  middle = 8 / (1e12 * 1e-8) + 4 / 1e6
  lower = dict((bound.name, bound.value) for bound in STUDY.lower(**at))
  assert .8 * middle < lower['coordinates'] < 2.2 * middle
  assert lower['scores'] < .6 * lower['coordinates']


def test_what_bounds_the_descent():
  model = families.Model(dimension=2, radius=1.)
  estimator = sgml.Descent(model=model, num_examples=300, rho=.05)
  bound = likelihood_study.descent_bound(estimator, STUDY.non_private(
      num_examples=300, d=2, b=1.))
  for theta in (0., .8):
    means = np.random.default_rng(5).binomial(
        300, special.expit(theta), (4000, 2)) / 300
    errors = np.square(np.asarray(estimator.estimates(jax.random.key(0), means))
                       - theta).sum(1)
    assert errors.mean() - 4 * errors.std() / 63 <= bound
  assert bound < 3 * errors.mean()


def test_refusals():
  with pytest.raises(ValueError, match='^d must be a whole number, got 1.5$'):
    STUDY.non_private(num_examples=10, d=1.5, b=1.)
  other = families.Model(dimension=1, radius=1.,
                         family=families.TRUNCATED_EXPONENTIAL)
  with pytest.raises(ValueError, match='^closed forms exist for Bernoulli'):
    likelihood_risks.risk(0., likelihood.MaximumLikelihood(
        model=other, num_examples=5))
  with pytest.raises(ValueError, match='^Descent has no closed form$'):
    likelihood_risks.risk(0., sgml.Descent(model=MODEL, num_examples=50,
                                           rho=1.))
