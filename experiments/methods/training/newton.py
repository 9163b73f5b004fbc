"""Noisy Newton steps: a noisy gradient and a noisy Hessian of all records.

Each step makes two Gaussian releases, which are accounted together. The rest of
the step is post-processing, so all iterates may be released. For few parameters
only: with d parameters a step releases d + d^2 numbers. Source: Lalanne (2023,
section 2.3.4), which points to Avella-Medina, Bradshaw and Loh (2021). Item
OPT-05.
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
  """State between two steps; may be released, except for the key.

  Attributes:
    params: the iterate, [d].
    key: key for the noise of the remaining steps; secret.
  """
  params: Array
  key: PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyNewton:
  """Noisy Newton's method on the mean of the records' losses.

  A public quadratic regulariser is added to the mean. Guarantee: the guarantee
  of `event` under `adjacency`. Each record's gradient is clipped in l2 and its
  Hessian in Frobenius norm; a gradient or Hessian that is not finite counts as
  zero.

  Attributes:
    loss: (params [d], record) -> scalar.
    start: initial parameters [d], public.
    num_examples: n, the public divisor.
    gradient_norm: clip norm of a record's gradient.
    hessian_norm: clip norm of a record's Hessian, in Frobenius norm.
    gradient_multiplier: standard deviation of the gradient's noise over
      `gradient_norm`.
    hessian_multiplier: standard deviation of the Hessian's noise over
      `hessian_norm`.
    num_steps: number of steps, fixed before the run.
    adjacency: which data sets are neighbours.
    regularization: gamma in the regulariser (gamma/2) ||params||^2.
    least_curvature: lower bound on the eigenvalues of the regularised noisy
      Hessian; smaller ones are raised to it.
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
    """Returns the event of all iterates together."""
    return accounting.repeated_event(accounting.composed_event([
        self._gradients.event, self._hessians.event]), self.num_steps)

  def init(self, key: PRNGKey) -> NewtonState:
    """Returns the state before the first step."""
    return NewtonState(self.start, key)

  def sums(self, params: Array, data: PyTree) -> tuple[Array, Array]:
    """Returns the sums of clipped gradients [d] and Hessians [d, d]; PRIVATE.
    """
    gradients = jax.vmap(jax.grad(self.loss), (None, 0))(params, data)
    hessians = jax.vmap(jax.hessian(self.loss), (None, 0))(params, data)
    return (_clipped_sum(gradients, self.gradient_norm),
            _clipped_sum(hessians, self.hessian_norm))

  def update(self, state: NewtonState, data: PyTree) -> NewtonState:
    """Returns the state after one noisy Newton step on all records."""
    for_gradient, for_hessian, key = jax.random.split(state.key, 3)
    gradient, hessian = self.sums(state.params, data)
    gradient = (self._gradients.release(for_gradient, gradient) /
                self.num_examples + self.regularization * state.params)
    noisy = self._hessians.release(for_hessian, hessian) / self.num_examples
    # All d^2 entries are noised, so that the Frobenius norm, which counts
    # off-diagonal entries twice, is the sensitivity. Averaging with the
    # transpose is post-processing and makes the matrix symmetric.
    values, vectors = jnp.linalg.eigh((noisy + noisy.T) / 2)
    curvature = jnp.maximum(values + self.regularization, self.least_curvature)
    step = vectors @ ((vectors.T @ gradient) / curvature)
    return NewtonState(state.params - step, key)

  def release(self, key: PRNGKey, data: PyTree) -> Array:
    """Returns the last iterate [d]; releasing the others costs nothing more."""
    last, _ = jax.lax.scan(lambda state, _: (self.update(state, data), None),
                           self.init(key), length=self.num_steps)
    return last.params

  def risk(self, num_values: int) -> None:
    """Returns None: the error depends on the losses."""
    del num_values

  @property
  def _gradients(self) -> additive.GaussianMechanism:
    """Returns the Gaussian mechanism for the sum of gradients of one step."""
    return additive.GaussianMechanism(
        record_norm=self.gradient_norm, adjacency=self.adjacency,
        noise_multiplier=self.gradient_multiplier)

  @property
  def _hessians(self) -> additive.GaussianMechanism:
    """Returns the Gaussian mechanism for the sum of Hessians of one step."""
    return additive.GaussianMechanism(
        record_norm=self.hessian_norm, adjacency=self.adjacency,
        noise_multiplier=self.hessian_multiplier)


def _clipped_sum(values: Array, clip_norm: float) -> Array:
  """Sums rows of [n, ...] clipped to `clip_norm` in l2; non-finite rows are 0.
  """
  flat = values.reshape(values.shape[0], math.prod(values.shape[1:]))
  weights = clipping.flat_weights(jnp.linalg.norm(flat, axis=1),
                                  clip_norm=clip_norm)
  # A weight of 0 alone would turn infinite values into NaN.
  kept = jnp.where(weights[:, None] > 0, flat, 0.0)
  return (weights @ kept).reshape(values.shape[1:])
