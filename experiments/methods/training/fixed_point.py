"""Noisy fixed-point iterations x <- x + lambda (R(x) + noise - x).

R is an operator that depends on all records. If R is nonexpansive, these are
the iterations of Krasnosel'skii and Mann. Each instance states a bound on how
far one record can move R(x), for every x, so each step is a Gaussian release.
Sources: Lalanne (2023, section 2.3.4); Cyffers, Bellet and Basu (2023). Item
OPT-06.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.grads import ball
from dpjax.grads.bounder import GradientBounder
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.typing import Array, PRNGKey, PyTree


class FixedPointState(NamedTuple):
  """State between two steps; may be released, except for the key.

  Attributes:
    point: x, the current iterate.
    key: key for the noise of the remaining steps; secret.
  """
  point: PyTree
  key: PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedPointIteration:
  """Iterates a noisy operator and releases the iterates.

  Guarantee: the guarantee of `event` under `adjacency`, for all iterates
  together.

  Attributes:
    operator: R, (x, data) -> a pytree of the structure of x.
    record_norm: bound on what one record adds to R(x), in l2 and for every x; a
      replaced record moves R(x) by up to twice this. Callers must enforce it.
    start: initial x, public.
    relaxation: lambda, in (0, 1].
    noise_multiplier: standard deviation of the noise over `record_norm`.
    num_steps: number of steps, fixed before the run.
    adjacency: which data sets are neighbours.
  """
  operator: Callable[[PyTree, PyTree], PyTree]
  record_norm: float
  start: PyTree
  relaxation: float
  noise_multiplier: float
  num_steps: int
  adjacency: Adjacency

  def __post_init__(self):
    errors.check_probability('relaxation', self.relaxation)
    errors.check_at_least('num_steps', self.num_steps, 1)
    self._gaussian  # Building the mechanism checks the other fields.

  @property
  def event(self) -> accounting.DpEvent:
    """Returns the event of all iterates together."""
    return accounting.repeated_event(self._gaussian.event, self.num_steps)

  def init(self, key: PRNGKey) -> FixedPointState:
    """Returns the state before the first step."""
    return FixedPointState(self.start, key)

  def update(self, state: FixedPointState, data: PyTree) -> FixedPointState:
    """Returns the state after one noisy step on all records."""
    draw, key = jax.random.split(state.key)
    image = self._gaussian.release(draw, self.operator(state.point, data))
    return FixedPointState(
        tree.add(tree.scale(1 - self.relaxation, state.point),
                 tree.scale(self.relaxation, image)), key)

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """Returns the last x; releasing the earlier ones costs nothing more."""
    last, _ = jax.lax.scan(lambda state, _: (self.update(state, data), None),
                           self.init(key), length=self.num_steps)
    return last.point

  def risk(self, num_values: int) -> None:
    """Returns None: the error depends on the operator."""
    del num_values

  @property
  def _gaussian(self) -> additive.GaussianMechanism:
    """Returns the Gaussian mechanism of one step."""
    return additive.GaussianMechanism(
        record_norm=self.record_norm, adjacency=self.adjacency,
        noise_multiplier=self.noise_multiplier)


def gradient_descent(bounder: GradientBounder, *, num_examples: int,
                     learning_rate: float,
                     **arguments: Any) -> FixedPointIteration:
  """Returns full-batch DP-SGD: R(x) = x - (eta / n) sum of bounded gradients.

  Args:
    bounder: bounds gradients for all parameters, e.g. `per_example.clipped`.
    num_examples: n, the public divisor.
    learning_rate: eta, the learning rate, positive.
    **arguments: the other fields of `FixedPointIteration`.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  rate = errors.check_positive('learning_rate', learning_rate) / num_examples

  def operator(point: PyTree, data: PyTree) -> PyTree:
    rows = jax.tree.leaves(data)[0].shape[0]
    sums = bounder.sums(point, data, jnp.ones([rows], jnp.bool_)).total
    return tree.add(point, tree.scale(-rate, sums))

  bounds = map(float, jax.tree.leaves(bounder.l2_sensitivity(())))
  return FixedPointIteration(
      operator=operator, record_norm=rate * math.hypot(*bounds), **arguments)


def consensus_admm(prox: Callable[[Array, PyTree], Array], *,
                   num_examples: int, num_values: int, move_bound: float,
                   **arguments: Any) -> FixedPointIteration:
  """Minimises a sum of per-record losses, each given by its proximal map.

  This is Douglas-Rachford splitting, hence ADMM, over a copy u_i of the
  parameters for each record: R(u)_i = u_i + 2 (prox_i(2 z - u_i) - z), where z
  is the mean of the copies. At a fixed point z is the minimiser. One record
  affects its own copy only, and moves that by at most 2 `move_bound`. All
  copies may be released, so each record's owner can draw the noise of its copy.
  Private under REPLACE_ONE only: the number of copies is public.

  Args:
    prox: (v [d], record) -> argmin of loss(x) + ||x - v||^2 / (2 gamma).
    num_examples: n, the number of records; public.
    num_values: d, the number of parameters.
    move_bound: bound on ||prox(v) - v||, gamma times the Lipschitz constant of
      a loss; larger moves are projected on this ball.
    **arguments: the other fields of `FixedPointIteration`, but `start`.

  Raises:
    ValueError: for another adjacency than REPLACE_ONE.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_at_least('num_values', num_values, 1)
  errors.check_positive('move_bound', move_bound)
  if check_adjacency(arguments['adjacency']) is not Adjacency.REPLACE_ONE:
    raise ValueError('consensus_admm keeps one copy for each record, so it is '
                     'private only under adjacency replace_one')

  def operator(copies: Array, data: PyTree) -> Array:
    mean = jnp.mean(copies, 0)[None]
    points = 2 * mean - copies
    moves = jax.vmap(prox)(points, data) - points
    # Enforces the sensitivity, 2 `move_bound` for each copy, whatever `prox`
    # returns.
    moves = ball.project_records(moves, move_bound).values
    # u + 2 (v + move - z) for v = 2 z - u.
    return 2 * mean - copies + 2 * moves

  return FixedPointIteration(
      operator=operator, record_norm=2 * move_bound,
      start=jnp.zeros((num_examples, num_values)), **arguments)
