"""The references of what a training run used."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.grads.bounder import Method
from dpjax.grads.quantiles import Adaptive
from dpjax.privacy.strategies import Strategy
from dpjax.sampling import Sampler
from dpjax.train import adam
from dpjax.train.clip_norms import LayerNorms
from dpjax.train.plan import TrainingPlan
from dpjax.train.user_loop import Private


class Work(NamedTuple):
  """A published work."""
  authors: str
  year: int
  title: str

  def __str__(self) -> str:
    return f'{self.authors} ({self.year}). {self.title}.'


_BARCZEWSKI = Work('Barczewski', 2025, 'Enhancing differentially private '
                   'machine learning: optimizations for repeated query '
                   'scenarios')

_BANDED = Work(
    'Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu', 2023,
    '(Amplified) banded matrix factorization: a unified approach to private '
    'training')

_WORKS = {
    'clipping': Work('Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and '
                     'Zhang', 2016, 'Deep learning with differential privacy'),
    'bookkeeping': Work('Bu, Wang, Zha and Karypis', 2023, 'Differentially '
                        'private optimization on large model at small cost'),
    'automatic clipping': Work('Bu, Wang, Zha and Karypis', 2023, 'Automatic '
                               'clipping: differentially private deep learning '
                               'made easier and stronger'),
    'adaptive clipping': Work('Andrew, Thakkar, McMahan and Ramaswamy', 2021,
                              'Differentially private learning with adaptive '
                              'clipping'),
    'Poisson sampling': Work('Balle, Barthe and Gaboardi', 2018, 'Privacy '
                             'amplification by subsampling: tight analyses via '
                             'couplings and divergences'),
    'batches of fixed size': Work(
        'Balle, Barthe and Gaboardi', 2018, 'Privacy amplification by '
        'subsampling: tight analyses via couplings and divergences'),
    'random allocation': Work('Feldman and Shenfeld', 2025, 'Privacy '
                              'amplification by random allocation'),
    'groups in turns': _BANDED, 'banded noise': _BANDED,
    'noise with a banded inverse': Work(
        'Kalinin, McKenna, Upadhyay and Lampert', 2025, 'Back to square roots: '
        'an optimal bound on the matrix factorization error for multi-epoch '
        'differentially private SGD'),
    'buffered noise': Work(
        'Dvijotham, McMahan, Pillutla, Steinke and Thakurta', 2024, 'Efficient '
        'and near-optimal noise generation for streaming differential privacy'),
    'tree noise': Work(
        'Kairouz, McMahan, Song, Thakkar, Thakurta and Xu', 2021, 'Practical '
        'and private (deep) learning without sampling or shuffling'),
    'pld': Work('Doroshenko, Ghazi, Kamath, Kumar and Manurangsi', 2022,
                'Connect the dots: tighter discrete approximations of privacy '
                'loss distributions'),
    'rdp': Work('Mironov, Talwar and Zhang', 2019, 'Rényi differential privacy '
                'of the sampled Gaussian mechanism'),
    'noise-corrected Adam': Work('Tang and Lécuyer', 2023, 'DP-Adam: '
                                 "correcting DP Adam's second moment "
                                 'estimation'),
    'moving average': Work('De, Berrada, Hayes, Smith and Balle', 2022,
                           'Unlocking high-accuracy differentially private '
                           'image classification through scale'),
    'average of iterates': Work('Polyak and Juditsky', 1992, 'Acceleration of '
                                'stochastic approximation by averaging'),
    'Lipschitz networks': _BARCZEWSKI,
    'K-norm noise': _BARCZEWSKI,
}

_AVERAGES = {'ema': 'moving average', 'polyak': 'average of iterates'}

_SAMPLERS = {
    'PoissonSampler': 'Poisson sampling',
    'FixedSizeSampler': 'batches of fixed size',
    'AllocationSampler': 'random allocation',
    'CyclicSampler': 'groups in turns',
}

_STRATEGIES = {
    'BandedStrategy': 'banded noise',
    'InverseBandedStrategy': 'noise with a banded inverse',
    'BufferedStrategy': 'buffered noise',
    'TreeStrategy': 'tree noise',
}

_METHODS = {
    'dp_sgd': ['clipping', 'bookkeeping'],
    'dp_sgd_per_layer': ['clipping', 'bookkeeping'],
    'dp_sgd_automatic': ['automatic clipping', 'bookkeeping'],
    'dp_sgd_adaptive': ['clipping', 'adaptive clipping', 'bookkeeping'],
    'layer_clipped': ['clipping'],
    'lip_k_norm': ['Lipschitz networks', 'K-norm noise'],
}


def cite(run: Private | Method | TrainingPlan) -> None:
  """Prints the references of what a run used: authors, year and title.

  Args:
    run: from `make_private`, or a method or a plan of `fit`.

  Examples:
    >>> import dpjax
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.train import non_private_plan
    >>> dpjax.cite(non_private_plan(num_examples=9, batch_size=3, num_steps=1,
    ...                             adjacency=Adjacency.REPLACE_ONE))
    Poisson sampling: Balle, Barthe and Gaboardi (2018). Privacy amplification \
by subsampling: tight analyses via couplings and divergences.
  """
  for name in used(run):
    print(f'{name}: {_WORKS[name]}')


def used(run: Private | Method | TrainingPlan) -> list[str]:
  """Returns the names of what a run used that has a reference.

  Raises:
    TypeError: if `run` is none of these types.
  """
  if isinstance(run, Method):
    default = ['Lipschitz networks'] if run.name.startswith(
        ('lip_', 'fix_lip_')) else []
    return _METHODS.get(run.name, default)
  if isinstance(run, TrainingPlan):
    return _drawn_by(run.sampler, run.strategy) + (
        ['K-norm noise'] if run.noise_order is not None else
        ['pld'] if run.noise_multiplier is not None else [])
  if not isinstance(run, Private):
    raise TypeError('cite takes a run of make_private, a method or a plan, got '
                    f'a {type(run).__name__}')
  return _used_by(run)


def _drawn_by(sampler: Sampler, strategy: Strategy | None) -> list[str]:
  """Returns the names of the sampler and of the strategy of noise."""
  known = [_SAMPLERS.get(type(sampler).__name__),
           _STRATEGIES.get(type(strategy).__name__)]
  return [name for name in known if name is not None]


def _used_by(run: Private) -> list[str]:
  """Returns what a run of `make_private` used."""
  settings = run.settings
  names = _drawn_by(run.sampler, settings['strategy'])
  if run.noise_multiplier is not None:
    names += ['clipping', settings['accountant']]
  if isinstance(run.clip_norm, (Adaptive, LayerNorms)):
    names.append('adaptive clipping')
  if settings['kernel'] == 'bookkeeping':
    names.append('bookkeeping')
  state = jax.eval_shape(settings['optimizer'].init, jnp.zeros(1))
  if any(isinstance(node, adam.NoiseCorrectedState) for node in jax.tree.leaves(
      state, is_leaf=lambda n: isinstance(n, adam.NoiseCorrectedState))):
    names.append('noise-corrected Adam')
  averaging = settings['averaging']
  if averaging is not None and averaging.name in _AVERAGES:
    names.append(_AVERAGES[averaging.name])
  return names
