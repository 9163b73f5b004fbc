"""Training methods under audit, each with a canary that attains its bounds.

The networks are tiny. Their parameters, records and clip norms are chosen so
that one record attains the claimed sensitivity of every block, or nearly, which
makes the audit tight. See `dpjax.audit.canary`. To add a method, add an entry
to `_SETUPS`.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import math
import types
from typing import Any

import jax
import jax.numpy as jnp

from dpjax.audit.canary import Game
from dpjax.grads.bounder import Method
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.models import mlp
from dpjax.models import model as models
from dpjax.models.model import Model
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import training_methods
from dpjax.sampling import PoissonSampler
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch

NUM_RECORDS, STEPS, RUNS, SIGMA = 40, 10, 2000, 1.2
_CLIP, INPUT_RADIUS, _WEIGHT_NORM, _LOGIT_CLIP = 0.7, 2.0, 3.0, 0.35
_LAYER_CLIP, _BIAS_NORM, _ALPHA = 0.4, 0.5, 0.3
K_NORMS = {'lip_k_norm_1': 1, 'lip_k_norm_inf': math.inf}


def plan(name: str) -> TrainingPlan:
  """Returns the training plan of every run of a method."""
  return TrainingPlan(
      sampler=PoissonSampler(num_examples=NUM_RECORDS, batch_size=10),
      num_steps=STEPS, noise_multiplier=SIGMA,
      noise_order=K_NORMS.get(name), adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def _started(model: Model, **kernels: Array) -> Model:
  """Returns the model with these initial kernels, and zero biases."""
  params = {name: {'kernel': kernel, 'bias': jnp.zeros(kernel.shape[-1])}
            for name, kernel in kernels.items()}
  return model._replace(init=lambda key: params)


def _network(certified: bool) -> Model:
  """Returns a network whose bounds the canary attains.

  The input weights are orthogonal to the canary, the output weights parallel to
  its cotangent. So the canary attains the bound of the first layer, and that of
  the second up to the small hidden radius: the audit of the joint release is
  tight. Under a weight rule it attains both.
  """
  input_radius, hidden_radius = (
      (INPUT_RADIUS, 0.05) if certified else (None, None))
  model = mlp.mlp(num_features=2, num_classes=2, depth=1, width=1,
                  input_radius=input_radius, hidden_radius=hidden_radius)
  return _started(model, dense_00=jnp.asarray([[0.0], [1e-3]]),
                  dense_01=jnp.asarray([[2.0, -2.0]]))


def _propagating() -> Model:
  """Returns a network with weights and biases at their bounds.

  All of them point along the canary.
  """
  model = mlp.mlp(num_features=2, num_classes=2, depth=1, width=1,
                  activation='relu', input_radius=INPUT_RADIUS,
                  bias_norm=_BIAS_NORM)
  half = 0.5**0.5
  kernels = dict(dense_00=jnp.asarray([[_WEIGHT_NORM], [0.0]]),
                 dense_01=_WEIGHT_NORM * half * jnp.asarray([[-1.0, 1.0]]))
  params = _started(model, **kernels).init(jax.random.key(0))
  params['dense_00']['bias'] += _BIAS_NORM
  return model._replace(init=lambda key: params)


def _normalising() -> Model:
  """Returns a network that normalises between two layers.

  Its activations lie where the two branches of the normalisation meet.
  """
  nodes = (layers.Conv(name='conv_00', channels=2, kernel_size=(1, 1)),
           normalisation.lipschitz(num_groups=1, alpha=_ALPHA),
           pointwise.flatten(), layers.Dense(name='dense_01', width=2))
  model = models.from_network(Network(
      root=Chain(name='net', nodes=nodes), input_shape=(1, 1, 2),
      input_radius=INPUT_RADIUS))
  half_gap = 0.999 * _ALPHA / INPUT_RADIUS
  return _started(
      model, conv_00=half_gap * jnp.asarray([[[[1.0, -1.0], [0.0, 0.0]]]]),
      dense_01=_WEIGHT_NORM / 2 * jnp.asarray([[-1.0, 1.0], [1.0, -1.0]]))


def _convex() -> Model:
  """Returns a linear model that starts at zero, for convex methods."""
  return _started(mlp.mlp(num_features=2, num_classes=2, depth=0,
                          input_radius=INPUT_RADIUS),
                  dense_00=jnp.zeros([2, 2]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Setup:
  """The network, arguments and canary with which a method is audited.

  Attributes:
    network: returns the network, with initial parameters at which the canary
      attains the bounds, or nearly.
    arguments: keyword arguments of the method's constructor.
    method: name in `training_methods.METHODS`; None for the name of the setup.
    loss: the loss; its cotangents are clipped unless the method clips itself.
    direction: direction of the canary from the origin, of length 1.
    record_shape: shape of a record of two features.
  """
  network: Callable[[], Model]
  arguments: Mapping[str, Any]
  method: str | None = None
  loss: losses.LipschitzLoss = losses.cross_entropy(logit_clip=_LOGIT_CLIP)
  direction: tuple[float, float] = (1.0, 0.0)
  record_shape: tuple[int, ...] = (2,)


_certified = functools.partial(_network, certified=True)
_free = functools.partial(_network, certified=False)
_lipschitz = functools.partial(
    _Setup, network=_certified, arguments=dict(weight_norm=_WEIGHT_NORM))

_SETUPS: Mapping[str, _Setup] = types.MappingProxyType({
    # Methods that clip to a fixed norm: one canary attains the bound of all.
    **{name: _Setup(
        network=_free, loss=losses.cross_entropy(), arguments=dict(
            clip_norm=_LAYER_CLIP if name == 'layer_clipped' else _CLIP))
       for name, method in training_methods.METHODS.items()
       if 'clip_norm' in method.arguments
       and 'noise_stddev' not in method.arguments},
    'lip_dp_sgd': _lipschitz(),
    'fix_lip_dp_sgd': _lipschitz(),
    'lip_normalised': _lipschitz(network=_free),
    'lip_propagated': _lipschitz(network=_propagating),
    'lip_norm': _lipschitz(network=_normalising, record_shape=(1, 1, 2)),
    'bassily': _lipschitz(network=_convex,
                          arguments=dict(radius=_WEIGHT_NORM)),
    **{name: _lipschitz(
        method='lip_k_norm',
        arguments=dict(weight_norm=_WEIGHT_NORM, order=order),
        # In the l1 norm a canary with equal coordinates attains the bound.
        direction=(0.5**0.5, 0.5**0.5) if order == 1 else (1.0, 0.0))
       for name, order in K_NORMS.items()},
})

METHODS = tuple(_SETUPS)
"""Private methods of `dpjax.runs.options` whose radii are all fixed."""


def canary(name: str) -> Batch:
  """Returns a record on the boundary of the input ball, a batch of one."""
  setup = _SETUPS[name]
  x = INPUT_RADIUS * jnp.asarray(setup.direction)
  return Batch(x.reshape((1, *setup.record_shape)), jnp.zeros([1], jnp.int32))


def make(name: str) -> tuple[Model, Method]:
  """Builds (model, method) at each call, so that tests can plant faults."""
  setup = _SETUPS[name]
  model = setup.network()
  maker = training_methods.METHODS[setup.method or name].make
  return model, maker(model, setup.loss, **setup.arguments)


def game(name: str, *, num_runs: int = RUNS) -> Game:
  """Returns the game of a method and the canary that attains its bounds."""
  model, method = make(name)
  return Game(model=model, method=method, plan=plan(name),
              canary=canary(name), num_runs=num_runs)
