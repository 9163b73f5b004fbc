"""Trains a recipe with several seeds in one program, and states its privacy."""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple
import zlib

import jax
import jax.numpy as jnp
import optax

from dpjax import features
from dpjax.grads.bounder import Method
from dpjax.lipschitz import losses
from dpjax.models import convnet
from dpjax.models import mlp
from dpjax.models.model import Model
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import AllocationSampler
from dpjax.sampling import PoissonSampler
from dpjax.sampling import Sampler
from dpjax.train import averaging
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import optimizers
from dpjax.train.averaging import AverageState
from dpjax.train.plan import private_plan
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch, Params, PRNGKey
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.entries import Recipe

ADJACENCY = Adjacency.ADD_OR_REMOVE_ONE
# Most float32 features of a batch, over all runs that advance at once.
_MOST_VALUES = 2**27
# Records of a batch that a CNN takes at once, by their gradients' memory.
_CNN_PART = 512
# Records that are whitened at once.
_BLOCK = 1000


Prepare = Callable[[Array], Array]
"""Features [b, h, w, c] -> what the network of a run takes."""


class Fit(NamedTuple):
  """L finished runs of one recipe.

  Attributes:
    plan: plan of each run, with the event of whitening.
    epsilon: epsilon of everything that a run released, at the delta of the
      entry, by PLD; of whitening, too.
    model: the network, without parameters.
    prepared: by run.
    params: parameters to evaluate, leaves [L, ...].
    initial: parameters before the first step, leaves [L, ...].
    seconds: training time of one run, without compilation.
  """
  plan: TrainingPlan
  epsilon: float
  model: Model
  prepared: tuple[Prepare, ...]
  params: Params
  initial: Params
  seconds: float


def keys(name: str, seeds: list[int]) -> PRNGKey:
  """Returns a key for each seed, of a stream with a name: [L].

  Reproducible: for research, not for a release.
  """
  stream = zlib.crc32(name.encode())
  return jnp.stack([jax.random.fold_in(jax.random.key(seed), stream)
                    for seed in seeds])


@functools.lru_cache(maxsize=64)
def plan(entry: Entry, recipe: Recipe, num_records: int) -> TrainingPlan:
  """Returns the plan of training, with whitening at the budget of an entry.

  Args:
    entry: has the budget.
    recipe: has batches, steps and the accountant that calibrates the noise.
    num_records: public number of training records.
  """
  sampler = _sampler(recipe, num_records)
  whitening = _whitening(recipe, num_records) if recipe.whitening else None
  return private_plan(
      num_examples=num_records, batch_size=sampler.batch_size,
      num_steps=recipe.num_steps, epsilon=entry.epsilon, delta=entry.delta,
      sampler=sampler, adjacency=ADJACENCY, accountant=recipe.accountant,
      before=None if whitening is None else whitening.event)


def fit(entry: Entry, recipe: Recipe, records: Batch, rows: Array, *,
        num_classes: int, run_keys: PRNGKey, init_keys: PRNGKey,
        on_progress: Callable[[int, int], None] | None = None) -> Fit:
  """Trains a recipe with L keys, each run private at the budget of the entry.

  Args:
    entry: has the budget.
    recipe: what to train.
    records: features [n, h, w, c] and labels of at least the training records.
    rows: [L, m] numbers of the records of each run.
    num_classes: public number of classes.
    run_keys: [L] keys of batches and noise, and of whitening.
    init_keys: [L] public keys of the initial parameters.
    on_progress: called with (steps done, steps in total).
  """
  planned = plan(entry, recipe, rows.shape[1])
  train = functools.partial(_trained, recipe, planned, num_classes=num_classes)
  if not recipe.whitening:
    prepare = functools.partial(inputs, recipe)
    model, params, initial, seconds = train(
        records._replace(x=prepare(records.x)), rows, run_keys, init_keys,
        on_progress=on_progress)
    prepared = (prepare,) * len(rows)
  else:
    # Each run has features of its own, so runs follow each other.
    whitening = _whitening(recipe, rows.shape[1])
    runs, prepared = [], ()
    for run, key in enumerate(run_keys):
      first, second = jax.random.split(key)
      whiten = whitening.release(first, records.x[rows[run]])
      prepare = functools.partial(_whitened, recipe, whiten)
      one = slice(run, run + 1)
      runs.append(train(
          records._replace(x=prepare(records.x)), rows[one], second[None],
          init_keys[one], on_progress=None if on_progress is None else
          lambda done, total, run=run: on_progress(
              run * total + done, len(rows) * total)))
      prepared += (prepare,)
    model, _, _, seconds = runs[0]
    params, initial = (jax.tree.map(
        lambda *leaves: jnp.concatenate(leaves), *trees)
                       for trees in list(zip(*runs))[1:3])
    seconds = sum(each[3] for each in runs) / len(runs)
  return Fit(planned, planned.epsilon(entry.delta), model, prepared, params,
             initial, seconds)


