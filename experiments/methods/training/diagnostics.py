"""Measures how close gradients come to their bounds, and the noise.

All but the noise and the bounds are exact statistics of private records, and
must never be released.
"""

from collections.abc import Sequence
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import tree
from dpjax.audit import whitebox
from dpjax.grads.bounder import Method
from dpjax.privacy import blocks
from dpjax.runs import building
from dpjax.runs import training
from dpjax.typing import Array, Batch, Params, PyTree
from experiments import records
from experiments import rows

# Training records whose mean contribution is measured.
_MEAN_OF = 4096


class Diagnostics(NamedTuple):
  """Sensitivities and noise of one trained model with K blocks.

  Attributes:
    realised: [K] largest norm of a contribution over its bound, among some
      training records at the last parameters.
    signal: [K] norm of the mean contribution over the bound, at fresh initial
      parameters. At a given privacy budget, the ratio of signal to noise of a
      block is proportional to it; docs/lipschitz.md has the theorem.
    sensitivities: [K] bounds of the blocks; public, like the parameters.
    noise_norm: root mean square norm of the noise on an averaged update.
  """
  realised: np.ndarray
  signal: np.ndarray
  sensitivities: np.ndarray
  noise_norm: float


def diagnose(results: Sequence[training.TrainingResult],
             dataset: building.Dataset, *,
             probe_size: int) -> list[Diagnostics]:
  """Returns diagnostics of jointly trained runs.

  Args:
    results: training results of a private method.
    dataset: data set that the runs were trained on, as it was loaded.
    probe_size: largest number of training records whose contributions are
      measured one by one.
  """
  first = results[0].config
  dataset = building.prepare(first, dataset)
  model = building.make_model(first, dataset)
  method = building.make_method(first, model, dataset)
  examples = dataset.records
  examples = examples._replace(x=jax.jit(model.prepare)(examples.x))

  def measure(params, start, numbers):
    params, certificate = method.constraint.constrain(params)
    sensitivity = method.bounder.l2_sensitivity(certificate)
    sizes = tree.block_sizes(sensitivity, params)
    stddevs = blocks.allocate(
        jnp.stack(jax.tree.leaves(sensitivity)), noise_multiplier=1.0,
        sizes=sizes, rule=first.allocation)
    return (
        _realised(method, params, certificate, examples, numbers[:probe_size]),
        _signal(method, start, examples, numbers),
        jnp.stack(jax.tree.leaves(sensitivity)),
        jnp.sqrt(jnp.sum(jnp.asarray(sizes, jnp.float32)
                         * jnp.square(stddevs))))

  params = jax.tree.map(lambda *leaves: jnp.stack(leaves),
                        *[result.params for result in results])
  starts = jax.vmap(model.init)(jax.random.split(jax.random.key(0),
                                                 len(results)))
  numbers = jnp.stack([training.split_rows(result.config, dataset).train[
      :max(probe_size, _MEAN_OF)] for result in results])
  outcome = jax.jit(lambda *each: jax.lax.map(lambda one: measure(*one), each))(
      params, starts, numbers)
  return [
      Diagnostics(*blockwise, float(
          unit * result.plan.noise_multiplier
          / result.plan.sampler.expected_batch_size))
      for *blockwise, unit, result in zip(
          *map(np.asarray, outcome), results, strict=True)
  ]


def _realised(method: Method, params: Params, certificate: PyTree,
              examples: Batch, numbers: Array) -> Array:
  """Returns [K] the largest norm of a record's contribution over its bound."""
  def ratios(number):
    record = jax.tree.map(lambda leaf: leaf[number][None], examples)
    outcome = whitebox.contribution(method, params, certificate, record)[1]
    return jnp.stack(jax.tree.leaves(outcome))

  return jnp.max(jax.vmap(ratios)(numbers), 0)


def _signal(method: Method, params: Params, examples: Batch,
            numbers: Array) -> Array:
  """Returns [K] the norm of the mean contribution over its bound."""
  params, certificate = method.constraint.constrain(params)
  bounds = method.bounder.l2_sensitivity(certificate)
  sums = method.bounder.sums(
      params, jax.tree.map(lambda leaf: leaf[numbers], examples),
      jnp.ones([numbers.size], jnp.bool_))
  norms = map(tree.global_norm, tree.blocks(bounds, sums.total))
  return jnp.stack([norm / (bound * numbers.size) for norm, bound in zip(
      norms, jax.tree.leaves(bounds), strict=True)])


def realised_rows(setting: Any, result: training.TrainingResult,
                  diagnosis: Diagnostics) -> list[records.Row]:
  """Returns rows of realised bounds and of signals, which are not private.

  Args:
    setting: the setting of the run, see `rows.trained`.
    result: result of the run.
    diagnosis: its diagnostics.
  """
  realised, signal = diagnosis.realised, diagnosis.signal
  return rows.trained(setting, result, dict(
      realised_first=realised[0], realised_last=realised[-1],
      realised_largest=max(realised), signal_first=signal[0],
      signal_last=signal[-1]), epsilon=math.inf)
