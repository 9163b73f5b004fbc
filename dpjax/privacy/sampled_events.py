"""Events of sampling that the library lacks, and an accountant for them.

Events are made by functions as in `accounting`. `LossAccountant` is the 'pld'
accountant; it composes the losses of these events with those of all others.
"""

from typing import Any

import attrs
import dp_accounting
from dp_accounting import dp_event as dp_events
from dp_accounting import pld
import numpy as np

from dpjax import errors
from dpjax.privacy import losses
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.restating import DpEvent


@attrs.frozen(kw_only=True)
class RandomAllocationDpEvent(DpEvent):
  """Gaussian steps of which each record joins exactly one, a uniform one.

  For the 'pld' accountant under ADD_OR_REMOVE_ONE, see
  `losses.random_allocation`.

  Attributes:
    noise_multiplier: of each step.
    num_steps: number of steps, at least 2.
  """
  noise_multiplier: float
  num_steps: int


class LossAccountant(pld.PLDAccountant):
  """Composes privacy losses, also of sampling that the library lacks."""
  _pld: pld.privacy_loss_distribution.PrivacyLossDistribution  # All so far.

  def __init__(self, relation: dp_accounting.NeighboringRelation):
    """Starts an accountant to which nothing was charged yet."""
    super().__init__(relation)
    self._relation = relation.name

  def _maybe_compose(self, event: DpEvent, count: int,
                     do_compose: bool) -> Any:
    """Composes allocations and batches of fixed size here."""
    grid = self._value_discretization_interval
    if (isinstance(event, RandomAllocationDpEvent) and
        self._relation == Adjacency.ADD_OR_REMOVE_ONE.name):
      if do_compose:
        self._add(count, *(
            pld.pld_pmf.DensePLDPmf(grid, each.first, each.probs,
                                    each.infinity, True)
            for each in losses.random_allocation(
                noise_multiplier=event.noise_multiplier,
                num_steps=event.num_steps, interval=grid)))
      return None
    if (isinstance(event, dp_events.SampledWithoutReplacementDpEvent) and
        isinstance(event.event, dp_events.GaussianDpEvent) and
        self._relation == Adjacency.REPLACE_ONE.name):
      if do_compose:
        first, deltas = losses.fixed_size_deltas(
            noise_multiplier=event.event.noise_multiplier, interval=grid,
            sampling_prob=event.sample_size / event.source_dataset_size)
        self._add(count, pld.pld_pmf.create_pmf_pessimistic_connect_dots(
            grid, first + np.arange(len(deltas)), deltas))
      return None
    return super()._maybe_compose(event, count, do_compose)

  def _add(self, count: int, *pmfs: pld.pld_pmf.PLDPmf) -> None:
    """Composes with `count` uses of losses, for removal and for addition."""
    one = pld.privacy_loss_distribution.PrivacyLossDistribution(*pmfs)
    self._pld = self._pld.compose(one.self_compose(count))


def allocation_event(*, noise_multiplier: float, num_steps: int) -> DpEvent:
  """Returns the event of Gaussian steps of which each record joins one.

  Args:
    noise_multiplier: joint multiplier of a step.
    num_steps: a record joins a uniform one of them, independently of others.
  """
  errors.check_positive('noise_multiplier', noise_multiplier)
  if errors.check_at_least('num_steps', num_steps, 1) == 1:
    return dp_accounting.GaussianDpEvent(noise_multiplier)
  return RandomAllocationDpEvent(noise_multiplier=noise_multiplier,
                                 num_steps=num_steps)


def fixed_size_event(*, num_examples: int, batch_size: int,
                     noise_multiplier: float) -> DpEvent:
  """Returns the event of a Gaussian release on a batch of fixed size.

  For REPLACE_ONE. Both accountants cover it; 'pld' by
  `losses.fixed_size_deltas`.

  Args:
    num_examples: public number of records.
    batch_size: the batch is a uniform subset of so many records.
    noise_multiplier: joint multiplier of the release.
  """
  event = dp_accounting.GaussianDpEvent(
      errors.check_positive('noise_multiplier', noise_multiplier))
  errors.check_at_least('batch_size', batch_size, 1)
  errors.check_at_least('num_examples', num_examples, batch_size)
  # A batch of all records is no sample.
  return event if batch_size == num_examples else (
      dp_events.SampledWithoutReplacementDpEvent(num_examples, batch_size,
                                                 event))
