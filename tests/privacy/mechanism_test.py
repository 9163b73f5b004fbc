"""Tests dpjax.privacy.mechanism: the contract and its composition."""

import math

import pytest

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import mechanism
from dpjax.privacy.adjacency import Adjacency


def gaussian(multiplier, adjacency=Adjacency.ADD_OR_REMOVE_ONE):
  return additive.GaussianMechanism(
      record_norm=3., noise_multiplier=multiplier, adjacency=adjacency)


def test_a_mechanism_is_recognised():
  assert isinstance(gaussian(1.), mechanism.Mechanism)
  assert not isinstance(object(), mechanism.Mechanism)


@pytest.mark.every(2)
@pytest.mark.parametrize('accountant', accounting.ACCOUNTANTS)
@pytest.mark.parametrize('adjacency', Adjacency)
def test_epsilon_is_that_of_its_own_event(adjacency, accountant):
  one = gaussian(2., adjacency)
  assert mechanism.epsilon(
      one, delta=1e-5, accountant=accountant) == accounting.epsilon(
          one.event, delta=1e-5, adjacency=adjacency, accountant=accountant)


def test_adjacency_matters():
  kinds = list(Adjacency)
  add, replace = (mechanism.epsilon(gaussian(2., k), delta=1e-5)
                  for k in kinds)
  halved = mechanism.epsilon(gaussian(1.), delta=1e-5)
  assert add < replace
  assert replace == pytest.approx(halved, abs=2e-4)


@pytest.mark.every(3)
@pytest.mark.parametrize('adjacency', Adjacency)
def test_composition_adds_precisions(adjacency):
  multipliers = (2., 3., 6.)
  event = mechanism.compose(*(gaussian(m, adjacency) for m in multipliers))
  joint = gaussian(math.fsum(m**-2 for m in multipliers)**-.5, adjacency)
  assert accounting.epsilon(
      event, delta=1e-5, adjacency=adjacency) == pytest.approx(
          mechanism.epsilon(joint, delta=1e-5), abs=5e-4)


def test_claims_of_several_adjacencies_are_not_composed():
  with pytest.raises(ValueError, match='^cannot compose claims of several '
                     'adjacencies: add_or_remove_one, replace_one$'):
    mechanism.compose(gaussian(1.), gaussian(1., Adjacency.REPLACE_ONE))


def test_composition_of_nothing_costs_nothing():
  assert accounting.epsilon(
      mechanism.compose(), delta=1e-5,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE) == 0
