"""Trains the residual networks of a study: dense, pruned, butterflies."""

from collections.abc import Callable, Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.train import augment
from dpjax.typing import Array
from experiments.methods.sparsity import magnitude
from experiments.methods.sparsity import networks as parametrisations
from experiments.methods.training import replicas
from experiments.methods.training.batch_resnet import BatchResnet
from experiments.methods.training.replicas import Replicas
from experiments.methods.training.replicas import Snapshot
from experiments.methods.training.replicas import Task
from experiments.mia_sparsity import hyperparameters
from experiments.mia_sparsity.store import Store
from experiments.mia_sparsity.study import Study
from experiments.mia_sparsity.sweep import Kind

_FRACTION = 0.2


class Trained(NamedTuple):
  """R trained networks of one kind.

  Attributes:
    apply: (networks, x [R, b, h, w, c]) -> logits [R, b, classes]; one
      function object for all kinds that share a compiled program.
    networks: the first argument of `apply`.
    num_params: number of nonzero parameters of one network.
    validation_accuracy: [R], validation accuracy after the chosen epoch.
  """
  apply: Callable
  networks: Snapshot
  num_params: int
  validation_accuracy: np.ndarray


class _Outcome(NamedTuple):
  """The result of a training that is stored; leaves [R, ...].

  Attributes:
    best: networks after the best epoch, as parameters [R, d] of dense ones.
    mask: [R, d] bool, False at pruned weights.
    accuracy: [R], validation accuracy of `best`.
  """
  best: Snapshot
  mask: Array
  accuracy: Array


