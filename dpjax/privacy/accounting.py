"""Privacy accounting of releases: a guarded layer over `dp_accounting`.

Convention of all events: a noise multiplier is the standard deviation of the
noise over the norm bound of *one record's* contribution (the sensitivity of the
sum under add-or-remove-one). The two accountants treat multipliers differently
under replace-one; `epsilon` corrects for that.

Accountants: 'pld' (privacy loss distributions, the default: tight, rounded up
on its grid) and 'rdp' (Renyi orders: looser, an independent check). Items
DP-05, DP-06 (composition of Renyi divergences), DP-17 (subsampling), DP-19.
"""

import collections
from collections.abc import Callable, Sequence
import functools
import math
import types
from typing import Any

import dp_accounting
from dp_accounting import dp_event as dp_events
from dp_accounting import pld
import numpy as np

from dpjax import errors
from dpjax.privacy import restating
from dpjax.privacy import sampled_events
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.restating import DpEvent as DpEvent

ACCOUNTANTS = ('pld', 'rdp')
# Below this delta the truncated tails of a composed PLD dominate the result.
MIN_DELTA = 1e-12

# Events of one cost under both relations, if replace-one halves multipliers.
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
  """Returns the event of one Gaussian release of a sum of bounded records."""
  return dp_accounting.GaussianDpEvent(
      errors.check_positive('noise_multiplier', noise_multiplier))


def laplace_event(*, noise_multiplier: float) -> DpEvent:
  """Returns the event of a Laplace release of a sum of l1-bounded records.

  Args:
    noise_multiplier: scale of the noise divided by the l1 bound of one record.
      In several coordinates, a change of a single one is the worst case:
      changes of two by a and b cost no more than a change of one by a + b.
  """
  return dp_accounting.LaplaceDpEvent(
      errors.check_positive('noise_multiplier', noise_multiplier))


def discrete_laplace_event(*, noise_parameter: float,
                           sensitivity: int) -> DpEvent:
  """Returns the event of an integer release with discrete Laplace noise.

  Noise z has weight exp(-noise_parameter |z|). `sensitivity` is the integer l1
  bound of one record's contribution.
  """
  return dp_events.DiscreteLaplaceDpEvent(
      errors.check_positive('noise_parameter', noise_parameter),
      errors.check_at_least('sensitivity', sensitivity, 1))


def pure_event(*, epsilon: float, adjacency: Adjacency) -> DpEvent:
  """Returns the event of any release that is epsilon-DP under `adjacency`."""
  return restating.PureDpEvent(
      epsilon=errors.check_positive('epsilon', epsilon),
      adjacency=check_adjacency(adjacency))


def bounded_range_event(*, width: float, adjacency: Adjacency) -> DpEvent:
  """Returns the event of an exponential mechanism of bounded range `width`."""
  return restating.BoundedRangeDpEvent(
      width=errors.check_positive('width', width),
      adjacency=check_adjacency(adjacency))


def concentrated_event(*, rho: float, adjacency: Adjacency) -> DpEvent:
  """Returns the event of a rho-zCDP release; only 'rdp' accounts for it."""
  return restating.ConcentratedDpEvent(
      rho=errors.check_positive('rho', rho),
      adjacency=check_adjacency(adjacency))


def randomized_response_event(*, uniform_prob: float,
                              num_categories: int) -> DpEvent:
  """Returns the event of one randomised response per record, for REPLACE_ONE.

  Args:
    uniform_prob: probability of drawing the answer uniformly from all
      categories, the true one included; not the probability of a lie.
    num_categories: at least 2.
  """
  return dp_events.RandomizedResponseDpEvent(
      errors.check_probability('uniform_prob', uniform_prob),
      errors.check_at_least('num_categories', num_categories, 2))


def repeat_and_select_event(event: DpEvent, *, mean: float,
                            shape: float) -> DpEvent:
  """Returns the event of the best of a random number of runs of `event`.

  Only 'rdp' accounts for it; `tuning.epsilon` is tighter. The number of runs
  must be that of `RandomStopping` with this mean and shape (item DP-21).
  """
  return dp_events.RepeatAndSelectDpEvent(
      event, errors.check_positive('mean', mean),
      errors.check_non_negative('shape', shape))


def poisson_gaussian_event(*, sampling_prob: float, noise_multiplier: float,
                           num_steps: int) -> DpEvent:
  """Returns the event of `num_steps` Gaussian releases on Poisson samples.

  Args:
    sampling_prob: probability in (0, 1] with which each record joins each
      step's batch, independently of all others.
    noise_multiplier: the *joint* multiplier over all noised blocks of a step
      (`blocks.joint_noise_multiplier`). Several blocks noised on the same
      subsample are one event, never several subsampled events.
    num_steps: number of releases; 0 costs nothing.
  """
  return poisson_event(gaussian_event(noise_multiplier=noise_multiplier),
                       sampling_prob=sampling_prob, num_steps=num_steps)


