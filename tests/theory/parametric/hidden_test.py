"""Tests all studies at random sizes, budgets and dimensions.

Any study must have its bounds in order, at most the best constant's risk, and
falling with records and budgets; a budget of 0 gains nothing, and a large one
costs nothing. Lower bounds are compared with linear programmes, upper ones with
simulations.
"""

import math

import jax
import numpy as np
import pytest

from dpjax.privacy import notions
from dpjax.theory.parametric import densities as density_study
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import proportions
from dpjax.theory.parametric import studies
from experiments.methods.statistics import compared_densities
from experiments.methods.theory import risk_oracles

_NOTIONS = {
    notions.PureDP: lambda a: notions.PureDP(epsilon=a),
    notions.ApproxDP: lambda a: notions.ApproxDP(epsilon=a, delta=1e-6),
    notions.ZCDP: lambda a: notions.ZCDP(rho=a**2 / 2),
    notions.TotalVariationPrivacy: lambda a: notions.TotalVariationPrivacy(
        level=math.tanh(a / 2)),
    notions.KullbackLeiblerPrivacy: lambda a: notions.KullbackLeiblerPrivacy(
        level=a**2 / 2),
}
# Slow tuning gets one point.
_SEEDS = {'normal_mean': (0,), 'likelihood': (0,), 'mean': (1,)}
_CELLS = [(name, notion) for name, study in studies.STUDIES.items()
          for notion in study.notions if notion in _NOTIONS]


def _parameters(name, rng):
  """Returns the public numbers of a model, drawn at random."""
  drawn = dict(dimension=int(rng.integers(1, 4)), d=int(rng.integers(1, 5)),
               moment=float(rng.choice([2.0, 3.0, 6.5, math.inf])),
               radius=float(rng.uniform(0.3, 12)), b=float(rng.uniform(0.3, 2)),
               sigma=float(rng.uniform(0.3, 3)))
  return {key: drawn[key] for key in studies.STUDIES[name].parameters}


def _drawn(name, notion, seed):
  rng = np.random.default_rng([seed, *name.encode(), *notion.__name__.encode()])
  return (int(np.exp(rng.uniform(np.log(2), np.log(5000)))),
          float(np.exp(rng.uniform(np.log(1e-3), np.log(3)))),
          _parameters(name, rng))


@pytest.mark.every(6)
@pytest.mark.parametrize('name, notion', _CELLS)
def test_bounds_are_in_order(name, notion):
  """Bounds are in order, and fall with more records or a larger budget."""
  study, make = studies.STUDIES[name], _NOTIONS[notion]
  for seed in _SEEDS.get(name, (0, 1)):
    n, level, known = _drawn(name, notion, seed)
    trivial = study.trivial(**known)
    places = [(n, level), (2 * n, level), (n, 1.5 * level)]
    lower = [study.best_lower(num_examples=size, guarantee=make(a), **known)
             for size, a in places]
    upper = [study.best_upper(num_examples=size, guarantee=make(a), **known)
             for size, a in places]
    slack = 1 + 1e-6
    for below, above in zip(lower, upper):
      assert 0 <= below.value <= above.value * slack, (below, above, known)
      assert above.value <= trivial * slack
    for more in (1, 2):
      assert lower[more].value <= lower[0].value * slack, (lower, known)
      # Estimators' bounds are proved but not optimal, so they
      # may rise slightly.
      assert upper[more].value <= upper[0].value * 1.02, (upper, known)


# Share of the best constant that lower bounds attain without any release.
_NOTHING = {'density': 0.82}
# Largest ratio to the risk without privacy at a budget of 30.
_ALL = {'support_max': 3.0, 'support_max_absolute': 3.0}


@pytest.mark.every(6)
@pytest.mark.parametrize('name, notion', _CELLS)
def test_no_budget_buys_nothing_and_a_large_one_all(name, notion):
  study, make = studies.STUDIES[name], _NOTIONS[notion]
  known = _parameters(name, np.random.default_rng(5))
  n, trivial = 40, study.trivial(**known)
  least = (notions.ApproxDP(epsilon=1e-9, delta=1e-12)
           if notion is notions.ApproxDP else make(1e-9))
  below = study.best_lower(num_examples=n, guarantee=least, **known)
  above = study.best_upper(num_examples=n, guarantee=least, **known)
  assert above.value == pytest.approx(trivial, rel=1e-3)
  assert _NOTHING.get(name, 0.99) * trivial < below.value <= trivial
  free = study.non_private(num_examples=n, **known)
  above = study.best_upper(num_examples=n, guarantee=make(30.0), **known)
  below = study.best_lower(num_examples=n, guarantee=make(30.0), **known)
  assert below.value <= free * (1 + 1e-6)
  assert above.value < _ALL.get(name, 1.3) * free


