"""Makes rows for the kinds of results that most experiments have."""

from collections.abc import Mapping
from typing import Any

from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import training
from experiments import records


def exact(setting: Any, metrics: Mapping[str, float]) -> list[records.Row]:
  """Returns rows of public computations: n = 0 records, epsilon = 0.

  Args:
    setting: a setting with seed, method and dataset.
    metrics: name of a metric -> its value.
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
  """Returns rows of releases on synthetic records, which no person is in.

  Args:
    setting: a setting with seed, method and dataset.
    metrics: name of a metric -> its value.
    n: number of records of one release.
    epsilon: pure-DP budget of one release; infinite for no privacy.
    adjacency: notion of neighbouring data sets for which epsilon holds.
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
  """Returns rows of a finished training run.

  Args:
    setting: a setting with seed, method, dataset and the requested epsilon.
    result: result of the run.
    metrics: name of a metric -> its value.
    epsilon: privacy cost of the metrics; None for that of the run.
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
  """Returns rows of test accuracy, noise multiplier and time of a step."""
  return trained(setting, result, {
      'test_accuracy': result.test_accuracy,
      'noise_multiplier': result.plan.noise_multiplier or 0.0,
      'step_microseconds': 1e6 * result.train_seconds / result.plan.num_steps,
  })
