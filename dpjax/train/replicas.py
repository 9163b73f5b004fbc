"""Many networks trained at once, each on its own records. NOT private.

The target and shadow networks of membership inference: R replicas of one
architecture with their own records, keys, masks and learning rates. They run
in packs (`models.batch_resnet`), packs one after the other, an epoch in one
compiled program that serves all epochs, prunings and restarts.

Source: MIA-05; thesis 000, section 1.3 (T:776-780).
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
from dpjax.models.batch_resnet import BatchResnet
from dpjax.sparsity import masks
from dpjax.sparsity.networks import Parametrisation
from dpjax.train.augment import Augmentation
from dpjax.typing import Array, Batch, Params, PRNGKey, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
  """What all replicas share (MIA-05).

  Attributes:
    num_epochs: E.
    batch_size: records of a step; what is left of an epoch is left out.
    momentum: of the heavy ball, not Nesterov's.
    drops: shares of the epochs after which the learning rate is divided.
    divisor: by which.
    augmentation: one view of a record in each epoch, or None.
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
    for share in self.drops:
      errors.check_probability('drops', share)
    errors.check_positive('divisor', self.divisor)

  def rate(self, epoch: Array) -> Array:
    """Factors of the learning rate in epochs counted from 0."""
    epoch = epoch.astype(jnp.float32)
    passed = sum(((epoch >= share * self.num_epochs).astype(jnp.float32)
                  for share in self.drops), jnp.zeros_like(epoch))
    return self.divisor**-passed


class Task(NamedTuple):
  """What is a replica's own; leaves have a leading axis [R].

  Attributes:
    key: of its batches and views.
    rows: [R, n] int32, numbers of its training records.
    validation: [R, v] int32, of records by which the epoch is chosen.
    learning_rate: [R].
    weight_decay: [R], of all parameters, added to the gradient (as PyTorch).
    mask: [R, d] bool, see `Replicas`; what is False stays as it is, so zero
      where training started at zero.
  """
  key: PRNGKey
  rows: Array
  validation: Array
  learning_rate: Array
  weight_decay: Array
  mask: Array


class Snapshot(NamedTuple):
  """A network as it can be used: vectors [R, d] and running statistics."""
  params: Array
  statistics: PyTree


class State(NamedTuple):
  """What the next epoch needs; leaves have a leading axis [R].

  Attributes:
    last: the network after `epoch` epochs.
    optimizer: what optax remembers.
    epoch: [R] int32, epochs done.
    best: the network after the epoch of best validation accuracy, the first
      of equals.
    best_accuracy: [R] of it; -1 before the first epoch.
  """
  last: Snapshot
  optimizer: PyTree
  epoch: Array
  best: Snapshot
  best_accuracy: Array


class EpochInfo(NamedTuple):
  """Of one epoch: [R] mean loss of its steps, validation accuracy."""
  loss: Array
  accuracy: Array


class _Layout(NamedTuple):
  """Parameters of one replica as a vector, and back."""
  size: int
  ravel: Callable[[Params], Array]
  unravel: Callable[[Array], Params]


