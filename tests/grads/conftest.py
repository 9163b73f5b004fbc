"""A network and records written out by hand, for every test of the room."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.typing import Batch


class Network(NamedTuple):
  """A tanh network with 13 records, and its gradients by hand.

  Attributes:
    apply: (params, x [b, 3]) -> logits [b, 3].
    loss: (logits, labels) -> [b].
    params: float32.
    batch: 13 records; 13 divides by 1 and 13 alone.
    by_hand: (params, x [3], y) -> (loss, gradient), NumPy float64.
  """
  apply: object
  loss: object
  params: dict
  batch: Batch
  by_hand: object


def _apply(params, x):
  hidden = jnp.tanh(x @ params['in']['w'] + params['in']['b'][None])
  return hidden @ params['out']['w'] + params['out']['b'][None]


def _loss(logits, labels):
  chosen = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
  return -jnp.sum(chosen * jax.nn.log_softmax(logits), -1)


def _by_hand(params, x, y):
  """Back-propagation of one record, line by line."""
  first, last = (jax.tree.map(lambda leaf: np.asarray(leaf, np.float64),
                              params[name]) for name in ('in', 'out'))
  x = np.asarray(x, np.float64)
  hidden = np.tanh(x @ first['w'] + first['b'])
  logits = hidden @ last['w'] + last['b']
  logits = logits - logits.max()
  probs = np.exp(logits) / np.exp(logits).sum()
  cotangent = probs - np.eye(3)[int(y)]
  inner = (last['w'] @ cotangent) * (1 - hidden**2)
  gradient = {
    'in': {'w': np.outer(x, inner), 'b': inner},
    'out': {'w': np.outer(hidden, cotangent), 'b': cotangent}}
  return np.log(np.exp(logits).sum()) - logits[int(y)], gradient


@pytest.fixture(scope='session')
def network():
  """The network above with fixed random weights and records."""
  rng = np.random.default_rng(7)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  params = {'in': {'w': draw(3, 4), 'b': draw(4)},
            'out': {'w': draw(4, 3), 'b': draw(3)}}
  batch = Batch(draw(13, 3), jnp.asarray(rng.integers(0, 3, 13), jnp.int32))
  return Network(_apply, _loss, params, batch, _by_hand)


@pytest.fixture(scope='module', autouse=True)
def _quick_compilation():
  """Programs this small take longer to optimise than to run."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)
