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


def cross_entropy(*, temperature: float = 1.0,
                  logit_clip: float | None = None) -> LipschitzLoss:
  """Softmax cross entropy of logits / temperature.

  The gradient is (softmax(z / temperature) - onehot) / temperature, of norm
  below sqrt(2) / temperature (not attained). Source: thesis 003, Table 5.1.

  Args:
    temperature: positive.
    logit_clip: shorten each record's cotangent at the logits to this norm,
      which lowers the bound at the price of a bias for records that are badly
      wrong. Costs nothing: no gradient per record is formed.
  """
  errors.check_positive('temperature', temperature)
  lipschitz = math.sqrt(2) / temperature
  if logit_clip is None:
    return LipschitzLoss(
        lambda logits, labels: optax.softmax_cross_entropy_with_integer_labels(
            logits / jnp.float32(temperature), labels), lipschitz)
  bound = min(lipschitz, errors.check_positive('logit_clip', logit_clip))
  return LipschitzLoss(
      lambda logits, labels: _clipped_cross_entropy(logits, labels,
                                                    temperature, bound), bound)


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
  hit = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
  values = jnp.log(total[:, 0]) - jnp.sum(jnp.where(hit > 0, shifted, 0.0), -1)
  gradient = (exponentials / total - hit) / jnp.float32(temperature)
  norms = jnp.sqrt(jnp.sum(jnp.square(gradient), -1, keepdims=True))
  # A norm below the bound needs no factor; the maximum avoids dividing by 0.
  target = bound * (1 - clipping.ROUNDING_MARGIN)
  return values, gradient * (target / jnp.maximum(norms, target))


def _backward(temperature, bound, gradient, cotangent):
  del temperature, bound
  return cotangent[:, None] * gradient, None


_clipped_cross_entropy.defvjp(_forward, _backward)