def poisson_event(event: DpEvent, *, sampling_prob: float,
                  num_steps: int) -> DpEvent:
  """Returns `num_steps` uses of `event`, each on its own Poisson sample."""
  errors.check_probability('sampling_prob', sampling_prob)
  if sampling_prob < 1:
    event = dp_accounting.PoissonSampledDpEvent(sampling_prob, event)
  return repeated_event(event, num_steps)


def repeated_event(event: DpEvent, count: int) -> DpEvent:
  """Returns `count` uses of `event` on the same data; 0 uses cost nothing."""
  errors.check_at_least('num_steps', count, 0)
  if count == 0:
    return dp_accounting.NoOpDpEvent()
  return dp_accounting.SelfComposedDpEvent(event, count)


def non_private_event() -> DpEvent:
  """Returns the event of a release without guarantee; epsilon is infinite."""
  return dp_accounting.NonPrivateDpEvent()


def composed_event(events: list[DpEvent]) -> DpEvent:
  """Returns the event of all of `events` on the same data."""
  return dp_accounting.ComposedDpEvent(list(events))


def epsilon(event: DpEvent, *, delta: float, adjacency: Adjacency,
            accountant: str = 'pld',
            orders: tuple[float, ...] | None = None) -> float:
  """Returns an upper bound on epsilon: `event` is (epsilon, delta)-DP.

  Args:
    event: the complete event of everything computed from the data.
    delta: in [1e-12, 1).
    adjacency: the neighbouring relation of the claim.
    accountant: 'pld' or 'rdp'.
    orders: Renyi orders that 'rdp' minimises over; None for a default grid.

  Returns:
    epsilon >= 0, infinite for a non-private event.

  Raises:
    ValueError: if delta is out of range, or the accountant does not cover the
      event under this adjacency. 'rdp' bounds Poisson samples under replace-one
      by an inequality, see `restating.ReplacingAccountant`.

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
  """Returns the delta for which `event` is (target_epsilon, delta)-DP."""
  return float(delta_curve(event, epsilons=[target_epsilon],
                           adjacency=adjacency, accountant=accountant)[0])


def delta_curve(event: DpEvent, *, epsilons: Sequence[float],
                adjacency: Adjacency, accountant: str = 'pld') -> np.ndarray:
  """Returns `delta_for` of many epsilons [m], composed once: float64 [m]."""
  for value in epsilons:
    errors.check_non_negative('target_epsilon', value)
  composed = _composed(event, adjacency, accountant)
  return np.array([composed.get_delta(float(value)) for value in epsilons])


def optimal_composition(guarantees: Sequence[ApproxDP], *,
                        delta: float) -> float:
  """Returns the least epsilon of composed (epsilon_i, delta_i)-DP releases.

  Kairouz, Oh and Viswanath (2015); `composition.heterogeneous` bounds it in
  closed form. Composes the dominating pairs of the guarantees, all of one
  adjacency, on a grid of at most a fiftieth of the least epsilon (ALG-10).

  Args:
    guarantees: one for each release; releases may be chosen adaptively.
    delta: in [1e-12, 1); must exceed 1 - prod (1 - delta_i).
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
  """Returns the largest mu = sensitivity / stddev that is (epsilon, delta)-DP.

  Exact for every epsilon. Source: Balle and Wang (2018); item MECH-04.
  """
  errors.check_positive('epsilon', epsilon)
  errors.check_open_unit('delta', delta)
  return 1 / float(dp_accounting.get_sigma_gaussian(epsilon, delta))


def gaussian_epsilon(*, shift: float, delta: float) -> float:
  """Returns the exact epsilon of a Gaussian release of mu = `shift`."""
  errors.check_positive('shift', shift)
  errors.check_open_unit('delta', delta)
  return float(dp_accounting.get_epsilon_gaussian(1 / shift, delta))


