"""Training runs as values: configuration, building, summary, resuming.

Modules, in import order: environment, grouping, recipes, settings, options,
configuration, building, canaries, run_keys, training, summary, interrupted,
running.

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
    'interrupted', 'options', 'recipes', 'run_keys', 'running', 'settings',
    'summary', 'training'
]
