"""The space that is searched (item EXP-T5.2), method by method."""

from collections.abc import Mapping
from typing import Any

from experiments import search_space

# All names that any method searches. None of them needs more recompilation than
# another. The split of the budget is searched, but not the noise multiplier,
# which is solved for epsilon.
_COMMON = ('sgd_learning_rate', 'temperature', 'batch_size', 'num_steps',
           'depth', 'width', 'activation', 'optimizer', 'schedule', 'features',
           'loss')
_CLIPPED = (*_COMMON, 'clip_norm')
_BOUNDED = (*_COMMON, 'weight_norm', 'logit_clip', 'allocation')
_PROJECTED = (*_BOUNDED, 'input_radius')
_LIPSCHITZ = (*_PROJECTED, 'hidden_radius')
_UNCLIPPED = tuple(name for name in _LIPSCHITZ if name != 'logit_clip')

NAMES = {
    'dp_sgd': _CLIPPED,
    'lip_dp_sgd': _LIPSCHITZ,
    'fix_lip_dp_sgd': _LIPSCHITZ,
    'layer_clipped': _CLIPPED,
    'dp_sgd_per_layer': _CLIPPED,
    # Its clip norm is a factor of the learning rate.
    'dp_sgd_automatic': _COMMON,
    'dp_sgd_adaptive': _CLIPPED,
    'lip_propagated': _PROJECTED,
    'lip_normalised': _BOUNDED,
    'lip_adaptive': _LIPSCHITZ,
    'lip_unclipped': _UNCLIPPED,
}
"""Method -> names of the hyperparameters that are searched."""

# A step of Adam is about as large as its learning rate in each coordinate, one
# of momentum ten times its rate. With these factors one range of rates serves
# all optimisers.
_RATE_FACTORS = {'sgd': 1.0, 'momentum': 0.1, 'adam': 0.02}
# Linear models on features of norm 1 have small gradients.
_LINEAR_FACTOR = 40.0
# Cuts of the ordinal loss are 1 apart. With them 8 apart, a score would have
# the scale of logits; so the ranges below are those of scores 8 times as large.
_SCORE_FACTORS = {'temperature': 0.125, 'clip_norm': 8.0, 'logit_clip': 8.0}
_SCORE_RATE_FACTOR = 0.125

_DIMENSIONS = (
    search_space.Real(name='sgd_learning_rate', low=0.1, high=10.0, log=True),
    search_space.Real(name='temperature', low=0.1, high=2.0, log=True),
    search_space.integers('depth', 0, 2),
    search_space.Levels(name='width', values=(8, 16, 32, 64)),
    search_space.Choice(name='activation', values=('tanh', 'relu')),
    search_space.Choice(name='optimizer', values=tuple(_RATE_FACTORS)),
    search_space.Choice(name='schedule', values=('cosine', 'constant')),
    search_space.Real(name='clip_norm', low=0.1, high=4.0, log=True),
    search_space.Real(name='weight_norm', low=1.0, high=200.0, log=True),
    search_space.Real(name='input_radius', low=1.0, high=6.0, log=True),
    search_space.Real(name='hidden_radius', low=1.0, high=6.0, log=True),
    search_space.Real(name='logit_clip', low=0.05, high=1.4, log=True),
    search_space.Choice(name='allocation',
                        values=('optimal', 'equal', 'global')),
)
_FEW = 2048


def batch_sizes(num_train: int) -> tuple[float, ...]:
  """Returns expected batch sizes to choose from, for `num_train` records."""
  if num_train < _FEW:
    sizes = (num_train // 4, num_train // 2, num_train)
  else:
    sizes = (512, 1024, 2048, num_train)
  return tuple(map(float, sizes))


def space(method: str, *, num_train: int, steps: tuple[int, ...],
          features: tuple[str, ...],
          losses: tuple[str, ...] = ('cross_entropy',)) -> search_space.Space:
  """Returns the search dimensions of a method on `num_train` records.

  Args:
    method: a key of `NAMES`.
    num_train: training records of a run.
    steps: numbers of steps to choose from.
    features: values of the option `features` to choose from.
    losses: values of the option `loss`; a single one is not searched.
  """
  dimensions = {each.name: each for each in (
      *_DIMENSIONS,
      search_space.Levels(name='batch_size', values=batch_sizes(num_train)),
      search_space.Levels(name='num_steps', values=steps),
      search_space.Choice(name='features', values=features))}
  if method == 'lip_adaptive':
    # It adapts the radii of balls behind hidden layers.
    dimensions['depth'] = search_space.integers('depth', 1, 2)
  if len(losses) > 1:
    dimensions['loss'] = search_space.Choice(name='loss', values=losses)
  return tuple(dimensions[name] for name in NAMES[method]
               if name in dimensions)


def to_config(point: search_space.Point) -> dict[str, Any]:
  """Returns the fields of a `TrainingConfig` that a point stands for."""
  fields = dict(point)
  fields['learning_rate'] = fields.pop('sgd_learning_rate') * _factor(point)
  for name in _scaled(fields):
    fields[name] *= _SCORE_FACTORS[name]
  if point['features'] != 'none' and 'input_radius' in fields:
    fields['input_radius'] = 1.0  # the norm of each record
  return fields


def _scaled(fields: Mapping[str, Any]) -> list[str]:
  """Returns the names of the fields that `_SCORE_FACTORS` multiply."""
  return [name for name in _SCORE_FACTORS
          if name in fields and fields.get('loss') == 'ordinal']


def _factor(fields: Mapping[str, Any]) -> float:
  """Returns the ratio of a learning rate to the one that is searched."""
  factor = _RATE_FACTORS[fields['optimizer']]
  if fields.get('loss') == 'ordinal':
    factor *= _SCORE_RATE_FACTOR
  if fields['features'] == 'none' or fields['depth']:
    return factor
  return factor * _LINEAR_FACTOR


def to_point(space_: search_space.Space,
             fields: Mapping[str, Any]) -> search_space.Point:
  """Returns the point that is closest to the fields of a configuration."""
  scaled = {name: fields[name] / _SCORE_FACTORS[name]
            for name in _scaled(fields)}
  return search_space.nearest(space_, {
      **fields, **scaled,
      'sgd_learning_rate': fields['learning_rate'] / _factor(fields)})


def describe(name: str) -> str:
  """Returns the range of a hyperparameter as text; '-' if not searched."""
  if name == 'batch_size':
    return f'n/4, n/2, n; 512, 1024, 2048, n from n = {_FEW}'
  dimension = next((each for each in _DIMENSIONS if each.name == name), None)
  if isinstance(dimension, search_space.Real):
    return f'[{dimension.low:g}, {dimension.high:g}]'
  if dimension is not None:
    return ', '.join(map(str, dimension.values))
  if name == 'learning_rate':
    rates = next(each for each in _DIMENSIONS
                 if each.name == 'sgd_learning_rate')
    return '; '.join(f'[{rates.low * factor:g}, {rates.high * factor:g}] '
                     f'for {optimizer}'
                     for optimizer, factor in _RATE_FACTORS.items()) + (
                         f'; {_LINEAR_FACTOR:g} times as much for linear '
                         'models on features')
  return '-'
