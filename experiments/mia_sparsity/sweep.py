r"""Settings for Figure 1.1 of Lalanne (2023); catalogue item MIA-11.

  python -m launch.sweep --experiment=mia_sparsity --tag=cpu --data_dir=data \
    --output_dir=experiments/mia_sparsity/results    two cores, 15 minutes
  python -m launch.sweep --experiment=mia_sparsity --tag=gpu --data_dir=data \
    --output_dir=experiments/mia_sparsity/results    one H100, 7 minutes
  python -m launch.sweep --experiment=mia_sparsity --tag=full --data_dir=data \
    --output_dir=experiments/mia_sparsity/results    one H100, 3 hours

Profiles:
  full   the study of that chapter: ResNet-20 on CIFAR-10, whose records are
         pooled and cut in four sets, 300 epochs, 24 prunings of a fifth, six
         butterflies; with five seeds instead of three, the controls of MIA-12
         and private networks
  gpu    its dense and its pruned networks, down to 3.4 % of the weights, with
         60 epochs, two prunings at once and three seeds
  cpu    7000 records of Fashion-MNIST at half the side, a ResNet of depth 8
         and half the widths, 25 epochs, no random crops and flips, four
         prunings at once (which remove 1 - .8^4 of the remaining weights)
Trained networks are stored in `state/` beside the rows. An interrupted sweep
continues from them, even in the middle of a training run.
"""

import dataclasses
import math

PAPERS = ('000',)
REPRODUCE = 'cpu'
QUICK_IS_SMOKE = True
ARTEFACT = 'Figure 1.1 of Lalanne (2023): sparsity against membership inference'
COST = 'cpu: 15 min on 2 CPU cores; gpu: 7 min, full: 3 h on an H100'
GALLERY = 'Sparsity and privacy against membership inference'
BATCHED = ('method', 'prunings', 'segments', 'factors', 'stop', 'decay',
           'epsilon', 'seed', 'role')
KEEPS_STATE = True
HEADLINES = ('dense network: accuracy', 'relative gain',
             'sparse networks defend better than controls',
             'sparsity defends against sharp attacks, accuracy',
             'attacks on private')

DELTA = 1e-5
ROLES = ('target', 'shadow')
FPR_LEVELS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
  """A way to train a network.

  Attributes:
    method: training method: 'dense'; 'magnitude' and 'random', two ways of
      pruning; 'butterfly'; 'narrow', a dense network with fewer channels;
      'stopped', a dense network stopped early; 'decayed', one with stronger
      weight decay; 'sgd', 'dp_sgd' and 'lip_dp_sgd', convolutional networks
      without batch normalisation.
    prunings: number of prunings; each removes a fifth of the weights.
    segments: S, the number of segments with butterflies; for 'narrow' the width
      of the first segment.
    factors: L, the number of factors of butterflies.
    stop: fraction of the epochs after which training stops.
    decay: factor of the weight decay.
    epsilon: requested epsilon under REPLACE_ONE; infinite without privacy.
  """
  method: str
  prunings: int = 0
  segments: int = 0
  factors: int = 0
  stop: float = 1.0
  decay: float = 1.0
  epsilon: float = math.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting(Kind):
  """One network of a pair, attacked with the other as its shadow model.

  Attributes:
    profile: a name of `PROFILES`.
    dataset: name of the data set.
    seed: seed of the split and of all random draws; shared by all kinds.
    role: 'target', or 'shadow' with the roles exchanged.
  """
  profile: str
  dataset: str
  seed: int
  role: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
  """Options of one study.

  Attributes:
    dataset: name of the data set.
    factor: side of the pixel blocks that images are averaged over.
    num_records: number of records of the four sets together.
    num_validation: records of each training set that gradients do not use.
    depth: depth of the residual network.
    widths: widths of its segments.
    num_epochs: number of epochs of each training.
    batch_size: batch size of its steps.
    views: whether images are cropped and flipped at random.
    compute_dtype: dtype of convolutions in training.
    num_seeds: number of pairs of networks.
    step: number of prunings of one round, without training in between.
    prunings: number of prunings after the last round.
    butterflies: (S, L) of each kind of butterflies.
    controls: further kinds, as controls.
    epsilons: epsilons of the private networks.
    pack_size: number of residual networks that run as one; if it is above 1,
      butterflies of all kinds are trained together.
    attacked_at_once: number of kinds whose discriminators are trained together.
  """
  dataset: str
  factor: int = 1
  num_records: int
  num_validation: int
  depth: int
  widths: tuple[int, int, int] = (16, 32, 64)
  num_epochs: int
  batch_size: int
  views: bool
  compute_dtype: str = 'float32'
  num_seeds: int
  step: int = 1
  prunings: int = 24
  butterflies: tuple[tuple[int, int], ...] = (
      (1, 2), (1, 3), (2, 2), (2, 3), (3, 2), (3, 3))
  controls: tuple[Kind, ...] = ()
  epsilons: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
  pack_size: int = 1
  attacked_at_once: int = 1

  @property
  def num_networks(self) -> int:
    """Returns R, the number of networks of each kind."""
    return 2 * self.num_seeds

  def kinds(self) -> tuple[Kind, ...]:
    """Returns all kinds, each after the one that its training starts from."""
    private = [Kind(method=method, epsilon=epsilon)
               for method in ('dp_sgd', 'lip_dp_sgd')
               for epsilon in self.epsilons]
    if private:
      private = [Kind(method='sgd'), Kind(method='sgd', stop=0.1), *private]
    return (
        Kind(method='dense'),
        *(kind for kind in self.controls if kind.method == 'stopped'),
        *(Kind(method='magnitude', prunings=k)
          for k in range(self.step, self.prunings + 1, self.step)),
        *(Kind(method='butterfly', segments=segments, factors=factors)
          for segments, factors in self.butterflies),
        *(kind for kind in self.controls if kind.method != 'stopped'),
        *private)