class Replicas:
  """Compiled training of R replicas.

  Parameters are vectors [R, d] of what the parametrisation trains, filled up
  with zeros to one length d where parametrisations differ.

  Args:
    network: of all replicas.
    parametrisations: of the replicas of a pack, in order; replica r has number
      r modulo their count. One stands for packs of any size.
    recipe: of the training.
    records: images [N, h, w, c], labels [N] int32, shared.
    pack_size: P, a multiple of the number of parametrisations; replicas that
      run as one network of P times as many channels.
  """

  def __init__(self, network: BatchResnet, *,
               parametrisations: Sequence[Parametrisation], recipe: Recipe,
               records: Batch, pack_size: int):
    errors.check_at_least('pack_size', pack_size, 1)
    if pack_size % len(parametrisations):
      raise ValueError(f'a pack of {pack_size} cannot hold '
                       f'{len(parametrisations)} parametrisations equally '
                       'often')
    self.network, self.recipe, self.records = network, recipe, records
    self.pack_size = pack_size
    self.parametrisations = tuple(parametrisations)
    self._layouts = tuple(map(_layout, parametrisations))
    self.num_params = max(layout.size for layout in self._layouts)
    self._initial = jax.jit(self._all_initial)
    self._epoch = jax.jit(self._all_epoch, donate_argnums=0)
    self._logits = jax.jit(self._all_logits)

  def init(self, keys: PRNGKey) -> State:
    """The start of R replicas from their keys [R]."""
    return self.restart(self.initial(keys))

  def initial(self, keys: PRNGKey) -> Array:
    """Initial parameters [R, d]."""
    self._check(keys.shape[0])
    return self._initial(keys)

  def restart(self, params: Array) -> State:
    """Training from these parameters [R, d], all else anew."""
    count = params.shape[0]
    self._check(count)
    statistics = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)),
        self.network.init_statistics())
    start = Snapshot(params, statistics)
    # An epoch gives its state up, so all leaves are the state's own.
    last, best = jax.tree.map(jnp.copy, (start, start))
    memory = self._optimizer(*jnp.zeros((2, count))).init(params)
    return State(last, memory, jnp.zeros(count, jnp.int32), best,
                 jnp.full(count, -1.0, jnp.float32))

  def run_epoch(self, state: State, task: Task) -> tuple[State, EpochInfo]:
    """One epoch of every replica; `state` is given up."""
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
    """The epochs that are left; infos are [epochs left, R].

    Args:
      state: of `init`, `restart` or `run_epoch`; it is given up.
      task: see `Task`.
      on_epoch: called after each epoch; the next one gives up the state, so
        what it keeps must be a copy.

    Raises:
      ValueError: a task is of other replicas, or of records that are not there.
    """
    count = self.records.y.shape[0]
    for rows in (task.rows, task.validation):
      # Numbers beyond the last would be taken for the last.
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
    """[R, d] bool, True for all that a parametrisation trains."""
    sizes = [self._layouts[r % len(self._layouts)].size
             for r in range(num_replicas)]
    return jnp.arange(self.num_params)[None] < jnp.asarray(sizes)[:, None]

  def tree(self, params: Array, number: int) -> Params:
    """Parameters of replica `number` as a tree, from its vector [d]."""
    layout = self._layouts[number % len(self._layouts)]
    return layout.unravel(params[:layout.size])

  def vector(self, params: Params, number: int) -> Array:
    """[d], the inverse of `tree`; also of trees of bools."""
    layout = self._layouts[number % len(self._layouts)]
    flat = layout.ravel(params)
    if flat.size != layout.size:
      raise ValueError(f'a replica has {layout.size} parameters, got '
                       f'{flat.size}')
    return self._pad(flat)

  def apply(self, networks: Snapshot, x: Array) -> Array:
    """Logits [R, b, c] of images [R, b, ...], each network's own.

    In evaluation mode, in float32; not compiled.
    """
    self._check(networks.params.shape[0])
    return self._in_packs(lambda networks, x: self.network.apply(
        self._dense(networks.params), networks.statistics, x, train=False)[0],
                          networks, x)

  def logits(self, networks: Snapshot, x: Array, *,
             batch_size: int = 500) -> Array:
    """[R, m, c] of images [m, ...] that all networks see; see `apply`."""
    size = min(batch_size, x.shape[0])
    rows = -(-x.shape[0] // size) * size
    padded = jnp.concatenate([x, jnp.zeros((rows - x.shape[0], *x.shape[1:]),
                                           x.dtype)])
    parts = padded.reshape(-1, size, *x.shape[1:])
    return self._logits(networks, parts)[:, :x.shape[0]]

  def dense(self, params: Array) -> Params:
    """The dense trees [R, ...] of parameters [R, d]."""
    self._check(params.shape[0])
    packs = params.reshape(-1, self.pack_size, self.num_params)
    trees = jax.vmap(self._dense)(packs)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), trees)

  def _check(self, num_replicas: int) -> None:
    if num_replicas % self.pack_size:
      raise ValueError(f'{num_replicas} replicas do not fill packs of '
                       f'{self.pack_size}')

  def _pad(self, vector: Array) -> Array:
    return jnp.pad(vector, (0, self.num_params - vector.size))

  def _dense(self, params: Array) -> Params:
    """Dense trees of a pack, leaves [P, ...], from [P, d]."""
    count = len(self._layouts)
    made = [jax.vmap(lambda flat, i=i: self.parametrisations[i].effective(
        self.tree(flat, i)))(params[i::count]) for i in range(count)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, 1).reshape(
        self.pack_size, *leaves[0].shape[1:]), *made)

  def _in_packs(self, function, *trees):
    """`function` of packs, one after the other; leaves [R, ...]."""
    split = lambda leaf: leaf.reshape(-1, self.pack_size, *leaf.shape[1:])
    join = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])
    found = jax.lax.map(lambda packs: function(*packs),
                        jax.tree.map(split, trees))
    return jax.tree.map(join, found)

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
    """[R, m, c], part by part."""
    shared = lambda x: jnp.broadcast_to(
        x, (networks.params.shape[0], *x.shape))
    found = jax.lax.map(lambda x: self.apply(networks, shared(x)), parts)
    found = jnp.moveaxis(found, 0, 1)
    return found.reshape(found.shape[0], -1, found.shape[-1])

  def _pack_epoch(self, records: Batch, state: State, task: Task):
    """One epoch of a pack."""
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
    (last, memory), losses = jax.lax.scan(
        functools.partial(self._step, records, task, rate),
        (state.last, state.optimizer), (orders, view_keys))
    accuracy = self._accuracy(last, task.validation, records)
    better = accuracy > state.best_accuracy
    best = jax.tree.map(lambda new, old: jnp.where(
        better.reshape((-1,) + (1,) * (new.ndim - 1)), new, old),
                        last, state.best)
    state = State(last, memory, state.epoch + 1, best,
                  jnp.maximum(accuracy, state.best_accuracy))
    return state, EpochInfo(jnp.mean(losses, 0), accuracy)

  def _step(self, records, task, rate, carry, drawn):
    network, memory = carry
    rows, keys = drawn
    x, y = records.x[rows], records.y[rows]
    if self.recipe.augmentation is not None:
      view = jax.vmap(jax.vmap(self.recipe.augmentation))
      x = view(jax.vmap(lambda key: jax.random.split(key, rows.shape[1]))(
          keys), x)
    grad = convolutions.fast_in_loops(jax.grad(self._loss, has_aux=True))
    gradient, (losses, statistics) = grad(network.params, network.statistics,
                                          x, y)
    updates, memory = self._optimizer(task.weight_decay, rate).update(
        gradient, memory, network.params, mask=task.mask)
    params = optax.apply_updates(network.params, updates)
    return (Snapshot(params, statistics), memory), losses

  def _optimizer(self, weight_decay: Array, rate: Array):
    """PyTorch's: decay, then the heavy ball, then the learning rate."""
    return optax.chain(
        optax.add_decayed_weights(weight_decay[:, None]),
        optax.trace(self.recipe.momentum),
        optax.stateless(lambda updates, _: -rate[:, None] * updates),
        masks.frozen())

  def _loss(self, params, statistics, x, y):
    """Sum over the pack of each replica's mean loss."""
    logits, statistics = self.network.apply(self._dense(params), statistics, x,
                                            train=True)
    losses = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(
        logits, y), 1)
    return jnp.sum(losses), (losses, statistics)

  def _accuracy(self, network: Snapshot, rows: Array, records: Batch):
    """[P] of each replica on its own rows [P, v]."""
    size = min(self.recipe.batch_size, rows.shape[1])
    parts = -(-rows.shape[1] // size)
    known = jnp.arange(parts * size) < rows.shape[1]
    padded = jnp.pad(rows, ((0, 0), (0, parts * size - rows.shape[1])))
    padded = jnp.moveaxis(padded.reshape(-1, parts, size), 1, 0)
    params = self._dense(network.params)

    def hits(part):
      rows, known = part
      logits, _ = self.network.apply(params, network.statistics,
                                     records.x[rows], train=False)
      right = (jnp.argmax(logits, -1) == records.y[rows]) & known[None]
      return jnp.sum(right, 1, dtype=jnp.float32)

    found = jax.lax.map(hits, (padded, known.reshape(parts, size)))
    return jnp.sum(found, 0) / rows.shape[1]


def _layout(parametrisation: Parametrisation) -> _Layout:
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
