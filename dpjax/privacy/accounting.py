"""What a release costs: a thin, guarded layer over `dp_accounting`.

Convention of every event made here: a noise multiplier is the standard
deviation of the noise over the norm bound of *one record's* contribution
(the add-or-remove-one sensitivity of the sum). `epsilon` takes care of what
the two accountants make of that multiplier under replace-one.

Accountants: 'pld' (privacy loss distributions, the default: tight, rounded
up on its grid) and 'rdp' (Renyi orders: a looser, independent second
opinion). Items DP-05, DP-06 (Renyi orders added up by 'rdp'), DP-17
(subsampling as an event) and DP-19.
"""

import collections
from collections.abc import Sequence
import dataclasses
import functools
import math

import dp_accounting
from dp_accounting import dp_event as dp_events
from dp_accounting import pld
import numpy as np

from dpjax import errors
from dpjax.privacy import restating
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.notions import ApproxDP

DpEvent = dp_accounting.DpEvent
ACCOUNTANTS = ('pld', 'rdp')
# Below this the discretised tails of a composed PLD are no longer meaningful.
MIN_DELTA = 1e-12

# What costs the same under every relation once multipliers are those of it.
_RELATION_FREE = (
    dp_events.GaussianDpEvent, dp_events.LaplaceDpEvent, dp_events.ZCDpEvent,
    dp_events.DiscreteLaplaceDpEvent, dp_events.NoOpDpEvent,
    dp_events.NonPrivateDpEvent, dp_events.ComposedDpEvent,
    dp_events.SelfComposedDpEvent, dp_events.RepeatAndSelectDpEvent,
    restating.PureDpEvent, restating.BoundedRangeDpEvent,
    restating.ConcentratedDpEvent)

_RELATIONS = {relation: dp_accounting.NeighboringRelation[relation.name]
              for relation in Adjacency}


def gaussian_event(*, noise_multiplier: float) -> DpEvent:
  """One Gaussian release of a sum of bounded records."""
  return dp_accounting.GaussianDpEvent(
      errors.check_positive('noise_multiplier', noise_multiplier))


def laplace_event(*, noise_multiplier: float) -> DpEvent:
  """One release with Laplace noise of a sum of records bounded in l1.

  Args:
    noise_multiplier: scale of the noise over the l1 bound of one record. In
      several coordinates the worst shift is all in one: a shift by a and by b
      is dominated by one by a + b.
  """
  return dp_accounting.LaplaceDpEvent(
      errors.check_positive('noise_multiplier', noise_multiplier))


def discrete_laplace_event(*, noise_parameter: float,
                           sensitivity: int) -> DpEvent:
  """One release of integers with noise of weights exp(-noise_parameter |z|).

  `sensitivity` is the integer l1 bound of one record's contribution.
  """
  return dp_events.DiscreteLaplaceDpEvent(
      errors.check_positive('noise_parameter', noise_parameter),
      errors.check_at_least('sensitivity', sensitivity, 1))


def pure_event(*, epsilon: float, adjacency: Adjacency) -> DpEvent:
  """One release that is epsilon-DP under `adjacency`, however it is made."""
  return restating.PureDpEvent(
      epsilon=errors.check_positive('epsilon', epsilon),
      adjacency=check_adjacency(adjacency))


def bounded_range_event(*, width: float, adjacency: Adjacency) -> DpEvent:
  """Returns the event of one exponential mechanism of guarantee `width`."""
  return restating.BoundedRangeDpEvent(
      width=errors.check_positive('width', width),
      adjacency=check_adjacency(adjacency))


def concentrated_event(*, rho: float, adjacency: Adjacency) -> DpEvent:
  """One release that is rho-zCDP under `adjacency`; for 'rdp'."""
  return restating.ConcentratedDpEvent(
      rho=errors.check_positive('rho', rho),
      adjacency=check_adjacency(adjacency))


def randomized_response_event(*, uniform_prob: float,
                              num_categories: int) -> DpEvent:
  """One answer of each person by randomised response; for REPLACE_ONE.

  Args:
    uniform_prob: with which an answer is drawn from all categories alike, and
      may be the truth: not the probability of a lie.
    num_categories: at least 2.
  """
  return dp_events.RandomizedResponseDpEvent(
      errors.check_probability('uniform_prob', uniform_prob),
      errors.check_at_least('num_categories', num_categories, 2))


