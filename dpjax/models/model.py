"""What a model is to the rest of the house."""

from collections.abc import Callable
from typing import NamedTuple

from dpjax import errors
from dpjax.grads.ball import BallRecords
from dpjax.lipschitz import projection
from dpjax.lipschitz import reparametrisation
from dpjax.lipschitz.network import Network
from dpjax.typing import Array, Params, PRNGKey, PyTree


class Model(NamedTuple):
  """A network as pure functions, with what is known of its constants.

  Attributes:
    init: key -> params.
    apply: (params, x [b, ...]) -> logits [b, c]; x may have been prepared.
    network: its layers with their constants, or None if it was not built from
      them, which the Lipschitz methods refuse.
    prepare: x -> x, what of `apply` reads no parameters, each record alone;
      run once before training.
    effective: params -> (weights of `network`, their certificate), if the
      weights are a function of the parameters.
  """
  init: Callable[[PRNGKey], Params]
  apply: Callable[[Params, Array | BallRecords], Array]
  network: Network | None
  prepare: Callable[[Array], Array | BallRecords] = lambda x: x
  effective: Callable[[Params], tuple[Params, PyTree]] | None = None


def from_network(network: Network) -> Model:
  """The model of a network."""
  return Model(network.init, network.apply, network, network.prepare)


def reparametrised(model: Model, kernel_map: str, *,
                   weight_norm: float) -> Model:
  """The model whose kernels are a function of its parameters. REG-02, SPEC-08.

  Args:
    model: built from a network.
    kernel_map: one of `reparametrisation.MAPS`.
    weight_norm: mapped kernels are scaled back to this certified norm; for
      clipping methods, where nothing needs it, take it large.
  """
  errors.check_choice('kernel_map', kernel_map, reparametrisation.MAPS)
  network, function = model.network, reparametrisation.MAPS[kernel_map]
  limits = projection.clip_limits(weight_norm)

  def effective(params):
    return network.constrain(
        reparametrisation.map_kernels(function, params), limits)

  return model._replace(
      apply=lambda params, x: network.apply(effective(params)[0], x),
      effective=effective)