def _stopped(*shares):
  return tuple(Kind(method='stopped', stop=share) for share in shares)


_CIFAR = dict(dataset='cifar10', num_records=60000, num_validation=1000,
              depth=20, batch_size=256, views=True, compute_dtype='bfloat16')
PROFILES = {
    'full': Profile(
        **_CIFAR, num_epochs=300, num_seeds=5, pack_size=5,
        attacked_at_once=6,
        controls=(*_stopped(0.1, 0.25, 0.45),
                  Kind(method='decayed', decay=4.0),
                  *(Kind(method='random', prunings=k) for k in (8, 16, 24)),
                  *(Kind(method='narrow', segments=w) for w in (4, 8)))),
    'gpu': Profile(
        **_CIFAR, num_epochs=60, num_seeds=3, step=2, prunings=16,
        butterflies=(), epsilons=(), pack_size=6, attacked_at_once=6,
        controls=_stopped(0.1, 0.25, 0.45)),
    'cpu': Profile(
        dataset='fashion_mnist', factor=2, num_records=7000,
        num_validation=140, depth=8, widths=(8, 16, 32), num_epochs=25,
        batch_size=64, views=False, num_seeds=5, step=4, prunings=16,
        butterflies=((3, 2), (3, 3)),
        controls=(*_stopped(0.1, 0.25), Kind(method='decayed', decay=4.0),
                  Kind(method='random', prunings=12),
                  Kind(method='narrow', segments=3))),
    'smoke': Profile(
        dataset='digits', num_records=480, num_validation=24, depth=8,
        widths=(4, 8, 8), num_epochs=2, batch_size=32, views=True,
        num_seeds=2, step=8, prunings=8, butterflies=((1, 2),),
        controls=_stopped(0.5), epsilons=(8.0,)),
}


def _settings(name: str) -> tuple[Setting, ...]:
  profile = PROFILES[name]
  return tuple(
      Setting(**dataclasses.asdict(kind), profile=name,
              dataset=profile.dataset, seed=seed, role=role)
      for kind in profile.kinds() for seed in range(profile.num_seeds)
      for role in ROLES)


SETTINGS = (*_settings('cpu'), *_settings('gpu'), *_settings('full'))
SMOKE = _settings('smoke')
OLDER = {'made on a GPU, where none was made anew since':
         lambda setting: setting.profile == 'gpu'}
TAGS = {name: lambda setting, name=name: setting.profile == name
        for name in ('cpu', 'gpu', 'full')}
TAGS['quick'] = lambda setting: (
    setting.profile == 'smoke'
    and setting.method in ('dense', 'stopped', 'magnitude', 'butterfly'))
