"""This module makes rows of mia_sparsity whose verdicts are known."""

import itertools

import numpy as np

from experiments import records
from experiments import selection
from experiments.mia_sparsity import lookup
from experiments.mia_sparsity import sweep
from experiments.mia_sparsity.sweep import Kind

DENSE = lookup.DENSE
ACCURACY, DEFENCE = 0.875, 79.0
"""Of the dense network, in most tests."""

_SEEDS = 3
_SHARE = {(1, 2): 0.3226, (2, 3): 0.1273}


def pruned(k):
  return Kind(method='magnitude', prunings=k)


def butterfly(segments, factors):
  return Kind(method='butterfly', segments=segments, factors=factors)


def share_of(kind):
  if kind.method == 'butterfly':
    return _SHARE.get((kind.segments, kind.factors), 0.085)
  return (1578 + 270896 * 0.8**kind.prunings) / 272474


def metrics_of(accuracy, defence):
  """Returns all metrics of a network; attacks lie on one line."""
  attack = 1 - defence / 200
  metrics = {'test_accuracy': accuracy, 'train_accuracy': 1.0,
             'validation_accuracy': accuracy, 'num_attacked': 28000.0,
             'num_params': 272474.0, 'defence': defence,
             'perceptron_oracle': attack + 0.002}
  for step, name in enumerate(lookup.ATTACKS):
    metrics[f'{name}_accuracy'] = 0.5 + (attack - 0.5) * (1 + 0.1 * step)
    metrics[f'{name}_auc'] = metrics[f'{name}_accuracy'] + 0.01
    for level in sweep.FPR_LEVELS:
      metrics[f'{name}_tpr_at_{level:g}'] = min(1, level * 20 * attack)
  return metrics


def rows_of(networks, profile='full', roles=sweep.ROLES, noise=0.0,
            num_seeds=_SEEDS):
  """Returns rows from {kind: metrics, or (seed, role) -> metrics}."""
  rows, generator = [], np.random.default_rng(0)
  for kind, metrics in networks.items():
    for seed, role in itertools.product(range(num_seeds), roles):
      setting = sweep.Setting(
          **kind.__dict__, profile=profile, seed=seed, role=role,
          dataset=sweep.PROFILES[profile].dataset)
      values = metrics(seed, role) if callable(metrics) else dict(metrics)
      values.setdefault('nonzero', share_of(kind))
      values['defence'] += noise * generator.standard_normal()
      rows += selection.named('mia_sparsity', setting, [
          records.Row(seed=seed, metric=metric, value=float(value), n=14000,
                      epsilon_requested=kind.epsilon, epsilon=kind.epsilon,
                      epsilon_valid=True, delta=1e-5,
                      adjacency='replace_one', accountant='pld',
                      method=kind.method, dataset=setting.dataset, wall_s=1.0)
          for metric, value in values.items()])
  return rows


def on_line(factor, kinds):
  """Returns a dense network and kinds that lose 1 %, 2 % and so on.

  They gain `factor` times what they lose.
  """
  metrics = {DENSE: metrics_of(ACCURACY, DEFENCE)}
  for i, kind in enumerate(kinds, 1):
    metrics[kind] = metrics_of(ACCURACY * (1 - 0.01 * i),
                               DEFENCE * (1 + 0.01 * factor * i))
  return metrics


def only(rows):
  """Returns the networks of the only profile."""
  networks, = lookup.collect(rows)
  return networks


def guarded(accuracy, metric='event_ceiling', level=0.6):
  """Returns metrics of a private network; one attack has this accuracy."""
  metrics = metrics_of(0.6, 200 * (1 - 0.55)) | {
      'ceiling': 0.9, metric: level, 'nonzero': 1.0, 'perceptron_oracle': 1.0}
  for name in lookup.ATTACKS:
    metrics[f'{name}_accuracy'] = 0.55
  metrics['rmia_accuracy'] = accuracy
  return metrics
