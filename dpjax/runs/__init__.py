"""Training runs as values: configuration, building, summary, resuming.

Modules, in import order: environment, grouping, recipes, configuration,
building, canaries, run_keys, training, summary, interrupted, running.

Examples:
  >>> from dpjax.runs import configuration
  >>> config = configuration.resolve(
  ...     configuration.TrainingConfig(dataset='digits', method='dp_sgd'),
  ...     num_available=569)
  >>> config.num_steps, config.noise_seed is None
  (100, True)
"""

__all__ = [
    'building', 'canaries', 'configuration', 'environment', 'grouping',
    'interrupted', 'recipes', 'run_keys', 'running', 'summary', 'training'
]
