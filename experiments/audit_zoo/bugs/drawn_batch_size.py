"""The mean over the drawn batch gets noise for the expected batch size.

If few records are drawn, each of them moves the mean by 1 over their number,
which is more than 1 over the expected size. The fixed twin divides by the
expected size, so that its release is a noisy sum of clipped records, Poisson
sampled, times a public constant: the event of the claim.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _RATE, _EXPECTED = 4.0, 0.5, 4


def _step(key: PRNGKey, records: Array, drawn: bool) -> Array:
  """Returns a noisy mean gradient, [1]."""
  batch_key, noise_key = jax.random.split(key)
  gradients = records[:, None]
  batch = training.in_batch(batch_key, gradients, _RATE)
  total = jnp.sum(batch * training.clipped(gradients, 1.0), axis=0)
  size = jnp.maximum(batch.sum(), 1.0) if drawn else _EXPECTED
  return total / size + _SIGMA / _EXPECTED * jax.random.normal(noise_key, (1,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, drawn=True)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, drawn=False)


BUG = bug.Bug(
    name='drawn_batch_size',
    title='The gradients are averaged over the batch that was drawn, while the '
    'noise is scaled for the expected batch size.',
    source='proposed in Opacus, issue 420, '
    'https://github.com/meta-pytorch/opacus/issues/420; Barczewski (2025), '
    'Algorithm 8, divides by the drawn size as well',
    claim=training.gaussian_claim(_SIGMA, sampling_prob=_RATE),
    # A batch of one record: its gradient 1 has noise of deviation 4 / 4.
    true_epsilon=training.gaussian_claim(
        _SIGMA / _EXPECTED, sampling_prob=_RATE).epsilon,
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(-1.0, 1.0)),
    worst=Pair(np.ones([1], np.float32), np.zeros([0], np.float32),
               'one record or none'))