def repeat_and_select_event(event: DpEvent, *, mean: float,
                            shape: float) -> DpEvent:
  """A random number of runs of `event`, of which the best alone is released.

  For the 'rdp' accountant. The number of runs must be drawn by
  `tuning.draw_num_trials` of the same mean and shape (item DP-21).
  """
  return dp_events.RepeatAndSelectDpEvent(
      event, errors.check_positive('mean', mean),
      errors.check_non_negative('shape', shape))


def poisson_gaussian_event(*, sampling_prob: float, noise_multiplier: float,
                           num_steps: int) -> DpEvent:
  """`num_steps` Gaussian releases, each on its own Poisson subsample.

  Args:
    sampling_prob: probability with which each record joins each step's batch,
      independently of all others; in (0, 1].
    noise_multiplier: the *joint* multiplier over all noised blocks of a step
      (`blocks.joint_noise_multiplier`). Several blocks noised on the same
      subsample are one event, never several subsampled ones.
    num_steps: number of releases; 0 costs nothing.
  """
  return poisson_event(gaussian_event(noise_multiplier=noise_multiplier),
                       sampling_prob=sampling_prob, num_steps=num_steps)


def poisson_event(event: DpEvent, *, sampling_prob: float,
                  num_steps: int) -> DpEvent:
  """`num_steps` times `event`, each on its own Poisson subsample."""
  errors.check_probability('sampling_prob', sampling_prob)
  if sampling_prob < 1:
    event = dp_accounting.PoissonSampledDpEvent(sampling_prob, event)
  return repeated_event(event, num_steps)


def repeated_event(event: DpEvent, count: int) -> DpEvent:
  """`event` on the same data `count` times; 0 times costs nothing."""
  errors.check_at_least('num_steps', count, 0)
  if count == 0:
    return dp_accounting.NoOpDpEvent()
  return dp_accounting.SelfComposedDpEvent(event, count)


def non_private_event() -> DpEvent:
  """A release without any guarantee; its epsilon is infinite."""
  return dp_accounting.NonPrivateDpEvent()


def composed_event(events: list[DpEvent]) -> DpEvent:
  """All of `events` on the same data."""
  return dp_accounting.ComposedDpEvent(list(events))


def epsilon(event: DpEvent, *, delta: float, adjacency: Adjacency,
            accountant: str = 'pld',
            orders: tuple[float, ...] | None = None) -> float:
  """The epsilon for which `event` is (epsilon, delta)-DP; an upper bound.

  Args:
    event: what was done to the data, complete by itself.
    delta: in [1e-12, 1).
    adjacency: the neighbouring relation of the claim.
    accountant: 'pld' or 'rdp'.
    orders: Renyi orders for 'rdp' to choose from; None for many.

  Returns:
    epsilon >= 0, infinite for a non-private event.

  Raises:
    ValueError: for delta out of range, or an event that the accountant does
      not cover under this adjacency. 'rdp' covers Poisson samples under
      replace-one by an inequality, see `restating.ReplacingAccountant`.

  Examples:
    >>> from dpjax.privacy import accounting
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> once = accounting.gaussian_event(noise_multiplier=2.0)
    >>> twice = accounting.composed_event([once, once])
    >>> claim = dict(delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    >>> round(accounting.epsilon(once, **claim), 2)
    1.99
    >>> round(accounting.epsilon(twice, **claim), 2)
    2.94
  """
  check_delta(delta)
  return float(_composed(event, adjacency, accountant, orders).get_epsilon(
      delta))


def delta_for(event: DpEvent, *, target_epsilon: float,
              adjacency: Adjacency, accountant: str = 'pld') -> float:
  """The delta for which `event` is (target_epsilon, delta)-DP."""
  return float(delta_curve(event, epsilons=[target_epsilon],
                           adjacency=adjacency, accountant=accountant)[0])


