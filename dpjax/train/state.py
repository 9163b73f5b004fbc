"""What a run needs next, and what one may look at."""

from typing import NamedTuple

import jax

from dpjax.grads.bounder import Certificate
from dpjax.train.averaging import AverageState
from dpjax.typing import Array, Params, PRNGKey, PyTree


class Streams(NamedTuple):
  """Independent key streams of one run, derived once.

  All but `init` are secret. `init` may be public and of another generator.
  """
  init: PRNGKey
  batch: PRNGKey
  noise: PRNGKey
  augment: PRNGKey


def streams(key: PRNGKey) -> Streams:
  """Splits a run's key by purpose.

  Streams that came later are folded in: a longer split would change all.
  """
  return Streams(*jax.random.split(key, 3), augment=jax.random.fold_in(key, 3))


class TrainState(NamedTuple):
  """What the next step needs.

  Attributes:
    params: parameters, already constrained.
    certificate: what the weight constraint proves of `params`.
    optimizer: state of privatizer and optimiser.
    step: how many steps have run.
    keys: the run's key streams.
    radii: of an adaptive bounder, for the next step; public.
    average: averaged parameters, see `averaging`; public.
  """
  params: Params
  certificate: Certificate
  optimizer: PyTree
  step: Array
  keys: Streams
  radii: PyTree = ()
  average: AverageState | tuple[()] = ()


class StepInfo(NamedTuple):
  """What one may look at after a step; fields are private unless said so.

  Attributes:
    l2_sensitivity: [K] bounds of the blocks; public.
    joint_noise_multiplier: smallest so far; public (infinite: no noise).
    mean_loss: exact sum of losses over the expected batch size. PRIVATE.
    batch_size: realised. PRIVATE.
    num_nonfinite: records that counted as zero. PRIVATE.
    radii: what the step's contributions were bounded with, if that adapts;
      public.
  """
  l2_sensitivity: Array
  joint_noise_multiplier: Array
  mean_loss: Array
  batch_size: Array
  num_nonfinite: Array
  radii: PyTree = ()
