"""Rows of what most experiments measure."""

from collections.abc import Mapping
from typing import Any

from dpjax.privacy.adjacency import Adjacency
from dpjax.report import records
from experiments import training


def exact(setting: Any, metrics: Mapping[str, float]) -> list[records.Row]:
  """Of something public: there are no records, and there is nothing to spend.

  Args:
    setting: has seed, method and dataset.
    metrics: value of each.
  """
  return [
      records.Row(
          seed=setting.seed, metric=metric, value=float(value), n=0,
          epsilon_requested=0.0, epsilon=0.0, epsilon_valid=True, delta=0.0,
          adjacency=Adjacency.ADD_OR_REMOVE_ONE.value, accountant='-',
          method=setting.method, dataset=setting.dataset)
      for metric, value in metrics.items()
  ]


def released(setting: Any, metrics: Mapping[str, float], *, n: int,
             epsilon: float, adjacency: Adjacency = Adjacency.REPLACE_ONE
             ) -> list[records.Row]:
  """Of releases on records that are drawn again and again: no one is in them.

  Args:
    setting: has seed, method and dataset.
    metrics: value of each.
    n: records of one release.
    epsilon: of one release; infinite where there is no privacy.
    adjacency: for which epsilon holds.
  """
  return [
      records.Row(
          seed=setting.seed, metric=metric, value=float(value), n=int(n),
          epsilon_requested=epsilon, epsilon=epsilon, epsilon_valid=True,
          delta=0.0, adjacency=adjacency.value, accountant='-',
          method=setting.method, dataset=setting.dataset)
      for metric, value in metrics.items()
  ]


def trained(setting: Any, result: training.TrainingResult,
            metrics: Mapping[str, float], *,
            epsilon: float | None = None) -> list[records.Row]:
  """Of a finished run.

  Args:
    setting: has seed, method, dataset and epsilon, the one asked for.
    result: of the run.
    metrics: value of each.
    epsilon: what the metrics cost, where it is not what the run did.
  """
  private = result.plan.noise_multiplier is not None
  return [
      records.Row(
          seed=setting.seed, metric=metric, value=float(value),
          n=result.num_train, epsilon_requested=setting.epsilon,
          epsilon=result.epsilon if epsilon is None else epsilon,
          epsilon_valid=result.epsilon_valid,
          delta=result.config.delta if private else 0.0,
          adjacency=result.config.adjacency,
          accountant=result.config.accountant, method=setting.method,
          dataset=setting.dataset, wall_s=result.train_seconds)
      for metric, value in metrics.items()
  ]


def of_training(setting: Any,
                result: training.TrainingResult) -> list[records.Row]:
  """Accuracy, the noise and what a step cost."""
  return trained(setting, result, {
      'test_accuracy': result.test_accuracy,
      'noise_multiplier': result.plan.noise_multiplier or 0.0,
      'step_microseconds': 1e6 * result.train_seconds / result.plan.num_steps,
  })
