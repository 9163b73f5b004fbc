"""Ways to draw batches and to correlate noise, with Poisson batches as one.

All designs have the same records, steps, expected batch size, clip norm and
target, under add-or-remove-one. They differ in what a step costs.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dpjax.privacy import correlated
from dpjax.privacy import tree_strategy
from dpjax.privacy.strategies import Strategy
from dpjax.sampling import AllocationSampler
from dpjax.sampling import CyclicSampler
from dpjax.sampling import PoissonSampler
from dpjax.sampling import Sampler


class Design(NamedTuple):
  """A sampler and a strategy of noise.

  Attributes:
    source: who proposed it.
    sampler: (number of records, expected batch size) -> sampler.
    strategy: (number of steps, steps of an epoch) -> strategy, or None for
      independent noise.
    reported: what is reported of its noise.
  """
  source: str
  sampler: Callable[[int, float], Sampler]
  strategy: Callable[[int, int], Strategy | None] = lambda steps, epoch: None
  reported: str = 'less, most at few epochs'


def _groups(size: int, batch_size: float) -> int:
  """Returns the number of groups that take turns as a whole."""
  return round(size / batch_size)


def _banded(source: str, bands: int | None) -> Design:
  """Returns noise with bands, and as many groups of records in turns.

  Args:
    source: who proposed it.
    bands: no more than the steps of an epoch; None for as many. Then a record
      takes part once in each epoch, otherwise in Poisson samples of its group.
  """

  def sampler(size: int, batch_size: float) -> Sampler:
    groups = _groups(size, batch_size)
    return CyclicSampler(num_examples=size, batch_size=batch_size,
                         num_groups=min(bands or groups, groups))

  return Design(source, sampler, lambda steps, epoch: correlated.square_root(
      min(bands or epoch, epoch)))


def _epochs(size: int, batch_size: float) -> Sampler:
  """Returns the sampler of whole groups in turns: each record once an epoch."""
  return CyclicSampler(num_examples=size, batch_size=batch_size,
                       num_groups=_groups(size, batch_size))


DESIGNS: Mapping[str, Design] = {
    'poisson': Design('Abadi et al. (2016)', lambda size, batch_size:
                      PoissonSampler(num_examples=size, batch_size=batch_size)),
    'allocation': Design(
        'Feldman and Shenfeld (2025)', lambda size, batch_size:
        AllocationSampler(num_examples=size, batch_size=batch_size),
        reported='at most 9.6 % less'),
    'banded_4': _banded('Choquette-Choo et al. (2023)', 4),
    'banded_16': _banded('Choquette-Choo et al. (2023)', 16),
    'banded_epoch': _banded('Kalinin and Lampert (2024)', None),
    'inverse_banded': Design(
        'Kalinin et al. (2025)', _epochs,
        lambda steps, epoch: correlated.inverse_square_root(8, steps)),
    'tree': Design('Kairouz et al. (2021)', _epochs,
                   lambda steps, epoch: tree_strategy.TreeStrategy(steps)),
}
"""Maps the name of a design, as in the rows, to the design."""
