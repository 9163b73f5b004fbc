"""Losses with their Lipschitz constants in the logits."""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax import errors
from dpjax.grads import clipping
from dpjax.typing import Array, LossFn

CONVENTIONS = ('inside', 'outside')


class LipschitzLoss(NamedTuple):
  """A loss with a bound on its gradient in the logits.

  Attributes:
    values: maps (logits [b, c], labels [b]) to losses [b].
    lipschitz: bound on the l2 norm of one record's cotangent (its loss
      gradient in the logits) for all logits and labels; infinite if there is
      none, and then the Lipschitz methods raise an error.
    class_scores: maps logits [b, c] to scores [b, number of classes], of which
      the largest is the predicted class; the logits themselves by default.
  """
  values: LossFn
  lipschitz: float
  class_scores: Callable[[Array], Array] = lambda logits: logits


def cross_entropy(*, temperature: float = 1.0,
                  logit_clip: float | None = None,
                  convention: str = 'inside') -> LipschitzLoss:
  """Returns softmax cross entropy with a temperature. LOSS-02, LOSS-05.

  'inside' is the loss of logits / temperature, with gradient
  (softmax(z / temperature) - onehot) / temperature. 'outside' divides the loss
  of the logits instead, as in Barczewski (2025, Table 5.1; its sign is missing
  there, erratum E15). There the temperature rescales gradient and sensitivity
  alike, so it has no effect on the noise. Both gradients have norm below
  sqrt(2) / temperature; this value is not attained.

  Args:
    temperature: positive.
    logit_clip: clip each record's gradient in the logits to this l2 norm, or
      None. It lowers the bound, but biases the gradients of records with
      large errors. It forms no per-record parameter gradient.
    convention: one of `CONVENTIONS`.

  Returns:
    The loss; its constant is sqrt(2) / temperature or `logit_clip` if smaller.
  """
  errors.check_scale('temperature', temperature)
  errors.check_choice('convention', convention, CONVENTIONS)
  divisor = temperature if convention == 'inside' else 1.0

  def values(logits: Array, labels: Array) -> Array:
    _check_several(logits)
    losses = optax.softmax_cross_entropy_with_integer_labels(
        logits / jnp.float32(divisor), labels)
    return losses * jnp.float32(divisor / temperature)

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
  """Returns ||z - onehot||^2, for methods that clip gradients only.

  It has no Lipschitz constant. Item LOSS-01.
  """
  return LipschitzLoss(
      lambda logits, labels: jnp.sum(jnp.square(logits - _onehot(
          labels, logits)), -1), math.inf)


def cosine(*, floor: float) -> LipschitzLoss:
  """Returns 1 - z_y / max(||z||, floor), of constant 1 / floor. LOSS-03.

  The constant of Barczewski (2025, Table 5.1) is one over the smallest norm of
  the data, which is private and can be 0 (erratum E15). A public floor takes
  its place.

  Args:
    floor: positive and public.
  """
  errors.check_scale('floor', floor)

  def values(logits: Array, labels: Array) -> Array:
    squares = jnp.sum(jnp.square(logits), -1)
    # The maximum comes before the root, whose gradient at 0 is infinite.
    norms = jnp.sqrt(jnp.maximum(squares, floor**2))
    return 1 - jnp.sum(logits * _onehot(labels, logits), -1) / norms

  return LipschitzLoss(values, 1 / floor)


def hinge(*, margin: float = 1.0, num_classes: int) -> LipschitzLoss:
  """Returns the hinge (1/c) sum over i != y of max(0, margin - z_y + z_i).

  With a active terms the gradient has l2 norm sqrt(a + a^2) / c, at most
  sqrt((c - 1) / c). The constant 1 of Barczewski (2025, Table 5.1) is loose in
  l2 and wrong in l1, where the norm can be 2 (c - 1) / c (erratum E15). Item
  LOSS-04.

  Args:
    margin: positive.
    num_classes: c, at least 2; another number of logits raises ValueError
      when the loss is traced.
  """
  errors.check_scale('margin', margin)
  errors.check_at_least('num_classes', num_classes, 2)

  def values(logits: Array, labels: Array) -> Array:
    if logits.shape[-1] != num_classes:
      raise ValueError(f'the hinge loss of {num_classes} classes got '
                       f'{logits.shape[-1]} logits; num_classes must be the '
                       'number of logits')
    hit = _onehot(labels, logits)
    own = jnp.sum(logits * hit, -1, keepdims=True)
    terms = jnp.maximum(0.0, margin - own + logits) * (1 - hit)
    return jnp.sum(terms, -1) / num_classes

  return LipschitzLoss(values, math.sqrt((num_classes - 1) / num_classes))


