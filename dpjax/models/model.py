"""The model type that the training code uses."""

from collections.abc import Callable
from typing import NamedTuple

from dpjax import errors
from dpjax.grads.ball import BallRecords
from dpjax.lipschitz import projection
from dpjax.lipschitz import reparametrisation
from dpjax.lipschitz.network import Network
from dpjax.typing import ApplyFn, Array, Params, PRNGKey, PyTree


class Model(NamedTuple):
  """A network as pure functions, with its Lipschitz constants if known.

  Attributes:
    init: maps a random key to parameters.
    apply: maps (params, x [b, ...]) to logits [b, c]; x may be prepared.
    network: layers with their constants, or None if the model was not built
      from such layers; the Lipschitz methods then raise an error.
    prepare: maps x to prepared x: the part of `apply` that uses no
      parameters. It acts on each record alone and runs once before training.
    effective: maps params to (weights of `network`, their certificate) if the
      weights are a function of the parameters; else None.
  """
  init: Callable[[PRNGKey], Params]
  apply: ApplyFn
  network: Network | None
  prepare: Callable[[Array], Array | BallRecords] = lambda x: x
  effective: Callable[[Params], tuple[Params, PyTree]] | None = None


def from_network(network: Network) -> Model:
  """Returns the model of a network."""
  return Model(network.init, network.apply, network, network.prepare)


def network_of(model: Model) -> Network:
  """Returns the network of a model; raises ValueError if it has none."""
  if model.network is None:
    raise ValueError('this method needs a model that states its layers as a '
                     'network; Model.network is None')
  return model.network


def reparametrised(model: Model, kernel_map: str, *,
                   weight_norm: float) -> Model:
  """Returns a model whose kernels are a function of its parameters.

  Items REG-02, SPEC-08.

  Args:
    model: model built from a network.
    kernel_map: one of `reparametrisation.MAPS`.
    weight_norm: public limit of the certified norm of each mapped kernel.
      Clipping methods do not need it; use a large value there.
  """
  errors.check_choice('kernel_map', kernel_map, reparametrisation.MAPS)
  network, function = network_of(model), reparametrisation.MAPS[kernel_map]
  limits = projection.clip_limits(weight_norm)

  # `apply` contains the map, so gradients are for the raw parameters.
  def effective(params: Params) -> tuple[Params, PyTree]:
    return network.constrain(
        reparametrisation.map_kernels(function, params), limits)

  return model._replace(
      apply=lambda params, x: network.apply(effective(params)[0], x),
      effective=effective)
