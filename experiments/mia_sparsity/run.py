"""Trains and attacks the networks of one profile."""

from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
import dataclasses
import math
import pathlib

from dpjax.audit import membership
from dpjax.privacy.adjacency import Adjacency
from experiments import records
from experiments.mia_sparsity import attacking
from experiments.mia_sparsity import private
from experiments.mia_sparsity import study as studies
from experiments.mia_sparsity import sweep
from experiments.mia_sparsity import trainers
from experiments.mia_sparsity.store import Store
from experiments.mia_sparsity.study import Study


def run(settings: Sequence[sweep.Setting], data_dir: str | None, progress, *,
        state_dir: pathlib.Path | None = None
        ) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`.

  All networks of a kind are trained and attacked together, even if only some
  are asked for, because they are each other's shadow models.
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
  privately = _Private(study, profile, name, on_progress)

  def rows_of(block, networks, metrics):
    for kind, trained, result in zip(block, networks, metrics, strict=True):
      for setting in settings:
        if _kind(setting) == kind:
          r = 2 * setting.seed + sweep.ROLES.index(setting.role)
          yield setting, _rows(study, setting, result[r], trained)

  # One block is attacked while the next one trains, since neither uses all
  # cores.
  with futures.ThreadPoolExecutor(1) as pool:
    attacked = None
    for i in range(0, len(kinds), profile.attacked_at_once):
      block, networks = kinds[i:i + profile.attacked_at_once], []
      for kind in block:
        networks.append((privately if kind.method in private.METHODS else
                         trainer).train(kind))
        done += 1
      if attacked is not None:
        yield from rows_of(*attacked[:2], attacked[2].result())
      attacked = block, networks, pool.submit(
          _attack, study, networks, trainer.num_dense)
    yield from rows_of(*attacked[:2], attacked[2].result())


def _attack(study: Study,
            networks: Sequence[trainers.Trained | private.Trained],
            num_dense: int) -> list[list[dict[str, float]]]:
  """Returns all metrics of each network, for each kind."""
  looks = [_look(study, trained, num_dense) for trained in networks]
  others = attacking.perceptrons(study, [seen for _, seen in looks])
  return [[one | other for one, other in zip(*both, strict=True)]
          for both in zip([result for result, _ in looks], others, strict=True)]


class _Private:
  """Trains private kinds, all budgets of a method at once.

  A method takes less than a minute, so no state is stored.
  """

  def __init__(self, study: Study, profile: sweep.Profile, name: str,
               on_progress: Callable[[float, str], None]):
    self._study, self._profile = study, profile
    self._design, self._progress = private.DESIGNS[name], on_progress
    self._trained: dict[sweep.Kind, private.Trained] = {}

  def train(self, kind: sweep.Kind) -> private.Trained:
    """Returns R networks of a kind."""
    if kind not in self._trained:
      epsilons = [each.epsilon for each in self._profile.kinds()
                  if (each.method, each.stop) == (kind.method, kind.stop)]
      result = private.train(
          kind.method, epsilons, design=self._design, delta=sweep.DELTA,
          records=self._study.records, num_classes=self._study.num_classes,
          rows=self._study.fitted, keys=self._study.keys('private'),
          stop=kind.stop, on_progress=self._progress)
      self._trained |= {
          dataclasses.replace(kind, epsilon=epsilon): trained
          for epsilon, trained in zip(epsilons, result, strict=True)}
    return self._trained[kind]


def _look(study: Study, trained: trainers.Trained | private.Trained,
          num_dense: int):
  """Returns metrics of each network, without perceptrons, and features."""
  seen = attacking.look(
      trained.apply, trained.networks, study.keys('noise'), *study.records,
      study.attacked, study.num_classes)
  common = {'nonzero': trained.num_params / num_dense,
            'num_params': trained.num_params,
            'num_attacked': study.attacked.shape[1]} | _ceilings(trained)
  result = [
      common | one | other for one, other in zip(
          attacking.accuracies(study, seen.logits),
          attacking.statistics(study, seen.logits), strict=True)]
  if isinstance(trained, trainers.Trained):
    for metrics, accuracy in zip(result, trained.validation_accuracy,
                                 strict=True):
      metrics['validation_accuracy'] = float(accuracy)
  return result, seen.features


def _ceilings(trained: trainers.Trained | private.Trained) -> dict[str, float]:
  """Returns upper bounds on attack accuracy that privacy implies (MIA-13)."""
  if isinstance(trained, trainers.Trained) or math.isinf(trained.epsilon):
    return {}
  return {
      'ceiling': membership.ceiling(epsilon=trained.epsilon,
                                    delta=trained.delta).accuracy,
      'event_ceiling': membership.ceiling_of_event(
          trained.plan.event, adjacency=trained.plan.adjacency).accuracy}


def _kind(setting: sweep.Setting) -> sweep.Kind:
  return sweep.Kind(**{field.name: getattr(setting, field.name)
                       for field in dataclasses.fields(sweep.Kind)})


def _rows(study: Study, setting: sweep.Setting, metrics: dict[str, float],
          trained: trainers.Trained | private.Trained) -> list[records.Row]:
  privately = isinstance(trained, private.Trained)
  return [
      records.Row(
          seed=setting.seed, metric=metric, value=float(value),
          n=study.fitted.shape[1], epsilon_requested=setting.epsilon,
          epsilon=trained.epsilon if privately else math.inf,
          epsilon_valid=True, delta=trained.delta if privately else 0.0,
          adjacency=Adjacency.REPLACE_ONE.value,
          accountant='pld' if privately else '-', method=setting.method,
          dataset=setting.dataset)
      for metric, value in metrics.items()]
