"""Settings that vary epsilon, the number of records and the depth.

Catalogue item EXP-SWEEP.

  python -m launch.sweep --experiment=lip_depth --data_dir=data \
    --output_dir=experiments/lip_depth/results

Kinds of settings:
  train   training of a perceptron. On adult: three sweeps through one centre
          (epsilon 1, all records, two hidden layers); a grid of epsilon and
          depth for two methods; and a sweep of the depth for two methods with
          weights of norm 1. On nursery: sweeps of epsilon and of depth.
  orthogonal  training of `mlp.orthogonal` on binned columns of norm 1 on adult:
          a sweep of the depth for four methods. Layer k > 1 is a mean of its
          input and of an orthogonal layer, with weight 1 / (2 depth)
  bounds  certified bounds of networks whose weights all have norm C, without
          data: chains, and wide residual networks with plain and averaged sums
  noise   the noise that the privatizer adds, measured; `method` is the way in
          which the budget is split over layers

All methods share the number of steps, the batch size and the width, so that the
noise multiplier depends on epsilon and n alone; `orthogonal` has eight times
the batch. Their other hyperparameters are those of `recipes` at every depth.
`choosing` chooses learning rates and bounds of `orthogonal` on a validation
fold of adult, with as many candidates for each private method. The weights of
its layers were chosen for lip_dp_sgd on validation folds, in splits of seeds 0
and 1. No choice is part of epsilon.

Expected on adult at epsilon 1: clipping loses nothing up to eight hidden
layers, and the Lipschitz methods lose from four on: if all norms are C = 4, the
bound of the first of K layers grows as 4^(K-1). Orthogonal layers lose less
than 0.01 up to sixteen.
"""

import dataclasses
import math

PAPERS = ('003',)
ARTEFACT = ('section 5.3.2 of Barczewski (2025) on deep models: accuracy '
            'against epsilon, n and depth (EXP-SWEEP)')
COST = '0.4 h on 2 CPU cores'
GALLERY = 'Depth, records and epsilon'
HEADLINES = (
    'bound of the first layer, plain',
    'the same, averaged',
    'adult, dp_sgd',
    'adult, lip_dp_sgd',
    'adult: Lip-DP-SGD supports',
    'adult, 16 orthogonal layers',
)
BATCHED = ('seed', 'epsilon')

CLIPPING = ('dp_sgd', 'layer_clipped')
LIPSCHITZ = ('lip_dp_sgd', 'fix_lip_dp_sgd', 'lip_normalised',
             'lip_propagated')
METHODS = CLIPPING + LIPSCHITZ
PLANE = ('dp_sgd', 'lip_dp_sgd')
UNIT = ('lip_dp_sgd', 'lip_propagated')
"""Methods that are run with weights of norm 1, too."""
ON_ORTHOGONAL = ('dp_sgd', 'layer_clipped', 'lip_dp_sgd')
"""Private methods that train `mlp.orthogonal`."""

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (1000, 3000, 10_000, 30_000, None)
DEPTHS = (1, 2, 4, 8, 16)
WIDE_DEPTHS = (10, 16, 22, 28, 40)
NUM_SEEDS = 5

EPSILON, DEPTH, WEIGHT_NORM = 1.0, 2, 4.0
"""Epsilon, depth and weight norm of the centre of the sweeps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One training run, one network, or one way to split the noise.

  Attributes:
    kind: name from the list above; 'smoke' and 'smoke_orthogonal' train for a
      few steps.
    dataset: name of the data set; 'none' for settings without data.
    method: training method, where 'sgd' is the non-private ceiling; for
      'bounds' the kind of network, 'chain', or 'plain' or 'averaged' residual
      sums; for 'noise' the allocation rule.
    epsilon: requested budget; infinite for 'sgd', 0 for settings without data.
    num_examples: number of training records; None for all.
    depth: number of hidden layers; for 'plain' and 'averaged' the depth 6 n +
      4.
    weight_norm: C, norm of the weights for Lipschitz methods and 'bounds'.
    seed: seed of all random draws.
  """
  kind: str
  dataset: str
  method: str
  epsilon: float
  num_examples: int | None = None
  depth: int = DEPTH
  weight_norm: float = WEIGHT_NORM
  seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
  """Training options that all methods share.

  Attributes:
    num_steps: number of training steps.
    batch_size: expected batch size, at most half of the records.
    probe_size: number of training records whose contributions are measured.
  """
  num_steps: int
  batch_size: int
  probe_size: int


