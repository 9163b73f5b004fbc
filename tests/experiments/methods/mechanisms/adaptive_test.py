"""These tests check the cost of an adaptive search (DP-21, erratum E30)."""

import itertools
import math

import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.mechanisms import adaptive

_RELATION = Adjacency.ADD_OR_REMOVE_ONE


def _event(prob, multiplier, steps):
  return accounting.poisson_gaussian_event(
      sampling_prob=prob, noise_multiplier=multiplier, num_steps=steps)


def _epsilon(*events, delta=1e-5, **options):
  return accounting.epsilon(accounting.composed_event(list(events)),
                            delta=delta, adjacency=_RELATION,
                            **{'accountant': 'rdp', **options})


def _adaptive(choices, count, *more, delta=1e-5):
  return adaptive.adaptive_epsilon([(choices, count), *more], delta=delta,
                                   adjacency=_RELATION)


@pytest.mark.parametrize('num_trials, printed', [
    (1, 1.309), (20, 6.970), (50, 12.08)])
def test_the_loss_by_a_search_is_not_small(num_trials, printed):
  """A search costs far more than the one trial that is charged (DP-21, E30).

  Barczewski (2025) does not charge it.
  """
  event = _event(.00853, 2., 4688)
  assert _epsilon(accounting.repeated_event(event, num_trials)) == (
      pytest.approx(printed, abs=6e-4 * printed))
  assert printed * (1 - 1e-3) < _adaptive([event], num_trials) < (
      printed * 1.003)


def test_the_best_of_trials_costs_as_much_as_all_of_them():
  """The best of k epsilon-DP trials is not epsilon-DP, by enumeration (E30).

  Of k independent randomised responses only the largest is published. A zero
  then says that all were zero, and its odds are those of all k.
  """
  epsilon, k = .5, 6
  lie = 1 / (1 + math.exp(epsilon))

  def best_is_zero(zero):
    return math.fsum(
        math.prod(zero if answer == 0 else 1 - zero for answer in answers)
        for answers in itertools.product([0, 1], repeat=k)
        if max(answers) == 0)

  loss = math.log(best_is_zero(1 - lie) / best_is_zero(lie))
  assert loss > 2 * epsilon  # The printed account has it at one epsilon.
  assert loss == pytest.approx(k * epsilon)  # Composition holds, just.


@pytest.mark.every(2)
def test_every_sequence_of_choices_is_covered():
  choices = [_event(1., 9., 4), _event(.5, 3., 4), _event(.05, .9, 40)]
  bound = _adaptive(choices, 4)
  spent = [_epsilon(*sequence) for sequence
           in itertools.combinations_with_replacement(choices, 4)]
  assert max(spent) <= bound * (1 + 1e-9) < 1.2 * max(spent)


def test_two_gaussians_against_the_worst_adaptive_adversary():
  """An adversary who picks the second multiplier is within what is charged.

  It picks by the first answer. Its delta, integrated on a grid, exceeds that of
  the fixed pair of events.
  """
  grid, width = np.linspace(-40, 40, 4001, retstep=True)
  multipliers, epsilon = (2., 3.), 1.2

  def density(multiplier, mean):
    return np.exp(-(grid - mean)**2 / (2 * multiplier**2)) / (
        multiplier * math.sqrt(2 * math.pi))

  def excess(loss, multiplier):
    """Returns the sum of max(p e^loss -
    e^epsilon r, 0) over the second answer."""
    p, r = density(multiplier, 1.), density(multiplier, 0.)
    return np.maximum(p * np.exp(loss)[:, None]
                      - math.exp(epsilon) * r, 0).sum(1) * width

  first, base = density(2., 1.), density(2., 0.)
  loss = np.log(first) - np.log(base)
  after = np.stack([excess(loss[::8], m) for m in multipliers])
  delta = float((base[::8] * after.max(0)).sum() * 8 * width)
  events = [accounting.gaussian_event(noise_multiplier=m)
            for m in multipliers]
  fixed = accounting.delta_for(
      accounting.composed_event([events[0], events[1]]),
      target_epsilon=epsilon, adjacency=_RELATION)
  assert delta > 1.5 * fixed  # What happened to run is not the price.
  assert _adaptive(events, 2, delta=delta) >= epsilon


def test_more_choices_releases_and_others_cost_more():
  one, two = _event(.1, 2., 10), _event(.2, 2., 10)
  assert _adaptive([one], 3) <= _adaptive([one, two], 3) == (
      _adaptive([two], 3))
  assert _adaptive([one], 3) < _adaptive([one], 4)
  more = accounting.gaussian_event(noise_multiplier=2.)
  assert _adaptive([one], 3) < _adaptive([one], 3, ([more], 1))
  assert _adaptive([one], 3, ([two, one], 1)) == _adaptive(
      [two], 1, ([one], 3))


def test_stages_that_cost_next_to_nothing_still_take_the_dearest():
  """Of two stages that alone cost epsilon 0, the dearer one is still charged.

  They differ once they are composed with another stage.
  """
  one, two = _event(.01, 9., 10), _event(.02, 9., 10)
  dear = _adaptive([two], 1, ([_event(.5, 2., 40)], 1), delta=.1)
  for choices in ([one, two], [two, one]):
    assert _adaptive(choices, 1, ([_event(.5, 2., 40)], 1), delta=.1) == dear
  assert _adaptive([one], 1, delta=.1) == _adaptive([two], 1, delta=.1) == 0


@pytest.mark.parametrize('choices, count, message', [
    ([], 3, 'at least one event'),
    ([_event(.1, 2., 10)], 0, 'num_releases must be an integer >= 1')])
def test_what_cannot_be_charged_is_refused(choices, count, message):
  with pytest.raises(ValueError, match=message):
    _adaptive(choices, count)
