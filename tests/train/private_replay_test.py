"""Record and replay of a step of `make_private`, right and with faults."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.audit import claims
from dpjax.audit import replay
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.grads import privatizer
from dpjax.grads import weighted
from dpjax.privacy.adjacency import Adjacency
from dpjax.train.private import make_private

_X = np.array([[30.0, -9.0], [0.5, 0.5], [1.0, -1.0], [0.2, 2.0]], np.float32)
_ALL = np.ones(4, np.float32)


def _loss(params, record, rng):
  kept = jax.random.bernoulli(rng, 0.9, (2,))
  return record['present'] * jnp.vdot(jnp.where(kept, record['x'], 0.0),
                                      params)


def _audited():
  """Returns the replay of a step on data sets with and without a record."""
  private = make_private(_loss, optax.sgd(1.0), per='record', num_examples=4,
                         batch_size=2, noise_multiplier=1.0, steps=1,
                         max_batch_size=1)
  private.init(jnp.zeros(2))

  def release(key, present):
    state = private.init(jnp.zeros(2), key=key)
    after, _ = private.step(state, {'x': jnp.asarray(_X), 'present': present})
    return after.params

  return replay.audit(jax.random.key(0), Target(
      name='step', release=release, claim=claims.of_event(
          private.plan.event, delta=1e-5,
          adjacency=Adjacency.ADD_OR_REMOVE_ONE), pairs=(Pair(
              _ALL, _ALL * (np.arange(4) > 0), 'a large record'),)),
                      num_keys=64, sampled_runs=0)


_FAULTS = {
    'the noise is forgotten': mock.patch.object(
        privatizer.additive, 'add_gaussian_noise',
        lambda key, values, stddevs: values),
    'clipping is forgotten': mock.patch.object(
        weighted, 'clip', lambda norms, bound: jnp.ones_like(norms)),
}


@pytest.mark.every(2)
@pytest.mark.parametrize('fault', ['none', *_FAULTS])
def test_a_step_keeps_its_claim_and_faults_are_found(fault):
  if fault == 'none':
    result = _audited()
    assert not result.violated and result.judged, str(result)
    return
  with _FAULTS[fault]:
    result = _audited()
  # Whether the record is in the sample is random, so that only counts of many
  # runs would convict the step: the replay says what to look at.
  suspect, = result.suspects
  assert not result.judged
  if fault == 'clipping is forgotten':
    assert suspect.sensitivity > 10 and suspect.epsilon > 10
  else:
    assert 'without noise' in suspect.what and suspect.epsilon == np.inf
