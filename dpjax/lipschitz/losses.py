"""Losses with their Lipschitz constants in the logits."""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpjax import errors
from dpjax.grads import clipping
from dpjax.typing import Array, LossFn

CONVENTIONS = ('inside', 'outside')


class LipschitzLoss(NamedTuple):
  """A loss of logits and a bound on what it sends back to them.

  Attributes:
    values: (logits [b, c], labels [b]) -> [b].
    lipschitz: bound on the l2 norm of one record's cotangent at the logits,
      for all logits and labels; infinite if there is none, which the Lipschitz
      methods refuse.
  """
  values: LossFn
  lipschitz: float


def cross_entropy(*, temperature: float = 1.0,
                  logit_clip: float | None = None,
                  convention: str = 'inside') -> LipschitzLoss:
  """Softmax cross entropy at a temperature. LOSS-02, LOSS-05.

  'inside' is the loss of logits / temperature, with gradient
  (softmax(z / temperature) - onehot) / temperature. 'outside' divides the loss
  of the logits instead, as thesis 003 prints it (without its sign, E15): there
  the temperature rescales gradient and sensitivity alike and is no choice at
  all. Both gradients have norm below sqrt(2) / temperature (not attained);
  Table 5.1.

  Args:
    temperature: positive.
    logit_clip: shorten each record's cotangent at the logits to this norm,
      which lowers the bound at the price of a bias for records that are badly
      wrong. Costs nothing: no gradient per record is formed.
    convention: one of `CONVENTIONS`.
  """
  errors.check_scale('temperature', temperature)
  errors.check_choice('convention', convention, CONVENTIONS)
  divisor = temperature if convention == 'inside' else 1.0

  def values(logits, labels):
    found = optax.softmax_cross_entropy_with_integer_labels(
        logits / jnp.float32(divisor), labels)
    return found * jnp.float32(divisor / temperature)

  lipschitz = math.sqrt(2) / temperature
  if logit_clip is None:
    return LipschitzLoss(values, lipschitz)
  bound = min(lipschitz, errors.check_scale('logit_clip', logit_clip))
  if convention == 'outside':
    return clip_cotangents(LipschitzLoss(values, lipschitz), logit_clip)
  return LipschitzLoss(
      lambda logits, labels: _clipped_cross_entropy(logits, labels,
                                                    temperature, bound), bound)


def squared_error() -> LipschitzLoss:
  """||z - onehot||^2: no Lipschitz constant, so clipping methods only. LOSS-01.
  """
  return LipschitzLoss(
      lambda logits, labels: jnp.sum(jnp.square(logits - _onehot(
          labels, logits)), -1), math.inf)


def cosine(*, floor: float) -> LipschitzLoss:
  """1 - z_y / max(||z||, floor), of constant 1 / floor. LOSS-03.

  The printed constant is one over the smallest norm of the data (Table 5.1),
  which is private and can be 0 (E15); a public floor takes its place.

  Args:
    floor: positive.
  """
  errors.check_scale('floor', floor)

  def values(logits, labels):
    squares = jnp.sum(jnp.square(logits), -1)
    # max before the root: a zero vector has a gradient.
    norms = jnp.sqrt(jnp.maximum(squares, floor**2))
    return 1 - jnp.sum(logits * _onehot(labels, logits), -1) / norms

  return LipschitzLoss(values, 1 / floor)


def hinge(*, margin: float = 1.0, num_classes: int) -> LipschitzLoss:
  """(1/c) sum over i != y of max(0, margin - z_y + z_i). LOSS-04.

  With a active terms the gradient has norm sqrt(a + a^2) / c, at most
  sqrt((c - 1) / c); the printed 1 is loose in l2 and wrong in l1, where it
  can be 2 (c - 1) / c (E15).

  Args:
    margin: positive.
    num_classes: c; logits of another number are refused when traced.
  """
  errors.check_scale('margin', margin)
  errors.check_at_least('num_classes', num_classes, 2)

  def values(logits, labels):
    if logits.shape[-1] != num_classes:
      raise ValueError(f'the hinge loss of {num_classes} classes got '
                       f'{logits.shape[-1]} logits')
    hit = _onehot(labels, logits)
    own = jnp.sum(logits * hit, -1, keepdims=True)
    terms = jnp.maximum(0.0, margin - own + logits) * (1 - hit)
    return jnp.sum(terms, -1) / num_classes

  return LipschitzLoss(values, math.sqrt((num_classes - 1) / num_classes))


def clip_cotangents(loss: LipschitzLoss, logit_clip: float) -> LipschitzLoss:
  """Any loss, with each record's cotangent at the logits shortened. LOSS-05.

  The values stay; in the backward pass a record's gradient in its logits is
  scaled to norm at most `logit_clip`, by that record alone. A no-op where the
  loss is that gentle already.
  """
  errors.check_scale('logit_clip', logit_clip)
  clip = functools.partial(_clip_backward, loss.values, logit_clip)
  return LipschitzLoss(clip, min(loss.lipschitz, logit_clip))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _clip_backward(values: Callable, bound: float, logits: Array,
                   labels: Array) -> Array:
  return values(logits, labels)


def _clip_backward_forward(values, bound, logits, labels):
  found, pull = jax.vjp(lambda z: values(z, labels), logits)
  gradient, = pull(jnp.ones_like(found))
  return found, _shorten(gradient, bound)


def _clip_backward_backward(values, bound, gradient, cotangent):
  del values, bound
  return cotangent[:, None] * gradient, None


_clip_backward.defvjp(_clip_backward_forward, _clip_backward_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _clipped_cross_entropy(logits: Array, labels: Array, temperature: float,
                           bound: float) -> Array:
  """Cross entropies [b] whose gradients have norm at most `bound`."""
  return _forward(logits, labels, temperature, bound)[0]


def _forward(logits, labels, temperature, bound):
  """The values, and the shortened gradients as what to remember."""
  scaled = logits / jnp.float32(temperature)
  shifted = scaled - jnp.max(scaled, -1, keepdims=True)
  exponentials = jnp.exp(shifted)
  total = jnp.sum(exponentials, -1, keepdims=True)
  hit = _onehot(labels, logits)
  values = jnp.log(total[:, 0]) - jnp.sum(jnp.where(hit > 0, shifted, 0.0), -1)
  gradient = (exponentials / total - hit) / jnp.float32(temperature)
  return values, _shorten(gradient, bound)


def _backward(temperature, bound, gradient, cotangent):
  del temperature, bound
  return cotangent[:, None] * gradient, None


_clipped_cross_entropy.defvjp(_forward, _backward)


def _shorten(gradient: Array, bound: float) -> Array:
  norms = jnp.sqrt(jnp.sum(jnp.square(gradient), -1, keepdims=True))
  # A norm below the bound needs no factor; the maximum avoids dividing by 0.
  target = bound * (1 - clipping.ROUNDING_MARGIN)
  return gradient * (target / jnp.maximum(norms, target))


def _onehot(labels: Array, logits: Array) -> Array:
  return jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
