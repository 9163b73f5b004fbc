"""Settings to compare optimisers of noisy gradients at equal epsilon.

  python -m launch.sweep --experiment=private_optimizers --data_dir=data \
    --output_dir=experiments/private_optimizers/results

Several optimisers claim higher accuracy at equal epsilon by filtering noisy
gradients, by looking at another point than the weights, or by averaging. Here
all of them get the same plan (epsilon, delta, steps, batch size, clip norm),
the same initial weights, batches and noise for each seed, and the same number
of configurations to choose from: fifteen learning rates, or five learning rates
times three values of an own parameter. The configuration with the best mean
accuracy on held-out records, over all seeds, is compared on the test records.
Choosing is not charged: the comparison is of optimisers, not of releases.
"""

import dataclasses

from experiments.private_optimizers import techniques

PAPERS = ()
ARTEFACT = 'Optimisers of noisy gradients at equal epsilon'
COST = '2 h on 2 CPU cores'
BATCHED = ('seed', 'rate', 'own')

EPSILON, SEEDS = 1.0, 5
# Factors on the first learning rate: a factor of 64 in all.
_MANY = tuple(2.0**(6 * k / 14) for k in range(15))
_FEW = _MANY[1:14:3]
# Normalised first moments change all weights by about the learning rate.
_FIRST = {'adam': 2.0**-11, 'noise_corrected_adam': 2.0**-11}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One run of one configuration.

  Attributes:
    dataset: name of the data set.
    method: name of the optimiser, see `techniques.TECHNIQUES`.
    rate: learning rate.
    own: own parameter of the optimiser; 0 if it has none.
    seed: seed of initial weights, batches and noise.
    num_steps: number of steps.
    epsilon: budget of a run, at delta = 1e-5.
  """
  dataset: str
  method: str
  rate: float
  own: float
  seed: int
  num_steps: int = 300
  epsilon: float = EPSILON


def _settings(dataset, methods, seeds, rates=None, **others):
  return tuple(
      Setting(dataset=dataset, method=method, own=own, seed=seed,
              rate=float(f'{factor * _FIRST.get(method, 0.25):.4g}'), **others)
      for method in methods
      for own in techniques.TECHNIQUES[method].own
      for factor in (rates or (_MANY if len(
          techniques.TECHNIQUES[method].own) == 1 else _FEW))
      for seed in range(seeds))


DATASETS = ('mnist', 'fashion_mnist', 'adult')
SETTINGS = sum((_settings(dataset, techniques.TECHNIQUES, SEEDS)
                for dataset in DATASETS), ())
SMOKE = _settings('digits', techniques.TECHNIQUES, 2, (4.0,), num_steps=10)
QUICK_IS_SMOKE = True
TAGS = {'quick': SMOKE}
