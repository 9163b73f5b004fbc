"""Noisy fixed-point iterations x <- x + lambda (R(x) + noise - x).

With an operator R of all records that does not expand, these are the iterations
of Krasnosel'skii and Mann. What an instance has to state is how far one record
can move R(x), whatever x is; each step is then a Gaussian release. Source:
thesis 000, Section 2.3.4; Cyffers, Bellet and Basu 2023 (item OPT-06).
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
  """Between two steps; may be released.

  Attributes:
    point: x.
    key: for the steps to come.
  """
  point: PyTree
  key: PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedPointIteration:
  """Iterates a noisy operator.

  Guarantee: that of `event` under `adjacency`, for all iterates together.

  Attributes:
    operator: R, (x, data) -> of the structure of x.
    record_norm: one record adds at most so much to R(x) in l2, for every x: a
      replaced one moves it by twice that. Callers must enforce it.
    start: initial x, public.
    relaxation: lambda, in (0, 1].
    noise_multiplier: deviation of the noise over `record_norm`.
    num_steps: fixed before the run.
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
    self._gaussian  # Refuses what is left.

  @property
  def event(self) -> accounting.DpEvent:
    """What all iterates cost together."""
    return accounting.repeated_event(self._gaussian.event, self.num_steps)

  def init(self, key: PRNGKey) -> FixedPointState:
    """Before the first step."""
    return FixedPointState(self.start, key)

  def update(self, state: FixedPointState, data: PyTree) -> FixedPointState:
    """One step."""
    draw, key = jax.random.split(state.key)
    image = self._gaussian.release(draw, self.operator(state.point, data))
    return FixedPointState(
        tree.add(tree.scale(1 - self.relaxation, state.point),
                 tree.scale(self.relaxation, image)), key)

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """The last x; the others cost nothing more."""
    last, _ = jax.lax.scan(lambda state, _: (self.update(state, data), None),
                           self.init(key), length=self.num_steps)
    return last.point

  def risk(self, num_values: int) -> None:
    """Depends on the operator."""
    del num_values

  @property
  def _gaussian(self) -> additive.GaussianMechanism:
    return additive.GaussianMechanism(
        record_norm=self.record_norm, adjacency=self.adjacency,
        noise_multiplier=self.noise_multiplier)


def gradient_descent(bounder: GradientBounder, *, num_examples: int,
                     learning_rate: float,
                     **arguments: Any) -> FixedPointIteration:
  """R(x) = x - (eta / n) sum of bounded gradients: DP-SGD on all records.

  Args:
    bounder: whose bounds hold for all parameters, e.g. `per_example.clipped`.
    num_examples: n, the public divisor.
    learning_rate: eta.
    **arguments: those of `FixedPointIteration` that are left.
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
                   num_examples: int, num_values: int, reach: float,
                   **arguments: Any) -> FixedPointIteration:
  """The minimiser of a sum of records' losses, each known by its prox.

  Douglas-Rachford splitting, which is ADMM, over a copy u_i of the parameters
  for each record: R(u)_i = u_i + 2 (prox_i(2 z - u_i) - z) with z the mean of
  the copies; at a fixed point z is the minimiser. A record decides on its own
  copy alone, and moves it by 2 `reach` from where it would be without: what is
  released may be all copies, so that noise can be drawn where each record
  lives. For REPLACE_ONE: the number of copies is public.

  Args:
    prox: (v [d], record) -> argmin of loss(x) + ||x - v||^2 / (2 gamma).
    num_examples: n.
    num_values: d.
    reach: gamma times the Lipschitz constant of a loss, which a prox stays
      within of its argument; enforced.
    **arguments: those of `FixedPointIteration` that are left but `start`.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_at_least('num_values', num_values, 1)
  errors.check_positive('reach', reach)
  if check_adjacency(arguments['adjacency']) is not Adjacency.REPLACE_ONE:
    raise ValueError('consensus_admm keeps a copy for each record, and so is '
                     'private under replace_one only')

  def operator(copies: Array, data: PyTree) -> Array:
    mean = jnp.mean(copies, 0)[None]
    points = 2 * mean - copies
    moves = jax.vmap(prox)(points, data) - points
    moves = ball.project_records(moves, reach).values
    # u + 2 (v + move - z) for v = 2 z - u.
    return 2 * mean - copies + 2 * moves

  return FixedPointIteration(
      operator=operator, record_norm=2 * reach,
      start=jnp.zeros((num_examples, num_values)), **arguments)
