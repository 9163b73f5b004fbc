"""Batch normalisation makes each gradient depend on all records of the batch.

Clipping bounds the norm of each gradient, but one record changes the mean and
the variance that all others are normalised by. The fixed twin normalises by
public constants, so that a record changes its own gradient only.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _LARGEST = 3.0, 100.0


def _noisy_sum(key: PRNGKey, inputs: Array, labels: Array) -> Array:
  """Returns the noisy sum [1] of the clipped gradients label * input."""
  gradients = training.clipped((labels * inputs)[:, None], 1.0)
  return jnp.sum(gradients, axis=0) + _SIGMA * jax.random.normal(key, (1,))


def _labels(records: Array) -> Array:
  return jnp.where(records[:, 1] > 0, 1.0, -1.0)


def _faulty(key: PRNGKey, records: Array) -> Array:
  inputs = records[:, 0]
  size = max(len(records), 1)
  centred = inputs - inputs.sum() / size
  variance = jnp.sum(jnp.square(centred)) / size
  return _noisy_sum(key, centred / jnp.sqrt(variance + 1e-5), _labels(records))


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _noisy_sum(key, records[:, 0] / _LARGEST, _labels(records))


def _sum_of(records: np.ndarray) -> float:
  """Returns the sum of the faulty gradients, without noise."""
  inputs = np.float64(records[:, 0])
  normalised = (inputs - inputs.mean()) / np.sqrt(inputs.var() + 1e-5)
  return float(np.clip(np.sign(records[:, 1]) * normalised, -1, 1).sum())


_BASE = np.array([[1, 1]] * 4 + [[-1, -1]] * 4, np.float32)
_WITH = np.concatenate([np.array([[_LARGEST, -1]], np.float32), _BASE])

BUG = bug.Bug(
    name='batch_norm',
    title='Batch normalisation couples the gradients of all records, and '
    'clipping each of them does not bound the effect of one record.',
    source='Opacus, issue 319, '
    'https://github.com/meta-pytorch/opacus/issues/319',
    claim=training.gaussian_claim(_SIGMA),
    true_epsilon=training.shift_epsilon(
        abs(_sum_of(_WITH) - _sum_of(_BASE)) / _SIGMA),
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(2,),
                         bounds=(-_LARGEST, _LARGEST)),
    worst=Pair(_WITH, _BASE, 'with (100, -1) or without, beside inputs that '
               'equal their labels'))
