"""These tests check the plan, cost and report
of training with lattice noise."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import lattice
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import plan as plans

ADD = Adjacency.ADD_OR_REMOVE_ONE
SIZE = 26  # of the perceptron 3-4-2
ROWS = jnp.asarray(np.random.default_rng(0).permutation(60)[None, :40],
                   jnp.int32)


def _plan(**changes):
  return plans.TrainingPlan(**{
    'sampler': PoissonSampler(num_examples=40, batch_size=5), 'num_steps': 6,
    'adjacency': ADD, 'noise_multiplier': 1.3, 'lattice_size': SIZE, **changes})


@pytest.fixture(name='fit')
def _fit(make_model, make_method, records):
  def fit(plan):
    model = make_model(True)
    return loop.fit(
      jax.random.split(jax.random.key(2), 1), plans=[plan], model=model,
      method=make_method('lip_dp_sgd', model), optimizer=optax.sgd(.5),
      records=records, rows=ROWS)
  return fit


@pytest.mark.slow
def test_a_fit_spends_what_its_plan_says(fit):
  """A lattice fit costs what plain noise costs; its bounds include rounding."""
  plain, exact = (fit(_plan(lattice_size=size)) for size in (None, SIZE))
  assert exact.events == plain.events == (_plan().event,)
  measured, = exact.joint_noise_multipliers
  assert 1.3 * (1 - 1e-6) <= measured <= 1.3 * 1.0005
  # Before the first step both have the same weights and certificates.
  more = exact.info.l2_sensitivity[0, 0] / plain.info.l2_sensitivity[0, 0] - 1
  assert (1e-7 < more).all() and (more < 3e-5).all()
  one, other = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(
    result.state.params)]) for result in (plain, exact))
  assert np.isfinite(other).all() and not np.allclose(one, other, rtol=.1)


def test_a_fit_is_refused_if_it_releases_more_than_was_paid_for(fit):
  with pytest.raises(ValueError, match='^the plan pays for 25 values on a lat'):
    fit(_plan(lattice_size=25))


@pytest.mark.every(2)
def test_fault_less_noise_than_planned_is_an_error(fit, monkeypatch):
  honest = lattice.outer_multiplier
  monkeypatch.setattr(lattice, 'outer_multiplier', lambda stddev, step: honest(
    .9 * stddev, step))
  with pytest.raises(ValueError, match='^a run was noised with joint mult'):
    fit(_plan())


def test_delta_pays_for_what_the_noise_differs(monkeypatch):
  """Delta pays for the total variation t between lattice and Gaussian noise.

  The guarantee is (epsilon, delta + (1 + e^epsilon) t), so epsilon is
  computed at what is left of delta.
  """
  plan = _plan()
  known = lattice.total_variation(num_values=SIZE, num_steps=6)
  assert plan.noise_variation == known < 1e-22
  assert dataclasses.replace(plan, lattice_size=None).noise_variation == 0
  # The variation is so small that no digit of epsilon shows it.
  spend = lambda delta: accounting.epsilon(
    plan.event, delta=delta, adjacency=ADD, accountant='rdp')
  assert plan.epsilon(1e-5, accountant='rdp') == pytest.approx(spend(1e-5), rel=1e-12)
  much = 1e-9
  monkeypatch.setattr(lattice, 'total_variation',
                      lambda num_values, num_steps: much)
  spent = plan.epsilon(1e-5, accountant='rdp')
  left = 1e-5 - (1 + math.exp(spent)) * much
  assert spend(left) <= spent <= spend(left) * (1 + 1e-4)
  assert spent > spend(1e-5) * (1 + 1e-6)
  much = 1e-6
  with pytest.raises(ValueError, match='^delta = 1e-05 is too small to cover'):
    plan.epsilon(1e-5, accountant='rdp')


def test_calibration_leaves_room(monkeypatch):
  """Calibration adds noise so that the reported epsilon still meets the target.

  The noise differs from Gaussian noise by 1e-7 in total variation.
  """
  monkeypatch.setattr(lattice, 'total_variation',
                      lambda num_values, num_steps: 1e-7)
  plan, plain = (plans.private_plan(
    num_examples=100, batch_size=100, num_steps=3, epsilon=2., delta=1e-5,
    adjacency=ADD, accountant='rdp', lattice_size=size)
    for size in (77, None))
  assert plan.lattice_size == 77
  assert plan.noise_multiplier > plain.noise_multiplier * (1 + 1e-3)
  spent = plan.epsilon(1e-5, accountant='rdp')
  assert 1.99 < spent <= 2
  with pytest.raises(ValueError, match='between noise on a lattice and Gauss'):
    plans.private_plan(
      num_examples=100, batch_size=100, num_steps=3, epsilon=5., delta=1e-5,
      adjacency=ADD, accountant='rdp', lattice_size=77)


@pytest.mark.parametrize('changes, message', [
  ({'lattice_size': 0}, 'lattice_size must be an integer >= 1, got 0'),
  ({'noise_multiplier': None}, 'noise on a lattice is Gaussian: .*'),
  ({'noise_order': 1.}, 'noise on a lattice is Gaussian: .*')])
def test_refusals(changes, message):
  with pytest.raises(ValueError, match=f'^{message}$'):
    _plan(**changes)


@pytest.mark.every(1)
@pytest.mark.parametrize('size, num_steps', [(1, 8), (40, 1), (40, 8)])
def test_calibration_pays_for_every_value_of_every_step(size, num_steps,
                                                        monkeypatch):
  """Calibration pays for each noise value of each step, at 5e-10 per value."""
  monkeypatch.setattr(lattice, 'total_variation',
                      lambda num_values, num_steps: (
                        5e-10 * num_values * num_steps))
  plan = plans.private_plan(
    num_examples=100, batch_size=100, num_steps=num_steps, epsilon=1.,
    delta=1e-5, adjacency=ADD, accountant='rdp', lattice_size=size)
  assert plan.noise_variation == pytest.approx(5e-10 * size * num_steps)
  spent = plan.epsilon(1e-5, accountant='rdp')
  assert .985 < spent <= 1
  left = 1e-5 - (1 + math.exp(spent)) * plan.noise_variation
  assert left > 0
  assert accounting.epsilon(plan.event, delta=left, adjacency=ADD,
                            accountant='rdp') <= spent * (1 + 1e-9)
