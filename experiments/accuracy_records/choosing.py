"""Which recipe of an entry is best on the validation part, and the price.

The price is that of all private runs: those by which the recipes were narrowed
down, every run of the choice and one final run are composed, so it covers every
rule by which a recipe is chosen. It is what a record pays that the runs of the
choice trained on. A record of the validation part pays for a final run and for
the scores. These are exact here; a release would add discrete Laplace noise to
the number of right answers, of which `score_stddev` gives an amount at which
such a record pays no more.
"""

from collections.abc import Sequence
import math

import numpy as np

from dpjax.privacy import accounting
from experiments import points
from experiments import records
from experiments.accuracy_records import data
from experiments.accuracy_records import fitting
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.entries import Recipe

SCORE = 'validation_accuracy'


def scores(entry: Entry, rows: Sequence[records.Row]) -> dict[str, list[float]]:
  """Returns name of a recipe -> its scores on the validation part, by seed."""
  result: dict[str, list[float]] = {}
  for point in points.collect(rows):
    if point['entry'] == entry.name and point['part'] == 'choose':
      result.setdefault(str(point['recipe']), []).append(point[SCORE])
  return result


def best(entry: Entry, rows: Sequence[records.Row]) -> Recipe:
  """Returns the recipe with the best mean score; the first of equal ones.

  Only rows of the part `choose` count, and none has seen the test set.

  Args:
    entry: the entry.
    rows: rows of any entries and parts.

  Raises:
    ValueError: a recipe of the entry has too few rows.
  """
  found = scores(entry, rows)
  for recipe in entry.recipes:
    if len(found.get(recipe.name, ())) < entry.choice_seeds:
      raise ValueError(
          f'{entry.name} has no score of {recipe.name}; run its part choose '
          'first, in the same folder')
  return max(entry.recipes, key=lambda each: np.mean(found[each.name]))


def price(entry: Entry, recipe: Recipe, num_records: int) -> float:
  """Returns the epsilon of all earlier runs, those of the choice, a final one.

  Args:
    entry: the entry, with all recipes that were tried.
    recipe: the recipe of the final run.
    num_records: number of records of the whole training set.
  """
  part = data.validation_split(num_records).train.size
  event = lambda recipe, size: fitting.plan(entry, recipe, size).event
  events = [accounting.repeated_event(event(each, part), entry.choice_seeds)
            for each in entry.recipes]
  events.append(event(recipe, num_records))
  # The earlier runs were sums with Gaussian noise, each private at its budget.
  events += [accounting.gaussian_event(noise_multiplier=1 / (
      math.sqrt(count) * accounting.gaussian_shift(
          epsilon=epsilon, delta=entry.delta)))
             for epsilon, count in entry.earlier_runs]
  return accounting.epsilon(
      accounting.composed_event(events), delta=entry.delta,
      adjacency=fitting.ADJACENCY)


def num_runs(entry: Entry) -> int:
  """Returns the number of runs of the choice, with the earlier ones."""
  return (len(entry.recipes) * entry.choice_seeds +
          sum(count for _, count in entry.earlier_runs))


def score_stddev(entry: Entry, epsilon: float, price_of_all: float) -> float:
  """Returns the noise that each score could have at no further price.

  A record changes a number of right answers by 1, so one score with discrete
  Laplace noise of weight e^(-a |z|) costs epsilon a, and all of them add up.

  Args:
    entry: the entry.
    epsilon: of a final run.
    price_of_all: see `price`.

  Returns:
    Standard deviation, in records.
  """
  weight = max(price_of_all - epsilon, 1e-9) / num_runs(entry)
  return math.sqrt(0.5) / math.sinh(weight / 2)
