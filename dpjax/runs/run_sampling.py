"""How a run draws batches and correlates noise: rules, defaults, objects."""

from collections.abc import Callable, Mapping
import functools
import math
from typing import Any

from dpjax import errors
from dpjax.privacy import correlated
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.strategies import Strategy
from dpjax.privacy.tree_strategy import TreeStrategy
from dpjax.runs import options
from dpjax.runs import training_methods
from dpjax.runs.options import TrainingConfig
from dpjax.runs.settings import known
from dpjax.sampling import AllocationSampler
from dpjax.sampling import CyclicSampler
from dpjax.sampling import FixedSizeSampler
from dpjax.sampling import PoissonSampler
from dpjax.sampling import Sampler

ADJACENCIES = {'fixed_size': Adjacency.REPLACE_ONE.value,
               'random_allocation': Adjacency.ADD_OR_REMOVE_ONE.value}
"""Samplers whose privacy is known for one adjacency, and by 'pld', only."""


def check(config: TrainingConfig) -> None:
  """Raises ValueError if sampler, correlation and other options disagree."""
  method = training_methods.METHODS[config.method]
  if not method.any_sampler and (config.sampler != 'poisson' or
                                 config.correlation != 'independent'):
    errors.check_choice('method with another sampler or correlation',
                        config.method, training_methods.having('any_sampler'))
  adjacency = ADJACENCIES.get(config.sampler)
  if adjacency is not None and config.adjacency != adjacency:
    raise ValueError(f'sampler = {config.sampler} needs adjacency = '
                     f'{adjacency}, got {config.adjacency}')
  if adjacency is not None and config.accountant != 'pld':
    raise ValueError(f'sampler = {config.sampler} needs accountant = pld, got '
                     f'{config.accountant}')
  if config.sampler_groups is not None and config.sampler != 'cyclic':
    raise ValueError('sampler_groups needs sampler = cyclic, got '
                     f'{config.sampler}')
  if config.bands is not None and config.correlation not in options.WITH_BANDS:
    raise ValueError('bands needs a correlation of '
                     f'{", ".join(options.WITH_BANDS)}, got '
                     f'{config.correlation}')
  if config.correlation != 'independent':
    _check_correlated(config)


def _check_correlated(config: TrainingConfig) -> None:
  """Checks the options that noise correlated over the steps depends on."""
  what = f'correlation = {config.correlation}'
  if config.sampler != 'cyclic':
    raise ValueError(f'{what} needs sampler = cyclic, which bounds in which '
                     f'steps a record takes part; got {config.sampler}')
  if config.noise != 'gaussian':
    raise ValueError(f'{what} needs noise = gaussian, got {config.noise}')
  if config.optimizer == 'noise_corrected_adam':
    raise ValueError(f'{what} does not go with noise_corrected_adam, which '
                     'needs noise of one variance in all steps: take adam')


def defaults(config: TrainingConfig, recipe: Mapping[str, Any], *,
             num_slots: int) -> dict[str, Any]:
  """Returns batch_size, sampler_groups and bands, where they are not given.

  Without a batch_size, groups take part as a whole, an epoch of random
  allocation has a whole number of steps, and there are at least two of both.

  Args:
    config: a checked configuration.
    recipe: default hyperparameters.
    num_slots: public number of records.
  """
  batch_size = config.batch_size or recipe['batch_size']
  groups, bands = config.sampler_groups, config.bands
  if config.batch_size is None and config.sampler in (
      'cyclic', 'random_allocation'):
    most = max(1, num_slots / 2)
    batch_size = num_slots / (groups or round(
        num_slots / min(batch_size, most)))
  if config.sampler == 'cyclic':
    # The margin is for n / (n / groups), which rounding may put below groups.
    groups = groups or max(1, math.floor(num_slots / batch_size * (1 + 1e-9)))
  if config.correlation in options.WITH_BANDS and groups is not None:
    bands = bands or min(groups, config.num_steps or recipe['num_steps'])
  return dict(batch_size=batch_size, sampler_groups=groups, bands=bands)


def sampler(config: TrainingConfig) -> Sampler:
  """Returns the sampler of a resolved configuration.

  Raises:
    ValueError: if the sampler does not allow the batch size.
  """
  sizes: dict[str, Any] = dict(
      num_examples=config.num_slots, batch_size=known(config.batch_size),
      max_batch_size=config.max_batch_size)
  if config.sampler == 'cyclic':
    return CyclicSampler(**sizes, num_groups=known(config.sampler_groups))
  makers: dict[str, Callable[..., Sampler]] = {
      'poisson': PoissonSampler, 'fixed_size': FixedSizeSampler,
      'random_allocation': AllocationSampler}
  return makers[config.sampler](**sizes)


def strategy(config: TrainingConfig) -> Strategy | None:
  """Returns the strategy of a resolved configuration; None for fresh noise.

  Raises:
    ImportError: if an optimised strategy needs a library that is missing.
  """
  if config.correlation == 'independent':
    return None
  return _strategy(config.correlation, known(config.num_steps),
                   known(config.sampler_groups), config.bands or 0)


@functools.lru_cache(maxsize=64)
def _strategy(name: str, num_steps: int, separation: int,
              bands: int) -> Strategy:
  """Returns a strategy by its name; optimising one takes seconds."""
  return {
      'square_root': lambda: correlated.square_root(bands),
      'inverse_square_root': lambda: correlated.inverse_square_root(
          bands, num_steps),
      'tree': lambda: TreeStrategy(num_steps),
      'optimal_banded': lambda: correlated.optimal_banded(bands, num_steps),
      'optimal_buffered': lambda: correlated.optimal_buffered(
          num_steps, separation)}[name]()


def sampling_prob(drawn: Sampler) -> float | None:
  """Returns the probability of a record in each step; None if there is none.

  Only Poisson batches have one: the steps of other samplers, or the records of
  a batch, depend on each other.
  """
  return drawn.sampling_prob if isinstance(drawn, PoissonSampler) else None


def batches(drawn: Sampler) -> str:
  """Returns what the batches of a sampler are, in words."""
  if isinstance(drawn, PoissonSampler):
    return f'sampling rate {drawn.sampling_prob:.4g}'
  if isinstance(drawn, AllocationSampler):
    return ('random allocation, each record in one of '
            f'{drawn.steps_per_epoch} steps')
  if isinstance(drawn, CyclicSampler):
    prob = drawn.participation.prob
    part = 'as a whole' if prob == 1 else f'at sampling rate {prob:.4g}'
    return f'{drawn.num_groups} random groups in turns, {part}'
  return f'random subsets of {drawn.batch_size:.0f} records'


def correlated_by(config: TrainingConfig) -> str:
  """Returns how the noise of steps is correlated, in words; '' if it is not."""
  if config.correlation == 'independent':
    return ''
  bands = '' if config.bands is None else f' of {config.bands} bands'
  return f' correlated by {config.correlation}{bands}'