def delta_curve(event: DpEvent, *, epsilons: Sequence[float],
                adjacency: Adjacency, accountant: str = 'pld') -> np.ndarray:
  """`delta_for` of many epsilons [m], composed once: float64 [m]."""
  for value in epsilons:
    errors.check_non_negative('target_epsilon', value)
  composed = _composed(event, adjacency, accountant)
  return np.array([composed.get_delta(float(value)) for value in epsilons])


def optimal_composition(guarantees: Sequence[ApproxDP], *,
                        delta: float) -> float:
  """The least epsilon that releases known by guarantees alone have together.

  Kairouz, Oh and Viswanath 2015, which `composition.heterogeneous` bounds in
  closed form; by composing the pairs that dominate (epsilon_i, delta_i), of
  one adjacency, rounded up on a grid of a fiftieth of the smallest epsilon
  (item ALG-10).

  Args:
    guarantees: one for each release, adaptive ones too.
    delta: in [1e-12, 1); must exceed what the deltas make without epsilon.
  """
  check_delta(delta)
  positive = [g.epsilon for g in guarantees if g.epsilon]
  grid = min(1e-4, min(positive, default=1.0) / 50)
  composed = pld.privacy_loss_distribution.identity(grid)
  for guarantee, count in collections.Counter(guarantees).items():
    one = pld.privacy_loss_distribution.from_privacy_parameters(
        pld.common.DifferentialPrivacyParameters(guarantee.epsilon,
                                                 guarantee.delta),
        value_discretization_interval=grid)
    composed = composed.compose(one.self_compose(count))
  return float(composed.get_epsilon_for_delta(delta))


def gaussian_shift(*, epsilon: float, delta: float) -> float:
  """The largest mu = sensitivity / stddev of one Gaussian release, exact.

  Balle and Wang 2018; for every epsilon, where the classical sqrt(2 ln(1.25 /
  delta)) / epsilon is proved below 1 only (item MECH-04).
  """
  errors.check_positive('epsilon', epsilon)
  errors.check_open_unit('delta', delta)
  return 1 / float(dp_accounting.get_sigma_gaussian(epsilon, delta))


def gaussian_epsilon(*, shift: float, delta: float) -> float:
  """The epsilon of one Gaussian release of this mu, exact at any delta."""
  errors.check_positive('shift', shift)
  errors.check_open_unit('delta', delta)
  return float(dp_accounting.get_epsilon_gaussian(1 / shift, delta))


@functools.lru_cache(maxsize=1024)
def calibrate_noise_multiplier(*, target_epsilon: float, target_delta: float,
                               sampling_prob: float, num_steps: int,
                               adjacency: Adjacency,
                               accountant: str = 'pld') -> float:
  """A joint noise multiplier that meets the target, rounded up.

  Root finding on `epsilon(poisson_gaussian_event(...))`: the result is the
  least multiplier that costs no more than the target, or a part in 10^4 more.

  This, not an asymptotic rule, is how noise is calibrated everywhere: the
  bound sigma >= c_2 q sqrt(T ln(1/delta)) / epsilon (thesis 003, Theorem
  3.2.4; item DP-18) leaves its constants open and calibrates nothing.

  Raises:
    ValueError: for a target, probability or step count out of range.

  Examples:
    >>> from dpjax.privacy import accounting
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> noise = accounting.calibrate_noise_multiplier(
    ...     target_epsilon=1.0, target_delta=1e-5, sampling_prob=1.0,
    ...     num_steps=1, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    >>> round(noise, 2)
    3.73
  """
  errors.check_positive('epsilon', target_epsilon)
  check_delta(target_delta)
  check_adjacency(adjacency)
  errors.check_at_least('num_steps', num_steps, 1)
  errors.check_probability('sampling_prob', sampling_prob)
  ever_seen = -math.expm1(num_steps * math.log1p(-sampling_prob)
                          ) if sampling_prob < 1 else 1.0
  if target_delta >= ever_seen:
    raise ValueError(f'delta = {target_delta:g} is not below {ever_seen:g}, '
                     'the probability that a record is used at all; no noise '
                     'would be needed')

  @functools.cache  # Root finders ask for the ends of a bracket again.
  def spent(multiplier: float, by: str) -> float:
    event = poisson_gaussian_event(
        sampling_prob=sampling_prob, noise_multiplier=multiplier,
        num_steps=num_steps)
    relation = adjacency if by == accountant else Adjacency.ADD_OR_REMOVE_ONE
    return epsilon(event, delta=target_delta, adjacency=relation,
                   accountant=by)

  # The Renyi answer is cheap and near: little noise over many steps, which
  # would need very large loss distributions, is never tried.
  multiplier = 1.0
  for solver in ('rdp', accountant):
    bracket = _bracket(lambda m, s=solver: spent(m, s), multiplier,
                       target_epsilon)
    multiplier = dp_accounting.calibrate_dp_mechanism(
        lambda s=solver: _Spender(lambda m: spent(m, s)), _Multiplier,
        target_epsilon, target_delta, bracket, tol=1e-4 * bracket.endpoint_2)
  return multiplier


