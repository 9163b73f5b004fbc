"""Settings for section 5.2.4, Theorem 5.2.3 and Figures 5.2.1 and 5.3.3.

All are of Barczewski (2025).

  python -m launch.sweep --experiment=clipping_bias --data_dir=data \
    --output_dir=experiments/clipping_bias/results

Kinds of settings, and the meaning of their field `at`:
  zero     the point at which clipped gradient descent stops in the regression
           example
  field    the two vector fields of Figure 5.2.1; `at` is the point (u_1, u_2)
  descent  the point at which training ends on that example; dp_sgd at epsilon
           1, with ten seeds
  ball     a check of Theorem 5.2.3 on norm balls
  batches  its mini-batches; `at` is (batch size, share of large records)
  curve    Figure 5.3.3; `at` is (step,); 500 records, means over 20 runs

Expected for clip norm 1: descent stops at (-0.01765, -0.94221) relative to
(a, b); the printed point has the opposite signs. In Figure 5.3.3 the error ends
above 0.8 on dropout and near 0.3 on adult, where the mean clipped gradient is
below 0.05.
"""

import dataclasses
import math

PAPERS = ('003',)
ARTEFACT = ('section 5.2.4, Theorem 5.2.3, Figures 5.2.1 and 5.3.3 of '
            'Barczewski (2025): the bias of gradient clipping')
COST = '0.3 h on 2 CPU cores'
HEADLINES = (
    'DP-SGD comes to rest',
    'Theorem 5.2.3: the limit is a local optimum (clip',
    'Figure 5.3.3, dropout, clip norm 1',
    'dropout: bounding',
)
BATCHED = ('at', 'seed')

CLIP_NORM = 1.0
EPSILON = 1.0
"""Budget of private descent on the regression example."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One row of a table, point of a field or point of a curve.

  Attributes:
    kind: name from the list above; 'short' is a curve of a few steps.
    dataset: name of the data set.
    method: name of the training method.
    clip_norm: clip norm; infinite where nothing is clipped.
    at: coordinates, see the list above; empty for the other kinds.
    seed: seed of 'descent'; 0 for the other kinds.
  """
  kind: str
  dataset: str
  method: str
  clip_norm: float = math.inf
  at: tuple[float, ...] = ()
  seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Length:
  """Length of the curves.

  Attributes:
    num_steps: number of training steps.
    every: number of steps between points.
    num_runs: number of runs, with seeds 0, 1, ..., averaged in one row.
    probe_size: number of records that gradients are measured on.
  """
  num_steps: int
  every: int
  num_runs: int
  probe_size: int


LENGTHS = {
    'curve': Length(num_steps=600, every=30, num_runs=20, probe_size=500),
    'short': Length(num_steps=20, every=10, num_runs=2, probe_size=100),
}

DESCENT_SIZE = {'full': (20000, 1000), 'small': (1000, 300)}
"""(num_examples, num_steps) of the regression example."""

# (method, clip norm), in order: clipping with noise; clipping without; plain
# descent, on which clipping is only measured; methods that bound gradients by
# the norms of the weights.
CURVES = (
    ('dp_sgd', 1.0), ('dp_sgd', 3.0), ('clipped_sgd', 1.0),
    ('clipped_sgd', 3.0), ('sgd', 1.0), ('lip_sgd', math.inf),
    ('lip_dp_sgd', math.inf), ('lip_dp_sgd_logit_clip', math.inf))
DESCENTS = (('clipped_sgd', CLIP_NORM), ('normalised_sgd', math.inf),
            ('clipped_sgd', 20.0), ('sgd', math.inf))


def _zeros(clip_norms):
  return tuple(Setting(kind='zero', dataset='regression', method='exact',
                       clip_norm=clip_norm) for clip_norm in clip_norms)


def _field(firsts, seconds):
  return tuple(Setting(kind='field', dataset='regression', method='exact',
                       clip_norm=CLIP_NORM, at=(first, second))
               for first in firsts for second in seconds)


def _descents(size, methods, num_seeds):
  plain = [Setting(kind='descent', dataset=f'regression_{size}',
                   method=method, clip_norm=clip_norm)
           for method, clip_norm in methods]
  noisy = [Setting(kind='descent', dataset=f'regression_{size}',
                   method='dp_sgd', clip_norm=CLIP_NORM, seed=seed)
           for seed in range(num_seeds)]
  return (*plain, *noisy)


def _balls():
  return tuple(Setting(kind='ball', dataset='diagonal', method=method)
               for method in ('clip_weights', 'spectral_projection',
                              'frobenius_rescaling', 'frobenius_adam'))


def _batches(method, sizes, share):
  return tuple(Setting(kind='batches', dataset='two_kinds', method=method,
                       at=(size, share)) for size in sizes)


def _curve(kind, dataset, curves):
  length = LENGTHS[kind]
  return tuple(Setting(kind=kind, dataset=dataset, method=method,
                       clip_norm=clip_norm, at=(step,))
               for method, clip_norm in curves
               for step in range(0, length.num_steps + 1, length.every))


def _steps(first, last, count):
  return tuple(first + (last - first) * i / count for i in range(count + 1))


SETTINGS = (
    *_zeros((0.25, 1.0, 5.0, 10.0, 15.0, 20.0, 25.0, 26.0)),
    *_field(_steps(-1.25, 1.25, 10), _steps(-1.5, 1.25, 11)),
    *_descents('full', DESCENTS, 10),
    *_balls(),
    *_batches('with_replacement', (1, 2, 4, 8), 0.5),
    *_batches('with_replacement', (1, 8, 64, 256, 512, 4096), 0.01),
    *_batches('poisson', (8, 64, 256, 512), 0.01),
    *_curve('curve', 'dropout', CURVES),
    *_curve('curve', 'adult', CURVES))

SMOKE = (
    *_zeros((1.0, 20.0)),
    *_field(_steps(-0.25, 0.25, 2), _steps(-1.0, 0.0, 4)),
    *_descents('small', DESCENTS[:2], 2),
    *_balls(),
    *_batches('with_replacement', (1, 8), 0.5),
    *_batches('poisson', (8,), 0.01),
    *_curve('short', 'breast_cancer', (CURVES[0], CURVES[6])))

TAGS = {
    'exact': lambda setting: setting.kind in ('zero', 'field', 'ball',
                                              'batches'),
    'quick': lambda setting: setting.kind != 'curve'}
