"""Measures how clipping changes the mean gradient during training.

Catalogue item BIAS-04; Barczewski (2025, section 5.3.4 and Figure 5.3.3). At
some steps of a run, on a probe of its training records, it computes the mean
gradient g, the mean of the records' clipped contributions, and the distance
between the two. These are exact functions of private records: they are
diagnostics and must never be released.

The text calls g "the model update of Algorithm 8 without noise" (erratum E20),
but that update divides the gradient of each layer by the largest input norm of
the layer in the batch. It is measured as well ('printed').
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import tree
from dpjax.data import registry
from dpjax.grads import per_example
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.bounder import Method
from dpjax.lipschitz import losses
from dpjax.lipschitz import primitives
from dpjax.models.model import Model
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import run_keys
from dpjax.runs import training
from dpjax.runs import training_methods
from dpjax.train import evaluate
from dpjax.train import plan as plans
from dpjax.train import step as steps
from dpjax.typing import Array, Batch, Params, PRNGKey, PyTree
from experiments import papers

_BASES = {'sgd': 'sgd', 'clipped_sgd': 'dp_sgd', 'dp_sgd': 'dp_sgd',
          'lip_sgd': 'lip_dp_sgd', 'lip_dp_sgd': 'lip_dp_sgd',
          'lip_dp_sgd_logit_clip': 'lip_dp_sgd'}
_WITHOUT_NOISE = ('clipped_sgd', 'lip_sgd')
_EPSILONS = {line.dataset: line for line in papers.TABLE_5_4}
# A bound above the Lipschitz constant of the loss, so that no cotangent is
# shortened.
_NO_LOGIT_CLIP = 10.0
# A record counts as changed if its contribution differs by more than this, the
# rounding margin of clipping.
_CHANGED = 1e-3


class Measures(NamedTuple):
  """Measurements at one step of a run; all of them are PRIVATE.

  Attributes:
    gradient_norm: ||g||, the mean gradient of the probe.
    clipped_norm: ||mean of the contributions||, in red in the figure.
    error_norm: ||g - mean of the contributions||, in blue in the figure.
    cosine: cosine of g and that mean; 1 if clipping only shortens g.
    fraction_changed: share of records whose gradient is changed.
    printed_norm: norm of Algorithm 8's update without noise; NaN for networks
      whose activations are bounded.
    printed_error: ||g - that update||.
    printed_cosine: cosine of g and that update.
    train_loss: mean loss of all training records.
  """
  gradient_norm: Array
  clipped_norm: Array
  error_norm: Array
  cosine: Array
  fraction_changed: Array
  printed_norm: Array
  printed_error: Array
  printed_cosine: Array
  train_loss: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """One curve: a training method on a data set, and when it is measured.

  Attributes:
    dataset: name of the data set.
    method: a private method by its name, at the epsilon and delta of Table
      5.4; 'clipped_sgd' and 'lip_sgd' are such methods without noise; 'sgd'
      takes plain gradients. Cotangents are clipped at the logits, as the
      recipes have it, in 'lip_dp_sgd_logit_clip' only.
    clip_norm: clip norm of the clipping methods; for 'sgd', that of the
      clipping that is measured but not applied; the other methods ignore it.
    num_steps: number of training steps.
    every: number of steps between measurements; divides `num_steps`.
    probe_size: number of training records that are measured.
  """
  dataset: str
  method: str
  clip_norm: float
  num_steps: int
  every: int
  probe_size: int


class Curves(NamedTuple):
  """Measurements of several seeds.

  Attributes:
    measures: leaves [runs, num_steps / every + 1].
    test_accuracy: [runs], accuracy of the final parameters.
    plan: steps, sampling and noise of the training runs.
    delta: delta of the plan.
    epsilon: epsilon of the plan; infinite without noise.
  """
  measures: Measures
  test_accuracy: np.ndarray
  plan: plans.TrainingPlan
  delta: float
  epsilon: float


def measure_probe(params: Params, probe: Batch, *, model: Model,
                  loss: losses.LipschitzLoss, bounder: GradientBounder,
                  printed: bool) -> dict[str, Array]:
  """Returns the `Measures` of a probe of records.

  Args:
    params: parameters at which gradients are taken.
    probe: b records, as the model prepares them.
    model: model whose gradients are measured.
    loss: loss of the objective, without clipping.
    bounder: bounder of the method, which maps the gradient of each record to
      its contribution.
    printed: whether to measure Algorithm 8's update; allowed for plain
      perceptrons only.
  """
  _, grads = per_example.per_example_gradients(model.apply, loss.values,
                                               params, probe)

  def contribution(record):
    one = jax.tree.map(lambda leaf: leaf[None], record)
    return bounder.sums(params, one, jnp.ones([1], jnp.bool_)).total

  taken = jax.vmap(contribution)(probe)
  differences = jax.vmap(tree.squared_norm)(_minus(grads, taken))
  sizes = jax.vmap(tree.squared_norm)(grads)
  mean, clipped = _mean(grads), _mean(taken)
  values = dict(
      gradient_norm=tree.global_norm(mean),
      clipped_norm=tree.global_norm(clipped),
      error_norm=tree.global_norm(_minus(mean, clipped)),
      cosine=_cosine(mean, clipped),
      fraction_changed=jnp.mean(differences > _CHANGED**2 * sizes,
                                dtype=jnp.float32))
  update = algorithm_8_update(params, probe.x, mean) if printed else None
  return values | dict(
      printed_norm=tree.global_norm(update) if printed else jnp.nan,
      printed_error=(tree.global_norm(_minus(mean, update)) if printed
                     else jnp.nan),
      printed_cosine=_cosine(mean, update) if printed else jnp.nan)


def algorithm_8_update(params: Params, x: Array, mean: PyTree) -> PyTree:
  """Returns Algorithm 8's update: mean gradients of layers over X_k.

  It is neither private (erratum E1) nor equal to the mean gradient (erratum
  E20).

  X_k is the largest l2 norm of what enters layer k over the batch (Barczewski
  (2025), Algorithm 8, line 11; without the 1 of the bias, as printed).

  Args:
    params: parameters of a perceptron with tanh units.
    x: features of the batch, [b, p].
    mean: gradient, averaged over the batch.
  """
  scaled = {}
  for name in sorted(params):
    largest = jnp.max(jnp.linalg.norm(x, axis=1))
    scaled[name] = tree.scale(1 / largest, mean[name])
    layer = params[name]
    x = jnp.tanh(primitives.dense(x, layer['kernel'], layer['bias']))
  return scaled


def trace(run: Run, seeds: Sequence[int], *, data_dir: str | None = None,
          on_progress: Callable[[int, int], None] | None = None) -> Curves:
  """Trains with every seed; returns measurements along each run.

  Args:
    run: the curve to compute.
    seeds: seeds of split, initialisation, batches and noise.
    data_dir: folder of the data sets.
    on_progress: called with (runs done, runs in all).
  """
  dataset = registry.load(run.dataset, data_dir=data_dir)
  total = dataset.x.shape[0]
  config = make_config(run, total)
  model = building.make_model(config, dataset)
  method, plan = _method_and_plan(
      run, config, building.make_method(config, model, dataset))
  records = dataset.records._replace(x=jax.jit(model.prepare)(dataset.x))
  traced = jax.jit(functools.partial(
      _trace, run=run, config=config, model=model, method=method, plan=plan))
  result, accuracies = [], []
  for seed in seeds:
    seeded = dataclasses.replace(config, seed=seed, noise_seed=seed)
    split = training.split_rows(seeded, dataset)
    measures, params = traced(run_keys.run_key(seeded), split, records)
    accuracy = evaluate.accuracy(model.apply, params, dataset.records,
                                 split.test)
    result.append(jax.tree.map(np.asarray, measures))
    accuracies.append(float(accuracy))
    if on_progress is not None:
      on_progress(len(result), len(seeds))
  return Curves(jax.tree.map(lambda *leaves: np.stack(leaves), *result),
                np.array(accuracies), plan, config.delta,
                plan.epsilon(config.delta))


def make_config(run: Run, total: int) -> configuration.TrainingConfig:
  """Returns the configuration of a run, within Barczewski (2025, Table 5.2).

  Args:
    run: the run.
    total: number of records of its data set, with the held-out ones.
  """
  base = _BASES[run.method]
  line = _EPSILONS[run.dataset]
  logit_clip = (None if run.method == 'lip_dp_sgd_logit_clip'
                else _NO_LOGIT_CLIP)
  config = configuration.TrainingConfig(
      dataset=run.dataset, method=base, epsilon=line.epsilon,
      delta=line.delta, num_steps=run.num_steps,
      batch_size=float(min(256, total // 4)), optimizer='adam',
      schedule='constant', learning_rate=0.01, logit_clip=logit_clip,
      clip_norm=run.clip_norm if base != 'lip_dp_sgd' else None)
  available = total - round(config.test_fraction * total)
  return configuration.resolve(config, num_available=available)


def _method_and_plan(run: Run, config: configuration.TrainingConfig,
                     method: Method) -> tuple[Method, plans.TrainingPlan]:
  if run.method not in _WITHOUT_NOISE:
    return method, training.make_plan(config)
  plain = dataclasses.replace(config, method='sgd')
  return (method._replace(name=run.method, private=False),
          training.make_plan(plain))


def _trace(key: PRNGKey, split, records: Batch, *, run: Run,
           config: configuration.TrainingConfig, model: Model, method: Method,
           plan: plans.TrainingPlan) -> tuple[Measures, Params]:
  """Trains once; returns measurements along the run and the last parameters.

  Measurements have a leading axis of num_steps / every + 1.
  """
  loss = losses.cross_entropy(temperature=config.temperature)
  bounder = _measured_bounder(run, model, method, loss)
  optimizer = building.make_optimizer(config)

  def transform_of(noise_key):
    return steps.make_transform(
        method, plan.sampler, optimizer, key=noise_key,
        noise_multiplier=plan.noise_multiplier or 0.0,
        allocation=config.allocation)

  step = steps.make_step(method=method, sampler=plan.sampler,
                         transform_of=transform_of)
  train = jax.tree.map(lambda leaf: leaf[split.train], records)
  probe = jax.tree.map(lambda leaf: leaf[:run.probe_size], train)
  printed = not training_methods.METHODS[config.method].bounds_weights

  def measure(params):
    result = measure_probe(params, probe, model=model, loss=loss,
                          bounder=bounder, printed=printed)
    values = loss.values(model.apply(params, train.x), train.y)
    return Measures(train_loss=jnp.mean(values), **result)

  def part(state, _):
    before = measure(state.params)
    state = jax.lax.scan(
        lambda s, _: (step(s, records, split.train)[0], None), state,
        length=run.every)[0]
    return state, before

  state = steps.init_state(key, model=model, method=method,
                           transform_of=transform_of)
  state, path = jax.lax.scan(part, state, length=run.num_steps // run.every)
  path = jax.tree.map(lambda most, last: jnp.append(most, last), path,
                      measure(state.params))
  return path, state.params


def _measured_bounder(run: Run, model: Model, method: Method,
                      loss: losses.LipschitzLoss) -> GradientBounder:
  """Returns the method's bounder; for sgd, a clipping that is only measured."""
  if run.method == 'sgd':
    return per_example.clipped(model.apply, loss.values,
                               clip_norm=run.clip_norm)
  return method.bounder


def _mean(values: PyTree) -> PyTree:
  return jax.tree.map(lambda leaf: jnp.mean(leaf, 0), values)


def _minus(left: PyTree, right: PyTree) -> PyTree:
  return jax.tree.map(jnp.subtract, left, right)


def _cosine(left: PyTree, right: PyTree) -> Array:
  norms = tree.global_norm(left) * tree.global_norm(right)
  return tree.dot(left, right) / jnp.maximum(norms, 1e-30)
