"""Noisy Newton steps: a noisy gradient and a noisy Hessian of all records.

Two Gaussian releases of each step, accounted together; what is done with them
is post-processing, so all iterates may be seen. For few parameters: a step
releases their number squared. Source: thesis 000, Section 2.3.4, which points
to Avella-Medina, Bradshaw and Loh 2021 (item OPT-05).
"""

from collections.abc import Callable
import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import clipping
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.typing import Array, PRNGKey, PyTree


class NewtonState(NamedTuple):
  """Between two steps; may be released.

  Attributes:
    params: the iterate, [d].
    key: for the steps to come.
  """
  params: Array
  key: PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyNewton:
  """Newton's method on the mean of records' losses and a public regulariser.

  Guarantee: that of `event` under `adjacency`. Each record's gradient is
  clipped in l2 and its Hessian in Frobenius norm; a record that is not finite
  adds nothing.

  Attributes:
    loss: (params [d], record) -> scalar.
    start: initial parameters [d], public.
    num_examples: n, the public divisor.
    gradient_norm: clip norm of a record's gradient.
    hessian_norm: clip norm of a record's Hessian.
    gradient_multiplier: deviation of the gradient's noise over its clip norm.
    hessian_multiplier: deviation of the Hessian's noise over its clip norm.
    num_steps: fixed before the run.
    adjacency: which data sets are neighbours.
    regularization: gamma of (gamma/2) ||params||^2.
    least_curvature: eigenvalues of the noisy mean Hessian are raised to it.
  """
  loss: Callable[[Array, PyTree], Array]
  start: Array
  num_examples: int
  gradient_norm: float
  hessian_norm: float
  gradient_multiplier: float
  hessian_multiplier: float
  num_steps: int
  adjacency: Adjacency
  regularization: float = 0.0
  least_curvature: float = 1e-3

  def __post_init__(self):
    errors.check_at_least('num_examples', self.num_examples, 1)
    errors.check_at_least('num_steps', self.num_steps, 1)
    for name in ('gradient_norm', 'hessian_norm', 'gradient_multiplier',
                 'hessian_multiplier', 'least_curvature'):
      errors.check_scale(name, getattr(self, name))
    check_adjacency(self.adjacency)
    errors.check_non_negative('regularization', self.regularization)

  @property
  def event(self) -> accounting.DpEvent:
    """What all iterates cost together."""
    return accounting.repeated_event(accounting.composed_event([
        self._gradients.event, self._hessians.event]), self.num_steps)

  def init(self, key: PRNGKey) -> NewtonState:
    """Before the first step."""
    return NewtonState(self.start, key)

  def sums(self, params: Array, data: PyTree) -> tuple[Array, Array]:
    """Clipped gradients [d] and Hessians [d, d], summed; PRIVATE."""
    gradients = jax.vmap(jax.grad(self.loss), (None, 0))(params, data)
    hessians = jax.vmap(jax.hessian(self.loss), (None, 0))(params, data)
    return (_clipped_sum(gradients, self.gradient_norm),
            _clipped_sum(hessians, self.hessian_norm))

  def update(self, state: NewtonState, data: PyTree) -> NewtonState:
    """One step on all records."""
    for_gradient, for_hessian, key = jax.random.split(state.key, 3)
    gradient, hessian = self.sums(state.params, data)
    gradient = (self._gradients.release(for_gradient, gradient) /
                self.num_examples + self.regularization * state.params)
    noisy = self._hessians.release(for_hessian, hessian) / self.num_examples
    # The transpose has noise of its own: the mean of both is post-processing,
    # and costs as the Frobenius norm, in which off-diagonals count twice.
    values, vectors = jnp.linalg.eigh((noisy + noisy.T) / 2)
    curvature = jnp.maximum(values + self.regularization, self.least_curvature)
    step = vectors @ ((vectors.T @ gradient) / curvature)
    return NewtonState(state.params - step, key)

  def release(self, key: PRNGKey, data: PyTree) -> Array:
    """The last iterate [d]; the others cost nothing more."""
    last, _ = jax.lax.scan(lambda state, _: (self.update(state, data), None),
                           self.init(key), length=self.num_steps)
    return last.params

  def risk(self, num_values: int) -> None:
    """Depends on the losses."""
    del num_values

  @property
  def _gradients(self) -> additive.GaussianMechanism:
    return additive.GaussianMechanism(
        record_norm=self.gradient_norm, adjacency=self.adjacency,
        noise_multiplier=self.gradient_multiplier)

  @property
  def _hessians(self) -> additive.GaussianMechanism:
    return additive.GaussianMechanism(
        record_norm=self.hessian_norm, adjacency=self.adjacency,
        noise_multiplier=self.hessian_multiplier)


def _clipped_sum(values: Array, clip_norm: float) -> Array:
  """Sum of [n, ...], each clipped to `clip_norm` in l2; zero if not finite."""
  flat = values.reshape(values.shape[0], math.prod(values.shape[1:]))
  weights = clipping.flat_weights(jnp.linalg.norm(flat, axis=1),
                                  clip_norm=clip_norm)
  kept = jnp.where(weights[:, None] > 0, flat, 0.0)
  return (weights @ kept).reshape(values.shape[1:])
