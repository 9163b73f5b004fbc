"""Settings to study the privacy of Algorithm 8 (Lip-DP-SGD) as printed.

All statements are those of Barczewski (2025).

  python -m launch.sweep --experiment=unsound --smoke --output_dir=results
  python -m launch.sweep --experiment=unsound \
    --output_dir=experiments/unsound/results                all of it

Kinds of settings; each compares a claimed epsilon with the true one:
  pair       two adjacent data sets whose output distributions are known in
             closed form
  curve      the same, with one block and with several, against the claimed
             epsilon
  blocks     K noised layers that are accounted as one release
  batch      division by the realised batch size, and redrawn empty batches
  constant   a constant of Table 5.1 or of line 5 that is not a bound
  published  the settings of the author's public code
  audit      attacks on a frozen logistic regression, 20,000 runs on each of two
             data sets
  training   the same on Algorithm 8 while it trains on breast cancer data

Expected at n = 1000, sigma = 4: claimed epsilon 0.926, true epsilon 32,379. The
audit refutes every claim for Algorithm 8 (at a claim of 1, its lower bounds are
3.6, 5.9 and 6.7 for a record of 3, 10 and 100 times the typical norm) and none
for the sound method (at most 0.4).
"""

import dataclasses
import math

PAPERS = ('003',)
ARTEFACT = ('Algorithm 8 and Theorem 5.2.2 of Barczewski (2025): the true '
            'epsilon')
COST = '0.2 h on 2 CPU cores'
GALLERY = 'What the printed algorithm spends, and what it claims'
HEADLINES = (
    'Theorem 5.2.2, n = 60000',
    'accounting as DP-SGD (section 5.2.3): ConvNet',
    'public code, mnist at 99.1%, batch 64',
    'Theorem 5.2.2 under attack',
    'the sound method',
)
BATCHED = ('method', 'canary', 'epsilon')

