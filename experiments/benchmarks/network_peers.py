"""Steps of jax_privacy on the networks of `--suite=models`."""

from dpjax.typing import Params, PyTree
from experiments.benchmarks import network_steps
from experiments.benchmarks.network_steps import RecordLoss
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec


def make(spec: Spec) -> Program:
  """Returns a step with the clipped gradients of jax_privacy."""
  import jax_privacy

  def sums(loss: RecordLoss, params: Params, records: PyTree) -> Params:
    return jax_privacy.clipped_grad(
        loss, l2_clip_norm=spec.clip_norm, batch_argnums=1,
        keep_batch_dim=False)(params, records)

  return network_steps.program(spec, sums)
