"""What a model is to the rest of the house."""

from collections.abc import Callable
from typing import NamedTuple

from dpjax.grads.ball import BallRecords
from dpjax.lipschitz.network import Network
from dpjax.typing import Array, Params, PRNGKey


class Model(NamedTuple):
  """A network as pure functions, with what is known of its constants.

  Attributes:
    init: key -> params.
    apply: (params, x [b, ...]) -> logits [b, c]; x may have been prepared.
    network: its layers with their constants, or None if it was not built from
      them, which the Lipschitz methods refuse.
    prepare: x -> x, what of `apply` reads no parameters, each record alone;
      run once before training.
  """
  init: Callable[[PRNGKey], Params]
  apply: Callable[[Params, Array | BallRecords], Array]
  network: Network | None
  prepare: Callable[[Array], Array | BallRecords] = lambda x: x


def from_network(network: Network) -> Model:
  """The model of a network."""
  return Model(network.init, network.apply, network, network.prepare)