PRINTED = 'lip_printed'
SCALED = 'lip_scaled'
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
CANARIES = (3.0, 10.0, 100.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One pair of data sets, curve, audit or training.

  Attributes:
    kind: name from the list above.
    case: name of a `Case`, or of what `kind` computes.
    method: 'lip_printed' is Algorithm 8; 'lip_scaled' divides each record's
      gradient by its own input norm, which is sound.
    canary: input norm of the added record over a typical one; 0 if the case
      states it.
    epsilon: claimed epsilon; 0 if it follows from the case.
    seed: seed of data and noise.
  """
  kind: str
  case: str
  method: str = PRINTED
  canary: float = 0.0
  epsilon: float = 0.0
  seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
  """Sizes and constants of a run.

  Attributes:
    num_examples: n of the smaller data set.
    batch_size: expected batch size; `num_examples` takes every record.
    num_steps: T, the number of steps.
    noise_multiplier: sigma as printed: standard deviation of a layer's noise
      over its Delta_k.
    delta: delta of the claim.
    num_blocks: K, the number of noised layers.
    norm_ratio: input norm of the added record over that of all others.
    num_runs: number of runs of an audit, on each of the two data sets.
  """
  num_examples: int
  batch_size: float
  num_steps: int = 1
  noise_multiplier: float = 1.0
  delta: float = 1e-5
  num_blocks: int = 1
  norm_ratio: float = math.inf
  num_runs: int = 0

  @property
  def sampling_prob(self) -> float:
    """Returns q = s / n."""
    return self.batch_size / self.num_examples


def _full(num_examples, **kwargs):
  return Case(num_examples=num_examples, batch_size=num_examples, **kwargs)


def _thousand(**kwargs):
  return Case(num_examples=1000, batch_size=100, **kwargs)


def _epochs(num_examples, batch_size, epochs, **kwargs):
  return Case(num_examples=num_examples, batch_size=batch_size,
              num_steps=math.ceil(epochs * num_examples / batch_size),
              **kwargs)


def _breast_cancer(num_steps=50, num_runs=2000, **kwargs):
  return Case(num_examples=455, batch_size=256, num_steps=num_steps,
              num_runs=num_runs, **kwargs)


_MNIST, _CIFAR, _ADULT = ((60_000, 512, 40), (50_000, 512, 50),
                          (48_842, 256, 20))

CASES = {
    'pair': {
        **{f'full_{n}': _full(n, noise_multiplier=4.0)
           for n in (10, 100, 569, 1000)},
        **{f'poisson_{m}': _thousand(norm_ratio=m) for m in (2, 10, 1000)},
        'steps': Case(num_examples=60_000, batch_size=256, num_steps=2344,
                      norm_ratio=10),
    },
    'curve': {
        **{f'full_{n}': _full(n) for n in (10, 100, 1000)},
        **{f'blocks_{k}': _epochs(*_CIFAR, num_blocks=k)
           for k in (4, 17, 41)},
    },
    'blocks': {
        'convnet_1': _epochs(*_MNIST, noise_multiplier=1.0, num_blocks=4),
        'convnet_2': _epochs(*_MNIST, noise_multiplier=2.0, num_blocks=4),
        'wrn16_2': _epochs(*_CIFAR, noise_multiplier=2.0, num_blocks=17),
        'wrn40_2': _epochs(*_CIFAR, noise_multiplier=2.0, num_blocks=41),
        'wrn40_5': _epochs(*_CIFAR, noise_multiplier=5.0, num_blocks=41),
        'adult_2': _epochs(*_ADULT, noise_multiplier=2.0, num_blocks=2,
                           delta=1 / 48_842),
        'adult_3': _epochs(*_ADULT, noise_multiplier=2.0, num_blocks=3,
                           delta=1 / 48_842),
        'separate': Case(num_examples=50_000, batch_size=500, num_steps=500,
                         noise_multiplier=2.0, num_blocks=4),
        'scalar_net': _full(1, noise_multiplier=4.0, num_blocks=2),
    },
    'batch': {
        **{f'mean_full_{n}': _full(n) for n in (10, 100, 10_000)},
        **{f'mean_poisson_{s}': _thousand(noise_multiplier=float(s))
           for s in (1, 2)},
        **{f'redraw_{n}': Case(num_examples=n, batch_size=n / 100,
                               num_steps=1000)
           for n in (1, 10, 100, 1000)},
    },
    'constant': {
        'plan': _epochs(*_MNIST, noise_multiplier=2.0),
    },
    'audit': {
        'frozen_logistic': _thousand(num_steps=100, num_runs=40_000),
        'smoke': Case(num_examples=1000, batch_size=500, num_steps=50,
                      num_runs=200),
    },
    'training': {
        'one_layer': _breast_cancer(num_blocks=1),
        'two_layers': _breast_cancer(num_blocks=2),
        'smoke': _breast_cancer(num_steps=20, num_runs=20),
    },
}

CONSTANTS = (
    'own_norm_half', 'own_norm_two', 'own_norm_zero', 'own_norm_chain',
    'bias_unit_input', 'bias_small_input', 'bias_conv', 'conv_reshape',
    'conv_operator', 'conv_ones', 'conv_gaussian', 'pool_overlapping',
    'normalisation', 'tempered_sigmoid', 'residual_sum', 'residual_18',
    'alpha_1024', 'alpha_6272')
PUBLISHED = ('mnist', 'fashion_mnist', 'cifar10')


def _expand(kind, cases, **kwargs):
  return tuple(Setting(kind=kind, case=case, **kwargs) for case in cases)


def _audits(case, canaries, epsilons):
  return tuple(
      Setting(kind='audit', case=case, method=method, canary=canary,
              epsilon=epsilon)
      for method in (PRINTED, SCALED) for canary in canaries
      for epsilon in epsilons)


SETTINGS = (
    *_expand('pair', CASES['pair']),
    *(Setting(kind='curve', case=case, epsilon=epsilon)
      for case in CASES['curve'] for epsilon in EPSILONS),
    *_expand('blocks', CASES['blocks']),
    *_expand('batch', CASES['batch']),
    *_expand('constant', CONSTANTS),
    *_expand('published', PUBLISHED),
    *_audits('frozen_logistic', CANARIES, EPSILONS),
    *_expand('training', ('one_layer', 'two_layers'), epsilon=1.0),
)
SMOKE = (
    *_expand('pair', ('full_10', 'full_1000')),
    Setting(kind='curve', case='full_10', epsilon=1.0),
    *_expand('blocks', ('adult_2', 'scalar_net')),
    *_expand('batch', ('mean_full_10', 'redraw_100')),
    *_expand('constant', ('own_norm_half', 'pool_overlapping')),
    *_expand('published', ('mnist',)),
    *_audits('smoke', (100.0,), (1.0,)),
    *_expand('training', ('smoke',), epsilon=1.0),
)

# Tags select settings by a predicate; together they cover the sweep.
TAGS = {
    'quick': lambda setting: (
        setting.kind in ('pair', 'published')
        or setting.kind == 'constant' and not setting.case.startswith('conv')
        or setting.case in ('separate', 'scalar_net', 'convnet_2', 'full_1000',
                            'mean_full_10', 'mean_full_100')),
    'exact': lambda setting: setting.kind not in ('audit', 'training'),
    'audit': lambda setting: setting.kind in ('audit', 'training'),
}
