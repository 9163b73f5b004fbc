"""Training steps of jax_privacy."""

import functools

import jax

from dpjax.typing import PRNGKey, PyTree
from experiments.benchmarks import architectures
from experiments.benchmarks import jax_nets
from experiments.benchmarks import jax_steps
from experiments.benchmarks import methods
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec


def make(spec: Spec) -> Program:
  """Returns a step with the clipped gradients and the noise of jax_privacy."""
  import jax_privacy
  from jax_privacy import noise_addition
  apply = functools.partial(jax_nets.apply, architectures.MODELS[spec.model])
  name, _ = methods.split(spec.method)
  clipped = jax_privacy.clipped_grad(
      lambda params, x, y: jax_steps.cross_entropy(apply(params, x), y).mean(),
      l2_clip_norm=spec.clip_norm, batch_argnums=(1, 2),
      microbatch_size=(jax_steps.microbatch(spec.size)
                       if name == 'jax_privacy_microbatch' else None))

  def noisy(key: PRNGKey, total: PyTree) -> PyTree:
    noise = noise_addition.gaussian_privatizer(
        stddev=spec.noise_multiplier * spec.clip_norm, prng_key=key)
    return noise.update(total, noise.init(total))[0]

  rule = jax_steps.plain(
      spec, lambda params, batch, mask: clipped(params, batch.x, batch.y),
      noisy)
  # jax_privacy relies on the default of JAX, which tests change.
  with jax.numpy_rank_promotion('allow'):
    return jax_steps.program(rule, spec)