def ordinal(*, num_classes: int, temperature: float = 1.0,
            logit_clip: float | None = None) -> LipschitzLoss:
  """Returns the loss of the proportional odds model, for classes in an order.

  The network gives one score s for each record, and P(class > k) =
  sigmoid((s - cut_k) / temperature). The num_classes - 1 cuts are 1 apart, with
  mean 0, and public. The loss -log P(label) has a derivative in s between
  -1 / temperature and 1 / temperature, without any clipping. One score needs
  fewer parameters than a logit for each class, so it gets less noise; that
  helps where the order of the classes means something.

  Source: McCullagh (1980); fixed cuts are ours.

  Args:
    num_classes: c, at least 2; classes are numbered in their order.
    temperature: positive; a small one makes the model steep at the cuts.
    logit_clip: see `cross_entropy`; here of the derivative in the score.

  Returns:
    The loss; it takes scores [b, 1], and its class scores [b, c] are the
    logarithms of the probabilities of the classes.
  """
  errors.check_at_least('num_classes', num_classes, 2)
  errors.check_scale('temperature', temperature)
  cuts = np.arange(num_classes - 1, dtype=np.float32) - (num_classes - 2) / 2
  # Of a class between two cuts: the term of P(label) that no score changes.
  gap = np.full(num_classes, math.log(-math.expm1(-1 / temperature)),
                np.float32)
  gap[[0, -1]] = 0

  def class_scores(scores: Array) -> Array:
    if scores.shape[-1] != 1:
      raise ValueError('the ordinal loss takes one score for each record, got '
                       f'{scores.shape[-1]} logits')
    batch = (1,) * (scores.ndim - 1)
    above = (scores - cuts.reshape(*batch, -1)) / jnp.float32(temperature)
    ends = [(0, 0)] * len(batch)
    # P(cut < s < next cut) = sigmoid(above) sigmoid(-next) (1 - e^(-1 / T)).
    return (jnp.pad(jax.nn.log_sigmoid(above), [*ends, (1, 0)]) +
            jnp.pad(jax.nn.log_sigmoid(-above), [*ends, (0, 1)]) +
            gap.reshape(*batch, -1))

  def values(scores: Array, labels: Array) -> Array:
    every = class_scores(scores)
    # `where`, because 0 times an infinite value would be NaN.
    return -jnp.sum(jnp.where(_onehot(labels, every) > 0, every, 0.0), -1)

  loss = LipschitzLoss(values, 1 / temperature, class_scores)
  return loss if logit_clip is None else clip_cotangents(loss, logit_clip)


def clip_cotangents(loss: LipschitzLoss, logit_clip: float) -> LipschitzLoss:
  """Returns the loss with each record's logit gradient clipped. LOSS-05.

  The loss values do not change. The backward pass scales each record's
  gradient in its logits to l2 norm at most `logit_clip`; the factor depends
  on that record alone. Gradients within the bound do not change.
  """
  errors.check_scale('logit_clip', logit_clip)
  clip = functools.partial(_clip_backward, loss.values, logit_clip)
  return loss._replace(values=clip, lipschitz=min(loss.lipschitz, logit_clip))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _clip_backward(values: LossFn, bound: float, logits: Array,
                   labels: Array) -> Array:
  """Returns the losses; their gradients in the logits are clipped."""
  return values(logits, labels)


def _clip_backward_forward(values: LossFn, bound: float, logits: Array,
                           labels: Array) -> tuple[Array, Array]:
  losses, pull = jax.vjp(lambda z: values(z, labels), logits)
  # A loss depends on its own logits only: one pull gives all rows.
  gradient, = pull(jnp.ones_like(losses))
  return losses, _shorten(gradient, bound)


def _clip_backward_backward(values: LossFn, bound: float, gradient: Array,
                            cotangent: Array) -> tuple[Array, None]:
  del values, bound
  return cotangent[:, None] * gradient, None


_clip_backward.defvjp(_clip_backward_forward, _clip_backward_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _clipped_cross_entropy(logits: Array, labels: Array, temperature: float,
                           bound: float) -> Array:
  """Returns cross entropies [b] whose gradients are clipped to `bound`."""
  return _forward(logits, labels, temperature, bound)[0]


def _forward(logits: Array, labels: Array, temperature: float,
             bound: float) -> tuple[Array, Array]:
  """Returns the values and, as residuals, the clipped gradients."""
  _check_several(logits)
  scaled = logits / jnp.float32(temperature)
  # With the largest logit at 0, no exponential overflows.
  shifted = scaled - jnp.max(scaled, -1, keepdims=True)
  exponentials = jnp.exp(shifted)
  total = jnp.sum(exponentials, -1, keepdims=True)
  hit = _onehot(labels, logits)
  # `where`, because 0 times an infinite logit would be NaN.
  values = jnp.log(total[:, 0]) - jnp.sum(jnp.where(hit > 0, shifted, 0.0), -1)
  gradient = (exponentials / total - hit) / jnp.float32(temperature)
  return values, _shorten(gradient, bound)


def _backward(temperature: float, bound: float, gradient: Array,
              cotangent: Array) -> tuple[Array, None]:
  del temperature, bound
  return cotangent[:, None] * gradient, None


_clipped_cross_entropy.defvjp(_forward, _backward)


def _shorten(gradient: Array, bound: float) -> Array:
  """Scales each row of [b, c] to l2 norm at most `bound`."""
  norms = jnp.sqrt(jnp.sum(jnp.square(gradient), -1, keepdims=True))
  # A norm below the bound needs no factor; the maximum avoids dividing by 0.
  target = bound * (1 - clipping.ROUNDING_MARGIN)
  return gradient * (target / jnp.maximum(norms, target))


def _check_several(logits: Array) -> None:
  """Raises for a single logit, whose cross entropy is always 0."""
  if logits.shape[-1] < 2:
    raise ValueError('the cross entropy needs a logit for each of at least two '
                     'classes, got one; for a score, take losses.ordinal')


def _onehot(labels: Array, logits: Array) -> Array:
  return jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
