"""What a run needs next, and what one may look at."""

from typing import NamedTuple

import jax

from dpjax.grads.bounder import Certificate
from dpjax.typing import Array, Params, PRNGKey, PyTree


class Streams(NamedTuple):
  """Independent key streams of one run, derived once."""
  init: PRNGKey
  batch: PRNGKey
  noise: PRNGKey


def streams(key: PRNGKey) -> Streams:
  """Splits a run's key by purpose."""
  return Streams(*jax.random.split(key, len(Streams._fields)))


class TrainState(NamedTuple):
  """What the next step needs.

  Attributes:
    params: parameters, already constrained.
    certificate: what the weight constraint proves of `params`.
    optimizer: state of privatizer and optimiser.
    step: how many steps have run.
    keys: the run's key streams.
  """
  params: Params
  certificate: Certificate
  optimizer: PyTree
  step: Array
  keys: Streams


class StepInfo(NamedTuple):
  """What one may look at after a step; all but two fields are private.

  Attributes:
    l2_sensitivity: [K] bounds of the blocks; public.
    joint_noise_multiplier: smallest so far; public (infinite: no noise).
    mean_loss: exact sum of losses over the expected batch size. PRIVATE.
    batch_size: realised. PRIVATE.
    num_nonfinite: records that counted as zero. PRIVATE.
  """
  l2_sensitivity: Array
  joint_noise_multiplier: Array
  mean_loss: Array
  batch_size: Array
  num_nonfinite: Array
