"""Tests noisy counts as estimates of a proportion: risks and privacy."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import draws
from dpjax.privacy import mechanism
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import proportions
from experiments.methods.theory import risk_oracles

_REPEATED = 40_000


def _estimators(n):
  return {
      'mean': noisy_shares.EmpiricalShare(num_examples=n),
      'laplace': noisy_shares.LaplaceShare(num_examples=n, epsilon=0.4),
      'geometric': noisy_shares.GeometricShare(num_examples=n, epsilon=1.2),
      'gaussian': noisy_shares.GaussianShare(num_examples=n, rho=0.05),
      'printed': noisy_shares.GaussianShare(num_examples=n, rho=0.05,
                                            printed=True)}


@pytest.mark.parametrize('name', ('mean', 'laplace', 'geometric', 'gaussian'))
def test_simulated_risks_are_the_exact_ones(name):
  n, estimator = 50, _estimators(50)[name].shrunk()
  for seed, prob in enumerate((0.5, 0.05)):
    counts = np.random.default_rng(seed).binomial(n, prob, (_REPEATED, 1))
    errors = np.square(np.asarray(estimator.estimates(
        jax.random.key(seed), counts.astype(np.float64))) - prob)
    assert errors.mean() == pytest.approx(
        estimator.population_risk(prob), abs=4 * errors.std() / _REPEATED**0.5)


def test_golden_risks():
  """Worst risks match G-5 and the table of EXT-BERN-SHRINK."""
  laplace = lambda n, e: noisy_shares.LaplaceShare(num_examples=n, epsilon=e)
  assert laplace(50, 1.0).worst_risk() == pytest.approx(5.8e-3)
  assert laplace(1000, 0.05).worst_risk() == pytest.approx(1.05e-3)
  assert laplace(50, 1.0).shrunk().worst_risk() == pytest.approx(4.45e-3,
                                                                 rel=2e-3)
  assert laplace(200, 0.1).shrunk().worst_risk() == pytest.approx(5.45e-3,
                                                                  rel=2e-3)
  for epsilon, shrunk, plain in ((.1, .1667, .5125), (.25, .0606, .0925),
                                 (.5, .0217, .0325), (1, .0117, .0175)):
    assert laplace(20, epsilon).shrunk().worst_risk() == pytest.approx(
        shrunk, abs=6e-5)
    assert laplace(20, epsilon).worst_risk() == pytest.approx(plain)
  for n, rho, wanted in ((50, .5, 5.4e-3), (200, .005, 3.75e-3),
                         (1000, .5, 2.51e-4), (1000, .00125, 6.5e-4)):
    assert noisy_shares.GaussianShare(
        num_examples=n, rho=rho).worst_risk() == pytest.approx(wanted)
  for epsilon, variance in ((1, 1.841), (2, .362)):
    estimator = noisy_shares.GeometricShare(num_examples=9, epsilon=epsilon)
    assert estimator.count_variance == pytest.approx(variance, abs=6e-4)


def test_no_share_is_better_and_the_worst_is_the_worst():
  for name, estimator in _estimators(30).items():
    best = estimator.shrunk()
    probs = np.linspace(0, 1, 101)
    assert best.population_risk(probs).max() == pytest.approx(
        best.worst_risk(), rel=1e-12), name
    for weight in np.linspace(0.005, 1, 200):
      other = dataclasses.replace(estimator, weight=float(weight))
      assert other.worst_risk() >= best.worst_risk() - 1e-15, name


def test_printed_noise_is_an_eighth_of_the_budget():
  """The printed noise has eight times the variance, as
  its event says (E-09)."""
  calibrated, printed = (
      _estimators(200)[name] for name in ('gaussian', 'printed'))
  assert printed.count_variance == pytest.approx(8 * calibrated.count_variance)
  eighth = noisy_shares.GaussianShare(num_examples=200, rho=0.05 / 8)
  assert printed.event.noise_multiplier == pytest.approx(
      eighth.event.noise_multiplier)
  shown = noisy_shares.GaussianShare(num_examples=200, rho=0.005, printed=True)
  assert shown.worst_risk() == pytest.approx(2.125e-2)


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ('laplace', 'gaussian', 'geometric'))
def test_counts_of_neighbours_keep_the_budget(name):
  """Drawn noise has densities that keep the budget one record apart."""
  estimator = _estimators(4)[name]
  noise = np.ravel(estimator.estimates(jax.random.key(3), np.full(
      (_REPEATED, 1), 2.0))) * 4 - 2
  if name == 'geometric':
    assert (noise == np.round(noise)).all()
    exact = stats.dlaplace(1.2)
    claimed = 1.2
    at = np.arange(-40, 40)
    loss = np.max(np.abs(exact.logpmf(at) - exact.logpmf(at - 1)))
    cells = np.clip(noise, -3, 3)
    seen = np.array([(cells == k).mean() for k in range(-3, 4)])
    wanted = np.concatenate([[exact.cdf(-3)], exact.pmf(np.arange(-2, 3)),
                             [exact.sf(2)]])
    assert np.abs(seen - wanted).max() < 5 * 0.5 / _REPEATED**0.5
  else:
    exact = (stats.laplace(scale=1 / 0.4) if name == 'laplace' else
             stats.norm(scale=math.sqrt(10)))
    assert stats.kstest(noise, exact.cdf).pvalue > 1e-4
    at = np.linspace(-200, 200, 400_001)
    here, there = exact.logpdf(at), exact.logpdf(at - 1)
    if name == 'laplace':
      claimed, loss = 0.4, np.max(np.abs(here - there))
    else:
      claimed = 0.05  # This is the divergence of order 2, over the order.
      loss = np.log(np.sum(np.exp(2 * here - there)) * 1e-3) / 2
  assert loss == pytest.approx(claimed, rel=1e-3)


def test_events_are_those_of_the_noise():
  assert mechanism.epsilon(_estimators(9)['laplace'],
                           delta=1e-9) == pytest.approx(0.4, rel=1e-3)
  assert mechanism.epsilon(_estimators(9)['geometric'],
                           delta=1e-9) == pytest.approx(1.2, rel=1e-3)
  assert math.isinf(mechanism.epsilon(_estimators(9)['mean'], delta=1e-5))


@pytest.mark.every(2)
def test_the_table_of_noisy_counts_is_the_minimax_estimate():
  """The table of noisy counts attains the linear programme's risk (G-4)."""
  for n, epsilon, program in ((10, .5, .04758), (20, 1., .01137)):
    solved = risk_oracles.proportion(
        num_examples=n, guarantee=PureDP(epsilon=epsilon)).value
    assert solved == pytest.approx(program, abs=6e-6)
    estimator = noisy_shares.MinimaxShare(num_examples=n, epsilon=epsilon)
    assert estimator.worst_risk() == pytest.approx(solved, rel=5e-3)
    shrunk = noisy_shares.GeometricShare(num_examples=n, epsilon=epsilon
                                         ).shrunk().worst_risk()
    assert solved * 0.999 < shrunk < 1.35 * solved
  counts = np.random.default_rng(0).binomial(20, 0.5, (_REPEATED, 1))
  errors = np.square(np.asarray(estimator.estimates(
      jax.random.key(0), counts.astype(np.float64))) - 0.5)
  assert errors.mean() <= (
      estimator.worst_risk() + 4 * errors.std() / _REPEATED**0.5)
  assert errors.mean() > estimator.worst_risk() / 4
  # The table looks up truncated geometric counts.
  noise = noisy_shares.GeometricShare(num_examples=20, epsilon=epsilon)
  assert estimator.parameters.scale == noise.scale


