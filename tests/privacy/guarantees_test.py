"""Tests releases known by a guarantee alone: their charges and refusals.

Every kind of guarantee is tried under every adjacency: plain, composed,
repeated and on a Poisson sample, by every accountant.
"""

import itertools
import math

import pytest

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy import renyi
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.stopping import RandomStopping
from experiments.methods.mechanisms import renyi_steps
from tests.privacy.spending import ADD
from tests.privacy.spending import INTERVAL
from tests.privacy.spending import REPLACE
from tests.privacy.spending import spend

SIZE, PROB = 0.3, 0.2
KINDS = {
  'pure': lambda size, adjacency: accounting.pure_event(
    epsilon=size, adjacency=adjacency),
  'range': lambda size, adjacency: accounting.bounded_range_event(
    width=size, adjacency=adjacency),
  'concentrated': lambda size, adjacency: accounting.concentrated_event(
    rho=size, adjacency=adjacency)}
WRAPPERS = {
  'plain': lambda event: event,
  'composed': lambda event: accounting.composed_event(
    [event, accounting.gaussian_event(noise_multiplier=9.0)]),
  'repeated': lambda event: accounting.repeated_event(event, 3),
  'sampled': lambda event: accounting.poisson_event(
    event, sampling_prob=PROB, num_steps=2),
  'sampled and composed': lambda event: accounting.composed_event(
    [event, accounting.poisson_event(event, sampling_prob=PROB, num_steps=1)]),
  'sampled twice': lambda event: accounting.poisson_event(
    accounting.poisson_event(event, sampling_prob=PROB, num_steps=1),
    sampling_prob=PROB, num_steps=1)}
# Factors from a guarantee under ADD to one under REPLACE.
GROUPS = {'pure': 2, 'range': 2, 'concentrated': 4}


def _sampled(adjacency):
  """Returns the epsilon of one pure release on a Poisson sample."""
  spent = math.log1p(PROB * math.expm1(SIZE))
  return spent if adjacency is ADD else spent - math.log1p(
    PROB * math.expm1(-SIZE))


def _is_covered(kind, own, wrapper, claimed, accountant):
  if kind == 'concentrated' and accountant == 'pld':
    return False
  # A guarantee for data sets of one size does not cover sampled sizes.
  if 'sampled' in wrapper:
    return kind == 'pure' and own is ADD and 'twice' not in wrapper
  return own is claimed or own is ADD


CASES = list(itertools.product(KINDS, Adjacency, WRAPPERS, Adjacency,
                               accounting.ACCOUNTANTS))


def test_all_that_is_not_covered_is_refused():
  refused = []
  for kind, own, wrapper, claimed, accountant in CASES:
    if not _is_covered(kind, own, wrapper, claimed, accountant):
      with pytest.raises(ValueError, match=f'^the {accountant} accountant '):
        spend(WRAPPERS[wrapper](KINDS[kind](SIZE, own)), claimed, accountant)
      refused.append(kind)
  assert set(refused) == set(KINDS)


@pytest.mark.every(2)
def test_what_is_covered_costs_what_it_is_worth():
  """A covered event costs as much as its guarantee restated by hand."""
  for kind, own, wrapper, claimed, accountant in CASES:
    if not _is_covered(kind, own, wrapper, claimed, accountant):
      continue
    event_of = lambda size, kind=kind, claimed=claimed: KINDS[kind](size,
                                                                    claimed)
    factor = GROUPS[kind] if own is not claimed else 1
    if wrapper == 'sampled':
      wanted = accounting.repeated_event(event_of(_sampled(claimed)), 2)
    elif wrapper == 'sampled and composed':
      wanted = accounting.composed_event(
        [event_of(factor * SIZE), event_of(_sampled(claimed))])
    else:
      wanted = WRAPPERS[wrapper](event_of(factor * SIZE))
    spent, restated = (spend(event, claimed, accountant) for event in (
      WRAPPERS[wrapper](KINDS[kind](SIZE, own)), wanted))
    if (claimed, accountant) == (REPLACE, 'rdp') and 'sampled' in wrapper:
      # The bound uses an inequality that holds for all samples.
      assert restated < spent < 1.2 * restated
    else:
      assert spent == pytest.approx(restated, abs=4 * INTERVAL) and spent > 0


def test_renyi_costs_at_one_order_are_those_of_the_guarantees():
  """Costs at one order are those of three composed Renyi guarantees."""
  for order in (1.5, 6.0, 30.0):
    for kind, one in (
        ('pure', renyi.renyi_from_pure(
          notions.PureDP(epsilon=SIZE), order=order)),
        ('range', renyi.bounded_range(
          notions.BoundedRange(width=SIZE), order=order)),
        ('concentrated', renyi_steps.renyi_from_zcdp(
          notions.ZCDP(rho=SIZE), order=order))):
      epsilon = accounting.epsilon(
        accounting.repeated_event(KINDS[kind](SIZE, ADD), 3), delta=1e-3,
        adjacency=ADD, accountant='rdp', orders=(order,))
      wanted = renyi_steps.approx_from_renyi(renyi_steps.compose([one] * 3), delta=1e-3)
      assert epsilon == pytest.approx(wanted.epsilon, rel=1e-6)


@pytest.mark.every(1)
@pytest.mark.parametrize('shape', [0.0, 0.5, 1.0, 3.0])
def test_the_best_of_trials_costs_what_the_theorem_says(shape):
  """The best of trials costs what Papernot and Steinke
  (2022, Theorem 2) prove."""
  mean, order, noise = 8.0, 6.0, 4.0
  stopping = RandomStopping(mean=mean, shape=shape)
  first, second = stopping.probs()[:2]
  stop = 1 - second / first * (2.0 if shape == 0 else 2 / (1 + shape))
  one = lambda a: a / (2 * noise**2)
  # The order of the second term is chosen among the same orders.
  divergence = one(order) + math.log(mean) / (order - 1) + (1 + shape) * (
    (1 - 1 / order) * one(order) - math.log(stop) / order)
  wanted = renyi_steps.approx_from_renyi(
    renyi.RenyiDP(order=order, divergence=divergence), delta=1e-6).epsilon
  for adjacency, factor in ((ADD, 1), (REPLACE, 2)):
    event = stopping.event(accounting.gaussian_event(
      noise_multiplier=factor * noise))
    epsilon = accounting.epsilon(event, delta=1e-6, adjacency=adjacency,
                                 accountant='rdp', orders=(order,))
    assert epsilon == pytest.approx(wanted, rel=1e-6)
