"""Training runs as values: configuration, building, summary, resuming.

Modules, in import order: environment, grouping, training_methods, recipes,
settings, options, run_sampling, run_users, run_features, configuration,
building, canaries, run_keys, run_data, training, summary, interrupted, running,
selection, selecting.

Examples:
  >>> from dpjax.runs import configuration
  >>> config = configuration.resolve(
  ...     configuration.TrainingConfig(dataset='digits', method='dp_sgd'),
  ...     num_available=569)
  >>> config.num_steps, config.noise_seed is None
  (100, True)
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.runs.configuration import check as check
  from dpjax.runs.configuration import resolve as resolve
  from dpjax.runs.configuration import TrainingConfig as TrainingConfig
  from dpjax.runs.running import run as run
  from dpjax.runs.training import train as train
  from dpjax.runs.training import TrainingResult as TrainingResult

__all__ = [
    'TrainingConfig', 'TrainingResult', 'check', 'resolve', 'run', 'train'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'TrainingConfig': 'configuration', 'check': 'configuration',
      'resolve': 'configuration', 'run': 'running',
      'TrainingResult': 'training', 'train': 'training'})
