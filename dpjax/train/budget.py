"""Counts and accounts for the steps that a user's own loop has run.

A budget covers all steps of all runs that it starts, so
two runs cannot each spend the whole of it. A run is known by the digest of its
key, which does not reveal the key.
"""

import dataclasses
import hashlib
import math
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from dpjax.privacy import accounting
from dpjax.privacy import keys as key_lib
from dpjax.train.plan import TrainingPlan
from dpjax.train.state import Streams
from dpjax.typing import Array


class _State(Protocol):
  """What is read of a state: the number of steps, and the keys."""

  @property
  def step(self) -> Array:
    """Number of steps that have run."""

  @property
  def keys(self) -> Streams:
    """Keys of the run."""

  @property
  def optimizer(self) -> Any:
    """State of the optimiser, that of the privatizer first."""


class Place(NamedTuple):
  """A run, and the number of steps before one of its states."""
  run: bytes
  done: int


class Budget:
  """The planned steps, and those that have run.

  Attributes:
    plan: sampler, noise and adjacency of every step.
    limit: number of steps of all runs together; None for no limit.
    accountant: 'pld' or 'rdp'.
    traced: whether steps were traced in a function of the user, which may have
      run any number of times.
  """

  def __init__(self, plan: TrainingPlan, *, limited: bool, delta: float | None,
               accountant: str):
    self.plan, self.limit = plan, plan.num_steps if limited else None
    self.traced = False
    self._delta, self.accountant = delta, accountant
    self._runs: dict[bytes, int] = {}
    # Reading a number of JAX waits for the step that computes it, so that of
    # the newest state is remembered.
    self._newest: tuple[Array, Place] | None = None

  @property
  def _unused(self) -> accounting.DpEvent:
    """The event before the first step."""
    return self.plan.before or accounting.composed_event([])

  @property
  def total(self) -> int:
    """Number of steps of all runs together."""
    return sum(self._runs.values())

  def check(self, state: _State) -> Place:
    """Returns the place of a state, if one more step from it is allowed.

    Args:
      state: before the step.

    Raises:
      ValueError: if the budget is spent, or if this process has already run a
        step from this state, with the same secret key.
    """
    place = self._place(state)
    before = self._runs.get(place.run, 0)
    if place.done < before and key_lib.is_secret(state.keys.noise):
      raise ValueError(
          f'step {place.done + 1} of this run was made before: with the same '
          'batch and noise, two different results would reveal exact sums of '
          'records. Go on from the newest state, or start a new run with init')
    others = self.total - before
    if others and self.plan.single_run:
      raise ValueError(
          'this sampler or this correlated noise is accounted for as one run, '
          'and another run has made steps: go on with that one, or call '
          'make_private again for a new budget, which adds to the old one')
    if self.limit is not None and others + place.done >= self.limit:
      runs = f' by {len(self._runs)} runs' if others else ''
      raise ValueError(
          f'all {self.limit} steps of the plan are spent{runs}: one more would '
          'cost more than the planned epsilon. Plan for more steps, or call '
          'make_private again for a new budget, which adds to the old one')
    return place

  def add(self, place: Place, after: _State) -> None:
    """Counts a step that has run.

    Args:
      place: of the state before the step.
      after: the state after it.
    """
    done = place.done + 1
    self._runs[place.run] = max(self._runs.get(place.run, 0), done)
    self._newest = after.step, Place(place.run, done)

  def _place(self, state: _State) -> Place:
    """Returns the run and the number of steps of a state."""
    if self._newest is not None and state.step is self._newest[0]:
      return self._newest[1]
    words = np.asarray(jax.random.key_data(state.keys.noise))
    return Place(hashlib.sha256(words.tobytes()).digest(), int(state.step))

  def event(self, num_steps: int | None = None) -> accounting.DpEvent:
    """Returns the event of a number of steps; None for all that have run."""
    count = self._steps(None) if num_steps is None else num_steps
    if not count:
      return self._unused
    return dataclasses.replace(self.plan, num_steps=count).event

  def epsilon(self, state: _State | None, delta: float | None) -> float:
    """Returns the epsilon of the steps so far, see `user_loop.Private`."""
    count, delta = self._steps(state), self._delta if delta is None else delta
    if self.plan.noise_multiplier is None and (
        count or self.plan.before is None):
      return math.inf if count else 0.0
    if delta is None:
      raise ValueError('give delta, to make_private or to epsilon')
    accounting.check_delta(delta)
    if not count and self.plan.before is None:
      return 0.0
    if not count:
      return accounting.epsilon(
          self._unused, delta=delta, adjacency=self.plan.adjacency,
          accountant=self.accountant)
    return dataclasses.replace(self.plan, num_steps=count).epsilon(
        delta, accountant=self.accountant)

  def _steps(self, state: _State | None) -> int:
    """Returns the number of steps that led to a state, or of all runs."""
    if state is not None:
      self._check_noise(state)
      return int(state.step)
    if self.traced:
      raise ValueError('steps ran in a function that you compiled, where they '
                       'cannot be counted: use epsilon(state)')
    return self.total

  def _check_noise(self, state: _State) -> None:
    """Raises if a step that led to a state had less noise than planned."""
    planned = self.plan.noise_multiplier
    if planned is None or not int(state.step):
      return
    measured = float(state.optimizer[0].joint_noise_multiplier)
    # Not `measured < ...`, which a NaN would pass; 1e-6 is rounding.
    if not measured >= planned * (1 - 1e-6):
      raise ValueError(f'a step was noised with joint multiplier {measured}, '
                       f'less than the planned {planned}')
