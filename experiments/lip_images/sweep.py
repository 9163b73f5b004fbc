r"""Settings for Figure 5.3.1 of Barczewski (2025).

Catalogue items EXP-F5.3.1 and EXP-T5.3.

  python -m launch.sweep --experiment=lip_images --tag=cpu --data_dir=data \
    --output_dir=experiments/lip_images/results       two cores, an hour
  python -m launch.sweep --experiment=lip_images --tag=full --data_dir=data \
    --output_dir=experiments/lip_images/results       a GPU, days

`python -m launch.accelerator` runs the profiles for GPUs in parts of minutes.

Profiles, all at delta = 1e-5:
  full   the figure: the printed ConvNet (NET-10) on MNIST and Fashion-MNIST; on
         CIFAR-10 WRN-16-4 below epsilon 4.2 and WRN-40-4 above; five seeds
  cpu    all records, with a small ConvNet on images of half the side, four
         budgets and three seeds
  features  the same with a linear model on scattering coefficients of whole
         images; `accuracy_records` has more accurate ones by DP-SGD
  de_et_al  DP-SGD with the recipe of De et al. (2022) for their WRN-16-4 on
         CIFAR-10, as far as this library has it (see `report.DE_ET_AL`)
  count  the numbers of parameters of the printed architectures; no data

`results/chosen.json` has the accuracies on validation folds that the profile
cpu is expected to reach.
"""

import dataclasses
import math

PAPERS = ('003',)
REPRODUCE = 'cpu'
QUICK_IS_SMOKE = True
TIMES = ('step_microseconds',)
ARTEFACT = 'Figure 5.3.1 of Barczewski (2025): accuracy on images'
COST = 'cpu: an hour on 2 CPU cores; full: days on a GPU'
HEADLINES = (
    'mnist, small network: Lip',
    'fashion_mnist, small network: Lip',
    'cifar10, small network: Lip',
    'mnist, features: Lip',
    'fashion_mnist, features: Lip',
    'cifar10, features: Lip',
    'section 5.3.2',
)
BATCHED = ('seed', 'epsilon')
KEEPS_STATE = True

DELTA = 1e-5
_DATASETS = ('mnist', 'fashion_mnist', 'cifar10')
LIPSCHITZ = ('lip_dp_sgd', 'lip_normalised', 'lip_norm', 'lip_propagated')
CLIPPING = {'full': ('dp_sgd', 'tempered_sigmoid'),
            'cpu': ('dp_sgd', 'layer_clipped', 'tempered_sigmoid')}
METHODS = ('sgd', 'dp_sgd', 'layer_clipped', 'tempered_sigmoid', *LIPSCHITZ)
# In a linear model the other methods are these two.
_LINEAR = ('sgd', 'dp_sgd', 'lip_dp_sgd')
_SHALLOW = ('tempered_sigmoid', 'lip_normalised', 'lip_propagated')
CPU_EPSILONS = (1.0, 2.0, 4.0, 8.0)
CHOICE_EPSILONS = {'mnist': 2.0, 'fashion_mnist': 2.0, 'cifar10': 4.0}
"""Budget at which the hyperparameters of the profile cpu are chosen."""
FULL_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 8.0)
WIDE_FROM = 4.2
"""Least epsilon at which the figure shows WRN-40-4."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One training run, or one count of parameters.

  Attributes:
    profile: 'full', 'de_et_al', 'cpu', 'features', 'smoke', or 'count' for
      numbers of parameters.
    dataset: name of the data set.
    model: a name of `hyperparameters.MODELS`.
    method: name of the method; 'tempered_sigmoid' is the clipping method of the
      profile with tanh (Papernot et al. 2021), 'lip_propagated' the counterpart
      of Bethune et al. (2023), 'sgd' the non-private ceiling; 'count' trains
      nothing.
    epsilon: requested budget; infinite for 'sgd', 0 for settings without data.
    seed: seed of all random draws.
  """
  profile: str
  dataset: str
  model: str
  method: str
  epsilon: float
  seed: int


def _model(dataset: str, method: str, epsilon: float) -> str:
  """Returns the architecture of the figure, or one that the method supports.

  In their papers, propagated norms and tempered sigmoids are used with shallow
  networks. Backward-normalised layers give no bound behind a standard
  normalisation.
  """
  if dataset != 'cifar10' or method in _SHALLOW:
    return 'convnet'
  return 'wrn_16_4' if epsilon < WIDE_FROM else 'wrn_40_4'


def _expand(profile, dataset, methods, epsilons, num_seeds, model=None):
  return tuple(
      Setting(profile=profile, dataset=dataset, method=method,
              model=model or _model(dataset, method, epsilon),
              epsilon=epsilon, seed=seed)
      for method in methods
      for epsilon in ((math.inf,) if method == 'sgd' else epsilons)
      for seed in range(num_seeds))


def _profile(profile, epsilons, num_seeds, model=None):
  methods = ('sgd', *CLIPPING[profile], *LIPSCHITZ)
  return tuple(
      setting for dataset in _DATASETS
      for setting in _expand(profile, dataset, methods, epsilons, num_seeds,
                             model))


def _features(epsilons, num_seeds):
  return tuple(
      setting for dataset in _DATASETS
      for setting in _expand('features', dataset, _LINEAR, epsilons, num_seeds,
                             'scattering'))


COUNTS = tuple(
    Setting(profile='count', dataset=dataset, model=model, method='count',
            epsilon=0.0, seed=0)
    for dataset, model in (('mnist', 'convnet'), ('fashion_mnist', 'convnet'),
                           ('cifar10', 'wrn_16_4'), ('cifar10', 'wrn_40_4')))
DE_ET_AL_STEPS = {1.0: 875, 8.0: 2500}
"""Budget -> number of steps of the profile de_et_al."""

SETTINGS = (
    *COUNTS,
    *_profile('cpu', CPU_EPSILONS, 3, 'small_convnet'),
    *_features(CPU_EPSILONS, 3),
    *_profile('full', FULL_EPSILONS, 5),
    *_expand('de_et_al', 'cifar10', ('dp_sgd',), DE_ET_AL_STEPS, 1,
             'wrn_16_4'))
SMOKE = (
    *COUNTS,
    *_expand('smoke', 'digits', ('layer_clipped', 'lip_dp_sgd'), (2.0,), 2,
             'small_convnet'),
    *_expand('smoke', 'digits', ('sgd',), (), 2, 'small_convnet'))

# Tags select settings by a predicate; together they cover the sweep.
TAGS = {
    'cpu': lambda setting: setting.profile in ('cpu', 'features', 'count'),
    'full': lambda setting: setting.profile == 'full',
    'de_et_al': lambda setting: setting.profile == 'de_et_al',
}