@functools.lru_cache(maxsize=1024)
def calibrate_noise_multiplier(*, target_epsilon: float, target_delta: float,
                               sampling_prob: float, num_steps: int,
                               adjacency: Adjacency,
                               accountant: str = 'pld') -> float:
  """Returns a joint noise multiplier that meets the target, rounded up.

  The rule sigma >= c_2 q sqrt(T ln(1/delta)) / epsilon of Barczewski (2025,
  Theorem 3.2.4; DP-18) leaves its constant open, so it is not used.

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
  check_delta(target_delta)
  check_adjacency(adjacency)
  errors.check_at_least('num_steps', num_steps, 1)
  errors.check_probability('sampling_prob', sampling_prob)
  # A delta of at least this probability would not require any noise.
  ever_seen = -math.expm1(num_steps * math.log1p(-sampling_prob)
                          ) if sampling_prob < 1 else 1.0
  if target_delta >= ever_seen:
    raise ValueError(f'delta = {target_delta:g} is not below {ever_seen:g}, '
                     'the probability that a record is used at all; no noise '
                     'would be needed')
  event_of = lambda multiplier: poisson_gaussian_event(
      sampling_prob=sampling_prob, noise_multiplier=multiplier,
      num_steps=num_steps)
  # The Renyi result is cheap and close. Starting from it avoids trying little
  # noise over many steps, which would need very large loss distributions.
  multiplier = 1.0
  for solver in ('rdp', accountant):
    multiplier = calibrate_event(
        event_of, target_epsilon=target_epsilon, target_delta=target_delta,
        accountant=solver, guess=multiplier, adjacency=adjacency
        if solver == accountant else Adjacency.ADD_OR_REMOVE_ONE)
  return multiplier


def calibrate_event(event_of: Callable[[float], DpEvent], *,
                    target_epsilon: float, target_delta: float,
                    adjacency: Adjacency, accountant: str = 'pld',
                    guess: float = 1.0) -> float:
  """Returns a multiplier that meets the target, at most 1e-4 too large.

  Args:
    event_of: noise multiplier -> event; more noise must cost less.
    target_epsilon: positive.
    target_delta: in [1e-12, 1).
    adjacency: neighbouring relation of the claim.
    accountant: 'pld' or 'rdp'.
    guess: where the search starts; only its time depends on it.

  Raises:
    ValueError: for a target out of range, or an event that is not covered.
  """
  errors.check_positive('epsilon', target_epsilon)
  errors.check_positive('guess', guess)

  @functools.cache  # Root finders evaluate the ends of a bracket again.
  def spent(multiplier: float) -> float:
    return epsilon(event_of(multiplier), delta=target_delta,
                   adjacency=adjacency, accountant=accountant)

  # The library's search calls an accountant; this one only knows `spent`.
  searched = types.SimpleNamespace(
      ledger=dp_accounting.NoOpDpEvent(),
      compose=lambda multiplier: types.SimpleNamespace(
          get_epsilon=lambda delta: spent(multiplier)))
  bracket = _bracket(spent, guess, target_epsilon)
  return float(dp_accounting.calibrate_dp_mechanism(
      lambda: searched, float, target_epsilon, target_delta, bracket,
      tol=1e-4 * bracket.endpoint_2))


def _bracket(spent: Callable[[float], float], guess: float,
             target: float) -> dp_accounting.ExplicitBracketInterval:
  """Returns two multipliers that bracket the target epsilon."""
  low = high = guess
  while spent(high) > target:
    low, high = high, high * 1.25
    if high > 2.0**40:
      raise ValueError(f'no noise multiplier below 2^40 meets epsilon {target}')
  while low == high or spent(low) <= target:
    low /= 1.1
    if low < 2.0**-10:
      raise ValueError(f'epsilon {target} needs hardly any noise: lower it')
  return dp_accounting.ExplicitBracketInterval(low, high)


def check_delta(value: float) -> None:
  """Checks that delta lies in [1e-12, 1); raises `ValueError` if not."""
  if not MIN_DELTA <= value < 1:
    raise ValueError(f'delta must lie in [{MIN_DELTA:g}, 1), got {value}')


def _composed(event: DpEvent, adjacency: Adjacency, accountant: str,
              orders: tuple[float, ...] | None = None) -> Any:
  """Returns an accountant that composed `event`, or raises `ValueError`."""
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
    # Each accountant of the library covers pure DP under one relation only.
    relation = (Adjacency.ADD_OR_REMOVE_ONE if accountant == 'pld' else
                Adjacency.REPLACE_ONE)
  event = restating.with_library_events(event, adjacency, relation, accountant)
  if accountant == 'rdp':
    ledger = restating.RenyiAccountant(
        list(orders or restating.renyi_orders(event)), _RELATIONS[relation],
        adjacency)
  else:
    ledger = sampled_events.LossAccountant(_RELATIONS[relation])
    event = restating.with_unrolled_responses(event)
  if not ledger.supports(event):
    raise ValueError(f'the {accountant} accountant does not cover '
                     f'{type(event).__name__} under {adjacency.value}: {event}')
  return ledger.compose(event)
