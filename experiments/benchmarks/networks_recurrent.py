"""Recurrent networks of `--suite=models`, in plain JAX."""

from collections.abc import Callable
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.typing import Array, Params, PRNGKey, PyTree
from experiments.benchmarks import networks_base as base
from experiments.benchmarks.networks_base import Parts


class Shape(NamedTuple):
  """Sizes: tokens, steps, features of a token and of the state."""
  vocabulary: int = 128
  length: int = 64
  width: int = 64
  hidden: int = 128


TINY = Shape(7, 5, 3, 4)


def _init_cell(key: PRNGKey, shape: Shape, gates: int) -> Params:
  """Returns the two matrices of a cell, for all gates together."""
  keys = jax.random.split(key)
  return {'inputs': base.init_dense(keys[0], shape.width,
                                    gates * shape.hidden),
          'state': base.init_dense(keys[1], shape.hidden,
                                   gates * shape.hidden)}


def _lstm(params: Params, state: PyTree, x: Array) -> tuple[PyTree, Array]:
  """Returns the next state of long short-term memory, and its output."""
  hidden, memory = state
  gates = base.dense(params['inputs'], x) + base.dense(params['state'], hidden)
  take, keep, show, new = jnp.split(gates, 4)
  memory = (jax.nn.sigmoid(keep) * memory
            + jax.nn.sigmoid(take) * jnp.tanh(new))
  hidden = jax.nn.sigmoid(show) * jnp.tanh(memory)
  return (hidden, memory), hidden


def _gru(params: Params, state: PyTree, x: Array) -> tuple[PyTree, Array]:
  """Returns the next state of a gated recurrent unit, and its output."""
  hidden, = state
  from_x = jnp.split(base.dense(params['inputs'], x), 3)
  from_state = jnp.split(base.dense(params['state'], hidden), 3)
  reset, keep = (jax.nn.sigmoid(from_x[i] + from_state[i]) for i in range(2))
  new = jnp.tanh(from_x[2] + reset * from_state[2])
  hidden = keep * hidden + (1 - keep) * new
  return (hidden,), hidden


def _language(cell: Callable, gates: int, states: int, tiny: bool) -> Parts:
  """Returns a recurrent language model.

  Args:
    cell: (parameters, state, input of a step) -> (next state, output).
    gates: number of gates of the cell.
    states: number of vectors of its state.
    tiny: see `networks_base.Builder`.
  """
  shape = TINY if tiny else Shape()
  keys = jax.random.split(jax.random.key(0), 3)
  params = {
      'embedding': jax.random.normal(keys[0], (shape.vocabulary, shape.width)),
      'cell': _init_cell(keys[1], shape, gates),
      'head': base.init_dense(keys[2], shape.hidden, shape.vocabulary)}

  def loss(params: Params, frozen: PyTree, tokens: Array) -> Array:
    del frozen
    first = tuple(jnp.zeros([shape.hidden]) for _ in range(states))
    hidden = jax.lax.scan(functools.partial(cell, params['cell']), first,
                          params['embedding'][tokens[:-1]])[1]
    return base.next_token_loss(base.dense(params['head'], hidden), tokens)

  return Parts(params, (), loss, base.tokens(shape.vocabulary, shape.length))


BUILDERS = {
    'lstm': functools.partial(_language, _lstm, 4, 2),
    'gru': functools.partial(_language, _gru, 3, 1),
}
"""Maps a name to the function that builds the network."""
