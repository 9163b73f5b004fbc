"""Settings to study private ROC curves.

Catalogue items EC-22, EC-30, EC-33 and EC-37. Figures and tables are those of
Barczewski (2025).

  python -m launch.sweep --experiment=roc_curves --data_dir=data \
    --output_dir=experiments/roc_curves/results

A public logistic regression is evaluated on the records that it was fitted on,
under replace_one; a neighbour may change the label of a record. Methods:
  exact    no privacy; with the rows of Table 6.1
  printed  half of epsilon for each class, noise (L + 1) / (epsilon / 2)
  tight    half of epsilon for each class, with the least noise of that method
  joint    one tree of counts over both classes, post-processed to the nearest
           nonnegative counts
Curves are smoothed in the norm p1 or p2, or not at all (none). A curve without
smoothing is not monotone, so errors use its running maximum.

Figures 6.5.1 to 6.5.3 are the settings that keep points of a curve; Figure
6.6.4 is bank_full against epsilon. A stand-in is a synthetic data set with the
size, the share of positives and the area under the curve of a real one.
"""

import dataclasses
import math

PAPERS = ('003',)
ARTEFACT = ('Figures 6.5.1 to 6.5.3 and 6.6.4 and Table 6.1 of Barczewski '
            '(2025): private ROC curves')
COST = '1 min on two CPU cores'
GALLERY = 'Private ROC curves'
HEADLINES = ('Table 6.1', 'smoothed curves', 'the error decreases',
             'one tree over both classes')
BATCHED = ('method', 'smoothing', 'epsilon', 'points', 'repetitions')

# Data set -> epsilon of its figure; and its entries in Table 6.1: number of
# records, share of positives, number of features.
FIGURES = {'framingham': 0.5, 'bank_full': 0.2, 'diabetes_130': 0.05}
TABLE_6_1 = {'framingham': (4328, 0.152, 15), 'bank_full': (45211, 0.117, 16),
             'diabetes_130': (101766, 0.460, 49)}
SMOOTHINGS = {'printed': ('none', 'p1', 'p2'), 'tight': ('p2',),
              'joint': ('p2',)}
EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_POINTS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One curve.

  Attributes:
    dataset: a name of `experiments.scores`.
    method: name from the list above.
    smoothing: name from the list above; 'none' for method 'exact'.
    epsilon: total budget of both classes.
    num_thresholds: N, the number of thresholds in [0, 1].
    repetitions: number of releases.
    points: number of points of the first release's curve to store; 0 for none.
    seed: seed of noise, and of stand-in data.
  """
  dataset: str
  method: str
  smoothing: str
  epsilon: float
  num_thresholds: int = 2**10
  repetitions: int = 100
  points: int = 0
  seed: int = 0


def _settings(dataset, epsilons, points=0, **fields):
  return tuple(
      Setting(dataset=dataset, method=method, smoothing=smoothing,
              epsilon=epsilon, points=points, **fields)
      for method, smoothings in SMOOTHINGS.items() for smoothing in smoothings
      for epsilon in epsilons)


def _exact(dataset, **fields):
  return Setting(dataset=dataset, method='exact', smoothing='none',
                 epsilon=math.inf, points=_POINTS, **fields)


def _figures(suffix=''):
  return tuple(
      setting for dataset, epsilon in FIGURES.items() for setting in (
          _exact(dataset + suffix),
          *_settings(dataset + suffix, (epsilon,), _POINTS)))


SETTINGS = (*_figures(), *_figures('_stand_in'), *(
    setting for dataset in ('bank_full', 'bank_full_stand_in')
    for setting in _settings(dataset, [
        epsilon for epsilon in EPSILONS if epsilon != FIGURES['bank_full']])))
SMOKE = (
    _exact('framingham_stand_in', num_thresholds=16, repetitions=6),
    *_settings('framingham_stand_in', (0.5,), _POINTS, num_thresholds=16,
               repetitions=6),
    *_settings('framingham_stand_in', (5.0,), num_thresholds=16,
               repetitions=6))
TAGS = {'quick': lambda setting: (
            setting.smoothing != 'p1' or setting.points > 0),
        'files': lambda setting: not setting.dataset.endswith('_stand_in'),
        'stand_ins': lambda setting: setting.dataset.endswith('_stand_in')}
