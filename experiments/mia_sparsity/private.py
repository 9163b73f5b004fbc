"""Trains private networks, and the same architecture without privacy.

They show what differential privacy guarantees on the axes of Figure 1.1 of
Lalanne (2023), and what it costs in accuracy. Catalogue items MIA-12 (d) and
MIA-13.

Neighbours replace one record, because the split has halves of fixed size:
exchanging a member with a non-member replaces one training record. So an attack
that is correct equally often for members and non-members has an expected
accuracy of at most (e^epsilon + delta) / (1 + e^epsilon), over split and
training. The event of the training implies the sharper bound
(1 + its total variation) / 2; see `dpjax.audit.membership`.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
from typing import NamedTuple
import zlib

import jax
import jax.numpy as jnp
import optax

from dpjax import errors
from dpjax import tree
from dpjax.grads.bounder import Method
from dpjax.lipschitz import losses
from dpjax.models import convnet
from dpjax.models.bounding import Bounding
from dpjax.models.model import Model
from dpjax.privacy.adjacency import Adjacency
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import plan as plans
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch, Params, PRNGKey

METHODS = ('sgd', 'dp_sgd', 'lip_dp_sgd')
ADJACENCY = Adjacency.REPLACE_ONE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
  """Hyperparameters of a method: Adam with a cosine schedule.

  Attributes:
    num_steps: number of steps, unless training is stopped early.
    learning_rate: initial learning rate.
    temperature: divisor of the logits in the cross entropy.
    clip_norm: dp_sgd's bound on a record's gradient.
    weight_norm: lip_dp_sgd's bound on each weight matrix.
    input_radius: lip_dp_sgd's radius of the ball for records, over the square
      root of the number of values in a record.
    hidden_radius: its radius of the balls for hidden activations.
    logit_clip: its bound on a record's cotangent at the logits.
  """
  num_steps: int
  learning_rate: float
  temperature: float = 1.0
  clip_norm: float = 1.0
  weight_norm: float = 8.0
  input_radius: float = 0.5
  hidden_radius: float = 6.0
  logit_clip: float = 0.35


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
  """One architecture for all methods, and their recipes.

  Attributes:
    channels: channels of the convolutions, which are 3 x 3 with stride 2 and
      have no biases.
    width: width of the hidden dense layer.
    batch_size: expected batch size.
    recipes: recipe of each method.
    max_parallel: number of networks that an accelerator trains at once; None
      for all.
  """
  channels: tuple[int, ...]
  width: int
  batch_size: float
  recipes: Mapping[str, Recipe]
  max_parallel: int | None = None


# For Fashion-MNIST at half the side with about 1600 records a network. A
# handful of values of each hyperparameter were tried, on records that were not
# trained on.
_SMALL = Design(
    channels=(16,), width=32, batch_size=500.0, recipes={
        'sgd': Recipe(num_steps=400, learning_rate=0.01),
        'dp_sgd': Recipe(num_steps=100, learning_rate=0.03, temperature=0.5),
        'lip_dp_sgd': Recipe(num_steps=100, learning_rate=0.02,
                             temperature=0.5)})
# For CIFAR-10 with 14000 records a network; about as many parameters as
# ResNet-20. Only the learning rates were chosen, by 150 to 200 steps with
# batches of 256 on one network.
_LARGE = Design(
    channels=(32, 64), width=64, batch_size=1024.0, recipes={
        'sgd': Recipe(num_steps=1000, learning_rate=0.003),
        'dp_sgd': Recipe(num_steps=500, learning_rate=0.007, temperature=0.5),
        'lip_dp_sgd': Recipe(num_steps=500, learning_rate=0.005,
                             temperature=0.5)})
_TINY = Design(
    channels=(4,), width=8, batch_size=32.0, recipes={
        name: Recipe(num_steps=3, learning_rate=0.01) for name in METHODS})
DESIGNS: Mapping[str, Design] = {'full': _LARGE, 'gpu': _LARGE, 'cpu': _SMALL,
                                 'smoke': _TINY}
"""Profile of a study -> design of its private networks."""


class Trained(NamedTuple):
  """R networks of one method and budget.

  Attributes:
    apply: (networks, x [R, b, h, w, c]) -> logits [R, b, classes], each
      network on images of its own; one function object for all budgets.
    networks: parameters, leaves [R, ...].
    num_params: number of parameters of one network.
    plan: plan of the training; its `event` under its `adjacency` is the
      guarantee of each network.
    epsilon: of that event at `delta`, under REPLACE_ONE; infinite for 'sgd'.
    delta: requested delta; 0 for 'sgd'.
  """
  apply: Callable[[Params, Array], Array]
  networks: Params
  num_params: int
  plan: TrainingPlan
  epsilon: float
  delta: float

  def paired(self, x: Array) -> Array:
    """Returns logits [R, b, classes] of images [R, b, h, w, c]."""
    return self.apply(self.networks, x)


def train(method: str, epsilons: Sequence[float], *, design: Design,
          delta: float, records: Batch, num_classes: int, rows: Array,
          keys: PRNGKey, stop: float = 1.0,
          on_progress: Callable[[float, str], None] = lambda *_: None
          ) -> list[Trained]:
  """Trains R networks for each budget, all in one compiled program.

  Guarantee: each network alone is (epsilon, delta)-DP in its n records, their
  number public, under REPLACE_ONE. Networks that share records are not jointly
  so, and the choice of a recipe is not charged.

  Args:
    method: one of `METHODS`.
    epsilons: requested epsilons of private methods; (inf,) for 'sgd'.
    design: architecture and recipes of the networks.
    delta: delta of each epsilon.
    records: all records, public in number; images [N, h, w, c] in [-1, 1].
    num_classes: number of classes; public.
    rows: [R, n] int32, numbers of the training records of each network.
    keys: [R], keys of all random draws. Methods and budgets derive keys of
      their own from these, because networks that shared their noise would
      cancel it.
    stop: fraction of the recipe's steps after which training stops; the noise
      is calibrated to the steps that run.
    on_progress: called with (fraction of the work done, method).

  Returns:
    The networks of each epsilon, in order.

  Raises:
    ValueError: one line, before anything is trained.
  """
  recipe, model, steps = _check(method, epsilons, design, records, num_classes,
                                rows, keys, stop)
  planned = [_plan(epsilon, delta, design, steps, rows.shape[1])
             for epsilon in epsilons]
  size, count = rows.shape[0], len(epsilons)
  own = jnp.concatenate([_keys(keys, method, epsilon, stop)
                         for epsilon in epsilons])
  result = loop.fit(
      own, plans=[plan for plan in planned for _ in range(size)], model=model,
      method=_method(method, recipe, model), optimizer=_optimizer(recipe),
      records=records, rows=jnp.tile(rows, (count, 1)),
      max_parallel=design.max_parallel,
      on_progress=lambda done, total: on_progress(done / total, method))
  apply = jax.vmap(model.apply)
  num_params = tree.count(jax.eval_shape(model.init, keys[0]))
  part = lambda i: jax.tree.map(lambda leaf: leaf[i * size:(i + 1) * size],
                                result.state.params)
  return [
      Trained(apply, part(i), num_params, plan, plan.epsilon(delta),
              0.0 if math.isinf(epsilon) else delta)
      for i, (epsilon, plan) in enumerate(zip(epsilons, planned, strict=True))
  ]


def make_model(method: str, *, design: Design, recipe: Recipe,
               input_shape: tuple[int, int, int], num_classes: int) -> Model:
  """Returns the network; for lip_dp_sgd, inputs of layers lie in balls."""
  bounded = {}
  if method == 'lip_dp_sgd':
    bounded = dict(
        input_radius=recipe.input_radius * math.sqrt(math.prod(input_shape)),
        bounding=Bounding(kind='ball', radius=recipe.hidden_radius))
  return convnet.convnet(
      input_shape=input_shape, num_classes=num_classes,
      channels=design.channels, width=design.width, stride=2, pool='none',
      use_bias=False, **bounded)


def _method(name: str, recipe: Recipe, model: Model) -> Method:
  lipschitz = name == 'lip_dp_sgd'
  loss = losses.cross_entropy(
      temperature=recipe.temperature,
      logit_clip=recipe.logit_clip if lipschitz else None)
  if name == 'sgd':
    return methods.sgd(model, loss)
  if lipschitz:
    return methods.lip_dp_sgd(model, loss, weight_norm=recipe.weight_norm)
  return methods.dp_sgd(model, loss, clip_norm=recipe.clip_norm)


def _optimizer(recipe: Recipe) -> optax.GradientTransformation:
  """Returns Adam, with the schedule of a whole training if it stops early."""
  decay = optax.cosine_decay_schedule(recipe.learning_rate, recipe.num_steps)
  return optax.adam(lambda count: decay(count.astype(jnp.float32)))


def _plan(epsilon: float, delta: float, design: Design, num_steps: int,
          num_examples: int) -> TrainingPlan:
  common = dict(num_examples=num_examples, batch_size=design.batch_size,
                num_steps=num_steps, adjacency=ADJACENCY)
  if math.isinf(epsilon):
    return plans.non_private_plan(**common)
  return plans.private_plan(epsilon=epsilon, delta=delta, **common)


def _keys(keys: PRNGKey, *parts) -> PRNGKey:
  digest = zlib.crc32(repr(parts).encode())
  return jax.vmap(lambda key: jax.random.fold_in(key, digest))(keys)


def _check(method, epsilons, design, records, num_classes, rows, keys, stop):
  """Returns the recipe, the model and the number of steps; raises if wrong."""
  errors.check_choice('method', method, METHODS)
  errors.check_at_least('epsilons', len(epsilons), 1)
  if (method == 'sgd') != (tuple(epsilons) == (math.inf,)):
    raise ValueError('epsilons are (inf,) for sgd and for sgd alone, got '
                     f'{tuple(epsilons)} for {method}')
  if rows.ndim != 2 or rows.shape[0] != keys.shape[0]:
    raise ValueError(f'rows must be [{keys.shape[0]}, n], a row of records '
                     f'for each key, got {rows.shape}')
  if not 0 < stop <= 1:
    raise ValueError(f'stop must lie in (0, 1], got {stop}')
  recipe = design.recipes[method]
  model = make_model(method, design=design, recipe=recipe,
                     input_shape=records.x.shape[1:], num_classes=num_classes)
  return recipe, model, max(1, round(stop * recipe.num_steps))