def _bracket(spent, guess: float, target: float):
  """Two multipliers on either side of the target, from much noise down."""
  low = high = guess
  while spent(high) > target:
    low, high = high, high * 1.25
    if high > 2.0**40:
      raise ValueError(f'no noise multiplier below 2^40 meets epsilon {target}')
  while low == high or spent(low) <= target:
    low /= 1.1
    if low < 2.0**-10:
      raise ValueError(f'epsilon {target} needs hardly any noise: refused')
  return dp_accounting.ExplicitBracketInterval(low, high)


@dataclasses.dataclass(frozen=True)
class _Multiplier:
  """The 'event' of a calibration: its parameter."""
  value: float


class _Spender:
  """What `calibrate_dp_mechanism` asks of an accountant, with our guards."""

  ledger = dp_accounting.NoOpDpEvent()

  def __init__(self, spent):
    self._spent, self._multiplier = spent, None

  def compose(self, multiplier: _Multiplier):
    """Remembers the multiplier; a fresh instance serves each."""
    self._multiplier = multiplier.value
    return self

  def get_epsilon(self, target_delta: float) -> float:
    """The epsilon of the remembered multiplier."""
    del target_delta
    return self._spent(self._multiplier)


def check_delta(value: float) -> None:
  """Refuses a delta outside [1e-12, 1): `ValueError`, one line."""
  if not MIN_DELTA <= value < 1:
    raise ValueError(f'delta must lie in [{MIN_DELTA:g}, 1), got {value}')


def _composed(event: DpEvent, adjacency: Adjacency, accountant: str,
              orders: tuple[float, ...] | None = None):
  """A fresh accountant that has consumed `event`, or a one-line refusal."""
  errors.check_choice('accountant', accountant, ACCOUNTANTS)
  check_adjacency(adjacency)
  if (accountant == 'rdp' and adjacency is Adjacency.REPLACE_ONE
      and restating.is_poisson_sampled(event)):
    orders = orders or restating.replacing_orders(event)
    added = _composed(event, Adjacency.ADD_OR_REMOVE_ONE, 'rdp',
                      restating.orders_of_pairs(orders))
    return restating.ReplacingAccountant(
        orders, dict(zip(added.orders, added.rdp, strict=True)))
  event = restating.with_guarantees_restated(event, adjacency)
  relation = adjacency
  free = all(isinstance(e, _RELATION_FREE) for e in restating.walk(event))
  if adjacency is Adjacency.REPLACE_ONE and (free or accountant == 'rdp'):
    event = restating.with_halved_multipliers(event)
  if free:
    # Each library accountant knows the pure pair under one relation only.
    relation = (Adjacency.ADD_OR_REMOVE_ONE if accountant == 'pld' else
                Adjacency.REPLACE_ONE)
  event = restating.with_library_events(event, adjacency, relation, accountant)
  if accountant == 'rdp':
    ledger = restating.RenyiAccountant(
        list(orders or restating.renyi_orders(event)), _RELATIONS[relation],
        adjacency)
  else:
    ledger = pld.PLDAccountant(_RELATIONS[relation])
    event = restating.with_unrolled_responses(event)
  if not ledger.supports(event):
    raise ValueError(f'the {accountant} accountant does not cover '
                     f'{type(event).__name__} under {adjacency.value}: {event}')
  return ledger.compose(event)
