"""Settings for Figure 5.3.2 of Barczewski (2025).

Catalogue item EXP-F5.3.2.

  python -m launch.sweep --experiment=lip_runtime --tag=cpu \
    --output_dir=experiments/lip_runtime/results
  python -m launch.sweep --experiment=lip_runtime --tag=gpu \
    --output_dir=experiments/lip_runtime/results

Images are synthetic, with the shape and number of the data set; --data_dir uses
the real ones. One process times all methods of one data set and batch size in
turn. It times whole steps: sampling, gradients, noise, optimiser, constraint;
compilation is timed separately. If an epoch takes longer than the timed sample
of steps, its time is extrapolated from them; rows state how many steps were
timed. Run on an otherwise idle machine.

Kinds of settings: cpu, with a ConvNet of one convolution and a small wide
residual network; gpu, with the networks of that work; smoke.

dp_sgd_vmap forms the gradient of every record, as that work does; dp_sgd
computes the same clipped sums by book-keeping, without these gradients.
"""

import dataclasses

PAPERS = ('003',)
REPRODUCE = 'cpu'
QUICK_IS_SMOKE = True
ALONE = True
TIMES = ('compile_seconds', 'epoch_seconds', 'epochs_timed', 'fastest_epoch',
         'slowest_epoch', 'steps_timed', 'ratio_to_sgd', 'megabytes')
ARTEFACT = 'Figure 5.3.2 of Barczewski (2025): runtime of an epoch (EXP-F5.3.2)'
COST = '0.3 h on 2 CPU cores'
HEADLINES = (
    'mnist, ConvNet of 1',
    'cifar10, WRN',
)
BATCHED = ('method',)

METHODS = ('sgd', 'dp_sgd_vmap', 'dp_sgd', 'layer_clipped', 'lip_dp_sgd',
           'lip_normalised')
# lip_propagated bounds a ConvNet without residual sums; lip_norm bounds
# residual networks, which need normalisation.
EXTRA = {'mnist': ('lip_propagated',), 'cifar10': ('lip_norm',)}
BATCH_SIZES = {
    ('cpu', 'mnist'): (32, 128, 512),
    ('cpu', 'cifar10'): (32, 128),
    ('gpu', 'mnist'): (64, 256, 1024),
    ('gpu', 'cifar10'): (64, 256, 1024),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One method at one batch size.

  Attributes:
    kind: name from the list above.
    dataset: data set whose shapes the images have; with --data_dir its images.
    method: name of the method.
    batch_size: logical batch size: the expected size of a Poisson batch.
  """
  kind: str
  dataset: str
  method: str
  batch_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
  """Network and data of the timed training.

  Attributes:
    image_shape: height, width and channels of an image.
    num_examples: number of records of an epoch.
    model: 'convnet' or 'wide_resnet'.
    depth: depth of the model.
    width: width of the model.
    num_groups: number of groups of its group normalisations.
  """
  image_shape: tuple[int, int, int]
  num_examples: int
  model: str
  depth: int
  width: int
  num_groups: int = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
  """Options of the timing.

  Attributes:
    num_rounds: number of rounds; each takes one sample of every method.
    sample_seconds: least length of a sample, unless an epoch is shorter.
    most_rows: physical batch size: the most records computed at once.
  """
  num_rounds: int
  sample_seconds: float
  most_rows: int


_MNIST = Work(image_shape=(28, 28, 1), num_examples=60_000, model='convnet',
              depth=2, width=128)
_CIFAR = Work(image_shape=(32, 32, 3), num_examples=50_000,
              model='wide_resnet', depth=10, width=1)
WORK = {
    ('cpu', 'mnist'): dataclasses.replace(_MNIST, depth=1, width=32),
    ('cpu', 'cifar10'): _CIFAR,
    ('gpu', 'mnist'): _MNIST,
    ('gpu', 'cifar10'): dataclasses.replace(_CIFAR, depth=16, width=4,
                                            num_groups=16),
    ('smoke', 'mnist'): Work(image_shape=(6, 6, 1), num_examples=100,
                             model='convnet', depth=1, width=8),
}
TIMING = {
    'cpu': Timing(num_rounds=5, sample_seconds=0.3, most_rows=128),
    'gpu': Timing(num_rounds=7, sample_seconds=2.0, most_rows=1024),
    'smoke': Timing(num_rounds=5, sample_seconds=0.0, most_rows=16),
}


def _settings(kind, dataset, methods, batch_sizes):
  return tuple(Setting(kind=kind, dataset=dataset, method=method,
                       batch_size=batch_size)
               for batch_size in batch_sizes for method in methods)


SETTINGS = tuple(
    setting for kind in ('cpu', 'gpu') for dataset in ('mnist', 'cifar10')
    for setting in _settings(kind, dataset, METHODS + EXTRA[dataset],
                             BATCH_SIZES[kind, dataset]))
SMOKE = _settings('smoke', 'mnist', ('sgd', 'dp_sgd_vmap', 'dp_sgd',
                                     'lip_dp_sgd'), (8, 24))

OLDER = {'timed by older code, and not timed anew since':
         lambda setting: setting.kind == 'cpu'}
TAGS = {
    'cpu': lambda setting: setting.kind == 'cpu',
    'gpu': lambda setting: setting.kind == 'gpu',
}
