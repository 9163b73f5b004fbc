"""Losses with their Lipschitz constants in the logits."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpjax import errors
from dpjax.grads import clipping
from dpjax.typing import Array, LossFn


class LipschitzLoss(NamedTuple):
  """A loss of logits and a bound on what it sends back to them.

  Attributes:
    values: (logits [b, c], labels [b]) -> [b].
    lipschitz: bound on the l2 norm of one record's cotangent at the logits,
      for all logits and labels.
  """
  values: LossFn
  lipschitz: float


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def clip_cotangent(logits: Array, bound: float) -> Array:
  """Identity whose backward pass shortens each record's cotangent.

  Args:
    logits: [b, c].
    bound: l2 norm that no row of the cotangent exceeds.
  """
  del bound
  return logits


def _clip_cotangent_forward(logits, bound):
  del bound
  return logits, None


def _clip_cotangent_backward(bound, _, cotangent):
  norms = jnp.sqrt(jnp.sum(jnp.square(cotangent), -1, keepdims=True))
  # A norm below the bound needs no factor; the maximum avoids dividing by 0.
  target = bound * (1 - clipping.ROUNDING_MARGIN)
  return (cotangent * (target / jnp.maximum(norms, target)),)


clip_cotangent.defvjp(_clip_cotangent_forward, _clip_cotangent_backward)


def cross_entropy(*, temperature: float = 1.0,
                  logit_clip: float | None = None) -> LipschitzLoss:
  """Softmax cross entropy of logits / temperature.

  The gradient is (softmax(z / temperature) - onehot) / temperature, of norm
  below sqrt(2) / temperature (not attained). Source: thesis 003, Table 5.1.

  Args:
    temperature: positive.
    logit_clip: shorten each record's cotangent at the logits to this norm,
      which lowers the bound at the price of a bias for records that are badly
      wrong. Costs one [b, c] product; nothing per-record is formed.
  """
  errors.check_positive('temperature', temperature)
  lipschitz = math.sqrt(2) / temperature
  if logit_clip is not None:
    lipschitz = min(lipschitz, errors.check_positive('logit_clip', logit_clip))

  def values(logits: Array, labels: Array) -> Array:
    if logit_clip is not None:
      logits = clip_cotangent(logits, logit_clip)
    return optax.softmax_cross_entropy_with_integer_labels(
        logits / jnp.float32(temperature), labels)

  return LipschitzLoss(values, lipschitz)
