"""Settings to compare optimisers, samplers and noise at equal epsilon.

  python -m launch.sweep --experiment=equal_epsilon --data_dir=data \
    --output_dir=experiments/equal_epsilon/results

Many methods claim higher accuracy at equal epsilon: optimisers that filter
noisy gradients, look at another point than the weights, or average; samplers
that cost less than Poisson batches; noise that is correlated over steps. Here
all of them get the same target (epsilon 1, delta 1e-5), steps, expected batch
size and clip norm, the same initial weights for each seed, and the same number
of configurations to choose from: fifteen learning rates, or five learning rates
times three values of an own parameter. The configuration with the best mean
accuracy on held-out records, over all seeds, is compared on the test records.
Choosing is not charged: the comparison is of methods, not of releases.

Optimisers are compared with Poisson batches and independent noise, so for each
seed they also share the batches and the draws. Samplers and correlated noise
are compared with momentum.
"""

import dataclasses

from experiments.equal_epsilon import techniques

PAPERS = ('000',)
ARTEFACT = 'Optimisers, samplers and correlated noise at equal epsilon'
COST = '0.8 h on a CPU core'
BATCHED = ('seed', 'rate', 'own')

EPSILON, SEEDS = 1.0, 5
# Factors on the first learning rate: a factor of 64 in all.
_MANY = tuple(2.0**(6 * k / 14) for k in range(15))
_FEW = _MANY[1:14:3]
# Normalised first moments change all weights by about the learning rate.
_FIRST = {'adam': 2.0**-11, 'noise_corrected_adam': 2.0**-11}

DATASETS = ('mnist', 'fashion_mnist', 'adult')
OPTIMIZERS = ('sgd', 'momentum', 'adam', 'noise_corrected_adam', 'averaged',
              'low_pass', 'kalman', 'sharpness', 'frequencies')
DESIGNS = ('allocation', 'banded_4', 'banded_16', 'banded_epoch',
           'inverse_banded', 'tree')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One run of one configuration.

  Attributes:
    dataset: name of the data set.
    method: name of the optimiser, see `techniques.TECHNIQUES`.
    rate: learning rate.
    own: own parameter of the optimiser; 0 if it has none.
    seed: seed of initial weights, batches and noise.
    design: sampler and noise, see `designs.DESIGNS`.
    num_steps: number of steps.
    epsilon: budget of a run, at delta = 1e-5.
  """
  dataset: str
  method: str
  rate: float
  own: float
  seed: int
  design: str = 'poisson'
  num_steps: int = 300
  epsilon: float = EPSILON


def _settings(dataset, method, seeds, rates=None, **others):
  own = techniques.TECHNIQUES[method].own
  rates = rates or (_MANY if len(own) == 1 else _FEW)
  return tuple(
      Setting(dataset=dataset, method=method, own=value, seed=seed,
              rate=float(f'{factor * _FIRST.get(method, 0.25):.4g}'), **others)
      for value in own for factor in rates for seed in range(seeds))


def _all(datasets, seeds, **others):
  return sum((_settings(dataset, method, seeds, **others)
              for dataset in datasets for method in OPTIMIZERS), ()) + sum(
                  (_settings(dataset, 'momentum', seeds, design=design,
                             **others)
                   for dataset in datasets for design in DESIGNS), ())


SETTINGS = _all(DATASETS, SEEDS)
SMOKE = _all(('digits',), 2, rates=(4.0,), num_steps=10)
QUICK_IS_SMOKE = True
TAGS = {'quick': tuple(each for each in SMOKE
                       if each.method in ('sgd', 'momentum', 'kalman'))}
