"""Tests plans and private loops with samplers and correlated noise."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy import accounting
from dpjax.privacy import correlated
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import AllocationSampler
from dpjax.sampling import CyclicSampler
from dpjax.sampling import FixedSizeSampler
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import plan as plans
from dpjax.train.private import make_private

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
SIZES = dict(num_examples=24, batch_size=4)
POISSON, FIXED = PoissonSampler(**SIZES), FixedSizeSampler(**SIZES)
ALLOCATION = AllocationSampler(**SIZES)
CYCLIC = CyclicSampler(**SIZES, num_groups=3)
WHOLE = CyclicSampler(**SIZES, num_groups=6)
BANDED = correlated.square_root(3)
X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)


def plan(sampler, adjacency=ADD, **options):
  return plans.TrainingPlan(**dict(
      sampler=sampler, num_steps=12, noise_multiplier=2.0,
      adjacency=adjacency) | options)


# -- Plans.


@pytest.mark.parametrize('make, message', [
  (lambda: plan(FIXED), 'the privacy of FixedSizeSampler is known under '
   'replace_one only, not under add_or_remove_one'),
  (lambda: plan(ALLOCATION, REPLACE), 'the privacy of AllocationSampler is '
   'known under add_or_remove_one only, not under replace_one'),
  (lambda: plan(CYCLIC, noise_order=2), 'this needs a plan with a '
   'PoissonSampler, got a CyclicSampler'),
  (lambda: plan(POISSON, strategy=BANDED), 'PoissonSampler does not bound in '
   'how many steps a record takes part'),
  (lambda: plan(FIXED, REPLACE, strategy=BANDED), 'FixedSizeSampler does not'),
  (lambda: plan(ALLOCATION, strategy=BANDED), 'AllocationSampler does not'),
  (lambda: plan(CYCLIC, strategy=correlated.square_root(4)), 'the columns of '
   'the strategy reach 4 steps, more than the 3 between two steps of a record'),
  (lambda: plan(WHOLE, strategy=correlated.inverse_square_root(3, 11)),
   'the strategy must serve 12 steps, it is made for 11'),
  (lambda: plan(WHOLE, strategy=BANDED, lattice_size=3), 'correlated noise is '
   'Gaussian: a strategy needs a noise_multiplier, noise_order = None'),
  (lambda: plan(WHOLE, strategy=BANDED, noise_multiplier=None),
   'correlated noise is Gaussian'),
  (lambda: plans.private_plan(**SIZES | {'batch_size': 3}, num_steps=3,
                              epsilon=1.0, delta=1e-5, adjacency=ADD,
                              sampler=CYCLIC),
   'the sampler has batch_size = 4, the plan has 3: give both the same')])
def test_refusals(make, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    make()


@pytest.mark.sound
def test_events_of_plans():
  gaussian = accounting.gaussian_event
  assert plan(CYCLIC).event == CYCLIC.event(noise_multiplier=2.0, num_steps=12)
  assert plan(CYCLIC, strategy=BANDED).event == plan(CYCLIC).event
  assert plan(CYCLIC).event == accounting.poisson_gaussian_event(
      sampling_prob=0.5, noise_multiplier=2.0, num_steps=4)
  strategy = correlated.square_root(12)
  assert plan(WHOLE, strategy=strategy).event == gaussian(
      noise_multiplier=2.0 / strategy.sensitivity(num_steps=12, separation=6))
  assert [each.single_run for each in (
      plan(POISSON), plan(FIXED, REPLACE), plan(ALLOCATION), plan(CYCLIC),
      plan(WHOLE, strategy=BANDED))] == [False, False, True, True, True]


@pytest.mark.every(6)
@pytest.mark.parametrize('sampler, adjacency, strategy', [
  (FIXED, REPLACE, None), (ALLOCATION, ADD, None), (CYCLIC, ADD, BANDED),
  (CYCLIC, REPLACE, None), (WHOLE, ADD, correlated.square_root(12))])
def test_calibrated_plans_meet_their_target_closely(sampler, adjacency,
                                                    strategy):
  made = plans.private_plan(
      **SIZES, num_steps=12, epsilon=1.5, delta=1e-4, adjacency=adjacency,
      sampler=sampler, strategy=strategy)
  assert 1.49 < made.epsilon(1e-4) <= 1.5
  assert made.sampler == sampler and made.strategy == strategy


# -- Loops of the user.


def sum_loss(params, record):
  return jnp.sum(params * record)


def private(sampler, **options):
  return make_private(sum_loss, optax.sgd(1.0), **SIZES, **dict(
      noise_multiplier=2.0, steps=12, clip_norm=1.0, sampler=sampler) | options)


@pytest.mark.every(8)
@pytest.mark.parametrize('sampler, options', [
  (FIXED, dict(adjacency='replace_one')), (ALLOCATION, {}), (CYCLIC, {}),
  (CYCLIC, dict(noise=BANDED)),
  (WHOLE, dict(noise=correlated.square_root(12)))])
def test_a_loop_runs_and_accounts_for_its_sampler(sampler, options):
  made = private(sampler, **options)
  state = made.init(jnp.zeros(3))
  spent = []
  for _ in range(12):
    state, info = made.step(state, X)
    spent.append(made.epsilon(delta=1e-4))
  assert spent == sorted(spent) and spent[-1] == made.plan.epsilon(1e-4)
  assert made.epsilon(state, delta=1e-4) == spent[-1]
  assert float(info.joint_noise_multiplier) >= 2.0
  with pytest.raises(ValueError, match='all 12 steps of the plan are spent'):
    made.step(state, X)


def test_batches_are_those_of_the_sampler():
  made = private(ALLOCATION)
  state = made.init(jnp.zeros(3))
  seen = []
  for _ in range(6):
    sample = made.sample(state)
    batch = X[sample.indices]
    seen += sample.indices[sample.mask].tolist()
    state, _ = made.update(state, batch)
  assert sorted(seen) == list(range(24))


@pytest.mark.sound
def test_correlated_noise_of_a_run_is_that_of_independent_draws():
  """The prefix sums of noise, which the parameters hold, are correlated."""
  # Reproducible: for research, not for a release.
  key = jax.random.key(5)
  zeros, prefixes = np.zeros_like(X), {}
  for name, noise in (('none', 'independent'), ('strategy', BANDED)):
    made = private(CYCLIC, noise=noise)
    state = made.init(jnp.zeros(3), key=key)
    prefixes[name] = []
    for _ in range(12):
      state, _ = made.step(state, zeros)
      prefixes[name].append(np.asarray(state.params))
  noise = np.diff(prefixes['none'], axis=0, prepend=0)
  column = BANDED.column(12) / BANDED.norm
  matrix = np.array([[column[t - s] if t >= s else 0 for s in range(12)]
                     for t in range(12)])
  expected = np.cumsum(np.linalg.solve(matrix, noise), 0)
  np.testing.assert_allclose(prefixes['strategy'], expected, atol=0.05)


@pytest.mark.sound
@pytest.mark.parametrize('sampler, noise', [
  (ALLOCATION, 'independent'), (CYCLIC, 'independent'), (WHOLE, BANDED)])
def test_a_second_run_is_refused(sampler, noise):
  """Two runs of one step are not one run of two steps."""
  made = private(sampler, noise=noise)
  first, _ = made.step(made.init(jnp.zeros(3)), X)
  second = made.init(jnp.zeros(3))
  with pytest.raises(ValueError, match='is accounted for as one run'):
    made.step(second, X)
  made.step(first, X)


def test_correlated_noise_needs_a_number_of_steps():
  with pytest.raises(ValueError, match='^correlated noise needs steps'):
    private(CYCLIC, noise=BANDED, steps=None)
  with pytest.raises(ValueError, match='^noise must be'):
    private(CYCLIC, noise='correlated')


def test_adam_cannot_be_corrected_for_correlated_noise():
  made = make_private(sum_loss, 'noise_corrected_adam', learning_rate=0.1,
                      **SIZES, noise_multiplier=2.0, steps=12, sampler=CYCLIC,
                      noise=BANDED)
  state = made.init(jnp.zeros(3))
  with pytest.raises(ValueError, match='not of correlated noise'):
    made.step(state, X)
  assert made.epsilon(delta=1e-4) == 0  # Nothing was spent.


# -- fit.


@pytest.mark.slow
@pytest.mark.parametrize('sampler, strategy', [
  (ALLOCATION, None), (CYCLIC, BANDED)])
def test_fit_gives_the_same_in_chunks_and_in_single_runs(sampler, strategy):
  model = mlp.mlp(num_features=3, num_classes=2, depth=0)
  # Reproducible: for research, not for a release.
  keys = jax.random.split(jax.random.key(0), 2)
  made = dataclasses.replace(plan(sampler, strategy=strategy), num_steps=24)
  fit = lambda chosen, **options: loop.fit(
      keys[chosen], plans=[made] * len(chosen), model=model,
      method=methods.dp_sgd(model, losses.cross_entropy(), clip_norm=1.0),
      optimizer=optax.sgd(0.5), records=(X, (X[:, 0] > 0).astype(np.int32)),
      rows=np.tile(np.arange(24), (len(chosen), 1)), **options)
  both = fit(np.arange(2))
  one = fit(np.arange(1, 2))
  for left, right in zip(jax.tree.leaves(both.state.params),
                         jax.tree.leaves(one.state.params), strict=True):
    np.testing.assert_allclose(left[1], right[0], rtol=1e-5, atol=1e-6)
  assert both.events[0] == made.event
  assert np.all(both.joint_noise_multipliers >= 2.0)
