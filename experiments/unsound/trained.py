"""Audits training by Algorithm 8: breast cancer data, with one record added.

The added record is legal: each feature is at one of its public bounds, and its
label is the class it is farthest from. Its norm is three times that of a
typical record, so bounded inputs do not make Algorithm 8 private (erratum E1).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import empirical
from dpjax.data import registry
from dpjax.data import splits
from dpjax.lipschitz import losses
from dpjax.train import evaluate
from dpjax.typing import Array, Batch, PRNGKey
from experiments.methods.training import algorithm_8

_WIDTH = 8
_PARALLEL = 100
_WEIGHT_NORM = 1.0
_LEARNING_RATE = 1.0
_TEST_FRACTION = 0.2


class Experiment(NamedTuple):
  """Neighbouring data sets, and records to test on.

  Attributes:
    records: n training records, and the added one in the last row.
    test: held-out records.
    num_classes: number of classes.
  """
  records: Batch
  test: Batch
  num_classes: int


class Outcomes(NamedTuple):
  """Privacy losses and accuracies of r training runs.

  Attributes:
    statistics: [r] log-likelihood ratios, with the added record against
      without; a step that released NaN or infinity adds 0.
    accuracies: [r] accuracy on the held-out records.
  """
  statistics: np.ndarray
  accuracies: np.ndarray


def load(*, seed: int, data_dir: str | None = None) -> Experiment:
  """Reads the data, splits it at random and makes the added record.

  Args:
    seed: seed of the split.
    data_dir: data folder; None for the default.
  """
  dataset = registry.load('breast_cancer', data_dir=data_dir)
  split = splits.train_test_split(
      jax.random.key(seed), dataset.x.shape[0], test_fraction=_TEST_FRACTION)
  x, y = dataset.x[split.train], dataset.y[split.train]
  means = [jnp.mean(x[y == label], 0) for label in (0, 1)]
  corner = jnp.where(means[1] > means[0], 1.0, -1.0)
  records = Batch(jnp.concatenate([x, corner[None]]),
                  jnp.concatenate([y, jnp.zeros([1], y.dtype)]))
  test = Batch(dataset.x[split.test], dataset.y[split.test])
  return Experiment(records, test, dataset.num_classes)


def make_algorithm(*, noise_multiplier: float,
                   sampling_prob: float) -> algorithm_8.PrintedLipDpSgd:
  """Returns Algorithm 8 with cross entropy at temperature 1, tau = sqrt 2.

  Args:
    noise_multiplier: sigma, noise deviation over the claimed sensitivity.
    sampling_prob: probability that a record joins a batch.
  """
  loss = losses.cross_entropy()
  return algorithm_8.PrintedLipDpSgd(
      loss=loss.values, loss_lipschitz=loss.lipschitz,
      noise_multiplier=noise_multiplier,
      weight_norm=_WEIGHT_NORM, learning_rate=_LEARNING_RATE,
      sampling_prob=sampling_prob, allow_unsound=True)


def initial_kernels(key: PRNGKey, *, num_features: int, num_classes: int,
                    num_layers: int) -> algorithm_8.Kernels:
  """Draws public initial weights of variance 1 / (inputs of the layer)."""
  sizes = [num_features, *[_WIDTH] * (num_layers - 1), num_classes]
  keys = jax.random.split(key, num_layers)
  return tuple(
      jax.random.normal(keys[layer], [fan_in, fan_out]) / fan_in**0.5
      for layer, (fan_in, fan_out)
      in enumerate(zip(sizes[:-1], sizes[1:], strict=True)))


def run_many(key: PRNGKey, algorithm: algorithm_8.PrintedLipDpSgd,
             kernels: algorithm_8.Kernels, experiment: Experiment, *,
             present: bool, num_steps: int, num_runs: int) -> Outcomes:
  """Trains `num_runs` times on one of the two data sets.

  Args:
    key: key of batches and noise.
    algorithm: Algorithm 8 as printed.
    kernels: initial weights, the same for all runs.
    experiment: the records and the held-out records.
    present: whether the added record is in the data set.
    num_steps: number of steps of each run.
    num_runs: number of runs.
  """
  parallel = min(_PARALLEL, num_runs)
  groups = -(-num_runs // parallel)
  ratios_and_accuracies = _train(
      jax.random.split(key, [groups, parallel]), algorithm.init(kernels),
      experiment, jnp.asarray(present), algorithm=algorithm,
      num_steps=num_steps)
  return Outcomes(*(np.asarray(values).ravel()[:num_runs]
                    for values in ratios_and_accuracies))


@functools.partial(jax.jit, static_argnames=('algorithm', 'num_steps'))
def _train(keys, start, experiment, present, *, algorithm, num_steps):
  """Returns ratios and accuracies of runs, each of the shape of `keys`."""
  records, test = experiment.records, experiment.test
  members = jnp.ones(records.y.shape, jnp.bool_).at[-1].set(present)

  def observe(state, released):
    return _log_ratio(algorithm, records, state, released)

  def one_run(key):
    state, ratios = algorithm.run(key, start, *records, members,
                                  num_steps=num_steps, observe=observe)
    accuracy = evaluate.accuracy(algorithm.logits, state.kernels, test,
                                 jnp.arange(test.y.shape[0]))
    return jnp.sum(ratios), accuracy

  return jax.lax.map(jax.vmap(one_run), keys)


def _log_ratio(algorithm: algorithm_8.PrintedLipDpSgd, records: Batch,
               state: algorithm_8.State, released: algorithm_8.Released
               ) -> Array:
  """Returns the log-likelihood ratio of one step for the added record.

  The attacker knows all other records. The ratio is ln(1 - q + q e^r) for the
  sampling probability q, where r is the log-ratio of normal densities of the
  release: an average batch with the record against one without it.
  """
  prob = algorithm.sampling_prob
  added = jnp.zeros(records.y.shape, jnp.bool_).at[-1].set(True)
  size = records.y.shape[0] - 1
  # If all inputs of a layer are 0, the printed division is 0 / 0: 0 here.
  common_sums, added_sums = (
      jax.tree.map(jnp.nan_to_num, algorithm.scaled_sums(
          state.kernels, *records, rows)) for rows in (~added, added))
  norms = algorithm.input_norms(state.kernels, records.x)
  stddevs = algorithm.noise_multiplier * algorithm.sensitivities(state.norms)
  total = jnp.float32(0)
  for layer, stddev in enumerate(stddevs):
    largest, added_norm = jnp.max(norms[layer][:-1]), norms[layer][-1]
    mean_without = prob * common_sums[layer]
    # The batch is divided by its largest input, perhaps that of the record.
    mean_with = (largest * mean_without + added_norm * added_sums[layer]
                 ) / jnp.maximum(largest, added_norm)
    release = prob * size * released.gradients[layer]
    total += jnp.sum((mean_with - mean_without) * (
        release - (mean_with + mean_without) / 2)) / stddev**2
  ratio = empirical.subsampled_log_ratio(total, sampling_prob=prob)
  return jnp.where(jnp.isfinite(ratio), ratio, 0.0)
