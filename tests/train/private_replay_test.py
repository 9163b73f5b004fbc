"""Record and replay of a step of `make_private`, right and with faults."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax import tree
from dpjax.audit import claims
from dpjax.audit import replay
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.grads import weighted
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.sampling import Selection
from dpjax.train import step as train_step
from dpjax.train.private import make_private

_X = np.array([[30.0, -9.0], [0.5, 0.5], [1.0, -1.0], [0.2, 2.0]], np.float32)
_ALL = np.ones(4, np.float32)


def _loss(params, record, rng):
  kept = jax.random.bernoulli(rng, 0.9, (2,))
  return record['present'] * jnp.vdot(jnp.where(kept, record['x'], 0.0),
                                      params)


def _audited(sampled_runs, *, steps=1, **changed):
  """Returns the replay of steps on data sets with and without a record."""
  private = make_private(_loss, optax.sgd(1.0), per='record', **dict(
      num_examples=4, batch_size=2, noise_multiplier=1.0, steps=steps,
      max_batch_size=1) | changed)
  private.init(jnp.zeros(2))

  def release(key, present):
    state, released = private.init(jnp.zeros(2), key=key), []
    for _ in range(steps):
      state, _ = private.step(state, {'x': jnp.asarray(_X), 'present': present})
      released.append(state.params)
    return released

  return replay.audit(jax.random.key(0), Target(
      name='step', release=release, claim=claims.of_event(
          private.plan.event, delta=1e-5,
          adjacency=Adjacency.ADD_OR_REMOVE_ONE), pairs=(Pair(
              _ALL, _ALL * (np.arange(4) > 0), 'a large record'),)),
                      num_keys=64, sampled_runs=sampled_runs)


@pytest.mark.every(8)
@pytest.mark.parametrize('steps, changed', [
    (1, {}), (2, {}), (1, {'clip_norm': 'adaptive', 'noise_multiplier': 0.1}),
    (1, {'average': 'ema', 'max_batch_size': None}),
])
def test_honest_steps_keep_their_claim(steps, changed):
  result = _audited(0, steps=steps, **changed)
  assert not result.violated and result.judged, str(result)
  assert len(result.sites) >= steps


_ADD = additive.add_gaussian_noise
_FINISH = train_step.make_finish


def _a_third(key, values, stddevs):
  return _ADD(key, values, jax.tree.map(lambda stddev: stddev / 3, stddevs))


def _divided_by_the_drawn_size(**given):
  finish = _FINISH(**given)

  def divided(state, sums, size, draws=None):
    factor = given['sampler'].expected_batch_size / jnp.maximum(
        size, 1).astype(jnp.float32)
    return finish(state, sums._replace(total=tree.scale(factor, sums.total)),
                  size, draws)

  return divided


# Where the fault is planted, what takes that place, other settings, and what
# the replay says.
_FAULTS = {
    'no noise': (additive, 'add_gaussian_noise',
                 lambda key, values, stddevs: values, {}, 'without noise'),
    'a third of the noise': (additive, 'add_gaussian_noise', _a_third, {},
                             'more than the claimed noise allows'),
    'the same noise in two steps': (
        additive, 'add_gaussian_noise',
        lambda key, *rest: _ADD(jax.random.key(1), *rest), {'steps': 2},
        'without noise'),
    'no clipping': (weighted, 'clip', lambda norms, bound: jnp.ones_like(norms),
                    {}, 'more than the claimed noise allows'),
    'all records in each batch': (
        PoissonSampler, 'draw', lambda self, key: Selection(
            jnp.arange(4, dtype=jnp.int32), jnp.int32(4)), {'batch_size': 0.5},
        'sampled more often than claimed'),
    'division by the drawn size': (
        train_step, 'make_finish', _divided_by_the_drawn_size, {},
        'more than the claimed noise allows'),
}
# The counts of 10,000 runs do not refute its claim on this pair.
_SUSPECT_ONLY = 'division by the drawn size'


def _audited_with(fault, sampled_runs):
  where, name, replacement, changed, what = _FAULTS[fault]
  with mock.patch.object(where, name, replacement):
    return _audited(sampled_runs, **changed), what


@pytest.mark.every(9)
@pytest.mark.parametrize('fault', _FAULTS)
def test_the_replay_says_where_to_look(fault):
  result, what = _audited_with(fault, 0)
  suspect, = result.suspects
  assert not result.judged and what in suspect.what


@pytest.mark.slow
@pytest.mark.parametrize('fault', _FAULTS)
def test_counts_of_runs_refute_the_claim_of_a_faulty_step(fault):
  result, _ = _audited_with(fault, 10_000)
  assert result.violated == (fault != _SUSPECT_ONLY), str(result)
