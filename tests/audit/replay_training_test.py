"""Record and replay on a step of private training, with a bounder of dpjax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.audit import claims
from dpjax.audit import replay
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.grads import per_example
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Batch

_RATE, _NOISE = 0.4, 1.0
_X = np.array([[30.0, -9.0], [0.5, 0.5], [1.0, -1.0], [0.2, 2.0]], np.float32)


def _apply(params, x):
  return x @ params['layer']['kernel']


def _loss(logits, labels):
  return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None],
                              1)[:, 0]


def _step(bounder, bound):
  """Returns the noisy sum of gradients of a Poisson sample."""
  params = {'layer': {'kernel': jnp.zeros([2, 2])}}
  batch = Batch(jnp.asarray(_X), jnp.zeros([4], jnp.int32))

  def release(key, present):
    which, noise = jax.random.split(key)
    mask = jax.random.bernoulli(which, _RATE, present.shape) & present
    total = bounder.sums(params, batch, mask).total['layer']['kernel']
    return additive.add_gaussian_noise(noise, total, _NOISE * bound)
  return release


@pytest.mark.slow
@pytest.mark.parametrize('clipped', [True, False])
def test_a_step_with_and_without_clipping(clipped):
  bounder = (per_example.clipped(_apply, _loss, clip_norm=1.0) if clipped
             else per_example.summed(_apply, _loss))
  present = np.ones(4, bool)
  claim = claims.of_event(accounting.poisson_gaussian_event(
      sampling_prob=_RATE, noise_multiplier=_NOISE, num_steps=1), delta=1e-5,
                          adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  result = replay.audit(jax.random.key(0), Target(
      name='step', release=_step(bounder, 1.0), claim=claim,
      pairs=(Pair(present, present & (np.arange(4) > 0), 'a large record'),)),
                        sampled_runs=0)
  assert result.violated != clipped and result.judged, str(result)
  if not clipped:
    assert result.findings[0].sensitivity > 10
