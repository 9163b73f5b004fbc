"""Losses with their Lipschitz constants in the logits."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import optax

from dpjax import errors
from dpjax.typing import Array, LossFn


class LipschitzLoss(NamedTuple):
  """A loss of logits and a bound on the l2 norm of its gradient in them.

  Attributes:
    values: (logits [b, c], labels [b]) -> [b].
    lipschitz: sup over logits and labels of ||d loss / d logits||_2.
  """
  values: LossFn
  lipschitz: float


def cross_entropy(*, temperature: float = 1.0) -> LipschitzLoss:
  """Softmax cross entropy of logits / temperature.

  The gradient is (softmax(z / temperature) - onehot) / temperature, of norm
  below sqrt(2) / temperature (not attained). Source: thesis 003, Table 5.1.
  """
  errors.check_positive('temperature', temperature)

  def values(logits: Array, labels: Array) -> Array:
    return optax.softmax_cross_entropy_with_integer_labels(
        logits / jnp.float32(temperature), labels)

  return LipschitzLoss(values, math.sqrt(2) / temperature)
