"""Trains many networks at once, each on its own records. NOT private.

These are the target and shadow networks of membership inference: R replicas of
one architecture, each with its own records, key, mask and learning rate.
Replicas run in packs (`batch_resnet`), one pack after the other. One
compiled program runs an epoch, and serves all epochs, prunings and restarts.

Source: MIA-05; Lalanne (2023, section 1.3).
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax import errors
from dpjax.grads import convolutions
from dpjax.train.augment import Augmentation
from dpjax.typing import Array, Batch, Params, PRNGKey, PyTree
from experiments.methods.sparsity import masks
from experiments.methods.sparsity.networks import Parametrisation
from experiments.methods.training.batch_resnet import BatchResnet


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
  """Training settings that all replicas share (MIA-05).

  Attributes:
    num_epochs: E, the number of epochs, >= 1.
    batch_size: records of a step; the last, incomplete batch of an epoch is
      dropped.
    momentum: heavy-ball momentum (not Nesterov), >= 0.
    drops: fractions of the epochs after which the learning rate is divided.
    divisor: the learning rate is divided by it at each drop.
    augmentation: draws one view of each record in each epoch; None for none.
  """
  num_epochs: int
  batch_size: int = 256
  momentum: float = 0.9
  drops: tuple[float, ...] = (0.5, 0.75)
  divisor: float = 10.0
  augmentation: Augmentation | None = None

  def __post_init__(self):
    errors.check_at_least('num_epochs', self.num_epochs, 1)
    errors.check_at_least('batch_size', self.batch_size, 1)
    errors.check_non_negative('momentum', self.momentum)
    for drop in self.drops:
      errors.check_probability('drops', drop)
    errors.check_positive('divisor', self.divisor)

  def rate(self, epoch: Array) -> Array:
    """Returns the factor of the learning rate in an epoch, counted from 0."""
    epoch = epoch.astype(jnp.float32)
    num_drops = sum(((epoch >= drop * self.num_epochs).astype(jnp.float32)
                     for drop in self.drops), jnp.zeros_like(epoch))
    return self.divisor**-num_drops


class Task(NamedTuple):
  """Settings of each replica; leaves have a leading axis [R].

  Attributes:
    key: [R] typed keys of the batches and views.
    rows: [R, n] int32, numbers of the training records.
    validation: [R, v] int32, numbers of the records on which the best epoch is
      chosen.
    learning_rate: [R], initial learning rates.
    weight_decay: [R], on all parameters, added to the gradient as in PyTorch.
    mask: [R, d] bool, see `Replicas`. Parameters at False keep their value, so
      those that start at zero stay zero.
  """
  key: PRNGKey
  rows: Array
  validation: Array
  learning_rate: Array
  weight_decay: Array
  mask: Array


class Snapshot(NamedTuple):
  """Networks that can be applied: vectors [R, d] and running statistics."""
  params: Array
  statistics: PyTree


class State(NamedTuple):
  """Training state between epochs; leaves have a leading axis [R].

  Attributes:
    last: the networks after `epoch` epochs.
    optimizer: state of the optax optimiser.
    epoch: [R] int32, number of epochs done.
    best: the networks after the epoch of best validation accuracy; the first
      such epoch if there are several.
    best_accuracy: [R] validation accuracy of `best`; -1 before the first epoch.
  """
  last: Snapshot
  optimizer: PyTree
  epoch: Array
  best: Snapshot
  best_accuracy: Array


class EpochInfo(NamedTuple):
  """Mean training loss [R] of an epoch, and validation accuracy [R] after."""
  loss: Array
  accuracy: Array


class _Layout(NamedTuple):
  """Conversion of a replica's parameters to a vector [size], and back."""
  size: int
  ravel: Callable[[Params], Array]
  unravel: Callable[[Array], Params]