@pytest.mark.sound
def test_tables_of_noisy_counts_keep_epsilon_and_need_it():
  """Tables of noisy counts lose exactly epsilon, over entries and counts."""
  estimator = noisy_shares.MinimaxShare(num_examples=6, epsilon=0.8)
  asked, steps = [], np.arange(-40, 41)

  def noise(key, shape, scale, dtype):
    asked.append(float(scale))
    return jnp.asarray(np.tile(steps, 7), dtype)
  with jax.enable_x64(True), pytest.MonkeyPatch.context() as patch:
    patch.setattr(draws, 'discrete_laplace', noise)
    wholes = np.asarray(estimator.draw(
        jax.random.key(0), jnp.repeat(jnp.arange(7, dtype=float), 81),
        estimator.parameters)).reshape(7, 81)
  assert asked == [pytest.approx(1 / 0.8)]
  weights = stats.dlaplace(1 / asked[0]).pmf(steps)
  outcome_probs = np.stack(
      [[weights[np.isclose(row, value)].sum()
        for value in np.unique(wholes)]
       for row in wholes])
  np.testing.assert_allclose(outcome_probs.sum(1), 1)
  losses = np.abs(np.diff(np.log(outcome_probs), axis=0))
  assert losses.max() == pytest.approx(estimator.event.epsilon) == 0.8
  # The table holds the minimax estimate of that noisy count.
  probs = np.linspace(0, 1, 501)
  risks = np.einsum('pc,z,czp->p', stats.binom.pmf(
      np.arange(7), 6, probs[:, None]), weights, np.square(
          wholes[:, :, None] - probs))
  assert risks.max() == pytest.approx(estimator.worst_risk(), rel=1e-3)


def test_records_are_rounded_and_counted():
  estimator = noisy_shares.EmpiricalShare(num_examples=4)
  data = jnp.array([1.0, 0.0, jnp.nan, 7.0])
  assert estimator.release(jax.random.key(0), data) == pytest.approx(0.25)
  with pytest.raises(ValueError, match='there must be 4 records'):
    estimator.release(jax.random.key(0), data[:3])


@pytest.mark.every(1)
@pytest.mark.parametrize('make, match', [
    (lambda: noisy_shares.LaplaceShare(num_examples=3, epsilon=0.0),
     'epsilon must be'),
    (lambda: noisy_shares.GaussianShare(num_examples=3, rho=-1.0),
     'rho must be'),
    (lambda: noisy_shares.EmpiricalShare(num_examples=3, weight=1.5),
     'weight must'),
    (lambda: noisy_shares.EmpiricalShare(num_examples=0), 'num_examples must'),
    (lambda: noisy_shares.MinimaxShare(num_examples=10**5, epsilon=1e-3),
     'too large for a table')])
def test_bad_input_is_one_line(make, match):
  with pytest.raises(ValueError, match=match):
    make()


def test_estimators_that_are_offered_keep_the_guarantee():
  for guarantee, names in ((PureDP(epsilon=0.3), 4), (ZCDP(rho=0.1), 4),
                           (None, 2), (PureDP(epsilon=0.0), 0)):
    assert len(proportions.estimators(num_examples=9, guarantee=guarantee)) == names
  pure = proportions.estimators(num_examples=9, guarantee=ZCDP(rho=0.1))[1]
  assert pure.epsilon * math.tanh(pure.epsilon / 2) == pytest.approx(0.1)
