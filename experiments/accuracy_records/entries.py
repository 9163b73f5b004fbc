"""The table of entries: data set, budget and the recipes that are tried.

To tune an entry, add recipes to its list. A recipe that has rows stays in the
list: the price of the choice counts every recipe that was tried. A longer list
has another `choice`, so the final runs, the ablations and the audit are run
again, with the recipe that is best now.
"""

from collections.abc import Mapping
import dataclasses
import functools
import hashlib
from typing import Any

DELTA = 1e-5
FEATURES = ('pixels', 'scattering')
MODELS = ('linear', 'cnn')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
  """Everything that a private run is made of, besides data, budget and seed.

  Attributes:
    features: one of `FEATURES`; both are functions of a single record, like all
      that is done to them before whitening.
    upright: whether images are made upright first (`features.upright`).
    mirrored: whether features are averaged over an image and its mirror image
      (`combining.MirrorAverage`).
    logarithm: offset of the logarithm of features (`combining.Logarithm`); 0
      for no logarithm.
    num_groups: number of groups of channels of a record that are normalised
      (Wu and He, 2018); 0 for no normalisation.
    whitening: noise multiplier of each of the three sums from which features
      are whitened (`features.PrivateWhitening`), before training and within the
      budget; 0 for no whitening.
    floor: floor of the whitening, as a multiple of the mean eigenvalue.
    model: one of `MODELS`.
    batch_size: expected batch size, in records.
    num_steps: number of steps.
    optimizer: a name of `optimizers.OPTIMIZERS`.
    learning_rate: first learning rate.
    schedule: a name of `optimizers.SCHEDULES`.
    clip_norm: l2 bound on the contribution of a record.
    clipping: 'flat' clips gradients, 'automatic' scales all of them to about
      the clip norm (Bu et al., 2023).
    average: which parameters are evaluated: 'none' for the last ones, or a name
      of `averaging.NAMES`.
    sampler: 'poisson' or 'random_allocation'.
    accountant: which one calibrates the noise, 'pld' or 'rdp'; the reported
      epsilon is always that of PLD.
  """
  features: str = 'scattering'
  upright: bool = False
  mirrored: bool = False
  logarithm: float = 0.0
  num_groups: int = 27
  whitening: float = 0.0
  floor: float = 1.0
  model: str = 'linear'
  batch_size: int
  num_steps: int
  optimizer: str = 'momentum'
  learning_rate: float
  schedule: str = 'constant'
  clip_norm: float = 0.1
  clipping: str = 'flat'
  average: str = 'none'
  sampler: str = 'poisson'
  accountant: str = 'pld'

  @property
  def name(self) -> str:
    """Returns all values as one word, for ids: different recipes differ."""
    return '-'.join(
        f'{value:g}' if isinstance(value, float) else str(value)
        for value in dataclasses.astuple(self))

  def __str__(self) -> str:
    words = [
        f'{self.model} model on {self.features}',
        'upright' if self.upright else '',
        'mirror average' if self.mirrored else '',
        f'logarithm with offset {self.logarithm:g}' if self.logarithm else '',
        f'{self.num_groups} groups normalised' if self.num_groups else '',
        f'whitened with noise {self.whitening:g} and floor {self.floor:g}'
        if self.whitening else '',
        f'batch {self.batch_size}', f'{self.num_steps} steps',
        f'{self.optimizer} {self.learning_rate:g}',
        '' if self.schedule == 'constant' else self.schedule,
        f'clip {self.clip_norm:g}',
        '' if self.clipping == 'flat' else f'{self.clipping} clipping',
        '' if self.average == 'none' else f'{self.average} average',
        '' if self.sampler == 'poisson' else self.sampler,
        '' if self.accountant == 'pld' else f'noise by {self.accountant}']
    return ', '.join(filter(None, words))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
  """One line of the table of records.

  Attributes:
    name: name of the entry.
    dataset: name of an image data set with a test part of the publisher.
    epsilon: budget of each run, for one record added or removed.
    recipes: what is tried, each private at this budget; the best one on the
      validation part is tested.
    choice_seeds: runs of each recipe that is tried.
    earlier_runs: (epsilon, number of runs) of private runs on the same training
      set without rows, by which the recipes were narrowed down; about.
    num_canaries: canaries of the audited run.
    delta: delta of each run.
  """
  name: str
  dataset: str
  epsilon: float
  recipes: tuple[Recipe, ...]
  choice_seeds: int = 1
  earlier_runs: tuple[tuple[float, int], ...] = ()
  num_canaries: int = 5000
  delta: float = DELTA

  @functools.cached_property
  def choice(self) -> str:
    """Returns a digest of everything that is tried, for the ids of settings."""
    names = '\n'.join(recipe.name for recipe in self.recipes)
    return 'best_of_' + hashlib.sha256(
        f'{self.choice_seeds}\n{names}'.encode()).hexdigest()[:8]