class Replicas:
  """Compiled training of R replicas.

  Parameters are vectors [R, d] of the values that a parametrisation trains. If
  parametrisations differ in size, shorter vectors end with zeros.

  Args:
    network: architecture of all replicas.
    parametrisations: replica r uses parametrisation number r modulo their
      count.
    recipe: shared training settings.
    records: images [N, h, w, c] and labels [N] int32, shared by the replicas.
    pack_size: P, the number of replicas that run as one network with P times as
      many channels; a multiple of the number of parametrisations.
  """

  def __init__(self, network: BatchResnet, *,
               parametrisations: Sequence[Parametrisation], recipe: Recipe,
               records: Batch, pack_size: int):
    errors.check_at_least('pack_size', pack_size, 1)
    if pack_size % len(parametrisations):
      raise ValueError(f'a pack of {pack_size} cannot hold '
                       f'{len(parametrisations)} parametrisations equally '
                       'often; pack_size must be a multiple')
    self.network, self.recipe, self.records = network, recipe, records
    self.pack_size = pack_size
    self.parametrisations = tuple(parametrisations)
    self._layouts = tuple(map(_layout, parametrisations))
    self.num_params = max(layout.size for layout in self._layouts)
    self._initial = jax.jit(self._all_initial)
    self._epoch = jax.jit(self._all_epoch, donate_argnums=0)
    self._logits = jax.jit(self._all_logits)

  def init(self, keys: PRNGKey) -> State:
    """Returns the training state of R new replicas, from their keys [R]."""
    return self.restart(self.initial(keys))

  def initial(self, keys: PRNGKey) -> Array:
    """Draws initial parameters [R, d] from keys [R]."""
    self._check(keys.shape[0])
    return self._initial(keys)

  def restart(self, params: Array) -> State:
    """Returns a fresh training state with these parameters [R, d]."""
    count = params.shape[0]
    self._check(count)
    statistics = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)),
        self.network.init_statistics())
    start = Snapshot(params, statistics)
    # An epoch donates its state, so no leaf may be shared.
    last, best = jax.tree.map(jnp.copy, (start, start))
    opt_state = self._optimizer(*jnp.zeros((2, count))).init(params)
    return State(last, opt_state, jnp.zeros(count, jnp.int32), best,
                 jnp.full(count, -1.0, jnp.float32))

  def run_epoch(self, state: State, task: Task) -> tuple[State, EpochInfo]:
    """Runs one epoch of every replica; donates `state`: do not use it again."""
    if task.rows.shape[1] < self.recipe.batch_size:
      raise ValueError(f'a batch of {self.recipe.batch_size} needs as many '
                       f'training records, got {task.rows.shape[1]}')
    errors.check_at_least('validation records', task.validation.shape[1], 1)
    for name, leaf in task._asdict().items():
      if leaf.shape[0] != state.epoch.shape[0]:
        raise ValueError(f'{name} must be of {state.epoch.shape[0]} replicas, '
                         f'got {leaf.shape[0]}')
    return self._epoch(state, task, self.records)

  def fit(self, state: State, task: Task,
          on_epoch: Callable[[State, EpochInfo], None] | None = None
          ) -> tuple[State, EpochInfo]:
    """Runs the remaining epochs; infos are [remaining epochs, R].

    Args:
      state: donated: do not use it again.
      task: see `Task`.
      on_epoch: called with (state, info) after each epoch. The next epoch
        donates this state, so copy what must be kept.

    Raises:
      ValueError: if the task has another number of replicas or wrong rows.
    """
    count = self.records.y.shape[0]
    for rows in (task.rows, task.validation):
      # JAX would read a number beyond the last record as the last record.
      if not bool(jnp.all((rows >= 0) & (rows < count))):
        raise ValueError(f'rows must be numbers of the {count} records')
    infos = [EpochInfo(*np.zeros((2, 0, state.epoch.shape[0]), np.float32))]
    for _ in range(int(state.epoch[0]), self.recipe.num_epochs):
      state, info = self.run_epoch(state, task)
      infos.append(jax.tree.map(lambda leaf: np.asarray(leaf)[None], info))
      if on_epoch is not None:
        on_epoch(state, info)
    return state, jax.tree.map(lambda *leaves: np.concatenate(leaves), *infos)

  def full_mask(self, num_replicas: int) -> Array:
    """Returns [R, d] bool: True for all trained values, False for padding."""
    sizes = [self._layouts[r % len(self._layouts)].size
             for r in range(num_replicas)]
    return jnp.arange(self.num_params)[None] < jnp.asarray(sizes)[:, None]

  def tree(self, params: Array, number: int) -> Params:
    """Returns the parameters of replica `number` as a tree, from [d]."""
    layout = self._layouts[number % len(self._layouts)]
    return layout.unravel(params[:layout.size])

  def vector(self, params: Params, number: int) -> Array:
    """Returns the vector [d] of a tree of numbers or bools; inverts `tree`."""
    layout = self._layouts[number % len(self._layouts)]
    flat = layout.ravel(params)
    if flat.size != layout.size:
      raise ValueError(f'a replica has {layout.size} parameters, got '
                       f'{flat.size}')
    return self._pad(flat)

  def apply(self, networks: Snapshot, x: Array) -> Array:
    """Returns evaluation logits [R, b, c] of images [R, b, ...], uncompiled."""
    self._check(networks.params.shape[0])
    return self._in_packs(lambda networks, x: self.network.apply(
        self._dense(networks.params), networks.statistics, x, train=False)[0],
                          networks, x)

  def logits(self, networks: Snapshot, x: Array, *,
             batch_size: int = 500) -> Array:
    """Returns logits [R, m, c] of all networks on the same images [m, ...]."""
    size = min(batch_size, x.shape[0])
    rows = -(-x.shape[0] // size) * size
    padded = jnp.concatenate([x, jnp.zeros((rows - x.shape[0], *x.shape[1:]),
                                           x.dtype)])
    parts = padded.reshape(-1, size, *x.shape[1:])
    return self._logits(networks, parts)[:, :x.shape[0]]

  def dense(self, params: Array) -> Params:
    """Returns the dense weights, trees [R, ...], of parameters [R, d]."""
    self._check(params.shape[0])
    packs = params.reshape(-1, self.pack_size, self.num_params)
    trees = jax.vmap(self._dense)(packs)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), trees)

  def _check(self, num_replicas: int) -> None:
    if num_replicas % self.pack_size:
      raise ValueError(f'{num_replicas} replicas do not fill packs of '
                       f'{self.pack_size}')

  def _pad(self, vector: Array) -> Array:
    """Appends zeros up to the longest parametrisation, to [d]."""
    return jnp.pad(vector, (0, self.num_params - vector.size))

  def _dense(self, params: Array) -> Params:
    """Returns the dense weights of a pack, leaves [P, ...], from [P, d]."""
    count = len(self._layouts)
    # One vmap per parametrisation; stacking on axis 1 restores the order r.
    weights = [jax.vmap(lambda flat, i=i: self.parametrisations[i].effective(
        self.tree(flat, i)))(params[i::count]) for i in range(count)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, 1).reshape(
        self.pack_size, *leaves[0].shape[1:]), *weights)

  def _in_packs(self, function, *trees):
    """Applies `function` to one pack after the other; leaves are [R, ...]."""
    split = lambda leaf: leaf.reshape(-1, self.pack_size, *leaf.shape[1:])
    join = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])
    outputs = jax.lax.map(lambda packs: function(*packs),
                          jax.tree.map(split, trees))
    return jax.tree.map(join, outputs)

  def _all_initial(self, keys):
    count = len(self._layouts)
    drawn = [jax.vmap(lambda key, i=i: self._pad(self._layouts[i].ravel(
        self.parametrisations[i].init(key))))(keys[i::count])
             for i in range(count)]
    return jnp.stack(drawn, 1).reshape(-1, self.num_params)

  def _all_epoch(self, state, task, records):
    return self._in_packs(functools.partial(self._pack_epoch, records), state,
                          task)

  def _all_logits(self, networks, parts):
    """Returns logits [R, m, c] of parts [k, m / k, ...], part by part."""
    shared = lambda x: jnp.broadcast_to(
        x, (networks.params.shape[0], *x.shape))
    logits = jax.lax.map(lambda x: self.apply(networks, shared(x)), parts)
    logits = jnp.moveaxis(logits, 0, 1)
    return logits.reshape(logits.shape[0], -1, logits.shape[-1])

  def _pack_epoch(self, records: Batch, state: State, task: Task):
    """Runs one epoch of a pack."""
    size, num_rows = self.recipe.batch_size, task.rows.shape[1]
    steps = num_rows // size
    keys = jax.vmap(jax.random.fold_in)(task.key, state.epoch)
    keys = jax.vmap(jax.random.split)(keys)
    orders = jax.vmap(lambda key, rows: jax.random.permutation(key, rows))(
        keys[:, 0], task.rows)[:, :steps * size]
    orders = jnp.moveaxis(orders.reshape(-1, steps, size), 1, 0)
    view_keys = jnp.moveaxis(jax.vmap(
        lambda key: jax.random.split(key, steps))(keys[:, 1]), 1, 0)
    rate = self.recipe.rate(state.epoch) * task.learning_rate
    (last, opt_state), losses = jax.lax.scan(
        functools.partial(self._step, records, task, rate),
        (state.last, state.optimizer), (orders, view_keys))
    accuracy = self._accuracy(last, task.validation, records)
    better = accuracy > state.best_accuracy
    best = jax.tree.map(lambda new, old: jnp.where(
        better.reshape((-1,) + (1,) * (new.ndim - 1)), new, old),
                        last, state.best)
    state = State(last, opt_state, state.epoch + 1, best,
                  jnp.maximum(accuracy, state.best_accuracy))
    return state, EpochInfo(jnp.mean(losses, 0), accuracy)

  def _step(self, records, task, rate, carry, drawn):
    network, opt_state = carry
    rows, keys = drawn
    x, y = records.x[rows], records.y[rows]
    if self.recipe.augmentation is not None:
      view = jax.vmap(jax.vmap(self.recipe.augmentation))
      x = view(jax.vmap(lambda key: jax.random.split(key, rows.shape[1]))(
          keys), x)
    grad = convolutions.fast_in_loops(jax.grad(self._loss, has_aux=True))
    gradient, (losses, statistics) = grad(network.params, network.statistics,
                                          x, y)
    updates, opt_state = self._optimizer(task.weight_decay, rate).update(
        gradient, opt_state, network.params, mask=task.mask)
    params = optax.apply_updates(network.params, updates)
    return (Snapshot(params, statistics), opt_state), losses

  def _optimizer(self, weight_decay: Array, rate: Array):
    """Returns SGD as in PyTorch: decay, heavy ball, then learning rate."""
    return optax.chain(
        optax.add_decayed_weights(weight_decay[:, None]),
        optax.trace(self.recipe.momentum),
        optax.stateless(lambda updates, _: -rate[:, None] * updates),
        masks.frozen())

  def _loss(self, params, statistics, x, y):
    """Returns the sum over the pack of each replica's mean loss."""
    logits, statistics = self.network.apply(self._dense(params), statistics, x,
                                            train=True)
    losses = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(
        logits, y), 1)
    return jnp.sum(losses), (losses, statistics)

  def _accuracy(self, network: Snapshot, rows: Array, records: Batch):
    """Returns the accuracies [P] of the replicas on their own rows [P, v]."""
    size = min(self.recipe.batch_size, rows.shape[1])
    parts = -(-rows.shape[1] // size)
    real = jnp.arange(parts * size) < rows.shape[1]  # False for padding.
    padded = jnp.pad(rows, ((0, 0), (0, parts * size - rows.shape[1])))
    padded = jnp.moveaxis(padded.reshape(-1, parts, size), 1, 0)
    params = self._dense(network.params)

    def num_correct(part):
      rows, real = part
      logits, _ = self.network.apply(params, network.statistics,
                                     records.x[rows], train=False)
      right = (jnp.argmax(logits, -1) == records.y[rows]) & real[None]
      return jnp.sum(right, 1, dtype=jnp.float32)

    counts = jax.lax.map(num_correct, (padded, real.reshape(parts, size)))
    return jnp.sum(counts, 0) / rows.shape[1]


def _layout(parametrisation: Parametrisation) -> _Layout:
  """Returns the conversion for the parameters of this parametrisation."""
  example = jax.eval_shape(parametrisation.init, jax.random.key(0))
  leaves, structure = jax.tree.flatten(example)
  sizes = [leaf.size for leaf in leaves]

  def ravel(params):
    return jnp.concatenate([jnp.ravel(leaf)
                            for leaf in jax.tree.leaves(params)])

  def unravel(flat):
    parts = jax.lax.split(flat, sizes)
    return jax.tree.unflatten(structure, [
        part.reshape(leaf.shape)
        for part, leaf in zip(parts, leaves, strict=True)])

  return _Layout(sum(sizes), ravel, unravel)