class Trainer:
  """Trains kinds of networks on demand, and first the kind they start from.

  Args:
    study: records and keys.
    store: storage of trained networks and unfinished trainings.
    on_progress: called after each epoch with (share of the training that is
      done, name of the kind).
  """

  def __init__(self, study: Study, store: Store,
               on_progress: Callable[[float, str], None]):
    self._study, self._store, self._progress = study, store, on_progress
    profile = study.profile
    self._recipe = replicas.Recipe(
        num_epochs=profile.num_epochs, batch_size=profile.batch_size,
        augmentation=augment.crop_and_flip(padding=4, mode='zero')
        if profile.views else None)
    self._network = self._resnet(profile.widths)
    self._dense = self._replicas(
        self._network, [parametrisations.dense(self._network.init)],
        profile.pack_size)
    self._narrow_replicas: dict[Kind, Replicas] = {}

  @property
  def num_dense(self) -> int:
    """Returns the number of parameters of the dense network."""
    return self._dense.num_params

  def train(self, kind: Kind) -> Trained:
    """Returns the networks of a kind; trains them unless they are stored."""
    outcome = self._loaded(kind)
    if outcome is None:
      self._train(kind)
      outcome = self._loaded(kind)
    trainer = self._narrow(kind) if kind.method == 'narrow' else self._dense
    if kind.method == 'butterfly':
      count = self._butterfly(kind).num_parameters
    else:
      count = int(np.sum(outcome.mask[0]))
    networks = jax.tree.map(jnp.asarray, outcome.best)
    return Trained(trainer.apply, networks, count,
                   np.asarray(outcome.accuracy))

  def _train(self, kind: Kind) -> None:
    """Trains the networks of a kind and stores them."""
    if kind.method in ('dense', 'stopped'):
      self._train_dense()
    elif kind.method == 'butterfly':
      self._train_butterflies(kind)
    elif kind.method == 'narrow':
      self._fit([kind], self._narrow(kind))
    elif kind.method == 'decayed':
      self._fit([kind], self._dense)
    else:
      self._train_pruned(kind)

  def _train_dense(self) -> None:
    """Trains the dense kind; its early epochs are stored as 'stopped' kinds."""
    profile, kind = self._study.profile, Kind(method='dense')
    stops = {round(stopped.stop * profile.num_epochs): stopped
             for stopped in profile.kinds() if stopped.method == 'stopped'}

    def on_epoch(state, info):
      stopped = stops.get(int(state.epoch[0]))
      if stopped is not None:
        self._keep(stopped, _Outcome(state.last, full, info.accuracy))

    full = self._dense.full_mask(self._study.num_networks)
    self._fit([kind], self._dense, on_epoch=on_epoch)

  def _train_pruned(self, kind: Kind) -> None:
    """Prunes the networks of the last round, and trains the rest again.

    Random pruning is one round, from the dense networks.
    """
    before = Kind(method='dense')
    step = self._study.profile.step
    if kind.method == 'magnitude' and kind.prunings > step:
      before = Kind(method='magnitude', prunings=kind.prunings - step)
    self.train(before)
    start = self._loaded(before)
    prunings = step if kind.method == 'magnitude' else kind.prunings
    fraction = 1 - (1 - _FRACTION)**prunings
    trees = jax.vmap(lambda vector: self._dense.tree(vector, 0))
    prune = functools.partial(magnitude.prune, fraction=fraction)
    if kind.method == 'random':
      masks = jax.vmap(functools.partial(
          magnitude.random_prune, fraction=fraction))(
              self._study.keys('masks'), trees(start.best.params),
              trees(start.mask))
    else:
      masks = jax.jit(jax.vmap(prune))(trees(start.best.params),
                                       trees(start.mask))
    mask = jax.vmap(lambda tree: self._dense.vector(tree, 0))(masks)
    self._fit([kind], self._dense, mask=mask,
              start=jnp.where(mask, start.best.params, 0.0))

  def _train_butterflies(self, kind: Kind) -> None:
    """Trains one kind of butterflies, or all at once if networks are packed."""
    profile = self._study.profile
    kinds = [kind]
    if profile.pack_size > 1:
      kinds = [packed for packed in profile.kinds()
               if packed.method == 'butterfly']
    self._fit(kinds, self._replicas(
        self._network, list(map(self._butterfly, kinds)), len(kinds)))

  def _butterfly(self, kind: Kind) -> parametrisations.Parametrisation:
    """Returns the parametrisation of a kind of butterflies."""
    return parametrisations.butterfly(
        self._network.init, segments=kind.segments, num_factors=kind.factors)

  def _fit(self, kinds: Sequence[Kind], trainer: Replicas, *,
           start: Array | None = None, mask: Array | None = None,
           on_epoch: Callable = lambda state, info: None) -> None:
    """Trains kinds together and stores each.

    Args:
      kinds: kinds of one architecture; replica r trains kind r modulo their
        number.
      trainer: trains the replicas.
      start: [R, d] initial parameters; None for random ones.
      mask: [R, d] bool, the weights that are trained; None for all.
      on_epoch: called with the state and the accuracies after each epoch.
    """
    study, count = self._study, len(kinds)
    repeat = lambda leaf: jnp.repeat(leaf, count, axis=0)
    total = count * study.num_networks
    rates = [hyperparameters.rates(kind) for kind in kinds]
    tile = lambda values: jnp.tile(jnp.asarray(values, jnp.float32),
                                   study.num_networks)
    task = Task(repeat(study.keys('batches')), repeat(study.fitted),
                repeat(study.validation),
                tile([rate.learning_rate for rate in rates]),
                tile([rate.weight_decay for rate in rates]),
                trainer.full_mask(total) if mask is None else mask)
    if start is None:
      start = trainer.initial(repeat(study.keys('init')))
    state = trainer.restart(start)
    name = '+'.join(map(_name, kinds)) + '.unfinished'
    unfinished = self._store.load(name, state)
    if unfinished is not None:
      state = jax.tree.map(jnp.asarray, unfinished)

    def after(state, info):
      on_epoch(state, info)
      self._store.save_now_and_then(name, state)
      self._progress(int(state.epoch[0]) / self._recipe.num_epochs,
                     _name(kinds[0]))

    state, _ = trainer.fit(state, task, after)
    params = state.best.params
    if trainer is not self._dense and kinds[0].method == 'butterfly':
      params = jax.jit(lambda params: jax.vmap(
          lambda tree: self._dense.vector(tree, 0))(trainer.dense(params)))(
              params)
    outcome = _Outcome(state.best._replace(params=params), task.mask,
                       state.best_accuracy)
    for number, kind in enumerate(kinds):
      self._keep(kind, jax.tree.map(lambda leaf, i=number: leaf[i::count],
                                    outcome))
    self._store.remove(name)

  def _narrow(self, kind: Kind) -> Replicas:
    """Returns the trainer of a kind of narrow networks, compiled once."""
    widths = (kind.segments, 2 * kind.segments, 4 * kind.segments)
    if kind not in self._narrow_replicas:
      network = self._resnet(widths)
      self._narrow_replicas[kind] = self._replicas(
          network, [parametrisations.dense(network.init)],
          self._study.profile.pack_size)
    return self._narrow_replicas[kind]

  def _replicas(self, network, parametrisations_, pack_size) -> Replicas:
    """Returns a trainer of networks with these parametrisations."""
    return Replicas(network, parametrisations=parametrisations_,
                    recipe=self._recipe, records=self._study.records,
                    pack_size=pack_size)

  def _resnet(self, widths: tuple[int, int, int]) -> BatchResnet:
    """Returns a residual network with these widths of its segments."""
    profile = self._study.profile
    return BatchResnet(depth=profile.depth, widths=widths,
                       num_classes=self._study.num_classes,
                       input_channels=self._study.records.x.shape[-1],
                       compute_dtype=profile.compute_dtype)

  def _keep(self, kind: Kind, outcome: _Outcome) -> None:
    """Stores the networks of a kind."""
    self._store.save(_name(kind), outcome)

  def _loaded(self, kind: Kind) -> _Outcome | None:
    """Returns the stored networks of a kind, or None."""
    # Only the structure of this tree is used.
    like = _Outcome(Snapshot(0, self._network.init_statistics()), 0, 0)
    return self._store.load(_name(kind), like)


def _name(kind: Kind) -> str:
  """Returns the name of a kind in the store."""
  numbers = (kind.prunings, kind.segments, kind.factors, kind.stop, kind.decay)
  return '-'.join([kind.method, *(f'{number:g}' for number in numbers)])
