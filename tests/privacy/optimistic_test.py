"""These tests check that lower bounds on epsilon lie just below the exact one."""

import pytest

from dpjax.privacy import accounting
from dpjax.privacy import optimistic
from dpjax.privacy.adjacency import Adjacency


@pytest.mark.parametrize('steps, delta', [
    ([(1.0, 1.0)], 1e-5), ([(0.5, 1.0)], 1e-5), ([(0.05, 2.0)], 1e-3),
    ([(0.05, 1.0), (0.3, 0.5)], 1e-5), ([(0.97, 2.0)], 0.5)])
def test_the_bound_is_just_below_the_epsilon_of_the_accountant(steps, delta):
  # The accountant rounds up by less than 0.0005 for each step.
  above = accounting.epsilon(accounting.composed_event([
      accounting.poisson_gaussian_event(
          sampling_prob=rate, noise_multiplier=1 / shift, num_steps=1)
      for rate, shift in steps]), delta=delta,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  bound = optimistic.poisson_gaussian_epsilon(steps, delta=delta)
  assert above - 0.003 * len(steps) < bound <= above


def test_one_step_without_sampling_is_the_gaussian():
  exact = accounting.gaussian_epsilon(shift=0.7, delta=1e-4)
  bound = optimistic.poisson_gaussian_epsilon([(1.0, 0.7)], delta=1e-4)
  assert exact - 0.003 < bound <= exact


def test_nothing_costs_nothing():
  assert optimistic.poisson_gaussian_epsilon([], delta=1e-5) == 0


@pytest.mark.parametrize('step', [(0.0, 1.0), (1.1, 1.0), (0.5, 0.0),
                                  (float('nan'), 1.0), (0.5, float('nan'))])
def test_refuses_what_is_out_of_range(step):
  with pytest.raises(ValueError, match='must'):
    optimistic.poisson_gaussian_epsilon([step], delta=1e-5)
