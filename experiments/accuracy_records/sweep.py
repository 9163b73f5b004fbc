"""Settings of the records of private accuracy; `entries.py` has the table.

  python -m launch.records --entry=fashion_mnist_3 --data_dir=data

makes one line of the table: it chooses a recipe, tests it, tries what each part
of it is worth, and audits a run. The parts of an entry:

  choose    each recipe, private at the budget of the entry, is trained on five
            sixths of the training set and scored on the rest, the validation
            part
  final     the recipe with the best score is trained on the whole training set
            with five seeds; this part alone opens the test set
  ablation  that recipe with one thing changed, as in `choose`, with three seeds
  audit     that recipe on a training set with canaries, which gives a lower
            bound on epsilon

The rows of `choose` are read from the folder of the sweep, or else from the
committed ones. They are of private runs, but their scores are exact and the
choice is not charged to epsilon; `epsilon_with_choice` states its price.
"""

import dataclasses

from experiments.accuracy_records import entries

PAPERS = ('003',)
ARTEFACT = 'Records of private accuracy without extra data'
COST = ('digits_4: 2 min; without ablations on 2 CPU cores: MNIST and '
        'Fashion-MNIST 5 to 15 min, CIFAR-10 30 min and 20 GB of memory')
BATCHED = ('seed',)
# The folder of the sweep has the rows of earlier parts, and cached features.
KEEPS_STATE = True

FINAL_SEEDS, ABLATION_SEEDS = 5, 3
UNCHANGED = 'unchanged'
VARIANTS = (UNCHANGED, 'rdp_noise', 'averaging', 'normalisation',
            'whitening', 'features', 'upright', 'mirrored', 'logarithm',
            'random_allocation', 'clipping')
"""What an ablation changes, see `ablations.changed`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One private run.

  Attributes:
    entry: name of the entry.
    dataset: name of its data set.
    epsilon: its budget.
    part: 'choose', 'final', 'ablation' or 'audit'.
    recipe: name of the recipe; after the choice, the digest of what was tried.
    variant: one of `VARIANTS`.
    seed: seed of initial weights, batches and noise.
  """
  entry: str
  dataset: str
  epsilon: float
  part: str
  recipe: str
  variant: str
  seed: int


def settings_of(entry: entries.Entry) -> tuple[Setting, ...]:
  """Returns the settings of an entry, those of the choice first."""
  def settings(part, recipe, seeds, variant=UNCHANGED):
    return tuple(Setting(
        entry=entry.name, dataset=entry.dataset, epsilon=entry.epsilon,
        part=part, recipe=recipe, variant=variant, seed=seed)
                 for seed in range(seeds))

  chosen = entry.choice
  return (
      *(each for recipe in entry.recipes
        for each in settings('choose', recipe.name, entry.choice_seeds)),
      *settings('final', chosen, FINAL_SEEDS),
      *(each for variant in VARIANTS
        for each in settings('ablation', chosen, ABLATION_SEEDS, variant)),
      *settings('audit', chosen, 1))


SETTINGS = tuple(setting for entry in entries.ENTRIES.values()
                 for setting in settings_of(entry))
SMOKE = settings_of(entries.ENTRIES['digits_4'])
TAGS = {'quick': lambda setting: setting.entry == 'digits_4',
        'choose': lambda setting: setting.part == 'choose'}
REPRODUCE = 'quick'
HEADLINES = tuple(f'{name}: accuracy' for name in entries.ENTRIES
                  if name != 'digits_4')