def _trained(recipe: Recipe, planned: TrainingPlan, records: Batch, rows: Array,
             run_keys: PRNGKey, init_keys: PRNGKey, *, num_classes: int,
             on_progress: Callable[[int, int], None] | None
             ) -> tuple[Model, Params, Params, float]:
  """Trains L runs on records that are prepared; see `Fit` for the results."""
  shape = records.x.shape[1:]
  model = _model(recipe, shape, num_classes)
  values = planned.sampler.part_size * math.prod(shape)
  result = loop.fit(
      run_keys, init_keys=init_keys, plans=[planned] * len(rows), model=model,
      method=_method(recipe, model), optimizer=_optimizer(recipe),
      records=records, rows=rows, on_progress=on_progress,
      averaging=averaging.named(
          None if recipe.average == 'none' else recipe.average),
      max_parallel=max(1, _MOST_VALUES // values))
  average = result.state.average
  return (model, average.mean if isinstance(average, AverageState) else
          result.state.params, jax.vmap(model.init)(init_keys),
          result.train_seconds / len(rows))


def inputs(recipe: Recipe, x: Array) -> Array:
  """Returns features [n, h, w, c] in the shape that the model takes."""
  return x.reshape(len(x), -1) if recipe.model == 'linear' else x


def _whitening(recipe: Recipe, num_records: int) -> features.PrivateWhitening:
  return features.PrivateWhitening(
      noise_multiplier=recipe.whitening, num_examples=num_records,
      adjacency=ADJACENCY, floor=recipe.floor)


def _whitened(recipe: Recipe, whiten: Prepare, x: Array) -> Array:
  """Returns whitened features whose mean square is 1, as the model takes them.

  So the part of a bias in the norm of a gradient is small.
  """
  scale = jnp.float32(math.sqrt(math.prod(x.shape[1:])))
  return inputs(recipe, jax.lax.map(
      lambda record: whiten(record[None])[0] * scale, x, batch_size=_BLOCK))


def _sampler(recipe: Recipe, num_records: int) -> Sampler:
  """Returns the sampler; random allocation divides the records evenly."""
  # Larger batches are processed in parts, which changes no result.
  part = _CNN_PART if recipe.model == 'cnn' else None
  if recipe.sampler == 'poisson':
    return PoissonSampler(num_examples=num_records, max_batch_size=part,
                          batch_size=min(recipe.batch_size, num_records))
  steps = max(1, round(num_records / recipe.batch_size))
  return AllocationSampler(num_examples=num_records, max_batch_size=part,
                           batch_size=num_records / steps)


def _model(recipe: Recipe, shape: tuple[int, ...], num_classes: int) -> Model:
  """Returns the network on inputs of a shape."""
  if recipe.model == 'linear':
    return mlp.mlp(num_features=math.prod(shape), num_classes=num_classes,
                   depth=0)
  height, width, channels = shape
  return convnet.convnet(
      input_shape=(height, width, channels), num_classes=num_classes,
      channels=(64,), width=64, activation='tanh', pool='average')


def _method(recipe: Recipe, model: Model) -> Method:
  """Returns DP-SGD with the clipping of the recipe."""
  make = {'flat': methods.dp_sgd, 'automatic': methods.dp_sgd_automatic}
  return make[recipe.clipping](model, losses.cross_entropy(),
                               clip_norm=recipe.clip_norm)


def _optimizer(recipe: Recipe) -> optax.GradientTransformation:
  return optimizers.named(recipe.optimizer, recipe.learning_rate,
                          schedule=recipe.schedule,
                          num_steps=recipe.num_steps)
