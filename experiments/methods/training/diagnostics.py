"""Measures how close records come to their bounds, and the noise."""

from collections.abc import Sequence
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import tree
from dpjax.audit import whitebox
from dpjax.privacy import blocks
from dpjax.runs import building
from dpjax.runs import training
from experiments import records
from experiments import rows


class Diagnostics(NamedTuple):
  """Sensitivities and noise of one trained model with K blocks.

  Attributes:
    realised: [K] largest norm of a contribution over its bound, among some
      training records: an exact statistic of private records, never released.
    sensitivities: [K] bounds of the blocks; public, like the parameters.
    noise_norm: root mean square norm of the noise on an averaged update.
  """
  realised: np.ndarray
  sensitivities: np.ndarray
  noise_norm: float


def diagnose(results: Sequence[training.TrainingResult],
             dataset: building.Dataset, *,
             probe_size: int) -> list[Diagnostics]:
  """Returns diagnostics of jointly trained runs, at their last parameters.

  Args:
    results: training results of a private method.
    dataset: data set that the runs were trained on, as it was loaded.
    probe_size: largest number of training records whose contributions are
      measured.
  """
  first = results[0].config
  dataset = building.prepare(first, dataset)
  model = building.make_model(first, dataset)
  method = building.make_method(first, model)
  examples = dataset.records
  examples = examples._replace(x=jax.jit(model.prepare)(examples.x))

  def largest(params, numbers):
    params, certificate = method.constraint.constrain(params)
    sensitivity = method.bounder.l2_sensitivity(certificate)

    def ratios(number):
      record = jax.tree.map(lambda leaf: leaf[number][None], examples)
      outcome = whitebox.contribution(method, params, certificate, record)[1]
      return jnp.stack(jax.tree.leaves(outcome))

    stddevs = blocks.allocate(
        jnp.stack(jax.tree.leaves(sensitivity)), noise_multiplier=1.0,
        sizes=tree.block_sizes(sensitivity, params), rule=first.allocation)
    sizes = jnp.asarray(tree.block_sizes(sensitivity, params), jnp.float32)
    return (jnp.max(jax.vmap(ratios)(numbers), 0),
            jnp.stack(jax.tree.leaves(sensitivity)),
            jnp.sqrt(jnp.sum(sizes * jnp.square(stddevs))))

  params = jax.tree.map(lambda *leaves: jnp.stack(leaves),
                        *[result.params for result in results])
  numbers = jnp.stack([training.split_rows(result.config, dataset).train[
      :probe_size] for result in results])
  outcome = jax.jit(lambda *each: jax.lax.map(lambda one: largest(*one), each))(
      params, numbers)
  return [
      Diagnostics(realised, sensitivities, float(
          unit * result.plan.noise_multiplier
          / result.plan.sampler.expected_batch_size))
      for realised, sensitivities, unit, result in zip(
          *map(np.asarray, outcome), results, strict=True)
  ]


def realised_rows(setting: Any, result: training.TrainingResult,
                  diagnosis: Diagnostics) -> list[records.Row]:
  """Returns rows of the realised share of the bounds, which is not private.

  Args:
    setting: the setting of the run, see `rows.trained`.
    result: result of the run.
    diagnosis: its diagnostics.
  """
  realised = diagnosis.realised
  return rows.trained(setting, result, dict(
      realised_first=realised[0], realised_last=realised[-1],
      realised_largest=max(realised)), epsilon=math.inf)
