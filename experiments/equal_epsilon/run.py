"""Trains with optimisers and designs, all seeds and parameters at once."""

from collections.abc import Iterator, Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax.data import images
from dpjax.data import registry
from dpjax.data import splits
from dpjax.models import mlp
from dpjax.models.model import Model
from dpjax.privacy.adjacency import Adjacency
from dpjax.train import evaluate
from dpjax.train import private as private_loops
from dpjax.train.user_loop import Private
from dpjax.typing import Array, Batch, PRNGKey
from experiments import records
from experiments.equal_epsilon import designs
from experiments.equal_epsilon import sweep
from experiments.equal_epsilon import techniques

DELTA = 1e-5
_BATCH, _CLIP, _WIDTH = 512, 1.0, 64
# Held out of the training records, to choose configurations by.
_HELD_OUT, _TEST = 0.1, 0.2


class Parts(NamedTuple):
  """Records of one data set and their division.

  Attributes:
    records: all records; x is [n, p] float32.
    train: numbers of the records that are trained on.
    held_out: of those for choosing a configuration.
    test: of those for the comparison.
    num_classes: number of labels.
  """
  records: Batch
  train: Array
  held_out: Array
  test: Array
  num_classes: int


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  first = settings[0]
  progress(0.0, f'{first.dataset} {first.design} {first.method}')
  parts = load(first.dataset, data_dir)
  private, model = plan(first, parts)
  numbers = [jnp.asarray([getattr(setting, name) for setting in settings],
                         dtype) for name, dtype in (
                             ('rate', jnp.float32), ('own', jnp.float32),
                             ('seed', jnp.uint32))]
  held_out, test = map(np.asarray, jax.jit(functools.partial(
      _accuracies, private, model, first))(parts, *numbers))
  epsilon, stddev = private.plan.epsilon(DELTA), mean_stddev(private)
  for place, setting in enumerate(settings):
    yield setting, [
        records.Row(
            seed=setting.seed, metric=metric, value=float(values[place]),
            n=private.sampler.num_examples, epsilon_requested=setting.epsilon,
            epsilon=epsilon, epsilon_valid=True,
            delta=DELTA, adjacency=Adjacency.ADD_OR_REMOVE_ONE.value,
            accountant='pld', method=setting.method, dataset=setting.dataset)
        for metric, values in (
            ('held_out_accuracy', held_out), ('test_accuracy', test),
            ('mean_stddev', [stddev] * len(settings)))]


def mean_stddev(private: Private) -> float:
  """Returns the size of the noise in the sum of all mean gradients.

  It is the root mean square over the steps of the standard deviations of noise
  in the sums so far, over the number of steps.
  """
  plan = private.plan
  steps = plan.num_steps
  unit = (np.sqrt(np.arange(1, steps + 1)) if plan.strategy is None else
          plan.strategy.prefix_deviations(steps))
  noise = _CLIP * (plan.noise_multiplier or 0.0)
  return float(noise * np.sqrt(np.mean(unit**2)) / (
      steps * plan.sampler.expected_batch_size))


@functools.cache
def load(dataset: str, data_dir: str | None) -> Parts:
  """Returns the records of a data set, divided the same way for all runs."""
  data = registry.load(dataset, data_dir=data_dir)
  whole = data.records
  whole = whole._replace(x=whole.x.reshape([whole.x.shape[0], -1]))
  # Public: the division into parts is the same for all methods and seeds.
  key = jax.random.key(2024)
  if isinstance(data, images.ImageDataset):
    split = splits.official_split(key, num_train=data.train.y.shape[0],
                                  num_test=data.test.y.shape[0])
  else:
    split = splits.train_test_split(key, whole.y.shape[0], test_fraction=_TEST)
  held_out = int(_HELD_OUT * split.train.size)
  return Parts(whole, split.train[held_out:], split.train[:held_out],
               split.test, data.num_classes)


def plan(setting: sweep.Setting, parts: Parts) -> tuple[Private, Model]:
  """Returns the private loop of a method and a design, and its network."""
  technique = techniques.TECHNIQUES[setting.method]
  design = designs.DESIGNS[setting.design]
  model = mlp.mlp(num_features=parts.records.x.shape[1], width=_WIDTH,
                  num_classes=parts.num_classes)

  def loss(trained: techniques.Trained, record: Batch) -> Array:
    return technique.loss(trained, lambda weights: optax.losses.
                          softmax_cross_entropy_with_integer_labels(
                              model.apply(weights, record.x[None])[0],
                              record.y))

  count = parts.train.size
  # A whole number of steps in an epoch, as random allocation needs it.
  epoch = max(4, round(count / _BATCH))
  sampler = design.sampler(count, count / epoch)
  strategy = design.strategy(setting.num_steps, epoch)
  return private_loops.make_private(
      loss, technique.optimizer(), num_examples=count, per='record',
      batch_size=sampler.batch_size, sampler=sampler,
      noise='independent' if strategy is None else strategy, clip_norm=_CLIP,
      epsilon=setting.epsilon, delta=DELTA, steps=setting.num_steps), model


def _accuracies(private: Private, model: Model, setting: sweep.Setting,
                parts: Parts, rates: Array, owns: Array, seeds: Array
                ) -> tuple[Array, Array]:
  """Returns held-out and test accuracies of all runs, each [L]."""
  technique = techniques.TECHNIQUES[setting.method]
  train = jax.tree.map(lambda leaf: leaf[parts.train], parts.records)

  def one(numbers: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    rate, own, seed = numbers
    # Reproducible: for research, not for a release.
    keys = jax.random.split(jax.random.key(seed))
    start = technique.start(model.init(keys[0]), rate, own)
    weights = technique.evaluated(_train(private, start, keys[1], train,
                                         setting.num_steps))
    return evaluate_on(parts.held_out, weights), evaluate_on(parts.test,
                                                             weights)

  evaluate_on = lambda rows, weights: evaluate.accuracy(
      model.apply, weights, parts.records, rows)
  return jax.lax.map(one, (rates, owns, seeds))


def _train(private: Private, start: techniques.Trained, key: PRNGKey,
           train: Batch, num_steps: int) -> techniques.Trained:
  """Returns what was trained, after all steps."""
  state, _ = jax.lax.scan(
      lambda state, _: (private.step(state, train)[0], None),
      private.init(start, key=key), length=num_steps)
  return private.model(state)
