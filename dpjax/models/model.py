"""What a model is to the rest of the house."""

from collections.abc import Callable
from typing import NamedTuple

from dpjax.grads.ball import BallRecords
from dpjax.lipschitz.layers import ParameterLayer
from dpjax.typing import Array, Params, PRNGKey


class Model(NamedTuple):
  """A network as pure functions, with what is certified of it.

  Attributes:
    init: key -> params, a dict of layers.
    apply: (params, x [b, ...]) -> logits [b, c]; x may have been prepared.
    layers: its parameter layers from input to output if the input of each is
      bounded by a public radius, else None.
    prepare: x -> x, what of `apply` reads no parameters, each record alone;
      run once before training.
  """
  init: Callable[[PRNGKey], Params]
  apply: Callable[[Params, Array | BallRecords], Array]
  layers: tuple[ParameterLayer, ...] | None
  prepare: Callable[[Array], Array | BallRecords] = lambda x: x
