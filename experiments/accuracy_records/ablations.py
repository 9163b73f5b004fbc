"""Recipes with one thing changed, to see what each part is worth."""

from collections.abc import Callable, Mapping
import dataclasses

from experiments.accuracy_records import sweep
from experiments.accuracy_records.entries import Recipe

_CHANGES: Mapping[str, Callable[[Recipe], dict]] = {
    sweep.UNCHANGED: lambda recipe: {},
    'rdp_noise': lambda recipe: dict(accountant='rdp'),
    'averaging': lambda recipe: dict(
        average='none' if recipe.average != 'none' else 'ema'),
    'normalisation': lambda recipe: dict(
        num_groups=0 if recipe.num_groups else _groups(recipe.features)),
    'whitening': lambda recipe: dict(
        whitening=0.0 if recipe.whitening else 10.0),
    'features': lambda recipe: _other_features(recipe),
    'upright': lambda recipe: dict(upright=not recipe.upright),
    'mirrored': lambda recipe: dict(mirrored=not recipe.mirrored),
    'logarithm': lambda recipe: dict(
        logarithm=0.0 if recipe.logarithm else 0.001),
    'random_allocation': lambda recipe: dict(sampler='random_allocation'),
    'clipping': lambda recipe: dict(
        clipping='automatic' if recipe.clipping == 'flat' else 'flat')}


def changed(recipe: Recipe, variant: str) -> Recipe:
  """Returns a recipe with one thing changed.

  Everything has two values here: what the recipe has, and the other one. Random
  allocation also changes the batch size: to the next one that divides the
  records evenly.

  Args:
    recipe: the recipe that is best on the validation part.
    variant: one of `sweep.VARIANTS`.
  """
  return dataclasses.replace(recipe, **_CHANGES[variant](recipe))


def described(recipe: Recipe, variant: str) -> str:
  """Returns the change in words, such as 'average: ema instead of none'."""
  other = changed(recipe, variant)
  return ', '.join(
      f'{field.name}: {getattr(other, field.name)} instead of '
      f'{getattr(recipe, field.name)}' for field in dataclasses.fields(recipe)
      if getattr(other, field.name) != getattr(recipe, field.name)) or '-'


def _groups(features: str) -> int:
  """Returns a number of groups that divides the channels of all data sets."""
  return 1 if features == 'pixels' else 27


def _other_features(recipe: Recipe) -> dict:
  """Returns the other kind of features, with as much normalisation."""
  features = 'scattering' if recipe.features == 'pixels' else 'pixels'
  return dict(features=features,
              num_groups=_groups(features) if recipe.num_groups else 0)
