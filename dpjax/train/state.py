"""State of a training run, and the diagnostics of a step."""

from typing import NamedTuple

import jax

from dpjax.grads.bounder import Certificate
from dpjax.typing import Array, Params, PRNGKey, PyTree


class Streams(NamedTuple):
  """Independent random keys of one run, one for each purpose.

  Attributes:
    init: for the initial parameters; may be public and of another generator.
    batch: for the sampled batches; secret.
    noise: for the noise; secret.
    augment: for augmented views; secret.
  """
  init: PRNGKey
  batch: PRNGKey
  noise: PRNGKey
  augment: PRNGKey


def streams(key: PRNGKey) -> Streams:
  """Derives the keys of a run from its key, one for each purpose."""
  # `augment` is folded in, because a longer split would change the other keys.
  init, batch, noise = jax.random.split(key, 3)
  return Streams(init, batch, noise, augment=jax.random.fold_in(key, 3))


@jax.jit
def streams_of_each(keys: PRNGKey) -> Streams:
  """Derives the keys of several runs from their keys [L], see `streams`.

  It is compiled as a whole, which is faster than operation by operation.
  """
  return jax.vmap(streams)(keys)


class TrainState(NamedTuple):
  """Everything that the next step reads.

  Attributes:
    params: parameters; they satisfy the weight constraint.
    certificate: norm bounds on `params` that the weight constraint guarantees.
    optimizer: state of the privatizer and of the optimiser.
    step: number of steps that have run, int32.
    keys: the run's keys; secret but for `init`.
    radii: clip norms or ball radii of an adaptive bounder for the next step;
      public. () if nothing adapts.
    average: an `averaging.AverageState`; public. () if none is kept.
  """
  params: Params
  certificate: Certificate
  optimizer: PyTree
  step: Array
  keys: Streams
  radii: PyTree = ()
  average: PyTree = ()


class StepInfo(NamedTuple):
  """Diagnostics of one step; PRIVATE fields must not be released.

  Attributes:
    l2_sensitivity: [K] l2 sensitivities of the noised blocks; public.
    joint_noise_multiplier: smallest of all steps so far; public. Infinite for
      a run without noise.
    mean_loss: exact sum of losses over the expected batch size. PRIVATE.
    batch_size: number of records in the sampled batch. PRIVATE.
    num_nonfinite: records whose contribution was not finite and was replaced
      by zero. PRIVATE.
    radii: bounds used in this step if they adapt, else (); public.
  """
  l2_sensitivity: Array
  joint_noise_multiplier: Array
  mean_loss: Array
  batch_size: Array
  num_nonfinite: Array
  radii: PyTree = ()