TRAINING = {
    'train': Training(num_steps=300, batch_size=512, probe_size=500),
    'orthogonal': Training(num_steps=300, batch_size=4096, probe_size=500),
    'smoke': Training(num_steps=5, batch_size=512, probe_size=20),
    'smoke_orthogonal': Training(num_steps=5, batch_size=512, probe_size=20),
}
ORTHOGONAL = ('orthogonal', 'smoke_orthogonal')
"""Kinds of settings that train `mlp.orthogonal`, not `mlp.mlp`."""


def _runs(dataset, methods, *, kind='train', epsilons=(EPSILON,),
          sizes=(None,), depths=(DEPTH,), weight_norm=WEIGHT_NORM,
          num_seeds=NUM_SEEDS):
  return [
      Setting(kind=kind, dataset=dataset, method=method,
              epsilon=math.inf if method == 'sgd' else epsilon,
              num_examples=size, depth=depth, weight_norm=weight_norm,
              seed=seed)
      for method in methods for size in sizes for depth in depths
      for epsilon in epsilons for seed in range(num_seeds)]


def _sweeps(dataset, methods, **kwargs):
  """Returns the sweeps of epsilon and depth through the centre, and of sgd."""
  return [*_runs(dataset, methods, epsilons=EPSILONS, **kwargs),
          *_runs(dataset, methods, depths=DEPTHS, **kwargs),
          *_runs(dataset, ('sgd',), depths=DEPTHS, **kwargs)]


def _bounds(method, depths, weight_norms):
  return [Setting(kind='bounds', dataset='none', method=method, epsilon=0.0,
                  depth=depth, weight_norm=weight_norm)
          for depth in depths for weight_norm in weight_norms]


def _noise(depths):
  return [Setting(kind='noise', dataset='none', method=method, epsilon=0.0,
                  depth=depth, weight_norm=1.5)
          for method in ('optimal', 'equal', 'global') for depth in depths]


def _settings():
  result = [
      *_bounds('chain', DEPTHS, (0.5, 1.0, 2.0, WEIGHT_NORM)),
      *_bounds('plain', WIDE_DEPTHS, (1.0,)),
      *_bounds('averaged', WIDE_DEPTHS, (1.0,)),
      *_noise((0, 1, 4, 16)),
      *_sweeps('adult', METHODS),
      *_runs('adult', (*METHODS, 'sgd'), sizes=SIZES),
      *_runs('adult', PLANE, epsilons=EPSILONS, depths=DEPTHS),
      *_runs('adult', UNIT, depths=DEPTHS, weight_norm=1.0),
      *_runs('adult', ('sgd', *ON_ORTHOGONAL), kind='orthogonal',
             depths=DEPTHS, weight_norm=1.0),
      *_sweeps('nursery', METHODS)]
  # Several sweeps contain the centre; each setting is kept once.
  return tuple(dict.fromkeys(result))


SETTINGS = _settings()
SMOKE = tuple(dict.fromkeys([
    *_bounds('chain', (1, 4), (1.0, 2.0)), *_bounds('plain', (10, 16), (1.0,)),
    *_bounds('averaged', (10, 16), (1.0,)), *_noise((0, 2)),
    *_runs('breast_cancer', PLANE, kind='smoke', epsilons=(1.0, 4.0),
           depths=(1, 2), num_seeds=2),
    *_runs('breast_cancer', PLANE[1:], kind='smoke', weight_norm=1.0,
           num_seeds=2),
    *_runs('breast_cancer', ('sgd',), kind='smoke', num_seeds=2),
    *_runs('breast_cancer', PLANE, kind='smoke_orthogonal', depths=(1, 3),
           weight_norm=1.0, num_seeds=2)]))

# Every tag selects settings by a predicate; all tags together cover the sweep.
TAGS = {
    'laws': lambda setting: setting.kind in ('bounds', 'noise'),
    'quick': lambda setting: setting.kind in ('bounds', 'noise'),
    'adult': lambda setting: setting.dataset == 'adult',
    'nursery': lambda setting: setting.dataset == 'nursery',
}