def _grid(*changes: Mapping[str, Any], **shared: Any) -> tuple[Recipe, ...]:
  """Returns one recipe for each mapping of values."""
  return tuple(Recipe(**{**shared, **each}) for each in changes)


_DIGITS = _grid(
    dict(learning_rate=2.0),
    dict(learning_rate=4.0),
    dict(learning_rate=4.0, average='ema'),
    dict(learning_rate=1.0, clipping='automatic'),
    features='pixels', num_groups=0, batch_size=512, num_steps=60,
    clip_norm=0.5)
# Steps on all records. Features are scaled to a mean square of 1, so a gradient
# has norms of tens, and nearly all are clipped.
_ALL = dict(batch_size=60_000, clip_norm=1.0)
_MNIST_1 = _grid(
    dict(upright=True, num_steps=120, learning_rate=1.0),
    dict(upright=True, num_steps=120, learning_rate=5.0, clip_norm=0.1),
    dict(upright=True, num_steps=60, learning_rate=1.0),
    dict(num_steps=120, learning_rate=1.0),
    whitening=20.0, floor=4.0, **_ALL)
_MNIST_3 = _grid(
    dict(upright=True, num_steps=150, learning_rate=0.5),
    dict(upright=True, num_steps=150, learning_rate=10.0, clip_norm=0.1),
    dict(upright=True, num_steps=150, learning_rate=1.0, average='ema'),
    dict(num_steps=150, learning_rate=0.5),
    whitening=10.0, floor=4.0, **_ALL)
_FASHION_1 = _grid(
    dict(num_steps=50, learning_rate=1.0),
    dict(num_steps=50, learning_rate=1.0, num_groups=0, logarithm=0.001),
    dict(num_steps=50, learning_rate=1.0, num_groups=0, logarithm=0.003),
    dict(num_steps=50, learning_rate=2.0, num_groups=0, logarithm=0.001,
         average='ema'),
    whitening=25.0, **_ALL)
_FASHION_3 = _grid(
    dict(num_steps=80, learning_rate=1.6),
    dict(num_steps=80, learning_rate=1.6, num_groups=0, logarithm=0.001),
    dict(num_steps=80, learning_rate=1.6, num_groups=0, logarithm=0.003),
    dict(num_steps=80, learning_rate=1.6, num_groups=0, logarithm=0.003,
         mirrored=True),
    whitening=10.0, **_ALL)
_CIFAR = _grid(
    dict(num_steps=80, learning_rate=0.4, num_groups=0, logarithm=0.001),
    dict(num_steps=80, learning_rate=0.8, num_groups=0, logarithm=0.001),
    dict(num_steps=80, learning_rate=0.4, num_groups=0, logarithm=0.0003),
    dict(num_steps=60, learning_rate=0.7, num_groups=81),
    mirrored=True, whitening=10.0, floor=4.0, **_ALL)

_ENTRIES = (
    # The last fifth of the digits is our test part; no files are needed.
    Entry(name='digits_4', dataset='digits', epsilon=4.0, recipes=_DIGITS,
          choice_seeds=2, num_canaries=500),
    Entry(name='mnist_1.2', dataset='mnist', epsilon=1.2, recipes=_MNIST_1,
          earlier_runs=((1.2, 35), (2.5, 160))),
    Entry(name='mnist_2.5', dataset='mnist', epsilon=2.5, recipes=_MNIST_3,
          earlier_runs=((1.2, 35), (2.5, 160))),
    Entry(name='fashion_mnist_1', dataset='fashion_mnist', epsilon=1.0,
          recipes=_FASHION_1, earlier_runs=((1.0, 52), (3.0, 80))),
    Entry(name='fashion_mnist_3', dataset='fashion_mnist', epsilon=3.0,
          recipes=_FASHION_3, earlier_runs=((1.0, 52), (3.0, 80))),
    Entry(name='cifar10_3', dataset='cifar10', epsilon=3.0, recipes=_CIFAR,
          earlier_runs=((3.0, 60),)),
)
ENTRIES: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}
"""Name of an entry -> the entry."""
