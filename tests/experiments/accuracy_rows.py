"""A small entry of the records of accuracy, and rows of its choice."""

from experiments import selection
from experiments.accuracy_records import choosing
from experiments.accuracy_records import data
from experiments.accuracy_records import entries
from experiments.accuracy_records import sweep

NAME = 'accuracy_records'
RECIPES = tuple(entries.Recipe(
    features='pixels', num_groups=0, batch_size=300, num_steps=8,
    learning_rate=rate, clip_norm=0.5) for rate in (1.0, 2.0))
ENTRY = entries.Entry(name='tiny', dataset='digits', epsilon=4.0,
                      recipes=RECIPES, choice_seeds=2, num_canaries=60)


def only_entry(monkeypatch):
  """Yields `ENTRY`, which is the only entry meanwhile."""
  monkeypatch.setattr(entries, 'ENTRIES', {'tiny': ENTRY})
  # A training set of one test must not serve another.
  caches = data.load, data._training_set
  for cache in caches:
    cache.cache_clear()
  yield ENTRY
  for cache in caches:
    cache.cache_clear()


def settings(**wanted):
  """Returns the settings of the entry with these values."""
  return [each for each in sweep.settings_of(ENTRY) if all(
      getattr(each, name) == value for name, value in wanted.items())]


def scored(make_row, first=(.9, .5), second=(.8, .7)):
  """Returns rows of the choice, with scores of both recipes by seed."""
  values = {RECIPES[0].name: first, RECIPES[1].name: second}
  return [make_row(
      id=selection.setting_id(NAME, setting), seed=setting.seed,
      metric=choosing.SCORE, value=values[setting.recipe][setting.seed])
          for setting in settings(part='choose')]
