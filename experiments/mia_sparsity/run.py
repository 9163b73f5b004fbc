"""Trains and attacks the networks of one profile."""

from collections.abc import Iterator, Sequence
import dataclasses
import math
import pathlib

import jax.numpy as jnp

from dpjax.privacy.adjacency import Adjacency
from dpjax.report import records
from experiments.mia_sparsity import attacking
from experiments.mia_sparsity import study as studies
from experiments.mia_sparsity import sweep
from experiments.mia_sparsity import trainers
from experiments.mia_sparsity.store import Store
from experiments.mia_sparsity.study import Study

_PRIVATE = ('sgd', 'dp_sgd', 'lip_dp_sgd')


def run(settings: Sequence[sweep.Setting], data_dir: str | None, progress, *,
        state_dir: pathlib.Path | None = None
        ) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`.

  All networks of a kind are trained and attacked together, whichever are asked
  for: they are each other's shadows.
  """
  name = settings[0].profile
  profile = sweep.PROFILES[name]
  study = studies.load(profile, data_dir)
  folder = state_dir and pathlib.Path(state_dir) / name
  store = Store(folder, repr(profile))
  asked = {_kind(setting) for setting in settings}
  kinds = [kind for kind in profile.kinds() if kind in asked]
  done = 0

  def on_progress(share, what):
    progress((done + share) / len(kinds), what)

  trainer = trainers.Trainer(study, store, on_progress)
  for i in range(0, len(kinds), profile.attacked_at_once):
    block, metrics, features = kinds[i:i + profile.attacked_at_once], [], []
    for kind in block:
      found, seen = _look(study, trainer.train(kind))
      metrics.append(found)
      features.append(seen)
      done += 1
    attacked = attacking.perceptrons(study, features)
    for kind, found, more in zip(block, metrics, attacked, strict=True):
      for setting in settings:
        if _kind(setting) == kind:
          r = 2 * setting.seed + sweep.ROLES.index(setting.role)
          yield setting, _rows(study, setting, found[r] | more[r])


def _look(study: Study, trained: trainers.Trained):
  """Metrics of each network but those of perceptrons, and their features."""
  seen = attacking.look(
      trained.apply, trained.networks, study.keys('noise'), *study.records,
      study.attacked, study.num_classes)
  metrics = [
      first | second | {'nonzero': trained.nonzero,
                        'num_params': trained.num_params,
                        'num_attacked': study.attacked.shape[1],
                        'validation_accuracy': float(accuracy)}
      for first, second, accuracy in zip(
          attacking.accuracies(study, seen.logits),
          attacking.statistics(study, seen.logits),
          trained.validation_accuracy, strict=True)]
  return metrics, jnp.asarray(seen.features)


def _kind(setting: sweep.Setting) -> sweep.Kind:
  return sweep.Kind(**{field.name: getattr(setting, field.name)
                       for field in dataclasses.fields(sweep.Kind)})


def _rows(study: Study, setting: sweep.Setting, metrics: dict[str, float],
          epsilon: float = math.inf) -> list[records.Row]:
  return [
      records.Row(
          seed=setting.seed, metric=metric, value=float(value),
          n=study.fitted.shape[1], epsilon_requested=setting.epsilon,
          epsilon=epsilon, epsilon_valid=True,
          delta=sweep.DELTA if math.isfinite(epsilon) else 0.0,
          adjacency=Adjacency.REPLACE_ONE.value, accountant='-',
          method=setting.method, dataset=setting.dataset)
      for metric, value in metrics.items()]
