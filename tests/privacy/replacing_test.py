"""Tests Renyi accounting of Poisson samples under replace-one."""

import math

import numpy as np
import pytest
from scipy import integrate
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import restating
from dpjax.privacy.adjacency import Adjacency

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE_ONE


def _event(prob, multiplier, num_steps):
  return accounting.poisson_gaussian_event(
    sampling_prob=prob, noise_multiplier=multiplier, num_steps=num_steps)


def _divergence(order, prob, multiplier):
  """Returns the Renyi divergence of the worst replacement in one step.

  The two mixtures are integrated by quadrature.
  """
  density = lambda shift: lambda x: (1 - prob) * stats.norm.pdf(
    x, 0, multiplier) + prob * stats.norm.pdf(x, shift, multiplier)
  first, second = density(1.0), density(-1.0)
  total = integrate.quad(lambda x: second(x) * (first(x) / second(x))**order,
                         -12 * multiplier, 14 * multiplier + 2 * order,
                         limit=500)[0]
  return math.log(total) / (order - 1)


@pytest.mark.every(3)
@pytest.mark.parametrize('prob', [0.05, 0.3, 0.9])
@pytest.mark.parametrize('multiplier', [1.5, 4.0])
def test_divergences_are_above_those_by_quadrature(prob, multiplier):
  orders = (1.5, 2.0, 4.0, 8.0)
  ledger = accounting._composed(  # pylint: disable=protected-access
    _event(prob, multiplier, 1), ADD, 'rdp', restating.orders_of_pairs(orders))
  spent = dict(zip(ledger.orders, ledger.rdp))
  actual = restating.ReplacingAccountant(orders, spent)._spent
  exact = [_divergence(order, prob, multiplier) for order in orders]
  assert (np.array(actual) >= exact).all()
  # The inequality loses little at moderate orders.
  assert (np.array(actual)[:2] <= 6 * np.array(exact)[:2]).all()


@pytest.mark.every(8)
@pytest.mark.parametrize('prob, multiplier, num_steps', [
  (0.01, 1.0, 1000), (0.1, 2.0, 100), (0.5, 5.0, 50), (0.02, 0.6, 20)])
def test_it_is_a_bound_above_that_of_loss_distributions(prob, multiplier,
                                                        num_steps):
  event = _event(prob, multiplier, num_steps)
  for delta in (1e-9, 1e-5, 1e-2):
    tight, loose = (accounting.epsilon(event, delta=delta, adjacency=REPLACE,
                                       accountant=by) for by in ('pld', 'rdp'))
    assert tight <= loose < math.inf
    assert accounting.epsilon(event, delta=delta, adjacency=ADD,
                              accountant='rdp') < loose
    assert accounting.delta_for(event, target_epsilon=loose, adjacency=REPLACE,
                                accountant='rdp') <= delta * (1 + 1e-6)


def test_without_sampling_it_is_that_of_twice_the_sensitivity():
  """With nearly all records sampled, the cost is near the
  exact unsampled one."""
  delta = 1e-6
  nearly, all_of_them = (accounting.epsilon(
    _event(prob, 20.0, 40), delta=delta, adjacency=REPLACE, accountant='rdp')
                         for prob in (1 - 1e-6, 1.0))
  assert all_of_them < nearly < 1.15 * all_of_them


@pytest.mark.every(2)
def test_calibration_by_it_is_private_by_loss_distributions():
  given = dict(sampling_prob=0.05, num_steps=100, adjacency=REPLACE)
  noise = accounting.calibrate_noise_multiplier(
    target_epsilon=2.0, target_delta=1e-5, accountant='rdp', **given)
  event = _event(0.05, noise, 100)
  spend = lambda by: accounting.epsilon(event, delta=1e-5, adjacency=REPLACE,
                                        accountant=by)
  assert spend('pld') < 1.99 < spend('rdp') <= 2.0


def test_fault_divergences_of_one_record_added(monkeypatch):
  """Using add-or-remove-one divergences alone understates the cost."""
  monkeypatch.setattr(
    restating.ReplacingAccountant, '__init__',
    lambda self, orders, spent: self.__dict__.update(
      _orders=list(orders), _spent=[spent[2 * order] for order in orders]))
  event = _event(0.5, 5.0, 50)
  tight, faulty = (accounting.epsilon(event, delta=1e-5, adjacency=REPLACE,
                                      accountant=by) for by in ('pld', 'rdp'))
  assert faulty < tight
