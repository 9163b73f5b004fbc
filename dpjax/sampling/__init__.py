"""Which records a step sees: samplers, each with its privacy event.

A sampler draws the batch of every step, states the public divisor of its mean,
and the event that an accountant charges. All three follow from the same
numbers, so a run cannot be accounted for as another kind of sampling.

Modules, in import order: binomial, sparse, sampler, uniform, poisson,
fixed_size, allocation, cyclic.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.sampling.allocation import AllocationSampler as AllocationSampler
  from dpjax.sampling.cyclic import CyclicSampler as CyclicSampler
  from dpjax.sampling.fixed_size import FixedSizeSampler as FixedSizeSampler
  from dpjax.sampling.poisson import PoissonSampler as PoissonSampler
  from dpjax.sampling.sampler import Participation as Participation
  from dpjax.sampling.sampler import Sampler as Sampler
  from dpjax.sampling.sampler import Selection as Selection

__all__ = [
    'AllocationSampler', 'CyclicSampler', 'FixedSizeSampler', 'Participation',
    'PoissonSampler', 'Sampler', 'Selection'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'AllocationSampler': 'allocation', 'CyclicSampler': 'cyclic',
      'FixedSizeSampler': 'fixed_size', 'PoissonSampler': 'poisson',
      'Participation': 'sampler', 'Sampler': 'sampler',
      'Selection': 'sampler'})
