"""Default hyperparameters of a run, for fields that its configuration leaves.

They depend on the method, the number of training records, and whether records
are images, columns of tables or features of norm 1. They were chosen by looking
at the registered data sets; a run's epsilon assumes that hyperparameters are
public inputs. What a search selects for one data set is not a default: see
`experiments.lip_search`, whose rows state its cost (erratum E30 of
experiments/ERRATA.md).
"""

from typing import Any

from dpjax.runs import training_methods

# Option -> value; the types are those of `options.TrainingConfig`.
Recipe = dict[str, Any]

# What all methods share; num_steps, batch_size and learning_rate always differ.
_SHARED: Recipe = dict(
    clip_norm=1.0, temperature=1.0, weight_norm=4.0, input_radius=2.5,
    hidden_radius=3.0, logit_clip=0.35, depth=1, width=16, activation='tanh',
    optimizer='sgd', schedule='cosine', allocation='optimal')
# Numbers of training records at which the defaults change.
_LARGE = 8000
_SMALL = 2000
_TINY = 600
# Largest default batch.
_MOST_RECORDS = 1024
# Largest default batch of a linear model on columns.
_MOST_AT_ONCE = 65_536


def recipe(method: str, *, num_train: int, images: bool = False,
           features: str = 'none', model: str | None = None,
           loss: str = 'cross_entropy') -> Recipe:
  """Returns the default hyperparameters of a method: option -> value.

  Args:
    method: a name of `training_methods.METHODS`.
    num_train: number n of training records, public.
    images: whether records are images.
    features: a name of `options.FEATURES`; all but 'none' have norm 1.
    model: a name of a network; None for the default.
    loss: a name of `options.LOSSES`.
  """
  method = training_methods.METHODS[method].same_recipe_as or method
  if images:
    return _of_images(method, num_train)
  if model == 'orthogonal':
    return _of_orthogonal(method, num_train, features)
  if features == 'scattering':
    return _of_features(method, num_train)
  if features != 'none':
    columns = _of_columns(method, num_train)
    return _ordinal(columns) if loss == 'ordinal' else columns
  return _general(method, num_train)


def _general(method: str, num_train: int) -> Recipe:
  """Returns defaults for all data sets: large batches and few steps.

  At a fixed budget, the noise in the mean gradient falls with the batch size.
  With a few hundred records, dp_sgd uses all of them in each step, and the
  Lipschitz methods use a smaller learning rate.
  """
  declared = training_methods.METHODS[method]
  changes = {'learning_rate': declared.learning_rate}
  batch_size = max(1, min(num_train // 2, _MOST_RECORDS))
  num_steps = 100 if num_train < _SMALL else 400
  if num_train < _TINY and method == 'dp_sgd':
    batch_size = num_train
    changes = {'learning_rate': 4.0, 'clip_norm': 0.5}
  elif num_train < _TINY and method != 'sgd':
    changes = {'learning_rate': 0.6}
  elif num_train < _SMALL and method == 'lip_normalised':
    changes = {'learning_rate': 4.0}
  elif num_train >= _LARGE and method != 'sgd' and not declared.linear:
    num_steps = 800
    changes = {'learning_rate': 1.5 * declared.learning_rate
               if declared.clips else 2.0}
  return {
      **_SHARED, 'num_steps': num_steps, 'batch_size': float(batch_size),
      'depth': 0 if declared.linear else 1,
      'temperature': declared.temperature, **changes}


def _of_images(method: str, num_train: int) -> Recipe:
  """Returns defaults for images: ReLU, larger balls, 128 hidden units."""
  return {
      **_general(method, num_train), 'depth': 2, 'width': 128,
      'activation': 'relu', 'input_radius': 10.0, 'hidden_radius': 5.0,
      'weight_norm': 1.5,
      'batch_size': float(max(1, min(num_train // 4, _MOST_RECORDS)))}


def _of_features(method: str, num_train: int) -> Recipe:
  """Returns defaults for features of norm 1: a linear model, large rates.

  The sensitivity of a single layer does not depend on the norm of its weights,
  so their limit is wide. Adaptive balls are behind hidden layers.
  """
  rate = 32.0 if num_train >= _LARGE else 4.0
  declared = training_methods.METHODS[method]
  general = {**_general(method, num_train), 'input_radius': 1.0}
  if declared.activations == 'adaptive_balls':
    return general
  return {
      **general, 'depth': 0, 'weight_norm': 200.0, 'temperature': 1.0,
      # The mean of clipped gradients is as small as the clip norm.
      'clip_norm': 0.3,
      'learning_rate': rate / 0.3 if declared.clips else rate}


def _of_columns(method: str, num_train: int) -> Recipe:
  """Returns defaults for columns of norm 1: a linear model, full batches.

  With all records in each step and momentum, few steps converge.
  """
  features = _of_features(method, num_train)
  if features['depth']:
    return features
  rate = 2.0 if num_train < _SMALL else 8.0 if num_train < _LARGE else 16.0
  return {
      **features, 'learning_rate': rate, 'optimizer': 'momentum',
      'num_steps': 200, 'logit_clip': 0.3,
      'batch_size': float(min(num_train, _MOST_AT_ONCE))}


def _ordinal(columns: Recipe) -> Recipe:
  """Returns defaults for a score on columns of norm 1.

  A small temperature has the effect of long weights without their noise. Then
  most derivatives in the score are 0 or 1 / temperature, and a bound of a small
  part of that makes those count that are between.
  """
  return {
      **columns, 'temperature': 0.05, 'optimizer': 'sgd', 'logit_clip': 1.2,
      'clip_norm': 1.2, 'learning_rate': 0.44 * columns['learning_rate']}


def _of_orthogonal(method: str, num_train: int, features: str) -> Recipe:
  """Returns defaults for a perceptron that keeps norms.

  All weights have norm 1, and the temperature makes the logits large enough: so
  one learning rate serves the head and the hidden layers. One noise scale for
  all layers is best, because a unit of noise moves the logits by as much as the
  bound of its layer. The bound of cotangents, 12, is near their largest norm,
  sqrt(2) over the temperature; a clip norm of half of it is better.
  """
  rate = 0.0025 if num_train < _SMALL else 0.025
  changes = {} if features != 'none' else {
      'input_radius': _SHARED['input_radius']}
  return {
      **_of_columns(method, num_train), 'depth': 2, 'width': 64,
      'activation': 'maxmin', 'allocation': 'global', 'weight_norm': 1.0,
      'temperature': 0.05, 'logit_clip': 12.0, 'clip_norm': 6.0,
      'learning_rate': 2 * rate if training_methods.METHODS[method].clips
                       else rate, **changes}