@pytest.mark.slow
@pytest.mark.parametrize('name', studies.STUDIES)
def test_guarantees_at_the_edge_are_answered(name):
  study, known = studies.STUDIES[name], _parameters(
      name, np.random.default_rng(6))
  for guarantee in (
      None, notions.PureDP(epsilon=0.0), notions.ApproxDP(epsilon=1.0, delta=0.0),
      notions.ApproxDP(epsilon=0.0, delta=0.01), notions.ZCDP(rho=0.0),
      notions.TotalVariationPrivacy(level=1.0)):
    below, above = (bound(num_examples=7, guarantee=guarantee, **known)
                    for bound in (study.best_lower, study.best_upper))
    assert 0 <= below.value <= above.value * (1 + 1e-9), guarantee
    assert above.value <= study.trivial(**known) * (1 + 1e-9)


def test_studies_describe_what_they_take():
  for name, study in studies.STUDIES.items():
    assert study.name == name and study.help and study.loss
    for parameter, (default, text) in study.parameters.items():
      assert isinstance(default, (int, float)) and default > 0
      assert isinstance(text, str) and text
      assert parameter.isidentifier()
    defaults = {parameter: known.default
                for parameter, known in study.parameters.items()}
    assert 0 < study.non_private(num_examples=50, **defaults) < math.inf
    lower = study.best_lower(num_examples=50, guarantee=None, **defaults)
    assert 0 < lower.value <= study.trivial(**defaults)
    assert isinstance(lower.name, str)


@pytest.mark.parametrize('seed', range(3))
def test_no_channel_beats_the_bounds_of_a_proportion(seed):
  """No bound exceeds the linear programme's risk, whose
  grid loses up to 3 %."""
  rng = np.random.default_rng(seed)
  n, level = int(rng.integers(2, 24)), float(np.exp(rng.uniform(-2.5, 1)))
  guarantee = (notions.PureDP(epsilon=level), notions.ApproxDP(
      epsilon=level, delta=float(rng.uniform(0, 0.02))),
               notions.TotalVariationPrivacy(level=math.tanh(level / 2)))[
                   seed % 3]
  least = risk_oracles.proportion(num_examples=n, guarantee=guarantee).value
  bound = proportions.STUDY.best_lower(num_examples=n, guarantee=guarantee)
  assert 0 < bound.value <= 1.03 * least, (n, guarantee)


def _within(errors, value):
  """Returns whether errors match a value to 4 errors, below a tenth of it."""
  standard_error = errors.std() / math.sqrt(errors.size)
  return abs(errors.mean() - value) < 4 * standard_error < 0.1 * value


@pytest.mark.every(2)
@pytest.mark.parametrize('seed', range(2))
def test_exact_risks_are_those_of_simulations(seed):
  """Exact risks match simulations at random sizes, at their worst points."""
  rng, runs = np.random.default_rng([seed, 1]), 20_000
  n, epsilon = int(rng.integers(5, 60)), float(rng.uniform(0.2, 2))
  estimator = noisy_shares.GeometricShare(num_examples=n,
                                          epsilon=epsilon).shrunk()
  worst = max((0.0, 0.5), key=estimator.population_risk)
  estimates = estimator.estimates(jax.random.key(seed), rng.binomial(
      n, worst, (runs, 1)).astype(float))
  assert _within(np.square(np.asarray(estimates)[:, 0] - worst),
                 estimator.worst_risk())
  guarantee = notions.PureDP(epsilon=epsilon)
  estimator, *_ = density_study.histograms(num_examples=30 * n,
                                           guarantee=guarantee, dimension=1)
  density = compared_densities.zigzag(estimator.num_bins)
  counts = density.counts(rng, num_records=estimator.num_records,
                          num_bins=estimator.num_bins, repetitions=runs)
  errors = np.mean(np.square(estimator.coefficients(
      jax.random.key(seed), counts) - 1), -1) + density.energy
  upper, *_ = density_study.STUDY.upper(num_examples=30 * n, guarantee=guarantee,
                                    dimension=1)
  assert upper.exact and _within(errors, upper.value)
