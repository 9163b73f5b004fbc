"""Settings that compare ways to draw batches and to correlate the noise.

Catalogue item LDP-11.

  python -m launch.sweep --experiment=lip_noise --data_dir=data \
    --output_dir=experiments/lip_noise/results

A linear model on binned columns of adult, which have norm 1: gradients of
Lip-DP-SGD then attain their bound, which does not change. Its update is a plain
sum, so it takes any noise that sums take.

Ways (`noise`):
  poisson        each record is in each batch with one probability
  allocation     each record is in one uniform batch of each epoch
  cyclic         random groups of records take turns
  banded         cyclic, and the noise of a step takes back a part of that of
                 earlier steps: the square-root strategy with one band for each
                 group
Only the first two hide which records took part in a step. The last two promise
the same epsilon to an observer who knows that.

Schedules: 'one_pass' has 200 steps, in each of which another 200th of the
records takes part; 'twenty_passes' has 16 groups and 320 steps.

`choosing` chooses a learning rate for each method, schedule and way on a
validation fold of another split, from as many candidates; that is no part of
epsilon.

Expected at epsilon 1: without sampling, banded noise wins back most of what
independent noise loses.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

PAPERS = ('003',)
ARTEFACT = ('section 5.2 of Barczewski (2025), and beyond: Lip-DP-SGD with '
            'correlated noise')
COST = '0.2 h on 2 CPU cores'
HEADLINES = ('Lip-DP-SGD, twenty_passes',)
BATCHED = ('seed',)

METHODS = ('lip_dp_sgd', 'dp_sgd')
NOISE: Mapping[str, Mapping[str, Any]] = {
    'poisson': {},
    'allocation': {'sampler': 'random_allocation'},
    'cyclic': {'sampler': 'cyclic'},
    'banded': {'sampler': 'cyclic', 'correlation': 'square_root'},
}
"""Way to draw batches and noise -> the options of `TrainingConfig`."""
NUM_SEEDS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
  """Number of groups of records, and of steps."""
  num_groups: int
  num_steps: int


SCHEDULES = {
    'one_pass': Schedule(num_groups=200, num_steps=200),
    'twenty_passes': Schedule(num_groups=16, num_steps=320),
    'smoke': Schedule(num_groups=4, num_steps=8),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One training run.

  Attributes:
    schedule: a key of `SCHEDULES`.
    dataset: name of the data set.
    method: a name of `METHODS`.
    noise: a key of `NOISE`.
    epsilon: requested budget.
    num_examples: number of training records, a multiple of the groups.
    seed: seed of all random draws.
  """
  schedule: str
  dataset: str
  method: str
  noise: str
  epsilon: float
  num_examples: int
  seed: int


def _expand(schedule, dataset, num_examples, num_seeds):
  return tuple(
      Setting(schedule=schedule, dataset=dataset, method=method, noise=noise,
              epsilon=1.0, num_examples=num_examples, seed=seed)
      for method in METHODS for noise in NOISE for seed in range(num_seeds))


SETTINGS = (*_expand('one_pass', 'adult', 38_800, NUM_SEEDS),
            *_expand('twenty_passes', 'adult', 38_800, NUM_SEEDS))
SMOKE = _expand('smoke', 'breast_cancer', 400, 2)
QUICK_IS_SMOKE = True
