"""These tests check that a claim is compared with its event before sampling."""

import dataclasses

import pytest

from dpjax.audit import claims
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

_EVENT = dict(sampling_prob=0.01, noise_multiplier=1.0, num_steps=1000)
_TRUE = claims.Claim(
    epsilon=1.829, delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE_ONE,
    event=accounting.poisson_gaussian_event(**_EVENT), num_examples=10000)


@pytest.mark.every(2)
def test_a_true_claim_passes():
  assert claims.check(_TRUE) == pytest.approx(1.82824, abs=1e-3)


@pytest.mark.every(3)
@pytest.mark.parametrize('change', [
    dict(sampling_prob=0.02),
    dict(num_steps=2000),
    dict(noise_multiplier=0.9),
    dict(sampling_prob=1.0, num_steps=10),
])
def test_an_event_that_costs_more_refutes(change):
  event = accounting.poisson_gaussian_event(**{**_EVENT, **change})
  with pytest.raises(ValueError, match='is below the .* that its event costs'):
    claims.check(dataclasses.replace(_TRUE, event=event))


def test_the_adjacency_of_the_figure_counts():
  with pytest.raises(ValueError, match='is below the 2.84'):
    claims.check(dataclasses.replace(_TRUE, adjacency=Adjacency.REPLACE_ONE))


def test_non_private_events_refute_every_claim():
  with pytest.raises(ValueError, match='is below the inf'):
    claims.check(dataclasses.replace(
        _TRUE, event=accounting.non_private_event()))


@pytest.mark.parametrize('noise', [1.0, 300.0])
def test_a_claim_may_be_below_its_event_by_a_rounding_only(noise):
  """A claim may fall below its event's cost by relative rounding only."""
  claim = claims.of_event(
      accounting.gaussian_event(noise_multiplier=noise), delta=1e-5,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  assert claims.check(claim) == claim.epsilon
  for factor in (1 - 1e-7, 1.0, 2.0):
    assert claims.check(dataclasses.replace(
        claim, epsilon=factor * claim.epsilon)) == claim.epsilon
  for factor in (0.5, 1 - 1e-3, 1 - 1e-5):
    with pytest.raises(ValueError, match='that its event costs'):
      claims.check(dataclasses.replace(claim, epsilon=factor * claim.epsilon))
