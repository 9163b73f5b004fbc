"""These tests audit parameter estimators: honest ones and planted faults."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.audit import auditor
from dpjax.audit import claims
from dpjax.audit import exact
from dpjax.audit.suite import estimators
from dpjax.audit.suite import targets
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric import support_ranks
from dpjax.theory.parametric import truncated_means

_RO = Adjacency.REPLACE_ONE
_FEW = dict(num_examples=5)


def _shift(target):
  return exact.largest_change(target.query, target.pairs).amount


def _ratio(target, outputs):
  return max(exact.density_ratio(target, pair, outputs,
                                 target.claim.epsilon).amount
             for pair in target.pairs)


@pytest.mark.every(5)
@pytest.mark.parametrize('name', targets.ESTIMATORS)
def test_records_move_what_the_budget_is_for(name):
  """No record's loss exceeds the budget, and some records use all of it."""
  target = targets.ESTIMATORS[name]()
  assert targets.expected(name) == auditor.CONSISTENT
  assert not auditor._claim_check(target.claim).failed
  if target.query is not None:
    # The worst mean of a maximum is none of those tried.
    loose = 0.7 if name == 'estimate_likelihood_output' else 0.06
    assert -loose * target.query.sensitivity < _shift(target) <= 0
  if target.log_probs is not None:
    assert -1e-5 < exact.finite_distributions(target.curve, target.pairs,
                                    target.log_probs).amount <= 0


@pytest.mark.slow
@pytest.mark.parametrize('name', [
    'estimate_proportion_laplace', 'estimate_proportion_geometric',
    'estimate_support_ranked', 'estimate_mean_l2'])
def test_densities_keep_the_claim(name):
  """Losses at drawn outputs use much of the claim and refute a third of it."""
  target = targets.ESTIMATORS[name]()
  outputs = np.concatenate([np.asarray(target.release(key, np.float64(
      target.pairs[0].data))).reshape(1, -1) for key in jax.random.split(
          jax.random.key(0), 12)])
  if name == 'estimate_support_ranked':
    outputs = np.append(outputs, [[1.0], [0.9], [0.5], [0.1]], 0)
  assert -0.65 < _ratio(target, outputs) <= 0
  third = dataclasses.replace(target, claim=claims.Claim(
      epsilon=0.33, delta=0.0, adjacency=_RO))
  assert _ratio(third, outputs) > 0


@pytest.mark.slow
def test_the_density_of_a_rank_is_one():
  """The density of a ranked estimate integrates to one with its atoms."""
  mechanism = support_ranks.RankedSupport(epsilon=1.0, **_FEW)
  target = estimators.ranked(mechanism)
  low, top = mechanism.parameters.log_lowest, -np.log(
      mechanism.parameters.factor)
  edges = np.linspace(low, top, 20_001)
  places = (edges[1:] + edges[:-1]) / 2
  outputs = np.exp(np.append(places, [low, 0.0]) - top)[:, None]
  for data in target.pairs[-1][:2]:
    probs = np.exp(target.log_density(data, outputs))
    whole = probs[:-2].sum() * (edges[1] - edges[0]) + probs[-2:].sum()
    assert abs(whole - 1) < 1e-3


def test_records_that_are_not_bounded_are_seen():
  class Loose(truncated_means.TruncatedMean):
    def statistic(self, data):
      return jnp.mean(data, 0)
  mechanism = Loose(dimension=2, threshold=1.0, guarantee=PureDP(epsilon=1.0),
                    noise='l2', **_FEW)
  assert _shift(estimators.truncated(mechanism)) > 1e3


@pytest.mark.every(3)
@pytest.mark.parametrize('noise', truncated_means.UNSOUND[:2])
def test_printed_noise_is_refuted_by_its_event(noise):
  """The printed variance of Proposition 6 costs more than is claimed (E-12)."""
  mechanism = truncated_means.TruncatedMean(
      dimension=1, threshold=1.0, noise=noise, allow_unsound=True,
      guarantee=ApproxDP(epsilon=1.0, delta=1e-5), **_FEW)
  said = claims.Claim(epsilon=1.0, delta=1e-5, adjacency=_RO,
                      event=mechanism.event)
  assert auditor._claim_check(said).failed
  sound = dataclasses.replace(mechanism, noise='gaussian', allow_unsound=False)
  assert not auditor._claim_check(dataclasses.replace(
      said, event=sound.event)).failed


def test_noise_for_one_record_is_too_little_for_a_replacement():
  """Noise for T / n is refuted, since a
  replacement moves the mean by 2 T / n."""
  class Half(truncated_means.TruncatedMean):
    l2_sensitivity = property(lambda self: self.threshold / self.num_examples)
  mechanism = Half(dimension=2, threshold=1.0, guarantee=ZCDP(rho=0.5),
                   noise='gaussian', **_FEW)
  assert _shift(estimators.truncated(mechanism)) > 0.9


@pytest.mark.slow
def test_rounds_that_are_not_composed_are_seen():
  """Two rounds that each spend the whole budget are detected."""
  rounds = (normal_means.Round(3.0, 1.0),) * 2

  class Twice(normal_means.NormalMean):
    def __post_init__(self):
      pass
  mechanism = Twice(dimension=2, radius=2.0, sigma=1.0, rounds=rounds,
                    guarantee=ZCDP(rho=0.5), **_FEW)
  assert _shift(estimators.normal(mechanism)) > 0.3


def test_a_table_of_another_distribution_is_refuted():
  """A table of probabilities for other noise is
  refuted by counting outcomes."""
  mechanism = noisy_shares.MinimaxShare(num_examples=4, epsilon=1.0)
  honest = estimators.looked_up(mechanism)
  data = honest.pairs[0].data
  draws = honest.draw(jax.random.key(2), data, 4000)
  assert exact.outcome_p_value(draws, honest.log_probs(data)) > 1e-4
  other = estimators.looked_up(dataclasses.replace(mechanism, epsilon=1.3))
  assert exact.outcome_p_value(draws, other.log_probs(data)) < 1e-4


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['likelihood_statistics', 'likelihood_output',
                                  'likelihood_descent'])
def test_releases_are_traced_with_what_they_know_of_their_model(name):
  assert targets.ESTIMATORS[f'estimate_{name}']().traced
